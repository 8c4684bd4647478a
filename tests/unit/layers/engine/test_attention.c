/* Attention: every engine against the definition in double over odd shapes, on every instruction
 * set; the same bits for any number of threads and any way to cut the work; scores that are large
 * or -infinity; rows that see nothing; what threads have to do. */
#include "tests/test.h"
#include "framework/base/bf16.h"
#include "framework/base/rng.h"
#include "framework/base/simd.h"
#include "layers/engine/attention/attention.h"
#include "tests/layer_harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct shape {
    int64_t n, heads, kv, tq, tk, dim;
    bool causal;
    int64_t window, rope;
    bool interleaved, segments, packed;
    float ratio; /* of dropout                       */
    float size;  /* of queries and keys; 0: 1        */
} shape;

/* One call's memory; stride of tokens as in a packed blob, or each operand alone. */
typedef struct operands {
    ct_attention_desc d;
    ct_attention_args a;
    float *x, *dx, *top, *dtop, *segment, *turn, *stats;
    int64_t n_x, n_top;
} operands;

static float *numbers(int64_t n)
{
    float *v = calloc((size_t)n + 1, sizeof(*v));

    assert_non_null(v);
    return v;
}

/* Four documents in a row, the second of one token; of the last sequence one document. */
static void fill_segments(const shape *c, float *segment)
{
    for (int64_t i = 0; i < c->n * c->tk; i++) {
        int64_t at = i % c->tk, third = c->tk / 3;

        segment[i] = (at < third)           ? 7.0f
                     : (at == third)        ? 2.0f
                     : (at < 2 * third + 1) ? 3.0f
                                            : 9.0f;
        if ((c->n > 1) && (i / c->tk == c->n - 1)) segment[i] = 1.0f;
    }
}

static operands make(const shape *c, int n_thread)
{
    int64_t q = c->heads * c->dim, k = c->kv * c->dim, row = c->packed ? q + 2 * k : 0;
    operands o = { .d = { .device = CT_DEVICE_CPU,
                          .n_thread = n_thread,
                          .n = c->n,
                          .tq = c->tq,
                          .tk = c->tk,
                          .heads = c->heads,
                          .kv_heads = c->kv,
                          .dim = c->dim,
                          .q_row = c->packed ? row : q,
                          .k_row = c->packed ? row : k,
                          .v_row = c->packed ? row : k,
                          .causal = c->causal,
                          .window = c->window,
                          .scale = (float)(1 / sqrt((double)c->dim)),
                          .rope_dim = c->rope,
                          .interleaved = c->interleaved,
                          .drop_below = (uint64_t)((double)c->ratio * 0x1p32),
                          .keep_scale = 1.0f / (1.0f - c->ratio),
                          .wants_q = true,
                          .wants_kv = true } };
    int64_t of_q = c->n * c->tq * q, of_k = c->n * c->tk * k;
    int64_t k_at = c->packed ? q : of_q, v_at = k_at + (c->packed ? k : of_k);

    o.n_x = of_q + 2 * of_k;
    o.n_top = of_q;
    o.x = numbers(o.n_x), o.dx = numbers(o.n_x);
    o.top = numbers(of_q), o.dtop = numbers(of_q);
    o.segment = numbers(c->n * c->tk);
    o.turn = numbers(((c->tq > c->tk) ? c->tq : c->tk) * (c->rope + 1));
    o.stats = numbers(2 * c->n * c->heads * c->tq);
    test_random(o.x, o.n_x, 1, -1, 1);
    for (int64_t i = 0; (c->size > 0) && (i < o.n_x); i++) o.x[i] *= c->size;
    test_random(o.dtop, of_q, 2, -1, 1);
    fill_segments(c, o.segment);
    ct_attention_turns(0, (c->tq > c->tk) ? c->tq : c->tk, c->rope, 10000, o.turn);
    o.a = (ct_attention_args){ .q = o.x,
                               .k = o.x + k_at,
                               .v = o.x + v_at,
                               .dq = o.dx,
                               .dk = o.dx + k_at,
                               .dv = o.dx + v_at,
                               .segment = c->segments ? o.segment : NULL,
                               .turn = o.turn,
                               .y = o.top,
                               .dy = o.dtop,
                               .stats = o.stats,
                               .key = 77,
                               .first = 3 };
    assert_int_equal(ct_attention_split(&o.d), CT_OK);
    return o;
}

static void destroy(operands *o)
{
    free(o->x), free(o->dx), free(o->top), free(o->dtop);
    free(o->segment), free(o->turn), free(o->stats);
}

static void run(operands *o, const ct_attention_impl *impl)
{
    size_t bytes = ct_attention_workspace(impl, &o->d);
    ct_exec ex = { .dev = ct_device_cpu() };
    ct_attention_args a = o->a;

    assert_int_equal(posix_memalign(&a.work, 64, bytes + 64), 0);
    memset(a.work, 0xff, bytes + 64);
    assert_int_equal(impl->run(&o->d, &ex, &a), CT_OK);
    for (size_t i = bytes; i < bytes + 64; i++) assert_int_equal(((unsigned char *)a.work)[i], 255);
    free(a.work);
}

