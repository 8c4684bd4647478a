/* NCCL's sums between processes of one host: each rank puts a piece into shared memory, and all add
 * the pieces up in the order of the ranks. */
#include <nccl.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <functional>
#include <memory>
#include <sched.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

namespace
{
const size_t PIECE = 4096; /* elements */
const int RANKS = 64;

/* Which call of a rank a sum comes from, and whether that was captured. */
struct origin {
    int call;
    bool captured;
};

struct room {
    std::atomic<int> arrived, round, aborting, broken; /* broken: a sum will never end */
    origin of[RANKS];
    double piece[]; /* of each rank, one after the other */
};

int n_sum, n_abort;

double seconds(void)
{
    timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
} // namespace

struct ct_emulated_nccl {
    room *shared;
    size_t bytes;
    int rank, n_rank, n_call = 0, n_run = 0;
    double failed_s = 0.0; /* when a sum began that never ends; 0: none has */
    /* what was captured holds on to this: none may be left at the end */
    std::shared_ptr<int> held = std::make_shared<int>(0);
};

int ct_emulated_sums(void)
{
    return n_sum;
}

int ct_emulated_aborts(void)
{
    return n_abort;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    static int n;

    memset(id, 0, sizeof(*id));
    snprintf(id->internal, sizeof(id->internal), "/cortado-nccl-%d-%d", (int)getpid(), n++);
    return ncclSuccess;
}

/* All ranks meet; a minute without one of them ends the program. false: one never comes, and this
 * rank's device gets no farther either. */
static bool meet(ct_emulated_nccl *c)
{
    int round = c->shared->round.load();
    time_t start = time(nullptr);

    if (c->shared->arrived.fetch_add(1) + 1 == c->n_rank) {
        c->shared->arrived.store(0);
        c->shared->round.fetch_add(1);
        return true;
    }
    while (c->shared->round.load() == round) {
        if (c->shared->broken.load() != 0) {
            ct_emulated_stick(true);
            return false;
        }
        sched_yield();
        if (time(nullptr) - start < 60) continue;
        fprintf(stderr, "emulated NCCL: rank %d waits for the others\n", c->rank);
        abort();
    }
    return true;
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int n_rank, ncclUniqueId id, int rank)
{
    size_t bytes = sizeof(room) + (size_t)n_rank * PIECE * sizeof(double);
    int fd = shm_open(id.internal, O_RDWR | O_CREAT, 0600);
    void *at;

    if (n_rank > RANKS) return ncclInvalidArgument;
    if ((fd < 0) || (ftruncate(fd, (off_t)bytes) != 0)) return ncclInvalidArgument;
    at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (at == MAP_FAILED) return ncclInvalidArgument;
    *comm = new ct_emulated_nccl();
    (*comm)->shared = (room *)at;
    (*comm)->bytes = bytes;
    (*comm)->rank = rank;
    (*comm)->n_rank = n_rank;
    (void)meet(*comm);
    if (rank == 0) shm_unlink(id.internal);
    return ncclSuccess;
}

static void release(ncclComm_t comm)
{
    if (comm->held.use_count() > 1) {
        fprintf(stderr, "emulated NCCL: a graph with sums outlives its group\n");
        abort();
    }
    munmap(comm->shared, comm->bytes);
    delete comm;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    ct_emulated_hang();
    release(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    comm->shared->aborting.fetch_add(1);
    while (comm->shared->aborting.load() < comm->n_rank) usleep(1000);
    ct_emulated_stick(false);
    release(comm);
    n_abort++;
    return ncclSuccess;
}

/* Which sum never ends here; 0: none. */
static int failing(bool *silent_p)
{
    const char *what = getenv("CORTADO_EMULATED_NCCL_FAIL");

    *silent_p = (what != nullptr) && (strstr(what, "silent") != nullptr);
    return (what != nullptr) ? atoi(what) : 0;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    bool silent;

    (void)failing(&silent);
    *error = ((comm->failed_s > 0.0) && !silent && (seconds() - comm->failed_s > 0.1))
                 ? ncclRemoteError
                 : ncclSuccess;
    return ncclSuccess;
}

/* The user's guide: whether a call is captured must be the same on all ranks, and each gives the
 * graph of the capture that all made together. */
static bool compare(ct_emulated_nccl *c, const origin &mine)
{
    c->shared->of[c->rank] = mine;
    if (!meet(c)) return false;
    for (int r = 0; r < c->n_rank; r++) {
        const origin &other = c->shared->of[r];

        if ((other.call == mine.call) && (other.captured == mine.captured)) continue;
        fprintf(stderr, "emulated NCCL: call %d%s of rank %d meets call %d%s of rank %d\n",
                mine.call, mine.captured ? ", captured," : "", c->rank, other.call,
                other.captured ? ", captured," : "", r);
        abort();
    }
    return meet(c);
}

/* root: who gets the sum, and nobody else; -1: all. */
template <class T> static void add_up(ct_emulated_nccl *c, const T *from, T *to, size_t n, int root)
{
    T *piece = (T *)c->shared->piece;

    for (size_t at = 0; at < n; at += PIECE) {
        size_t m = (n - at < PIECE) ? n - at : PIECE;

        memcpy(piece + (size_t)c->rank * PIECE, from + at, m * sizeof(T));
        if (!meet(c)) return;
        for (size_t i = 0; (i < m) && ((root < 0) || (root == c->rank)); i++) {
            T sum = piece[i];

            for (int r = 1; r < c->n_rank; r++) sum += piece[(size_t)r * PIECE + i];
            to[at + i] = sum;
        }
        if (!meet(c)) return;
    }
}

/* What the root has to all ranks. */
static void spread(ct_emulated_nccl *c, const float *from, float *to, size_t n, int root)
{
    float *piece = (float *)c->shared->piece;

    for (size_t at = 0; at < n; at += PIECE) {
        size_t m = (n - at < PIECE) ? n - at : PIECE;

        if (c->rank == root) memcpy(piece, from + at, m * sizeof(*piece));
        if (!meet(c)) return;
        memcpy(to + at, piece, m * sizeof(*piece));
        if (!meet(c)) return;
    }
}

/* When the stream gets there, once all ranks have the same call. */
static ncclResult_t give(ncclComm_t comm, cudaStream_t st, std::function<void()> work)
{
    std::shared_ptr<int> held = comm->held;
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    origin from_call = { 0, false };

    (void)cudaStreamIsCapturing(st, &capture);
    if (st == nullptr) return ncclInvalidArgument;
    from_call = { ++comm->n_call, capture == cudaStreamCaptureStatusActive };
    ct_emulated_give(st, [=]() {
        (void)held.use_count(); /* as long as this is kept */
        bool silent;

        if (++comm->n_run == failing(&silent)) {
            comm->failed_s = seconds();
            comm->shared->broken.store(1);
            ct_emulated_stick(true);
            return;
        }
        ct_emulated_open();
        if (compare(comm, from_call)) work();
        ct_emulated_close();
    });
    return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t n, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t st)
{
    if (((type != ncclFloat) && (type != ncclDouble)) || (op != ncclSum))
        return ncclInvalidArgument;
    n_sum++;
    return give(comm, st, [=]() {
        if (type == ncclFloat)
            add_up(comm, (const float *)from, (float *)to, n, -1);
        else
            add_up(comm, (const double *)from, (double *)to, n, -1);
    });
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t n, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t st)
{
    if (type != ncclFloat) return ncclInvalidArgument;
    return give(comm, st, [=]() {
        for (int r = 0; r < comm->n_rank; r++)
            spread(comm, (const float *)from, (float *)to + (size_t)r * n, n, r);
    });
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t n, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t st)
{
    if ((type != ncclFloat) || (op != ncclSum)) return ncclInvalidArgument;
    return give(comm, st, [=]() {
        for (int r = 0; r < comm->n_rank; r++)
            add_up(comm, (const float *)from + (size_t)r * n, (float *)to, n, r);
    });
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t n, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t st)
{
    if (type != ncclFloat) return ncclInvalidArgument;
    return give(comm, st, [=]() { spread(comm, (const float *)from, (float *)to, n, root); });
}

ncclResult_t ncclReduce(const void *from, void *to, size_t n, ncclDataType_t type, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t st)
{
    if ((type != ncclFloat) || (op != ncclSum)) return ncclInvalidArgument;
    return give(comm, st, [=]() { add_up(comm, (const float *)from, (float *)to, n, root); });
}

/* Calls of a group run one after the other, in one order on all ranks. */
ncclResult_t ncclGroupStart(void)
{
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    switch (result) {
    case ncclSuccess:
        return "no error";
    case ncclRemoteError:
        return "remote process exited or there was a network error";
    default:
        return "invalid argument";
    }
}
