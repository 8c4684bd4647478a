/* The outputs of a net as means over the global batch. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "framework/solver/solver_private.h"

/* size becomes the largest of any rank; that is rank 0's, since ranks of lower number have the
 * larger part of a batch that does not divide evenly. */
static ct_status agree_sizes(const ct_group *g, const ct_net *net, int64_t *size, bool *uneven)
{
    int n = net->n_output;

    for (int i = 0; i < n; i++) {
        size[i] = ct_net_output_count(net, i);
        size[n + i] = -size[i];
    }
    CT_TRY(ct_group_max(g, size, 2 * n));
    for (int i = 0; i < n; i++) uneven[i] = (size[i] != -size[n + i]);
    return CT_OK;
}

ct_status ct_outputs_create(const ct_net *net, const ct_group *g, ct_outputs *o)
{
    int64_t most = 0;

    *o = (ct_outputs){ .net = net, .rank = g->rank, .n_rank = g->size };
    o->size = calloc(2 * (size_t)net->n_output + 1, sizeof(*o->size));
    o->uneven = calloc((size_t)net->n_output + 1, sizeof(*o->uneven));
    if ((o->size == NULL) || (o->uneven == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for the outputs of net \"%s\"", net->name);
    CT_TRY(agree_sizes(g, net, o->size, o->uneven));
    for (int i = 0; i < net->n_output; i++) {
        o->n += o->size[i];
        if (o->size[i] > most) most = o->size[i];
    }
    o->sum = calloc((size_t)o->n + 3, sizeof(*o->sum));
    o->host = calloc((size_t)most + 1, sizeof(*o->host));
    if ((o->sum == NULL) || (o->host == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for the %" PRId64 " outputs of net \"%s\"", o->n,
                       net->name);
    return CT_OK;
}

void ct_outputs_destroy(ct_outputs *o)
{
    free(o->size);
    free(o->uneven);
    free(o->sum);
    free(o->host);
    memset(o, 0, sizeof(*o));
}

ct_status ct_outputs_add(ct_outputs *o)
{
    const ct_net *net = o->net;
    const ct_exec *ex = &net->pass->exec;
    double part = (net->batch_global > 0) ? (double)net->batch_local / (double)net->batch_global
                                          : 1.0 / o->n_rank;
    double *sum = o->sum;

    for (int i = 0; i < net->n_output; sum += o->size[i], i++) {
        const ct_tensor *t = &net->pass->blob[net->output[i].blob]->data;
        int64_t n = ct_net_output_count(net, i);
        double share = net->output[i].is_share ? 1.0 : part;

        if (o->uneven[i]) share = (o->rank == 0) ? 1.0 : 0.0;
        if ((share == 0.0) || (n == 0)) continue;
        CT_TRY(ex->dev->to_host(ex->stream, o->host, t->data, (size_t)n * sizeof(*o->host)));
        for (int64_t k = 0; k < n; k++) sum[k] += share * (double)o->host[k];
    }
    return CT_OK;
}
