/* Memory-bound layers on the GPU, by our kernels and by cuDNN's: GB/s of what they must read and
 * write at least, each operand once, and that as a share of a copy on the device, both measured
 * here; the update of 25 M weights, and with the norms that some rules and clipping take; the
 * update of momentum and residual with the selection of a thousandth, beside the same update alone,
 * as docs/results/2026-11-23-codecs.md has them. Needs CUDA=1 and a GPU: says so otherwise, and
 * exits 77. */
#include "tests/test.h"
#include "tests/layer_harness.h"

#include "comm/codec/codec_kernels.h"
#include "framework/base/clock.h"
#include "framework/base/memory.h"
#include "framework/base/rng.h"
#include "framework/math/step_there.h"
#include "framework/math/update_math.h"
#include "framework/solver/update_rule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TURNS = 20 };

#define CUDNN " ct_kernel { forward: 'cudnn' backward_data: 'cudnn' }"

static const struct {
    const char *type, *text;
    int n_bottom;
    ct_shape bottom[3];
} job[] = {
    { "ReLU", "", 1, { { 4, { 128, 256, 56, 56 } } } },
    { "Sigmoid", "", 1, { { 4, { 128, 256, 56, 56 } } } },
    { "GELU", "", 1, { { 4, { 128, 256, 56, 56 } } } },
    { "Dropout", "", 1, { { 2, { 4096, 25088 } } } },
    { "Eltwise", "", 2, { { 4, { 128, 256, 56, 56 } }, { 4, { 128, 256, 56, 56 } } } },
    { "Concat", "", 2, { { 4, { 128, 192, 28, 28 } }, { 4, { 128, 320, 28, 28 } } } },
    { "Scale", "scale_param { bias_term: true }", 1, { { 4, { 128, 256, 56, 56 } } } },
    { "PReLU", "", 1, { { 4, { 128, 256, 56, 56 } } } },
    { "BatchNorm", "", 1, { { 4, { 128, 64, 112, 112 } } } },
    { "BatchNorm", CUDNN, 1, { { 4, { 128, 64, 112, 112 } } } },
    { "BatchNorm", "", 1, { { 4, { 128, 2048, 7, 7 } } } },
    { "BatchNorm", CUDNN, 1, { { 4, { 128, 2048, 7, 7 } } } },
    { "LayerNorm", "", 1, { { 2, { 16384, 1024 } } } },
    { "LRN", "lrn_param { local_size: 5 }", 1, { { 4, { 256, 96, 55, 55 } } } },
    { "LRN", "lrn_param { local_size: 5 }" CUDNN, 1, { { 4, { 256, 96, 55, 55 } } } },
    { "Pooling",
      "pooling_param { kernel_size: 3 stride: 2 }",
      1,
      { { 4, { 128, 64, 112, 112 } } } },
    { "Pooling",
      "pooling_param { pool: AVE global_pooling: true }",
      1,
      { { 4, { 128, 2048, 7, 7 } } } },
    { "Pooling",
      "pooling_param { pool: AVE global_pooling: true }" CUDNN,
      1,
      { { 4, { 128, 2048, 7, 7 } } } },
    { "Softmax", "", 1, { { 2, { 4096, 1000 } } } },
    { "Softmax", CUDNN, 1, { { 2, { 4096, 1000 } } } },
    { "Softmax", "", 1, { { 4, { 8, 21, 512, 512 } } } },
    { "Softmax", CUDNN, 1, { { 4, { 8, 21, 512, 512 } } } },
    { "Permute",
      "permute_param { order: 0 order: 2 order: 3 order: 1 }",
      1,
      { { 4, { 32, 512, 38, 38 } } } },
    { "Interp", "interp_param { zoom_factor: 8 }", 1, { { 4, { 8, 21, 65, 65 } } } },
};

static double bytes_of(const int64_t *count, int n)
{
    double sum = 0.0;

    for (int i = 0; i < n; i++) sum += 4.0 * (double)count[i];
    return sum;
}

