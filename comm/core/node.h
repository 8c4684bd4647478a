/** @file node.h  Memory that the ranks of a node share, and the signals they give each other in it.
 *
 * Private to comm/. A window is one block per rank of the node, each readable and writable by all
 * of them. Before one is made its space is counted and all ranks agree that it fits, since a full
 * /dev/shm makes one rank fail and leaves the others waiting.
 */
#ifndef CT_NODE_H
#define CT_NODE_H

#include <stdatomic.h>

#include "comm/core/futex.h"
#include "comm/core/comm.h"

typedef struct ct_node ct_node;

/** Never fails for want of shared memory: windows are then refused. Collective over the world. */
ct_status ct_node_create(ct_comm *c, ct_node **node_p);
void ct_node_destroy(ct_node *node); /* NULL allowed; collective */

/** Most bytes that the windows of one host may take together from now on; tests make it small to
 *  reach the paths without windows. Negative: what the system has (the default). */
void ct_node_set_limit(ct_node *node, int64_t bytes);

/** A zeroed block of `bytes` on every rank of the node, aligned to CT_ALIGN; *block_p is this
 *  rank's. CT_UNSUPPORTED, on all ranks alike, where there is no space, no sharing, or no node of
 *  several ranks. Collective over the world. */
ct_status ct_node_acquire(ct_node *node, size_t bytes, const char *what, void **block_p);
/** Frees the window that block is this rank's part of. Collective. */
void ct_node_release(ct_node *node, void *block);
/** True where [p, p + bytes) lies in this rank's block of a window; *window_p numbers it the same
 *  way on all ranks and *offset_p counts bytes from the block's start. */
bool ct_node_find(const ct_node *node, const void *p, size_t bytes, int *window_p,
                  int64_t *offset_p);
/** home[node_size]: where each rank of this node has what it calls p, in this process's addresses;
 *  *all_p: that lies in one window for all of them, on every node. Collective over the world. */
ct_status ct_node_find_all(const ct_node *node, const void *p, size_t bytes, char **home,
                           bool *all_p);
/** Block of a rank of the node, in this process's addresses. */
char *ct_node_block(const ct_node *node, int window, int node_rank);

/** A pair of counters per rank: what a collective publishes (in) and what it has finished. They
 *  only grow. Each pair has a cache line. */
typedef struct ct_signals {
    _Atomic uint64_t in, done;
    char pad[CT_ALIGN - 2 * sizeof(uint64_t)];
} ct_signals;

/** A set of signals, zero, one pair per rank of the node; *slot_p is for give. CT_UNSUPPORTED like
 *  acquire. Collective, in the same order on all ranks. */
ct_status ct_node_take_slot(ct_node *node, int *slot_p);
void ct_node_give_slot(ct_node *node, int slot); /* collective, after all ranks are done with it */
ct_signals *ct_node_signals(const ct_node *node, int slot, int node_rank);

/** What this rank needs to wait for signals without spinning; its bell is NULL until prepared. */
ct_sleeper *ct_node_sleeper(ct_node *node);
/** Puts the bell up, once; where there is no window there is none. Collective. */
ct_status ct_node_prepare_futex(ct_node *node);

/** Everything this rank wrote before is seen by who sees the value. */
static inline void ct_node_signal(_Atomic uint64_t *signal, uint64_t value)
{
    atomic_store_explicit(signal, value, memory_order_release);
}

/** True once the signal has reached the value. Never waits. */
static inline bool ct_node_reached(_Atomic uint64_t *signal, uint64_t value)
{
    return atomic_load_explicit(signal, memory_order_acquire) >= value;
}

#endif
