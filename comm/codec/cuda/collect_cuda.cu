/* Candidates of an exact selection in the update's own pass: what is over the last step's
 * threshold, lowered by a margin that moves as the CPU's does (comm/codec/select.c). The upper bits of
 * all keys are counted, too: so where the bound turns out to be wrong, a second pass knows where to
 * look, and what is selected never depends on it. */
#include "comm/codec/cuda/coder_cuda.cuh"

namespace
{
#define MARGIN_START 0.92f
#define MARGIN_LEAST 0.3f
#define MARGIN_MOST  1.5f
#define MARGIN_FORTH 1.005f
#define MARGIN_LEAP  1.02f
#define MARGIN_BACK  0.9f

/* One thread. A bound of 0 collects nothing: nobody knows one yet. */
__global__ void open_kernel(coder_run *run, coder_kept *kept, int sign, float carry)
{
    int32_t bound;

    if (threadIdx.x != 0) return;
    for (int i = 0; i < 3; i++) {
        if (carry != 0)
            kept->history[i].threshold = ct_momentum_correction_mul(kept->history[i].threshold, carry);
        if (kept->history[i].margin == 0) kept->history[i].margin = MARGIN_START;
    }
    bound = ct_select_bits(
        ct_momentum_correction_mul(kept->history[sign + 1].threshold, kept->history[sign + 1].margin));
    run->guess = (bound > 0) ? (unsigned)bound - 1 : 0;
    run->collects = (bound > 0);
}

template <update_rule RULE, bool DECAYS>
__global__ void collect_kernel(accum_args a, ct_select_key key, int64_t n_chunk, segments l,
                               coder_run *run)
{
    __shared__ unsigned bin[TOP_BINS];
    float clip = *a.clip;
    int32_t bound = (int32_t)run->guess;
    bool bad = false, collects = run->collects != 0;

    for (int b = (int)threadIdx.x; b < TOP_BINS; b += CT_CUDA_BLOCK) bin[b] = 0;
    __syncthreads();
    CT_WARP_LOOP(c, n_chunk)
    {
        uint64_t mask = 0;

        for (int r = 0; r < CHUNK / (FOUR * CT_WARP); r++) {
            int64_t i = c * CHUNK + (r * CT_WARP + (int64_t)ct_lane()) * FOUR;
            four_floats v;

            if (i >= a.n) break;
            bad = update_four<RULE, DECAYS, COUNTS>(a, clip, i, key, bin, NULL, &v) || bad;
            mask |= (uint64_t)four_over(v, key, bound) << (FOUR * r);
        }
        if (collects) keep_segment(run, l, c, mask);
    }
    if (bad) run->bad = 1;
    __syncthreads();
    flush_bins(bin, TOP_BINS, run->bin);
}

/* One thread, once the k-th's bin is known: whether another pass is to collect. */
__global__ void judge_kernel(coder_run *run, coder_kept *kept, int sign, int64_t k)
{
    float *margin = &kept->history[sign + 1].margin;
    int64_t total = run->cursor;

    if ((threadIdx.x != 0) || !run->collects) return;
    if (total < k)
        *margin = ct_momentum_correction_mul(*margin, (*margin > MARGIN_LEAST) ? MARGIN_BACK : 1.0f);
    else if ((total > k + k / 4) && (*margin < MARGIN_MOST))
        *margin = ct_momentum_correction_mul(*margin, (total > 2 * k) ? MARGIN_LEAP : MARGIN_FORTH);
    if ((total >= k) && !run->overflow && !run->settled) {
        run->gathers = 0; /* the k-th is over the bound, and all above it are here */
        return;
    }
    run->cursor = run->overflow = 0;
}
} // namespace

ct_status ct_coder_update_and_collect(ct_codec_coder *c, ct_stream st, const ct_momentum_correction *accum,
                                      int sign, ct_select_key key)
{
    accum_args a = args_of(c, accum);
    bool nesterov = accum->nesterov;
    unsigned blocks = chunk_blocks(c);

    if (blocks > MOST_BLOCKS) blocks = MOST_BLOCKS; /* each has bins to add up */
    CT_CUDA_RUN(open_kernel, 1, st, c->run, c->kept, sign, accum->carry);
#define RUN(_rule, _decays)                                                                        \
    CT_CUDA_RUN_BLOCKS((collect_kernel<_rule, _decays>), blocks, st, a, key, c->n_chunk,           \
                       segments_of(c, a.v), c->run)
    CT_WITH_RULE(a, RUN);
#undef RUN
    return ct_cuda_launched("update of a residual, with candidates");
}

ct_status ct_coder_judge(ct_codec_coder *c, ct_stream st, int sign)
{
    CT_CUDA_RUN(judge_kernel, 1, st, c->run, c->kept, sign, c->s.k);
    return ct_cuda_launched("candidates of a selection");
}
