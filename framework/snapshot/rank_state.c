#include "framework/snapshot/snapshot_impl.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/snapshot/h5.h"
#include "framework/snapshot/set_files.h"

/* ---- files of ranks */

/* *r_p NULL: the rank had no state to keep; that its file has not gone missing was verified. */
static ct_status open_rank(const char *file, int rank, ct_h5_reader **r_p)
{
    const char *base = ct_path_base(file), *end = strstr(base, "." CT_SET_STATE);
    ct_text name = { 0 };
    ct_status status = CT_OK;

    *r_p = NULL;
    ct_text_add(&name, "%.*s.rank%d.h5", (int)(((end != NULL) ? end : base) - file), file, rank);
    if (name.failed)
        status = CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", file);
    else if (access(name.text, F_OK) == 0)
        status = ct_h5_reader_create(name.text, NULL, r_p);
    ct_text_destroy(&name);
    return status;
}

/* Adds what the file of a rank has of an array. */
static ct_status add_array(const char *file, int rank, const char *array, int64_t count, float *sum,
                           float *host, bool *found_p)
{
    ct_h5_reader *r = NULL;
    ct_status status = open_rank(file, rank, &r);

    if ((status == CT_OK) && (r != NULL) && ct_h5_has(r, array)) {
        *found_p = true;
        status = ct_h5_get_floats(r, array, count, host);
        for (int64_t i = 0; (status == CT_OK) && (i < count); i++) sum[i] += host[i];
    }
    ct_h5_reader_destroy(r);
    return status;
}

/* sum = what the ranks of then that fall to this rank had of an array; rank 0's alone, where all
 * had the same. */
static ct_status read_array(const char *file, int n_then, const ct_group *g, const char *name,
                            const ct_param *p, int64_t count, bool replicated, float *sum,
                            bool *found_p)
{
    int first = replicated ? 0 : g->rank, end = replicated ? 1 : n_then;
    ct_text array = ct_state_path("/state", name, p->key);
    float *host = ct_mem_acquire((size_t)count * sizeof(float));
    ct_status status = ((array.text != NULL) && (host != NULL))
                           ? CT_OK
                           : CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", file);

    memset(sum, 0, (size_t)count * sizeof(float));
    for (int from = first; (status == CT_OK) && (from < end); from += g->size)
        status = add_array(file, from, array.text, count, sum, host, found_p);
    ct_mem_release(host);
    ct_text_destroy(&array);
    return status;
}

/* Everyone's worst status, logged where it arose; *any_p: on any rank. */
static ct_status agree_any(const ct_group *g, ct_status status, bool *any_p)
{
    int64_t both[2] = { (int64_t)status, *any_p };

    CT_TRY(ct_group_max(g, both, 2));
    *any_p = (both[1] != 0);
    return (status != CT_OK) ? status : (ct_status)both[0];
}

/* ---- what this run keeps, too */

/* The run of the snapshot kept its momentum in the solver, or the snapshot is a dense run's. */
static ct_status take_momentum(const ct_net *net, const ct_snapshot_state *state, const ct_group *g,
                               const ct_sync_state *e)
{
    if (!e->is_momentum || (state->n_history < 1)) return CT_OK;
    CT_TRY(ct_storage_get(&state->history[0], net->param[e->param].offset, e->count, e->data));
    for (int64_t i = 0; i < e->count; i++) e->data[i] /= (float)g->size;
    return CT_OK;
}

static ct_status read_one(const char *file, const ct_net *net, const ct_snapshot_state *state,
                          const ct_group *g, const ct_sync_state *e)
{
    bool found = false;

    if (state->foreign) { /* Caffe has none; what codecs hold of the momentum is the solver's */
        memset(e->data, 0, (size_t)e->count * sizeof(float));
        return take_momentum(net, state, g, e);
    }
    CT_TRY(agree_any(g,
                     read_array(file, state->n_rank_file, g, e->name, &net->param[e->param],
                                e->count, e->replicated, e->data, &found),
                     &found));
    if (!found) return take_momentum(net, state, g, e);
    if ((state->n_rank == g->size) || e->replicated) return CT_OK;
    return ct_group_average(g, e->data, e->count, 1.0 / g->size);
}

