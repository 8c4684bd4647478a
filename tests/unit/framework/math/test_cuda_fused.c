/* Products with what stands behind them in one kernel of the device's library: each epilogue, by
 * each algorithm, against its definition; fully connected layers with and without, bit by bit where
 * numbers fit; libraries that lack some. What a real library lacks is told, and is no failure.
 * Skips where no device works. */
#include "tests/test.h"
#include "tests/cuda_case.h"
#include "tests/layer_harness.h"
#include "tests/log_capture.h"

#include "framework/base/bf16.h"
#include "framework/base/f16.h"
#include "framework/math/fused.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Of tests/emulated_cuda, whose library has all of them. */
extern int ct_emulated_given(void) __attribute__((weak));

static const char *const operand_name[] = { "f32", "tf32", "bf16", "f16" };

static bool is_emulated(void)
{
    return ct_emulated_given != NULL;
}

/* ---- each epilogue */

static double rounded(ct_operand operand, float v)
{
    if (operand == CT_OPERAND_BF16) return (double)ct_bf16_to_f32(ct_bf16_from_f32(v));
    return (double)((operand == CT_OPERAND_F16) ? ct_f16_to_f32(ct_f16_from_f32(v)) : v);
}

/* A product on both sides. */
typedef struct work {
    const ct_device *dev;
    ct_fused_desc d;
    float *a, *b, *bias, *old, *c, *old_sums, *sums;
    void *on_a, *on_b, *on_bias, *on_c, *on_sums, *on_bits, *on_work;
    float beta;
} work;

static float *drawn(int64_t n, uint64_t seed)
{
    float *v = malloc((size_t)n * sizeof(*v) + 1);

    assert_non_null(v);
    test_random(v, n, seed, -1.0f, 1.0f);
    return v;
}

static int64_t longer(const ct_fused_desc *d)
{
    return (d->m > d->n) ? d->m : d->n;
}

static bool lies(const work *w, unsigned side)
{
    return (w->d.narrow & side) != 0;
}

static void *put_side(const work *w, unsigned side, const float *v, int64_t n)
{
    if (lies(w, side)) return test_cuda_put_narrow(w->dev, w->d.operand, v, n);
    return test_cuda_put(w->dev, v, (size_t)n * sizeof(float));
}

static void open_work(const ct_device *dev, const ct_fused_desc *d, uint64_t seed, work *w)
{
    int64_t n = longer(d);

    *w = (work){ .dev = dev, .d = *d };
    w->a = drawn(d->m * d->k, seed), w->b = drawn(d->k * d->n, seed + 1);
    w->bias = drawn(n, seed + 2), w->old = drawn(d->m * d->n, seed + 3);
    w->c = drawn(d->m * d->n, seed), w->old_sums = drawn(n, seed + 4), w->sums = drawn(n, seed);
    w->on_a = put_side(w, CT_NARROW_A, w->a, d->m * d->k);
    w->on_b = put_side(w, CT_NARROW_B, w->b, d->k * d->n);
    w->on_bias = test_cuda_put(dev, w->bias, (size_t)n * sizeof(float));
    w->on_c = test_cuda_put(dev, NULL, (size_t)(d->m * d->n) * sizeof(float));
    w->on_sums = test_cuda_put(dev, NULL, (size_t)n * sizeof(float));
    w->on_bits = test_cuda_put(dev, NULL, dev->math->fused->bits(d));
}

static void close_work(work *w)
{
    void *there[] = { w->on_a, w->on_b, w->on_bias, w->on_c, w->on_sums, w->on_bits };

    for (size_t i = 0; i < sizeof(there) / sizeof(there[0]); i++) w->dev->mem_release(there[i]);
    free(w->a), free(w->b), free(w->bias), free(w->old), free(w->c);
    free(w->old_sums), free(w->sums);
}

static double beta_of(const work *w)
{
    bool vector = (w->d.behind & (CT_FUSE_BIAS | CT_FUSE_RELU | CT_FUSE_DRELU)) != 0;

    return (vector || lies(w, CT_NARROW_C)) ? 0.0 : (double)w->beta;
}

