/** @file update.cuh  The update of four elements, in registers: what the passes over U and V do.
 * Private to comm/cuda.
 */
#ifndef CT_UPDATE_CUH
#define CT_UPDATE_CUH

#include "comm/codec/cuda/coder_cuda.cuh"

static __device__ inline bool is_bad(float v)
{
    return (ct_select_bits(v) & CT_SELECT_FIRST_BAD) == CT_SELECT_FIRST_BAD;
}

enum look { NOTHING, COUNTS, TAKES };

/* out: TAKES, of all of V. now_p: V as it is now, zeros beyond n; NULL: nobody asks. */
template <update_rule RULE, bool DECAYS, look LOOK>
static __device__ inline bool update_four(const accum_args &a, float clip, int64_t i,
                                          ct_select_key key, unsigned *bin, float *out,
                                          four_floats *now_p)
{
    four_floats g = load_four(a.grad, i, a.n), v = load_four(a.v, i, a.n), w = {}, u = {};
    bool bad = false;

    if (RULE != RESIDUAL) u = load_four(a.u, i, a.n);
    if (DECAYS) w = load_four(a.weight, i, a.n);
    for (int c = 0; c < FOUR; c++) {
        float step = update_step<RULE, DECAYS>(a, clip, g.x[c], w.x[c], &u.x[c]);

        v.x[c] = ct_momentum_correction_keep(a.f.carry, v.x[c], step);
        if (LOOK == COUNTS) {
            bad = bad || is_bad(v.x[c]);
            if (i + c < a.n) count_key(bin, v.x[c], key);
        }
    }
    if (RULE != RESIDUAL) store_four(a.u, i, a.n, u);
    if (LOOK == TAKES) {
        store_four(out, i, a.n, v);
        v = {};
    }
    store_four(a.v, i, a.n, v);
    if (now_p != NULL) *now_p = v;
    return bad;
}

#endif
