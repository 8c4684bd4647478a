/* Local steps of groups of one rank each: what the exchange between groups is given, what sets say
 * of the groups, and that all ranks take a set the same way. */
#include "tests/test.h"
#include "tests/solver_harness.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "framework/snapshot/snapshot_impl.h"
#include "framework/solver/solver_private.h"

enum { STEPS = 12, MOST_WEIGHTS = 64 };

#define IP(_name, _bottom, _n)                                                                     \
    "layer { name: '" _name "' type: 'InnerProduct' bottom: '" _bottom "' top: '" _name            \
    "' inner_product_param { num_output: " _n " weight_filler { type: 'xavier' } } } "
#define SOLVER                                                                                     \
    "type: 'SGD' base_lr: 0.05 momentum: 0.9 lr_policy: 'fixed' max_iter: 12 display: 0 "          \
    "random_seed: 7 deterministic: true snapshot_after_train: false snapshot_prefix: '%s/s' "      \
    "outer { local_iter: 4 optimizer: NESTEROV momentum: 0.9 lr: 0.7 delay: %d } net_param { "     \
    "name: 'local' layer { name: 'data' type: 'DummyData' top: 'x' top: 'y' dummy_data_param { "   \
    "shape { dim: 4 dim: 3 } shape { dim: 4 dim: 2 } data_filler { type: 'gaussian' } "            \
    "data_filler { type: 'gaussian' } } } " IP("a", "x", "5") IP("b", "a", "2")                    \
        IP("off", "x", "2") "layer { name: 'quiet' type: 'Silence' bottom: 'off' } layer { name: " \
                            "'loss' type: 'EuclideanLoss' bottom: 'b' bottom: 'y' top: 'loss' } }"

typedef struct local { /* a rank's solver, which is a group of its own */
    thread_rank *rank;
    Ct__SolverParameter *param;
    ct_solver *solver;
    const ct_net *net;
    ct_outer_ranks groups;
    bool view; /* the part was the net, but for its parameters and gradients */
} local;

static ct_status open_net(void *ctx, ct_net *net, ct_exchange *out)
{
    local *l = ctx;
    ct_exchange all;

    l->net = net;
    CT_TRY(thread_rank_open(l->rank, net, &all));
    ct_exchange_single(net->n_param, out);
    out->job = all.job;
    out->data = out->stage = all.data;
    return CT_OK;
}

/* A group of one rank has every parameter that learns. */
static ct_status open_across(void *ctx, ct_net *part, ct_exchange *out)
{
    local *l = ctx;
    const ct_net *net = l->net;

    l->view = (part->name == net->name) && (part->options.dev == net->options.dev) &&
              (part->layer == net->layer) && (part->n_layer == net->n_layer) &&
              (part->weight_arena == net->weight_arena) && (part->pass == net->pass) &&
              (part->grad_arena != net->grad_arena) && (part->n_param == 4);
    for (int i = 0; l->view && (i < part->n_param); i++)
        l->view = (part->param[i].key == net->param[i].key);
    return thread_rank_open(l->rank, part, out);
}

static void close_across(void *ctx)
{
    (void)ctx;
}

/* All groups begin where the net does. */
static bool begins_with_net(const local *l)
{
    const ct_outer *o = l->solver->outer;
    size_t bytes = (size_t)o->part.grad_count * sizeof(float);

    return (memcmp(o->weights, l->net->weight_arena, bytes) == 0) &&
           ((o->start == NULL) || (memcmp(o->start, l->net->weight_arena, bytes) == 0));
}

static ct_status open_local(thread_rank *rank, int delay, local *l)
{
    char text[2048];
    ct_solver_options o = {
        .table = test_solver_table(),
        .provenance = "{}",
        .open_exchange = open_net,
        .open_exchange_ctx = l,
        .outer = &l->groups,
        .env = { .rank = rank->rank, .n_rank = rank->job->n, .deterministic = true }
    };

    snprintf(text, sizeof(text), SOLVER, test_solver_dir(), delay);
    *l = (local){ .rank = rank, .param = test_solver_parse(text) };
    l->groups = (ct_outer_ranks){ .inner = { .size = 1 },
                                  .n_group = rank->job->n,
                                  .open = open_across,
                                  .close = close_across,
                                  .ctx = l };
    o.param = l->param;
    CT_TRY(ct_solver_create(&o, &l->solver));
    if (l->net->grad_count > MOST_WEIGHTS) return CT_FAIL(CT_ERR_ARG, "a net that is too large");
    if (!begins_with_net(l))
        return CT_FAIL(CT_ERR_DATA, "it does not begin with the net's weights");
    return l->view ? CT_OK : CT_FAIL(CT_ERR_DATA, "a part that is not the net's");
}

static void close_local(local *l)
{
    ct_solver_destroy(l->solver);
    ct__solver_parameter__free_unpacked(l->param, NULL);
}

/* ---- a set takes the run back, and says what it is of */

typedef struct run {
    int delay, at; /* a set of this iteration */
    float weights[MOST_WEIGHTS];
} run;

static const char *file_of(const run *r, const char *suffix, char *path, size_t size)
{
    snprintf(path, size, "%s/s_iter_%d.%s", test_solver_dir(), r->at, suffix);
    return path;
}

static ct_status train(thread_rank *rank, run *r)
{
    local l;
    ct_status status = open_local(rank, r->delay, &l);

    if (status == CT_OK) status = ct_solver_steps(l.solver, r->at);
    if (status == CT_OK) status = ct_solver_save(l.solver);
    if (status == CT_OK) status = ct_solver_steps(l.solver, STEPS - r->at);
    if (status == CT_OK)
        memcpy(r->weights, l.net->weight_arena, (size_t)l.net->grad_count * sizeof(float));
    close_local(&l);
    return status;
}

