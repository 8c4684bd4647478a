/* The memory plan: nothing that lives at the same time overlaps, and the block is hardly larger
 * than what lives at once. */
#include "tests/test.h"
#include "tests/layer_harness.h"
#include "tests/net_layers.h"
#include "tests/parsed_net.h"

#include "framework/base/rng.h"
#include "framework/net/net_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void assert_no_overlap(const ct_region *r, int n, size_t bytes)
{
    for (int i = 0; i < n; i++) {
        assert_int_equal(r[i].offset % CT_ALIGN, 0);
        assert_true(r[i].offset + r[i].bytes <= bytes);
        for (int k = 0; k < i; k++) {
            bool together = (r[i].first <= r[k].last) && (r[k].first <= r[i].last);
            bool overlap = (r[i].offset < r[k].offset + r[k].bytes) &&
                           (r[k].offset < r[i].offset + r[i].bytes);

            if (together && overlap) fail_msg("regions %d and %d of %d overlap", i, k, n);
        }
    }
}

static void random_regions_do_not_overlap(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++) {
        ct_region r[150];
        int n = 1 + (int)(2 * seed), horizon = 2 + (int)seed;
        size_t bytes;

        for (int i = 0; i < n; i++) {
            ct_rng_block b = ct_rng_philox(seed, 1, (uint64_t)i);
            int a = (int)(b.v[0] % (uint32_t)horizon), c = (int)(b.v[1] % (uint32_t)horizon);

            r[i] = (ct_region){ .bytes = b.v[2] % ((b.v[3] % 3 == 0) ? 100000 : 1000),
                                .first = (a < c) ? a : c,
                                .last = (a < c) ? c : a,
                                .offset = 1 };
        }
        assert_int_equal(ct_memory_plan_place(r, n, &bytes), CT_OK);
        assert_true(bytes >= ct_memory_plan_peak(r, n));
        assert_no_overlap(r, n, bytes);
    }
}

/* Region i of a net whose backward begins at the middle of 0 … 2 half: kept ones span it. */
static ct_region random_region(uint64_t seed, int i, int half, bool *own_p)
{
    ct_rng_block b = ct_rng_philox(seed, 2, (uint64_t)i);
    int a = (int)(b.v[0] % (uint32_t)half), c = (int)(b.v[1] % (uint32_t)half);
    int from = (b.v[2] % 2 == 0) ? 0 : half;

    *own_p = (b.v[2] % 3 == 0);
    return (ct_region){ .bytes = b.v[3] % ((b.v[2] % 7 == 0) ? 100000 : 1000),
                        .first = *own_p ? a : from + ((a < c) ? a : c),
                        .last = *own_p ? half + c : from + ((a < c) ? c : a),
                        .offset = 1 };
}

/* Regions of one pass do not overlap, and those that are not kept lie on one side. How many bytes
 * of kept ones there are. */
static size_t check_shared(const ct_region *r, const bool *own, int n, size_t end, size_t shared)
{
    size_t kept = 0;

    assert_no_overlap(r, n, end + shared);
    for (int i = 0; i < n; i++) {
        kept += own[i] ? ct_align_up(r[i].bytes) : 0;
        assert_true((r[i].offset + r[i].bytes <= end) || (!own[i] && (r[i].offset >= end)));
    }
    return kept;
}

static void passes_in_flight_share_what_they_do_not_keep(void **state)
{
    int n_less = 0, n_least = 0;

    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        int n = 1 + (int)(3 * seed), half = 2 + (int)seed;
        ct_region r[150], alone[150];
        bool own[150];
        size_t single, end, shared;

        for (int i = 0; i < n; i++) alone[i] = random_region(seed, i, half, &own[i]);
        assert_int_equal(ct_memory_plan_place(alone, n, &single), CT_OK);
        for (size_t k = 2; k <= 4; k++) {
            size_t kept, peak = ct_memory_plan_peak(alone, n);

            for (int i = 0; i < n; i++) r[i] = random_region(seed, i, half, &own[i]);
            assert_int_equal(ct_memory_plan_share(r, own, n, (int)k, &end, &shared), CT_OK);
            kept = check_shared(r, own, n, end, shared);
            assert_true(k * end + shared <= k * single);
            assert_true((end == kept) || (shared == 0));
            n_less += (k * end + shared < k * single);
            /* one at its peak, the others with what they keep */
            n_least += ((double)(k * end + shared) <=
                        1.1 * (double)((k - 1) * kept + ((peak > kept) ? peak : kept)));
        }
    }
    assert_true((n_less > 100) && (n_least > 100)); /* of 120 */
}

