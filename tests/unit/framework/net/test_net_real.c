/* Small nets of the real layer types in the patterns of LeNet, AlexNet, GoogLeNet and ResNet: what
 * layers say they read in backward must be true, or the poisoned plan shows it. */
#include "tests/test.h"
#include "tests/layer_harness.h"
#include "tests/net_layers.h"

#include "framework/base/memory.h"
#include "framework/base/rng.h"
#include "framework/net/net_impl.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DATA(c, side)                                                                              \
    "layer { name: 'data' type: 'DummyData' top: 'data' dummy_data_param { shape { dim: 4 dim: " c \
    " dim: " side " dim: " side " } data_filler { type: 'gaussian' std: 1 } } }\n"                 \
    "layer { name: 'labels' type: 'DummyData' top: 'label' dummy_data_param { shape { dim: 4 } "   \
    "data_filler { value: 2 } } }\n"
#define LAYER(name, type, bottom, top, more)                                                       \
    "layer { name: '" name "' type: '" type "' bottom: '" bottom "' top: '" top "' " more " }\n"
#define CONV(name, bottom, top, n, k, more)                                                        \
    LAYER(name, "Convolution", bottom, top,                                                        \
          "convolution_param { num_output: " n " kernel_size: " k " " more                         \
          " weight_filler { type: 'xavier' } bias_filler { value: 0.1 } }")
#define POOL(name, bottom, top, kind, k, s)                                                        \
    LAYER(name, "Pooling", bottom, top,                                                            \
          "pooling_param { pool: " kind " kernel_size: " k " stride: " s " }")
#define FC(name, bottom, top, n)                                                                   \
    LAYER(name, "InnerProduct", bottom, top,                                                       \
          "inner_product_param { num_output: " n                                                   \
          " weight_filler { type: 'xavier' } bias_filler { value: 0.1 } }")
#define RELU(name, blob) LAYER(name, "ReLU", blob, blob, "")
#define LOSS(name, bottom, more)                                                                   \
    "layer { name: '" name "' type: 'SoftmaxWithLoss' bottom: '" bottom                            \
    "' bottom: 'label' top: '" name "' " more " }\n"
#define ACCURACY(bottom)                                                                           \
    "layer { name: 'accuracy' type: 'Accuracy' bottom: '" bottom                                   \
    "' bottom: 'label' top: 'accuracy' }\n"
#define NORM(n, blob)                                                                              \
    LAYER("bn" n, "BatchNorm", blob, blob, "")                                                     \
    LAYER("scale" n, "Scale", blob, blob, "scale_param { bias_term: true }")
#define JOIN(name, type, a, b, top)                                                                \
    "layer { name: '" name "' type: '" type "' bottom: '" a "' bottom: '" b "' top: '" top "' }\n"

static const char lenet[] = DATA("1", "12") CONV("c1", "data", "c1", "4", "5", "")
    POOL("p1", "c1", "p1", "MAX", "2", "2") FC("f1", "p1", "f1", "9") RELU("r1", "f1")
        FC("f2", "f1", "f2", "5") ACCURACY("f2") LOSS("loss", "f2", "");

static const char alexnet[] = DATA("2", "13") CONV("c1", "data", "c1", "6", "3", "stride: 2")
    RELU("r1", "c1") LAYER("n1", "LRN", "c1", "n1", "lrn_param { local_size: 3 alpha: 0.5 }")
        POOL("p1", "n1", "p1", "MAX", "3", "2") CONV("c2", "p1", "c2", "6", "3", "pad: 1 group: 2")
            RELU("r2", "c2") LAYER("n2", "LRN", "c2", "n2",
                                   "lrn_param { local_size: 3 norm_region: WITHIN_CHANNEL }")
                FC("f1", "n2", "f1", "8") RELU("r3", "f1") LAYER("d1", "Dropout", "f1", "f1", "")
                    FC("f2", "f1", "f2", "5") LOSS("loss", "f2", "loss_weight: 2") ACCURACY("f2");

