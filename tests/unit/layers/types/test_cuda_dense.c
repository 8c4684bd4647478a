/* Fully connected layers on the device with and without what its library does behind a product, bit
 * by bit where numbers fit; libraries that lack some of it; plans of their products, written,
 * replayed, edited, stale, and on several ranks. Skips where no device works. */
#include "tests/test.h"
#include "tests/cuda_case.h"
#include "tests/log_capture.h"
#include "tests/solver_harness.h"

#include "framework/base/rng.h"
#include "framework/net/engine_plan.h"
#include "framework/proto/prototxt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of tests/emulated_cuda, whose library has all of it. */
extern int ct_emulated_given(void) __attribute__((weak));

static bool is_emulated(void)
{
    return ct_emulated_given != NULL;
}

/* Its library lacks what CORTADO_EMULATED_LT says; another device's does not know that. */
static void lacks(const char *what)
{
    if (what == NULL)
        unsetenv("CORTADO_EMULATED_LT");
    else
        setenv("CORTADO_EMULATED_LT", what, 1);
}

/* ---- nets */

#define INPUT(shape, target)                                                                       \
    "layer { name: 'data' type: 'Input' top: 'data' top: 'target' input_param { shape { " shape    \
    " } shape { " target " } } }\n"
#define FC(name, bottom, n, more)                                                                  \
    "layer { name: '" name "' type: 'InnerProduct' bottom: '" bottom "' top: '" name               \
    "' inner_product_param { num_output: " n " " more " weight_filler { type: 'xavier' } } }\n"
#define RELU(name) "layer { name: '" name "r' type: 'ReLU' bottom: '" name "' top: '" name "' }\n"
#define LOSS(name)                                                                                 \
    "layer { name: 'loss' type: 'EuclideanLoss' bottom: '" name "' bottom: 'target' top: 'loss' "  \
    "}\n"

static const char deep[] = INPUT("dim: 8 dim: 6", "dim: 8 dim: 4") FC("f1", "data", "10", "")
    RELU("f1") FC("f2", "f1", "12", "transpose: true") RELU("f2")
        FC("f3", "f2", "11", "bias_term: false") RELU("f3") FC("f4", "f3", "4", "") LOSS("f4");
static const char flat[] = INPUT("dim: 8 dim: 6", "dim: 8 dim: 5") FC("f1", "data", "10", "")
    RELU("f1") FC("f2", "f1", "5", "") LOSS("f2");
/* Biases in one another's way: of f1 and g1, whose gradients come in another order than those of
 * what reads them; and f3's, which does not learn. */
#define PARAM_FC(name, bottom, param)                                                              \
    "layer { name: '" name "' type: 'InnerProduct' bottom: '" bottom "' top: '" name               \
    "' param { lr_mult: 1 } param { " param " } inner_product_param { num_output: 6 "              \
    "weight_filler { type: 'xavier' } } }\n"
static const char tied[] =
    INPUT("dim: 8 dim: 6", "dim: 8 dim: 6") PARAM_FC("f1", "data", "name: 'b'") RELU("f1")
        PARAM_FC("g1", "data", "name: 'b'") RELU("g1") PARAM_FC("g2", "g1", "lr_mult: 2") PARAM_FC(
            "f2", "f1", "lr_mult: 2") "layer { name: 's' type: 'Eltwise' bottom: 'f2' bottom: 'g2' "
                                      "top: 's' }\n" PARAM_FC("f3", "s", "lr_mult: 0") RELU("f3")
                                          PARAM_FC("f4", "f3", "lr_mult: 2") LOSS("f4");

/* Small whole numbers, so that all sums are exact, in whichever order. A row of a weight has one
 * that is not 0. */
