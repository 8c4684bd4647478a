#include "framework/base/file.h"
#include "framework/snapshot/snapshot_impl.h"

#include <math.h>
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

/* The run of the snapshot kept its momentum in the solver, or the snapshot is a dense run's. n
 * ranks share it. */
static ct_status take_momentum(const ct_net *net, const ct_snapshot_state *state, int n,
                               const ct_sync_state *e)
{
    if (!e->is_momentum || (state->n_history < 1)) return CT_OK;
    CT_TRY(ct_storage_get(&state->history[0], net->param[e->param].offset, e->count, e->data));
    for (int64_t i = 0; i < e->count; i++) e->data[i] /= (float)n;
    return CT_OK;
}

static ct_status read_one(const char *file, const ct_net *net, const ct_snapshot_state *state,
                          const ct_group *g, const ct_sync_state *e)
{
    bool found = false;

    if (state->foreign) { /* Caffe has none; what codecs hold of the momentum is the solver's */
        memset(e->data, 0, (size_t)e->count * sizeof(float));
        return take_momentum(net, state, g->size, e);
    }
    CT_TRY(agree_any(g,
                     read_array(file, state->n_rank_file, g, e->name, &net->param[e->param],
                                e->count, e->replicated, e->data, &found),
                     &found));
    if (!found) return take_momentum(net, state, g->size, e);
    if ((state->n_rank == g->size) || e->replicated) return CT_OK;
    return ct_group_average(g, e->data, e->count, 1.0 / g->size);
}

/* What this rank alone had. */
static ct_status take_back(const char *file, const ct_net *net, const ct_snapshot_state *state,
                           const ct_group *g, const ct_sync_state *e)
{
    ct_text array = ct_state_path("/state", e->name, net->param[e->param].key);
    ct_h5_reader *r = NULL;
    ct_status status = CT_OK;

    if (array.text == NULL) status = CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", file);
    if ((status == CT_OK) && !state->foreign && (state->n_rank == g->size))
        status = open_rank(file, g->rank, &r);
    if ((status == CT_OK) && (r != NULL) && ct_h5_has(r, array.text))
        status = ct_h5_get_floats(r, array.text, e->count, e->data);
    ct_text_destroy(&array);
    ct_h5_reader_destroy(r);
    return status;
}

/* What the floats [from, end) of a parameter are, by a file of a rank of then, to data: all that it
 * has of the array begins at `first`, or it has the whole array, as older sets do. */
