/* Filter in nets: what follows it computes, batch after batch, what a net made for just the samples
 * that pass computes, to the last bit; on several ranks the global batch is what passes on all.
 * With CORTADO_TEST_DEVICE=cuda on that device, and there beside the CPU, too. */
#include "tests/test.h"
#include "tests/box_net.h"
#include "tests/fake_ranks.h"
#include "tests/layer_harness.h"
#include "tests/net_layers.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#define N_TEXT "7"
enum { N = 7, CHANNELS = 3, SIDE = 6, PIXELS = CHANNELS * SIDE * SIDE, CLASSES = 5 };

#define LAYER(name, type, bottom, top, more)                                                       \
    "layer { name: '" name "' type: '" type "' bottom: '" bottom "' top: '" top "' " more " }\n"
#define TWO(name, type, a, b, top, more)                                                           \
    "layer { name: '" name "' type: '" type "' bottom: '" a "' bottom: '" b "' top: '" top         \
    "' " more " }\n"
#define INPUT(name, dims)                                                                          \
    "layer { name: '" name "' type: 'Input' top: '" name "' input_param { shape { " dims " } } "   \
    "}\n"
#define IMAGES "dim: 3 dim: 6 dim: 6"
#define CONV(name, bottom, top, n, more)                                                           \
    LAYER(name, "Convolution", bottom, top,                                                        \
          "convolution_param { num_output: " n " " more                                            \
          " weight_filler { type: 'xavier' } bias_filler { value: 0.1 } }")
#define FC(name, bottom, top, n)                                                                   \
    LAYER(name, "InnerProduct", bottom, top,                                                       \
          "inner_product_param { num_output: " n                                                   \
          " weight_filler { type: 'xavier' } bias_filler { value: 0.1 } }")
#define POOL(name, bottom, top, kind)                                                              \
    LAYER(name, "Pooling", bottom, top, "pooling_param { pool: " kind " kernel_size: 2 stride: 2 }")
#define FILTER                                                                                     \
    "layer { name: 'filter' type: 'Filter' bottom: 'data' bottom: 'label' bottom: 'pick' "         \
    "top: 'x' top: 'y' }\n"
#define LOSS(bottom)     TWO("loss", "SoftmaxWithLoss", bottom, "y", "loss", "")
#define ACCURACY(bottom) TWO("accuracy", "Accuracy", bottom, "y", "accuracy", "")

#define BY(name, bottom, pick, top)                                                                \
    "layer { name: '" name "' type: 'Filter' bottom: '" bottom "' bottom: '" pick "' top: '" top   \
    "' }\n"

static const char plain[] = CONV("c1", "x", "c1", "4", "kernel_size: 3")
    LAYER("r1", "ReLU", "c1", "c1", "") POOL("p1", "c1", "p1", "MAX") FC("f1", "p1", "f1", "9")
        LAYER("t1", "TanH", "f1", "f1", "") FC("f2", "f1", "f2", "5") LOSS("f2") ACCURACY("f2");

/* channels in blocks from the first convolution on; sums, several readers, statistics of the batch
 */
static const char blocks[] =
    CONV("c0", "x", "s", "16", "kernel_size: 3 pad: 1") LAYER("b0", "BatchNorm", "s", "s", "")
        LAYER("s0", "Scale", "s", "s", "scale_param { bias_term: true }")
            LAYER("r0", "ReLU", "s", "s", "") CONV("c1", "s", "u", "16", "kernel_size: 3 pad: 1")
                LAYER("b1", "BatchNorm", "u", "u", "") LAYER("r1", "ReLU", "u", "u", "")
                    LAYER("n1", "LRN", "u", "n", "lrn_param { local_size: 3 alpha: 0.5 }")
                        TWO("sum", "Eltwise", "s", "n", "v", "") POOL("p", "v", "p", "AVE")
                            CONV("c2", "p", "q", "32", "kernel_size: 1 group: 2")
                                TWO("cat", "Concat", "p", "q", "w", "") FC("f", "w", "f", "5")
                                    LOSS("f") ACCURACY("f");

