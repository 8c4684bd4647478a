/* Thresholds between mean and maximum on a device: SEARCH, and SAMPLED, which uses one for several
 * steps. comm/codec/select_redsync.c says how and why; where it looks at counts, kernels of one thread
 * do, and rounds that are not needed any more return at once. */
#include "comm/codec/cuda/coder_cuda.cuh"

namespace
{
enum { MAX_ROUND = 6, MAX_AGE = 5 };

/* One thread: whether the last threshold is used again. */
__global__ void open_kernel(coder_run *run, coder_kept *kept, int sign, float carry, bool reuses)
{
    int age = kept->history[sign + 1].age;
    float threshold;

    if (threadIdx.x != 0) return;
    for (int i = 0; i < 3; i++)
        if (carry != 0)
            kept->history[i].threshold = ct_momentum_correction_mul(kept->history[i].threshold, carry);
    threshold = kept->history[sign + 1].threshold;
    run->searches = !reuses || !(threshold > 0.0f) || (age >= MAX_AGE);
    run->gathers = !run->searches;
    if (run->searches) return;
    run->bound = (unsigned)ct_select_bits(threshold);
    kept->history[sign + 1].age = age + 1;
}

__global__ void judge_kernel(coder_run *run, int64_t k, int64_t limit)
{
    int64_t total = run->cursor;

    if ((threadIdx.x != 0) || !run->gathers) return;
    run->gathers = 0;
    if (!run->overflow && (2 * total >= k) && (total <= limit)) {
        run->settled = 1;
        run->prefix = run->bound;
        return;
    }
    run->searches = 1;
    run->bound = run->cursor = run->overflow = 0;
}

__device__ inline void set_probes(coder_run *run)
{
    for (int i = 0; i < CT_SELECT_PROBES; i++) {
        run->over[i] = 0;
        run->probe[i] =
            ct_momentum_correction_add(run->low, ct_momentum_correction_mul((float)i / CT_SELECT_PROBES, run->high - run->low));
    }
}

__global__ void spread_kernel(coder_run *run, const double *part, int64_t n_chunk, int64_t n)
{
    double sum = 0;

    if (!run->searches) return;
    add_parts(part, n_chunk, 1, &sum);
    if (threadIdx.x != 0) return;
    run->low = (float)(sum / (double)n);
    run->high = ct_select_float((int32_t)run->most);
    set_probes(run);
}

/* How many keys are over each of the probes. */
__global__ void probe_kernel(const float *v, int64_t n, ct_select_key key, coder_run *run)
{
    int32_t probe[CT_SELECT_PROBES];
    unsigned over[CT_SELECT_PROBES] = { 0 };

    if (!run->searches || (run->found != 0) || !(run->low < run->high)) return;
    for (int j = 0; j < CT_SELECT_PROBES; j++) probe[j] = ct_select_bits(run->probe[j]);
    CT_CUDA_LOOP(q, (n + FOUR - 1) / FOUR)
    {
        four_floats x = load_four(v, q * FOUR, n);

        for (int c = 0; c < FOUR; c++) {
            int32_t k = ct_select_key_of(x.x[c], key);

            for (int j = 0; j < CT_SELECT_PROBES; j++)
                over[j] += (q * FOUR + c < n) && (k > probe[j]);
        }
    }
    for (int j = 0; j < CT_SELECT_PROBES; j++) {
        unsigned sum = ct_warp_add(over[j]);

        if (ct_lane() == 0) atomicAdd(&run->over[j], sum);
    }
}

__global__ void step_kernel(coder_run *run, int64_t k, int64_t most)
{
    int j = CT_SELECT_PROBES - 1;

    if ((threadIdx.x != 0) || !run->searches || (run->found != 0) || !(run->low < run->high))
        return;
    run->passes += 1;
    while ((j >= 0) && (run->over[j] < (unsigned long long)k)) j--;
    if (j < 0) { /* below the mean, then */
        run->high = (run->low == 0.0f) ? 0.0f : run->low;
        run->low = 0.0f;
    } else {
        run->low = run->probe[j];
        run->found = (run->over[j] <= (unsigned long long)most);
        if (j < CT_SELECT_PROBES - 1) run->high = run->probe[j + 1];
    }
    if (!run->found) set_probes(run);
}

__global__ void settle_kernel(coder_run *run, coder_kept *kept, int sign)
{
    if ((threadIdx.x != 0) || !run->searches) return;
    kept->history[sign + 1].threshold = run->found ? run->low : 0.0f;
    kept->history[sign + 1].age = 1;
    if (!run->found) return;
    run->settled = 1;
    run->gathers = 1;
    run->prefix = run->bound = (unsigned)ct_select_bits(run->low);
}

/* No threshold is good: the exact ones, whose upper bits were not counted yet. */
__global__ void count_again_kernel(const float *v, int64_t n, ct_select_key key, coder_run *run)
{
    __shared__ unsigned bin[TOP_BINS];

    if (run->settled) return;
    if ((blockIdx.x == 0) && (threadIdx.x == 0)) run->passes += 1;
    for (int b = (int)threadIdx.x; b < TOP_BINS; b += CT_CUDA_BLOCK) bin[b] = 0;
    __syncthreads();
    CT_CUDA_LOOP(q, (n + FOUR - 1) / FOUR)
    {
        four_floats x = load_four(v, q * FOUR, n);

        for (int c = 0; c < FOUR; c++) count_key(bin, x.x[c], key);
    }
    __syncthreads();
    flush_bins(bin, TOP_BINS, run->bin);
}
} // namespace

ct_status ct_coder_search(ct_codec_coder *c, ct_stream st, const ct_momentum_correction *a, int sign,
                          ct_select_key key)
{
    bool reuses = (c->kind == CT_SELECT_SAMPLED);
    unsigned blocks = pass_blocks(a->n);

    CT_CUDA_RUN(open_kernel, 1, st, c->run, c->kept, sign, a->carry, reuses);
    CT_TRY(ct_coder_update_and_sum(c, st, a, key));
    if (reuses) {
        CT_TRY(ct_coder_gather(c, st, a, key));
        CT_CUDA_RUN(judge_kernel, 1, st, c->run, c->s.k, c->limit);
    }
    CT_CUDA_RUN_BLOCKS(spread_kernel, 1, st, c->run, c->part, c->n_chunk, a->n);
    for (int i = 0; i < MAX_ROUND; i++) {
        CT_CUDA_RUN_BLOCKS(probe_kernel, blocks, st, a->v, a->n, key, c->run);
        CT_CUDA_RUN(step_kernel, 1, st, c->run, c->s.k, ct_select_most(c->s.k));
    }
    CT_CUDA_RUN(settle_kernel, 1, st, c->run, c->kept, sign);
    CT_CUDA_RUN_BLOCKS(count_again_kernel, blocks, st, a->v, a->n, key, c->run);
    return ct_cuda_launched("search of a threshold");
}
