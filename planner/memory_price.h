/** @file memory_price.h  What a way to keep weights, gradients and states costs: seconds of a step
 * by a model, and the fastest of the ways that fit a limit.
 *
 * A step computes, and meanwhile bytes move to and from files and between ranks. What moves is
 * hidden as far as there is computing to hide it behind:
 *
 *     V = forward + backward + what is made again     what comes for layers, and other ranks' sums
 *     U = backward + what is made again               files of updates, which backward makes
 *     U = 0                                           … where updates wait for all gradients
 *
 *     step = computing + what is exposed + 0.05 of what is hidden
 *
 * Copies, messages and waits take some time of the cores and of their memory: the last term.
 */
#ifndef CT_PLANNER_MEMORY_PRICE_H
#define CT_PLANNER_MEMORY_PRICE_H

#include "planner/net_chain.h"

#ifdef __cplusplus
extern "C" {
#endif

/** What a rank does at most, a second. */
typedef struct ct_memory_speeds {
    ct_net_limits compute;
    double file_read, file_write; /* bytes of its files; both at once */
} ct_memory_speeds;

/** What is taken where nothing is measured or described: 10^12 operations, 10^11 bytes of memory,
 *  2 and 1 x 10^9 bytes of a local disk. */
extern const ct_memory_speeds ct_memory_speeds_assumed;

/** A step of a rank. */
typedef struct ct_memory_step {
    ct_net_seconds compute; /* of all micro-batches */
    double update_s;        /* files: what updates move */
    double visit_s;         /* files: what comes for the layers that read it */
    double network_s;       /* sums of gradients, and weights that come from other ranks */
    bool waits;             /* no weight is updated before all gradients are known */
    bool exposed;           /* nothing travels while layers compute */
} ct_memory_step;

double ct_memory_step_s(const ct_memory_step *s);

/** Seconds that files take for bytes each way. */
double ct_memory_file_s(const ct_memory_speeds *v, double read, double written);

/** A way to keep all, as AUTO compares it. */
typedef struct ct_memory_way {
    int64_t need; /* bytes of the rank that takes most */
    int rank;     /* the first that does               */
    double seconds;
} ct_memory_way;

/** The fastest of n ways that need at most `limit` bytes (0: any), the first of equals; -1: none
 *  does. */
int ct_memory_fastest(const ct_memory_way *way, int n, double limit);
/** The one that needs least, the first of equals; n at least 1. */
int ct_memory_least(const ct_memory_way *way, int n);

#ifdef __cplusplus
}
#endif

#endif
