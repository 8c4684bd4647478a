/** @file futex.h  Sleeping until another rank of the node has something for this one.
 *
 * Private to comm/. Ranks that wait for signals (node.h) poll them at first. Who has polled in vain
 * for long, or shares its core, announces that it will sleep, polls once more, and sleeps until the
 * bell rings; who gives a signal that may end a wait rings if anybody has announced. So nobody pays
 * for the bell where nobody sleeps, but for one fence and the load of a line that nobody writes.
 *
 * Why no wake-up is lost. Sleeper: announce; full fence; poll; sleep unless the bell has rung since
 * the announcement. Ringer: signal; full fence; look for announcements; ring. Of the two fences one
 * comes first: if the sleeper's, the ringer sees the announcement and rings, and the system
 * compares the number of rings before it lets anybody sleep; if the ringer's, the sleeper's poll
 * sees the signal. Two ranks that give their last signals at once and miss each other's both poll
 * again after announcing, and the later one sees both. Where two threads of a rank wait at a time
 * they share one announcement, and one may sleep through a ring: every sleep ends by itself after
 * half a millisecond.
 */
#ifndef CT_FUTEX_H
#define CT_FUTEX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

#endif