static void peak_is_the_largest_sum(void **state)
{
    ct_region r[] = { { 100, 0, 2, 0 }, { 50, 2, 3, 0 }, { 70, 3, 5, 0 }, { 128, 4, 4, 0 } };
    size_t bytes;

    (void)state;
    assert_int_equal(ct_memory_plan_peak(r, 4), 198);
    assert_int_equal(ct_memory_plan_peak(r, 0), 0);
    assert_int_equal(ct_memory_plan_place(r, 4, &bytes), CT_OK);
    assert_int_equal(bytes, 256); /* 128 + 128: rounded up to 64 each */
    assert_int_equal(ct_memory_plan_place(r, 0, &bytes), CT_OK);
    assert_int_equal(bytes, 0);
}

/* ---- nets of the shapes of well-known ones, of layers that only declare what they keep */

/* top shape: input_param; scratch in KiB: inner_product_param.num_output */
static ct_status fake_reshape(const ct_layer *l, ct_instance *in)
{
    const Ct__InnerProductParameter *p = l->param->inner_product_param;

    for (int t = 0; t < l->n_top; t++) {
        const Ct__BlobShape *given =
            (l->param->input_param != NULL) ? l->param->input_param->shape[t] : NULL;
        ct_shape s = (l->n_bottom > 0) ? in->bottom[0]->data.shape : (ct_shape){ .ndim = 0 };

        if (given != NULL) {
            s.ndim = (int)given->n_dim;
            for (size_t d = 0; d < given->n_dim; d++) s.dim[d] = given->dim[d];
        }
        ct_blob_set_shape(in->top[t], &s);
    }
    if (p != NULL) ct_instance_buffer(in, 0, CT_LIFETIME_CALL, (size_t)p->num_output * 1024);
    if (l->ops->instance_state_size != 0) /* a mask, or a copy of the input */
        ct_instance_buffer(in, 1, CT_LIFETIME_PASS, ct_tensor_bytes(&in->top[0]->data));
    return CT_OK;
}

static ct_status fake_setup(ct_layer *l, const ct_shape *bottom)
{
    ct_shape one = { 1, { 1 } };

    (void)bottom;
    ct_layer_add_weight(l, &one, NULL);
    return CT_OK;
}

static ct_status fake_run(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)l, (void)in, (void)ex;
    return CT_OK;
}

/* clang-format off */
#define FAKE .reshape = fake_reshape, .forward = fake_run, .backward = fake_run, \
    .min_bottom = 1, .max_bottom = -1, .min_top = 1, .max_top = -1
static const ct_layer_ops data = { .type = "Data", .min_top = 1, .max_top = 2, .is_data = true,
    .reshape = fake_reshape, .forward = fake_run };
static const ct_layer_ops conv = { .type = "Conv", FAKE, .setup = fake_setup,
    .backward_reads = CT_READS_BOTTOM };
static const ct_layer_ops relu = { .type = "ReLU", FAKE, .allow_inplace = true,
    .backward_reads = CT_READS_TOP };
static const ct_layer_ops pool = { .type = "Pool", FAKE, .instance_state_size = 1 };
static const ct_layer_ops lrn = { .type = "LRN", FAKE, .instance_state_size = 1,
    .backward_reads = CT_READS_TOP | CT_READS_BOTTOM };
static const ct_layer_ops norm = { .type = "Norm", FAKE, .instance_state_size = 1,
    .setup = fake_setup, .allow_inplace = true };
static const ct_layer_ops sum = { .type = "Sum", FAKE };
static const ct_layer_ops split = { .type = "Split", FAKE, .alias = CT_ALIAS_DATA,
    .null_top_diff = true };
static const ct_layer_ops loss = { .type = "Loss", FAKE, .is_loss = true, .no_diff_bottom = 2,
    .instance_state_size = 1, .backward_reads = CT_READS_BOTTOM };
/* clang-format on */
static const ct_layer_ops *const fake_table[] = { &data, &conv, &relu,  &pool, &lrn,
                                                  &norm, &sum,  &split, &loss, NULL };

typedef struct writer {
    ct_text text;
    int number, batch;
} writer;

