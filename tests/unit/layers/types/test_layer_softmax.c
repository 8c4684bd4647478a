/* Softmax and SoftmaxWithLoss: kernels against the reference, gradients, labels, ranks. */
#include "tests/test.h"
#include "framework/base/memory.h"
#include "framework/base/stream.h"
#include "layers/engine/softmax/softmax.h"
#include "tests/fake_ranks.h"
#include "tests/layer_harness.h"
#include "tests/parsed_net.h"

#include <float.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ct_exec cpu_exec;

static void ok(ct_status status)
{
    assert_int_equal(status, CT_OK);
}

static float *array(int64_t n, uint64_t seed, float size)
{
    float *v = malloc((size_t)n * sizeof(float));

    assert_non_null(v);
    test_random(v, n, seed, -size, size);
    return v;
}

/* y = e^d / sum, d up to 2 size: d is rounded once (relative error of e^d: d eps), the sum has
 * `classes` terms, expf, the reciprocal and the product a few units: all relative to y. */
static void check_forward(const ct_softmax_engine *e, ct_softmax_desc d, float size)
{
    int64_t n = d.outer * d.classes * d.inner;
    double relative = ((double)(2 * size) + (double)d.classes + 8) * 0x1p-24;
    float *x = array(n, 1, size), *y = array(n, 2, 1), *ref = array(n, 3, 1);

    ok(e->forward(&d, &cpu_exec, x, y));
    ok(ct_softmax_ref.forward(&d, &cpu_exec, x, ref));
    for (int64_t i = 0; i < n; i++) {
        double allowed = relative * (double)ref[i] + (double)FLT_MIN;

        if (!(fabs((double)y[i] - (double)ref[i]) <= allowed))
            fail_msg("%s: y[%lld] is %g, reference %g", e->name, (long long)i, (double)y[i],
                     (double)ref[i]);
    }
    ok(e->forward(&d, &cpu_exec, x, x));
    test_same(x, y, n, "y in place");
    free(x), free(y), free(ref);
}

/* The dot product is in double, then a rounding of it, of the difference and of the product: with
 * |dy| <= 1, y <= 1 and |dot| <= 1 that is 4 units. */
static void check_backward(const ct_softmax_engine *e, ct_softmax_desc d)
{
    int64_t n = d.outer * d.classes * d.inner;
    float *y = array(n, 1, 2), *dy = array(n, 2, 1), *dx = array(n, 3, 1), *ref = array(n, 4, 1);

    ok(ct_softmax_ref.forward(&d, &cpu_exec, y, y));
    ok(e->backward(&d, &cpu_exec, y, dy, dx));
    ok(ct_softmax_ref.backward(&d, &cpu_exec, y, dy, ref));
    for (int64_t i = 0; i < n; i++) assert_true(fabsf(dx[i] - ref[i]) <= 4 * 0x1p-23f);
    ok(e->backward(&d, &cpu_exec, y, dy, dy));
    test_same(dy, dx, n, "dx in place");
    free(y), free(dy), free(dx), free(ref);
}

static float *aligned_array(int64_t n, uint64_t seed)
{
    float *v = ct_mem_acquire((size_t)n * sizeof(float));

    assert_non_null(v);
    test_random(v, n, seed, -3, 3);
    return v;
}

/* Arrays beyond the caches are written past them: the same numbers as row by row. */
static void test_streamed(void **state)
{
    static const ct_softmax_desc size[] = { { CT_DEVICE_CPU, 2, 17, 246736 },
                                            { CT_DEVICE_CPU, 2, 131, 32032 },
                                            { CT_DEVICE_CPU, 168, 50257, 1 },
                                            { CT_DEVICE_CPU, 129, 65537, 1 } };

    (void)state;
    for (size_t i = 0; i < sizeof(size) / sizeof(size[0]); i++) {
        ct_softmax_desc one = size[i];
        int64_t part = one.classes * one.inner, n = one.outer * part;
        float *x = aligned_array(n, 1), *y = aligned_array(n, 2), *z = aligned_array(n, 3);

        one.outer = 1;
        assert_true(ct_stream_pays(y, (size_t)n * sizeof(float)));
        assert_false(ct_stream_pays(z, (size_t)part * sizeof(float)));
        ok(ct_softmax_omp.forward(&size[i], &cpu_exec, x, y));
        for (int64_t o = 0; o < size[i].outer; o++) {
            ok(ct_softmax_omp.forward(&one, &cpu_exec, x + o * part, z + o * part));
            test_same(y + o * part, z + o * part, part, "y");
        }
        ok(ct_softmax_omp.backward(&size[i], &cpu_exec, y, x, z));
        for (int64_t o = 0; o < size[i].outer; o++) /* in place */
            ok(ct_softmax_omp.backward(&one, &cpu_exec, y + o * part, x + o * part, x + o * part));
        test_same(z, x, n, "dx");
        ct_mem_release(x), ct_mem_release(y), ct_mem_release(z);
    }
}

