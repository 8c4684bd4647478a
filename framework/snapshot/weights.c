#include "framework/snapshot/weights.h"

#include <stdlib.h>
#include <string.h>

#include "framework/base/text.h"
#include "framework/snapshot/host_copy.h"
#include "framework/snapshot/set_files.h"
#include "framework/snapshot/snapshot.h"

enum { MAX_LISTED = 12 }; /* of the differences in one message */

ct_status ct_weights_write(const char *path, const ct_net *net, const float *learned,
                           const ct_model_format *format, const char *provenance, uint64_t *hash_p,
                           int64_t *size_p)
{
    ct_model *m = NULL;
    ct_status status;

    CT_TRY(ct_model_of_net(net, learned, &m));
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

/* An array of the file that no weight of the net is. */
static void check_extra(fit_ctx *c, const ct_model_layer *layer)
{
    int l = ct_net_find_layer(c->net, layer->name);
    int n = (l >= 0) ? c->net->layer[l]->n_weight : 0;

    for (int i = 0; i < layer->n_array; i++) {
        ct_text *t = (layer->array[i].present && (i >= n)) ? difference(c) : NULL;

        if (t != NULL) ct_text_add(t, "%s/%d is not in the net", layer->name, i);
    }
}

static void check_param(fit_ctx *c, const ct_param *p)
{
    int l;
    const ct_model_array *a = find_array(c->model, p->layer, p->index, &l);
    ct_text *t;

    if ((a != NULL) && ct_shape_equal(&a->shape, &p->blob.data.shape)) return;
    c->other_shape = c->other_shape || (a != NULL);
    if ((t = difference(c)) == NULL) return;
    if (a == NULL)
        ct_text_add(t, "%s/%d is not in the file", p->layer, p->index);
    else
        ct_text_add(t, "%s/%d is %s in the file, %s in the net", p->layer, p->index,
                    ct_shape_str(&a->shape).text, ct_shape_str(&p->blob.data.shape).text);
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

static ct_status read_param(ct_model *m, const ct_net *net, const ct_param *p, float *host)
{
    const ct_device *dev = ct_net_device(net);
    int l;

    (void)find_array(m, p->layer, p->index, &l);
    CT_TRY(ct_model_get(m, l, p->index, host));
    return dev->from_host(NULL, ct_blob_data(&p->blob), host, (size_t)p->count * sizeof(float));
}

static ct_status read_all(ct_model *m, ct_net *net)
{
    int64_t most = 0;
    ct_status status = CT_OK;
    float *host;

    CT_TRY(check_fit(m, net));
    for (int i = 0; i < net->n_param; i++)
        most = (net->param[i].count > most) ? net->param[i].count : most;
    host = ct_mem_acquire((size_t)most * sizeof(float));
    if (host == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", m->file);
    for (int i = 0; (i < net->n_param) && (status == CT_OK); i++)
        status = read_param(m, net, &net->param[i], host);
    ct_mem_release(host);
    ct_net_weights_changed(net);
    return status;
}

ct_status ct_weights_read(const char *path, ct_net *net)
{
    ct_model *m = NULL;
    ct_status status;

    CT_TRY(ct_model_open(path, &m));
    status = read_all(m, net);
    ct_model_close(m);
    return status;
}
