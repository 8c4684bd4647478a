/** @file layer.h  What a layer is, and the table through which nets find one.
 *
 * A layer type is one const ct_layer_ops, defined at the end of layers/<type>_layer.c and listed in
 * layers/types/layer_types.h. A *layer* is an immutable description (its prototxt, what setup made
 * of it, its weights). An *instance* binds it to blobs, buffers and a kernel plan, so that two nets
 * or two micro-batches can share one layer. Neither owns blobs or weights: the net does.
 *
 * Order of calls: setup once per layer; reshape once per instance and whenever a bottom shape
 * changes; then forward and backward any number of times; release, destroy. Behind a layer with
 * ops.varies bottoms change from batch to batch. Then reshape may come right before each forward,
 * with any number of samples from 0 to what it was first given. It starts over from the bottoms'
 * shapes each time (buffers, kernels). What setup made holds for every number of samples.
 *
 * The rules of backward: a bottom diff is overwritten; a weight diff is overwritten or added to
 * (ct_weight_beta()); what is not wanted (diff.data == NULL) is not computed.
 */
#ifndef CT_LAYER_H
#define CT_LAYER_H

#include <string.h>

#include "framework/net/exec.h"
#include "framework/net/turns.h"
#include "framework/proto/cortado.pb-c.h"
#include "framework/tensor/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CT_MAX_WEIGHT 8
#define CT_MAX_BUFFER 9

typedef struct ct_layer ct_layer;
typedef struct ct_instance ct_instance;

/** Where a rank stands in a net that is divided among ranks: replicas share samples, the ranks of a
 *  replica layers. */
typedef struct ct_stage_place {
    int replica, n_replica;  /* of the stage    */
    int part, n_part;        /* of the replica  */
    const int64_t *share;    /* [n_replica] samples of each in a batch of TRAIN; borrowed */
    const char *const *tied; /* keys of parameters that another stage has, too; borrowed  */
    int n_tied;
} ct_stage_place;

/** Samples of a batch of `global`: all that are not 0 of them are one behind the other. */
typedef struct ct_samples {
    int64_t local, global, first;
} ct_samples;

/** Sequences of unlike lengths side by side in blobs of 1 x tokens: packed.h. */
typedef struct ct_packed {
    int64_t n, longest; /* sequences, while the net is made as many as there may be; tokens of the
                         * longest, 0 while it is made */
    const int64_t *at;  /* [n + 1] the first token of each, and the end                         */
    int64_t number;     /* grows with each other set of sequences                               */
    /* Of a net with a cache; otherwise 0. */
    int64_t capacity;           /* tokens that a sequence may have, those in the cache counted  */
    const int64_t *before;      /* [n] tokens of each that the cache has, before these          */
    const int32_t *const *page; /* [n] its pages (pages.h); NULL: it is whole and leaves nothing */
    void *const *kept;          /* what each layer keeps of all pages                           */
    void *work;                 /* of a layer's call, for at most so many threads               */
    int n_thread;
} ct_packed;

/** What the job looks like, for layers that read or split data. The same on all ranks but rank. */
typedef struct ct_net_env {
    int rank, n_rank;
    int writer, n_writer;        /* this rank among all of the job, for names of files; n_writer 0:
                                  * rank among n_rank */
    const ct_stage_place *place; /* of a net that is divided among ranks, whose batch is that of all
                                  * of them: rank and n_rank are in the stage. NULL: it is not */
    ct_turns turns;              /* of the steps of training, whose batches this rank has */
    uint64_t seed;
    int in_flight;             /* ct_net_options.in_flight; set by the net */
    int64_t global_batch_size; /* solver's global_batch_size; 0: batch_size x ranks           */
    bool synthetic;            /* `time`: where a data source is absent, make up its data     */
    int64_t synthetic_batch;   /* > 0 overrides batch_size of synthetic data                  */
    bool deterministic;
    Ct__SolverParameter__Winograd winograd;   /* the solver's */
    Ct__SolverParameter__Precision precision; /* the solver's */
    int64_t sequence_tokens; /* > 0: an Input is one sequence of so many, whatever its shape is */
    const ct_packed *packed; /* blobs are sequences side by side; NULL: they are not           */
    bool rows_vary; /* forward only, and rows come in other numbers each time: weights stay packed,
                     * and a row has the same bits beside any others. Set by the net            */
    int crops;      /* TEST: crops of each sample, step after step (framework/data/crop.h); 0: the
                     * usual one                                                                 */
    bool no_data;   /* `check`: open no data source; shapes from the prototxt where it tells them */
    struct ct_engine_plan *plan; /* engines chosen by timing; NULL: static rules. Then making a net
                                  * is collective */
    const struct ct_program_layers *program; /* framework/net/program_layer.h: who computes layers
                                              * of type Python; NULL: nobody */
    const struct ct_data_group *group; /* framework/data/group.h; NULL: every rank reads its own
                                        * samples. Else making and ending a net is collective */
} ct_net_env;

