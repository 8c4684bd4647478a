/* Selections on a device. Exact: the update's own pass counts the keys' upper 12 bits, which tells
 * the bin of the k-th, and collects what is over the last step's threshold, a little lowered
 * (collect_cuda.cu). Where these are fewer than k, or more than there is room for, a second pass
 * collects what is in that bin or above. Two rounds over these few find the k-th key itself.
 * Nothing waits for the host: kernels that turn out not to be needed return at once. */
#include "comm/codec/cuda/coder_cuda.cuh"

namespace
{
enum { LARGE_SHARE = 16 /* from this share on bounds spare nothing, as on the CPU */ };

/* From the top, the bin that holds the k-th key of those with the prefix so far. */
__global__ void find_kernel(coder_run *run, int at, int bins, int bits, int64_t k)
{
    __shared__ unsigned long long part[CT_CUDA_BLOCK];
    const unsigned *bin = run->bin + at;
    int per = (bins + CT_CUDA_BLOCK - 1) / CT_CUDA_BLOCK;
    int top = bins - (int)threadIdx.x * per, t = 0;
    unsigned long long sum = 0, above = 0, want = (at == 0) ? (unsigned long long)k : run->rest;

    if (run->settled) return;
    for (int b = top - 1; (b >= top - per) && (b >= 0); b--) sum += bin[b];
    part[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x != 0) return;
    while ((t < CT_CUDA_BLOCK) && (above + part[t] < want)) above += part[t++];
    run->gathers = run->gathers || (at == 0);
    if (t == CT_CUDA_BLOCK) { /* fewer than k are not zero: all of them */
        run->settled = 1;
        run->prefix = run->bound = 0;
        return;
    }
    top = bins - t * per - 1;
    while (above + bin[top] < want) above += bin[top--];
    run->prefix = (run->prefix << bits) | (unsigned)top;
    run->rest = want - above;
    if ((at == 0) && (top > 0)) run->bound = ((unsigned)top << CT_SELECT_BIN_SHIFT) - 1;
}

/* Which of four elements are candidates. */
__device__ inline unsigned over_bound(const float *v, int64_t i, int64_t n, ct_select_key key,
                                      int32_t bound)
{
    return four_over(load_four(v, i, n), key, bound); /* beyond n: zeros, over no bound */
}

__global__ void gather_kernel(segments l, int64_t n, int64_t n_chunk, ct_select_key key,
                              coder_run *run)
{
    int32_t bound = (int32_t)run->bound;

    if (!run->gathers) return;
    if ((blockIdx.x == 0) && (threadIdx.x == 0)) run->passes += 1;
    CT_WARP_LOOP(c, n_chunk)
    {
        uint64_t mask = 0;

        for (int r = 0; r < CHUNK / (FOUR * CT_WARP); r++) {
            int64_t i = c * CHUNK + (r * CT_WARP + (int64_t)ct_lane()) * FOUR;

            mask |= (uint64_t)over_bound(l.v, i, n, key, bound) << (FOUR * r);
        }
        keep_segment(run, l, c, mask);
    }
}

/* The entries of a chunk: its candidates, or where these have no room all of its elements. */
struct entries {
    const float *value;
    const unsigned *index; /* NULL: first, first + 1 … */
    int64_t first, n;
};

struct lists {
    const float *v;
    int64_t n, n_chunk;
    const unsigned *start, *count, *index;
    const float *value;
};

__device__ inline entries entries_of(const lists &l, bool overflow, int64_t c)
{
    int64_t first = c * CHUNK, left = l.n - first;
    entries e = { l.v + first, NULL, first, (left < CHUNK) ? left : CHUNK };

    if (overflow) return e;
    e.value = l.value + l.start[c];
    e.index = l.index + l.start[c];
    e.n = l.count[c];
    return e;
}

/* Of keys with the prefix so far, the next bits. */
__global__ void refine_kernel(lists l, ct_select_key key, coder_run *run, int at, int bins,
                              int known, int shift)
{
    __shared__ unsigned bin[MID_BINS];
    bool overflow = run->overflow != 0;
    unsigned prefix = run->prefix;

    if (run->settled) return;
    for (int b = (int)threadIdx.x; b < bins; b += CT_CUDA_BLOCK) bin[b] = 0;
    __syncthreads();
    CT_WARP_LOOP(c, l.n_chunk)
    {
        entries e = entries_of(l, overflow, c);

        for (int64_t j = ct_lane(); j < e.n; j += CT_WARP) {
            unsigned k = (unsigned)ct_select_key_of(e.value[j], key);

            if ((k > 0) && (k >> known == prefix)) atomicAdd(&bin[(k >> shift) & (bins - 1)], 1u);
        }
    }
    __syncthreads();
    for (int b = (int)threadIdx.x; b < bins; b += CT_CUDA_BLOCK) {
        if (bin[b] != 0) atomicAdd(&run->bin[at + b], bin[b]);
    }
}

__global__ void count_chunks_kernel(lists l, ct_select_key key, const coder_run *run,
                                    unsigned *over, unsigned *equal)
{
    bool overflow = run->overflow != 0, ties = !run->settled;
    unsigned kth = run->prefix;

    CT_WARP_LOOP(c, l.n_chunk)
    {
        entries e = entries_of(l, overflow, c);
        unsigned o = 0, q = 0;

        for (int64_t j = ct_lane(); j < e.n; j += CT_WARP) {
            unsigned k = (unsigned)ct_select_key_of(e.value[j], key);

            o += (k > kth);
            q += ties && (k == kth);
        }
        o = ct_warp_add(o);
        q = ct_warp_add(q);
        if (ct_lane() == 0) {
            over[c] = o;
            equal[c] = q;
        }
    }
}

/* count[n] becomes what stands before each; returns the sum, to all threads. */
__device__ inline unsigned long long sums_before(unsigned *count, int64_t n)
{
    __shared__ unsigned long long part[CT_CUDA_BLOCK];
    __shared__ unsigned long long all;
    int64_t per = (n + CT_CUDA_BLOCK - 1) / CT_CUDA_BLOCK, from = per * threadIdx.x;
    int64_t end = (from + per < n) ? from + per : n;
    unsigned long long sum = 0;

    for (int64_t c = from; c < end; c++) sum += count[c];
    part[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        all = 0;
        for (int t = 0; t < CT_CUDA_BLOCK; t++) {
            unsigned long long mine = part[t];

            part[t] = all;
            all += mine;
        }
    }
    __syncthreads();
    sum = part[threadIdx.x];
    for (int64_t c = from; c < end; c++) {
        unsigned mine = count[c];

        count[c] = (unsigned)sum;
        sum += mine;
    }
    sum = all;
    __syncthreads();
    return sum;
}

/* remembers: the k-th key, for the next step; NULL: nobody does. */
__global__ void scan_kernel(coder_run *run, int64_t n_chunk, unsigned *over, unsigned *equal,
                            float *remembers)
{
    unsigned long long sum = sums_before(over, n_chunk), ties = sums_before(equal, n_chunk);

    if (threadIdx.x != 0) return;
    run->count = sum + ((ties < run->rest) ? ties : run->rest);
    if (remembers != NULL) *remembers = run->settled ? 0.0f : ct_select_float((int32_t)run->prefix);
}

/* Where the selected ones of a chunk go; they leave V, and U where it is masked. */
__global__ void take_kernel(lists l, ct_select_key key, const coder_run *run, const unsigned *over,
                            const unsigned *equal, bool halves, int64_t limit, float *v, float *u,
                            unsigned *index, float *value)
{
    bool overflow = run->overflow != 0, ties = !run->settled;
    unsigned kth = run->prefix;
    unsigned long long rest = run->rest;

    CT_WARP_LOOP(c, l.n_chunk)
    {
        entries e = entries_of(l, overflow, c);
        unsigned long long tie = equal[c], at = over[c] + ((tie < rest) ? tie : rest);

        for (int64_t b = 0; b < e.n; b += CT_WARP) {
            int64_t j = b + ct_lane();
            float x = (j < e.n) ? e.value[j] : 0.0f;
            unsigned k = (unsigned)ct_select_key_of(x, key), before = ct_lanes_before();
            unsigned equals = ct_warp_ballot(ties && (j < e.n) && (k == kth));
            bool first = ((equals >> ct_lane()) & 1u) && (tie + ct_popc(equals & before) < rest);
            bool takes = (j < e.n) && ((k > kth) || first);
            unsigned taken = ct_warp_ballot(takes);
            unsigned long long place = at + (unsigned)ct_popc(taken & before);

            if (takes && (place < (unsigned long long)limit)) {
                unsigned i = (e.index != NULL) ? e.index[j] : (unsigned)(e.first + j);
                float sent = halves ? ct_bf16_to_f32(ct_payload_half_bits(x)) : x;

                index[place] = i;
                value[place] = sent;
                v[i] = ct_momentum_correction_add(x, -sent);
                if (u != NULL) u[i] = 0.0f;
            }
            tie += (unsigned)ct_popc(equals);
            at += (unsigned)ct_popc(taken);
        }
    }
}

} // namespace

