/* Losses: against PyTorch, gradients over odd shapes, several ranks, what they refuse. That of the
 * softmax is in test_layer_softmax.c. */
#include "tests/test.h"
#include "tests/fake_ranks.h"
#include "tests/golden/neuron_golden.h"
#include "tests/layer_harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Sums are in double; a gradient passes at most 16 roundings of numbers below 4. */
static const double tolerance = 64 * 0x1p-24;

/* ---- against PyTorch */

typedef struct loss_case {
    const char *type, *text;
    ct_shape shape[4];
    const double *input[4]; /* NULL: no such bottom */
    const double *loss, *diff[2];
} loss_case;

#define S(...) TEST_SHAPE(__VA_ARGS__)
#define HINGE(_text, _name)                                                                        \
    {                                                                                              \
        "HingeLoss", _text, { S(5, 4), S(5, 1) }, { hinge_x, hinge_label }, _name,                 \
        {                                                                                          \
            _name##_d0                                                                             \
        }                                                                                          \
    }
#define INFOGAIN(_text, _name)                                                                     \
    {                                                                                              \
        "InfogainLoss", _text, { S(3, 4, 2, 2), S(3, 1, 2, 2), S(1, 1, 4, 4) },                    \
            { infogain_x, infogain_label, infogain_h }, infogain_##_name,                          \
        {                                                                                          \
            infogain_##_name##_d0                                                                  \
        }                                                                                          \
    }
#define SIGMOID(_text, _name)                                                                      \
    {                                                                                              \
        "SigmoidCrossEntropyLoss", _text, { S(4, 3, 2), S(4, 6) },                                 \
            { sigmoid_loss_x, sigmoid_loss_t }, sigmoid_loss_##_name,                              \
        {                                                                                          \
            sigmoid_loss_##_name##_d0                                                              \
        }                                                                                          \
    }
#define CONTRASTIVE(_text, _name)                                                                  \
    {                                                                                              \
        "ContrastiveLoss", _text, { S(6, 3), S(6, 3, 1, 1), S(6) },                                \
            { contrastive_a, contrastive_b, contrastive_similar }, contrastive_##_name,            \
        {                                                                                          \
            contrastive_##_name##_d0, contrastive_##_name##_d1                                     \
        }                                                                                          \
    }
#define SMOOTH(_text, _name, ...)                                                                  \
    {                                                                                              \
        "SmoothL1Loss", _text, { S(4, 5), S(4, 5, 1, 1), S(4, 5), S(4, 5) },                       \
            { smooth_a, smooth_b, __VA_ARGS__ }, smooth_##_name,                                   \
        {                                                                                          \
            smooth_##_name##_d0, smooth_##_name##_d1                                               \
        }                                                                                          \
    }
#define FOCAL(_text, _name)                                                                        \
    {                                                                                              \
        "FocalLoss", _text, { S(3, 4, 2, 3), S(3, 2, 3) }, { focal_x, focal_label },               \
            focal_##_name,                                                                         \
        {                                                                                          \
            focal_##_name##_d0                                                                     \
        }                                                                                          \
    }

