/** @file bench_fit.h  `cortado bench comm --fit`: the figures of the machine's levels, measured.
 *
 * On the ranks of the job, for each level of its topology where two ranks meet: steps of a
 * collective, one that adds and one back, by the engine that runs collectives
 * (comm/collective/schedule.h), 4 bytes to 32 MiB, in the patterns that algorithms have
 * (ct_pattern): inside a node of two ranks alone, above it of one rank of each of up to four
 * members. Their times are what the model takes; latency and bandwidth are a line through those of
 * ranks that swap. Above the node also four steps in a row, which shows what a token bucket lets
 * through at once. Then all ranks of one member of the level with as many of another, which gives
 * the link of that member; on the level of the node all its ranks in pairs, which gives what they
 * share (bus). All ranks at once add (gamma), and sum in the shared memory of their nodes. A time
 * is that of the slowest rank, after a barrier, the median of several; each rank rewrites its
 * buffer before. The error is that of every other size when the rest foretells it: the root of the
 * mean square of the relative differences. */
#ifndef CT_BENCH_FIT_H
#define CT_BENCH_FIT_H

#include "comm/core/comm.h"

typedef struct ct_fit_report {
    ct_machine
        machine; /* its names are NULL; figures of levels that were not met are the guesses */
    bool measured[CT_MAX_LEVEL];
    int pair[CT_MAX_LEVEL][2]; /* ranks of the one pair alone     */
    int n_pair[CT_MAX_LEVEL];  /* pairs at once; below 2: no more */
} ct_fit_report;

/** The same result on all ranks. Collective. CT_ERR_CONFIG for one rank alone. */
ct_status ct_bench_fit(ct_comm *c, ct_fit_report *report);
void ct_bench_fit_print(const ct_comm *c, const ct_fit_report *report);

#endif
