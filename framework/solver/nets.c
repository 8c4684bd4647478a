/* Which nets a solver trains and tests: net, net_param, train_net, test_net and their states, as in
 * Caffe. The state of a net is the default of its phase, then what the net says, then what the
 * solver says. */
#include <stdlib.h>
#include <string.h>

#include "framework/proto/upgrade.h"
#include "framework/solver/solver_private.h"
#include "framework/solver/update_rule.h"

static ct_status read_net(ct_solver *s, const char *path, const Ct__NetParameter **param_p)
{
    Ct__NetParameter **grown =
        realloc(s->read, (size_t)(s->n_read + 1) * sizeof(*s->read)); /* a handful */

    if (grown == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", path);
    s->read = grown;
    CT_TRY(ct_net_read(path, s->map, &s->read[s->n_read]));
    *param_p = s->read[s->n_read++];
    return CT_OK;
}

static ct_phase phase_of(const Ct__NetState *state, ct_phase otherwise)
{
    if ((state == NULL) || !state->has_phase) return otherwise;
    return (state->phase == CT__PHASE__TRAIN) ? CT_TRAIN : CT_TEST;
}

/* Of memory, a learned element: what lies in files takes none that depends on how many there are.
 */
static double state_bytes(const Ct__SolverParameter *p)
{
    bool files = (p->memory != NULL) && (p->memory->state == CT__MEMORY_PARAMETER__TIER__FILE);

    return files ? 0 : (double)ct_update_rule_state_bytes(p, 1);
}

/* The net merges its own level and stages with these. */
static void fill_options(const ct_solver *s, const Ct__NetParameter *param, bool own_map,
                         const Ct__NetState *state, ct_phase phase, ct_net_options *o)
{
    *o = (ct_net_options){
        .phase = phase_of(state, phase_of(param->state, phase)),
        .level = ((state != NULL) && state->has_level) ? state->level : 0,
        .stage = (state != NULL) ? (const char *const *)state->stage : NULL,
        .n_stage = (state != NULL) ? (int)state->n_stage : 0,
        .env = s->options.env,
        .dev = s->dev,
        .map = own_map ? s->map : s->options.map,
        .table = s->options.table,
        .no_fuse = (s->param->fuse == 0) || s->options.keep_values,
        .unshared = s->options.keep_values,
        .recompute = s->param->recompute,
        .memory_limit = s->options.memory_limit,
        .state_bytes = state_bytes(s->param),
        .decay_matrices = (s->param->decay_rule == CT__SOLVER_PARAMETER__DECAY_RULE__MATRICES),
    };
}

/* The train net's message and options. */
static ct_status find_train_net(ct_solver *s, const Ct__NetParameter **param_p, ct_net_options *o)
{
    const ct_solver_text text = { s->param, s->options.map }, *t = &text;
    const Ct__SolverParameter *p = s->param;
    const Ct__NetParameter *param = p->train_net_param;
    int n = (p->net != NULL) + (p->net_param != NULL) + (p->train_net != NULL) +
            (p->train_net_param != NULL);
    bool own = false;

    if (n != 1)
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: %s of net, net_param, train_net, train_net_param is set; exactly "
                       "one says what to train",
                       CT_SOLVER_AT(t, base), (n == 0) ? "none" : "more than one");
    if (p->net_param != NULL) param = p->net_param;
    if (param == NULL) {
        own = true;
        CT_TRY(read_net(s, (p->train_net != NULL) ? p->train_net : p->net, &param));
    }
    CT_INFO("Creating training net%s%s", own ? " from " : "",
            own ? ((p->train_net != NULL) ? p->train_net : p->net) : "");
    fill_options(s, param, own, p->train_state, CT_TRAIN, o);
    if (ct_optex_is(p)) { /* a point's batch is that of the ranks that share it */
        o->env.turns = ct_optex_turns(p, o->env.rank, o->env.n_rank);
        o->env.n_rank = ct_optex_sharers(p, o->env.n_rank);
        o->env.rank %= o->env.n_rank;
        if (ct_optex_points(p) > 1) o->env.group = NULL;
    }
    if (s->options.division != NULL) {
        param = s->options.division->train;
        o->in_flight = s->options.division->schedule.in_flight;
    }
    o->grad_arena = s->options.grad_arena;
    o->agree = s->options.agree;
    o->agree_ctx = s->options.agree_ctx;
    o->window = s->options.window;
    o->graph = (p->cuda_graph != 0);
    o->send_rows = s->options.send_rows;
    o->again = s->options.again;
    o->n_again = s->options.n_again;
    *param_p = param;
    return CT_OK;
}

