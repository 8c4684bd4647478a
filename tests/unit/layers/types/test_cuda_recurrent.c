/* LSTM and RNN on the device by its library's products, of all steps and of each: as on the CPU,
 * which ones a plan asks for, and what stays with BLAS. Skips where no device works. */
#include "tests/test.h"
#include "tests/cuda_case.h"
#include "tests/layer_harness.h"

#include "framework/net/engine_plan.h"

#include <stdlib.h>
#include <string.h>

#define F32  CT__SOLVER_PARAMETER__PRECISION__F32
#define BF16 CT__SOLVER_PARAMETER__PRECISION__BF16
#define LT   "ct_kernel { forward: 'lt' backward_data: 'lt' backward_weight: 'lt' }"

/* Five steps of `columns`, of 6 numbers; sequences end within them. */
#define INPUT(columns)                                                                             \
    "layer { name: 'in' type: 'Input' top: 'x' top: 'cont' top: 'fixed' input_param { shape { "    \
    "dim: 5 dim: " columns " dim: 6 } shape { dim: 5 dim: " columns " } shape { dim: " columns     \
    " dim: 3 } } }\n"
#define LAYER(type, bottoms, hidden, more)                                                         \
    "layer { name: 'r' type: '" type "' bottom: 'e' bottom: 'cont' " bottoms                       \
    " top: 'r' recurrent_param { num_output: " hidden                                              \
    " weight_filler { type: 'uniform' min: -0.5 max: 0.5 } bias_filler { type: 'uniform' min: "    \
    "-0.5 max: 0.5 } } " more " }\n"
/* The first layer learns, so that a gradient of x is wanted. */
#define NET(type, columns, bottoms, hidden, more)                                                  \
    INPUT(columns)                                                                                 \
    "layer { name: 'e' type: 'InnerProduct' bottom: 'x' top: 'e' inner_product_param { axis: 2 "   \
    "num_output: 12 weight_filler { type: 'xavier' } } }\n" LAYER(                                 \
        type, bottoms, hidden,                                                                     \
        more) "layer { name: 'l' type: 'Reduction' bottom: 'r' top: 'l' loss_weight: 1 "           \
              "reduction_param { operation: SUMSQ } }\n"

static void fill(test_cuda_net *t)
{
    static const char *const name[] = { "x", "cont", "fixed" };
    const ct_device *dev = t->net->pass->exec.dev;
    float v[256];

    for (int i = 0; i < 3; i++) {
        const ct_tensor *to = &t->net->pass->blob[ct_net_find_blob(t->net, name[i])]->data;
        int64_t n = ct_tensor_count(to);

        assert_true(n <= 256);
        test_random(v, n, (uint64_t)i, -1.0f, 1.0f);
        for (int64_t k = 0; (i == 1) && (k < n); k++) v[k] = (v[k] > -0.4f) ? 1.0f : 0.0f;
        assert_int_equal(dev->from_host(NULL, to->data, v, ct_tensor_bytes(to)), CT_OK);
    }
}

/* The gradients of two passes, the second with the state of the first. */
static float *run_net(const char *text, const ct_device *dev, ct_engine_plan *plan,
                      Ct__SolverParameter__Precision precision, int64_t *n_p, char engine[2][24])
{
    ct_net_options o = { .env = { .n_rank = 1, .precision = precision, .plan = plan } };
    test_cuda_net t;
    float *grad;

    test_cuda_net_open(text, dev, &o, NULL, &t);
    for (int pass = 0; pass < 2; pass++) {
        fill(&t);
        (void)test_cuda_net_pass(&t, pass, pass > 0);
    }
    test_cuda_net_engines(&t, "r", engine);
    grad = test_cuda_net_gradients(&t);
    *n_p = t.net->grad_count;
    test_cuda_net_close(&t);
    return grad;
}

static bool has_it(const char *text, Ct__SolverParameter__Precision precision)
{
    log_capture log;

    if (test_cuda_net_try(text, test_cuda(), precision, &log) == CT_OK) return true;
    print_message("the library has not all of it: %s\n", log.error);
    return false;
}

/* Two passes of five steps there and back, whose sums have 20 products at most, of numbers that are
 * rounded the same. */
static const double most_off = 2 * 2 * 5 * (20 + 4) * 0x1p-24;

/* forward: what the net says of the inputs' product. In bf16 beside BLAS on the device: the CPU
 * adds pairs of products. */
