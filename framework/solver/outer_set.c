/* Sets of snapshots under local steps. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "framework/base/memory.h"
#include "framework/solver/outer.h"

/* ---- what goes into the file of a rank */

static int part_of(const ct_outer *o, int param)
{
    for (int k = 0; k < o->part.n_param; k++)
        if (o->part.param[k].key == o->net->param[param].key) return k;
    return -1;
}

/* Where a history has the parameter: they stay where they are. */
static float *address_of(ct_storage *history, const ct_param *p)
{
    ct_storage_range r = { .storage = NULL };
    float *data = NULL;

    if (ct_storage_want(history, NULL, p->offset, p->count, CT_STORAGE_READ, &r) == CT_OK)
        data = r.data;
    (void)ct_storage_done(&r, NULL);
    return data;
}

static void put(ct_outer *o, const char *kind, const char *name, float *data, ct_sync_state *out)
{
    snprintf(o->name, sizeof(o->name), "%s_%s", kind, name);
    out->name = o->name;
    out->data = data;
}

/* State k of a parameter of the part: where its group is, what the inner rule keeps, then what
 * codecs have left of its differences. Of groups that had just met weights are the exchanged ones.
 */
static bool get_of_part(ct_outer *o, int own, int k, ct_sync_state *out)
{
    const ct_param *p = &o->net->param[out->param];
    ct_sync_state e = { 0 };

    if ((o->groups >= 0) && (k-- == 0)) {
        put(o, "group", "weights", o->net->weight_arena + p->offset, out);
        return true;
    }
    if ((o->start != NULL) && (k-- == 0)) {
        put(o, "group", "start", o->start + o->part.param[own].offset, out);
        return true;
    }
    if (k < o->step->n_history) {
        put(o, "group", o->step->history_name[k], address_of(&o->step->history[k], p), out);
        return out->data != NULL;
    }
    if (!ct_sync_states_get(&o->across.states, own, k - o->step->n_history, &e)) return false;
    put(o, "outer", e.name, e.data, out);
    out->count = e.count;
    return true;
}

/* What the set is of: how many groups, and delay. */
static bool get_marker(ct_outer *o, int k, ct_sync_state *out)
{
    if (k > 1) return false;
    out->name = (k == 0) ? "groups" : "delay";
    out->data = (k == 0) ? &o->groups : &o->delay;
    out->count = 1;
    return true;
}

/* The markers stand first, in every rank's file. */
static bool get_state(void *ctx, int param, int k, ct_sync_state *out)
{
    ct_outer *o = ctx;
    int own = part_of(o, param);

    *out = (ct_sync_state){ .param = param, .own = true, .count = o->net->param[param].count };
    if ((param == 0) && get_marker(o, k, out)) return true;
    if (param == 0) k -= 2;
    return (own >= 0) && get_of_part(o, own, k, out);
}

ct_status ct_outer_attach(ct_outer *o, ct_train_step *step, ct_sync_states *states)
{
    for (int h = 0; h < step->n_history; h++)
        if (!step->history[h].ops->fixed)
            return CT_FAIL(CT_ERR_CONFIG,
                           "outer and memory { state: FILE } do not go together: what each group "
                           "keeps must stay in memory");
    o->step = step;
    *states = (ct_sync_states){ .ctx = o, .get = get_state };
    return CT_OK;
}

/* ---- what the shared files have */

