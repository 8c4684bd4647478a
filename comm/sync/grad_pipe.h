/** @file grad_pipe.h  Gradient exchange: bucket -> [encode] -> collective -> [decode] -> landed.
 *
 * All gradients are views of one arena, in the order in which backward finishes them, so a bucket
 * is a range and packing is free. A bucket leaves when its last gradient is ready, while backward
 * works on earlier layers, and may be under way until the next forward needs its weights. Of those
 * under way the one that forward reads first has the link. A large gradient may be several buckets.
 * Parameters of their codec's min_bytes and more are buckets of their own; the small ones between
 * them travel dense. Of a table each rank's rows may travel as a list (row_sum.h), in place of a
 * dense sum or beside one. Buckets leave in one order on all ranks. One rank: nothing travels, but
 * codecs round and keep residuals as they do among many.
 */
#ifndef CT_GRAD_PIPE_H
#define CT_GRAD_PIPE_H

#include <stdbool.h>
#include <stdint.h>

#include "framework/base/json_writer.h"
#include "framework/base/status.h"
#include "comm/codec/codec.h"
#include "comm/sync/step_timeline.h"
#include "framework/base/sync_stats.h"
#include "framework/base/text.h"
#include "framework/base/trace.h"
#include "framework/tensor/storage.h"

/* ---- a policy: what watches the steps of a pipe and changes how gradients travel
 *
 * Plugged in by who makes the pipe (ct_grad_pipe_config.policy). The pipe tells it what happens,
 * and lets it change codecs, collectives and the thread where a step begins.
 */
typedef struct ct_grad_pipe ct_grad_pipe;

typedef enum {
    CT_GRAD_ENTER, /* the main thread comes into the pipe, …                      */
    CT_GRAD_LEAVE, /* … and leaves it: what lies between is the pipe's own        */
    CT_GRAD_READY, /* a gradient is ready                                         */
    CT_GRAD_READ   /* forward is about to read a weight                           */
} ct_grad_event;

struct ct_grad_pipe_load;

typedef struct ct_grad_policy {
    /** Before the buckets are made: may change the ranges' codecs. *state_p NULL: nothing to watch.
     *  Collective. */
    ct_status (*create)(ct_grad_pipe *gp, void **state_p);
    /** The buckets are made. Collective. */
    ct_status (*open)(void *state);
    void (*destroy)(void *state); /* before the buckets go; NULL allowed; collective */
    /** A step begins, nothing is under way, the lock is held: may change the pipe's plan.
     * *begins_p, *least_p: of the codecs' step. Collective. */
    ct_status (*begin_step)(void *state, int64_t iteration, bool *begins_p, float *least_p);
    /** Only while gp->watched, which create sets. */
    void (*observe)(void *state, ct_grad_event event, int range);
    /** Steps at the start that try ways to send. */
    int (*n_trial)(const void *state);
    /** Optional. Adds the bytes that `open` takes of this rank: n_dense buckets of so many elements
     *  are dense. */
    ct_status (*count)(const struct ct_grad_pipe_load *load, const int64_t *dense, int n_dense,
                       int64_t *bytes_p);
} ct_grad_policy;

typedef struct ct_grad_range {
    const char *key;       /* of the parameter; copied */
    int64_t offset, count; /* elements in the arena; ranges ascend, gaps are padding (zero) */
    int64_t weight_shift;  /* the weights lie so far behind offset in config.weights */
    int64_t shift; /* the gradient lies so far behind offset in the pipe's memory: 0 where all
                      have some of their own. The same for those of a bucket */
    bool rounded;  /* with config.visits: all who read the weights round them to bf16 first  */
    int64_t rows;  /* as a matrix: count / rows columns; 0: 1                        */
    /* what codecs need (codec.h); zeroed where there is none, or none that absorbs */
    float *on_device;    /* [count] the gradient, where config.dev is one; borrowed          */
    const float *weight; /* [count]; borrowed; on the device, too                            */
    float decay;         /* weight_decay * decay_mult                                        */
    float rate_mult;     /* times the rate of begin: this gradient's                         */
    bool output;         /* of the layer that the loss reads                                 */
    int64_t row_most;    /* > 0: at most so many of its rows may travel as a list in a step  */
    bool row_beside;     /* … in every step, beside the dense sum of the rest                */
    const ct_codec_ops *codec;           /* its own; NULL: the pipe's                        */
    const ct_codec_config *codec_config; /* of its own codec; borrowed                       */
} ct_grad_range;