static const char *const data_text =
    "layer { name: 'data' type: 'Data' top: '0' top: 'label' input_param { shape { dim: %d dim: %d "
    "dim: %d dim: %d } shape { dim: %d } } }\n";

static void start(writer *w, int batch, int c, int side)
{
    *w = (writer){ .batch = batch };
    ct_text_add(&w->text, data_text, batch, c, side, side, batch);
}

/* A layer on value `from`: its own value's number. c == 0: the shape of its bottom. */
static int put(writer *w, const char *type, int from, int c, int side, int scratch_kib)
{
    int to = ++w->number;

    ct_text_add(&w->text, "layer { name: 'l%d' type: '%s' bottom: '%d' top: '%d'", to, type, from,
                to);
    if (c > 0)
        ct_text_add(&w->text, " input_param { shape { dim: %d dim: %d dim: %d dim: %d } }",
                    w->batch, c, side, side);
    if (scratch_kib > 0)
        ct_text_add(&w->text, " inner_product_param { num_output: %d }", scratch_kib);
    ct_text_add(&w->text, " }\n");
    return to;
}

/* A layer in place. */
static int over(writer *w, const char *type, int value)
{
    ct_text_add(&w->text, "layer { name: 'l%d' type: '%s' bottom: '%d' top: '%d' }\n",
                ++w->number * 10000, type, value, value);
    return value;
}

static void put_loss(writer *w, int value)
{
    ct_text_add(&w->text,
                "layer { name: 'loss%d' type: 'Loss' bottom: '%d' bottom: 'label' top: 'loss%d' "
                "input_param { shape { } } }\n",
                value, value, value);
}

/* Convolution k x k from c_in channels, scratch of one image's columns for two threads, ReLU. */
static int put_conv(writer *w, int from, int c_in, int c, int side, int k)
{
    int v = put(w, "Conv", from, c, side, (k == 1) ? 0 : 2 * 4 * c_in * k * k * side * side / 1024);

    return over(w, "ReLU", v);
}

static void lenet(writer *w)
{
    int v;

    start(w, 64, 1, 28);
    v = put(w, "Conv", 0, 20, 24, 2 * 4 * 25 * 576 / 1024);
    v = put(w, "Pool", v, 20, 12, 0);
    v = put(w, "Conv", v, 50, 8, 2 * 4 * 500 * 64 / 1024);
    v = put(w, "Pool", v, 50, 4, 0);
    v = over(w, "ReLU", put(w, "Conv", v, 500, 1, 0));
    put_loss(w, put(w, "Conv", v, 10, 1, 0));
}

static void alexnet(writer *w)
{
    int v;

    start(w, 64, 3, 227);
    v = put(w, "LRN", put_conv(w, 0, 3, 96, 55, 11), 0, 0, 0);
    v = put(w, "Pool", v, 96, 27, 0);
    v = put(w, "LRN", put_conv(w, v, 48, 256, 27, 5), 0, 0, 0);
    v = put(w, "Pool", v, 256, 13, 0);
    v = put_conv(w, v, 256, 384, 13, 3);
    v = put_conv(w, v, 192, 384, 13, 3);
    v = put_conv(w, v, 192, 256, 13, 3);
    v = put(w, "Pool", v, 256, 6, 0);
    for (int i = 0; i < 2; i++) v = over(w, "Norm", over(w, "ReLU", put(w, "Conv", v, 4096, 1, 0)));
    put_loss(w, put(w, "Conv", v, 1000, 1, 0));
}

static int join(writer *w, const char *type, const int *v, int n, int c, int side)
{
    int to = ++w->number;

    ct_text_add(&w->text,
                "layer { name: 'l%d' type: '%s' top: '%d' input_param { shape { dim: %d "
                "dim: %d dim: %d dim: %d } }",
                to, type, to, w->batch, c, side, side);
    for (int i = 0; i < n; i++) ct_text_add(&w->text, " bottom: '%d'", v[i]);
    ct_text_add(&w->text, " }\n");
    return to;
}

static int inception(writer *w, int from, int c_in, int side, const int *c)
{
    int v[4];

    v[0] = put_conv(w, from, c_in, c[0], side, 1);
    v[1] = put_conv(w, put_conv(w, from, c_in, c[1], side, 1), c[1], c[2], side, 3);
    v[2] = put_conv(w, put_conv(w, from, c_in, c[3], side, 1), c[3], c[4], side, 5);
    v[3] = put_conv(w, put(w, "Pool", from, c_in, side, 0), c_in, c[5], side, 1);
    return join(w, "Sum", v, 4, c[0] + c[2] + c[4] + c[5], side);
}

