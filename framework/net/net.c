/* Making, freeing and asking a net. */
#include "framework/net/net_impl.h"

#include <stdlib.h>
#include <string.h>

/* What only devices have is refused before anything is computed in something else. */
static ct_status check_precision(const ct_net *net)
{
    const ct_net_options *o = &net->options;

    bool tf32 = (o->env.precision == CT__SOLVER_PARAMETER__PRECISION__TF32);
    bool fp16 = (o->env.precision == CT__SOLVER_PARAMETER__PRECISION__FP16);

    if ((o->dev->kind != CT_DEVICE_CPU) || o->no_data || !(tf32 || fp16)) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG,
                   "precision %s is for GPUs, and this run is on the CPU: F32 or BF16 there",
                   tf32 ? "TF32" : "FP16");
}

static ct_status make(ct_net *net, const Ct__NetParameter *param)
{
    CT_TRY(check_precision(net));
    CT_TRY(ct_net_build(net, param));
    CT_TRY(ct_net_vary(net));
    CT_TRY(ct_net_fuse(net));
    CT_TRY(ct_net_params(net));
    CT_TRY(ct_net_arenas(net));
    CT_TRY(ct_net_steps(net));
    if (!net->options.unshared) CT_TRY(ct_net_share_diffs(net));
    CT_TRY(ct_net_recompute(net));
    CT_TRY(ct_net_lifetimes(net));
    return ct_net_memory(net);
}

ct_status ct_net_create(const Ct__NetParameter *param, const ct_net_options *options,
                        ct_net **net_p)
{
    ct_net *net = calloc(1, sizeof(*net));
    ct_net_impl *m = calloc(1, sizeof(*m));
    const char *unshared = getenv("CORTADO_UNSHARED");
    ct_status status;

    if ((net == NULL) || (m == NULL)) {
        free(net);
        free(m);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a net");
    }
    net->impl = m;
    net->name = (param->name != NULL) ? param->name : "";
    net->options = *options;
    net->options.unshared |= (unshared != NULL) && (strcmp(unshared, "1") == 0);
    if (net->options.dev == NULL) net->options.dev = ct_device_cpu();
    if (net->options.env.n_rank == 0) net->options.env.n_rank = 1;
    net->options.env.no_data |= options->no_data;
    net->options.env.synthetic |= options->no_data; /* shapes of data that is not there */
    m->untimed = net->options.env;
    m->untimed.plan = NULL;
    m->forward_only = options->forward_only || (options->share != NULL);
    m->no_fuse = !param->fuse;
    m->recompute = param->recompute || options->recompute;
    m->force_backward = param->has_force_backward && param->force_backward;
    if ((param->state != NULL) && param->state->has_phase &&
        ((param->state->phase == CT__PHASE__TEST) != (options->phase == CT_TEST)))
        CT_WARN("net \"%s\": its state says phase %s, but it runs in phase %s", net->name,
                (options->phase == CT_TEST) ? "TRAIN" : "TEST",
                (options->phase == CT_TEST) ? "TEST" : "TRAIN");
    status = make(net, param);
    if (status != CT_OK) {
        ct_net_destroy(net);
        return status;
    }
    *net_p = net;
    return CT_OK;
}

static void destroy_layer(ct_layer *l, ct_instance *in)
{
    /* half-built ones: a type that has state is asked only where it was given some */
    bool whole =
        (l != NULL) && (l->ops != NULL) && ((l->ops->state_size == 0) || (l->state != NULL));

    if (in != NULL) {
        if (whole && (l->ops->release != NULL) &&
            ((l->ops->instance_state_size == 0) || (in->state != NULL)))
            l->ops->release(l, in);
        free(in->bottom);
        free(in->top);
        free(in->weight);
        free(in->state);
        free(in);
    }
    if (l != NULL) {
        if (whole && (l->ops->destroy != NULL)) l->ops->destroy(l);
        free(l->state);
        free(l);
    }
}

void ct_net_destroy(ct_net *net)
{
    ct_net_impl *m;

    if (net == NULL) return;
    m = ct_net_impl_of(net);
    for (int i = 0; i < net->n_layer; i++) destroy_layer(net->layer[i], net->instance[i]);
    free(net->layer);
    free(net->instance);
    for (int b = 0; b < net->n_blob; b++) free(net->blob[b]);
    free(net->blob);
    ct_net_vary_release(net);
    ct_net_arenas_release(net);
    ct_net_memory_release(net);
    free(net->param);
    for (int k = 0; k < net->n_param; k++) free(m->key[k]);
    free(m->key);
    free(m->rule);
    free(m->data_root);
    free(m->diff_root);
    free(m->tail);
    free(m->again);
    free(m->runner);
    free(m->place);
    free(m->forward_step);
    free(m->backward_step);
    ct_graph_destroy(&m->graph);
    free(net->forward);
    free(net->backward);
    free(net->output);
    free(m);
    free(net);
}

int ct_net_find_blob(const ct_net *net, const char *name)
{
    /* of a name that is made again and again the last is meant */
    for (int b = net->n_blob - 1; b >= 0; b--) {
        if (strcmp(net->blob[b]->name, name) == 0) return b;
    }
    return -1;
}

int ct_net_find_layer(const ct_net *net, const char *name)
{
    int found = -1;

    for (int i = 0; i < net->n_layer; i++) {
        if (strcmp(net->layer[i]->name, name) != 0) continue;
        /* of two layers of one name, at most one has weights: that one */
        if ((found < 0) || (net->layer[i]->n_weight > 0)) found = i;
    }
    return found;
}

int64_t ct_net_output_count(const ct_net *net, int i)
{
    const ct_blob *b = net->blob[net->output[i].blob];

    return b->varies ? 0 : ct_tensor_count(&b->data);
}

int ct_net_find_param(const ct_net *net, const char *key)
{
    for (int k = 0; k < net->n_param; k++) {
        if (strcmp(net->param[k].key, key) == 0) return k;
    }
    return -1;
}

int ct_net_param_of(const ct_net *net, int layer, int i)
{
    return ct_net_impl_of(net)->graph.node[layer].param_of[i];
}