/* Seconds of one call, the fastest of three times TURNS. */
static double time_of(test_layer *t, bool backward)
{
    double best = 1e9;

    for (int k = 0; k < 4; k++) {
        double start = ct_clock_s(), seconds;

        for (int i = 0; i < TURNS; i++)
            assert_int_equal(backward ? ct_layer_backward(&t->layer, &t->instance, &t->ex)
                                      : ct_layer_forward(&t->layer, &t->instance, &t->ex),
                             CT_OK);
        assert_int_equal(t->layer.dev->sync(NULL), CT_OK);
        seconds = (ct_clock_s() - start) / TURNS;
        if ((k > 0) && (seconds < best)) best = seconds;
    }
    return best;
}

static void bench_layer(const ct_device *dev, size_t k, double copy)
{
    test_layer_spec spec = {
        .type = job[k].type, .text = job[k].text, .n_bottom = job[k].n_bottom, .dev = dev
    };
    double in, out, forward, backward, back_bytes;
    test_layer *t;

    memcpy(spec.bottom, job[k].bottom, sizeof(job[k].bottom));
    if (test_layer_create(&spec, &t) != CT_OK) { /* no cuDNN, which the log has said */
        printf("%-10s not run: %s\n", job[k].type, job[k].text);
        return;
    }
    if (t->layer.dev != dev) { /* it would run on the host */
        printf("%-10s has no form for the device\n", job[k].type);
        test_layer_destroy(t);
        return;
    }
    assert_int_equal(test_layer_forward(t), CT_OK);
    assert_int_equal(test_layer_backward(t), CT_OK);
    in = bytes_of(t->input_count, t->layer.n_bottom);
    out = bytes_of(t->top_count, t->layer.n_top);
    back_bytes = in + out + (((t->instance.backward_reads & CT_READS_BOTTOM) != 0) ? in : 0.0) +
                 (((t->instance.backward_reads & CT_READS_TOP) != 0) ? out : 0.0);
    forward = time_of(t, false);
    backward = time_of(t, true);
    printf("%-10s %-6s %-24s %8.1f %7.0f %5.0f %% %8.1f %7.0f %5.0f %%\n", job[k].type,
           (strstr(job[k].text, CUDNN) != NULL) ? "cudnn" : "",
           ct_shape_str(&job[k].bottom[0]).text, 1e6 * forward, 1e-9 * (in + out) / forward,
           100.0 * (in + out) / forward / copy, 1e6 * backward, 1e-9 * back_bytes / backward,
           100.0 * back_bytes / backward / copy);
    test_layer_destroy(t);
}

/* Weight, gradient and states read, weight and states written. */
static void bench_update(const ct_device *dev, const char *name, int kind, int n_state, double copy)
{
    const int64_t n = 25 << 20;
    size_t bytes = (size_t)n * sizeof(float);
    ct_update u = { .dev = dev,
                    .count = n,
                    .scale = 1.0f,
                    .rate = 0.01f,
                    .momentum = 0.9f,
                    .momentum2 = 0.99f,
                    .decay_l2 = 5e-4f,
                    .delta = 1e-8f,
                    .correction = 1.0f,
                    .correction2 = 1.0f,
                    .trust = 1.0f };
    void *at[4];
    double best = 1e9, moved = 4.0 * (double)n * (double)(3 + 2 * n_state);

    for (int i = 0; i < 4; i++) assert_int_equal(dev->mem_acquire(bytes, &at[i]), CT_OK);
    u.grad = at[0];
    u.weight = at[1];
    u.state[0] = at[2];
    u.state[1] = at[3];
    for (int k = 0; k < 4; k++) {
        double start = ct_clock_s(), seconds;

        for (int i = 0; i < TURNS; i++) assert_int_equal(dev->math->update(NULL, kind, &u), CT_OK);
        assert_int_equal(dev->sync(NULL), CT_OK);
        seconds = (ct_clock_s() - start) / TURNS;
        if ((k > 0) && (seconds < best)) best = seconds;
    }
    printf("update            %-24s %8.1f %7.0f %5.0f %%\n", name, 1e6 * best, 1e-9 * moved / best,
           100.0 * moved / best / copy);
    for (int i = 0; i < 4; i++) dev->mem_release(at[i]);
}

/* As a solver gives it: 160 parameters at once, with the numbers on the device, trust ratios where
 * the rule has them, and the norm of all gradients. */
