/** @file coll_spec.h  What `allreduce:` says: an algorithm, or one for each range of sizes. No MPI.
 *
 *     ring                      always the same
 *     auto                      the least cost
 *     tree<64K,rhd<4M,hier      the first whose limit is above the buffer's bytes (1K = 1024)
 *     torus:8x4x2               a torus of these dimensions, two or three; torus: near to a cube
 */
#ifndef CT_COLL_SPEC_H
#define CT_COLL_SPEC_H

#include <stdint.h>

#include "framework/base/status.h"

typedef struct ct_coll_term {
    char name[16];
    int dim[3];    /* of a torus, 1 where not given; 0: not given at all */
    int64_t below; /* bytes; INT64_MAX: no limit                         */
} ct_coll_term;

enum { CT_COLL_TERMS = 16 };

/** term[CT_COLL_TERMS]. Names are not looked up. CT_ERR_CONFIG with the place and what is wrong. */
ct_status ct_coll_spec_read(const char *spec, ct_coll_term *term, int *n_p);

#endif
