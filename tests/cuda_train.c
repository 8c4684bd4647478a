#include "tests/test.h"
#include "tests/cuda_train.h"
#include "tests/solver_harness.h"

#include <stdio.h>
#include <string.h>

#define SOLVER "momentum: 0.9 random_seed: 3 snapshot_after_train: false "

/* base_lr and lr_policy, and momentum where a rule has none, may be among the fields. */
static void make(const char *layers, const char *fields, const char *more, int steps,
                 test_solver *t)
{
    char text[8192];
    bool rate = (strstr(fields, "base_lr") != NULL) || (strstr(more, "base_lr") != NULL);
    bool still = (strstr(more, "AdaGrad") != NULL) || (strstr(more, "RMSProp") != NULL);

    snprintf(text, sizeof(text), "%s %s max_iter: %d %s %s net_param { %s }",
             still ? "random_seed: 3 snapshot_after_train: false" : SOLVER,
             rate ? "" : "base_lr: 0.05 lr_policy: 'fixed'", steps, fields, more, layers);
    assert_int_equal(test_solver_create(text, NULL, NULL, NULL, t), CT_OK);
}

ct_status test_cuda_train(const char *layers, const char *fields, const char *more, int steps)
{
    test_solver t;
    ct_status status;

    make(layers, fields, more, steps, &t);
    status = ct_solver_run(t.solver);
    test_solver_destroy(&t);
    return status;
}

/* What the solver has made so far. */
static void collect(const test_solver *t, trained *r)
{
    const ct_net *net = ct_solver_net(t->solver);
    const ct_train_step *step = &t->solver->step;
    const ct_device *dev = net->options.dev;
    size_t bytes = (size_t)net->grad_count * sizeof(float);

    *r = (trained){ .n = net->grad_count,
                    .scale = step->loss_scale.scale,
                    .good = step->loss_scale.good };
    assert_true(r->n <= 4096);
    assert_int_equal(dev->to_host(NULL, r->weight, net->weight_arena, bytes), CT_OK);
    if (step->average != NULL)
        assert_int_equal(ct_storage_get(step->average, 0, r->n, r->average), CT_OK);
    if (step->all.at != NULL)
        assert_int_equal(dev->to_host(NULL, &r->there, &step->all.at->loss, sizeof(r->there)),
                         CT_OK);
}

trained test_cuda_trained(const char *layers, const char *fields, const char *more, int steps,
                          const char *snapshot)
{
    trained r;
    test_solver t;

    make(layers, fields, more, steps, &t);
    if (snapshot != NULL) assert_int_equal(ct_solver_restore(t.solver, snapshot), CT_OK);
    assert_int_equal(ct_solver_run(t.solver), CT_OK);
    collect(&t, &r);
    test_solver_destroy(&t);
    return r;
}

trained test_cuda_retrained(const char *layers, const char *fields, const char *more, int steps,
                            const char *snapshot)
{
    trained r;
    test_solver t;

    make(layers, fields, more, steps, &t);
    assert_int_equal(ct_solver_run(t.solver), CT_OK);
    assert_int_equal(ct_solver_restore(t.solver, snapshot), CT_OK);
    assert_int_equal(ct_solver_run(t.solver), CT_OK);
    collect(&t, &r);
    test_solver_destroy(&t);
    return r;
}

/* What the host counts of the loss's scale is what the device does. */
static void accounts_agree(const trained *t, const char *what)
{
    if (t->there.on && ((t->there.scale != t->scale) || (t->there.good != t->good)))
        fail_msg("%s: scale %g for %d steps, the device has %g for %d", what, (double)t->scale,
                 (int)t->good, (double)t->there.scale, (int)t->there.good);
}

trained test_cuda_trained_late(const char *layers, const char *fields, const char *more, int steps,
                               float late)
{
    float v[4096];
    trained r;
    test_solver t;
    const ct_net *net;

    make(layers, fields, more, steps, &t);
    net = ct_solver_net(t.solver);
    for (int i = 0; i < 4096; i++) v[i] = (i % 3 == 0) ? late : -late;
    for (int i = 0; (i < net->n_param) && net->param[i].learns; i++) {
        assert_true(net->param[i].count <= 4096);
        assert_int_equal(ct_residual_drain_add(net, &t.solver->step.late, i, 0.05f, v), CT_OK);
    }
    assert_int_equal(ct_solver_run(t.solver), CT_OK);
    collect(&t, &r);
    test_solver_destroy(&t);
    return r;
}

void test_cuda_same(const trained *a, const trained *b, const char *what)
{
    size_t bytes = (size_t)a->n * sizeof(float);

    accounts_agree(a, what);
    accounts_agree(b, what);
    assert_int_equal(a->n, b->n);
    if (memcmp(a->weight, b->weight, bytes) != 0) fail_msg("%s: other weights", what);
    if (memcmp(a->average, b->average, bytes) != 0) fail_msg("%s: other averages", what);
    if ((a->scale != b->scale) || (a->good != b->good))
        fail_msg("%s: scale %g for %d steps, and %g for %d", what, (double)a->scale, (int)a->good,
                 (double)b->scale, (int)b->good);
}

int test_cuda_each_step(int (*counter)(void), const char *layers, const char *fields)
{
    int start = counter(), few;

    assert_int_equal(test_cuda_train(layers, "solver_mode: GPU", fields, 4), CT_OK);
    few = counter() - start;
    start = counter();
    assert_int_equal(test_cuda_train(layers, "solver_mode: GPU", fields, 9), CT_OK);
    few = counter() - start - few;
    assert_int_equal(few % 5, 0);
    return few / 5;
}
