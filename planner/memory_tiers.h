/** @file memory_tiers.h  What a rank takes of each tier of memory, by what it is for.
 */
#ifndef CT_PLANNER_MEMORY_TIERS_H
#define CT_PLANNER_MEMORY_TIERS_H

#include "framework/base/json_writer.h"
#include "framework/base/text.h"
#include "framework/net/net.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { CT_TIER_DEVICE, CT_TIER_HOST, CT_TIER_FILE, CT_N_TIER } ct_tier;

typedef enum {
    CT_USE_WEIGHTS,
    CT_USE_GRADIENTS, /* those with memory of their own, and sums that are kept         */
    CT_USE_STATES,    /* of the update rule                                            */
    CT_USE_WINDOW,    /* places and buffers through which weights, gradients or states pass */
    CT_USE_ACTIVATIONS,
    CT_USE_LOGITS, /* of activations those of the last product before the loss */
    CT_USE_COMMUNICATION,
    CT_N_USE
} ct_memory_use;

/** Bytes of one rank. */
typedef struct ct_memory_tiers {
    int64_t bytes[CT_N_TIER][CT_N_USE];
    int64_t limit[CT_N_TIER];        /* 0: none is known                                      */
    int64_t runtime;                 /* on the host: what an empty job takes; 0: not counted   */
    int64_t test;                    /* likewise: what test nets take besides                  */
    int64_t snapshot;                /* likewise: the copy that snapshot_async keeps            */
    int64_t chunk_loads;             /* a step, from a slower tier                             */
    int64_t visit_bytes;             /* … of weights that come for the layers that read them   */
    int64_t file_read, file_written; /* a step                                          */
} ct_memory_tiers;

const char *ct_tier_name(ct_tier tier);
const char *ct_memory_use_name(ct_memory_use use);
/** Of a net's plan of memory: the most that is there at a time of what the last product before the
 *  loss makes, its gradient, and buffers of the loss. */
int64_t ct_memory_logits(const ct_net *net);
/** Adds what a net for training takes itself, on the tier of its device: it need have no memory. */
void ct_memory_tiers_add_net(ct_memory_tiers *t, const ct_net *net);
/** Of all uses, the runtime, test nets and the copy for snapshots. */
int64_t ct_memory_tier_sum(const ct_memory_tiers *t, ct_tier tier);
/** Something lies there, or may. */
bool ct_memory_tier_used(const ct_memory_tiers *t, ct_tier tier);

/** Appends members "tiers", an array of those in use, and "chunk_loads". */
void ct_memory_tiers_json(const ct_memory_tiers *t, ct_json_writer *w);
/** For people: a row a tier, MiB. */
void ct_memory_tiers_print(const ct_memory_tiers *t, FILE *to);

#ifdef __cplusplus
}
#endif

#endif
