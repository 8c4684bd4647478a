/* Products and convolutions on the device whose operands are rounded to bf16, f16 or TF32: as exact
 * as in f32 where the numbers fit, the same bits for numbers that were rounded before, and nets
 * beside the CPU's in bf16. Skips where no device works. */
#include "tests/test.h"
#include "tests/conv_case.h"
#include "tests/layer_harness.h"
#include "tests/cuda_case.h"

#include "framework/base/bf16.h"
#include "framework/base/f16.h"
#include "framework/math/math.h"
#include "framework/net/net.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static float rounded(ct_operand operand, float v)
{
    if (operand == CT_OPERAND_BF16) return ct_bf16_to_f32(ct_bf16_from_f32(v));
    return (operand == CT_OPERAND_F16) ? ct_f16_to_f32(ct_f16_from_f32(v)) : v;
}

/* ---- products */

/* Row strides with room behind each row; sums of k products rounded to f32 k times, the reference
 * in double; TF32 keeps 10 bits behind the point, however a device rounds to them. */
static void product(const ct_device *dev, ct_operand operand, bool ta, bool tb)
{
    enum { M = 13, N = 21, K = 37, MORE = 3, LDC = N + MORE };
    int64_t lda = (ta ? M : K) + MORE, ldb = (tb ? K : N) + MORE;
    float a[(K + MORE) * K], b[(K + MORE) * K], c[M * LDC], old[M * LDC];
    void *room = test_cuda_put(dev, NULL, dev->math->narrow_room(operand, M, N, K, 0)), *on[3];
    double loss = (operand == CT_OPERAND_TF32) ? 2.1 * 0x1p-10 : 0.0;

    test_random(a, (K + MORE) * K, 1, -1.0f, 1.0f);
    test_random(b, (K + MORE) * K, 2, -1.0f, 1.0f);
    test_random(old, M * LDC, 3, -1.0f, 1.0f);
    on[0] = test_cuda_put(dev, a, sizeof(a)), on[1] = test_cuda_put(dev, b, sizeof(b));
    on[2] = test_cuda_put(dev, old, sizeof(old));
    assert_int_equal(dev->math->gemm_narrow(NULL, operand, ta, tb, M, N, K, 2.0f, on[0], lda, on[1],
                                            ldb, 0.5f, on[2], LDC, room, 0),
                     CT_OK);
    assert_int_equal(dev->to_host(NULL, c, on[2], sizeof(c)), CT_OK);
    for (int64_t i = 0; i < M; i++) {
        for (int64_t j = 0; j < LDC; j++) {
            double sum = 0.0, size = 0.0, before = 0.5 * (double)old[i * LDC + j];

            for (int64_t p = 0; (j < N) && (p < K); p++) {
                double one = (double)rounded(operand, a[ta ? p * lda + i : i * lda + p]) *
                             (double)rounded(operand, b[tb ? j * ldb + p : p * ldb + j]);

                sum += one;
                size += fabs(one);
            }
            if (j >= N) { /* between two rows */
                assert_true(c[i * LDC + j] == old[i * LDC + j]);
                continue;
            }
            if (!(fabs((double)c[i * LDC + j] - 2.0 * sum - before) <=
                  ((K + 4) * 0x1p-24 + loss) * (2.0 * size + fabs(before))))
                fail_msg("operand %d, %d %d: c[%d][%d] is %.9g, not %.9g", (int)operand, ta, tb,
                         (int)i, (int)j, c[i * LDC + j], 2.0 * sum + before);
        }
    }
    for (int k = 0; k < 3; k++) dev->mem_release(on[k]);
    dev->mem_release(room);
}

static void products_round(void **state)
{
    static const ct_operand each[] = { CT_OPERAND_TF32, CT_OPERAND_BF16, CT_OPERAND_F16 };
    const ct_device *dev = test_cuda();

    (void)state;
    for (int k = 0; k < 3; k++) {
        for (int way = 0; way < 4; way++) product(dev, each[k], (way & 1) != 0, (way & 2) != 0);
    }
}

