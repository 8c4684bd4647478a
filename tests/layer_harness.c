#include "tests/test.h"
#include "tests/layer_harness.h"

#include "framework/base/rng.h"
#include "framework/net/net.h"
#include "framework/proto/prototxt.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 64, GUARD_BYTE = 0xA5 };

/* ---- memory on the layer's device */

static void put(test_layer *t, void *to, const void *from, size_t bytes)
{
    assert_int_equal(t->layer.dev->from_host(NULL, to, from, bytes), CT_OK);
}

static void get(test_layer *t, void *to, const void *from, size_t bytes)
{
    assert_int_equal(t->layer.dev->to_host(NULL, to, from, bytes), CT_OK);
}

static void *place(test_layer *t, size_t bytes)
{
    unsigned char guard[GUARD];
    test_block *b = &t->block[t->n_block];

    assert_int_equal(t->layer.dev->mem_acquire(bytes + GUARD, &b->data), CT_OK);
    b->bytes = bytes;
    t->n_block++;
    memset(guard, GUARD_BYTE, GUARD);
    put(t, (char *)b->data + bytes, guard, GUARD);
    return b->data;
}

static void check_guards(test_layer *t)
{
    unsigned char guard[GUARD];

    for (int i = 0; i < t->n_block; i++) {
        get(t, guard, (char *)t->block[i].data + t->block[i].bytes, GUARD);
        for (int k = 0; k < GUARD; k++) {
            if (guard[k] != GUARD_BYTE)
                fail_msg("layer %s wrote %d bytes behind a block of %zu", t->layer.ops->type, k,
                         t->block[i].bytes);
        }
    }
}

static void poison(test_layer *t, void *data, size_t bytes)
{
    void *nan_block;

    if ((data == NULL) || (bytes == 0)) return;
    nan_block = malloc(bytes);
    assert_non_null(nan_block);
    memset(nan_block, 0xFF, bytes); /* a quiet NaN in f32 and f64 */
    put(t, data, nan_block, bytes);
    free(nan_block);
}

static void poison_scratch(test_layer *t)
{
    for (int i = 0; i < CT_MAX_BUFFER; i++) {
        ct_buffer *b = &t->instance.buffer[i];

        if (b->keep == CT_LIFETIME_CALL) poison(t, b->data, b->bytes);
    }
}

static float *host_array(int64_t n)
{
    float *v = calloc((size_t)n + 1, sizeof(float));

    assert_non_null(v);
    return v;
}

static size_t f32_bytes(int64_t n)
{
    return (size_t)n * sizeof(float);
}

/* ---- building */

/* CORTADO_TEST_DEVICE=cuda runs the tests of layers there: those that have no way to run on it, and
 * tests that name a device, stay where they are. */
static const ct_device *test_device(void)
{
    const char *mode = getenv("CORTADO_TEST_DEVICE");
    const ct_device *dev = ct_device_cpu();

    if (mode != NULL) assert_int_equal(ct_device_open(mode, 0, &dev), CT_OK);
    return dev;
}

static ct_status parse_param(test_layer *t)
{
    const test_layer_spec *s = &t->spec;

    static char name[2 * TEST_MAX_BLOB][4] = { "b0", "b1", "b2", "b3", "b4", "b5",
                                               "t0", "t1", "t2", "t3", "t4", "t5" };

    ct__layer_parameter__init(&t->own_param);
    if (s->param != NULL) t->own_param = *s->param; /* shallow: what it points to is the test's */
    if (s->text != NULL) {
        ProtobufCMessage *m;

        CT_TRY(ct_prototxt_parse(&ct__layer_parameter__descriptor, "test.prototxt", s->text,
                                 strlen(s->text), NULL, &m));
        t->parsed = (Ct__LayerParameter *)m;
        t->own_param = *t->parsed;
    }
    if (s->part != NULL) {
        t->own_part = *s->part;
        t->own_param.part = &t->own_part;
    }
    for (int i = 0; i < 2 * TEST_MAX_BLOB; i++) t->blob_name[i] = name[i];
    if (s->in_place) t->blob_name[TEST_MAX_BLOB] = name[0];
    t->own_param.bottom = t->blob_name;
    t->own_param.n_bottom = (size_t)s->n_bottom;
    t->own_param.top = t->blob_name + TEST_MAX_BLOB;
    t->own_param.n_top = (size_t)t->layer.n_top;
    t->layer.param = &t->own_param;
    return CT_OK;
}

