/* MatMul: C = alpha op(A) op(B) of two bottoms, for each index of the axes before the last two. */
#include <math.h>

#include "framework/math/gemm.h"
#include "layers/engine/engine.h"
#include "layers/types/layer_types.h"

enum { WORK };
enum { TO_C, TO_A, TO_B, N_WAY }; /* as CT_RUN_FORWARD and the two that follow */

typedef struct matmul_state {
    bool ta, tb;
    float alpha;
} matmul_state;

/* One of the three products of an instance: of x and y, each the data of A or B or the diff of C.
 */
typedef struct matmul_way {
    ct_gemm_desc d;
    const ct_math_ops *math; /* NULL: packed panels */
} matmul_way;

typedef struct matmul_plan {
    int64_t count;    /* of matrices                             */
    int64_t size[3];  /* elements of a matrix C, A, B            */
    int64_t width[3]; /* of their rows                           */
    bool pools;       /* sums over the tokens of each of the sequences that lie side by side */
    matmul_way way[N_WAY];
} matmul_plan;

static ct_status setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__MatMulParameter *p = l->param->matmul_param;
    matmul_state *s = l->state;

    (void)bottom;
    *s = (matmul_state){ (p != NULL) && p->transpose_a, (p != NULL) && p->transpose_b,
                         (p != NULL) ? p->alpha : 1.0f };
    if (isfinite(s->alpha)) return CT_OK;
    return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "matmul_param.alpha is %g, not a number to compute with",
                         (double)s->alpha);
}

/* "auto" takes the packed products always: their bits do not depend on the number of threads. */
static ct_status pick(const ct_layer *l, ct_run_kind kind, ct_gemm_desc d, matmul_way *way)
{
    const char *policy = ct_engine_policy(l, kind);
    bool automatic = strcmp(policy, "auto") == 0;

    d.n_thread = ct_engine_n_thread(l);
    d.bf16 = ct_engine_bf16(l);
    *way = (matmul_way){ .d = d };
    CT_TRY(ct_engine_check_rows(l, policy));
    if (automatic || (strcmp(policy, "packed") == 0)) return CT_OK;
    way->math = (strcmp(policy, "ref") == 0) ? &ct_math_ref : l->dev->math;
    if ((way->math == &ct_math_ref) || (strcmp(policy, "blas") == 0)) return CT_OK;
    return ct_engine_refuse(l, kind, policy, "packed, blas, ref");
}

/* The last two axes as op() has them. */
static void size_of(const ct_shape *s, bool turned, int64_t *rows_p, int64_t *columns_p)
{
    int64_t r = s->dim[s->ndim - 2], c = s->dim[s->ndim - 1];

    *rows_p = turned ? c : r;
    *columns_p = turned ? r : c;
}