/* ---- the definition, of one head of one sequence, with sums of sizes that bound the rounding */

typedef struct exact {
    double *y, *dx, *y_size, *dx_size; /* as top and dx lie */
    double largest;                    /* scale sum |q k|   */
} exact;

typedef struct one {
    const operands *o;
    exact *e;
    int64_t s, h, g;
    double *q, *k;     /* turned                                          */
    double *d_q, *d_k; /* their gradients, and the sizes of those, behind */
} one;

/* y[i] = x turned by the angles of position p, back: the other way; sizes: all with one sign. */
static void turn(const ct_attention_desc *d, const float *angles, int64_t p, int back, bool sizes,
                 const double *x, double *y)
{
    int64_t half = d->rope_dim / 2;

    for (int64_t c = 0; c < d->dim; c++) {
        int64_t i = d->interleaved ? c / 2 : c % (half + (half == 0));
        bool second = d->interleaved ? (c % 2 == 1) : (c >= half);
        int64_t other = d->interleaved ? (c ^ 1) : second ? c - half : c + half;
        double cosine, sine;

        y[c] = x[c];
        if (c >= d->rope_dim) continue;
        cosine = (double)angles[p * d->rope_dim + i];
        sine = (double)angles[p * d->rope_dim + half + i] * (second ? 1 : -1) * back;
        y[c] =
            sizes ? x[c] * fabs(cosine) + x[other] * fabs(sine) : x[c] * cosine + x[other] * sine;
    }
}

static bool visible(const ct_attention_desc *d, const float *segment, int64_t i, int64_t j)
{
    int64_t p = i + (d->causal ? d->tk - d->tq : 0);

    if (d->causal && (j > p)) return false;
    if ((d->window > 0) && (j <= p - d->window)) return false;
    return (segment == NULL) || (segment[p] == segment[j]);
}

static double kept(const one *t, int64_t i, int64_t j)
{
    const ct_attention_desc *d = &t->o->d;
    uint64_t at = ct_attention_number(d, t->o->a.first + t->s, t->h, i, j);
    ct_rng_block b = ct_rng_philox(t->o->a.key, 0, at / 4);

    if (d->drop_below == 0) return 1;
    return (b.v[at % 4] < d->drop_below) ? 0 : (double)d->keep_scale;
}

/* Probabilities of row i, and scale sum |q k|. */
static void row_of(const one *t, int64_t i, double *p)
{
    const ct_attention_desc *d = &t->o->d;
    const float *segment = (t->o->a.segment != NULL) ? t->o->a.segment + t->s * d->tk : NULL;
    double most = -INFINITY, sum = 0;

    for (int64_t j = 0; j < d->tk; j++) {
        double score = 0, size = 0;

        p[j] = -INFINITY;
        if (!visible(d, segment, i, j)) continue;
        for (int64_t c = 0; c < d->dim; c++) {
            double product = t->q[i * d->dim + c] * t->k[j * d->dim + c];

            score += product;
            size += fabs(product);
        }
        p[j] = score * (double)d->scale;
        most = fmax(most, p[j]);
        t->e->largest = fmax(t->e->largest, size * (double)d->scale);
    }
    for (int64_t j = 0; j < d->tk; j++) {
        p[j] = (p[j] == -INFINITY) ? 0 : exp(p[j] - most);
        sum += p[j];
    }
    for (int64_t j = 0; (sum > 0) && (j < d->tk); j++) p[j] /= sum;
}

static void forward_row(const one *t, int64_t i, const double *p)
{
    const ct_attention_desc *d = &t->o->d;
    int64_t at = ((t->s * d->tq + i) * d->heads + t->h) * d->dim;

    for (int64_t j = 0; j < d->tk; j++) {
        const float *v = t->o->a.v + (t->s * d->tk + j) * d->v_row + t->g * d->dim;
        double by = p[j] * kept(t, i, j);

        for (int64_t c = 0; (by != 0) && (c < d->dim); c++) {
            t->e->y[at + c] += by * (double)v[c];
            t->e->y_size[at + c] += by * fabs((double)v[c]);
        }
    }
}

/* What row i gives to the gradients: of values in place, of queries and keys before they are turned
 * back. */
static void backward_row(const one *t, int64_t i, const double *p)
{
    const ct_attention_desc *d = &t->o->d;
    const ct_attention_args *a = &t->o->a;
    int64_t at = ((t->s * d->tq + i) * d->heads + t->h) * d->dim;
    const float *dy = a->dy + at;
    double dot = 0, dot_size = 0;

    for (int64_t c = 0; c < d->dim; c++) {
        dot += (double)dy[c] * t->e->y[at + c];
        dot_size += fabs((double)dy[c]) * t->e->y_size[at + c];
    }
    for (int64_t j = 0; j < d->tk; j++) {
        int64_t v_at = (a->v - a->q) + (t->s * d->tk + j) * d->v_row + t->g * d->dim;
        double keep = kept(t, i, j), dp = 0, dp_size = 0, ds, size;

        if (p[j] == 0) continue;
        for (int64_t c = 0; c < d->dim; c++) {
            dp += (double)dy[c] * (double)t->o->x[v_at + c] * keep;
            dp_size += fabs((double)dy[c] * (double)t->o->x[v_at + c]) * keep;
            t->e->dx[v_at + c] += p[j] * keep * (double)dy[c];
            t->e->dx_size[v_at + c] += p[j] * keep * fabs((double)dy[c]);
        }
        ds = p[j] * (dp - dot) * (double)d->scale;
        size = p[j] * (dp_size + dot_size) * (double)d->scale;
        for (int64_t c = 0; c < d->dim; c++) {
            double q = t->q[i * d->dim + c], k = t->k[j * d->dim + c];

            t->d_q[i * d->dim + c] += ds * k, t->d_q[(d->tq + i) * d->dim + c] += size * fabs(k);
            t->d_k[j * d->dim + c] += ds * q, t->d_k[(d->tk + j) * d->dim + c] += size * fabs(q);
        }
    }
}

