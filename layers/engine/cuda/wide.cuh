/** @file wide.cuh  Neighbouring numbers four at a time: one access of 16 bytes, of 8 where numbers
 * have 16 bits. A thread that moves one number an access keeps too few bytes under way for the
 * memory of a large device. Included by .cu files.
 */
#ifndef CT_ENGINE_CUDA_WIDE_CUH
#define CT_ENGINE_CUDA_WIDE_CUH

#include "framework/math/cuda/narrow.cuh"
#include "framework/tensor/cuda/launch.cuh"

enum { CT_WIDE = 4 };

struct ct_four {
    float v[CT_WIDE];
};

/* As they lie in memory; of whole words, so that they are moved as one. */
struct alignas(16) ct_four_words {
    uint32_t w[4];
};
struct alignas(8) ct_two_words {
    uint32_t w[2];
};

/** Whether numbers of `type` can be read from `at` so; NULL can. */
static inline bool ct_is_wide(const void *at, ct_dtype type)
{
    return (uintptr_t)at % (CT_WIDE * ct_dtype_size(type)) == 0;
}

/** Numbers 4 k to 4 k + 3 of x, which are of type T. */
template <ct_dtype T> static __device__ inline ct_four ct_wide_get(const float *x, int64_t k)
{
    ct_four f;

    if (T == CT_F32) {
        ct_four_words r = ((const ct_four_words *)x)[k];

        for (int j = 0; j < CT_WIDE; j++) memcpy(&f.v[j], &r.w[j], sizeof(float));
    } else {
        ct_two_words r = ((const ct_two_words *)x)[k];

        for (int j = 0; j < CT_WIDE; j++) {
            uint16_t h = (uint16_t)(r.w[j / 2] >> j % 2 * 16);

            f.v[j] = (T == CT_BF16) ? ct_bf16_to_f32(h) : ct_f16_to_f32(h);
        }
    }
    return f;
}

template <ct_dtype T>
static __device__ inline void ct_wide_put(float *y, int64_t k, const ct_four &f)
{
    if (T == CT_F32) {
        ct_four_words r;

        for (int j = 0; j < CT_WIDE; j++) memcpy(&r.w[j], &f.v[j], sizeof(float));
        ((ct_four_words *)y)[k] = r;
    } else {
        ct_two_words r = {};

        for (int j = 0; j < CT_WIDE; j++) {
            uint16_t h = (T == CT_BF16) ? ct_bf16_from_f32(f.v[j]) : ct_f16_from_f32(f.v[j]);

            r.w[j / 2] |= (uint32_t)h << j % 2 * 16;
        }
        ((ct_two_words *)y)[k] = r;
    }
}

/* ---- functions of the numbers that have one place in N arrays */

template <int N> struct ct_wide_from {
    const float *x[N];
};

template <ct_dtype T, int N, class F>
__global__ void ct_wide_kernel(int64_t n, ct_wide_from<N> from, float *y, F f)
{
    CT_CUDA_LOOP(k, n / CT_WIDE)
    {
        ct_four in[N], out;

        for (int i = 0; i < N; i++) in[i] = ct_wide_get<T>(from.x[i], k);
        for (int j = 0; j < CT_WIDE; j++) {
            float v[N];

            for (int i = 0; i < N; i++) v[i] = in[i].v[j];
            out.v[j] = f(v);
        }
        ct_wide_put<T>(y, k, out);
    }
    /* what is left over, by the first threads */
    CT_CUDA_LOOP(k, n % CT_WIDE)
    {
        int64_t i = n / CT_WIDE * CT_WIDE + k;
        float v[N];

        for (int a = 0; a < N; a++) v[a] = ct_numbers_at(from.x[a], T)[i];
        ct_numbers_at(y, T).put(i, f(v));
    }
}

template <ct_dtype T, int N, class F>
__global__ void ct_slim_kernel(int64_t n, ct_wide_from<N> from, float *y, F f)
{
    CT_CUDA_LOOP(i, n)
    {
        float v[N];

        for (int a = 0; a < N; a++) v[a] = ct_numbers_at(from.x[a], T)[i];
        ct_numbers_at(y, T).put(i, f(v));
    }
}

template <ct_dtype T, int N, class F>
static ct_status ct_wide_run(ct_stream st, const char *what, int64_t n, ct_wide_from<N> from,
                             float *y, F f)
{
    bool wide = ct_is_wide(y, T);

    if (n <= 0) return CT_OK;
    for (int a = 0; a < N; a++) wide = wide && ct_is_wide(from.x[a], T);
    if (wide)
        CT_CUDA_RUN((ct_wide_kernel<T, N, F>), ct_cuda_grid((n + CT_WIDE - 1) / CT_WIDE), st, n,
                    from, y, f);
    else
        CT_CUDA_RUN((ct_slim_kernel<T, N, F>), ct_cuda_grid(n), st, n, from, y, f);
    return ct_cuda_launched(what);
}

