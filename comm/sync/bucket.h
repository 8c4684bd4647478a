/** @file bucket.h  One bucket of gradients on its way: dense, or through the codec.
 *
 * Private to comm/. The pipe decides when it leaves; the bucket knows how it travels.
 */
#ifndef CT_BUCKET_H
#define CT_BUCKET_H

#include "comm/codec/codec.h"
#include "comm/sync/bucket_partition.h"
#include "comm/sync/narrow_gather.h"
#include "comm/collective/repro.h"
#include "framework/base/trace.h"

typedef enum {
    CT_BUCKET_FILLING,   /* waits for gradients                                 */
    CT_BUCKET_RUNNING,   /* its messages are under way                          */
    CT_BUCKET_OWNED,     /* shards: this rank's part is summed                  */
    CT_BUCKET_GATHERING, /* shards: it is updated, and weights are under way  */
    CT_BUCKET_LANDED     /* the arena holds the sum, or with shards the weights; perhaps not yet
                            reported */
} ct_bucket_state;

/** Its codec's computation, where that is done apart from messages. */
typedef enum {
    CT_CODING_NONE,
    CT_CODING_WANTED, /* it is what comes next */
    CT_CODING_BUSY    /* somebody is at it: nobody else touches the codec */
} ct_bucket_coding;

typedef struct ct_bucket {
    ct_comm *comm; /* borrowed, as all of these          */
    const ct_grad_pipe_config *config;
    const ct_grad_range *range; /* its first one                      */
    const char *key;            /* of its first gradient              */
    float *grad;                /* [cut.count]                        */
    ct_bucket_cut cut;
    int tag;
    _Atomic int state;
    _Atomic int missing;    /* gradients not ready                  */
    _Atomic bool dense_now; /* this step travels as plain f32       */
    bool dense_alone;       /* one rank, or never dense             */
    bool leaves;            /* its codec: dense from now on         */
    bool folded;            /* dense: what is to be summed is there */
    bool silent;            /* nothing of it travels in this step: its rows do */
    ct_persistent_coll dense;
    bool shards;                  /* ranks update parts of it: ct_grad_pipe_config.weights */
    ct_persistent_coll gather;    /* then: of weights */
    ct_narrow_gather narrow;      /* in 16 bits: how                                */
    _Atomic bool visiting;        /* they are on their way, asked for by themselves */
    int64_t own_first, own_count; /* this rank's part, from cut.offset on               */
    ct_repro *repro;              /* dense in its place, where the config says so; NULL: no     */
    const ct_codec_ops *ops;      /* cut.coded: its codec, as on its device, …                  */
    const ct_codec_config *codec_config;
    void *coded;        /* … and the object of it                                          */
    bool absorbed;      /* codec.h                                                         */
    int n_thread;       /* … computes with so many: set before its calls                   */
    _Atomic int coding; /* a ct_bucket_coding: changes under the lock                      */
    bool apart;         /* in this use computation is ct_bucket_code()'s, …                */
    bool starts;        /* … of which a limit comes first: the codec has not started       */
    bool unsent;        /* … and before all of it nothing has been sent                    */
    ct_coll_where idle; /* where nothing travels                                           */
    double encode_s;    /* encode and decode, since creation                   */
    double left_at, under_way_s,
        dense_s;                /* leaving to landing, since creation: all uses, dense ones */
    double last_s;              /* … the last time, without the weights of others */
    double gather_at, gather_s; /* these: asked for, and how long they took the last time */
    double model_s;             /* ct_bucket_predicted_s(); below 0: not asked yet */
    int64_t n_run, n_dense;
    unsigned moved_before; /* where.n_moved when the pipe last looked */
    ct_trace *trace;       /* borrowed; NULL: none                      */
    int number;            /* in the trace …                            */
    char *name;            /* … and this, owned                         */
    double traced_at;      /* left; 0: this use is not traced           */
    int64_t coded_bytes;   /* what this rank encoded in the last coded use, … */
    int64_t coded_before;  /* … since what it had before                */
    int64_t iteration;
    ct_codec_step step;                  /* with its own rate */
    bool sums_hold;                      /* codec_sum says what its codec keeps */
    uint64_t codec_sum[CT_CODEC_STATES]; /* XXH64 of each state, under config->verify */
    const float *mean; /* [cut.count] freeze_variance: of the rule, set before a step; borrowed */
} ct_bucket;

