# The launcher's word against MPI's, and who speaks when every rank finds the same mistake.
. "$ROOT/tests/cli/lib.sh"
make_case

runs singleton_of_ompi 4 'OMPI_COMM_WORLD_SIZE' env OMPI_COMM_WORLD_SIZE=4 "$CORTADO" train --solver=solver.prototxt
runs singleton_of_slurm 4 'SLURM_STEP_NUM_TASKS.*|srun --mpi' \
    env -u OMPI_COMM_WORLD_SIZE -u PMI_SIZE SLURM_STEP_NUM_TASKS=8 "$CORTADO" train --solver=solver.prototxt
runs no_job_no_check 0 '' env OMPI_COMM_WORLD_SIZE=4 "$CORTADO" info --limits=false

runs three_ranks_option 2 'unknown option' $JOB 3 "$CORTADO" train --solvr=x
is said_once test "$(grep -c 'unknown option' out)" = 1
is names_the_rank grep -q 'rank 0 on ' out
echo 'net: "net.prototxt" bas_lr: 1' >bad.prototxt
runs three_ranks_file 2 'bas_lr' $JOB 3 "$CORTADO" train --solver=bad.prototxt
is file_said_once test "$(grep -c 'bas_lr' out)" = 1
sed 's/num_output: 6/num_output: 0/' net.prototxt >net0.prototxt
sed 's/net.prototxt/net0.prototxt/' solver.prototxt >solver0.prototxt
runs three_ranks_layer 2 'layer "conv"' $JOB 3 "$CORTADO" train --solver=solver0.prototxt
is layer_said_once test "$(grep -c 'layer "conv"' out)" = 1
# what ranks find in the solver that rank 0 has read, of whose place they know nothing
mkdir -p "of us"
sed 's/momentum: 0.9/momentum: -1/' solver.prototxt >"of us/all.prototxt"
runs three_ranks_field 2 'of us/all.prototxt:[0-9]*:[0-9]*: momentum is -1' $JOB 3 "$CORTADO" train --solver="of us/all.prototxt"
is field_said_once test "$(grep -c 'momentum is -1' out)" = 1
runs three_ranks_set 2 '--set: regularization_type "L3" is unknown' \
    $JOB 3 "$CORTADO" train --solver=solver.prototxt --set=regularization_type=L3
is set_said_once test "$(grep -c '^E.*L3' out)" = 1
runs three_ranks_twin 2 'CORTADO_SET: batch_tokens counts the tokens' \
    $JOB 3 env CORTADO_SET=batch_tokens=77 "$CORTADO" train --solver=solver.prototxt
is twin_said_once test "$(grep -c 'batch_tokens counts' out)" = 1

# threads that OpenMP binds: the job has as many, and as many cores, as without, also where the program starts itself again
threads_of() { sed -n 's/.*local rank 0: \([0-9]* threads (affinity mask) on [0-9]* cores.*\)/\1/p' out; }
runs unbound 0 'Optimization Done' env -u OMP_NUM_THREADS "$CORTADO" train --solver=solver.prototxt --iterations=2
unbound=$(threads_of)
is unbound_is_said test -n "$unbound"
first=$(sed -n 's/^Cpus_allowed_list:[^0-9]*\([0-9]*\).*/\1/p' /proc/self/status)
for places in cores threads "{$first}"; do
    runs "bound_to_$places" 0 'Optimization Done' env -u OMP_NUM_THREADS -u OPENBLAS_CORETYPE OMP_PROC_BIND=close OMP_PLACES=$places \
        "$CORTADO" train --solver=solver.prototxt --iterations=2
    [ "$places" = "{$first}" ] && of="1 threads (affinity mask) on 1 cores: $first" || of=$unbound
    is "has_all_of_$places" test "$(threads_of)" = "$of"
done

# too few processes and threads: a rank says so before MPI and OpenMP do. No limit holds for root.
cp "$CORTADO" program
chmod 755 . program
user=""
[ "$(id -u)" != 0 ] || user="setpriv --reuid=65534 --regid=65534 --clear-groups"
for most in 1 6; do
    [ $most = 1 ] || [ -n "$user" ] || break # one's own other processes count
    runs threads_$most 2 "of [0-9]+ threads that a rank wants [0-9]+ can start: .*the user may have $most processes and threads" \
        $user prlimit --nproc=$most ./program train --solver=solver.prototxt
    is threads_${most}_said_once test "$(wc -l <out)" = 1
done
# so of what else MPI would stumble over, or wait for; and of a stack that a step would run over
few_files='a process may have 40 open files \(ulimit -n\); a rank needs 64'
small_stack='a process may have 262144 bytes of stack \(ulimit -s\); a rank needs 1048576'
short_files='a process may have 1000000 bytes in a file \(ulimit -f\); a rank needs 8388608'
for case in "nofile=40 $few_files" "stack=262144 $small_stack" "fsize=1000000 $short_files"; do
    runs "${case%% *}" 2 "${case#* }" prlimit "--${case%% *}" "$CORTADO" train --solver=solver.prototxt
    is "${case%%=*}_said_once" test "$(wc -l <out)" = 1
done
runs small_team_stack 2 'OMP_STACKSIZE=64K: a thread needs 512 KiB of stack' env OMP_STACKSIZE=64K "$CORTADO" train --solver=solver.prototxt
runs enough_room 0 'Optimization Done' env OMP_STACKSIZE=512 prlimit --nofile=64 --stack=1048576 --fsize=8388608 "$CORTADO" train --solver=solver.prototxt --iterations=2
finish