/** Who moves messages while layers compute. */
typedef enum {
    CT_PROGRESS_AUTO,  /* both are tried in the first steps                                       */
    CT_PROGRESS_POLL,  /* the main thread, in ready and poll                                      */
    CT_PROGRESS_THREAD /* a thread, which sleeps while nothing is under way and naps between looks
                        */
} ct_progress_kind;

typedef struct ct_grad_pipe_config {
    const ct_grad_policy *policy; /* borrowed; NULL: nothing changes after creation. Codec "auto"
                                     needs one */
    int64_t bucket_bytes;         /* 0: by the cost model (bucket_partition.h)         */
    const char *allreduce;        /* "auto" or a name of ct_coll_table                       */
    bool overlap;                 /* false: nothing leaves before finish                     */
    const ct_codec_ops *codec;    /* never NULL: "none" is one                               */
    ct_codec_config codec_config;
    float momentum; /* of the solver, for codecs that absorb it                           */
    bool nesterov;
    bool reproducible;   /* sums whose bits depend on the gradients alone: comm/collective/repro.h;
                            needs the   codec "none", and ranges at multiples of 16 elements       */
    bool verify;         /* what codecs keep has checksums between steps; on the host        */
    bool deterministic;  /* no algorithm that may add in another order in another run  */
    int tune_iterations; /* steps, after the first, that try algorithms where allreduce is "auto",
                            and again as many, but at least 8, for AUTO progress; 8 in between
                            where one seemed better than the model's; 0: the model decides */
    ct_progress_kind progress; /* THREAD: CT_ERR_CONFIG where MPI does not allow it     */
    const ct_device *dev; /* gradients lie there; NULL: on the host. Those that travel coded stay
                             (ct_grad_range.on_device); of the others the arena has copies */
    bool after_all;       /* no weight changes before all gradients have landed */
    float *weights;       /* not NULL: each rank updates its own parts of the ranges (ZeRO 1), and
                             gets the others' weights; as the arena, borrowed. Codecs: with parts */
    bool slots;           /* gradients share memory: what is summed is told of as soon as may be */
    bool visits;          /* … when it asks for them (ZeRO 3): ct_grad_pipe_gather() */
    bool dense_elsewhere; /* steps in which nothing is coded are summed by somebody else
                             (ct_grad_pipe_skip()), who takes nobody knows how long */
    const ct_step_timeline
        *line; /* of codec "auto": what a step computes, and the model alone decides; NULL:
                  it is watched, and real steps decide (autotune/tuner.h). Borrowed by create */
} ct_grad_pipe_config;

/** [first, first + n) of the ranges hold the sum over all ranks; with config.weights: their weights
 *  are those of all ranks. */
typedef ct_status (*ct_pipe_landed_fn)(void *ctx, int first, int n);
typedef ct_status (*ct_pipe_part_fn)(void *ctx, int i, int64_t from, int64_t count);

/** arena: the gradients, each at its offset + shift. Keeps arena and comm (borrowed), copies the
 * rest. Logs the buckets and their algorithms once,
 * and checks that all ranks made the same ones: CT_ERR_CONFIG names the first that differs. It
 * moves while small collectives of comm and its kin wait (ct_comm_plug()). Collective. */
ct_status ct_grad_pipe_create(ct_comm *comm, const ct_grad_pipe_config *config, float *arena,
                              const ct_grad_range *range, int n_range, ct_grad_pipe **gp_p);
/** Where buckets of such a pipe begin: begins[n_range]. All else of a range than offset, count and
 *  what codecs it needs is not looked at. Collective. */
ct_status ct_grad_pipe_cut(ct_comm *comm, const ct_grad_pipe_config *config,
                           const ct_grad_range *range, int n_range, bool *begins);
/** Floats [from, from + count) of a range. */
typedef ct_status (*ct_grad_part_fn)(void *ctx, int range, int64_t from, int64_t count);
/** Calls `part` with all that comm's rank has of each range under shards, in order, as
 *  ct_grad_pipe_own() tells it of such a pipe. Collective. */
ct_status ct_grad_pipe_parts(ct_comm *comm, const ct_grad_pipe_config *config,
                             const ct_grad_range *range, int n_range, ct_grad_part_fn part,
                             void *ctx);