static void run(work *w, ct_fused *f, void *bits)
{
    const ct_fused_ops *ops = w->dev->math->fused;
    size_t vector = (size_t)longer(&w->d) * sizeof(float);
    size_t bytes = (size_t)(w->d.m * w->d.n) * sizeof(float);
    ct_fused_args g = { .a = w->on_a,
                        .b = w->on_b,
                        .bias = w->on_bias,
                        .beta = (float)beta_of(w),
                        .c = w->on_c,
                        .sums = w->on_sums,
                        .sums_beta = w->beta,
                        .bits = bits };

    g.work = test_cuda_put(w->dev, NULL, ops->workspace(f, -1));
    assert_int_equal(w->dev->from_host(NULL, w->on_c, w->old, bytes), CT_OK);
    assert_int_equal(w->dev->from_host(NULL, w->on_sums, w->old_sums, vector), CT_OK);
    assert_int_equal(ops->run(f, NULL, &g), CT_OK);
    if (lies(w, CT_NARROW_C))
        test_cuda_get_narrow(w->dev, w->d.operand, w->on_c, w->d.m * w->d.n, w->c);
    else
        assert_int_equal(w->dev->to_host(NULL, w->c, w->on_c, bytes), CT_OK);
    assert_int_equal(w->dev->to_host(NULL, w->sums, w->on_sums, vector), CT_OK);
    w->dev->mem_release(g.work);
}

static void near(double got, double want, double off, const work *w, const char *what, int64_t at)
{
    if (!(fabs(got - want) <= off))
        fail_msg("%s, behind %u, narrow %u, %d %d, %s %lld is %.9g, not %.9g within %g",
                 operand_name[w->d.operand], w->d.behind, w->d.narrow, w->d.ta, w->d.tb, what,
                 (long long)at, got, want, off);
}

/* What rounding to 16 bits may be off, of a result and of a bias beside it; f16 has no numbers
 * nearer to 0 than twice the last one. */
static double off_by(const work *w, double sum, int64_t column)
{
    double once = (w->d.operand == CT_OPERAND_F16) ? 0x1p-11 : 0x1p-8;
    double bias = ((w->d.behind & CT_FUSE_BIAS) != 0) ? fabs((double)w->bias[column]) : 0.0;

    return lies(w, CT_NARROW_C) ? once * (fabs(sum) + (1.0 + once) * bias) + 0x1p-25 : 0.0;
}

/* Sums of k products rounded to f32 k times; TF32 keeps 10 bits behind the point, however a device
 * rounds to them. passed: NULL, or C of the product whose bits DRELU reads. */
static void check_c(const work *w, const float *passed)
{
    const ct_fused_desc *d = &w->d;
    double eps = (double)(d->k + 4) * 0x1p-24, loss = 2.1 * 0x1p-10;

    if (d->operand == CT_OPERAND_TF32) eps += loss;
    for (int64_t i = 0; i < d->m; i++) {
        for (int64_t j = 0; j < d->n; j++) {
            int64_t at = i * d->n + j;
            double sum = beta_of(w) * (double)w->old[at], size = fabs(sum), more;

            for (int64_t p = 0; p < d->k; p++) {
                double one = rounded(d->operand, w->a[d->ta ? p * d->m + i : i * d->k + p]) *
                             rounded(d->operand, w->b[d->tb ? j * d->k + p : p * d->n + j]);

                sum += one;
                size += fabs(one);
            }
            if ((d->behind & CT_FUSE_BIAS) != 0) {
                sum += (double)w->bias[j];
                size += fabs((double)w->bias[j]);
            }
            more = off_by(w, sum, j);
            if (((d->behind & CT_FUSE_RELU) != 0) && (sum < 0.0)) sum = 0.0;
            if ((passed != NULL) && !(passed[at] > 0.0f)) sum = size = more = 0.0;
            near((double)w->c[at], sum, 1.01 * eps * size + more, w, "element", at);
        }
    }
}

static void check_sums(const work *w)
{
    const ct_fused_desc *d = &w->d;
    bool of_a = (d->behind & CT_FUSE_SUM_A) != 0;
    double eps = (double)(d->k + 4) * 0x1p-24;

    if (d->operand == CT_OPERAND_TF32) eps += 2.1 * 0x1p-10;
    for (int64_t i = 0; i < (of_a ? d->m : d->n); i++) {
        double sum = (double)w->beta * (double)w->old_sums[i], size = fabs(sum);

        for (int64_t p = 0; p < d->k; p++) {
            float one = of_a ? w->a[d->ta ? p * d->m + i : i * d->k + p]
                             : w->b[d->tb ? i * d->k + p : p * d->n + i];

            sum += rounded(d->operand, one);
            size += fabs((double)one);
        }
        near((double)w->sums[i], sum, eps * size, w, "sum", i);
    }
}

