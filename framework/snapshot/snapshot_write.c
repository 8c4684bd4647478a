#include "framework/base/file.h"
#include "framework/snapshot/snapshot.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/base/clock.h"
#include "framework/snapshot/set_writer.h"
#include "framework/snapshot/h5.h"
#include "framework/snapshot/set_files.h"

ct_text ct_state_path(const char *group, const char *name, const char *key)
{
    ct_text t = { 0 };

    ct_text_add(&t, "%s/%s/", group, name);
    ct_h5_add_escaped(&t, key);
    if (t.failed) ct_text_destroy(&t);
    return t;
}

void ct_state_add_part(ct_text *parts, const char *name, int64_t size, uint64_t hash)
{
    ct_text_add(parts, "%s %" PRId64 " %016" PRIx64 "\n", name, size, hash);
}

static ct_status name_file(const ct_set_writer *s, const char *suffix, ct_set_file *file)
{
    file->path = ct_set_path(s->prefix, s->state->iteration, suffix);
    if (file->path != NULL) file->temp = ct_path_temp(file->path);
    return (file->temp != NULL) ? CT_OK : CT_FAIL(CT_ERR_NOMEM, "no memory for a snapshot");
}

static ct_status name_files(ct_set_writer *s)
{
    bool binary = s->state->binary;
    char suffix[32];

    snprintf(suffix, sizeof(suffix), "rank%d.h5", s->group->rank);
    CT_TRY(name_file(s, binary ? CT_SET_BINARY : CT_SET_WEIGHTS, &s->weights));
    CT_TRY(name_file(s, binary ? CT_SET_AVERAGE_BINARY : CT_SET_AVERAGE, &s->average));
    CT_TRY(name_file(s, CT_SET_CAFFE, &s->caffe));
    CT_TRY(name_file(s, CT_SET_STATE, &s->solver));
    CT_TRY(name_file(s, suffix, &s->rank));
    s->part = calloc((size_t)s->group->size, 3 * sizeof(*s->part));
    return (s->part != NULL) ? CT_OK : CT_FAIL(CT_ERR_NOMEM, "no memory for a snapshot");
}

static void drop_file(ct_set_file *file, bool remove_temp)
{
    if (remove_temp && (file->temp != NULL)) unlink(file->temp);
    free(file->path);
    free(file->temp);
}

static ct_status put_state(const ct_set_writer *s, ct_h5_writer *w, const char *name, int param,
                           int64_t count, const float *data)
{
    ct_text path = ct_state_path("/state", name, s->net->param[param].key);
    ct_status status = (path.text != NULL) ? ct_set_keep(s, count, &data)
                                           : CT_FAIL(CT_ERR_NOMEM, "no memory for a snapshot");

    if (status == CT_OK)
        status = ct_h5_put_floats(w, path.text, &(ct_shape){ .ndim = 1, .dim = { count } }, data);

    ct_text_destroy(&path);
    return status;
}

/* Which part of a parameter this rank's states are of. */
static ct_status put_part(const ct_set_writer *s, ct_h5_writer *w, int i)
{
    const ct_parts *parts = s->state->parts;
    ct_cut cut = ct_parts_cut(parts, i);
    double v[2 + 2 * CT_MAX_RANGE] = { ct_parts_repeats(parts, i) ? 1 : 0, cut.axis };
    ct_text path = ct_state_path("/state", CT_RANK_PART, parts->whole->param[i].key);
    ct_status status;

    for (int r = 0; r < cut.n_range; r++) {
        v[2 + 2 * r] = (double)cut.range[r].first;
        v[3 + 2 * r] = (double)cut.range[r].count;
    }
    status = (path.text != NULL) ? ct_h5_put_doubles(w, path.text, v, 2 + 2 * cut.n_range)
                                 : CT_FAIL(CT_ERR_NOMEM, "no memory for a snapshot");
    ct_text_destroy(&path);
    return status;
}