static void googlenet(writer *w)
{
    static const int c[9][6] = {
        { 64, 96, 128, 16, 32, 32 },     { 128, 128, 192, 32, 96, 64 },
        { 192, 96, 208, 16, 48, 64 },    { 160, 112, 224, 24, 64, 64 },
        { 128, 128, 256, 24, 64, 64 },   { 112, 144, 288, 32, 64, 64 },
        { 256, 160, 320, 32, 128, 128 }, { 256, 160, 320, 32, 128, 128 },
        { 384, 192, 384, 48, 128, 128 },
    };
    int v, channels = 192, side = 28;

    start(w, 32, 3, 224);
    v = put(w, "Pool", put_conv(w, 0, 3, 64, 112, 7), 64, 56, 0);
    v = put(w, "LRN", v, 0, 0, 0);
    v = put(w, "LRN", put_conv(w, put_conv(w, v, 64, 64, 56, 1), 64, 192, 56, 3), 0, 0, 0);
    v = put(w, "Pool", v, 192, 28, 0);
    for (int i = 0; i < 9; i++) {
        v = inception(w, v, channels, side, c[i]);
        channels = c[i][0] + c[i][2] + c[i][4] + c[i][5];
        if ((i == 1) || (i == 6)) v = put(w, "Pool", v, channels, side = (side + 1) / 2, 0);
        if ((i == 2) || (i == 5)) /* the side losses */
            put_loss(w, put(w, "Conv",
                            put_conv(w, put(w, "Pool", v, channels, 4, 0), channels, 128, 4, 1),
                            1000, 1, 0));
    }
    put_loss(w, put(w, "Conv", put(w, "Pool", v, channels, 1, 0), 1000, 1, 0));
}

/* Convolution, BatchNorm and Scale in place, ReLU in place where asked. */
static int unit(writer *w, int from, int c_in, int c, int side, int k, bool act)
{
    int v = put(w, "Conv", from, c, side, (k == 1) ? 0 : 2 * 4 * c_in * k * k * side * side / 1024);

    over(w, "Norm", v);
    over(w, "Norm", v);
    return act ? over(w, "ReLU", v) : v;
}

static void resnet50(writer *w)
{
    static const int depth[4] = { 3, 4, 6, 3 };
    int side = 56, c_in = 64, v;

    start(w, 16, 3, 224);
    v = put(w, "Pool", unit(w, 0, 3, 64, 112, 7, true), 64, 56, 0);
    for (int s = 0; s < 4; s++) {
        int mid = 64 << s, out = 4 * mid;

        if (s > 0) side /= 2;
        for (int b = 0; b < depth[s]; b++) {
            int way[2];

            way[0] = (b == 0) ? unit(w, v, c_in, out, side, 1, false) : v;
            way[1] = unit(w, v, c_in, mid, side, 1, true);
            way[1] = unit(w, way[1], mid, mid, side, 3, true);
            way[1] = unit(w, way[1], mid, out, side, 1, false);
            v = over(w, "ReLU", join(w, "Sum", way, 2, out, side));
            c_in = out;
        }
    }
    put_loss(w, put(w, "Conv", put(w, "Pool", v, c_in, 1, 0), 1000, 1, 0));
}

static void planned_near_the_peak(void **state)
{
    static const struct {
        const char *name;
        void (*write)(writer *w);
    } model[] = { { "lenet", lenet },
                  { "alexnet", alexnet },
                  { "googlenet", googlenet },
                  { "resnet50", resnet50 } };

    (void)state;
    for (size_t i = 0; i < sizeof(model) / sizeof(model[0]); i++) {
        for (int forward_only = 0; forward_only < 2; forward_only++) {
            ct_net_options o = { .no_data = true,
                                 .phase = forward_only ? CT_TEST : CT_TRAIN,
                                 .forward_only = forward_only,
                                 .table = fake_table };
            const ct_net_impl *m;
            const ct_memory *mem;
            double ratio;
            writer w;
            test_net t;

            model[i].write(&w);
            assert_int_equal(test_net_create(w.text.text, &o, &t), CT_OK);
            ct_text_destroy(&w.text);
            m = ct_net_impl_of(t.net);
            mem = &t.net->memory;
            assert_no_overlap(m->region, m->n_region, mem->planned);
            ratio = (double)mem->planned / (double)mem->peak_alive;
            print_message("%-9s %s: %4d regions, planned %.1f MiB, %.4f x peak, %.2f x unshared\n",
                          model[i].name, forward_only ? "TEST " : "TRAIN", m->n_region,
                          (double)mem->planned / 1048576.0, ratio,
                          (double)mem->planned / (double)mem->unshared);
            assert_true((ratio >= 1.0) && (ratio <= 1.1));
            assert_true(mem->planned < mem->unshared);
            test_net_destroy(&t);
        }
    }
}