static void bind_blobs(test_layer *t)
{
    const test_layer_spec *s = &t->spec;
    const ct_layer *l = &t->layer;

    for (int i = 0; i < l->n_bottom; i++) {
        ct_blob *b = &t->bottom_blob[i];

        *b = (ct_blob){ .name = "bottom" };
        b->data.dev = b->diff.dev = l->dev;
        ct_blob_set_shape(b, &s->bottom[i]);
        b->restarts_first = s->restarts_first && (i == 1);
        b->wants_diff = !s->forward_only && !s->no_propagate[i] &&
                        !ct_layer_no_diff(l->ops, l->n_bottom, i) && (l->ops->backward != NULL);
        t->bottom_ptr[i] = b;
    }
    for (int i = 0; i < l->n_top; i++) {
        ct_blob *b = &t->top_blob[i];

        *b = (ct_blob){ .name = "top" };
        b->data.dev = b->diff.dev = l->dev;
        b->wants_diff = !s->forward_only && !s->no_top_diff[i] && (l->ops->backward != NULL);
        t->top_ptr[i] = b;
    }
    if (s->in_place) t->top_ptr[0] = t->bottom_ptr[0];
    t->instance.bottom = t->bottom_ptr;
    t->instance.top = t->top_ptr;
    t->instance.weight = t->weight_blob;
    t->instance.layer = l;
    memcpy(t->instance.add_weight_diff, s->add_weight_diff, sizeof(s->add_weight_diff));
}

static ct_status make_weights(test_layer *t)
{
    for (int i = 0; i < t->layer.n_weight; i++) {
        const ct_weight_spec *w = &t->layer.weight[i];
        ct_blob *b = &t->weight_blob[i];
        int64_t n = ct_shape_count(&w->shape, 0, -1);

        *b = (ct_blob){ .name = "weight" };
        b->data.dev = b->diff.dev = t->layer.dev;
        ct_blob_set_shape(b, &w->shape);
        b->wants_diff =
            (w->kind == CT_WEIGHT_LEARNED) && !t->spec.no_weight_diff[i] && !t->spec.forward_only;
        t->weight_count[i] = n;
        t->weight[i] = host_array(n);
        t->weight_after[i] = host_array(n);
        if (b->wants_diff) t->weight_diff[i] = host_array(n);
        if (w->filler != NULL)
            CT_TRY(ct_fill_cut(w->filler, ct_rng_key(t->env.seed, 7, (uint64_t)i), &w->cut,
                               t->weight[i]));
    }
    return CT_OK;
}

static void place_all(test_layer *t)
{
    ct_instance *in = &t->instance;

    for (int i = 0; i < t->layer.n_bottom; i++) {
        int64_t n = ct_tensor_count(&in->bottom[i]->data);

        t->input_count[i] = n;
        t->input[i] = host_array(n);
        test_random(t->input[i], n, ct_rng_key(t->env.seed, 8, (uint64_t)i), -1.0f, 1.0f);
        in->bottom[i]->data.data = place(t, f32_bytes(n));
        if (!in->bottom[i]->wants_diff) continue;
        in->bottom[i]->diff.data = place(t, f32_bytes(n));
        t->input_diff[i] = host_array(n);
    }
    for (int i = 0; i < t->layer.n_top; i++) {
        int64_t n = ct_tensor_count(&in->top[i]->data);

        t->top_shape[i] = in->top[i]->data.shape;
        t->top_count[i] = n;
        t->top[i] = host_array(n);
        t->top_diff[i] = host_array(n);
        if ((t->layer.n_bottom > 0) && (in->top[i] == in->bottom[0])) continue;
        in->top[i]->data.data = (t->spec.alias && ((t->layer.ops->alias & CT_ALIAS_DATA) != 0))
                                    ? in->bottom[0]->data.data
                                    : place(t, f32_bytes(n));
        if (!in->top[i]->wants_diff) continue;
        in->top[i]->diff.data = (t->spec.alias && ((t->layer.ops->alias & CT_ALIAS_DIFF) != 0))
                                    ? in->bottom[0]->diff.data
                                    : place(t, f32_bytes(n));
    }
    if (t->layer.ops->is_loss) t->top_diff[0][0] = 1.0f;
    for (int i = 0; i < t->layer.n_weight; i++) {
        in->weight[i].data.data = place(t, f32_bytes(t->weight_count[i]));
        if (in->weight[i].wants_diff)
            in->weight[i].diff.data = place(t, f32_bytes(t->weight_count[i]));
    }
    for (int i = 0; i < CT_MAX_BUFFER; i++) {
        if (in->buffer[i].bytes == 0) continue;
        in->buffer[i].data = place(t, in->buffer[i].bytes);
        if (in->buffer[i].keep != CT_LIFETIME_ALWAYS)
            poison(t, in->buffer[i].data, in->buffer[i].bytes);
    }
}

