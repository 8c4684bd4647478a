/** @file coll_types.h  One line a collective, what they cost here, how `allreduce:` names them, and
 * what most of them have in common. Private to comm/. */
#ifndef CT_COLL_TYPES_H
#define CT_COLL_TYPES_H

#include "comm/collective/coll.h"
#include "comm/collective/schedule.h"

/* The table: a line here is all that an allreduce is known by. Of equal costs the earlier one is
 * taken. impi is the last: it supports everything. */
/* clang-format off */
#define CT_COLLECTIVES(_do) \
    _do(ring) \
    _do(rhd) \
    _do(hier) \
    _do(torus) \
    _do(tree) \
    _do(swing) \
    _do(impi)
/* clang-format on */

#define CT_DECLARE_COLLECTIVE(_name) extern const ct_coll_ops ct_coll_##_name;
CT_COLLECTIVES(CT_DECLARE_COLLECTIVE)
#undef CT_DECLARE_COLLECTIVE

/** By its name; NULL: there is none. */
const ct_coll_ops *ct_coll_named(const char *name);

/* ---- what a communicator's algorithms cost, made when first asked for. Not safe to call from two
 * threads at a time. */

/** As ct_cost_create(); borrowed until the communicator ends. Local. */
ct_status ct_coll_cost(const ct_comm *c, const ct_cost_ops *how, bool shares,
                       const ct_cost **cost_p);
/** Seconds by ct_cost_s(), sharing memory where the communicator does; DBL_MAX where it fails. */
double ct_coll_seconds(const ct_comm *c, const ct_cost_ops *how, int64_t bytes);
/** The dimensions that later uses of the algorithm on this communicator have; all 0: chosen. */
ct_status ct_coll_set_dims(const ct_comm *c, const ct_cost_ops *how, const int *dim);

/* ---- what `allreduce:` says: an algorithm, or one for each range of sizes. No MPI.
 *
 *     ring                      always the same
 *     auto                      the least cost
 *     tree<64K,rhd<4M,hier      the first whose limit is above the buffer's bytes (1K = 1024)
 *     torus:8x4x2               a torus of these dimensions, two or three; torus: near to a cube
 */

typedef struct ct_coll_term {
    char name[16];
    int dim[3];    /* of a torus, 1 where not given; 0: not given at all */
    int64_t below; /* bytes; INT64_MAX: no limit                         */
} ct_coll_term;

enum { CT_COLL_TERMS = 16 };

/** term[CT_COLL_TERMS]. Unknown names pass, but have no dimensions. CT_ERR_CONFIG with the place
 *  and what is wrong. */
ct_status ct_coll_spec_read(const char *spec, ct_coll_term *term, int *n_p);

/* ---- a collective that is one schedule over all ranks */

/** Appends the steps of a collective over r->count elements. */
typedef ct_status (*ct_p2p_build_fn)(const ct_coll_req *r, ct_schedule *s);

ct_status ct_coll_p2p_prepare(ct_coll_req *r, ct_p2p_build_fn build);
ct_status ct_coll_p2p_start(ct_coll_req *r);
ct_status ct_coll_p2p_progress(ct_coll_req *r);
void ct_coll_p2p_release(ct_coll_req *r);
int ct_coll_p2p_pending(ct_coll_req *r, MPI_Request **out, int max);
/** True for the dtypes that can be added. */
bool ct_coll_p2p_supports(const ct_comm *c, int64_t count, ct_dtype dtype);
/** Appends the reduce-scatter and/or the allgather of the plan that `how` prices, over all ranks.
 */
ct_status ct_coll_p2p_plan(const ct_coll_req *r, const ct_cost_ops *how, bool scatter, bool gather,
                           ct_schedule *s);
/** Place of this rank in the topology's order. */
int ct_coll_p2p_place(const ct_comm *c);

/** What the operations of all of them have in common. */
#define CT_COLL_P2P_OPS                                                                            \
    .supports = ct_coll_p2p_supports, .start = ct_coll_p2p_start,                                  \
    .progress = ct_coll_p2p_progress, .release = ct_coll_p2p_release,                              \
    .pending = ct_coll_p2p_pending

/** One group of all ranks, in whichever way costs least; a binomial tree of them. */
extern const ct_cost_ops ct_cost_flat, ct_cost_tree;

#endif