/* Adds n tokens' gradients, turned back, and their sizes, which lie behind them. */
static void add_back(const one *t, const double *from, int64_t n, int64_t shift, int64_t at,
                     int64_t step)
{
    const ct_attention_desc *d = &t->o->d;
    double part[512];

    for (int64_t i = 0; i < n; i++) {
        for (int k = 0; k < 2; k++) {
            double *to = (k == 0) ? t->e->dx : t->e->dx_size;

            turn(d, t->o->turn, i + shift, -1, k == 1, from + (k * n + i) * d->dim, part);
            for (int64_t c = 0; c < d->dim; c++) to[at + i * step + c] += part[c];
        }
    }
}

static void turn_tokens(const one *t, const float *x, int64_t n, int64_t shift, int64_t step,
                        double *to)
{
    const ct_attention_desc *d = &t->o->d;
    double token[512];

    for (int64_t i = 0; i < n; i++) {
        for (int64_t c = 0; c < d->dim; c++) token[c] = (double)x[i * step + c];
        turn(d, t->o->turn, i + shift, 1, false, token, to + i * d->dim);
    }
}

static void define_head(one *t, double *p)
{
    const ct_attention_desc *d = &t->o->d;
    const ct_attention_args *a = &t->o->a;
    int64_t shift = d->causal ? d->tk - d->tq : 0;
    int64_t q_at = t->s * d->tq * d->q_row + t->h * d->dim;
    int64_t k_at = (a->k - a->q) + t->s * d->tk * d->k_row + t->g * d->dim;

    t->q = calloc((size_t)(3 * (d->tq + d->tk) * d->dim), sizeof(double));
    assert_non_null(t->q);
    t->k = t->q + d->tq * d->dim;
    t->d_q = t->k + d->tk * d->dim;
    t->d_k = t->d_q + 2 * d->tq * d->dim;
    turn_tokens(t, a->q + q_at, d->tq, shift, d->q_row, t->q);
    turn_tokens(t, t->o->x + k_at, d->tk, 0, d->k_row, t->k);
    for (int64_t i = 0; i < d->tq; i++) {
        row_of(t, i, p);
        forward_row(t, i, p);
        backward_row(t, i, p);
    }
    add_back(t, t->d_q, d->tq, shift, q_at, d->q_row);
    add_back(t, t->d_k, d->tk, 0, k_at, d->k_row);
    free(t->q);
}

static exact define(const operands *o)
{
    exact e = { .y = calloc((size_t)o->n_top, sizeof(double)),
                .y_size = calloc((size_t)o->n_top, sizeof(double)),
                .dx = calloc((size_t)o->n_x, sizeof(double)),
                .dx_size = calloc((size_t)o->n_x, sizeof(double)) };
    double *p = malloc((size_t)o->d.tk * sizeof(*p));

    assert_true(e.y && e.y_size && e.dx && e.dx_size && p);
    for (int64_t s = 0; s < o->d.n; s++) {
        for (int64_t h = 0; h < o->d.heads; h++) {
            one t = { .o = o, .e = &e, .s = s, .h = h, .g = h / (o->d.heads / o->d.kv_heads) };

            define_head(&t, p);
        }
    }
    free(p);
    return e;
}

