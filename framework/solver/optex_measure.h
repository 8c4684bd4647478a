/** @file optex_measure.h  What the gradients of a round of OptEx show about noise and estimates:
 * fills ct_optex_round.measure. Both use the net's gradient arena as room. Ranks have the same
 * gradients, and find the same bits. */
#ifndef CT_OPTEX_MEASURE_H
#define CT_OPTEX_MEASURE_H

#include "framework/solver/optex_round.h"

/** Of the gradients of single batches, before a step's are added up. Begins the measure anew. */
ct_status ct_optex_measure_noise(ct_optex_round *r);
/** Of those of steps, before the predictor hears of them. */
void ct_optex_measure_estimates(ct_optex_round *r);

#endif
