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
size_t ct_math_cuda_narrow_room(ct_operand operand, int64_t m, int64_t n, int64_t k,
                                unsigned narrow)
{
    size_t a = ct_narrow_bytes(m, k), at = ct_narrow_bytes(k, m);
    size_t b = ct_narrow_bytes(k, n), bt = ct_narrow_bytes(n, k);

    if (ct_operand_size(operand) != sizeof(uint16_t)) return 0;
    if ((narrow & CT_NARROW_A) != 0) a = at = 0;
    if ((narrow & CT_NARROW_B) != 0) b = bt = 0;
    return ((a > at) ? a : at) + ((b > bt) ? b : bt);
}

/* An operand as products read it. */
typedef struct lying {
    const void *at;
    int64_t ld;
} lying;

/* x as it is, or rounded into *room_p, which goes on behind it. */
static ct_status lay(ct_stream st, ct_operand operand, bool is_narrow, int64_t rows,
                     int64_t columns, const float *x, int64_t ld, char **room_p, lying *l)
{
    *l = { x, ld };
    if (is_narrow) return CT_OK;
    *l = { *room_p, ct_narrow_row(columns) };
    CT_TRY(ct_cuda_narrow_rows(st, operand, rows, columns, x, ld, (uint16_t *)*room_p));
    *room_p += ct_narrow_bytes(rows, columns);
    return CT_OK;
}

ct_status ct_math_cuda_gemm_narrow(ct_stream st, ct_operand operand, bool trans_a, bool trans_b,
                                   int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                                   int64_t lda, const float *b, int64_t ldb, float beta, float *c,
                                   int64_t ldc, void *room, unsigned narrow)
{
    char *next = (char *)room;
    lying la, lb;

    if (ct_operand_size(operand) != sizeof(uint16_t))
        return ct_math_cuda_gemm_batch(st, operand, trans_a, trans_b, m, n, k, alpha, a, lda, 0, b,
                                       ldb, 0, beta, c, ldc, 0, 1);
    CT_TRY(lay(st, operand, (narrow & CT_NARROW_A) != 0, trans_a ? k : m, trans_a ? m : k, a, lda,
               &next, &la));
    CT_TRY(lay(st, operand, (narrow & CT_NARROW_B) != 0, trans_b ? n : k, trans_b ? k : n, b, ldb,
               &next, &lb));
    if ((narrow & CT_NARROW_C) != 0)
        return ct_math_cuda_gemm_16(st, operand, trans_a, trans_b, m, n, k, alpha, la.at, la.ld,
                                    lb.at, lb.ld, c, ldc);
    return ct_math_cuda_gemm_batch(st, operand, trans_a, trans_b, m, n, k, alpha, la.at, la.ld, 0,
                                   lb.at, lb.ld, 0, beta, c, ldc, 0, 1);
}
