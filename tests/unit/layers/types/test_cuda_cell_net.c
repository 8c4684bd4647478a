/* Nets with LSTM and RNN by cuDNN's recurrent layers, beside our own steps on the CPU: texts, every
 * precision, graphs; what it cannot run; by timing. Skips where no device works, or no cuDNN. */
#include "tests/test.h"
#include "tests/cuda_case.h"
#include "tests/cuda_train.h"

#include "framework/net/engine_plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define F32  CT__SOLVER_PARAMETER__PRECISION__F32
#define TF32 CT__SOLVER_PARAMETER__PRECISION__TF32
#define BF16 CT__SOLVER_PARAMETER__PRECISION__BF16
#define FP16 CT__SOLVER_PARAMETER__PRECISION__FP16
#define ALL(name)                                                                                  \
    "ct_kernel { forward: '" name "' backward_data: '" name "' backward_weight: '" name "' }"
#define DNN ALL("cudnn")
#define FILLERS                                                                                    \
    "weight_filler { type: 'uniform' min: -0.5 max: 0.5 } bias_filler { type: 'uniform' min: "     \
    "-0.5 max: 0.5 }"

/* Five steps of 3 columns; sequences that never end. */
#define DUMMY                                                                                      \
    "layer { name: 'in' type: 'DummyData' top: 'x' top: 'cont' dummy_data_param { shape { dim: 5 " \
    "dim: 3 dim: 6 } shape { dim: 5 dim: 3 } data_filler { type: 'uniform' min: -1 max: 1 } "      \
    "data_filler { value: 1 } } }\n"
/* The same of words, which begin in the first step of the text. */
#define WORDS_OF(more)                                                                             \
    "layer { name: 'in' type: 'TextData' top: 'w' top: 'cont' top: 'next' text_data_param { "      \
    "batch_size: 3 steps: 5 synthetic_words: 11 } }\n" more                                        \
    "layer { name: 'x' type: 'Embed' bottom: 'w' top: 'x' embed_param { input_dim: 11 "            \
    "num_output: 6 weight_filler { type: 'uniform' min: -1 } } }\n"                                \
    "layer { name: 'n' type: 'Silence' bottom: 'next' }\n"
#define RECURRENT(name, type, bottoms, tops, more)                                                 \
    "layer { name: '" name "' type: '" type "' " bottoms " " tops                                  \
    " recurrent_param { num_output: 7 " FILLERS " } " more " }\n"
#define SQUARES(bottom)                                                                            \
    "layer { name: 'l" bottom "' type: 'Reduction' bottom: '" bottom "' top: 'l" bottom            \
    "' loss_weight: 1 reduction_param { operation: SUMSQ } }\n"
/* The first layer learns, so that a gradient of its top is wanted. */
#define INNER(bottom)                                                                              \
    "layer { name: 'e' type: 'InnerProduct' bottom: '" bottom "' top: 'e' inner_product_param { "  \
    "axis: 2 num_output: 9 weight_filler { type: 'xavier' } } }\n"
#define NET(data, type, more)                                                                      \
    data INNER("x") RECURRENT("r", type, "bottom: 'e' bottom: 'cont'", "top: 'r'", more)           \
        SQUARES("r")
/* Two of them, which read one cont. */
#define STACK(data, type, more)                                                                    \
    data RECURRENT("q", type, "bottom: 'x' bottom: 'cont'", "top: 'q'", more)                      \
        RECURRENT("r", type, "bottom: 'q' bottom: 'cont'", "top: 'r'", more) SQUARES("r")

/* What cuDNN made is read again behind a layer in place. */
#define IN_PLACE_BEHIND(data, type, more)                                                          \
    data INNER("x") RECURRENT("r", type, "bottom: 'e' bottom: 'cont'", "top: 'r'",                 \
                              more) "layer { name: 'p' type: 'Power' bottom: 'r' top: 'r' "        \
                                    "power_param { scale: 3 } }\n" SQUARES("r")

