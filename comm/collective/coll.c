/* The table of collectives, what `allreduce:` says, and the choice among them. */
#include "comm/collective/coll.h"

#include <ctype.h>
#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "comm/collective/coll_types.h"
#include "framework/base/text.h"

#define CT_COLLECTIVE_OPS(_name) &ct_coll_##_name,
const ct_coll_ops *const ct_coll_table[] = { CT_COLLECTIVES(CT_COLLECTIVE_OPS) NULL };
#undef CT_COLLECTIVE_OPS

const ct_coll_ops *ct_coll_named(const char *name)
{
    for (const ct_coll_ops *const *at = ct_coll_table; *at != NULL; ++at) {
        if (strcmp(name, (*at)->name) == 0) return *at;
    }
    return NULL;
}

const ct_coll_ops *ct_coll_of_kind(const ct_coll_ops *row, ct_coll_kind kind)
{
    if (kind == CT_COLL_ALLREDUCE) return row;
    return (kind == CT_COLL_REDUCE_SCATTER) ? row->scatter : row->gather;
}

const char *const ct_coll_kind_name[3] = { [CT_COLL_ALLREDUCE] = "allreduce",
                                           [CT_COLL_REDUCE_SCATTER] = "reduce_scatter",
                                           [CT_COLL_ALLGATHER] = "allgather" };

const ct_coll_ops *ct_coll_half_of(const ct_coll_ops *allreduce, ct_coll_kind kind)
{
    return allreduce->by_mpi ? NULL : ct_coll_of_kind(allreduce, kind);
}

/* ---- what `allreduce:` says */

/* where: the place of it with ": " behind, or "". */
static ct_status fail(const char *where, const char *spec, const char *at, const char *what)
{
    return CT_FAIL(CT_ERR_CONFIG,
                   "%sallreduce \"%s\": %s, at \"%.20s\"; expected NAME, or NAME<SIZE,…,NAME with "
                   "rising sizes, such as tree<64K,rhd<4M,hier",
                   where, spec, what, at);
}

/* A whole number from 1 to 2^40; false where there is none. */
static bool read_number(const char **at, int64_t *n_p)
{
    const int64_t most = (int64_t)1 << 40;
    int64_t n = 0;

    if (!isdigit((unsigned char)**at)) return false;
    for (; isdigit((unsigned char)**at); ++*at) {
        n = 10 * n + (**at - '0');
        if (n > most) return false;
    }
    *n_p = n;
    return n >= 1;
}

static ct_status read_name(const char *where, const char *spec, const char **at, ct_coll_term *term)
{
    size_t n = 0;

    while (isalnum((unsigned char)(*at)[n]) || ((*at)[n] == '_')) n += 1;
    if (n == 0) return fail(where, spec, *at, "no name");
    if (n >= sizeof(term->name)) return fail(where, spec, *at, "no known name is so long");
    memcpy(term->name, *at, n);
    term->name[n] = '\0';
    *at += n;
    return CT_OK;
}

static ct_status read_dims(const char *where, const char *spec, const char **at, ct_coll_term *term)
{
    const ct_coll_ops *ops = ct_coll_named(term->name);

    if (**at != ':') return CT_OK;
    if ((ops == NULL) || !ops->has_dims)
        return fail(where, spec, *at, "only a torus has dimensions");
    for (int k = 0; k < 3; ++k) term->dim[k] = 1;
    for (int k = 0; k < 3; ++k) {
        int64_t n = 0;

        *at += 1;
        if (!read_number(at, &n) || (n > INT32_MAX))
            return fail(where, spec, *at, "not the dimension of a torus");
        term->dim[k] = (int)n;
        if (**at != 'x') return CT_OK;
    }
    return fail(where, spec, *at, "more than three dimensions");
}

