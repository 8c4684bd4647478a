/* EuclideanLoss, L1Loss and Accuracy: values, gradients, labels, ranks. */
#include "tests/test.h"
#include "tests/fake_ranks.h"
#include "tests/layer_harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static test_layer *make(const char *type, const char *text, ct_shape a, ct_shape b, int n_top)
{
    test_layer_spec spec = {
        .type = type, .text = text, .n_bottom = 2, .n_top = n_top, .bottom = { a, b }
    };
    test_layer *t;

    assert_int_equal(test_layer_create(&spec, &t), CT_OK);
    return t;
}

static void be_rank(test_layer *t, fake_ranks *ranks, int64_t first, int64_t global)
{
    t->ex.batch_global = global;
    t->ex.batch_first = first;
    t->ex.sum_ranks = fake_sum_ranks;
    t->ex.hook_ctx = ranks;
    ranks->call = 0;
}

static void check_euclidean(ct_shape a, ct_shape b, int max_element)
{
    test_layer *t = make("EuclideanLoss", NULL, a, b, 1);
    double sum = 0;

    assert_int_equal(test_layer_forward(t), CT_OK);
    assert_int_equal(t->top_shape[0].ndim, 0);
    for (int64_t i = 0; i < t->input_count[0]; i++)
        sum += pow((double)t->input[0][i] - (double)t->input[1][i], 2);
    sum /= 2 * (double)a.dim[0];
    assert_true(fabs((double)t->top[0][0] - sum) <= 0x1p-23 * sum);
    test_layer_gradient(t, &(test_gradient){ .max_element = max_element });
    test_layer_destroy(t);
}

static void test_euclidean(void **state)
{
    test_layer_spec spec = { .type = "EuclideanLoss",
                             .n_bottom = 2,
                             .bottom = { TEST_SHAPE(3, 4), TEST_SHAPE(3, 4) },
                             .no_propagate = { true, false } };
    test_layer *t;

    (void)state;
    check_euclidean(TEST_SHAPE(5, 3, 2), TEST_SHAPE(5, 3, 2), 50);
    check_euclidean(TEST_SHAPE(3), TEST_SHAPE(3), 50);
    check_euclidean(TEST_SHAPE(2, 6), TEST_SHAPE(2, 3, 2), 50);
    check_euclidean(TEST_SHAPE(9, 1111), TEST_SHAPE(9, 1111),
                    5); /* over the threshold of threads */
    assert_int_equal(test_layer_create(&spec, &t), CT_OK);
    test_layer_gradient(t, NULL); /* only the second bottom */
    assert_null(t->input_diff[0]);
    test_layer_destroy(t);
    spec.bottom[1] = TEST_SHAPE(4, 3);
    test_layer_refused(&spec, CT_ERR_SHAPE, "do not match");
    spec.bottom[1] = TEST_SHAPE(3, 5);
    test_layer_refused(&spec, CT_ERR_SHAPE, "3 5 (15)");
}

static void test_euclidean_ranks(void **state)
{
    test_layer *whole = make("EuclideanLoss", NULL, TEST_SHAPE(7, 5), TEST_SHAPE(7, 5), 1);
    double loss = 0;

    (void)state;
    assert_int_equal(test_layer_forward(whole) | test_layer_backward(whole), CT_OK);
    for (int r = 0; r < 3; r++) {
        fake_ranks ranks = { .replay = true };
        int64_t local, first;
        test_layer *t;

        fake_share(7, r, 3, &local, &first);
        t = make("EuclideanLoss", NULL, TEST_SHAPE(local, 5), TEST_SHAPE(local, 5), 1);
        for (int k = 0; k < 2; k++)
            memcpy(t->input[k], whole->input[k] + 5 * first, (size_t)(5 * local) * sizeof(float));
        be_rank(t, &ranks, first, 7);
        assert_int_equal(test_layer_forward(t) | test_layer_backward(t), CT_OK);
        for (int k = 0; k < 2; k++)
            test_same(t->input_diff[k], whole->input_diff[k] + 5 * first, 5 * local, "gradient");
        loss += (double)t->top[0][0];
        test_layer_destroy(t);
    }
    assert_true(fabs(loss - (double)whole->top[0][0]) <= 4 * 0x1p-24 * loss);
    test_layer_destroy(whole);
}

