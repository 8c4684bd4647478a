#include "framework/snapshot/rank_state.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/snapshot/h5.h"
#include "framework/snapshot/host_copy.h"
#include "framework/snapshot/set_files.h"
#include "framework/snapshot/set_state.h"

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
        status = ct_h5_reader_create(name.text, r_p);
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
static ct_status read_array(const char *file, int n_then, const ct_exchange *x, const char *name,
                            const ct_param *p, int64_t count, bool replicated, float *sum,
                            bool *found_p)
{
    int first = replicated ? 0 : x->rank, end = replicated ? 1 : n_then;
    ct_text array = ct_state_path("/state", name, p->key);
    float *host = ct_mem_acquire((size_t)count * sizeof(float));
    ct_status status = ((array.text != NULL) && (host != NULL))
                           ? CT_OK
                           : CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", file);

    memset(sum, 0, (size_t)count * sizeof(float));
    for (int from = first; (status == CT_OK) && (from < end); from += x->n_rank)
        status = add_array(file, from, array.text, count, sum, host, found_p);
    ct_mem_release(host);
    ct_text_destroy(&array);
    return status;
}

/* Everyone's worst status, logged where it arose; *any_p (may be NULL): on any rank. */
static ct_status agree(const ct_exchange *x, ct_status status, bool *any_p)
{
    int64_t both[2] = { (int64_t)status, (any_p != NULL) && *any_p };

    CT_TRY(x->max(x->ctx, both, 2));
    if (any_p != NULL) *any_p = (both[1] != 0);
    return (status != CT_OK) ? status : (ct_status)both[0];
}

/* ---- what this run keeps, too */

/* The run of the snapshot kept its momentum in the solver, or the snapshot is a dense run's. */
static ct_status take_momentum(const ct_net *net, const ct_snapshot_state *state,
                               const ct_exchange *x, const ct_exchange_state *e)
{
    const float *from = NULL;

    if (!e->is_momentum || (state->n_history < 1)) return CT_OK;
    from = state->history[0] + net->param[e->param].offset;
    CT_TRY(ct_net_device(net)->to_host(NULL, e->data, from, (size_t)e->count * sizeof(*from)));
    for (int64_t i = 0; i < e->count; i++) e->data[i] /= (float)x->n_rank;
    return CT_OK;
}

static ct_status read_states(const char *file, const ct_net *net, const ct_snapshot_state *state,
                             const ct_exchange *x)
{
    int n = x->n_state(x->ctx);

    for (int i = 0; i < n; i++) {
        ct_exchange_state e = { 0 };
        bool found = false;

        CT_TRY(x->state(x->ctx, i, &e));
        if (state->foreign) { /* Caffe has none; what codecs hold of the momentum is the solver's */
            memset(e.data, 0, (size_t)e.count * sizeof(float));
            CT_TRY(take_momentum(net, state, x, &e));
            continue;
        }
        CT_TRY(agree(x,
                     read_array(file, state->n_rank, x, e.name, &net->param[e.param], e.count,
                                e.replicated, e.data, &found),
                     &found));
        if (!found)
            CT_TRY(take_momentum(net, state, x, &e));
        else if ((state->n_rank != x->n_rank) && !e.replicated)
            CT_TRY(x->average(x->ctx, e.data, e.count, 1.0 / x->n_rank));
    }
    if ((n > 0) && (state->n_rank != x->n_rank) && !state->foreign)
        CT_INFO("residuals of %d ranks were summed and dealt out to %d", state->n_rank, x->n_rank);
    return CT_OK;
}

/* ---- what has no place any more */

typedef enum { NONE, OF_GRADIENT, OF_UPDATE } kind; /* what a residual counts in */

/* kind_of[n_param] of the snapshot. Only what is counted in updates knows its rate. */
static ct_status look_for(const char *file, const ct_net *net, int n_then, const ct_exchange *x,
                          int64_t *kind_of)
{
    for (int from = x->rank; from < n_then; from += x->n_rank) {
        ct_h5_reader *r = NULL;

        CT_TRY(open_rank(file, from, &r));
        for (int i = 0; (r != NULL) && (i < net->n_param); i++) {
            ct_text v = ct_state_path("/state", CT_EXCHANGE_RESIDUAL, net->param[i].key);
            ct_text rate = ct_state_path("/state", CT_EXCHANGE_RATE, net->param[i].key);

            if ((v.text != NULL) && (rate.text != NULL) && net->param[i].learns &&
                ct_h5_has(r, v.text))
                kind_of[i] = ct_h5_has(r, rate.text) ? OF_UPDATE : OF_GRADIENT;
            ct_text_destroy(&v);
            ct_text_destroy(&rate);
        }
        ct_h5_reader_destroy(r);
    }
    return CT_OK;
}