typedef enum {
    CT_WEIGHT_LEARNED,  /* has a gradient, is updated                                     */
    CT_WEIGHT_STATISTIC /* no gradient; the mean over ranks is taken before test/snapshot */
} ct_weight_kind;

/** What parts a layer may be cut into (ct_layer_splits()). Every layer may be BATCH or REPLICATE,
 *  which leave it whole. */
enum {
    CT_SPLIT_OUTPUT = 1 << 0,  /* OUTPUT: some of its outputs, of all of its bottom              */
    CT_SPLIT_INPUT = 1 << 1,   /* INPUT: some of its inputs; the parts' tops add up              */
    CT_SPLIT_HEADS = 1 << 2,   /* HEADS                                                          */
    CT_SPLIT_GROUP = 1 << 3,   /* OUTPUT: some of its groups of channels, bottom's and top's     */
    CT_SPLIT_CHANNEL = 1 << 4, /* OUTPUT: a channel of the tops is of that of the bottoms alone:
                                * axis 1                                                         */
    CT_SPLIT_LAST = 1 << 5,    /* OUTPUT: the same along the last axis                           */
    CT_SPLIT_TOKEN = 1 << 6,   /* SEQUENCE: a token of the tops is of that of the bottoms alone  */
    CT_SPLIT_CLASS = 1 << 7,   /* OUTPUT: a loss of some of the classes: parts exchange sums     */
    CT_SPLIT_FEATURE = CT_SPLIT_CHANNEL | CT_SPLIT_LAST, /* along any axis                       */
    CT_SPLIT_EACH = CT_SPLIT_FEATURE | CT_SPLIT_TOKEN
};

/** A weight as setup declares it, in the order of Caffe's layer.blobs. */
typedef struct ct_weight_spec {
    ct_shape shape;
    const Ct__FillerParameter *filler; /* NULL: zeros                                       */
    const float *values;               /* not NULL: the first values, in place of a filler's, until
                                        * the layer's first forward                         */
    ct_weight_kind kind;
    float
        default_lr_mult; /* where the prototxt has no param entry; set by ct_layer_add_weight: 1 */
    ct_cut cut;          /* what of the whole layer's weight it is */
} ct_weight_spec;

typedef enum {
    CT_LIFETIME_CALL, /* scratch of one call: forward or backward each find garbage  */
    CT_LIFETIME_PASS, /* written in forward, read in the backward of the same batch  */
    CT_LIFETIME_ALWAYS
} ct_buffer_lifetime;

typedef struct ct_buffer {
    size_t bytes;
    ct_buffer_lifetime keep;
    void *data;  /* on the net's device, 64-byte aligned; placed by the memory plan */
    int64_t row; /* floats; > 0: carried from batch to batch, see ct_instance_carry() */
} ct_buffer;

/** The computations that a layer's forward and backward are made of. */
typedef enum { CT_RUN_FORWARD, CT_RUN_BACKWARD_DATA, CT_RUN_BACKWARD_WEIGHT, CT_N_RUN } ct_run_kind;

/** What a forward and a backward of this instance's batch take, and who does it. */
typedef struct ct_estimate {
    double forward_flop, backward_flop; /* multiply-add: 2                                       */
    double forward_bytes, backward_bytes; /* that must be read or written at least: each operand
                                           * once, whatever the engine keeps beside them */
    const char *engine[CT_N_RUN]; /* NULL: the layer has but one way, or does not do this  */
} ct_estimate;

/** What backward reads besides top diffs: the memory plan keeps just that alive. */
enum { CT_READS_BOTTOM = 1, CT_READS_TOP = 2 };