/* Rows as they lie: the bits of what is rounded on the way, and C's rounded once more. */
static void products_read_16_bits(void **state)
{
    enum { M = 8, N = 24, K = 16 };
    static const unsigned narrow[] = { CT_NARROW_A, CT_NARROW_B, CT_NARROW_A | CT_NARROW_B };
    const ct_device *dev = test_cuda();

    (void)state;
    for (int i = 0; i < 48; i++) {
        ct_operand operand = (i % 2 == 0) ? CT_OPERAND_BF16 : CT_OPERAND_F16;
        bool ta = (i & 2) != 0, tb = (i & 4) != 0, narrow_c = (i & 8) != 0;
        unsigned lie = narrow[i / 16];
        float a[M * K], b[K * N], want[M * N], got[M * N];
        void *on[6], *room;

        test_random(a, M * K, 1, -1.0f, 1.0f);
        test_random(b, K * N, 2, -1.0f, 1.0f);
        on[0] = test_cuda_put(dev, a, sizeof(a)), on[1] = test_cuda_put(dev, b, sizeof(b));
        on[2] = test_cuda_put(dev, NULL, sizeof(want));
        on[3] = test_cuda_put_narrow(dev, operand, a, M * K);
        on[4] = test_cuda_put_narrow(dev, operand, b, K * N);
        on[5] = test_cuda_put(dev, NULL, sizeof(got));
        room = test_cuda_put(dev, NULL, dev->math->narrow_room(operand, M, N, K, 0));
        assert_int_equal(dev->math->gemm_narrow(NULL, operand, ta, tb, M, N, K, 1.0f, on[0],
                                                ta ? M : K, on[1], tb ? K : N, 0.0f, on[2], N, room,
                                                0),
                         CT_OK);
        assert_int_equal(dev->to_host(NULL, want, on[2], sizeof(want)), CT_OK);
        dev->mem_release(room);
        room = test_cuda_put(dev, NULL, dev->math->narrow_room(operand, M, N, K, lie));
        assert_int_equal(dev->math->gemm_narrow(NULL, operand, ta, tb, M, N, K, 1.0f,
                                                on[((lie & CT_NARROW_A) != 0) ? 3 : 0], ta ? M : K,
                                                on[((lie & CT_NARROW_B) != 0) ? 4 : 1], tb ? K : N,
                                                0.0f, on[5], N, room,
                                                lie | (narrow_c ? CT_NARROW_C : 0)),
                         CT_OK);
        if (narrow_c)
            test_cuda_get_narrow(dev, operand, on[5], M * N, got);
        else
            assert_int_equal(dev->to_host(NULL, got, on[5], sizeof(got)), CT_OK);
        for (int k = 0; k < M * N; k++) {
            /* a library may add up in another order */
            double off = (K + 1) * 0x1p-24 * K;

            if (narrow_c) off += fabs((double)want[k]) * ((i % 2 == 0) ? 0x1p-8 : 0x1p-11);
            if (!(fabs((double)got[k] - want[k]) <= off))
                fail_msg("%d: number %d is %.9g, not %.9g", i, k, got[k], want[k]);
        }
        for (int k = 0; k < 6; k++) dev->mem_release(on[k]);
        dev->mem_release(room);
    }
}

/* ---- convolutions */

static int64_t result_floats(const conv_tensors *t, conv_direction dir)
{
    return (dir == CONV_FORWARD) ? t->n_y : (dir == CONV_DATA) ? t->n_x : t->n_weight;
}

