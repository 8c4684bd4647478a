/** @file launch.cuh  Kernels from functions of an index: what most layers' CUDA sides are made of.
 *
 * A function object that maps an index to its work runs once for each index, in any order. Written
 * so, the same lines run on the host where CUDA is emulated. Sums run in double and in an order
 * that depends on their length alone, so results are the same from run to run. Included by .cu
 * files.
 */
#ifndef CT_CUDA_LAUNCH_H
#define CT_CUDA_LAUNCH_H

#include "framework/tensor/cuda/device_cuda.h"

/** Begins such a function: KERNEL(int64_t i) { … }. */
#define KERNEL [=] __device__

/** Before a loop over what a thread keeps in registers. */
#ifdef __CUDACC__
#define CT_UNROLLED _Pragma("unroll")
#else
#define CT_UNROLLED
#endif

template <class F> __global__ void ct_map_kernel(int64_t n, F f)
{
    CT_CUDA_LOOP(i, n) f(i);
}

/** f(i) for i in [0, n). */
template <class F> static ct_status ct_cuda_map(ct_stream st, const char *what, int64_t n, F f)
{
    if (n <= 0) return CT_OK;
    CT_CUDA_RUN(ct_map_kernel<F>, ct_cuda_grid(n), st, n, f);
    return ct_cuda_launched(what);
}

/** K sums. */
template <int K> struct ct_sums {
    double v[K];
};

/* A row a thread: rows so short that a block would idle. */
template <int K, class F, class P>
__global__ void ct_short_rows_kernel(int64_t rows, int64_t n, F f, P put)
{
    CT_CUDA_LOOP(r, rows)
    {
        ct_sums<K> sum = {};

        for (int64_t i = 0; i < n; i++) f(r, i, sum.v);
        put(r, sum.v);
    }
}

/* Adds up the threads' sums; thread 0 has the result. */
template <int K> static __device__ void ct_block_add(ct_sums<K> *part, ct_sums<K> mine)
{
    part[threadIdx.x] = mine;
    __syncthreads();
    for (int half = CT_CUDA_BLOCK / 2; half > 0; half /= 2) {
        if ((int)threadIdx.x < half) {
            for (int k = 0; k < K; k++) part[threadIdx.x].v[k] += part[threadIdx.x + half].v[k];
        }
        __syncthreads();
    }
}

/* A block a row, or several where rows are few: then scratch[row][part][K] holds their sums. */
template <int K, class F, class P>
__global__ void ct_long_rows_kernel(int64_t rows, int64_t n, int64_t parts, double *scratch, F f,
                                    P put)
{
    __shared__ ct_sums<K> part[CT_CUDA_BLOCK];

    for (int64_t b = blockIdx.x; b < rows * parts; b += gridDim.x) {
        int64_t r = b / parts;
        ct_sums<K> sum = {};

        for (int64_t i = (b % parts) * CT_CUDA_BLOCK + threadIdx.x; i < n;
             i += parts * CT_CUDA_BLOCK)
            f(r, i, sum.v);
        ct_block_add<K>(part, sum);
        if (threadIdx.x == 0) {
            if (parts == 1)
                put(r, part[0].v);
            else
                for (int k = 0; k < K; k++) scratch[b * K + k] = part[0].v[k];
        }
        __syncthreads();
    }
}

template <int K, class P>
__global__ void ct_add_parts_kernel(int64_t rows, int64_t parts, const double *scratch, P put)
{
    CT_CUDA_LOOP(r, rows)
    {
        ct_sums<K> sum = {};

        for (int64_t p = 0; p < parts; p++) {
            for (int k = 0; k < K; k++) sum.v[k] += scratch[(r * parts + p) * K + k];
        }
        put(r, sum.v);
    }
}