/** Which halves of a blob only pass through, so that the memory plan may give both ends the same
 *  memory. The layer then copies only where the two pointers differ.
 *  DATA: every top's data equal bottom 0's data (Split, Flatten, Reshape).
 *  DIFF: bottom 0's diff equals top 0's diff, and there is one top (Flatten, Reshape). */
enum { CT_ALIAS_DATA = 1, CT_ALIAS_DIFF = 2 };

/** Fusion: a layer may do the work of layers that follow it, its *tail*, while it writes what it
 *  makes, and in backward start from the gradients of the tail's tops. What may stand in a tail, in
 *  this order, each at most once. See docs/architecture.md. */
typedef enum {
    CT_EPILOGUE_AFFINE, /* times weight 0 along the channels, plus weight 1 if it has one (Scale) */
    CT_EPILOGUE_SUM, /* plus a blob of the same shape and layout, its other bottom (Eltwise)      */
    CT_EPILOGUE_RELU,  /* slope 0  */
    CT_EPILOGUE_EACH,  /* a function of each element, whose slope is one of its input (GELU) */
    CT_EPILOGUE_SPLIT, /* several tops in one memory: their gradients add up, in their order */
    CT_EPILOGUE_NORM,  /* of rows: LayerNorm, RMSNorm; it may read one of two tops of the Split, and
                        * the other leaves the group */
    CT_EPILOGUE_LOSS,  /* of these scores and its other bottom, labels; its top is an output  */
    CT_N_EPILOGUE
} ct_epilogue_kind;

typedef struct ct_epilogue {
    ct_instance *of[CT_N_EPILOGUE]; /* NULL: not there                                      */
    int slot;                       /* SUM: the bottom that this layer makes                */
    ct_instance *last; /* its tops are the group's; what lies between is not in memory, but for the
                        * other top of a Split in front of NORM */
    bool relu_done; /* the gradient of its top comes as that of what goes into its last layer, the
                     * ReLU: where the top is not above 0, it is 0 already */
} ct_epilogue;

/** Of a group that ends with a ReLU, whose top one layer reads alone: that ReLU's gradient, left to
 *  the reader, who makes it on its way. The runner of the group offers, the reader takes what it
 *  wants of that, and the pass of fuse.c brings the two together. */
typedef struct ct_relu_share {
    ct_instance *maker; /* the runner; NULL: nothing is shared                                   */
    int bits;  /* buffer of the maker: a bit an element of the top, as products of the device read
                * them (CT_FUSE_BITS in fused.h); 0: none                                        */
    bool bias; /* the reader makes the gradient of the maker's bias, weight 1, too               */
} ct_relu_share;

/** What a layer takes besides f32 in plain order. */
typedef struct ct_layout_ops {
    /** Whether bottom `slot`, which is not f32 in plain order, may come as it is; the bottoms have
     *  their shapes, layouts and dtypes. Otherwise the net puts a Reorder before it, and it comes
     *  so; or a Cast, where it may come in its layout if all are f32. Tops have the layout and
     * dtype that reshape gives them. */
    bool (*takes)(const Ct__LayerParameter *p, const ct_blob *const *bottom, int slot);
    bool last;   /* takes looks at orders, too: channels come last, in 16 bits, where a device makes
                  * values so. Others get a Reorder without being asked                          */
    bool bf16;   /* takes looks at dtypes (bf16; an f32 bottom beside it is no reason to refuse that
                  * one); otherwise it is asked of f32 bottoms only */
    bool tokens; /* on the CPU it takes rows of bf16 numbers, in plain order, whatever their axes
                  * are: what makes rows of tokens then makes them so (read_tokens) */
} ct_layout_ops;