/* n heads kv tq tk dim causal window rope interleaved segments packed ratio size */
static const shape shapes[] = {
    { 1, 1, 1, 1, 1, 1, false, 0, 0, false, false, false, 0, 0 },
    { 2, 3, 3, 2, 2, 8, true, 0, 8, false, false, true, 0, 0 },
    { 1, 2, 1, 63, 63, 64, true, 0, 0, false, false, true, 0, 0 },
    { 2, 2, 2, 64, 64, 8, true, 0, 4, true, true, true, 0, 0 },
    { 1, 3, 1, 65, 65, 80, true, 0, 80, false, false, false, 0, 0 },
    { 1, 2, 2, 65, 65, 128, false, 0, 0, false, true, true, 0, 0 },
    { 1, 6, 3, 65, 65, 1, true, 17, 0, false, false, true, 0, 0 },
    { 1, 1, 1, 257, 257, 64, true, 0, 0, false, false, true, 0, 0 },
    { 1, 2, 1, 257, 257, 8, true, 33, 6, false, true, true, 0, 0 },
    { 1, 1, 1, 257, 257, 12, true, 1, 0, false, false, true, 0, 0 },
    { 2, 3, 1, 1, 65, 8, true, 0, 8, false, false, false, 0, 0 },
    { 1, 2, 2, 63, 257, 20, true, 100, 20, true, true, false, 0, 0 },
    { 1, 2, 2, 65, 2, 64, false, 0, 0, false, false, false, 0, 0 },
    { 1, 4, 2, 2, 130, 24, false, 0, 10, false, false, false, 0, 0 },
    { 1, 1, 1, 33, 33, 200, true, 0, 200, false, false, true, 0, 0 },
    { 1, 1, 1, 20, 20, 300, false, 0, 100, true, false, true, 0, 0 },
    { 1, 2, 1, 65, 65, 8, true, 0, 8, false, true, true, 0.3f, 0 },
    { 2, 2, 2, 63, 140, 16, true, 77, 0, false, false, false, 0.5f, 0 },
    { 2, 2, 2, 65, 65, 16, true, 0, 0, false, false, true, 0, 120 }, /* large_scores() */
    { 1, 1, 1, 129, 129, 64, false, 0, 0, false, false, true, 0, 100 },
};
enum { N_SHAPE = sizeof(shapes) / sizeof(shapes[0]) };

static exact defined[N_SHAPE]; /* of those that were asked for */

static const exact *exact_of(const shape *c, const operands *o)
{
    exact *e = &defined[c - shapes];

    if (e->y == NULL) *e = define(o);
    return e;
}

static int drop(void **state)
{
    (void)state;
    for (int i = 0; i < N_SHAPE; i++)
        free(defined[i].y), free(defined[i].y_size), free(defined[i].dx), free(defined[i].dx_size);
    return 0;
}

/* ---- engines against it */

static void near(const float *a, const double *b, const double *size, int64_t n, double allowed,
                 const char *what)
{
    for (int64_t i = 0; i < n; i++) {
        double off = fabs((double)a[i] - b[i]);

        if (!(off <= allowed * size[i] + 1e-30))
            fail_msg("%s[%lld]: %.9g for %.9g, %.3g times what is allowed", what, (long long)i,
                     (double)a[i], b[i], off / (allowed * size[i] + 1e-30));
    }
}

static const char *text_of(const shape *c)
{
    static char text[200];

    snprintf(text, sizeof(text),
             "n %d heads %d kv %d tq %d tk %d dim %d causal %d window %d rope %d", (int)c->n,
             (int)c->heads, (int)c->kv, (int)c->tq, (int)c->tk, (int)c->dim, c->causal,
             (int)c->window, (int)c->rope);
    return text;
}

/* In units of u = 2^-24: a score is off by its sum's dim products and some 10 roundings of its
 * factors, times the sum of their sizes; a probability by that twice (itself, and the sum of all)
 * and some 8 for the power and the quotient. Sums then have tq heads or tk products, dp and the dot
 * dim. */
static double allowed(const operands *o, const exact *e)
{
    const ct_attention_desc *d = &o->d;
    double sums = (double)(d->tk + d->tq * (d->heads / d->kv_heads) + 2 * d->dim);

    return 0x1p-24 * (2 * ((double)d->dim + 10) * e->largest + sums + 40);
}

static void check_exact(const shape *c, operands *o, const exact *e,
                        const ct_attention_impl *forward, const ct_attention_impl *backward)
{
    char what[300];

    for (int64_t i = 0; i < o->n_x; i++) o->dx[i] = NAN;
    run(o, forward);
    run(o, backward);
    snprintf(what, sizeof(what), "%s, %s y", text_of(c), forward->name);
    near(o->top, e->y, e->y_size, o->n_top, allowed(o, e), what);
    snprintf(what, sizeof(what), "%s, %s dx", text_of(c), backward->name);
    near(o->dx, e->dx, e->dx_size, o->n_x, allowed(o, e), what);
}

static void check(const shape *c, const ct_attention_impl *forward,
                  const ct_attention_impl *backward)
{
    operands o = make(c, 2);

    check_exact(c, &o, exact_of(c, &o), forward, backward);
    destroy(&o);
}

static void every_engine(void **state)
{
    (void)state;
    for (int i = 0; i < N_SHAPE; i++) {
        for (int k = 0; ct_attention_forward_table[k] != NULL; k++)
            check(&shapes[i], ct_attention_forward_table[k], ct_attention_backward_table[k]);
    }
    assert_string_equal(ct_attention_forward_table[1]->name, "reference");
}

/* Forms of attention over so many tokens: bidirectional, causal, windows, segments, positions that
 * turn, dropout, operands of their own; one head of keys, 3, and as many as of queries. */
static shape form_of(int way, int64_t tokens, int64_t dim)
{
    static const int64_t kv[] = { 1, 6, 3 };

    return (shape){ .n = (tokens < 100) ? 2 : 1,
                    .heads = 6,
                    .kv = kv[way % 3],
                    .tq = tokens,
                    .tk = tokens,
                    .dim = dim,
                    .causal = (way == 1) || (way == 2) || (way == 4),
                    .window = (way == 2) ? 17 : 0,
                    .rope = (way == 4) ? dim / 2 * 2 : 0,
                    .segments = (way == 3) || (way == 4),
                    .packed = way != 5,
                    .ratio = (way == 4) ? 0.2f : 0 };
}

