/* The layers that compute against values that PyTorch computed in double, recorded by
 * tests/golden/make_golden_kernels.py; with every implementation. Run from the root. */
#include "tests/test.h"
#include "tests/layer_harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char FILE_NAME[] = "tests/golden/kernels.txt";

/* numbers in [-1, 1], as value() of the script makes them */
static void value(float *v, int64_t n, int64_t salt)
{
    for (int64_t i = 0; i < n; i++) v[i] = (float)((i * 7919 + salt * 104729) % 257 - 128) / 128.0f;
}

typedef struct golden {
    char type[32], text[400];
    ct_shape shape;
    test_layer *t[2]; /* "auto" and "ref" */
    int n_compared;
} golden;

static void build(golden *g)
{
    for (int k = 0; k < 2; k++) {
        const char *kernel = (k == 0) ? "auto" : "ref";
        char text[600];
        test_layer_spec spec = {
            .type = g->type, .text = text, .n_bottom = 1, .bottom = { g->shape }
        };
        test_layer *t;

        snprintf(text, sizeof(text),
                 "%s ct_kernel { forward: \"%s\" backward_data: \"%s\" backward_weight: \"%s\" }",
                 g->text, kernel, kernel, kernel);
        assert_int_equal(test_layer_create(&spec, &t), CT_OK);
        value(t->input[0], t->input_count[0], 1);
        for (int i = 0; i < t->layer.n_weight; i++) value(t->weight[i], t->weight_count[i], 2 + i);
        value(t->top_diff[0], t->top_count[0], 9);
        test_layer_pass(t);
        g->t[k] = t;
    }
}

static void destroy(golden *g)
{
    for (int k = 0; k < 2; k++) {
        test_layer_destroy(g->t[k]);
        g->t[k] = NULL;
    }
}

/* The longest sum here has 40 terms of at most 1 and powers of at most 4 ulp, results are below
 * 40: 44 eps 40, and the file's ninth digit. */
static const double tolerance = 44.0 * 40.0 * 0x1p-24 + 5e-9;

static void compare(golden *g, const char *name, const double *want, long n)
{
    for (int k = 0; k < 2; k++) {
        test_layer *t = g->t[k];
        const float *got = NULL;
        char what[500];
        long count = 0;

        if (strcmp(name, "top") == 0) {
            got = t->top[0];
            count = (long)t->top_count[0];
        } else if (strcmp(name, "bottom_diff") == 0) {
            got = t->input_diff[0];
            count = (long)t->input_count[0];
        } else if (strncmp(name, "weight_diff", 11) == 0) {
            got = t->weight_diff[name[11] - '0'];
            count = (long)t->weight_count[name[11] - '0'];
        }
        assert_non_null(got);
        assert_int_equal(count, n);
        snprintf(what, sizeof(what), "%s { %s } %s", g->type, g->text, name);
        test_near_golden(t, (strcmp(name, "top") == 0) ? TEST_FORWARD : TEST_BACKWARD, got, want, n,
                         tolerance, what);
        g->n_compared++;
    }
}

static void read_values(golden *g, const char *name, const char *rest)
{
    char *end;
    long n = strtol(rest, &end, 10);
    double *want = calloc((size_t)n + 1, sizeof(double));

    assert_non_null(want);
    for (long i = 0; i < n; i++) {
        const char *at = end;

        want[i] = strtod(at, &end);
        assert_ptr_not_equal(at, end);
    }
    if (g->t[0] == NULL) build(g);
    compare(g, name, want, n);
    free(want);
}

static void test_golden(void **state)
{
    FILE *f = fopen(FILE_NAME, "r");
    golden g = { .n_compared = 0 };
    char *line = NULL;
    size_t size = 0;

    (void)state;
    if (f == NULL) fail_msg("cannot open %s: run from the root of the sources", FILE_NAME);
    while (getline(&line, &size, f) > 0) {
        char *rest = strchr(line, ' ');

        line[strcspn(line, "\n")] = '\0';
        if (rest == NULL) continue;
        *rest++ = '\0';
        if (strcmp(line, "case") == 0) {
            destroy(&g);
            snprintf(g.type, sizeof(g.type), "%s", rest);
        } else if (strcmp(line, "text") == 0) {
            snprintf(g.text, sizeof(g.text), "%s", rest);
        } else if (strcmp(line, "shape") == 0) {
            g.shape.ndim = 0;
            for (char *at = rest; *at != '\0'; g.shape.ndim++)
                g.shape.dim[g.shape.ndim] = strtol(at, &at, 10);
        } else {
            read_values(&g, line, rest);
        }
    }
    destroy(&g);
    free(line);
    fclose(f);
    assert_int_equal(g.n_compared, 2 * (2 * 19 + 13));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_golden) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