/* As conv_case_run(), on the device; forward with a ReLU behind it. */
static float *run_relu(const ct_device *dev, const ct_conv_impl *impl, const ct_conv_desc *d,
                       conv_direction dir, const conv_tensors *t, bool relu)
{
    const float *from[] = { t->x, t->weight, t->bias, t->dy };
    int64_t count[] = { t->n_x, t->n_weight, d->m, t->n_y }, n = result_floats(t, dir);
    float *result = malloc((size_t)n * sizeof(float) + 1);
    void *on[6];
    ct_exec ex = { .dev = dev };
    ct_conv_args a = { .beta = 0.5f, .relu = relu };

    assert_non_null(result);
    for (int k = 0; k < 4; k++)
        on[k] = test_cuda_put(dev, from[k], (size_t)count[k] * sizeof(float));
    on[4] = test_cuda_put(dev, (dir == CONV_WEIGHT) ? t->old : NULL, (size_t)n * sizeof(float));
    on[5] = test_cuda_put(dev, NULL, ct_conv_workspace(impl, d));
    a.x = on[0], a.weight = on[1], a.bias = on[2], a.work = on[5];
    if (dir != CONV_FORWARD) a.dy = on[3];
    if (dir == CONV_FORWARD) a.y = on[4];
    if (dir == CONV_DATA) a.dx = on[4];
    if (dir == CONV_WEIGHT) a.dweight = on[4];
    assert_int_equal(impl->run(d, &ex, &a), CT_OK);
    assert_int_equal(dev->to_host(NULL, result, on[4], (size_t)n * sizeof(float)), CT_OK);
    for (int k = 0; k < 6; k++) dev->mem_release(on[k]);
    return result;
}

static float *run_conv(const ct_device *dev, const ct_conv_impl *impl, const ct_conv_desc *d,
                       conv_direction dir, const conv_tensors *t)
{
    return run_relu(dev, impl, d, dir, t, false);
}

/* Of numbers that bf16 has the result is as exact as in f32; cuDNN rounds it once more. */
static void compare_conv(const ct_device *dev, ct_conv_desc d, conv_direction dir,
                         const char *engine)
{
    ct_conv_desc host = d;
    const ct_conv_impl *ref = ct_conv_find(conv_case_table_of(dir), &host, "ref"), *impl;
    bool again = (strcmp(engine, "cudnn") == 0);
    conv_tensors t = conv_case_make_tensors(&d, false);
    float *want = conv_case_run(ref, &host, dir, &t), *got;
    double *limit = conv_case_sum_limits(&host, dir);

    d.device = CT_DEVICE_CUDA;
    d.operand = CT_OPERAND_BF16;
    impl = ct_conv_find(conv_case_table_of(dir), &d, engine);
    if (impl != NULL) {
        got = run_conv(dev, impl, &d, dir, &t);
        for (int64_t i = 0; i < result_floats(&t, dir); i++) {
            /* the bias, below 1, is added behind the rounding; old weights likewise */
            double more = again ? 0x1p-8 * (fabs((double)want[i]) + 1.0) : 0.0;

            if (!(fabs((double)got[i] - (double)want[i]) <= limit[i] + more))
                fail_msg("%s, direction %d: element %lld is %.9g, not %.9g within %g", engine,
                         (int)dir, (long long)i, got[i], want[i], limit[i] + more);
        }
        if (dir == CONV_FORWARD) {
            float *above = run_relu(dev, impl, &d, dir, &t, true);

            assert_true((impl->can & CT_CONV_CAN_RELU) != 0);
            for (int64_t i = 0; i < t.n_y; i++)
                assert_true(above[i] == ((got[i] > 0.0f) ? got[i] : 0.0f));
            free(above);
        }
        free(got);
    }
    free(want), free(limit);
    conv_case_release(&t);
}

static void convolutions_are_exact_where_they_can(void **state)
{
    const ct_device *dev = test_cuda();
    conv_draw r = { 77 };

    (void)state;
    for (int i = 0; i < 25; i++) {
        ct_conv_desc d = conv_case_draw(&r, 8, 7, true);

        d.x_block = d.y_block = 0;
        for (conv_direction dir = CONV_FORWARD; dir < N_CONV_DIRECTION; dir++) {
            compare_conv(dev, d, dir, "cuda");
            compare_conv(dev, d, dir, "cudnn");
        }
    }
}

static void round_all(ct_operand operand, int64_t n, float *v)
{
    for (int64_t i = 0; i < n; i++) v[i] = rounded(operand, v[i]);
}

