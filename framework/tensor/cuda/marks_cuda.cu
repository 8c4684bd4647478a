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

    CT_TRY(ct_cuda_check(cudaEventSynchronize(marks.event[to]), "event"));
    CT_TRY(ct_cuda_check(cudaEventElapsedTime(&ms, marks.event[from], marks.event[to]), "event"));
    *seconds_p = 1e-3 * (double)ms;
    return CT_OK;
}

static void range(const char *name)
{
    if (name != NULL)
        (void)nvtxRangePushA(name);
    else
        (void)nvtxRangePop();
}

extern "C" const ct_mark_ops ct_marks_cuda = { mark, between, range };
