#include <string.h>

#include "comm/collective/coll_cost.h"
#include "comm/collective/coll_spec.h"
#include "comm/collective/coll_types.h"
#include "framework/base/text.h"

/* Among equal costs the earlier one is taken. */
const ct_coll_ops *const ct_coll_table[] = {
    &ct_coll_ring, &ct_coll_rhd, &ct_coll_hier, &ct_coll_torus, &ct_coll_tree, &ct_coll_impi, NULL
};

static ct_status fail_unknown(const char *name)
{
    const char *word[sizeof(ct_coll_table) / sizeof(ct_coll_table[0])] = { "auto" }, *near = NULL;
    ct_text known = { .text = NULL };
    ct_status status = CT_OK;
    int n = 1;

    for (const ct_coll_ops *const *at = ct_coll_table; *at != NULL; ++at) {
        word[n++] = (*at)->name;
        ct_text_add(&known, ", %s", (*at)->name);
    }
    near = ct_text_nearest(name, word, n);
    status = CT_FAIL(CT_ERR_CONFIG, "unknown allreduce \"%s\"%s%s%s; known are auto%s", name,
                     (near != NULL) ? "; did you mean \"" : "", (near != NULL) ? near : "",
                     (near != NULL) ? "\"?" : "", (known.text != NULL) ? known.text : "");
    ct_text_destroy(&known);
    return status;
}

static bool is_known(const char *name)
{
    if (strcmp(name, "auto") == 0) return true;
    for (const ct_coll_ops *const *at = ct_coll_table; *at != NULL; ++at) {
        if (strcmp(name, (*at)->name) == 0) return true;
    }
    return false;
}

ct_status ct_coll_check_spec(const char *spec)
{
    ct_coll_term term[CT_COLL_TERMS];
    int n = 0;

    CT_TRY(ct_coll_spec_read(spec, term, &n));
    for (int i = 0; i < n; ++i) {
        if (!is_known(term[i].name)) return fail_unknown(term[i].name);
    }
    return CT_OK;
}

/* The whole text is looked at, also what it says of other sizes. */
static ct_status find_term(const ct_comm *c, const char *spec, int64_t bytes, ct_coll_term *term_p)
{
    ct_coll_term term[CT_COLL_TERMS];
    int n = 0, at = 0;

    CT_TRY(ct_coll_spec_read(spec, term, &n));
    for (int i = 0; i < n; ++i) {
        if (!is_known(term[i].name)) return fail_unknown(term[i].name);
        if (term[i].dim[0] > 0) CT_TRY(ct_coll_set_torus(c, term[i].dim));
    }
    while (bytes >= term[at].below) at += 1;
    *term_p = term[at];
    return CT_OK;
}

static ct_status choose(const ct_comm *c, int64_t count, ct_dtype dtype, const char *spec, bool own,
                        const ct_coll_ops **ops_p)
{
    int64_t bytes = count * (int64_t)ct_dtype_size(dtype);
    const ct_coll_ops *best = NULL;
    ct_coll_term term;
    double least = 0;

    CT_TRY(find_term(c, spec, bytes, &term));
    for (const ct_coll_ops *const *at = ct_coll_table; *at != NULL; ++at) {
        bool any = (strcmp(term.name, "auto") == 0);
        double cost = 0;

        if (!any && (strcmp(term.name, (*at)->name) != 0)) continue;
        if ((any && own && (*at)->by_mpi) || !(*at)->supports(c, count, dtype)) continue;
        if (any)
            cost = (*at)->cost_s(c, bytes, dtype) *
                   ct_cost_weight((*at)->name, c->topo, c->node_shares);
        if ((best != NULL) && (cost >= least)) continue;
        best = *at;
        least = cost;
    }
    if (best == NULL)
        return CT_FAIL(CT_ERR_CONFIG, "allreduce \"%s\" cannot sum %lld elements of dtype %d here",
                       spec, (long long)count, (int)dtype);
    *ops_p = best;
    return CT_OK;
}

ct_status ct_coll_choose(const ct_comm *c, int64_t count, ct_dtype dtype, const char *spec,
                         const ct_coll_ops **ops_p)
{
    return choose(c, count, dtype, spec, false, ops_p);
}

ct_status ct_coll_choose_own(const ct_comm *c, int64_t count, ct_dtype dtype, const char *spec,
                             const ct_coll_ops **ops_p)
{
    return choose(c, count, dtype, spec, true, ops_p);
}

ct_status ct_coll_begin(const ct_coll_ops *ops, ct_coll_req *r)
{
    ct_status status;

    CT_TRY(ops->prepare(r));
    ct_comm_lock(r->comm);
    status = ops->start(r);
    ct_comm_unlock(r->comm);
    if (status != CT_OK) ops->release(r);
    return status;
}

ct_status ct_coll_end(const ct_coll_ops *ops, ct_coll_req *r)
{
    ct_comm *c = r->comm;
    ct_status status = CT_OK;
    int idle = 0;

    while (status == CT_OK) {
        MPI_Request *req[CT_COMM_MAX_PENDING];
        ct_status moved = CT_OK;
        int n = 0;

        ct_comm_lock(c);
        status = ops->progress(r);
        if ((status == CT_INPROGRESS) && (ops->pending != NULL))
            n = ops->pending(r, req, CT_COMM_MAX_PENDING);
        if ((status == CT_INPROGRESS) && (c->mover.move != NULL)) {
            moved = c->mover.move(c->mover.ctx);
            n += c->mover.pending(c->mover.ctx, req + n, CT_COMM_MAX_PENDING - n);
        }
        ct_comm_unlock(c);
        if (status != CT_INPROGRESS) break;
        status = moved;
        if (status != CT_OK) break;
        idle += 1;
        status = ct_comm_wait_any(c, req, n, &idle);
    }
    ops->release(r);
    return status;
}

ct_status ct_coll_run(const ct_coll_ops *ops, ct_comm *c, void *buf, int64_t count, ct_dtype dtype)
{
    ct_coll_req r = { .comm = c, .buf = buf, .count = count, .dtype = dtype, .tag = 0 };

    CT_TRY(ct_coll_begin(ops, &r));
    return ct_coll_end(ops, &r);
}