/** A pipe that is not made yet. */
typedef struct ct_grad_pipe_load {
    ct_comm *comm;
    const ct_grad_pipe_config *config; /* but for its weights           */
    bool shards;                       /* which will be there           */
    bool shared;                       /* its arena: ct_coll_size.shared */
} ct_grad_pipe_load;

/** Adds the bytes that buffers for messages of its buckets and rows take of this rank, and those of
 *  what its first steps try, but not what codecs keep. Ranges as for cut, with rows. Collective. */
ct_status ct_grad_pipe_count(const ct_grad_pipe_load *load, const ct_grad_range *range, int n_range,
                             int64_t *bytes_p);
void ct_grad_pipe_destroy(ct_grad_pipe *gp); /* NULL allowed; collective */
/** After an error that other ranks do not have: it never calls MPI again. What it has stays, since
 * MPI may still write to it. */
void ct_grad_pipe_abandon(ct_grad_pipe *gp);
/** scale and rate: of this step, for gradients that are absorbed (codec.h): 1 / iter_size, and the
 *  learning rate before each parameter's multiplier. */
ct_status ct_grad_pipe_begin(ct_grad_pipe *gp, int64_t iteration, float scale, float rate);
/** With config.weights, before begin: more gradients of the same ranges follow (micro-batches), so
 *  no weight changes in the step, and none travels. */
void ct_grad_pipe_expect_more(ct_grad_pipe *gp, bool more);
/** By no codec does any gradient travel, in this step and until a begin changes that. */
bool ct_grad_pipe_is_dense(const ct_grad_pipe *gp);
/** After begin, in place of all else: somebody else sums the gradients of this step. */
void ct_grad_pipe_skip(ct_grad_pipe *gp);
/** Gradient i is final; once per step each, in any order. Never blocks. */
ct_status ct_grad_pipe_ready(ct_grad_pipe *gp, int i);
/** The first `count` elements of range i, which is not ready yet and travels dense, are final:
 * those of its buckets that hold no others may leave. Counts do not fall; ready follows. Never
 * blocks. */
ct_status ct_grad_pipe_ready_to(ct_grad_pipe *gp, int i, int64_t count);
/** Of range i, which has row_most, on every rank or on none in a step. value NULL, before the
 *  gradient is ready: of it rows index[0 … m) alone are not zero. That may be said several times a
 *  step, and then no dense sum is made. Else, with row_beside, once a step, after the gradient is
 *  ready: these rows, one after the other in value, are to be added to it. Never blocks.
 *  CT_ERR_ARG. */
ct_status ct_grad_pipe_rows(ct_grad_pipe *gp, int i, int64_t m, const int32_t *index,
                            const float *value);
/** part hears of each bucket that is a part of a range as it lands, before `landed` hears of the
 *  whole; `from` counts within the range. NULL: nobody does. */
/** With config.weights instead: of each piece that this rank updates, once it is summed; when part
 *  returns, its weights are new, but with after_all, where ct_grad_pipe_updated() says so. */
void ct_grad_pipe_hear_parts(ct_grad_pipe *gp, ct_pipe_part_fn part, void *ctx);
ct_status ct_grad_pipe_poll(ct_grad_pipe *gp);
/** What a step of that takes which is under way, of the quickest bucket, in seconds, as the model
 * has it; 0: nothing is under way. As of the last call that moved something; there as long as gp.
 */
const double *ct_grad_pipe_step_s(const ct_grad_pipe *gp);
/** Returns once ranges [first, first + n) hold their sum; reports every bucket that landed
 * meanwhile, each once a step. CT_ERR_ARG where a gradient of the step is not ready. */
ct_status ct_grad_pipe_wait(ct_grad_pipe *gp, int first, int n, ct_pipe_landed_fn landed,
                            void *ctx);
/** Returns once nothing reads the gradient of range i any more, which is ready, whatever the others
 *  are: with config.weights its own pieces are summed, and told of. Reports as wait. */
ct_status ct_grad_pipe_wait_gradient(ct_grad_pipe *gp, int i, ct_pipe_landed_fn landed, void *ctx);
/** Waits for all buckets; reports each not yet reported as it lands. CT_ERR_ARG likewise. */
ct_status ct_grad_pipe_finish(ct_grad_pipe *gp, ct_pipe_landed_fn landed, void *ctx);
/** Since creation, on this rank. codec: what codecs did, too, which takes a look at residuals. */
void ct_grad_pipe_get_stats(const ct_grad_pipe *gp, bool codec, ct_sync_stats *out);
/** What compression did on this rank, as members of a JSON object: "buckets":[…],"total":{…}, means
 *  of a coded step; nothing where nothing was compressed. */
