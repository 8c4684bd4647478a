/* Passes of one net: micro-batches that are under way at once give the bits of one pass that takes
 * them one after the other. A pass runs on a second set of weights. On the CPU, and on a CUDA
 * device where one is. */
#include "tests/test.h"
#include "tests/cuda_case.h"
#include "tests/layer_harness.h"
#include "tests/net_layers.h"

#include "framework/net/step_after.h"

#include <stdlib.h>
#include <string.h>

enum { N_BATCH = 6, MOST_STATE = 64 };

#define LAYER(name, type, bottom, top, more)                                                       \
    "layer { name: '" name "' type: '" type "' bottom: '" bottom "' top: '" top "' " more " }\n"
#define INPUT(name, dims)                                                                          \
    "layer { name: '" name "' type: 'Input' top: '" name "' input_param { shape { " dims " } } "   \
    "}\n"
#define CONV(name, bottom, top, n, more)                                                           \
    LAYER(name, "Convolution", bottom, top,                                                        \
          "convolution_param { num_output: " n " " more                                            \
          " weight_filler { type: 'xavier' } bias_filler { value: 0.1 } }")
#define FC(name, bottom, top, n, more)                                                             \
    LAYER(name, "InnerProduct", bottom, top,                                                       \
          "inner_product_param { num_output: " n " " more                                          \
          " weight_filler { type: 'xavier' } bias_filler { value: 0.1 } }")
#define IMAGES INPUT("data", "dim: 6 dim: 3 dim: 10 dim: 10") INPUT("label", "dim: 6")

#define TWO(name, type, a, b, top, more)                                                           \
    "layer { name: '" name "' type: '" type "' bottom: '" a "' bottom: '" b "' top: '" top         \
    "' " more " }\n"

/* groups of a BatchNorm and of products with a ReLU, statistics, dropout, several readers */
static const char images[] =
    IMAGES CONV("c1", "data", "c1", "16", "kernel_size: 3") LAYER("b1", "BatchNorm", "c1", "b1", "")
        LAYER("s1", "Scale", "b1", "b1", "scale_param { bias_term: true }")
            LAYER("r1", "ReLU", "b1", "b1", "") LAYER("p1", "Pooling", "b1", "p1",
                                                      "pooling_param { kernel_size: 2 stride: 2 }")
                CONV("c2", "p1", "c2", "16", "kernel_size: 3 pad: 1")
                    LAYER("r2", "ReLU", "c2", "c2", "") TWO("sum", "Eltwise", "c2", "p1", "v", "")
                        FC("f1", "v", "f1", "20", "") LAYER("r3", "ReLU", "f1", "f1", "")
                            LAYER("d", "Dropout", "f1", "f1", "") FC("f2", "f1", "f2", "5", "")
                                TWO("loss", "SoftmaxWithLoss", "f2", "label", "loss", "")
                                    TWO("a", "Accuracy", "f2", "label", "a", "");

/* state from batch to batch: cont is 1 everywhere */
static const char words[] = INPUT("data", "dim: 4 dim: 3 dim: 5") INPUT("cont", "dim: 4 dim: 3")
    INPUT("label", "dim: 4 dim: 3")
        TWO("l", "LSTM", "data", "cont", "l",
            "recurrent_param { num_output: 6 weight_filler { type: 'uniform' min: -1 max: 1 } }")
            LAYER("d", "Dropout", "l", "d", "") FC("f", "d", "f", "5", "axis: 2")
                TWO("loss", "SoftmaxWithLoss", "f", "label", "loss", "softmax_param { axis: 2 }");

/* another number of samples in each batch */
static const char varying[] =
    IMAGES INPUT("pick", "dim: 6") TWO("filter", "Filter", "data", "pick", "x", "")
        TWO("those", "Filter", "label", "pick", "y", "")
            CONV("c1", "x", "c1", "4", "kernel_size: 3") LAYER("r1", "ReLU", "c1", "c1", "")
                LAYER("d", "Dropout", "c1", "c1", "") FC("f", "c1", "f", "5", "")
                    TWO("loss", "SoftmaxWithLoss", "f", "y", "loss", "");

typedef struct fixture {
    const ct_device *dev;
    const char *text;
    bool recompute, poison, graph;
} fixture;