static const loss_case recorded[] = {
    HINGE(NULL, hinge_l1),
    HINGE("hinge_loss_param { norm: L2 }", hinge_l2),
    { "MultinomialLogisticLoss",
      NULL,
      { S(6, 5), S(6) },
      { multinomial_p, multinomial_label },
      multinomial,
      { multinomial_d0 } },
    INFOGAIN("loss_param { ignore_label: 2 }", valid),
    INFOGAIN(NULL, all),
    INFOGAIN("loss_param { normalization: FULL } infogain_loss_param { axis: -3 }", all),
    INFOGAIN("loss_param { ignore_label: 2 normalization: BATCH_SIZE }", batch),
    SIGMOID("loss_param { ignore_label: 7 }", batch),
    SIGMOID("loss_param { ignore_label: 7 normalize: false }", batch),
    SIGMOID("loss_param { ignore_label: 7 normalize: true }", valid),
    SIGMOID("loss_param { ignore_label: 7 normalization: VALID }", valid),
    SIGMOID("loss_param { ignore_label: 7 normalization: FULL }", full),
    SIGMOID("loss_param { ignore_label: 7 normalization: NONE }", none),
    CONTRASTIVE("contrastive_loss_param { margin: 1.5 }", new),
    CONTRASTIVE("contrastive_loss_param { margin: 1.5 legacy_version: true }", legacy),
    SMOOTH(NULL, plain, NULL),
    SMOOTH("smooth_l1_loss_param { sigma: 1.5 }", inside_only, smooth_inside),
    SMOOTH("smooth_l1_loss_param { sigma: 1.5 }", weighted, smooth_inside, smooth_outside),
    FOCAL(NULL, all),
    FOCAL("loss_param { ignore_label: 3 } focal_loss_param { gamma: 0.5 alpha: 0.75 }", gamma),
    FOCAL("loss_param { ignore_label: 3 } focal_loss_param { gamma: 0 alpha: 1 }", plain),
};
enum { N_RECORDED = sizeof(recorded) / sizeof(recorded[0]) };

static test_layer *make_case(const loss_case *c)
{
    test_layer_spec spec = { .type = c->type, .text = c->text };
    test_layer *t;

    while ((spec.n_bottom < 4) && (c->input[spec.n_bottom] != NULL)) {
        spec.bottom[spec.n_bottom] = c->shape[spec.n_bottom];
        spec.n_bottom++;
    }
    t = test_layer_make(&spec);
    for (int i = 0; i < spec.n_bottom; i++) test_set(t->input[i], c->input[i], t->input_count[i]);
    return t;
}

static void as_recorded(void **state)
{
    (void)state;
    for (int i = 0; i < N_RECORDED; i++) {
        const loss_case *c = &recorded[i];
        test_layer *t = make_case(c);

        t->top_diff[0][0] = 0.75f;
        test_layer_pass(t);
        assert_int_equal(t->top_shape[0].ndim, 0);
        test_near_golden(t, TEST_FORWARD, t->top[0], c->loss, 1, tolerance, c->type);
        for (int k = 0; k < t->layer.n_bottom; k++) {
            if ((k > 1) || (c->diff[k] == NULL))
                assert_null(t->input_diff[k]); /* labels, weights */
            else
                test_near_golden(t, TEST_BACKWARD, t->input_diff[k], c->diff[k], t->input_count[k],
                                 tolerance, c->type);
        }
        test_layer_destroy(t);
    }
}

/* ---- central differences */

static void gradients(void **state)
{
    (void)state;
    for (int i = 0; i < N_RECORDED; i++) {
        test_layer *t = make_case(&recorded[i]);

        /* contrastive: 1e-4 of d is not in the loss */
        test_layer_gradient(
            t,
            &(test_gradient){ .max_kink = 0.15, .roundings = (t->layer.n_bottom == 3) ? 100 : 16 });
        test_layer_destroy(t);
    }
}

/* Sizes at which loops have tails and sums several parts, on one thread or more. */
static void odd_shapes(void **state)
{
    static const struct {
        const char *type;
        int n_bottom, classes; /* classes 0: bottom 1 is as bottom 0 */
        ct_shape x, label;
    } c[] = {
        { "HingeLoss", 2, 3, S(67, 3), S(67) },
        { "HingeLoss", 2, 12, S(1, 3, 4), S(1, 1, 1) },
        { "SigmoidCrossEntropyLoss", 2, 0, S(3, 47), S(3, 47) },
        { "SigmoidCrossEntropyLoss", 2, 0, S(1), S(1) },
        { "SmoothL1Loss", 2, 0, S(5, 3, 7), S(5, 21) },
        { "FocalLoss", 2, 5, S(65, 5), S(65) },
        { "FocalLoss", 2, 2, S(1, 2, 67), S(1, 67) },
        { "CenterLoss", 2, 3, S(5, 67), S(5) },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
        test_layer *t = test_layer_make(&(test_layer_spec){
            .type = c[i].type,
            .text = "center_loss_param { num_output: 3 center_filler { type: 'gaussian' } }",
            .n_bottom = 2,
            .bottom = { c[i].x, c[i].label } });

        for (int64_t k = 0; (c[i].classes > 0) && (k < t->input_count[1]); k++)
            t->input[1][k] = (float)(k * 7 % c[i].classes);
        test_layer_gradient(t,
                            &(test_gradient){ .max_kink = 0.2, .roundings = 64, .skip_weight = 1 });
        test_layer_destroy(t);
    }
}

