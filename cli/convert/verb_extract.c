/* cortado extract: blobs of a trained net, over batches of its TEST data, as data sets of an HDF5
 * file. A layer at the end reads each blob, so the net keeps it and gives it in plain order. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/verb.h"
#include "framework/base/file.h"
#include "framework/base/text.h"
#include "framework/net/net.h"
#include "framework/snapshot/h5.h"
#include "framework/snapshot/snapshot.h"
#include "runtime/call.h"

enum { MOST_BLOBS = 128 };

typedef struct wanted {
    char *list; /* the option's text, cut up */
    int n;
    const char *name[MOST_BLOBS];
    ct_named_array array[MOST_BLOBS]; /* of as many samples as there are so far */
    float *data[MOST_BLOBS];
} wanted;

static ct_status read_names(const char *text, wanted *w)
{
    w->list = strdup(text);
    if (w->list == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for names of blobs");
    for (char *rest = w->list, *at; (at = strsep(&rest, ",")) != NULL;) {
        if (*at == '\0')
            return CT_FAIL(CT_ERR_CONFIG,
                           "--blobs=%s: a name is missing; expected NAME[,NAME], such as "
                           "data,prob",
                           text);
        if (w->n == MOST_BLOBS)
            return CT_FAIL(CT_ERR_CONFIG, "--blobs: more than %d blobs", MOST_BLOBS);
        w->name[w->n++] = at;
    }
    return CT_OK;
}

static ct_status check_name(const Ct__NetParameter *net, const char *name)
{
    const char **known, *near;
    int n = 0, most = 0;
    bool there = false;

    for (size_t i = 0; i < net->n_layer; i++) most += (int)net->layer[i]->n_top;
    known = calloc((size_t)most + 1, sizeof(known[0]));
    if (known == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for names of blobs");
    for (size_t i = 0; i < net->n_layer; i++) {
        for (size_t t = 0; t < net->layer[i]->n_top; t++) {
            there |= (strcmp(net->layer[i]->top[t], name) == 0);
            known[n++] = net->layer[i]->top[t];
        }
    }
    near = ct_text_nearest(name, known, n);
    free(known);
    if (there) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG, "--blobs: the net has no blob \"%s\"%s%s%s", name,
                   (near != NULL) ? "; did you mean \"" : "", (near != NULL) ? near : "",
                   (near != NULL) ? "\"?" : "");
}

/* Room for n batches of every blob: batches one behind the other along the first axis. Behind a
 * Filter they have different numbers of samples. */
static ct_status make_room(const ct_net *net, int64_t n, wanted *w)
{
    for (int i = 0; i < w->n; i++) {
        const ct_shape *s = &ct_value_reader_blob(net, i)->data.shape;
        int64_t count = ct_shape_count(s, 0, -1), bytes;
        ct_named_array *a = &w->array[i];

        *a = (ct_named_array){ .name = w->name[i], .shape = *s };
        if (s->ndim == 0) a->shape.ndim = 1;
        a->shape.dim[0] = 0;
        if (__builtin_mul_overflow(count * (int64_t)sizeof(float), n, &bytes) ||
            ((w->data[i] = malloc((size_t)bytes + 1)) == NULL))
            return CT_FAIL(CT_ERR_NOMEM, "no memory for %" PRId64 " batches of blob \"%s\"", n,
                           w->name[i]);
        a->data = w->data[i];
    }
    return CT_OK;
}

/* Batches lie one behind the other: they may differ along the first axis alone. */
static ct_status check_rows(const ct_named_array *a, const ct_shape *s)
{
    bool same = (s->ndim <= 1) || (s->ndim == a->shape.ndim);

    for (int k = 1; same && (k < s->ndim); k++) same = (s->dim[k] == a->shape.dim[k]);
    if (same) return CT_OK;
    return CT_FAIL(
        CT_ERR_CONFIG,
        "--blobs: \"%s\" has shape %s in one batch and %s in another: only its first axis "
        "may change",
        a->name, ct_shape_str(&a->shape).text, ct_shape_str(s).text);
}

static ct_status take_batches(ct_call *call, ct_net *net, int64_t n_batch, wanted *w)
{
    ct_exec *ex = &net->pass->exec;

    ct_exec_fill(call, net, ex);
    for (int64_t b = 0; b < n_batch; b++) {
        ex->micro_step = b;
        CT_TRY(ct_pass_forward(net->pass, NULL));
        for (int i = 0; i < w->n; i++) {
            const ct_blob *blob = ct_value_reader_blob(net, i);
            int64_t first = ct_shape_count(&w->array[i].shape, 0, -1);

            CT_TRY(check_rows(&w->array[i], &blob->data.shape));
            CT_TRY(ex->dev->to_host(ex->stream, w->data[i] + first, blob->data.data,
                                    (size_t)ct_tensor_count(&blob->data) * sizeof(float)));
            w->array[i].shape.dim[0] += ct_shape_legacy(&blob->data.shape, 0);
        }
        CT_DEBUG("batch %" PRId64 " of %" PRId64, b + 1, n_batch);
    }
    return CT_OK;
}

static ct_status run(ct_call *call, const ct_config *c, wanted *w)
{
    const char *to = ct_options_text(call->options, "to");
    const char *weights = ct_options_text(call->options, "weights");
    int64_t n_batch = ct_options_count(call->options, "iterations", 50);
    ct_net_options options;
    ct_net_state state;
    ct_net *net = NULL;
    ct_status status;

    if (n_batch < 1) return CT_FAIL(CT_ERR_CONFIG, "--iterations=0: at least 1");
    CT_TRY(ct_file_check_writable(to));
    CT_TRY(ct_net_state_read(call->options, &state));
    for (int i = 0; i < w->n; i++) {
        CT_TRY(check_name(c->net, w->name[i]));
        CT_TRY(ct_value_reader_add(c->net, i, w->name[i]));
    }
    ct_net_options_fill(call, c, CT_TEST, &state, &options);
    options.forward_only = true;
    CT_TRY(ct_call_device(call, c, &options.dev));
    CT_TRY_GOTO(status, out, ct_net_create(c->net, &options, &net));
    if (weights != NULL) {
        CT_TRY_GOTO(status, out, ct_weights_load_list(weights, net));
    } else if (net->n_param > 0) {
        status = CT_FAIL(CT_ERR_CONFIG, "cortado extract needs --weights: the net has weights");
        goto out;
    }
    CT_TRY_GOTO(status, out, make_room(net, n_batch, w));
    CT_TRY_GOTO(status, out, take_batches(call, net, n_batch, w));
    CT_TRY_GOTO(status, out, ct_array_file_write(to, w->array, w->n));
    for (int i = 0; i < w->n; i++)
        CT_INFO("%s: %s, %s", to, w->name[i], ct_shape_str(&w->array[i].shape).text);
out:
    ct_net_destroy(net);
    return status;
}

ct_status ct_verb_extract(ct_call *call)
{
    static const char *const needs[] = { "blobs", "to" };
    wanted w = { .n = 0 };
    ct_config c;
    ct_status status;

    for (size_t i = 0; i < sizeof(needs) / sizeof(needs[0]); i++) {
        if (ct_options_text(call->options, needs[i]) == NULL)
            return CT_FAIL(CT_ERR_CONFIG, "cortado extract needs --%s", needs[i]);
    }
    if (call->job->size > 1)
        return CT_FAIL(CT_ERR_CONFIG, "cortado extract runs on one rank, not on %d",
                       call->job->size);
    CT_TRY(ct_call_setup(call, CT_TEST, &c));
    status = ct_call_connect(call, &c);
    if (status == CT_OK) status = read_names(ct_options_text(call->options, "blobs"), &w);
    if (status == CT_OK) status = run(call, &c, &w);
    for (int i = 0; i < w.n; i++) free(w.data[i]);
    free(w.list);
    ct_config_destroy(&c);
    return status;
}
