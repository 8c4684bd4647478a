# How tests are counted: scripts/run_test.sh and scripts/test_summary.sh, with and without what must not skip.
. "$ROOT/tests/cli/lib.sh"
export ROOT
cat >some.sh <<'END'
echo "skipped: a line that is no skip"
echo "ok one"
echo "skip caffe_itself: CORTADO_CAFFE names no caffe"
echo "[  SKIPPED ] test_two"
echo "[  SKIPPED ] test_three"
END
cat >count.sh <<'END'
CORTADO_TEST_REQUIRE=$1 STRICT=1 exec "$ROOT/scripts/run_test.sh" "r$1" "$2" sh some.sh
END

# on a user's machine everything may skip
runs may_skip 0 'PASS unit/test_cuda_x \(1 passed, 3 skipped' sh count.sh 0 unit/test_cuda_x
runs other_may_skip 0 'PASS cli/test_model \(1 passed, 3 skipped' sh count.sh 0 cli/test_model
runs summary 0 '' "$ROOT/scripts/test_summary.sh" r0
is summary_counts grep -qx '6 skipped:' out
is summary_names grep -qx '    unit/test_cuda_x: test_three test_two (needs a GPU.*)' out
is summary_says_why grep -qx '    cli/test_model: caffe_itself (CORTADO_CAFFE names no caffe)' out
is last_line [ "$(tail -n 1 out)" = "2 passed, 0 failed" ]

# where nothing may that is not listed
runs listed_may_skip 0 'PASS unit/test_cuda_x \(1 passed, 3 skipped' sh count.sh 1 unit/test_cuda_x
runs others_may_not 1 'not ok test_two: skipped, and CORTADO_TEST_REQUIRE=1' sh count.sh 1 cli/test_model
runs required 1 '^2 passed, 2 failed$' "$ROOT/scripts/test_summary.sh" r1
is required_names sh -c '! grep -q "cli/test_model:.*test_two" out'
echo 'echo "skip simulate: no simulator: make SIMGRID=1, and smpirun"' >some.sh
runs simulator_must_run 1 'not ok simulate: no simulator: make SIMGRID=1, and smpirun: skipped, and' sh count.sh 1 cli/test_simulate
echo 'echo "skip slurm: no slurmctld"' >some.sh
runs slurm_must_run 1 'not ok slurm' sh count.sh 1 slurm/test_slurm

# of the leaks that ranks list, those count that our own code allocated, in every folder of sources
leak() { # FRAME OF THE CALLER
    printf 'echo "ok one"\ncat <<END\nDirect leak of 8 byte(s) in 1 object(s) allocated from:\n' >some.sh
    printf '    #0 0x7f10 in __interceptor_malloc asan_malloc_linux.cpp:69\n    #1 0x55d0 in %s\n\nEND\n' "$1" >>some.sh
}
leak 'pmix_init /usr/src/pmix/client/init.c:70'
runs leak_of_mpi 0 'PASS mpi/test_x \(1 passed' env LSAN_OPTIONS=exitcode=0 sh count.sh 1 mpi/test_x
for folder in $(cd "$ROOT" && find . -name module.mk | cut -d/ -f2 | sort -u) tests; do
    leak "some_call $folder/some/file.c:7"
    runs leak_of_$folder 1 'FAIL mpi/test_x \(exit 0' env LSAN_OPTIONS=exitcode=0 sh count.sh 1 mpi/test_x
done
finish
