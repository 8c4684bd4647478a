#include "tests/attention_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/bf16.h"
#include "framework/base/rng.h"
#include "tests/layer_harness.h"
#include "tests/test.h"

static float *numbers(int64_t n)
{
    float *v = calloc((size_t)n + 1, sizeof(*v));

    assert_non_null(v);
    return v;
}

/* Four documents in a row, the second of one token; of the last sequence one document. */
static void fill_segments(const test_attention_shape *c, float *segment)
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

test_attention_operands test_attention_make(const test_attention_shape *c, int n_thread)
{
    int64_t q = c->heads * c->dim, k = c->kv * c->dim, row = c->packed ? q + 2 * k : 0;
    test_attention_operands o = { .d = { .device = CT_DEVICE_CPU,
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

void test_attention_destroy(test_attention_operands *o)
{
    free(o->x), free(o->dx), free(o->top), free(o->dtop);
    free(o->segment), free(o->turn), free(o->stats);
}

/* ---- the definition, of one head of one sequence, with sums of sizes that bound the rounding */

typedef struct one {
    const test_attention_operands *o;
    test_attention_exact *e;
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

bool test_attention_visible(const ct_attention_desc *d, const float *segment, int64_t i, int64_t j)
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
        if (!test_attention_visible(d, segment, i, j)) continue;
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

test_attention_exact test_attention_define(const test_attention_operands *o)
{
    test_attention_exact e = { .y = calloc((size_t)o->n_top, sizeof(double)),
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
const test_attention_shape test_attention_shapes[] = {
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

void test_attention_near(const float *a, const double *b, const double *size, int64_t n,
                         double allowed, const char *what)
{
    for (int64_t i = 0; i < n; i++) {
        double off = fabs((double)a[i] - b[i]);

        if (!(off <= allowed * size[i] + 1e-30))
            fail_msg("%s[%lld]: %.9g for %.9g, %.3g times what is allowed", what, (long long)i,
                     (double)a[i], b[i], off / (allowed * size[i] + 1e-30));
    }
}

const char *test_attention_text(const test_attention_shape *c)
{
    static char text[200];

    snprintf(text, sizeof(text),
             "n %d heads %d kv %d tq %d tk %d dim %d causal %d window %d rope %d", (int)c->n,
             (int)c->heads, (int)c->kv, (int)c->tq, (int)c->tk, (int)c->dim, c->causal,
             (int)c->window, (int)c->rope);
    return text;
}

double test_attention_allowed(const test_attention_operands *o, const test_attention_exact *e)
{
    const ct_attention_desc *d = &o->d;
    double sums = (double)(d->tk + d->tq * (d->heads / d->kv_heads) + 2 * d->dim);

    return 0x1p-24 * (2 * ((double)d->dim + 10) * e->largest + sums + 40);
}

void *test_attention_narrowed(float *x, int64_t n)
{
    void *y = numbers(n);

    ct_bf16_narrow(n, x, y);
    ct_bf16_widen(n, y, x);
    return y;
}

void test_attention_rounded(const test_attention_shape *c, const char *what, const float *wide,
                            const void *narrow, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (ct_bf16_from_f32(wide[i]) != ((const ct_bf16 *)narrow)[i])
            fail_msg("%s[%lld] of T %lld, dim %lld: %g, in f32 %g", what, (long long)i,
                     (long long)c->tq, (long long)c->dim, (double)ct_num_get(narrow, true, i),
                     (double)wide[i]);
    }
}
