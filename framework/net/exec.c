#include "framework/net/exec.h"

#include "framework/base/clock.h"

#define POLL_S 0.5e-3 /* rarer lets a fast network idle, more often costs more than it moves */

ct_status ct_exec_global_count(ct_exec *ex, double local, bool data_dependent, double *global_p)
{
    if (ex->sum_ranks == NULL) {
        *global_p = local;
        return CT_OK;
    }
    if (data_dependent) {
        double sum = local;

        CT_TRY(ex->sum_ranks(ex->hook_ctx, &sum, 1));
        *global_p = sum;
        return CT_OK;
    }
    *global_p =
        (ex->batch_local > 0) ? local * (double)ex->batch_global / (double)ex->batch_local : 0.0;
    return CT_OK;
}

ct_status ct_exec_poll(ct_exec *ex)
{
    double now = ct_clock_s();

    if (now - ex->polled_s < POLL_S) return CT_OK;
    ex->polled_s = now;
    ex->n_poll++;
    return (ex->poll != NULL) ? ex->poll(ex->poll_ctx) : CT_OK;
}