ct_status ct_solver_make_train_net(ct_solver *s)
{
    const Ct__NetParameter *param = NULL;
    ct_net_options o;

    CT_TRY(find_train_net(s, &param, &o));
    return ct_net_create(param, &o, &s->net);
}

ct_status ct_solver_count_test_nets(const Ct__SolverParameter *p, const struct ct_source_map *map,
                                    int *n_p)
{
    const ct_solver_text text = { p, map }, *t = &text;
    size_t n_named = p->n_test_net_param + p->n_test_net;
    bool common = (p->net != NULL) || (p->net_param != NULL);

    if (common ? (p->n_test_iter < n_named) : (p->n_test_iter != n_named))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: test_iter is given %zu times for %zu test nets; give it once for each",
                       CT_SOLVER_AT(t, test_iter), p->n_test_iter, n_named);
    if ((p->n_test_state > 0) && (p->n_test_state != p->n_test_iter))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: test_state is given %zu times for %zu test nets; give none, or one for "
                       "each",
                       CT_SOLVER_AT(t, test_state), p->n_test_state, p->n_test_iter);
    if ((p->n_test_iter > 0) && (p->test_interval <= 0))
        return CT_FAIL(CT_ERR_CONFIG, "%s: test_iter is set, but test_interval is not",
                       CT_SOLVER_AT(t, test_iter));
    if ((p->n_test_iter == 0) && (p->test_interval > 0))
        return CT_FAIL(CT_ERR_CONFIG, "%s: test_interval is %d, but test_iter is not set",
                       CT_SOLVER_AT(t, test_interval), p->test_interval);
    *n_p = (int)p->n_test_iter;
    return CT_OK;
}

/* The parameter of test net i, in Caffe's order: test_net_param, test_net, then the common one. */
static ct_status find_test_param(ct_solver *s, size_t i, const Ct__NetParameter **param_p,
                                 bool *own_p)
{
    const Ct__SolverParameter *p = s->param;

    *own_p = false;
    if (i < p->n_test_net_param) {
        *param_p = p->test_net_param[i];
        return CT_OK;
    }
    i -= p->n_test_net_param;
    if ((i >= p->n_test_net) && (p->net_param != NULL)) {
        *param_p = p->net_param;
        return CT_OK;
    }
    *own_p = true;
    if (i < p->n_test_net) return read_net(s, p->test_net[i], param_p);
    *param_p = s->read[0]; /* `net`, which the train net was read from */
    return CT_OK;
}

/* The message and options of test net i. */
static ct_status find_test_net(ct_solver *s, int i, const Ct__NetParameter **param_p,
                               ct_net_options *o)
{
    bool own;

    CT_TRY(find_test_param(s, (size_t)i, param_p, &own));
    fill_options(s, *param_p, own, (s->param->n_test_state > 0) ? s->param->test_state[i] : NULL,
                 CT_TEST, o);
    if (s->options.division != NULL) *param_p = s->options.division->test[i];
    o->share = s->net;
    o->forward_only = true;
    return CT_OK;
}

/* ---- the nets as one rank would run them */

static ct_status make_whole(ct_solver *s, const Ct__NetParameter *param, bool alone,
                            ct_net_options *o, ct_net **net_p)
{
    ct_net_env env = o->env;

    ct_net_options_alone(o);
    if (!alone) {
        o->env.rank = env.rank;
        o->env.n_rank = env.n_rank;
        o->env.place = env.place;
    }
    o->dev = s->options.dev;
    return ct_net_create(param, o, net_p);
}