/** What a layer does for others, or has done. Every member may be 0 or NULL. */
typedef struct ct_fusion_ops {
    unsigned epilogues; /* bits 1 << ct_epilogue_kind: what may follow it in a group that it runs */
    unsigned device_only, host_only; /* of these: what may on devices, or on the CPU, alone */
    /** Whether a layer of this type is such a map, and which. */
    bool (*as_epilogue)(const Ct__LayerParameter *p, ct_epilogue_kind *kind_p);
    /** Last of all, with in->tail set and every shape known: true where this layer runs the group.
     *  It declares buffers and sets backward_reads and over, which are 0 now, of itself and its
     * tail. Its forward then writes tail->last's tops, its backward reads their diffs and makes
     * those of all learned weights and of all bottoms from outside; both run at the place of the
     * group's last layer. */
    bool (*join)(const ct_layer *l, ct_instance *in);
    /** The parts of its group's forward: those of tail->last, which adds up over the ranks
     *  (ct_sum_ops), and whose buffers, numbers and bottoms they are. Part 0 does what that layer's
     *  own would. NULL: forward does them all at once. */
    ct_status (*forward_part)(const ct_layer *l, ct_instance *in, ct_exec *ex, int part);
    /** Makes the (group's) tops again in backward, with the same bits, from bottoms and
     * CT_LIFETIME_PASS buffers; cheaply. ex NULL: only whether it can. */
    bool (*again)(const ct_layer *l, ct_instance *in, ct_exec *ex);

    /** A ReLU's gradient, between two layers. The net asks after all groups are made, in this
     *  order. offer_relu: this layer can leave that of the ReLU at the end of its group, and sets
     *  what else it could leave. */
    void (*offer_relu)(const ct_layer *l, const ct_instance *in, ct_relu_share *share);
    /** true where backward will from now on make the gradient of what went into the ReLU before
     *  bottom 0, at no cost; clears what it does not need. NULL: it does not after all. */
    bool (*take_relu)(const ct_layer *l, ct_instance *in, ct_relu_share *share);
    /** Where the reader wants something: true where this layer leaves it from now on. It finds
     *  relu_done in its tail then, and the ReLU's top is not kept for backward. */
    bool (*leave_relu)(const ct_layer *l, ct_instance *in, const ct_relu_share *share);
} ct_fusion_ops;

/** A forward or a backward that adds numbers up over the ranks, in parts: part 0, sum 0, part 1,
 * and so on; after the last sum the last part. Where several ranks run, the net makes a step of
 * each part, and of each sum a pair of steps (step.h), so that other layers run while it is under
 * way. Forward and backward of the layer do all parts at once.
 *
 *  What the net relies on, to move parts: of forward, the last part alone writes tops and reads or
 *  writes weights; of backward, part 0 makes the gradients of the weights. */
typedef struct ct_sum_ops {
    /** How many doubles sum k adds up; 0: there are k sums. From shapes alone: the same on all
     * ranks and in every batch. After reshape, and once it is known which weights want a gradient.
     */
    int (*count)(const ct_layer *l, const ct_instance *in, bool forward, int k);
    int slot; /* of the buffer at whose start they lie, and their sums then */
    /** Part 0 of forward reads bottom i where bit i is set, and no other; 0: it reads all. The net
     *  runs it as soon as these are there: a count of labels right behind the data layer. */
    unsigned first_bottoms;
    unsigned first_buffers; /* likewise, the buffers that it touches; 0: all */
    ct_status (*forward)(const ct_layer *l, ct_instance *in, ct_exec *ex, int part);
    /** NULL: backward has no sums. */
    ct_status (*backward)(const ct_layer *l, ct_instance *in, ct_exec *ex, int part);
    /** Not NULL: sum k is this transfer (transfer.h) in place of doubles in a buffer, and count
     * says 1. It may read bottoms and write tops, backward likewise; so tops live from part 0 on.
     * However few ranks add up sums, such a layer runs in parts. Addresses are NULL before memory
     * is placed. */
    void (*transfer)(const ct_layer *l, const ct_instance *in, bool forward, ct_transfer *t_p);
    /** Of a transfer: it comes into a buffer that always lives, and may begin long before its step
     *  (ct_pass_receive_ahead()). */
    bool ahead;
} ct_sum_ops;

/** One step of a layer's formula, an operator of ONNX: it takes what the step before it made, the
 *  first one bottom 0. */
typedef struct ct_formula_step {
    const char *op; /* "Add", "Tanh", ...                                                        */
    enum ct_formula_with {
        CT_WITH_NOTHING,
        CT_WITH_NUMBER, /* a             */
        CT_WITH_RANGE,  /* from a to b   */
        CT_WITH_BOTTOM  /* bottom 0 once more */
    } with;
    float a, b;
    const char *name; /* of what it makes; of the last step: NULL */
} ct_formula_step;

/** Layers of nets of tokens (framework/net/packed.h). The first two axes of bottoms and tops are
 * one row and its tokens. Every member may be NULL. */