static ct_status read_states(const char *file, const ct_net *net, const ct_snapshot_state *state,
                             const ct_exchange *x)
{
    ct_sync_state e = { 0 };
    int n = 0;

    for (int i = 0; i < net->n_param; i++) {
        for (int k = 0; ct_sync_states_get(&x->states, i, k, &e); k++, n++)
            CT_TRY(read_one(file, net, state, &x->data, &e));
    }
    if ((n > 0) && (state->n_rank != x->data.size) && !state->foreign)
        CT_INFO("residuals of %d ranks were summed and dealt out to %d", state->n_rank,
                x->data.size);
    return CT_OK;
}

/* ---- what has no place any more */

typedef enum { NONE, OF_GRADIENT, OF_UPDATE } kind; /* what a residual counts in */

/* Whether the file has this state of the parameter. */
static bool has_state(ct_h5_reader *r, const char *name, const ct_param *p)
{
    ct_text path = ct_state_path("/state", name, p->key);
    bool has = (path.text != NULL) && ct_h5_has(r, path.text);

    ct_text_destroy(&path);
    return has;
}

/* kind_of[n_param] of the snapshot, and behind that who has something on the way to the weights.
 * Only what is counted in updates knows its rate. */
static ct_status look_for(const char *file, const ct_net *net, int n_then, const ct_group *g,
                          int64_t *kind_of)
{
    for (int from = g->rank; from < n_then; from += g->size) {
        ct_h5_reader *r = NULL;

        CT_TRY(open_rank(file, from, &r));
        for (int i = 0; (r != NULL) && (i < net->n_param); i++) {
            const ct_param *p = &net->param[i];

            if (!p->learns) continue;
            if (has_state(r, CT_SYNC_RESIDUAL, p))
                kind_of[i] = has_state(r, CT_SYNC_RATE, p) ? OF_UPDATE : OF_GRADIENT;
            if (has_state(r, CT_RANK_LATE, p)) kind_of[net->n_param + i] = 1;
        }
        ct_h5_reader_destroy(r);
    }
    return CT_OK;
}

/* The state that is this parameter's residual now. */
static kind kind_now(const ct_sync_states *states, int param, ct_sync_state *e)
{
    for (int k = 0; ct_sync_states_get(states, param, k, e); k++) {
        if (strcmp(e->name, CT_SYNC_RESIDUAL) == 0) return e->of_update ? OF_UPDATE : OF_GRADIENT;
    }
    return NONE;
}