static ct_status add_block(ct_outer_set *set, int64_t n, float **v_p)
{
    size_t bytes = (size_t)(n + 1) * sizeof(float);
    float *v = ct_mem_acquire(bytes);

    if (v == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a snapshot of local steps");
    memset(v, 0, bytes);
    set->block[set->n_block++] = *v_p = v;
    return CT_OK;
}

void ct_outer_set_close(ct_outer_set *set)
{
    for (int i = 0; i < set->n_block; i++) ct_mem_release(set->block[i]);
    set->n_block = 0;
}

/* Storages of the set, each in a block of its own: weights, then histories, then the momentum. */
static ct_status open_set(ct_outer *o, ct_outer_set *set, ct_snapshot_state *state)
{
    const ct_device *cpu = ct_device_cpu();
    int64_t n = o->net->grad_count;
    int n_history = o->step->n_history;
    float *v = NULL;

    CT_TRY(add_block(set, n, &v));
    set->weights = ct_storage_at(cpu, v, n);
    for (int h = 0; h < n_history; h++) {
        CT_TRY(add_block(set, n, &v));
        set->history[h] = ct_storage_at(cpu, v, n);
        set->name[h] = o->step->history_name[h];
    }
    if (o->momentum != NULL) {
        CT_TRY(add_block(set, n, &v));
        set->history[n_history] = ct_storage_at(cpu, v, n);
        set->name[n_history++] = CT_HISTORY_OUTER;
    }
    state->weights = &set->weights;
    state->history = set->history;
    state->history_name = set->name;
    state->n_history = n_history;
    return CT_OK;
}

ct_status ct_outer_set_write(ct_outer *o, const ct_group *data, bool apart, ct_outer_set *set,
                             ct_snapshot_state *state)
{
    const int n_history = o->step->n_history;
    int64_t n = o->net->grad_count;
    double share = (double)o->share / o->ranks->inner.size;

    *set = (ct_outer_set){ .n_block = 0 };
    o->groups = (float)(apart ? o->ranks->n_group : -o->ranks->n_group);
    o->delay = (float)o->param->delay;
    CT_TRY(ct_group_agree(data, open_set(o, set, state)));
    CT_TRY(ct_outer_weights(o, set->block[0]));
    for (int h = 0; h < n_history; h++) {
        CT_TRY(ct_storage_get(&o->step->history[h], 0, n, set->block[1 + h]));
        CT_TRY(ct_group_average(data, set->block[1 + h], n, share));
    }
    if (o->momentum == NULL) return CT_OK;
    return ct_outer_gather(o, o->momentum, set->block[1 + n_history]);
}

ct_status ct_outer_set_read(ct_outer *o, const ct_group *data, ct_outer_set *set,
                            ct_snapshot_state *state)
{
    *set = (ct_outer_set){ .n_block = 0 };
    o->groups = o->delay = 0; /* unless a file of this rank says more */
    return ct_group_agree(data, open_set(o, set, state));
}

/* Of an array whose part of this rank was read, everyone's. */
static ct_status complete(const ct_outer *o, float *whole)
{
    return ct_outer_gather(o, whole + o->from, whole);
}

static ct_status complete_histories(ct_outer *o)
{
    int64_t n = o->net->grad_count;

    for (int h = 0; h < o->step->n_history; h++) {
        ct_storage_range r = { .storage = NULL };
        ct_status status;

        CT_TRY(ct_storage_want(&o->step->history[h], NULL, 0, n, CT_STORAGE_UPDATE, &r));
        status = complete(o, r.data);
        CT_TRY(ct_storage_done(&r, NULL));
        CT_TRY(status);
    }
    return CT_OK;
}

/* The files of other groups gave each rank what it happened to find: all begin from the means. */
static ct_status take_means(const ct_outer *o, const ct_outer_set *set)
{
    for (int h = 0; h < o->step->n_history; h++)
        CT_TRY(ct_storage_put(&o->step->history[h], 0, o->net->grad_count, set->block[1 + h]));
    return CT_OK;
}

/* What codecs have left of differences that were others' goes. What all who exchange must have
 * alike is that of the first of them. */
static ct_status forget_codecs(const ct_outer *o)
{
    ct_sync_state e = { 0 };

    for (int i = 0; i < o->part.n_param; i++) {
        for (int k = 0; ct_sync_states_get(&o->across.states, i, k, &e); k++) {
            size_t bytes = (size_t)e.count * sizeof(*e.data);

            if (!e.replicated) memset(e.data, 0, bytes);
            if (e.replicated) CT_TRY(ct_group_broadcast(&o->across.data, e.data, bytes));
        }
    }
    return CT_OK;
}

/* The files of all ranks were of as many groups with this delay: what these kept is in its place.
 */
static ct_status same_groups(const ct_outer *o, const ct_group *data, bool *same_p)
{
    int64_t other =
        (fabsf(o->groups) != (float)o->ranks->n_group) || (o->delay != (float)o->param->delay);

    CT_TRY(ct_group_max(data, &other, 1));
    *same_p = (other == 0);
    return CT_OK;
}

ct_status ct_outer_set_take(ct_outer *o, const ct_group *data, ct_outer_set *set)
{
    int64_t n = o->net->grad_count;
    size_t bytes = (size_t)n * sizeof(float), own = (size_t)o->part.grad_count * sizeof(float);
    float *weights = set->block[0];
    bool same = false;

    CT_TRY(same_groups(o, data, &same));
    CT_TRY(ct_group_broadcast(data, weights, bytes));
    if (o->part.n_param > 0) memcpy(o->weights, weights + o->from, own);
    if ((o->part.n_param > 0) && (o->momentum != NULL))
        memcpy(o->momentum, set->block[1 + o->step->n_history] + o->from, own);
    CT_TRY(same ? complete_histories(o) : take_means(o, set));
    if (same && (o->groups > 0)) {
        CT_TRY(complete(o, o->net->weight_arena));
    } else {
        memcpy(o->net->weight_arena, weights, bytes);
        if ((o->part.n_param > 0) && (o->start != NULL)) memcpy(o->start, weights + o->from, own);
    }
    if (!same) CT_TRY(forget_codecs(o));
    if (o->across.states.restored != NULL) CT_TRY(o->across.states.restored(o->across.states.ctx));
    if (!same)
        CT_INFO("local steps: the set is not of %d groups of %d ranks with delay %d, so all groups "
                "go on from its last exchanged weights and the mean of its states",
                o->ranks->n_group, o->ranks->inner.size, o->param->delay);
    ct_net_weights_changed(o->net);
    return CT_OK;
}