static void fill_whole(test_cuda_net *t)
{
    const ct_device *dev = t->net->pass->exec.dev;
    const ct_tensor *x = &t->net->pass->blob[ct_net_find_blob(t->net, "data")]->data;
    const ct_tensor *y = &t->net->pass->blob[ct_net_find_blob(t->net, "target")]->data;
    float v[256] = { 0.0f };

    for (int p = 0; p < t->net->n_param; p++) {
        const ct_tensor *w = &t->net->param[p].blob.data;
        int64_t n = ct_tensor_count(w), row = (w->shape.ndim > 1) ? w->shape.dim[1] : 1;

        assert_true(n <= 256);
        memset(v, 0, sizeof(v));
        for (int64_t i = 0; i < n; i += row) {
            uint64_t k = ct_rng_key((uint64_t)p, (uint64_t)i, 7);

            v[i + (int64_t)(k % (uint64_t)row)] = (k / 64 % 3 == 0) ? -1.0f : 1.0f;
        }
        assert_int_equal(dev->from_host(NULL, w->data, v, (size_t)n * sizeof(float)), CT_OK);
    }
    assert_true(ct_tensor_count(x) <= 256);
    for (int64_t i = 0; i < ct_tensor_count(x); i++)
        v[i] = (float)(ct_rng_key(1, 2, (uint64_t)i) % 5) - 2.0f;
    assert_int_equal(dev->from_host(NULL, x->data, v, ct_tensor_bytes(x)), CT_OK);
    memset(v, 0, sizeof(v));
    assert_int_equal(dev->from_host(NULL, y->data, v, ct_tensor_bytes(y)), CT_OK);
}

typedef struct outcome {
    double loss;
    float *grad;
    int64_t n;
    int relu_done; /* layers whose ReLU's gradient their reader makes */
    char engine[CT_N_RUN][32];
} outcome;

static outcome run_net(const char *text, const ct_device *dev,
                       Ct__SolverParameter__Precision precision, bool fuse)
{
    ct_net_options o = { .no_fuse = !fuse, .env = { .n_rank = 1, .precision = precision } };
    outcome r = { 0 };
    test_cuda_net t;
    ct_estimate e;

    test_cuda_net_open(text, dev, &o, NULL, &t);
    fill_whole(&t);
    r.loss = test_cuda_net_pass(&t, 0, false);
    fill_whole(&t); /* the values of the first pass are gone */
    r.loss += test_cuda_net_pass(&t, 1, true);
    r.n = t.net->grad_count;
    r.grad = test_cuda_net_gradients(&t);
    for (int i = 0; i < t.net->n_layer; i++) {
        const ct_epilogue *tail = t.net->pass->instance[i]->tail;

        r.relu_done += (tail != NULL) && tail->relu_done;
    }
    ct_net_estimate(t.net, ct_net_find_layer(t.net, "f2"), &e);
    for (int k = 0; k < CT_N_RUN; k++)
        snprintf(r.engine[k], sizeof(r.engine[k]), "%s", e.engine[k]);
    test_cuda_net_close(&t);
    return r;
}

static void same(const outcome *want, outcome got, const char *what)
{
    if (got.loss != want->loss) fail_msg("%s: loss %.9g, not %.9g", what, got.loss, want->loss);
    assert_int_equal(got.n, want->n);
    for (int64_t i = 0; i < got.n; i++) {
        if (got.grad[i] != want->grad[i])
            fail_msg("%s: gradient %lld is %.9g, not %.9g", what, (long long)i, got.grad[i],
                     want->grad[i]);
    }
    free(got.grad);
}

static void compare_net(const char *text, Ct__SolverParameter__Precision precision, int relus)
{
    static const char *const less[] = { NULL, "nosums", "nobgrad", "nobits", "plain", "none" };
    enum { LIBRARIES = sizeof(less) / sizeof(less[0]), BITS = 3 /* have bits */ };
    const ct_device *dev = test_cuda();
    outcome want = run_net(text, ct_device_cpu(), CT__SOLVER_PARAMETER__PRECISION__F32, true), got;

    assert_true(want.loss > 0.0);
    for (int k = 0; k < LIBRARIES; k++) {
        lacks(less[k]);
        got = run_net(text, dev, precision, true);
        if (is_emulated()) {
            bool lt = strncmp(got.engine[CT_RUN_FORWARD], "lt", 2) == 0;

            assert_int_equal(got.relu_done, (k < BITS) ? relus : 0);
            assert_int_equal(lt, k <= BITS);
        } else if (k == 0) {
            print_message("forward %s, by data %s, by weight %s; %d of %d ReLUs in products\n",
                          got.engine[0], got.engine[1], got.engine[2], got.relu_done, relus);
        }
        same(&want, got, (less[k] != NULL) ? less[k] : "all there");
        same(&want, run_net(text, dev, precision, false), "not fused");
    }
    lacks(NULL);
    free(want.grad);
}

