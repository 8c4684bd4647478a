/* Whose weights checksum_interval compares: a divided net's ranks share some with one group, some
 * with another, and have some alone. */
#include "tests/test.h"
#include "tests/solver_harness.h"

#include <stdio.h>

#include "framework/solver/solver_private.h"

#define IP(_name, _bottom)                                                                         \
    "layer { name: '" _name "' type: 'InnerProduct' bottom: '" _bottom "' top: '" _name            \
    "' inner_product_param { num_output: 3 bias_term: false weight_filler { type: 'xavier' } } } "
static const char text[] =
    "type: 'SGD' base_lr: 0.1 lr_policy: 'fixed' max_iter: 1 display: 0 random_seed: 7 "
    "snapshot_after_train: false net_param { name: 'shared' layer { name: 'data' type: 'DummyData' "
    "top: 'x' dummy_data_param { shape { dim: 4 dim: 3 } data_filler { type: 'gaussian' } } } " IP(
        "a", "x") IP("b", "a") IP("c", "b") IP("d", "c")
        IP("e", "d") "layer { name: 'loss' type: 'EuclideanLoss' bottom: 'e' bottom: 'x' top: "
                     "'loss' } }";

enum { N_PARAM = 5 };

/* What one check is of: params [0, tied) are the first and the last stage's, those before `stage`
 * the stage's, and those behind it the replicas'. A group that is not `of` has this rank alone. */
typedef struct check {
    int tied, stage;
    enum { TIED = 1, STAGE = 2, DATA = 4 } of;
    int wrong; /* of this parameter the last rank has another weight; -1: none */
    bool found;
} check;

static const check checks[] = {
    { 1, 3, TIED | STAGE, -1, false }, { 1, 3, TIED | STAGE, 0, true },
    { 1, 3, TIED | STAGE, 1, true },   { 1, 3, TIED | STAGE, 2, true },
    { 1, 3, TIED | STAGE, 3, false },  { 1, 3, TIED | STAGE, 4, false },
    { 2, 2, TIED, -1, false },         { 2, 2, TIED, 0, true },
    { 2, 2, TIED, 1, true },           { 2, 2, TIED, 2, false },
    { 2, 4, TIED, 3, false },          { 0, 2, STAGE, 1, true },
    { 0, 2, STAGE, 4, false },         { 0, 0, DATA | STAGE, 4, true },
    { 1, 3, DATA | STAGE, 4, true },   { 0, 5, 0, 4, false },
};

static void place(ct_solver *s, const check *c)
{
    const ct_group alone = { .size = 1 };

    for (int i = 0; i < N_PARAM; i++) {
        s->net->param[i].tied = (i < c->tied);
        s->net->param[i].own_samples = (i >= c->tied) && (i < c->stage);
    }
    s->exchange.tied = ((c->of & TIED) != 0) ? s->exchange.job : (ct_group){ .size = 0 };
    s->exchange.stage = ((c->of & STAGE) != 0) ? s->exchange.job : alone;
    s->exchange.data = ((c->of & DATA) != 0) ? s->exchange.job : alone;
}

static ct_status look(thread_rank *r)
{
    const ct_division division = { .n_stage = 3 };
    const check *c = r->out;
    test_solver t;
    ct_status status = test_solver_create(text, r, NULL, NULL, &t), got;

    if (status == CT_OK) {
        ct_solver *s = t.solver;
        ct_exchange own = s->exchange;

        place(s, c);
        if ((c->wrong >= 0) && (r->rank == r->job->n - 1))
            ct_blob_data(&s->net->param[c->wrong].blob)[1] += 1.0f;
        s->options.division = &division;
        got = ct_solver_check_weights(s);
        s->options.division = NULL;
        s->exchange = own;
        if (got != (c->found ? CT_ERR_DIVERGED : CT_OK))
            status = CT_FAIL(CT_ERR_DATA, "the check %d gave \"%s\"", (int)(c - checks),
                             ct_status_str(got));
    }
    test_solver_destroy(&t);
    return status;
}

static void each_is_compared_with_its_own(void **state)
{
    char who[64];

    (void)state;
    for (int n = 2; n <= 3; n++) {
        thread_ranks job = { .n = n, .run = look };
        thread_rank rank[3];

        for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
            check c = checks[i];

            for (int k = 0; k < n; k++) rank[k].out = (void *)(uintptr_t)&checks[i];
            test_log_all_stop();
            test_log_all_start();
            if (thread_ranks_run(&job, rank) != CT_OK) fail_msg("%s", test_log_all());
            snprintf(who, sizeof(who), "%d ranks have checksum ", n - 1);
            if (c.found) test_log_holds(who);
            snprintf(who, sizeof(who), ", another one: %d (", n - 1);
            if (c.found) test_log_holds(who);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_is_compared_with_its_own, test_solver_setup,
                                        test_solver_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
