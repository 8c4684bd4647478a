#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/base/file.h"
#include "framework/snapshot/h5.h"
#include "framework/snapshot/model.h"
#include "framework/snapshot/set_files.h"
#include "framework/snapshot/snapshot.h"
#include "framework/snapshot/snapshot_impl.h"

/* ---- verifying */

/* Only such can be read to its end: there are devices without one. */
static bool is_regular(const char *path, int64_t *size_p)
{
    struct stat st;

    if (stat(path, &st) != 0) return false;
    errno = EINVAL;
    *size_p = (int64_t)st.st_size;
    return S_ISREG(st.st_mode);
}

/* The solverstate against the hash in its first line. */
static ct_status verify_state(const char *file, ct_text *why)
{
    char head[CT_H5_HEAD + 1] = { 0 }, format[64];
    uint64_t said = 0, hash = 0;
    int64_t size;
    size_t n;
    FILE *f = is_regular(file, &size) ? fopen(file, "rb") : NULL;

    if (f == NULL) {
        ct_text_add(why, "%s: %s", file, strerror(errno));
        return CT_ERR_IO;
    }
    n = fread(head, 1, CT_H5_HEAD, f);
    fclose(f);
    snprintf(format, sizeof(format), "%s %%16" SCNx64, CT_STATE_TITLE);
    if ((n != CT_H5_HEAD) || (sscanf(head, format, &said) != 1)) {
        ct_text_add(why, "%s: no solverstate of cortado, or its first line is damaged", file);
        return CT_ERR_DATA;
    }
    if (ct_h5_file_hash(file, CT_H5_HEAD, &hash, &size) != CT_OK) {
        ct_text_add(why, "%s: cannot be read", file);
        return CT_ERR_IO;
    }
    if (hash != said) {
        ct_text_add(why, "%s: damaged: its hash is %016" PRIx64 ", its first line says %016" PRIx64,
                    file, hash, said);
        return CT_ERR_DATA;
    }
    return CT_OK;
}

static ct_status verify_part(const char *file, const char *name, int64_t size, uint64_t hash,
                             ct_text *why)
{
    char *path = ct_path_beside(file, name);
    int64_t found_size = 0;
    uint64_t found = 0;
    ct_status status;

    if (path == NULL) return CT_ERR_NOMEM;
    status = is_regular(path, &found_size) ? CT_OK : CT_ERR_IO;
    if ((status == CT_OK) && (found_size == size))
        status = ct_h5_file_hash(path, 0, &found, &found_size);
    if (status != CT_OK) {
        ct_text_add(why, "%s: its part %s cannot be read: %s", file, name, strerror(errno));
    } else if (found_size != size) {
        ct_text_add(why, "%s: its part %s has %" PRId64 " bytes, expected %" PRId64, file, name,
                    found_size, size);
        status = CT_ERR_DATA;
    } else if (found != hash) {
        ct_text_add(why,
                    "%s: its part %s is damaged: its hash is %016" PRIx64 ", expected %016" PRIx64,
                    file, name, found, hash);
        status = CT_ERR_DATA;
    }
    free(path);
    return status;
}

static ct_status verify_parts(const char *file, char *parts, ct_text *why)
{
    char *rest = parts, *line;

    while ((line = strsep(&rest, "\n")) != NULL) {
        /* names may have spaces: size and hash are the last two words */
        char *hash = strrchr(line, ' '), *size = NULL;

        if (line[0] == '\0') continue;
        if (hash != NULL) {
            *hash = '\0';
            size = strrchr(line, ' ');
        }
        if (size != NULL) *size = '\0';
        /* parts lie beside the solver state */
        if ((size == NULL) || (strchr(line, '/') != NULL)) {
            ct_text_add(why, "%s: its list of parts is broken", file);
            return CT_ERR_DATA;
        }
        CT_TRY(verify_part(file, line, strtoll(size + 1, NULL, 10), strtoull(hash + 1, NULL, 16),
                           why));
    }
    return CT_OK;
}

