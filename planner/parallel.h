/** @file parallel.h  A parallel file in memory: what of a net runs on which rank.
 *
 * The file (ParallelParameter, docs/parallel.md) cuts a net into stages, one behind the other. A
 * stage has one or several replicas, which share its samples; a replica has `tensor` ranks, which
 * share its layers. ct_parallel_read() checks what can be checked without the net,
 * ct_parallel_bind() the rest.
 *
 * Messages begin with FILE:LINE. Stages count from 0, as ranks do.
 */
#ifndef CT_PARALLEL_H
#define CT_PARALLEL_H

#include "framework/base/text.h"
#include "framework/net/net.h"

/** How the ranks of a replica share a layer: as ParallelLayerParameter.Split. */
typedef enum ct_parallel_split {
    CT_PARALLEL_BATCH,     /* each has some of the samples                          */
    CT_PARALLEL_OUTPUT,    /* … of the outputs: channels, features, classes         */
    CT_PARALLEL_INPUT,     /* … of the inputs, and its part of each sum of products */
    CT_PARALLEL_HEADS,     /* … of the heads                                        */
    CT_PARALLEL_SEQUENCE,  /* … of the tokens                                       */
    CT_PARALLEL_REPLICATE, /* each does all                                         */
    CT_PARALLEL_ONE        /* one of them does all                                  */
} ct_parallel_split;

/** A layer of the net's file, after `repeat`, of any phase. */
typedef struct ct_parallel_layer {
    const Ct__LayerParameter *param; /* borrowed from the net's message */
    const char *name;                /* never NULL                      */
    int layer;                       /* in the TRAIN net; -1: not there */
    int stage;
    bool is_given; /* an entry of the file says how it is split */
    ct_parallel_split split;
    int part;  /* of ONE: the place in the replica of the rank that has it */
    int again; /* the segment of its stage that it belongs to; -1: it is kept */
} ct_parallel_layer;

typedef struct ct_parallel_segment {
    int first, last; /* of ct_parallel.layer */
} ct_parallel_segment;

typedef struct ct_parallel_stage {
    int n_rank;
    const int32_t *rank; /* those of replica j are rank[j tensor] … rank[j tensor + tensor - 1] */
    int tensor, n_replica;
    int64_t *share;  /* samples of each replica in one micro-batch */
    int first, last; /* of ct_parallel.layer; known once bound     */
    int n_again;
    ct_parallel_segment *again; /* likewise */
    const Ct__ParallelStageParameter *param;
} ct_parallel_stage;

/* Where a rank stands: its stage, its replica there, and its place in the replica. */
typedef struct ct_parallel_place {
    int stage, replica, part;
} ct_parallel_place;

typedef struct ct_parallel {
    const char *file; /* its name, for messages */
    int n_rank;
    ct_parallel_place *place; /* [n_rank] */
    int64_t global_batch, micro_batches;
    int64_t micro_batch; /* samples of one, of all replicas: global_batch / micro_batches */
    int n_stage;
    ct_parallel_stage *stage;
    int n_layer; /* 0: not bound to a net yet */
    ct_parallel_layer *layer;
    ct_net_segment *again; /* of all stages, as ct_net_options takes them */
    int n_again;
    const Ct__ParallelParameter *param;
    void *impl;
} ct_parallel;

/** Reads and checks a parallel file. CT_ERR_CONFIG, CT_ERR_IO. */
ct_status ct_parallel_read(const char *path, ct_parallel **parallel_p);
/** The same of text[0..size), called `name` in messages. CT_ERR_CONFIG. */
ct_status ct_parallel_parse(const char *name, const char *text, size_t size,
                            ct_parallel **parallel_p);
void ct_parallel_destroy(ct_parallel *p); /* NULL allowed */

/** Checks the file against a net: param is its message, brought up to date, and `train` the net of
 *  phase TRAIN made of it, with shapes for any batch. Both must outlive p. Once.
 *  CT_ERR_CONFIG. */
ct_status ct_parallel_bind(ct_parallel *p, const Ct__NetParameter *param, const ct_net *train);
/** The job has so many ranks, by `who`, such as "the job" or "--ranks". CT_ERR_LAUNCH if the file
 *  has others. */
ct_status ct_parallel_check_ranks(const ct_parallel *p, int64_t n_rank, const char *who);
/** A step of the solver is one of the file: its global_batch_size becomes a micro-batch, its
 *  iter_size, which counts whole schedules, so many times itself as a schedule has micro-batches.
 *  CT_ERR_CONFIG if it asks for another global_batch_size. */
ct_status ct_parallel_set_batch(const ct_parallel *p, Ct__SolverParameter *solver);

/** Likewise the net: in TRAIN layers DummyData give a micro-batch, too, in tops whose first
 *  dimension is that of the first such top. One of both phases becomes two, and that of TEST keeps
 *  its batch. Before ct_parallel_bind(). CT_ERR_NOMEM. */
ct_status ct_parallel_set_dummy(const ct_parallel *p, Ct__NetParameter *net);
/** The same for any batch, of nets that are made for TRAIN alone: no layer becomes two. */
void ct_parallel_set_dummy_batch(Ct__NetParameter *net, int64_t batch);

/** -1 for each of a rank that the file does not have. */
ct_parallel_place ct_parallel_place_of(const ct_parallel *p, int rank);

/** CT_ERR_CONFIG with FILE:LINE of the field (NULL: of the message) in front, for files of
 *  planner/ that check more of the file. */
ct_status ct_parallel_fail(const ct_parallel *p, const void *message, const void *field,
                           const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* ---- a file for a net that is only run forward, by one tensor group
 *
 * All layers are REPLICATE but for runs of products: one or several InnerProducts split OUTPUT,
 * what acts on each channel or head behind them, and one InnerProduct split INPUT. Such a run, as
 * those of a transformer's attention and of its feed-forward part, has one sum over the ranks. */

enum { CT_TENSOR_FILE_MOST = 1024 };

/** *n_run_p: runs that so many ranks would share; 0: none. CT_ERR_NOMEM. */
ct_status ct_tensor_file_count(const ct_net *net, int tensor, int *n_run_p);
/** Appends the file for `tensor` ranks. net: as for ct_parallel_bind(). name: for messages.
 *  *n_run_p: runs that the ranks share. CT_ERR_CONFIG: there is none; CT_ERR_NOMEM. */
ct_status ct_tensor_file_write(const ct_net *net, int tensor, const char *name, ct_text *out,
                               int *n_run_p);

#endif
