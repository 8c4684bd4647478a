/* Operands of products rounded to 16 bits: dense copies in a room of the layer's. */
#include "framework/math/cuda/narrow.cuh"

#include "framework/base/memory.h"
#include "framework/tensor/cuda/launch.cuh"

struct alignas(16) four_floats {
    float v[4];
};
struct alignas(8) four_halves {
    uint16_t v[4];
};

ct_status ct_cuda_narrow(ct_stream st, ct_operand operand, int64_t n, const float *x, void *to)
{
    uint16_t *y = (uint16_t *)to;
    bool aligned = ((uintptr_t)x % 16 == 0) && ((uintptr_t)to % 8 == 0);
    int64_t fours = aligned ? n / 4 : 0;

    CT_TRY(ct_cuda_map(st, "rounding", fours, [=] __device__(int64_t i) {
        four_floats in = ((const four_floats *)x)[i];
        four_halves out;

        for (int k = 0; k < 4; k++) out.v[k] = ct_narrow_bits(operand, in.v[k]);
        ((four_halves *)y)[i] = out;
    }));
    return ct_cuda_map(st, "rounding", n - 4 * fours, [=] __device__(int64_t i) {
        y[4 * fours + i] = ct_narrow_bits(operand, x[4 * fours + i]);
    });
}

ct_status ct_cuda_narrow_rows(ct_stream st, ct_operand operand, int64_t rows, int64_t columns,
                              const float *x, int64_t ld, uint16_t *y)
{
    int64_t to = ct_narrow_row(columns);

    if ((ld == columns) && (to == columns))
        return ct_cuda_narrow(st, operand, rows * columns, x, y);
    return ct_cuda_map(st, "rounding", rows * columns, [=] __device__(int64_t i) {
        y[i / columns * to + i % columns] =
            ct_narrow_bits(operand, x[i / columns * ld + i % columns]);
    });
}

size_t ct_narrow_bytes(int64_t rows, int64_t columns)
{
    return ct_align_up((size_t)(rows * ct_narrow_row(columns)) * sizeof(uint16_t));
}

/* Either way round: which of its sides are rows is the call's. */
size_t ct_math_cuda_narrow_room(ct_operand operand, int64_t m, int64_t n, int64_t k)
{
    size_t a = ct_narrow_bytes(m, k), at = ct_narrow_bytes(k, m);
    size_t b = ct_narrow_bytes(k, n), bt = ct_narrow_bytes(n, k);

    if (ct_operand_size(operand) != sizeof(uint16_t)) return 0;
    return ((a > at) ? a : at) + ((b > bt) ? b : bt);
}

ct_status ct_math_cuda_gemm_narrow(ct_stream st, ct_operand operand, bool trans_a, bool trans_b,
                                   int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                                   int64_t lda, const float *b, int64_t ldb, float beta, float *c,
                                   int64_t ldc, void *room)
{
    int64_t a_rows = trans_a ? k : m, a_columns = trans_a ? m : k;
    int64_t b_rows = trans_b ? n : k, b_columns = trans_b ? k : n;
    uint16_t *na = (uint16_t *)room;
    uint16_t *nb = (uint16_t *)((char *)room + ct_narrow_bytes(a_rows, a_columns));

    if (ct_operand_size(operand) != sizeof(uint16_t))
        return ct_math_cuda_gemm_batch(st, operand, trans_a, trans_b, m, n, k, alpha, a, lda, 0, b,
                                       ldb, 0, beta, c, ldc, 0, 1);
    CT_TRY(ct_cuda_narrow_rows(st, operand, a_rows, a_columns, a, lda, na));
    CT_TRY(ct_cuda_narrow_rows(st, operand, b_rows, b_columns, b, ldb, nb));
    return ct_math_cuda_gemm_batch(st, operand, trans_a, trans_b, m, n, k, alpha, na,
                                   ct_narrow_row(a_columns), 0, nb, ct_narrow_row(b_columns), 0, beta, c, ldc, 0,
                                   1);
}
