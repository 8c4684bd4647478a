#include <stdlib.h>

#include "cli/profile/profile.h"

static int add_events(const ct_step *step, int n, double factor, ct_step_timeline_event *out)
{
    for (int i = 0; i < n; i++) {
        ct_step_timeline_event e = { .kind = CT_STEP_TIMELINE_RUN,
                                     .seconds = step[i].seconds * factor };

        if (step[i].kind == CT_STEP_WAIT)
            e = (ct_step_timeline_event){ .kind = CT_STEP_TIMELINE_READ, .range = step[i].param };
        if (step[i].kind == CT_STEP_READY)
            e = (ct_step_timeline_event){ .kind = CT_STEP_TIMELINE_READY, .range = step[i].param };
        out[i] = e;
    }
    return n;
}

ct_status ct_profile_make_line(const ct_profile *p, ct_step_timeline_overlap overlap, double factor,
                               ct_profile_timeline *out)
{
    ct_profile_timeline l = { .event = NULL };
    int64_t count = 0;
    double update_s = factor * 1e-3 * p->update_ms;

    l.event = calloc((size_t)(p->n_forward + p->n_backward) + 1, sizeof(*l.event));
    l.count = calloc((size_t)p->n_param + 1, sizeof(*l.count));
    if ((l.event == NULL) || (l.count == NULL)) {
        ct_profile_line_release(&l);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for the line of a step");
    }
    for (int i = 0; i < p->n_param; i++) count += l.count[i] = p->param[i].count;
    l.line = (ct_step_timeline){ .n_range = p->n_param,
                                 .count = l.count,
                                 .backward = l.event,
                                 .forward = l.event + p->n_backward,
                                 .update_s = update_s / (double)((count > 0) ? count : 1),
                                 .overlap = overlap };
    l.line.n_backward = add_events(p->backward, p->n_backward, factor, l.event);
    l.line.n_forward = add_events(p->forward, p->n_forward, factor, l.event + l.line.n_backward);
    *out = l;
    return CT_OK;
}

void ct_profile_line_release(ct_profile_timeline *l)
{
    free(l->event);
    free(l->count);
    *l = (ct_profile_timeline){ .event = NULL };
}