/* Any numbers give the bits of rounded ones, and others than f32's. */
static void convolutions_round(void **state)
{
    static const ct_operand each[] = { CT_OPERAND_BF16, CT_OPERAND_F16 };
    const ct_device *dev = test_cuda();
    ct_conv_desc d = { .n = 3,
                       .group = 2,
                       .c = 10,
                       .h = 9,
                       .w = 11,
                       .m = 14,
                       .kh = 3,
                       .kw = 3,
                       .sh = 2,
                       .sw = 1,
                       .ph = 1,
                       .pw = 1,
                       .dh = 1,
                       .dw = 1 };

    (void)state;
    assert_true(conv_case_complete(&d));
    d.device = CT_DEVICE_CUDA;
    for (int i = 0; i < 2 * N_CONV_DIRECTION; i++) {
        conv_direction dir = (conv_direction)(i / 2);
        ct_operand operand = each[i % 2];
        const ct_conv_impl *impl = ct_conv_find(conv_case_table_of(dir), &d, "cuda");
        conv_tensors t = conv_case_make_tensors(&d, false);
        int64_t n = result_floats(&t, dir), differ = 0;
        float *f32, *any, *before;

        assert_non_null(impl);
        d.operand = CT_OPERAND_F32;
        f32 = run_conv(dev, impl, &d, dir, &t);
        d.operand = operand;
        any = run_conv(dev, impl, &d, dir, &t);
        round_all(operand, t.n_x, t.x), round_all(operand, t.n_weight, t.weight);
        round_all(operand, t.n_y, t.dy);
        before = run_conv(dev, impl, &d, dir, &t);
        assert_memory_equal(any, before, (size_t)n * sizeof(float));
        for (int64_t k = 0; k < n; k++) differ += (any[k] != f32[k]);
        assert_true(differ > n / 2);
        free(f32), free(any), free(before);
        conv_case_release(&t);
    }
}

/* ---- nets */

static const char words[] =
    "layer { name: 'data' type: 'DummyData' top: 'w' top: 'cont' top: 'label' dummy_data_param { "
    "shape { dim: 4 dim: 3 } shape { dim: 4 dim: 3 } shape { dim: 4 dim: 3 } "
    "data_filler { value: 3 } data_filler { value: 1 } data_filler { value: 2 } } }\n"
    "layer { name: 'e' type: 'Embed' bottom: 'w' top: 'e' embed_param { num_output: 16 "
    "input_dim: 8 weight_filler { type: 'uniform' min: -1 } } }\n"
    "layer { name: 'l' type: 'LSTM' bottom: 'e' bottom: 'cont' top: 'l' recurrent_param { "
    "num_output: 24 weight_filler { type: 'uniform' min: -1 } } }\n"
    "layer { name: 'f' type: 'InnerProduct' bottom: 'l' top: 'f' inner_product_param { "
    "num_output: 8 axis: 2 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'f' bottom: 'label' top: 'loss' "
    "softmax_param { axis: 2 } }\n";

static const char images[] =
    "layer { name: 'data' type: 'DummyData' top: 'data' top: 'label' dummy_data_param { "
    "shape { dim: 6 dim: 5 dim: 17 dim: 15 } shape { dim: 6 } "
    "data_filler { type: 'gaussian' std: 1 } data_filler { value: 2 } } }\n"
    "layer { name: 'a' type: 'Convolution' bottom: 'data' top: 'a' convolution_param { "
    "num_output: 12 kernel_size: 3 weight_filler { type: 'xavier' } } "
    "ct_kernel { forward: 'gemm' backward_data: 'gemm' backward_weight: 'gemm' } }\n"
    "layer { name: 'r' type: 'TanH' bottom: 'a' top: 'r' }\n"
    "layer { name: 'b' type: 'Convolution' bottom: 'r' top: 'b' convolution_param { "
    "num_output: 10 kernel_size: 3 group: 2 weight_filler { type: 'xavier' } } "
    "ct_kernel { forward: 'gemm' backward_data: 'gemm' backward_weight: 'gemm' } }\n"
    "layer { name: 'f' type: 'InnerProduct' bottom: 'b' top: 'f' inner_product_param { "
    "num_output: 8 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'f' bottom: 'label' top: 'loss' }\n";

typedef struct narrow_run {
    double loss;
    float *grad;
    int64_t n;
    char engine[3][32]; /* of layer "f" */
} narrow_run;

static void set(char **to, const char *name)
{
    if (strcmp(*to, "auto") != 0) free(*to);
    *to = strdup(name);
    assert_non_null(*to);
}