static bool make(const ct_device *dev, const ct_fused_desc *d, ct_fused **f_p)
{
    ct_status status = dev->math->fused->create(d, f_p);

    if (status == CT_UNSUPPORTED) {
        assert_false(is_emulated());
        print_message("the library has no product %lld x %lld x %lld, %s, %d %d, behind %u\n",
                      (long long)d->m, (long long)d->n, (long long)d->k, operand_name[d->operand],
                      d->ta, d->tb, d->behind);
        return false;
    }
    assert_int_equal(status, CT_OK);
    return true;
}

/* Sums of what C became: m numbers of f32 each. */
static void check_sums_of_c(const work *w)
{
    double eps = (double)(w->d.m + 1) * 0x1p-24;

    for (int64_t j = 0; j < w->d.n; j++) {
        double sum = (double)w->beta * (double)w->old_sums[j], size = fabs(sum);

        for (int64_t i = 0; i < w->d.m; i++) {
            sum += (double)w->c[i * w->d.n + j];
            size += fabs((double)w->c[i * w->d.n + j]);
        }
        near((double)w->sums[j], sum, eps * size, w, "sum", j);
    }
}

/* The ReLU's gradient, of a product of another depth with the bits of w's; and with its sums. */
static void check_drelu(const work *w)
{
    static const unsigned behind[] = { CT_FUSE_DRELU, CT_FUSE_DRELU | CT_FUSE_SUM_C };

    for (int k = 0; k < 2; k++) {
        ct_fused_desc d = w->d;
        ct_fused *f = NULL;
        work back;

        d.behind = behind[k];
        d.k += 8;
        if ((k == 1) && lies(w, CT_NARROW_C)) { /* sums would have 16 bits */
            assert_int_equal(w->dev->math->fused->create(&d, &f), CT_UNSUPPORTED);
            continue;
        }
        if (!make(w->dev, &d, &f)) continue;
        open_work(w->dev, &d, 77, &back);
        for (int add = 0; add <= k; add++) {
            back.beta = (float)add;
            run(&back, f, w->on_bits);
            check_c(&back, w->c);
            if (k == 1) check_sums_of_c(&back);
        }
        close_work(&back);
        w->dev->math->fused->destroy(f);
    }
}

static void check_product(const ct_device *dev, const ct_fused_desc *d)
{
    const ct_fused_ops *ops = dev->math->fused;
    ct_fused *f;
    int n = 0;
    work w;

    if (!make(dev, d, &f)) return;
    open_work(dev, d, 5, &w);
    for (; ops->algorithm(f, n) != NULL; n++) {
        ops->take(f, n);
        for (int k = 0; k < n; k++)
            assert_string_not_equal(ops->algorithm(f, k), ops->algorithm(f, n));
        for (int add = 0; add < 2; add++) {
            w.beta = (float)add;
            run(&w, f, w.on_bits);
            check_c(&w, NULL);
            if ((d->behind & (CT_FUSE_SUM_A | CT_FUSE_SUM_B)) != 0) check_sums(&w);
        }
        if ((d->behind & CT_FUSE_BITS) != 0) check_drelu(&w);
    }
    assert_true((n > 0) && (n <= CT_FUSED_MOST));
    if (is_emulated()) assert_int_equal(n, 3);
    close_work(&w);
    ops->destroy(f);
}

/* Sums run along an operand whose rows are their products, and are of more than one number. */
static bool has_sums(const ct_fused_desc *d)
{
    bool of_a = (d->behind & CT_FUSE_SUM_A) != 0, of_b = (d->behind & CT_FUSE_SUM_B) != 0;

    if ((of_a || of_b) && ((d->narrow & CT_NARROW_C) != 0)) return false;
    return !(of_a && (!d->ta || (d->m == 1))) && !(of_b && (d->tb || (d->n == 1)));
}

static const unsigned behind[] = { 0,
                                   CT_FUSE_BIAS,
                                   CT_FUSE_RELU,
                                   CT_FUSE_BIAS | CT_FUSE_RELU,
                                   CT_FUSE_RELU | CT_FUSE_BITS,
                                   CT_FUSE_BIAS | CT_FUSE_RELU | CT_FUSE_BITS,
                                   CT_FUSE_SUM_A,
                                   CT_FUSE_SUM_B };
enum { BEHIND = sizeof(behind) / sizeof(behind[0]) };

