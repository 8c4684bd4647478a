/* A fully connected layer and its loss as one group, over blocks of rows: against formulas in
 * double, the same layers one by one, other numbers of threads and of ranks. */
#include "tests/test.h"
#include "tests/layer_harness.h"
#include "tests/log_capture.h"
#include "tests/net_layers.h"
#include "tests/transfer_ranks.h"

#include "framework/net/net_impl.h"
#include "layers/types/head_loss.h"

#include <math.h>
#include <omp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { K = 7, IGNORED = 5, MOST_RANKS = 4 };

/* ---- nets: rows x0 or those of a table, a learned bias in front, the head, the loss */

typedef struct spec {
    const char *name;
    int64_t rows, classes;
    const char *fc, *loss, *weight; /* more of inner_product_param, the loss, a weight's param   */
    double divisor;                 /* 0: the labels that count; -1: all; 1: one; as a number    */
    double loss_weight;
    bool ignores, transpose, no_bias, tied, bf16;
} spec;

#define IGNORE "ignore_label: 5"
static const spec all[] = {
    { "plain", 521, 16411, "", "", "", -1, 1, false, false, false, false, false },
    { "ignored", 777, 16411, "", "loss_param { " IGNORE " }", "", 0, 1, true, false, false, false,
      false },
    { "samples, weight", 521, 16411, "",
      "loss_weight: 0.3 loss_param { normalization: BATCH_SIZE " IGNORE " }", "", -1, 0.3, true,
      false, false, false, false },
    { "all, transposed", 600, 16389, "transpose: true",
      "loss_param { normalization: FULL " IGNORE " }", "", -1, 1, true, true, false, false, false },
    { "a sum, no bias", 513, 16411, "bias_term: false", "loss_param { normalization: NONE }", "", 1,
      1, false, false, true, false, false },
    { "tied", 530, 16411, "", "loss_param { " IGNORE " }", "param { name: 'table' }", 0, 1, true,
      false, false, true, false },
    { "many rows", 16645, 521, "", "loss_param { " IGNORE " }", "", 0, 1, true, false, false, false,
      false },
    { "bf16", 521, 16411, "", "", "", -1, 1, false, false, false, false, true },
};
#define N_SPEC ((int)(sizeof(all) / sizeof(all[0])))

static void make(const spec *s, int64_t rows, ct_net_options o, const char *behind, test_net *t)
{
    char text[4096];

    snprintf(
        text, sizeof(text),
        "layer { name: 'x0' type: 'Input' top: 'x0' input_param { shape { dim: %lld %s } } }\n"
        "layer { name: 'y' type: 'Input' top: 'label' input_param { shape { dim: %lld } } }\n%s"
        "layer { name: 'pre' type: 'Bias' bottom: 'e' top: 'x' bias_param { filler { type: "
        "'gaussian' std: 1 } } }\n"
        "layer { name: 'fc' type: 'InnerProduct' bottom: 'x' top: 'fc' %s inner_product_param { "
        "num_output: %lld weight_filler { type: 'gaussian' std: 0.5 } bias_filler { type: "
        "'gaussian' std: 0.5 } %s } }\n"
        "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'fc' bottom: 'label' top: 'loss' %s "
        "}\n%s",
        (long long)rows, s->tied ? "" : "dim: 7", (long long)rows,
        s->tied ? "layer { name: 'e' type: 'Embed' bottom: 'x0' top: 'e' param { name: 'table' } "
                  "embed_param { input_dim: 16411 num_output: 7 bias_term: false weight_filler { "
                  "type: 'gaussian' std: 0.5 } } }\n"
                : "layer { name: 'e' type: 'Bias' bottom: 'x0' top: 'e' bias_param { filler { "
                  "value: 0 } } }\n",
        s->weight, (long long)s->classes, s->fc, s->loss, behind);
    o.table = ct_layer_table;
    if (s->bf16) o.env.precision = CT__SOLVER_PARAMETER__PRECISION__BF16;
    assert_int_equal(test_net_create(text, &o, t), CT_OK);
    t->net->pass->exec.seed = 3;
}

