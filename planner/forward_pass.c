#include "planner/forward_pass.h"

#include <math.h>
#include <stdlib.h>

void ct_forward_pass_destroy(ct_forward_pass *f)
{
    for (int i = 0; i < f->n_step; i++) free(f->step[i].layer);
    free(f->step);
    *f = (ct_forward_pass){ 0 };
}

double ct_forward_transfer_s(const ct_forward_step *begin, int n_rank, ct_job_link link)
{
    double part = (double)(n_rank - 1) / n_rank * (double)begin->bytes;
    int phases = (begin->transfer == CT_TRANSFER_SUM) ? 2 : 1;

    if (n_rank == 1) return 0;
    return phases * (part * link.byte_s + link.latency_s);
}

ct_status ct_forward_pass_time(const ct_forward_pass *f, ct_job_link link, bool hides,
                               ct_forward_times *t)
{
    double *over = calloc((size_t)f->n_pair + 1, sizeof(*over)), free_at = 0;

    if (over == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d transfers", f->n_pair);
    *t = (ct_forward_times){ 0 };
    for (int i = 0; i < f->n_step; i++) {
        const ct_forward_step *s = &f->step[i];
        double took;

        switch (s->kind) {
        case CT_FORWARD_COMPUTE:
            t->all_s += s->seconds;
            t->compute_s += s->seconds;
            break;
        case CT_FORWARD_BEGIN:
            took = ct_forward_transfer_s(s, f->n_rank, link);
            t->sums_s += took;
            free_at = over[s->pair] = fmax(free_at, t->all_s) + took;
            if (!hides) t->all_s = free_at;
            break;
        case CT_FORWARD_WAIT:
            t->all_s = fmax(t->all_s, over[s->pair]);
            break;
        }
    }
    t->exposed_s = t->all_s - t->compute_s;
    free(over);
    return CT_OK;
}