static ct_status check(const ct_layer *l, const ct_shape *a, const ct_shape *b)
{
    bool same = a->ndim == b->ndim;

    if ((a->ndim < 2) || (b->ndim < 2))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "bottoms of shapes %s and %s: matrices are needed",
                             ct_shape_str(a).text, ct_shape_str(b).text);
    for (int i = 0; same && (i < a->ndim - 2); i++) same = a->dim[i] == b->dim[i];
    if (!same)
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE,
                             "bottoms of shapes %s and %s: all axes but the last two must agree",
                             ct_shape_str(a).text, ct_shape_str(b).text);
    return CT_OK;
}

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    const ct_shape *a = &in->bottom[0]->data.shape, *b = &in->bottom[1]->data.shape;
    const matmul_state *s = l->state;
    matmul_plan *p = in->state;
    int64_t m, n, k, other;
    ct_shape top = *a;
    size_t work = 0;

    CT_TRY(check(l, a, b));
    size_of(a, s->ta, &m, &k);
    size_of(b, s->tb, &other, &n);
    if (k != other)
        return CT_LAYER_FAIL(
            l, CT_ERR_SHAPE, "bottoms of shapes %s%s and %s%s: %lld columns, but %lld rows",
            ct_shape_str(a).text, s->ta ? ", transposed," : "", ct_shape_str(b).text,
            s->tb ? ", transposed" : "", (long long)k, (long long)other);
    top.dim[top.ndim - 2] = m;
    top.dim[top.ndim - 1] = n;
    p->count = ct_shape_count(a, 0, a->ndim - 2);
    p->size[TO_C] = m * n, p->size[TO_A] = m * k, p->size[TO_B] = k * n;
    p->width[TO_C] = n, p->width[TO_A] = a->dim[a->ndim - 1], p->width[TO_B] = b->dim[b->ndim - 1];
    CT_TRY(pick(l, CT_RUN_FORWARD, (ct_gemm_desc){ s->ta, s->tb, m, n, k, 0, false, false },
                &p->way[TO_C]));
    /* dA = dC op(B)^T, or its transpose op(B) dC^T */
    CT_TRY(pick(l, CT_RUN_BACKWARD_DATA,
                s->ta ? (ct_gemm_desc){ s->tb, true, k, m, n, 0, false, false }
                      : (ct_gemm_desc){ false, !s->tb, m, k, n, 0, false, false },
                &p->way[TO_A]));
    /* dB = op(A)^T dC, or its transpose dC^T op(A) */
    CT_TRY(pick(l, CT_RUN_BACKWARD_WEIGHT,
                s->tb ? (ct_gemm_desc){ true, s->ta, n, k, m, 0, false, false }
                      : (ct_gemm_desc){ !s->ta, false, k, n, m, 0, false, false },
                &p->way[TO_B]));
    for (int w = 0; w < N_WAY; w++) {
        const matmul_way *way = &p->way[w];
        size_t bytes = (way->math == NULL) ? ct_gemm_batch_workspace(&way->d, p->count) : 0;

        if (bytes > work) work = bytes;
    }
    p->pools = (l->env->packed != NULL) && !s->ta && !s->tb && (a->ndim == 3) && (m == 1);
    if (p->pools) {
        size_t bytes = ct_gemm_workspace(&p->way[TO_C].d);

        top.dim[0] = (l->env->packed->n < k) ? l->env->packed->n : k;
        work = (bytes > work) ? bytes : work;
    }
    ct_instance_buffer(in, WORK, CT_LIFETIME_CALL, work);
    ct_blob_set_shape(in->top[0], &top);
    return CT_OK;
}

/* to = alpha op(x) op(y); ix, iy: which of C, A, B the operands are. */
static ct_status run(const ct_layer *l, const ct_instance *in, ct_exec *ex, int to, const float *x,
                     int ix, const float *y, int iy, float *out)
{
    const matmul_state *s = l->state;
    const matmul_plan *p = in->state;
    const matmul_way *w = &p->way[to];
    const ct_gemm_desc *d = &w->d;
    ct_gemm_batch batch = { p->count, p->size[ix], p->size[iy], p->size[to] };

    if (w->math == NULL) {
        ct_gemm_run_batch(d, &batch,
                          &(ct_gemm_args){ .alpha = s->alpha,
                                           .a = x,
                                           .b = y,
                                           .lda = p->width[ix],
                                           .ldb = p->width[iy],
                                           .c = out,
                                           .ldc = p->width[to],
                                           .work = in->buffer[WORK].data });
        return ct_exec_poll(ex);
    }
    for (int64_t i = 0; i < p->count; i++) {
        CT_TRY(w->math->gemm(ex->stream, d->ta, d->tb, d->m, d->n, d->k, s->alpha,
                             x + i * batch.step_a, p->width[ix], y + i * batch.step_b, p->width[iy],
                             0.0f, out + i * batch.step_c, p->width[to]));
        CT_TRY(ct_exec_poll(ex));
    }
    return CT_OK;
}

