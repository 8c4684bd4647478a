/* Making and freeing the passes of a net. */
#include <stdlib.h>

#include "framework/net/engine_plan.h"
#include "framework/net/net_impl.h"

ct_status ct_pass_open(ct_net *net, size_t n_instance, size_t n_blob, ct_pass **pass_p)
{
    ct_pass *pass = calloc(1, sizeof(*pass));

    *pass_p = pass;
    if (pass != NULL) {
        pass->net = net;
        pass->exec = (ct_exec){ .dev = net->options.dev, .phase = net->options.phase };
        pass->instance = calloc(n_instance + 1, sizeof(pass->instance[0]));
        pass->blob = calloc(n_blob + 1, sizeof(pass->blob[0]));
        pass->impl = calloc(1, sizeof(ct_pass_impl));
    }
    if ((pass == NULL) || (pass->instance == NULL) || (pass->blob == NULL) || (pass->impl == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a pass of net \"%s\"", net->name);
    return CT_OK;
}

/* Half-built ones: a type that has state is asked only where it was given some. */
static void destroy_instance(const ct_layer *l, ct_instance *in)
{
    if ((l->ops->release != NULL) && ((l->ops->state_size == 0) || (l->state != NULL)) &&
        ((l->ops->instance_state_size == 0) || (in->state != NULL)))
        l->ops->release(l, in);
    free(in->bottom);
    free(in->top);
    free(in->weight);
    free(in->state);
    free(in);
}

void ct_pass_destroy(ct_pass *pass)
{
    const ct_net *net;

    if (pass == NULL) return;
    net = pass->net;
    for (int i = 0; (pass->instance != NULL) && (i < net->n_layer); i++) {
        if (pass->instance[i] != NULL) destroy_instance(net->layer[i], pass->instance[i]);
    }
    for (int b = 0; (pass->blob != NULL) && (b < net->n_blob); b++) free(pass->blob[b]);
    if (pass->impl != NULL) {
        ct_pass_narrow_release(pass);
        ct_pass_vary_release(pass);
        ct_pass_memory_release(pass);
        free(ct_pass_impl_of(pass)->tail);
    }
    free(pass->instance);
    free(pass->blob);
    free(pass->impl);
    free(pass);
}

/* ---- further passes */

/* What the first pass knows of its blobs; memory comes later. */
static ct_status copy_blobs(ct_pass *pass)
{
    const ct_net *net = pass->net;

    for (int b = 0; b < net->n_blob; b++) {
        ct_blob *blob = pass->blob[b] = calloc(1, sizeof(*blob));

        if (blob == NULL)
            return CT_FAIL(CT_ERR_NOMEM, "no memory for a pass of net \"%s\"", net->name);
        *blob = *net->pass->blob[b];
        blob->data.data = blob->diff.data = NULL;
        blob->wants_diff = false; /* who makes it says so */
    }
    return CT_OK;
}

static bool same_buffers(const ct_instance *a, const ct_instance *b)
{
    for (int s = 0; s < CT_MAX_BUFFER; s++) {
        const ct_buffer *x = &a->buffer[s], *y = &b->buffer[s];

        if ((x->bytes != y->bytes) || (x->keep != y->keep) || (x->row != y->row)) return false;
    }
    return true;
}

/* The plan of memory and the list of steps were made for the first pass. Behind a layer whose tops
 * vary buffers are those of the last batch there, and sizes are not compared. */
static ct_status check_same(const ct_pass *pass)
{
    const ct_net *net = pass->net;
    bool varies = (ct_pass_impl_of(pass)->vary != NULL);

    for (int i = 0; i < net->n_layer; i++) {
        const ct_instance *mine = pass->instance[i], *first = net->pass->instance[i];
        bool same = (mine->backward_reads == first->backward_reads) && (mine->over == first->over);

        if (!varies) same = same && same_buffers(mine, first);
        if (!same)
            return CT_LAYER_FAIL(net->layer[i], CT_ERR_CONFIG,
                                 "it would use memory in another way than in the net's first pass");
    }
    return CT_OK;
}

static ct_status make(ct_pass *pass)
{
    CT_TRY(copy_blobs(pass));
    CT_TRY(ct_pass_build(pass));
    CT_TRY(ct_pass_fuse(pass));
    CT_TRY(ct_pass_vary(pass));
    CT_TRY(check_same(pass));
    CT_TRY(ct_pass_bind_weights(pass));
    return pass->net->options.no_data ? CT_OK : ct_pass_memory(pass);
}

ct_status ct_pass_create(ct_net *net, ct_pass **pass_p)
{
    ct_pass *pass;
    ct_status status = ct_pass_open(net, (size_t)net->n_layer, (size_t)net->n_blob, &pass);

    if (status == CT_OK) status = make(pass);
    ct_engine_plan_settle(net->options.env.plan);
    if (status != CT_OK) {
        ct_pass_destroy(pass);
        return status;
    }
    *pass_p = pass;
    return CT_OK;
}