/* On the CPU, of a layer that the environment alone put elsewhere. */
static ct_status make_twin(test_layer *t)
{
    test_layer_spec spec = t->spec;

    if ((t->layer.dev->kind == CT_DEVICE_CPU) || (t->spec.dev != NULL)) return CT_OK;
    spec.dev = ct_device_cpu();
    return test_layer_create(&spec, &t->twin);
}

static ct_status build(test_layer *t)
{
    const test_layer_spec *s = &t->spec;
    ct_layer *l = &t->layer;

    l->ops = (s->ops != NULL) ? s->ops : ct_layer_find(s->type);
    if (l->ops == NULL) return CT_FAIL(CT_ERR_CONFIG, "no layer type \"%s\"", s->type);
    l->n_bottom = s->n_bottom;
    l->n_top = ((s->n_top == 0) && (l->ops->max_top != 0)) ? 1 : s->n_top;
    CT_TRY(parse_param(t));
    l->name = (l->param->name != NULL) ? l->param->name : "layer";
    l->where = "";
    l->env = &t->env;
    ct_layer_place(l, (s->dev != NULL) ? s->dev : test_device());
    /* engines that a test names are the CPU's; its twin has them */
    if ((s->dev == NULL) && (l->dev->kind != CT_DEVICE_CPU)) t->own_param.ct_kernel = NULL;
    l->phase = s->phase;
    l->backward_reads = l->ops->backward_reads;
    l->state = calloc(1, l->ops->state_size + 1);
    t->instance.state = calloc(1, l->ops->instance_state_size + 1);
    assert_true((l->state != NULL) && (t->instance.state != NULL));
    CT_TRY(ct_layer_check_part(l));
    if (l->ops->setup != NULL) CT_TRY(l->ops->setup(l, s->bottom));
    bind_blobs(t);
    CT_TRY(make_weights(t));
    t->instance.backward_reads = l->backward_reads;
    CT_TRY(l->ops->reshape(l, &t->instance));
    place_all(t);
    return CT_OK;
}

ct_status test_layer_create(const test_layer_spec *spec, test_layer **t_p)
{
    test_layer *t = calloc(1, sizeof(*t));
    ct_status status;

    assert_non_null(t);
    t->spec = *spec;
    t->env = (ct_net_env){ .n_rank = 1, .seed = 1701 };
    status = build(t);
    if (status != CT_OK) {
        test_layer_destroy(t);
        return status;
    }
    t->ex = (ct_exec){ .dev = t->layer.dev, .phase = spec->phase, .seed = t->env.seed };
    t->ex.batch_local = (spec->n_bottom > 0) ? ct_shape_legacy(&spec->bottom[0], 0) : 1;
    t->ex.batch_global = t->ex.batch_local;
    assert_int_equal(make_twin(t), CT_OK);
    *t_p = t;
    return CT_OK;
}

static void take_tops(test_layer *t)
{
    for (int i = 0; i < t->layer.n_top; i++) {
        t->top_shape[i] = t->instance.top[i]->data.shape;
        t->top_count[i] = ct_tensor_count(&t->instance.top[i]->data);
    }
}

ct_status test_layer_shape(test_layer *t, const ct_shape *bottom)
{
    ct_instance *in = &t->instance;
    size_t bytes[CT_MAX_BUFFER];

    for (int s = 0; s < CT_MAX_BUFFER; s++) bytes[s] = in->buffer[s].bytes;
    for (int i = 0; i < t->layer.n_bottom; i++) {
        ct_blob_set_shape(in->bottom[i], &bottom[i]);
        t->spec.bottom[i] = bottom[i];
        t->input_count[i] = ct_tensor_count(&in->bottom[i]->data);
    }
    in->backward_reads = t->layer.backward_reads;
    CT_TRY(t->layer.ops->reshape(&t->layer, in));
    take_tops(t);
    for (int s = 0; s < CT_MAX_BUFFER; s++) {
        if (in->buffer[s].bytes > bytes[s]) in->buffer[s].data = place(t, in->buffer[s].bytes);
    }
    t->ex.batch_local = t->ex.batch_global = ct_shape_legacy(&bottom[0], 0);
    return (t->twin != NULL) ? test_layer_shape(t->twin, bottom) : CT_OK;
}