static ct_status read_limit(const char *where, const char *spec, const char **at,
                            ct_coll_term *term)
{
    static const char unit[] = "KMG";
    const char *found = NULL;

    term->below = INT64_MAX;
    if (**at != '<') return CT_OK;
    *at += 1;
    if (!read_number(at, &term->below)) return fail(where, spec, *at, "not a size");
    found = (**at != '\0') ? strchr(unit, toupper((unsigned char)**at)) : NULL;
    if (found != NULL) {
        term->below <<= 10 * (found - unit + 1);
        *at += 1;
    }
    return CT_OK;
}

static ct_status read_spec(const char *where, const char *spec, ct_coll_term *term, int *n_p)
{
    const char *at = spec;
    int64_t before = 0;

    for (int n = 0; n < CT_COLL_TERMS; ++n) {
        const char *start = at;

        term[n] = (ct_coll_term){ .below = 0 };
        CT_TRY(read_name(where, spec, &at, &term[n]));
        CT_TRY(read_dims(where, spec, &at, &term[n]));
        CT_TRY(read_limit(where, spec, &at, &term[n]));
        if (term[n].below <= before) return fail(where, spec, start, "a size that does not rise");
        before = term[n].below;
        if (*at == '\0') {
            if (before != INT64_MAX)
                return fail(where, spec, start,
                            "larger buffers have no algorithm, since the last has a "
                            "limit");
            *n_p = n + 1;
            return CT_OK;
        }
        if (*at != ',') return fail(where, spec, at, "unexpected");
        if (before == INT64_MAX)
            return fail(where, spec, start, "a name without a limit before others");
        at += 1;
    }
    return fail(where, spec, at, "too many ranges");
}

ct_status ct_coll_spec_read(const char *spec, ct_coll_term *term, int *n_p)
{
    return read_spec("", spec, term, n_p);
}

/* ---- costs */

enum { MOST_KEPT = 64, MANY_RANKS = 1024 };

typedef struct kept_cost {
    const ct_cost_ops *how;
    bool shares;
    int dim[3];
    ct_cost *cost;
} kept_cost;

/* What a communicator keeps. */
typedef struct coll_costs {
    kept_cost kept[MOST_KEPT];
    int n;
    const ct_cost_ops *shaped[CT_COLL_TERMS]; /* those with dimensions … */
    int dim[CT_COLL_TERMS][3];                /* … and these             */
    int n_shaped;
} coll_costs;

static const char costs_key; /* of what the communicator keeps */

static void destroy_costs(void *what)
{
    coll_costs *costs = what;

    for (int i = 0; i < costs->n; ++i) ct_cost_destroy(costs->kept[i].cost);
    free(costs);
}

