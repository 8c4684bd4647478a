/* The outputs of a net as means over the global batch. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "framework/solver/outputs.h"

/* size becomes the largest of any rank that has the output. Where not all have the same number, the
 * values of one stand for all: of the first rank, since those of lower number have the larger part
 * of a batch that does not divide evenly. */
static ct_status agree_sizes(const ct_group *g, ct_outputs *o)
{
    int n = o->net->n_output;
    int64_t *size = o->size;

    for (int i = 0; i < n; i++) {
        bool there = (o->own[i] >= 0) && !o->runs->output[o->own[i]].is_twin;

        size[i] = there ? ct_net_output_count(o->runs, o->own[i]) : 0;
        size[n + i] = there ? -size[i] : -INT64_MAX;
        size[2 * n + i] = there ? -(int64_t)g->rank : -INT64_MAX;
    }
    CT_TRY(ct_group_max(g, size, 3 * n));
    for (int i = 0; i < n; i++) {
        o->uneven[i] = (size[i] != -size[n + i]);
        o->stands[i] = (size[2 * n + i] == -(int64_t)g->rank);
    }
    return CT_OK;
}

/* The output of the net that this rank runs which is output i of the whole, or -1. */
static int find_output(const ct_net *whole, int i, const ct_net *runs)
{
    const ct_output *w = &whole->output[i];

    if (whole == runs) return i;
    for (int k = 0; k < runs->n_output; k++) {
        const ct_output *r = &runs->output[k];

        if ((strcmp(runs->layer[r->layer]->name, whole->layer[w->layer]->name) == 0) &&
            (strcmp(runs->pass->blob[r->blob]->name, whole->pass->blob[w->blob]->name) == 0))
            return k;
    }
    return -1;
}

enum { EVALUATED = 5 }; /* numbers of a row of DetectionEvaluate */

/* Rows of output i, which this rank has, where it evaluates; else 0. */
static int64_t rows_of(const ct_outputs *o, int i)
{
    const ct_net *net = o->runs;
    int own = o->own[i];

    if (!ct_net_output_evaluates(net, own)) return 0;
    return ct_tensor_count(&net->pass->blob[net->output[own].blob]->data) / EVALUATED;
}

ct_status ct_outputs_create(const ct_net *net, const ct_net *runs, const ct_group *g, ct_outputs *o)
{
    int64_t most = 0;

    *o = (ct_outputs){ .net = net, .runs = runs, .n_rank = g->size };
    o->size = calloc(3 * (size_t)net->n_output + 1, sizeof(*o->size));
    o->own = calloc((size_t)net->n_output + 1, sizeof(*o->own));
    o->uneven = calloc((size_t)net->n_output + 1, sizeof(*o->uneven));
    o->stands = calloc((size_t)net->n_output + 1, sizeof(*o->stands));
    o->seen = calloc((size_t)net->n_output + 1, sizeof(*o->seen));
    if ((o->size == NULL) || (o->own == NULL) || (o->uneven == NULL) || (o->stands == NULL) ||
        (o->seen == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for the outputs of net \"%s\"", net->name);
    for (int i = 0; i < net->n_output; i++) o->own[i] = find_output(net, i, runs);
    CT_TRY(agree_sizes(g, o));
    for (int i = 0; i < net->n_output; i++) {
        o->n += o->size[i];
        if (o->size[i] > most) most = o->size[i];
        if ((o->own[i] >= 0) && (rows_of(o, i) * EVALUATED > most))
            most = rows_of(o, i) * EVALUATED;
    }
    o->sum = calloc((size_t)o->n + 3, sizeof(*o->sum));
    o->host = calloc((size_t)most + 1, sizeof(*o->host));
    if ((o->sum == NULL) || (o->host == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for the %" PRId64 " outputs of net \"%s\"", o->n,
                       net->name);
    return CT_OK;
}

void ct_outputs_begin(ct_outputs *o)
{
    memset(o->sum, 0, (size_t)o->n * sizeof(*o->sum));
    for (int i = 0; i < o->net->n_output; i++) ct_detections_clear(&o->seen[i]);
}

void ct_outputs_destroy(ct_outputs *o)
{
    for (int i = 0; (o->seen != NULL) && (i < o->net->n_output); i++)
        ct_detections_release(&o->seen[i]);
    free(o->seen);
    free(o->size);
    free(o->own);
    free(o->uneven);
    free(o->stands);
    free(o->sum);
    free(o->host);
    memset(o, 0, sizeof(*o));
}

/* Of the mean over all samples, what this rank's output k is. */
static double part_of(const ct_outputs *o, int k)
{
    const ct_net *net = o->runs;
    const ct_stage_place *place = net->options.env.place;
    int64_t local = net->batch_local;

    if (net->output[k].is_share) return ct_net_summed_part(net);
    if (net->batch_global <= 0) return 1.0 / o->n_rank;
    if (place != NULL)
        local = ct_place_samples(place, net->options.phase, net->batch_global,
                                 ct_layer_is_of_replica(net->layer[net->output[k].layer]))
                    .local;
    return (double)local / (double)net->batch_global;
}

ct_status ct_outputs_add(ct_outputs *o, const ct_pass *pass)
{
    const ct_net *net = o->runs;
    const ct_exec *ex = &pass->exec;
    double *sum = o->sum;

    for (int i = 0; i < o->net->n_output; sum += o->size[i], i++) {
        int own = o->own[i];
        const ct_tensor *t;
        int64_t n;
        double share;

        if ((own < 0) || net->output[own].is_twin) continue;
        t = &pass->blob[net->output[own].blob]->data;
        n = ct_net_output_count(net, own);
        if ((rows_of(o, i) > 0) && (net->options.phase == CT_TRAIN)) {
            sum[0] = NAN; /* what is evaluated over a whole test has no value in a step */
            continue;
        }
        if (rows_of(o, i) > 0) {
            n = rows_of(o, i);
            CT_TRY(ex->dev->to_host(ex->stream, o->host, t->data,
                                    (size_t)(n * EVALUATED) * sizeof(*o->host)));
            CT_TRY(ct_detections_add(&o->seen[i], o->host, n));
            continue;
        }
        share = part_of(o, own);
        if (o->uneven[i]) share = o->stands[i] ? 1.0 : 0.0;
        if ((share == 0.0) || (n == 0)) continue;
        CT_TRY(ex->dev->to_host(ex->stream, o->host, t->data, (size_t)n * sizeof(*o->host)));
        for (int64_t k = 0; k < n; k++) sum[k] += share * (double)o->host[k];
    }
    return CT_OK;
}

ct_status ct_outputs_evaluate(const ct_outputs *o, const ct_group *g, ct_ap_version version,
                              bool each, double *mean)
{
    for (int i = 0; i < o->net->n_output; mean += o->size[i], i++)
        if (ct_net_output_evaluates(o->net, i))
            CT_TRY(ct_detections_judge(&o->seen[i], g, version, each, mean));
    return CT_OK;
}
