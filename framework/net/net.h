/** @file net.h  A net: layers bound to blobs, arenas and a flat list of steps.
 *
 * ct_net_create() filters the layers by phase, level and stage, and inserts Split layers where a
 * blob has several readers. It sets layers up, and finds out which need gradients. It lays weights
 * and gradients out in arenas in the order in which backward finishes them. It compiles a list of
 * steps that one interpreter runs, for one pass of the net or another (framework/net/pass.h). The
 * memory plan lets activations, their gradients and layers' buffers share memory by lifetime.
 *
 * To find a layer that reads what it did not say it would (CT_READS_…), run with CORTADO_POISON=1:
 * memory is filled with NaN as soon as the plan holds it for dead (CPU only), and
 * AddressSanitizer reports who touches it or writes past a value's end. CORTADO_UNSHARED=1
 * gives every value memory of its own.
 *
 * The struct is readable by everyone and written by framework/net alone.
 */
#ifndef CT_NET_H
#define CT_NET_H

#include "framework/base/memory.h"
#include "framework/base/text.h"
#include "framework/net/pass.h"
#include "framework/net/step.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Where a message of the prototxt stands: framework/proto/prototxt.h makes one. May be NULL. */
struct ct_source_map;

/** Layers from one to another, by name, in the order of the net's message. */
typedef struct ct_net_segment {
    const char *first, *last;
} ct_net_segment;

/** Weights and gradients that share memory. Learned parameters are cut into *chunks*, ranges of the
 *  arena. On the CPU.
 *
 *  Gradients: what has been updated is not kept. The memory of a chunk is used again once backward
 *  has waited for its gradients (ct_step_after.wait), so no gradient may be looked at after that.
 *  For steps of one micro-batch.
 *
 *  Weights: they lie elsewhere, and come for the steps that read them. Each chunk has one place for
 *  all of its visits. Steps BEGIN, WAIT (CT_PAIR_CHUNK) and DROP call ct_exec.chunk. Whoever makes
 *  the net fills them (ct_net_fill()); ct_param.blob has the place, whatever is there now. */
typedef struct ct_net_window {
    /** begins[i] says whether learned parameter i, in arena order, begins a chunk; where none does,
     *  no gradients share memory. Collective where grad_arena is. */
    ct_status (*cut)(void *ctx, const ct_net *net, bool *begins);
    void *ctx;
    bool gradients, weights;
    bool keeps_tied; /* but those of tied parameters stay, in places of their own */
    int lag;         /* chunks that may be under way to other ranks while the next is written */
    int prefetch;    /* chunks that may be on their way here before they are read             */
} ct_net_window;

typedef struct ct_net_options {
    ct_phase phase;
    int level;
    const char *const *stage;
    int n_stage;
    ct_net_env env;
    const ct_device *dev;           /* NULL: CPU                                             */
    const ct_arena_ops *grad_arena; /* NULL: plain memory of dev                             */
    /** All ranks get what any of them has met so far, before memory of grad_arena, in which they
     *  would wait for each other. Collective. NULL: a rank that fails ends the job. */
    ct_status (*agree)(void *ctx, ct_status mine);
    void *agree_ctx;
    const ct_net_window *window; /* NULL: every gradient has memory of its own; as long as the
                                  * net */
    ct_net *share;               /* weights of layers of the same names are this net's, which
                                  * outlives the new one; implies forward_only, but with
                                  * share_learns; may be NULL */
    bool share_learns; /* a net that shares has gradients of its own of these weights, too */
    const struct ct_source_map *map; /* for messages; may be NULL                             */
    bool forward_only;               /* no gradients at all: `test`                           */
    bool no_data;                    /* `check`: set up and plan, place no memory, open no data */
    bool unshared;                   /* every blob and buffer has memory of its own (debugging) */
    bool no_fuse;                    /* every layer runs alone                                  */
    bool end_diffs;              /* gradients of outputs that are no losses come from the caller */
    bool fixed;                  /* inputs keep their shapes, whatever input_param.varies says */
    bool graph;                  /* a device may be given runs of steps as one             */
    Ct__Recompute recompute;     /* what is made again in backward, not kept; of this and what
                                  * the net says, the one with the larger number            */
    const ct_net_segment *again; /* these are the blocks, in place of copies of repeats, and made
                                  * again, whatever recompute says; as long as the net */
    int n_again;   /* 0: repeats have the blocks                                        */
    int in_flight; /* passes that may have run forward and not yet backward; 0: 1. With more, passes
                    * share memory for what does not outlive a forward or a backward; on a device
                    * they run in one stream */
    double memory_limit; /* AUTO: bytes that this rank's net and its states may take; 0: any     */
    double state_bytes; /* … those of the update rule, a learned element                        */
    bool send_rows; /* of tables ranks may send rows alone: ct_param.row_most                    */
    bool decay_matrices;              /* of parameters whose entry gives no decay_mult those of
                                       * one axis do not decay                                   */
    const ct_layer_ops *const *table; /* the layer types; NULL: ct_layer_table               */
} ct_net_options;

