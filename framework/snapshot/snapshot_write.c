#include "framework/snapshot/snapshot.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "framework/base/clock.h"
#include "framework/base/memory.h"
#include "framework/base/thread.h"
#include "framework/snapshot/snapshot_impl.h"
#include "framework/snapshot/h5.h"
#include "framework/snapshot/set_files.h"

typedef struct set_file {
    char *path, *temp;
    int64_t size;
    uint64_t hash;
} set_file;

/* What the stages of one ct_snapshot_write() share. */
typedef struct set_writer {
    const char *prefix;
    const ct_net *net;
    const ct_snapshot_state *state;
    const ct_group *group;
    const ct_sync_states *states;
    ct_storage weights_here;           /* with parts: this rank's */
    ct_weights of;                     /* what rank 0 writes of all ranks: weights, and with */
    const ct_snapshot_state *of_state; /* storages of all ranks' states */
    set_file weights, average, caffe;  /* the last two where state says so */
    set_file rank, solver;
    int64_t *part; /* n_rank x {size, hash high, hash low}: all ranks' files */
    bool any_rank_file;
    ct_carry_groups carriers;
    ct_carry carry;
    ct_h5_writer *rank_file;         /* laid out; NULL: this rank has none */
    struct ct_snapshot_later *later; /* what the set holds is copied there; NULL: written at once */
} set_writer;

static ct_status keep_floats(const set_writer *s, int64_t count, const float **data_p);

ct_text ct_state_path(const char *group, const char *name, const char *key)
{
    ct_text t = { 0 };

    ct_text_add(&t, "%s/%s/", group, name);
    for (; *key != '\0'; key++) {
        if (strchr("/.%", *key) != NULL) {
            ct_text_add(&t, "%%%02X", (unsigned char)*key);
        } else {
            ct_text_add_bytes(&t, key, 1);
        }
    }
    if (t.failed) ct_text_destroy(&t);
    return t;
}

void ct_state_add_part(ct_text *parts, const char *name, int64_t size, uint64_t hash)
{
    ct_text_add(parts, "%s %" PRId64 " %016" PRIx64 "\n", name, size, hash);
}

static ct_status name_file(const set_writer *s, const char *suffix, set_file *file)
{
    file->path = ct_set_path(s->prefix, s->state->iteration, suffix);
    if (file->path != NULL) file->temp = ct_path_temp(file->path);
    return (file->temp != NULL) ? CT_OK : CT_FAIL(CT_ERR_NOMEM, "no memory for a snapshot");
}

static ct_status name_files(set_writer *s)
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

static void drop_file(set_file *file, bool remove_temp)
{
    if (remove_temp && (file->temp != NULL)) unlink(file->temp);
    free(file->path);
    free(file->temp);
}

static ct_status put_state(const set_writer *s, ct_h5_writer *w, const char *name, int param,
                           int64_t count, const float *data)
{
    ct_text path = ct_state_path("/state", name, s->net->param[param].key);
    ct_status status = (path.text != NULL) ? keep_floats(s, count, &data)
                                           : CT_FAIL(CT_ERR_NOMEM, "no memory for a snapshot");

    if (status == CT_OK)
        status = ct_h5_put_floats(w, path.text, &(ct_shape){ .ndim = 1, .dim = { count } }, data);

    ct_text_destroy(&path);
    return status;
}

/* Which part of a parameter this rank's states are of. */
static ct_status put_part(const set_writer *s, ct_h5_writer *w, int i)
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

static ct_status put_all_parts(const set_writer *s, ct_h5_writer *w)
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
static bool writes_late(const set_writer *s, int k)
{
    const ct_parts *parts = s->state->parts;

    if (!ct_residual_drain_has(&s->state->late, k)) return false;
    if (parts == NULL) return s->group->rank == 0;
    return ct_parts_stands(parts, ct_net_find_param(parts->whole, s->net->param[k].key));
}

static bool any_late(const set_writer *s)
{
    for (int k = 0; k < s->net->n_param; k++)
        if (writes_late(s, k)) return true;
    return false;
}

/* v: what is on its way to the weights, on the host. */
static ct_status put_late(const set_writer *s, ct_h5_writer *w, const float *v)
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

