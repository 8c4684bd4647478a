/* Layers that have no way to run on the net's device run on the host: what they read is copied in
 * before, what they write is copied out after. Their host blobs and buffers live as long as the
 * pass, so backward finds what forward read without another copy, and the device's plan need not
 * keep it.
 */
#include "framework/net/net_impl.h"

#include <stdlib.h>
#include <string.h>

struct ct_host_layer {
    ct_blob *blob;           /* bottoms, tops, weights, on the host */
    ct_blob **bottom, **top; /* into them                           */
    ct_blob *weight;         /* into them                           */
    ct_blob **device_bottom, **device_top, *device_weight;
    void *block; /* all their memory, and that of the buffers */
};

bool ct_host_layer_is(const ct_net *net, int i)
{
    return net->layer[i]->dev != net->options.dev;
}

/* ---- memory */

static void *host_acquire(const ct_device *dev, size_t bytes)
{
    void *block = NULL;

    if (dev->host_acquire == NULL) return ct_mem_acquire(bytes);
    return (dev->host_acquire(bytes, &block) == CT_OK) ? block : NULL;
}

static void host_release(const ct_device *dev, void *block)
{
    if (dev->host_release != NULL)
        dev->host_release(block);
    else
        ct_mem_release(block);
}

/* The next `bytes` of block, which may be NULL: only counted. */
static void *take(char *block, size_t *at_p, size_t bytes)
{
    void *here = (block != NULL) ? block + *at_p : NULL;

    *at_p += ct_align_up(bytes);
    return here;
}

static void place_blob(const ct_blob *from, char *block, size_t *at_p, ct_blob *to)
{
    *to = *from;
    to->data.dev = to->diff.dev = ct_device_cpu();
    to->data.data = take(block, at_p, ct_tensor_bytes(&from->data));
    if (from->diff.data != NULL) to->diff.data = take(block, at_p, ct_tensor_bytes(&from->diff));
}

/* Everything into block; NULL: only its size. */
static size_t place_all(const ct_layer *l, ct_instance *in, ct_host_layer *h, char *block)
{
    ct_blob *b = h->blob;
    size_t at = 0;

    for (int i = 0; i < l->n_bottom; i++, b++) {
        place_blob(in->bottom[i], block, &at, b);
        h->bottom[i] = b;
    }
    for (int i = 0; i < l->n_top; i++, b++) {
        place_blob(in->top[i], block, &at, b);
        h->top[i] = b;
    }
    h->weight = b;
    for (int i = 0; i < l->n_weight; i++, b++) place_blob(&in->weight[i], block, &at, b);
    for (int i = 0; i < CT_MAX_BUFFER; i++) {
        if (in->buffer[i].bytes > 0) in->buffer[i].data = take(block, &at, in->buffer[i].bytes);
    }
    return at;
}

