/* Products with thin matrices (low_rank.h) on a device. They are bound by the memory that holds V,
 * and add in the CPU's order, not in a library's: so ranks on GPUs of different kinds, too, make
 * the same bits of the same factors, and replicas stay equal. */
#include "comm/codec/cuda/coder_cuda.cuh"

namespace
{
enum { LANES = 16 /* sums of a row that the CPU keeps apart */, COLUMNS = 2, GROUP = 4 };

/* A row a warp: each half has COLUMNS columns of Q at a time, and a thread every 16th element. */
__global__ void left_kernel(ct_low_rank s, const float *v, const float *q, float *p)
{
    unsigned lane = ct_lane() % LANES, half = ct_lane() / LANES;

    CT_WARP_LOOP(i, s.rows)
    {
        const float *row = v + i * s.cols;

        for (int at = 0; at < s.r; at += 2 * COLUMNS) {
            int first = at + (int)half * COLUMNS;
            float sum[COLUMNS] = {};

            for (int64_t j = lane; j < s.cols; j += LANES) {
                float x = row[j];

                for (int k = 0; k < COLUMNS; k++) {
                    if (first + k < s.r)
                        sum[k] = ct_momentum_correction_add(sum[k], ct_momentum_correction_mul(x, q[(first + k) * s.cols + j]));
                }
            }
            for (int k = 0; k < COLUMNS; k++) {
                float all = 0;

                for (unsigned l = 0; l < LANES; l++)
                    all = ct_momentum_correction_add(all, ct_warp_from(sum[k], half * LANES + l));
                if ((lane == 0) && (first + k < s.r)) p[(first + k) * s.rows + i] = all;
            }
        }
    }
}

/* A column of V a thread, in slabs of rows. */
__global__ void right_kernel(ct_low_rank s, int slabs, const float *v, const float *p, float *to)
{
    int64_t size = s.r * s.cols;

    CT_CUDA_LOOP(t, slabs * s.cols)
    {
        int64_t slab = t / s.cols, j = t % s.cols, last = s.rows * (slab + 1) / slabs;

        for (int at = 0; at < s.r; at += GROUP) {
            float sum[GROUP] = {};

            for (int64_t i = s.rows * slab / slabs; i < last; i++) {
                float x = v[i * s.cols + j];

                for (int k = 0; k < GROUP; k++) {
                    if (at + k < s.r)
                        sum[k] = ct_momentum_correction_add(sum[k], ct_momentum_correction_mul(p[(at + k) * s.rows + i], x));
                }
            }
            for (int k = 0; k < GROUP; k++) {
                if (at + k < s.r) to[slab * size + (at + k) * s.cols + j] = sum[k];
            }
        }
    }
}

__global__ void slabs_kernel(int64_t size, int slabs, const float *part, float *q)
{
    CT_CUDA_LOOP(i, size)
    {
        float sum = part[i];

        for (int k = 1; k < slabs; k++) sum = ct_momentum_correction_add(sum, part[k * size + i]);
        q[i] = sum;
    }
}

/* In groups of columns as the CPU has them (group_at() there): what a group makes is added at once.
 */
__global__ void product_kernel(ct_low_rank s, const float *p, const float *q, bool takes, float *v)
{
    CT_CUDA_LOOP(e, s.rows * s.cols)
    {
        int64_t i = e / s.cols, j = e - i * s.cols;
        float all = takes ? v[e] : 0.0f;

        for (int k = 0, g = 0; k < s.r; k += g) {
            float x = ct_momentum_correction_mul(p[k * s.rows + i], q[k * s.cols + j]);

            g = (s.r - k >= GROUP) ? GROUP : (s.r - k >= 2) ? 2 : 1;
            for (int c = k + 1; c < k + g; c++)
                x = ct_momentum_correction_add(x, ct_momentum_correction_mul(p[c * s.rows + i], q[c * s.cols + j]));
            all = takes ? ct_momentum_correction_add(all, -x) : (k == 0) ? x : ct_momentum_correction_add(all, x);
        }
        v[e] = all;
    }
}
} // namespace

ct_status ct_low_rank_left_cuda(ct_codec_coder *c, ct_stream st, const ct_low_rank *s,
                                const ct_momentum_correction *a, const float *q, float *p)
{
    int64_t blocks = (s->rows + CT_WARPS - 1) / CT_WARPS;

    CT_TRY(ct_coder_update(c, st, a));
    CT_CUDA_RUN_BLOCKS(left_kernel,
                       (unsigned)((blocks < 4 * MOST_BLOCKS) ? blocks : 4 * MOST_BLOCKS), st, *s,
                       a->v, q, p);
    return ct_cuda_launched("left factor");
}

ct_status ct_low_rank_right_cuda(ct_stream st, const ct_low_rank *s, const float *v, const float *p,
                                 float *scratch, float *q)
{
    int slabs = ct_low_rank_slabs(s);
    int64_t size = s->r * s->cols;

    CT_CUDA_RUN(right_kernel, ct_cuda_grid(slabs * s->cols), st, *s, slabs, v, p,
                (slabs > 1) ? scratch : q);
    if (slabs > 1) CT_CUDA_RUN(slabs_kernel, ct_cuda_grid(size), st, size, slabs, scratch, q);
    return ct_cuda_launched("right factor");
}

ct_status ct_low_rank_product_cuda(ct_stream st, const ct_low_rank *s, const float *p,
                                   const float *q, bool takes, float *v)
{
    CT_CUDA_RUN(product_kernel, ct_cuda_grid(s->rows * s->cols), st, *s, p, q, takes, v);
    return ct_cuda_launched("product of factors");
}