/* The gradient of a loss over a large vocabulary, by one to three threads: as row by row. */
static void test_streamed_loss(void **state)
{
    enum { ROWS = 168, CLASSES = 50257 };
    const ct_softmax_desc all = { CT_DEVICE_CPU, ROWS, CLASSES, 1 };
    const ct_softmax_desc one = { CT_DEVICE_CPU, 1, CLASSES, 1 };
    float *p = aligned_array((int64_t)ROWS * CLASSES, 1), *row = aligned_array(CLASSES, 2);
    float *dx = aligned_array((int64_t)ROWS * CLASSES, 3);
    int before = omp_get_max_threads();
    int32_t label[ROWS];

    (void)state;
    assert_true(ct_stream_pays(dx, sizeof(float) * ROWS * CLASSES));
    for (int o = 0; o < ROWS; o++)
        label[o] = (o % 5 == 4) ? CT_LABEL_IGNORED : (o % 5 == 3) ? CLASSES - 1 : o * 299;
    for (int n = 1; n <= 3; n++) {
        omp_set_num_threads(n);
        ok(ct_softmax_omp.loss_backward(&all, &cpu_exec, p, label, 0.7f, dx));
        for (int64_t o = 0; o < ROWS; o++) {
            ok(ct_softmax_omp.loss_backward(&one, &cpu_exec, p + o * CLASSES, label + o, 0.7f,
                                            row));
            test_same(dx + o * CLASSES, row, CLASSES, "dx");
        }
    }
    omp_set_num_threads(before);
    ct_mem_release(p), ct_mem_release(dx), ct_mem_release(row);
}

static void check_loss(const ct_softmax_engine *e, ct_softmax_desc d)
{
    int64_t n = d.outer * d.classes * d.inner, n_label = d.outer * d.inner;
    float *p = array(n, 1, 3), *dx = array(n, 2, 1), *ref = array(n, 3, 1);
    float *scratch = ct_mem_acquire(ct_softmax_scratch(&d));
    int32_t *label = malloc((size_t)n_label * sizeof(int32_t));
    double loss, loss_ref;

    for (int64_t i = 0; i < n_label; i++)
        label[i] = (i % 5 == 4) ? CT_LABEL_IGNORED : (int32_t)(i * 7 % d.classes);
    ok(ct_softmax_ref.forward(&d, &cpu_exec, p, p));
    ok(e->loss(&d, &cpu_exec, p, label, scratch, &loss));
    ok(ct_softmax_ref.loss(&d, &cpu_exec, p, label, NULL, &loss_ref));
    /* logf is good to a unit in the last place, a loss is at most 6 + log(classes) */
    assert_true(fabs(loss - loss_ref) <= 0x1p-23 * (double)n_label * (6 + log((double)d.classes)));
    p[0] = NAN;
    label[0] = 0;
    ok(e->loss(&d, &cpu_exec, p, label, scratch, &loss));
    assert_true(isnan(loss));
    p[0] = 0.25f;
    ok(e->loss_backward(&d, &cpu_exec, p, label, 0.7f, dx));
    ok(ct_softmax_ref.loss_backward(&d, &cpu_exec, p, label, 0.7f, ref));
    for (int64_t i = 0; i < n; i++) assert_true(fabsf(dx[i] - ref[i]) <= 0x1p-23f);
    free(p), free(dx), free(ref), ct_mem_release(scratch), free(label);
}

