/* Weights of a net to a file and back: whole, for snapshots, and by layer name, for --weights. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/hash.h"
#include "framework/base/text.h"
#include "framework/snapshot/model.h"
#include "framework/snapshot/set_files.h"
#include "framework/snapshot/snapshot.h"
#include "framework/snapshot/snapshot_impl.h"

enum { MAX_LISTED = 12 }; /* of the differences in one message */

ct_status ct_weights_write(const char *path, const ct_weights *w, ct_storage *learned,
                           const ct_model_format *format, const char *provenance, uint64_t *hash_p,
                           int64_t *size_p)
{
    ct_model *m = NULL;
    ct_status status;

    if (learned == NULL) learned = w->learned;
    CT_TRY(ct_model_of_net(w->net, w->storage, learned, &m));
    status = ct_model_write(m, format, path, provenance, hash_p, size_p);
    ct_model_close(m);
    return status;
}

ct_status ct_model_save(ct_model *m, const char *file)
{
    const ct_model_format *format;
    char *temp;
    uint64_t hash;
    int64_t size;
    ct_status status;

    CT_TRY(ct_model_format_of(file, &format));
    CT_TRY(ct_model_load(m));
    temp = ct_path_temp(file);
    if (temp == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to write %s", file);
    status = ct_model_write(m, format, temp, NULL, &hash, &size);
    if (status == CT_OK) status = ct_file_commit(temp, file);
    free(temp);
    return status;
}

typedef struct fit_ctx {
    const ct_net *net;
    const ct_model *model;
    ct_text differences;
    int n_difference;
    bool other_shape; /* of a weight that both have */
} fit_ctx;

static ct_text *difference(fit_ctx *c)
{
    static const char separator[] = "; ";
    ct_text *t = &c->differences;

    if (c->n_difference++ >= MAX_LISTED) return NULL;
    if (t->length > 0) ct_text_add_bytes(t, separator, sizeof(separator) - 1);
    return t;
}

static const ct_model_array *find_array(const ct_model *m, const char *layer, int index, int *l_p)
{
    int l = ct_model_find(m, layer);

    *l_p = l;
    if ((l < 0) || (index >= m->layer[l].n_array) || !m->layer[l].array[index].present) return NULL;
    return &m->layer[l].array[index];
}

/* In files weights are whole. */
static const ct_shape *shape_in_file(const ct_param *p)
{
    return (p->cut->n_range > 0) ? &p->cut->whole : &p->blob.data.shape;
}

/* Whether a file may have array i: parts behind the first may be without the bias. */
static bool is_expected(const ct_layer *l, int i)
{
    return (i < l->n_weight) || !ct_layer_is_first(l);
}

/* An array of the file that no weight of the net is. */
static void check_extra(fit_ctx *c, const ct_model_layer *layer)
{
    int l = ct_net_find_layer(c->net, layer->name);

    for (int i = 0; i < layer->n_array; i++) {
        bool fits = (l >= 0) && is_expected(c->net->layer[l], i);
        ct_text *t = (layer->array[i].present && !fits) ? difference(c) : NULL;

        if (t != NULL) ct_text_add(t, "%s/%d is not in the net", layer->name, i);
    }
}

static void check_param(fit_ctx *c, const ct_param *p)
{
    int l;
    const ct_model_array *a = find_array(c->model, p->layer, p->index, &l);
    ct_text *t;

    if ((a != NULL) && ct_shape_equal(&a->shape, shape_in_file(p))) return;
    c->other_shape = c->other_shape || (a != NULL);
    if ((t = difference(c)) == NULL) return;
    if (a == NULL)
        ct_text_add(t, "%s/%d is not in the file", p->layer, p->index);
    else
        ct_text_add(t, "%s/%d is %s in the file, %s in the net", p->layer, p->index,
                    ct_shape_str(&a->shape).text, ct_shape_str(shape_in_file(p)).text);
}

static ct_status check_fit(const ct_model *m, const ct_net *net)
{
    fit_ctx c = { .net = net, .model = m };
    ct_status status = CT_OK;

    for (int i = 0; i < net->n_param; i++) check_param(&c, &net->param[i]);
    for (int l = 0; l < m->n_layer; l++) check_extra(&c, &m->layer[l]);
    if (c.n_difference > MAX_LISTED)
        ct_text_add(&c.differences, "; and %d more", c.n_difference - MAX_LISTED);
    if (c.n_difference > 0)
        status = CT_FAIL(c.other_shape ? CT_ERR_SHAPE : CT_ERR_DATA,
                         "%s is of another net than \"%s\": %s", m->file,
                         (net->name != NULL) ? net->name : "",
                         (c.differences.text != NULL) ? c.differences.text : "");
    ct_text_destroy(&c.differences);
    return status;
}

/* What the net has of an array of the file. */
static ct_status get(ct_model *m, int layer, int index, const ct_param *p, float *host)
{
    CT_TRY(ct_model_get(m, layer, index, host));
    if (p->cut->n_range > 0) ct_cut_take(p->cut, host, host);
    return CT_OK;
}

/* To where the weights are. */
static ct_status put(const ct_weights *w, const ct_param *p, const float *host)
{
    ct_storage *storage = ct_weights_storage(w, p);

    if (storage != NULL) return ct_storage_put(storage, p->offset, p->count, host);
    return ct_net_device(w->net)->from_host(NULL, ct_blob_data(&p->blob), host,
                                            (size_t)p->count * sizeof(float));
}

static ct_status read_param(ct_model *m, const ct_weights *w, const ct_param *p, float *host)
{
    int l;

    (void)find_array(m, p->layer, p->index, &l);
    CT_TRY(get(m, l, p->index, p, host));
    return put(w, p, host);
}

/* Host memory for the largest parameter of the net, whole; for ct_mem_release(). */
static ct_status acquire_largest(const ct_model *m, const ct_net *net, float **host_p)
{
    int64_t most = 0;

    for (int i = 0; i < net->n_param; i++) {
        int64_t count = ct_shape_count(shape_in_file(&net->param[i]), 0, -1);

        most = (count > most) ? count : most;
    }
    *host_p = ct_mem_acquire((size_t)most * sizeof(float));
    if (*host_p == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", m->file);
    return CT_OK;
}

static ct_status read_all(ct_model *m, const ct_weights *w)
{
    const ct_net *net = w->net;
    ct_status status = CT_OK;
    float *host;

    CT_TRY(check_fit(m, net));
    CT_TRY(acquire_largest(m, net, &host));
    for (int i = 0; (i < net->n_param) && (status == CT_OK); i++)
        status = read_param(m, w, &net->param[i], host);
    ct_mem_release(host);
    return status;
}

ct_status ct_weights_read(const char *path, const ct_weights *w)
{
    ct_model *m = NULL;
    ct_status status;

    CT_TRY(ct_net_check_weights(w->net));
    CT_TRY(ct_model_open(path, &m));
    status = read_all(m, w);
    ct_model_close(m);
    return status;
}

/* ---- --weights: copies weights by layer name from a file of any format, and says which layers
 * were loaded, which the file does not have, which of the file the net does not have, and which do
 * not fit. */

static bool has_weights(const ct_model *m, const char *layer)
{
    int l = ct_model_find(m, layer);

    return (l >= 0) && (m->layer[l].n_array > 0);
}

static bool is_owner(const ct_net *net, int l, int i)
{
    const ct_param *p = &net->param[ct_net_param_of(net, l, i)];

    return (p->index == i) && (strcmp(p->layer, net->layer[l]->name) == 0);
}

/* Layer l of the net can take what the file has under its name. */
static ct_status check_layer(const ct_model *m, const ct_model_layer *from, const ct_net *net,
                             int l)
{
    const char *name = net->layer[l]->name;
    int n_weight = net->layer[l]->n_weight;

    if (from->n_array == 0) return CT_OK; /* named, but without weights: as if not there */
    for (int i = 0; i < n_weight; i++) {
        const ct_param *p = &net->param[ct_net_param_of(net, l, i)];
        const ct_model_array *a =
            ((i < from->n_array) && from->array[i].present) ? &from->array[i] : NULL;

        if ((a == NULL) && !is_owner(net, l, i)) continue; /* shared: it comes with its owner */
        if (a == NULL)
            return CT_FAIL(CT_ERR_SHAPE, "%s: blob %d of layer \"%s\" is missing; the net has %d",
                           m->file, i, name, n_weight);
        if (!ct_shapes_fit(&a->shape, shape_in_file(p)))
            return CT_FAIL(CT_ERR_SHAPE,
                           "%s: blob %d of layer \"%s\" has shape %s in the file, %s in the net; "
                           "to train this layer from scratch, rename it",
                           m->file, i, name, ct_shape_str(&a->shape).text,
                           ct_shape_str(shape_in_file(p)).text);
    }
    if ((from->n_array > 0) && !is_expected(net->layer[l], from->n_array - 1))
        return CT_FAIL(CT_ERR_SHAPE,
                       "%s: layer \"%s\" has more blobs in the file than the net's %d", m->file,
                       name, n_weight);
    return CT_OK;
}

typedef struct comparison {
    const float *host; /* to compare with; moves on */
    bool differs;
} comparison;

static ct_status compare_chunk(void *ctx, int64_t from, int64_t count, float *host)
{
    comparison *c = ctx;

    (void)from;
    if (memcmp(c->host, host, (size_t)count * sizeof(*host)) != 0) c->differs = true;
    c->host += count;
    return CT_OK;
}

/* A net whose layers share a weight, and a file where they do not: it is said which one is taken.
 */
static ct_status compare_shared(const ct_model *m, const ct_weights *w, int l, int i,
                                const float *host)
{
    const ct_net *net = w->net;
    const ct_param *p = &net->param[ct_net_param_of(net, l, i)];
    ct_storage of_param = { .ops = NULL }, *owner = ct_weights_storage(w, p);
    comparison c = { .host = host };

    if (is_owner(net, l, i) || !has_weights(m, p->layer)) return CT_OK;
    if (owner == NULL) {
        of_param = ct_storage_at(ct_net_device(net), ct_blob_data(&p->blob), p->count);
        owner = &of_param;
    }
    CT_TRY(ct_storage_each(owner, (owner == &of_param) ? 0 : p->offset, p->count, CT_STORAGE_READ,
                           compare_chunk, &c));
    if (c.differs)
        CT_WARN("%s: %s/%d and %s/%d differ, and the net shares them: the values of %s are taken",
                m->file, p->layer, p->index, net->layer[l]->name, i, net->layer[l]->name);
    return CT_OK;
}

static ct_status copy_layer(ct_model *m, int from, const ct_weights *w, int l, float *host)
{
    const ct_net *net = w->net;

    for (int i = 0; (i < m->layer[from].n_array) && (i < net->layer[l]->n_weight); i++) {
        const ct_param *p = &net->param[ct_net_param_of(net, l, i)];

        if (!m->layer[from].array[i].present) continue;
        CT_TRY(get(m, from, i, p, host));
        CT_TRY(compare_shared(m, w, l, i, host));
        CT_TRY(put(w, p, host));
    }
    return CT_OK;
}

/* The name among the file's layers that the net has no use for. */
static const char *nearest(const ct_model *m, const ct_net *net, const char *name)
{
    const char **unused = calloc((size_t)m->n_layer + 1, sizeof(*unused)), *near;
    int n = 0;

    if (unused == NULL) return NULL;
    for (int i = 0; i < m->n_layer; i++)
        if ((m->layer[i].n_array > 0) && (ct_net_find_layer(net, m->layer[i].name) < 0))
            unused[n++] = m->layer[i].name;
    near = ct_text_nearest(name, unused, n);
    free(unused);
    return near;
}

/* Layers whose weights are all others' come with their owners. */
static bool owns_weights(const ct_net *net, int l)
{
    for (int i = 0; i < net->layer[l]->n_weight; i++)
        if (is_owner(net, l, i)) return true;
    return false;
}

static void add_without(const ct_model *m, const ct_net *net, const ct_layer *l, ct_text *t)
{
    const char *near = nearest(m, net, l->name);

    ct_text_add(t, " %s", l->name);
    for (int i = 0; i < l->n_weight; i++)
        ct_text_add(t, "%s%s", (i > 0) ? ", " : " [", ct_shape_str(&l->weight[i].shape).text);
    ct_text_add(t, "]");
    if (near != NULL) ct_text_add(t, " (the file has %s)", near);
    ct_text_add(t, ";");
}

static void add_ignored(const ct_model_layer *l, ct_text *t)
{
    const char *lead = " [";

    ct_text_add(t, " %s", l->name);
    for (int i = 0; i < l->n_array; i++) {
        if (!l->array[i].present) continue;
        ct_text_add(t, "%s%s", lead, ct_shape_str(&l->array[i].shape).text);
        lead = ", ";
    }
    ct_text_add(t, "];");
}

/* Says which layers the file leaves alone and which of its layers the net does not have. */
static ct_status report_layers(const ct_model *m, const ct_net *net)
{
    ct_text without = { 0 }, ignored = { 0 };
    int n_loaded = 0, n_without = 0, n_ignored = 0;

    for (int l = 0; l < net->n_layer; l++) {
        if (net->layer[l]->n_weight == 0) continue;
        if (has_weights(m, net->layer[l]->name)) {
            n_loaded++;
        } else if (owns_weights(net, l)) {
            add_without(m, net, net->layer[l], &without);
            n_without++;
        }
    }
    for (int i = 0; i < m->n_layer; i++) {
        if ((m->layer[i].n_array == 0) || (ct_net_find_layer(net, m->layer[i].name) >= 0)) continue;
        add_ignored(&m->layer[i], &ignored);
        n_ignored++;
    }
    if (n_loaded > 0)
        CT_INFO("Finetuning from %s: weights of %d layers, %d of the net not there, %d there not "
                "in the net",
                m->file, n_loaded, n_without, n_ignored);
    if (without.text != NULL) CT_INFO("not in that file, left as they were:%s", without.text);
    if (ignored.text != NULL) CT_INFO("Ignoring source layer%s", ignored.text);
    ct_text_destroy(&without);
    ct_text_destroy(&ignored);
    if (n_loaded == 0)
        return CT_FAIL(CT_ERR_DATA, "%s: none of its layers has the name of a layer of the net",
                       m->file);
    return CT_OK;
}

/* All that do not fit are said before any is taken. */
static ct_status check(const ct_model *m, const ct_net *net)
{
    ct_status worst = CT_OK;

    for (int l = 0; l < net->n_layer; l++) {
        int from = ct_model_find(m, net->layer[l]->name);
        ct_status status = (from >= 0) ? check_layer(m, &m->layer[from], net, l) : CT_OK;

        if (status != CT_OK) worst = status;
    }
    return worst;
}

static ct_status load(ct_model *m, const ct_weights *w)
{
    const ct_net *net = w->net;
    ct_status status = CT_OK;
    float *host;

    CT_TRY(check(m, net));
    CT_TRY(report_layers(m, net));
    CT_TRY(acquire_largest(m, net, &host));
    for (int l = 0; (l < net->n_layer) && (status == CT_OK); l++) {
        int from = ct_model_find(m, net->layer[l]->name);

        if (from >= 0) status = copy_layer(m, from, w, l, host);
    }
    ct_mem_release(host);
    return status;
}

ct_status ct_weights_take(const char *file, const ct_weights *w)
{
    ct_model *m = NULL;
    ct_status status;

    CT_TRY(ct_net_check_weights(w->net));
    CT_TRY(ct_model_open(file, &m));
    status = load(m, w);
    ct_model_close(m);
    return status;
}

ct_status ct_weights_load(const char *file, ct_net *net)
{
    ct_status status = ct_weights_take(file, &(ct_weights){ .net = net });

    ct_net_weights_changed(net);
    return status;
}

ct_status ct_weights_load_parts(const char *file, const ct_parts *p, ct_storage *whole)
{
    return ct_weights_take(file, &(ct_weights){ .net = p->whole, .storage = whole });
}

ct_status ct_weights_load_learned(const char *file, const ct_net *net, ct_storage *learned)
{
    return ct_weights_take(file, &(ct_weights){ .net = net, .learned = learned });
}

static ct_status hash_chunk(void *ctx, int64_t from, int64_t count, float *host)
{
    (void)from;
    ct_hash_add(ctx, host, (size_t)count * sizeof(*host));
    return CT_OK;
}

ct_status ct_weights_checksum(const ct_weights *w, uint64_t *sum_p)
{
    ct_hash h;

    ct_hash_init(&h);
    for (int i = 0; i < w->net->n_param; i++) {
        const ct_param *p = &w->net->param[i];
        ct_storage *storage = ct_weights_storage(w, p);

        if (storage != NULL)
            CT_TRY(ct_storage_each(storage, p->offset, p->count, CT_STORAGE_READ, hash_chunk, &h));
        else
            ct_hash_add(&h, ct_blob_data(&p->blob), (size_t)p->count * sizeof(float));
    }
    *sum_p = ct_hash_value(&h);
    return CT_OK;
}

ct_status ct_weights_checksum_learned(const ct_net *net, ct_storage *learned, uint64_t *sum_p)
{
    return ct_weights_checksum(&(ct_weights){ .net = net, .learned = learned }, sum_p);
}

static ct_status copy_chunk(void *ctx, int64_t from, int64_t count, float *host)
{
    return ct_storage_put(ctx, from, count, host);
}

ct_status ct_weights_copy(const ct_weights *w, const ct_param *p, ct_storage *history)
{
    ct_storage *storage = ct_weights_storage(w, p);

    if (storage == NULL)
        return ct_storage_copy(history, p->offset, p->count, ct_blob_data(&p->blob));
    return ct_storage_each(storage, p->offset, p->count, CT_STORAGE_READ, copy_chunk, history);
}

/* ---- several files */

ct_status ct_weights_load_list(const char *files, ct_net *net)
{
    char *list = strdup(files);
    ct_status status = CT_OK;

    if (list == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a file name");
    for (char *rest = list, *at; (status == CT_OK) && ((at = strsep(&rest, ",")) != NULL);) {
        status = ct_weights_load(at, net);
    }
    free(list);
    return status;
}

/* Whether files must have it: a lone factor, as Normalize's, is what its filler says. */
static bool is_needed(const ct_param *p)
{
    return (p->count > 0) && (p->blob.data.shape.ndim > 0);
}

ct_status ct_weights_load_all(const char *files, ct_net *net)
{
    CT_TRY(ct_net_check_weights(net));
    for (int i = 0; i < net->n_param; i++) {
        const ct_param *p = &net->param[i];

        for (int64_t k = 0; is_needed(p) && (k < p->count); k++) ct_blob_data(&p->blob)[k] = NAN;
    }
    CT_TRY(ct_weights_load_list(files, net));
    for (int i = 0; i < net->n_param; i++) {
        const ct_param *p = &net->param[i];

        if (is_needed(p) && isnan(ct_blob_data(&p->blob)[0]))
            return CT_FAIL(CT_ERR_DATA, "%s: no weight %d of layer \"%s\", or it is no number",
                           files, p->index, p->layer);
    }
    return CT_OK;
}

/* ---- arrays as host memory */

ct_status ct_host_copy_take(const ct_device *dev, const float *data, int64_t count,
                            ct_host_copy *copy_p)
{
    size_t bytes = (size_t)count * sizeof(float);
    void *block;

    *copy_p = (ct_host_copy){ .data = data };
    if (dev->kind == CT_DEVICE_CPU) return CT_OK;
    block = ct_mem_acquire(bytes);
    if (block == NULL)
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %" PRId64 " weights on the host", count);
    *copy_p = (ct_host_copy){ .data = block, .owned = block };
    return dev->to_host(NULL, block, data, bytes);
}

void ct_host_copy_release(ct_host_copy *copy)
{
    ct_mem_release(copy->owned);
    *copy = (ct_host_copy){ 0 };
}
