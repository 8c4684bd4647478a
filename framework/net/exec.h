/** @file exec.h  What a layer may use while it runs: the execution context of one step.
 *
 * One a pass (framework/net/pass.h). The pass fills the batch fields; the solver or verb the rest.
 */
#ifndef CT_EXEC_H
#define CT_EXEC_H

#include "framework/tensor/transfer.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { CT_TRAIN, CT_TEST } ct_phase;

/** How large the text is that targets stand for. */
typedef struct ct_text_size {
    double tokens, bytes; /* 0: not known */
} ct_text_size;

/** Of a test that has each sample of a set once: samples of the set. Targets of what batches have
 *  beyond them are `label`, which the losses ignore. */
typedef struct ct_once {
    int64_t samples; /* 0: all that batches have counts */
    int32_t label;
} ct_once;

struct ct_step_there; /* framework/math/step_there.h */

typedef enum { CT_CHUNK_BEGIN, CT_CHUNK_WAIT, CT_CHUNK_DROP } ct_chunk_call;

/** Sums over a group of ranks, on the host: ct_exec.sum_ranks … sum_poll. All NULL: one rank. */
typedef struct ct_rank_sums {
    ct_status (*sum)(void *ctx, double *v, int n);
    ct_status (*begin)(void *ctx, double *v, int n, void **ticket_p);
    ct_status (*wait)(void *ctx, void *ticket);
    ct_status (*poll)(void *ctx);
    void *ctx;
} ct_rank_sums;

typedef struct ct_exec {
    const ct_device *dev;
    ct_stream stream;
    ct_phase phase;
    bool deterministic;

    uint64_t seed;      /* of the run, the same on all ranks                            */
    int64_t micro_step; /* TRAIN: iteration * iter_size + micro-batch; TEST: batch 0, 1 … */
    const uint64_t
        *step_there; /* micro_step on the device, for kernels that draw; NULL: not there */
    /** The net's, on the device; NULL: not there, the loss has no scale. */
    const struct ct_step_there *numbers_there;
    bool accumulate; /* weight gradients: add to what is there, instead of overwriting */

    int64_t batch_local;  /* samples of this rank in this step                           */
    int64_t batch_global; /* samples of all ranks                                        */
    int64_t batch_first;  /* place of this rank's first sample in the global batch       */
    int64_t batch_summed; /* samples of the ranks of sum_ranks; 0: batch_global          */
    int batch_axis;       /* of blobs: 0; 1 where the net's data is sequences, time first */

    /** Sums v[0..n) over all ranks, blocking and collective; NULL: one rank. */
    ct_status (*sum_ranks)(void *ctx, double *v, int n);
    /** The same of numbers that lie on `dev`, in the order of the stream and without waiting; it
     * may be recorded. Set beside sum_ranks, or NULL: that one adds them up, on the host. */
    ct_status (*sum_there)(void *ctx, ct_stream st, double *v, int n);
    /** sum_ranks in two halves: v is the ranks' until sum_wait, which comes once a ticket, in the
     *  order of the tickets. NULL: sum_ranks does it all. */
    ct_status (*sum_begin)(void *ctx, double *v, int n, void **ticket_p);
    ct_status (*sum_wait)(void *ctx, void *ticket);
    /** Lets the sums that have begun move. NULL: they need no help. */
    ct_status (*sum_poll)(void *ctx);
    int n_sum;      /* that have begun and were not waited for; the net counts them */
    void *hook_ctx; /* of these five */
    /** [2] Of a net that is divided among ranks: what layers sum over that work on the rank's own
     *  samples, and those that work on the replica's. The pass sets the members above from them,
     * for each layer. NULL: it is not divided. */
    const ct_rank_sums *sums_of;
    /** Transfers of a net that is divided among ranks (framework/tensor/transfer.h). NULL: it has
     *  none. They outlive the passes that run with them. */
    const ct_transfer_ops *transfers;
    void *transfers_ctx;
    int n_transfer; /* as n_sum */
    /** Lets communication move; cheap; called between layers, and inside long ones through
     *  ct_exec_poll(). NULL: none. */
    ct_status (*poll)(void *ctx);
    void *poll_ctx;
    /** What one step of what is under way takes, in seconds, by the cost model; 0 there: nothing is
     *  known. NULL: likewise. */
    const double *step_s;
    /** Returns once the learned parameter `param` holds the update of the step before: called in
     *  forward before its first reader. NULL: no waiting. */
    ct_status (*wait)(void *ctx, int param);
    void *wait_ctx;

    /** The weights of a chunk (ct_net_options.window) begin to come to their place; must be there;
     *  may go. NULL: they are always there. */
    ct_status (*chunk)(void *ctx, ct_chunk_call call, int chunk);
    void *chunk_ctx;

    /** Rows index[0 … m) of the weight gradient dw are all that this layer gives it in this batch;
     *  row k of value is added to row index[k]. *taken_p: somebody else does so. NULL: nobody asks.
     */
    ct_status (*rows)(void *ctx, const float *dw, int64_t m, const int32_t *index,
                      const float *value, bool *taken_p);
    void *rows_ctx;

    double polled_s; /* when ct_exec_poll() last polled; 0: it did not */
    int64_t n_poll;  /* how often it did, poll NULL or not */

    struct ct_trace *trace; /* framework/base/trace.h; NULL: none */
    double wait_data_s;     /* data layers add the time they waited for their batch */
    int64_t broken_samples; /* … and the broken samples of all ranks that others stand in for */
    ct_text_size text; /* … and in TEST, where they know the tokenizer, the targets of this rank */
    ct_once once;      /* TEST: TokenData goes by it … */
    double targets;    /* … and adds the targets of this rank that count */
} ct_exec;