/** As one rank would make the net to look at it: no other ranks, no data, no memory, no weights of
 *  another net. */
void ct_net_options_alone(ct_net_options *o);

/** A weight blob as the solver, the exchange and the snapshots see it. Arena canon: Caffe's element
 *  order, f32, 64-byte aligned, padding zero. */
typedef struct ct_param {
    const char *key;       /* unique: ParamSpec name if shared, else "layer[index]"          */
    int owner;             /* the first layer that uses it, an index of net->layer           */
    const char *layer;     /* its name                                                       */
    int index;             /* in that layer's blobs                                          */
    ct_blob blob;          /* views of the arenas                                            */
    int64_t offset, count; /* elements, in both arenas                                       */
    int64_t grad_shift;    /* its gradient lies so far behind `offset` in grad_arena: 0, but in a
                            * window, and of what is borrowed */
    int64_t weight_shift;  /* likewise its weight in weight_arena */
    int chunk;             /* of ct_net_options.window; -1: of none */
    const ct_cut *cut;     /* what of the whole net's weight it is                           */
    /** In a net that is divided among ranks: its layers work on samples or tokens of this rank's
     *  own, so that its gradient is a sum over the ranks of the stage. Otherwise the ranks of a
     *  replica have other weights, or the same gradient. These come before them in the arena. */
    bool own_samples;
    bool tied; /* likewise: another stage has it, too, and its gradient is a sum over both. These
                * come before all others */
    bool borrowed; /* lies in the arena of options.share, offset is that net's       */
    float lr_mult, decay_mult;
    ct_weight_kind kind;
    bool learns; /* has a gradient and lr_mult != 0 */
    /** > 0: a rank's gradient has at most so many rows in a batch that one layer gives it. To send
     *  these as a list takes fewer bytes than a dense sum. row_beside: other layers give it a dense
     *  gradient before, which is final at its BEGIN; the rows come later. */
    int64_t row_most;
    bool row_beside;
    const Ct__CompressionParameter *compress; /* of its param entry; NULL: the solver's */
} ct_param;

/** Tokens of a batch of all ranks, where its samples are sequences: as many as the layer reads that
 *  reads most (ct_layer_ops.reads_tokens). 0: no layer reads more than one a sample. */
int64_t ct_net_tokens(const struct ct_net *net);
/** A step has so many micro-batches: of parameters with rows and nothing else as many more rows
 *  are counted, and those of which too many are left have a dense sum. Before the exchange opens.
 */
void ct_net_count_rows(struct ct_net *net, int micro_batches);
/** As a matrix, in codecs: its first axis, or 1 row where it has only one. */
int64_t ct_param_rows(const ct_param *p);

/** Of all options.in_flight passes. */
typedef struct ct_memory {
    size_t planned;    /* bytes placed for activations, gradients and buffers            */
    size_t lasting;    /* of these, buffers that are there for good, such as packed weights */
    size_t peak_alive; /* the largest sum of bytes alive at once: no plan can be smaller */
    size_t unshared;   /* what it would be without sharing                               */
    size_t weights;    /* weight arena + gradient arena                                  */
    size_t allocated;  /* what is there of planned and weights, of all passes there are  */
} ct_memory;

/** An output: a top that no layer reads. */
typedef struct ct_output {
    int blob;
    int layer;
    float loss_weight;
    bool is_share; /* ranks' values add up; otherwise their mean, weighted by samples */
    bool is_twin;  /* of a divided net: another rank of the replica reports the same */
} ct_output;