static void test_engines(void **state)
{
    static const int64_t size[][3] = { { 1, 1, 1 },    { 3, 10, 1 },  { 2, 1000, 1 }, { 2, 5, 300 },
                                       { 4, 21, 129 }, { 1, 3, 128 }, { 9, 2, 2 } };

    int n_engine = 0;

    (void)state;
    for (int k = 0; ct_softmax_table[k] != NULL; k++) {
        for (size_t i = 0; i < sizeof(size) / sizeof(size[0]); i++) {
            ct_softmax_desc d = { CT_DEVICE_CPU, size[i][0], size[i][1], size[i][2] };

            if (!ct_softmax_table[k]->supports(&d)) continue; /* of another device */
            n_engine++;
            check_forward(ct_softmax_table[k], d, 1);
            check_forward(ct_softmax_table[k], d, 30);
            check_forward(ct_softmax_table[k], d, 1e4f); /* overflows unless the maximum goes */
            check_backward(ct_softmax_table[k], d);
            check_loss(ct_softmax_table[k], d);
        }
    }
    assert_true(n_engine >= 2 * (int)(sizeof(size) / sizeof(size[0])));
}

static void check_softmax_layer(const char *text, ct_shape shape, int axis, bool in_place)
{
    test_layer_spec spec = {
        .type = "Softmax", .text = text, .n_bottom = 1, .bottom = { shape }, .in_place = in_place
    };
    int64_t inner = ct_shape_count(&shape, axis + 1, -1), classes = shape.dim[axis];
    test_layer *t;

    assert_int_equal(test_layer_create(&spec, &t), CT_OK);
    assert_int_equal(test_layer_forward(t), CT_OK);
    for (int64_t o = 0; o < ct_shape_count(&shape, 0, axis); o++) {
        for (int64_t i = 0; i < inner; i++) {
            double sum = 0;

            for (int64_t c = 0; c < classes; c++)
                sum += (double)t->top[0][(o * classes + c) * inner + i];
            assert_true(fabs(sum - 1) <= (double)(classes + 4) * 0x1p-23);
        }
    }
    test_layer_gradient(t, NULL);
    test_layer_destroy(t);
}

static void test_softmax(void **state)
{
    (void)state;
    for (int in_place = 0; in_place < 2; in_place++) {
        check_softmax_layer(NULL, TEST_SHAPE(3, 5), 1, in_place);
        check_softmax_layer(NULL, TEST_SHAPE(2, 4, 3, 3), 1, in_place);
        check_softmax_layer("softmax_param { axis: -1 }", TEST_SHAPE(2, 4, 7), 2, in_place);
        check_softmax_layer("softmax_param { axis: 0 }", TEST_SHAPE(6, 2), 0, in_place);
    }
    test_layer_refused(&(test_layer_spec){ .type = "Softmax",
                                           .text = "softmax_param { axis: 2 }",
                                           .n_bottom = 1,
                                           .bottom = { TEST_SHAPE(2, 3) } },
                       CT_ERR_CONFIG, "axis 2 is outside");
}

/* ---- the loss */

static test_layer *make_loss(const char *text, ct_shape x, ct_shape label, int n_top)
{
    test_layer_spec spec = { .type = "SoftmaxWithLoss",
                             .text = text,
                             .n_bottom = 2,
                             .n_top = n_top,
                             .bottom = { x, label } };
    test_layer *t;

    assert_int_equal(test_layer_create(&spec, &t), CT_OK);
    for (int64_t i = 0; i < t->input_count[1]; i++) t->input[1][i] = (float)(i * 5 % 3);
    return t;
}

static void test_loss_gradients(void **state)
{
    static const char *const text[] = {
        NULL,
        "loss_param { ignore_label: 1 }",
        "loss_param { ignore_label: 2 normalization: FULL }",
        "loss_param { normalization: NONE }",
        "loss_param { normalize: false }",
        "softmax_param { axis: -1 }",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(text) / sizeof(text[0]); i++) {
        bool last = i == 5;
        test_layer *t = make_loss(text[i], last ? TEST_SHAPE(4, 2, 3) : TEST_SHAPE(4, 3, 2),
                                  TEST_SHAPE(4, 2), 1 + (int)(i % 2));

        test_layer_gradient(t, NULL);
        assert_null(t->input_diff[1]);
        if ((i % 2 == 1) && !last) /* the second top: the probabilities */
            for (int k = 0; k < 4; k++)
                assert_true(fabsf(t->top[1][6 * k] + t->top[1][6 * k + 2] + t->top[1][6 * k + 4] -
                                  1) <= 4 * 0x1p-23f);
        test_layer_destroy(t);
    }
}