static void needs_cudnn(void)
{
    const ct_device *dev = test_cuda();
    log_capture log;

    if (test_cuda_net_try(NET(DUMMY, "LSTM", DNN), dev, F32, &log) == CT_OK) return;
    print_message("skipped: no cuDNN\n");
    skip();
}

static void is_near(int64_t n, const float *got, const float *want, double off, const char *what)
{
    double is = test_cuda_difference(n, got, want);

    if (!(is <= off)) fail_msg("%s: %g off, not within %g", what, is, off);
}

typedef struct outcome {
    double loss;
    float *grad, top[105]; /* of "r", in the last pass */
    int64_t n;
    char engine[2][24];
} outcome;

/* Passes over batches 0, 1, 0, 1, whose gradients add up: a text begins anew in the third. */
static outcome run_net(const char *text, const ct_device *dev, ct_engine_plan *plan,
                       Ct__SolverParameter__Precision precision)
{
    ct_net_options o = {
        .env = { .n_rank = 1, .precision = precision, .plan = plan, .synthetic = true }
    };
    outcome r = { .loss = 0.0 };
    const ct_tensor *top;
    test_cuda_net t;

    test_cuda_net_open(text, dev, &o, NULL, &t);
    for (int pass = 0; pass < 4; pass++) r.loss += test_cuda_net_pass(&t, pass % 2, pass > 0);
    r.grad = test_cuda_net_gradients(&t);
    r.n = t.net->grad_count;
    test_cuda_net_engines(&t, "r", r.engine);
    top = &t.net->pass->blob[ct_net_find_blob(t.net, "r")]->data;
    assert_int_equal(ct_tensor_count(top), 105);
    if (dev->kind != CT_DEVICE_CPU)
        assert_int_equal(dev->to_host(NULL, r.top, top->data, sizeof(r.top)), CT_OK);
    test_cuda_net_close(&t);
    return r;
}

static void check_net(const char *ours_text, const char *its_text,
                      Ct__SolverParameter__Precision precision, const char *engine, double off)
{
    outcome ours = run_net(ours_text, ct_device_cpu(), NULL, F32);
    outcome its = run_net(its_text, test_cuda(), NULL, precision);

    assert_string_equal(its.engine[0], engine);
    assert_string_equal(its.engine[1], engine);
    assert_int_equal(its.n, ours.n);
    is_near(ours.n, its.grad, ours.grad, off, engine);
    if (!(fabs(its.loss - ours.loss) <= off * ours.loss))
        fail_msg("%s: loss %g, not %g within %g of it", engine, its.loss, ours.loss, off);
    free(ours.grad), free(its.grad);
}

/* Two layers, two batches of five steps there and back, sums of 16 products and 12 roundings more.
 */
static const double off_f32 = 2 * 2 * 2 * 5 * (16 + 12) * 0x1p-24;

#define EACH(net, data, type, precision, engine, off)                                              \
    check_net(net(data, type, ""), net(data, type, DNN), precision, engine, off)

static void nets_are_as_ours(void **state)
{
    (void)state;
    needs_cudnn();
    EACH(NET, DUMMY, "LSTM", F32, "cudnn", off_f32);
    EACH(NET, DUMMY, "RNN", F32, "cudnn", off_f32);
    EACH(IN_PLACE_BEHIND, DUMMY, "LSTM", F32, "cudnn", off_f32);
    EACH(STACK, WORDS_OF(""), "LSTM", F32, "cudnn", off_f32);
    EACH(STACK, WORDS_OF(""), "RNN", F32, "cudnn", off_f32);
}

/* Rounded: operands of each step there and back, with what comes in and goes out; gradients grow by
 * no more than 2 on their way through the sums of squares. */
static double rounded(double by)
{
    return 2.0 * (2 * 2 * 5 + 4) * by;
}

