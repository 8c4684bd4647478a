#include "framework/solver/update_all.h"

#include <stdlib.h>

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

ct_status ct_update_plan_open(const ct_net *net, ct_update_plan *p)
{
    int n = count_learned(net);
    size_t lines = (size_t)(net->grad_count / CT_UPDATE_LINE);
    ct_update_part *part;
    uint16_t *of;
    ct_status status;

    *p = (ct_update_plan){ NULL, NULL };
    if ((net->options.dev->math->update_all == NULL) || (n == 0) || (n > UINT16_MAX)) return CT_OK;
    part = calloc((size_t)n, sizeof(*part));
    of = calloc(lines + 1, sizeof(*of));
    status = ((part != NULL) && (of != NULL))
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

void ct_update_plan_close(const ct_net *net, ct_update_plan *p)
{
    /* net may be NULL where nothing was opened */
    if (p->part != NULL) net->options.dev->mem_release(p->part);
    if (p->part_of_line != NULL) net->options.dev->mem_release(p->part_of_line);
    *p = (ct_update_plan){ NULL, NULL };
}

ct_status ct_update_plan_run(const ct_net *net, const ct_update_plan *p, ct_stream st,
                             ct_update_kind kind, const ct_update *u, int first, int n)
{
    const ct_param *next = &net->param[first + n];
    bool ends = (first + n == net->n_param) || !next->learns;
    ct_update_all all = { p->part, p->part_of_line, net->param[first].offset,
                          ends ? net->grad_count : next->offset };

    return net->options.dev->math->update_all(st, (int)kind, u, &all);
}