struct ct_net {
    const char *name;
    char *const *class_name; /* as its prototxt has them; borrowed */
    int64_t n_class_name;
    ct_net_options options;
    int n_layer;
    ct_layer **layer;
    int n_blob;
    ct_pass *pass; /* its first one, there as long as the net; its shapes are everyone's */
    int n_param;   /* in arena order: learned ones first, in the order backward finishes them */
    ct_param *param;
    float *weight_arena, *grad_arena; /* NULL: nothing in it (all weights borrowed, forward only) */
    int64_t weight_count;             /* elements of the weight arena, padding included          */
    int64_t grad_count;               /* elements of what learns, in the arenas' order: a prefix of
                                       * the weights */
    int64_t grad_memory;              /* elements of grad_arena: grad_count, but in a window, and
                                       * with gradients of what is borrowed, which lie behind it */
    int64_t weight_memory;            /* of weight_arena: weight_count, but in a window      */
    int64_t weight_version;
    int n_forward, n_backward;
    ct_step *forward, *backward;
    int n_output;
    ct_output *output;
    int64_t batch_local, batch_global, batch_first; /* of the first data layer */
    int64_t batch_summed; /* of batch_global, what the ranks have that gradients and counts are
                           * summed over: a group of local steps. 0: all */
    int batch_axis;       /* of its tops: 0, or 1 where time comes first */
    int64_t n_sample;     /* of its data set; 0: unknown */
    ct_memory memory;
    Ct__Recompute recompute;    /* what is done; never AUTO */
    bool settled;               /* ct_net_settle() … */
    uint64_t settled_sum[2];    /* … and its checksums, the second with statistics */
    bool timing;                /* set by `time`: steps note their seconds */
    struct ct_team_clock *team; /* likewise, or NULL; borrowed: its rows are the forward steps, then
                                 * the backward ones */
    void *impl;                 /* private to framework/net */
};

/** param must outlive the net. Not collective unless a data layer or the arena is. */
ct_status ct_net_create(const Ct__NetParameter *param, const ct_net_options *options,
                        ct_net **net_p);
/** After all passes that ct_pass_create() made of it. NULL allowed. */
void ct_net_destroy(ct_net *net);

/** The net's weights changed, or those of a set of it: caches derived from them are stale. */
void ct_net_weights_changed(ct_net *net);
/** The weights of a net for forward alone are final, and it has one pass: layers whose rows vary in
 *  number pack them now, and those that nobody else reads give their memory back. Their blobs have
 *  no data then. Nothing where gradients, other nets or devices have the weights. */
void ct_net_settle(ct_net *net);
/** CT_ERR_ARG, logged: the net is settled, and its weights can be neither read nor loaded. */
ct_status ct_net_check_weights(const ct_net *net);
/** Of `count` elements that n ranks share out, where those of a rank begin: up to where the next
 *  one's do. They differ by one at most. */
static inline int64_t ct_net_part(int64_t count, int rank, int n)
{
    return count / n * rank + count % n * rank / n;
}
/** How many elements of p the floats [from, from + count) of the gradient arena have, of the
 *  parameter's from *first_p on; 0: none. */
static inline int64_t ct_net_share_of(const ct_param *p, int64_t from, int64_t count,
                                      int64_t *first_p)
{
    int64_t first = (p->offset > from) ? p->offset : from;
    int64_t end = (p->offset + p->count < from + count) ? p->offset + p->count : from + count;

    *first_p = first - p->offset;
    return (first < end) ? end - first : 0;
}
/** Of the global batch, what ranks add up over that share gradients: 1, but in local steps. */
static inline double ct_net_summed_part(const ct_net *net)
{
    bool all = (net->batch_summed <= 0) || (net->batch_global <= 0);

    return all ? 1.0 : (double)net->batch_summed / (double)net->batch_global;
}
/** Whether output i is rows of which all batches together make one number. */
bool ct_net_output_evaluates(const ct_net *net, int i);
/** Elements of output i, as they are reported; 0 where their number changes from batch to batch. */
int64_t ct_net_output_count(const ct_net *net, int i);
/** Index of the blob / layer / parameter of that name, or -1. */
int ct_net_find_blob(const ct_net *net, const char *name);
int ct_net_find_layer(const ct_net *net, const char *name);
int ct_net_find_param(const ct_net *net, const char *key);
/** What the file says of a layer; NULL: the net added it (Split, Reorder, Cast). */
const Ct__LayerParameter *ct_net_file_layer(const ct_net *net, int layer);
/** Parameter index of weight i of layer l. */
int ct_net_param_of(const ct_net *net, int layer, int i);
/** Whether all layers that read a parameter round it to bf16 first: ct_layer_ops.rounds. p is known
 * by its layer and index, and may be of a list that is another net's. */
bool ct_net_rounds(const ct_net *net, const ct_param *p);
/** The layer that runs layer i: i itself, or the one whose group it belongs to. */
int ct_net_runner(const ct_net *net, int layer);
/** FNV-1a over layer types, connections, shared weights and shapes, the dimension of blobs
 * that is the batch left out: equal nets have equal hashes, on any number of ranks. */