static bool any_state(const set_writer *s)
{
    ct_sync_state e;
    bool any = false;

    for (int i = 0; i < s->net->n_param; i++) any = any || ct_sync_states_get(s->states, i, 0, &e);
    return any;
}

static ct_status put_rank(const set_writer *s, ct_h5_writer *w, const float *late)
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
static ct_status lay_out_rank(set_writer *s, ct_host_copy *v)
{
    bool late = any_late(s);

    if (!late && !any_state(s)) return CT_OK;
    if (late)
        CT_TRY(ct_host_copy_take(ct_net_device(s->net), s->state->late.v, s->net->grad_count, v));
    CT_TRY(ct_h5_writer_create(false, &s->rank_file));
    return put_rank(s, s->rank_file, v->data);
}

static ct_status write_rank(set_writer *s)
{
    if (s->rank_file == NULL) return CT_OK;
    return ct_h5_writer_finish(s->rank_file, s->rank.temp, NULL, &s->rank.hash, &s->rank.size);
}

/* Where it is written later, its hash is known now. */
static ct_status make_rank(set_writer *s)
{
    ct_host_copy v = { .data = NULL };
    ct_status status = lay_out_rank(s, &v);

    if ((status == CT_OK) && (s->later == NULL)) status = write_rank(s);
    if ((status == CT_OK) && (s->later != NULL) && (s->rank_file != NULL))
        status = ct_h5_writer_foresee(s->rank_file, s->rank.temp, &s->rank.hash, &s->rank.size);
    ct_host_copy_release(&v);
    return status;
}

/* Everyone learns size and hash of every rank's file; size 0: it has none. */
static ct_status gather_parts(set_writer *s)
{
    const int64_t mine[3] = { s->rank.size, (int64_t)(s->rank.hash >> 32),
                              (int64_t)(s->rank.hash & 0xffffffffu) };

    CT_TRY(ct_group_gather(s->group, mine, 3, s->part));
    for (int r = 0; r < s->group->size; r++)
        s->any_rank_file = s->any_rank_file || (s->part[3 * r] > 0);
    return CT_OK;
}

static ct_status put_parts(const set_writer *s, ct_h5_writer *w)
{
    const set_file *shared[] = { &s->weights, &s->average, &s->caffe };
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

static ct_status put_scalars(const set_writer *s, ct_h5_writer *w)
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
    if (state->provenance != NULL) CT_TRY(ct_h5_put_text(w, "/provenance", state->provenance));
    if (state->plan != NULL) CT_TRY(ct_h5_put_text(w, CT_STATE_PLAN, state->plan));
    return CT_OK;
}

