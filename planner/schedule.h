/** @file schedule.h  In which order a stage of a pipeline runs its micro-batches: 1F1B.
 *
 * A list of (forward | backward, micro-batch) a stage. Stage s of S first runs S - 1 - s forwards,
 * then one forward and one backward in turns, then the backwards that are left
 * (PipeDream-Flush, arXiv 2006.09503). So it holds activations of at most S - s micro-batches.
 * Micro-batches go forward and backward in the order of their numbers.
 */
#ifndef CT_PIPELINE_SCHEDULE_H
#define CT_PIPELINE_SCHEDULE_H

#include "framework/base/status.h"

typedef enum ct_pipeline_direction {
    CT_PIPELINE_FORWARD,
    CT_PIPELINE_BACKWARD
} ct_pipeline_direction;

typedef struct ct_pipeline_item {
    ct_pipeline_direction direction;
    int micro; /* 0 .. n_micro - 1 */
} ct_pipeline_item;

/** What one stage does in a step, in order. */
typedef struct ct_pipeline_list {
    int n;
    ct_pipeline_item *item; /* owned */
} ct_pipeline_list;

/** The list of a stage, 0 <= stage < n_stage, n_micro >= 1. The caller destroys it. */
ct_status ct_pipeline_list_1f1b(int stage, int n_stage, int n_micro, ct_pipeline_list *list_p);
void ct_pipeline_list_destroy(ct_pipeline_list *list);

/** The lists of all stages, [n_stage]; the caller destroys each and frees the array:
 *  ct_pipeline_lists_destroy(). */
ct_status ct_pipeline_lists_1f1b(int n_stage, int n_micro, ct_pipeline_list **list_p);
void ct_pipeline_lists_destroy(ct_pipeline_list *list, int n_stage); /* NULL allowed */

/** The most micro-batches whose forward has run and whose backward has not ended. */
int ct_pipeline_list_in_flight(const ct_pipeline_list *list);

/** Proves that stages which follow these lists come to their ends. Sends do not wait for their
 *  receivers; a stage waits for what an item receives when the item is its next one. A forward
 *  receives from the stage before, a backward from the one behind. So the lists are free from
 *  deadlock if the graph of "follows in a list" and "receives from" has no circle.
 *  CT_ERR_CONFIG: a micro-batch that does not run forward and then backward, once each, or a
 *  circle; says the stage and the item. */
ct_status ct_pipeline_lists_check(const ct_pipeline_list *list, int n_stage, int n_micro);

#endif
