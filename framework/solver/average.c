/* An average of the weights over the run: Polyak's, as an exponential moving average (EMA), or the
 * plain mean of every interval-th (Izmailov et al.: Averaging Weights Leads to Wider Optima and
 * Better Generalization, 2018, algorithm 1). Which weights count follows from the number of updates
 * alone, so a resumed run needs to know nothing but the average itself. */
#include "framework/solver/solver_private.h"

typedef Ct__WeightAverageParameter average_param;

/* How many weights have counted after `done` updates, and whether the last ones do. */
static int64_t counted(const average_param *p, int64_t done, bool *last_p)
{
    int64_t past = done - p->start_iter;
    int64_t interval = (p->type == CT__WEIGHT_AVERAGE_PARAMETER__TYPE__SWA) ? p->interval : 1;

    *last_p = (past > 0) && (past % interval == 0);
    return (past > 0) ? past / interval : 0;
}

float ct_average_share(const average_param *p, int64_t done)
{
    bool last;
    int64_t n = counted(p, done, &last);

    if (!last) return 0.0f;
    if (n == 1) return 1.0f;
    if (p->type == CT__WEIGHT_AVERAGE_PARAMETER__TYPE__SWA) return (float)(1.0 / (double)n);
    return 1.0f - p->decay;
}

bool ct_average_begun(const average_param *p, int64_t done)
{
    bool last;

    return counted(p, done, &last) > 0;
}

bool ct_solver_has_average(const ct_solver *s)
{
    return (s->step.average != NULL) && ct_average_begun(s->param->average, s->iteration);
}
