/** @file grouping.h  Which requests of unlike lengths are padded to one, so that all of them take
 * the least time together.
 *
 * In order of length a group is a run of neighbours, if a batch takes no less time for longer
 * samples: whatever the sizes of groups are, giving the longest requests to the group with the
 * longest makes no group longer. So dynamic programming over the ends of runs finds the optimum:
 * S[i] = min over j of S[j] + cost(length[i - 1], i - j). TurboTransformers' scheduler
 * (arXiv 2010.05680, section 5).
 */
#ifndef CT_GROUPING_H
#define CT_GROUPING_H

#include <stdint.h>

/** Seconds of a batch of `count` samples padded to `length`; does not fall with either. */
typedef double (*ct_padded_cost)(const void *ctx, int64_t length, int64_t count);

typedef struct ct_grouping {
    ct_padded_cost cost;
    const void *ctx;
    int64_t most_count;  /* samples of a group, >= 1                                  */
    int64_t most_tokens; /* length x count of a group of more than one                */
} ct_grouping;

/** Groups length[n], ascending: *n_p groups, group g ends before end[g]. best[n + 1], from[n + 1]:
 *  room to work in; best[n] is the time of all groups. */
void ct_group_lengths(const ct_grouping *g, const int64_t *length, int n, double *best, int *from,
                      int *end, int *n_p);

#endif