static ct_status go_on(thread_rank *rank, const run *r)
{
    char path[128];
    local l;
    ct_status status = open_local(rank, r->delay, &l);

    file_of(r, "solverstate.h5", path, sizeof(path));
    if (status == CT_OK) status = ct_solver_restore(l.solver, path);
    if (status == CT_OK) status = ct_solver_steps(l.solver, STEPS - r->at);
    if ((status == CT_OK) &&
        (memcmp(r->weights, l.net->weight_arena, (size_t)l.net->grad_count * sizeof(float)) != 0))
        status = CT_FAIL(CT_ERR_DATA, "it goes on another way");
    close_local(&l);
    return status;
}

/* "/state/NAME/KEY" of the first parameter: one number. */
static ct_status read_marker(ct_h5_reader *file, const char *name, const char *key, float want)
{
    ct_text path = ct_state_path("/state", name, key);
    float is = 0;
    ct_status status = ct_h5_get_floats(file, path.text, 1, &is);

    ct_text_destroy(&path);
    CT_TRY(status);
    return (is == want) ? CT_OK
                        : CT_FAIL(CT_ERR_DATA, "%s is %g, not %g", name, (double)is, (double)want);
}

/* How many groups, below 0 where they had just met; and with what delay. */
static ct_status read_markers(const thread_rank *rank, const run *r)
{
    bool apart = (r->delay > 0) || (r->at % 4 != 0);
    float groups = (float)(apart ? rank->job->n : -rank->job->n);
    char path[128], suffix[32];
    ct_h5_reader *file = NULL;
    ct_status status;

    snprintf(suffix, sizeof(suffix), "rank%d.h5", rank->rank);
    CT_TRY(ct_h5_reader_create(file_of(r, suffix, path, sizeof(path)), NULL, &file));
    status = read_marker(file, "groups", "b[0]", groups);
    if (status == CT_OK) status = read_marker(file, "delay", "b[0]", (float)r->delay);
    ct_h5_reader_destroy(file);
    return status;
}

static ct_status resume(thread_rank *rank)
{
    run *r = rank->out;

    CT_TRY(train(rank, r));
    CT_TRY(read_markers(rank, r));
    return go_on(rank, r);
}

static void each_way(ct_status (*of_rank)(thread_rank *rank))
{
    for (int i = 0; i < 2 * 2 * 2; i++) {
        thread_ranks job = { .n = 2 + (i & 1), .run = of_rank };
        thread_rank rank[3];
        run r[3];

        for (int k = 0; k < job.n; k++) {
            r[k] = (run){ .delay = (i >> 1) & 1, .at = (i >> 2) ? 8 : 6 };
            rank[k] = (thread_rank){ .out = &r[k] };
        }
        if (thread_ranks_run(&job, rank) != CT_OK) fail_msg("%s", test_log_all());
        test_solver_teardown(NULL);
        test_solver_setup(NULL);
    }
}

static void sets_say_what_they_are_of(void **state)
{
    (void)state;
    each_way(resume);
}

/* ---- one rank whose file was of other groups */

static ct_status take_set(local *l, bool same)
{
    ct_solver *s = l->solver;
    ct_outer *o = s->outer;
    size_t bytes = (size_t)o->part.grad_count * sizeof(float);
    float own[MOST_WEIGHTS], history[MOST_WEIGHTS];
    ct_snapshot_state state = { .iteration = 0 };
    ct_outer_set set;
    ct_status status = ct_outer_set_read(o, &s->exchange.data, &set, &state);

    for (int k = 0; (status == CT_OK) && (k < set.n_block); k++)
        for (int64_t i = 0; i < l->net->grad_count; i++)
            set.block[k][i] = (float)(k + 1) + 0.25f * (float)i;
    memcpy(own, l->net->weight_arena, bytes);
    o->delay = (float)o->param->delay;
    o->groups = (float)(l->groups.n_group + ((!same && (l->rank->rank == 0)) ? 1 : 0));
    if (status == CT_OK) status = ct_outer_set_take(o, &s->exchange.data, &set);
    if (status == CT_OK)
        status = ct_storage_get(&s->step.history[0], 0, l->net->grad_count, history);
    if ((status == CT_OK) &&
        (memcmp(l->net->weight_arena, same ? own : set.block[0], bytes) ||
         (!same && memcmp(history, set.block[1], bytes)) ||
         memcmp(o->weights, set.block[0], bytes) || memcmp(o->momentum, set.block[2], bytes)))
        status = CT_FAIL(CT_ERR_DATA, "a set of %s groups is taken otherwise",
                         same ? "as many" : "other");
    ct_outer_set_close(&set);
    return status;
}

static ct_status take_sets(thread_rank *rank)
{
    const run *r = rank->out;
    local l;
    ct_status status = open_local(rank, r->delay, &l);

    if (status == CT_OK) status = ct_solver_steps(l.solver, r->at);
    if (status == CT_OK) status = take_set(&l, true);
    if (status == CT_OK) status = take_set(&l, false);
    close_local(&l);
    return status;
}

static void all_take_a_set_alike(void **state)
{
    (void)state;
    each_way(take_sets);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(sets_say_what_they_are_of, test_solver_setup,
                                        test_solver_teardown),
        cmocka_unit_test_setup_teardown(all_take_a_set_alike, test_solver_setup,
                                        test_solver_teardown),
    };

    alarm(60);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
