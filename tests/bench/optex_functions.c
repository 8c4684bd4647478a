/* Rounds of OptEx on functions without noise, beside the rule alone: optex_functions [elements]
 * [points] [steps]; 100000, 5 and 250 by itself. Adam takes so many steps of 0.01. Of these count
 * the ones until the function is first as low as at their end. Then OptEx, with each predictor,
 * counts the rounds until it is as low; ideal are steps / points. The exit code is 1 where KERNEL
 * with REPLAY takes more than 1.06 of the ideal, or not 4 times fewer rounds than Adam steps.
 *
 *     sphere      sum x_i^2
 *     ackley      n (20 + e - 20 exp(-0.2 sqrt(sum x_i^2 / n)) - exp(sum cos(2 pi x_i) / n))
 *     rosenbrock  sum 100 (x_(i+1) - x_i^2)^2 + (1 - x_i)^2
 *
 * All begin at normal numbers of seed 5. */
#include "tests/test.h"
#include "tests/net_layers.h"
#include "tests/solver_harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const functions[] = { "sphere", "ackley", "rosenbrock" };

/* ---- the functions: their values, and gradients unless NULL */

static double sphere(int64_t n, const float *x, float *g)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++) {
        sum += (double)x[i] * (double)x[i];
        if (g != NULL) g[i] = 2 * x[i];
    }
    return sum;
}

static double ackley(int64_t n, const float *x, float *g)
{
    const double turn = 2 * acos(-1.0);
    double square = 0, wave = 0, root, far, near;

    for (int64_t i = 0; i < n; i++) {
        square += (double)x[i] * (double)x[i];
        wave += cos(turn * (double)x[i]);
    }
    root = sqrt(square / (double)n);
    far = 20 * exp(-0.2 * root);
    near = exp(wave / (double)n);
    for (int64_t i = 0; (g != NULL) && (i < n); i++) {
        double v = (root > 0) ? 0.2 * far * (double)x[i] / root : 0;

        g[i] = (float)(v + near * turn * sin(turn * (double)x[i]));
    }
    return (double)n * (20 + exp(1.0) - far - near);
}

static double rosenbrock(int64_t n, const float *x, float *g)
{
    double sum = 0, from_before = 0;

    for (int64_t i = 0; i < n; i++) {
        double v = (double)x[i], mine = from_before;

        if (i + 1 < n) {
            double apart = (double)x[i + 1] - v * v;

            sum += 100 * apart * apart + (1 - v) * (1 - v);
            mine += -400 * apart * v - 2 * (1 - v);
            from_before = 200 * apart;
        }
        if (g != NULL) g[i] = (float)mine;
    }
    return sum;
}

static double value_of(const char *name, int64_t n, const float *x, float *g)
{
    if (strcmp(name, "sphere") == 0) return sphere(n, x, g);
    return (strcmp(name, "ackley") == 0) ? ackley(n, x, g) : rosenbrock(n, x, g);
}

/* ---- as a layer, whose weights are the arguments */

static ct_status function_setup(ct_layer *l, const ct_shape *bottom)
{
    static const Ct__FillerParameter none = CT__FILLER_PARAMETER__INIT;
    Ct__FillerParameter *gaussian = l->state;

    (void)bottom;
    *gaussian = none;
    gaussian->type = (char *)(uintptr_t) "gaussian";
    gaussian->has_std = 1;
    gaussian->std = 1;
    ct_layer_add_weight(l, &(ct_shape){ 1, { l->param->inner_product_param->num_output } },
                        gaussian);
    return CT_OK;
}

static ct_status function_reshape(const ct_layer *l, ct_instance *in)
{
    (void)l;
    ct_blob_set_shape(in->top[0], &(ct_shape){ 0, { 0 } });
    return CT_OK;
}

static ct_status function_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_blob *w = &in->weight[0];

    (void)ex;
    ct_blob_data(in->top[0])[0] =
        (float)value_of(l->name, ct_tensor_count(&w->data), ct_blob_data(w), NULL);
    return CT_OK;
}

static ct_status function_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_blob *w = &in->weight[0];

    (void)ex;
    if (ct_blob_diff(w) != NULL)
        (void)value_of(l->name, ct_tensor_count(&w->data), ct_blob_data(w), ct_blob_diff(w));
    return CT_OK;
}

