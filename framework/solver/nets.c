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
        .no_fuse = (s->param->fuse == 0),
        .recompute = s->param->recompute,
        .memory_limit = s->options.memory_limit,
        .state_bytes = (double)ct_update_rule_state_bytes(s->param, 1),
        .decay_matrices = (s->param->decay_rule == CT__SOLVER_PARAMETER__DECAY_RULE__MATRICES),
    };
}

ct_status ct_solver_make_train_net(ct_solver *s)
{
    const ct_solver_text text = { s->param, s->options.map }, *t = &text;
    const Ct__SolverParameter *p = s->param;
    const Ct__NetParameter *param = p->train_net_param;
    int n = (p->net != NULL) + (p->net_param != NULL) + (p->train_net != NULL) +
            (p->train_net_param != NULL);
    bool own = false;
    ct_net_options o;

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
    fill_options(s, param, own, p->train_state, CT_TRAIN, &o);
    o.grad_arena = s->options.grad_arena;
    o.graph = (p->cuda_graph != 0);
    o.send_rows = s->options.send_rows;
    o.again = s->options.again;
    o.n_again = s->options.n_again;
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
static ct_status find_test_net(ct_solver *s, size_t i, const Ct__NetParameter **param_p,
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
        bool own;

        CT_TRY(find_test_net(s, (size_t)i, &param, &own));
        CT_INFO("Creating test net (#%d)", i);
        fill_options(s, param, own, (s->param->n_test_state > 0) ? s->param->test_state[i] : NULL,
                     CT_TEST, &o);
        o.share = s->net;
        o.forward_only = true;
        CT_TRY(ct_net_create(param, &o, &s->test[i]));
        s->n_test = i + 1;
        CT_TRY(ct_outputs_create(s->test[i], &s->exchange.data, &s->test_outputs[i]));
    }
    return CT_OK;
}