/* The same by a block a row. */
template <int K, class P>
__global__ void ct_add_many_kernel(int64_t rows, int64_t parts, const double *scratch, P put)
{
    __shared__ ct_sums<K> part[CT_CUDA_BLOCK];

    for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
        ct_sums<K> sum = {};

        for (int64_t p = threadIdx.x; p < parts; p += CT_CUDA_BLOCK) {
            for (int k = 0; k < K; k++) sum.v[k] += scratch[(r * parts + p) * K + k];
        }
        ct_block_add<K>(part, sum);
        if (threadIdx.x == 0) put(r, part[0].v);
        __syncthreads();
    }
}

/* The sums of parts, which lie in scratch, to put. */
template <int K, class P>
static ct_status ct_cuda_add_parts(ct_stream st, const char *what, int64_t rows, int64_t parts,
                                   P put)
{
    enum { FEW = 32, MOST_BLOCKS = 1 << 16 };

    if (parts <= FEW) {
        CT_CUDA_RUN((ct_add_parts_kernel<K, P>), ct_cuda_grid(rows), st, rows, parts,
                    ct_cuda_scratch(), put);
    } else {
        CT_CUDA_RUN_BLOCKS((ct_add_many_kernel<K, P>),
                           (unsigned)((rows < MOST_BLOCKS) ? rows : MOST_BLOCKS), st, rows, parts,
                           ct_cuda_scratch(), put);
    }
    return ct_cuda_launched(what);
}

/** K sums over each of `rows` rows: f(r, i, sum) adds what element i of row r brings to the
 *  doubles sum[K]; put(r, sum) gets them. Rows of no elements are put as zeros. */
template <int K, class F, class P>
static ct_status ct_cuda_sums(ct_stream st, const char *what, int64_t rows, int64_t n, F f, P put)
{
    enum { SHORT = 32, MOST_BLOCKS = 1 << 16 };
    int64_t parts = (n + 8 * CT_CUDA_BLOCK - 1) / (8 * CT_CUDA_BLOCK), blocks;

    if (rows <= 0) return CT_OK;
    if (n <= SHORT) {
        CT_CUDA_RUN((ct_short_rows_kernel<K, F, P>), ct_cuda_grid(rows), st, rows, n, f, put);
        return ct_cuda_launched(what);
    }
    if (parts > 1024 / rows) parts = 1024 / rows; /* enough blocks for a device */
    if (parts < 1) parts = 1;
    blocks = (rows * parts < MOST_BLOCKS) ? rows * parts : MOST_BLOCKS;
    CT_CUDA_RUN_BLOCKS((ct_long_rows_kernel<K, F, P>), (unsigned)blocks, st, rows, n, parts,
                       ct_cuda_scratch(), f, put);
    CT_TRY(ct_cuda_launched(what));
    if (parts == 1) return CT_OK;
    return ct_cuda_add_parts<K>(st, what, rows, parts, put);
}

enum { CT_CUDA_COLUMN_THREADS = 1 << 18 }; /* enough to keep a device's memory busy */

/* Neighbouring threads have neighbouring columns; parts of the rows go to different threads. */
template <int K, class F>
__global__ void ct_columns_kernel(int64_t columns, int64_t n, int64_t parts, double *scratch, F f)
{
    CT_CUDA_LOOP(t, columns * parts)
    {
        int64_t c = t % columns, p = t / columns;
        ct_sums<K> sum = {};

        for (int64_t i = p; i < n; i += parts) f(c, i, sum.v);
        for (int k = 0; k < K; k++) scratch[(c * parts + p) * K + k] = sum.v[k];
    }
}

/** The same for sums down the columns of a matrix in row-major order: element i of column c is in
 *  row i, so that threads side by side read side by side. */