/* Every length with every width of heads; all forms of the shorter ones. */
static void every_size(void **state)
{
    static const int64_t t[] = { 1, 2, 63, 64, 65, 257 }, dim[] = { 1, 8, 64, 80, 128 };

    (void)state;
    for (int i = 0; i < 6 * 5 * 6; i++) {
        int way = i / 30;
        shape c = form_of(way, t[i % 6], dim[i / 6 % 5]);
        operands first, o;
        exact e;

        if ((c.tq == 257) && (way != i / 6 % 5)) continue;
        first = make(&c, 2);
        e = define(&first);
        check_exact(&c, &first, &e, &ct_attention_ref_forward, &ct_attention_ref_backward);
        check_exact(&c, &first, &e, &ct_attention_flash_forward, &ct_attention_flash_backward);
        for (int threads = 1; threads <= 3; threads += 2) {
            o = make(&c, threads);
            run(&o, &ct_attention_flash_forward);
            run(&o, &ct_attention_flash_backward);
            test_same(o.top, first.top, o.n_top, text_of(&c));
            test_same(o.dx, first.dx, o.n_x, text_of(&c));
            destroy(&o);
        }
        destroy(&first);
        free(e.y), free(e.y_size), free(e.dx), free(e.dx_size);
    }
}

/* What one engine's forward keeps another's backward reads. */
static void mixed(void **state)
{
    (void)state;
    check(&shapes[8], &ct_attention_ref_forward, &ct_attention_flash_backward);
    check(&shapes[8], &ct_attention_flash_forward, &ct_attention_ref_backward);
}

static void every_set(void **state)
{
    static const char *const name[] = { "portable", "avx2", "avx512" };

    (void)state;
    unsetenv("CORTADO_SIMD");
    for (int level = 0; level <= (int)ct_simd_pick(); level++) {
        setenv("CORTADO_SIMD", name[level], 1);
        for (int i = 0; i < N_SHAPE; i++)
            check(&shapes[i], &ct_attention_flash_forward, &ct_attention_flash_backward);
        unsetenv("CORTADO_SIMD");
    }
}

/* ---- bits */

static void same_bits(void **state)
{
    static const int threads[] = { 1, 2, 3, 5 };
    static const int64_t sizes[][2] = { { 0, 0 }, { 32, 32 }, { 64, 128 }, { 256, 64 } };

    (void)state;
    for (int i = 0; i < N_SHAPE; i++) {
        operands first = make(&shapes[i], 1);

        run(&first, &ct_attention_flash_forward);
        run(&first, &ct_attention_flash_backward);
        for (int k = 0; k < 16; k++) {
            operands o = make(&shapes[i], threads[k % 4]);

            if (k >= 4) o.d.task_queries = sizes[k / 4][0], o.d.task_keys = sizes[k / 4][1];
            run(&o, &ct_attention_flash_forward);
            run(&o, &ct_attention_flash_backward);
            test_same(o.top, first.top, o.n_top, text_of(&shapes[i]));
            test_same(o.dx, first.dx, o.n_x, text_of(&shapes[i]));
            destroy(&o);
        }
        destroy(&first);
    }
}

/* x rounded to bf16, and as such. */
static void *narrowed(float *x, int64_t n)
{
    void *y = numbers(n);

    ct_bf16_narrow(n, x, y);
    ct_bf16_widen(n, y, x);
    return y;
}

/* ---- edges */

/* Of the two shapes with large operands: scores from below -1e4 to above 1e4, which every_engine(),
 * every_set() and same_bits() run. */
static void large_scores(void **state)
{
    (void)state;
    for (int i = N_SHAPE - 2; i < N_SHAPE; i++) {
        const shape *c = &shapes[i];
        operands o = make(c, 1);
        double least = 0, most = 0;

        for (int64_t q = 0; q < c->tq; q++) {
            for (int64_t k = 0; k < c->tk; k++) {
                double score = 0;

                if (!visible(&o.d, NULL, q, k)) continue;
                for (int64_t x = 0; x < c->dim; x++)
                    score += (double)o.a.q[q * o.d.q_row + x] * (double)o.a.k[k * o.d.k_row + x];
                least = fmin(least, score * (double)o.d.scale);
                most = fmax(most, score * (double)o.d.scale);
            }
        }
        assert_true((least < -1e4) && (most > 1e4));
        destroy(&o);
    }
}

static const shape infinite = { 1, 1, 1, 40, 40, 16, false, 0, 0, false, false, true, 0, 0 };

static bool counts(int64_t key, bool none_counts)
{
    return !none_counts && (key % 5 != 1);
}

/* Scores of -infinity: of every fifth key, or of all; only for queries at which[] of 0. Such keys
 * count for nothing, and a row of them alone is one that sees nothing. off: of a result. */