/* One optimiser state of one parameter. */
static ct_status put_history(const set_writer *s, ct_h5_writer *w, int h, const ct_param *p)
{
    ct_text path = ct_state_path("/history", s->state->history_name[h], p->key);
    ct_status status;

    if (path.text == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a snapshot");
    status =
        ct_h5_put_stored(w, path.text, &p->blob.data.shape, &s->of_state->history[h], p->offset);
    ct_text_destroy(&path);
    return status;
}

static ct_status write_solver(set_writer *s)
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
static ct_status write_weights(set_writer *s)
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

typedef ct_status (*write_fn)(set_writer *s);

typedef struct parts_writing {
    set_writer *s;
    write_fn write;
} parts_writing;

static ct_status write_whole(void *ctx, ct_storage *whole)
{
    const parts_writing *p = ctx;
    set_writer *s = p->s;
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
static ct_status on_rank_0(set_writer *s, write_fn write)
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

static ct_status gather_carry(set_writer *s)
{
    CT_TRY(ct_carry_create(s->net, &s->carriers, &s->carry));
    return ct_carry_gather(s->net, &s->carriers, &s->carry);
}

/* What ranks do together before the solver state is written. first: rank 0's, of all ranks. */
static ct_status prepare(set_writer *s, write_fn first)
{
    const ct_group *g = s->group;
    ct_status status = CT_OK;

    if (g->rank == 0) ct_set_clean(s->prefix);
    CT_TRY(ct_group_barrier(g)); /* nobody's new file is cleaned away */
    status = on_rank_0(s, first);
    if (status == CT_OK) status = make_rank(s);
    CT_TRY(ct_group_agree(s->group, status));
    CT_TRY(gather_parts(s));
    return gather_carry(s);
}

/* Everything is on disk under temporary names before the first rename. */
static ct_status write_temps(set_writer *s)
{
    CT_TRY(prepare(s, write_weights));
    return ct_group_agree(s->group, on_rank_0(s, write_solver));
}

static ct_status commit(set_writer *s)
{
    ct_status status = CT_OK;

    if (s->group->rank == 0) {
        set_file *shared[] = { &s->weights, &s->average, &s->caffe };

        for (int i = 0; (i < 3) && (status == CT_OK); i++)
            if (shared[i]->size > 0) status = ct_file_commit(shared[i]->temp, shared[i]->path);
    }
    if ((status == CT_OK) && (s->rank.size > 0))
        status = ct_file_commit(s->rank.temp, s->rank.path);
    CT_TRY(ct_group_agree(s->group, status));
    if (s->group->rank == 0) status = ct_file_commit(s->solver.temp, s->solver.path);
    return ct_group_agree(s->group, status);
}

static ct_status open_set(set_writer *s, const char *prefix, const ct_net *net,
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
static ct_status close_set(set_writer *s, ct_status status, int keep)
{
    bool lead = (s->group->rank == 0);

    if (status == CT_OK) status = commit(s);
    if ((status == CT_OK) && lead)
        ct_set_prune(s->prefix, s->state->iteration, keep, s->any_rank_file ? s->group->size : 0);
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
    set_writer s = { .later = NULL };
    double start = ct_clock_s();
    ct_status status = open_set(&s, prefix, net, state, exchange);

    if (status == CT_OK) status = write_temps(&s);
    status = close_set(&s, status, keep);
    if ((status == CT_OK) && (seconds_p != NULL)) *seconds_p = ct_clock_s() - start;
    return status;
}

/* ---- sets that threads write while training goes on */

struct ct_snapshot_later {
    set_writer s;
    ct_snapshot_state state; /* the set's, on copies */
    int keep;
    char *plan;
    ct_storage copy[CT_WHOLE_ARENAS]; /* on rank 0: weights and histories; kept for the next set */
    float *room[CT_WHOLE_ARENAS];
    float **kept; /* of the rank's file */
    int n_kept;
    bool told; /* how much it takes, or why not */
    bool gives_way;
    bool open;
    bool started; /* there is a thread */
    pthread_t thread;
    atomic_bool written;
    ct_status status; /* the thread's, when it has been joined */
    double start_s;
};

/* *data_p may change from now on: where the file is written later it becomes a copy. */
static ct_status keep_floats(const set_writer *s, int64_t count, const float **data_p)
{
    struct ct_snapshot_later *l = s->later;
    float **kept, *copy;

    if (l == NULL) return CT_OK;
    kept = realloc(l->kept, (size_t)(l->n_kept + 1) * sizeof(*kept));
    copy = ct_mem_acquire((size_t)count * sizeof(*copy));
    if (kept != NULL) l->kept = kept;
    if ((kept == NULL) || (copy == NULL)) {
        ct_mem_release(copy);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a snapshot");
    }
    memcpy(copy, *data_p, (size_t)count * sizeof(*copy));
    l->kept[l->n_kept++] = copy;
    *data_p = copy;
    return CT_OK;
}

static void drop_kept(ct_snapshot_later *l)
{
    for (int i = 0; i < l->n_kept; i++) ct_mem_release(l->kept[i]);
    free(l->kept);
    free(l->plan);
    l->kept = NULL;
    l->plan = NULL;
    l->n_kept = 0;
}

static void copy_floats(float *to, const float *from, int64_t count)
{
    const int64_t part = 1 << 18;

#pragma omp parallel for schedule(static) if (count > part)
    for (int64_t at = 0; at < count; at += part)
        memcpy(to + at, from + at, (size_t)((count - at < part) ? count - at : part) * sizeof(*to));
}

static ct_status copy_storage(ct_storage *from, int64_t count, float *to)
{
    if (from->dev->kind != CT_DEVICE_CPU) return ct_storage_get(from, 0, count, to);
    for (int64_t at = 0; at < count; at += CT_STORAGE_CHUNK) {
        int64_t n = (count - at < CT_STORAGE_CHUNK) ? count - at : CT_STORAGE_CHUNK;
        ct_storage_range r;

        CT_TRY(ct_storage_want(from, NULL, at, n, CT_STORAGE_READ, &r));
        copy_floats(to + at, r.data, n);
        CT_TRY(ct_storage_done(&r, NULL));
    }
    return CT_OK;
}

/* What does not learn lies in the net's memory, wherever the rest is. */
static ct_status copy_rest(const ct_net *net, float *to)
{
    for (int i = 0; i < net->n_param; i++) {
        const ct_param *p = &net->param[i];

        if (p->learns) continue;
        CT_TRY(ct_net_device(net)->to_host(NULL, to + p->offset, ct_blob_data(&p->blob),
                                           (size_t)p->count * sizeof(*to)));
    }
    return CT_OK;
}

static ct_status copy_weights(const set_writer *s, float *to)
{
    const ct_net *net = s->of.net;
    ct_storage here;

    if (s->of.storage != NULL) return copy_storage(s->of.storage, net->weight_count, to);
    if (s->of.learned != NULL) {
        CT_TRY(copy_storage(s->of.learned, net->grad_count, to));
        return copy_rest(net, to);
    }
    here = ct_storage_at(ct_net_device(net), net->weight_arena, net->weight_count);
    return copy_storage(&here, net->weight_count, to);
}

/* Copy k is of so many floats. */
static ct_status make_room(ct_snapshot_later *l, int k, int64_t count)
{
    if (l->room[k] == NULL) {
        l->room[k] = ct_mem_acquire((size_t)count * sizeof(float));
        if (l->room[k] == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a snapshot's copy");
    }
    l->copy[k] = ct_storage_at(ct_device_cpu(), l->room[k], count);
    return CT_OK;
}

/* In place of writing them: what all ranks have of weights and histories. */
static ct_status copy_arenas(set_writer *s)
{
    ct_snapshot_later *l = s->later;
    const ct_net *net = s->of.net;
    const ct_snapshot_state *of = s->of_state;

    CT_TRY(make_room(l, 0, net->weight_count));
    CT_TRY(copy_weights(s, l->room[0]));
    for (int h = 0; h < of->n_history; h++) {
        CT_TRY(make_room(l, 1 + h, net->grad_count));
        CT_TRY(copy_storage(&of->history[h], net->grad_count, l->room[1 + h]));
    }
    return CT_OK;
}

/* From now on the set is one of copies. */
static ct_status use_copies(ct_snapshot_later *l)
{
    const ct_snapshot_state *from = l->s.state;

    l->state = *from;
    l->state.history = l->copy + 1;
    l->state.weights = NULL;
    if (from->average != NULL) l->state.average = l->copy + 1 + (from->average - from->history);
    if (from->plan != NULL) {
        l->plan = strdup(from->plan);
        if (l->plan == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the plan of a snapshot");
        l->state.plan = l->plan;
    }
    l->s.state = l->s.of_state = &l->state;
    l->s.of = (ct_weights){ .net = (from->parts != NULL) ? from->parts->whole : l->s.net,
                            .storage = &l->copy[0] };
    return CT_OK;
}

static void *write_later(void *arg)
{
    ct_snapshot_later *l = arg;

    if (l->gives_way && l->started) (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), 19);
    l->status = write_rank(&l->s);
    if ((l->status == CT_OK) && (l->s.group->rank == 0)) {
        l->status = write_weights(&l->s);
        if (l->status == CT_OK) l->status = write_solver(&l->s);
    }
    atomic_store(&l->written, true);
    return NULL;
}

/* What a set will take here besides what there is. */
static int64_t bytes_needed(const set_writer *s, const ct_snapshot_later *l)
{
    const ct_snapshot_state *state = s->state;
    const ct_net *net = (state->parts != NULL) ? state->parts->whole : s->net;
    int64_t floats = any_late(s) ? s->net->grad_count : 0;
    ct_sync_state e;

    if ((s->group->rank == 0) && (l->room[0] == NULL))
        floats += net->weight_count + state->n_history * net->grad_count;
    for (int i = 0; i < s->net->n_param; i++)
        for (int k = 0; ct_sync_states_get(s->states, i, k, &e); k++) floats += e.count;
    return floats * (int64_t)sizeof(float);
}

/* Whether there is room on every rank. limit: of what a rank has resident; 0: none. Collective. */
static ct_status find_room(ct_snapshot_later *l, double limit, bool *fits_p)
{
    double bytes = (double)bytes_needed(&l->s, l), left = 0.9 * ct_memory_free();
    int64_t lacks;

    if ((limit > 0) && (limit - (double)ct_memory_resident() < left))
        left = limit - (double)ct_memory_resident();
    lacks = (bytes > left) ? 1 : 0;
    if ((lacks != 0) && !l->told)
        CT_WARN("snapshot_async: a copy takes %.0f MB and %.0f MB are free: training waits until "
                "snapshots are written",
                bytes / 1e6, (left > 0) ? left / 1e6 : 0.0);
    else if (!l->told)
        CT_INFO("snapshot_async: %.0f MB for a copy of what is written", bytes / 1e6);
    l->told = true;
    CT_TRY(ct_group_max(l->s.group, &lacks, 1));
    *fits_p = (lacks == 0);
    return CT_OK;
}

ct_status ct_snapshot_later_create(bool gives_way, ct_snapshot_later **l_p)
{
    ct_snapshot_later *l = calloc(1, sizeof(*l));

    if (l == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for snapshots");
    l->gives_way = gives_way;
    *l_p = l;
    return CT_OK;
}

static ct_status end_set(ct_snapshot_later *l, ct_status status)
{
    status = close_set(&l->s, status, l->keep);
    drop_kept(l);
    l->open = false;
    return status;
}

static void join(ct_snapshot_later *l)
{
    if (l->started) (void)pthread_join(l->thread, NULL);
    l->started = false;
}

void ct_snapshot_later_destroy(ct_snapshot_later *l)
{
    if (l == NULL) return;
    join(l);
    if (l->open) (void)end_set(l, CT_STOPPED);
    for (int k = 0; k < CT_WHOLE_ARENAS; k++) ct_mem_release(l->room[k]);
    free(l);
}

ct_status ct_snapshot_later_begin(ct_snapshot_later *l, const char *prefix, const ct_net *net,
                                  const ct_snapshot_state *state, const ct_exchange *exchange,
                                  int keep, double limit, bool *begun_p)
{
    bool fits = true;
    ct_status status;

    *begun_p = false;
    l->s = (set_writer){ .later = l };
    l->keep = keep;
    l->start_s = ct_clock_s();
    l->open = true;
    status = open_set(&l->s, prefix, net, state, exchange);
    if (status == CT_OK) status = find_room(l, limit, &fits);
    if ((status == CT_OK) && fits) status = prepare(&l->s, copy_arenas);
    if ((status == CT_OK) && fits) status = ct_group_agree(l->s.group, use_copies(l));
    if ((status != CT_OK) || !fits) {
        (void)end_set(l, CT_STOPPED);
        return status;
    }
    atomic_store(&l->written, false);
    l->started = true; /* the thread reads it */
    if (ct_thread_start(write_later, l, &l->thread) != 0) {
        l->started = false;
        (void)write_later(l);
    }
    *begun_p = true;
    return CT_OK;
}

bool ct_snapshot_later_is_open(const ct_snapshot_later *l)
{
    return l->open;
}

bool ct_snapshot_later_is_written(const ct_snapshot_later *l)
{
    return !l->open || atomic_load(&l->written);
}

ct_status ct_snapshot_later_finish(ct_snapshot_later *l, double *seconds_p)
{
    ct_status status;

    join(l);
    status = end_set(l, ct_group_agree(l->s.group, l->status));
    if ((status == CT_OK) && (seconds_p != NULL)) *seconds_p = ct_clock_s() - l->start_s;
    return status;
}