template <int K, class F, class P>
static ct_status ct_cuda_column_sums(ct_stream st, const char *what, int64_t columns, int64_t n,
                                     F f, P put)
{
    int64_t parts = CT_CUDA_SCRATCH / K / ((columns > 0) ? columns : 1), most = (n + 31) / 32;

    if (columns <= 0) return CT_OK;
    if (parts > most) parts = most;
    if (parts > CT_CUDA_COLUMN_THREADS / columns + 1) parts = CT_CUDA_COLUMN_THREADS / columns + 1;
    if (parts < 1) { /* more columns than scratch has room for: they are enough threads */
        CT_CUDA_RUN((ct_short_rows_kernel<K, F, P>), ct_cuda_grid(columns), st, columns, n, f, put);
        return ct_cuda_launched(what);
    }
    CT_CUDA_RUN((ct_columns_kernel<K, F>), ct_cuda_grid(columns * parts), st, columns, n, parts,
                ct_cuda_scratch(), f);
    CT_TRY(ct_cuda_launched(what));
    return ct_cuda_add_parts<K>(st, what, columns, parts, put);
}

enum { CT_CUDA_TILE = 32 };

/* A tile a block at a time, through shared memory. */
template <class L, class S>
__global__ void ct_turn_kernel(int64_t batch, int64_t rows, int64_t columns, L load, S store)
{
    __shared__ float tile[CT_CUDA_TILE][CT_CUDA_TILE + 1];
    const int all = CT_CUDA_TILE * CT_CUDA_TILE;
    int64_t down = (rows + CT_CUDA_TILE - 1) / CT_CUDA_TILE;
    int64_t across = (columns + CT_CUDA_TILE - 1) / CT_CUDA_TILE;

    for (int64_t t = blockIdx.x; t < batch * down * across; t += gridDim.x) {
        int64_t b = t / (down * across), r = t / across % down * CT_CUDA_TILE;
        int64_t c = t % across * CT_CUDA_TILE;

        for (int i = (int)threadIdx.x; i < all; i += CT_CUDA_BLOCK) {
            int y = i / CT_CUDA_TILE, x = i % CT_CUDA_TILE;

            if ((r + y < rows) && (c + x < columns)) tile[y][x] = load(b, r + y, c + x);
        }
        __syncthreads();
        for (int i = (int)threadIdx.x; i < all; i += CT_CUDA_BLOCK) {
            int y = i % CT_CUDA_TILE, x = i / CT_CUDA_TILE;

            if ((r + y < rows) && (c + x < columns)) store(b, r + y, c + x, tile[y][x]);
        }
        __syncthreads();
    }
}

/** `batch` matrices, read along their rows and written down their columns: load(b, r, c) gives what
 *  store(b, r, c, value) gets. Neighbouring threads have neighbouring columns as they load, and
 *  neighbouring rows as they store, so memory is walked along on both sides. */
template <class L, class S>
static ct_status ct_cuda_turn(ct_stream st, const char *what, int64_t batch, int64_t rows,
                              int64_t columns, L load, S store)
{
    int64_t tiles = batch * ((rows + CT_CUDA_TILE - 1) / CT_CUDA_TILE) *
                    ((columns + CT_CUDA_TILE - 1) / CT_CUDA_TILE);

    if (tiles <= 0) return CT_OK;
    CT_CUDA_RUN_BLOCKS((ct_turn_kernel<L, S>), (unsigned)((tiles < (1 << 16)) ? tiles : 1 << 16),
                       st, batch, rows, columns, load, store);
    return ct_cuda_launched(what);
}

/** One sum, on the host; waits for it. f(i, sum). */
template <class F>
static ct_status ct_cuda_sum_host(ct_stream st, const char *what, int64_t n, F f, double *sum_p)
{
    double *at = ct_cuda_scratch() + CT_CUDA_SCRATCH;

    CT_TRY(ct_cuda_sums<1>(
        st, what, 1, n, [=] __device__(int64_t, int64_t i, double *sum) { f(i, sum); },
        [=] __device__(int64_t, const double *sum) { *at = sum[0]; }));
    CT_TRY(ct_cuda_check(
        cudaMemcpyAsync(sum_p, at, sizeof(*sum_p), cudaMemcpyDeviceToHost, (cudaStream_t)st),
        what));
    return ct_cuda_wait((cudaStream_t)st, what);
}

#endif