/* what reshapes, cuts and joins */
static const char shapes[] = LAYER(
    "bn", "BN", "x", "b",
    "") "layer { name: 'cut' type: 'Slice' bottom: 'b' top: 'b0' top: 'b1' slice_param { "
        "slice_point: 1 } }\n" LAYER("re", "Reshape", "b1", "re",
                                     "reshape_param { shape { dim: 0 dim: -1 dim: 4 } }")
            LAYER("d", "Dropout", "re", "d", "dropout_param { dropout_ratio: 0.3 }")
                LAYER("flat", "Flatten", "b0", "flat", "") FC("f0", "flat", "f0", "5")
                    FC("f1", "d", "f1",
                       "5") "layer { name: 'max' type: 'Eltwise' bottom: 'f0' bottom: 'f1' top: "
                            "'m' eltwise_param { "
                            "operation: PROD } }\n" LAYER("norm", "LayerNorm", "m", "ln", "")
                                TWO("twice", "Concat", "m", "ln", "all", "concat_param { axis: 0 }")
                                    LAYER("mean", "Reduction", "all", "mean",
                                          "reduction_param { operation: MEAN } loss_weight: 0.5")
                                        LAYER("soft", "Softmax", "ln", "prob", "")
                                            LAYER("quiet", "Power", "prob", "squares",
                                                  "power_param { power: 2 }") LOSS("m");

static const struct {
    const char *name, *body;
} bodies[] = { { "plain", plain }, { "blocks", blocks }, { "shapes", shapes } };
enum { N_BODY = sizeof(bodies) / sizeof(bodies[0]) };

/* Which samples pass, from batch to batch. */
static const char *const masks[] = { "0110100", "0000000", "1111111", "0001000",
                                     "1101111", "0000001", "1010101", "0000000" };
enum { N_MASK = sizeof(masks) / sizeof(masks[0]) };

typedef struct batch {
    float data[N * PIXELS], label[N], pick[N];
} batch;

static void make_batch(batch *b, const char *mask, int step)
{
    test_random(b->data, N * PIXELS, 11 + (uint64_t)step, -1, 1);
    for (int i = 0; i < N; i++) {
        b->label[i] = (float)((i * i + step) % CLASSES);
        b->pick[i] = (mask[i] == '1') ? 0.5f - (float)(i % 2) : 0.0f; /* anything but 0 */
    }
}

/* Where the nets are. */
static const ct_device *device(void)
{
    const char *mode = getenv("CORTADO_TEST_DEVICE");
    const ct_device *dev = ct_device_cpu();

    if (mode != NULL) assert_int_equal(ct_device_open(mode, 0, &dev), CT_OK);
    return dev;
}

static bool on_cpu(void)
{
    return device()->kind == CT_DEVICE_CPU;
}

/* n numbers of a net on the host, to be freed. */
static float *host(const test_net *t, const float *v, int64_t n)
{
    const ct_device *dev = t->net->options.dev;
    float *copy = malloc((size_t)n * sizeof(*copy) + 1);

    assert_non_null(copy);
    if (n > 0) assert_int_equal(dev->to_host(NULL, copy, v, (size_t)n * sizeof(*copy)), CT_OK);
    return copy;
}

/* Two nets have the same bits. */
static void same(const test_net *a, const float *x, const test_net *b, const float *y, int64_t n,
                 const char *what)
{
    float *mine = host(a, x, n), *other = host(b, y, n);

    test_same(mine, other, n, what);
    free(mine);
    free(other);
}

static void put(const test_net *t, const char *name, const float *v, int64_t n)
{
    int b = ct_net_find_blob(t->net, name);

    assert_true(b >= 0);
    for (int i = 0; i < t->net->n_layer; i++) { /* the first of that name: what Input makes */
        if (strcmp(t->net->layer[i]->name, name) == 0)
            assert_int_equal(
                t->net->options.dev->from_host(NULL, t->net->pass->instance[i]->top[0]->data.data,
                                               v, (size_t)n * sizeof(*v)),
                CT_OK);
    }
}

static void put_batch(const test_net *t, const batch *b)
{
    put(t, "data", b->data, (int64_t)N * PIXELS);
    put(t, "label", b->label, N);
    put(t, "pick", b->pick, N);
}

static void create(const char *text, ct_net_options o, bool poison, test_net *t)
{
    ct_status status;

    o.table = ct_layer_table;
    if ((o.dev == NULL) && !o.no_data) o.dev = device();
    if (poison) setenv("CORTADO_POISON", "1", 1);
    status = test_net_create(text, &o, t);
    unsetenv("CORTADO_POISON");
    if (status != CT_OK) fail_msg("status %d of: %s", (int)status, text);
    t->net->pass->exec.deterministic = true;
    t->net->pass->exec.seed = 5;
}