static ct_status find_costs(const ct_comm *c, coll_costs **costs_p)
{
    *costs_p = ct_comm_attached(c, &costs_key);
    if (*costs_p != NULL) return CT_OK;
    *costs_p = calloc(1, sizeof(**costs_p));
    if (*costs_p == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for costs");
    return ct_comm_attach(c, &costs_key, *costs_p, destroy_costs);
}

/* NULL: its dimensions are chosen, or it has none. */
static int *dims_of(coll_costs *costs, const ct_cost_ops *how)
{
    if (how->whole != NULL) how = how->whole;
    for (int i = 0; i < costs->n_shaped; ++i) {
        if (costs->shaped[i] == how) return costs->dim[i];
    }
    return NULL;
}

ct_status ct_coll_cost(const ct_comm *c, const ct_cost_ops *how, bool shares,
                       const ct_cost **cost_p)
{
    static const int chosen[3];
    coll_costs *all = NULL;
    const int *dim = NULL;
    kept_cost *k = NULL;

    CT_TRY(find_costs(c, &all));
    dim = dims_of(all, how);
    if (dim == NULL) dim = chosen;
    for (int i = 0; i < all->n; ++i) {
        k = &all->kept[i];
        if ((k->how != how) || (k->shares != shares)) continue;
        if (memcmp(k->dim, dim, sizeof(k->dim)) != 0) continue;
        *cost_p = k->cost;
        return CT_OK;
    }
    if (all->n == MOST_KEPT)
        return CT_FAIL(CT_ERR_CONFIG, "more than %d algorithms on one communicator", MOST_KEPT);
    k = &all->kept[all->n];
    CT_TRY(ct_cost_create(how, c->topo, dim, shares, &k->cost));
    k->how = how;
    k->shares = shares;
    memcpy(k->dim, dim, sizeof(k->dim));
    all->n += 1;
    *cost_p = k->cost;
    return CT_OK;
}

double ct_coll_seconds(const ct_comm *c, const ct_cost_ops *how, int64_t bytes)
{
    const ct_cost *cost = NULL;

    if (ct_coll_cost(c, how, c->node_shares, &cost) != CT_OK) return DBL_MAX;
    return ct_cost_s(cost, (double)bytes);
}

bool ct_coll_is_automatic(const ct_coll_ops *ops, const ct_topo *t)
{
    return ops->automatic && ((ops->fits == NULL) || ops->fits(t));
}

double ct_coll_cost_s(const ct_coll_ops *ops, const ct_comm *c, int64_t bytes, ct_dtype dtype)
{
    bool host = (ops->host_cost != NULL) && ops->on_host(dtype);

    return ct_coll_seconds(c, host ? ops->host_cost : ops->cost, bytes);
}

ct_status ct_coll_set_dims(const ct_comm *c, const ct_cost_ops *how, const int *dim)
{
    coll_costs *all = NULL;
    const ct_cost *cost = NULL;
    int before[3], *now = NULL;
    ct_status status = CT_OK;

    CT_TRY(find_costs(c, &all));
    now = dims_of(all, how);
    if (now == NULL) {
        if (all->n_shaped == CT_COLL_TERMS)
            return CT_FAIL(CT_ERR_CONFIG, "more than %d algorithms with dimensions", CT_COLL_TERMS);
        all->shaped[all->n_shaped] = how;
        now = all->dim[all->n_shaped++];
    }
    memcpy(before, now, sizeof(before));
    memcpy(now, dim, sizeof(before));
    status = ct_coll_cost(c, how, c->node_shares, &cost); /* are the dimensions good? */
    if (status != CT_OK) memcpy(now, before, sizeof(before));
    return status;
}

/* ---- choice */

static ct_status fail_unknown(const char *where, const char *name)
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
    status = CT_FAIL(CT_ERR_CONFIG, "%sunknown allreduce \"%s\"%s%s%s; known are auto%s", where,
                     name, (near != NULL) ? "; did you mean \"" : "", (near != NULL) ? near : "",
                     (near != NULL) ? "\"?" : "", (known.text != NULL) ? known.text : "");
    ct_text_destroy(&known);
    return status;
}

static bool is_known(const char *name)
{
    return (strcmp(name, "auto") == 0) || (ct_coll_named(name) != NULL);
}

ct_status ct_coll_check_spec(const char *spec, const char *where)
{
    ct_coll_term term[CT_COLL_TERMS];
    ct_text before = { .text = NULL };
    const char *place = "";
    ct_status status;
    int n = 0;

    ct_text_add(&before, "%s: ", where);
    if (before.text != NULL) place = before.text;
    status = read_spec(place, spec, term, &n);
    for (int i = 0; (i < n) && (status == CT_OK); ++i) {
        if (!is_known(term[i].name)) status = fail_unknown(place, term[i].name);
    }
    ct_text_destroy(&before);
    return status;
}