static void check_infinite(const operands *o, bool none_counts, int every, double off)
{
    bool bf16 = o->d.bf16;

    for (int64_t t = 0; t < 40; t++) {
        bool apart = none_counts && (t % every == 0), all = none_counts && !apart;
        double mean = 0, n = 0;

        for (int64_t j = 0; j < 40; j++) {
            if (!all && !counts(j, none_counts)) continue;
            mean += (double)ct_num_get(o->a.v, bf16, j * 48);
            n += 1;
        }
        mean = apart ? 0 : mean / n;
        assert_true(fabs((double)ct_num_get(o->top, bf16, t * 16) - mean) <= off);
        for (int i = 0; i < 48; i++) {
            float d = ct_num_get(o->dx, bf16, t * 48 + i);

            assert_true(isfinite(d));
            if (apart && (i < 16)) assert_true(d == 0.0f);
        }
    }
}

/* Products of 1e20 and -1e20, of f32 and of bf16 numbers. P, of 8 bits then, and a result are off
 * by 2^-8 at most. */
static void minus_infinity(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++) {
        bool none = k % 2 == 1, bf16 = k >= 2;
        operands o = make(&infinite, 2);
        float *x = NULL;

        for (int64_t t = 0; t < 40; t++) {
            float *q = o.x + t * 48, *key = q + 16;

            for (int i = 0; i < 16; i++) {
                q[i] = (t % 3 == 0) ? 1e20f : 0.25f;
                key[i] = counts(t, none) ? 0.0f : -1e20f;
            }
        }
        if (bf16) {
            x = narrowed(o.x, o.n_x);
            o.d.bf16 = true;
            o.a.q = x, o.a.k = ct_num_at(x, true, 16), o.a.v = ct_num_at(x, true, 32);
            o.a.dk = ct_num_to(o.dx, true, 16), o.a.dv = ct_num_to(o.dx, true, 32);
            ct_bf16_narrow(o.n_top, o.dtop, (void *)o.dtop);
        }
        run(&o, &ct_attention_flash_forward);
        run(&o, &ct_attention_flash_backward);
        check_infinite(&o, none, 3, bf16 ? 0x1p-7 : 1e-5);
        free(x);
        destroy(&o);
    }
}

/* What reference multiplies in double is finite but where a key is not. */
static void minus_infinity_in_reference(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        operands o = make(&infinite, 1);

        for (int64_t t = 0; t < 40; t++) {
            float *q = o.x + t * 48, *key = q + 16;

            for (int i = 0; i < 16; i++) q[i] = 0.25f, key[i] = 0;
            if (!counts(t, k == 1)) key[3] = -INFINITY;
        }
        run(&o, &ct_attention_ref_forward);
        run(&o, &ct_attention_ref_backward);
        check_infinite(&o, k == 1, 1, 1e-5);
        destroy(&o);
    }
}

/* A segment number that is no number equals none, itself neither. */
static void nothing_seen(void **state)
{
    shape c = { 1, 2, 1, 70, 70, 24, true, 0, 24, false, true, true, 0, 0 };

    (void)state;
    for (int e = 0; ct_attention_forward_table[e] != NULL; e++) {
        operands o = make(&c, 2);

        for (int64_t i = 20; i < 70; i++) o.segment[i] = NAN;
        run(&o, ct_attention_forward_table[e]);
        run(&o, ct_attention_backward_table[e]);
        for (int64_t i = 20 * 48; i < 70 * 48; i++) assert_true(o.top[i] == 0.0f);
        for (int64_t i = 20 * 96; i < 70 * 96; i++) assert_true(o.dx[i] == 0.0f);
        for (int64_t i = 0; i < 20 * 48; i++) assert_true(o.top[i] != 0.0f);
        destroy(&o);
    }
}

/* ---- work */

static double balance(const shape *c, bool backward, int n_thread)
{
    operands o = make(c, n_thread);
    double *work = malloc((size_t)n_thread * sizeof(*work)), last, sum = 0, most = 0;

    assert_non_null(work);
    assert_int_equal(ct_attention_work(&o.d, backward, work, &last), CT_OK);
    for (int i = 0; i < n_thread; i++) {
        sum += work[i];
        most = fmax(most, work[i]);
    }
    assert_true(last >= most); /* waits come on top */
    free(work);
    destroy(&o);
    return sum / (n_thread * last);
}

/* One sequence of GPT-2 small keeps many threads busy, in both directions. */
static void threads_are_busy(void **state)
{
    shape gpt2 = { 1, 12, 12, 1024, 1024, 64, true, 0, 0, false, false, true, 0, 0 };

    (void)state;
    for (int backward = 0; backward < 2; backward++) {
        static const int threads[] = { 2, 8, 64, 128 };

        for (int i = 0; i < 4; i++) {
            double b = balance(&gpt2, backward, threads[i]);

            if (b < 0.85)
                fail_msg("%s, %d threads: balance %.3f", backward ? "backward" : "forward",
                         threads[i], b);
        }
    }
}

