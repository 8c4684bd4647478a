#include "framework/solver/update_all.h"

#include <inttypes.h>
#include <stdlib.h>

#include "framework/net/step_after.h"

static int count_learned(const ct_net *net)
{
    int n = 0;

    while ((n < net->n_param) && net->param[n].learns) n++; /* they come first */
    return n;
}

/* A copy of n bytes on the net's device. */
static ct_status put(const ct_net *net, const void *from, size_t n, void **to_p)
{
    const ct_device *dev = net->options.dev;

    CT_TRY(dev->mem_acquire(n, to_p));
    return dev->from_host(NULL, *to_p, from, n);
}

/* Which parameter each line is of, and what those are. */
static ct_status put_parts(const ct_net *net, int n, ct_update_plan *p)
{
    size_t lines = (size_t)(net->grad_count / CT_UPDATE_LINE);
    ct_update_part *part = calloc((size_t)n, sizeof(*part));
    uint16_t *of = calloc(lines + 1, sizeof(*of));
    ct_status status = ((part != NULL) && (of != NULL))
                           ? CT_OK
                           : CT_FAIL(CT_ERR_NOMEM, "no memory for a plan of %d updates", n);

    for (int i = 0; (status == CT_OK) && (i < n); i++) {
        const ct_param *q = &net->param[i];
        int64_t end = (i + 1 < n) ? net->param[i + 1].offset : net->grad_count;

        part[i] = (ct_update_part){ q->offset, q->count, q->lr_mult, q->decay_mult };
        for (int64_t at = q->offset; at < end; at += CT_UPDATE_LINE)
            of[at / CT_UPDATE_LINE] = (uint16_t)i;
    }
    if (status == CT_OK) status = put(net, part, (size_t)n * sizeof(*part), &p->part);
    if (status == CT_OK) status = put(net, of, lines * sizeof(*of), &p->part_of_line);
    free(part);
    free(of);
    return status;
}

/* Ratios of 1, which those of one axis keep. */
static ct_status put_trust(const ct_net *net, int n, ct_update_plan *p)
{
    float *one = malloc((size_t)n * sizeof(*one));
    ct_status status;

    if (one == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d ratios", n);
    for (int i = 0; i < n; i++) one[i] = 1.0f;
    status = put(net, one, (size_t)n * sizeof(*one), &p->trust);
    free(one);
    return status;
}

ct_status ct_update_plan_open(const ct_net *net, ct_update_ratio ratio, ct_update_plan *p)
{
    const ct_device *dev = net->options.dev;
    int n = count_learned(net);

    *p = (ct_update_plan){ .at = ct_net_step_there(net), .ratio = ratio };
    if ((p->at == NULL) || (n == 0)) return CT_OK;
    if (n > UINT16_MAX)
        return CT_FAIL(CT_ERR_CONFIG, "a device updates %d parameters at most, not %d", UINT16_MAX,
                       n);
    p->ops = ct_step_there_of(dev);
    CT_TRY(put_parts(net, n, p));
    if (ratio != CT_UPDATE_NO_RATIO) CT_TRY(put_trust(net, n, p));
    for (int k = 0; k < 2; k++) {
        void *here = NULL;

        CT_TRY(dev->host_acquire(sizeof(double), &here));
        p->told[k].here = here;
    }
    return CT_OK;
}

void ct_update_plan_close(const ct_net *net, ct_update_plan *p)
{
    void *const there[] = { p->part, p->part_of_line, p->trust };

    /* net may be NULL where nothing was opened */
    for (int k = 0; k < 3; k++)
        if (there[k] != NULL) net->options.dev->mem_release(there[k]);
    for (int k = 0; k < 2; k++) {
        bool done;

        if (p->told[k].ticket != NULL)
            (void)net->options.dev->copy_done(p->told[k].ticket, true, &done);
        if (p->told[k].here != NULL) net->options.dev->host_release(p->told[k].here);
    }
    *p = (ct_update_plan){ .ops = NULL };
}

ct_status ct_update_plan_begin(const ct_net *net, ct_update_plan *p, ct_stream st,
                               const ct_step_numbers *now, const ct_loss_scale *loss)
{
    const ct_device *dev = net->options.dev;

    if (!p->has_loss) CT_TRY(dev->upload(st, &p->at->loss, loss, sizeof(*loss)));
    p->has_loss = true;
    return dev->upload(st, &p->at->now, now, sizeof(*now));
}

void ct_update_plan_range(const ct_net *net, int first, int n, int64_t *from_p, int64_t *to_p)
{
    const ct_param *next = &net->param[first + n];
    bool ends = (first + n == net->n_param) || !next->learns;

    *from_p = net->param[first].offset;
    *to_p = ends ? net->grad_count : next->offset;
}

static ct_update_all all_of(const ct_update_plan *p)
{
    return (ct_update_all){
        .part = p->part, .part_of_line = p->part_of_line, .trust = p->trust, .at = p->at
    };
}

ct_status ct_update_plan_trust(const ct_net *net, const ct_update_plan *p, ct_stream st,
                               const ct_update *u, double local, int first, int n)
{
    const ct_update_all all = all_of(p);

    for (int k = first; (p->trust != NULL) && (k < first + n); k++) {
        const ct_param *q = &net->param[k];

        CT_TRY(p->ops->trust(st, p->ratio, u, &all, k, q->offset, q->count,
                             q->blob.data.shape.ndim > 1, local, p->trust));
    }
    return CT_OK;
}

ct_status ct_update_plan_run(const ct_net *net, const ct_update_plan *p, ct_stream st, int kind,
                             const ct_update *u, float *average, int64_t from, int64_t to)
{
    ct_update_all all = all_of(p);

    all.from = from;
    all.to = to;
    CT_TRY(net->options.dev->math->update_all(st, kind, u, &all));
    return (average == NULL) ? CT_OK : p->ops->average(st, p->at, from, to, u->weight, average);
}

ct_status ct_update_plan_tell(const ct_net *net, ct_update_plan *p, ct_stream st, int64_t iteration)
{
    int k = p->turn;

    if (p->told[k].ticket != NULL)
        return CT_FAIL(CT_ERR_ARG, "the norm of iteration %" PRId64 " was not asked for",
                       p->told[k].iteration);
    p->turn = 1 - k;
    p->told[k].iteration = iteration;
    return net->options.dev->copy_begin(st, p->told[k].here, &p->at->norm, sizeof(double), true,
                                        &p->told[k].ticket);
}

ct_status ct_update_plan_hear(const ct_net *net, ct_update_plan *p, bool all, ct_norm_fn hear,
                              void *ctx)
{
    for (int i = 0; i < 2; i++) {
        int k = (p->turn + i) % 2; /* the older one first */
        bool done = false;

        if (p->told[k].ticket == NULL) continue;
        CT_TRY(net->options.dev->copy_done(p->told[k].ticket, all, &done));
        if (!done) return CT_OK;
        p->told[k].ticket = NULL;
        hear(ctx, p->told[k].iteration, *p->told[k].here);
    }
    return CT_OK;
}
