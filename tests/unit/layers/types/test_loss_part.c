/* SoftmaxWithLoss of parts of the classes: each rank of a group has some, all have the labels. The
 * loss is that of the formulas in double, with the same bits on each rank, and so is the scores'
 * gradient. Ranks are threads. */
#include "tests/test.h"
#include "tests/layer_harness.h"
#include "tests/transfer_ranks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { IGNORED = 2 };

typedef struct loss_case {
    const char *text;
    ct_shape scores, label;
    int axis;
    bool ignores;
    double divisor; /* 0: the labels that count; -1: all; -2: samples; 1: none */
    int64_t unit;   /* so many classes stay together; 0: 1 */
    float loss_weight;
} loss_case;

#define IGNORE "ignore_label: 2"
static const loss_case all[] = {
    { "", TEST_SHAPE(13, 10), TEST_SHAPE(13), 1, false, -1, 0, 1.0f },
    { "softmax_param { axis: -1 } loss_param { " IGNORE " }", TEST_SHAPE(3, 5, 1031),
      TEST_SHAPE(3, 5), 2, true, 0, 0, 0.7f },
    { "loss_param { normalization: BATCH_SIZE " IGNORE " }", TEST_SHAPE(3, 11, 7, 13),
      TEST_SHAPE(3, 7, 13), 1, true, -2, 0, 1.0f },
    { "loss_param { normalization: NONE }", TEST_SHAPE(70, 9), TEST_SHAPE(70), 1, false, 1, 0,
      2.0f },
    { "loss_param { normalization: FULL " IGNORE " }", TEST_SHAPE(7, 12, 3), TEST_SHAPE(7, 3), 1,
      true, -1, 3, 1.0f },
};

typedef struct rank {
    test_layer *t;
    ct_status status;
} rank;

static void *run(void *ctx)
{
    rank *r = ctx;

    r->status = test_layer_forward(r->t);
    if (r->status == CT_OK) r->status = test_layer_backward(r->t);
    return NULL;
}

/* The scores that part i of n has. */
static ct_cut cut_of(const loss_case *c, int i, int n)
{
    int64_t unit = (c->unit > 0) ? c->unit : 1;
    ct_range r = ct_range_of(c->scores.dim[c->axis] / unit, i, n);

    return (ct_cut){ 1, c->axis, { { r.first * unit, r.count * unit } }, c->scores };
}

static test_layer *make(const loss_case *c, int i, int n)
{
    test_layer_spec spec = { .type = "SoftmaxWithLoss", .text = c->text, .n_bottom = 2 };
    ct_cut cut = cut_of(c, i, n);
    Ct__LayerPart part = CT__LAYER_PART__INIT;
    int64_t classes = c->scores.dim[c->axis];
    test_layer *t;

    part.split = CT__PARALLEL_LAYER_PARAMETER__SPLIT__OUTPUT;
    part.index = i;
    part.count = n;
    part.n_piece = 1;
    part.piece = &classes;
    part.axis = c->axis;
    if (c->unit > 0) part.unit = c->unit;
    spec.part = &part;
    spec.bottom[0] = ct_cut_shape(&cut);
    spec.bottom[1] = c->label;
    t = test_layer_make(&spec);
    t->own_part.piece = NULL; /* gone with this function, and setup is over */
    t->own_part.n_piece = 0;
    t->top_diff[0][0] = c->loss_weight;
    return t;
}

/* ---- in double */

typedef struct reference {
    int64_t outer, classes, inner;
    float *x, *label;
    double loss, *dx, *p, divisor;
    double far; /* the largest distance of a score from the largest one */
} reference;

static reference reference_make(const loss_case *c)
{
    reference r = { .outer = ct_shape_count(&c->scores, 0, c->axis),
                    .classes = c->scores.dim[c->axis],
                    .inner = ct_shape_count(&c->scores, c->axis + 1, -1) };
    int64_t n = r.outer * r.inner, counted = 0;

    r.x = malloc((size_t)(n * r.classes) * sizeof(float));
    r.label = malloc((size_t)n * sizeof(float));
    r.dx = malloc((size_t)(n * r.classes) * sizeof(double));
    r.p = malloc((size_t)(n * r.classes) * sizeof(double));
    test_random(r.x, n * r.classes, 11, -6, 6);
    for (int64_t k = 0; k < n; k++) {
        r.label[k] = (float)(k * 7 % r.classes);
        counted += !(c->ignores && (r.label[k] == (float)IGNORED));
    }
    r.divisor = (c->divisor > 0)     ? c->divisor
                : (c->divisor == 0)  ? (double)counted
                : (c->divisor == -1) ? (double)n
                                     : (double)c->scores.dim[0];
    return r;
}

static void reference_run(const loss_case *c, reference *r)
{
    r->loss = r->far = 0;
    for (int64_t k = 0; k < r->outer * r->inner; k++) {
        int64_t at = k / r->inner * r->classes * r->inner + k % r->inner, y = (int64_t)r->label[k];
        bool counts = !(c->ignores && (y == IGNORED));
        double largest = -INFINITY, sum = 0, scale = (double)c->loss_weight / r->divisor;

        for (int64_t v = 0; v < r->classes; v++)
            largest = fmax(largest, (double)r->x[at + v * r->inner]);
        for (int64_t v = 0; v < r->classes; v++)
            sum += exp((double)r->x[at + v * r->inner] - largest);
        for (int64_t v = 0; v < r->classes; v++) {
            int64_t e = at + v * r->inner;

            if (r->x[e] != -INFINITY) r->far = fmax(r->far, largest - (double)r->x[e]);
            r->p[e] = exp((double)r->x[e] - largest) / sum;
            r->dx[e] = counts ? scale * (r->p[e] - (v == y)) : 0;
            if (counts && (v == y)) r->loss -= log(r->p[e]) / r->divisor;
        }
    }
}

