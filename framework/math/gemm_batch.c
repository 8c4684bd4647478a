/* Many products of one shape: whole products to threads, or, with fewer products than threads, all
 * threads to one after the other. */
#include <omp.h>

#include "framework/math/gemm_private.h"

static bool deals_out(const ct_gemm_desc *d, int64_t count)
{
    return count >= d->n_thread;
}

static ct_gemm_desc alone(const ct_gemm_desc *d)
{
    ct_gemm_desc one = *d;

    one.n_thread = 1;
    return one;
}

size_t ct_gemm_batch_workspace(const ct_gemm_desc *d, int64_t count)
{
    ct_gemm_desc one = alone(d);
    size_t threads = (d->n_thread > 1) ? (size_t)d->n_thread : 1;

    return deals_out(d, count) ? threads * ct_gemm_workspace(&one) : ct_gemm_workspace(d);
}

static ct_gemm_args product(const ct_gemm_batch *batch, const ct_gemm_args *g, int64_t i)
{
    ct_gemm_args one = *g;

    one.a += i * batch->step_a;
    one.b += i * batch->step_b;
    one.c += i * batch->step_c;
    return one;
}

void ct_gemm_run_batch(const ct_gemm_desc *d, const ct_gemm_batch *batch, const ct_gemm_args *g)
{
    ct_gemm_desc single = alone(d);
    bool deal = deals_out(d, batch->count);
    ct_gemm_plan p = ct_gemm_plan_make(deal ? &single : d);
    size_t step = ct_gemm_workspace(&single);
    int workers = (d->n_thread > 1) ? d->n_thread : 1;

    if (!deal) {
        for (int64_t i = 0; i < batch->count; i++) {
            ct_gemm_args one = product(batch, g, i);

            ct_gemm_run(&p, &one);
        }
        return;
    }
#pragma omp parallel for num_threads(workers)                                                      \
    schedule(static, 1) if ((workers > 1) && !omp_in_parallel())
    for (int v = 0; v < workers; v++) {
        for (int64_t i = batch->count * v / workers; i < batch->count * (v + 1) / workers; i++) {
            ct_gemm_args one = product(batch, g, i);

            one.work = (char *)g->work + (size_t)v * step;
            ct_gemm_run(&p, &one);
        }
    }
}
