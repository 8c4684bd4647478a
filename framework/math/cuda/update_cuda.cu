#include <cmath>

#include "framework/math/cuda/math_cuda.h"
#include "framework/math/update_math.h"
#include "framework/tensor/cuda/launch.cuh"

/* The range alone, or [from, to) of the arena, where a line's parameter says the multipliers. */
template <class F>
static ct_status over_all(ct_stream st, const char *what, const ct_update *update,
                          const ct_update_all *all, F f)
{
    ct_update u = *update;
    ct_update_all a;

    if (all == NULL) return ct_cuda_map(st, what, u.count, [=] __device__(int64_t i) { f(&u, i); });
    a = *all;
    return ct_cuda_map(st, what, a.to - a.from, [=] __device__(int64_t k) {
        int64_t i = a.from + k;
        ct_update_part part = a.part[a.part_of_line[i / CT_UPDATE_LINE]];
        ct_update mine = u;

        if (i - part.offset >= part.count) return; /* between two parameters */
        mine.rate *= part.lr_mult;
        mine.decay_l2 *= part.decay_mult;
        mine.decay_l1 *= part.decay_mult;
        f(&mine, i);
    });
}

#define CASE_OF(_name, _kind)                                                                      \
    case _kind:                                                                                    \
        return over_all(st, #_name, u, all, [] __device__(const ct_update *v, int64_t i) {         \
            ct_update_##_name##_at(v, i);                                                          \
        });

extern "C" ct_status ct_update_cuda_all(ct_stream st, int kind, const ct_update *u,
                                        const ct_update_all *all)
{
    switch (kind) {
        CT_UPDATE_LIST(CASE_OF)
    default:
        return CT_FAIL(CT_ERR_ARG, "update rule %d on CUDA", kind);
    }
}

extern "C" ct_status ct_update_cuda(ct_stream st, int kind, const ct_update *u)
{
    return ct_update_cuda_all(st, kind, u, NULL);
}

extern "C" ct_status ct_update_cuda_lamb_norms(ct_stream st, const ct_update *update,
                                               double *weight_p, double *step_p)
{
    ct_update u = *update;
    double *at = ct_cuda_scratch() + CT_CUDA_SCRATCH, both[2];

    CT_TRY(ct_cuda_sums<2>(
        st, "LAMB norms", 1, u.count,
        [=] __device__(int64_t, int64_t i, double *sum) {
            double w = (double)u.weight[i], r = (double)ct_update_moments_at(&u, i);

            sum[0] += w * w;
            sum[1] += r * r;
        },
        [=] __device__(int64_t, const double *sum) {
            at[0] = sum[0];
            at[1] = sum[1];
        }));
    CT_TRY(ct_cuda_check(
        cudaMemcpyAsync(both, at, sizeof(both), cudaMemcpyDeviceToHost, (cudaStream_t)st),
        "LAMB norms"));
    CT_TRY(ct_cuda_wait((cudaStream_t)st, "LAMB norms"));
    *weight_p = both[0];
    *step_p = both[1];
    return CT_OK;
}
