/* The host's waits for the device. */
#include "framework/tensor/cuda/device_cuda.h"

#include <sched.h>

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

int64_t ct_cuda_waits(void)
{
    return waits.n;
}
