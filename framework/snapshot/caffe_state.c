#include "framework/snapshot/snapshot_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/base/file.h"
#include "framework/base/text.h"
#include "framework/proto/message.h"
#include "framework/snapshot/h5.h"
#include "framework/snapshot/model.h"
#include "framework/snapshot/set_files.h"
#include "framework/snapshot/disk_file.h"

bool ct_caffe_state_is(const char *file)
{
    static const char title[] = CT_STATE_TITLE;
    char head[sizeof(title) - 1] = { 0 };
    FILE *f = ct_file_open_stream(file);
    bool own;

    if (f == NULL) return false;
    own = (fread(head, 1, sizeof(head), f) == sizeof(head)) &&
          (memcmp(head, title, sizeof(head)) == 0);
    fclose(f);
    if (own) return false;
    if (ct_h5_is_hdf5(file)) return true;
    /* what is neither, but has our name, is one of ours that is damaged */
    return (strlen(file) < 3) || (strcmp(file + strlen(file) - 3, ".h5") != 0);
}

/* Caffe's learnable_params: places in net->param; malloc'ed. */
static ct_status list_params(const ct_net *net, int **list_p, int *n_p)
{
    int *list = calloc((size_t)net->n_param + 1, sizeof(*list)), n = 0;

    if (list == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a solver state");
    for (int l = 0; l < net->n_layer; l++) {
        for (int i = 0; i < net->layer[l]->n_weight; i++) {
            int k = ct_net_param_of(net, l, i);
            const ct_param *p = &net->param[k];

            if ((p->index == i) && (strcmp(p->layer, net->layer[l]->name) == 0)) list[n++] = k;
        }
    }
    *list_p = list;
    *n_p = n;
    return CT_OK;
}

/* What both forms say. */
typedef struct source {
    const char *file;
    Ct__SolverState *binary;
    ct_h5_reader *h5;
    int64_t iteration, step, n_history, last_event;
    double least_loss;
    char *learned_net; /* owned; NULL: not said */
} source;

static ct_status count_history(void *ctx, const char *path)
{
    source *s = ctx;

    if (strchr(path, '/') != NULL)
        return CT_FAIL(CT_ERR_DATA, "%s: /history/%s is no history of Caffe", s->file, path);
    s->n_history++;
    return CT_OK;
}

static ct_status open_h5(source *s)
{
    CT_TRY(ct_h5_reader_create(s->file, NULL, &s->h5));
    if (!ct_h5_has(s->h5, "/iter") || !ct_h5_has(s->h5, "/history"))
        return CT_FAIL(
            CT_ERR_DATA, "%s: no solver state (/iter, /history)%s", s->file,
            ct_h5_has(s->h5, "/data") ? "; it holds weights: start from them with --weights" : "");
    CT_TRY(ct_h5_get_count(s->h5, "/iter", 0, CT_MAX_ITERATION, &s->iteration));
    if (ct_h5_has(s->h5, "/current_step"))
        CT_TRY(ct_h5_get_count(s->h5, "/current_step", 0, CT_MAX_ITERATION, &s->step));
    if (ct_h5_has(s->h5, "/learned_net"))
        CT_TRY(ct_h5_get_text(s->h5, "/learned_net", &s->learned_net));
    return ct_h5_visit(s->h5, "/history", count_history, s);
}

static ct_status open_binary(source *s)
{
    const char *why;
    char *data = NULL;
    size_t size = 0;

    CT_TRY(ct_file_read(s->file, &data, &size));
    s->binary = (Ct__SolverState *)(void *)ct_message_unpack(&ct__solver_state__descriptor, data,
                                                             size, &why);
    free(data);
    if ((s->binary == NULL) || !s->binary->has_iter)
        return CT_FAIL(CT_ERR_DATA, "%s: neither HDF5 nor a whole binary solver state: %s", s->file,
                       (s->binary == NULL) ? why : "it has no iter");
    s->iteration = s->binary->iter;
    s->step = s->binary->current_step;
    s->n_history = (int64_t)s->binary->n_history;
    if ((s->iteration < 0) || (s->step < 0))
        return CT_FAIL(CT_ERR_DATA, "%s: iter is %" PRId64 ", current_step %" PRId64, s->file,
                       s->iteration, s->step);
    if (s->binary->has_minimum_loss) s->least_loss = (double)s->binary->minimum_loss;
    s->last_event = s->binary->iter_last_event;
    if (s->binary->learned_net == NULL) return CT_OK;
    s->learned_net = strdup(s->binary->learned_net);
    return (s->learned_net != NULL) ? CT_OK : CT_FAIL(CT_ERR_NOMEM, "no memory for a file name");
}

static void close_source(source *s)
{
    ct_h5_reader_destroy(s->h5);
    if (s->binary != NULL) ct__solver_state__free_unpacked(s->binary, NULL);
    free(s->learned_net);
}

/* Where the file says, or else beside it: sets are moved. */
static ct_status read_weights(const source *s, const ct_weights *w)
{
    char *beside;
    ct_status status;

    if (s->learned_net == NULL) {
        CT_WARN("%s names no weights (learned_net): those stay as they are", s->file);
        return CT_OK;
    }
    if (access(s->learned_net, R_OK) == 0) return ct_weights_take(s->learned_net, w);
    beside = ct_path_beside(s->file, ct_path_base(s->learned_net));
    if (beside == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a file name");
    status = (access(beside, R_OK) == 0)
                 ? ct_weights_take(beside, w)
                 : CT_FAIL(CT_ERR_IO, "%s: its weights are neither at %s nor at %s", s->file,
                           s->learned_net, beside);
    free(beside);
    return status;
}

/* Values of a binary file, of which those in double precision become floats here. */
static ct_status put_blob(const Ct__BlobProto *blob, ct_storage *storage, int64_t from,
                          int64_t count)
{
    enum { BLOCK = 1024 };
    float block[BLOCK];
    int64_t n = 0;

    if (blob->n_double_data == 0) return ct_storage_put(storage, from, count, blob->data);
    for (int64_t at = 0; at < count; at += n) {
        n = (count - at < BLOCK) ? count - at : BLOCK;
        for (int64_t i = 0; i < n; i++) block[i] = (float)blob->double_data[at + i];
        CT_TRY(ct_storage_put(storage, from + at, n, block));
    }
    return CT_OK;
}

/* History k of the file, which is of parameter p; storage NULL: it is looked at and dropped. */
static ct_status get_history(const source *s, int64_t k, const ct_param *p, ct_storage *storage)
{
    const Ct__BlobProto *blob = NULL;
    char path[48];
    ct_text name = { 0 };
    ct_shape shape = { 0 };
    ct_status status;

    snprintf(path, sizeof(path), "/history/%" PRId64, k);
    if (s->h5 != NULL) {
        CT_TRY(ct_h5_get_shape(s->h5, path, &shape));
    } else {
        blob = s->binary->history[k];
        ct_text_add(&name, "%s: history %" PRId64, s->file, k);
        status = ct_blob_shape(blob, name.failed ? s->file : name.text, &shape);
        ct_text_destroy(&name);
        CT_TRY(status);
    }
    if (!ct_shapes_fit(&shape, &p->blob.data.shape))
        return CT_FAIL(CT_ERR_SHAPE, "%s: history %" PRId64 " has shape %s, but %s has %s", s->file,
                       k, ct_shape_str(&shape).text, p->key,
                       ct_shape_str(&p->blob.data.shape).text);
    if (blob == NULL) return ct_state_read(s->h5, path, &shape, storage, p->offset);
    return (storage != NULL) ? put_blob(blob, storage, p->offset, p->count) : CT_OK;
}

static ct_status read_histories(const source *s, const ct_weights *w, const int *list, int n,
                                const ct_snapshot_state *state)
{
    const ct_net *net = w->net;

    for (int k = 0; k < n * state->n_state; k++) {
        const ct_param *p = &net->param[list[k % n]];
        bool wanted = ct_param_has_history(net, p);

        CT_TRY(get_history(s, k, p, wanted ? &state->history[k / n] : NULL));
    }
    /* an average of the weights, which Caffe has not, begins at them */
    for (int h = state->n_state; h < state->n_history; h++) {
        for (int i = 0; i < net->n_param; i++) {
            const ct_param *p = &net->param[i];

            if (ct_param_has_history(net, p)) CT_TRY(ct_weights_copy(w, p, &state->history[h]));
        }
    }
    return CT_OK;
}

static ct_status read_source(const source *s, const ct_weights *w, const int *list, int n,
                             ct_snapshot_state *state)
{
    if ((s->iteration < 0) || (s->n_history != (int64_t)n * state->n_state))
        return CT_FAIL(CT_ERR_DATA,
                       "%s: iteration %" PRId64 ", %" PRId64
                       " histories; type \"%s\" with this net has %d for each of %d parameters: "
                       "another solver type (Adam and AdaDelta have 2, the others of Caffe 1), or "
                       "another net",
                       s->file, s->iteration, s->n_history, state->solver_type, state->n_state, n);
    CT_TRY(read_weights(s, w));
    CT_TRY(read_histories(s, w, list, n, state));
    state->iteration = s->iteration;
    state->lr_step = s->step;
    state->least_loss = s->least_loss;
    state->last_event = s->last_event;
    state->foreign = true;
    state->n_rank = 1;
    state->n_loss = state->next_loss = 0;
    return CT_OK;
}

ct_status ct_caffe_state_read(const char *file, const ct_weights *w, ct_snapshot_state *state)
{
    source s = { .file = file, .least_loss = CT_NO_LEAST_LOSS };
    int *list = NULL, n = 0;
    ct_status status = ct_h5_is_hdf5(file) ? open_h5(&s) : open_binary(&s);

    if (status == CT_OK) status = list_params(w->net, &list, &n);
    if (status == CT_OK) status = read_source(&s, w, list, n, state);
    free(list);
    close_source(&s);
    return status;
}

/* ---- writing */

enum { ITER = 1, LEARNED_NET = 2, HISTORY = 3, CURRENT_STEP = 4 };

static ct_status add_history(ct_disk_file *d, const ct_net *net, const ct_param *p,
                             ct_storage *history)
{
    const ct_shape *shape = &p->blob.data.shape;
    ct_disk_floats v = { .storage = history, .from = p->offset };
    void *zeros = NULL;
    ct_status status;

    if (!ct_param_has_history(net, p)) { /* Caffe keeps one for weights that do not learn, too */
        v.data = zeros = ct_mem_acquire((size_t)p->count * sizeof(float));
        if (zeros == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a solver state");
    }
    ct_proto_field(d, HISTORY, (uint64_t)ct_proto_blob_size(shape));
    status = ct_proto_blob(d, shape, &v);
    ct_mem_release(zeros);
    return status;
}

ct_status ct_caffe_state_write(const char *path, const char *learned_net, const ct_net *net,
                               const ct_snapshot_state *state, uint64_t *hash_p, int64_t *size_p)
{
    int *list = NULL, n = 0;
    ct_status status;
    ct_disk_file d;

    CT_TRY(list_params(net, &list, &n));
    ct_disk_open(&d, path, 0);
    ct_proto_number(&d, ITER << 3);
    ct_proto_number(&d, (uint64_t)state->iteration);
    ct_proto_field(&d, LEARNED_NET, strlen(learned_net));
    ct_disk_add(&d, learned_net, (int64_t)strlen(learned_net));
    status = CT_OK;
    for (int k = 0; (k < n * state->n_state) && (status == CT_OK); k++)
        status = add_history(&d, net, &net->param[list[k % n]], &state->history[k / n]);
    ct_proto_number(&d, CURRENT_STEP << 3);
    ct_proto_number(&d, (uint64_t)state->lr_step);
    free(list);
    if ((status == CT_OK) && (d.at > INT32_MAX))
        status = CT_FAIL(CT_ERR_DATA, "%s: %" PRId64 " bytes, and Caffe reads at most 2 GiB", path,
                         d.at);
    if (status == CT_OK) return ct_disk_finish(&d, path, hash_p, size_p);
    ct_disk_drop(&d, path);
    return status;
}
