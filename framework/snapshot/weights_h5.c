#include "framework/snapshot/weights_h5.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/text.h"
#include "framework/snapshot/h5.h"
#include "framework/snapshot/host_copy.h"
#include "framework/snapshot/set_files.h"
#include "framework/snapshot/snapshot.h"

enum { MAX_LISTED = 12 }; /* of the differences in one message */

/* As in Caffe, a shared weight stands with its owner only. Malloc'ed, NULL without memory. */
static char *array_path(const ct_param *p)
{
    ct_text t = { 0 };

    ct_text_add(&t, "/data/%s/%d", p->layer, p->index);
    if (t.failed) ct_text_destroy(&t);
    return t.text;
}

static ct_status put_param(ct_h5_writer *w, const ct_param *p, const float *data)
{
    char *path = array_path(p);
    ct_status status;

    if (path == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to write weights");
    status = ct_h5_put_floats(w, path, &p->blob.data.shape, data);
    free(path);
    return status;
}

ct_status ct_weights_write_h5(const char *path, const ct_net *net, const char *provenance,
                              uint64_t *hash_p, int64_t *size_p)
{
    ct_host_copy *copy = calloc((size_t)net->n_param + 1, sizeof(*copy));
    ct_h5_writer *w = NULL;
    ct_status status;

    if (copy == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to write weights");
    CT_TRY_GOTO(status, out, ct_h5_writer_create(false, &w));
    if (net->name != NULL) CT_TRY_GOTO(status, out, ct_h5_put_attribute(w, "net", net->name));
    if ((provenance != NULL) && (strlen(provenance) < 60000)) /* HDF5's attributes end at 64 KB */
        CT_TRY_GOTO(status, out, ct_h5_put_attribute(w, "provenance", provenance));
    for (int i = 0; i < net->n_param; i++) {
        const ct_param *p = &net->param[i];

        CT_TRY_GOTO(
            status, out,
            ct_host_copy_take(ct_net_device(net), ct_blob_data(&p->blob), p->count, &copy[i]));
        CT_TRY_GOTO(status, out, put_param(w, p, copy[i].data));
    }
    status = ct_h5_writer_finish(w, path, NULL, hash_p, size_p);
out:
    ct_h5_writer_destroy(w);
    for (int i = 0; i < net->n_param; i++) ct_host_copy_release(&copy[i]);
    free(copy);
    return status;
}

ct_status ct_weights_save(const char *file, const ct_net *net)
{
    char *temp = ct_path_temp(file);
    uint64_t hash;
    int64_t size;
    ct_status status;

    if (temp == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to write %s", file);
    status = ct_weights_write_h5(temp, net, NULL, &hash, &size);
    if (status == CT_OK) status = ct_file_commit(temp, file);
    free(temp);
    return status;
}

typedef struct fit_ctx {
    const ct_net *net;
    ct_text differences;
    int n_difference;
} fit_ctx;

static ct_text *difference(fit_ctx *c)
{
    static const char separator[] = "; ";
    ct_text *t = &c->differences;

    if (c->n_difference++ >= MAX_LISTED) return NULL;
    if (t->length > 0) ct_text_add_bytes(t, separator, sizeof(separator) - 1);
    return t;
}

/* An array of the file that no parameter of the net is. */
static ct_status check_extra(void *ctx, const char *path)
{
    const char *slash = strrchr(path, '/');
    fit_ctx *c = ctx;
    ct_text *t;

    for (int i = 0; (slash != NULL) && (i < c->net->n_param); i++) {
        const ct_param *p = &c->net->param[i];

        if ((strlen(p->layer) == (size_t)(slash - path)) &&
            (strncmp(p->layer, path, (size_t)(slash - path)) == 0) && (atoi(slash + 1) == p->index))
            return CT_OK;
    }
    t = difference(c);
    if (t != NULL) ct_text_add(t, "%s is not in the net", path);
    return CT_OK;
}

static ct_status check_param(fit_ctx *c, ct_h5_reader *r, const ct_param *p)
{
    char *path = array_path(p);
    ct_status status = CT_OK;
    ct_shape shape = { 0 };
    ct_text *t;

    if (path == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to read weights");
    if (!ct_h5_has(r, path)) {
        t = difference(c);
        if (t != NULL) ct_text_add(t, "%s is not in the file", path + strlen("/data/"));
    } else {
        CT_TRY_GOTO(status, out, ct_h5_get_shape(r, path, &shape));
        if (!ct_shape_equal(&shape, &p->blob.data.shape) && ((t = difference(c)) != NULL))
            ct_text_add(t, "%s is %s in the file, %s in the net", path + strlen("/data/"),
                        ct_shape_str(&shape).text, ct_shape_str(&p->blob.data.shape).text);
    }
out:
    free(path);
    return status;
}

static ct_status check_fit(const char *file, ct_h5_reader *r, const ct_net *net)
{
    fit_ctx c = { .net = net };
    ct_status status = CT_OK;

    for (int i = 0; i < net->n_param; i++)
        CT_TRY_GOTO(status, out, check_param(&c, r, &net->param[i]));
    CT_TRY_GOTO(status, out, ct_h5_visit(r, "/data", check_extra, &c));
    if (c.n_difference > MAX_LISTED)
        ct_text_add(&c.differences, "; and %d more", c.n_difference - MAX_LISTED);
    if (c.n_difference > 0)
        status = CT_FAIL(CT_ERR_DATA, "%s is of another net than \"%s\": %s", file,
                         (net->name != NULL) ? net->name : "", c.differences.text);
out:
    ct_text_destroy(&c.differences);
    return status;
}

static ct_status read_param(ct_h5_reader *r, const ct_net *net, const ct_param *p, float *host)
{
    const ct_device *dev = ct_net_device(net);
    char *path = array_path(p);
    ct_status status;

    if (path == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to read weights");
    status = ct_h5_get_floats(r, path, p->count, host);
    if (status == CT_OK)
        status =
            dev->from_host(NULL, ct_blob_data(&p->blob), host, (size_t)p->count * sizeof(float));
    free(path);
    return status;
}

ct_status ct_weights_read_h5(const char *path, ct_net *net)
{
    ct_h5_reader *r = NULL;
    float *host = NULL;
    int64_t most = 0;
    ct_status status;

    for (int i = 0; i < net->n_param; i++)
        most = (net->param[i].count > most) ? net->param[i].count : most;
    CT_TRY_GOTO(status, out, ct_h5_reader_create(path, &r));
    CT_TRY_GOTO(status, out, check_fit(path, r, net));
    host = ct_mem_acquire((size_t)most * sizeof(float));
    if (host == NULL) {
        status = CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", path);
        goto out;
    }
    for (int i = 0; i < net->n_param; i++)
        CT_TRY_GOTO(status, out, read_param(r, net, &net->param[i], host));
    ct_net_weights_changed(net);
out:
    ct_mem_release(host);
    ct_h5_reader_destroy(r);
    return status;
}