static void layers_are_the_same_with_and_without(void **state)
{
    (void)state;
    compare_net(deep, CT__SOLVER_PARAMETER__PRECISION__F32, 3);
    compare_net(flat, CT__SOLVER_PARAMETER__PRECISION__F32, 1);
    compare_net(flat, CT__SOLVER_PARAMETER__PRECISION__TF32, 1);
    compare_net(flat, CT__SOLVER_PARAMETER__PRECISION__BF16, 1);
    compare_net(flat, CT__SOLVER_PARAMETER__PRECISION__FP16, 1);
    compare_net(tied, CT__SOLVER_PARAMETER__PRECISION__F32, 3);
}

/* What the device is given for two passes. */
static int given_for(const char *text, Ct__SolverParameter__Precision precision, const char *less)
{
    int start = ct_emulated_given();
    outcome r;

    lacks(less);
    r = run_net(text, test_cuda(), precision, true);
    lacks(NULL);
    free(r.grad);
    return ct_emulated_given() - start;
}

/* Bias's gradients are passes of their own in 16 bits, and where a library lacks sums: then those
 * in front of a product that takes their ReLU's gradient, too, come with it. */
static void biases_come_with_their_relus(void **state)
{
    Ct__SolverParameter__Precision f32 = CT__SOLVER_PARAMETER__PRECISION__F32;
    Ct__SolverParameter__Precision bf16 = CT__SOLVER_PARAMETER__PRECISION__BF16;
    int last;

    (void)state;
    (void)test_cuda();
    if (!is_emulated()) skip();
    assert_true(given_for(flat, bf16, NULL) < given_for(flat, bf16, "nobgrad"));
    assert_int_equal(given_for(flat, f32, NULL), given_for(flat, f32, "nobgrad"));
    /* only the last layer's is left, however many there are */
    last = given_for(flat, f32, "nosums") - given_for(flat, f32, NULL);
    assert_int_equal(given_for(deep, f32, "nosums") - given_for(deep, f32, NULL), last);
}

/* ---- plans */

/* Numbers of any kind, so that algorithms that add in another order give other bits. */
static const char noise[] =
    "layer { name: 'data' type: 'DummyData' top: 'x' top: 'target' dummy_data_param { shape { dim: "
    "8 dim: 37 } shape { dim: 8 dim: 4 } data_filler { type: 'gaussian' std: 1 } data_filler { "
    "value: 0 } } }\n" FC("f1", "x", "29", "") RELU("f1") FC("f2", "f1", "23", "transpose: true")
        RELU("f2") FC("f3", "f2", "4", "bias_term: false") LOSS("f3");

/* The same behind a convolution: with precision of 16 bits values have them, up to the last. */
static const char narrow_noise[] =
    "layer { name: 'data' type: 'DummyData' top: 'x' top: 'target' dummy_data_param { shape { dim: "
    "8 dim: 3 dim: 6 dim: 6 } shape { dim: 8 dim: 4 } data_filler { type: 'gaussian' std: 1 } "
    "data_filler { value: 0 } } }\n"
    "layer { name: 'c' type: 'Convolution' bottom: 'x' top: 'c' convolution_param { num_output: 8 "
    "kernel_size: 3 weight_filler { type: 'xavier' } } }\n" FC("f1", "c", "16", "") RELU("f1")
        FC("f2", "f1", "24", "transpose: true") RELU("f2") FC("f3", "f2", "4", "bias_term: false")
            LOSS("f3");

enum { MOST = 64 };

/* What rank 0 says, as it goes to the others: what it has, and what it takes. */
typedef struct wire {
    char said[MOST][CT_ENGINE_PLAN_ENGINES * CT_ENGINE_PLAN_NAME];
    int n, rank;
} wire;

static ct_status share(void *ctx, void *data, size_t bytes)
{
    wire *w = ctx;

    assert_true((bytes <= sizeof(w->said[0])) && (w->n < MOST));
    if (w->rank == 0)
        memcpy(w->said[w->n], data, bytes);
    else
        memcpy(data, w->said[w->n], bytes);
    w->n++;
    return CT_OK;
}

/* Both have the same library. */
static ct_status least(void *ctx, int *v, int n)
{
    (void)ctx;
    (void)v;
    (void)n;
    return CT_OK;
}