static ct_status verify(const char *file, ct_text *why)
{
    ct_h5_reader *r = NULL;
    char *parts = NULL;
    ct_status status;

    CT_TRY(verify_state(file, why));
    CT_TRY(ct_h5_reader_create(file, why, &r));
    status = ct_h5_get_text(r, "/parts", &parts);
    ct_h5_reader_destroy(r);
    if (status == CT_OK) status = verify_parts(file, parts, why);
    free(parts);
    return status;
}

ct_status ct_snapshot_verify(const char *file, char **why_p)
{
    ct_text why = { 0 };
    ct_status status = verify(file, &why);

    if ((status != CT_OK) && (why.text == NULL)) ct_text_add(&why, "%s: cannot be read", file);
    if ((why_p != NULL) && (status != CT_OK)) {
        *why_p = why.text;
    } else {
        ct_text_destroy(&why);
    }
    return status;
}

ct_status ct_snapshot_newest(const char *prefix, char **file_p)
{
    ct_set_entry *list = NULL;
    char *file = NULL;
    int n = 0;
    ct_status status = CT_OK;

    CT_TRY(ct_set_list(prefix, &list, &n));
    for (int i = 0; (i < n) && (file == NULL); i++) {
        char *why = NULL;

        if (!list[i].committed) {
            CT_WARN("snapshot of iteration %" PRId64
                    " at %s was never finished (no .solverstate.h5), skipped",
                    list[i].iteration, prefix);
            continue;
        }
        file = ct_set_path(prefix, list[i].iteration, CT_SET_STATE);
        if (file == NULL) {
            status = CT_FAIL(CT_ERR_NOMEM, "no memory for a file name");
            break;
        }
        if (ct_snapshot_verify(file, &why) == CT_OK) continue;
        CT_WARN("snapshot skipped: %s", (why != NULL) ? why : file);
        free(why);
        free(file);
        file = NULL;
    }
    free(list);
    CT_TRY(status);
    *file_p = file;
    return CT_OK;
}

/* Beside the solver state of a set. */
static ct_status weights_beside(const char *state, char **file_p)
{
    static const char *const suffix[] = { CT_SET_AVERAGE, CT_SET_AVERAGE_BINARY, CT_SET_WEIGHTS,
                                          CT_SET_BINARY };
    size_t stem = strlen(state) - strlen(CT_SET_STATE);

    *file_p = NULL;
    for (int i = 0; (i < 4) && (*file_p == NULL); i++) {
        ct_text t = { 0 };

        ct_text_add(&t, "%.*s%s", (int)stem, state, suffix[i]);
        if (t.failed) return CT_FAIL(CT_ERR_NOMEM, "no memory for a file name");
        if (access(t.text, R_OK) == 0)
            *file_p = t.text;
        else
            ct_text_destroy(&t);
    }
    return CT_OK;
}

ct_status ct_snapshot_newest_weights(const char *prefix, char **file_p)
{
    char *state = NULL;
    ct_status status;

    *file_p = NULL;
    CT_TRY(ct_snapshot_newest(prefix, &state));
    if (state == NULL) return CT_OK;
    status = weights_beside(state, file_p);
    free(state);
    return status;
}