void test_layer_destroy(test_layer *t)
{
    if (t == NULL) return;
    test_layer_destroy(t->twin);
    if ((t->layer.ops != NULL) && (t->layer.ops->release != NULL) && (t->instance.state != NULL))
        t->layer.ops->release(&t->layer, &t->instance);
    if ((t->layer.ops != NULL) && (t->layer.ops->destroy != NULL) && (t->layer.state != NULL))
        t->layer.ops->destroy(&t->layer);
    for (int i = 0; i < t->n_block; i++) t->layer.dev->mem_release(t->block[i].data);
    for (int i = 0; i < TEST_MAX_BLOB; i++) {
        free(t->input[i]);
        free(t->input_diff[i]);
        free(t->top[i]);
        free(t->top_diff[i]);
    }
    for (int i = 0; i < CT_MAX_WEIGHT; i++) {
        free(t->weight[i]);
        free(t->weight_after[i]);
        free(t->weight_diff[i]);
    }
    free(t->layer.state);
    free(t->instance.state);
    if (t->parsed != NULL) ct__layer_parameter__free_unpacked(t->parsed, NULL);
    free(t);
}

/* ---- running */

/* Fails where the device's values are no longer the host's: a layer changed what it may not. */
static void unchanged(test_layer *t, const ct_tensor *now, const float *host, const char *what)
{
    int64_t n = ct_tensor_count(now);
    float *copy = host_array(n);
    bool same;

    get(t, copy, now->data, f32_bytes(n));
    same = memcmp(copy, host, f32_bytes(n)) == 0;
    free(copy);
    if (!same) fail_msg("layer %s changed %s", t->layer.ops->type, what);
}

/* Both sides take other orders of sums and other roundings of exp and log. */
static void compare_twins(const test_layer *t, const float *mine, const float *twin, int64_t n,
                          const char *what, int k)
{
    const double share = 2e-5; /* some 300 roundings */
    double largest = 1.0;

    for (int64_t i = 0; i < n; i++) {
        double size = fabs((double)twin[i]);

        if (isfinite(size)) largest = fmax(largest, size);
    }
    for (int64_t i = 0; i < n; i++) {
        bool alike = fabs((double)mine[i] - (double)twin[i]) <= share * largest;
        bool special = (isnan(mine[i]) && isnan(twin[i])) || (mine[i] == twin[i]);

        if (!alike && !special)
            fail_msg("%s: %s %d, element %lld: %.9g on %s, %.9g on the CPU", t->layer.ops->type,
                     what, k, (long long)i, (double)mine[i], t->layer.dev->name, (double)twin[i]);
    }
}

enum { COMPARED = 6 /* passes of a layer */ };

static bool has_twin(const test_layer *t)
{
    /* pretended ranks count what a layer asks of them */
    return (t->twin != NULL) && (t->n_compared < COMPARED) && (t->ex.sum_ranks == NULL);
}

static void twin_forward(test_layer *t, ct_status status)
{
    test_layer *w = t->twin;

    w->ex = t->ex;
    w->ex.dev = w->layer.dev;
    w->env = t->env;
    for (int i = 0; i < t->layer.n_bottom; i++)
        memcpy(w->input[i], t->input[i], f32_bytes(t->input_count[i]));
    for (int i = 0; i < t->layer.n_weight; i++)
        memcpy(w->weight[i], t->weight[i], f32_bytes(t->weight_count[i]));
    assert_int_equal(test_layer_forward(w), status);
    for (int i = 0; (status == CT_OK) && (i < t->layer.n_top); i++)
        compare_twins(t, t->top[i], w->top[i], t->top_count[i], "top", i);
    for (int i = 0; (status == CT_OK) && (i < t->layer.n_weight); i++)
        compare_twins(t, t->weight_after[i], w->weight_after[i], t->weight_count[i], "weight", i);
}

/* before: the twin takes what it adds to. */
static void twin_backward(test_layer *t, bool before, ct_status status)
{
    test_layer *w = t->twin;

    for (int i = 0; before && (i < t->layer.n_weight); i++) {
        if (t->weight_diff[i] != NULL)
            memcpy(w->weight_diff[i], t->weight_diff[i], f32_bytes(t->weight_count[i]));
    }
    if (before) return;
    w->ex.accumulate = t->ex.accumulate;
    for (int i = 0; i < t->layer.n_top; i++)
        memcpy(w->top_diff[i], t->top_diff[i], f32_bytes(t->top_count[i]));
    assert_int_equal(test_layer_backward(w), status);
    for (int i = 0; i < t->layer.n_bottom; i++) {
        if (t->input_diff[i] != NULL)
            compare_twins(t, t->input_diff[i], w->input_diff[i], t->input_count[i], "bottom diff",
                          i);
    }
    for (int i = 0; i < t->layer.n_weight; i++) {
        if (t->weight_diff[i] != NULL)
            compare_twins(t, t->weight_diff[i], w->weight_diff[i], t->weight_count[i],
                          "weight diff", i);
    }
    t->n_compared++;
}