static void create(const fixture *f, test_net *t)
{
    ct_net_options o = { .phase = CT_TRAIN,
                         .table = ct_layer_table,
                         .dev = f->dev,
                         .recompute = f->recompute,
                         .graph = f->graph };

    if (f->poison) setenv("CORTADO_POISON", "1", 1);
    assert_int_equal(test_net_create(f->text, &o, t), CT_OK);
    unsetenv("CORTADO_POISON");
}

static void open_exec(const fixture *f, ct_pass *pass)
{
    pass->exec.seed = 5;
    pass->exec.deterministic = true;
    if (f->graph) assert_int_equal(f->dev->graph->stream_open(&pass->exec.stream), CT_OK);
}

static void put(const ct_pass *pass, const char *name, const float *v)
{
    int i = ct_net_find_layer(pass->net, name);
    const ct_tensor *top;

    if (i < 0) return;
    top = &pass->instance[i]->top[0]->data;
    assert_int_equal(pass->exec.dev->from_host(NULL, top->data, v, ct_tensor_bytes(top)), CT_OK);
}

static void put_batch(const ct_pass *pass, int batch)
{
    float data[6 * 3 * 10 * 10], label[12], pick[12], cont[12];

    test_random(data, 6 * 3 * 10 * 10, 11 + (uint64_t)batch, -1, 1);
    for (int i = 0; i < 12; i++) {
        label[i] = (float)((i * i + batch) % 5);
        pick[i] = (float)((i + batch) % (2 + batch) != 0);
        cont[i] = 1.0f;
    }
    put(pass, "data", data);
    put(pass, "label", label);
    put(pass, "pick", pick);
    put(pass, "cont", cont);
}

static float *on_host(const ct_device *dev, const float *v, int64_t n)
{
    float *copy = malloc((size_t)n * sizeof(*copy) + 1);

    assert_non_null(copy);
    if (n > 0) assert_int_equal(dev->to_host(NULL, copy, v, (size_t)n * sizeof(*copy)), CT_OK);
    return copy;
}

static void same(const ct_device *dev, const float *a, const float *b, int64_t n, const char *what)
{
    float *mine = on_host(dev, a, n), *other = on_host(dev, b, n);

    test_same(mine, other, n, what);
    free(mine);
    free(other);
}

static double forward(ct_pass *pass, int batch)
{
    double loss = 0.0;

    put_batch(pass, batch);
    pass->exec.micro_step = batch;
    assert_int_equal(ct_pass_forward(pass, &loss), CT_OK);
    return loss;
}

static void backward(ct_pass *pass, int batch)
{
    pass->exec.accumulate = (batch > 0);
    assert_int_equal(ct_pass_backward(pass, NULL, NULL), CT_OK);
    if (pass->exec.stream != NULL) assert_int_equal(pass->exec.dev->sync(pass->exec.stream), CT_OK);
}

/* Brings what layers carry into v, or from there; how many numbers. */
static int move_state(const ct_pass *pass, bool in, float v[MOST_STATE])
{
    int n = 0;

    for (int i = 0; i < pass->net->n_layer; i++) {
        for (int s = 0; s < CT_MAX_BUFFER; s++) {
            const ct_buffer *b = &pass->instance[i]->buffer[s];
            const ct_device *dev = pass->net->layer[i]->dev;

            if (b->row <= 0) continue;
            assert_true((size_t)n + b->bytes / sizeof(float) <= MOST_STATE);
            if (in)
                assert_int_equal(dev->from_host(NULL, b->data, v + n, b->bytes), CT_OK);
            else
                assert_int_equal(dev->to_host(NULL, v + n, b->data, b->bytes), CT_OK);
            n += (int)(b->bytes / sizeof(float));
        }
    }
    return n;
}

/* What the outputs hold, behind one another; to be freed. */
static float *outputs(const ct_pass *pass)
{
    const ct_net *net = pass->net;
    float *all = calloc(4096, sizeof(*all)), *at = all;

    for (int i = 0; i < net->n_output; i++) {
        const ct_tensor *t = &pass->blob[net->output[i].blob]->data;
        float *v = on_host(net->options.dev, t->data, ct_tensor_count(t));

        assert_true(at - all + ct_tensor_count(t) <= 4096);
        memcpy(at, v, (size_t)ct_tensor_count(t) * sizeof(*v));
        at += ct_tensor_count(t);
        free(v);
    }
    return all;
}