/* ---- center loss: the centers move by a rule of their own */

static void center_rule(void **state)
{
    (void)state;
    for (int add = 0; add < 2; add++) {
        test_layer *t =
            test_layer_make(&(test_layer_spec){ .type = "CenterLoss",
                                                .text = "center_loss_param { num_output: 4 }",
                                                .n_bottom = 2,
                                                .bottom = { S(7, 3, 2), S(7) },
                                                .add_weight_diff[0] = add == 1 });

        assert_true((t->weight_count[0] == 24) && (t->weight[0][5] == 0.0f));
        test_set(t->input[0], center_x, 42);
        test_set(t->input[1], center_label, 7);
        test_set(t->weight[0], center_c, 24);
        t->top_diff[0][0] = 0.75f;
        for (int i = 0; i < 24; i++) t->weight_diff[0][i] = 0.5f;
        test_layer_pass(t);
        for (int i = 0; (add == 1) && (i < 24); i++) t->weight_diff[0][i] -= 0.5f;
        test_near_golden(t, TEST_FORWARD, t->top[0], center, 1, tolerance, "loss");
        test_near_golden(t, TEST_BACKWARD, t->input_diff[0], center_d0, 42, tolerance, "dx");
        test_near_golden(t, TEST_BACKWARD, t->weight_diff[0], center_dc, 24, tolerance, "centers");
        test_layer_destroy(t);
    }
}

/* ---- a batch of 7 over 3 pretended ranks adds up to the whole */

typedef struct rank_case {
    const char *type, *text;
    int n_bottom, classes, n_sum; /* n_sum: sums over the ranks that each takes part in */
    int length[4];                /* numbers of a sample in each bottom */
} rank_case;

static void give(const rank_case *c, test_layer *t)
{
    for (int i = 0; i < c->n_bottom; i++)
        test_random(t->input[i], t->input_count[i], 40 + (uint64_t)i, 0.05f, 1.0f);
    for (int64_t k = 0; (c->classes > 0) && (k < t->input_count[1]); k++)
        t->input[1][k] = (float)(k * 5 % 7 % c->classes);
    for (int64_t k = 0; (c->n_bottom == 3) && (k < t->input_count[2]); k++)
        t->input[2][k] = (float)(k % 2);
}

static void spec_of(const rank_case *c, int64_t n, test_layer_spec *spec)
{
    *spec = (test_layer_spec){ .type = c->type, .text = c->text, .n_bottom = c->n_bottom };
    for (int i = 0; i < c->n_bottom; i++)
        spec->bottom[i] = (c->length[i] == 1) ? S(n) : S(n, c->length[i]);
}

static void one_rank(const rank_case *c, const test_layer *whole, fake_ranks *ranks, int r,
                     double *loss, double *weight)
{
    enum { N = 7, P = 3 };
    test_layer_spec spec;
    int64_t local, first;
    test_layer *t;

    fake_share(N, r, P, &local, &first);
    spec_of(c, local, &spec);
    t = test_layer_make(&spec);
    for (int i = 0; i < c->n_bottom; i++)
        memcpy(t->input[i], whole->input[i] + first * c->length[i],
               (size_t)(local * c->length[i]) * sizeof(float));
    if (t->layer.n_weight > 0)
        memcpy(t->weight[0], whole->weight[0], (size_t)t->weight_count[0] * sizeof(float));
    t->ex.batch_local = local;
    t->ex.batch_global = N;
    t->ex.batch_first = first;
    t->ex.sum_ranks = fake_sum_ranks;
    t->ex.hook_ctx = ranks;
    ranks->call = 0;
    test_layer_pass(t);
    for (int64_t i = 0; ranks->replay && (i < local * c->length[0]); i++) {
        double expected = (double)whole->input_diff[0][first * c->length[0] + i];

        if (!(fabs((double)t->input_diff[0][i] - expected) <= 0x1p-22 * fabs(expected)))
            fail_msg("%s: rank %d, dx[%lld] is %g, not %g", c->type, r, (long long)i,
                     (double)t->input_diff[0][i], expected);
    }
    if (ranks->replay) *loss += (double)t->top[0][0];
    for (int64_t i = 0; (t->layer.n_weight > 0) && ranks->replay && (i < t->weight_count[0]); i++)
        weight[i] += (double)t->weight_diff[0][i];
    test_layer_destroy(t);
}