typedef struct ct_sequence_ops {
    /** Whether it does: at each place of the first n_axis axes (2: a token, 1: a sample) the tops
     *  depend on what the bottoms have there alone, or forward below knows the others. NULL: yes,
     *  whatever the parameters. */
    bool (*apart)(const ct_layer *l, const ct_instance *in, int n_axis);
    /** Where sequences grow: bytes that it keeps of `pages` pages, and that a call needs beside
     *  them, for sequences of at most `capacity` tokens; or why it cannot. NULL: nothing. */
    ct_status (*keep)(const ct_layer *l, const ct_instance *in, int64_t pages, int64_t capacity,
                      size_t *kept_p, size_t *work_p);
    /** Where env->packed is set, reshape and forward go by it: each sequence is for itself. pools:
     *  the top has a row a sequence, and bottom 0 a number a token. */
    bool packs, pools;
    /** Tokens that a sequence may have; NULL, 0: any number. */
    int64_t (*longest)(const ct_layer *l, const ct_instance *in);
} ct_sequence_ops;

typedef struct ct_layer_ops {
    const char *type;                             /* prototxt `type:`                       */
    int min_bottom, max_bottom, min_top, max_top; /* the net checks; max < 0: no limit      */
    const char *params; /* messages of parameters that it reads, with spaces between; NULL: none */
    bool is_data;       /* a source of samples: no bottoms, sets the batch fields           */
    bool is_loss;       /* the first top has loss weight 1 unless the prototxt says other   */
    bool top_is_share;  /* tops are this rank's share of a global mean: ranks' values add up */
    bool evaluates; /* tops are rows of detections, of which all batches of a test make one number
                     * (solver/average_precision.h) */
    bool allow_inplace; /* top i may be bottom i                                            */
    int no_diff_bottom; /* bit i: bottom i never gets a gradient (labels)                   */
    bool reads_tokens;  /* bottom 0 is numbers of words or the like: what texts are counted in */
    /** Bit w: each number in bottom 0 is that of a row of weight w, and the gradient is zero but
     * for these rows; backward offers them (ct_exec_rows()). */
    int row_weights;
    unsigned splits; /* CT_SPLIT_…: it may be such a part of a layer (LayerParameter.part) */
    /** Instead, of its parameters; NULL: splits, whatever they are. */
    unsigned (*splits_of)(const Ct__LayerParameter *p);
    bool no_diff_last;        /* nor does the last bottom                                         */
    unsigned no_diff_last_of; /* bit n: nor does the last of n bottoms                      */
    bool varies; /* forward gives the tops the shape that reshape gave them, but that the first
                  * dimension may be smaller, another one in each batch (Filter)            */
    /** Whether the caller may give the tops other shapes before any forward, which have at most as
     *  many elements as reshape gave them (Input); NULL: no. */
    bool (*varies_of)(const Ct__LayerParameter *p);
    int backward_reads; /* CT_READS_…; setup may narrow l->backward_reads                   */
    int alias;          /* CT_ALIAS_…                                                       */
    bool null_top_diff; /* backward takes a top diff that is NULL as zeros; otherwise the net
                         * fills in zeros where no reader of a top sends a gradient         */
    bool on_cuda;   /* forward and backward run on any device; others need a ct_device_override */
    bool keeps_top; /* the caller writes the tops (Input): their memory is never shared */
    bool by_net;    /* the net adds it where it is needed, whatever is written: no part of what
                     * the net is (Reorder, Cast, transfers)                             */
    size_t state_size;          /* zeroed l->state given before setup     */
    size_t instance_state_size; /* zeroed in->state given before reshape  */

    /** Reads l->param, checks it, declares weights with ct_layer_add_weight(). bottom[i]: shapes.
     *  Errors are logged with CT_LAYER_FAIL. May be NULL. */
    ct_status (*setup)(ct_layer *l, const ct_shape *bottom);
    /** From the bottoms' shapes: sets the tops' shapes (ct_blob_set_shape), declares buffers
     *  (ct_instance_buffer), chooses kernels. Checks what shapes must agree. */
    ct_status (*reshape)(const ct_layer *l, ct_instance *in);
    /** Bottom data to top data. No allocation, no printing. */
    ct_status (*forward)(const ct_layer *l, ct_instance *in, ct_exec *ex);
    /** Top diffs to bottom diffs and weight diffs. NULL: no gradient passes. */
    ct_status (*backward)(const ct_layer *l, ct_instance *in, ct_exec *ex);
    /** Operations of one forward and backward, and the engines. e comes with the bytes that
     * bottoms, tops and weights have (ct_net_estimate()): a layer that moves less says so. NULL: no
     *  operations worth counting. */
    void (*estimate)(const ct_layer *l, const ct_instance *in, ct_estimate *e);
    /** Whether whatever reads weight w in forward and backward rounds it to bf16 first, so that one
     *  that is rounded already gives the same bits. Behind fusion. NULL: it does not. */
    bool (*rounds)(const ct_layer *l, const ct_instance *in, int w);
    /** Packs weight w, where forward reads it so from one pass to the next, and not the weight
     *  itself. NULL, or false: it reads the weight. Forward alone, behind fusion. */
    bool (*keeps)(const ct_layer *l, ct_instance *in, int w);
    void (*release)(const ct_layer *l, ct_instance *in); /* what in->state points to; may be NULL */
    void (*destroy)(ct_layer *l);                        /* what l->state points to; may be NULL  */

    const ct_formula_step *formula; /* what it computes, whatever its parameters; ends with op NULL.
                                     * NULL or empty: it depends on them */
    const ct_layout_ops *layout;    /* NULL: bottoms come as f32 in plain order */
    const ct_fusion_ops *fusion;    /* NULL: it runs alone                      */
    const ct_sum_ops *sums;         /* NULL: what it adds up over ranks, it adds up inside */
    const ct_sequence_ops *sequence; /* NULL: it may mix tokens */
} ct_layer_ops;

