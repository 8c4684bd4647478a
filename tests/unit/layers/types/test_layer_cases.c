/* Layers against numbers recorded from PyTorch (tests/golden/make_cases_golden.py; Filter from
 * NumPy, make_filter_golden.py), and their gradients against differences. A case's tolerance is the
 * number of roundings, of numbers up to 4 in size, that an element passes at most. */
#include "tests/test.h"
#include "tests/layer_harness.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST = 5 };

typedef struct golden_case {
    const char *type, *text;
    ct_phase phase;
    int n_bottom, n_top, n_weight, roundings;
    ct_shape bottom[MOST];
    const double *x[MOST], *dx[MOST]; /* dx NULL: none */
    ct_shape top[MOST];
    const double *y[MOST], *dy[MOST], *weight[MOST], *dweight[MOST];
} golden_case;

#include "tests/golden/cases_golden.h"
#include "tests/golden/filter_golden.h"

static test_layer *make(const golden_case *g, bool in_place)
{
    test_layer_spec spec = { .type = g->type,
                             .text = g->text,
                             .phase = g->phase,
                             .n_bottom = g->n_bottom,
                             .n_top = g->n_top,
                             .in_place = in_place };
    test_layer *t;

    for (int i = 0; i < g->n_bottom; i++) spec.bottom[i] = g->bottom[i];
    if (test_layer_create(&spec, &t) != CT_OK) fail_msg("%s { %s }", g->type, g->text);
    assert_int_equal(t->layer.n_weight, g->n_weight);
    for (int i = 0; i < g->n_bottom; i++) test_set(t->input[i], g->x[i], t->input_count[i]);
    for (int i = 0; i < g->n_weight; i++) test_set(t->weight[i], g->weight[i], t->weight_count[i]);
    return t;
}

static void compare(const golden_case *g, bool in_place)
{
    double tolerance = g->roundings * 0x1p-24;
    test_layer *t = make(g, in_place);
    char what[160];

    for (int k = 0; k < g->n_top; k++) {
        int64_t n = ct_shape_count(&g->top[k], 0, -1);

        if (n > t->top_count[k]) fail_msg("%s { %s }: top %d is smaller", g->type, g->text, k);
        test_set(t->top_diff[k], g->dy[k], n);
    }
    assert_int_equal(test_layer_forward(t), CT_OK);
    for (int k = 0; k < g->n_top; k++) {
        if (!ct_shape_equal(&t->top_shape[k], &g->top[k]))
            fail_msg("%s { %s }: top %d is %s, not %s", g->type, g->text, k,
                     ct_shape_str(&t->top_shape[k]).text, ct_shape_str(&g->top[k]).text);
        snprintf(what, sizeof(what), "%s { %s } top %d", g->type, g->text, k);
        test_near_golden(t, TEST_FORWARD, t->top[k], g->y[k], t->top_count[k], tolerance, what);
    }
    if (t->layer.ops->backward != NULL) assert_int_equal(test_layer_backward(t), CT_OK);
    for (int i = 0; i < g->n_bottom; i++) {
        snprintf(what, sizeof(what), "%s { %s } bottom diff %d", g->type, g->text, i);
        if ((g->dx[i] != NULL) && (t->input_diff[i] == NULL)) fail_msg("%s is missing", what);
        if (g->dx[i] != NULL)
            test_near_golden(t, TEST_BACKWARD, t->input_diff[i], g->dx[i], t->input_count[i],
                             tolerance, what);
    }
    for (int i = 0; i < g->n_weight; i++) {
        snprintf(what, sizeof(what), "%s { %s } weight diff %d", g->type, g->text, i);
        if (g->dweight[i] != NULL)
            test_near_golden(t, TEST_BACKWARD, t->weight_diff[i], g->dweight[i], t->weight_count[i],
                             tolerance, what);
    }
    test_layer_destroy(t);
}

enum {
    N_GOLDEN = sizeof(golden) / sizeof(golden[0]),
    N_ALL = N_GOLDEN + sizeof(filter_golden) / sizeof(filter_golden[0])
};

static const golden_case *case_of(int i)
{
    return (i < N_GOLDEN) ? &golden[i] : &filter_golden[i - N_GOLDEN];
}

static void same_as_recorded(void **state)
{
    (void)state;
    for (int i = 0; i < N_ALL; i++) {
        compare(case_of(i), false);
        if (ct_layer_find(case_of(i)->type)->allow_inplace) compare(case_of(i), true);
    }
}

static void gradients(void **state)
{
    (void)state;
    for (int i = 0; i < N_ALL; i++) {
        const golden_case *g = case_of(i);
        test_layer *t;

        if (g->dx[0] == NULL) continue; /* none, or of places that numbers say */
        t = make(g, false);
        test_layer_gradient(t, &(test_gradient){ .step = 1.0f / 64,
                                                 .roundings = g->roundings,
                                                 .max_element = 40,
                                                 .max_kink = 0.2 });
        test_layer_destroy(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_as_recorded),
        cmocka_unit_test(gradients),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
