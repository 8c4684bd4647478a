#include "cli/bench/divided_net.h"

#include <stdlib.h>
#include <string.h>

#include "framework/snapshot/parts.h"
#include "framework/snapshot/snapshot.h"

/* Sequences side by side are one row of tokens, so nothing goes by samples or by tokens; and each
 * rank has the whole output. */
static ct_status check(const ct_divided_net *n, const ct_sharded_net *s)
{
    const char *file = n->file;
    const ct_net *net = s->net;

    if (n->parallel->n_stage != 1)
        return CT_FAIL(CT_ERR_CONFIG, "%s: sequences side by side run in one stage, not in %d",
                       file, n->parallel->n_stage);
    for (int i = 0; i < net->n_layer; i++) {
        ct_sharding_kind kind = s->top[i].kind;

        if ((kind != CT_SHARDING_BATCH) && (kind != CT_SHARDING_SEQUENCE)) continue;
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: layer \"%s\" is dealt out by %s: sequences side by side are one row, "
                       "so each layer needs another split, such as REPLICATE",
                       file, net->layer[i]->name,
                       (kind == CT_SHARDING_BATCH) ? "samples" : "tokens");
    }
    if (s->top[net->n_layer - 1].kind != CT_SHARDING_WHOLE)
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: the output, of layer \"%s\", is not whole on each rank: the last layer "
                       "needs split REPLICATE",
                       file, net->layer[net->n_layer - 1]->name);
    return CT_OK;
}

static ct_status divide(void *ctx, const Ct__NetParameter **param_p, ct_net_options *options)
{
    ct_divided_net *n = ctx;

    CT_TRY(ct_job_division_open_net(n->job, n->parallel, NULL, param_p, options, &n->division));
    return check(n, &n->division->sharded[1]);
}

static void fill_exec(void *ctx, ct_exec *ex)
{
    ct_job_division_fill_exec(((ct_divided_net *)ctx)->division, ex);
}

typedef struct loading {
    const char *files;
    ct_parts *parts;
} loading;

/* On rank 0: each of the files into what all ranks have. */
static ct_status load_parts(void *ctx, ct_storage *whole)
{
    const loading *l = ctx;
    char *list = strdup(l->files);
    ct_status status = CT_OK;

    if (list == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a file name");
    for (char *rest = list, *at; (status == CT_OK) && ((at = strsep(&rest, ",")) != NULL);)
        status = ct_weights_load_parts(at, l->parts, whole);
    free(list);
    return status;
}

static ct_status load(void *ctx, const char *files, ct_net *net)
{
    ct_divided_net *n = ctx;
    loading l = { .files = files };
    ct_storage weights;
    ct_status status;

    CT_TRY(ct_parts_create(n->division->whole.test[0], net, &n->job->group.job, &l.parts));
    weights = ct_parts_weights(l.parts);
    status = ct_parts_run(l.parts, &(ct_storage *){ &weights }, 1, load_parts, &l);
    ct_parts_destroy(l.parts);
    if (status == CT_OK) ct_net_weights_changed(net);
    return status;
}

ct_status ct_divided_net_open(ct_job *job, const char *file, ct_divided_net *n_p)
{
    *n_p = (ct_divided_net){ .job = job, .file = file };
    n_p->served = (ct_served_division){ n_p, divide, fill_exec, load };
    return ct_parallel_read(file, &n_p->parallel);
}

void ct_divided_net_close(ct_divided_net *n)
{
    ct_job_division_close(n->division);
    ct_parallel_destroy(n->parallel);
}