/* ct_kernel names engines of the CPU; on the device a name keeps values f32 in plain order. */
static void name_engine(Ct__NetParameter *p, const char *name)
{
    for (size_t i = 0; i < p->n_layer; i++) {
        Ct__KernelParameter *k = p->layer[i]->ct_kernel;

        if (k == NULL) continue;
        set(&k->forward, name);
        set(&k->backward_data, name);
        set(&k->backward_weight, name);
    }
}

static void name_engines(Ct__NetParameter *p)
{
    name_engine(p, "cuda");
}

static narrow_run run_net(const char *text, const ct_device *dev,
                          Ct__SolverParameter__Precision precision)
{
    ct_net_options o = { .env = { .n_rank = 1, .precision = precision } };
    test_cuda_net t;
    narrow_run r;
    ct_estimate e;

    test_cuda_net_open(text, dev, &o, (dev->kind != CT_DEVICE_CPU) ? name_engines : NULL, &t);
    r.loss = test_cuda_net_pass(&t, 0, false);
    r.n = t.net->grad_count;
    r.grad = test_cuda_net_gradients(&t);
    ct_net_estimate(t.net, ct_net_find_layer(t.net, "f"), &e);
    for (int k = 0; k < 3; k++) snprintf(r.engine[k], sizeof(r.engine[k]), "%s", e.engine[k]);
    test_cuda_net_close(&t);
    return r;
}

static double difference(const narrow_run *a, const narrow_run *b)
{
    assert_int_equal(a->n, b->n);
    return test_cuda_difference(a->n, a->grad, b->grad);
}

/* The library's products with what stands behind them, or without. */
static bool is_engine(const char *name, const char *rounds)
{
    size_t n = (strncmp(name, "lt", 2) == 0) ? 2 : (strncmp(name, "blas", 4) == 0) ? 4 : 0;

    return (n > 0) && (strcmp(name + n, rounds) == 0);
}

/* Both round the same operands of all products; where f32 sums differ in their last bits, a value
 * near a tie may round otherwise in the next layer, which is far less than what rounding costs. */
static void compare_net(const char *text, const char *name)
{
    narrow_run f32 = run_net(text, test_cuda(), CT__SOLVER_PARAMETER__PRECISION__F32);
    narrow_run gpu = run_net(text, test_cuda(), CT__SOLVER_PARAMETER__PRECISION__BF16);
    narrow_run cpu = run_net(text, ct_device_cpu(), CT__SOLVER_PARAMETER__PRECISION__BF16);
    double cost = difference(&gpu, &f32), off = difference(&gpu, &cpu);

    if (!((cost > 1e-4) && (cost < 0.04))) fail_msg("%s: %g off f32", name, cost);
    if (!(off < 0.1 * cost)) fail_msg("%s: %g off the CPU, %g off f32", name, off, cost);
    for (int k = 0; k < 3; k++) assert_true(is_engine(gpu.engine[k], "-bf16"));
    assert_true(is_engine(f32.engine[0], ""));
    free(f32.grad), free(gpu.grad), free(cpu.grad);
}

static void nets_are_the_cpus(void **state)
{
    (void)state;
    compare_net(words, "words");
    compare_net(images, "images");
}

static void tf32_is_near_f32(void **state)
{
    narrow_run f32 = run_net(images, test_cuda(), CT__SOLVER_PARAMETER__PRECISION__F32);
    narrow_run tf32 = run_net(images, test_cuda(), CT__SOLVER_PARAMETER__PRECISION__TF32);
    double off = difference(&tf32, &f32);

    (void)state;
    if (!((off > 1e-5) && (off < 0.005))) fail_msg("%g off f32", off);
    assert_true(is_engine(tf32.engine[1], "-tf32"));
    free(f32.grad), free(tf32.grad);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_round),
        cmocka_unit_test(products_read_16_bits),
        cmocka_unit_test(convolutions_are_exact_where_they_can),
        cmocka_unit_test(convolutions_round),
        cmocka_unit_test(nets_are_the_cpus),
        cmocka_unit_test(tf32_is_near_f32),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