/* Batches 2 k and 2 k + 1 are under way at once, in two passes. */
static void check_interleaved(const fixture *f)
{
    test_net one, two;
    ct_pass *pass[2], *third;
    float state[2][MOST_STATE] = { { 0 }, { 0 } };

    create(f, &one);
    create(f, &two);
    pass[0] = two.net->pass;
    assert_int_equal(ct_pass_create(two.net, &third), CT_OK); /* comes and goes */
    assert_int_equal(ct_pass_create(two.net, &pass[1]), CT_OK);
    ct_pass_destroy(third);
    open_exec(f, one.net->pass);
    for (int k = 0; k < 2; k++) open_exec(f, pass[k]);
    for (int at = 0; at < N_BATCH; at += 2) {
        double loss[2];
        float *out[2];

        for (int k = 0; k < 2; k++) {
            loss[k] = forward(pass[k], at + k);
            out[k] = outputs(pass[k]);
        }
        for (int k = 0; k < 2; k++) backward(pass[k], at + k);
        for (int k = 0; k < 2; k++) {
            float *want;

            (void)move_state(one.net->pass, true, state[k]);
            assert_true(forward(one.net->pass, at + k) == loss[k]);
            want = outputs(one.net->pass);
            test_same(out[k], want, 4096, "outputs");
            backward(one.net->pass, at + k);
            (void)move_state(one.net->pass, false, state[k]);
            free(want);
            free(out[k]);
        }
        same(f->dev, two.net->grad_arena, one.net->grad_arena, one.net->grad_count, "gradients");
        same(f->dev, two.net->weight_arena, one.net->weight_arena, one.net->weight_count,
             "weights and statistics");
    }
    ct_pass_destroy(pass[1]);
    (void)forward(pass[0], 0); /* the net goes on */
    test_net_destroy(&one);
    test_net_destroy(&two);
}

static void interleaved_passes_give_the_bits_of_one(void **unused)
{
    const char *const text[] = { images, words, varying };
    const ct_device *dev[] = { ct_device_cpu(), test_cuda_there() };

    (void)unused;
    for (int d = 0; (d < 2) && (dev[d] != NULL); d++) {
        for (size_t k = 0; k < sizeof(text) / sizeof(text[0]); k++) {
            fixture f = { .dev = dev[d], .text = text[k] };

            check_interleaved(&f);
            f.recompute = true;
            f.poison = (d == 0);
            check_interleaved(&f);
            if ((dev[d]->graph == NULL) || (text[k] == varying)) continue;
            f.recompute = false;
            f.graph = true;
            check_interleaved(&f);
        }
    }
}

/* The state that an LSTM carries is in fact its own: it matters, and both passes have some. */
static void a_pass_has_its_own_state(void **unused)
{
    const fixture f = { .dev = ct_device_cpu(), .text = words };
    float state[2][MOST_STATE] = { { 0 }, { 0 } };
    double first, second;
    ct_pass *other;
    test_net t;
    int n;

    (void)unused;
    create(&f, &t);
    assert_int_equal(ct_pass_create(t.net, &other), CT_OK);
    open_exec(&f, t.net->pass);
    open_exec(&f, other);
    first = forward(t.net->pass, 0);
    n = move_state(t.net->pass, false, state[0]);
    assert_int_equal(n, 2 * 3 * 6);
    assert_int_equal(move_state(other, false, state[1]), n);
    for (int i = 0; i < n; i++) assert_true((state[1][i] == 0.0f) && (state[0][i] != 0.0f));
    second = forward(t.net->pass, 0);
    assert_true(first != second);
    assert_true(forward(other, 0) == first);
    assert_true(forward(other, 0) == second);
    ct_pass_destroy(other);
    test_net_destroy(&t);
}

/* ---- a second set of weights */

static float *put_arena(const ct_device *dev, const float *host, int64_t n)
{
    size_t bytes = (size_t)n * sizeof(*host);
    void *arena;

    assert_int_equal(dev->mem_acquire(bytes, &arena), CT_OK);
    assert_int_equal(dev->from_host(NULL, arena, host, bytes), CT_OK);
    return arena;
}

