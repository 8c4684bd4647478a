/** @file memory.h  Aligned blocks, and the arena allocator that a verb plugs in.
 *
 * Weights, gradients and optimiser state live in arenas: one block each. Where an arena lies is
 * the verb's choice (plain memory, a window that the ranks of a node share, a device), so
 * `framework` knows no MPI. Nothing on the path of a training step allocates.
 */
#ifndef CT_MEMORY_H
#define CT_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "framework/base/sanitizer.h"
#include "framework/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CT_ALIGN 64 /* bytes: a cache line, and the widest vector register */

/** bytes rounded up to a multiple of CT_ALIGN. */
static inline size_t ct_align_up(size_t bytes)
{
    return (bytes + CT_ALIGN - 1) & ~(size_t)(CT_ALIGN - 1);
}

/** A block aligned to CT_ALIGN and zeroed; NULL without memory. bytes may be 0. Large blocks ask
 *  for huge pages, and are first written by the team, a share each. Freed with ct_mem_release(). */
void *ct_mem_acquire(size_t bytes);
/** The same, but the pages of a large block take memory when they are first written, next to who
 *  writes them. It is for what may never be used, or is used when other memory is free again. */
void *ct_mem_reserve(size_t bytes);
void ct_mem_release(void *block); /* NULL allowed */
/** What these bytes of a block hold is lost, and the whole pages among them go back to the system.
 *  How many bytes; 0 where it takes none. */
size_t ct_mem_discard(void *from, size_t bytes);

/** Bytes that all processes of a job on this machine may take together: the machine's memory, or
 *  what the control groups of this process allow of it. */
double ct_memory_limit(void);
/** Processes and threads that the control groups of this process allow; INFINITY: any number. */
double ct_process_limit(void);
/** What a process of `n` on this machine may take of that, or of what SLURM gave the job there,
 *  where it is less (SLURM_MEM_PER_NODE, SLURM_MEM_PER_CPU). *who_p: whose limit it is; static. */
double ct_memory_limit_each(int n, const char **who_p);
/** The same for a list of groups as /proc/self/cgroup is one, with their files below `mount`, on a
 *  machine with so many bytes. */
double ct_memory_limit_of(const char *groups, const char *mount, double machine);

/** Bytes that are not taken now, of the machine's or of what control groups leave, caches of files
 *  counted as free. */
double ct_memory_free(void);
/** The same, as ct_memory_limit_of(), on a machine with so many free. */
double ct_memory_free_of(const char *groups, const char *mount, double machine);

/** The most bytes that this process had resident so far. Of memory that it shares with others now
 *  (windows of a node's ranks) its share counts, so that a sum over the ranks has each page once.
 */
int64_t ct_memory_resident(void);

/** Bytes that this process has resident now; 0: the system does not say. */
int64_t ct_memory_resident_now(void);

typedef enum {
    CT_ARENA_PLAIN, /* private host memory                    */
    CT_ARENA_SHARED /* a window shared by the ranks of a node */
} ct_arena_kind;

/** Where arenas come from. acquire may be collective over the ranks of a node. */
typedef struct ct_arena_ops {
    ct_arena_kind kind;
    void *ctx;
    /** A zeroed block of `bytes`; at least 4-byte aligned (a window's base need not be 64). */
    ct_status (*acquire)(void *ctx, size_t bytes, const char *what, void **block_p);
    void (*release)(void *ctx, void *block); /* NULL allowed */
} ct_arena_ops;

/** Plain memory; the default. Static. */
const ct_arena_ops *ct_arena_plain(void);

#ifdef __cplusplus
}
#endif

/* ---- What AddressSanitizer (`make SAN=address`) cannot know of memory that does not
 * come from malloc: where a block ends. Nothing in other builds.
 */

#if CT_SAN_ADDRESS
#include <sanitizer/asan_interface.h>
#endif

/** Whoever in this process touches these bytes from now on is reported. p: a multiple of 8 bytes,
 * or right behind what may be touched. */
static inline void ct_guard(const void *p, size_t bytes)
{
#if CT_SAN_ADDRESS
    __asan_poison_memory_region(p, bytes);
#else
    (void)p;
    (void)bytes;
#endif
}

/** Whether that byte is. false in other builds. */
static inline bool ct_is_guarded(const void *p)
{
#if CT_SAN_ADDRESS
    return __asan_address_is_poisoned(p) != 0;
#else
    (void)p;
    return false;
#endif
}

/** Takes it back, as must be done before the memory is given back: the next user's may lie there.
 */
static inline void ct_unguard(const void *p, size_t bytes)
{
#if CT_SAN_ADDRESS
    __asan_unpoison_memory_region(p, bytes);
#else
    (void)p;
    (void)bytes;
#endif
}

#endif
