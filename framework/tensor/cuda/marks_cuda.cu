/* Events with times, and NVTX's ranges: its header finds a profiler's library when there is one,
 * and does nothing otherwise. */
#include "framework/tensor/cuda/device_cuda.h"

#include <nvtx3/nvToolsExt.h>

#include <cstdlib>
#include <cstring>

static struct {
    cudaEvent_t *event; /* made when first used */
    int n;
} marks;

static ct_status reserve(int n)
{
    cudaEvent_t *more;

    if (n <= marks.n) return CT_OK;
    n = 2 * n + 64;
    more = (cudaEvent_t *)realloc(marks.event, (size_t)n * sizeof(*more));
    if (more == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d events", n);
    memset(more + marks.n, 0, (size_t)(n - marks.n) * sizeof(*more));
    marks.event = more;
    marks.n = n;
    return CT_OK;
}

static ct_status mark(ct_stream st, int slot)
{
    CT_TRY(reserve(slot + 1));
    if (marks.event[slot] == NULL)
        CT_TRY(ct_cuda_check(cudaEventCreate(&marks.event[slot]), "event"));
    return ct_cuda_check(cudaEventRecord(marks.event[slot], (cudaStream_t)st), "event");
}

static ct_status between(int from, int to, double *seconds_p)
{
    float ms = 0.0f;

    CT_TRY(ct_cuda_wait_event(marks.event[to], "event"));
    CT_TRY(ct_cuda_check(cudaEventElapsedTime(&ms, marks.event[from], marks.event[to]), "event"));
    *seconds_p = 1e-3 * (double)ms;
    return CT_OK;
}

/* Copies that are watched: their events are used again, round after round. */
enum { MOST_COPIES = 1 << 12 };

static struct {
    const void *who; /* NULL: nobody */
    struct {
        cudaEvent_t from, to; /* NULL: not made yet */
        size_t bytes;
        bool down;
    } of[MOST_COPIES];
    int64_t begun, taken; /* copy i is at i % MOST_COPIES */
} copies;

static void watch(const void *who)
{
    if (who != copies.who) copies.taken = copies.begun;
    copies.who = who;
}

ct_status ct_cuda_copy_beside(cudaStream_t way, void *to, const void *from, size_t bytes, bool down,
                              const char *what)
{
    cudaMemcpyKind kind = down ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice;
    auto *c = &copies.of[copies.begun % MOST_COPIES];

    if ((copies.who == NULL) || (copies.begun - copies.taken >= MOST_COPIES))
        return ct_cuda_check(cudaMemcpyAsync(to, from, bytes, kind, way), what);
    if (c->from == NULL) CT_TRY(ct_cuda_check(cudaEventCreate(&c->from), "event"));
    if (c->to == NULL) CT_TRY(ct_cuda_check(cudaEventCreate(&c->to), "event"));
    c->bytes = bytes;
    c->down = down;
    CT_TRY(ct_cuda_check(cudaEventRecord(c->from, way), "event"));
    CT_TRY(ct_cuda_check(cudaMemcpyAsync(to, from, bytes, kind, way), what));
    CT_TRY(ct_cuda_check(cudaEventRecord(c->to, way), "event"));
    copies.begun++;
    return CT_OK;
}

static ct_status seconds_from(int slot, cudaEvent_t to, double *seconds_p)
{
    float ms = 0.0f;

    CT_TRY(ct_cuda_check(cudaEventElapsedTime(&ms, marks.event[slot], to), "event"));
    *seconds_p = 1e-3 * (double)ms;
    return CT_OK;
}

static ct_status watched(const void *who, int from, bool wait, ct_copy_seen *copy_p, bool *got_p)
{
    auto *c = &copies.of[copies.taken % MOST_COPIES];
    cudaError_t err;

    *got_p = false;
    if ((copies.who != who) || (copies.taken == copies.begun)) return CT_OK;
    if (wait) CT_TRY(ct_cuda_wait_event(c->to, "copy"));
    err = ct_cuda_query(c->to);
    if (err == cudaErrorNotReady) return CT_OK;
    CT_TRY(ct_cuda_check(err, "copy"));
    *copy_p = { c->down, c->bytes, 0.0, 0.0 };
    CT_TRY(seconds_from(from, c->from, &copy_p->start_s));
    CT_TRY(seconds_from(from, c->to, &copy_p->end_s));
    copies.taken++;
    *got_p = true;
    return CT_OK;
}

static void range(const char *name)
{
    if (name != NULL)
        (void)nvtxRangePushA(name);
    else
        (void)nvtxRangePop();
}

extern "C" const ct_mark_ops ct_marks_cuda = { mark, between, range, watch, watched };
