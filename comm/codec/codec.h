/** @file codec.h  How a parameter's gradient travels compressed: a bucket's coded way.
 *
 * A const ct_codec_ops per codec, listed in codec_types.h. The pipe makes one object for each
 * parameter that its codec takes; it holds the state, which so is keyed by parameter. Each step the
 * bucket calls start, then progress until CT_OK: then grad holds the sum over the ranks of what
 * they sent, the same bits on every rank. In dense steps (warm-up, resync) it calls fold instead,
 * and sends by itself what that leaves in grad.
 *
 * Absorbed parameters. With momentum correction (Lin et al., ICLR 2018; Fang et al., RedSync, JPDC
 * 2019) rate, decay and momentum act before anything is left behind. With Caffe's rate inside the
 * momentum, on each of P ranks,
 *
 *     g' = scale * clip * grad + (decay / P) * weight
 *     U  = momentum * U + rate * g'
 *     V  = carry * V + U         nesterov: V = carry * V + momentum * U + rate * g'
 *
 * where carry is this step's rate over that of the last one: 1 but where the rate changes. So what
 * was left behind arrives at the rate of the step in which it arrives, as in the papers, whose rate
 * stands outside (docs/compression-design.md has why); momentum stays Caffe's. S, a part of V, is
 * sent: V = V - S, and with mask_momentum U = 0 where S is not. The solver then does weight =
 * weight - sum over ranks of S, and nothing else. A dense step sends this step's update, and of V
 * so much that it goes no farther (codec_side.h). So with everything sent always this is
 * Caffe's SGD exactly, and codecs may be switched on and off at any step without losing anything.
 * (comm/codec/select.h has these three lines.)
 *
 * A parameter that is not absorbed: V = V + clip * grad, S is sent, and the solver applies scale,
 * decay, rate and momentum to the sum.
 *
 * freeze_variance (1-bit Adam: Tang et al., ICML 2021). After the warm-up what is sent is the mean
 * of Adam's rule, m = b m + (1 - b) scale sum(grad), and the mean square stays as it is. In units
 * of the gradient, with f = b / ((1 - b) scale), on each of P ranks
 *
 *     V = V + clip * grad + (f / P) m        S, the signs of V, is sent:  V = V - S
 *     grad = sum over ranks of S - f m
 *
 * of which the rule, unchanged, makes m = (1 - b) scale sum(S): the signs that everybody has.
 *
 * Gradients on a device. Where setup.dev is one, grad, weight, U and V lie there. A codec is one
 * state machine over the kernels of where they are (codec_kernels.h, codec_side.h). The calls are
 * the same, but on a device `ready` is called first, once a step, as soon as the device was told to
 * make the gradient. It queues the work and returns. start and fold wait for nothing either. fold
 * may be CT_INPROGRESS, and is then called again until `host` holds what is to be summed. Only
 * payloads cross to the host, and back.
 *
 * Who drops, keeps: what a codec, its wire format or its exchange does not deliver is added to V on
 * the rank that dropped it. So sum over ranks of (sent + V) is what was accumulated, to rounding.
 */
#ifndef CT_CODEC_H
#define CT_CODEC_H

#include "comm/collective/persistent.h"
#include "comm/sparse/sparse_cost.h"
#include "framework/tensor/device.h"

/** What `compression { }` says; each codec reads what it knows. Names are lower case and borrowed;
 *  NULL is "auto". */
typedef struct ct_codec_config {
    float density; /* sparse ones: share of the elements sent, 0 < density <= 1; round(density n),
                      at least 1 */
    int64_t min_bytes;         /* parameters smaller than this travel dense              */
    int64_t warmup_iterations; /* dense until then, or …                                 */
    float warmup_density;      /* sparse ones: … of this density at first, from where it falls to
                                  `density`; 0: dense                                    */
    const char *exchange;      /* sparse ones: "auto", "allgather", "hier", "gtopk", "oktopk",
                                  "dense";
                                  onebit: "auto", "allgather", "split" */
    const char *selection; /* … "auto", "exact", "trimmed", "search", "sampled", "redsync_sizes" */
    const char *wire;      /* … "auto", "pairs", "half"                                  */
    bool quantize;         /* … one mean for all values, the sign alternates             */
    bool momentum_correction;  /* the rate and momentum before what is left behind: codec.h */
    bool mask_momentum;        /* no momentum where something was just sent               */
    bool error_feedback;       /* int8, int4: what rounding loses is left behind          */
    bool freeze_variance;      /* onebit: after the warm-up the mean travels: codec.h      */
    int64_t resync_iterations; /* dense every so many iterations; 0: never               */
    int rank;                  /* powersgd                                               */
    uint32_t
        among; /* auto: bit i is the i-th codec of ct_codec_table; 0: those that are automatic */
    float
        local_clip; /* a rank's gradient of a parameter has at most this norm / sqrt(ranks); 0: any
                     */
} ct_codec_config;