static void reference_free(reference *r)
{
    free(r->x);
    free(r->label);
    free(r->dx);
    free(r->p);
}

/* A probability is off by a factor: 16 roundings of its exponential and one of what that is of,
 * those of a sum of so many in 16 parts, and of the numbers that parts exchange. */
static double probability_error(const reference *r)
{
    return ((double)r->classes / 16 + 32 + r->far) * 0x1p-24;
}

static void check_gradient(const loss_case *c, const reference *r, const ct_cut *cut,
                           const test_layer *t)
{
    double ep = probability_error(r), scale = (double)c->loss_weight / r->divisor;
    const float *dx = t->input_diff[0];

    for (int64_t i = 0; i < ct_cut_runs(cut); i++) {
        ct_cut_run run = ct_cut_run_at(cut, i);

        for (int64_t k = 0; k < run.count; k++) {
            double want = r->dx[run.whole + k], is = (double)dx[run.part + k];
            double allowed = scale * r->p[run.whole + k] * ep + 4 * 0x1p-24 * fabs(want) + 0x1p-126;

            if (!(fabs(want - is) <= allowed))
                fail_msg("{ %s } gradient %lld: %.9g, in double %.9g", c->text,
                         (long long)(run.whole + k), is, want);
        }
    }
}

static void check(const loss_case *c, const reference *r, int n, const rank *ranks)
{
    double all_labels = (double)(r->outer * r->inner) / r->divisor;
    double allowed = 2 * probability_error(r) * all_labels + 4 * 0x1p-24 * fabs(r->loss);

    for (int i = 0; i < n; i++) {
        ct_cut cut = cut_of(c, i, n);

        assert_int_equal(ranks[i].status, CT_OK);
        test_same(ranks[i].t->top[0], ranks[0].t->top[0], 1, "the loss of another part");
        if (!(fabs((double)ranks[i].t->top[0][0] - r->loss) <= allowed))
            fail_msg("{ %s } of %d parts: loss %.9g, in double %.9g", c->text, n,
                     (double)ranks[i].t->top[0][0], r->loss);
        check_gradient(c, r, &cut, ranks[i].t);
    }
}

static void run_parts(const loss_case *c, reference *r, int n)
{
    static transfer_ranks group;
    transfer_rank of[TRANSFER_RANKS];
    rank ranks[TRANSFER_RANKS];

    transfer_ranks_open(&group, n, of);
    for (int i = 0; i < n; i++) {
        ct_cut cut = cut_of(c, i, n);

        ranks[i] = (rank){ .t = make(c, i, n) };
        ct_cut_take(&cut, r->x, ranks[i].t->input[0]);
        memcpy(ranks[i].t->input[1], r->label, (size_t)(r->outer * r->inner) * sizeof(float));
        ranks[i].t->ex.transfers = &transfer_rank_ops;
        ranks[i].t->ex.transfers_ctx = &of[i];
    }
    transfer_ranks_run(&group, run, ranks, sizeof(ranks[0]));
    check(c, r, n, ranks);
    for (int i = 0; i < n; i++) {
        assert_int_equal(of[i].n_begun, (n > 1) ? 1 : 0);
        test_layer_destroy(ranks[i].t);
    }
    transfer_ranks_close(&group);
}

static void it_is_what_double_says(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        reference r = reference_make(&all[i]);

        reference_run(&all[i], &r);
        for (int n = 1; n <= 4; n++) run_parts(&all[i], &r, n);
        reference_free(&r);
    }
}

/* Far scores: a part whose every class has none, and one whose exponentials are lost beside the
 * largest of another part. */
static void far_scores(void **state)
{
    const loss_case *c = &all[3];
    reference r = reference_make(c);

    (void)state;
    for (int64_t k = 0; k < r.outer; k++) {
        for (int64_t v = 0; v < r.classes; v++) {
            bool first = (v < r.classes / 3), mine = ((int64_t)r.label[k] == v);

            if ((k % 3 == 0) && first && !mine) r.x[k * r.classes + v] = -INFINITY;
            if ((k % 3 == 1) && (v >= 5)) r.x[k * r.classes + v] = 70.0f + (float)v;
        }
    }
    reference_run(c, &r);
    for (int n = 2; n <= 4; n++) run_parts(c, &r, n);
    reference_free(&r);
}

/* A label that no part has; the softmax of all classes, which no part has either. */
static void refused(void **state)
{
    const loss_case *c = &all[0];
    test_layer *t = make(c, 1, 2);
    Ct__LayerPart part = CT__LAYER_PART__INIT;
    test_layer_spec spec = { .type = "SoftmaxWithLoss", .text = "", .n_bottom = 2, .n_top = 2 };

    (void)state;
    memset(t->input[1], 0, (size_t)t->input_count[1] * sizeof(float));
    t->input[1][3] = 10;
    test_log_start();
    assert_int_equal(test_layer_forward(t), CT_ERR_DATA);
    assert_non_null(strstr(test_log_stop(), "label 10 of sample 3"));
    t->input[1][3] = 9;
    test_log_start();
    assert_int_equal(test_layer_forward(t), CT_ERR_ARG); /* nobody carries transfers */
    (void)test_log_stop();
    test_layer_destroy(t);
    part.split = CT__PARALLEL_LAYER_PARAMETER__SPLIT__OUTPUT;
    spec.part = &part;
    spec.bottom[0] = c->scores;
    spec.bottom[1] = c->label;
    test_layer_refused(&spec, CT_ERR_CONFIG, "it cannot be a part of a layer: split OUTPUT");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_what_double_says),
        cmocka_unit_test(far_scores),
        cmocka_unit_test(refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
