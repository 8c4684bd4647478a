/** @file clock_sync.h  How far the clocks of the ranks are apart. */
#ifndef CT_CLOCK_SYNC_H
#define CT_CLOCK_SYNC_H

#include "comm/core/comm.h"

typedef struct ct_clock_offset {
    double at_s;     /* when, by this rank's ct_clock_s()                         */
    double offset_s; /* this rank's clock less rank 0's; 0 on rank 0              */
    double error_s;  /* at most: half of the shortest round trip                  */
} ct_clock_offset;

/** Every rank in its turn sends rank 0 some messages and takes the one that is back first: rank 0
 *  read its clock while it was away (Cristian, "Probabilistic clock synchronization", 1989). Some
 *  hundred microseconds a rank. Collective. */
ct_status ct_clock_sync(ct_comm *c, ct_clock_offset *out);

#endif