static ct_status copy_share(ct_h5_reader *r, const char *array, const ct_param *p, int64_t first,
                            int64_t n, int64_t from, int64_t end, float *data)
{
    ct_shape shape = { .ndim = 0 };
    float *host;
    ct_status status;

    CT_TRY(ct_h5_get_shape(r, array, &shape));
    if (ct_shape_count(&shape, 0, shape.ndim) == p->count) {
        first = 0;
        n = p->count;
    }
    host = ct_mem_acquire((size_t)n * sizeof(*host));
    if (host == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", array);
    status = ct_h5_get_floats(r, array, n, host);
    if (status == CT_OK) memcpy(data, host + from - first, (size_t)(end - from) * sizeof(*data));
    ct_mem_release(host);
    return status;
}

/* What falls to this rank, from the files of all ranks of then that have some of it. */
static ct_status read_share(const char *file, const ct_net *net, const ct_snapshot_state *state,
                            const ct_group *g, const ct_sync_state *e)
{
    const ct_param *p = &net->param[e->param];
    int64_t all = net->grad_count, mine = ct_net_part(all, g->rank, g->size), at = 0;
    int64_t n = ct_net_share_of(p, mine, ct_net_part(all, g->rank + 1, g->size) - mine, &at);
    ct_text array = ct_state_path("/state", e->name, p->key);
    ct_status status = CT_OK;

    if (array.text == NULL) status = CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", file);
    for (int q = 0; (status == CT_OK) && !state->foreign && (q < state->n_rank); q++) {
        int64_t begin = ct_net_part(all, q, state->n_rank), first = 0;
        int64_t count =
            ct_net_share_of(p, begin, ct_net_part(all, q + 1, state->n_rank) - begin, &first);
        int64_t from = (first > at) ? first : at;
        int64_t end = (first + count < at + n) ? first + count : at + n;
        ct_h5_reader *r = NULL;

        if ((count == 0) || (from >= end)) continue;
        status = open_rank(file, q, &r);
        if ((status == CT_OK) && (r == NULL))
            status = CT_FAIL(CT_ERR_DATA, "%s: rank %d has no file with %s", file, q, array.text);
        if (status == CT_OK)
            status = copy_share(r, array.text, p, first, count, from, end, e->data + from - at);
        ct_h5_reader_destroy(r);
    }
    ct_text_destroy(&array);
    return status;
}

static ct_status read_states(const char *file, const ct_net *net, const ct_snapshot_state *state,
                             const ct_exchange *x)
{
    ct_sync_state e = { 0 };
    ct_status own = CT_OK;
    int n = 0;

    for (int i = 0; i < net->n_param; i++) {
        for (int k = 0; ct_sync_states_get(&x->states, i, k, &e); k++) {
            if (e.own && (own == CT_OK)) own = take_back(file, net, state, &x->data, &e);
            if (e.share && (own == CT_OK)) own = read_share(file, net, state, &x->data, &e);
            if (e.own || e.share) continue;
            CT_TRY(read_one(file, net, state, &x->data, &e));
            n += e.replicated ? 0 : 1;
        }
    }
    CT_TRY(ct_group_agree(&x->data, own)); /* not all ranks have as many */
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

/* What the ranks of then have, by parameters of the whole net: kind_of[n_param], behind that who
 * has something on the way to the weights, and behind that whether any has parts. Only what is
 * counted in updates knows its rate. n_residual[n_param]: how many of those this rank looked at
 * have a residual. */
static ct_status look_for(const char *file, const ct_net *net, int n_then, const ct_group *g,
                          int64_t *kind_of, double *n_residual)
{
    for (int from = g->rank; from < n_then; from += g->size) {
        ct_h5_reader *r = NULL;

        CT_TRY(open_rank(file, from, &r));
        for (int i = 0; (r != NULL) && (i < net->n_param); i++) {
            const ct_param *p = &net->param[i];

            if (!p->learns) continue;
            if (has_state(r, CT_SYNC_RESIDUAL, p)) {
                kind_of[i] = has_state(r, CT_SYNC_RATE, p) ? OF_UPDATE : OF_GRADIENT;
                n_residual[i] += 1;
            }
            if (has_state(r, CT_RANK_LATE, p)) kind_of[net->n_param + i] = 1;
        }
        if ((r != NULL) && ct_h5_has(r, "/state/" CT_RANK_PART)) kind_of[2 * net->n_param] = 1;
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

static void say_moved(int n_weight, int n_gradient)
{
    if (n_weight + n_gradient > 0)
        CT_INFO("parameters that travel otherwise now: of %d what was not sent goes to the "
                "weights, no farther in an iteration than that moves them, of %d it goes with the "
                "next gradient",
                n_weight, n_gradient);
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
    say_moved(n_weight, n_gradient);
    return go_on(file, net, g, kind_of + net->n_param, state);
}

/* ---- where ranks of then or of now have parts of the net */

typedef struct divided {
    const char *file;
    const ct_net *net, *all; /* this rank's net, and that of which files have the parameters */
    const ct_parts *parts;   /* NULL: they are the same */
    const ct_group *g;
    ct_snapshot_state *state;
    const ct_exchange *x;
    double *n_residual; /* [all->n_param] ranks of then that have a residual of it */
    float *sum;         /* room for the largest parameter */
    float *host;        /* [CT_STORAGE_CHUNK]             */
} divided;

static int own_of(const divided *d, int i)
{
    return (d->parts != NULL) ? d->parts->own[i] : i;
}

static ct_cut whole_of(const ct_param *p)
{
    return (ct_cut){ .whole = p->blob.data.shape };
}

/* How many ranks share what is kept of parameter i. */
static int sharers_of(const divided *d, int i)
{
    return (d->parts != NULL) ? d->parts->n_sharer[i] : d->g->size;
}

/* A number of a file between least and most. */
static bool take_number(double v, int64_t least, int64_t most, int64_t *n_p)
{
    if (!(v >= (double)least) || !(v <= (double)most) || (v != floor(v))) return false;
    *n_p = (int64_t)v;
    return true;
}

/* v[n], as CT_RANK_PART says it, of a parameter. */
static bool parse_part(const double *v, int64_t n, ct_cut *cut, bool *repeats_p)
{
    int64_t axis, repeats, end = 0;

    if ((n < 2) || (n % 2 != 0) || !take_number(v[0], 0, 1, &repeats) ||
        !take_number(v[1], 0, CT_MAX_DIM - 1, &axis))
        return false;
    cut->n_range = (int)(n / 2 - 1);
    cut->axis = (int)axis;
    *repeats_p = (repeats != 0);
    if ((cut->n_range > 0) && (axis >= cut->whole.ndim)) return false;
    for (int r = 0; r < cut->n_range; r++) {
        int64_t most = cut->whole.dim[axis];

        if (!take_number(v[2 + 2 * r], end, most, &cut->range[r].first) ||
            !take_number(v[3 + 2 * r], 1, most - cut->range[r].first, &cut->range[r].count))
            return false;
        end = cut->range[r].first + cut->range[r].count;
    }
    return true;
}

/* Of which part of p (whole) a rank of then had states. */
static ct_status read_part(ct_h5_reader *r, const char *file, const ct_param *p, ct_cut *cut,
                           bool *repeats_p)
{
    double v[2 + 2 * CT_MAX_RANGE];
    ct_text path = ct_state_path("/state", CT_RANK_PART, p->key);
    int64_t n = 0;
    ct_status status = CT_OK;

    *cut = whole_of(p);
    *repeats_p = false;
    if (path.text == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", file);
    if (ct_h5_has(r, path.text)) {
        status = ct_h5_get_doubles(r, path.text, 2 + 2 * CT_MAX_RANGE, v, &n);
        if ((status == CT_OK) && !parse_part(v, n, cut, repeats_p))
            status = CT_FAIL(CT_ERR_DATA, "%s: a rank's file says of %s no part of shape %s", file,
                             p->key, ct_shape_str(&p->blob.data.shape).text);
    }
    ct_text_destroy(&path);
    return status;
}

/* d->sum += an array of a rank of then that had this of the parameter, chunk by chunk. */
static ct_status add_chunks(const divided *d, ct_h5_reader *r, const char *array, const ct_cut *cut)
{
    ct_shape part = ct_cut_shape(cut), flat = { 1, { ct_shape_count(&part, 0, -1) } };
    int64_t n_run = ct_cut_runs(cut), i = 0;

    for (int64_t at = 0, n = 0; at < flat.dim[0]; at += n) {
        n = (flat.dim[0] - at < CT_STORAGE_CHUNK) ? flat.dim[0] - at : CT_STORAGE_CHUNK;
        CT_TRY(ct_h5_get_rows(r, array, &flat, at, n, d->host));
        for (; i < n_run; i++) {
            ct_cut_run run = ct_cut_run_at(cut, i);
            int64_t first = (run.part > at) ? run.part : at, end = run.part + run.count;
            float *sum = d->sum + (run.whole - run.part);

            for (int64_t k = first; k < ((end < at + n) ? end : at + n); k++)
                sum[k] += d->host[k - at];
            if (end > at + n) break; /* it goes on in the next chunk */
        }
    }
    return CT_OK;
}

/* Adds what the file of a rank has of an array to where that is in the whole one. */
static ct_status add_part(const divided *d, int rank, const char *array, const ct_param *p,
                          bool *found_p)
{
    ct_h5_reader *r = NULL;
    bool repeats = false;
    ct_cut cut;
    ct_status status = open_rank(d->file, rank, &r);

    if ((status != CT_OK) || (r == NULL)) return status;
    if (ct_h5_has(r, array)) {
        *found_p = true;
        status = read_part(r, d->file, p, &cut, &repeats);
        if ((status == CT_OK) && !repeats) status = add_chunks(d, r, array, &cut);
    }
    ct_h5_reader_destroy(r);
    return status;
}

/* d->sum = what all ranks of then had of an array that is as long as parameter i, on every rank. */
static ct_status add_up(const divided *d, int i, const char *name, bool *found_p)
{
    const ct_param *p = &d->all->param[i];
    ct_text array = ct_state_path("/state", name, p->key);
    ct_status status =
        (array.text != NULL) ? CT_OK : CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", d->file);

    *found_p = false;
    memset(d->sum, 0, (size_t)p->count * sizeof(float));
    for (int from = d->g->rank; (status == CT_OK) && (from < d->state->n_rank_file);
         from += d->g->size)
        status = add_part(d, from, array.text, p, found_p);
    ct_text_destroy(&array);
    CT_TRY(agree_any(d->g, status, found_p));
    return *found_p ? ct_group_average(d->g, d->sum, p->count, 1.0) : CT_OK;
}

/* to = what this rank has of d->sum, divided by n. */
static void take_share(const divided *d, int i, int n, float *to)
{
    const ct_param *own = &d->net->param[own_of(d, i)];
    ct_cut cut = (d->parts != NULL) ? ct_parts_cut(d->parts, i) : whole_of(own);

    ct_cut_take(&cut, d->sum, to);
    for (int64_t k = 0; k < own->count; k++) to[k] /= (float)n;
}

static ct_status check_sharers(const divided *d, int i)
{
    if ((own_of(d, i) < 0) || (sharers_of(d, i) > 0)) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG,
                   "%s: what was not sent of %s cannot be dealt out: not all of a rank's "
                   "part of it has the same number of ranks",
                   d->file, d->all->param[i].key);
}

/* A number that all ranks of then with parameter i had alike. */
static ct_status read_number(const divided *d, int i, const char *name, float *v_p)
{
    ct_text array = ct_state_path("/state", name, d->all->param[i].key);
    ct_status status =
        (array.text != NULL) ? CT_OK : CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", d->file);
    bool found = false;

    *v_p = 0;
    for (int from = 0;
         (d->g->rank == 0) && (status == CT_OK) && !found && (from < d->state->n_rank_file); from++)
        status = add_array(d->file, from, array.text, 1, v_p, &(float){ 0 }, &found);
    ct_text_destroy(&array);
    CT_TRY(ct_group_agree(d->g, status));
    return ct_group_broadcast(d->g, v_p, sizeof(*v_p));
}

/* State k of a parameter as numbers whose maximum over the ranks is that of any that has it. */
enum { SAID_HAS, SAID_ONE, SAID_ALIKE, SAID_NAME, SAID_STATE = SAID_NAME + 4 };

static void say_state(const divided *d, int i, int k, int64_t *said, ct_sync_state *e, bool *has_p)
{
    memset(said, 0, SAID_STATE * sizeof(*said));
    *has_p = (own_of(d, i) >= 0) && ct_sync_states_get(&d->x->states, own_of(d, i), k, e);
    if (!*has_p) return;
    said[SAID_HAS] = 1;
    said[SAID_ONE] = (e->count == 1);
    said[SAID_ALIKE] = e->replicated;
    strncpy((char *)&said[SAID_NAME], e->name, 4 * sizeof(*said) - 1);
}

/* Whether this rank's file has state e of parameter i, of the same part. */
static ct_status has_own(const divided *d, ct_h5_reader *r, int i, const ct_sync_state *e,
                         bool *has_p)
{
    const ct_param *p = &d->all->param[i];
    ct_cut then, now;
    bool repeats = false;

    *has_p = false;
    if ((r == NULL) || !has_state(r, e->name, p)) return CT_OK;
    CT_TRY(read_part(r, d->file, p, &then, &repeats));
    now = ct_parts_cut(d->parts, i);
    *has_p = ct_cut_equal(&then, &now) && (repeats == ct_parts_repeats(d->parts, i));
    return CT_OK;
}

static ct_status compare_own(const divided *d, ct_h5_reader *r, bool *same_p)
{
    ct_sync_state e = { 0 };

    for (int i = 0; *same_p && (i < d->all->n_param); i++) {
        for (int k = 0; *same_p && (own_of(d, i) >= 0) &&
                        ct_sync_states_get(&d->x->states, own_of(d, i), k, &e);
             k++)
            CT_TRY(has_own(d, r, i, &e, same_p));
    }
    return CT_OK;
}

/* Whether as many ranks have residuals of each parameter as had. */
static ct_status compare_numbers(const divided *d, bool *same_p)
{
    double *now = calloc((size_t)d->all->n_param + 1, sizeof(*now));
    ct_sync_state e = { 0 };
    ct_status status =
        (now != NULL) ? CT_OK : CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", d->file);

    status = ct_group_agree(d->g, status);
    for (int i = 0; (status == CT_OK) && (i < d->all->n_param); i++)
        now[i] = (own_of(d, i) >= 0) && (kind_now(&d->x->states, own_of(d, i), &e) != NONE);
    if (status == CT_OK) status = ct_group_sum(d->g, now, d->all->n_param);
    for (int i = 0; (status == CT_OK) && (i < d->all->n_param); i++)
        if (now[i] != d->n_residual[i]) *same_p = false;
    free(now);
    return status;
}

/* Whether every rank finds all of its states in its own file, and the files have no others. */
static ct_status is_same(const divided *d, bool *same_p)
{
    bool same = (d->parts != NULL) && (d->state->n_rank == d->g->size), other;
    ct_h5_reader *r = NULL;
    ct_status status = CT_OK;

    CT_TRY(compare_numbers(d, &same));
    if (same) {
        status = open_rank(d->file, d->g->rank, &r);
        if (status == CT_OK) status = compare_own(d, r, &same);
        ct_h5_reader_destroy(r);
    }
    other = !same;
    CT_TRY(agree_any(d->g, status, &other));
    *same_p = !other;
    return CT_OK;
}

static ct_status read_own(const divided *d, int i, const ct_sync_state *e)
{
    ct_text array = ct_state_path("/state", e->name, d->all->param[i].key);
    ct_h5_reader *r = NULL;
    ct_status status = open_rank(d->file, d->g->rank, &r);

    if ((status == CT_OK) && (array.text == NULL))
        status = CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", d->file);
    if ((status == CT_OK) && (r != NULL))
        status = ct_h5_get_floats(r, array.text, e->count, e->data);
    ct_text_destroy(&array);
    ct_h5_reader_destroy(r);
    return status;
}

/* State e of parameter i, where has; said: by all ranks. */
static ct_status deal_out(const divided *d, int i, const int64_t *said, bool has,
                          const ct_sync_state *e)
{
    char name[4 * sizeof(*said)];
    bool found = false;
    float one = 0;

    memcpy(name, &said[SAID_NAME], sizeof(name));
    if (said[SAID_ALIKE] != 0) {
        if (said[SAID_ONE] != 0) CT_TRY(read_number(d, i, name, &one));
        if (has) memset(e->data, 0, (size_t)e->count * sizeof(float));
        if (has && (said[SAID_ONE] != 0)) e->data[0] = one;
        return CT_OK;
    }
    CT_TRY(add_up(d, i, name, &found));
    CT_TRY(ct_group_agree(d->g, check_sharers(d, i)));
    if (!has) return CT_OK;
    take_share(d, i, sharers_of(d, i), e->data);
    return found ? CT_OK : take_momentum(d->net, d->state, sharers_of(d, i), e);
}

/* Caffe keeps nothing of codecs; what these hold of the momentum is the solver's. */
static ct_status begin_anew(const divided *d)
{
    ct_sync_state e = { 0 };
    ct_status status = CT_OK;

    for (int i = 0; i < d->all->n_param; i++) {
        int own = own_of(d, i);

        for (int k = 0; (own >= 0) && ct_sync_states_get(&d->x->states, own, k, &e); k++) {
            memset(e.data, 0, (size_t)e.count * sizeof(float));
            if (status == CT_OK) status = check_sharers(d, i);
            if (status == CT_OK) status = take_momentum(d->net, d->state, sharers_of(d, i), &e);
        }
    }
    return ct_group_agree(d->g, status);
}

static ct_status read_divided(const divided *d)
{
    ct_sync_state e = { 0 };
    bool same = false, has = false;
    int64_t said[SAID_STATE], n = 0;
    ct_status status = CT_OK;

    if (d->state->foreign) return begin_anew(d);
    CT_TRY(is_same(d, &same));
    for (int i = 0; i < d->all->n_param; i++) {
        for (int k = 0;; k++, n++) {
            say_state(d, i, k, said, &e, &has);
            if (same && !has) break;
            if (same && (status == CT_OK)) status = read_own(d, i, &e);
            if (same) continue;
            CT_TRY(ct_group_max(d->g, said, SAID_STATE));
            if (said[SAID_HAS] == 0) break;
            CT_TRY(deal_out(d, i, said, has, &e));
        }
    }
    CT_TRY(ct_group_agree(d->g, status));
    if ((n > 0) && !same)
        CT_INFO("residuals of the parts of %d ranks were summed and dealt out to those of %d",
                d->state->n_rank, d->g->size);
    return CT_OK;
}

typedef ct_status (*give_fn)(const divided *d, int own, float rate, const float *v);

static ct_status give_gradient(const divided *d, int own, float rate, const float *v)
{
    (void)rate;
    return owe(d->net, &d->net->param[own], v, &d->state->owed);
}

static ct_status give_late(const divided *d, int own, float rate, const float *v)
{
    return ct_residual_drain_add(d->net, &d->state->late, own, rate, v);
}

/* Gives what this rank has of d->sum, divided by n. */
static ct_status give_share(const divided *d, int i, int n, float rate, give_fn give)
{
    int own = own_of(d, i);
    float *v;
    ct_status status;

    if (own < 0) return CT_OK;
    v = ct_mem_acquire((size_t)d->net->param[own].count * sizeof(*v));
    if (v == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for what was left behind");
    take_share(d, i, n, v);
    status = give(d, own, rate, v);
    ct_mem_release(v);
    return status;
}

/* What was not sent of parameter i has no place: `then` it counted in this. */
static ct_status pay_divided(const divided *d, int i, kind then)
{
    bool found = false;
    float rate = 0;

    CT_TRY(add_up(d, i, CT_SYNC_RESIDUAL, &found));
    if (then == OF_GRADIENT) {
        CT_TRY(ct_group_agree(d->g, check_sharers(d, i)));
        return give_share(d, i, sharers_of(d, i), 0, give_gradient);
    }
    CT_TRY(read_number(d, i, CT_SYNC_RATE, &rate));
    return give_share(d, i, 1, rate, give_late);
}

static ct_status go_on_divided(const divided *d, int i)
{
    bool found = false;
    float rate = 0;

    CT_TRY(add_up(d, i, CT_RANK_LATE, &found));
    CT_TRY(read_number(d, i, CT_RANK_LATE_RATE, &rate));
    return give_share(d, i, 1, rate, give_late);
}

static ct_status settle_divided(const divided *d, const int64_t *kind_of)
{
    int n_weight = 0, n_gradient = 0;

    for (int i = 0; i < d->all->n_param; i++) {
        kind then = (kind)kind_of[i];
        ct_sync_state e = { 0 };
        int64_t now = NONE;

        if (then == NONE) continue;
        if (own_of(d, i) >= 0) now = kind_now(&d->x->states, own_of(d, i), &e);
        if ((now != NONE) && (now != (int64_t)then))
            memset(e.data, 0, (size_t)e.count * sizeof(float));
        CT_TRY(ct_group_max(d->g, &now, 1));
        if (now == (int64_t)then) continue;
        CT_TRY(ct_group_agree(d->g, pay_divided(d, i, then)));
        n_weight += (then == OF_UPDATE);
        n_gradient += (then == OF_GRADIENT);
    }
    say_moved(n_weight, n_gradient);
    for (int i = 0; i < d->all->n_param; i++)
        if (kind_of[d->all->n_param + i] != 0) CT_TRY(ct_group_agree(d->g, go_on_divided(d, i)));
    return CT_OK;
}

static ct_status read_parts(divided *d, const int64_t *kind_of)
{
    int64_t most = 0;
    ct_status status = CT_OK;

    for (int i = 0; i < d->all->n_param; i++)
        if (d->all->param[i].count > most) most = d->all->param[i].count;
    d->sum = ct_mem_acquire((size_t)most * sizeof(float));
    d->host = ct_mem_acquire(CT_STORAGE_CHUNK * sizeof(float));
    if ((d->sum == NULL) || (d->host == NULL))
        status = CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", d->file);
    status = ct_group_agree(d->g, status);
    if (status == CT_OK) status = read_divided(d);
    if ((status == CT_OK) && !d->state->foreign) status = settle_divided(d, kind_of);
    ct_mem_release(d->sum);
    ct_mem_release(d->host);
    return status;
}

/* ---- */

static ct_status read_all(const char *file, ct_net *net, ct_snapshot_state *state,
                          const ct_exchange *x, int64_t *kind_of, double *n_residual)
{
    const ct_parts *parts = state->parts;
    const ct_net *all = (parts != NULL) ? parts->whole : net;
    const ct_group *g = (parts != NULL) ? &x->job : &x->data;
    divided d = { file, net, all, parts, g, state, x, n_residual, NULL, NULL };

    if (!state->foreign) {
        CT_TRY(ct_group_agree(g, look_for(file, all, state->n_rank_file, g, kind_of, n_residual)));
        CT_TRY(ct_group_max(g, kind_of, 2 * all->n_param + 1));
    }
    if ((parts == NULL) && (kind_of[2 * all->n_param] == 0)) {
        CT_TRY(read_states(file, net, state, x));
        return state->foreign ? CT_OK : settle(file, net, state, x, kind_of);
    }
    CT_TRY(ct_group_sum(g, n_residual, all->n_param));
    return read_parts(&d, kind_of);
}

ct_status ct_rank_state_read(const char *file, ct_net *net, ct_snapshot_state *state,
                             const ct_exchange *x)
{
    const ct_group *g = (state->parts != NULL) ? &x->job : &x->data;
    size_t n = (size_t)((state->parts != NULL) ? state->parts->whole->n_param : net->n_param);
    int64_t *kind_of = calloc(2 * n + 1, sizeof(*kind_of));
    double *n_residual = calloc(n + 1, sizeof(*n_residual));
    ct_status status = ((kind_of != NULL) && (n_residual != NULL))
                           ? CT_OK
                           : CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", file);

    state->owed = NULL;
    state->late = (ct_residual_drain){ .v = NULL };
    status = ct_group_agree(g, status);
    if (status == CT_OK) status = read_all(file, net, state, x, kind_of, n_residual);
    free(kind_of);
    free(n_residual);
    if (status != CT_OK) {
        if (state->owed != NULL) ct_net_device(net)->mem_release(state->owed);
        state->owed = NULL;
        ct_residual_drain_close(net, &state->late);
        return status;
    }
    return (x->states.restored != NULL) ? x->states.restored(x->states.ctx) : CT_OK;
}