static void several_ranks(void **state)
{
    static const rank_case c[] = {
        { "HingeLoss", NULL, 2, 4, 0, { 4, 1 } },
        { "MultinomialLogisticLoss", NULL, 2, 4, 0, { 4, 1 } },
        { "SigmoidCrossEntropyLoss", NULL, 2, 0, 0, { 5, 5 } },
        { "SigmoidCrossEntropyLoss",
          "loss_param { ignore_label: 1 normalization: VALID }",
          2,
          3,
          1,
          { 5, 5 } },
        { "ContrastiveLoss", NULL, 3, 0, 0, { 4, 4, 1 } },
        { "SmoothL1Loss", NULL, 2, 0, 0, { 6, 6 } },
        { "FocalLoss", "loss_param { ignore_label: 1 }", 2, 4, 1, { 4, 1 } },
        { "CenterLoss",
          "center_loss_param { num_output: 3 center_filler { type: 'gaussian' } }",
          2,
          3,
          1,
          { 6, 1 } },
    };

    (void)state;
    for (size_t k = 0; k < sizeof(c) / sizeof(c[0]); k++) {
        fake_ranks ranks = { .replay = false };
        double loss = 0, weight[64] = { 0 };
        test_layer_spec spec;
        test_layer *whole;

        spec_of(&c[k], 7, &spec);
        whole = test_layer_make(&spec);
        give(&c[k], whole);
        test_layer_pass(whole);
        for (int pass = 0; pass < 2; pass++) {
            ranks.replay = pass == 1;
            for (int r = 0; r < 3; r++) one_rank(&c[k], whole, &ranks, r, &loss, weight);
        }
        assert_int_equal(ranks.n_call, 3 * c[k].n_sum);
        if (!(fabs(loss - (double)whole->top[0][0]) <= 8 * 0x1p-24 * fabs(loss)))
            fail_msg("%s: loss %.9g, not %.9g", c[k].type, loss, (double)whole->top[0][0]);
        for (int64_t i = 0; (whole->layer.n_weight > 0) && (i < whole->weight_count[0]); i++)
            assert_true(fabs(weight[i] - (double)whole->weight_diff[0][i]) <= 16 * 0x1p-24);
        test_layer_destroy(whole);
    }
}

/* ---- the matrix of InfogainLoss in a file */

static void write_matrix(const char *path, bool in_double)
{
    Ct__BlobProto b = CT__BLOB_PROTO__INIT;
    float f[16];
    double d[16];
    uint8_t bytes[512];
    size_t size;
    FILE *file = fopen(path, "wb");

    assert_non_null(file);
    for (int i = 0; i < 16; i++) f[i] = (float)(d[i] = infogain_h[i]);
    b.has_num = b.has_channels = b.has_height = b.has_width = 1;
    b.num = b.channels = 1;
    b.height = b.width = 4;
    b.n_data = in_double ? 0 : 16;
    b.data = f;
    b.n_double_data = in_double ? 16 : 0;
    b.double_data = d;
    size = ct__blob_proto__get_packed_size(&b);
    assert_true(size <= sizeof(bytes));
    ct__blob_proto__pack(&b, bytes);
    assert_true(fwrite(bytes, 1, size, file) == size);
    fclose(file);
}