/* Weights, or what is owed, += factor * v. */
static ct_status add_to(const ct_device *dev, float *to, int64_t count, float factor,
                        const float *v)
{
    size_t bytes = (size_t)count * sizeof(float);
    float *host = ct_mem_acquire(bytes);
    ct_status status = CT_OK;

    if (host == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %zu bytes on the host", bytes);
    status = dev->to_host(NULL, host, to, bytes);
    for (int64_t i = 0; i < count; i++) host[i] += factor * v[i];
    if (status == CT_OK) status = dev->from_host(NULL, to, host, bytes);
    ct_mem_release(host);
    return status;
}

static ct_status owe(const ct_net *net, const ct_param *p, const float *v, float **owed_p)
{
    const ct_device *dev = ct_net_device(net);
    void *data = *owed_p;

    if (data == NULL) CT_TRY(dev->mem_acquire((size_t)net->grad_count * sizeof(float), &data));
    *owed_p = data;
    return add_to(dev, *owed_p + p->offset, p->count, 1, v);
}

/* A state that all ranks of then had alike, of rank 0. */
static ct_status read_shared(const char *file, const ct_net *net, const ct_group *g,
                             const char *name, int param, int64_t count, float *v)
{
    bool found = false;

    return ct_group_agree(g,
                          read_array(file, 1, g, name, &net->param[param], count, true, v, &found));
}

/* v: this rank's share of the residual; afterwards the sum. The ranks' weights stay equal, since a
 * sum has the same bits everywhere. */
static ct_status pay(const char *file, const ct_net *net, int param, const ct_group *g, kind then,
                     float *v, ct_snapshot_state *state)
{
    const ct_param *p = &net->param[param];
    float rate = 0;

    if (then == OF_GRADIENT) return owe(net, p, v, &state->owed);
    CT_TRY(read_shared(file, net, g, CT_SYNC_RATE, param, 1, &rate));
    CT_TRY(ct_group_average(g, v, p->count, 1.0));
    return ct_residual_drain_add(net, &state->late, param, rate, v);
}

/* What the run of the snapshot had not brought to the weights yet. */
static ct_status go_on(const char *file, const ct_net *net, const ct_group *g,
                       const int64_t *is_late, ct_snapshot_state *state)
{
    for (int i = 0; i < net->n_param; i++) {
        int64_t count = net->param[i].count;
        float rate = 0, *v = NULL;
        ct_status status = CT_OK;

        if (is_late[i] == 0) continue;
        v = ct_mem_acquire((size_t)count * sizeof(*v));
        status = ct_group_agree(
            g, (v != NULL) ? CT_OK : CT_FAIL(CT_ERR_NOMEM, "no memory for what was left behind"));
        if (status == CT_OK) status = read_shared(file, net, g, CT_RANK_LATE, i, count, v);
        if (status == CT_OK) status = read_shared(file, net, g, CT_RANK_LATE_RATE, i, 1, &rate);
        if (status == CT_OK) status = ct_residual_drain_add(net, &state->late, i, rate, v);
        ct_mem_release(v);
        CT_TRY(status);
    }
    return CT_OK;
}

static ct_status settle(const char *file, ct_net *net, ct_snapshot_state *state,
                        const ct_exchange *x, const int64_t *kind_of)
{
    const ct_group *g = &x->data;
    int n_weight = 0, n_gradient = 0;

    for (int i = 0; i < net->n_param; i++) {
        const ct_param *p = &net->param[i];
        kind then = (kind)kind_of[i], now = NONE;
        ct_sync_state e = { 0 };
        float *v = NULL;
        bool found = false;
        ct_status status = CT_OK;

        if (then == NONE) continue;
        now = kind_now(&x->states, i, &e);
        if (now == then) continue;
        if (now != NONE) memset(e.data, 0, (size_t)e.count * sizeof(float));
        v = ct_mem_acquire((size_t)p->count * sizeof(float));
        status = (v != NULL) ? read_array(file, state->n_rank_file, g, CT_SYNC_RESIDUAL, p,
                                          p->count, false, v, &found)
                             : CT_FAIL(CT_ERR_NOMEM, "no memory for a residual of %s", p->key);
        status = ct_group_agree(g, status);
        if (status == CT_OK) status = pay(file, net, i, g, then, v, state);
        ct_mem_release(v);
        CT_TRY(status);
        n_weight += (then == OF_UPDATE);
        n_gradient += (then == OF_GRADIENT);
    }
    if (n_weight + n_gradient > 0)
        CT_INFO("parameters that travel otherwise now: of %d what was not sent goes to the "
                "weights, no farther in an iteration than that moves them, of %d it goes with the "
                "next gradient",
                n_weight, n_gradient);
    return go_on(file, net, g, kind_of + net->n_param, state);
}

ct_status ct_rank_state_read(const char *file, ct_net *net, ct_snapshot_state *state,
                             const ct_exchange *x)
{
    const ct_group *g = &x->data;
    int64_t *kind_of = calloc(2 * (size_t)net->n_param + 1, sizeof(*kind_of));
    ct_status status =
        (kind_of != NULL) ? CT_OK : CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", file);

    state->owed = NULL;
    state->late = (ct_residual_drain){ .v = NULL };
    status = ct_group_agree(g, status);
    if (status == CT_OK) status = read_states(file, net, state, x);
    if ((status == CT_OK) && !state->foreign)
        status = ct_group_agree(g, look_for(file, net, state->n_rank_file, g, kind_of));
    if (status == CT_OK) status = ct_group_max(g, kind_of, 2 * net->n_param);
    if (status == CT_OK) status = settle(file, net, state, x, kind_of);
    free(kind_of);
    if (status != CT_OK) {
        if (state->owed != NULL) ct_net_device(net)->mem_release(state->owed);
        state->owed = NULL;
        ct_residual_drain_close(net, &state->late);
        return status;
    }
    return (x->states.restored != NULL) ? x->states.restored(x->states.ctx) : CT_OK;
}