/* A net for k samples of which all pass, with those that pass of b; k > 0. */
static void create_fixed(const char *body, const batch *b, ct_net_options o, const char *head,
                         test_net *t)
{
    static float x[N * PIXELS], y[N];
    char text[8192];
    int k = 0;

    for (int i = 0; i < N; i++) {
        if (b->pick[i] == 0.0f) continue;
        memcpy(x + k * PIXELS, b->data + i * PIXELS, PIXELS * sizeof(float));
        y[k++] = b->label[i];
    }
    snprintf(
        text, sizeof(text),
        "%s layer { name: 'x' type: 'Input' top: 'x' input_param { shape { dim: %d " IMAGES
        " } } } layer { name: 'y' type: 'Input' top: 'y' input_param { shape { dim: %d } } }\n%s",
        head, k, k, body);
    o.no_fuse = true;
    create(text, o, false, t);
    put(t, "x", x, (int64_t)k * PIXELS);
    put(t, "y", y, k);
}

static const char *filtered(const char *head, const char *body, char text[8192])
{
    snprintf(text, 8192,
             "%s" INPUT("data", "dim: " N_TEXT " " IMAGES) INPUT("label", "dim: " N_TEXT)
                 INPUT("pick", "dim: " N_TEXT " dim: 1 dim: 1") FILTER "%s",
             head, body);
    return text;
}

static void move(const test_net *from, const float *x, const test_net *to, float *y, int64_t n)
{
    float *copy = host(from, x, n);

    assert_int_equal(to->net->options.dev->from_host(NULL, y, copy, (size_t)n * sizeof(*copy)),
                     CT_OK);
    free(copy);
}

/* Weights and statistics too: what moves in one batch is there in the next. */
static void copy_state(const test_net *from, const test_net *to)
{
    assert_int_equal(from->net->weight_count, to->net->weight_count);
    assert_int_equal(from->net->grad_count, to->net->grad_count);
    move(from, from->net->weight_arena, to, to->net->weight_arena, from->net->weight_count);
    if (from->net->grad_count > 0)
        move(from, from->net->grad_arena, to, to->net->grad_arena, from->net->grad_count);
}

static double pass(test_net *t, int64_t step, bool accumulate)
{
    double loss;

    if (t->net->pass->exec.phase == CT_TRAIN) return test_net_pass(t, step, accumulate);
    t->net->pass->exec.micro_step = step;
    assert_int_equal(ct_pass_forward(t->net->pass, &loss), CT_OK);
    return loss;
}

static const ct_blob *blob(const test_net *t, const char *name)
{
    return t->net->pass->blob[ct_net_find_blob(t->net, name)];
}

/* The loss, every output, every weight and its gradient; with `diffs` those of the images, too. */
static void compare(const test_net *t, const test_net *fixed, const batch *b, bool diffs)
{
    int64_t k = 0;

    assert_int_equal(t->net->n_output, fixed->net->n_output);
    for (int i = 0; i < t->net->n_output; i++) {
        const ct_blob *a = t->net->pass->blob[t->net->output[i].blob];
        const ct_blob *f = fixed->net->pass->blob[fixed->net->output[i].blob];

        assert_string_equal(a->name, f->name);
        assert_true(ct_shape_equal(&a->data.shape, &f->data.shape));
        same(t, ct_blob_data(a), fixed, ct_blob_data(f), ct_tensor_count(&a->data), a->name);
    }
    same(t, t->net->weight_arena, fixed, fixed->net->weight_arena, t->net->weight_count, "weights");
    same(t, t->net->grad_arena, fixed, fixed->net->grad_arena, t->net->grad_count, "gradients");
    for (int i = 0; diffs && (i < N); i++) {
        float *dx = host(t, ct_blob_diff(blob(t, "data")) + i * PIXELS, PIXELS);
        static const float none[PIXELS];

        if (b->pick[i] == 0.0f)
            test_same(dx, none, PIXELS, "the gradient of what does not pass");
        else
            same(t, ct_blob_diff(blob(t, "data")) + i * PIXELS, fixed,
                 ct_blob_diff(blob(fixed, "x")) + PIXELS * k++, PIXELS, "a gradient");
        free(dx);
    }
}

static void compare_empty(const test_net *t, double loss, const float *weights)
{
    float *now = host(t, t->net->weight_arena, t->net->weight_count);
    float *grad = host(t, t->net->grad_arena, t->net->grad_count);

    assert_true(loss == 0.0);
    test_same(now, weights, t->net->weight_count, "weights");
    for (int64_t i = 0; i < t->net->grad_count; i++) assert_true(grad[i] == 0.0f);
    free(now);
    free(grad);
}