/* NVIDIA's definition: sum of |a - b| over N, gradient sign(a - b) / N, 0 where they are equal. */
static void test_l1(void **state)
{
    test_layer *t = make("L1Loss", NULL, TEST_SHAPE(4, 3), TEST_SHAPE(4, 3), 1);
    double sum = 0;

    (void)state;
    t->input[1][5] = t->input[0][5];
    assert_int_equal(test_layer_forward(t), CT_OK);
    assert_int_equal(t->top_shape[0].ndim, 0);
    for (int i = 0; i < 12; i++) sum += fabs((double)t->input[0][i] - (double)t->input[1][i]) / 4;
    assert_true(fabs((double)t->top[0][0] - sum) <= 0x1p-23 * sum);
    t->top_diff[0][0] = 2;
    assert_int_equal(test_layer_backward(t), CT_OK);
    for (int i = 0; i < 12; i++) {
        float d = t->input[0][i] - t->input[1][i], want = (d > 0) ? 0.5f : (d < 0) ? -0.5f : 0.0f;

        assert_true(t->input_diff[0][i] == want);
        assert_true(t->input_diff[1][i] == -want);
    }
    assert_true(t->input_diff[0][5] == 0.0f);
    test_layer_destroy(t);
}

/* Scores whose order is known: sample i ranks class c in place (c + i) % 4. */
static test_layer *make_accuracy(const char *text, int n_top)
{
    test_layer *t = make("Accuracy", text, TEST_SHAPE(6, 4), TEST_SHAPE(6), n_top);
    static const float label[6] = { 0, 3, 1, 1, 0, 2 }; /* places 0, 0, 3, 0, 0, 3 */

    for (int i = 0; i < 6; i++) {
        t->input[1][i] = label[i];
        for (int c = 0; c < 4; c++) t->input[0][4 * i + c] = -(float)((c + i) % 4);
    }
    return t;
}

static void check_accuracy(const char *text, double expected)
{
    test_layer *t = make_accuracy(text, 1);

    assert_int_equal(test_layer_forward(t), CT_OK);
    assert_int_equal(t->top_shape[0].ndim, 0);
    assert_true(t->top[0][0] == (float)expected);
    test_layer_destroy(t);
}

static void test_accuracy(void **state)
{
    test_layer *t;

    (void)state;
    check_accuracy(NULL, 4.0 / 6);
    check_accuracy("accuracy_param { top_k: 3 }", 4.0 / 6);
    check_accuracy("accuracy_param { top_k: 4 }", 1);
    check_accuracy("accuracy_param { ignore_label: 1 }", 3.0 / 4);
    t = make_accuracy(NULL, 2);
    assert_int_equal(test_layer_forward(t), CT_OK);
    assert_true((t->top_shape[1].ndim == 1) && (t->top_shape[1].dim[0] == 4));
    assert_true((t->top[1][0] == 1.0f) && (t->top[1][1] == 0.5f)); /* labels 0 0, 1 1, 2, 3 */
    assert_true((t->top[1][2] == 0.0f) && (t->top[1][3] == 1.0f));
    test_layer_destroy(t);
}

/* (2, 3, 2) with axis 1: four distributions over three classes */
static void test_accuracy_axis(void **state)
{
    static const float score[12] = { 1, 9, 5, 2, 3, 4, 7, 7, 8, 1, 9, 2 };
    static const float label[4] = { 1, 0, 2, 1 }; /* columns 1 5 3, 9 2 4, 7 8 9, 7 1 2 */
    test_layer *t = make("Accuracy", NULL, TEST_SHAPE(2, 3, 2), TEST_SHAPE(2, 1, 2), 1);

    (void)state;
    memcpy(t->input[0], score, sizeof(score));
    memcpy(t->input[1], label, sizeof(label));
    assert_int_equal(test_layer_forward(t), CT_OK);
    assert_true(t->top[0][0] == 0.75f);
    test_layer_destroy(t);
    t = make("Accuracy", "accuracy_param { axis: -1 }", TEST_SHAPE(2, 2, 3), TEST_SHAPE(2, 2), 1);
    memcpy(t->input[0], score, sizeof(score)); /* rows 1 9 5, 2 3 4, 7 7 8, 1 9 2 */
    memcpy(t->input[1], label, sizeof(label));
    assert_int_equal(test_layer_forward(t), CT_OK);
    assert_true(t->top[0][0] == 0.75f);
    test_layer_destroy(t);
}