static ct_engine_plan *make_plan(ct_engine_plan_mode mode, const char *text, wire *w)
{
    ct_engine_plan_options o = { .machine = { "gpu", "cuda", "1", 1 }, .mode = mode, .n_rank = 1 };
    ct_engine_plan *plan = NULL;

    if (w != NULL) {
        o.n_rank = 2;
        o.rank = w->rank;
        o.share = share;
        o.least = least;
        o.share_ctx = w;
        w->n = 0;
    }
    assert_int_equal(ct_engine_plan_create(&o, &plan), CT_OK);
    if (text != NULL)
        assert_int_equal(ct_engine_plan_parse(plan, "test.plan", text, strlen(text)), CT_OK);
    return plan;
}

/* The gradients of a pass by the plan; its text, of what was asked for, unless text_p is NULL. */
static float *run_plan_of(const char *net, Ct__SolverParameter__Precision precision,
                          const ct_device *dev, ct_engine_plan *plan, int64_t *n_p, char **text_p)
{
    ct_net_options o = { .env = { .n_rank = 1, .plan = plan, .precision = precision } };
    ct_text text = { 0 };
    test_cuda_net t;
    float *grad;

    test_cuda_net_open(net, dev, &o, NULL, &t);
    (void)test_cuda_net_pass(&t, 0, false);
    grad = test_cuda_net_gradients(&t);
    *n_p = t.net->grad_count;
    test_cuda_net_close(&t);
    if (text_p == NULL) return grad;
    ct_engine_plan_text(plan, &text);
    assert_false(text.failed);
    *text_p = strdup(text.text);
    assert_non_null(*text_p);
    ct_text_destroy(&text);
    return grad;
}

static float *run_plan(const ct_device *dev, ct_engine_plan *plan, int64_t *n_p, char **text_p)
{
    return run_plan_of(noise, CT__SOLVER_PARAMETER__PRECISION__F32, dev, plan, n_p, text_p);
}

/* What is asked for: forward of each layer, with its ReLU where it has one; and the gradients; once
 * more where a ReLU goes through a product. */
static void check_rows(const ct_engine_plan *plan)
{
    static const char *const want[] = { "forward m8 n29 k37 nt bias relu gpu",
                                        "forward m8 n23 k29 nn bias relu gpu",
                                        "forward m8 n4 k23 nt gpu",
                                        "backward_data m8 n29 k23 nt gpu",
                                        "backward_data m8 n23 k4 nn gpu",
                                        "backward_weight m29 n37 k8 tn sums gpu",
                                        "backward_weight m29 n23 k8 tn sums gpu",
                                        "backward_weight m4 n23 k8 tn gpu" };
    const ct_engine_plan_entry *row;
    int found = 0, drelu = 0;

    for (int i = 0; (row = ct_engine_plan_row(plan, i)) != NULL; i++) {
        for (size_t k = 0; k < sizeof(want) / sizeof(want[0]); k++)
            found += strcmp(row->key + strlen("product "), want[k]) == 0;
        drelu += strstr(row->key, " drelu") != NULL;
        assert_true(strncmp(row->key, "product ", 8) == 0);
        assert_string_equal(row->taken, row->engine[0].name);
        if (is_emulated()) assert_true(row->n >= 3);
        for (int e = 0; e < row->n; e++) {
            const char *name = row->engine[e].name;

            assert_true((strcmp(name, "blas") == 0) || (strncmp(name, "lt", 2) == 0));
            assert_true(row->engine[e].ms > 0.0);
        }
    }
    /* where a library lacks an epilogue there is no choice */
    assert_true(found >= (is_emulated() ? 8 : 3));
    if (is_emulated()) assert_int_equal(drelu, 2);
}

/* Each row with its second engine first. */
static char *turned(const ct_engine_plan *plan)
{
    ct_text text = { 0 };
    const ct_engine_plan_entry *row;
    char *copy;
    int n = 0;

    ct_text_add(&text, "cortado plan 1\nmachine \"gpu\" cuda threads 1 version \"1\"\n");
    for (; (row = ct_engine_plan_row(plan, n)) != NULL; n++) {
        ct_text_add(&text, "%s |", row->key);
        for (int e = 1; e <= row->n; e++) ct_text_add(&text, " %s -", row->engine[e % row->n].name);
        ct_text_add(&text, "\n");
    }
    ct_text_add(&text, "end %d\n", n);
    copy = strdup(text.text);
    assert_non_null(copy);
    ct_text_destroy(&text);
    return copy;
}

