#include "layers/product.h"

/* BLAS and products on the way of communication run in pieces of PIECE_FLOP or PIECE_BYTES, a
 * millisecond or so, but large enough to run at full speed. Of rows, whose memory lies together,
 * where there are many. */
#define PIECE_FLOP  2e8
#define PIECE_BYTES 2e7
enum { PIECE_LEAST = 512 /* rows or columns */ };

ct_status ct_product_pick(const ct_layer *l, ct_run_kind kind, bool ta, bool tb, int64_t m,
                          int64_t n, int64_t k, ct_product *p)
{
    const char *policy = ct_engine_policy(l, kind);
    bool host = (l->dev->kind == CT_DEVICE_CPU), automatic = (strcmp(policy, "auto") == 0);

    p->d = (ct_gemm_desc){ ta, tb, m, n, k, ct_engine_n_thread(l), ct_engine_bf16(l) };
    p->operand = host ? CT_OPERAND_F32 : ct_engine_operand(l);
    if (host && ((automatic && ct_gemm_prefers(&p->d)) || (strcmp(policy, "packed") == 0)))
        p->math = NULL;
    else if (host && (strcmp(policy, "ref") == 0))
        p->math = &ct_math_ref;
    else if (automatic || (strcmp(policy, "blas") == 0))
        p->math = l->dev->math;
    else
        return ct_engine_refuse(l, kind, policy, host ? "packed, blas, ref" : "blas");
    return CT_OK;
}

const char *ct_product_name(const ct_product *p)
{
    if (p->math == NULL)
        return ct_engine_name("packed", p->d.bf16 ? CT_OPERAND_BF16 : CT_OPERAND_F32);
    return (p->math == &ct_math_ref) ? "ref" : ct_engine_name("blas", p->operand);
}

size_t ct_product_workspace(const ct_product *p)
{
    if (p->math == NULL) return ct_gemm_workspace(&p->d);
    return (p->operand == CT_OPERAND_F32)
               ? 0
               : p->math->narrow_room(p->operand, p->d.m, p->d.n, p->d.k);
}

static int64_t count_pieces(const ct_product *p, const ct_exec *ex, int64_t length)
{
    double m = (double)p->d.m, n = (double)p->d.n, k = (double)p->d.k;
    double wanted = 2.0 * m * n * k / PIECE_FLOP + 4.0 * (m * n + n * k + k * m) / PIECE_BYTES;
    int64_t most = length / PIECE_LEAST, pieces = (wanted < (double)most) ? (int64_t)wanted : most;

    /* packed panels give the same bits in pieces or not, and nobody waits */
    if ((ex->dev->kind != CT_DEVICE_CPU) || ((p->math == NULL) && (ex->poll == NULL))) return 1;
    return (pieces > 1) ? pieces : 1;
}

/* The rows or columns [from, from + length) of C. */
static ct_status run_piece(const ct_product *p, ct_exec *ex, const ct_product_args *g, bool rows,
                           int64_t from, int64_t length)
{
    ct_gemm_desc d = p->d;
    int64_t row = rows ? from : 0, column = rows ? 0 : from;
    const float *a = g->a + (d.ta ? row : row * g->lda);
    const float *b = g->b + (d.tb ? column * g->ldb : column);
    float *c = g->c + row * g->ldc + column;
    ct_gemm_plan plan;

    if (rows)
        d.m = length;
    else
        d.n = length;
    if (p->operand != CT_OPERAND_F32)
        return p->math->gemm_narrow(ex->stream, p->operand, d.ta, d.tb, d.m, d.n, d.k, 1.0f, a,
                                    g->lda, b, g->ldb, g->beta, c, g->ldc, g->work);
    if (p->math != NULL)
        return p->math->gemm(ex->stream, d.ta, d.tb, d.m, d.n, d.k, 1.0f, a, g->lda, b, g->ldb,
                             g->beta, c, g->ldc);
    plan = ct_gemm_plan_make(&d);
    ct_gemm_run(&plan, &(ct_gemm_args){ 1.0f, g->beta, a, b, g->lda, g->ldb, c, g->ldc, g->work });
    return CT_OK;
}

ct_status ct_product_run(const ct_product *p, ct_exec *ex, const ct_product_args *g)
{
    bool rows = (p->d.m >= 2 * PIECE_LEAST);
    int64_t length = rows ? p->d.m : p->d.n, pieces = count_pieces(p, ex, length);

    for (int64_t i = 0; i < pieces; i++) {
        /* whole cache lines of C */
        int64_t from = length * i / pieces / 16 * 16;
        int64_t to = (i < pieces - 1) ? length * (i + 1) / pieces / 16 * 16 : length;

        CT_TRY(run_piece(p, ex, g, rows, from, to - from));
        CT_TRY(ct_exec_poll(ex));
    }
    return CT_OK;
}