/** Elements that a parameter may have to travel coded: indices are 32-bit. */
#define CT_CODEC_MOST ((int64_t)UINT32_MAX)

/** What an object is made for. Pointers are borrowed and live as long as the object. */
typedef struct ct_codec_setup {
    ct_comm *comm;
    const int *n_thread;           /* to compute with now; it changes. NULL: comm's */
    const ct_codec_config *config; /* checked by `check`                           */
    const char *key;               /* of the parameter                             */
    uint64_t seed; /* of what is drawn at random for it: the same on all ranks and in all runs; with
                      the iteration it makes a key of ct_rng_key() */
    int64_t n;     /* elements, 0 < n < 2^32                       */
    int64_t rows;  /* as a matrix: n / rows columns; 1 <= rows     */
    float *grad;   /* [n]                                          */
    const float *weight; /* [n] as the step's forward and backward read it, until progress is CT_OK;
                            NULL: decay is 0 */
    bool absorb;         /* see above; only where ct_codec_absorbs()                         */
    bool output;         /* of the layer that the loss reads: quantize leaves it alone     */
    float momentum, decay; /* absorbed: weight_decay * decay_mult                  */
    bool nesterov;
    int tag;               /* tags tag .. tag + CT_COLL_TAGS - 1                   */
    const char *allreduce; /* of the codecs that sum: as ct_coll_choose's. What is by_mpi may only
                              be started in `start` */
    bool deterministic;    /* the same bits in the next run, too                   */
    int64_t iteration;     /* no step will be of an earlier one                    */
    const ct_device *dev;  /* where grad, weight and state lie; NULL: on the host  */
    bool part; /* of the sum this rank needs [own_first, own_first + own_count) alone, its part
                  (ct_coll_part()), and grad is otherwise anything then; several ranks, dev NULL,
                  codecs with `parts` */
    int64_t own_first, own_count;
    float *host; /* [n] with dev: host memory that copies are fast with, for dense steps */
} ct_codec_setup;

typedef struct ct_codec_step {
    int64_t iteration;
    float scale; /* 1 / iter_size                                                  */
    float clip;  /* what local_clip makes of the gradient: it counts so often; 1 of codecs that keep
                    nothing, and on devices                                        */
    float rate;  /* of this parameter in this step: lr * lr_mult                   */
    bool begins; /* dense: the first after others                                  */
    float least; /* dense: share of V that leaves at least                         */
    bool apart;  /* coded, not on devices: the codec's computation is `code`'s alone */
    const float *mean; /* [n] freeze_variance, coded: of the rule, before this step; NULL: no */
    float mean_factor; /* … with which it counts in what is sent                   */
} ct_codec_step;

/** Since creation, on this rank. On a device times are those that the host sees: select_s until the
 *  payload is there. */
typedef struct ct_codec_stats {
    int64_t n_step;      /* coded steps                                            */
    int64_t bytes_dense; /* 4 n a coded step: what a dense gradient holds          */
    int64_t bytes_coded; /* what this rank encoded: its payloads                   */
    int64_t bytes_sent;  /* what this rank sent, in all steps of its exchange      */
    int64_t selected;    /* sparse ones: elements that this rank selected          */
    int64_t filled;      /* … elements of the sums that anybody's payload had      */
    int64_t warm_steps, warm_selected; /* … of both, those while the density still falls */
    double accumulate_s;               /* where it is apart from select_s                        */
    double select_s, pack_s, exchange_s, unpack_s;
    double encoded_at[2], decoded_at[2]; /* the last step's: when they began and ended */
} ct_codec_stats;

#define CT_CODEC_RESIDUAL "residual"        /* V */
#define CT_CODEC_MOMENTUM "update_momentum" /* U */
#define CT_CODEC_RATE     "residual_rate"   /* in which V counts: one number */

enum { CT_CODEC_STATES = 6 /* of one object, at most */ };

/** What must survive a restart. */
typedef struct ct_codec_state {
    const char *name; /* one of the two above, "powersgd_q" …                      */
    float *data;
    int64_t count;
    bool replicated; /* the same on all ranks: copied to others; else their sum over the ranks is
                        dealt out in equal shares */
} ct_codec_state;