static void check_bits(const float *a, const float *b, int64_t n)
{
    assert_memory_equal(a, b, (size_t)n * sizeof(*a));
}

static void check_rows_taken(const ct_engine_plan *plan)
{
    const ct_engine_plan_entry *row;

    for (int i = 0; (row = ct_engine_plan_row(plan, i)) != NULL; i++)
        assert_string_equal(row->taken, row->engine[0].name);
}

static void products_are_timed_and_replayed(void **state)
{
    const ct_device *dev = test_cuda();
    char *text, *again, *other, folder[200], path[256];
    ct_engine_plan *plan;
    float *timed, *replayed, *edited, *twice;
    int64_t n, m;

    (void)state;
    test_directory_make(folder, sizeof(folder));
    snprintf(path, sizeof(path), "%s/net.plan", folder);
    plan = make_plan(CT_ENGINE_PLAN_TIME, NULL, NULL);
    timed = run_plan(dev, plan, &n, &text);
    check_rows(plan);
    assert_true(ct_engine_plan_tally(plan).n_timed >= 3);
    other = turned(plan);
    assert_int_equal(ct_engine_plan_write(plan, path), CT_OK);
    ct_engine_plan_destroy(plan);
    plan = make_plan(CT_ENGINE_PLAN_REPLAY, NULL, NULL);
    assert_int_equal(ct_engine_plan_read(plan, path), CT_OK);
    replayed = run_plan(dev, plan, &m, &again);
    assert_int_equal(ct_engine_plan_tally(plan).n_timed, 0);
    ct_engine_plan_destroy(plan);
    assert_int_equal(m, n);
    check_bits(timed, replayed, n);
    assert_string_equal(text, again);
    /* what the file says is what runs */
    plan = make_plan(CT_ENGINE_PLAN_REPLAY, other, NULL);
    edited = run_plan(dev, plan, &m, NULL);
    check_rows_taken(plan);
    ct_engine_plan_destroy(plan);
    if (is_emulated()) assert_memory_not_equal(edited, timed, (size_t)n * sizeof(*edited));
    plan = make_plan(CT_ENGINE_PLAN_REPLAY, other, NULL);
    twice = run_plan(dev, plan, &m, NULL);
    ct_engine_plan_destroy(plan);
    check_bits(edited, twice, n);
    test_directory_remove(folder);
    free(text), free(again), free(other);
    free(timed), free(replayed), free(edited), free(twice);
}

/* Keys say which matrices have 16 bits: weights all, the last values not. Sums of what has them
 * come with the product. */
static void narrow_products_are_timed_and_replayed(void **state)
{
    static const char *const want[] = {
        "product forward m8 n16 k128 nt bias relu bits bf16 abc gpu",
        "product forward m8 n24 k16 nn bias relu bits bf16 abc gpu",
        "product forward m8 n4 k24 nt bf16 ab gpu",
        "product backward_data m8 n128 k16 nn bf16 abc gpu",
        "product backward_data m8 n16 k24 nt drelu bf16 abc gpu",
        "product backward_data m8 n24 k4 nn drelu bf16 bc gpu",
        "product backward_weight m16 n128 k8 tn sums bf16 ab gpu",
        "product backward_weight m16 n24 k8 tn sums bf16 ab gpu",
        "product backward_weight m4 n24 k8 tn bf16 b gpu",
    };
    Ct__SolverParameter__Precision bf16 = CT__SOLVER_PARAMETER__PRECISION__BF16;
    const ct_device *dev = test_cuda();
    ct_engine_plan *plan = make_plan(CT_ENGINE_PLAN_TIME, NULL, NULL);
    char *text, *again, *other;
    float *timed, *replayed, *edited;
    int64_t n, m;

    (void)state;
    timed = run_plan_of(narrow_noise, bf16, dev, plan, &n, &text);
    for (size_t k = 0; is_emulated() && (k < sizeof(want) / sizeof(want[0])); k++) {
        if (strstr(text, want[k]) == NULL) fail_msg("no \"%s\" in: %s", want[k], text);
    }
    other = turned(plan);
    ct_engine_plan_destroy(plan);
    plan = make_plan(CT_ENGINE_PLAN_REPLAY, text, NULL);
    replayed = run_plan_of(narrow_noise, bf16, dev, plan, &m, &again);
    ct_engine_plan_destroy(plan);
    assert_int_equal(m, n);
    check_bits(timed, replayed, n);
    assert_string_equal(text, again);
    plan = make_plan(CT_ENGINE_PLAN_REPLAY, other, NULL);
    edited = run_plan_of(narrow_noise, bf16, dev, plan, &m, NULL);
    check_rows_taken(
        plan); /* bits tell nothing: in bf16 another order may round to the same ones */
    ct_engine_plan_destroy(plan);
    free(text), free(again), free(other);
    free(timed), free(replayed), free(edited);
}

