/* decay_rule: MATRICES is what decay_mult would say of each parameter, with every update rule and
 * any number of ranks, bit by bit; a decay_mult that is given wins. */
#include "tests/test.h"
#include "tests/solver_harness.h"

#include <stdio.h>
#include <string.h>

enum { STEPS = 5, N_PARAM = 6 };

#define DATA                                                                                       \
    "layer { name: 'data' type: 'DummyData' top: 'x' top: 'y' dummy_data_param { shape { dim: %d " \
    "dim: 3 } shape { dim: %d dim: 4 } data_filler { type: 'gaussian' std: 1 } data_filler { "     \
    "type: 'gaussian' std: 1 } } } "
#define IP(name, bottom, params)                                                                   \
    "layer { name: '" name "' type: 'InnerProduct' bottom: '" bottom "' top: '" name "' " params   \
    " inner_product_param { num_output: 4 weight_filler { type: 'xavier' } bias_filler { value: "  \
    "0.5 } } } "
/* Of a, the scale and its shift, and b: what their entries say. */
#define NET(a, scale, b)                                                                           \
    "net_param { " DATA IP("a", "x", a) "layer { name: 's' type: 'Scale' bottom: 'a' top: 's' "    \
                                        "scale_param { bias_term: true } " scale                   \
                                        " } " IP("b", "s", b) "layer { name: 'loss' type: "        \
                                                              "'EuclideanLoss' bottom: 'b' "       \
                                                              "bottom: 'y' top: 'loss' } } "
#define FIELDS                                                                                     \
    "base_lr: 0.1 lr_policy: 'fixed' weight_decay: 0.25 random_seed: 3 delta: 0.01 max_iter: 5 "   \
    "momentum2: 0.99 rms_decay: 0.95 local_gw_ratio: 0.02 snapshot_after_train: false "

/* The bias of b decays, since it says so. */
#define GIVEN NET("", "param { lr_mult: 2 }", "param { lr_mult: 1 } param { decay_mult: 0.5 }")
#define ZEROS "param { decay_mult: 1 } param { decay_mult: 0 } "
#define BY_HAND                                                                                    \
    NET(ZEROS, "param { lr_mult: 2 decay_mult: 0 } param { decay_mult: 0 }",                       \
        "param { decay_mult: 1 } param { decay_mult: 0.5 }")

typedef struct outcome {
    char text[4096];
    uint64_t checksum;
} outcome;

static ct_status run_rank(thread_rank *r)
{
    outcome *o = r->out;
    test_solver t;
    ct_status status = test_solver_create(o->text, r, NULL, NULL, &t);

    if (status == CT_OK) status = ct_solver_run(t.solver);
    if (status == CT_OK) o->checksum = ct_net_checksum(ct_solver_net(t.solver), true);
    test_solver_destroy(&t);
    return status;
}

/* After some steps on n ranks, of together 6 samples. */
static uint64_t trained(const ct_update_rule *rule, const char *more, const char *net, int n)
{
    thread_ranks job = { .n = n, .run = run_rank };
    thread_rank rank[THREAD_RANKS_MAX];
    outcome o[3];
    char fields[256], text[2048];

    snprintf(fields, sizeof(fields), "type: '%s' %s %s ", rule->type, more,
             ((rule->reads & CT_UPDATE_MOMENTUM) != 0) ? "momentum: 0.9" : "");
    snprintf(text, sizeof(text), net, 6 / n, 6 / n);
    for (int r = 0; r < n; r++) {
        snprintf(o[r].text, sizeof(o[r].text), "%s %s %s", fields, FIELDS, text);
        rank[r] = (thread_rank){ .out = &o[r] };
    }
    assert_int_equal(thread_ranks_run(&job, rank), CT_OK);
    return o[0].checksum;
}

static void every_rule_spares_what_has_one_axis(void **state)
{
    int n_rule = 0;

    (void)state;
    for (const ct_update_rule *rule; (rule = ct_update_rule_at(n_rule)) != NULL; n_rule++) {
        uint64_t all = trained(rule, "decay_rule: ALL", GIVEN, 1);

        assert_true(trained(rule, "", GIVEN, 1) == all);
        for (int n = 1; n <= 2; n++) {
            uint64_t matrices = trained(rule, "decay_rule: MATRICES", GIVEN, n);

            assert_true(matrices != all);
            if (matrices != trained(rule, "", BY_HAND, n))
                fail_msg("%s on %d ranks: not what decay_mult gives", rule->type, n);
        }
    }
    assert_true(n_rule > 1);
}

static void each_parameter_says_its_factor(void **state)
{
    static const char *const key[N_PARAM] = { "a[0]", "a[1]", "s[0]", "s[1]", "b[0]", "b[1]" };
    static const float want[N_PARAM] = { 1, 0, 0, 0, 1, 0.5f };
    char text[4096], net[2048];
    test_solver t;

    (void)state;
    snprintf(net, sizeof(net), GIVEN, 6, 6);
    snprintf(text, sizeof(text), FIELDS "decay_rule: MATRICES %s", net);
    assert_int_equal(test_solver_create(text, NULL, NULL, NULL, &t), CT_OK);
    for (int i = 0; i < N_PARAM; i++) {
        const ct_net *n = ct_solver_net(t.solver);
        int p = ct_net_find_param(n, key[i]);

        assert_true(p >= 0);
        if (n->param[p].decay_mult != want[i])
            fail_msg("%s: %g", key[i], (double)n->param[p].decay_mult);
    }
    test_solver_destroy(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rule_spares_what_has_one_axis),
        cmocka_unit_test(each_parameter_says_its_factor),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