static void precisions_are_as_f32(void **state)
{
    (void)state;
    needs_cudnn();
    EACH(NET, DUMMY, "LSTM", TF32, "cudnn-tf32", rounded(0x1p-11));
    EACH(NET, DUMMY, "LSTM", FP16, "cudnn-f16", rounded(0x1p-11));
    EACH(NET, DUMMY, "LSTM", BF16, "cudnn-bf16", rounded(0x1p-8));
    EACH(NET, DUMMY, "RNN", FP16, "cudnn-f16", rounded(0x1p-11));
    EACH(NET, DUMMY, "RNN", BF16, "cudnn-bf16", rounded(0x1p-8));
    EACH(STACK, WORDS_OF(""), "LSTM", BF16, "cudnn-bf16", rounded(0x1p-8));
}

/* TF32 comes in only where it is asked for, and in the stand-in then always; results of 16 bits are
 * numbers of theirs. */
static void what_is_rounded(void **state)
{
    outcome f32, tf32, bf16;

    (void)state;
    needs_cudnn();
    f32 = run_net(NET(DUMMY, "LSTM", DNN), test_cuda(), NULL, F32);
    tf32 = run_net(NET(DUMMY, "LSTM", DNN), test_cuda(), NULL, TF32);
    bf16 = run_net(NET(DUMMY, "LSTM", DNN), test_cuda(), NULL, BF16);
    if (getenv("CORTADO_EMULATED_CUDNN") != NULL)
        assert_memory_not_equal(f32.grad, tf32.grad, (size_t)f32.n * sizeof(float));
    for (int i = 0; i < 105; i++) {
        uint32_t bits;

        memcpy(&bits, &bf16.top[i], sizeof(bits));
        assert_int_equal(bits & 0xffff, 0);
    }
    free(f32.grad), free(tf32.grad), free(bf16.grad);
}

/* ---- what it cannot run */

#define INPUT                                                                                      \
    "layer { name: 'in' type: 'Input' top: 'x' top: 'cont' input_param { shape { dim: 5 dim: 3 "   \
    "dim: 6 } shape { dim: 5 dim: 3 } } }\n"
#define HALVES                                                                                     \
    "layer { name: 'in' type: 'DummyData' top: 'x' top: 'cont' dummy_data_param { shape { dim: 5 " \
    "dim: 3 dim: 6 } shape { dim: 5 dim: 3 } data_filler { type: 'uniform' min: -1 max: 1 } "      \
    "data_filler { value: 0.5 } } }\n"
#define FIXED                                                                                      \
    "layer { name: 's' type: 'DummyData' top: 's' dummy_data_param { shape { dim: 3 dim: 4 } } "   \
    "}\n"
#define IN_PLACE                                                                                   \
    "layer { name: 'p' type: 'Power' bottom: 'cont' top: 'cont' power_param { scale: 0.5 } }\n"

static void refused(const char *text, const char *why)
{
    log_capture log;
    ct_net_options o = { .phase = CT_TRAIN,
                         .dev = test_cuda(),
                         .env = { .n_rank = 1, .seed = 5, .synthetic = true } };

    assert_int_equal(test_cuda_net_try_with(text, &o, &log), CT_ERR_CONFIG);
    if (strstr(log.error, why) == NULL) fail_msg("not \"%s\" but %s", why, log.error);
}

static void what_does_not_fit_is_refused(void **state)
{
    static const char *const anew = "may begin sequences anew in any step";

    (void)state;
    needs_cudnn();
    refused(NET(INPUT, "LSTM", DNN), anew);
    refused(NET(INPUT, "RNN", DNN), anew);
    refused(NET(HALVES, "LSTM", DNN), anew);
    refused(NET(DUMMY IN_PLACE, "LSTM", DNN), anew);
    refused(NET(WORDS_OF(IN_PLACE), "LSTM", DNN), anew);
    refused(DUMMY FIXED INNER("x") RECURRENT("r", "LSTM", "bottom: 'e' bottom: 'cont' bottom: 's'",
                                             "top: 'r'", DNN) SQUARES("r"),
            "a static input");
    refused(NET(DUMMY, "LSTM", "ct_kernel { forward: 'cudnn' }"), "name it for all three");
    refused(NET(DUMMY, "LSTM",
                "ct_kernel { forward: 'lt' backward_data: 'cudnn' backward_weight: 'cudnn' }"),
            "name it for all three");
}