/** What a layer of a type does on devices other than the CPU. Weights, shapes and buffers are those
 *  of its ops, whose setup and reshape find l->dev. */
typedef struct ct_device_override {
    const char *type;
    /** Whether it does what the prototxt asks for; NULL: always. */
    bool (*can)(const Ct__LayerParameter *p);
    /** NULL: those of the ops, which then run on any device. */
    ct_status (*forward)(const ct_layer *l, ct_instance *in, ct_exec *ex);
    ct_status (*backward)(const ct_layer *l, ct_instance *in, ct_exec *ex);
    bool epilogues; /* they run the group that fusion->join takes; otherwise the layer runs alone */
    /** Whether its kernels draw numbers, by the step that ex->step_there holds; NULL: never. */
    bool (*draws)(const Ct__LayerParameter *p);
    /** As of ct_sum_ops, on this device; NULL: it runs whole. */
    ct_status (*forward_part)(const ct_layer *l, ct_instance *in, ct_exec *ex, int part);
    ct_status (*backward_part)(const ct_layer *l, ct_instance *in, ct_exec *ex, int part);
} ct_device_override;

struct ct_layer {
    const ct_layer_ops *ops;         /* static                                         */
    const ct_device_override *form;  /* static; NULL: the ops' own forward and backward */
    const Ct__LayerParameter *param; /* borrowed from the net's parameter              */
    const char *name;                /* borrowed                                       */
    const char *where;               /* "lenet.prototxt:23", or "" ; for messages      */
    const ct_net_env *env;           /* borrowed from the net                          */
    const ct_device *dev; /* where it computes: the net's, or the CPU (ct_layer_place()) */
    ct_phase phase;
    int n_bottom, n_top;
    int backward_reads;
    ct_weight_spec weight[CT_MAX_WEIGHT];
    int n_weight;
    void *state;
};

/** What kernels found wrong in data that the host has not looked at: they put down the first place
 *  and its value, and the net, which reads that with the losses, has it told. */
typedef struct ct_fault {
    uint64_t *word; /* on the device, 0 before each forward; NULL: nobody reads it */
    /** Logs; CT_ERR_DATA. value: at place `at`; a, b: the layer's, set with it. */
    ct_status (*tell)(const ct_layer *l, const ct_exec *ex, float value, int64_t at, int64_t a,
                      int64_t b);
    int64_t a, b;
} ct_fault;
/** A word is CT_FAULT_FIRST - place in its upper half, the value's bits in its lower one: the
 *  largest is that of the first place. Places beyond 2^31 stand as that. */
#define CT_FAULT_FIRST UINT64_C(0xffffffff)