static const char googlenet[] =
    DATA("3", "10") CONV("c1", "data", "c1", "4", "3", "pad: 1") RELU("r1", "c1")
        CONV("a", "c1", "a", "2", "1", "") RELU("ra", "a") CONV("b", "c1", "b0", "2", "1", "")
            RELU("rb", "b0") CONV("b1", "b0", "b", "3", "3", "pad: 1")
                JOIN("cat", "Concat", "a", "b", "cat") POOL("side", "cat", "side", "AVE", "5", "5")
                    FC("sf", "side", "sf", "5") LOSS("side_loss", "sf", "loss_weight: 0.3")
                        LAYER("flat", "Flatten", "cat", "flat", "") FC("f", "flat", "f", "5")
                            LAYER("d", "Dropout", "f", "f", "dropout_param { dropout_ratio: 0.4 }")
                                LOSS("loss", "f", "");

static const char resnet[] = DATA("2", "6") CONV("c0", "data", "x", "4", "3", "pad: 1")
    NORM("0", "x") RELU("r0", "x") CONV("c1", "x", "y", "4", "3", "pad: 1") NORM("1", "y")
        RELU("r1", "y") CONV("c2", "y", "z", "4", "3",
                             "pad: 1") NORM("2", "z") JOIN("sum", "Eltwise", "x", "z", "s")
            RELU("rs", "s") CONV("c3", "s", "u", "4", "1", "") NORM("3", "u") RELU(
                "r3",
                "u") "layer { name: 'max' type: 'Eltwise' bottom: 's' bottom: 'u' top: 'm' "
                     "eltwise_param { operation: PROD } }"
                     "layer { name: 'g' type: 'Pooling' bottom: 'm' top: 'g' pooling_param { pool: "
                     "AVE global_pooling: true } }" FC("f", "g", "f", "5") LOSS("loss", "f", "")
                         LAYER("soft", "Softmax", "f", "prob",
                               "") "layer { name: 'quiet' type: 'Silence' bottom: 'prob' }";

/* a weight used twice, a Bias and a EuclideanLoss */
static const char siamese[] = DATA("1", "6") LAYER("half", "Bias", "data", "b", "")
    LAYER("c1", "Convolution", "data", "x",
          "param { name: 'w' } param { name: 'v' } convolution_param { num_output: 3 "
          "kernel_size: 3 weight_filler { type: 'xavier' } }")
        LAYER("c2", "Convolution", "b", "y",
              "param { name: 'w' } param { name: 'v' } convolution_param { num_output: 3 "
              "kernel_size: 3 weight_filler { type: 'xavier' } }") RELU("r", "y")
            FC("fx", "x", "fx", "4") FC("fy", "y", "fy", "4") RELU("ry", "fy")
                JOIN("loss", "EuclideanLoss", "fx", "fy", "loss");

/* places of maxima go back where they were; a BN in place; deconvolution, cropped; a slice of it */
static const char segnet[] = DATA("2", "9") CONV("c1", "data", "c1", "4", "3", "pad: 1")
    LAYER("bn", "BN", "c1", "c1", "bn_param { }") RELU(
        "r1", "c1") "layer { name: 'p1' type: 'Pooling' bottom: 'c1' top: 'p1' top: 'place' "
                    "pooling_param { "
                    "pool: MAX kernel_size: 2 stride: 2 } }" CONV(
                        "c2", "p1", "c2", "4", "3",
                        "pad: 1") "layer { name: 'up' type: 'Upsample' bottom: 'c2' bottom: "
                                  "'place' top: 'up' "
                                  "upsample_param { upsample_h: 9 upsample_w: 9 } }\n" LAYER(
                                      "de", "Deconvolution", "up", "de",
                                      "convolution_param { num_output: 5 kernel_size: 4 "
                                      "stride: 2 weight_filler { "
                                      "type: 'xavier' } }") JOIN("crop", "Crop", "de", "up", "crop")
                                      LAYER("big", "Interp", "c2", "big",
                                            "interp_param { height: 3 width: 3 "
                                            "}") "layer { name: 'cut' type: "
                                                 "'Slice' bottom: 'crop' top: "
                                                 "'a' top: 'b' "
                                                 "slice_param { slice_point: 3 "
                                                 "} }" LAYER("t", "Tile", "b", "bt",
                                                             "tile_param { tiles: 2 }")
                                                     LAYER("sum", "Reduction", "big", "sum",
                                                           "reduction_param { "
                                                           "operation: SUMSQ "
                                                           "axis: 1 } "
                                                           "loss_weight: "
                                                           "0.01") FC("f", "bt", "f", "5")
                                                         LAYER("mean", "Reduction", "a", "mean",
                                                               "reduction_param { "
                                                               "operation: MEAN } "
                                                               "loss_weight: 0.5")
                                                             LOSS("loss", "f", "");

