/* LSTM and RNN: against PyTorch over two batches with a carried state and restarts inside, numeric
 * gradients in every shape the bottoms can have, and the messages.
 *
 * Tolerance of the comparison: values below 8; 5 steps of at most 20 products of floats and some
 * 10 roundings each in the functions, gradients pass them twice: 2 * 5 * 32 roundings of 2^-24,
 * of values up to 8 after the sums. */
#include "tests/test.h"
#include "tests/golden/recurrent_golden.h"
#include "tests/layer_harness.h"

#include <math.h>
#include <string.h>

static const double tolerance = 2 * 5 * 32 * 0x1p-24;

enum { T = GOLDEN_T, N = GOLDEN_N, D = GOLDEN_D, S = GOLDEN_S, H = GOLDEN_H };

#define COUNT(_a) ((int64_t)(sizeof(_a) / sizeof((_a)[0])))
#define GOLDEN(_a)                                                                                 \
    {                                                                                              \
        _a, COUNT(_a)                                                                              \
    }
#define TEXT(_more)                                                                                \
    "recurrent_param { num_output: 6 " _more " weight_filler { type: \"uniform\" "                 \
    "min: -0.5 max: 0.5 } bias_filler { type: \"uniform\" min: -0.5 max: 0.5 } }"

typedef struct golden {
    const double *v;
    int64_t n;
} golden;

typedef struct batch {
    golden x, fixed, cont, dy, y, dx, dfixed, dw[6];
} batch;

typedef struct recurrence {
    const char *type;
    int n_weight;
    golden w[6];
    batch batch[2];
} recurrence;

