/** @file tune_rule.h  When times within training speak clearly enough against the cost model. No
 * MPI.
 *
 * Times within training hang on polls, on other ranks' work and on other programs. So they come in
 * rounds: in one each way goes once, in steps next to each other, so that what lasts longer than a
 * step meets all of them. Private to comm/.
 */
#ifndef CT_TUNE_RULE_H
#define CT_TUNE_RULE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    CT_TUNE_MOST_ROUNDS = 32,
    CT_TUNE_LEAST_ROUNDS = 4 /* that a way must win in a row, to be taken against the model */
};

/** The shortest of n times; 0: it never went. */
int64_t ct_tune_best(const int64_t *ns, int n);
/** Of way w the time in round k is ns[w * CT_TUNE_MOST_ROUNDS + k], on the slowest rank; 0: it did
 * not go. Way 0 is the model's. The fastest at its best, if that is below clearly * way 0's best;
 * else 0. It is worth another look, no more. */
int ct_tune_challenger(const int64_t *ns, int n_way, int n_round, double clearly);
/** True where `other` was faster than `model` in each of the rounds that both went, at least
 *  CT_TUNE_LEAST_ROUNDS, and its best is below clearly * the model's best. Without a difference, 1
 * of 2^rounds comparisons says so. */
bool ct_tune_wins(const int64_t *other, const int64_t *model, int n_round, double clearly);
/** The median of the times that are not 0, n <= CT_TUNE_MOST_ROUNDS; 0: it never went. */
int64_t ct_tune_median(const int64_t *ns, int n);
/** True where the median of `other` is the shorter one: for what is as good as the other in all but
 *  time, so that nothing else speaks for either. False where one of them never went. */
bool ct_tune_shorter(const int64_t *other, const int64_t *ns, int n_round);

#endif
