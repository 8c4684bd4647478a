/* Products with a bias, and what stands behind them, for fully connected and recurrent layers. */
#include "layers/types/product.h"

#include <stdio.h>

#include "framework/base/bf16.h"
#include "framework/base/simd.h"

#include "layers/types/device_kernels.h"

/* BLAS and products on the way of communication run in pieces of PIECE_FLOP or PIECE_BYTES, a
 * millisecond or so, but large enough to run at full speed. Of rows, whose memory lies together,
 * where there are many. */
#define PIECE_FLOP  2e8
#define PIECE_BYTES 2e7
enum { PIECE_LEAST = 512 /* rows or columns */ };
/* Of products of bf16 numbers on the CPU: rows from which on B is packed by the team, numbers of a
 * packed part of B, and of C in f32, which the last cache holds; columns of such a part at least.
 */
enum { SHARE_LEAST = 64, PART_B = 1 << 22, PART_C = 1 << 20, PART_COLUMNS = 1024 };

static ct_status pick(const ct_layer *l, ct_run_kind kind, const ct_gemm_desc *shape,
                      unsigned narrow, ct_product *p)
{
    const char *policy = ct_engine_policy(l, kind);
    bool host = (l->dev->kind == CT_DEVICE_CPU), automatic = (strcmp(policy, "auto") == 0);
    /* BLAS takes other ways, and other sums, for other numbers of rows */
    bool lt = l->dev->math->fused != NULL, vary = automatic && l->env->rows_vary;
    bool rows = host && ((narrow != 0) || vary);

    *p = (ct_product){ .d = *shape };
    p->d.n_thread = ct_engine_n_thread(l);
    p->d.bf16 = ct_engine_bf16(l);
    p->d.deep = !l->env->rows_vary && ct_gemm_goes_deep(shape);
    p->operand = host ? CT_OPERAND_F32 : ct_engine_operand(l);
    CT_TRY(ct_engine_check_rows(l, policy));
    if (rows ||
        (host && ((automatic && ct_gemm_prefers(&p->d)) || (strcmp(policy, "packed") == 0))))
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
    bool host = (l->dev->kind == CT_DEVICE_CPU);

    p->bias_desc = (ct_bias_desc){
        .device = l->dev->kind, .n_thread = d->n_thread, .n = d->m, .c = d->n, .s = 1
    };
    p->relu_desc =
        (ct_relu_desc){ .device = l->dev->kind, .n_thread = d->n_thread, .count = d->m * d->n };
    p->relu_desc.dtype = narrow ? ct_dtype_of(p->operand) : CT_F32;
    if (sums) {
        p->bias_desc.n = d->k;
        p->bias_desc.c = of_a ? d->m : d->n;
        p->bias_desc.bf16 = host && ((p->narrow & (of_a ? CT_NARROW_A : CT_NARROW_B)) != 0);
        p->bias_desc.last = !host && ((p->narrow & (of_a ? CT_NARROW_A : CT_NARROW_B)) != 0);
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

    CT_TRY(pick(l, kind, shape, narrow, &made));
    made.behind = behind;
    made.narrow = narrow;
    made.shares = (made.math == NULL) && made.d.bf16 && (narrow != 0) &&
                  (kind != CT_RUN_BACKWARD_WEIGHT) && (shape->m >= SHARE_LEAST);
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

/* ---- products with matrices of bf16 numbers on the CPU */

/* How one is cut: rows of C that are made at a time, and the part of B that is packed at a time. */
typedef struct cut {
    int64_t rows, n, k;
} cut;

static int64_t least(int64_t a, int64_t b)
{
    return (a < b) ? a : b;
}

/* In pieces of at most `step`, a multiple of 32, that are about as large. */
static int64_t even(int64_t length, int64_t step)
{
    int64_t pieces, each;

    if (length <= step) return (length > 0) ? length : 1;
    pieces = (length + step - 1) / step;
    each = (length + pieces - 1) / pieces;
    return (each + 31) / 32 * 32;
}

/* From the shape alone. */
static cut cut_of(const ct_product *p)
{
    int64_t n = (p->d.n > 0) ? p->d.n : 1, k = (p->d.k > 0) ? p->d.k : 1;
    cut c = { p->d.m, n, k };

    if ((p->narrow & CT_NARROW_C) != 0) c.rows = PART_C / n;
    c.rows = even(p->d.m, (c.rows > SHARE_LEAST) ? c.rows : SHARE_LEAST);
    if (!p->shares) return c;
    c.n = PART_B / k;
    c.n = even(n, (c.n > PART_COLUMNS) ? c.n : PART_COLUMNS);
    c.k = even(k, (PART_B / c.n > 32) ? PART_B / c.n : 32);
    return c;
}

static size_t whole_lines(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static size_t narrow_c_room(const ct_product *p, const cut *c)
{
    return ((p->narrow & CT_NARROW_C) != 0)
               ? whole_lines((size_t)(c->rows * p->d.n) * sizeof(float))
               : 0;
}

static size_t part_room(const ct_product *p, const cut *c)
{
    ct_gemm_desc d = p->d;

    d.n = c->n;
    d.k = c->k;
    return p->shares ? ct_gemm_kept_bytes(&d) : 0;
}

/* Sums may be in longer pieces where there are fewer of them. */
static size_t tiles_room(const ct_product *p, const cut *c)
{
    ct_gemm_desc d = p->d;
    size_t most = ct_gemm_workspace(&d), more;

    d.k = c->k;
    more = ct_gemm_workspace(&d);
    most = (more > most) ? more : most;
    d.k = p->d.k % c->k;
    more = ct_gemm_workspace(&d);
    return (more > most) ? more : most;
}

static size_t narrow_room(const ct_product *p)
{
    cut c = cut_of(p);

    return narrow_c_room(p, &c) + part_room(p, &c) + tiles_room(p, &c);
}

bool ct_product_rounds(const ct_product *p)
{
    return (p->math == NULL) && p->d.bf16;
}

size_t ct_product_kept_bytes(const ct_product *p)
{
    return (p->math == NULL) ? ct_gemm_kept_bytes(&p->d) : 0;
}

void ct_product_keep(const ct_product *p, const float *b, int64_t ldb, void *kept)
{
    ct_gemm_keep(&p->d, b, ldb, kept);
}

/* Rows [from, from + rows) of C (+)= the sums [q, q + k) of the columns [j, j + n). */
typedef struct piece {
    int64_t from, rows, j, n, q, k;
} piece;

static void run_narrow_piece(const ct_product *p, const ct_product_args *g, const piece *x,
                             const void *kept, float *c, int64_t ldc, void *work)
{
    ct_gemm_desc d = p->d;
    ct_gemm_plan plan;
    ct_gemm_args a = { .alpha = 1.0f,
                       .a16 = (p->narrow & CT_NARROW_A) != 0,
                       .b16 = (p->narrow & CT_NARROW_B) != 0,
                       .beta = (x->q == 0) ? g->beta : 1.0f,
                       .lda = g->lda,
                       .ldb = g->ldb,
                       .c = c + x->j,
                       .ldc = ldc,
                       .work = work,
                       .kept = kept };

    d.m = x->rows;
    d.n = x->n;
    d.k = x->k;
    a.a = ct_num_at(g->a, a.a16, d.ta ? x->q * g->lda + x->from : x->from * g->lda + x->q);
    if (kept == NULL)
        a.b = ct_num_at(g->b, a.b16, d.tb ? x->j * g->ldb + x->q : x->q * g->ldb + x->j);
    plan = (kept != NULL) ? ct_gemm_plan_kept(&d) : ct_gemm_plan_make(&d);
    ct_gemm_run(&plan, &a);
}

/* Rows of one part of B at a time where communication moves in between: a millisecond or so. */
static int64_t rows_between(const ct_exec *ex, const piece *x)
{
    double rows = PIECE_FLOP / (2.0 * (double)x->n * (double)x->k);

    if (!ct_exec_has_to_move(ex) || (rows >= (double)x->rows)) return x->rows;
    return (rows > SHARE_LEAST) ? (int64_t)rows : SHARE_LEAST;
}

/* Rows [from, from + rows) into c, part by part of B. */
static ct_status multiply_rows(const ct_product *p, ct_exec *ex, const ct_product_args *g,
                               const cut *t, int64_t from, int64_t rows, float *c, int64_t ldc)
{
    char *part = (char *)g->work + narrow_c_room(p, t), *work = part + part_room(p, t);
    bool whole = (t->n >= p->d.n) && (t->k >= p->d.k);

    for (int64_t q = 0; q < ((p->d.k > 0) ? p->d.k : 1); q += t->k) {
        for (int64_t j = 0; j < p->d.n; j += t->n) {
            piece x = { from, rows, j, least(t->n, p->d.n - j), q, least(t->k, p->d.k - q) };
            const void *kept = (g->kept != NULL) ? g->kept : p->shares ? part : NULL;
            int64_t step = rows_between(ex, &x), end = from + rows;

            if (p->shares && (g->kept == NULL) && (!whole || (from == 0))) {
                ct_gemm_desc d = p->d;

                d.n = x.n;
                d.k = x.k;
                ct_gemm_keep(&d, g->b + (d.tb ? j * g->ldb + q : q * g->ldb + j), g->ldb, part);
            }
            for (; x.from < end; x.from += step) {
                x.rows = least(step, end - x.from);
                run_narrow_piece(p, g, &x, kept, c + (x.from - from) * ldc, ldc, work);
                CT_TRY(ct_exec_poll(ex));
            }
        }
    }
    return CT_OK;
}

CT_SIMD_CLONES static void round_row(int64_t n, const float *x, const float *bias, float *y)
{
    if (bias == NULL) {
#pragma omp simd
        for (int64_t j = 0; j < n; j++) ct_num_put(y, true, j, x[j]);
    } else {
#pragma omp simd
        for (int64_t j = 0; j < n; j++) ct_num_put(y, true, j, x[j] + bias[j]);
    }
}

/* All of it: with B in parts, and a C of bf16 numbers some rows at a time. Without such a C the
 * bias, where there is one, lies in C already. */
static ct_status multiply_narrow(const ct_product *p, ct_exec *ex, const ct_product_args *g)
{
    const float *bias = ((p->behind & CT_FUSE_BIAS) != 0) ? g->bias : NULL;
    bool narrow = (p->narrow & CT_NARROW_C) != 0;
    float *c = narrow ? g->work : g->c;
    int64_t n = p->d.n, ldc = narrow ? n : g->ldc;
    cut t = cut_of(p);

    if (g->kept != NULL) t.n = n, t.k = (p->d.k > 0) ? p->d.k : 1;
    for (int64_t from = 0; from < p->d.m; from += t.rows) {
        int64_t rows = least(t.rows, p->d.m - from);

        CT_TRY(multiply_rows(p, ex, g, &t, from, rows, narrow ? c : c + from * ldc, ldc));
        if (!narrow) continue;
#pragma omp parallel for num_threads(p->d.n_thread) schedule(static)
        for (int64_t i = 0; i < rows; i++) {
            float *to = ct_num_to(g->c, true, (from + i) * g->ldc);

            round_row(n, c + i * n, bias, to);
            if (g->each != NULL)
                ct_neuron_row(g->each, n, to, ct_num_to(g->each_y, true, (from + i) * g->ldc));
        }
    }
    return CT_OK;
}

/* Whether it runs so. */
static bool by_parts(const ct_product *p, const ct_product_args *g)
{
    return (p->math == NULL) && ((p->narrow != 0) || (g->kept != NULL));
}

size_t ct_product_workspace(const ct_product *p)
{
    size_t apart, fused;

    if (p->math == NULL) return (p->narrow != 0) ? narrow_room(p) : ct_gemm_workspace(&p->d);
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
    if ((ex->dev->kind != CT_DEVICE_CPU) || ((p->math == NULL) && !ct_exec_has_to_move(ex)))
        return 1;
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
    ct_gemm_run(&plan, &(ct_gemm_args){ .alpha = 1.0f,
                                        .beta = g->beta,
                                        .a = a,
                                        .b = b,
                                        .lda = g->lda,
                                        .ldb = g->ldb,
                                        .c = c,
                                        .ldc = g->ldc,
                                        .work = g->work });
    return CT_OK;
}

/* The product alone. */
static ct_status multiply(const ct_product *p, ct_exec *ex, const ct_product_args *g)
{
    bool rows = (p->d.m >= 2 * PIECE_LEAST);
    int64_t length = rows ? p->d.m : p->d.n, pieces = count_pieces(p, ex, length);

    if (by_parts(p, g)) return multiply_narrow(p, ex, g);
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

    if ((p->math != NULL) && rounds_behind(p)) return run_rounded(p, ex, g);
    if ((p->bias != NULL) && ((p->behind & CT_FUSE_BIAS) != 0)) {
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

/* ---- Products with what stands behind them, by a device's library or by kernels one after the
 * other: chosen by a plan, or by a static rule: the library's first algorithm where something
 * stands behind, plain BLAS, which chooses for itself, where nothing does. */

typedef struct trial {
    ct_engine_plan *plan;
    ct_product *p; /* fused: what is tried */
    ct_fused *fused;
    ct_engine_offer offer; /* index: of the library's algorithm; -1: one after the other */
    ct_product_args args;
    ct_exec ex;
} trial;

static void use(const trial *t, int algorithm)
{
    t->p->fused = (algorithm >= 0) ? t->fused : NULL;
    if (algorithm >= 0) t->p->math->fused->take(t->fused, algorithm);
}

static ct_fused_desc describe(const ct_product *p)
{
    const ct_gemm_desc *d = &p->d;

    return (ct_fused_desc){ p->operand, d->ta,     d->tb,      d->m,     d->n,
                            d->k,       p->inside, p->aligned, p->narrow };
}

size_t ct_product_bits(const ct_product *p)
{
    ct_fused_desc d = describe(p);

    return p->math->fused->bits(&d);
}

/* All operands in the block; block NULL: nothing but the bytes. A device's memory comes as zeros.
 */
static void lay_out(trial *t, void *block, size_t *bytes_p)
{
    const ct_product *p = t->p;
    const ct_gemm_desc *d = &p->d;
    bool bits = (p->inside & (CT_FUSE_BITS | CT_FUSE_DRELU)) != 0;
    int64_t vector = (d->m > d->n) ? d->m : d->n;
    ct_product_args *g = &t->args;

    *g = (ct_product_args){ .lda = d->ta ? d->m : d->k, .ldb = d->tb ? d->k : d->n, .ldc = d->n };
    g->a = ct_engine_scratch(block, bytes_p, d->m * d->k, false);
    g->b = ct_engine_scratch(block, bytes_p, d->k * d->n, false);
    g->c = ct_engine_scratch(block, bytes_p, d->m * d->n, false);
    if ((p->behind & CT_FUSE_BIAS) != 0) g->bias = ct_engine_scratch(block, bytes_p, vector, false);
    if ((p->inside & CT_FUSE_SUMS) != 0) g->sums = ct_engine_scratch(block, bytes_p, vector, false);
    if (bits)
        g->bits = ct_engine_scratch(block, bytes_p, (int64_t)(ct_product_bits(p) + 3) / 4, false);
}

static ct_status prepare(void *ctx)
{
    trial *t = ctx;
    size_t bytes = 0, work = ct_product_workspace(t->p);
    char *block;

    lay_out(t, NULL, &bytes);
    for (int i = 0; i < t->offer.n; i++) {
        int at = t->offer.index[i];
        size_t w = (at >= 0) ? t->p->math->fused->workspace(t->fused, at) : 0;

        if (w > work) work = w;
    }
    block = ct_engine_plan_scratch(t->plan, bytes + work);
    if (block == NULL) return CT_ERR_NOMEM;
    bytes = 0;
    lay_out(t, block, &bytes);
    t->args.work = block + bytes;
    return CT_OK;
}

static ct_status run(void *ctx, int i)
{
    trial *t = ctx;

    use(t, t->offer.index[i]);
    return ct_product_run(t->p, &t->ex, &t->args);
}

static void write_key(const ct_product *p, ct_run_kind kind, char *text, size_t size)
{
    static const char *const pass[CT_N_RUN] = { "forward", "backward_data", "backward_weight" };
    static const char *const operand[] = { "", " tf32", " bf16", " f16" };
    const ct_gemm_desc *d = &p->d;
    unsigned b = p->inside;
    char at[16] = "", narrow[8] = "";

    if (p->aligned > 0) snprintf(at, sizeof(at), " at%d", p->aligned);
    if (p->narrow != 0)
        snprintf(narrow, sizeof(narrow), " %s%s%s", ((p->narrow & CT_NARROW_A) != 0) ? "a" : "",
                 ((p->narrow & CT_NARROW_B) != 0) ? "b" : "",
                 ((p->narrow & CT_NARROW_C) != 0) ? "c" : "");
    snprintf(text, size, "product %s m%lld n%lld k%lld %c%c%s%s%s%s%s%s%s%s gpu", pass[kind],
             (long long)d->m, (long long)d->n, (long long)d->k, d->ta ? 't' : 'n',
             d->tb ? 't' : 'n', ((b & CT_FUSE_BIAS) != 0) ? " bias" : "",
             ((b & CT_FUSE_RELU) != 0) ? " relu" : "", ((b & CT_FUSE_BITS) != 0) ? " bits" : "",
             ((b & CT_FUSE_DRELU) != 0) ? " drelu" : "", ((b & CT_FUSE_SUMS) != 0) ? " sums" : "",
             at, operand[p->operand], narrow);
}

static ct_status ask(const ct_layer *l, ct_run_kind kind, trial *t, int *algorithm_p)
{
    const ct_fused_ops *ops = t->p->math->fused;
    bool separate = (t->p->inside & (CT_FUSE_BITS | CT_FUSE_DRELU)) == 0;
    bool first = (t->p->inside != 0) && (t->fused != NULL);
    char key[CT_ENGINE_PLAN_KEY];

    t->plan = ct_engine_plan_of(l);
    t->ex.dev = l->dev;
    for (int i = 0; (t->fused != NULL) && (ops->algorithm(t->fused, i) != NULL); i++)
        ct_engine_offer_add(&t->offer, ops->algorithm(t->fused, i), i, first && (i == 0));
    if (separate) ct_engine_offer_add(&t->offer, "blas", -1, !first);
    t->offer.optional = !separate;
    write_key(t->p, kind, key, sizeof(key));
    return ct_engine_ask(l, key, &t->offer, prepare, run, t, algorithm_p);
}

/* Products of 16 bits read their operands rounded, and sums are of what was there before: where
 * that had 16 bits, it is the same. */
static unsigned inside_of(const ct_product *p)
{
    bool rounds = (p->operand == CT_OPERAND_BF16) || (p->operand == CT_OPERAND_F16);
    unsigned inside = p->behind;

    if (rounds && ((p->narrow & CT_NARROW_A) == 0)) inside &= ~(unsigned)CT_FUSE_SUM_A;
    if (rounds && ((p->narrow & CT_NARROW_B) == 0)) inside &= ~(unsigned)CT_FUSE_SUM_B;
    return inside;
}

/* p comes without a library's; the rest is set. */
static ct_status choose(const ct_layer *l, ct_run_kind kind, ct_product *p)
{
    const char *policy = ct_engine_policy(l, kind);
    bool automatic = (strcmp(policy, "auto") == 0), named = (strcmp(policy, "lt") == 0);
    bool must = (p->inside & (CT_FUSE_BITS | CT_FUSE_DRELU)) != 0;
    bool asks = automatic && (ct_engine_plan_of(l) != NULL);
    ct_fused_desc d = describe(p);
    trial t = { .p = p };
    ct_status status;
    int algorithm = 0;

    if (!named && !asks && !(automatic && (p->inside != 0))) return must ? CT_UNSUPPORTED : CT_OK;
    status = p->math->fused->create(&d, &t.fused);
    if (status == CT_UNSUPPORTED) {
        if (must && !asks) return CT_UNSUPPORTED; /* others may have it, and ask */
        if (named) return ct_engine_refuse(l, kind, policy, "blas");
        algorithm = -1;
    } else if (status != CT_OK) {
        return status;
    }
    status = asks ? ask(l, kind, &t, &algorithm) : CT_OK;
    use(&t, algorithm);
    if (p->fused == NULL) p->math->fused->destroy(t.fused);
    return status;
}

static ct_status make(const ct_layer *l, ct_run_kind kind, const ct_gemm_desc *shape,
                      unsigned behind, unsigned narrow, int aligned, ct_product *p)
{
    ct_product made = { .math = NULL };
    ct_status status;

    if ((behind & (CT_FUSE_BITS | CT_FUSE_DRELU)) != 0 && (l->dev->math->fused == NULL))
        return CT_UNSUPPORTED;
    CT_TRY(ct_product_make_plain(l, kind, shape, behind, narrow, &made));
    if (l->dev->math->fused != NULL) {
        made.inside = inside_of(&made);
        made.aligned = aligned;
        status = choose(l, kind, &made);
        if (status != CT_OK) {
            ct_product_drop(&made);
            return status;
        }
    }
    ct_product_drop(p);
    *p = made;
    return CT_OK;
}

ct_status ct_product_make(const ct_layer *l, ct_run_kind kind, const ct_gemm_desc *shape,
                          unsigned behind, ct_product *p)
{
    return make(l, kind, shape, behind, 0, 0, p);
}

ct_status ct_product_make_narrow(const ct_layer *l, ct_run_kind kind, const ct_gemm_desc *shape,
                                 unsigned behind, unsigned narrow, ct_product *p)
{
    return make(l, kind, shape, behind, narrow, 0, p);
}

ct_status ct_product_make_at(const ct_layer *l, ct_run_kind kind, const ct_gemm_desc *shape,
                             unsigned behind, int aligned, ct_product *p)
{
    return make(l, kind, shape, behind, 0, aligned, p);
}

void ct_product_drop(ct_product *p)
{
    if (p->fused != NULL) p->math->fused->destroy(p->fused);
    p->fused = NULL;
}