#define BATCH(_p, ...)                                                                             \
    {                                                                                              \
        GOLDEN(_p##_x), GOLDEN(_p##_static), GOLDEN(_p##_cont), GOLDEN(_p##_dy), GOLDEN(_p##_y),   \
            GOLDEN(_p##_dx), GOLDEN(_p##_dstatic),                                                 \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

static const recurrence lstm = {
    "LSTM",
    4,
    { GOLDEN(lstm_wx), GOLDEN(lstm_b), GOLDEN(lstm_ws), GOLDEN(lstm_wh) },
    { BATCH(lstm0, GOLDEN(lstm0_dwx), GOLDEN(lstm0_db), GOLDEN(lstm0_dws), GOLDEN(lstm0_dwh)),
      BATCH(lstm1, GOLDEN(lstm1_dwx), GOLDEN(lstm1_db), GOLDEN(lstm1_dws), GOLDEN(lstm1_dwh)) }
};
static const recurrence rnn = { "RNN",
                                6,
                                { GOLDEN(rnn_wx), GOLDEN(rnn_b), GOLDEN(rnn_ws), GOLDEN(rnn_wh),
                                  GOLDEN(rnn_wo), GOLDEN(rnn_bo) },
                                { BATCH(rnn0, GOLDEN(rnn0_dwx), GOLDEN(rnn0_db), GOLDEN(rnn0_dws),
                                        GOLDEN(rnn0_dwh), GOLDEN(rnn0_dwo), GOLDEN(rnn0_dbo)),
                                  BATCH(rnn1, GOLDEN(rnn1_dwx), GOLDEN(rnn1_db), GOLDEN(rnn1_dws),
                                        GOLDEN(rnn1_dwh), GOLDEN(rnn1_dwo), GOLDEN(rnn1_dbo)) } };

static void set(float *to, int64_t n, const golden *from)
{
    assert_int_equal(n, from->n);
    for (int64_t i = 0; i < n; i++) to[i] = (float)from->v[i];
}

static void near(const test_layer *t, test_side side, const float *a, int64_t n, const golden *b,
                 const char *what)
{
    assert_int_equal(n, b->n);
    test_near_golden(t, side, a, b->v, n, tolerance, what);
}

static void run_batch(test_layer *t, const recurrence *r, const batch *b)
{
    set(t->input[0], t->input_count[0], &b->x);
    set(t->input[1], t->input_count[1], &b->cont);
    set(t->input[2], t->input_count[2], &b->fixed);
    set(t->top_diff[0], t->top_count[0], &b->dy);
    assert_int_equal(test_layer_forward(t), CT_OK);
    near(t, TEST_FORWARD, t->top[0], t->top_count[0], &b->y, "y");
    assert_int_equal(test_layer_backward(t), CT_OK);
    near(t, TEST_BACKWARD, t->input_diff[0], t->input_count[0], &b->dx, "dx");
    near(t, TEST_BACKWARD, t->input_diff[2], t->input_count[2], &b->dfixed,
         "dx of the static input");
    for (int i = 0; i < r->n_weight; i++)
        near(t, TEST_BACKWARD, t->weight_diff[i], t->weight_count[i], &b->dw[i],
             "a weight's gradient");
}

static void check_golden(const recurrence *r)
{
    test_layer_spec spec = { .type = r->type,
                             .text = TEXT(""),
                             .n_bottom = 3,
                             .bottom = { TEST_SHAPE(T, N, D), TEST_SHAPE(T, N),
                                         TEST_SHAPE(N, S) } };
    test_layer *t = test_layer_make(&spec);

    assert_int_equal(t->layer.n_weight, r->n_weight);
    for (int i = 0; i < r->n_weight; i++) set(t->weight[i], t->weight_count[i], &r->w[i]);
    run_batch(t, r, &r->batch[0]);
    run_batch(t, r, &r->batch[1]);
    test_layer_destroy(t);
}

static void test_golden(void **state)
{
    (void)state;
    check_golden(&lstm);
    check_golden(&rnn);
}

/* The shapes that .caffemodel files of Caffe's layers have. */
static void test_weights(void **state)
{
    static const int64_t rows[] = { 24, 24, 24, 24, 6, 6, 6, 6, 6, 6 };
    static const int64_t columns[] = { 10, 0, 7, 6, 10, 0, 7, 6, 6, 0 };
    int at = 0;

    (void)state;
    for (int rn = 0; rn < 2; rn++) {
        test_layer_spec spec = { .type = rn ? "RNN" : "LSTM",
                                 .text = TEXT(""),
                                 .n_bottom = 3,
                                 .bottom = { TEST_SHAPE(2, 3, 5, 2), TEST_SHAPE(2, 3),
                                             TEST_SHAPE(3, 7) } };
        test_layer *t = test_layer_make(&spec);

        assert_int_equal(t->layer.n_weight, rn ? 6 : 4);
        for (int i = 0; i < t->layer.n_weight; i++, at++) {
            const ct_shape *s = &t->layer.weight[i].shape;

            assert_int_equal(s->ndim, (columns[at] > 0) ? 2 : 1);
            assert_int_equal(s->dim[0], rows[at]);
            if (columns[at] > 0) assert_int_equal(s->dim[1], columns[at]);
        }
        test_layer_destroy(t);
    }
}

/* restart: every column starts in the first step, else only some do (the state is then exposed, so
 * that one forward does not change the next). */
static void set_cont(test_layer *t, bool restart)
{
    int64_t columns = t->instance.bottom[1]->data.shape.dim[1];

    for (int64_t i = 0; i < t->input_count[1]; i++) t->input[1][i] = (i % 4 == 2) ? 0.0f : 1.0f;
    for (int64_t i = 0; restart && (i < columns); i++) t->input[1][i] = 0.0f;
}

static void check_gradient(const test_layer_spec *spec, bool restart)
{
    test_layer *t = test_layer_make(spec);

    set_cont(t, restart);
    /* what goes on may be weighed, too */
    for (int64_t i = 0; i < t->input_count[1]; i++)
        if ((t->input[1][i] > 0) && (i % 3 == 0)) t->input[1][i] = 0.5f;
    test_layer_gradient(t, &(test_gradient){ .roundings = 64, .max_element = 120 });
    test_layer_destroy(t);
}

static void test_gradients(void **state)
{
    static const char *const type[] = { "LSTM", "RNN" };

    (void)state;
    for (int i = 0; i < 2; i++) {
        int n_state = 2 - i;
        test_layer_spec s = { .type = type[i], .text = TEXT(""), .n_bottom = 2 };

        s.bottom[0] = TEST_SHAPE(4, 3, 5);
        s.bottom[1] = TEST_SHAPE(4, 3);
        check_gradient(&s, true);
        s.no_propagate[0] = true;
        check_gradient(&s, true);
        s.no_propagate[0] = false;
        s.bottom[0] = TEST_SHAPE(1, 1, 1, 2);
        s.bottom[1] = TEST_SHAPE(1, 1);
        check_gradient(&s, true);
        s.bottom[0] = TEST_SHAPE(3, 2, 2);
        s.bottom[1] = TEST_SHAPE(3, 2);
        s.n_bottom = 3;
        s.bottom[2] = TEST_SHAPE(2, 3, 2);
        check_gradient(&s, true);
        s.text = TEXT("expose_hidden: true");
        s.n_top = 1 + n_state;
        for (int fixed = 0; fixed < 2; fixed++) { /* without and with a static input */
            s.n_bottom = 2 + fixed + n_state;
            for (int k = 0; k < n_state; k++) s.bottom[2 + fixed + k] = TEST_SHAPE(1, 2, 6);
            check_gradient(&s, false);
            s.bottom[2] = TEST_SHAPE(2, 3);
        }
    }
}

/* Where only the last state's reader asks for gradients, the outputs' are zero. */
static void test_null_diff(void **state)
{
    test_layer_spec s = { .type = "LSTM",
                          .text = TEXT("expose_hidden: true"),
                          .n_bottom = 4,
                          .n_top = 3,
                          .bottom = { TEST_SHAPE(3, 2, 2), TEST_SHAPE(3, 2), TEST_SHAPE(1, 2, 6),
                                      TEST_SHAPE(1, 2, 6) },
                          .no_top_diff = { true, false, true } };
    test_layer *t = test_layer_make(&s), *all;

    (void)state;
    s.no_top_diff[0] = s.no_top_diff[2] = false;
    all = test_layer_make(&s);
    set_cont(t, false);
    set_cont(all, false);
    for (int64_t i = 0; i < 12; i++) t->top_diff[1][i] = all->top_diff[1][i] = (float)i - 5.0f;
    for (int i = 0; i < 2; i++) {
        test_layer *one = (i == 0) ? t : all;

        test_layer_pass(one);
    }
    test_same(t->input_diff[0], all->input_diff[0], t->input_count[0], "dx");
    test_same(t->input_diff[3], all->input_diff[3], t->input_count[3], "dc");
    test_layer_destroy(t);
    test_layer_destroy(all);
}

/* A weight diff that is there already is added to. */
static void test_adds(void **state)
{
    static const char *const type[] = { "LSTM", "RNN" };

    (void)state;
    for (int k = 0; k < 2; k++) {
        test_layer_spec s = { .type = type[k],
                              .text = TEXT(""),
                              .n_bottom = 2,
                              .bottom = { TEST_SHAPE(3, 2, 2), TEST_SHAPE(3, 2) } };
        test_layer *fresh = test_layer_make(&s), *adds;

        for (int i = 0; i < CT_MAX_WEIGHT; i++) s.add_weight_diff[i] = true;
        adds = test_layer_make(&s);
        set_cont(fresh, true);
        set_cont(adds, true);
        for (int i = 0; i < 2; i++) {
            test_layer *t = (i == 0) ? fresh : adds;

            for (int64_t e = 0; e < t->top_count[0]; e++) t->top_diff[0][e] = (float)(e % 5) - 2;
            for (int w = 0; w < t->layer.n_weight; w++)
                for (int64_t e = 0; e < t->weight_count[w]; e++) t->weight_diff[w][e] = 8.0f;
            test_layer_pass(t);
        }
        for (int w = 0; w < fresh->layer.n_weight; w++)
            for (int64_t e = 0; e < fresh->weight_count[w]; e++)
                assert_true(fabsf(adds->weight_diff[w][e] - 8.0f - fresh->weight_diff[w][e]) <=
                            64 * 0x1p-20f); /* sums up to 16 */
        test_layer_destroy(fresh);
        test_layer_destroy(adds);
    }
}

/* cont 0 forgets even what is not a number. */
static void test_restart(void **state)
{
    test_layer_spec s = { .type = "LSTM",
                          .text = TEXT(""),
                          .n_bottom = 2,
                          .bottom = { TEST_SHAPE(2, 2, 3), TEST_SHAPE(2, 2) } };
    test_layer *t = test_layer_make(&s), *fresh = test_layer_make(&s);
    float carried[12];

    (void)state;
    for (int i = 0; i < 12; i++) carried[i] = NAN;
    for (int k = 0; k < 2; k++) {
        assert_int_equal(t->instance.buffer[3 + k].row, 6);
        assert_int_equal(
            t->layer.dev->from_host(NULL, t->instance.buffer[3 + k].data, carried, sizeof(carried)),
            CT_OK);
        if (t->twin != NULL) /* beside it on the CPU */
            memcpy(t->twin->instance.buffer[3 + k].data, carried, sizeof(carried));
    }
    set_cont(t, true);
    set_cont(fresh, true);
    for (int64_t i = 0; i < t->top_count[0]; i++) t->top_diff[0][i] = fresh->top_diff[0][i] = 1.0f;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(test_layer_forward((i == 0) ? t : fresh), CT_OK);
        assert_int_equal(test_layer_backward((i == 0) ? t : fresh), CT_OK);
    }
    test_same(t->top[0], fresh->top[0], t->top_count[0], "y");
    test_same(t->input_diff[0], fresh->input_diff[0], t->input_count[0], "dx");
    test_same(t->weight_diff[2], fresh->weight_diff[2], t->weight_count[2], "dW_hc");
    test_layer_destroy(t);
    test_layer_destroy(fresh);
}

static void test_refused(void **state)
{
    test_layer_spec s = { .type = "LSTM",
                          .text = TEXT(""),
                          .n_bottom = 2,
                          .bottom = { TEST_SHAPE(4, 3, 5), TEST_SHAPE(4, 3) } };

    (void)state;
    s.text = NULL;
    test_layer_refused(&s, CT_ERR_CONFIG, "recurrent_param.num_output is missing or 0");
    s.text = TEXT("");
    s.bottom[0] = TEST_SHAPE(4, 3);
    test_layer_refused(&s, CT_ERR_SHAPE, "steps x columns x inputs");
    s.bottom[0] = TEST_SHAPE(4, 3, 0);
    test_layer_refused(&s, CT_ERR_SHAPE, "no inputs");
    s.bottom[0] = TEST_SHAPE(0, 3, 2);
    s.bottom[1] = TEST_SHAPE(0, 3);
    test_layer_refused(&s, CT_ERR_SHAPE, "has no steps");
    s.bottom[0] = TEST_SHAPE(4, 3, 5);
    s.bottom[1] = TEST_SHAPE(3, 4);
    test_layer_refused(&s, CT_ERR_SHAPE, "needs 4 x 3");
    s.bottom[1] = TEST_SHAPE(4, 3);
    s.n_bottom = 4;
    s.bottom[2] = s.bottom[3] = TEST_SHAPE(1, 3, 6);
    test_layer_refused(&s, CT_ERR_CONFIG, "4 bottoms");
    s.text = TEXT("expose_hidden: true");
    test_layer_refused(&s, CT_ERR_CONFIG, "1 tops instead of 3");
    s.n_top = 3;
    s.bottom[3] = TEST_SHAPE(1, 3, 7);
    test_layer_refused(&s, CT_ERR_SHAPE, "bottom 3 (the state)");
    s.n_bottom = 3;
    test_layer_refused(&s, CT_ERR_CONFIG, "3 bottoms");
    s.text = TEXT("");
    s.n_top = 1;
    s.bottom[2] = TEST_SHAPE(2, 5);
    test_layer_refused(&s, CT_ERR_SHAPE, "bottom 2 (static)");
    s.bottom[2] = TEST_SHAPE(3);
    test_layer_refused(&s, CT_ERR_SHAPE, "static input, has shape");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),    cmocka_unit_test(test_weights),
        cmocka_unit_test(test_gradients), cmocka_unit_test(test_null_diff),
        cmocka_unit_test(test_adds),      cmocka_unit_test(test_restart),
        cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