static void run_masks(int body, ct_net_options o, bool diffs)
{
    const char *head = diffs ? "force_backward: true\n" : "";
    char text[8192];
    static batch b;
    test_net t;

    create(filtered(head, bodies[body].body, text), o, true, &t);
    for (int s = 0; s < N_MASK; s++) {
        bool add = (s % 3) == 2, none = strchr(masks[s], '1') == NULL;
        float *before = host(&t, t.net->weight_arena, t.net->weight_count);
        test_net fixed;
        double loss;

        make_batch(&b, masks[s], s);
        put_batch(&t, &b);
        if (!none) {
            create_fixed(bodies[body].body, &b, o, head, &fixed);
            copy_state(&t, &fixed);
            loss = pass(&fixed, s, add);
            assert_true(pass(&t, s, add) == loss);
            compare(&t, &fixed, &b, diffs);
            test_net_destroy(&fixed);
        } else {
            compare_empty(&t, pass(&t, s, false), before);
        }
        free(before);
    }
    test_net_destroy(&t);
}

static void as_a_net_of_what_passes(void **state)
{
    int before = omp_get_max_threads();

    (void)state;
    for (int n_thread = 1; n_thread <= 3; n_thread += 2) {
        omp_set_num_threads(n_thread);
        for (int i = 0; i < N_BODY; i++) {
            run_masks(i, (ct_net_options){ .phase = CT_TRAIN }, false);
            run_masks(i, (ct_net_options){ .phase = CT_TRAIN }, true);
            run_masks(i, (ct_net_options){ .phase = CT_TEST }, false);
        }
    }
    omp_set_num_threads(before);
}

/* The same of products in bf16, and on devices of values of 16 bits. */
static void in_bf16(void **state)
{
    ct_net_options o = { .phase = CT_TRAIN };

    (void)state;
    o.env.precision = CT__SOLVER_PARAMETER__PRECISION__BF16;
    for (int i = 0; i < N_BODY; i++) run_masks(i, o, false);
}

static void blocks_are_there(void **state)
{
    ct_net_options o = { .phase = CT_TRAIN, .dev = ct_device_cpu() };
    char text[8192];
    test_net t;
    int n_group = 0;

    (void)state;
    create(filtered("", blocks, text), o, false, &t);
    assert_true(t.net->pass->instance[ct_net_find_layer(t.net, "c1")]->top[0]->data.layout.block >
                0);
    for (int i = 0; i < t.net->n_layer; i++) n_group += (t.net->pass->instance[i]->tail != NULL);
    assert_int_equal(n_group, 0); /* behind a Filter every layer runs alone */
    test_net_destroy(&t);
}

/* ---- a device beside the CPU */

/* Both sum the same products in f32 in some order: n eps of the largest term, with n the longest
 * sum there is (a weight's gradient over 7 x 6 x 6 places), through ten layers. */
static void near_cpu(const float *got, const float *want, int64_t n, const char *what)
{
    const float share = 10 * 252 * 0x1p-24f;
    float largest = 0.0f;

    for (int64_t i = 0; i < n; i++) largest = fmaxf(largest, fabsf(want[i]));
    for (int64_t i = 0; i < n; i++) {
        if (!(fabsf(got[i] - want[i]) <= share * largest))
            fail_msg("%s %lld: %.9g, on the CPU %.9g", what, (long long)i, (double)got[i],
                     (double)want[i]);
    }
}

static void beside_cpu(const char *body, const char *name, bool none_may_pass)
{
    ct_net_options on[2] = { { .phase = CT_TRAIN, .dev = ct_device_cpu() },
                             { .phase = CT_TRAIN, .dev = device() } };
    char text[8192];
    static batch b;
    test_net t[2];

    for (int k = 0; k < 2; k++) create(filtered("", body, text), on[k], false, &t[k]);
    for (int s = 0; s < N_MASK; s++) {
        double loss[2];
        float *grad;

        if (!none_may_pass && (strchr(masks[s], '1') == NULL)) continue;
        make_batch(&b, masks[s], s);
        copy_state(&t[0], &t[1]);
        for (int k = 0; k < 2; k++) {
            put_batch(&t[k], &b);
            loss[k] = pass(&t[k], s, false);
        }
        assert_true(fabs(loss[1] - loss[0]) <= 10 * 252 * 0x1p-24 * fabs(loss[0]));
        grad = host(&t[1], t[1].net->grad_arena, t[1].net->grad_count);
        near_cpu(grad, t[0].net->grad_arena, t[0].net->grad_count, name);
        free(grad);
    }
    test_net_destroy(&t[0]);
    test_net_destroy(&t[1]);
}