/* ---- labels that are distributions */

/* Positions' distributions: 2/3 and 1/3 of two classes. */
static void soften(test_layer *t, int outer, int classes, int inner)
{
    for (int i = 0; i < outer * classes * inner; i++) t->input[1][i] = 0;
    for (int k = 0; k < outer * inner; k++) {
        float *of = t->input[1] + k / inner * classes * inner + k % inner;

        of[k % classes * inner] += 2.0f / 3.0f;
        of[(k + 1) % classes * inner] += 1.0f / 3.0f;
    }
}

static void test_soft_gradients(void **state)
{
    static const char *const text[] = { NULL, "loss_param { normalization: NONE }",
                                        "softmax_param { axis: -1 }" };

    (void)state;
    for (int i = 0; i < 3; i++) {
        test_layer *t = make_loss(text[i], TEST_SHAPE(4, 3, 2), TEST_SHAPE(4, 3, 2), 1 + (i % 2));

        soften(t, (i < 2) ? 4 : 12, (i < 2) ? 3 : 2, (i < 2) ? 2 : 1);
        test_layer_gradient(t, NULL);
        assert_null(t->input_diff[1]);
        test_layer_destroy(t);
    }
}

/* One label alone: the same loss and gradient as with its number, up to the order of sums. */
static void test_soft_is_hard(void **state)
{
    test_layer *hard = make_loss(NULL, TEST_SHAPE(5, 4, 1, 1), TEST_SHAPE(5), 1);
    test_layer *soft = make_loss(NULL, TEST_SHAPE(5, 4, 1, 1), TEST_SHAPE(5, 4), 1);

    (void)state;
    for (int i = 0; i < 20; i++) {
        soft->input[0][i] = hard->input[0][i];
        soft->input[1][i] = (hard->input[1][i / 4] == (float)(i % 4)) ? 1.0f : 0.0f;
    }
    assert_int_equal(test_layer_forward(hard) | test_layer_backward(hard), CT_OK);
    assert_int_equal(test_layer_forward(soft) | test_layer_backward(soft), CT_OK);
    assert_true(fabsf(soft->top[0][0] - hard->top[0][0]) <= 8 * 0x1p-24f * hard->top[0][0]);
    for (int i = 0; i < 20; i++)
        assert_true(fabsf(soft->input_diff[0][i] - hard->input_diff[0][i]) <= 4 * 0x1p-24f);
    test_layer_destroy(hard);
    test_layer_destroy(soft);
}

static void test_soft_refused(void **state)
{
    test_layer *t = make_loss(NULL, TEST_SHAPE(2, 3), TEST_SHAPE(2, 3), 1);

    (void)state;
    soften(t, 2, 3, 1);
    assert_int_equal(test_layer_forward(t), CT_OK);
    t->input[1][3] += 0.5f;
    test_log_start();
    assert_int_equal(test_layer_forward(t), CT_ERR_DATA);
    assert_non_null(strstr(test_log_stop(), "the label of sample 1 of batch 0 is no distribution "
                                            "over 3 classes: its shares add up to 1.5"));
    soften(t, 2, 3, 1);
    t->input[1][2] = -1;
    t->input[1][0] += 1;
    test_log_start();
    assert_int_equal(test_layer_forward(t), CT_ERR_DATA);
    assert_non_null(strstr(test_log_stop(), "or one is below 0"));
    test_layer_destroy(t);
    test_layer_refused(&(test_layer_spec){ .type = "SoftmaxWithLoss",
                                           .text = "loss_param { ignore_label: 1 }",
                                           .n_bottom = 2,
                                           .bottom = { TEST_SHAPE(2, 3), TEST_SHAPE(2, 3) } },
                       CT_ERR_CONFIG, "loss_param.ignore_label, but labels are distributions");
}

