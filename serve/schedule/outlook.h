/** @file outlook.h  What is expected of a request: how many tokens it makes, when it ends, and by
 * how much such expectations were off.
 *
 * Nobody knows when a text ends. It is expected to have as many new tokens as texts have had of
 * late, and no more than it may have. Each batch has a token of every sequence that has begun, so
 * batches are counted. Sequences that find no room wait until one ends: they are dealt out, in
 * order, to as many lanes as there is room for, each to the one that is free first.
 *
 * What is in front of a request takes as long as the costs of batches say, if batches are full and
 * follow one another at once. They are not, and do not: lengths do not fit, replies are made in
 * between, the machine does something else. Requests that have ended tell by how much: by the mean
 * of what others added over what was expected, and how far it scatters. As TCP sets its timer
 * (Jacobson, "Congestion Avoidance and Control", 1988), the next wait is likely to be at most the
 * mean and four mean deviations. What a request takes by itself is no part of that: an idle server
 * takes all that it has time for, and goes on learning.
 */
#ifndef CT_OUTLOOK_H
#define CT_OUTLOOK_H

#include <stdint.h>

#include "framework/base/status.h"

/* ---- how many tokens, and in how many batches */

typedef struct ct_growth {
    double mean;  /* tokens that sequences made, the last ones counting most; 0: none ended */
    double *lane; /* a heap, the least first: batches until it is free                      */
    int n_lane, most_lane;
    double last; /* … until all are */
} ct_growth;

/** Room for so many lanes. CT_ERR_NOMEM, logged. */
ct_status ct_growth_create(ct_growth *g, int most_lane);
void ct_growth_destroy(ct_growth *g);

/** A sequence ended with so many tokens. */
void ct_growth_note(ct_growth *g, int64_t made);
/** How many more one is expected to make, at least 1; until any has ended, 1. */
double ct_growth_expect(const ct_growth *g, int64_t most_new, int64_t made);

/** n >= 1 lanes, all of them free. */
void ct_growth_clear(ct_growth *g, int n);
/** Batches until one is free. */
double ct_growth_free(const ct_growth *g);
/** A sequence takes that one, for so many batches. */
void ct_growth_add(ct_growth *g, double batches);

/* ---- when */

/** In seconds. A whole request counts as one that makes a single token. */
typedef struct ct_outlook {
    double own_s, own_step_s; /* alone: a prompt, or all of it; each token after the first    */
    double wait_s, step_s;    /* what others add: in front of it; to each of those tokens     */
} ct_outlook;

/** Sums over requests that ended, the last ones counting most. All zeros: none has. */
typedef struct ct_lateness {
    double expected_s, added_s, deviation_s; /* of what others add */
} ct_lateness;

/** From when it comes until it has ended with so many tokens, at most, but for few. */
double ct_outlook_most_s(const ct_outlook *o, const ct_lateness *l, double made);
/** It has ended, or was given up, after took_s. unit_s: the time of a batch, > 0: a wait below it
 *  says little. */
void ct_lateness_note(ct_lateness *l, const ct_outlook *o, double made, double took_s,
                      double unit_s);
/** What nearly all wait at most, over what is expected: at least 1. */
double ct_lateness_factor(const ct_lateness *l);

#endif
