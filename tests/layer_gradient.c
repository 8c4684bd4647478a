/* Central differences against backward. The bounds are derived in tests/layer_harness.h. */
#include "tests/test.h"
#include "tests/layer_harness.h"

#include "framework/base/rng.h"
#include "framework/base/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double kink_share = 0.05; /* of the largest gradient: E above it is a kink */

/* What is being measured: the values that move and the gradient that backward gave for them. */
typedef struct probe {
    test_layer *t;
    const test_gradient *g;
    float *value;      /* t->input[i] or t->weight[i] */
    const float *diff; /* a copy of backward's result */
    int64_t n;
    double step, noise_unit;
    float *base_top[TEST_MAX_BLOB];
    char *message; /* what is wrong first; "" : nothing */
} probe;

enum { MESSAGE = 256 };
typedef enum { AGREES, AT_KINK, DIFFERS } verdict;

/* The top elements that differ from the unmoved ones: only they carry noise. */
static double moved(const probe *p)
{
    double sum = 0;

    for (int k = 0; k < p->t->layer.n_top; k++) {
        const float *c = p->t->top_diff[k];
        double largest = 0, here = 0;

        for (int64_t j = 0; j < p->t->top_count[k]; j++) {
            largest = fmax(largest, fabs((double)p->base_top[k][j]));
            if (p->t->top[k][j] != p->base_top[k][j]) here += fabs((double)c[j]);
        }
        sum += here * largest;
    }
    return sum;
}

/* The loss less that of the unmoved input: differences of tops, so that nothing cancels. */
static double loss_change(const probe *p)
{
    double sum = 0;

    assert_int_equal(test_layer_forward(p->t), CT_OK);
    for (int k = 0; k < p->t->layer.n_top; k++) {
        for (int64_t j = 0; j < p->t->top_count[k]; j++)
            sum += (double)p->t->top_diff[k][j] *
                   ((double)p->t->top[k][j] - (double)p->base_top[k][j]);
    }
    return sum;
}

static verdict compare_element(const probe *p, int64_t i, double scale, const char *what)
{
    static const int at[4] = { 1, -1, 2, -2 };
    float x = p->value[i];
    double f[4], dx[4], noise = 0, d1, d2, s1, s2, e, tolerance;

    for (int k = 0; k < 4; k++) {
        p->value[i] = (float)((double)x + at[k] * p->step);
        dx[k] = (double)p->value[i] - (double)x;
        f[k] = loss_change(p);
        noise = fmax(noise, moved(p) * p->noise_unit);
    }
    p->value[i] = x;
    d1 = (f[0] - f[1]) / (dx[0] - dx[1]);
    d2 = (f[2] - f[3]) / (dx[2] - dx[3]);
    s1 = f[0] / dx[0] - f[1] / dx[1]; /* exact for the steps that f32 really made */
    s2 = f[2] / dx[2] - f[3] / dx[3];
    e = fabs(d2 - d1) + fabs(s2 - 2 * s1) / 2;
    if (e > kink_share * scale + 4 * noise / p->step) return AT_KINK;
    tolerance = noise / p->step + e + p->noise_unit * scale;
    if (fabs((double)p->diff[i] - d1) <= tolerance) return AGREES;
    snprintf(
        p->message, MESSAGE, "%s: %s element %lld = %g: backward %.8g, differences %.8g +- %.2g",
        p->t->layer.ops->type, what, (long long)i, (double)x, (double)p->diff[i], d1, tolerance);
    return DIFFERS;
}

static void compare_blob(probe *p, const char *what)
{
    int64_t limit = (p->g->max_element > 0) ? p->g->max_element : 300;
    int64_t n = (p->n < limit) ? p->n : limit;
    int64_t kinks = 0;
    double scale = 0;

    for (int64_t i = 0; i < p->n; i++) {
        if (!isfinite(p->diff[i]))
            snprintf(p->message, MESSAGE, "%s: %s diff %lld is %g", p->t->layer.ops->type, what,
                     (long long)i, (double)p->diff[i]);
        scale = fmax(scale, fabs((double)p->diff[i]));
    }
    for (int64_t k = 0; (k < n) && (p->message[0] == '\0'); k++) {
        int64_t i = (int64_t)ct_rng_permute(p->g->seed + 5, (uint64_t)k, (uint64_t)p->n);

        kinks += compare_element(p, i, scale, what) == AT_KINK;
    }
    if ((p->message[0] == '\0') && ((double)kinks > p->g->max_kink * (double)n))
        snprintf(p->message, MESSAGE, "%s: %s: %lld of %lld elements lie at kinks",
                 p->t->layer.ops->type, what, (long long)kinks, (long long)n);
}

static float *copy_of(const float *v, int64_t n)
{
    float *copy = malloc((size_t)(n + 1) * sizeof(float));

    assert_non_null(copy);
    memcpy(copy, v, (size_t)n * sizeof(float));
    return copy;
}

static void look_at(probe *p, float *value, const float *diff, int64_t n, const char *kind, int i)
{
    char what[32];
    float *copy;

    if (p->message[0] != '\0') return;
    copy = copy_of(diff, n);
    snprintf(what, sizeof(what), "%s %d", kind, i);
    p->value = value;
    p->diff = copy;
    p->n = n;
    compare_blob(p, what);
    free(copy);
}

static void choose_projection(test_layer *t, uint64_t seed)
{
    for (int k = 0; k < t->layer.n_top; k++) {
        for (int64_t j = 0; j < t->top_count[k]; j++) {
            float u = ct_rng_uniform_at(ct_rng_key(seed, 3, (uint64_t)k), (uint64_t)j);
            bool silent = (t->layer.ops->is_loss && (k > 0)) || t->spec.no_top_diff[k];

            t->top_diff[k][j] = silent ? 0.0f : ((u < 0.5f) ? u - 1.25f : u + 0.25f);
        }
    }
}

const char *test_layer_gradient_error(test_layer *t, const test_gradient *g)
{
    static const test_gradient defaults = { 0 };
    static char message[MESSAGE]; /* tests run one at a time */
    probe p = { .t = t, .g = (g != NULL) ? g : &defaults, .message = message };

    message[0] = '\0';
    p.step = (p.g->step > 0) ? (double)p.g->step : 1e-2;
    p.noise_unit = ((p.g->roundings > 0) ? p.g->roundings : 16) * 0x1p-24;
    choose_projection(t, p.g->seed);
    assert_int_equal(test_layer_forward(t), CT_OK);
    for (int k = 0; k < t->layer.n_top; k++) p.base_top[k] = copy_of(t->top[k], t->top_count[k]);
    assert_int_equal(test_layer_backward(t), CT_OK);
    for (int i = 0; i < t->layer.n_bottom; i++) {
        if ((t->input_diff[i] != NULL) && (((p.g->skip_bottom >> i) & 1) == 0))
            look_at(&p, t->input[i], t->input_diff[i], t->input_count[i], "bottom", i);
    }
    for (int i = 0; i < t->layer.n_weight; i++) {
        if ((t->weight_diff[i] != NULL) && (((p.g->skip_weight >> i) & 1) == 0))
            look_at(&p, t->weight[i], t->weight_diff[i], t->weight_count[i], "weight", i);
    }
    for (int k = 0; k < t->layer.n_top; k++) free(p.base_top[k]);
    return (message[0] != '\0') ? message : NULL;
}

void test_layer_gradient(test_layer *t, const test_gradient *g)
{
    const char *error = test_layer_gradient_error(t, g);

    if (error != NULL) fail_msg("%s", error);
}