/** y[i] = f(v), v[a] = number i of from.x[a]; all are of one type. y may be any of them. */
template <int N, class F>
static ct_status ct_cuda_wide_map(ct_stream st, const char *what, int64_t n, ct_dtype type,
                                  ct_wide_from<N> from, float *y, F f)
{
    if (type == CT_F32) return ct_wide_run<CT_F32>(st, what, n, from, y, f);
    if (type == CT_BF16) return ct_wide_run<CT_BF16>(st, what, n, from, y, f);
    return ct_wide_run<CT_F16>(st, what, n, from, y, f);
}

/** The same of numbers that are f32 always. */
template <int N, class F>
static ct_status ct_cuda_wide_floats(ct_stream st, const char *what, int64_t n,
                                     ct_wide_from<N> from, float *y, F f)
{
    return ct_wide_run<CT_F32>(st, what, n, from, y, f);
}

/* ---- sums down the columns of a matrix in row-major order: channels that come last */

enum { CT_WIDE_COLUMNS = CT_CUDA_SCRATCH / 4 /* so many at most: scratch holds their sums */ };

/* A tile of groups of four a block, its threads' rows side by side; then what they
 * have is added up in the order of rows. Block: part of the rows, tile after tile. U: rows whose
 * loads a thread has under way. */
template <int U, class P, class F>
__global__ void __launch_bounds__(CT_CUDA_BLOCK, 4)
    ct_wide_columns_kernel(int64_t rows, int64_t groups, int64_t parts, double *scratch, P channels,
                           F f)
{
    __shared__ double all[2 * CT_WIDE][CT_CUDA_BLOCK];
    int64_t first = blockIdx.x / parts * CT_CUDA_BLOCK, part = blockIdx.x % parts;
    int mine = (int)((groups - first < CT_CUDA_BLOCK) ? groups - first : CT_CUDA_BLOCK);
    int side = CT_CUDA_BLOCK / mine, row = (int)threadIdx.x / mine;
    int64_t group = first + (int)threadIdx.x % mine;
    double sum[2 * CT_WIDE] = {};

    if (row < side) {
        auto p = channels(group * CT_WIDE, (int64_t)1);

#ifdef __CUDACC__
#pragma unroll U
#endif
        for (int64_t r = part * side + row; r < rows; r += parts * side)
            f(r * groups + group, p, sum);
    }
    for (int j = 0; j < 2 * CT_WIDE; j++) all[j][threadIdx.x] = sum[j];
    __syncthreads();
    for (int o = (int)threadIdx.x; o < 2 * CT_WIDE * mine; o += CT_CUDA_BLOCK) {
        int g = o % mine, j = o / mine;
        double v = 0.0;

        for (int q = 0; q < side; q++) v += all[j][q * mine + g];
        scratch[(((first + g) * CT_WIDE + j / 2) * parts + part) * 2 + j % 2] = v;
    }
}

/** Two sums a column, to take(c, sum); columns are a multiple of 4. f(k, p, sum) adds to sum[2 j]
 * and sum[2 j + 1] what number 4 k + j of the matrix brings; p is what channels(c, 1) gives for
 * columns c to c + 3. */
template <int U, class P, class F, class T>
static ct_status ct_cuda_wide_columns(ct_stream st, const char *what, int64_t rows, int64_t columns,
                                      P channels, F f, T take)
{
    enum { MOST_PARTS = 512, ROWS = 16 };
    int64_t groups = columns / CT_WIDE, tiles = (groups + CT_CUDA_BLOCK - 1) / CT_CUDA_BLOCK;
    int64_t side = CT_CUDA_BLOCK / ((groups < CT_CUDA_BLOCK) ? groups : CT_CUDA_BLOCK);
    int64_t parts = rows / (side * ROWS);

    if (parts > MOST_PARTS / tiles) parts = MOST_PARTS / tiles; /* four blocks a multiprocessor */
    if (parts < 1) parts = 1;
    CT_CUDA_RUN_BLOCKS((ct_wide_columns_kernel<U, P, F>), (unsigned)(tiles * parts), st, rows,
                       groups, parts, ct_cuda_scratch(), channels, f);
    CT_TRY(ct_cuda_launched(what));
    return ct_cuda_add_parts<2>(st, what, columns, parts, take);
}

#endif
