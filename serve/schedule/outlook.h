/** @file outlook.h  When a request is expected to end, and by how much such expectations were off.
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
