/* Sums of squares of channels in blocks. Compiled with -ffp-contract=fast: the squares of floats
 * are exact in double, so that fused additions give the same bits in fewer instructions. */
#include "framework/base/bf16.h"
#include "framework/base/simd.h"
#include "layers/engine/batch_norm/batch_norm_blocked.h"

CT_SIMD_PART void square_rows(int64_t inner, int block, bool bf16, const float *x, double *sum,
                              double *square)
{
    double s[CT_BLOCK_MAX], q[CT_BLOCK_MAX];

    for (int i = 0; i < block; i++) {
        s[i] = sum[i];
        q[i] = square[i];
    }
    for (int64_t r = 0; r < inner; r++) {
#pragma omp simd
        for (int i = 0; i < block; i++) {
            double v = (double)ct_num_get(x, bf16, r * block + i);

            s[i] += v;
            q[i] += v * v;
        }
    }
    for (int i = 0; i < block; i++) {
        sum[i] = s[i];
        square[i] = q[i];
    }
}

CT_SIMD_CLONES void ct_batch_norm_square(int64_t inner, int block, bool bf16, const float *x,
                                         double *sum, double *square)
{
    if ((block == 16) && bf16)
        square_rows(inner, 16, true, x, sum, square);
    else if (block == 16)
        square_rows(inner, 16, false, x, sum, square);
    else if ((block == 8) && !bf16)
        square_rows(inner, 8, false, x, sum, square);
    else
        square_rows(inner, block, bf16, x, sum, square);
}
