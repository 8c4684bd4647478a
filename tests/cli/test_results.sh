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
finish