struct ct_instance {
    const ct_layer *layer;
    ct_blob **bottom, **top; /* borrowed from the net; n_bottom, n_top of the layer             */
    ct_blob *weight;         /* n_weight views into the arenas; diff.data NULL: none wanted     */
    bool add_weight_diff[CT_MAX_WEIGHT]; /* another layer of this backward wrote it before      */
    int64_t weight_version; /* grows with every update, and where the pass takes another set of
                             * weights: caches of weights compare it */
    ct_buffer buffer[CT_MAX_BUFFER];
    int backward_reads;      /* the layer's; reshape and join may change it */
    bool top_is_share;       /* the type's; reshape may change it           */
    const ct_epilogue *tail; /* NULL: none                                  */
    unsigned over; /* set by reshape or join; bit i: the diff of bottom i may lie where that of the
                    * (group's) first top lies: each element is read before it is written       */
    bool early;    /* set by join: forward makes the gradients, those of weights where they lie, and
                    * backward hands on the bottoms' */
    ct_relu_share relu; /* of the ReLU that made bottom 0, as its reader */
    bool read_narrow;   /* before reshape: on a device some reader of top 0 may take it in 16 bits,
                         * channels last (layout->last)   */
    bool read_tokens; /* before reshape: on the CPU some reader of top 0 takes rows of bf16 numbers
                       * (layout->tokens) */
    int64_t batch_local, batch_global, batch_first; /* set in reshape by data layers            */
    int batch_axis;   /* axis of the tops that counts samples: 0; 1 for sequences (time first)    */
    int64_t n_sample; /* size of the data set; 0: unknown         */
    int number;       /* of the layer in the net, for ct_packed.kept */
    ct_fault fault;
    void *state;
};

/** setup: declares the next weight; starts as kind LEARNED, lr_mult 1. NULL if there are too many.
 */
ct_weight_spec *ct_layer_add_weight(ct_layer *l, const ct_shape *shape,
                                    const Ct__FillerParameter *filler);

/** Whether a layer has the type, such as "Data". */
static inline bool ct_layer_is(const ct_layer *l, const char *type)
{
    return strcmp(l->ops->type, type) == 0;
}

/** The same of a layer of a file, which may lack a type. */
static inline bool ct_layer_param_is(const Ct__LayerParameter *l, const char *type)
{
    return (l->type != NULL) && (strcmp(l->type, type) == 0);
}

/* ---- setup of a layer that may be a part of one (LayerParameter.part). Of a whole layer these do
 * what their names say to all of it. */

/** The part of a layer that it is; NULL: it is whole, as it is on some of the samples, too. */
const Ct__LayerPart *ct_layer_narrowed(const ct_layer *l);
/** Whether it is a part, cut so. */
bool ct_layer_is_split(const ct_layer *l, Ct__ParallelLayerParameter__Split split);
/** Where the parts' tops add up to the whole's, what is added once is the first part's: the bias.
 */
bool ct_layer_is_first(const ct_layer *l);
/** The shape of a bottom that comes cut along `axis`: *shape_p, a part's, becomes the whole's.
 *  CT_ERR_SHAPE, logged, where it is not the part that the layer is of. */
ct_status ct_layer_widen(const ct_layer *l, int axis, ct_shape *shape_p);
/** What of an array this part has, cut along `axis`, as the pieces are, in some fixed ratio.
 *  CT_ERR_CONFIG, logged, where that cuts through what stays together. */
ct_status ct_layer_cut(const ct_layer *l, const ct_shape *whole, int axis, ct_cut *cut_p);
/** Declares the next weight as ct_layer_add_weight() does, cut so. */
ct_weight_spec *ct_layer_add_cut(ct_layer *l, const ct_cut *cut, const Ct__FillerParameter *filler);
/** The two in one. */
ct_status ct_layer_add_part(ct_layer *l, const ct_shape *whole, int axis,
                            const Ct__FillerParameter *filler);

/** reshape, of a shape that fields make: CT_ERR_SHAPE, logged, where it is not valid. */
ct_status ct_layer_check_shape(const ct_layer *l, const ct_shape *shape);
/** reshape: declares buffer `slot`; later calls replace earlier ones. */
void ct_instance_buffer(ct_instance *in, int slot, ct_buffer_lifetime keep, size_t bytes);
/** reshape: declares buffer `slot` as f32 state that goes over from one batch to the next, `rows` x
 *  `row` floats, zero at first. A row belongs to a sample's place in the batch: the ranks' rows,
 * one rank's after the other, are those of one rank with the whole batch. Snapshots keep it, of
 * TRAIN nets; every net has its own, so tests do not disturb training. */