static ct_status put_all_parts(const ct_set_writer *s, ct_h5_writer *w)
{
    const ct_parts *parts = s->state->parts;
    ct_sync_state e;

    for (int i = 0; (parts != NULL) && (i < parts->whole->n_param); i++) {
        int own = parts->own[i];

        if ((own >= 0) && (ct_residual_drain_has(&s->state->late, own) ||
                           ct_sync_states_get(s->states, own, 0, &e)))
            CT_TRY(put_part(s, w, i));
    }
    return CT_OK;
}

/* Whether this rank writes what others have alike on the way to parameter k of its net. */
static bool writes_late(const ct_set_writer *s, int k)
{
    const ct_parts *parts = s->state->parts;

    if (!ct_residual_drain_has(&s->state->late, k)) return false;
    if (parts == NULL) return s->group->rank == 0;
    return ct_parts_stands(parts, ct_net_find_param(parts->whole, s->net->param[k].key));
}

bool ct_set_any_late(const ct_set_writer *s)
{
    for (int k = 0; k < s->net->n_param; k++)
        if (writes_late(s, k)) return true;
    return false;
}

/* v: what is on its way to the weights, on the host. */
static ct_status put_late(const ct_set_writer *s, ct_h5_writer *w, const float *v)
{
    const ct_residual_drain *l = &s->state->late;

    for (int i = 0; i < s->net->n_param; i++) {
        const ct_param *p = &s->net->param[i];

        if (!writes_late(s, i)) continue;
        CT_TRY(put_state(s, w, CT_RANK_LATE, i, p->count, v + p->offset));
        CT_TRY(put_state(s, w, CT_RANK_LATE_RATE, i, 1, &l->rate[i]));
    }
    return CT_OK;
}

static bool any_state(const ct_set_writer *s)
{
    ct_sync_state e;
    bool any = false;

    for (int i = 0; i < s->net->n_param; i++) any = any || ct_sync_states_get(s->states, i, 0, &e);
    return any;
}

static ct_status put_rank(const ct_set_writer *s, ct_h5_writer *w, const float *late)
{
    ct_sync_state e = { 0 };

    CT_TRY(put_all_parts(s, w));
    for (int i = 0; i < s->net->n_param; i++) {
        for (int k = 0; ct_sync_states_get(s->states, i, k, &e); k++)
            CT_TRY(put_state(s, w, e.name, i, e.count, e.data));
    }
    return (late != NULL) ? put_late(s, w, late) : CT_OK;
}

/* This rank's own state, and by one rank what several have alike; no file where there is none. v:
 * of what is late, until the file is written or only what was kept is needed. */
static ct_status lay_out_rank(ct_set_writer *s, ct_host_copy *v)
{
    bool late = ct_set_any_late(s);

    if (!late && !any_state(s)) return CT_OK;
    if (late)
        CT_TRY(ct_host_copy_take(ct_net_device(s->net), s->state->late.v, s->net->grad_count, v));
    CT_TRY(ct_h5_writer_create(false, &s->rank_file));
    return put_rank(s, s->rank_file, v->data);
}

ct_status ct_set_write_rank(ct_set_writer *s)
{
    if (s->rank_file == NULL) return CT_OK;
    return ct_h5_writer_finish(s->rank_file, s->rank.temp, NULL, &s->rank.hash, &s->rank.size);
}

/* Where it is written later, its hash is known now. */
static ct_status make_rank(ct_set_writer *s)
{
    ct_host_copy v = { .data = NULL };
    ct_status status = lay_out_rank(s, &v);

    if ((status == CT_OK) && (s->later == NULL)) status = ct_set_write_rank(s);
    if ((status == CT_OK) && (s->later != NULL) && (s->rank_file != NULL))
        status = ct_h5_writer_foresee(s->rank_file, s->rank.temp, &s->rank.hash, &s->rank.size);
    ct_host_copy_release(&v);
    return status;
}

/* Everyone learns size and hash of every rank's file; size 0: it has none. */
static ct_status gather_parts(ct_set_writer *s)
{
    const int64_t mine[3] = { s->rank.size, (int64_t)(s->rank.hash >> 32),
                              (int64_t)(s->rank.hash & 0xffffffffu) };

    CT_TRY(ct_group_gather(s->group, mine, 3, s->part));
    for (int r = 0; r < s->group->size; r++)
        s->any_rank_file = s->any_rank_file || (s->part[3 * r] > 0);
    return CT_OK;
}

