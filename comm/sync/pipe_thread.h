/** @file pipe_thread.h  A thread that moves messages while the main thread computes. Private to
 * comm/.
 *
 * It sleeps until it is woken, then calls `move` until nothing is under way, with naps in between
 * that grow while nothing moves: a thread that spun would take the core that computes.
 */
#ifndef CT_PIPE_THREAD_H
#define CT_PIPE_THREAD_H

#include <stdbool.h>

#include "framework/base/status.h"

typedef struct ct_pipe_thread ct_pipe_thread;

typedef enum {
    CT_PIPE_DONE,  /* nothing is under way: sleep until woken  */
    CT_PIPE_STUCK, /* something is, but nothing moved: nap     */
    CT_PIPE_MOVED
} ct_pipe_thread_state;

/** move: called from the thread; locks by itself. */
ct_status ct_pipe_thread_create(ct_pipe_thread_state (*move)(void *ctx), void *ctx,
                                ct_pipe_thread **p_p);
void ct_pipe_thread_destroy(ct_pipe_thread *p); /* ends the thread; NULL allowed */
/** Something may be under way. Never waits for move. */
void ct_pipe_thread_wake(ct_pipe_thread *p);
/** While held, the thread sleeps: somebody else moves. A move that has begun still ends. */
void ct_pipe_thread_hold(ct_pipe_thread *p, bool held);

#endif
