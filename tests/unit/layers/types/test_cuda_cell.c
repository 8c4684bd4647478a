/* LSTM and RNN by cuDNN's recurrent layers, each beside our own steps on the CPU: odd sizes, states
 * carried, begun anew and exposed, parts of the gradients. Skips where no device works, or no
 * cuDNN. */
#include "tests/test.h"
#include "tests/cuda_case.h"
#include "tests/layer_harness.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define DNN "ct_kernel { forward: 'cudnn' backward_data: 'cudnn' backward_weight: 'cudnn' }"
#define FILLERS                                                                                    \
    "weight_filler { type: 'uniform' min: -0.5 max: 0.5 } bias_filler { type: 'uniform' min: "     \
    "-0.5 max: 0.5 }"

static void needs_cudnn(void)
{
    static const char net[] =
        "layer { name: 'in' type: 'DummyData' top: 'x' top: 'cont' dummy_data_param { shape { "
        "dim: 2 dim: 1 dim: 1 } shape { dim: 2 dim: 1 } data_filler { value: 1 } } }\n"
        "layer { name: 'r' type: 'RNN' bottom: 'x' bottom: 'cont' top: 'r' recurrent_param { "
        "num_output: 1 } " DNN " }\n";
    const ct_device *dev = test_cuda();
    log_capture log;

    if (test_cuda_net_try(net, dev, CT__SOLVER_PARAMETER__PRECISION__F32, &log) == CT_OK) return;
    print_message("skipped: no cuDNN\n");
    skip();
}

typedef struct shapes {
    int64_t steps, columns, inputs, hidden;
} shapes;

static test_layer *make(const char *type, shapes s, bool expose, const char *kernel,
                        const ct_device *dev)
{
    int n_state = (strcmp(type, "LSTM") == 0) ? 2 : 1;
    test_layer_spec spec = { .type = type, .n_bottom = 2, .restarts_first = true, .dev = dev };
    char text[512];

    snprintf(text, sizeof(text),
             "recurrent_param { num_output: %d expose_hidden: %s " FILLERS " } %s", (int)s.hidden,
             expose ? "true" : "false", kernel);
    spec.text = text;
    spec.bottom[0] = TEST_SHAPE(s.steps, s.columns, s.inputs);
    spec.bottom[1] = TEST_SHAPE(s.steps, s.columns);
    for (int i = 0; expose && (i < n_state); i++)
        spec.bottom[2 + i] = TEST_SHAPE(1, s.columns, s.hidden);
    if (expose) spec.n_bottom = 2 + n_state;
    spec.n_top = expose ? 1 + n_state : 1;
    return test_layer_make(&spec);
}

/* The same numbers on both sides; of cont's first row some are 0. */
static void fill(test_layer *t, int64_t columns, uint64_t pass)
{
    for (int i = 0; i < t->layer.n_bottom; i++)
        test_random(t->input[i], t->input_count[i], 10 * pass + (uint64_t)i, -1.0f, 1.0f);
    for (int i = 0; i < t->layer.n_top; i++)
        test_random(t->top_diff[i], t->top_count[i], 10 * pass + 5 + (uint64_t)i, -1.0f, 1.0f);
    for (int64_t i = 0; i < t->input_count[1]; i++)
        t->input[1][i] = ((i < columns) && ((i + (int64_t)pass) % 3 == 0)) ? 0.0f : 1.0f;
}

/* Where all states begin anew no gradient reaches them: zeros are the same zeros. */
static void is_near(int64_t n, const float *got, const float *want, double off, const char *what)
{
    double is = 0.0;
    bool zeros = true;

    for (int64_t i = 0; i < n; i++) zeros = zeros && (want[i] == 0.0f);
    if (zeros)
        test_same(got, want, n, what);
    else
        is = test_cuda_difference(n, got, want);

    if (!(is <= off)) fail_msg("%s: %g off, not within %g", what, is, off);
}

static void compare(const test_layer *its, const test_layer *ours, double off)
{
    for (int i = 0; i < ours->layer.n_top; i++)
        is_near(ours->top_count[i], its->top[i], ours->top[i], off, "top");
    for (int i = 0; i < ours->layer.n_bottom; i++) {
        if (ours->input_diff[i] != NULL)
            is_near(ours->input_count[i], its->input_diff[i], ours->input_diff[i], off,
                    "gradient of a bottom");
    }
    for (int i = 0; i < ours->layer.n_weight; i++)
        is_near(ours->weight_count[i], its->weight_diff[i], ours->weight_diff[i], off,
                "gradient of a weight");
}

/* Passes whose states go over to the next. Steps there and back, each a sum of so many products and
 * 12 roundings more in the functions, rounded to f32. */