/** b is zeroed but for comm, config, range, key, grad and cut. Collective, in one order on all
 * ranks. */
ct_status ct_bucket_prepare(ct_bucket *b, int tag);
/** Adds what that takes of this rank, but what its codec does. Local. */
ct_status ct_bucket_count(const ct_grad_pipe_load *load, const ct_bucket_cut *cut,
                          int64_t *bytes_p);
void ct_bucket_release(ct_bucket *b); /* half-prepared ones too; collective */

/** On a device, before it leaves: its gradient will be there in the order of the device's stream.
 */
ct_status ct_bucket_ready(ct_bucket *b, const ct_codec_step *step);
/** Encodes where it is to be, and starts. step: its rate is the step's, before the parameter's
 *  multiplier. */
ct_status ct_bucket_leave(ct_bucket *b, const ct_codec_step *step);
/** Leaving, it would only ask for computation, and send nothing. */
bool ct_bucket_codes_apart(const ct_bucket *b, const ct_codec_step *step);
/** What is wanted, by n_thread threads: without the lock, after it was made busy. */
ct_status ct_bucket_code(ct_bucket *b);
/** CT_INPROGRESS until grad holds the sum over the ranks. in_turn: ct_bucket_is_started() of all
 *  buckets that left before. brief: others are more urgent; one round of messages. */
ct_status ct_bucket_progress(ct_bucket *b, bool in_turn, bool brief);
/** Shards: the rank's part is updated, the weights of the others may come. */
ct_status ct_bucket_gather(ct_bucket *b);
/** CT_INPROGRESS until the weights of all ranks are there. */
ct_status ct_bucket_gather_progress(ct_bucket *b, bool brief);
/** All collectives of this step have been started, or may be from now on: those that left later
 *  may start theirs. */
bool ct_bucket_is_started(const ct_bucket *b);

/** Whether messages moved since this was last asked. */
bool ct_bucket_moved(ct_bucket *b);
/** Of a coded one: iterations before this one are dense in any case, the warm-up's or a part of
 *  them. */
int64_t ct_bucket_dense_until(const ct_bucket *b);

/** What its codec keeps was written from outside: the next use does not check it. */
void ct_bucket_forget_sums(ct_bucket *b);

/** As ct_coll_ops.pending. */
int ct_bucket_pending(ct_bucket *b, MPI_Request **out, int max);

/** What it goes by in most steps: first its sum, or the half of that which ends with parts, second
 *  the allgather of weights. NULL where there is none, or no choice of ways (one rank, reproducible
 *  sums, or a codec that gathers). */
ct_persistent_coll *ct_bucket_main_ways(ct_bucket *b, bool second);

/** How it travels: "ring", "allgather", "one rank" … */
const char *ct_bucket_algorithm(const ct_bucket *b, bool dense);
/** "conv1[0] to conv2[1], 2533 elements", "part 2 of 5 of fc6[0], 4000000 elements" */
void ct_bucket_name(const ct_bucket_cut *cut, const ct_grad_range *range, char *text, size_t size);
double ct_bucket_predicted_s(const ct_bucket *b);
/** … of one step of its collective, of as many as it has now: how soon there may be something to
 *  move. From the main thread. */
double ct_bucket_step_s(ct_bucket *b);
/** … of the same bucket, dense; by the model, or as measured where it was dense often enough. */
double ct_bucket_dense_s(const ct_bucket *b);
bool ct_bucket_dense_measured(const ct_bucket *b); /* the latter */
int64_t ct_bucket_bytes_sent(const ct_bucket *b);
/** "fc6[0], ring, step 2 of 6) waits for rank 5"; from any thread. */
void ct_bucket_describe(ct_bucket *b, int index, int n_bucket, char *text, size_t size);

#endif