/* As in Caffe, a class with the same score counts as ahead of the label. So does NaN. */
static void test_accuracy_ties(void **state)
{
    test_layer *t = make("Accuracy", NULL, TEST_SHAPE(1, 3), TEST_SHAPE(1), 1);
    static const float score[3][3] = { { 1, 1, 0 }, { NAN, 1, 0 }, { 1, 2, NAN } };

    (void)state;
    t->input[1][0] = 1;
    for (int i = 0; i < 3; i++) {
        memcpy(t->input[0], score[i], sizeof(score[i]));
        assert_int_equal(test_layer_forward(t), CT_OK);
        assert_true(t->top[0][0] == 0.0f);
    }
    t->input[1][0] = 0;
    memcpy(t->input[0], score[1], sizeof(score[1])); /* the label's own score is NaN */
    assert_int_equal(test_layer_forward(t), CT_OK);
    assert_true(t->top[0][0] == 0.0f);
    test_layer_destroy(t);
}

static void check_accuracy_ranks(const char *text)
{
    test_layer *whole = make_accuracy(text, 2);
    fake_ranks ranks = { .replay = false };
    double sum[5] = { 0 };

    assert_int_equal(test_layer_forward(whole), CT_OK);
    for (int pass = 0; pass < 2; pass++) {
        ranks.replay = pass == 1;
        for (int r = 0; r < 4; r++) {
            int64_t local, first;
            test_layer *t;

            fake_share(6, r, 4, &local, &first);
            t = make("Accuracy", text, TEST_SHAPE(local, 4), TEST_SHAPE(local), 2);
            memcpy(t->input[0], whole->input[0] + 4 * first, (size_t)(4 * local) * sizeof(float));
            memcpy(t->input[1], whole->input[1] + first, (size_t)local * sizeof(float));
            be_rank(t, &ranks, first, 6);
            assert_int_equal(test_layer_forward(t), CT_OK);
            for (int c = 0; (pass == 1) && (c < 5); c++)
                sum[c] += (double)((c == 0) ? t->top[0][0] : t->top[1][c - 1]);
            test_layer_destroy(t);
        }
    }
    assert_true(fabs(sum[0] - (double)whole->top[0][0]) <= 4 * 0x1p-24);
    for (int c = 0; c < 4; c++)
        assert_true(fabs(sum[c + 1] - (double)whole->top[1][c]) <= 4 * 0x1p-24);
    test_layer_destroy(whole);
}

static void test_accuracy_ranks(void **state)
{
    (void)state;
    check_accuracy_ranks(NULL);
    check_accuracy_ranks("accuracy_param { ignore_label: 1 }");
}

/* As is_right() says it: how many of a position's other scores are not below the label's. */
static bool is_among(const test_layer *t, int64_t mid, int64_t inner, int64_t k, int top_k)
{
    const float *from = t->input[0] + k / inner * mid * inner + k % inner;
    int64_t label = (int64_t)t->input[1][k];
    int ahead = 0;

    for (int64_t c = 0; c < mid; c++)
        ahead += (c != label) && !(from[c * inner] < from[label * inner]);
    return ahead < top_k;
}

/* Class by class beside plain counts: more classes and more samples than any block of a device has
 * threads, and positions that are neighbours. */