static void compare(const char *blas, const char *lt, Ct__SolverParameter__Precision precision,
                    const char *forward)
{
    const ct_device *dev = test_cuda(), *from = (precision == F32) ? ct_device_cpu() : dev;
    const char *const text[] = { blas, lt };
    char engine[2][24];
    int64_t n, m;
    float *want = run_net(blas, from, NULL, precision, &n, engine);

    for (int k = 0; k < 2; k++) {
        float *got;

        if (!has_it(text[k], precision)) continue;
        got = run_net(text[k], dev, NULL, precision, &m, engine);
        assert_int_equal(m, n);
        if (!(test_cuda_difference(n, got, want) <= most_off))
            fail_msg("%s: %g off, not within %g", engine[1], test_cuda_difference(n, got, want),
                     most_off);
        free(got);
        if (k == 0) continue;
        assert_string_equal(engine[0], forward);
        assert_string_equal(engine[1], (precision == F32) ? "lt" : "lt-bf16");
    }
    free(want);
}

#define EACH(type, columns, bottoms, hidden, precision, forward)                                   \
    compare(NET(type, columns, bottoms, hidden, ""), NET(type, columns, bottoms, hidden, LT),      \
            precision, forward)

static void the_library_is_as_blas(void **state)
{
    (void)state;
    EACH("LSTM", "4", "", "8", F32, "lt");
    EACH("RNN", "4", "", "8", F32, "lt");
    EACH("RNN", "4", "", "8", BF16, "lt-bf16");
    /* a static input comes between the bias and the product */
    EACH("LSTM", "4", "bottom: 'fixed'", "8", F32, "blas");
    EACH("RNN", "4", "bottom: 'fixed'", "8", F32, "blas");
    /* steps that begin at odd places */
    EACH("LSTM", "3", "", "5", F32, "lt");
    EACH("RNN", "3", "", "5", F32, "lt");
}

/* Whether each of `want` was asked for, and nothing else of this layer. */
static void check_rows(const char *text, const char *const *want, int n_want)
{
    ct_engine_plan_options o = { .machine = { "gpu", "cuda", "1", 1 },
                                 .mode = CT_ENGINE_PLAN_TIME,
                                 .n_rank = 1 };
    ct_engine_plan *plan = NULL;
    char engine[2][24];
    const ct_engine_plan_entry *row;
    int64_t n;
    int found = 0, asked = 0;

    assert_int_equal(ct_engine_plan_create(&o, &plan), CT_OK);
    free(run_net(text, test_cuda(), plan, F32, &n, engine));
    for (int i = 0; (row = ct_engine_plan_row(plan, i)) != NULL; i++) {
        if (strcmp(row->layer, "r") != 0) continue;
        asked++;
        assert_string_equal(row->taken, row->engine[0].name);
        for (int k = 0; k < n_want; k++)
            found += strcmp(row->key + strlen("product "), want[k]) == 0;
    }
    if (found != n_want) fail_msg("%d rows of %d", found, n_want);
    assert_int_equal(asked, n_want);
    ct_engine_plan_destroy(plan);
}

/* Of the inputs, of the steps, and an RNN's outputs, whose products by data and of the steps are of
 * one shape. */
static void products_are_timed(void **state)
{
    static const char *const lstm[] = {
        "forward m20 n32 k12 nt bias gpu",         "backward_data m20 n12 k32 nn gpu",
        "backward_weight m32 n12 k20 tn sums gpu", "forward m4 n32 k8 nt gpu",
        "backward_data m4 n8 k32 nn gpu",          "backward_weight m32 n8 k20 tn gpu"
    };
    static const char *const rnn[] = {
        "forward m20 n8 k12 nt bias gpu",         "backward_data m20 n12 k8 nn gpu",
        "backward_weight m8 n12 k20 tn sums gpu", "forward m4 n8 k8 nt gpu",
        "backward_data m4 n8 k8 nn gpu",          "backward_weight m8 n8 k20 tn gpu",
        "forward m20 n8 k8 nt bias gpu",          "backward_data m20 n8 k8 nn gpu",
        "backward_weight m8 n8 k20 tn sums gpu"
    };
    static const char *const odd[] = {
        "forward m15 n20 k12 nt bias gpu",         "backward_data m15 n12 k20 nn gpu",
        "backward_weight m20 n12 k15 tn sums gpu", "forward m3 n20 k5 nt at4 gpu",
        "backward_data m3 n5 k20 nn at4 gpu",      "backward_weight m20 n5 k15 tn gpu"
    };

    (void)state;
    (void)test_cuda();
    if (!has_it(NET("RNN", "4", "", "8", LT), F32)) skip();
    check_rows(NET("LSTM", "4", "", "8", ""), lstm, 6);
    check_rows(NET("RNN", "4", "", "8", ""), rnn, 9);
    check_rows(NET("LSTM", "3", "", "5", ""), odd, 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_library_is_as_blas),
        cmocka_unit_test(products_are_timed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