static ct_status make_wholes(ct_solver *s, bool alone, ct_whole_nets *w)
{
    const Ct__NetParameter *param = NULL;
    ct_net_options o;
    int n = 0;

    CT_TRY(ct_source_map_create(&s->map));
    CT_TRY(find_train_net(s, &param, &o));
    CT_TRY(make_whole(s, param, alone, &o, &w->train));
    CT_TRY(ct_solver_count_test_nets(s->param, s->options.map, &n));
    if ((s->options.division != NULL) && (s->options.division->n_test < n))
        n = s->options.division->n_test; /* one net alone is run */
    w->test = calloc((size_t)n + 1, sizeof(*w->test));
    if (w->test == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d test nets", n);
    for (; w->n_test < n; w->n_test++) {
        CT_TRY(find_test_net(s, w->n_test, &param, &o));
        CT_TRY(make_whole(s, param, alone, &o, &w->test[w->n_test]));
    }
    return CT_OK;
}

static ct_status make_nets(const ct_solver_options *options, bool alone, ct_whole_nets *w)
{
    ct_solver *s = calloc(1, sizeof(*s));
    ct_status status;

    *w = (ct_whole_nets){ .impl = s };
    if (s == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the nets of a solver");
    s->options = *options;
    s->param = options->param;
    status = make_wholes(s, alone, w);
    if (status != CT_OK) ct_whole_nets_destroy(w);
    return status;
}

ct_status ct_whole_nets_make(const ct_solver_options *options, ct_whole_nets *w)
{
    return make_nets(options, true, w);
}

ct_status ct_planned_nets_make(const ct_solver_options *options, ct_whole_nets *w)
{
    return make_nets(options, false, w);
}

void ct_whole_nets_destroy(ct_whole_nets *w)
{
    ct_solver *s = w->impl;

    for (int i = 0; i < w->n_test; i++) ct_net_destroy(w->test[i]);
    free(w->test);
    ct_net_destroy(w->train);
    for (int i = 0; (s != NULL) && (i < s->n_read); i++)
        ct__net_parameter__free_unpacked(s->read[i], NULL);
    if (s != NULL) {
        free(s->read);
        ct_source_map_destroy(s->map);
    }
    free(s);
    *w = (ct_whole_nets){ 0 };
}

/* What comes in 16 bits since the layers of the train net read it so. */
static ct_status check_rounded(const ct_solver *s, const ct_net *test)
{
    bool narrow = s->exchange.sync.shards && ct_step_has_visits(&s->step);

    for (int i = 0; narrow && (i < test->n_param); i++) {
        int k = ct_net_find_param(s->net, test->param[i].key);

        if ((k >= 0) && ct_net_rounds(s->net, &s->net->param[k]) &&
            !ct_net_rounds(test, &test->param[i]))
            return CT_FAIL(CT_ERR_CONFIG,
                           "net \"%s\" reads %s in f32, which the net that trains rounds to bf16: "
                           "with memory { zero: 3 } and precision BF16 it travels in 16 bits, so "
                           "layers of all nets that share it need the same type and ct_kernel",
                           test->name, test->param[i].key);
    }
    return CT_OK;
}

ct_status ct_solver_make_test_nets(ct_solver *s)
{
    int n = 0;

    CT_TRY(ct_solver_count_test_nets(s->param, s->options.map, &n));
    s->test = calloc((size_t)n + 1, sizeof(*s->test));
    s->test_outputs = calloc((size_t)n + 1, sizeof(*s->test_outputs));
    if ((s->test == NULL) || (s->test_outputs == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %d test nets", n);
    for (int i = 0; i < n; i++) {
        const Ct__NetParameter *param = NULL;
        ct_net_options o;

        CT_TRY(find_test_net(s, i, &param, &o));
        CT_INFO("Creating test net (#%d)", i);
        CT_TRY(ct_net_create(param, &o, &s->test[i]));
        CT_TRY(check_rounded(s, s->test[i]));
        s->test[i]->pass->exec.chunk = ct_step_chunk;
        s->test[i]->pass->exec.chunk_ctx = &s->step;
        s->n_test = i + 1;
        CT_TRY(ct_outputs_create(ct_solver_whole_test(s, i), s->test[i], ct_solver_writers(s),
                                 &s->test_outputs[i]));
    }
    return CT_OK;
}