/* Three passes of a net take hardly more than one at its peak, and what two others keep. */
static void passes_in_flight_take_what_they_keep(void **state)
{
    static void (*const write[])(writer * w) = { lenet, alexnet, googlenet, resnet50 };

    (void)state;
    for (size_t i = 0; i < sizeof(write) / sizeof(write[0]); i++) {
        ct_net_options o = { .no_data = true, .phase = CT_TRAIN, .table = fake_table };
        ct_memory one, three;
        writer w;
        test_net t;

        write[i](&w);
        for (int k = 1; k <= 3; k += 2) {
            o.in_flight = k;
            assert_int_equal(test_net_create(w.text.text, &o, &t), CT_OK);
            *((k == 1) ? &one : &three) = t.net->memory;
            test_net_destroy(&t);
        }
        ct_text_destroy(&w.text);
        print_message("%zu: one pass %.1f MiB, three %.1f MiB, at least %.1f\n", i,
                      ldexp((double)one.planned, -20), ldexp((double)three.planned, -20),
                      ldexp((double)three.peak_alive, -20));
        assert_true(three.planned < 3 * one.planned);
        assert_true((double)three.planned <= 1.2 * (double)three.peak_alive);
    }
}

static const float *diff_of(const ct_net *net, const char *name)
{
    int b = ct_net_find_blob(net, name);

    assert_true(b >= 0);
    return ct_blob_diff(net->pass->blob[b]);
}

#define IP(name, from)                                                                             \
    "layer { name: '" name "' type: 'InnerProduct' bottom: '" from "' top: '" name                 \
    "' inner_product_param { num_output: 5 } } "

/* Those of a sum's values are its own gradient: all in one memory, however many they are. Where
 * something changes one of them on the way, as in b, that has its own. */
static void gradients_of_a_sum_lie_together(void **state)
{
    const ct_net_env env = { .n_rank = 1, .seed = 1 };
    parsed_net f;

    (void)state;
    assert_int_equal(
        parsed_net_open(
            "layer { name: 'x' type: 'DummyData' top: 'x' top: 'y' dummy_data_param { "
            "shape { dim: 4 dim: 3 } shape { dim: 4 dim: 2 } } } " IP("a", "x") IP("b", "x")
                IP("c", "x")
                    IP("d", "x") "layer { name: 's' type: 'Sigmoid' bottom: 'b' top: 'b' } "
                                 "layer { name: 'e' type: 'Eltwise' bottom: 'a' bottom: 'b' "
                                 "bottom: 'c' bottom: 'd' top: 'e' } "
                                 "layer { name: 'f' type: 'InnerProduct' bottom: 'e' top: 'f' "
                                 "inner_product_param { num_output: 2 } } "
                                 "layer { name: 'l' type: 'EuclideanLoss' bottom: 'f' bottom: 'y' "
                                 "top: 'l' } ",
            CT_TRAIN, &env, &f),
        CT_OK);
    assert_non_null(diff_of(f.net, "e"));
    assert_ptr_equal(diff_of(f.net, "a"), diff_of(f.net, "e"));
    assert_ptr_equal(diff_of(f.net, "c"), diff_of(f.net, "e"));
    assert_ptr_equal(diff_of(f.net, "d"), diff_of(f.net, "e"));
    assert_ptr_not_equal(diff_of(f.net, "b"), diff_of(f.net, "e"));
    parsed_net_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_regions_do_not_overlap),
        cmocka_unit_test(passes_in_flight_share_what_they_do_not_keep),
        cmocka_unit_test(peak_is_the_largest_sum),
        cmocka_unit_test(planned_near_the_peak),
        cmocka_unit_test(passes_in_flight_take_what_they_keep),
        cmocka_unit_test(gradients_of_a_sum_lie_together),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