ct_status test_layer_forward(test_layer *t)
{
    ct_instance *in = &t->instance;
    ct_status status;

    if (t->layer.ops->varies) { /* the largest tops again */
        if (t->layer.ops->reshape(&t->layer, in) != CT_OK) return CT_ERR_SHAPE;
        take_tops(t);
    }
    for (int i = 0; i < t->layer.n_top; i++)
        poison(t, in->top[i]->data.data, f32_bytes(t->top_count[i]));
    for (int i = 0; i < t->layer.n_bottom; i++)
        put(t, in->bottom[i]->data.data, t->input[i], f32_bytes(t->input_count[i]));
    for (int i = 0; i < t->layer.n_weight; i++)
        put(t, in->weight[i].data.data, t->weight[i], f32_bytes(t->weight_count[i]));
    in->weight_version++;
    poison_scratch(t);
    status = ct_layer_forward(&t->layer, in, &t->ex);
    if (t->layer.ops->varies) take_tops(t);
    for (int i = 0; i < t->layer.n_top; i++)
        get(t, t->top[i], in->top[i]->data.data, f32_bytes(t->top_count[i]));
    for (int i = 0; i < t->layer.n_weight; i++) {
        if (t->layer.weight[i].kind == CT_WEIGHT_LEARNED)
            unchanged(t, &in->weight[i].data, t->weight[i], "a weight");
        get(t, t->weight_after[i], in->weight[i].data.data, f32_bytes(t->weight_count[i]));
    }
    for (int i = 0; i < t->layer.n_bottom; i++) {
        if (!t->spec.in_place || (i > 0))
            unchanged(t, &in->bottom[i]->data, t->input[i], "a bottom in forward");
    }
    check_guards(t);
    if (has_twin(t)) twin_forward(t, status);
    return status;
}

/* The net's memory plan reuses what backward does not read. */
static void forget_unread(test_layer *t)
{
    ct_instance *in = &t->instance;
    bool bottom = (t->instance.backward_reads & CT_READS_BOTTOM) != 0;
    bool top = (t->instance.backward_reads & CT_READS_TOP) != 0;

    for (int i = 0; i < t->layer.n_bottom; i++) {
        if (!bottom && !(t->spec.in_place && (i == 0) && top))
            poison(t, in->bottom[i]->data.data, f32_bytes(t->input_count[i]));
    }
    for (int i = 0; i < t->layer.n_top; i++) {
        if (!top && !(t->spec.in_place && (i == 0) && bottom))
            poison(t, in->top[i]->data.data, f32_bytes(t->top_count[i]));
    }
}

ct_status test_layer_backward(test_layer *t)
{
    ct_instance *in = &t->instance;
    ct_status status;

    if (has_twin(t)) twin_backward(t, true, CT_OK);
    forget_unread(t);
    for (int i = 0; i < t->layer.n_bottom; i++)
        poison(t, in->bottom[i]->diff.data, f32_bytes(t->input_count[i]));
    for (int i = 0; i < t->layer.n_top; i++) {
        if (in->top[i]->diff.data != NULL)
            put(t, in->top[i]->diff.data, t->top_diff[i], f32_bytes(t->top_count[i]));
    }
    for (int i = 0; i < t->layer.n_weight; i++) {
        if (t->weight_diff[i] == NULL) continue;
        if (ct_weight_beta(in, &t->ex, i) == 0.0f)
            poison(t, in->weight[i].diff.data, f32_bytes(t->weight_count[i]));
        else
            put(t, in->weight[i].diff.data, t->weight_diff[i], f32_bytes(t->weight_count[i]));
    }
    poison_scratch(t);
    status = ct_layer_backward(&t->layer, in, &t->ex);
    for (int i = 0; i < t->layer.n_bottom; i++) {
        if (t->input_diff[i] != NULL)
            get(t, t->input_diff[i], in->bottom[i]->diff.data, f32_bytes(t->input_count[i]));
    }
    for (int i = 0; i < t->layer.n_weight; i++) {
        if (t->weight_diff[i] != NULL)
            get(t, t->weight_diff[i], in->weight[i].diff.data, f32_bytes(t->weight_count[i]));
    }
    for (int i = 0; i < t->layer.n_top; i++) {
        if ((in->top[i]->diff.data != NULL) &&
            ((t->layer.n_bottom == 0) || (in->top[i]->diff.data != in->bottom[0]->diff.data)))
            unchanged(t, &in->top[i]->diff, t->top_diff[i], "a top diff");
    }
    check_guards(t);
    if (has_twin(t)) twin_backward(t, false, status);
    return status;
}
