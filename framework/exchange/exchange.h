/** @file exchange.h  What the solver has of the other ranks: their groups (group.h), what
 * synchronises the gradients with theirs, and what codecs keep of them for snapshots.
 *
 * A step begins, says of each gradient that it is ready, polls, and waits for sums. What carries
 * them is the transport of the step: messages of the host, copies of a device's gradients through
 * the host, or a device's own library (runtime/exchange). All calls come from the main thread;
 * begin, wait and finish are collective.
 */
#ifndef CT_EXCHANGE_H
#define CT_EXCHANGE_H

#include "framework/base/sync_stats.h"
#include "framework/exchange/group.h"
#include "framework/net/step.h"

/** Parameters [first, first + n), in arena order, hold the sum over ranks. It may call the
 *  transport's poll, so that messages move while it works on what landed. */
typedef ct_status (*ct_landed_fn)(void *ctx, int first, int n);
/** Elements [from, from + count) of a parameter do. */
typedef ct_status (*ct_part_fn)(void *ctx, int param, int64_t from, int64_t count);

/** How gradients travel in a step. param: one that learns. */
typedef struct ct_transport_ops {
    /** The gradient of parameter `param` is final: its bucket may leave. Never blocks. */
    ct_status (*ready)(void *ctx, int param);
    /** The first `count` elements of a gradient that is not ready yet are final: parts of it may
     *  leave. Never blocks. NULL: gradients leave whole. */
    ct_status (*ready_to)(void *ctx, int param, int64_t count);
    ct_status (*poll)(void *ctx);
    /** Returns once parameters [first, first + n) hold their sum; every bucket that landed
     *  meanwhile is reported too, each once a step. From after the last `ready` of a step until
     *  every bucket was reported; then it returns at once, and so does finish. */
    ct_status (*wait)(void *ctx, int first, int n, ct_landed_fn landed, void *landed_ctx);
    /** Returns when nothing reads the gradient of a parameter any more that is ready, though others
     *  may not be; what lands meanwhile is reported. Under ct_grad_sync.shards the weights of other
     *  ranks need not be there. NULL: wait does it. */
    ct_status (*wait_gradient)(void *ctx, int param, ct_landed_fn landed, void *landed_ctx);
    /** Waits for all buckets not reported yet, and reports each as it lands. */
    ct_status (*finish)(void *ctx, ct_landed_fn landed, void *landed_ctx);
    /** Where ct_transport.records, else NULL: the device was given a recorded step again in place
     * of ready, wait and finish (GIVEN), or these are about to be called once more (DROPPED). */
    ct_status (*replay)(void *ctx, ct_replay what);
    /** From now on part hears of a gradient that travels in parts as each of them lands, before
     *  landed does of the whole; NULL there: no more. NULL: nobody is told of parts. */
    void (*hear_parts)(void *ctx, ct_part_fn part, void *part_ctx);
    /** Of a parameter with rows (ct_param.row_most): those of its gradient, ready later, that are
     *  not 0; or, with value, what is to be added to it, which is ready. */
    ct_status (*rows)(void *ctx, int param, int64_t m, const int32_t *index, const float *value);
    /** Under ct_grad_sync.shards, where no weight changes before all gradients have landed: finish
     *  returned when all own pieces had, and they are updated now. From now on wait and finish
     *  return when weights are those of all ranks. Collective. NULL: nobody has shards. */
    ct_status (*updated)(void *ctx);
    /** Under shards of which ranks get weights when they ask for them (ZeRO 3). Own pieces of the
     *  weights of a chunk, which begins with this parameter (ct_net_options.window), are in their
     *  place. The others' begin to come. wait: returns when they are there. The same chunks in the
     *  same order on all ranks. NULL: nobody asks. */
    ct_status (*gather)(void *ctx, int param, bool wait);
} ct_transport_ops;

typedef struct ct_transport {
    void *ctx;
    const ct_transport_ops *ops;
    /** Ready, wait and finish only give the device work, the same in each step, so that it may
     *  record all of a step's and be given that again. */
    bool records;
    /** How soon there may be something to poll for, in seconds; 0 there: nothing is known. Main
     *  thread. NULL: never anything. */
    const double *step_s;
} ct_transport;

/** What the sum of a parameter's gradient is in this step. */
typedef enum {
    CT_GRAD_SUM,    /* of gradients                                                          */
    CT_GRAD_UPDATE, /* what the weight goes down by: scale, rate, momentum, decay are in it  */
    CT_GRAD_TRIAL /* the same, but to see how long codecs take: after equal work the weight stays */
} ct_grad_effect;

