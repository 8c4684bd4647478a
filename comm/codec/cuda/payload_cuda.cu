/* Payloads (payload.h) on a device: written from what was selected, and added to a sum. */
#include "comm/codec/cuda/coder_cuda.cuh"

namespace
{
/* ---- writing */

/* The mean of what is selected takes the place of every value; the rest goes back. */
__global__ void sum_values_kernel(const coder_run *run, const float *value, int64_t n_chunk,
                                  double *part)
{
    CT_WARP_LOOP(c, n_chunk)
    {
        double sum = 0;

        for (int64_t j = c * CHUNK + ct_lane(); (j < (c + 1) * CHUNK) && (j < (int64_t)run->count);
             j += CT_WARP)
            sum += (double)value[j];
        sum = ct_warp_add(sum);
        if (ct_lane() == 0) part[c] = sum;
    }
}

__global__ void mean_kernel(coder_run *run, const double *part, int64_t n_chunk)
{
    double sum = 0;

    add_parts(part, n_chunk, 1, &sum);
    if (threadIdx.x == 0) run->mean = (run->count > 0) ? (float)(sum / (double)run->count) : 0.0f;
}

__global__ void take_mean_kernel(const coder_run *run, const unsigned *index, const float *value,
                                 float *v)
{
    CT_CUDA_LOOP(j, (int64_t)run->count) v[index[j]] = ct_momentum_correction_add(value[j], -run->mean);
}

/* Zeros, where entries are so many that a plain vector travels. */
__global__ void clear_kernel(const coder_run *run, ct_payload_form form, int64_t n, char *payload)
{
    ct_payload_code code = ct_payload_choose(form, n, (int64_t)run->count);
    float *f = (float *)(void *)(payload + CT_PAYLOAD_HEAD);
    uint16_t *h = (uint16_t *)(void *)(payload + CT_PAYLOAD_HEAD);

    if ((code != CT_CODE_DENSE32) && (code != CT_CODE_DENSE16)) return;
    CT_CUDA_LOOP(i, n)
    {
        if (code == CT_CODE_DENSE32)
            f[i] = 0;
        else
            h[i] = 0;
    }
}

/* The first entry at or beyond element i. */
__device__ inline int64_t lower_bound(const unsigned *index, int64_t count, int64_t i)
{
    int64_t lo = 0, hi = count;

    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;

        if (index[mid] < i)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

__device__ inline void write_head(const coder_run *run, coder_kept *kept, ct_payload_code code,
                                  ct_payload_form form, int64_t n, char *payload, ct_coder_note *note)
{
    ct_payload_head *head = (ct_payload_head *)(void *)payload;
    int64_t count = (int64_t)run->count;

    head->bytes = ct_payload_size(code, n, count);
    head->code = code;
    head->mean = (form == CT_PAYLOAD_MEAN) ? run->mean : 0.0f;
    head->n = n;
    head->count = count;
    *note = {};
    note->count = count;
    note->candidates = run->cursor;
    note->bad = run->bad;
    note->passes = 1 + run->passes;
    note->filled = (int64_t)kept->filled;
    note->wrong = kept->wrong;
    kept->filled = 0;
}

__global__ void pack_kernel(const coder_run *run, coder_kept *kept, ct_payload_form form, int64_t n,
                            const unsigned *index, const float *value, char *payload,
                            ct_coder_note *note)
{
    int64_t count = (int64_t)run->count, blocks = ct_payload_blocks(n);
    ct_payload_code code = ct_payload_choose(form, n, count);
    bool blocked = (code == CT_CODE_HALF) || (code == CT_CODE_MEAN16);
    char *at = payload + CT_PAYLOAD_HEAD;
    unsigned *index32 = (unsigned *)(void *)at;
    uint16_t *index16 = (uint16_t *)(void *)(at + 4 * blocks);

    if ((blockIdx.x == 0) && (threadIdx.x == 0))
        write_head(run, kept, code, form, n, payload, note);
    CT_CUDA_LOOP(b, blocked ? blocks : 0)
    {
        int64_t first = lower_bound(index, count, b * CT_PAYLOAD_BLOCK);

        index32[b] = (unsigned)(lower_bound(index, count, (b + 1) * CT_PAYLOAD_BLOCK) - first);
    }
    CT_CUDA_LOOP(j, count)
    {
        unsigned i = index[j];
        float x = value[j];

        if (code == CT_CODE_DENSE32)
            ((float *)(void *)at)[i] = x;
        else if (code == CT_CODE_DENSE16)
            ((uint16_t *)(void *)at)[i] = ct_bf16_from_f32(x);
        else if (blocked)
            index16[j] = (uint16_t)(i % CT_PAYLOAD_BLOCK);
        else
            index32[j] = i;
        if (code == CT_CODE_PAIRS) ((float *)(void *)(at + 4 * count))[j] = x;
        if (code == CT_CODE_HALF) index16[count + j] = ct_bf16_from_f32(x);
    }
}

/* ---- adding */

/* sum[i] += x; how many more elements are not 0 now. */
__device__ inline int add_one(float *sum, int64_t i, float x)
{
    float old = sum[i], now = ct_momentum_correction_add(old, x);

    sum[i] = now;
    return (int)(now != 0) - (int)(old != 0);
}

/* Entries with 32-bit indices, and plain vectors. */
__device__ inline int add_list(const ct_payload_head *head, int64_t n, float *sum, bool *wrong)
{
    const char *at = (const char *)(head + 1);
    const unsigned *index = (const unsigned *)(const void *)at;
    const float *value = (const float *)(const void *)(at + 4 * head->count);
    int filled = 0;

    if (head->code == CT_CODE_DENSE32) {
        const float *f = (const float *)(const void *)at;

        CT_CUDA_LOOP(i, n) filled += add_one(sum, i, f[i]);
        return filled;
    }
    if (head->code == CT_CODE_DENSE16) {
        const uint16_t *h = (const uint16_t *)(const void *)at;

        CT_CUDA_LOOP(i, n) filled += add_one(sum, i, ct_bf16_to_f32(h[i]));
        return filled;
    }
    CT_CUDA_LOOP(j, head->count)
    {
        if ((index[j] >= n) || ((j > 0) && (index[j] <= index[j - 1]))) {
            *wrong = true;
            continue;
        }
        filled += add_one(sum, index[j], (head->code == CT_CODE_PAIRS) ? value[j] : head->mean);
    }
    return filled;
}

/* Entries in blocks, a block of the device a block of the payload. */
__device__ inline int add_blocks(const ct_payload_head *head, int64_t n, float *sum, bool *wrong)
{
    __shared__ unsigned long long part[CT_CUDA_BLOCK];
    int64_t blocks = ct_payload_blocks(n);
    const unsigned *per_block = (const unsigned *)(const void *)(head + 1);
    const uint16_t *index = (const uint16_t *)(const void *)(per_block + blocks);
    const uint16_t *half = index + head->count;
    int filled = 0;

    for (int64_t b = blockIdx.x; b < blocks; b += gridDim.x) {
        int64_t first = b * CT_PAYLOAD_BLOCK, left = n - first, from = 0, end = 0;
        unsigned long long mine = 0;

        for (int64_t k = threadIdx.x; k < b; k += CT_CUDA_BLOCK) mine += per_block[k];
        part[threadIdx.x] = mine;
        __syncthreads();
        for (int t = 0; t < CT_CUDA_BLOCK; t++) from += (int64_t)part[t];
        end = from + per_block[b];
        for (int64_t j = from + threadIdx.x; (j < end) && (j < head->count); j += CT_CUDA_BLOCK) {
            if ((index[j] >= left) || ((j > from) && (index[j] <= index[j - 1]))) {
                *wrong = true;
                continue;
            }
            filled += add_one(sum, first + index[j],
                              (head->code == CT_CODE_HALF) ? ct_bf16_to_f32(half[j]) : head->mean);
        }
        __syncthreads();
    }
    return filled;
}

__global__ void add_kernel(const char *payload, int64_t n, float *sum, coder_kept *kept)
{
    __shared__ int filled;
    const ct_payload_head *head = (const ct_payload_head *)(const void *)payload;
    bool blocked = (head->code == CT_CODE_HALF) || (head->code == CT_CODE_MEAN16), wrong = false;
    int mine = 0;

    if (threadIdx.x == 0) filled = 0;
    __syncthreads();
    mine = blocked ? add_blocks(head, n, sum, &wrong) : add_list(head, n, sum, &wrong);
    if (mine != 0) atomicAdd(&filled, mine);
    if (wrong) kept->wrong = 1;
    __syncthreads();
    if ((threadIdx.x == 0) && (filled != 0))
        atomicAdd(&kept->filled, (unsigned long long)(long long)filled);
}

__global__ void put_back_kernel(const uint32_t *index, const float *value, int64_t count, float *v)
{
    CT_CUDA_LOOP(j, count) v[index[j]] = ct_momentum_correction_add(v[index[j]], value[j]);
}
} // namespace

ct_status ct_coder_put_back(ct_codec_coder *c, ct_stream st, const uint32_t *index,
                            const float *value, int64_t count, float *v)
{
    (void)c;
    CT_CUDA_RUN(put_back_kernel, pass_blocks(FOUR * count), st, index, value, count, v);
    return ct_cuda_launched("what an exchange dropped");
}

ct_status ct_coder_pack(ct_codec_coder *c, ct_stream st, float *v)
{
    int64_t n = c->s.n, chunks = (c->limit + CHUNK - 1) / CHUNK;
    unsigned blocks = pass_blocks(FOUR * c->limit);
    ct_payload_code most = ct_payload_choose(c->s.form, n, c->limit);

    if (c->s.form == CT_PAYLOAD_MEAN) {
        CT_CUDA_RUN_BLOCKS(sum_values_kernel, pass_blocks(c->limit), st, c->run, c->value, chunks,
                           c->part);
        CT_CUDA_RUN_BLOCKS(mean_kernel, 1, st, c->run, c->part, chunks);
        CT_CUDA_RUN(take_mean_kernel, blocks, st, c->run, c->index, c->value, v);
    }
    if ((most == CT_CODE_DENSE32) || (most == CT_CODE_DENSE16))
        CT_CUDA_RUN(clear_kernel, pass_blocks(n), st, c->run, c->s.form, n, c->payload);
    CT_CUDA_RUN(pack_kernel, blocks, st, c->run, c->kept, c->s.form, n, c->index, c->value,
                c->payload, c->note);
    return ct_cuda_launched("payload");
}

/* One after the other: elements that several have are added in this order, without atomics. */
ct_status ct_coder_add(ct_codec_coder *c, ct_stream st, const void *const *payload, const size_t *bytes,
                       int n_payload, float *sum)
{
    int64_t n = c->s.n, most = (c->limit > 1) ? c->limit : 1;
    unsigned blocks = pass_blocks(FOUR * most);

    (void)bytes; /* the host has compared them with the heads */
    CT_TRY(ct_cuda_check(cudaMemsetAsync(sum, 0, (size_t)n * sizeof(*sum), (cudaStream_t)st),
                         "cudaMemsetAsync"));
    for (int i = 0; i < n_payload; i++)
        CT_CUDA_RUN_BLOCKS(add_kernel, blocks, st, (const char *)payload[i], n, sum, c->kept);
    return ct_cuda_launched("addition of a payload");
}