void ct_instance_carry(ct_instance *in, int slot, int64_t rows, int64_t row);
/** The first top of the group that this layer runs: its own where it has no tail. */
ct_blob *ct_instance_top(const ct_instance *in);
/** 0 where backward must overwrite the diff of weight i, 1 where it must add. */
float ct_weight_beta(const ct_instance *in, const ct_exec *ex, int i);

extern const ct_layer_ops *const ct_layer_table[]; /* NULL-terminated; defined in layers/ */
/** Of the devices that are built in; NULL-terminated, defined in layers/. */
extern const ct_device_override *const ct_device_override_table[];

/** What a layer of type ops with these parameters is to a device: *form_p as in ct_layer. False
 * where it has no way to run there, and runs on the host. */
bool ct_layer_on_device(const ct_layer_ops *ops, const Ct__LayerParameter *p, const ct_device *dev,
                        const ct_device_override **form_p);
/** Whether tops of such a layer may have other shapes in each batch. */
bool ct_layer_varies(const ct_layer_ops *ops, const Ct__LayerParameter *p);
/** What parts a layer with these parameters may be cut into: CT_SPLIT_… The planner and
 *  ct_layer_check_part() ask the same; 0 for a type that is not there. */
unsigned ct_layer_splits(const Ct__LayerParameter *p);
/** Whether a layer that may be cut so (CT_SPLIT_…) may be split so. */
bool ct_layer_may_split(unsigned splits, Ct__ParallelLayerParameter__Split split);
/** The samples that a rank of a divided net has of a batch: those of its replica, or of these its
 *  own part. */
ct_samples ct_place_samples(const ct_stage_place *p, ct_phase phase, int64_t global, bool replica);
/** Whether the layer works on all samples of its replica, each rank on a part of it. */
bool ct_layer_is_of_replica(const ct_layer *l);
/** Whether another rank of the replica counts for what it reports. */
bool ct_layer_is_twin(const ct_layer *l);
/** Whether its weights see samples or tokens that no other rank of the stage sees. */
bool ct_layer_has_own_samples(const ct_layer *l);
/** Before setup: whether the layer may be the part that param->part says. CT_ERR_CONFIG, logged. */
ct_status ct_layer_check_part(const ct_layer *l);
/** Before setup, with ops and param set: sets dev and form of a layer in a net on `dev`. */
void ct_layer_place(ct_layer *l, const ct_device *dev);
/** What its forward and backward are; backward NULL: no gradient passes. */
ct_status ct_layer_forward(const ct_layer *l, ct_instance *in, ct_exec *ex);
ct_status ct_layer_backward(const ct_layer *l, ct_instance *in, ct_exec *ex);
/** How many sums over the ranks its forward, or backward, can be cut at, where it is placed; 0: it
 *  runs whole. */
int ct_layer_sums(const ct_layer *l, const ct_instance *in, bool forward);
/** One part of 1 + ct_layer_sums(). */
ct_status ct_layer_part(const ct_layer *l, ct_instance *in, ct_exec *ex, bool forward, int part);
/** The forward and backward of layers with ops->sums, on the host: all parts, with the sums between
 *  them. They run on one rank, and where the net does not cut the layer. */
ct_status ct_layer_forward_parts(const ct_layer *l, ct_instance *in, ct_exec *ex);
ct_status ct_layer_backward_parts(const ct_layer *l, ct_instance *in, ct_exec *ex);

/** Whether bottom `slot` of n never gets a gradient. */
static inline bool ct_layer_no_diff(const ct_layer_ops *ops, int n, int slot)
{
    bool last = ops->no_diff_last || ((n < 32) && ((ops->no_diff_last_of >> n) & 1u));

    if (last && (slot == n - 1)) return true;
    return (slot < 32) && (((unsigned)ops->no_diff_bottom >> slot) & 1u);
}

/** The ops whose type is `type`, or NULL. */
const ct_layer_ops *ct_layer_find(const char *type);

#ifdef __cplusplus
}
#endif

/** Logs `where: layer "name" (Type): …` and evaluates to _code. */
#define CT_LAYER_FAIL(_l, _code, _fmt, ...)                                                        \
    CT_FAIL(_code, "%s%slayer \"%s\" (%s): " _fmt, (_l)->where,                                    \
            ((_l)->where[0] != '\0') ? ": " : "", (_l)->name, (_l)->ops->type, ##__VA_ARGS__)

#endif