static void bench_step(const ct_device *dev, const char *name, int kind, double copy)
{
    enum { N_PART = 160, N = 25 << 20, EACH = N / N_PART / CT_UPDATE_LINE * CT_UPDATE_LINE };
    const ct_step_there_ops *ops = ct_step_there_of(dev);
    const ct_step_there first = { .loss = { .scale = 1.0f },
                                  .now = { 1.0f, 0.01f, 1.0f, 1.0f, 0.0f } };
    const int64_t lines = EACH / CT_UPDATE_LINE, n = (int64_t)EACH * N_PART;
    ct_update_part part[N_PART];
    uint16_t *line = calloc((size_t)lines * N_PART, sizeof(*line));
    ct_update u = { .dev = dev, .count = n, .momentum = 0.9f, .momentum2 = 0.99f, .delta = 1e-8f };
    ct_update_ratio ratio = ct_update_rule_at(kind)->ratio;
    bool norms = (ratio != CT_UPDATE_NO_RATIO);
    void *at[8];

    assert_non_null(line);
    for (int p = 0; p < N_PART; p++) {
        part[p] = (ct_update_part){ (int64_t)p * EACH, EACH, 1.0f, 1.0f };
        for (int64_t k = 0; k < lines; k++) line[p * lines + k] = (uint16_t)p;
    }
    for (int i = 0; i < 4; i++)
        assert_int_equal(dev->mem_acquire((size_t)n * sizeof(float), &at[i]), CT_OK);
    assert_int_equal(dev->mem_acquire(sizeof(part), &at[4]), CT_OK);
    assert_int_equal(dev->mem_acquire((size_t)lines * N_PART * sizeof(*line), &at[5]), CT_OK);
    assert_int_equal(dev->mem_acquire(sizeof(first), &at[6]), CT_OK);
    assert_int_equal(dev->mem_acquire(N_PART * sizeof(float), &at[7]), CT_OK);
    assert_int_equal(dev->from_host(NULL, at[4], part, sizeof(part)), CT_OK);
    assert_int_equal(dev->from_host(NULL, at[5], line, (size_t)lines * N_PART * sizeof(*line)),
                     CT_OK);
    assert_int_equal(dev->from_host(NULL, at[6], &first, sizeof(first)), CT_OK);
    u.grad = at[0];
    u.weight = at[1];
    u.state[0] = at[2];
    u.state[1] = at[3];
    {
        ct_update_all all = { at[4], at[5], 0, n, norms ? at[7] : NULL, at[6] };
        double seconds[3] = { 1e9, 1e9, 1e9 }; /* norm of all, ratios, update */

        for (int k = 0; k < 4 * 3; k++) {
            double start = ct_clock_s(), one;

            for (int i = 0; i < TURNS; i++) {
                if (k % 3 == 0) assert_int_equal(ops->decide(NULL, at[6], n, at[0], -1.0), CT_OK);
                for (int p = 0; (k % 3 == 1) && norms && (p < N_PART); p++)
                    assert_int_equal(ops->trust(NULL, ratio, &u, &all, p, part[p].offset, EACH,
                                                true, 0.02, at[7]),
                                     CT_OK);
                if (k % 3 == 2)
                    assert_int_equal(dev->math->update_all(NULL, kind, &u, &all), CT_OK);
            }
            assert_int_equal(dev->sync(NULL), CT_OK);
            one = (ct_clock_s() - start) / TURNS;
            if ((k >= 3) && (one < seconds[k % 3])) seconds[k % 3] = one;
        }
        printf("step       %-24s norm of all gradients %8.1f us %5.0f %% of copy; 160 ratios %8.1f "
               "us; update %8.1f us\n",
               name, 1e6 * seconds[0], 100.0 * 4.0 * (double)n / seconds[0] / copy,
               1e6 * seconds[1], 1e6 * seconds[2]);
    }
    for (int i = 0; i < 8; i++) dev->mem_release(at[i]);
    free(line);
}

