/* Sums over ranks by NCCL, found when the program runs: built where its header is there, used where
 * its library is. */
#include <dlfcn.h>
#include <nccl.h>

#include <cstdlib>
#include <cstring>

#include "framework/tensor/cuda/device_cuda.h"
#include "framework/tensor/device.h"
#include "framework/tensor/transfer.h"

#define CALLS(X)                                                                                   \
    X(ncclGetUniqueId)                                                                             \
    X(ncclCommInitRank)                                                                            \
    X(ncclCommDestroy)                                                                             \
    X(ncclCommAbort)                                                                               \
    X(ncclCommGetAsyncError)                                                                       \
    X(ncclAllReduce)                                                                               \
    X(ncclAllGather)                                                                               \
    X(ncclReduceScatter)                                                                           \
    X(ncclBroadcast)                                                                               \
    X(ncclReduce)                                                                                  \
    X(ncclGroupStart)                                                                              \
    X(ncclGroupEnd)                                                                                \
    X(ncclGetErrorString)

/* The library is the process's, like the device. */
static struct {
    bool looked, found;
#define MEMBER(_name) decltype(&::_name) p_##_name;
    CALLS(MEMBER)
} nccl;

#ifdef CT_CUDA_EMULATED
static void *open_library(void)
{
    return (getenv("CORTADO_EMULATED_NCCL") != NULL) ? &nccl : NULL;
}

static bool find_calls(void *)
{
#define LINKED(_name) nccl.p_##_name = _name;
    CALLS(LINKED)
    return true;
}
#else
static void *open_library(void)
{
    return dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
}

