#include "layers/types/product.h"

#include "layers/types/device_kernels.h"

/* BLAS and products on the way of communication run in pieces of PIECE_FLOP or PIECE_BYTES, a
 * millisecond or so, but large enough to run at full speed. Of rows, whose memory lies together,
 * where there are many. */
#define PIECE_FLOP  2e8
#define PIECE_BYTES 2e7
enum { PIECE_LEAST = 512 /* rows or columns */ };

static ct_status pick(const ct_layer *l, ct_run_kind kind, const ct_gemm_desc *shape, ct_product *p)
{
    const char *policy = ct_engine_policy(l, kind);
    bool host = (l->dev->kind == CT_DEVICE_CPU), automatic = (strcmp(policy, "auto") == 0);
    bool lt = l->dev->math->fused != NULL;

    *p = (ct_product){ .d = *shape };
    p->d.n_thread = ct_engine_n_thread(l);
    p->d.bf16 = ct_engine_bf16(l);
    p->operand = host ? CT_OPERAND_F32 : ct_engine_operand(l);
    if (host && ((automatic && ct_gemm_prefers(&p->d)) || (strcmp(policy, "packed") == 0)))
        p->math = NULL;
    else if (host && (strcmp(policy, "ref") == 0))
        p->math = &ct_math_ref;
    else if (automatic || (strcmp(policy, "blas") == 0) || (lt && (strcmp(policy, "lt") == 0)))
        p->math = l->dev->math;
    else
        return ct_engine_refuse(l, kind, policy,
                                host ? "packed, blas, ref"
                                : lt ? "lt, blas"
                                     : "blas");
    return CT_OK;
}

/* The kernels that follow it, or come before it. Sums are those of an operand whose rows, as they
 * are stored, are the k of the sums. */
static ct_status find_behind(const ct_layer *l, ct_run_kind kind, ct_product *p)
{
    const ct_gemm_desc *d = &p->d;
    bool of_a = (p->behind & CT_FUSE_SUM_A) != 0;
    bool sums = of_a || ((p->behind & CT_FUSE_SUM_B) != 0);
    bool narrow = (p->narrow & CT_NARROW_C) != 0; /* then device_kernels.h has it all */

    p->bias_desc = (ct_bias_desc){
        .device = l->dev->kind, .n_thread = d->n_thread, .n = d->m, .c = d->n, .s = 1
    };
    p->relu_desc =
        (ct_relu_desc){ .device = l->dev->kind, .n_thread = d->n_thread, .count = d->m * d->n };
    p->relu_desc.dtype = narrow ? ct_dtype_of(p->operand) : CT_F32;
    if (sums) {
        p->bias_desc.n = d->k;
        p->bias_desc.c = of_a ? d->m : d->n;
        p->bias_desc.last = (p->narrow & (of_a ? CT_NARROW_A : CT_NARROW_B)) != 0;
        p->bias_desc.dtype = p->bias_desc.last ? ct_dtype_of(p->operand) : CT_F32;
    }
    if (sums || (!narrow && ((p->behind & CT_FUSE_BIAS) != 0))) {
        p->bias =
            ct_bias_find(sums ? ct_bias_backward_table : ct_bias_fill_table, &p->bias_desc, "auto");
        if (p->bias == NULL) return ct_engine_refuse(l, kind, "auto", "");
    }
    if (narrow || ((p->behind & CT_FUSE_RELU) == 0)) return CT_OK;
    p->relu = ct_relu_find(ct_relu_forward_table, &p->relu_desc, "auto");
    return (p->relu != NULL) ? CT_OK : ct_engine_refuse(l, kind, "auto", "");
}

ct_status ct_product_make_plain(const ct_layer *l, ct_run_kind kind, const ct_gemm_desc *shape,
                                unsigned behind, unsigned narrow, ct_product *p)
{
    ct_product made;

    CT_TRY(pick(l, kind, shape, &made));
    made.behind = behind;
    made.narrow = narrow;
    CT_TRY(find_behind(l, kind, &made));
    ct_product_drop(p);
    *p = made;
    return CT_OK;
}

const char *ct_product_name(const ct_product *p)
{
    if (p->fused != NULL) return ct_engine_name("lt", p->operand);
    if (p->math == NULL)
        return ct_engine_name("packed", p->d.bf16 ? CT_OPERAND_BF16 : CT_OPERAND_F32);
    return (p->math == &ct_math_ref) ? "ref" : ct_engine_name("blas", p->operand);
}