static void test_loss_weight(void **state)
{
    test_layer *t = make_loss(NULL, TEST_SHAPE(2, 3), TEST_SHAPE(2), 1);
    float once[6];

    (void)state;
    assert_int_equal(test_layer_forward(t) | test_layer_backward(t), CT_OK);
    for (int i = 0; i < 6; i++) once[i] = t->input_diff[0][i];
    t->top_diff[0][0] = 0.25f;
    assert_int_equal(test_layer_forward(t) | test_layer_backward(t), CT_OK);
    for (int i = 0; i < 6; i++) assert_true(t->input_diff[0][i] == 0.25f * once[i]);
    test_layer_destroy(t);
}

/* Certain and wrong: the probability underflows and the loss stops at -log(FLT_MIN). */
static void test_loss_is_finite(void **state)
{
    test_layer *t = make_loss(NULL, TEST_SHAPE(1, 2), TEST_SHAPE(1), 1);

    (void)state;
    t->input[0][0] = -1e4f;
    t->input[0][1] = 1e4f;
    t->input[1][0] = 0;
    assert_int_equal(test_layer_forward(t), CT_OK);
    assert_true(fabs((double)t->top[0][0] + log((double)FLT_MIN)) <= 0x1p-17);
    t->input[0][0] = NAN; /* not hidden by the limit: the solver must see that it diverged */
    assert_int_equal(test_layer_forward(t), CT_OK);
    assert_true(isnan(t->top[0][0]));
    test_layer_destroy(t);
}

static void test_all_ignored(void **state)
{
    test_layer *t =
        make_loss("loss_param { ignore_label: -1 }", TEST_SHAPE(3, 2), TEST_SHAPE(3), 1);

    (void)state;
    for (int i = 0; i < 3; i++) t->input[1][i] = -1;
    assert_int_equal(test_layer_forward(t) | test_layer_backward(t), CT_OK);
    assert_true(t->top[0][0] == 0.0f);
    for (int i = 0; i < 6; i++) assert_true(t->input_diff[0][i] == 0.0f);
    test_layer_destroy(t);
}

static void test_bad_labels(void **state)
{
    static const float bad[] = { -1, 3, 1.5f, NAN, INFINITY, 3e9f, -INFINITY, -0.5f };
    test_layer *t =
        make_loss("loss_param { ignore_label: 255 }", TEST_SHAPE(4, 3, 2), TEST_SHAPE(4, 2), 1);

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char value[32];
        const char *text;
        ct_status status;

        t->input[1][5] = bad[i];
        test_log_start();
        status = test_layer_forward(t);
        text = test_log_stop();
        assert_int_equal(status, CT_ERR_DATA);
        assert_int_equal(ct_status_exit_code(status), 3);
        snprintf(value, sizeof(value), "label %g of sample 2 ", (double)bad[i]);
        if ((strstr(text, value) == NULL) || (strstr(text, "3 classes") == NULL))
            fail_msg("not \"%s\": %s", value, text);
    }
    t->input[1][5] = 255;
    assert_int_equal(test_layer_forward(t), CT_OK);
    test_layer_destroy(t);
}

static void test_shapes_refused(void **state)
{
    test_layer_spec spec = { .type = "SoftmaxWithLoss",
                             .n_bottom = 2,
                             .bottom = { TEST_SHAPE(4, 3, 2), TEST_SHAPE(4, 3) } };

    (void)state;
    test_layer_refused(&spec, CT_ERR_SHAPE, "need 8 labels");
    spec.bottom[1] = TEST_SHAPE(2, 4);
    test_layer_refused(&spec, CT_ERR_SHAPE, "4 samples, labels of 2");
    spec.bottom[0] = TEST_SHAPE(4, 0, 2);
    test_layer_refused(&spec, CT_ERR_SHAPE, "no classes");
}

