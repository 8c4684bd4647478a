/** @file coll_types.h  One line a collective, what they cost here, and how `allreduce:` names them.
 * Private to comm/.
 */
#ifndef CT_COLL_TYPES_H
#define CT_COLL_TYPES_H

#include "comm/collective/coll.h"

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

/* ---- What a communicator's algorithms cost, made when first asked for. Not safe to call from two
 * threads at a time. */

/** As ct_cost_create(); borrowed until the communicator ends. Local. */
ct_status ct_coll_cost(const ct_comm *c, const ct_cost_ops *how, bool shares,
                       const ct_cost **cost_p);
/** Seconds by ct_cost_s(), sharing memory where the communicator does; DBL_MAX where it fails. */
double ct_coll_seconds(const ct_comm *c, const ct_cost_ops *how, int64_t bytes);
/** The dimensions that later uses of the algorithm on this communicator have; all 0: chosen. */
ct_status ct_coll_set_dims(const ct_comm *c, const ct_cost_ops *how, const int *dim);

/* ---- What `allreduce:` says: an algorithm, or one for each range of sizes. No MPI.
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

/** term[CT_COLL_TERMS]. Unknown names pass, but have no dimensions. CT_ERR_CONFIG with the place and
 *  what is wrong. */
ct_status ct_coll_spec_read(const char *spec, ct_coll_term *term, int *n_p);

#endif