/** Gradients on a device: what a byte takes to the host, and back there; else nothing is there. */
typedef struct ct_codec_bus {
    bool there;
    double down_s, up_s;
} ct_codec_bus;

/** A machine and what things take there: a communicator's (codec_types.h), or one that we do not
 *  have. */
typedef struct ct_codec_costs {
    int n_rank;
    ct_codec_speed speed; /* where gradients are */
    ct_codec_bus bus;
    const ct_sparse_allreduce_model *exch;
    bool deterministic; /* ct_codec_setup's: what codecs then take is what counts */
    /** Seconds of an allreduce; never below 0. own: it may not go by MPI's own (coll.h). */
    double (*allreduce_s)(void *ctx, ct_dtype dtype, int64_t bytes, bool own);
    void *ctx;
    double sum_factor, wire_factor; /* allreduces, and messages of exchanges, take so many times
                                       what the model says: as measured here; else 1   */
} ct_codec_costs;

/** What one step of a parameter takes, without overlap. */
typedef struct ct_codec_seconds {
    double encode_s;      /* of a core's time before anything can leave                        */
    double wire_s;        /* messages, and on a device the way to the host and back            */
    double decode_s;      /* of a core's time after that, and in between                       */
    double bytes;         /* that a rank sends, about                                          */
    const char *exchange; /* the sparse exchange of least cost, static; NULL: an allreduce     */
} ct_codec_seconds;

/** Fields of `compression { }` that mean something to some codecs only. */
typedef enum {
    CT_CODEC_USES_DENSITY =
        1 << 0, /* density, warmup_density, exchange, selection, wire, quantize */
    CT_CODEC_USES_RANK = 1 << 1,
    CT_CODEC_USES_MOMENTUM_CORRECTION = 1 << 2,
    CT_CODEC_USES_MASK_MOMENTUM = 1 << 3,
    CT_CODEC_USES_RESYNC = 1 << 4, /* resync_iter */
    CT_CODEC_USES_AMONG = 1 << 5,
    CT_CODEC_USES_FEEDBACK =
        1 << 6, /* error_feedback: it keeps, and so uses resync_iter, with it only */
    CT_CODEC_USES_FREEZE = 1 << 7, /* freeze_variance */
} ct_codec_field;

typedef struct ct_codec_ops {
    const char *name; /* `compression { type }`, lower case                        */
    unsigned uses;    /* fields that it uses: a sum of ct_codec_field. Of the others a user is told
                         that    they mean nothing here */
    bool chooses; /* it is no codec: the pipe chooses among the others (`among`), for all parameters
                     together */
    bool on_device; /* gradients may lie on a device; no: in the host's memory only */
    bool gathers;   /* the payloads of all ranks meet; no: they are summed in an allreduce */
    bool chains;    /* begins sums in `progress`, when ranks do in any order: not by MPI's own */
    bool parts;     /* a rank may get its part of the sum alone: ct_codec_setup.part */
    bool automatic; /* type AUTO may take it: nothing but `density` decides on accuracy */
    /** What it cannot do. No MPI, no net. NULL: everything. CT_ERR_CONFIG. */
    ct_status (*check)(const ct_codec_config *c);
    /** Whether a matrix of n elements in so many rows travels coded, and not dense. No MPI. NULL:
     *  all. */
    bool (*takes)(const ct_codec_config *c, int64_t n, int64_t rows);
    size_t size; /* of an object; 0: there are none */
    /** obj: `size` zeroed bytes, which destroy (NULL allowed) is given and frees in any case. Both
     *  collective, in one order on all ranks: ct_codec_create(). */
    ct_status (*prepare)(void *obj, const ct_codec_setup *setup);
    void (*destroy)(void *obj);
    /** Iterations before this one travel dense, resync apart; at most warmup_iterations. NULL:
     * that.
     */
    int64_t (*dense_until)(const void *obj);
    /** A dense step: turns grad into what is to be summed: this step's update (absorbed), or the
     *  gradient, and as much of V as may go at once (codec_side.h). NULL: grad is it. Local. */
    ct_status (*fold)(void *obj, const ct_codec_step *step);
    /** On a device only: the gradient will be there in the order of the device's stream. limit:
     * what its norm is brought down to; 0: any. */
    ct_status (*ready)(void *obj, const ct_codec_step *step, bool dense, double limit);
    /** On a device only: a dense step's sum is in `host`. NULL with fold NULL. */
    ct_status (*summed)(void *obj);
    /** Encodes and starts, step->clip times grad. CT_ERR_DIVERGED where the gradient is not finite.
     */
    ct_status (*start)(void *obj, const ct_codec_step *step);
    /** CT_INPROGRESS until grad holds the sum. Never waits. One rank: grad is what it sent. */
    ct_status (*progress)(void *obj);
    /** With step->apart start sends nothing. After it, and after progress: what comes next is
     *  computation, and progress is CT_INPROGRESS until `code` has done it. Both NULL: start and
     *  progress do all. */
    bool (*codes)(const void *obj);
    /** From any thread, beside calls of other objects, without the communicator's lock: calls no
     *  MPI. Nothing else is called of the object meanwhile but where, exchange and stats. */
    ct_status (*code)(void *obj);
    /** As ct_coll_ops.pending. NULL: never. */
    int (*pending)(void *obj, MPI_Request **out, int max);
    /** Where it stands; read from any thread; `brief` is written before each progress. */
    ct_coll_where *(*where)(void *obj);
    /** Its exchange: "ring", "allgather"; a static text. From any thread. */
    const char *(*exchange)(const void *obj);
    /** Optional: the allreduce of a codec that sums once; the first steps may try others. */
    ct_persistent_coll *(*ways)(void *obj);
    /** i = 0, 1 …; false: there is no such one. NULL: none. The host's memory, between steps; on a
     *  device a copy, which `restored` brings there again. */
    bool (*state)(void *obj, int i, ct_codec_state *out);
    void (*stats)(const void *obj, ct_codec_stats *out);
    /** Optional: the sum of V's squares, where that costs less than to look at its state. */
    double (*left)(void *obj);
    /** Optional: state was written from outside (a snapshot was read). Local. */
    ct_status (*restored)(void *obj);
    /** Bytes that a rank's payload has, about, of a matrix of n elements and so many rows. No MPI.
     */
    int64_t (*payload_bytes)(const ct_codec_config *c, int64_t n, int64_t rows);
    /** By the cost model, on several ranks; encode_s and decode_s with everything that this codec
     *  does and a dense gradient does not need. No MPI. */
    void (*seconds)(const ct_codec_costs *m, const ct_codec_config *c, int64_t n, int64_t rows,
                    ct_codec_seconds *out);
} ct_codec_ops;