static void check_classes(int64_t outer, int64_t mid, int64_t inner, const char *text, int top_k,
                          int ignored)
{
    ct_shape labels = (inner > 1) ? TEST_SHAPE(outer, inner) : TEST_SHAPE(outer);
    test_layer *t = make("Accuracy", text, TEST_SHAPE(outer, mid, inner), labels, 2);
    double *right = calloc((size_t)mid, sizeof(*right)), *of = calloc((size_t)mid, sizeof(*of));
    double all = 0, hits = 0;

    assert_true((right != NULL) && (of != NULL));
    test_random(t->input[0], t->input_count[0], 3, -1, 1);
    for (int64_t k = 0; k < outer * inner; k++) {
        int64_t label = (k % 3 == 0) ? mid - 1 : (k * 7 + k / 5) % mid;
        float *mine = t->input[0] + k / inner * mid * inner + k % inner + label * inner;

        t->input[1][k] = (float)label;
        if (k % 2 == 0) *mine = 1.5f; /* at random hardly one is right of many classes */
        if (label == ignored) continue;
        all += 1;
        of[label] += 1;
        hits += is_among(t, mid, inner, k, top_k);
        right[label] += is_among(t, mid, inner, k, top_k);
    }
    assert_int_equal(test_layer_forward(t), CT_OK);
    assert_true((hits > 0) && (hits < all));
    assert_true(t->top[0][0] == (float)(hits / all));
    for (int64_t c = 0; c < mid; c++)
        assert_true(t->top[1][c] == ((of[c] > 0) ? (float)(right[c] / of[c]) : 0.0f));
    free(right);
    free(of);
    test_layer_destroy(t);
}

static void test_accuracy_of_classes(void **state)
{
    (void)state;
    check_classes(300, 1500, 1, "accuracy_param { top_k: 3 }", 3, -1);
    check_classes(2100, 33, 1, NULL, 1, -1);
    check_classes(1, 2, 700, "accuracy_param { ignore_label: 1 }", 1, 1);
    check_classes(40, 7, 33, "accuracy_param { top_k: 2 ignore_label: 5 }", 2, 5);
    check_classes(3, 1100, 5, NULL, 1, -1);
}

static void test_accuracy_refused(void **state)
{
    test_layer_spec spec = { .type = "Accuracy",
                             .text = "accuracy_param { top_k: 5 }",
                             .n_bottom = 2,
                             .bottom = { TEST_SHAPE(6, 4), TEST_SHAPE(6) } };
    test_layer *t;
    const char *text;

    (void)state;
    test_layer_refused(&spec, CT_ERR_CONFIG, "top_k 5 of 4 classes");
    spec.text = "accuracy_param { top_k: 0 }";
    test_layer_refused(&spec, CT_ERR_CONFIG, "top_k is 0");
    spec.text = NULL;
    spec.bottom[1] = TEST_SHAPE(5);
    test_layer_refused(&spec, CT_ERR_SHAPE, "need 6 labels");
    t = make_accuracy(NULL, 1);
    t->input[1][3] = 4;
    t->ex.micro_step = 8;
    t->ex.batch_first = 30;
    test_log_start();
    assert_int_equal(test_layer_forward(t), CT_ERR_DATA);
    text = test_log_stop();
    if (strstr(text, "label 4 of sample 33 of batch 8 is not a whole number in 0..3: there are 4 "
                     "classes") == NULL)
        fail_msg("%s", text);
    test_layer_destroy(t);
}

/* Of a distribution the most probable class is the label, the first of equal ones. */
static void test_soft_labels(void **state)
{
    static const float score[12] = { 1, 2, 3, 3, 2, 1, 1, 3, 2, 9, 8, 7 };
    static const float label[12] = {
        0, 0.4f, 0.6f, 0.5f, 0.5f, 0, 0.9f, 0.1f, 0, 0.2f, 0.4f, 0.4f
    };
    test_layer *t = make("Accuracy", NULL, TEST_SHAPE(4, 3), TEST_SHAPE(4, 3), 2);

    (void)state;
    for (int i = 0; i < 12; i++) {
        t->input[0][i] = score[i];
        t->input[1][i] = label[i];
    }
    assert_int_equal(test_layer_forward(t), CT_OK);
    assert_true(t->top[0][0] == 0.5f); /* labels 2, 0, 0, 1; scores say 2, 0, 1, 0 */
    assert_true((t->top[1][0] == 0.5f) && (t->top[1][1] == 0) && (t->top[1][2] == 1));
    test_layer_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_soft_labels),
        cmocka_unit_test(test_euclidean),
        cmocka_unit_test(test_l1),
        cmocka_unit_test(test_euclidean_ranks),
        cmocka_unit_test(test_accuracy),
        cmocka_unit_test(test_accuracy_axis),
        cmocka_unit_test(test_accuracy_ties),
        cmocka_unit_test(test_accuracy_ranks),
        cmocka_unit_test(test_accuracy_refused),
        cmocka_unit_test(test_accuracy_of_classes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