/* The state that is this parameter's residual now. */
static kind kind_now(const ct_exchange *x, int param, ct_exchange_state *e)
{
    int n = x->n_state(x->ctx);

    for (int i = 0; i < n; i++) {
        if ((x->state(x->ctx, i, e) != CT_OK) || (e->param != param) ||
            (strcmp(e->name, CT_EXCHANGE_RESIDUAL) != 0))
            continue;
        return ((x->absorbed != NULL) && x->absorbed(x->ctx, param)) ? OF_UPDATE : OF_GRADIENT;
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

/* v: this rank's share of the residual; afterwards the sum. The ranks' weights stay equal, since a
 * sum has the same bits everywhere. */
static ct_status pay(ct_net *net, const ct_param *p, const ct_exchange *x, kind then, float *v,
                     float **owed_p)
{
    if (then == OF_GRADIENT) return owe(net, p, v, owed_p);
    CT_TRY(x->average(x->ctx, v, p->count, 1.0));
    return add_to(ct_net_device(net), ct_blob_data(&p->blob), p->count, -1, v);
}

static ct_status settle(const char *file, ct_net *net, ct_snapshot_state *state,
                        const ct_exchange *x, const int64_t *kind_of)
{
    int n_weight = 0, n_gradient = 0;

    for (int i = 0; i < net->n_param; i++) {
        const ct_param *p = &net->param[i];
        kind then = (kind)kind_of[i], now = NONE;
        ct_exchange_state e = { 0 };
        float *v = NULL;
        bool found = false;
        ct_status status = CT_OK;

        if (then == NONE) continue;
        now = kind_now(x, i, &e);
        if (now == then) continue;
        if (now != NONE) memset(e.data, 0, (size_t)e.count * sizeof(float));
        v = ct_mem_acquire((size_t)p->count * sizeof(float));
        status = (v != NULL) ? read_array(file, state->n_rank, x, CT_EXCHANGE_RESIDUAL, p, p->count,
                                          false, v, &found)
                             : CT_FAIL(CT_ERR_NOMEM, "no memory for a residual of %s", p->key);
        status = agree(x, status, NULL);
        if (status == CT_OK) status = pay(net, p, x, then, v, &state->owed);
        ct_mem_release(v);
        CT_TRY(status);
        n_weight += (then == OF_UPDATE);
        n_gradient += (then == OF_GRADIENT);
    }
    if (n_weight > 0) ct_net_weights_changed(net);
    if (n_weight + n_gradient > 0)
        CT_INFO("parameters that travel otherwise now: of %d what was not sent is in the weights, "
                "of %d it goes with the next gradient",
                n_weight, n_gradient);
    return CT_OK;
}

ct_status ct_rank_state_read(const char *file, ct_net *net, ct_snapshot_state *state,
                             const ct_exchange *x)
{
    int64_t *kind_of = calloc((size_t)net->n_param + 1, sizeof(*kind_of));
    ct_status status =
        (kind_of != NULL) ? CT_OK : CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", file);

    state->owed = NULL;
    status = agree(x, status, NULL);
    if (status == CT_OK) status = read_states(file, net, state, x);
    if ((status == CT_OK) && !state->foreign)
        status = agree(x, look_for(file, net, state->n_rank, x, kind_of), NULL);
    if (status == CT_OK) status = x->max(x->ctx, kind_of, net->n_param);
    if (status == CT_OK) status = settle(file, net, state, x, kind_of);
    free(kind_of);
    if (status != CT_OK) {
        if (state->owed != NULL) ct_net_device(net)->mem_release(state->owed);
        state->owed = NULL;
        return status;
    }
    return (x->restored != NULL) ? x->restored(x->ctx) : CT_OK;
}
