/** @file turns.h  The steps whose batches a rank takes, where ranks take different ones.
 *
 * Of every `round` steps they are n, from `first` on, and its loader steps over the others'. Turns
 * count them from 0 on: with round 4, first 2 and n 2 turns 0, 1, 2 and 3 are steps 2, 3, 6 and 7.
 */
#ifndef CT_TURNS_H
#define CT_TURNS_H

#include <stdint.h>

/** round 0: the rank takes all steps. */
typedef struct ct_turns {
    int round, first, n;
} ct_turns;

/** The step of turn 0, 1 … */
static inline int64_t ct_turns_step(const ct_turns *t, int64_t turn)
{
    return (t->round > 0) ? turn / t->n * t->round + t->first + turn % t->n : turn;
}

/** The turn of a step; below 0: it is another rank's. */
static inline int64_t ct_turns_at(const ct_turns *t, int64_t step)
{
    int64_t in_round = (t->round > 0) ? step % t->round - t->first : 0;

    if ((step < 0) || (t->round == 0)) return step;
    if ((in_round < 0) || (in_round >= t->n)) return -1;
    return step / t->round * t->n + in_round;
}

#endif