static float *data_of(const ct_net *net, const char *blob)
{
    return ct_blob_data(net->pass->blob[ct_net_find_blob(net, blob)]);
}

static double number(uint64_t i, uint64_t seed)
{
    uint64_t z = (i + 1) * UINT64_C(0x9e3779b97f4a7c15) + seed * UINT64_C(0xbf58476d1ce4e5b9);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

/* Rows [from, …) of a batch. A third of the labels is ignored, or all from row `none` on. */
static void fill(const test_net *t, const spec *s, int64_t from, int64_t rows, int64_t none,
                 uint64_t seed)
{
    float *x = data_of(t->net, "x0"), *label = data_of(t->net, "label");
    int64_t width = s->tied ? 1 : K;

    for (int64_t i = 0; i < rows * width; i++) {
        double u = number((uint64_t)(from * width + i), seed);

        x[i] = s->tied ? (float)floor(u * (double)s->classes) : (float)(4 * u - 2);
    }
    for (int64_t i = 0; i < rows; i++) {
        double u = number((uint64_t)(from + i), seed + 100);

        label[i] = (float)floor(u * (double)s->classes);
        if (s->ignores &&
            ((number((uint64_t)(from + i), seed + 200) < 1.0 / 3) || (from + i >= none)))
            label[i] = IGNORED;
    }
}

static const ct_param *param(const ct_net *net, const char *key)
{
    int i = ct_net_find_param(net, key);

    assert_true(i >= 0);
    return &net->param[i];
}

static const char *weight_key(const spec *s)
{
    return s->tied ? "table" : "fc[0]";
}

static bool is_group(const test_net *t)
{
    return ct_net_runner(t->net, ct_net_find_layer(t->net, "loss")) ==
           ct_net_find_layer(t->net, "fc");
}

/* ---- in double, with bounds of what f32 may make of it
 *
 * u = 2^-24. A score z, a sum of K products and the bias, is off by (K + 2) u Z with Z = sum |x||w|
 * + |b|; with rounded operands by e Z more, e = 2^-7 + 2^-16. So p is off by a factor up to
 * exp(2 dz), and by those of its exponential, of the sum of n of them in 16 parts, of its inverse
 * and the product: (n / 16 + 32) u. G = scale (p - y) is off by scale p ep + 3 u |G|. A sum of n
 * products of G is off by the errors of G, and by (n + 1) u (or + e) of sum |G||.|. */

typedef struct pair {
    double value, bound;
} pair;

typedef struct reference {
    pair *w, *b, *pre; /* gradients: classes x K, classes, K */
    pair loss;
} reference;

static reference reference_make(const spec *s)
{
    return (reference){ calloc((size_t)(s->classes * K), sizeof(pair)),
                        calloc((size_t)s->classes, sizeof(pair)),
                        calloc(K, sizeof(pair)),
                        { 0, 0 } };
}

static void reference_free(reference *r)
{
    free(r->w);
    free(r->b);
    free(r->pre);
}

/* One row: its input, all weights as classes x K, the biases. */
typedef struct row {
    const double *x, *w, *b;
    int64_t label, n_row;
    double divisor;
} row;

static void softmax(const spec *s, const row *r, double *p, double *dz_p)
{
    double largest = -INFINITY, sum = 0, most = 0;

    for (int64_t v = 0; v < s->classes; v++) {
        double z = r->b[v], size = fabs(r->b[v]);

        for (int k = 0; k < K; k++) {
            z += r->x[k] * r->w[v * K + k];
            size += fabs(r->x[k] * r->w[v * K + k]);
        }
        p[v] = z;
        largest = (z > largest) ? z : largest;
        most = (size > most) ? size : most;
    }
    for (int64_t v = 0; v < s->classes; v++) sum += p[v] = exp(p[v] - largest);
    for (int64_t v = 0; v < s->classes; v++) p[v] /= sum;
    *dz_p = ((K + 2) * 0x1p-24 + (s->bf16 ? 0x1p-7 + 0x1p-16 : 0)) * most;
}

/* Adds a row to the gradients; dx: its bottom's. */
static void add_row(const spec *s, const row *r, double *p, reference *f, pair *dx)
{
    const double u = 0x1p-24, e = s->bf16 ? 0x1p-7 + 0x1p-16 : 0;
    double dz, ep, scale = s->loss_weight / r->divisor, lost;

    softmax(s, r, p, &dz);
    ep = exp(2 * dz) * (1 + ((double)s->classes / 16 + 32) * u) - 1;
    lost = -log(p[r->label]);
    f->loss.value += scale * lost;
    f->loss.bound += scale * (2 * ep + 3 * u * lost);
    for (int64_t v = 0; v < s->classes; v++) {
        double g = scale * (p[v] - (v == r->label)), off = scale * p[v] * ep + 3 * u * fabs(g);

        double of_w = off * (1 + e) + (e + (double)(r->n_row + 2) * u) * fabs(g);
        double of_x = off * (1 + e) + (e + (double)(s->classes + 1) * u) * fabs(g);
        const double *w = r->w + v * K;
        pair *to = f->w + v * K;

        f->b[v].value += g;
        f->b[v].bound += off + (double)(r->n_row + 1) * u * fabs(g);
        for (int k = 0; k < K; k++) {
            to[k].value += g * r->x[k];
            to[k].bound += fabs(r->x[k]) * of_w;
            dx[k].value += g * w[k];
            dx[k].bound += fabs(w[k]) * of_x;
        }
    }
}

static double *doubles(int64_t n, const float *from)
{
    double *to = malloc((size_t)n * sizeof(double));

    for (int64_t i = 0; i < n; i++) to[i] = (double)from[i];
    return to;
}

/* As classes x K. */
static double *weights(const test_net *t, const spec *s)
{
    const float *w = ct_blob_data(&param(t->net, weight_key(s))->blob);
    double *to = doubles(s->classes * K, w);

    for (int64_t i = 0; s->transpose && (i < s->classes * K); i++)
        to[i] = (double)w[i % K * s->classes + i / K];
    return to;
}

static int64_t count_labels(const test_net *t, const spec *s, int64_t rows)
{
    const float *label = data_of(t->net, "label");
    int64_t n = 0;

    for (int64_t i = 0; i < rows; i++) n += !(s->ignores && (label[i] == (float)IGNORED));
    return n;
}

/* Adds the rows of t, divided as the whole batch is. */
static void add_batch(const test_net *t, const spec *s, int64_t rows, double divisor, reference *f)
{
    const float *label = data_of(t->net, "label"), *x0 = data_of(t->net, "x0");
    double *w = weights(t, s), *p = malloc((size_t)s->classes * sizeof(*p));
    double *pre = doubles(K, ct_blob_data(&param(t->net, "pre[0]")->blob));
    double *b = s->no_bias ? calloc((size_t)s->classes, sizeof(*b))
                           : doubles(s->classes, ct_blob_data(&param(t->net, "fc[1]")->blob));

    for (int64_t i = 0; i < rows; i++) {
        int64_t id = s->tied ? (int64_t)x0[i] : 0;
        double x[K];
        pair dx[K] = { { 0, 0 } };

        if (s->ignores && (label[i] == (float)IGNORED)) continue;
        for (int k = 0; k < K; k++) /* as f32 has it: one rounding */
            x[k] = (double)(float)((s->tied ? w[id * K + k] : (double)x0[i * K + k]) + pre[k]);
        add_row(s, &(row){ x, w, b, (int64_t)label[i], rows, divisor }, p, f, dx);
        for (int k = 0; k < K; k++) {
            double more = 0x1p-24 * (double)(rows + 4) * fabs(dx[k].value);

            f->pre[k].value += dx[k].value;
            f->pre[k].bound += dx[k].bound + more;
            if (!s->tied) continue;
            f->w[id * K + k].value += dx[k].value;
            f->w[id * K + k].bound += dx[k].bound + more;
        }
    }
    free(w);
    free(p);
    free(pre);
    free(b);
}

static void check(const pair *want, const float *is, int64_t n, const char *name, const char *what)
{
    for (int64_t i = 0; i < n; i++) {
        double off = fabs(want[i].value - (double)is[i]);

        if (!(off <= want[i].bound + 0x1p-126))
            fail_msg("%s, %s[%lld]: %.9g, in double %.9g, off by %.3g of %.3g", name, what,
                     (long long)i, (double)is[i], want[i].value, off, want[i].bound);
    }
}

static void check_net(const test_net *t, const spec *s, const reference *f)
{
    const float *w = ct_blob_diff(&param(t->net, weight_key(s))->blob);
    float *turned = malloc((size_t)(s->classes * K) * sizeof(float));

    for (int64_t i = 0; i < s->classes * K; i++)
        turned[i] = s->transpose ? w[i % K * s->classes + i / K] : w[i];
    check(f->w, turned, s->classes * K, s->name, "weight");
    check(f->pre, ct_blob_diff(&param(t->net, "pre[0]")->blob), K, s->name, "bottom");
    if (!s->no_bias)
        check(f->b, ct_blob_diff(&param(t->net, "fc[1]")->blob), s->classes, s->name, "bias");
    free(turned);
}

static double divisor_of(const test_net *t, const spec *s, int64_t rows)
{
    if (s->divisor > 0) return s->divisor;
    return (double)((s->divisor < 0) ? rows : count_labels(t, s, rows));
}

/* Two micro-batches, of which the second adds. */
static void run_both(test_net *t, const spec *s, double loss[2])
{
    for (int i = 0; i < 2; i++) {
        fill(t, s, 0, s->rows, s->rows, (uint64_t)i);
        loss[i] = test_net_pass(t, i, i > 0);
    }
}

static void it_is_what_double_says(void **state)
{
    (void)state;
    for (int i = 0; i < N_SPEC; i++) {
        const spec *s = &all[i];
        test_net t[2];
        double loss[2][2];
        reference f = reference_make(s);

        make(s, s->rows, (ct_net_options){ .phase = CT_TRAIN }, "", &t[0]);
        make(s, s->rows, (ct_net_options){ .phase = CT_TRAIN, .no_fuse = true }, "", &t[1]);
        assert_true(is_group(&t[0]));
        assert_false(is_group(&t[1]));
        for (int k = 0; k < 2; k++) run_both(&t[k], s, loss[k]);
        for (int k = 0; k < 2; k++) {
            f.loss = (pair){ 0, 0 };
            fill(&t[0], s, 0, s->rows, s->rows, (uint64_t)k);
            add_batch(&t[0], s, s->rows, divisor_of(&t[0], s, s->rows), &f);
            for (int j = 0; j < 2; j++) {
                if (!(fabs(loss[j][k] - f.loss.value) <=
                      f.loss.bound + 0x1p-23 * fabs(f.loss.value)))
                    fail_msg("%s: loss %.9g, in double %.9g", s->name, loss[j][k], f.loss.value);
            }
        }
        for (int k = 0; k < 2; k++) {
            check_net(&t[k], s, &f);
            test_net_destroy(&t[k]);
        }
        reference_free(&f);
    }
}

static void same_gradients(const ct_net *a, const ct_net *b)
{
    for (int k = 0; k < a->n_param; k++) {
        const ct_param *p = &a->param[k], *q = &b->param[k];

        assert_string_equal(p->key, q->key);
        test_same(ct_blob_diff(&p->blob), ct_blob_diff(&q->blob), p->count, p->key);
    }
}

static void threads_do_not_show(void **state)
{
    int threads = omp_get_max_threads();

    (void)state;
    for (int i = 0; i < N_SPEC; i++) {
        test_net t[3];
        double loss[3][2];

        for (int k = 0; k < 3; k++) {
            omp_set_num_threads(k + 1);
            make(&all[i], all[i].rows, (ct_net_options){ .phase = CT_TRAIN }, "", &t[k]);
            run_both(&t[k], &all[i], loss[k]);
        }
        for (int k = 1; k < 3; k++) {
            assert_true((loss[k][0] == loss[0][0]) && (loss[k][1] == loss[0][1]));
            same_gradients(t[k].net, t[0].net);
        }
        for (int k = 0; k < 3; k++) test_net_destroy(&t[k]);
    }
    omp_set_num_threads(threads);
}

/* No row counts: the loss is 0, and gradients are written all the same. */
static void a_batch_may_count_nothing(void **state)
{
    const spec *s = &all[1];
    test_net t;

    (void)state;
    make(s, s->rows, (ct_net_options){ .phase = CT_TRAIN }, "", &t);
    fill(&t, s, 0, s->rows, s->rows, 1);
    assert_true(test_net_pass(&t, 0, false) > 0);
    fill(&t, s, 0, s->rows, 0, 1);
    assert_true(test_net_pass(&t, 1, false) == 0);
    for (int k = 0; k < t.net->n_param; k++) {
        const ct_param *p = &t.net->param[k];

        for (int64_t i = 0; i < p->count; i++) assert_true(ct_blob_diff(&p->blob)[i] == 0);
    }
    test_net_destroy(&t);
}

/* A label that is no class is told of as by the loss alone, with its sample. */
static void a_wrong_label_is_named(void **state)
{
    const spec *s = &all[1];

    (void)state;
    for (int k = 0; k < 2; k++) {
        test_net t;

        make(s, s->rows, (ct_net_options){ .phase = CT_TRAIN, .no_fuse = k == 1 }, "", &t);
        assert_true(is_group(&t) == (k == 0));
        fill(&t, s, 0, s->rows, s->rows, 1);
        data_of(t.net, "label")[600] = (float)s->classes;
        t.net->pass->exec.micro_step = 2;
        test_log_start();
        assert_int_equal(ct_pass_forward(t.net->pass, NULL), CT_ERR_DATA);
        assert_non_null(strstr(test_log_stop(), "layer \"loss\" (SoftmaxWithLoss): label 16411 of "
                                                "sample 600 of batch 2 is not a whole number"));
        test_net_destroy(&t);
    }
}

/* What is dead between two steps is poisoned; scores are in memory a block at a time. */
static void scores_are_not_kept(void **state)
{
    const spec *s = &all[1];
    size_t scores = (size_t)(s->rows * s->classes) * sizeof(float);
    size_t block = (size_t)(CT_HEAD_ROWS * s->classes) * sizeof(float);
    size_t beside = (size_t)2 << 20; /* two threads' panels of a product, and rows of 7 */
    int threads = omp_get_max_threads();
    test_net t[2];
    double loss[2];

    (void)state;
    omp_set_num_threads(2);
    setenv("CORTADO_POISON", "1", 1);
    make(s, s->rows, (ct_net_options){ .phase = CT_TRAIN }, "", &t[0]);
    unsetenv("CORTADO_POISON");
    make(s, s->rows, (ct_net_options){ .phase = CT_TRAIN, .no_fuse = true }, "", &t[1]);
    for (int k = 0; k < 2; k++) {
        fill(&t[k], s, 0, s->rows, s->rows, 1);
        loss[k] = test_net_pass(&t[k], 0, false);
    }
    assert_true(isfinite(loss[0]) && (fabs(loss[0] - loss[1]) <= 1e-5 * loss[1]));
    /* alone: probabilities and the scores' gradient at once */
    assert_true(t[1].net->memory.planned >= 2 * scores);
    assert_true(t[0].net->memory.planned < block + beside);
    omp_set_num_threads(threads);
    for (int k = 0; k < 2; k++) test_net_destroy(&t[k]);
}

/* Without a backward nothing is made for it, and the loss has the same bits. */
static void forward_alone_makes_no_gradients(void **state)
{
    const spec *s = &all[1];
    test_net t[2];
    double loss;

    (void)state;
    make(s, s->rows, (ct_net_options){ .phase = CT_TRAIN }, "", &t[0]);
    make(s, s->rows, (ct_net_options){ .phase = CT_TEST, .forward_only = true }, "", &t[1]);
    for (int k = 0; k < 2; k++) fill(&t[k], s, 0, s->rows, s->rows, 1);
    assert_true(is_group(&t[1]));
    assert_true(
        t[1].net->pass->instance[ct_net_find_layer(t[1].net, "fc")]->buffer[CT_HEAD_DIFF].bytes ==
        0);
    assert_int_equal(ct_pass_forward(t[1].net->pass, &loss), CT_OK);
    assert_true(loss == test_net_pass(&t[0], 0, false));
    for (int k = 0; k < 2; k++) test_net_destroy(&t[k]);
}

/* … and where gradients would have another order, or another factor than the loss weight. */
static void scores_are_kept_where_they_are_read(void **state)
{
    static const char *const behind[] = {
        "layer { name: 'acc' type: 'Accuracy' bottom: 'fc' bottom: 'label' top: 'acc' }",
        "layer { name: 'more' type: 'SoftmaxWithLoss' bottom: 'fc' bottom: 'label' top: 'more' }",
        "layer { name: 'z' type: 'Power' bottom: 'loss' top: 'z' loss_weight: 1 }",
        ("layer { name: 'z' type: 'InnerProduct' bottom: 'x' top: 'z' param { name: 'w' } "
         "inner_product_param { num_output: 16411 bias_term: false } }"),
    };
    spec s = all[0];
    test_net t;

    (void)state;
    s.weight = "param { name: 'w' }";
    for (size_t i = 0; i < sizeof(behind) / sizeof(behind[0]); i++) {
        make(&s, s.rows, (ct_net_options){ .phase = CT_TRAIN }, behind[i], &t);
        if (is_group(&t)) fail_msg("it is a group before %s", behind[i]);
        test_net_destroy(&t);
    }
    s.loss = "top: 'prob'";
    make(&s, s.rows, (ct_net_options){ .phase = CT_TRAIN }, "", &t);
    assert_false(is_group(&t));
    test_net_destroy(&t);
    make(&all[0], 511, (ct_net_options){ .phase = CT_TRAIN }, "", &t); /* less than 32 MiB */
    assert_false(is_group(&t));
    test_net_destroy(&t);
}

/* ---- ranks, as threads of which one runs at a time but where they meet */

typedef struct meeting {
    pthread_barrier_t all;
    int n;
    double v[MOST_RANKS];
} meeting;

typedef struct rank_thread {
    meeting *m;
    test_net t;
    int rank;
    double loss;
} rank_thread;

static ct_status meet(void *ctx, double *v, int n)
{
    rank_thread *r = ctx;
    double sum = 0;

    if (n != 1) return CT_ERR_ARG;
    r->m->v[r->rank] = v[0];
    pthread_barrier_wait(&r->m->all);
    for (int k = 0; k < r->m->n; k++) sum += r->m->v[k];
    pthread_barrier_wait(&r->m->all);
    v[0] = sum;
    return CT_OK;
}

static void *run_rank(void *ctx)
{
    rank_thread *r = ctx;

    r->loss = test_net_pass(&r->t, 0, false);
    return NULL;
}

/* The third has too few rows for a group; the last has no label that counts. */
static const int64_t share[MOST_RANKS] = { 700, 512, 3, 513 };

static void run_ranks(const spec *s, int n, int64_t rows, rank_thread *rank)
{
    meeting m = { .n = n };
    pthread_t thread[MOST_RANKS];
    int64_t from = 0;

    assert_int_equal(pthread_barrier_init(&m.all, NULL, (unsigned)n), 0);
    for (int k = 0; k < n; k++) {
        ct_net_options o = { .phase = CT_TRAIN, .env = { .rank = k, .n_rank = n } };
        int64_t mine = (n == 1) ? rows : share[k];

        rank[k] = (rank_thread){ .m = &m, .rank = k };
        make(s, mine, o, "", &rank[k].t);
        assert_int_equal(is_group(&rank[k].t), mine > 3);
        rank[k].t.net->batch_local = mine;
        rank[k].t.net->batch_global = rows;
        rank[k].t.net->batch_first = from;
        rank[k].t.net->pass->exec.sum_ranks = (n > 1) ? meet : NULL;
        rank[k].t.net->pass->exec.hook_ctx = &rank[k];
        fill(&rank[k].t, s, from, mine, 1215, 1);
        from += mine;
    }
    for (int k = 0; k < n; k++)
        assert_int_equal(pthread_create(&thread[k], NULL, run_rank, &rank[k]), 0);
    for (int k = 0; k < n; k++) pthread_join(thread[k], NULL);
    pthread_barrier_destroy(&m.all);
}

/* The gradients of the ranks, added up in the first one's. */
static void add_ranks(rank_thread *rank, int n)
{
    for (int k = 1; k < n; k++) {
        for (int i = 0; i < rank[0].t.net->n_param; i++) {
            float *to = ct_blob_diff(&rank[0].t.net->param[i].blob);
            const float *from = ct_blob_diff(&rank[k].t.net->param[i].blob);

            for (int64_t e = 0; e < rank[0].t.net->param[i].count; e++) to[e] += from[e];
        }
        rank[0].loss += rank[k].loss;
    }
}

/* Of losses whose divisor the ranks count, and of one that they know. The bound is that of a sum of
 * all rows, in whatever order. */
static void ranks_add_up(void **state)
{
    static const int of[] = { 1, 2 };

    (void)state;
    for (int i = 0; i < 2; i++) {
        const spec *s = &all[of[i]];

        for (int n = 1; n <= MOST_RANKS; n++) {
            rank_thread one[1], rank[MOST_RANKS];
            reference f = reference_make(s);
            int64_t rows = 0;

            for (int k = 0; k < n; k++) rows += share[k];
            run_ranks(s, n, rows, rank);
            run_ranks(s, 1, rows, one);
            add_batch(&one[0].t, s, rows, divisor_of(&one[0].t, s, rows), &f);
            add_ranks(rank, n);
            if (!(fabs(rank[0].loss - f.loss.value) <=
                  f.loss.bound + n * 0x1p-23 * fabs(f.loss.value)))
                fail_msg("%s, %d ranks: loss %.9g, in double %.9g", s->name, n, rank[0].loss,
                         f.loss.value);
            check_net(&rank[0].t, s, &f);
            for (int k = 0; k < n; k++) test_net_destroy(&rank[k].t);
            test_net_destroy(&one[0].t);
            reference_free(&f);
        }
    }
}

/* ---- parts of the classes, each on a rank, which is a thread */

typedef struct part_thread {
    test_net t;
    const spec *s;
    double loss[2];
} part_thread;

static Ct__LayerPart *part_of(const spec *s, int i, int n)
{
    Ct__LayerPart *p = malloc(sizeof(*p));

    ct__layer_part__init(p);
    p->split = CT__PARALLEL_LAYER_PARAMETER__SPLIT__OUTPUT;
    p->index = i;
    p->count = n;
    p->n_piece = 1;
    p->piece = malloc(sizeof(*p->piece));
    p->piece[0] = s->classes;
    return p;
}

static void make_part(const spec *s, int i, int n, bool no_fuse, test_net *t)
{
    ct_net_options o = { .phase = CT_TRAIN, .table = ct_layer_table, .no_fuse = no_fuse };

    make(s, s->rows, o, "", t);
    ct_net_destroy(t->net);
    for (size_t k = 0; k < t->param->n_layer; k++) {
        Ct__LayerParameter *l = t->param->layer[k];

        if ((strcmp(l->name, "fc") == 0) || (strcmp(l->name, "loss") == 0))
            l->part = part_of(s, i, n);
    }
    o.map = t->map;
    o.env.seed = 1;
    if (s->bf16) o.env.precision = CT__SOLVER_PARAMETER__PRECISION__BF16;
    assert_int_equal(ct_net_create(t->param, &o, &t->net), CT_OK);
    assert_int_equal(is_group(t), !no_fuse);
    t->net->pass->exec.seed = 3;
}

static void *run_part(void *ctx)
{
    part_thread *r = ctx;

    run_both(&r->t, r->s, r->loss);
    return NULL;
}

/* The parts' gradients, side by side or added up, as those of the whole net. */
static void put_together(test_net *whole, const part_thread *part, int n)
{
    for (int k = 0; k < whole->net->n_param; k++) {
        const ct_param *to = &whole->net->param[k];
        float *sum = ct_blob_diff(&to->blob);

        memset(sum, 0, (size_t)to->count * sizeof(*sum));
        for (int i = 0; i < n; i++) {
            const ct_param *from = param(part[i].t.net, to->key);
            const float *v = ct_blob_diff(&from->blob);

            if (from->cut->n_range > 0)
                ct_cut_put(from->cut, v, sum);
            else
                for (int64_t e = 0; e < to->count; e++) sum[e] += v[e];
        }
    }
}

static const float *loss_blob(const test_net *t)
{
    return ct_blob_data(t->net->pass->blob[ct_net_find_blob(t->net, "loss")]);
}

static void check_parts(const spec *s, int n, const part_thread *part)
{
    test_net whole;
    reference f = reference_make(s);

    make(s, s->rows, (ct_net_options){ .phase = CT_TRAIN }, "", &whole);
    for (int k = 0; k < 2; k++) {
        f.loss = (pair){ 0, 0 };
        fill(&whole, s, 0, s->rows, s->rows, (uint64_t)k);
        add_batch(&whole, s, s->rows, divisor_of(&whole, s, s->rows), &f);
        for (int i = 1; i < n; i++) assert_true(part[i].loss[k] == 0); /* it counts once */
        if (!(fabs(part[0].loss[k] - f.loss.value) <= f.loss.bound + 0x1p-23 * fabs(f.loss.value)))
            fail_msg("%s, %d parts: loss %.9g, in double %.9g", s->name, n, part[0].loss[k],
                     f.loss.value);
    }
    /* every part has it in its blob, the same bits */
    for (int i = 0; i < n; i++)
        assert_true((double)(float)s->loss_weight * (double)*loss_blob(&part[i].t) ==
                    part[0].loss[1]);
    put_together(&whole, part, n);
    check_net(&whole, s, &f);
    test_net_destroy(&whole);
    reference_free(&f);
}

static void run_parts(const spec *s, int n, bool no_fuse)
{
    static transfer_ranks group;
    transfer_rank of[TRANSFER_RANKS];
    part_thread part[TRANSFER_RANKS];

    transfer_ranks_open(&group, n, of);
    for (int i = 0; i < n; i++) {
        part[i] = (part_thread){ .s = s };
        make_part(s, i, n, no_fuse, &part[i].t);
        part[i].t.net->pass->exec.transfers = &transfer_rank_ops;
        part[i].t.net->pass->exec.transfers_ctx = &of[i];
    }
    transfer_ranks_run(&group, run_part, part, sizeof(part[0]));
    check_parts(s, n, part);
    for (int i = 0; i < n; i++) test_net_destroy(&part[i].t);
    transfer_ranks_close(&group);
}

/* Each has enough rows for a group; 16411 classes are uneven over 2 ranks, and over 3. */
static void parts_of_classes(void **state)
{
    (void)state;
    for (int i = 0; i < N_SPEC; i++) {
        spec s = all[i];

        if (s.tied) continue;
        s.rows *= 2;
        run_parts(&s, 2, false);
        if (!s.ignores || s.transpose) continue;
        run_parts(&s, 2, true);
        s.rows += s.rows / 2;
        run_parts(&s, 3, false);
    }
}

/* A part's scores are not kept either. */
static void scores_of_parts_are_not_kept(void **state)
{
    spec s = all[1];
    size_t block = (size_t)(CT_HEAD_ROWS * (s.classes / 2 + 1)) * sizeof(float);
    size_t beside = (size_t)2 << 20;
    int threads = omp_get_max_threads();
    test_net t;

    (void)state;
    s.rows *= 2;
    omp_set_num_threads(2);
    make_part(&s, 1, 2, false, &t);
    assert_true(t.net->memory.planned < block + beside);
    omp_set_num_threads(threads);
    test_net_destroy(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_what_double_says),
        cmocka_unit_test(threads_do_not_show),
        cmocka_unit_test(a_batch_may_count_nothing),
        cmocka_unit_test(a_wrong_label_is_named),
        cmocka_unit_test(scores_are_not_kept),
        cmocka_unit_test(forward_alone_makes_no_gradients),
        cmocka_unit_test(scores_are_kept_where_they_are_read),
        cmocka_unit_test(ranks_add_up),
        cmocka_unit_test(parts_of_classes),
        cmocka_unit_test(scores_of_parts_are_not_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