static void matrix_file(void **state)
{
    char dir[] = "/tmp/cortado_losses_XXXXXX", path[64], text[160];
    test_layer_spec spec = { .type = "InfogainLoss",
                             .text = text,
                             .n_bottom = 2,
                             .n_top = 2,
                             .bottom = { S(3, 4, 2, 2), S(3, 2, 2) } };

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/h.binaryproto", dir);
    snprintf(text, sizeof(text),
             "infogain_loss_param { source: '%s' } loss_param { ignore_label: 2 }", path);
    for (int k = 0; k < 2; k++) {
        test_layer *t;

        write_matrix(path, k == 1);
        t = test_layer_make(&spec);
        test_set(t->input[0], infogain_x, 48);
        test_set(t->input[1], infogain_label, 12);
        t->top_diff[0][0] = 0.75f;
        test_layer_pass(t);
        test_near_golden(t, TEST_FORWARD, t->top[0], infogain_valid, 1, tolerance, "loss");
        test_near_golden(t, TEST_BACKWARD, t->input_diff[0], infogain_valid_d0, 48, tolerance,
                         "dx");
        for (int i = 0; i < 4; i++) /* the second top: the probabilities */
            assert_true(fabsf(t->top[1][i] + t->top[1][4 + i] + t->top[1][8 + i] +
                              t->top[1][12 + i] - 1) <= 4 * 0x1p-23f);
        test_layer_destroy(t);
    }
    spec.bottom[0] = S(3, 5, 2, 2);
    test_layer_refused(&spec, CT_ERR_SHAPE, "matrix has 16 elements, 5 classes need 5 x 5");
    assert_int_equal(truncate(path, 7), 0);
    test_layer_refused(&spec, CT_ERR_DATA, "is not a BlobProto: truncated");
    assert_int_equal(truncate(path, 0), 0);
    test_layer_refused(&spec, CT_ERR_DATA, "holds no numbers");
    unlink(path);
    test_layer_refused(&spec, CT_ERR_IO, "h.binaryproto");
    rmdir(dir);
}

/* ---- edges and refusals */

/* Certain and wrong: losses end where their logarithms do; not a number is not hidden. */
static void finite_losses(void **state)
{
    static const struct {
        const char *type;
        double loss;
    } c[] = { { "MultinomialLogisticLoss", 46.0517 }, { "FocalLoss", 0.25 * 87.3365 } };

    (void)state;
    for (int k = 0; k < 2; k++) {
        test_layer *t = test_layer_make(
            &(test_layer_spec){ .type = c[k].type, .n_bottom = 2, .bottom = { S(1, 2), S(1) } });

        t->input[0][0] = (k == 0) ? 0.0f : -1e4f;
        t->input[0][1] = (k == 0) ? 1.0f : 1e4f;
        t->input[1][0] = 0;
        test_layer_pass(t);
        assert_true(fabs((double)t->top[0][0] - c[k].loss) <= 1e-3);
        assert_true(isfinite(t->input_diff[0][0]) && isfinite(t->input_diff[0][1]));
        t->input[0][0] = NAN;
        assert_int_equal(test_layer_forward(t), CT_OK);
        assert_true(isnan(t->top[0][0]));
        t->input[0][0] = (k == 0) ? 1.0f : 1e4f; /* certain and right */
        t->input[0][1] = (k == 0) ? 0.0f : -1e4f;
        test_layer_pass(t);
        assert_true(t->top[0][0] == 0.0f);
        assert_true(isfinite(t->input_diff[0][0]) && isfinite(t->input_diff[0][1]));
        test_layer_destroy(t);
    }
}

