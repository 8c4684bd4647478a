#include <string.h>

#include "comm/coll_types.h"
#include "framework/base/text.h"

/* Among equal costs the earlier one is taken. */
const ct_coll_ops *const ct_coll_table[] = { &ct_coll_ring, &ct_coll_rhd, &ct_coll_hier,
                                             &ct_coll_impi, NULL };

static ct_status fail_unknown(const char *name)
{
    ct_text known = { .text = NULL };
    ct_status status = CT_OK;

    for (const ct_coll_ops *const *at = ct_coll_table; *at != NULL; ++at)
        ct_text_add(&known, ", %s", (*at)->name);
    status = CT_FAIL(CT_ERR_CONFIG, "unknown allreduce \"%s\"; known are auto%s", name,
                     (known.text != NULL) ? known.text : "");
    ct_text_destroy(&known);
    return status;
}

ct_status ct_coll_choose(const ct_comm *c, int64_t count, ct_dtype dtype, const char *name,
                         const ct_coll_ops **ops_p)
{
    int64_t bytes = count * (int64_t)ct_dtype_size(dtype);
    const ct_coll_ops *best = NULL;
    double least = 0;
    bool any = (strcmp(name, "auto") == 0), named = false;

    for (const ct_coll_ops *const *at = ct_coll_table; *at != NULL; ++at) {
        double cost = 0;

        if (!any && (strcmp(name, (*at)->name) != 0)) continue;
        named = true;
        if (!(*at)->supports(c, count, dtype)) continue;
        cost = (*at)->cost_s(c, bytes);
        if ((best != NULL) && (cost >= least)) continue;
        best = *at;
        least = cost;
    }
    if (!any && !named) return fail_unknown(name);
    if (best == NULL)
        return CT_FAIL(CT_ERR_CONFIG, "allreduce \"%s\" cannot sum %lld elements of dtype %d here",
                       name, (long long)count, (int)dtype);
    *ops_p = best;
    return CT_OK;
}

ct_status ct_coll_run(const ct_coll_ops *ops, ct_comm *c, void *buf, int64_t count, ct_dtype dtype)
{
    ct_coll_req r = { .comm = c, .buf = buf, .count = count, .dtype = dtype, .tag = 0 };
    ct_status status = CT_OK;
    int idle = 0;

    CT_TRY(ops->prepare(&r));
    CT_TRY_GOTO(status, done, ops->start(&r));
    while (status == CT_OK) {
        MPI_Request *req[CT_COMM_MAX_PENDING];
        int n = 0;

        ct_comm_lock(c);
        status = ops->progress(&r);
        if ((status == CT_INPROGRESS) && (ops->pending != NULL))
            n = ops->pending(&r, req, CT_COMM_MAX_PENDING);
        ct_comm_unlock(c);
        if (status != CT_INPROGRESS) break;
        idle += 1;
        status = ct_comm_wait_any(c, req, n, &idle);
    }

done:
    ops->release(&r);
    return status;
}