ct_status ct_set_weights(const char *prefix, int64_t iteration, char **file_p)
{
    char *state = ct_set_path(prefix, iteration, CT_SET_STATE), *why = NULL;
    ct_status status = CT_OK;

    *file_p = NULL;
    if (state == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a file name");
    if (ct_snapshot_verify(state, &why) == CT_OK)
        status = weights_beside(state, file_p);
    else
        CT_WARN("snapshot skipped: %s", (why != NULL) ? why : state);
    free(why);
    free(state);
    return status;
}

/* ---- reading */

/* What people give instead of a solverstate. */
static ct_status check_kind(const char *file)
{
    struct stat st;

    if ((access(file, R_OK) != 0) || (stat(file, &st) != 0))
        return CT_FAIL(CT_ERR_IO, "%s: %s", file, ct_path_why(file, errno).text);
    if (!S_ISREG(st.st_mode))
        return CT_FAIL(CT_ERR_IO, "%s: %s", file,
                       ct_file_reason(S_ISDIR(st.st_mode) ? EISDIR : EINVAL));
    if (ct_text_ends_with(file, ".caffemodel") || ct_text_ends_with(file, ".caffemodel.h5"))
        return CT_FAIL(CT_ERR_DATA,
                       "%s holds weights only: resuming (--snapshot) needs the .solverstate.h5 "
                       "beside it; to start from these weights use --weights",
                       file);
    return CT_OK;
}

ct_status ct_state_read(ct_h5_reader *r, const char *path, const ct_shape *shape,
                        ct_storage *storage, int64_t from)
{
    int64_t count = ct_shape_count(shape, 0, -1), row = ct_h5_row_floats(shape), n = 0;
    int64_t most = (row < CT_STORAGE_CHUNK) ? CT_STORAGE_CHUNK / row * row : row;
    float *host;
    ct_status status = CT_OK;

    if (count == 0) return CT_OK;
    host = ct_mem_acquire((size_t)((count < most) ? count : most) * sizeof(*host));
    if (host == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", path);
    for (int64_t at = 0; (status == CT_OK) && (at < count); at += n) {
        n = (count - at < most) ? count - at : most;
        status = ct_h5_get_rows(r, path, shape, at, n, host);
        if ((status == CT_OK) && (storage != NULL))
            status = ct_storage_put(storage, from + at, n, host);
    }
    ct_mem_release(host);
    return status;
}

static ct_status get_history(ct_h5_reader *r, const char *file, const char *name,
                             ct_storage *history, const ct_weights *w, const ct_param *p)
{
    ct_text path = ct_state_path("/history", name, p->key);
    ct_shape shape;
    ct_status status;

    if (path.text == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", file);
    if (!ct_h5_has(r, path.text) && (strcmp(name, CT_HISTORY_AVERAGE) == 0)) {
        status = ct_weights_copy(w, p, history);
    } else if (!ct_h5_has(r, path.text) && (strcmp(name, CT_HISTORY_OUTER) == 0)) {
        status = ct_storage_zero(history, p->offset, p->count);
    } else if (!ct_h5_has(r, path.text)) {
        status = CT_FAIL(CT_ERR_DATA,
                         "%s: no optimiser state \"%s\" of %s; was it written by another solver "
                         "type?",
                         file, name, p->key);
    } else {
        status = ct_h5_get_shape(r, path.text, &shape);
        if ((status == CT_OK) && !ct_shapes_fit(&shape, &p->blob.data.shape))
            status =
                CT_FAIL(CT_ERR_SHAPE, "%s: %s has shape %s, but %s has %s", file, path.text,
                        ct_shape_str(&shape).text, p->key, ct_shape_str(&p->blob.data.shape).text);
        if (status == CT_OK) status = ct_state_read(r, path.text, &shape, history, p->offset);
    }
    ct_text_destroy(&path);
    return status;
}

/* The rank of a part "NAME.rankR.h5 SIZE HASH", or -1. */
static int64_t rank_of_part(const char *line, size_t length)
{
    static const char mark[] = ".rank";
    const char *at = NULL;
    char *end;
    long long rank;

    for (const char *p = line; (p = strstr(p, mark)) != NULL && (p < line + length); p++) at = p;
    if ((at == NULL) || !isdigit((unsigned char)at[sizeof(mark) - 1])) return -1;
    rank = strtoll(at + sizeof(mark) - 1, &end, 10);
    return (strncmp(end, ".h5 ", 4) == 0) ? (int64_t)rank : -1;
}

/* *n_p: 1 beyond the last rank that has a file. Few of the ranks below it may have none, because
 * every reader asks for each. */
static ct_status get_rank_files(ct_h5_reader *r, const char *file, int n_rank, int *n_p)
{
    enum { NODE = 4096 }; /* ranks, of which one at least has a file */
    int64_t n_file = 0, last = -1;
    char *parts = NULL;

    CT_TRY(ct_h5_get_text(r, "/parts", &parts));
    for (const char *line = parts; *line != '\0';) {
        size_t length = strcspn(line, "\n");
        int64_t rank = rank_of_part(line, length);

        if (rank >= 0) n_file++;
        if (rank > last) last = rank;
        line += length + ((line[length] == '\n') ? 1 : 0);
    }
    free(parts);
    if ((last >= n_rank) || (last >= n_file * NODE))
        return CT_FAIL(CT_ERR_DATA,
                       "%s: /parts has %" PRId64 " files of ranks, one of rank %" PRId64
                       "; /n_rank is %d",
                       file, n_file, last, n_rank);
    *n_p = (int)(last + 1);
    return CT_OK;
}

/* A positive number that the run multiplies with, or compares. */
static ct_status get_real(ct_h5_reader *r, const char *file, const char *path, bool positive,
                          double *v_p)
{
    double v = 0.0;
    int64_t n = 0;

    CT_TRY(ct_h5_get_doubles(r, path, 1, &v, &n));
    if ((n != 1) || !isfinite(v) || (positive && (v <= 0.0)))
        return CT_FAIL(CT_ERR_DATA, "%s: %s is %g, expected a %snumber", file, path,
                       (n == 1) ? v : (double)NAN, positive ? "positive " : "");
    *v_p = v;
    return CT_OK;
}

/* A set of the list of the best, from three numbers. */
static bool take_best_set(const double *v, ct_best_set *set)
{
    if (!(v[0] >= 0.0) || !(v[0] <= (double)CT_MAX_ITERATION) || (floor(v[0]) != v[0]))
        return false;
    *set = (ct_best_set){ .iteration = (int64_t)v[0], .value = v[1], .own = (v[2] != 0.0) };
    return isfinite(v[1]);
}

static ct_status get_best(ct_h5_reader *r, const char *file, ct_best *b)
{
    double v[3 * (CT_MAX_BEST + 1)];
    char *metric = NULL;
    int64_t n = 0;

    *b = (ct_best){ .tested = -1 };
    if (!ct_h5_has(r, CT_STATE_BEST "/metric")) return CT_OK;
    CT_TRY(ct_h5_get_text(r, CT_STATE_BEST "/metric", &metric));
    snprintf(b->metric, sizeof(b->metric), "%s", metric);
    free(metric);
    CT_TRY(ct_h5_get_doubles(r, CT_STATE_BEST "/sets", 3 * (CT_MAX_BEST + 1), v, &n));
    CT_TRY(ct_h5_get_count(r, CT_STATE_BEST "/tested", 0, CT_MAX_ITERATION, &b->tested));
    CT_TRY(ct_h5_get_count(r, CT_STATE_BEST "/waited", 0, CT_MAX_ITERATION, &b->waited));
    for (b->n = 0; 3 * b->n + 3 <= n; b->n++)
        if (!take_best_set(v + 3 * b->n, &b->set[b->n])) break;
    if (3 * b->n == n) return CT_OK;
    return CT_FAIL(CT_ERR_DATA,
                   "%s: " CT_STATE_BEST "/sets has %" PRId64
                   " numbers, of which those of set %d are no iteration, value and mark",
                   file, n, b->n);
}

static ct_status get_optional(ct_h5_reader *r, const char *file, ct_snapshot_state *state)
{
    state->least_loss = CT_NO_LEAST_LOSS;
    if (ct_h5_has(r, "/minimum_loss")) {
        CT_TRY(get_real(r, file, "/minimum_loss", false, &state->least_loss));
        CT_TRY(ct_h5_get_count(r, "/iter_last_event", 0, CT_MAX_ITERATION, &state->last_event));
    }
    state->loss_scale = 0.0;
    if (ct_h5_has(r, "/loss_scale")) {
        CT_TRY(get_real(r, file, "/loss_scale", true, &state->loss_scale));
        CT_TRY(ct_h5_get_count(r, "/good_steps", 0, CT_MAX_ITERATION, &state->good_steps));
    }
    return get_best(r, file, &state->best);
}

static ct_status get_scalars(ct_h5_reader *r, const char *file, ct_snapshot_state *state)
{
    const int64_t capacity = (int64_t)(sizeof(state->loss_window) / sizeof(state->loss_window[0]));
    int64_t n_rank = 0, seed = 0, next = 0, n_loss = 0;

    CT_TRY(ct_h5_get_count(r, "/iter", 0, CT_MAX_ITERATION, &state->iteration));
    CT_TRY(ct_h5_get_count(r, "/current_step", 0, CT_MAX_ITERATION, &state->lr_step));
    CT_TRY(ct_h5_get_count(r, "/n_rank", 1, CT_MAX_RANK, &n_rank));
    CT_TRY(ct_h5_get_count(r, "/global_batch", 0, (int64_t)1 << 40, &state->global_batch));
    CT_TRY(ct_h5_get_int(r, "/seed", &seed));
    CT_TRY(ct_h5_get_doubles(r, "/loss_window", capacity, state->loss_window, &n_loss));
    CT_TRY(ct_h5_get_count(r, "/next_loss", 0, n_loss, &next));
    CT_TRY(get_optional(r, file, state));
    state->n_rank = (int)n_rank;
    state->seed = (uint64_t)seed;
    state->n_loss = (int)n_loss;
    state->next_loss = (int)next;
    return get_rank_files(r, file, state->n_rank, &state->n_rank_file);
}

/* The weights file of the set: learned_net, beside the solverstate. */
static ct_status get_weights(ct_h5_reader *r, const char *file, const ct_weights *w)
{
    char *name = NULL, *path = NULL;
    ct_status status;

    CT_TRY(ct_h5_get_text(r, "/learned_net", &name));
    path = ct_path_beside(file, name);
    status = (path != NULL) ? ct_weights_read(path, w)
                            : CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", file);
    free(path);
    free(name);
    return status;
}

static ct_status read_shared(const char *file, const ct_weights *w, ct_snapshot_state *state)
{
    const ct_net *net = w->net;
    ct_h5_reader *r = NULL;
    char *why = NULL;
    ct_status status;

    CT_TRY(check_kind(file));
    if (ct_caffe_state_is(file)) return ct_caffe_state_read(file, w, state);
    status = ct_snapshot_verify(file, &why);
    if (status != CT_OK) {
        status = CT_FAIL(status, "%s", (why != NULL) ? why : file);
        free(why);
        return status;
    }
    CT_TRY_GOTO(status, out, ct_h5_reader_create(file, NULL, &r));
    CT_TRY_GOTO(status, out, get_weights(r, file, w)); /* first: it knows what fits */
    for (int h = 0; h < state->n_history; h++) {
        for (int i = 0; i < net->n_param; i++) {
            if (!ct_param_has_history(net, &net->param[i])) continue;
            CT_TRY_GOTO(status, out,
                        get_history(r, file, state->history_name[h], &state->history[h], w,
                                    &net->param[i]));
        }
    }
    status = get_scalars(r, file, state);
out:
    ct_h5_reader_destroy(r);
    return status;
}

static ct_status broadcast_chunk(void *ctx, int64_t from, int64_t count, float *host)
{
    (void)from;
    return ct_group_broadcast(ctx, host, (size_t)count * sizeof(*host));
}

/* Rank 0's state to everyone, chunk by chunk. */
static ct_status broadcast_state(const ct_group *g, ct_storage *s)
{
    ct_storage_use use = (g->rank == 0) ? CT_STORAGE_READ : CT_STORAGE_WRITE;
    ct_group group = *g;

    return ct_storage_each(s, 0, s->count, use, broadcast_chunk, &group);
}

/* Rank 0's arena to everyone, through the host where it lies on a device. */
static ct_status broadcast_floats(const ct_group *g, const ct_device *dev, float *data,
                                  int64_t count)
{
    size_t bytes = (size_t)count * sizeof(float);
    void *host;
    ct_status status;

    if (dev->kind == CT_DEVICE_CPU) return ct_group_broadcast(g, data, bytes);
    host = ct_mem_acquire(bytes);
    if (host == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %zu bytes on the host", bytes);
    status = dev->to_host(NULL, host, data, bytes);
    if (status == CT_OK) status = ct_group_broadcast(g, host, bytes);
    if (status == CT_OK) status = dev->from_host(NULL, data, host, bytes);
    ct_mem_release(host);
    return status;
}

/* Takes what a set says; the pointers of another rank, or of a while, mean nothing. */
static void take_scalars(const ct_snapshot_state *from, ct_snapshot_state *state)
{
    ct_snapshot_state copy = *from;

    copy.parts = state->parts;
    copy.shards = state->shards;
    copy.weights = state->weights;
    copy.n_history = state->n_history;
    copy.history = state->history;
    copy.history_name = state->history_name;
    copy.average = state->average;
    copy.solver_type = state->solver_type;
    copy.provenance = state->provenance;
    copy.plan = state->plan;
    *state = copy;
}

static ct_status broadcast_shared(const ct_group *g, ct_net *net, ct_snapshot_state *state)
{
    const ct_device *dev = ct_net_device(net);
    ct_snapshot_state copy = *state;

    CT_TRY(ct_group_broadcast(g, &copy, sizeof(copy)));
    take_scalars(&copy, state);
    ct_net_weights_changed(net);
    if (state->parts != NULL) return CT_OK; /* they were sent as they were read */
    if (state->weights == NULL)
        CT_TRY(broadcast_floats(g, dev, net->weight_arena, net->weight_count));
    else
        CT_TRY(ct_net_broadcast_rest(net, g));
    if ((state->weights != NULL) && (state->shards == NULL))
        CT_TRY(broadcast_state(g, state->weights));
    for (int h = 0; (state->shards == NULL) && (h < state->n_history); h++)
        CT_TRY(broadcast_state(g, &state->history[h]));
    return CT_OK;
}

typedef struct parts_reading {
    const char *file;
    ct_snapshot_state *state;
    ct_net *net;
} parts_reading;

static ct_status read_whole(void *ctx, ct_storage *whole)
{
    const parts_reading *p = ctx;
    ct_snapshot_state state = *p->state;
    ct_weights of = { .net = p->net };

    state.history = ((state.parts != NULL) || (state.weights != NULL)) ? whole + 1 : whole;
    if (state.parts != NULL) of = (ct_weights){ .net = state.parts->whole, .storage = whole };
    if (state.weights != NULL) of.learned = whole;
    CT_TRY(read_shared(p->file, &of, &state));
    take_scalars(&state, p->state);
    return CT_OK;
}

/* Of ranks that have parts, rank 0 reads array by array, and the others take their parts. */
static ct_status read_parts(const char *file, ct_net *net, ct_snapshot_state *state)
{
    parts_reading reading = { file, state, net };
    ct_storage weights, *own[CT_WHOLE_ARENAS] = { &weights };

    for (int h = 0; h < state->n_history; h++) own[1 + h] = &state->history[h];
    if (state->shards != NULL) {
        int n = (state->weights != NULL) ? 1 : 0;

        own[0] = state->weights;
        return ct_state_shards_run(state->shards, own + 1 - n, n + state->n_history, read_whole,
                                   &reading);
    }
    weights = ct_parts_weights(state->parts);
    return ct_parts_run(state->parts, own, 1 + state->n_history, read_whole, &reading);
}

ct_status ct_snapshot_read(const char *file, ct_net *net, ct_snapshot_state *state,
                           const ct_exchange *exchange)
{
    const ct_group *g = (state->parts != NULL) ? &exchange->job : &exchange->data;
    const ct_carry_groups carriers = ct_carry_groups_of(state->parts, exchange);
    ct_status status = CT_OK;

    if ((state->parts != NULL) || (state->shards != NULL))
        status = read_parts(file, net, state);
    else if (g->rank == 0)
        status = read_shared(file, &(ct_weights){ .net = net, .learned = state->weights }, state);
    CT_TRY(ct_group_agree(g, status));
    CT_TRY(broadcast_shared(g, net, state));
    if (!state->foreign) CT_TRY(ct_carry_read(file, net, &carriers));
    return ct_rank_state_read(file, net, state, exchange);
}

ct_status ct_snapshot_plan(const char *file, char **plan_p)
{
    ct_h5_reader *r = NULL;
    ct_status status;

    *plan_p = NULL;
    if (ct_snapshot_verify(file, NULL) != CT_OK) return CT_OK;
    CT_TRY(ct_h5_reader_create(file, NULL, &r));
    status = ct_h5_has(r, CT_STATE_PLAN) ? ct_h5_get_text(r, CT_STATE_PLAN, plan_p) : CT_OK;
    ct_h5_reader_destroy(r);
    return status;
}