#define CONSTANT(name, value)                                                                      \
    "layer { name: '" name "' type: 'DummyData' top: '" name                                       \
    "' dummy_data_param { shape { dim: 4 dim: 1 dim: 1 } data_filler { value: " value " } } }\n"
#define HEAD(blob, kind, n)                                                                        \
    CONV(kind, blob, kind, n, "3", "pad: 1")                                                       \
    LAYER(kind "p", "Permute", kind, kind "p",                                                     \
          "permute_param { order: 0 order: 2 order: 3 order: 1 }")                                 \
    LAYER(kind "f", "Flatten", kind "p", kind "f", "")

/* one true box a sample */
static const char ssd[] = DATA("3", "16") CONSTANT("none", "0") CONSTANT("class", "1")
    CONSTANT("x0", "0.1") CONSTANT("y0", "0.2") CONSTANT("x1", "0.6") CONSTANT(
        "y1",
        "0.8") "layer { name: 'box' type: 'Concat' bottom: 'none' bottom: 'class' bottom: 'none' "
               "bottom: "
               "'x0' bottom: 'y0' bottom: 'x1' bottom: 'y1' bottom: 'none' top: 'box' concat_param "
               "{ "
               "axis: 2 } }" CONV("c1", "data", "c1", "6", "3", "stride: 4") RELU("r1", "c1")
                   LAYER("shuffle", "ShuffleChannel", "c1", "s1",
                         "shuffle_channel_param { group: 3 }") HEAD("s1", "loc", "12")
                       HEAD("s1", "conf",
                            "9") "layer { name: 'prior' type: 'PriorBox' bottom: 's1' bottom: "
                                 "'data' top: "
                                 "'prior' prior_box_param { min_size: 7 aspect_ratio: 2 } }\n"
                                 "layer { name: 'loss' type: 'MultiBoxLoss' bottom: 'locf' bottom: "
                                 "'conff' "
                                 "bottom: 'prior' bottom: 'box' top: 'loss' multibox_loss_param { "
                                 "num_classes: 3 overlap_threshold: 0.3 code_type: CENTER_SIZE "
                                 "neg_pos_ratio: 2 } }\n"
                                 "layer { name: 'quiet' type: 'Silence' bottom: 'label' }";

static const struct {
    const char *name, *text;
} model[] = { { "lenet", lenet },   { "alexnet", alexnet }, { "googlenet", googlenet },
              { "resnet", resnet }, { "siamese", siamese }, { "segnet", segnet },
              { "ssd", ssd } };
#define N_MODEL ((int)(sizeof(model) / sizeof(model[0])))

static void create(int i, bool unshared, bool poison, test_net *t)
{
    ct_net_options o = { .phase = CT_TRAIN, .unshared = unshared, .table = ct_layer_table };
    ct_status status;

    if (poison) setenv("CORTADO_POISON", "1", 1);
    status = test_net_create(model[i].text, &o, t);
    unsetenv("CORTADO_POISON");
    if (status != CT_OK) fail_msg("%s: status %d", model[i].name, (int)status);
    t->net->pass->exec.deterministic = true;
    t->net->pass->exec.seed = 5;
}

static void poisoned_memory_gives_the_same_numbers(void **state)
{
    (void)state;
    for (int i = 0; i < N_MODEL; i++) {
        test_net planned, alone;

        create(i, false, true, &planned);
        create(i, true, false, &alone);
        for (int pass = 0; pass < 2; pass++) {
            double a = test_net_pass(&planned, pass, false), b = test_net_pass(&alone, pass, false);

            if (!isfinite(b) || (a != b)) fail_msg("%s: %g and %g", model[i].name, a, b);
            for (int k = 0; k < planned.net->n_param; k++) {
                const ct_param *p = &planned.net->param[k], *q = &alone.net->param[k];

                assert_string_equal(p->key, q->key);
                if (p->learns)
                    test_same(ct_blob_diff(&p->blob), ct_blob_diff(&q->blob), p->count, p->key);
            }
        }
        assert_true(planned.net->memory.planned < alone.net->memory.planned);
        test_net_destroy(&planned);
        test_net_destroy(&alone);
    }
}