/* What a step on a pass gives: its loss, outputs and the net's gradients. */
typedef struct result {
    double loss;
    float *out, *grad;
} result;

static result step(ct_pass *pass, int batch)
{
    const ct_net *net = pass->net;
    result r = { .loss = forward(pass, batch) };

    r.out = outputs(pass);
    backward(pass, 0);
    r.grad = on_host(net->options.dev, net->grad_arena, net->grad_count);
    return r;
}

static void same_result(const ct_net *net, result *a, result *b)
{
    assert_true(a->loss == b->loss);
    test_same(a->out, b->out, 4096, "outputs");
    test_same(a->grad, b->grad, net->grad_count, "gradients");
    free(a->out);
    free(a->grad);
    free(b->out);
    free(b->grad);
}

/* How a net gets at its second set. */
typedef enum { WHOLE, LEARNED, IN_A_PASS, N_WAY } way;

typedef struct trio {
    test_net t, own, other; /* has both sets; has its own for good; has the second for good */
    ct_weight_set set;
    ct_pass *second; /* what runs on the set */
    float *before;
} trio;

static void open_trio(const fixture *f, way how, trio *r)
{
    float *values;

    create(f, &r->t);
    create(f, &r->own);
    create(f, &r->other);
    r->set.net = r->t.net;
    r->set.count = (how == LEARNED) ? r->t.net->grad_count : r->t.net->weight_count;
    r->before = on_host(f->dev, r->t.net->weight_arena, r->t.net->weight_count);
    values = on_host(f->dev, r->t.net->weight_arena, r->set.count);
    for (int64_t i = 0; i < r->set.count; i++) values[i] = 0.75f * values[i] + 0x1p-6f;
    r->set.arena = put_arena(f->dev, values, r->set.count);
    assert_int_equal(f->dev->from_host(NULL, r->other.net->weight_arena, values,
                                       (size_t)r->set.count * sizeof(*values)),
                     CT_OK);
    ct_net_weights_changed(r->other.net);
    free(values);
    r->second = r->t.net->pass;
    if (how == IN_A_PASS) {
        assert_int_equal(ct_pass_create(r->t.net, &r->second), CT_OK);
        assert_int_equal(ct_pass_use_weights(r->second, &r->set), CT_OK);
        open_exec(f, r->second);
    }
    open_exec(f, r->t.net->pass);
    open_exec(f, r->own.net->pass);
    open_exec(f, r->other.net->pass);
}

static void close_trio(const fixture *f, trio *r)
{
    if (r->second != r->t.net->pass) ct_pass_destroy(r->second);
    f->dev->mem_release(r->set.arena);
    free(r->before);
    test_net_destroy(&r->t);
    test_net_destroy(&r->own);
    test_net_destroy(&r->other);
}

/* A pass of the net that has both sets, and the net that has just that one: the same bits, from the
 * same state and statistics. */
static void compare_step(const fixture *f, ct_pass *pass, const ct_net *alone, way how, int batch)
{
    const ct_net *net = pass->net;
    float state[MOST_STATE];
    result is, want;

    (void)move_state(pass, false, state);
    (void)move_state(alone->pass, true, state);
    if (how == LEARNED)
        assert_int_equal(
            f->dev->copy(NULL, alone->weight_arena + net->grad_count,
                         net->weight_arena + net->grad_count,
                         (size_t)(net->weight_count - net->grad_count) * sizeof(float)),
            CT_OK);
    is = step(pass, batch);
    want = step(alone->pass, batch);
    same_result(net, &is, &want);
}

/* Two runs on one set, two on the other, and again: a device records the second. */
static void check_sets(const fixture *f, way how)
{
    trio r = { .second = NULL };
    int64_t version = -1;
    float *now;

    open_trio(f, how, &r);
    for (int batch = 0; batch < 8; batch++) {
        bool turn = (batch / 2) % 2 == 1;
        ct_pass *pass = turn ? r.second : r.t.net->pass;

        if ((batch % 2 == 0) && (how != IN_A_PASS))
            assert_int_equal(ct_pass_use_weights(pass, turn ? &r.set : NULL), CT_OK);
        compare_step(f, pass, turn ? r.other.net : r.own.net, how, batch);
        if ((batch % 2 == 0) && (how != IN_A_PASS))
            assert_true(pass->instance[0]->weight_version > version);
        version = pass->instance[0]->weight_version;
    }
    now = on_host(f->dev, r.t.net->weight_arena, r.t.net->grad_count);
    test_same(now, r.before, r.t.net->grad_count, "what learns");
    free(now);
    if (how != LEARNED) { /* with the statistics of their own runs */
        same(f->dev, r.t.net->weight_arena, r.own.net->weight_arena, r.set.count, "its own");
        same(f->dev, r.set.arena, r.other.net->weight_arena, r.set.count, "the set");
    }
    close_trio(f, &r);
}