/* The last with a layer on the host behind the Filter; its true box is one of the first sample. */
static void as_on_cpu(void **state)
{
    static const char boxes[] =
        TEST_BOX_LOSS("x", "x", "144", "108") FC("f", "x", "f", "5") LOSS("f");

    (void)state;
    if (on_cpu()) skip();
    for (int i = 0; i < N_BODY; i++) beside_cpu(bodies[i].body, bodies[i].name, true);
    test_log_start();
    beside_cpu(boxes, "boxes", false);
    assert_non_null(strstr(test_log_stop(), "runs on the host"));
}

/* Values of 16 bits with channels last: the samples that pass, bit by bit, and zeros where
 * gradients of others would be. */
static void narrow_on_devices(void **state)
{
    static const char front[] =
        INPUT("data", "dim: " N_TEXT " " IMAGES) INPUT("label", "dim: " N_TEXT)
            INPUT("pick", "dim: " N_TEXT) CONV("c0", "data", "c0", "8", "kernel_size: 3 pad: 1")
                BY("f0", "c0", "pick", "x") BY("fy", "label", "pick", "y")
                    POOL("p", "x", "p", "MAX") FC("f", "p", "f", "5") LOSS("f");
    enum { WORDS = 8 * SIDE * SIDE / 2 /* of a sample */ };
    ct_net_options o = { .phase = CT_TRAIN, .unshared = true };
    static batch b;
    test_net t;

    (void)state;
    if (on_cpu()) skip();
    o.env.precision = CT__SOLVER_PARAMETER__PRECISION__BF16;
    create(front, o, false, &t);
    assert_true(ct_blob_is_last(blob(&t, "x")) && ct_blob_is_bf16(blob(&t, "x")));
    for (int s = 0; s < N_MASK; s++) {
        int k = 0;

        make_batch(&b, masks[s], s);
        put_batch(&t, &b);
        (void)pass(&t, s, false);
        for (int i = 0; i < N; i++) {
            const float *all = ct_blob_data(blob(&t, "c0")) + i * WORDS;
            float *dx = host(&t, ct_blob_diff(blob(&t, "c0")) + i * WORDS, WORDS);
            static const float none[WORDS];

            if (b.pick[i] == 0.0f) {
                assert_memory_equal(dx, none, sizeof(none));
            } else {
                float *x = host(&t, all, WORDS);
                float *y = host(&t, ct_blob_data(blob(&t, "x")) + k * WORDS, WORDS);
                float *dy = host(&t, ct_blob_diff(blob(&t, "x")) + k++ * WORDS, WORDS);

                assert_memory_equal(x, y, sizeof(none));
                assert_memory_equal(dx, dy, sizeof(none));
                free(x);
                free(y);
                free(dy);
            }
            free(dx);
        }
        assert_int_equal(blob(&t, "x")->data.shape.dim[0], k);
    }
    test_net_destroy(&t);
}

/* ---- several filters, and what is joined again */

/* Data and labels by layers of their own; and what is left of one by a second choice. */
static void filters_of_filters(void **state)
{
    static const char several[] = INPUT("data", "dim: " N_TEXT " " IMAGES)
        INPUT("label", "dim: " N_TEXT) INPUT("pick", "dim: " N_TEXT) INPUT("pick2", "dim: " N_TEXT)
            BY("one", "data", "pick", "half") BY("two", "label", "pick", "half_label")
                BY("again", "pick2", "pick", "half_pick") BY("three", "half", "half_pick", "x")
                    BY("four", "half_label", "half_pick", "y");
    static const char second[N + 1] = "1011011";
    char text[8192];
    static batch b, left;
    float pick2[N];
    test_net t;

    (void)state;
    snprintf(text, sizeof(text), "%s%s", several, shapes);
    create(text, (ct_net_options){ .phase = CT_TRAIN }, true, &t);
    for (int s = 0; s < N_MASK; s++) {
        test_net fixed;
        double loss;
        int n = 0;

        make_batch(&b, masks[s], s);
        left = b;
        for (int i = 0; i < N; i++) {
            pick2[i] = (second[i] == '1') ? 3.0f : 0.0f;
            if (pick2[i] == 0.0f) left.pick[i] = 0.0f;
            n += left.pick[i] != 0.0f;
        }
        put_batch(&t, &b);
        put(&t, "pick2", pick2, N);
        if (n == 0) {
            assert_true(pass(&t, s, false) == 0.0);
            continue;
        }
        create_fixed(shapes, &left, (ct_net_options){ .phase = CT_TRAIN }, "", &fixed);
        copy_state(&t, &fixed);
        loss = pass(&fixed, s, false);
        assert_true(pass(&t, s, false) == loss);
        compare(&t, &fixed, &left, false);
        test_net_destroy(&fixed);
    }
    test_net_destroy(&t);
}

