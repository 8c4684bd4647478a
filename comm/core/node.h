/** @file node.h  Memory that the ranks of a node share, and the signals they give each other in it.
 *
 * Private to comm/. A window is one block per rank of the node, each readable and writable by all
 * of them. Before one is made its space is counted and all ranks agree that it fits, since a full
 * /dev/shm makes one rank fail and leaves the others waiting.
 */
#ifndef CT_NODE_H
#define CT_NODE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "comm/core/comm.h"

/* ---- Sleeping until another rank of the node has something for this one.
 *
 * Ranks that wait for signals poll them at first. Who has polled in vain for long, or shares its
 * core, announces that it will sleep, polls once more, and sleeps until the bell rings. Who gives a
 * signal that may end a wait rings if anybody has announced. So nobody pays for the bell where
 * nobody sleeps, but for one fence and the load of a line that nobody writes.
 *
 * Why no wake-up is lost. Sleeper: announce; full fence; poll; sleep unless the bell has rung since
 * the announcement. Ringer: signal; full fence; look for announcements; ring. Of the two fences one
 * comes first. If it is the sleeper's, the ringer sees the announcement and rings, and the system
 * compares the number of rings before it lets anybody sleep. If it is the ringer's, the sleeper's
 * poll sees the signal. Two ranks that give their last signals at once and miss each other's both
 * poll again after announcing, and the later one sees both. Where two threads of a rank wait at a
 * time they share one announcement, and one may sleep through a ring: every sleep ends by itself
 * after half a millisecond.
 */
/** In memory that the ranks share; zero at first. */
typedef struct ct_futex {
    _Atomic uint32_t rings, sleepers;
} ct_futex;

/** What one rank knows of its node's bell. */
typedef struct ct_sleeper {
    ct_futex *bell;    /* NULL: there is none, nobody sleeps                           */
    _Atomic int waits; /* requests under way that wait for signals and nothing else    */
    _Atomic bool announced;
    _Atomic uint32_t seen; /* rings before the announcement */
} ct_sleeper;

/** A request begins (1) or ends (-1) to wait for nothing but signals. */
void ct_futex_count(ct_sleeper *s, int change);
/** After a poll in vain. The first call announces, for the caller to poll once more; the next one
 *  sleeps. False, at once, where no request waits for signals alone. */
bool ct_futex_wait(ct_sleeper *s);
/** Something moved: no sleep now. */
void ct_futex_leave(ct_sleeper *s);
/** After a signal: wakes at most n sleepers. */
void ct_futex_wake_now(ct_futex *bell, int n);

static inline void ct_futex_wake(const ct_sleeper *s, int n)
{
    if (s->bell == NULL) return;
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&s->bell->sleepers, memory_order_relaxed) > 0)
        ct_futex_wake_now(s->bell, n);
}

typedef struct ct_node ct_node;

/** Never fails for want of shared memory: windows are then refused. Collective over the
 * communicator. */
ct_status ct_node_create(ct_comm *c, ct_node **node_p);
void ct_node_destroy(ct_node *node); /* NULL allowed; collective */

/** Most bytes that the windows of one host may take together from now on; tests make it small to
 *  reach the paths without windows. Negative: what the system has (the default). */
void ct_node_set_limit(ct_node *node, int64_t bytes);

/** A zeroed block of `bytes` on every rank of the node, aligned to CT_ALIGN; *block_p is this
 *  rank's. CT_UNSUPPORTED, on all ranks alike, where there is no space, no sharing, or no node of
 *  several ranks. Collective over the communicator. */
ct_status ct_node_acquire(ct_node *node, size_t bytes, const char *what, void **block_p);
/** Frees the window that block is this rank's part of. Collective. */
void ct_node_release(ct_node *node, void *block);
/** True where [p, p + bytes) lies in this rank's block of a window; *window_p numbers it the same
 *  way on all ranks and *offset_p counts bytes from the block's start. */
bool ct_node_find(const ct_node *node, const void *p, size_t bytes, int *window_p,
                  int64_t *offset_p);
/** home[node_size]: where each rank of this node has what it calls p, in this process's addresses;
 *  *all_p: that lies in one window for all of them, on every node. Collective over the
 * communicator. */
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
