/* What tests of layers do with the harness: values to put in, passes that must succeed, what is
 * refused, comparisons. */
#include "tests/test.h"
#include "tests/layer_harness.h"

#include "framework/base/rng.h"
#include "framework/base/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- values and passes */

void test_random(float *v, int64_t n, uint64_t seed, float low, float high)
{
    uint32_t word[256];

    for (int64_t at = 0, many; at < n; at += many) {
        many = (n - at < 256) ? n - at : 256;
        ct_rng_words(seed, (uint64_t)at, many, word);
        for (int64_t i = 0; i < many; i++) v[at + i] = low + (high - low) * ct_rng_uniform(word[i]);
    }
}

void test_random_distinct(float *v, int64_t n, uint64_t seed, float low, float high)
{
    double gap = (double)(high - low) / (double)n;

    for (int64_t i = 0; i < n; i++)
        v[i] = (float)(low + gap * (double)ct_rng_permute(seed, (uint64_t)i, (uint64_t)n));
}

void test_set(float *to, const double *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] = (float)from[i];
}

test_layer *test_layer_make(const test_layer_spec *spec)
{
    test_layer *t;

    assert_int_equal(test_layer_create(spec, &t), CT_OK);
    return t;
}

void test_layer_pass(test_layer *t)
{
    assert_int_equal(test_layer_forward(t), CT_OK);
    assert_int_equal(test_layer_backward(t), CT_OK);
}

/* ---- what is refused, and told */

static ct_text collected; /* tests run one at a time */

static void collect(void *ctx, const char *text)
{
    (void)ctx;
    ct_text_add(&collected, "%s\n", text);
}

void test_log_start(void)
{
    ct_text_destroy(&collected);
    collected = (ct_text){ 0 };
    ct_log_set_sink(collect, NULL);
}

const char *test_log_stop(void)
{
    ct_log_set_sink(NULL, NULL);
    return (collected.text != NULL) ? collected.text : "";
}

void test_layer_refused(const test_layer_spec *spec, ct_status expected, const char *part)
{
    test_layer *t = NULL;
    ct_status status;
    const char *text;

    test_log_start();
    status = test_layer_create(spec, &t);
    text = test_log_stop();
    if (status == CT_OK) test_layer_destroy(t);
    if ((status != expected) || (strstr(text, part) == NULL))
        fail_msg("expected %s with \"%s\", got %s: %s", ct_status_str(expected), part,
                 ct_status_str(status), text);
}

/* ---- comparisons */

void test_near(const float *a, const double *b, int64_t n, double tolerance, const char *what)
{
    for (int64_t i = 0; i < n; i++) {
        if (!(fabs((double)a[i] - b[i]) <= tolerance * (1 + fabs(b[i]))))
            fail_msg("%s[%lld] is %.9g, expected %.9g +- %.2g", what, (long long)i, (double)a[i],
                     b[i], tolerance * (1 + fabs(b[i])));
    }
}

void test_near_golden(const test_layer *t, test_side side, const float *a, const double *b,
                      int64_t n, double tolerance, const char *what)
{
    const char *path = getenv("CORTADO_GOLDEN");
    double worst = 0;
    FILE *f;

    test_near(a, b, n, tolerance, what);
    if ((path == NULL) || (path[0] == '\0')) return;
    for (int64_t i = 0; i < n; i++)
        worst = fmax(worst, fabs((double)a[i] - b[i]) / (1 + fabs(b[i])));
    f = fopen(path, "a");
    assert_non_null(f);
    fprintf(f, "%s %s %.3g %.3g\n", t->layer.ops->type,
            (side == TEST_FORWARD) ? "FORWARD" : "BACKWARD", worst, tolerance);
    assert_int_equal(fclose(f), 0);
}

void test_same(const float *a, const float *b, int64_t n, const char *what)
{
    for (int64_t i = 0; i < n; i++) {
        if (memcmp(&a[i], &b[i], sizeof(float)) != 0)
            fail_msg("%s[%lld]: %.9g and %.9g differ", what, (long long)i, (double)a[i],
                     (double)b[i]);
    }
}
