/* Weights that stay as they are: what layers have packed of them takes their place. */
#include "framework/net/net_impl.h"

/* Whether all layers that read parameter k read what they have packed instead. */
static bool all_keep(const ct_net *net, int k)
{
    bool read = false;

    for (int i = 0; i < net->n_layer; i++) {
        const ct_layer *l = net->layer[i];

        for (int w = 0; w < l->n_weight; w++) {
            if (ct_net_param_of(net, i, w) != k) continue;
            read = true;
            if ((l->ops->keeps == NULL) || !l->ops->keeps(l, net->pass->instance[i], w))
                return false;
        }
    }
    return read;
}

/* Whoever reads it all the same finds no address, rather than zeros. */
static void forget(ct_net *net, int k)
{
    ct_param *p = &net->param[k];

    net->memory.allocated -= ct_mem_discard(p->blob.data.data, (size_t)p->count * sizeof(float));
    p->blob.data.data = NULL;
    for (int i = 0; i < net->n_layer; i++) {
        for (int w = 0; w < net->layer[i]->n_weight; w++) {
            if (ct_net_param_of(net, i, w) == k) net->pass->instance[i]->weight[w].data.data = NULL;
        }
    }
}

void ct_net_settle(ct_net *net)
{
    bool own = ct_net_impl_of(net)->forward_only && (net->options.share == NULL) &&
               !ct_net_has_visits(net) && (net->options.dev->kind == CT_DEVICE_CPU);

    if (!own || net->settled) return;
    for (int s = 0; s < 2; s++) net->settled_sum[s] = ct_net_checksum(net, s != 0);
    ct_pass_set_versions(net->pass);
    for (int k = 0; k < net->n_param; k++) {
        if (all_keep(net, k)) forget(net, k);
    }
    net->settled = true;
}

ct_status ct_net_check_weights(const ct_net *net)
{
    if (!net->settled) return CT_OK;
    return CT_FAIL(CT_ERR_ARG,
                   "net \"%s\" has its weights packed for forward alone: they are neither loaded "
                   "nor saved any more",
                   net->name);
}
