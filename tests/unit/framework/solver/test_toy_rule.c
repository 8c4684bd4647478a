/* An update rule that is not in the table, from nothing but its row: what a new one asks for is in
 * ct_update_rule. It takes steps that fall with their number (Robbins, Monro 1951), and counts them
 * in one state and adds up the gradients in the other. */
#include "tests/test.h"
#include "tests/solver_harness.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "framework/solver/solver_private.h"

static ct_status toy_apply(const ct_update *u)
{
    for (int64_t i = 0; i < u->count; i++) {
        float g = u->scale * u->grad[i] + u->decay_l2 * u->weight[i];

        u->state[0][i] += 1;
        u->state[1][i] += g;
        u->weight[i] -= u->rate * g / u->state[0][i];
    }
    return CT_OK;
}

static const ct_update_rule toy = { .type = "Toy",
                                    .kind = -1,
                                    .n_state = 2,
                                    .state_name = { "toy_steps", "toy_sum" },
                                    .apply = toy_apply,
                                    .formula = "h += 1; v += g; w -= lr g / h",
                                    .source = "Robbins, Monro 1951" };

#define TEXT                                                                                       \
    "base_lr: 0.1 lr_policy: 'fixed' weight_decay: 0.25 random_seed: 3 snapshot_prefix: '%s/s' "   \
    "max_iter: %d net_param { name: 'probe' layer { name: 'data' type: 'DummyData' top: 'x' "      \
    "dummy_data_param { shape { dim: 2 dim: 1 } } } layer { name: 'p' type: 'Probe' bottom: 'x' "  \
    "top: 'loss' param { lr_mult: 1 decay_mult: 1 } param { lr_mult: 2 decay_mult: 0.5 } } } "

enum { N_FIRST = 5, N_SECOND = 3, N_WEIGHT = N_FIRST + N_SECOND };

/* A solver of SGD, whose rule then is the toy. */
static test_solver open_toy(int max_iter)
{
    char text[1024];
    test_solver t;

    snprintf(text, sizeof(text), TEXT, test_solver_dir(), max_iter);
    assert_int_equal(test_solver_create(text, NULL, NULL, NULL, &t), CT_OK);
    ct_train_step_close(&t.solver->step);
    t.solver->rule = t.solver->step.rule = &toy;
    assert_int_equal(ct_train_step_open(&t.solver->step), CT_OK);
    return t;
}

static void look(const test_solver *t, float *w)
{
    const ct_net *net = ct_solver_net(t->solver);

    for (int i = 0; i < N_WEIGHT; i++) {
        bool first = (i < N_FIRST);
        const ct_param *p = &net->param[ct_net_find_param(net, first ? "p[0]" : "p[1]")];

        w[i] = ct_blob_data(&p->blob)[first ? i : i - N_FIRST];
    }
}

/* A step rounds half a dozen times, values below 4. */
static void test_steps(void **state)
{
    float start[N_WEIGHT], got[N_WEIGHT];
    test_solver t = open_toy(4);

    (void)state;
    look(&t, start);
    assert_int_equal(ct_solver_run(t.solver), CT_OK);
    look(&t, got);
    for (int i = 0; i < N_WEIGHT; i++) {
        int k = (i < N_FIRST) ? 0 : 1;
        double w = (double)start[i];

        for (int step = 0; step < 4; step++) {
            double g = probe_gradient(k, (k == 0) ? i : i - N_FIRST, step, w);

            w -= ((k == 0) ? 0.1 : 0.2) * (g + ((k == 0) ? 0.25 : 0.125) * w) / (step + 1);
        }
        assert_true(fabs((double)got[i] - w) <= 4 * 6 * 4 * (double)FLT_EPSILON / 2);
    }
    test_solver_destroy(&t);
}

/* Its states are in snapshots by their names, and a run goes on from them bit by bit. */
static void test_resume(void **state)
{
    float whole[N_WEIGHT], part[N_WEIGHT];
    test_solver t = open_toy(6);

    (void)state;
    assert_int_equal(ct_solver_run(t.solver), CT_OK);
    look(&t, whole);
    test_solver_destroy(&t);
    t = open_toy(3);
    assert_int_equal(ct_solver_run(t.solver), CT_OK);
    test_solver_destroy(&t);
    t = open_toy(6);
    assert_int_equal(ct_solver_restore(t.solver, "auto"), CT_OK);
    look(&t, part);
    assert_memory_equal(part, whole, sizeof(part)); /* the newest: the whole run's */
    test_solver_destroy(&t);

    t = open_toy(6);
    {
        char file[256];

        snprintf(file, sizeof(file), "%s/s_iter_3.solverstate.h5", test_solver_dir());
        assert_int_equal(ct_solver_restore(t.solver, file), CT_OK);
    }
    look(&t, part);
    assert_memory_not_equal(part, whole, sizeof(part));
    assert_int_equal(ct_solver_run(t.solver), CT_OK);
    look(&t, part);
    assert_memory_equal(part, whole, sizeof(part));
    test_solver_destroy(&t);
}

/* Every row of the table says what a row must say, and a state is named by no two of its own. */
static void test_rows(void **state)
{
    const ct_update_rule *rule, *found = NULL;

    (void)state;
    for (int i = 0; (rule = ct_update_rule_at(i)) != NULL; i++) {
        if (rule->kind != i) fail_msg("rule %d has kind %d", i, rule->kind);
        if ((rule->type == NULL) || (rule->formula == NULL) || (rule->source == NULL))
            fail_msg("rule %d lacks its type, formula or source", i);
        assert_int_equal(ct_update_rule_find(rule->type, &found), CT_OK);
        if (found != rule) fail_msg("the type %s is there twice", rule->type);
        if ((rule->n_state < 0) || (rule->n_state > CT_UPDATE_STATES))
            fail_msg("%s has %d states", rule->type, rule->n_state);
        for (int k = 0; k < CT_UPDATE_STATES; k++)
            if ((rule->state_name[k] != NULL) != (k < rule->n_state))
                fail_msg("%s has %d states, but names others", rule->type, rule->n_state);
        if ((rule->n_state == 2) && (strcmp(rule->state_name[0], rule->state_name[1]) == 0))
            fail_msg("%s names two states %s", rule->type, rule->state_name[0]);
        if (rule->means && !(rule->reads & CT_UPDATE_MOMENTUM))
            fail_msg("%s has means without a momentum", rule->type);
    }
    assert_null(ct_update_rule_at(-1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_steps, test_solver_setup, test_solver_teardown),
        cmocka_unit_test_setup_teardown(test_resume, test_solver_setup, test_solver_teardown),
        cmocka_unit_test(test_rows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
