/* The update of momentum and residual on a device: each stream is read and written once, by fours,
 * and what a selection wants to know of V is counted on the way. */
#include "comm/codec/cuda/coder_cuda.cuh"

namespace
{
template <update_rule RULE, bool DECAYS, look LOOK>
__global__ void update_kernel(accum_args a, float *out)
{
    float clip = *a.clip;
    ct_select_key key = {};

    CT_CUDA_LOOP(q, (a.n + FOUR - 1) / FOUR)
    {
        (void)update_four<RULE, DECAYS, LOOK>(a, clip, q * FOUR, key, NULL, out, NULL);
    }
}

template <update_rule RULE, bool DECAYS>
__global__ void count_kernel(accum_args a, ct_select_key key, coder_run *run)
{
    __shared__ unsigned bin[TOP_BINS];
    float clip = *a.clip;
    bool bad = false;

    for (int b = (int)threadIdx.x; b < TOP_BINS; b += CT_CUDA_BLOCK) bin[b] = 0;
    __syncthreads();
    CT_CUDA_LOOP(q, (a.n + FOUR - 1) / FOUR)
    {
        bad = update_four<RULE, DECAYS, COUNTS>(a, clip, q * FOUR, key, bin, NULL, NULL) || bad;
    }
    if (bad) run->bad = 1; /* whoever says so says the same */
    __syncthreads();
    flush_bins(bin, TOP_BINS, run->bin);
}

/* A chunk a warp: the sum of its keys as floats, in double, and the largest of all. */
template <update_rule RULE, bool DECAYS>
__global__ void sum_kernel(accum_args a, ct_select_key key, coder_run *run, int64_t n_chunk,
                           double *part)
{
    float clip = *a.clip;
    int32_t most = 0;
    bool bad = false;

    CT_WARP_LOOP(c, n_chunk)
    {
        double sum = 0;

        for (int64_t i = c * CHUNK + FOUR * (int64_t)ct_lane(); (i < (c + 1) * CHUNK) && (i < a.n);
             i += FOUR * CT_WARP) {
            four_floats v;

            (void)update_four<RULE, DECAYS, NOTHING>(a, clip, i, key, NULL, NULL, &v);
            for (int j = 0; j < FOUR; j++) {
                int32_t k = ct_select_key_of(v.x[j], key);

                bad = bad || is_bad(v.x[j]);
                most = (k > most) ? k : most;
                sum += (double)ct_select_float(k);
            }
        }
        sum = ct_warp_add(sum);
        if (ct_lane() == 0) part[c] = sum;
    }
    if (bad) run->bad = 1;
    most = (int32_t)ct_warp_most((unsigned)most);
    if (ct_lane() == 0) atomicMax(&run->most, (unsigned)most);
}

/* ---- dense steps */

__global__ void holds_kernel(const float *v, int64_t n, coder_kept *kept)
{
    bool any = false;

    CT_CUDA_LOOP(q, (n + FOUR - 1) / FOUR)
    {
        four_floats x = load_four(v, q * FOUR, n);

        for (int c = 0; c < FOUR; c++) any = any || (x.x[c] != 0);
    }
    if (any) kept->holds = 1;
}

/* out = what this step adds, V what was there before, in this step's rate; of both the squares. */
template <update_rule RULE, bool DECAYS>
__global__ void apart_kernel(accum_args a, bool restart, const coder_kept *kept, int64_t n_chunk,
                             double *part, float *out)
{
    float clip = *a.clip;
    bool from_zero = restart && (kept->holds != 0);

    CT_WARP_LOOP(c, n_chunk)
    {
        double own = 0, before = 0;

        for (int64_t i = c * CHUNK + ct_lane(); (i < (c + 1) * CHUNK) && (i < a.n); i += CT_WARP) {
            float u = ((RULE != RESIDUAL) && !from_zero) ? a.u[i] : 0.0f;
            float step =
                ct_momentum_correction_add(0.0f, update_step<RULE, DECAYS>(a, clip, a.grad[i],
                                                             DECAYS ? a.weight[i] : 0.0f, &u));
            float v = ct_momentum_correction_mul(a.v[i], a.f.carry);

            if (RULE != RESIDUAL) a.u[i] = u;
            a.v[i] = v;
            out[i] = step;
            own += (double)step * step;
            before += (double)v * v;
        }
        own = ct_warp_add(own);
        before = ct_warp_add(before);
        if (ct_lane() == 0) {
            part[c] = own;
            part[n_chunk + c] = before;
        }
    }
}

__global__ void share_kernel(const double *part, int64_t n_chunk, int n_rank, float least,
                             coder_kept *kept)
{
    double sum[2] = { 0, 0 };

    add_parts(part, n_chunk, 2, sum);
    if (threadIdx.x == 0) kept->share = ct_momentum_correction_share(sum[0], sum[1], n_rank, least);
}

__global__ void send_kernel(float *v, int64_t n, const coder_kept *kept, float *out)
{
    float share = kept->share;

    CT_CUDA_LOOP(i, n)
    {
        float sent = ct_momentum_correction_mul(share, v[i]);

        out[i] = ct_momentum_correction_add(out[i], sent);
        v[i] = ct_momentum_correction_add(v[i], -sent);
    }
}

/* ---- the limit of a norm */

__global__ void square_kernel(const float *grad, int64_t n, int64_t n_chunk, double *part)
{
    CT_WARP_LOOP(c, n_chunk)
    {
        double sum = 0;

        for (int64_t i = c * CHUNK + ct_lane(); (i < (c + 1) * CHUNK) && (i < n); i += CT_WARP)
            sum += (double)grad[i] * grad[i];
        sum = ct_warp_add(sum);
        if (ct_lane() == 0) part[c] = sum;
    }
}

__global__ void clip_kernel(const double *part, int64_t n_chunk, double limit, coder_kept *kept)
{
    double sum = 0;

    add_parts(part, n_chunk, 1, &sum);
    if (threadIdx.x != 0) return;
    sum = sqrt(sum);
    kept->clip = ((sum > limit) && (sum <= 1.7e308)) ? (float)(limit / sum) : 1.0f;
}

__global__ void shrink_kernel(float *grad, int64_t n, const coder_kept *kept)
{
    float clip = kept->clip;

    if (clip == 1.0f) return;
    CT_CUDA_LOOP(i, n) grad[i] = ct_momentum_correction_mul(grad[i], clip);
}

__global__ void whole_kernel(coder_kept *kept)
{
    if (threadIdx.x == 0) kept->clip = 1.0f;
}

__global__ void sum_squares_kernel(const double *part, int64_t n_chunk, coder_kept *kept)
{
    double sum = 0;

    add_parts(part, n_chunk, 1, &sum);
    if (threadIdx.x == 0) kept->square = sum;
}
} // namespace