/* bf16 since 9.13; the stand-in is told its version. */
static void versions_are_asked(void **state)
{
    const char *was = getenv("CORTADO_EMULATED_CUDNN");
    log_capture log;

    (void)state;
    needs_cudnn();
    if (was == NULL) skip();
    setenv("CORTADO_EMULATED_CUDNN", "91200", 1);
    assert_int_equal(test_cuda_net_try(NET(DUMMY, "RNN", DNN), test_cuda(), BF16, &log),
                     CT_ERR_CONFIG);
    assert_non_null(strstr(log.error, "none of this size and precision"));
    assert_int_equal(test_cuda_net_try(NET(DUMMY, "RNN", DNN), test_cuda(), FP16, &log), CT_OK);
    setenv("CORTADO_EMULATED_CUDNN", "1", 1);
}

static ct_status try_repeatable(const char *config, log_capture *log)
{
    ct_net_options o = { .phase = CT_TRAIN,
                         .dev = test_cuda(),
                         .env = { .n_rank = 1, .seed = 5, .deterministic = true } };

    if (config != NULL)
        setenv("CUBLAS_WORKSPACE_CONFIG", config, 1);
    else
        unsetenv("CUBLAS_WORKSPACE_CONFIG");
    return test_cuda_net_try_with(NET(DUMMY, "LSTM", DNN), &o, log);
}

static void repeatable_runs_want_one_workspace(void **state)
{
    const char *was = getenv("CUBLAS_WORKSPACE_CONFIG");
    char kept[64] = "";
    log_capture log;

    (void)state;
    needs_cudnn();
    if (was != NULL) snprintf(kept, sizeof(kept), "%s", was);
    assert_int_equal(try_repeatable(NULL, &log), CT_ERR_CONFIG);
    assert_non_null(strstr(log.error, "CUBLAS_WORKSPACE_CONFIG=:16:8"));
    assert_int_equal(try_repeatable(":16:8:4096:2", &log), CT_ERR_CONFIG);
    assert_int_equal(try_repeatable(":4096:2", &log), CT_OK);
    assert_int_equal(try_repeatable(":16:8", &log), CT_OK);
    if (was != NULL)
        setenv("CUBLAS_WORKSPACE_CONFIG", kept, 1);
    else
        unsetenv("CUBLAS_WORKSPACE_CONFIG");
}

/* ---- by timing */

#define KEY "recurrent lstm both t5 n3 i9 h7 dx gpu"

static ct_engine_plan *make_plan(ct_engine_plan_mode mode, const char *rows)
{
    ct_engine_plan_options o = { .machine = { "gpu", "cuda", "1", 1 }, .mode = mode, .n_rank = 1 };
    ct_engine_plan *plan = NULL;

    assert_int_equal(ct_engine_plan_create(&o, &plan), CT_OK);
    if (rows != NULL)
        assert_int_equal(ct_engine_plan_parse(plan, "test.plan", rows, strlen(rows)), CT_OK);
    return plan;
}

static const ct_engine_plan_entry *row_of(const ct_engine_plan *plan, const char *prefix)
{
    const ct_engine_plan_entry *row;

    for (int i = 0; (row = ct_engine_plan_row(plan, i)) != NULL; i++) {
        if (strncmp(row->key, prefix, strlen(prefix)) == 0) return row;
    }
    return NULL;
}