extern const ct_codec_ops *const ct_codec_table[]; /* NULL-terminated; "none" first */

/** Whether it means something to the codec. */
static inline bool ct_codec_uses(const ct_codec_ops *ops, ct_codec_field field)
{
    return (ops->uses & (unsigned)field) != 0;
}
/** It sends some elements, and the exchange is a sparse one. */
static inline bool ct_codec_is_sparse(const ct_codec_ops *ops)
{
    return ct_codec_uses(ops, CT_CODEC_USES_DENSITY);
}
/** With this configuration it has a residual; no: what is lost is lost. */
static inline bool ct_codec_keeps(const ct_codec_ops *ops, const ct_codec_config *c)
{
    return ct_codec_uses(ops, CT_CODEC_USES_RESYNC) &&
           (!ct_codec_uses(ops, CT_CODEC_USES_FEEDBACK) || c->error_feedback);
}
/** It can do momentum correction, … */
static inline bool ct_codec_absorbs(const ct_codec_ops *ops)
{
    return ct_codec_uses(ops, CT_CODEC_USES_MOMENTUM_CORRECTION);
}
/** … and with this configuration it does. */
static inline bool ct_codec_corrects(const ct_codec_ops *ops, const ct_codec_config *c)
{
    return ct_codec_absorbs(ops) && c->momentum_correction;
}

/** A word of the schema (TOPK, ALLGATHER, SAMPLED, HALF) as tables of comm/ have it, in lower case
 *  and static: a name of ct_codec_table or a value of a configuration's fields. NULL: unknown. */
const char *ct_codec_word(const char *name);
/** Which codecs use the field, as a user reads it: "TOPK and REDSYNC". */
void ct_codec_users(ct_codec_field field, char *text, size_t size);
/** CT_ERR_CONFIG with the known names, and the nearest. */
ct_status ct_codec_find(const char *name, const ct_codec_ops **ops_p);
/** An object of the codec, for its destroy. Collective, in one order on all ranks. */
ct_status ct_codec_create(const ct_codec_ops *ops, const ct_codec_setup *setup, void **obj_p);
/** The codec's own check, and what is common to all: ranges, and names of what it has no use for.
 *  who stands before the reason: "compression", or the parameter's. CT_ERR_CONFIG. */
ct_status ct_codec_check(const ct_codec_ops *ops, const ct_codec_config *c, const char *who);

#endif