/* What is visible, counted; and what is multiplied is not much more. */
static void pairs(void **state)
{
    shape c = { 1, 1, 1, 100, 300, 8, true, 40, 0, false, false, false, 0, 0 };
    operands o = make(&c, 1);
    double seen = 0, last;

    (void)state;
    for (int64_t i = 0; i < 100; i++) {
        for (int64_t j = 0; j < 300; j++) seen += visible(&o.d, NULL, i, j);
    }
    assert_true(ct_attention_pairs(&o.d) == seen);
    destroy(&o);
    c = (shape){ 1, 1, 1, 1024, 1024, 64, true, 0, 0, false, false, true, 0, 0 };
    o = make(&c, 1);
    assert_int_equal(ct_attention_work(&o.d, false, NULL, &last), CT_OK);
    assert_true(last >= 2 * 64 * ct_attention_pairs(&o.d));
    assert_true(last <= 1.05 * 2 * 64 * ct_attention_pairs(&o.d));
    assert_int_equal(ct_attention_work(&o.d, true, NULL, &last), CT_OK);
    assert_true(last <= 1.05 * 5 * 64 * ct_attention_pairs(&o.d));
    destroy(&o);
}

/* ---- bf16 numbers in memory: what f32 ones of the same values give, rounded once */

static void assert_rounded(const shape *c, const char *what, const float *wide, const void *narrow,
                           int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (ct_bf16_from_f32(wide[i]) != ((const ct_bf16 *)narrow)[i])
            fail_msg("%s[%lld] of T %lld, dim %lld: %g, in f32 %g", what, (long long)i,
                     (long long)c->tq, (long long)c->dim, (double)ct_num_get(narrow, true, i),
                     (double)wide[i]);
    }
}

/* Backward reads the top as forward left it: both read the rounded one. */
static void check_bf16(const shape *c, bool reference)
{
    const ct_attention_impl *forward =
        reference ? &ct_attention_ref_forward : &ct_attention_flash_forward;
    const ct_attention_impl *backward =
        reference ? &ct_attention_ref_backward : &ct_attention_flash_backward;
    operands f32 = make(c, 1), o = make(c, 1);
    float *x = narrowed(f32.x, f32.n_x), *dy = narrowed(f32.dtop, f32.n_top), *top;
    int64_t k_at = f32.a.k - f32.a.q, v_at = f32.a.v - f32.a.q;

    o.d.bf16 = true;
    o.a.q = x;
    o.a.k = ct_num_at(x, true, k_at);
    o.a.v = ct_num_at(x, true, v_at);
    o.a.dy = dy;
    o.a.dk = ct_num_to(o.dx, true, k_at);
    o.a.dv = ct_num_to(o.dx, true, v_at);
    run(&f32, forward);
    run(&o, forward);
    assert_rounded(c, "y", f32.top, o.top, o.n_top);
    top = narrowed(f32.top, f32.n_top);
    run(&f32, backward);
    for (int threads = 1; threads <= 3; threads += 2) {
        o.d.n_thread = threads;
        assert_int_equal(ct_attention_split(&o.d), CT_OK);
        memset(o.dx, 0xff, (size_t)o.n_x * sizeof(ct_bf16));
        run(&o, backward);
        assert_rounded(c, "dx", f32.dx, o.dx, o.n_x);
    }
    free(x), free(dy), free(top);
    destroy(&f32), destroy(&o);
}

/* ---- flash multiplies pairs of bf16 numbers. Beside f32's engine on the same numbers it rounds P
 * and the scores' gradient ds by h = 2^-8 of themselves, turned queries and keys, and results. With
 * numbers below 1 turned ones are below sqrt 2, and scores are off by d = scale 2 dim 2 h, so P by
 * r = e^(2 d) - 1 of itself. A row of P adds up to 1, times what dropout keeps by; its columns are
 * the gradient of v for a dy of ones. |ds| is at most P times twice dim. */

typedef struct limits {
    double h, p, ds, keep; /* shares of rounding: of results, P, ds; what dropout keeps by */
} limits;

static limits limits_of(const operands *o)
{
    const ct_attention_desc *d = &o->d;
    double h = 0x1p-8, off = (double)d->scale * 2 * (double)d->dim * 2 * h;
    limits l = { .h = h + 0x1p-16, .p = h + 0x1p-14, .keep = (double)d->keep_scale };

    if (d->rope_dim > 0) l.p += exp(2 * off) - 1;
    l.ds = (l.p + 2 * h) * 2 * (double)d->dim * l.keep * l.keep;
    return l;
}

static void within(const shape *c, const char *what, double got, double want, double limit)
{
    if (!(fabs(got - want) <= limit))
        fail_msg("%s of T %lld, dim %lld, kv %lld: %g, in f32 %g, within %g", what,
                 (long long)c->tq, (long long)c->dim, (long long)c->kv, got, want, limit);
}