/* The whole batch once more behind the samples that pass. */
static void joined_with_all(void **state)
{
    static const char body[] = TWO("ja", "Concat", "x", "data", "xx", "concat_param { axis: 0 }")
        TWO("jb", "Concat", "y", "label", "yy", "concat_param { axis: 0 }") FC("f", "xx", "f", "5")
            TWO("loss", "SoftmaxWithLoss", "f", "yy", "loss", "");
    static const char all[] =
        INPUT("data", "dim: " N_TEXT " " IMAGES) INPUT("label", "dim: " N_TEXT);
    char text[8192];
    static batch b;
    test_net t;

    (void)state;
    create(filtered("", body, text), (ct_net_options){ .phase = CT_TRAIN }, true, &t);
    for (int s = 0; s < N_MASK; s++) {
        test_net fixed;
        double loss;

        if (strchr(masks[s], '1') == NULL) continue;
        make_batch(&b, masks[s], s);
        put_batch(&t, &b);
        create_fixed(body, &b, (ct_net_options){ .phase = CT_TRAIN }, all, &fixed);
        put(&fixed, "data", b.data, (int64_t)N * PIXELS);
        put(&fixed, "label", b.label, N);
        copy_state(&t, &fixed);
        loss = pass(&fixed, s, false);
        assert_true(pass(&t, s, false) == loss);
        compare(&t, &fixed, &b, false);
        test_net_destroy(&fixed);
    }
    test_net_destroy(&t);
}

/* ---- ranks */

enum { RANKS = 3, ALL = RANKS * N };

/* Losses and gradients of ranks with other numbers of samples, one with none, add up to those of
 * one rank that has them all; Dropout draws the same numbers. */
static void ranks_add_up(void **state)
{
    static const char body[] = FC("f1", "x", "f1", "16") LAYER("d", "Dropout", "f1", "f1", "")
        FC("f2", "f1", "f2", "5") LOSS("f2") ACCURACY("f2");
    static const char *const mask[RANKS] = { "0110101", "0000000", "1000000" };
    static const char head[] =
        INPUT("data", "dim: 21 " IMAGES) INPUT("label", "dim: 21") INPUT("pick", "dim: 21") FILTER;
    static float data[ALL * PIXELS], label[ALL], pick[ALL];
    static batch b[RANKS];
    fake_ranks ranks = { .replay = false };
    double loss = 0, *grad = NULL;
    char text[8192];
    float accuracy = 0, *one;
    test_net t, whole;

    (void)state;
    snprintf(text, sizeof(text), "%s%s", head, body);
    create(text, (ct_net_options){ .phase = CT_TRAIN }, false, &whole);
    for (int r = 0; r < RANKS; r++) {
        make_batch(&b[r], mask[r], r);
        memcpy(data + r * N * PIXELS, b[r].data, sizeof(b[r].data));
        memcpy(label + r * N, b[r].label, sizeof(b[r].label));
        memcpy(pick + r * N, b[r].pick, sizeof(b[r].pick));
    }
    for (int k = 0; k < 2 * RANKS; k++) {
        int r = k % RANKS;
        ct_net_options o = { .phase = CT_TRAIN, .env = { .rank = r, .n_rank = RANKS } };
        double part;

        ranks.replay = k >= RANKS;
        ranks.call = 0;
        create(filtered("", body, text), o, false, &t);
        t.net->pass->exec.sum_ranks = fake_sum_ranks;
        t.net->pass->exec.hook_ctx = &ranks;
        put_batch(&t, &b[r]);
        part = pass(&t, 0, false);
        if (grad == NULL) grad = calloc((size_t)t.net->grad_count, sizeof(*grad));
        assert_non_null(grad);
        one = host(&t, t.net->grad_arena, t.net->grad_count);
        for (int64_t i = 0; ranks.replay && (i < t.net->grad_count); i++) grad[i] += (double)one[i];
        free(one);
        one = host(&t, ct_blob_data(blob(&t, "accuracy")), 1);
        if (ranks.replay) loss += part;
        if (ranks.replay) accuracy += one[0];
        free(one);
        test_net_destroy(&t);
    }
    assert_true(ranks.n_call >= RANKS);
    put(&whole, "data", data, (int64_t)ALL * PIXELS);
    put(&whole, "label", label, ALL);
    put(&whole, "pick", pick, ALL);
    /* 5 samples pass; sums of at most 108 terms, two layers, in f32 */
    assert_true(fabs(pass(&whole, 0, false) - loss) < 256 * 0x1p-24 * loss);
    one = host(&whole, ct_blob_data(blob(&whole, "accuracy")), 1);
    assert_true(fabsf(one[0] - accuracy) < 1e-6f);
    free(one);
    one = host(&whole, whole.net->grad_arena, whole.net->grad_count);
    test_near(one, grad, whole.net->grad_count, 256 * 0x1p-24, "gradient");
    free(one);
    free(grad);
    test_net_destroy(&whole);
}