static void passes_are_timed(void **state)
{
    static const char *const type[] = { NET(DUMMY, "LSTM", ""), NET(DUMMY, "RNN", "") };
    static const char *const key[] = { KEY, "recurrent rnn both t5 n3 i9 h7 dx gpu" };

    (void)state;
    needs_cudnn();
    for (int i = 0; i < 2; i++) {
        ct_engine_plan *plan = make_plan(CT_ENGINE_PLAN_TIME, NULL);
        outcome ours = run_net(type[i], ct_device_cpu(), NULL, F32);
        outcome r = run_net(type[i], test_cuda(), plan, F32);
        const ct_engine_plan_entry *row = row_of(plan, "recurrent ");

        assert_non_null(row);
        assert_string_equal(row->key, key[i]);
        assert_int_equal(row->n, 2);
        assert_true((row->engine[0].ms > 0.0) && (row->engine[1].ms > 0.0));
        assert_string_equal(row->taken, row->engine[0].name);
        assert_int_equal(strcmp(row->taken, "cudnn") == 0, strcmp(r.engine[0], "cudnn") == 0);
        is_near(ours.n, r.grad, ours.grad, off_f32, row->taken);
        free(ours.grad), free(r.grad);
        ct_engine_plan_destroy(plan);
    }
}

static void check_replayed(const char *first, const char *second, bool is_its)
{
    ct_engine_plan *plan;
    char rows[512];
    outcome r, ours = run_net(NET(DUMMY, "LSTM", ""), ct_device_cpu(), NULL, F32);

    snprintf(rows, sizeof(rows),
             "cortado plan 1\nmachine \"gpu\" cuda threads 1 version \"1\"\n" KEY
             " | %s 1.000 %s 2.000\nend 1\n",
             first, second);
    plan = make_plan(CT_ENGINE_PLAN_REPLAY, rows);
    r = run_net(NET(DUMMY, "LSTM", ""), test_cuda(), plan, F32);
    assert_int_equal(strcmp(r.engine[0], "cudnn") == 0, is_its);
    is_near(ours.n, r.grad, ours.grad, off_f32, first);
    free(r.grad), free(ours.grad);
    ct_engine_plan_destroy(plan);
}

static void rows_are_replayed(void **state)
{
    outcome r;
    ct_engine_plan *plan;

    (void)state;
    needs_cudnn();
    check_replayed("cudnn", "steps", true);
    check_replayed("steps", "cudnn", false);
    /* never by itself */
    r = run_net(NET(DUMMY, "LSTM", ""), test_cuda(), NULL, F32);
    assert_string_not_equal(r.engine[0], "cudnn");
    free(r.grad);
    /* nor asked where it cannot run */
    plan = make_plan(CT_ENGINE_PLAN_TIME, NULL);
    r = run_net(NET(HALVES, "LSTM", ""), test_cuda(), plan, F32);
    assert_null(row_of(plan, "recurrent "));
    free(r.grad);
    ct_engine_plan_destroy(plan);
}

/* ---- in a step's graph */

#define TRAINS(type, more) NET(DUMMY, type, more)
#define GPU                "solver_mode: GPU"

static void graphs_give_the_same(void **state)
{
    static const char *const net[] = { TRAINS("LSTM", DNN), TRAINS("RNN", DNN) };

    (void)state;
    needs_cudnn();
    for (int i = 0; i < 2; i++) {
        trained with = test_cuda_trained(net[i], GPU, "base_lr: 0.01 lr_policy: 'fixed'", 5, NULL);
        trained without = test_cuda_trained(net[i], GPU " cuda_graph: false",
                                            "base_lr: 0.01 lr_policy: 'fixed'", 5, NULL);

        test_cuda_same(&with, &without, "graphs");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nets_are_as_ours),
        cmocka_unit_test(precisions_are_as_f32),
        cmocka_unit_test(what_is_rounded),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(versions_are_asked),
        cmocka_unit_test(repeatable_runs_want_one_workspace),
        cmocka_unit_test(passes_are_timed),
        cmocka_unit_test(rows_are_replayed),
        cmocka_unit_test(graphs_give_the_same),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