/* dq where keys is false, else dk and dv; column: as dv lies, P's. */
static void assert_gradients(const shape *c, const operands *f32, const operands *o,
                             const operands *columns, bool keys)
{
    const ct_attention_desc *d = &o->d;
    limits l = limits_of(o);
    int64_t rows = d->n * (keys ? d->tk : d->tq), width = (keys ? d->kv_heads : d->heads) * d->dim;
    double scale = sqrt(2) * (double)d->scale;

    for (int64_t i = 0; i < rows * width; i++) {
        int64_t at = i / width * (keys ? d->k_row : d->q_row) + i % width;
        double sum = keys ? (double)columns->a.dv[at] : 1;
        const float *first = keys ? f32->a.dk : f32->a.dq;
        const float *got = keys ? o->a.dk : o->a.dq;

        within(c, keys ? "dk" : "dq", (double)ct_num_get(got, true, at), (double)first[at],
               l.h * fabs((double)first[at]) * (1 + l.h) + scale * l.ds * sum * (1 + l.h));
        if (keys)
            within(c, "dv", (double)ct_num_get(o->a.dv, true, at), (double)f32->a.dv[at],
                   l.h * fabs((double)f32->a.dv[at]) * (1 + l.h) + l.p * sum * (1 + l.h));
    }
}

static void check_pairs(const shape *c)
{
    operands f32 = make(c, 1), o = make(c, 1), columns = make(c, 1);
    float *x = narrowed(f32.x, f32.n_x), *dy = narrowed(f32.dtop, f32.n_top), *first;
    int64_t k_at = f32.a.k - f32.a.q, v_at = f32.a.v - f32.a.q;
    limits l = limits_of(&f32);

    memcpy(columns.x, f32.x, (size_t)f32.n_x * sizeof(float));
    for (int64_t i = 0; i < columns.n_top; i++) columns.dtop[i] = 1;
    o.d.bf16 = true;
    o.a.q = x, o.a.k = ct_num_at(x, true, k_at), o.a.v = ct_num_at(x, true, v_at);
    o.a.dy = dy;
    o.a.dk = ct_num_to(o.dx, true, k_at), o.a.dv = ct_num_to(o.dx, true, v_at);
    run(&f32, &ct_attention_flash_forward);
    run(&columns, &ct_attention_flash_forward);
    run(&columns, &ct_attention_flash_backward);
    run(&o, &ct_attention_flash_forward);
    for (int64_t i = 0; i < o.n_top; i++)
        within(c, "y", (double)ct_num_get(o.top, true, i), (double)f32.top[i],
               l.h * fabs((double)f32.top[i]) * (1 + l.h) + l.p * l.keep * (1 + l.h));
    ct_bf16_widen(o.n_top, o.top, f32.top); /* backward reads the top */
    run(&f32, &ct_attention_flash_backward);
    run(&o, &ct_attention_flash_backward);
    assert_gradients(c, &f32, &o, &columns, false);
    assert_gradients(c, &f32, &o, &columns, true);
    first = numbers(o.n_x);
    memcpy(first, o.dx, (size_t)o.n_x * sizeof(ct_bf16));
    for (int threads = 2; threads <= 3; threads++) {
        o.d.n_thread = threads;
        assert_int_equal(ct_attention_split(&o.d), CT_OK);
        memset(o.dx, 0xff, (size_t)o.n_x * sizeof(ct_bf16));
        run(&o, &ct_attention_flash_backward);
        assert_memory_equal(o.dx, first, (size_t)o.n_x * sizeof(ct_bf16));
    }
    free(x), free(dy), free(first);
    destroy(&f32), destroy(&o), destroy(&columns);
}

static void bf16_numbers(void **state)
{
    static const int64_t t[] = { 1, 2, 63, 64, 65, 257 }, dim[] = { 1, 8, 64, 80, 128, 300 };

    (void)state;
    for (int i = 0; i < 3 * 6 * 6 * 6; i++) {
        static const char *const level[] = { NULL, "avx2", "portable" };

        int64_t T = t[i % 6], D = dim[i / 6 % 6];
        int way = i / 36 % 6;
        bool causal = (way == 1) || (way == 2) || (way == 4);
        shape c = { .n = (T < 100) ? 2 : 1,
                    .heads = 3,
                    .kv = (way % 2 == 0) ? 1 : 3,
                    .tq = T,
                    .tk = T,
                    .dim = D,
                    .causal = causal,
                    .window = (way == 2) ? 17 : 0,
                    .rope = (way == 4) ? D / 2 * 2 : 0,
                    .segments = (way == 3),
                    .packed = (way != 5),
                    .ratio = (way == 4) ? 0.2f : 0 };

        if ((i >= 216) && (T > 65)) continue;
        if (level[i / 216] != NULL) assert_int_equal(setenv("CORTADO_SIMD", level[i / 216], 1), 0);
        if (D <= 128)
            check_pairs(&c);
        else
            check_bf16(&c, false);
        if ((T <= 65) && (D <= 64)) check_bf16(&c, true);
    }
    assert_int_equal(unsetenv("CORTADO_SIMD"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_engine),   cmocka_unit_test(mixed),
        cmocka_unit_test(every_set),      cmocka_unit_test(every_size),
        cmocka_unit_test(same_bits),      cmocka_unit_test(large_scores),
        cmocka_unit_test(minus_infinity), cmocka_unit_test(minus_infinity_in_reference),
        cmocka_unit_test(nothing_seen),   cmocka_unit_test(threads_are_busy),
        cmocka_unit_test(pairs),          cmocka_unit_test(bf16_numbers),
    };

    return cmocka_run_group_tests(tests, NULL, drop);
}
