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

/** So many bytes of a request's room. */
void ct_coll_count_room(ct_coll_size *size, int64_t bytes);

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
/** For allgathers: any. */
bool ct_coll_p2p_moves(const ct_comm *c, int64_t count, ct_dtype dtype);
/** Appends the allreduce of the plan that `how` prices, over all ranks; or its reduce-scatter,
 * which ends with the ranks' parts, or the allgather from these. */
ct_status ct_coll_p2p_plan(const ct_coll_req *r, const ct_cost_ops *how, ct_coll_kind kind,
                           ct_schedule *s);
/** Appends what moves the pieces of n_chunk chunks of the plan, each of its part of the buffer
 *  (ct_part()), to whose parts they are; or back. */
ct_status ct_coll_p2p_deal(const ct_coll_req *r, const ct_hierarchical_plan *plan, int n_chunk,
                           bool back, ct_schedule *s);
/** The parts of all ranks, in the order of the buffer: owners are places in the topology's order.
 *  The caller frees them. */
ct_status ct_coll_p2p_parts(const ct_coll_req *r, ct_sched_piece **piece_p);
/** Place of this rank in the topology's order. */
int ct_coll_p2p_place(const ct_comm *c);

/** What the operations of all of them have in common. */
#define CT_COLL_P2P_OPS .supports = ct_coll_p2p_supports, CT_COLL_P2P_MOVES
#define CT_COLL_P2P_MOVES                                                                          \
    .start = ct_coll_p2p_start, .progress = ct_coll_p2p_progress, .release = ct_coll_p2p_release,  \
    .pending = ct_coll_p2p_pending

/** Both halves of an allreduce by the plan that _name##_rounds() prices: of its costs
 *  `_name##_cost`. */
#define CT_COLL_PLAN_HALVES(_name, _many, _dims, _weight)                                          \
    CT_COLL_PLAN_HALF(_name, scatter, CT_COLL_REDUCE_SCATTER, CT_COST_UP, ct_coll_p2p_supports,    \
                      _many, _dims, _weight)                                                       \
    CT_COLL_PLAN_HALF(_name, gather, CT_COLL_ALLGATHER, CT_COST_DOWN, ct_coll_p2p_moves, _many,    \
                      _dims, _weight)
#define CT_COLL_PLAN_HALF(_name, _half, _kind, _way, _supports, _many, _dims, _weight)             \
    static ct_status _name##_##_half##_build(const ct_coll_req *r, ct_schedule *s)                 \
    {                                                                                              \
        return ct_coll_p2p_plan(r, &_name##_cost, _kind, s);                                       \
    }                                                                                              \
    static ct_status _name##_##_half##_prepare(ct_coll_req *r)                                     \
    {                                                                                              \
        return ct_coll_p2p_prepare(r, _name##_##_half##_build);                                    \
    }                                                                                              \
    static const ct_cost_ops _name##_##_half##_cost = {                                            \
        .rounds = _name##_rounds, .weight = (_weight), .way = (_way), .whole = &_name##_cost       \
    };                                                                                             \
    static const ct_coll_ops _name##_##_half = {                                                   \
        .name = #_name,                                                                            \
        .kind = (_kind),                                                                           \
        .automatic = true,                                                                         \
        .has_dims = (_dims),                                                                       \
        .many_rounds = (_many),                                                                    \
        .supports = (_supports),                                                                   \
        .cost = &_name##_##_half##_cost,                                                           \
        .prepare = _name##_##_half##_prepare,                                                      \
        CT_COLL_P2P_MOVES,                                                                         \
    };

/** One group of all ranks, in whichever way costs least; a binomial tree of them. */
extern const ct_cost_ops ct_cost_flat, ct_cost_tree;

#endif