static bool find_calls(void *lib)
{
#define FIND(_name)                                                                                \
    nccl.p_##_name = (decltype(nccl.p_##_name))dlsym(lib, #_name);                                 \
    if (nccl.p_##_name == NULL) return false;
    CALLS(FIND)
    return true;
}
#endif

static bool there(void)
{
    void *lib;

    if (nccl.looked) return nccl.found;
    nccl.looked = true;
    lib = open_library();
    nccl.found = (lib != NULL) && find_calls(lib);
    return nccl.found;
}

/* All that a rank has of a group. It may be in several, as where ranks divide a net. */
typedef struct group {
    struct group *next; /* in the list of those that are open */
    ncclComm_t comm;
    cudaStream_t stream;
    int rank, n_rank;
} group;

static struct {
    group *first;
    bool failed; /* one has, and what waits for it keeps the others waiting */
} groups;

static ct_status check(ncclResult_t result, int rank, const char *what)
{
    if ((result == ncclSuccess) || (result == ncclInProgress)) return CT_OK;
    return CT_FAIL(CT_ERR_COMM, "rank %d: %s: NCCL: %s", rank, what,
                   nccl.p_ncclGetErrorString(result));
}

static ct_status make_id(void *id)
{
    ncclUniqueId one;

    static_assert(sizeof(one) == CT_DEVICE_SUM_ID, "NCCL's ids have another size");
    CT_TRY(check(nccl.p_ncclGetUniqueId(&one), 0, "id"));
    memcpy(id, &one, sizeof(one));
    return CT_OK;
}

static ct_status check_group(group *g, ncclResult_t result, const char *what)
{
    ct_status status = check(result, g->rank, what);

    if (status != CT_OK) groups.failed = true;
    return status;
}

/* Another rank's end shows here at the latest, if the library tells of it. */
static ct_status given(void *of)
{
    group *g = (group *)of;
    ncclResult_t trouble = ncclSuccess;

    CT_TRY(check_group(g, nccl.p_ncclCommGetAsyncError(g->comm, &trouble), "state"));
    return check_group(g, trouble, "sum over ranks");
}

/* What the host waits for may be behind a sum of any group. */
static ct_status look(void *)
{
    for (group *g = groups.first; g != NULL; g = g->next) CT_TRY(given(g));
    return CT_OK;
}

static ct_status watch(void)
{
    return (groups.first != NULL) ? ct_cuda_watch(look, NULL) : ct_cuda_watch(NULL, NULL);
}

/* Destroying waits for all that was begun, which after an error may never end; aborting ends it. */
static void close_group(void *of)
{
    group *g = (group *)of;

    if (g == NULL) return;
    for (group **at = &groups.first; *at != NULL; at = &(*at)->next) {
        if (*at != g) continue;
        *at = g->next;
        break;
    }
    (void)watch();
    if (g->comm != NULL)
        (void)(groups.failed ? nccl.p_ncclCommAbort(g->comm) : nccl.p_ncclCommDestroy(g->comm));
    if (groups.first == NULL) groups.failed = false;
    if (g->stream != NULL) (void)cudaStreamDestroy(g->stream);
    free(g);
}

static ct_status open_group(const ct_device *, void *, const void *id, int rank, int n_rank,
                            void **group_p)
{
    group *g = (group *)calloc(1, sizeof(*g));
    ncclUniqueId one;
    ct_status status;

    if (g == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a group of NCCL");
    g->rank = rank;
    g->n_rank = n_rank;
    memcpy(&one, id, sizeof(one));
    status = ct_cuda_check(cudaStreamCreateWithFlags(&g->stream, cudaStreamNonBlocking), "stream");
    if (status == CT_OK)
        status = check(nccl.p_ncclCommInitRank(&g->comm, n_rank, one, rank), rank, "start");
    if (status == CT_OK) {
        g->next = groups.first;
        groups.first = g;
        status = watch();
    }
    if (status != CT_OK) {
        close_group(g);
        return status;
    }
    *group_p = g;
    return CT_OK;
}

/* What the group's stream was given so far. */
static ct_status make_ticket(group *g, void **ticket_p)
{
    cudaEvent_t ended;

    CT_TRY(ct_cuda_check(cudaEventCreateWithFlags(&ended, cudaEventDisableTiming), "event"));
    CT_TRY(ct_cuda_check(cudaEventRecord(ended, g->stream), "event"));
    *ticket_p = (void *)ended;
    return CT_OK;
}

/* Where `st` is recorded, so is this: the group's stream joins by the event that it follows, and
 * joins again with follow(). */
static ct_status begin(void *of, ct_stream st, float *data, int64_t n, void **ticket_p)
{
    group *g = (group *)of;

    CT_TRY(given(g));
    CT_TRY(ct_cuda_follow(st, (ct_stream)g->stream));
    CT_TRY(check_group(
        g, nccl.p_ncclAllReduce(data, data, (size_t)n, ncclFloat, ncclSum, g->comm, g->stream),
        "sum of gradients"));
    return make_ticket(g, ticket_p);
}

static ct_status follow(void *, ct_stream st, void *ticket)
{
    cudaEvent_t ended = (cudaEvent_t)ticket;
    ct_status status = ct_cuda_check(cudaStreamWaitEvent((cudaStream_t)st, ended, 0), "event");

    (void)cudaEventDestroy(ended); /* waits took its state when they were called */
    return status;
}

/* On the group's stream, too: NCCL wants the sums of a communicator in one order on all ranks, and
 * those of its gradients are there. Where this one is in a graph and those are not, NCCL lets one
 * wait for the other (NCCL_GRAPH_MIXING_SUPPORT, which is on unless it is switched off). */
static ct_status sum(void *of, ct_stream st, double *data, int64_t n)
{
    group *g = (group *)of;

    CT_TRY(given(g));
    CT_TRY(ct_cuda_follow(st, (ct_stream)g->stream));
    CT_TRY(check_group(
        g, nccl.p_ncclAllReduce(data, data, (size_t)n, ncclDouble, ncclSum, g->comm, g->stream),
        "sum over ranks"));
    return ct_cuda_follow((ct_stream)g->stream, st);
}

static void drop(void *, void *ticket)
{
    (void)cudaEventDestroy((cudaEvent_t)ticket);
}

/* ---- transfers: pieces of one length by NCCL's own collective, others by a call for each rank's
 */

static bool is_even(const group *g, const ct_transfer *t)
{
    for (int r = 1; r < g->n_rank; r++) {
        if (t->piece[r] != t->piece[0]) return false;
    }
    return true;
}

static ncclResult_t one_by_one(const group *g, const ct_transfer *t)
{
    ncclResult_t result = nccl.p_ncclGroupStart(), end;
    const float *from = (const float *)t->from;
    float *to = (float *)t->to;

    for (int r = 0; (r < g->n_rank) && (result == ncclSuccess); r++) {
        size_t n = (size_t)(t->piece[r] * t->unit);

        if (n == 0) continue;
        if (t->kind == CT_TRANSFER_GATHER) {
            result = nccl.p_ncclBroadcast(from, to, n, ncclFloat, r, g->comm, g->stream);
            to += n;
        } else {
            result = nccl.p_ncclReduce(from, to, n, ncclFloat, ncclSum, r, g->comm, g->stream);
            from += n;
        }
    }
    end = nccl.p_ncclGroupEnd();
    return (result == ncclSuccess) ? end : result;
}

static ncclResult_t carry(const group *g, const ct_transfer *t)
{
    size_t each;

    if (t->kind == CT_TRANSFER_SUM)
        return nccl.p_ncclAllReduce(t->from, t->to, (size_t)t->n, ncclFloat, ncclSum, g->comm,
                                    g->stream);
    if (!is_even(g, t)) return one_by_one(g, t);
    each = (size_t)(t->piece[0] * t->unit);
    if (t->kind == CT_TRANSFER_GATHER)
        return nccl.p_ncclAllGather(t->from, t->to, each, ncclFloat, g->comm, g->stream);
    return nccl.p_ncclReduceScatter(t->from, t->to, each, ncclFloat, ncclSum, g->comm, g->stream);
}

static ct_status transfer(void *of, const ct_transfer *t, void **ticket_p)
{
    group *g = (group *)of;

    CT_TRY(given(g));
    CT_TRY(ct_cuda_follow(t->stream, (ct_stream)g->stream));
    CT_TRY(check_group(g, carry(g, t), "values of a layer"));
    return make_ticket(g, ticket_p);
}

extern "C" const ct_device_sum_ops ct_device_sum_nccl = {
    "nccl", there, make_id, open_group, close_group, begin,
    follow, sum,   NULL,    given,      drop,        transfer,
};