static void check_desc(const ct_device *dev, const ct_fused_desc *d)
{
    ct_fused *f = NULL;

    if (has_sums(d))
        check_product(dev, d);
    else
        assert_int_equal(dev->math->fused->create(d, &f), CT_UNSUPPORTED);
}

static void each_epilogue_is_as_defined(void **state)
{
    static const int64_t shape[][3] = { { 32, 64, 48 }, { 13, 21, 37 }, { 1, 5, 3 } };
    const ct_device *dev = test_cuda();

    (void)state;
    for (int s = 0; s < 3; s++) {
        for (int o = 0; o < 4; o++) {
            for (int way = 0; way < 4; way++) {
                for (int k = 0; k < BEHIND; k++) {
                    ct_fused_desc d = { (ct_operand)o,
                                        (way & 1) != 0,
                                        (way & 2) != 0,
                                        shape[s][0],
                                        shape[s][1],
                                        shape[s][2],
                                        behind[k],
                                        0,
                                        0 };

                    check_desc(dev, &d);
                }
            }
        }
    }
}

/* The same of matrices that have 16 bits in memory, as fully connected layers have them: all of
 * what is read, all but weights, or what is written alone. */
static void matrices_may_have_16_bits(void **state)
{
    static const unsigned narrow[] = { CT_NARROW_A, CT_NARROW_A | CT_NARROW_B,
                                       CT_NARROW_A | CT_NARROW_C, CT_NARROW_C };
    const ct_device *dev = test_cuda();

    (void)state;
    for (int i = 0; i < 32; i++) {
        ct_operand operand = (i % 2 == 0) ? CT_OPERAND_BF16 : CT_OPERAND_F16;

        for (int k = 0; k < BEHIND; k++) {
            ct_fused_desc d = { operand, (i & 2) != 0, (i & 4) != 0, 16, 24, 40, behind[k],
                                0,       narrow[i / 8] };

            check_desc(dev, &d);
        }
    }
}

static void what_cannot_be_is_refused(void **state)
{
    const ct_device *dev = test_cuda();
    const ct_fused_ops *ops = dev->math->fused;
    ct_fused_desc d = { .m = 16, .n = 16, .k = 16, .behind = CT_FUSE_DRELU | CT_FUSE_BIAS };
    ct_fused *f = NULL;
    log_capture log;
    work w;

    (void)state;
    assert_int_equal(ops->create(&d, &f), CT_UNSUPPORTED);
    d.behind = CT_FUSE_SUM_C; /* of a C that nobody masks: the sums of op(A) say the same */
    assert_int_equal(ops->create(&d, &f), CT_UNSUPPORTED);
    d.behind = CT_FUSE_DRELU, d.k = 1; /* libraries have none in this depth */
    assert_int_equal(ops->create(&d, &f), CT_UNSUPPORTED);
    d.behind = CT_FUSE_SUM_A, d.ta = true;
    assert_int_equal(ops->create(&d, &f), CT_UNSUPPORTED);
    d.behind = 0, d.ta = false, d.operand = CT_OPERAND_BF16, d.narrow = CT_NARROW_C;
    d.k = 16, d.n = 20; /* rows of 16 bits begin at 16 bytes */
    assert_int_equal(ops->create(&d, &f), CT_UNSUPPORTED);
    d.narrow = CT_NARROW_A, d.n = 16, d.k = 20;
    assert_int_equal(ops->create(&d, &f), CT_UNSUPPORTED);
    d.operand = CT_OPERAND_F32, d.k = 16; /* whose numbers have more */
    assert_int_equal(ops->create(&d, &f), CT_UNSUPPORTED);
    d.narrow = 0;
    d.behind = 0, d.k = 0, d.ta = false;
    assert_int_equal(ops->create(&d, &f), CT_UNSUPPORTED);
    assert_null(f);
    d.k = 16;
    if (!make(dev, &d, &f)) return;
    open_work(dev, &d, 5, &w);
    log_capture_start(&log);
    assert_int_equal(
        ops->run(f, NULL, &(ct_fused_args){ .a = (float *)w.on_a + 1, .b = w.on_b, .c = w.on_c }),
        CT_ERR_ARG);
    log_capture_stop();
    assert_non_null(strstr(log.error, "not aligned"));
    close_work(&w);
    ops->destroy(f);
    ops->destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_epilogue_is_as_defined),
        cmocka_unit_test(matrices_may_have_16_bits),
        cmocka_unit_test(what_cannot_be_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
