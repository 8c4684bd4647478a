/** @file exchange.h  How the solver talks to the other ranks, without knowing MPI.
 *
 * The verb plugs one in: runtime/exchange/exchange_mpi.c over comm/, or ct_exchange_single().
 * Every call is collective, except ready, poll and counters, and made from the main thread.
 */
#ifndef CT_EXCHANGE_H
#define CT_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "framework/base/status.h"
#include "framework/net/step.h"
#include "framework/tensor/device.h"

/** Parameters [first, first + n), in arena order, hold the sum over ranks. It may call the
 *  exchange's poll, so that messages move while it works on what landed. */
typedef ct_status (*ct_landed_fn)(void *ctx, int first, int n);
/** Elements [from, from + count) of this parameter's gradient hold the sum over ranks. */
typedef ct_status (*ct_part_landed_fn)(void *ctx, int param, int64_t from, int64_t count);

typedef struct ct_exchange_counters {
    double exposed_s;   /* the main thread was in wait or finish, landed not counted */
    int64_t bytes_sent; /* payload this rank sent                              */
    double moving_s;    /* the main thread moved messages and added, in ready and poll */
    double encode_s;    /* encode and decode                                   */
} ct_exchange_counters;

/** What compression did on this rank, since creation; comm/sync/grad_pipe.h. */
typedef struct ct_exchange_coding {
    int n_coded; /* 0: nothing is compressed */
    int64_t elements, bytes_dense, bytes_coded, selected, filled;
    double select_s, pack_s, exchange_s, unpack_s, saved_s;
    double residual_norm; /* now */
} ct_exchange_coding;

#define CT_EXCHANGE_RESIDUAL "residual"      /* what was not sent                            */
#define CT_EXCHANGE_RATE     "residual_rate" /* … is there where that counts in updates: absorbed */

/** State of codecs that must survive a restart, keyed by parameter. */
typedef struct ct_exchange_state {
    const char *name; /* CT_EXCHANGE_RESIDUAL … */
    int param;
    float *data;
    int64_t count;
    bool replicated;  /* the same on all ranks; else their sum over the ranks is what counts    */
    bool is_momentum; /* a snapshot without it: equal shares of the solver's own momentum       */
} ct_exchange_state;

typedef struct ct_exchange {
    void *ctx;
    int rank, n_rank;
    int n_trial; /* steps at the start that try ways to send: timings leave them out */
    /** Gradients of a step are about to get ready, whose update takes scale times the sum, at this
     *  rate before a parameter's multiplier. Every bucket of the step before was reported. */
    ct_status (*begin)(void *ctx, int64_t iteration, float scale, float rate);
    /** The gradient of parameter `param` is final: its bucket may leave. Never blocks. */
    ct_status (*ready)(void *ctx, int param);
    /** The first `count` elements of a gradient that is not ready yet are final: parts of it may
     *  leave. Never blocks. NULL: gradients leave whole. */
    ct_status (*ready_to)(void *ctx, int param, int64_t count);
    /** part is told of each part of a gradient that travels in parts, as it lands, before landed is
     *  of the whole. NULL: nobody tells. */
    void (*hear_parts)(void *ctx, ct_part_landed_fn part, void *part_ctx);
    ct_status (*poll)(void *ctx);
    /** Waits for all buckets not reported yet, and reports each as it lands. */
    ct_status (*finish)(void *ctx, ct_landed_fn landed, void *landed_ctx);
    /** Returns once parameters [first, first + n) hold their sum; every bucket that landed
     * meanwhile is reported too, each once a step. From after the last `ready` of a step until
     * every bucket was reported; then it returns at once, and so does finish. */
    ct_status (*wait)(void *ctx, int first, int n, ct_landed_fn landed, void *landed_ctx);
    /** v[i] = sum over ranks, in an order that n and their number decide: bitwise the same
     *  everywhere. Blocking. */
    ct_status (*sum)(void *ctx, double *v, int n);
    /** The same of a device's numbers, behind what `st` was given so far and before what it is
     *  given next, in whatever order its library adds: the same bits on every rank. It may be
     *  recorded. NULL: there is no such library. */
    ct_status (*sum_there)(void *ctx, ct_stream st, double *v, int n);
    /** v[i] = max over ranks. Blocking. */
    ct_status (*max)(void *ctx, int64_t *v, int n);
    /** v = sum over ranks of share * v; the shares add up to 1. Blocking. */
    ct_status (*average)(void *ctx, float *v, int64_t n, double share);
    /** Rank 0's bytes to everyone. Blocking. */
    ct_status (*broadcast)(void *ctx, void *data, size_t bytes);
    /** Returns when every rank has called it. */
    ct_status (*barrier)(void *ctx);
    void (*counters)(void *ctx, ct_exchange_counters *out); /* since creation */
    void (*coding)(void *ctx, ct_exchange_coding *out);     /* likewise; NULL: none        */
    /** Scale, rate, momentum and decay are in the sum of this parameter's gradient: it is what the
     *  weight goes down by. NULL: of none. */
    bool (*absorbed)(void *ctx, int param);
    /** This step's sum of a parameter that is absorbed only shows how long codecs take: the weight
     *  stays, after the same work. NULL: never. */
    bool (*tries)(void *ctx, int param);
    /** The momentum of the solver's rule, as the gradient arena; borrowed as long as the exchange.
     *  Between steps, in begin, the exchange may take momentum from there or put it there, and then
     *  `absorbed` and the states are others. Without this call it does neither. NULL: never does.
     */
    void (*share)(void *ctx, float *momentum);
    /** Forward is about to read this parameter, whether or not it had to wait. NULL: no matter. */
    void (*reads)(void *ctx, int param);
    /** Not NULL: ready, finish and wait only give the device work, the same in each step, so that
     *  it may record all of a step's and be given that again: between begin and the next begin this
     *  is then called in their place (GIVEN), or before they are called once more (DROPPED). */
    ct_status (*replay)(void *ctx, ct_replay what);
    /** Whether that holds of the step that has begun; it may change in begin. NULL: always, where
     *  there is `replay`. */
    bool (*records)(void *ctx);
    int (*n_state)(void *ctx);
    ct_status (*state)(void *ctx, int i, ct_exchange_state *out);
    /** State was read from a snapshot. NULL: nothing to be done. */
    ct_status (*restored)(void *ctx);
} ct_exchange;

/** One rank: every operation is the identity. The caller keeps *out. It remembers nothing: finish
 *  reports all of n_param parameters as landed, wait those it is asked for; a step uses one or the
 *  other. */
void ct_exchange_single(int n_param, ct_exchange *out);

#endif
