#include "framework/base/bf16.h"

#include "framework/base/simd.h"

enum { PIECE = 1 << 14 };

CT_SIMD_CLONES static void widen(int64_t n, const ct_bf16 *restrict x, float *restrict y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = ct_bf16_to_f32(x[i]);
}

CT_SIMD_CLONES static void narrow(int64_t n, const float *restrict x, ct_bf16 *restrict y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = ct_bf16_from_f32(x[i]);
}

void ct_bf16_widen(int64_t n, const void *x, float *y)
{
    widen(n, x, y);
}

void ct_bf16_narrow(int64_t n, const float *x, void *y)
{
    narrow(n, x, y);
}

void ct_bf16_widen_all(int64_t n, const void *x, float *y)
{
#pragma omp parallel for schedule(static) if (n > PIECE)
    for (int64_t i = 0; i < n; i += PIECE)
        widen((n - i < PIECE) ? n - i : PIECE, (const ct_bf16 *)x + i, y + i);
}

void ct_bf16_narrow_all(int64_t n, const float *x, void *y)
{
#pragma omp parallel for schedule(static) if (n > PIECE)
    for (int64_t i = 0; i < n; i += PIECE)
        narrow((n - i < PIECE) ? n - i : PIECE, x + i, (ct_bf16 *)y + i);
}