static void a_set_of_weights_takes_the_place_of_the_nets(void **unused)
{
    const char *const text[] = { images, words };
    const ct_device *dev[] = { ct_device_cpu(), test_cuda_there() };

    (void)unused;
    for (int d = 0; (d < 2) && (dev[d] != NULL); d++) {
        for (int k = 0; k < 2 * N_WAY; k++) {
            fixture f = { .dev = dev[d], .text = text[k % 2] };

            check_sets(&f, (way)(k / 2));
            f.graph = true;
            if (dev[d]->graph != NULL) check_sets(&f, (way)(k / 2));
        }
    }
}

/* A net that uses the weights of another one runs on a set of that one. */
static void a_borrower_runs_on_a_set(void **unused)
{
    const fixture f = { .dev = ct_device_cpu(), .text = images };
    ct_net_options o = { .phase = CT_TEST, .table = ct_layer_table };
    test_net train, test;
    ct_weight_set set;
    double own, other;
    float *values;

    (void)unused;
    create(&f, &train);
    o.share = train.net;
    assert_int_equal(test_net_create(images, &o, &test), CT_OK);
    set = (ct_weight_set){ train.net, NULL, train.net->grad_count };
    values = on_host(f.dev, train.net->weight_arena, set.count);
    for (int64_t i = 0; i < set.count; i++) values[i] *= 0.5f;
    set.arena = values;
    own = forward(test.net->pass, 1);
    assert_int_equal(ct_pass_use_weights(test.net->pass, &set), CT_OK);
    other = forward(test.net->pass, 1);
    assert_true(other != own);
    assert_int_equal(ct_pass_use_weights(test.net->pass, NULL), CT_OK);
    assert_true(forward(test.net->pass, 1) == own);
    memcpy(train.net->weight_arena, values, (size_t)set.count * sizeof(*values));
    assert_true(forward(test.net->pass, 1) == other);
    test_net_destroy(&test);
    test_net_destroy(&train);
    free(values);
}

static void sets_that_do_not_fit_are_refused(void **unused)
{
    const fixture f = { .dev = ct_device_cpu(), .text = images };
    test_net t, stranger;
    ct_weight_set set;
    const char *log;

    (void)unused;
    create(&f, &t);
    create(&f, &stranger);
    set = (ct_weight_set){ stranger.net, stranger.net->weight_arena, stranger.net->weight_count };
    test_log_start();
    assert_int_equal(ct_pass_use_weights(t.net->pass, &set), CT_ERR_ARG);
    set = (ct_weight_set){ t.net, stranger.net->weight_arena, t.net->param[1].offset + 1 };
    assert_int_equal(ct_pass_use_weights(t.net->pass, &set), CT_ERR_ARG);
    log = test_log_stop();
    if (strstr(log, t.net->param[1].key) == NULL) fail_msg("%s", log);
    for (int i = 0; i < t.net->n_layer; i++) { /* nothing has changed */
        for (int w = 0; w < t.net->layer[i]->n_weight; w++)
            assert_ptr_equal(t.net->pass->instance[i]->weight[w].data.data,
                             t.net->param[ct_net_param_of(t.net, i, w)].blob.data.data);
    }
    test_net_destroy(&t);
    test_net_destroy(&stranger);
}

/* ---- memory of passes in flight */

static size_t n_acquired;

static ct_status counted_acquire(size_t bytes, void **block_p)
{
    n_acquired += bytes;
    return ct_device_cpu()->mem_acquire(bytes, block_p);
}

/* What a pass tells the host lies beside the plan: a byte more than its losses. */
static size_t told_bytes(const ct_net *net)
{
    size_t bytes = 1;

    for (int i = 0; i < net->n_output; i++) {
        if (net->output[i].loss_weight != 0.0f)
            bytes += ct_tensor_bytes(&net->pass->blob[net->output[i].blob]->data);
    }
    return bytes;
}

