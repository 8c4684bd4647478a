/* Whose weights a run begins with, and whose checksum_interval compares: a divided net's ranks
 * share some with one group, some with another, and have some alone. */
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

/* ---- what a run begins with */

typedef struct beginning {
    int tied;    /* that many parameters are the first and the last stage's */
    bool copies; /* as to a device, whose memory the ranks do not look at */
    bool alone;  /* no other rank has the other parameters */
} beginning;

static ct_status begin(thread_rank *r)
{
    const beginning *b = r->out;
    const check c = { .tied = b->tied, .of = TIED | (b->alone ? 0 : STAGE | DATA) };
    ct_device other = *ct_device_cpu();
    test_solver t;
    ct_status status = test_solver_create(text, r, NULL, NULL, &t);

    other.kind = CT_DEVICE_CUDA;
    if (status == CT_OK) {
        ct_solver *s = t.solver;
        const ct_exchange own = s->exchange;
        const ct_device *dev = s->dev;

        place(s, &c);
        if (b->copies) s->dev = &other;
        for (int64_t e = 0; e < s->net->weight_count; e++)
            s->net->weight_arena[e] = (float)(10 * r->rank) + (float)e;
        status = ct_solver_broadcast_weights(s);
        s->exchange = own;
        s->dev = dev;
        for (int i = 0; (i < N_PARAM) && (status == CT_OK); i++) {
            const ct_param *p = &s->net->param[i];
            int from = (b->alone && !p->tied) ? r->rank : 0;

            for (int64_t e = 0; e < p->count; e++)
                if (ct_blob_data(&p->blob)[e] != (float)(10 * from) + (float)(p->offset + e))
                    status = CT_FAIL(CT_ERR_DATA, "a weight of %s is another's", p->key);
        }
    }
    test_solver_destroy(&t);
    return status;
}

static void a_run_begins_with_those_of_the_first(void **state)
{
    static const beginning all[] = {
        { 0, false, false }, { 0, true, false }, { 0, false, true }, { 0, true, true },
        { 2, false, false }, { 2, false, true }, { 5, false, true }, { 2, true, true },
    };

    (void)state;
    for (int i = 0; i < 2 * 8; i++) {
        thread_ranks job = { .n = 2 + i / 8, .run = begin };
        thread_rank rank[3];

        for (int k = 0; k < job.n; k++) rank[k].out = (void *)(uintptr_t)&all[i % 8];
        if (thread_ranks_run(&job, rank) != CT_OK) fail_msg("%d: %s", i, test_log_all());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_is_compared_with_its_own, test_solver_setup,
                                        test_solver_teardown),
        cmocka_unit_test_setup_teardown(a_run_begins_with_those_of_the_first, test_solver_setup,
                                        test_solver_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
