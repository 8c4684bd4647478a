/** @file partition.h  Where a pipeline's layers are cut into stages.
 *
 * Stages are runs of layers in order, each of at least one, each on ranks of its own, so a layer's
 * time depends on the stage. The least of
 *
 *     step = sum of e_s + 2 sum of c + (m - 1) max (e_s + c_in + c_out) + max of the stages' data_s
 *
 * over all partitions is found. e_s is the sum of a stage's times for one micro-batch, and c what a
 * cut takes each way. m micro-batches run one after the other (1F1B), and data_s is what a stage's
 * gradients take at the end.
 *
 * The method: pairs of (slowest stage, most data) are cut into cells. In each cell the least sum of
 * partitions within its upper bounds is found, which gives a partition to beat, and with the lower
 * bounds a time that none of the cell comes below. Cells that cannot beat the best go, and what is
 * left is cut again, a few times. Then, from the first layer on, each (stage, layer) gets the
 * partitions so far that no other one beats in all of (sum, slowest, data). Left out are those that
 * cannot come below the best by the cells' least sums of what follows.
 *
 * A cell takes at most stages x layers^2 / 2 steps, and all have at most 4 x 64 of them. Memory is
 * 64 x 8 bytes x stages x layers, and at most 2 x 2^23 x 32 bytes for the partitions so far.
 */
#ifndef CT_PARTITION_H
#define CT_PARTITION_H

#include <stdint.h>

#include "framework/base/status.h"

/** Borrowed. Times are finite, at least 0 and at most CT_PARTITION_MOST_S. */
typedef struct ct_partition {
    int n_stage, n_layer;  /* >= 1 */
    int64_t micro_batches; /* 1 … INT32_MAX */
    const double *time_s;  /* [stage][layer], of one micro-batch, forward and backward */
    const double *cut_s;  /* [stage - 1][layer]: what layer l makes, from stage s to s + 1; the last
                           * layer's is not read */
    const double *data_s; /* [stage][layer] */
} ct_partition;

#define CT_PARTITION_MOST_S 1e200

/** The layers of each stage, layers [n_stage], and the step's time. More stages than layers:
 *  *step_s_p is INFINITY and the list is left alone. CT_ERR_ARG: out of range; CT_ERR_NOMEM. */
ct_status ct_partition_solve(const ct_partition *p, int *layers, double *step_s_p);

/** The formula above for a partition. */
double ct_partition_time(const ct_partition *p, const int *layers);

#endif