static ct_status put_parts(const ct_set_writer *s, ct_h5_writer *w)
{
    const ct_set_file *shared[] = { &s->weights, &s->average, &s->caffe };
    ct_text parts = { 0 }, name = { 0 };
    ct_status status;

    for (int i = 0; i < 3; i++)
        if (shared[i]->size > 0)
            ct_state_add_part(&parts, ct_path_base(shared[i]->path), shared[i]->size,
                              shared[i]->hash);
    for (int r = 0; r < s->group->size; r++) {
        const int64_t *p = s->part + 3 * r;

        if (p[0] == 0) continue;
        name.length = 0;
        ct_text_add(&name, "%s_iter_%" PRId64 ".rank%d.h5", ct_path_base(s->prefix),
                    s->state->iteration, r);
        if (name.text != NULL)
            ct_state_add_part(&parts, name.text, p[0], ((uint64_t)p[1] << 32) | (uint64_t)p[2]);
    }
    status = (parts.failed || name.failed) ? CT_FAIL(CT_ERR_NOMEM, "no memory for a snapshot")
                                           : ct_h5_put_text(w, "/parts", parts.text);
    ct_text_destroy(&parts);
    ct_text_destroy(&name);
    return status;
}

/* What tests have shown so far, of those that rank. */
static ct_status put_best(const ct_best *b, ct_h5_writer *w)
{
    double v[3 * (CT_MAX_BEST + 1)];

    if (b->metric[0] == '\0') return CT_OK;
    for (int i = 0; i < b->n; i++) {
        v[3 * i] = (double)b->set[i].iteration;
        v[3 * i + 1] = b->set[i].value;
        v[3 * i + 2] = b->set[i].own ? 1.0 : 0.0;
    }
    CT_TRY(ct_h5_put_text(w, CT_STATE_BEST "/metric", b->metric));
    CT_TRY(ct_h5_put_doubles(w, CT_STATE_BEST "/sets", v, 3 * b->n));
    CT_TRY(ct_h5_put_int(w, CT_STATE_BEST "/tested", b->tested));
    return ct_h5_put_int(w, CT_STATE_BEST "/waited", b->waited);
}

static ct_status put_scalars(const ct_set_writer *s, ct_h5_writer *w)
{
    const ct_snapshot_state *state = s->state;

    /* iter, learned_net and current_step as Caffe's solver states have them */
    CT_TRY(ct_h5_put_int(w, "/iter", state->iteration));
    CT_TRY(ct_h5_put_int(w, "/current_step", state->lr_step));
    CT_TRY(ct_h5_put_text(w, "/learned_net", ct_path_base(s->weights.path)));
    CT_TRY(ct_h5_put_int(w, "/n_rank", state->n_rank));
    CT_TRY(ct_h5_put_int(w, "/global_batch", state->global_batch));
    CT_TRY(ct_h5_put_int(w, "/seed", (int64_t)state->seed));
    CT_TRY(ct_h5_put_doubles(w, "/loss_window", state->loss_window, state->n_loss));
    CT_TRY(ct_h5_put_int(w, "/next_loss", state->next_loss));
    if (state->least_loss < CT_NO_LEAST_LOSS) {
        CT_TRY(ct_h5_put_doubles(w, "/minimum_loss", &state->least_loss, 1));
        CT_TRY(ct_h5_put_int(w, "/iter_last_event", state->last_event));
    }
    if (state->loss_scale > 0.0) {
        CT_TRY(ct_h5_put_doubles(w, "/loss_scale", &state->loss_scale, 1));
        CT_TRY(ct_h5_put_int(w, "/good_steps", state->good_steps));
    }
    CT_TRY(put_best(&state->best, w));
    if (state->provenance != NULL) CT_TRY(ct_h5_put_text(w, "/provenance", state->provenance));
    if (state->plan != NULL) CT_TRY(ct_h5_put_text(w, CT_STATE_PLAN, state->plan));
    return CT_OK;
}