/* Whether AddressSanitizer reports who touches any of the values; all: each one. */
static bool is_watched(const ct_blob *b, bool all)
{
    bool some = false, every = true;

    for (int64_t i = 0; i < ct_tensor_count(&b->data); i++) {
        bool one = ct_is_guarded(ct_blob_data(b) + i);

        some |= one;
        every &= one;
    }
    return all ? every : some;
}

/* Behind a forward what backward reads may be touched. Of the rest some is watched: the other
 * values lie where those that are kept lay. */
static void dead_memory_is_watched(void **state)
{
    int watched = 0;

    (void)state;
    if (!CT_SAN_ADDRESS) skip();
    for (int i = 0; i < N_MODEL; i++) {
        test_net t;

        create(i, false, true, &t);
        assert_int_equal(ct_pass_forward(t.net->pass, NULL), CT_OK);
        for (int r = 0; r < ct_net_regions(t.net); r++) {
            ct_net_region region = ct_net_region_of(t.net, r);
            const ct_blob *b = (region.blob >= 0) ? t.net->pass->blob[region.blob] : NULL;

            if ((b == NULL) || (region.first >= t.net->n_forward)) continue;
            if (region.kept && is_watched(b, false)) fail_msg("%s: %s", model[i].name, b->name);
            watched += (region.last < t.net->n_forward) && is_watched(b, true);
        }
        test_net_destroy(&t);
    }
    print_message("%d values are watched\n", watched);
    assert_true(watched >= N_MODEL);
}

static double loss_at(test_net *t, float *w, float value)
{
    float old = *w;
    double loss;

    *w = value;
    assert_int_equal(ct_pass_forward(t->net->pass, &loss), CT_OK);
    *w = old;
    return loss;
}

/* 1: agrees; 0: disagrees; -1: a kink is too near to tell (see tests/layer_harness.h). */
static int compare(test_net *t, const ct_param *p, int64_t e, double loss)
{
    float *w = &ct_blob_data(&p->blob)[e], h = 0x1p-7f;
    double g = (double)ct_blob_diff(&p->blob)[e], f[4], d1, d2, second, kink, noise;

    f[0] = loss_at(t, w, *w - 2 * h);
    f[1] = loss_at(t, w, *w - h);
    f[2] = loss_at(t, w, *w + h);
    f[3] = loss_at(t, w, *w + 2 * h);
    d1 = (f[2] - f[1]) / (2.0 * (double)h);
    d2 = (f[3] - f[0]) / (4.0 * (double)h);
    second = (f[3] + f[0] - 2.0 * loss) / (2.0 * (double)h) -
             2.0 * (f[2] + f[1] - 2.0 * loss) / (double)h;
    kink = fabs(d2 - d1) + fabs(second) / 2.0;
    /* roundings of sums of some dozens of terms, layer after layer */
    noise = 16.0 * (double)FLT_EPSILON * t->net->n_layer * (1.0 + fabs(loss)) / (double)h;
    if (kink > noise + 0.05 * (fabs(g) + 0.05)) return -1;
    return fabs(g - d1) <= noise + kink;
}

static void whole_nets_have_the_gradient_of_differences(void **state)
{
    (void)state;
    for (int i = 0; i < N_MODEL; i++) {
        int n[3] = { 0, 0, 0 };
        double loss;
        test_net t;

        create(i, false, true, &t);
        loss = test_net_pass(&t, 0, false);
        for (int k = 0; k < t.net->n_param; k++) {
            const ct_param *p = &t.net->param[k];

            if (!p->learns) continue;
            for (int64_t e = 0; e < p->count; e += 1 + p->count / 12) {
                int verdict = compare(&t, p, e, loss);

                n[verdict + 1]++;
                if (verdict == 0) fail_msg("%s: %s element %d", model[i].name, p->key, (int)e);
            }
        }
        print_message("%-10s %d agree, %d near a kink\n", model[i].name, n[2], n[0]);
        assert_true((n[2] > 20) && (n[0] * 3 < n[2]));
        test_net_destroy(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(poisoned_memory_gives_the_same_numbers),
        cmocka_unit_test(dead_memory_is_watched),
        cmocka_unit_test(whole_nets_have_the_gradient_of_differences),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