typedef struct ct_grad_sync ct_grad_sync;

typedef struct ct_grad_sync_ops {
    /** Gradients of a step are about to get ready, whose update takes scale times the sum, at this
     *  rate before a parameter's multiplier. Every bucket of the step before was reported.
     *  s->transport becomes that of the step. */
    ct_status (*begin)(ct_grad_sync *s, int64_t iteration, float scale, float rate);
    /** Forward is about to read this parameter, whether or not it had to wait. */
    void (*reads)(void *ctx, int param);
    ct_grad_effect (*effect)(void *ctx, int param);
    /** How many updates the mean square of the rule has had where this step leaves it as it is
     * (1-bit Adam); -1: it goes on. NULL: it always does. */
    int64_t (*variance_steps)(void *ctx, int param);
    /** Since creation; what codecs did only where asked for, since it takes a look at residuals. */
    void (*stats)(void *ctx, bool codec, ct_sync_stats *out);
    /** Piece k = 0, 1 … of a parameter that this rank updates; false: it has no such one. NULL: it
     *  updates whole parameters. */
    bool (*own)(void *ctx, int param, int k, int64_t *from_p, int64_t *count_p);
} ct_grad_sync_ops;

struct ct_grad_sync {
    void *ctx;
    const ct_grad_sync_ops *ops;
    /** The momentum of the solver's rule, or its mean, as the gradient arena: the solver sets it.
     * Begin may take momentum from there or put it there, and then effects and states are others.
     * NULL: not. */
    struct ct_storage *momentum;
    ct_transport transport; /* of the step that has begun; of the first one before that */
    /** Ranks update pieces of parameters (ops->own) and get the others' weights. hear_parts then
     *  tells of each own piece that has landed; its weights are new when that returns, or at
     *  `updated`. `landed` tells of parameters whose weights are those of all ranks. */
    bool shards;
    /** Under shards, of the step that begins: more gradients of the same weights follow, so no
     *  weight is updated, and none travels. The solver sets it. */
    bool more;
    int n_trial; /* steps at the start that try ways to send: timings leave them out */
};

#define CT_SYNC_RESIDUAL "residual"      /* what was not sent                            */
#define CT_SYNC_RATE     "residual_rate" /* … is there where that counts in updates      */

/** State of codecs that must survive a restart, keyed by parameter. */
typedef struct ct_sync_state {
    const char *name; /* CT_SYNC_RESIDUAL … */
    int param;
    float *data;
    int64_t count;
    bool replicated;  /* the same on all ranks; else their sum over the ranks is what counts     */
    bool is_momentum; /* a snapshot without it: equal shares of the solver's own momentum        */
    bool of_update;   /* counts in updates, not in gradients                                     */
    bool share; /* its part of an array of the parameter's: the ranks share out the gradient arena
                 * (ct_net_part()). Any number of ranks has what falls to each */
    bool own; /* of this rank alone: as many ranks take theirs back, others leave it as it is    */
} ct_sync_state;

typedef struct ct_sync_states {
    void *ctx;
    /** State k = 0, 1 … of a parameter; false: it has no such one. NULL: none has any. */
    bool (*get)(void *ctx, int param, int k, ct_sync_state *out);
    /** They were written: a snapshot was read. */
    ct_status (*restored)(void *ctx);
} ct_sync_states;

static inline bool ct_sync_states_get(const ct_sync_states *s, int param, int k, ct_sync_state *out)
{
    return (s->get != NULL) && s->get(s->ctx, param, k, out);
}

typedef struct ct_exchange {
    ct_group job;   /* all ranks: stops, errors, the seed                                   */
    ct_group data;  /* the replicas of this rank's weights: gradients, statistics, metrics, sets of
                       snapshots */
    ct_group stage; /* of a net that is divided among ranks: those of its stage, which share the
                       weights of layers that work on samples of their own; else as data. All ranks
                       of data are among them */
    ct_group tied;  /* those that have weights of the first and the last stage; size 0: nobody */
    ct_grad_sync sync;
    ct_sync_states states;
} ct_exchange;

/** One rank: every operation is the identity. The caller keeps *out, which has nothing to release
 *  and remembers nothing: finish reports all of n_param parameters as landed, wait those that it is
 *  asked for; a step uses one or the other. */
void ct_exchange_single(int n_param, ct_exchange *out);

#endif