/* The whole text is looked at, also what it says of other sizes. */
static ct_status find_term(const ct_comm *c, const char *spec, int64_t bytes, ct_coll_term *term_p)
{
    ct_coll_term term[CT_COLL_TERMS];
    int n = 0, at = 0;

    CT_TRY(ct_coll_spec_read(spec, term, &n));
    for (int i = 0; i < n; ++i) {
        if (!is_known(term[i].name)) return fail_unknown("", term[i].name);
        if (term[i].dim[0] > 0)
            CT_TRY(ct_coll_set_dims(c, ct_coll_named(term[i].name)->cost, term[i].dim));
    }
    while (bytes >= term[at].below) at += 1;
    *term_p = term[at];
    return CT_OK;
}

ct_status ct_coll_choose_kind(const ct_comm *c, ct_coll_kind kind, int64_t count, ct_dtype dtype,
                              const char *spec, bool own, const ct_coll_ops **ops_p)
{
    static const char *const what[] = { "sum", "reduce-scatter", "gather" };
    int64_t bytes = count * (int64_t)ct_dtype_size(dtype);
    const ct_coll_ops *best = NULL;
    ct_coll_term term;
    double least = 0;

    CT_TRY(find_term(c, (spec != NULL) ? spec : "auto", bytes, &term));
    for (const ct_coll_ops *const *at = ct_coll_table; *at != NULL; ++at) {
        const ct_coll_ops *ops = ct_coll_of_kind(*at, kind);
        bool any = (strcmp(term.name, "auto") == 0);
        double cost = 0;

        if (!any && (strcmp(term.name, (*at)->name) != 0)) continue;
        if ((ops == NULL) || (any && (!ct_coll_is_automatic(ops, c->topo) || (own && ops->by_mpi))))
            continue;
        if (!ops->supports(c, count, dtype)) continue;
        if (any)
            cost = ct_coll_cost_s(ops, c, bytes, dtype) *
                   ct_cost_weight(ops->cost, c->topo, c->node_shares);
        if ((best != NULL) && (cost >= least)) continue;
        best = ops;
        least = cost;
    }
    if ((best == NULL) && (c->checks != MPI_COMM_NULL) && (strcmp(term.name, "impi") == 0))
        return CT_FAIL(CT_ERR_CONFIG, "allreduce \"impi\" and verify_wire do not go together: what "
                                      "MPI's own sums send cannot be verified; take auto, or leave "
                                      "comm.verify_wire out");
    if (best == NULL)
        return CT_FAIL(CT_ERR_CONFIG, "allreduce \"%s\" cannot %s %lld elements of dtype %d here",
                       (spec != NULL) ? spec : "auto", what[kind], (long long)count, (int)dtype);
    *ops_p = best;
    return CT_OK;
}

ct_status ct_coll_choose(const ct_comm *c, int64_t count, ct_dtype dtype, const char *spec,
                         const ct_coll_ops **ops_p)
{
    return ct_coll_choose_kind(c, CT_COLL_ALLREDUCE, count, dtype, spec, false, ops_p);
}

ct_status ct_coll_choose_own(const ct_comm *c, int64_t count, ct_dtype dtype, const char *spec,
                             const ct_coll_ops **ops_p)
{
    return ct_coll_choose_kind(c, CT_COLL_ALLREDUCE, count, dtype, spec, true, ops_p);
}

ct_status ct_coll_count(const ct_coll_ops *ops, ct_comm *c, int64_t count, ct_dtype dtype,
                        ct_coll_size *size)
{
    ct_coll_req r = { .comm = c, .count = count, .dtype = dtype, .size = size };

    if (ops->many_rounds && (c->size > MANY_RANKS)) { /* a list of its steps would take long */
        int64_t part = (ops->kind == CT_COLL_ALLGATHER) ? 0 : ct_part(count, c->size, 1);

        /* each of them adds one */
        ct_coll_count_room(size, ct_sched_run_bytes(dtype, part, CT_SCHED_USUAL_WINDOW));
        return CT_OK;
    }
    return ops->prepare(&r);
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
        if (status == CT_INPROGRESS) {
            moved = ct_comm_move(c);
            n += ct_comm_pending(c, req + n, CT_COMM_MAX_PENDING - n);
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
