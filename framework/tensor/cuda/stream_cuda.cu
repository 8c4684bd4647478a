/* A stream of the device: recorded and given again, waited for, timed. */
#include <cstdlib>
#include <cstring>
#include <nvtx3/nvToolsExt.h>
#include <sched.h>

#include "framework/tensor/cuda/device_cuda.h"

static int64_t cuda_waits(void);

/* ---- work recorded, and given again as one */

static cudaStream_t main_stream; /* the process's, like the device */

/* The default stream cannot be recorded. This one is ordered with it: whoever copies by the default
 * stream finds what this one computed. */
static ct_status stream_open(ct_stream *st_p)
{
    if (main_stream == NULL) CT_TRY(ct_cuda_check(cudaStreamCreate(&main_stream), "stream"));
    *st_p = (ct_stream)main_stream;
    return CT_OK;
}

static ct_status begin(ct_stream st)
{
    return ct_cuda_check(cudaStreamBeginCapture((cudaStream_t)st, cudaStreamCaptureModeThreadLocal),
                         "graph");
}

static ct_status end(ct_stream st, void **graph_p)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    ct_status status = ct_cuda_check(cudaStreamEndCapture((cudaStream_t)st, &graph), "graph");

    *graph_p = NULL;
    if ((status == CT_OK) && (graph != NULL))
        status = ct_cuda_check(cudaGraphInstantiate(&exec, graph, 0), "graph");
    if (graph != NULL) (void)cudaGraphDestroy(graph);
    if (status == CT_OK) *graph_p = (void *)exec;
    return status;
}

static ct_status run(ct_stream st, void *graph)
{
    return ct_cuda_check(cudaGraphLaunch((cudaGraphExec_t)graph, (cudaStream_t)st), "graph");
}

static void release(void *graph)
{
    (void)cudaGraphExecDestroy((cudaGraphExec_t)graph);
}

extern "C" const ct_graph_ops ct_graph_cuda = { stream_open, begin, end, run, release, cuda_waits };

/* ---- the host's waits for the device */

extern "C" {
#include "framework/base/clock.h"
}

enum { SPINS = 2000 /* looks before the core is given away, as in waits for messages */ };
static const double LOOK_S = 1e-3; /* from one look at who may have failed to the next */

/* The process's, like the device. */
static struct {
    int64_t n;
    ct_status (*look)(void *ctx); /* NULL: what the device was given ends by itself */
    void *ctx;
    cudaEvent_t event; /* behind the stream that is waited for */
} waits;

ct_status ct_cuda_watch(ct_status (*look)(void *ctx), void *ctx)
{
    if ((look != NULL) && (waits.event == NULL))
        CT_TRY(
            ct_cuda_check(cudaEventCreateWithFlags(&waits.event, cudaEventDisableTiming), "event"));
    waits.look = look;
    waits.ctx = ctx;
    return CT_OK;
}

/* CUDA's own wait cannot be left. */
static ct_status look_until(cudaEvent_t event, const char *what)
{
    double looked = ct_clock_s();
    cudaError_t err;
    int spins = 0;

    while ((err = ct_cuda_query(event)) == cudaErrorNotReady) {
        double now = ct_clock_s();

        if (now - looked >= LOOK_S) {
            CT_TRY(waits.look(waits.ctx));
            looked = now;
        }
        if (spins < SPINS)
            spins++;
        else
            (void)sched_yield();
    }
    return ct_cuda_check(err, what);
}

ct_status ct_cuda_wait_event(cudaEvent_t event, const char *what)
{
    if (waits.look != NULL) return look_until(event, what);
    return ct_cuda_check(cudaEventSynchronize(event), what);
}

ct_status ct_cuda_wait(cudaStream_t st, const char *what)
{
    waits.n++;
    if (waits.look == NULL) return ct_cuda_check(cudaStreamSynchronize(st), what);
    CT_TRY(ct_cuda_check(cudaEventRecord(waits.event, st), what));
    return look_until(waits.event, what);
}

bool ct_cuda_goes_on(cudaStream_t st)
{
    cudaError_t err;

    (void)cudaGetLastError();
    err = cudaStreamQuery(st); /* tells of what stays: an address that is none, a broken device */
    if (err == cudaErrorNotReady) (void)cudaGetLastError();
    return (err == cudaSuccess) || (err == cudaErrorNotReady);
}

static int64_t cuda_waits(void)
{
    return waits.n;
}

/* ---- events with times, and NVTX's ranges: its header finds a profiler's library when there is
 * one, and does nothing otherwise. */

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