void ct_grad_pipe_coding_json(const ct_grad_pipe *gp, ct_json_writer *w);
/** Records in t (borrowed; NULL: no more), from the next step on, every bucket under way. */
ct_status ct_grad_pipe_trace(ct_grad_pipe *gp, ct_trace *t);
/** State k = 0, 1 … of range i; false: it has no such one. Between steps. */
bool ct_grad_pipe_state(ct_grad_pipe *gp, int i, int k, ct_codec_state *out);
/** The state was written from outside: a snapshot was read. Between steps. */
ct_status ct_grad_pipe_restored(ct_grad_pipe *gp);
/** The sum is what the weight changes by: decay, momentum and rate are in it (codec.h). */
bool ct_grad_pipe_absorbs(const ct_grad_pipe *gp, int i);
/** With config.dev: range i travels coded. Its gradient is taken from the device when it is ready
 *  in the order of the device's stream, and its sum is there in that order when it lands. */
bool ct_grad_pipe_on_device(const ct_grad_pipe *gp, int i);
/** This step's sum of range i, which it absorbs, only shows how long codecs take: the weight stays.
 */
bool ct_grad_pipe_tries(const ct_grad_pipe *gp, int i);
/** The codec that range i travels by: its own or the pipe's, "none" where it is dense; *config_p
 *  (NULL allowed) is its configuration. */
const ct_codec_ops *ct_grad_range_codec(const ct_grad_pipe_config *config,
                                        const ct_grad_range *range,
                                        const ct_codec_config **config_p);
/** The solver's momentum, or the mean of Adam's rule, indexed as the arena; borrowed, NULL:
 * unknown. The codec "auto" moves
 * momentum between it and codecs, in begin. Without it it changes nothing after create. */
void ct_grad_pipe_share(ct_grad_pipe *gp, ct_storage *history);
/** Of range i, in the step that has begun: how many updates the mean square of the rule has had,
 *  where it stays as it is from now on (freeze_variance, codec.h); -1: it goes on. */
int64_t ct_grad_pipe_variance_steps(const ct_grad_pipe *gp, int i);
/** Each rank updates parts of the ranges: config.weights, and several ranks. */
bool ct_grad_pipe_has_shards(const ct_grad_pipe *gp);
/** Piece k = 0, 1 … of range i that this rank updates; false: it has no such one. Without
 *  config.weights, or on one rank, all of it is one piece. */
bool ct_grad_pipe_own(const ct_grad_pipe *gp, int i, int k, int64_t *from_p, int64_t *count_p);
/** With config.weights and after_all: wait and finish returned with all own pieces summed; they are
 *  updated now. Wait and finish from now on return when the others' are here, too. */
ct_status ct_grad_pipe_updated(ct_grad_pipe *gp);
/** With config.visits: this rank's pieces of the weights of range i, or of the bucket that holds it
 *  with others, lie in their place; the others' begin to come. All ranks, in the same order. */
ct_status ct_grad_pipe_gather(ct_grad_pipe *gp, int i);
/** Returns when they are there. */
ct_status ct_grad_pipe_gather_wait(ct_grad_pipe *gp, int i);
/** Forward is about to read the weights of range i, whose sum may have landed long ago. */
void ct_grad_pipe_reads(ct_grad_pipe *gp, int i);
/** Changes whenever a begin changed what is absorbed and which states there are. */
int ct_grad_pipe_generation(const ct_grad_pipe *gp);
/** Steps at the start in which the pipe tries things out; timings leave them out. */
int ct_grad_pipe_n_trial(const ct_grad_pipe *gp);
/** What a bucket is: its bytes before compression, and how it travels; a static text. */
int ct_grad_pipe_n_bucket(const ct_grad_pipe *gp);
const char *ct_grad_pipe_bucket(const ct_grad_pipe *gp, int i, int64_t *bytes_p);
/** What hangs, for the watchdog: "bucket 3 (fc6[0], ring, step 2 of 6) waits for rank 5". Callable
 *  from another thread; may be stale, never unsafe. */
void ct_grad_pipe_describe(const ct_grad_pipe *gp, char *text, size_t size);

#endif