/* Gradients of focal losses with a power below 1 where p is 1; equal vectors of a pair apart. */
static void no_direction(void **state)
{
    test_layer *t = test_layer_make(&(test_layer_spec){ .type = "FocalLoss",
                                                        .text = "focal_loss_param { gamma: 0.5 }",
                                                        .n_bottom = 2,
                                                        .bottom = { S(1, 2), S(1) } });

    (void)state;
    t->input[0][0] = 1e4f, t->input[0][1] = 0, t->input[1][0] = 0;
    test_layer_pass(t);
    assert_true((t->input_diff[0][0] == 0.0f) && (t->input_diff[0][1] == 0.0f));
    test_layer_destroy(t);
    t = test_layer_make(&(test_layer_spec){
        .type = "ContrastiveLoss", .n_bottom = 3, .bottom = { S(1, 2), S(1, 2), S(1) } });
    memcpy(t->input[1], t->input[0], 2 * sizeof(float));
    t->input[2][0] = 0;
    test_layer_pass(t);
    assert_true(t->top[0][0] == 0.5f);
    assert_true((t->input_diff[0][0] == 0.0f) && (t->input_diff[1][1] == 0.0f));
    t->input[2][0] = 0.5f; /* still 0, as in Caffe */
    test_layer_pass(t);
    assert_true(t->top[0][0] == 0.5f);
    test_layer_destroy(t);
}

/* Targets are compared with ignore_label without their fraction, as a conversion to int leaves
 * them.
 */
static void ignored_targets(void **state)
{
    static const float target[] = { 0.25f, -0.5f, 0.0f, 1.0f, 1.75f, -1.0f, -1.5f, 2.0f, NAN };
    static const struct {
        int ignore;
        unsigned ignored; /* bits of target */
    } c[] = { { 0, 0x07 }, { 1, 0x18 }, { -1, 0x60 }, { 2, 0x80 }, { 3, 0 } };

    (void)state;
    for (size_t k = 0; k < sizeof(c) / sizeof(c[0]); k++) {
        char text[64];
        test_layer *t;

        snprintf(text, sizeof(text), "loss_param { ignore_label: %d normalization: NONE }",
                 c[k].ignore);
        t = test_layer_make(&(test_layer_spec){ .type = "SigmoidCrossEntropyLoss",
                                                .text = text,
                                                .n_bottom = 2,
                                                .bottom = { S(9), S(9) } });
        for (int i = 0; i < 9; i++) t->input[0][i] = 5, t->input[1][i] = target[i];
        test_layer_pass(t);
        for (int i = 0; i < 9; i++)
            assert_int_equal(t->input_diff[0][i] == 0.0f, (c[k].ignored >> i) & 1);
        assert_true(isnan(t->top[0][0])); /* not hidden */
        test_layer_destroy(t);
    }
}

static void bad_labels(void **state)
{
    static const char *const type[] = { "HingeLoss", "MultinomialLogisticLoss", "FocalLoss",
                                        "CenterLoss" };
    static const float bad[] = { -1, 3, 1.5f, NAN };

    (void)state;
    for (int k = 0; k < 16; k++) {
        test_layer *t =
            test_layer_make(&(test_layer_spec){ .type = type[k % 4],
                                                .text = "center_loss_param { num_output: 3 }",
                                                .n_bottom = 2,
                                                .bottom = { S(4, 3), S(4) } });
        char expected[64];
        ct_status status;

        memset(t->input[1], 0, 4 * sizeof(float));
        t->input[1][2] = bad[k / 4];
        snprintf(expected, sizeof(expected), "label %g of sample 2 ", (double)bad[k / 4]);
        test_log_start();
        status = test_layer_forward(t);
        assert_int_equal(status, CT_ERR_DATA);
        if (strstr(test_log_stop(), expected) == NULL) fail_msg("%s: no %s", type[k % 4], expected);
        test_layer_destroy(t);
    }
}