/* A row for each of the sequences side by side, of its own tokens. */
static ct_status pool(const ct_layer *l, const ct_instance *in)
{
    const ct_packed *packed = l->env->packed;
    const matmul_plan *p = in->state;
    ct_gemm_desc d = p->way[TO_C].d;

    for (int64_t s = 0; s < packed->n; s++) {
        ct_gemm_plan plan;

        d.k = packed->at[s + 1] - packed->at[s];
        plan = ct_gemm_plan_make(&d);
        ct_gemm_run(
            &plan,
            &(ct_gemm_args){ .alpha = ((const matmul_state *)l->state)->alpha,
                             .a = (const float *)ct_blob_data(in->bottom[0]) + packed->at[s],
                             .b = (const float *)ct_blob_data(in->bottom[1]) + packed->at[s] * d.n,
                             .lda = d.k,
                             .ldb = d.n,
                             .c = (float *)ct_blob_data(in->top[0]) + s * d.n,
                             .ldc = d.n,
                             .work = in->buffer[WORK].data });
    }
    return CT_OK;
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    if (((const matmul_plan *)in->state)->pools) return pool(l, in);
    return run(l, in, ex, TO_C, ct_blob_data(in->bottom[0]), TO_A, ct_blob_data(in->bottom[1]),
               TO_B, ct_blob_data(in->top[0]));
}

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const float *a = ct_blob_data(in->bottom[0]), *b = ct_blob_data(in->bottom[1]);
    const float *dc = ct_blob_diff(in->top[0]);
    float *da = ct_blob_diff(in->bottom[0]), *db = ct_blob_diff(in->bottom[1]);
    const matmul_state *s = l->state;

    if (da != NULL)
        CT_TRY(s->ta ? run(l, in, ex, TO_A, b, TO_B, dc, TO_C, da)
                     : run(l, in, ex, TO_A, dc, TO_C, b, TO_B, da));
    if (db != NULL)
        CT_TRY(s->tb ? run(l, in, ex, TO_B, dc, TO_C, a, TO_A, db)
                     : run(l, in, ex, TO_B, a, TO_A, dc, TO_C, db));
    return CT_OK;
}

static void estimate(const ct_layer *l, const ct_instance *in, ct_estimate *e)
{
    const matmul_plan *p = in->state;
    const ct_gemm_desc *d = &p->way[TO_C].d;
    double product = 2.0 * (double)p->count * (double)d->m * (double)d->n * (double)d->k;

    (void)l;
    for (int i = 0; i < CT_N_RUN; i++) {
        const matmul_way *w = &p->way[i];
        ct_operand operand = w->d.bf16 ? CT_OPERAND_BF16 : CT_OPERAND_F32;

        e->engine[i] = (w->math == NULL)           ? ct_engine_name("packed", operand)
                       : (w->math == &ct_math_ref) ? "ref"
                                                   : "blas";
    }
    e->forward_flop = product;
    e->backward_flop =
        product * ((in->bottom[0]->wants_diff ? 1 : 0) + (in->bottom[1]->wants_diff ? 1 : 0));
}

/* Tokens mix but for those that are pooled. */
static bool apart(const ct_layer *l, const ct_instance *in, int n_axis)
{
    (void)l;
    (void)in;
    (void)n_axis;
    return false;
}

static const ct_sequence_ops matmul_sequence = { .apart = apart, .packs = true, .pools = true };

const ct_layer_ops ct_layer_matmul = {
    .type = "MatMul",
    .params = "matmul_param",
    .min_bottom = 2,
    .max_bottom = 2,
    .min_top = 1,
    .max_top = 1,
    .backward_reads = CT_READS_BOTTOM,
    .state_size = sizeof(matmul_state),
    .instance_state_size = sizeof(matmul_plan),
    .setup = setup,
    .reshape = reshape,
    .forward = forward,
    .backward = backward,
    .estimate = estimate,
    .sequence = &matmul_sequence,
};