/* Whether C is made in f32 first: what stands behind it comes before it is rounded. */
static bool rounds_behind(const ct_product *p)
{
    return ((p->narrow & CT_NARROW_C) != 0) && ((p->behind & (CT_FUSE_BIAS | CT_FUSE_RELU)) != 0);
}

/* Of what kernels one after the other read rounded; a C of f32 lies behind it. */
static size_t operand_room(const ct_product *p)
{
    if (p->operand == CT_OPERAND_F32) return 0;
    return p->math->narrow_room(p->operand, p->d.m, p->d.n, p->d.k, p->narrow);
}

size_t ct_product_workspace(const ct_product *p)
{
    size_t apart, fused;

    if (p->math == NULL) return ct_gemm_workspace(&p->d);
    apart = operand_room(p);
    if ((p->fused == NULL) && rounds_behind(p)) apart += (size_t)(p->d.m * p->d.n) * sizeof(float);
    fused = (p->fused != NULL) ? p->math->fused->workspace(p->fused, -1) : 0;
    return (fused > apart) ? fused : apart;
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
                                    g->lda, b, g->ldb, g->beta, c, g->ldc, g->work, p->narrow);
    if (p->math != NULL)
        return p->math->gemm(ex->stream, d.ta, d.tb, d.m, d.n, d.k, 1.0f, a, g->lda, b, g->ldb,
                             g->beta, c, g->ldc);
    plan = ct_gemm_plan_make(&d);
    ct_gemm_run(&plan, &(ct_gemm_args){ 1.0f, g->beta, a, b, g->lda, g->ldb, c, g->ldc, g->work });
    return CT_OK;
}

/* The product alone. */
static ct_status multiply(const ct_product *p, ct_exec *ex, const ct_product_args *g)
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

static ct_status make_sums(const ct_product *p, ct_exec *ex, const ct_product_args *g)
{
    if (g->sums == NULL) return CT_OK;
    return p->bias->run(&p->bias_desc, ex,
                        &(ct_bias_args){ .dy = ((p->behind & CT_FUSE_SUM_A) != 0) ? g->a : g->b,
                                         .dbias = g->sums,
                                         .beta = g->sums_beta });
}

/* C in f32 behind the rounded operands, then bias, ReLU and rounding in one pass. */
static ct_status run_rounded(const ct_product *p, ct_exec *ex, const ct_product_args *g)
{
    bool relu = (p->behind & CT_FUSE_RELU) != 0;
    ct_product_args own = *g;
    ct_product wide = *p;

    wide.narrow &= ~(unsigned)CT_NARROW_C;
    own.c = (float *)((char *)g->work + operand_room(p));
    own.ldc = p->d.n;
    CT_TRY(multiply(&wide, ex, &own));
    return ct_kernels(ex)->round_rows(ex, p->d.m, p->d.n, own.c,
                                      ((p->behind & CT_FUSE_BIAS) != 0) ? g->bias : NULL, relu,
                                      ct_dtype_of(p->operand), g->c);
}

static ct_status run_separate(const ct_product *p, ct_exec *ex, const ct_product_args *g)
{
    ct_product_args own = *g;

    if (rounds_behind(p)) return run_rounded(p, ex, g);
    if ((p->behind & CT_FUSE_BIAS) != 0) {
        /* the product then adds to it: one pass over C less than adding afterwards */
        CT_TRY(p->bias->run(&p->bias_desc, ex, &(ct_bias_args){ .bias = g->bias, .y = g->c }));
        own.beta = 1.0f;
    }
    if (g->c != NULL) CT_TRY(multiply(p, ex, &own));
    if (p->relu != NULL)
        CT_TRY(p->relu->run(&p->relu_desc, ex, &(ct_relu_args){ .x = g->c, .y = g->c }));
    return make_sums(p, ex, g);
}

ct_status ct_product_run(const ct_product *p, ct_exec *ex, const ct_product_args *g)
{
    bool sums = (p->inside & CT_FUSE_SUMS) != 0;

    if ((p->fused == NULL) || (g->c == NULL) || (sums && (g->sums == NULL)))
        return run_separate(p, ex, g);
    CT_TRY(p->math->fused->run(p->fused, ex->stream,
                               &(ct_fused_args){ .a = g->a,
                                                 .b = g->b,
                                                 .bias = g->bias,
                                                 .beta = g->beta,
                                                 .c = g->c,
                                                 .sums = sums ? g->sums : NULL,
                                                 .sums_beta = g->sums_beta,
                                                 .bits = g->bits,
                                                 .work = g->work }));
    if (!sums) CT_TRY(make_sums(p, ex, g));
    return ct_exec_poll(ex);
}