static const ct_layer_ops function = {
    .type = "Function",
    .min_bottom = 1,
    .max_bottom = 1,
    .min_top = 1,
    .max_top = 1,
    .is_loss = true,
    .top_is_share = true,
    .no_diff_bottom = 1,
    .state_size = sizeof(Ct__FillerParameter),
    .setup = function_setup,
    .reshape = function_reshape,
    .forward = function_forward,
    .backward = function_backward,
};

/* ---- runs */

typedef struct run {
    Ct__SolverParameter *param;
    ct_solver *solver;
    const char *name;
} run;

static void open_run(const char *name, const char *fields, int n, int most, run *r)
{
    char text[1024];
    ct_solver_options o = { .table = test_full_table(&function),
                            .provenance = "{}",
                            .env = { .n_rank = 1 } };

    snprintf(
        text, sizeof(text),
        "%s base_lr: 0.01 lr_policy: 'fixed' momentum: 0.9 random_seed: 5 max_iter: %d "
        "snapshot_after_train: false net_param { name: '%s' layer { name: 'data' type: "
        "'DummyData' top: 'x' dummy_data_param { shape { dim: 1 dim: 1 } } } layer { name: '%s' "
        "type: 'Function' bottom: 'x' top: 'loss' inner_product_param { num_output: %d } } }",
        fields, most, name, name, n);
    *r = (run){ .param = test_solver_parse(text), .name = name };
    o.param = r->param;
    if (ct_solver_create(&o, &r->solver) != CT_OK) exit(2);
}

static void close_run(run *r)
{
    ct_solver_destroy(r->solver);
    ct__solver_parameter__free_unpacked(r->param, NULL);
}

static double value_now(const run *r)
{
    const ct_blob *w = &ct_solver_net(r->solver)->param[0].blob;

    return value_of(r->name, ct_tensor_count(&w->data), ct_blob_data(w), NULL);
}

/* Iterations until the value is no higher than target; `most` where it never is. */
static int iterations_to(const char *name, const char *fields, int n, int most, double target,
                         double *value_p)
{
    int made = 0;
    run r;

    open_run(name, fields, n, most, &r);
    while ((made < most) && !(value_now(&r) <= target)) {
        if (ct_solver_steps(r.solver, 1) != CT_OK) exit(2);
        made++;
    }
    *value_p = value_now(&r);
    close_run(&r);
    return made;
}

static int number(int argc, char **argv, int i, int otherwise)
{
    int n = (argc > i) ? atoi(argv[i]) : otherwise;

    if (n < 1) exit(2);
    return n;
}

/* One function; false: KERNEL missed. */
static bool compare(const char *name, int n, int points, int most)
{
    static const char *const way[] = { "NONE", "LAST", "SECANT", "KERNEL" };
    double target, value, ideal;
    bool met = true;
    int steps;

    (void)iterations_to(name, "type: 'Adam'", n, most, -1.0, &target);
    steps = iterations_to(name, "type: 'Adam'", n, most, target, &value);
    ideal = ceil((double)steps / points);
    printf("%s: Adam reaches %.6g in %d steps; ideal are %g rounds\n", name, target, steps, ideal);
    for (int last = 0; last < 2; last++) {
        for (int k = 0; k < 4; k++) {
            char fields[256];
            int rounds;

            snprintf(fields, sizeof(fields),
                     "type: 'OptEx' optex { base_type: 'Adam' parallel: %d history: 20 predictor: "
                     "%s corrector: %s }",
                     points, way[k], (last == 0) ? "REPLAY" : "LAST_POINT");
            rounds = iterations_to(name, fields, n, steps, target, &value);
            printf("  %-10s %-6s %4d rounds%s, %.2f of the ideal, %.2f times fewer; value %.6g\n",
                   (last == 0) ? "REPLAY" : "LAST_POINT", way[k], rounds,
                   (value <= target) ? "" : " are not enough", rounds / ideal,
                   (double)steps / rounds, value);
            if ((last == 0) && (k == 3))
                met = (value <= target) && (rounds <= 1.06 * ideal) && (4 * rounds <= steps);
        }
    }
    return met;
}

int main(int argc, char **argv)
{
    int n = number(argc, argv, 1, 100000), points = number(argc, argv, 2, 5);
    int steps = number(argc, argv, 3, 250), missed = 0;

    ct_log_set_level(CT_LOG_WARN);
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
        if (!compare(functions[i], n, points, steps)) missed++;
    printf("%d of 3 missed\n", missed);
    return (missed > 0) ? 1 : 0;
}