/* Seconds of what `run` queues, the fastest of three times TURNS. */
static double codec_time(const ct_device *dev, const ct_codec_kernels *codec, ct_stream st,
                         ct_codec_coder *coder, const ct_momentum_correction *a, bool selects)
{
    double best = 1e9;

    for (int k = 0; k < 4; k++) {
        double start = ct_clock_s(), seconds;

        for (int i = 0; i < TURNS; i++)
            assert_int_equal(selects ? codec->select(coder, st, a, 0) : codec->update(coder, st, a),
                             CT_OK);
        assert_int_equal(dev->sync(st), CT_OK);
        seconds = (ct_clock_s() - start) / TURNS;
        if ((k > 0) && (seconds < best)) best = seconds;
    }
    return best;
}

/* Gradient, U and V read, U and V written: 20 bytes an element. */
static void bench_selection(const ct_device *dev, ct_select_kind kind, int64_t n, double copy)
{
    const ct_codec_kernels *codec = ct_codec_kernels_find(dev->kind);
    ct_coder_setup setup = {
        .kind = kind, .n = n, .k = n / 1000, .form = CT_PAYLOAD_HALF, .n_payload = 1
    };
    size_t bytes = (size_t)n * sizeof(float);
    double moved = 20.0 * (double)n, alone, all;
    float *host = ct_mem_acquire(bytes);
    ct_codec_coder *coder = NULL;
    void *at[3];
    ct_stream st;
    ct_momentum_correction a;

    assert_non_null(host);
    for (int64_t i = 0; i < n; i++) host[i] = ct_rng_normal_at(3, (uint64_t)(i & 0xfffff));
    assert_int_equal(codec->stream(NULL, &st), CT_OK);
    assert_int_equal(codec->create(&setup, &coder), CT_OK);
    for (int i = 0; i < 3; i++) assert_int_equal(dev->mem_acquire(bytes, &at[i]), CT_OK);
    assert_int_equal(dev->from_host(st, at[0], host, bytes), CT_OK);
    a = (ct_momentum_correction){ .grad = at[0],
                                  .u = at[1],
                                  .v = at[2],
                                  .n = n,
                                  .scale = 1.0f,
                                  .rate = 0.01f,
                                  .momentum = 0.9f,
                                  .mask_momentum = true };
    alone = codec_time(dev, codec, st, coder, &a, false);
    all = codec_time(dev, codec, st, coder, &a, true);
    printf("%-10s of %4.0f M: update alone %8.1f us %6.0f GB/s %4.0f %% of copy; with selection "
           "%8.1f us, %.2f times the update\n",
           ct_select_name(kind), 1e-6 * (double)n, 1e6 * alone, 1e-9 * moved / alone,
           100.0 * moved / alone / copy, 1e6 * all, all / alone);
    codec->destroy(coder);
    for (int i = 0; i < 3; i++) dev->mem_release(at[i]);
    ct_mem_release(host);
}

int main(void)
{
    const ct_device *dev;
    double copy, product, narrow;

    if (ct_device_count("cuda") == 0) {
        printf("no GPU: nothing run\n");
        return 77;
    }
    if ((ct_device_open("cuda", 0, &dev) != CT_OK) ||
        (ct_device_measure("cuda", &copy, &product, &narrow) != CT_OK))
        return 1;
    printf("copy on the device: %.0f GB/s, read and written\n", 1e-9 * copy);
    printf("%-10s %-6s %-24s %8s %7s %7s %8s %7s %7s\n", "layer", "by", "bottom", "fwd us", "GB/s",
           "of copy", "bwd us", "GB/s", "of copy");
    for (size_t k = 0; k < sizeof(job) / sizeof(job[0]); k++) bench_layer(dev, k, copy);
    bench_update(dev, "SGD, 25 M weights", CT_UPDATE_SGD, 1, copy);
    bench_update(dev, "Adam, 25 M weights", CT_UPDATE_ADAM, 2, copy);
    bench_step(dev, "SGD, 25 M weights", CT_UPDATE_SGD, copy);
    bench_step(dev, "LAMB, 25 M weights", CT_UPDATE_LAMB, copy);
    printf("selection of the largest thousandth, fused with the update of momentum and residual\n");
    for (int64_t n = 25000000; n <= 138000000; n += 113000000) {
        bench_selection(dev, CT_SELECT_EXACT, n, copy);
        bench_selection(dev, CT_SELECT_SAMPLED, n, copy);
    }
    return 0;
}