/** The divisor of a loss or accuracy over the *global* batch, from this rank's own count. Where
 *  every sample counts the same (data_dependent false) it is scaled by batch_global / batch_local.
 *  Where the count depends on the data (ignored labels) it is summed over the ranks. The sum of the
 *  ranks' gradients is the gradient of the global batch then; with batch_summed, that of a group's
 *  part.
 *
 *  It is collective, and sends messages, only where the count depends on the data. Layers on the
 *  CPU add such counts up between two of their parts (ct_sum_ops); forms for devices do it here. */
ct_status ct_exec_global_count(ct_exec *ex, double local, bool data_dependent, double *global_p);

/** How long long layers compute between two polls: a quarter of the time that one step of what is
 *  under way takes. What has come then waits for an eighth of a step in the mean, and a schedule of
 *  steps takes so much longer. At least 0.2 ms: a poll asks MPI for each message, which takes some
 *  microseconds, so polls stay at a few percent of computing. At most 2 ms: the model may be wrong,
 *  and other ranks wait for what this one passes on. step_s 0, nothing is known: 0.5 ms. */
double ct_poll_interval_s(double step_s);

/** Whether a poll is due at `now`, in seconds of any clock: the first is at once. Counts it then.
 */
bool ct_exec_poll_is_due(ct_exec *ex, double now);

/** Whether there may be something for ct_exec_poll() to move: long layers then work in pieces, and
 *  poll between them. */
static inline bool ct_exec_has_to_move(const ct_exec *ex)
{
    return (ex->poll != NULL) || (ex->n_sum + ex->n_transfer > 0);
}

/** In backward, of a weight of ct_layer_ops.row_weights: ct_exec.rows. Where *taken_p, the layer
 *  adds nothing to dw, and does not zero it. */
static inline ct_status ct_exec_rows(const ct_exec *ex, const float *dw, int64_t m,
                                     const int32_t *index, const float *value, bool *taken_p)
{
    *taken_p = false;
    return (ex->rows != NULL) ? ex->rows(ex->rows_ctx, dw, m, index, value, taken_p) : CT_OK;
}

/** From now on layers sum over that group of ct_exec.sums_of; NULL there: nothing changes. */
void ct_exec_use_sums(ct_exec *ex, bool replica);

/** Begins a transfer of what lies on ex->dev. CT_ERR_ARG, logged: nobody carries any. */
ct_status ct_exec_transfer_begin(ct_exec *ex, const ct_transfer *t, void **ticket_p);
ct_status ct_exec_transfer_wait(ct_exec *ex, void *ticket);

/** For long layers: polls, where that is due; otherwise costs a look at the clock. Call it from the
 * thread that called the layer, once per image or block of work, never inside what must not be
 * interrupted by an addition into gradients. */
ct_status ct_exec_poll(ct_exec *ex);

#ifdef __cplusplus
}
#endif

#endif