/* Two choices may meet as long as they are of the same number. */
static void unequal_filters_end_the_run(void **state)
{
    static const char text[] = INPUT("data", "dim: " N_TEXT " " IMAGES)
        INPUT("label", "dim: " N_TEXT) INPUT("pick", "dim: " N_TEXT) INPUT("pick2", "dim: " N_TEXT)
            BY("one", "data", "pick", "a") BY("two", "data", "pick2", "b")
                TWO("sum", "Eltwise", "a", "b", "s", "") FC("f", "s", "f", "2");
    static const float pick[2][N] = { { 1, 0, 1, 0, 0, 0, 0 }, { 0, 0, 0, 1, 0, 0, 0 } };
    static batch b;
    double loss;
    test_net t;

    (void)state;
    create(text, (ct_net_options){ .phase = CT_TEST }, false, &t);
    make_batch(&b, "0000011", 0);
    put_batch(&t, &b);
    put(&t, "pick2", pick[0], N);
    assert_int_equal(ct_pass_forward(t.net->pass, &loss), CT_OK);
    assert_true(ct_shape_equal(&blob(&t, "f")->data.shape, &TEST_SHAPE(2, 2)));
    put(&t, "pick2", pick[1], N);
    test_log_start();
    assert_int_equal(ct_pass_forward(t.net->pass, &loss), CT_ERR_SHAPE);
    assert_non_null(strstr(test_log_stop(), "layer \"sum\" (Eltwise)"));
    test_net_destroy(&t);
}

/* ---- what there is to see, and what is refused */

static void shapes_are_the_largest(void **state)
{
    ct_net_options o = { .phase = CT_TRAIN, .no_data = true };
    char text[8192];
    test_net t;
    uint64_t hash;
    static batch b;

    (void)state;
    create(filtered("", shapes, text), o, false, &t);
    assert_true(ct_shape_equal(&blob(&t, "x")->data.shape, &TEST_SHAPE(N, 3, 6, 6)));
    assert_true(blob(&t, "x")->varies && blob(&t, "prob")->varies);
    assert_false(blob(&t, "data")->varies || blob(&t, "loss")->varies);
    hash = ct_net_hash(t.net);
    test_net_destroy(&t);
    create(filtered("", shapes, text), (ct_net_options){ .phase = CT_TRAIN }, false, &t);
    make_batch(&b, masks[0], 0);
    put_batch(&t, &b);
    (void)pass(&t, 0, false);
    assert_true(ct_shape_equal(&blob(&t, "x")->data.shape, &TEST_SHAPE(3, 3, 6, 6)));
    assert_true(ct_net_hash(t.net) == hash);
    for (int i = 0; i < t.net->n_output; i++) {
        bool squares = strcmp(t.net->pass->blob[t.net->output[i].blob]->name, "squares") == 0;

        assert_int_equal(ct_net_output_count(t.net, i), squares ? 0 : 1);
    }
    test_net_destroy(&t);
}