static void check_layer(const char *type, shapes s, bool expose)
{
    const ct_device *dev = test_cuda();
    test_layer *its = make(type, s, expose, DNN, dev), *ours;
    double off = (double)(2 * s.steps * (s.inputs + s.hidden + 12)) * 0x1p-24;
    ct_estimate e = { .forward_flop = 0.0 };

    ours = make(type, s, expose, "", ct_device_cpu());
    its->layer.ops->estimate(&its->layer, &its->instance, &e);
    for (int k = 0; k < CT_N_RUN; k++) assert_string_equal(e.engine[k], "cudnn");
    for (int i = 0; i < ours->layer.n_weight; i++)
        memcpy(its->weight[i], ours->weight[i], (size_t)ours->weight_count[i] * sizeof(float));
    for (uint64_t pass = 0; pass < 3; pass++) {
        fill(its, s.columns, pass);
        fill(ours, s.columns, pass);
        test_layer_pass(its);
        test_layer_pass(ours);
        compare(its, ours, off);
    }
    test_layer_destroy(its);
    test_layer_destroy(ours);
}

static void layers_are_as_ours(void **state)
{
    static const char *const type[] = { "LSTM", "RNN" };

    (void)state;
    needs_cudnn();
    for (int i = 0; i < 2; i++) {
        for (int expose = 0; expose < 2; expose++) {
            check_layer(type[i], (shapes){ 5, 3, 6, 7 }, expose);
            check_layer(type[i], (shapes){ 4, 8, 16, 16 }, expose);
            check_layer(type[i], (shapes){ 2, 5, 3, 19 }, expose);
            check_layer(type[i], (shapes){ 7, 1, 1, 2 }, expose);
        }
        check_layer(type[i], (shapes){ 1, 2, 5, 3 }, true);
    }
}

/* A state that nobody goes on from may be no number. */
static void what_begins_anew_forgets(void **state)
{
    const shapes s = { 3, 2, 4, 5 };
    test_layer *t, *fresh;
    float carried[10];
    int n_carried = 0;

    (void)state;
    needs_cudnn();
    t = make("LSTM", s, false, DNN, test_cuda());
    fresh = make("LSTM", s, false, DNN, test_cuda());
    for (int i = 0; i < 10; i++) carried[i] = NAN;
    for (int i = 0; i < CT_MAX_BUFFER; i++) {
        const ct_buffer *b = &t->instance.buffer[i];

        if (b->row == 0) continue;
        n_carried++;
        assert_int_equal(b->bytes, sizeof(carried));
        assert_int_equal(t->layer.dev->from_host(NULL, b->data, carried, sizeof(carried)), CT_OK);
    }
    assert_int_equal(n_carried, 2);
    fill(t, s.columns, 0);
    fill(fresh, s.columns, 0);
    t->input[1][0] = t->input[1][1] = fresh->input[1][0] = fresh->input[1][1] = 0.0f;
    test_layer_pass(t);
    test_layer_pass(fresh);
    test_same(t->top[0], fresh->top[0], t->top_count[0], "y");
    test_same(t->input_diff[0], fresh->input_diff[0], t->input_count[0], "dx");
    for (int i = 0; i < t->layer.n_weight; i++)
        test_same(t->weight_diff[i], fresh->weight_diff[i], t->weight_count[i], "a weight's");
    test_layer_destroy(t);
    test_layer_destroy(fresh);
}

/* Gradients that are not wanted, or come to the last state alone. */
static void check_part(test_layer_spec *s, const char *kernel, const ct_device *dev,
                       test_layer **t_p)
{
    char text[512];

    snprintf(text, sizeof(text),
             "recurrent_param { num_output: 6 expose_hidden: true " FILLERS " } %s", kernel);
    s->text = text;
    s->dev = dev;
    *t_p = test_layer_make(s);
    fill(*t_p, 2, 1);
    if (s->forward_only)
        assert_int_equal(test_layer_forward(*t_p), CT_OK);
    else
        test_layer_pass(*t_p);
}

static void parts_of_gradients(void **state)
{
    test_layer_spec spec = { .type = "LSTM",
                             .n_bottom = 4,
                             .n_top = 3,
                             .restarts_first = true,
                             .bottom = { TEST_SHAPE(3, 2, 2), TEST_SHAPE(3, 2), TEST_SHAPE(1, 2, 6),
                                         TEST_SHAPE(1, 2, 6) } };
    const double off = 2 * 3 * (2 + 6 + 12) * 0x1p-24;
    test_layer *its, *ours;

    (void)state;
    needs_cudnn();
    for (int k = 0; k < 3; k++) {
        test_layer_spec s = spec;

        s.no_top_diff[0] = s.no_top_diff[2] = (k == 0);
        s.no_top_diff[1] = (k == 1);
        s.no_propagate[0] = s.no_propagate[3] = (k == 1);
        s.forward_only = (k == 2);
        check_part(&s, DNN, test_cuda(), &its);
        check_part(&s, "", ct_device_cpu(), &ours);
        for (int i = 0; i < 3; i++)
            is_near(ours->top_count[i], its->top[i], ours->top[i], off, "y");
        for (int i = 0; (k < 2) && (i < 4); i++) {
            if (ours->input_diff[i] != NULL)
                is_near(ours->input_count[i], its->input_diff[i], ours->input_diff[i], off, "dx");
        }
        test_layer_destroy(its);
        test_layer_destroy(ours);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_are_as_ours),
        cmocka_unit_test(what_begins_anew_forgets),
        cmocka_unit_test(parts_of_gradients),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