uint64_t ct_net_hash(const ct_net *net);
/** What forward and backward of a layer take, from shapes alone: bytes of what they read and write
 *  (framework/net/estimate.c says what), operations and engines as the layer says. Zeroes where
 *  nothing runs. */
void ct_net_estimate(const ct_net *net, int layer, ct_estimate *e);
/** A part of the plan of memory: of values that lie in one place, or of a buffer. */
typedef struct ct_net_region {
    size_t bytes;
    int blob;        /* a blob that lies there, for all of them; -1: a buffer of */
    int layer;       /* this layer; -1: values                                   */
    bool kept;       /* forward writes it, and it is there when backward begins  */
    int first, last; /* steps in which it is there, those of backward behind those of forward */
} ct_net_region;
/** Regions of the plan; the same place serves several of them, one after the other. */
int ct_net_regions(const ct_net *net);
ct_net_region ct_net_region_of(const ct_net *net, int i);
/** The blob that stands for all in whose memory blob b lies: ct_net_region.blob. */
int ct_net_memory_of(const ct_net *net, int blob);
/** Chunks of options.window; 0: there is none. */
int ct_net_chunk_count(const ct_net *net);
/** Its learned weights come for the steps that read them. */
bool ct_net_has_visits(const ct_net *net);
/** Those of a parameter do. */
bool ct_net_param_visits(const ct_net *net, const ct_param *p);
/** Where some do: how many of the first elements of weight_arena learn and stay. */
int64_t ct_net_staying(const ct_net *net);
/** The learned parameters [*first_p, *end_p) of chunk c. */
void ct_net_chunk(const ct_net *net, int c, int *first_p, int *end_p);
/** The weights of a window as their fillers make them: put is called with each parameter that
 *  learns, and values that it may not keep. Nothing where weights lie in the arena for good. */
ct_status ct_net_fill(const ct_net *net,
                      ct_status (*put)(void *ctx, const ct_param *p, const float *value),
                      void *ctx);
/** XXH64 of the bytes of all weights in arena order, padding left out, statistics on request. 0
 *  where a device fails (logged). */
uint64_t ct_net_checksum(const ct_net *net, bool statistics);

/* ---- layers that read values: added to a net's message at its end, they make the net keep the
 * values, and give them in plain order */

#define CT_VALUE_READER_NAME 40

/** What the top of reader i is called. */
void ct_value_reader_name(int i, char name[CT_VALUE_READER_NAME]);
/** Adds reader i, of the blob. */
ct_status ct_value_reader_add(Ct__NetParameter *net, int i, const char *blob);
/** What reader i of the net, which is there, has kept. */
const ct_blob *ct_value_reader_blob(const ct_net *net, int i);

/** Makes the net for use that belongs to a net for training, of the layers that `net` has in phase
 * TEST:
 *  - the data layer becomes an Input of one sample, behind its transform; what needs labels, or any
 *    other top of a data layer, is left out, and so are losses and measures. Of TextData `cont`
 *    stays;
 *  - SoftmaxWithLoss becomes a Softmax "prob", SigmoidCrossEntropyLoss a Sigmoid. A net of
 * TokenData or TextData puts out the scores; of several heads those whose loss weighs less than the
 * largest are left out, with what leads to them alone;
 *  - fillers, rates and rules of phases are left out;
 *  - `serve` says what the data layer does to pictures, unless the net has one;
 *  - names of classes stay.
 *  sample: channels x height x width as the data layer reads them; input: as its transform_param
 *  makes them. Of a text both are its length: ct_net_sample_shape(). *deploy_p is freed with
 *  ct__net_parameter__free_unpacked(). CT_UNSUPPORTED, quiet: no data layer of samples, or nothing
 *  works on them alone. */
ct_status ct_net_make_deploy(const Ct__NetParameter *net, const ct_shape *sample,
                             const ct_shape *input, Ct__NetParameter **deploy_p);

/** Fills a weight blob by Caffe's filler rules: constant, uniform, gaussian (sparse), xavier, msra,
 *  positive_unitball, bilinear. Reproducible: element i depends on (key, i) only. */
ct_status ct_fill(const Ct__FillerParameter *filler, uint64_t key, const ct_shape *shape,
                  float *data);
/** The same of a part: fills `data` with what it has of the weight that ct_fill() makes. */
ct_status ct_fill_cut(const Ct__FillerParameter *filler, uint64_t key, const ct_cut *cut,
                      float *data);
/** Whether ct_fill() could; `who` stands in front of the message. CT_ERR_CONFIG. */
ct_status ct_fill_check(const Ct__FillerParameter *filler, const ct_shape *shape, const char *who);

#ifdef __cplusplus
}
#endif

#endif