static ct_status make(ct_pass *pass, int i)
{
    const ct_net *net = pass->net;
    const ct_layer *l = net->layer[i];
    ct_instance *in = pass->instance[i];
    ct_host_layer *h = calloc(1, sizeof(*h));
    size_t n = (size_t)l->n_bottom + (size_t)l->n_top + (size_t)l->n_weight + 1, bytes;

    ct_pass_impl_of(pass)->host[i] = h;
    if (h != NULL) {
        h->blob = calloc(n, sizeof(h->blob[0]));
        h->bottom = calloc(n, sizeof(h->bottom[0]));
        h->top = calloc(n, sizeof(h->top[0]));
    }
    if ((h == NULL) || (h->blob == NULL) || (h->bottom == NULL) || (h->top == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for layer \"%s\" on the host", l->name);
    bytes = place_all(l, in, h, NULL);
    h->block = host_acquire(net->options.dev, bytes + 1);
    if (h->block == NULL)
        return CT_LAYER_FAIL(l, CT_ERR_NOMEM, "no memory for %zu bytes on the host", bytes);
    memset(h->block, 0, bytes);
    (void)place_all(l, in, h, h->block);
    h->device_bottom = in->bottom;
    h->device_top = in->top;
    h->device_weight = in->weight;
    CT_INFO(
        "layer \"%s\" (%s) has no form for device %s: it runs on the host, and what it reads and "
        "writes is copied",
        l->name, l->ops->type, net->options.dev->name);
    return CT_OK;
}

ct_status ct_host_layers(ct_pass *pass)
{
    ct_pass_impl *m = ct_pass_impl_of(pass);
    const ct_net *net = pass->net;

    if (net->options.dev->kind == CT_DEVICE_CPU) return CT_OK;
    m->host = calloc((size_t)net->n_layer + 1, sizeof(m->host[0]));
    if (m->host == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for layers on the host");
    for (int i = 0; i < net->n_layer; i++) {
        if (ct_host_layer_is(net, i)) CT_TRY(make(pass, i));
    }
    return CT_OK;
}

void ct_host_layers_release(ct_pass *pass)
{
    ct_pass_impl *m = ct_pass_impl_of(pass);
    const ct_net *net = pass->net;

    for (int i = 0; (m->host != NULL) && (i < net->n_layer); i++) {
        ct_host_layer *h = m->host[i];

        if (h == NULL) continue;
        if (h->block != NULL) host_release(net->options.dev, h->block);
        free(h->blob);
        free(h->bottom);
        free(h->top);
        free(h);
    }
    free(m->host);
    m->host = NULL;
}

/* ---- running */

static ct_status copy_in(const ct_exec *ex, const ct_tensor *device, const ct_tensor *host)
{
    size_t bytes = ct_tensor_bytes(host);

    if ((device->data == NULL) || (host->data == NULL) || (bytes == 0)) return CT_OK;
    return ex->dev->to_host(ex->stream, host->data, device->data, bytes);
}

static ct_status copy_out(const ct_exec *ex, const ct_tensor *host, const ct_tensor *device)
{
    size_t bytes = ct_tensor_bytes(host);

    if ((device->data == NULL) || (host->data == NULL) || (bytes == 0)) return CT_OK;
    return ex->dev->from_host(ex->stream, device->data, host->data, bytes);
}

/* Behind a layer whose tops vary, the host's blobs have the shapes that the device's have now; they
 * have room for the most samples. */
static void follow(const ct_pass *pass, const ct_layer *l, const ct_host_layer *h)
{
    if (ct_pass_impl_of(pass)->vary == NULL) return;
    for (int b = 0; b < l->n_bottom; b++) {
        const ct_tensor *now = &h->device_bottom[b]->data;

        ct_blob_set_like(h->bottom[b], &now->shape, now);
    }
    for (int t = 0; t < l->n_top; t++) {
        const ct_tensor *now = &h->device_top[t]->data;

        ct_blob_set_like(h->top[t], &now->shape, now);
    }
}

/* And those of a layer that decides in forward. */
static void lead(const ct_layer *l, const ct_host_layer *h)
{
    for (int t = 0; l->ops->varies && (t < l->n_top); t++) {
        const ct_tensor *now = &h->top[t]->data;

        ct_blob_set_like(h->device_top[t], &now->shape, now);
    }
}

/* The layer sees a host's execution; what it counts and waits for is the caller's. */
static ct_status run(const ct_layer *l, ct_instance *in, const ct_host_layer *h, ct_exec *ex,
                     ct_status (*pass)(const ct_layer *l, ct_instance *in, ct_exec *ex))
{
    const ct_device *dev = ex->dev;
    ct_stream stream = ex->stream;
    ct_status status;

    in->bottom = h->bottom;
    in->top = h->top;
    in->weight = h->weight;
    ex->dev = l->dev;
    ex->stream = NULL;
    status = pass(l, in, ex);
    ex->dev = dev;
    ex->stream = stream;
    in->bottom = h->device_bottom;
    in->top = h->device_top;
    in->weight = h->device_weight;
    return status;
}

ct_status ct_host_layer_forward(ct_pass *pass, int i)
{
    const ct_host_layer *h = ct_pass_impl_of(pass)->host[i];
    const ct_layer *l = pass->net->layer[i];
    ct_instance *in = pass->instance[i];
    ct_exec *ex = &pass->exec;

    follow(pass, l, h);
    for (int b = 0; b < l->n_bottom; b++)
        CT_TRY(copy_in(ex, &in->bottom[b]->data, &h->bottom[b]->data));
    for (int w = 0; w < l->n_weight; w++)
        CT_TRY(copy_in(ex, &in->weight[w].data, &h->weight[w].data));
    CT_TRY(run(l, in, h, ex, l->ops->forward));
    lead(l, h);
    for (int t = 0; t < l->n_top; t++) CT_TRY(copy_out(ex, &h->top[t]->data, &in->top[t]->data));
    for (int w = 0; w < l->n_weight; w++) {
        if (l->weight[w].kind == CT_WEIGHT_STATISTIC)
            CT_TRY(copy_out(ex, &h->weight[w].data, &in->weight[w].data));
    }
    return CT_OK;
}

ct_status ct_host_layer_backward(ct_pass *pass, int i)
{
    const ct_host_layer *h = ct_pass_impl_of(pass)->host[i];
    const ct_layer *l = pass->net->layer[i];
    ct_instance *in = pass->instance[i];
    ct_exec *ex = &pass->exec;

    for (int t = 0; t < l->n_top; t++) CT_TRY(copy_in(ex, &in->top[t]->diff, &h->top[t]->diff));
    for (int w = 0; w < l->n_weight; w++) {
        if (ct_weight_beta(in, ex, w) != 0.0f)
            CT_TRY(copy_in(ex, &in->weight[w].diff, &h->weight[w].diff));
    }
    CT_TRY(run(l, in, h, ex, l->ops->backward));
    for (int b = 0; b < l->n_bottom; b++)
        CT_TRY(copy_out(ex, &h->bottom[b]->diff, &in->bottom[b]->diff));
    for (int w = 0; w < l->n_weight; w++)
        CT_TRY(copy_out(ex, &h->weight[w].diff, &in->weight[w].diff));
    return CT_OK;
}
