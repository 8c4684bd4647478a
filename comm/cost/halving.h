/** @file halving.h  Recursive halving among any number of members, nearest first. No MPI.
 *
 * In each round the members 0 … m-1 that share a part split into the even ones and the odd ones;
 * the even ones keep the first share of the part, the odd ones the rest, in proportion to their
 * numbers. 2 i and 2 i + 1 exchange what the other keeps. Where m is odd, the last even member has
 * no partner: it gives the last odd one what that keeps, and keeps its own share as it is. Then
 * each half goes on by itself. At powers of two this is the textbook's algorithm (Rabenseifner,
 * ICCS 2004) with distances 1, 2, 4 …; the largest exchanges are between neighbours. At other
 * numbers nobody sits out, and nothing is sent twice as where the surplus is folded in first.
 *
 * The rounds backwards are recursive doubling.
 */
#ifndef CT_HALVING_H
#define CT_HALVING_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ct_halving {
    int m, i;           /* members that share [a, b), and this one's number among them */
    int offset, stride; /* number k among them is member offset + k * stride           */
    int64_t a, b;
} ct_halving;

typedef struct ct_halving_round {
    int to; /* member that gets [send_a, send_b)               */
    int64_t send_a, send_b;
    int from[2], n_from; /* members that send [keep_a, keep_b); 0, 1 or 2   */
    int64_t keep_a, keep_b;
} ct_halving_round;

/** Member i of m, who share [a, b). */
void ct_halving_begin(ct_halving *h, int m, int i, int64_t a, int64_t b);
/** False once the member is alone; [h->a, h->b) is then its part. */
bool ct_halving_next(ct_halving *h, ct_halving_round *round_p);
/** Rounds that the busiest member needs: log2 m, rounded up. */
int ct_halving_rounds(int m);

#endif