/* The library's version is in the names: rows of another one are told, and timed anew. */
static void stale_rows_are_noticed(void **state)
{
    const ct_device *dev = test_cuda();
    ct_engine_plan *plan;
    char *text, *at;
    log_capture log;
    int64_t n;
    int lt = 0;

    (void)state;
    plan = make_plan(CT_ENGINE_PLAN_TIME, NULL, NULL);
    free(run_plan(dev, plan, &n, &text));
    for (int i = 0; ct_engine_plan_row(plan, i) != NULL; i++)
        lt += strncmp(ct_engine_plan_row(plan, i)->taken, "lt", 2) == 0;
    ct_engine_plan_destroy(plan);
    for (at = text; (at = strstr(at, " lt")) != NULL; at += 3) at[3] = (at[3] == '9') ? '8' : '9';
    log_capture_start(&log);
    plan = make_plan(CT_ENGINE_PLAN_TIME, text, NULL);
    free(run_plan(dev, plan, &n, NULL));
    log_capture_stop();
    assert_int_equal(log.n_error, 0);
    assert_int_equal(ct_engine_plan_tally(plan).n_timed, lt);
    if (is_emulated()) assert_true(lt > 0);
    if (lt > 0) assert_non_null(strstr(log.warning, "the row is not used"));
    check_rows(plan);
    ct_engine_plan_destroy(plan);
    free(text);
}

static void rank_0_chooses_for_all(void **state)
{
    const ct_device *dev = test_cuda();
    ct_net_options o = { .phase = CT_TRAIN, .dev = dev, .env = { .n_rank = 1, .seed = 5 } };
    ProtobufCMessage *message;
    ct_engine_plan *plan;
    float *first, *second;
    ct_net *net = NULL;
    log_capture log;
    wire w = { .rank = 0 };
    int64_t n, m;
    int asked;

    (void)state;
    plan = make_plan(CT_ENGINE_PLAN_TIME, NULL, &w);
    first = run_plan(dev, plan, &n, NULL);
    ct_engine_plan_destroy(plan);
    asked = w.n;
    w.rank = 1;
    plan = make_plan(CT_ENGINE_PLAN_TIME, NULL, &w);
    second = run_plan(dev, plan, &m, NULL);
    assert_int_equal(ct_engine_plan_tally(plan).n_timed, 0);
    ct_engine_plan_destroy(plan);
    assert_int_equal(w.n, asked); /* the same questions in the same order */
    check_bits(first, second, n);
    free(first), free(second);
    /* an algorithm that nobody spoke of */
    snprintf(w.said[1], CT_ENGINE_PLAN_NAME, "lt1:2.3");
    plan = make_plan(CT_ENGINE_PLAN_TIME, NULL, &w);
    o.env.plan = plan;
    assert_int_equal(ct_prototxt_parse(&ct__net_parameter__descriptor, "test", noise, strlen(noise),
                                       NULL, &message),
                     CT_OK);
    log_capture_start(&log);
    assert_int_equal(ct_net_create((const Ct__NetParameter *)message, &o, &net), CT_ERR_CONFIG);
    log_capture_stop();
    assert_non_null(strstr(log.error, "rank 0 takes engine \"lt1:2.3\""));
    ct_engine_plan_destroy(plan);
    protobuf_c_message_free_unpacked(message, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_are_the_same_with_and_without),
        cmocka_unit_test(biases_come_with_their_relus),
        cmocka_unit_test(products_are_timed_and_replayed),
        cmocka_unit_test(narrow_products_are_timed_and_replayed),
        cmocka_unit_test(stale_rows_are_noticed),
        cmocka_unit_test(rank_0_chooses_for_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