static void test_third_bottom(void **state)
{
    static const char *const type[] = { "SoftmaxWithLoss", "FocalLoss" };
    const ct_net_env env = { .n_rank = 1, .seed = 1 };

    (void)state;
    for (int i = 0; i < 2; i++) {
        char text[512], who[64];
        parsed_net f;

        snprintf(text, sizeof(text),
                 "layer { name: 'x' type: 'DummyData' top: 'x' top: 'y' top: 'w' "
                 "dummy_data_param { shape { dim: 4 dim: 3 } shape { dim: 4 } shape { dim: 4 } } } "
                 "layer { name: 'l' type: '%s' bottom: 'x' bottom: 'y' bottom: 'w' top: 'l' }",
                 type[i]);
        snprintf(who, sizeof(who), "layer \"l\" (%s)", type[i]);
        test_log_start();
        assert_int_equal(parsed_net_open(text, CT_TRAIN, &env, &f), CT_ERR_CONFIG);
        assert_non_null(strstr(test_log_stop(), who));
        parsed_net_close(&f);
    }
}

/* A batch of 7 over 3 pretended ranks: losses and gradients add up to the whole batch's. The labels
 * are such that the ranks ignore different numbers of them. */
static void check_ranks(const char *text, bool asks_ranks)
{
    enum { N = 7, SAMPLE = 6, P = 3 };
    test_layer *whole = make_loss(text, TEST_SHAPE(N, 3, 2), TEST_SHAPE(N, 2), 1);
    fake_ranks ranks = { .replay = false };
    double loss = 0;

    whole->input[1][0] = whole->input[1][1] = whole->input[1][2] =
        1; /* those that may be ignored */
    assert_int_equal(test_layer_forward(whole) | test_layer_backward(whole), CT_OK);
    for (int pass = 0; pass < 2; pass++) {
        ranks.replay = pass == 1;
        for (int r = 0; r < P; r++) {
            int64_t local, first;
            test_layer *t;

            fake_share(N, r, P, &local, &first);
            t = make_loss(text, TEST_SHAPE(local, 3, 2), TEST_SHAPE(local, 2), 1);
            memcpy(t->input[0], whole->input[0] + first * SAMPLE,
                   (size_t)(local * SAMPLE) * sizeof(float));
            memcpy(t->input[1], whole->input[1] + first * 2, (size_t)(local * 2) * sizeof(float));
            t->ex.batch_local = local;
            t->ex.batch_global = N;
            t->ex.batch_first = first;
            t->ex.sum_ranks = fake_sum_ranks;
            t->ex.hook_ctx = &ranks;
            ranks.call = 0;
            assert_int_equal(test_layer_forward(t) | test_layer_backward(t), CT_OK);
            for (int64_t i = 0; (pass == 1) && (i < local * SAMPLE); i++) {
                float expected = whole->input_diff[0][first * SAMPLE + i];

                assert_true(fabsf(t->input_diff[0][i] - expected) <= 0x1p-23f * fabsf(expected));
            }
            if (pass == 1) loss += (double)t->top[0][0];
            test_layer_destroy(t);
        }
    }
    assert_true(fabs(loss - (double)whole->top[0][0]) <= 4 * 0x1p-24 * fabs(loss));
    assert_int_equal(ranks.n_call, asks_ranks ? P : 0);
    test_layer_destroy(whole);
}

static void test_ranks(void **state)
{
    (void)state;
    check_ranks(NULL, false);
    check_ranks("loss_param { ignore_label: 1 }", true);
    check_ranks("loss_param { ignore_label: 1 normalization: FULL }", false);
    check_ranks("loss_param { normalization: BATCH_SIZE }", false);
    check_ranks("loss_param { ignore_label: 1 normalization: NONE }", false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_engines),        cmocka_unit_test(test_softmax),
        cmocka_unit_test(test_loss_gradients), cmocka_unit_test(test_soft_gradients),
        cmocka_unit_test(test_soft_is_hard),   cmocka_unit_test(test_soft_refused),
        cmocka_unit_test(test_loss_weight),    cmocka_unit_test(test_loss_is_finite),
        cmocka_unit_test(test_all_ignored),    cmocka_unit_test(test_bad_labels),
        cmocka_unit_test(test_shapes_refused), cmocka_unit_test(test_third_bottom),
        cmocka_unit_test(test_ranks),          cmocka_unit_test(test_streamed),
        cmocka_unit_test(test_streamed_loss),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
