# comm { verify_wire }: a bit that changes between two ranks ends the job where it arrives, whatever sends it.
. "$ROOT/tests/cli/lib.sh"
command -v mpicc >/dev/null || { skip wire "no mpicc"; finish; }
can_preload || { skip wire "the sanitizer wants to be loaded first"; finish; }
make_case
# on rank FLIP_RANK the message number FLIP of LEAST bytes or more leaves with another bit
cat >flip.c <<'EOF2'
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

int MPI_Isend(const void *data, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK"), *number = getenv("FLIP");
    static int sent;
    int size = 0;

    if (rank == NULL) rank = getenv("PMI_RANK");
    MPI_Type_size(type, &size);
    if ((number != NULL) && (strcmp(rank, getenv("FLIP_RANK")) == 0) && (n * size >= atoi(getenv("LEAST"))) &&
        (++sent == atoi(number))) {
        char *copy = malloc((size_t)(n * size));

        memcpy(copy, data, (size_t)(n * size));
        copy[n * size - 1] ^= 1 << 3;
        data = copy;
    }
    return PMPI_Isend(data, n, type, to, tag, comm, request);
}
EOF2
mpicc -shared -fPIC flip.c -o flip.so || { not_ok flip "mpicc"; finish; }
train="$CORTADO train --solver=solver.prototxt --allreduce=ring --set=snapshot=0 --set=test_interval=100000 --set=comm.tune_iterations=0"
sum_of() { sed -n 's/.*weights after iteration [0-9]*: checksum \([0-9a-f]*\).*/\1/p' out; }

# nothing changes but what is looked at
for ranks in 2 3; do
    $JOB $ranks $train >out 2>&1 </dev/null
    own=$(sum_of)
    runs verified_$ranks 0 'Optimization Done' $JOB $ranks $train --set=comm.verify_wire=true
    is same_bits_$ranks test "$(sum_of)" = "${own:-none}"
done
# without it the flip goes on
runs unseen 0 'Optimization Done' $JOB 3 env LD_PRELOAD=./flip.so FLIP=20 FLIP_RANK=1 LEAST=64 $train --set=checksum_interval=0
is unseen_differs test "$(sum_of)" != "${own:-none}"

flipped() { # NAME RANKS OPTION...
    name=$1 ranks=$2
    shift 2
    runs "$name" 5 'verify_wire: a message of [0-9]+ bytes from rank 1 to rank [02] has not arrived as it was sent' \
        $JOB $ranks env LD_PRELOAD=./flip.so FLIP=20 FLIP_RANK=1 LEAST=${LEAST:-64} $train --set=comm.verify_wire=true "$@"
}
small=--set=compression.min_bytes=64
for way in ring rhd; do flipped $way 3 --allreduce=$way; done
flipped by_polls 2 --set=comm.progress=POLL
for exchange in ALLGATHER GTOPK OKTOPK; do
    flipped topk_$exchange 3 --set=compression.type=TOPK --set=compression.density=0.05 $small --set=compression.exchange=$exchange --set=deterministic=false
done
for codec in BF16 POWERSGD ONEBIT INT8; do flipped $codec 2 --topology=2x1 --set=compression.type=$codec $small; done
flipped zero_3 2 --set=memory.zero=3
flipped local_steps 2 --set=outer.local_iter=2 --set=outer.groups=2
printf 'ranks: 2 global_batch: 16 stage { first: "in" last: "drop" rank: 0 } stage { first: "ip" last: "loss" rank: 1 }\n' >two.plan
flipped pipeline 2 --parallel=two.plan
flipped optex 2 --set=type=OptEx --set=optex.base_type=Adam --set=optex.parallel=2 --set=base_lr=0.01 --set=optex.guard=false
runs impi_is_refused 2 'allreduce "impi" and verify_wire do not go together' $JOB 2 $train --allreduce=impi --set=comm.verify_wire=true
finish