/* One optimiser state of one parameter. */
static ct_status put_history(const ct_set_writer *s, ct_h5_writer *w, int h, const ct_param *p)
{
    ct_text path = ct_state_path("/history", s->state->history_name[h], p->key);
    ct_status status;

    if (path.text == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a snapshot");
    status =
        ct_h5_put_stored(w, path.text, &p->blob.data.shape, &s->of_state->history[h], p->offset);
    ct_text_destroy(&path);
    return status;
}

ct_status ct_set_write_solver(ct_set_writer *s)
{
    const ct_net *net = s->of.net;
    ct_h5_writer *w = NULL;
    ct_status status;

    CT_INFO("Snapshotting solver state to HDF5 file %s", s->solver.path);
    CT_TRY_GOTO(status, out, ct_h5_writer_create(true, &w));
    CT_TRY_GOTO(status, out, put_scalars(s, w));
    CT_TRY_GOTO(status, out, put_parts(s, w));
    CT_TRY_GOTO(status, out, ct_carry_put(&s->carry, w));
    for (int h = 0; h < s->state->n_history; h++) {
        for (int i = 0; i < net->n_param; i++) {
            const ct_param *p = &net->param[i];

            if (ct_param_has_history(net, p)) CT_TRY_GOTO(status, out, put_history(s, w, h, p));
        }
    }
    status =
        ct_h5_writer_finish(w, s->solver.temp, CT_STATE_TITLE, &s->solver.hash, &s->solver.size);
out:
    ct_h5_writer_destroy(w);
    return status;
}

/* What of the set rank 0 writes before the solver state. */
ct_status ct_set_write_weights(ct_set_writer *s)
{
    const ct_snapshot_state *state = s->of_state;
    const ct_model_format *format = state->binary ? &ct_model_binary : &ct_model_h5;

    CT_INFO("Snapshotting to %s file %s", state->binary ? "binary proto" : "HDF5", s->weights.path);
    CT_TRY(ct_weights_write(s->weights.temp, &s->of, NULL, format, state->provenance,
                            &s->weights.hash, &s->weights.size));
    if (state->average != NULL)
        CT_TRY(ct_weights_write(s->average.temp, &s->of, state->average, format, state->provenance,
                                &s->average.hash, &s->average.size));
    if (!state->binary) return CT_OK;
    CT_INFO("Snapshotting solver state to binary proto file %s", s->caffe.path);
    return ct_caffe_state_write(s->caffe.temp, s->weights.path, s->of.net, state, &s->caffe.hash,
                                &s->caffe.size);
}

/* ---- what rank 0 writes of all ranks */

typedef struct parts_writing {
    ct_set_writer *s;
    ct_set_write_fn write;
} parts_writing;

static ct_status write_whole(void *ctx, ct_storage *whole)
{
    const parts_writing *p = ctx;
    ct_set_writer *s = p->s;
    ct_snapshot_state state = *s->state;
    ct_storage *history = ((state.parts != NULL) || (state.weights != NULL)) ? whole + 1 : whole;
    ct_status status;

    if (state.average != NULL) state.average = history + (state.average - state.history);
    state.history = history;
    if (state.parts != NULL) s->of = (ct_weights){ .net = state.parts->whole, .storage = whole };
    if (state.weights != NULL) s->of.learned = whole;
    s->of_state = &state;
    status = p->write(s);
    s->of_state = s->state;
    return status;
}

/* CT_OK on the other ranks where they need not help. */
static ct_status on_rank_0(ct_set_writer *s, ct_set_write_fn write)
{
    const ct_snapshot_state *state = s->state;
    ct_storage *own[CT_WHOLE_ARENAS] = { &s->weights_here };

    s->of = (ct_weights){ .net = s->net, .learned = state->weights };
    s->of_state = state;
    for (int h = 0; h < state->n_history; h++) own[1 + h] = &state->history[h];
    if (state->shards != NULL) {
        int first = (state->weights != NULL) ? 0 : 1;

        own[0] = state->weights;
        return ct_state_shards_run(state->shards, own + first, 1 - first + state->n_history,
                                   write_whole, &(parts_writing){ s, write });
    }
    if (state->parts == NULL) return (s->group->rank == 0) ? write(s) : CT_OK;
    s->weights_here = ct_parts_weights(state->parts);
    return ct_parts_run(state->parts, own, 1 + state->n_history, write_whole,
                        &(parts_writing){ s, write });
}

static ct_status gather_carry(ct_set_writer *s)
{
    CT_TRY(ct_carry_create(s->net, &s->carriers, &s->carry));
    return ct_carry_gather(s->net, &s->carriers, &s->carry);
}

/* What ranks do together before the solver state is written. */
ct_status ct_set_prepare(ct_set_writer *s, ct_set_write_fn first)
{
    const ct_group *g = s->group;
    ct_status status = CT_OK;

    if (g->rank == 0) ct_set_clean(s->prefix);
    CT_TRY(ct_group_barrier(g)); /* nobody's new file is cleaned away */
    status = (s->later != NULL) ? first(s) : on_rank_0(s, first);
    if (status == CT_OK) status = make_rank(s);
    CT_TRY(ct_group_agree(s->group, status));
    CT_TRY(gather_parts(s));
    return gather_carry(s);
}

/* Everything is on disk under temporary names before the first rename. */
static ct_status write_temps(ct_set_writer *s)
{
    CT_TRY(ct_set_prepare(s, ct_set_write_weights));
    return ct_group_agree(s->group, on_rank_0(s, ct_set_write_solver));
}

static ct_status commit(ct_set_writer *s)
{
    ct_status status = CT_OK;

    if (s->group->rank == 0) {
        ct_set_file *shared[] = { &s->weights, &s->average, &s->caffe };

        for (int i = 0; (i < 3) && (status == CT_OK); i++)
            if (shared[i]->size > 0) status = ct_file_commit(shared[i]->temp, shared[i]->path);
    }
    if ((status == CT_OK) && (s->rank.size > 0))
        status = ct_file_commit(s->rank.temp, s->rank.path);
    CT_TRY(ct_group_agree(s->group, status));
    if (s->group->rank == 0) status = ct_file_commit(s->solver.temp, s->solver.path);
    return ct_group_agree(s->group, status);
}

ct_status ct_set_open(ct_set_writer *s, const char *prefix, const ct_net *net,
                      const ct_snapshot_state *state, const ct_exchange *exchange)
{
    s->prefix = prefix;
    s->net = net;
    s->state = state;
    s->states = &exchange->states;
    s->group = (state->parts != NULL) ? &exchange->job : &exchange->data;
    s->carriers = ct_carry_groups_of(state->parts, exchange);
    return ct_group_agree(s->group, name_files(s));
}

/* status: of all that was written, on every rank. */
ct_status ct_set_close(ct_set_writer *s, ct_status status, int keep)
{
    bool lead = (s->group->rank == 0);

    if (status == CT_OK) status = commit(s);
    if ((status == CT_OK) && lead)
        ct_set_prune(s->prefix, s->state, keep, s->any_rank_file ? s->group->size : 0);
    drop_file(&s->weights, (status != CT_OK) && lead);
    drop_file(&s->average, (status != CT_OK) && lead);
    drop_file(&s->caffe, (status != CT_OK) && lead);
    drop_file(&s->solver, (status != CT_OK) && lead);
    drop_file(&s->rank, status != CT_OK);
    free(s->part);
    ct_carry_destroy(&s->carry);
    ct_h5_writer_destroy(s->rank_file);
    return status;
}

ct_status ct_snapshot_write(const char *prefix, const ct_net *net, const ct_snapshot_state *state,
                            const ct_exchange *exchange, int keep, double *seconds_p)
{
    ct_set_writer s = { .later = NULL };
    double start = ct_clock_s();
    ct_status status = ct_set_open(&s, prefix, net, state, exchange);

    if (status == CT_OK) status = write_temps(&s);
    status = ct_set_close(&s, status, keep);
    if ((status == CT_OK) && (seconds_p != NULL)) *seconds_p = ct_clock_s() - start;
    return status;
}