ct_status ct_coder_gather(ct_codec_coder *c, ct_stream st, const ct_momentum_correction *a, ct_select_key key)
{
    CT_CUDA_RUN_BLOCKS(gather_kernel, chunk_blocks(c), st, segments_of(c, a->v), a->n, c->n_chunk,
                       key, c->run);
    return ct_cuda_launched("candidates of a selection");
}

/* The launches: what depends on what was found is decided on the device. */
ct_status ct_coder_select(ct_codec_coder *c, ct_stream st, const ct_momentum_correction *a, int sign)
{
    ct_select_key key = ct_select_key_of_sign(sign);
    unsigned blocks = chunk_blocks(c);
    float *u = a->mask_momentum ? a->u : NULL;
    bool exact = (c->kind == CT_SELECT_EXACT), few = (c->s.k <= a->n / LARGE_SHARE);
    lists l = { a->v, a->n, c->n_chunk, c->start, c->count, c->found_index, c->found_value };

    CT_TRY(ct_cuda_check(cudaMemsetAsync(c->run, 0, sizeof(*c->run), (cudaStream_t)st),
                         "cudaMemsetAsync"));
    if (!exact)
        CT_TRY(ct_coder_search(c, st, a, sign, key));
    else if (few)
        CT_TRY(ct_coder_update_and_collect(c, st, a, sign, key));
    else
        CT_TRY(ct_coder_update_and_count(c, st, a, key));
    CT_CUDA_RUN_BLOCKS(find_kernel, 1, st, c->run, 0, (int)TOP_BINS, (int)TOP_BITS, c->s.k);
    if (exact && few) CT_TRY(ct_coder_judge(c, st, sign));
    CT_TRY(ct_coder_gather(c, st, a, key));
    CT_CUDA_RUN_BLOCKS(refine_kernel, blocks, st, l, key, c->run, (int)MID_AT, (int)MID_BINS,
                       MID_BITS + LOW_BITS, (int)LOW_BITS);
    CT_CUDA_RUN_BLOCKS(find_kernel, 1, st, c->run, (int)MID_AT, (int)MID_BINS, (int)MID_BITS,
                       c->s.k);
    CT_CUDA_RUN_BLOCKS(refine_kernel, blocks, st, l, key, c->run, (int)LOW_AT, (int)LOW_BINS,
                       (int)LOW_BITS, 0);
    CT_CUDA_RUN_BLOCKS(find_kernel, 1, st, c->run, (int)LOW_AT, (int)LOW_BINS, (int)LOW_BITS,
                       c->s.k);
    CT_CUDA_RUN_BLOCKS(count_chunks_kernel, blocks, st, l, key, c->run, c->over, c->equal);
    CT_CUDA_RUN_BLOCKS(scan_kernel, 1, st, c->run, c->n_chunk, c->over, c->equal,
                       exact ? &c->kept->history[sign + 1].threshold : (float *)NULL);
    CT_CUDA_RUN_BLOCKS(take_kernel, blocks, st, l, key, c->run, c->over, c->equal,
                       c->s.form == CT_PAYLOAD_HALF, c->limit, a->v, u, c->index, c->value);
    CT_TRY(ct_cuda_launched("selection"));
    return ct_coder_pack(c, st, a->v);
}

/* ---- Thresholds between mean and maximum on a device: SEARCH, and SAMPLED, which uses one for several
 * steps. comm/codec/select.c says how and why; where it looks at counts, kernels of one thread
 * do, and rounds that are not needed any more return at once. */

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