static void what_is_planned_is_allocated(void **unused)
{
    const char *const text[] = { images, words };

    (void)unused;
    for (int i = 0; i < 2; i++) {
        size_t single = 0;

        for (int k = 1; k <= 4; k++) {
            ct_device dev = *ct_device_cpu();
            ct_net_options o = {
                .phase = CT_TRAIN, .table = ct_layer_table, .dev = &dev, .in_flight = k
            };
            ct_pass *more[4];
            const ct_memory *m;
            test_net t;

            dev.mem_acquire = counted_acquire;
            n_acquired = 0;
            assert_int_equal(test_net_create(text[i], &o, &t), CT_OK);
            m = &t.net->memory;
            for (int p = 1; p < k; p++) {
                assert_true(m->allocated < m->planned + m->weights);
                assert_int_equal(ct_pass_create(t.net, &more[p]), CT_OK);
            }
            assert_int_equal(m->allocated, m->planned + m->weights);
            assert_int_equal(n_acquired, m->allocated + (size_t)k * told_bytes(t.net));
            if (k == 1) single = m->planned;
            assert_true((k == 1) || (m->planned < (size_t)k * single));
            for (int p = 1; p < k; p++) ct_pass_destroy(more[p]);
            test_net_destroy(&t);
        }
    }
}

/* ---- what cannot be */

/* Wants more memory each time. */
static int n_shaped;

static ct_status grow_reshape(const ct_layer *l, ct_instance *in)
{
    (void)l;
    ct_blob_set_shape(in->top[0], &in->bottom[0]->data.shape);
    ct_instance_buffer(in, 0, CT_LIFETIME_CALL, (size_t)(100 * ++n_shaped));
    return CT_OK;
}

static ct_status grow_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)l;
    (void)in;
    (void)ex;
    return CT_OK;
}

static void a_pass_that_does_not_fit_is_refused(void **unused)
{
    static const ct_layer_ops grow = { .type = "Grow",
                                       .min_bottom = 1,
                                       .max_bottom = 1,
                                       .min_top = 1,
                                       .max_top = 1,
                                       .reshape = grow_reshape,
                                       .forward = grow_forward };
    ct_net_options o = { .phase = CT_TEST, .table = test_full_table(&grow) };
    ct_pass *pass = NULL;
    test_net t;
    ct_status status;
    const char *log;

    (void)unused;
    assert_int_equal(
        test_net_create(INPUT("data", "dim: 2") LAYER("g", "Grow", "data", "y", ""), &o, &t),
        CT_OK);
    test_log_start();
    status = ct_pass_create(t.net, &pass);
    log = test_log_stop();
    assert_int_equal(status, CT_ERR_CONFIG);
    assert_null(pass);
    if (strstr(log, "layer \"g\" (Grow)") == NULL) fail_msg("%s", log);
    assert_int_equal(ct_pass_forward(t.net->pass, NULL), CT_OK);
    test_net_destroy(&t);
}

static void a_pass_without_memory_does_not_run(void **unused)
{
    ct_net_options o = { .phase = CT_TRAIN, .table = ct_layer_table, .no_data = true };
    ct_pass *pass;
    test_net t;

    (void)unused;
    assert_int_equal(test_net_create(images, &o, &t), CT_OK);
    assert_int_equal(ct_pass_create(t.net, &pass), CT_OK);
    test_log_start();
    assert_int_equal(ct_pass_forward(pass, NULL), CT_ERR_ARG);
    (void)test_log_stop();
    ct_pass_destroy(pass);
    test_net_destroy(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(interleaved_passes_give_the_bits_of_one),
        cmocka_unit_test(a_pass_has_its_own_state),
        cmocka_unit_test(a_set_of_weights_takes_the_place_of_the_nets),
        cmocka_unit_test(a_borrower_runs_on_a_set),
        cmocka_unit_test(sets_that_do_not_fit_are_refused),
        cmocka_unit_test(what_is_planned_is_allocated),
        cmocka_unit_test(a_pass_that_does_not_fit_is_refused),
        cmocka_unit_test(a_pass_without_memory_does_not_run),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