ct_status ct_coder_update(ct_codec_coder *c, ct_stream st, const ct_momentum_correction *accum)
{
    accum_args a = args_of(c, accum);
    bool nesterov = accum->nesterov;

#define RUN(_rule, _decays)                                                                        \
    CT_CUDA_RUN((update_kernel<_rule, _decays, NOTHING>), pass_blocks(a.n), st, a, (float *)NULL)
    CT_WITH_RULE(a, RUN);
#undef RUN
    return ct_cuda_launched("update of a residual");
}

ct_status ct_coder_all(ct_codec_coder *c, ct_stream st, const ct_momentum_correction *accum, float *out)
{
    accum_args a = args_of(c, accum);
    bool nesterov = accum->nesterov;

#define RUN(_rule, _decays)                                                                        \
    CT_CUDA_RUN((update_kernel<_rule, _decays, TAKES>), pass_blocks(a.n), st, a, out)
    CT_WITH_RULE(a, RUN);
#undef RUN
    return ct_cuda_launched("dense step of a residual");
}

ct_status ct_coder_apart(ct_codec_coder *c, ct_stream st, const ct_momentum_correction *accum, bool restart,
                         int n_rank, float least, float *out, bool *empty_p)
{
    accum_args a = args_of(c, accum);
    bool nesterov = accum->nesterov;

    *empty_p = false; /* the device knows, and does not say */
    CT_TRY(
        ct_cuda_check(cudaMemsetAsync(&c->kept->holds, 0, sizeof(c->kept->holds), (cudaStream_t)st),
                      "cudaMemsetAsync"));
    if (restart) CT_CUDA_RUN(holds_kernel, pass_blocks(a.n), st, a.v, a.n, c->kept);
#define RUN(_rule, _decays)                                                                        \
    CT_CUDA_RUN_BLOCKS((apart_kernel<_rule, _decays>), chunk_blocks(c), st, a, restart, c->kept,   \
                       c->n_chunk, c->part, out)
    CT_WITH_RULE(a, RUN);
#undef RUN
    CT_CUDA_RUN_BLOCKS(share_kernel, 1, st, c->part, c->n_chunk, n_rank, least, c->kept);
    CT_CUDA_RUN(send_kernel, pass_blocks(a.n), st, a.v, a.n, c->kept, out);
    return ct_cuda_launched("dense step of a residual");
}