static void refused(void **state)
{
    ct_net_options o = { .phase = CT_TRAIN, .table = ct_layer_table };
    static const struct {
        const char *body, *part;
    } c[] = {
        { TWO("sum", "Eltwise", "x", "data", "s", ""), "layer \"sum\" (Eltwise): " },
        { FC("f", "x", "f", "2") TWO("loss", "SoftmaxWithLoss", "f", "label", "s", ""),
          "layer \"loss\" (SoftmaxWithLoss): " },
        { LAYER("re", "Reshape", "x", "s", "reshape_param { shape { dim: 7 dim: 108 } }"),
          "layer \"re\" (Reshape): " },
        { LAYER("f", "InnerProduct", "x", "s", "inner_product_param { num_output: 2 axis: 0 }"),
          "layer \"f\" (InnerProduct): " },
        { LAYER("sc", "Scale", "x", "s", "scale_param { axis: 0 }"), "layer \"sc\" (Scale): " },
        { "layer { name: 'cut' type: 'Slice' bottom: 'x' top: 'a' top: 'b' slice_param { axis: 0 "
          "slice_point: 3 } }",
          "layer \"cut\" (Slice): " },
        { LAYER("v", "Reshape", "x", "s", "reshape_param { shape { dim: 0 dim: 12 dim: 9 } }")
              LAYER("w", "Reshape", "y", "cont", "reshape_param { shape { dim: 0 dim: 1 } }")
                  LAYER("t", "Tile", "cont", "tiled", "tile_param { axis: 1 tiles: 12 }")
                      TWO("lstm", "LSTM", "s", "tiled", "h", "recurrent_param { num_output: 2 }"),
          "layer \"lstm\" (LSTM): the number of its samples changes from batch to batch, which it "
          "does not take: it keeps values from batch to batch" },
    };
    char text[8192];

    (void)state;
    for (size_t i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
        long n_error = ct_log_n_error();
        test_net t;
        ct_status status;
        const char *log;

        test_log_start();
        status = test_net_create(filtered("", c[i].body, text), &o, &t);
        log = test_log_stop();
        if (strstr(log, c[i].part) == NULL) fail_msg("\"%s\" is not in: %s", c[i].part, log);
        assert_int_equal(ct_log_n_error() - n_error, 1); /* that line says why, too */
        if ((i < 6) &&
            (strstr(log, "; it cannot follow layer \"filter\" (Filter), which gives another number "
                         "of samples in each batch, here ") == NULL))
            fail_msg("%s: %s", c[i].part, log);
        assert_true((status == CT_ERR_CONFIG) || (status == CT_ERR_SHAPE));
        test_net_destroy(&t);
    }
    test_net_refused(
        INPUT("data", "dim: 2 dim: 3") INPUT(
            "pick",
            "dim: 2") "layer { name: 'f' type: 'Filter' bottom: 'data' bottom: 'pick' top: 'x' "
                      "propagate_down: true propagate_down: true }",
        &o, "propagate_down is true for bottom 1, \"pick\", which gets no gradient");
    test_net_refused(
        INPUT("data", "dim: 2 dim: 3") INPUT(
            "pick",
            "dim: 2") "layer { name: 'f' type: 'Filter' bottom: 'data' bottom: 'pick' top: 'x' "
                      "top: 'y' }",
        &o, "2 tops for 2 bottoms: one for each but the last, the selector");
    o.no_data = true;
    test_net_refused(
        "layer { name: 'text' type: 'TextData' top: 'words' top: 'cont' top: 'next' "
        "text_data_param { source: 'none.h5' batch_size: 2 steps: 3 } }"
        "layer { name: 'cut' type: 'Slice' bottom: 'words' top: 'pick' top: 'other' slice_param { "
        "axis: 1 } }" TWO("f", "Filter", "next", "pick", "x", ""),
        &o, "layer \"f\" (Filter): the net's data are sequences");
}

/* What it says of its own bottoms. */
static void selectors_refused(void **state)
{
    test_layer_spec spec = { .type = "Filter",
                             .n_bottom = 2,
                             .bottom = { TEST_SHAPE(3, 2), TEST_SHAPE(3, 2) } };

    (void)state;
    test_layer_refused(&spec, CT_ERR_SHAPE, "the selector, its last bottom, has shape 3 2 (6)");
    spec.bottom[1] = TEST_SHAPE(4);
    test_layer_refused(&spec, CT_ERR_SHAPE, "bottom 0 has shape 3 2 (6), the selector 4 (4)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_a_net_of_what_passes),
        cmocka_unit_test(in_bf16),
        cmocka_unit_test(as_on_cpu),
        cmocka_unit_test(narrow_on_devices),
        cmocka_unit_test(blocks_are_there),
        cmocka_unit_test(filters_of_filters),
        cmocka_unit_test(joined_with_all),
        cmocka_unit_test(ranks_add_up),
        cmocka_unit_test(shapes_are_the_largest),
        cmocka_unit_test(refused),
        cmocka_unit_test(selectors_refused),
        cmocka_unit_test(unequal_filters_end_the_run),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