static void refused(void **state)
{
    static const struct {
        const char *type, *text;
        int n_bottom;
        ct_shape shape[4];
        ct_status status;
        const char *message;
    } c[] = {
        { "HingeLoss", NULL, 2, { S(4, 3), S(4, 2) }, CT_ERR_SHAPE, "need 4 labels" },
        { "MultinomialLogisticLoss", NULL, 2, { S(4, 3), S(5) }, CT_ERR_SHAPE, "need 4 labels" },
        { "InfogainLoss", NULL, 2, { S(4, 3), S(4) }, CT_ERR_CONFIG, "the matrix is missing" },
        { "InfogainLoss",
          "infogain_loss_param { source: 'h' }",
          3,
          { S(4, 3), S(4), S(3, 3) },
          CT_ERR_CONFIG,
          "the matrix is given twice" },
        { "InfogainLoss",
          "loss_param { normalize: true }",
          3,
          { S(4, 3), S(4), S(3, 3) },
          CT_ERR_CONFIG,
          "normalize is not for this layer" },
        { "InfogainLoss",
          NULL,
          3,
          { S(4, 3), S(4), S(3, 4) },
          CT_ERR_SHAPE,
          "12 elements, 3 classes need 3 x 3" },
        { "SigmoidCrossEntropyLoss",
          NULL,
          2,
          { S(4, 3), S(4, 2) },
          CT_ERR_SHAPE,
          "bottoms 0 and 1 of shapes 4 3 (12) and 4 2 (8) do not match" },
        { "ContrastiveLoss",
          "contrastive_loss_param { margin: 0 }",
          3,
          { S(4, 3), S(4, 3), S(4) },
          CT_ERR_CONFIG,
          "margin 0 must be above 0" },
        { "ContrastiveLoss",
          NULL,
          3,
          { S(4, 3), S(4, 2), S(4) },
          CT_ERR_SHAPE,
          "are not pairs of vectors" },
        { "ContrastiveLoss",
          NULL,
          3,
          { S(4, 3, 2, 1), S(4, 3, 2, 1), S(4) },
          CT_ERR_SHAPE,
          "are not pairs of vectors" },
        { "ContrastiveLoss",
          NULL,
          3,
          { S(4, 3), S(4, 3), S(4, 2) },
          CT_ERR_SHAPE,
          "not one number for each of 4 pairs" },
        { "SmoothL1Loss",
          "smooth_l1_loss_param { sigma: 0 }",
          2,
          { S(4, 3), S(4, 3) },
          CT_ERR_CONFIG,
          "sigma 0 must be above 0" },
        { "SmoothL1Loss",
          NULL,
          3,
          { S(4, 3), S(4, 3), S(4, 1) },
          CT_ERR_SHAPE,
          "bottoms 0 and 2 of shapes" },
        { "CenterLoss", NULL, 2, { S(4, 3), S(4) }, CT_ERR_CONFIG, "num_output, the number" },
        { "CenterLoss",
          "center_loss_param { num_output: 2 axis: 2 }",
          2,
          { S(4, 3), S(4) },
          CT_ERR_CONFIG,
          "axis 2 is outside" },
        { "CenterLoss",
          "center_loss_param { num_output: 2 axis: 0 }",
          2,
          { S(4, 3), S(4) },
          CT_ERR_CONFIG,
          "axis 0 leaves no samples" },
        { "CenterLoss",
          "center_loss_param { num_output: 2 }",
          2,
          { S(4, 3), S(3) },
          CT_ERR_SHAPE,
          "4 feature vectors, labels of shape 3" },
        { "FocalLoss",
          "focal_loss_param { type: LINEAR }",
          2,
          { S(4, 3), S(4) },
          CT_ERR_CONFIG,
          "type LINEAR and its beta are not supported" },
        { "FocalLoss",
          "focal_loss_param { gamma: -1 }",
          2,
          { S(4, 3), S(4) },
          CT_ERR_CONFIG,
          "gamma -1 at least 0" },
        { "FocalLoss",
          "focal_loss_param { alpha: 0 }",
          2,
          { S(4, 3), S(4) },
          CT_ERR_CONFIG,
          "alpha 0 must be above 0" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
        test_layer_spec spec = { .type = c[i].type, .text = c[i].text, .n_bottom = c[i].n_bottom };

        memcpy(spec.bottom, c[i].shape, sizeof(c[i].shape));
        test_layer_refused(&spec, c[i].status, c[i].message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_recorded),     cmocka_unit_test(gradients),
        cmocka_unit_test(odd_shapes),      cmocka_unit_test(center_rule),
        cmocka_unit_test(several_ranks),   cmocka_unit_test(matrix_file),
        cmocka_unit_test(finite_losses),   cmocka_unit_test(no_direction),
        cmocka_unit_test(bad_labels),      cmocka_unit_test(refused),
        cmocka_unit_test(ignored_targets),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