ct_status ct_coder_clip(ct_codec_coder *c, ct_stream st, const float *grad, int64_t n,
                        double limit)
{
    if (!(limit > 0)) return CT_OK; /* it is 1 from the start */
    CT_CUDA_RUN_BLOCKS(square_kernel, chunk_blocks(c), st, grad, n, c->n_chunk, c->part);
    CT_CUDA_RUN_BLOCKS(clip_kernel, 1, st, c->part, c->n_chunk, limit, c->kept);
    return ct_cuda_launched("norm of a gradient");
}

ct_status ct_coder_shrink(ct_codec_coder *c, ct_stream st, float *grad, int64_t n, double limit)
{
    if (!(limit > 0)) return CT_OK;
    CT_TRY(ct_coder_clip(c, st, grad, n, limit));
    CT_CUDA_RUN(shrink_kernel, pass_blocks(n), st, grad, n, c->kept);
    CT_CUDA_RUN(whole_kernel, 1, st, c->kept);
    return ct_cuda_launched("limit of a norm");
}

ct_status ct_coder_update_and_count(ct_codec_coder *c, ct_stream st, const ct_momentum_correction *accum,
                                    ct_select_key key)
{
    accum_args a = args_of(c, accum);
    bool nesterov = accum->nesterov;

#define RUN(_rule, _decays)                                                                        \
    CT_CUDA_RUN_BLOCKS((count_kernel<_rule, _decays>), pass_blocks(a.n), st, a, key, c->run)
    CT_WITH_RULE(a, RUN);
#undef RUN
    return ct_cuda_launched("update of a residual, with counts");
}

ct_status ct_coder_update_and_sum(ct_codec_coder *c, ct_stream st, const ct_momentum_correction *accum,
                                  ct_select_key key)
{
    accum_args a = args_of(c, accum);
    bool nesterov = accum->nesterov;

#define RUN(_rule, _decays)                                                                        \
    CT_CUDA_RUN_BLOCKS((sum_kernel<_rule, _decays>), chunk_blocks(c), st, a, key, c->run,          \
                       c->n_chunk, c->part)
    CT_WITH_RULE(a, RUN);
#undef RUN
    return ct_cuda_launched("update of a residual, with sums");
}

ct_status ct_coder_square(ct_codec_coder *c, ct_stream st, const float *v, int64_t n,
                          double *sum_p)
{
    CT_CUDA_RUN_BLOCKS(square_kernel, chunk_blocks(c), st, v, n, c->n_chunk, c->part);
    CT_CUDA_RUN_BLOCKS(sum_squares_kernel, 1, st, c->part, c->n_chunk, c->kept);
    CT_TRY(ct_cuda_launched("norm of a residual"));
    CT_TRY(ct_cuda_check(cudaMemcpyAsync(sum_p, &c->kept->square, sizeof(*sum_p),
                                         cudaMemcpyDeviceToHost, (cudaStream_t)st),
                         "copy to host"));
    return ct_cuda_check(cudaStreamSynchronize((cudaStream_t)st), "norm of a residual");
}
