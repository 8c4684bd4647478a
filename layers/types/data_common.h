/** @file data_common.h  What the layers that read data sets share; private to layers/.
 *
 * Such a layer owns a reader and a transform (its description); an instance owns the loader with
 * its prefetch threads, which start at the first forward. Passes in flight take their batches one
 * after the other: all from the loader of the first one, so that it sees step after step. A device
 * that transforms batches has places for those of one pass: there each has a loader.
 */
#ifndef CT_TYPES_DATA_COMMON_H
#define CT_TYPES_DATA_COMMON_H

#include "framework/data/loader.h"
#include "framework/net/layer.h"

typedef struct ct_data_state {
    char *who; /* in front of the readers' messages */
    ct_reader *reader;
    ct_augment *augment; /* NULL: none */
    ct_mixing mix;
    ct_transform *transform;
    ct_shape shape; /* of field 0 of a sample, transformed */
    int64_t batch_size;
    int64_t stripes; /* of the order: as in ct_loader_options */
    uint32_t rand_skip;
    int64_t repeat; /* times that a global batch has each sample */
    int crops;      /* as in ct_net_env; 0 in TRAIN */
    int depth, threads;
    int64_t skip_broken; /* 0: broken samples are errors */
    bool synthetic;
    const Ct__AnnotatedDataParameter *annotated; /* samples come with boxes; NULL: they do not */
    char *staged;                   /* the node-local copy that is read; NULL: the source itself */
    bool fed;                       /* one rank of a node reads for the others */
    struct ct_data_instance *first; /* from which all passes take; NULL: each from itself */
} ct_data_state;

enum {
    CT_DATA_AHEAD = 2,
    CT_DATA_PLACES = CT_DATA_AHEAD + 1,
    CT_DATA_BLOCKS = 0,
    CT_DATA_MEAN = 1
};

/** A packed batch on its way to the device, or there. */
typedef struct ct_data_place {
    int64_t step;
    void *ticket; /* of its copy; NULL: nothing is here */
} ct_data_place;

typedef struct ct_data_instance {
    struct ct_data_instance *source; /* whose loader gives the batches: itself, or the first's */
    ct_loader *loader;               /* NULL: another is the source */
    int64_t next_step, epoch;        /* in which the last batch ended */
    int64_t broken;                  /* samples of all ranks that were replaced in it so far */
    /* where the device transforms batches: step s has place s % CT_DATA_PLACES */
    ct_data_place place[CT_DATA_PLACES];
    uint64_t seed;
    int64_t used;    /* the step whose batch is still to be given back; -1: none */
    int64_t coming;  /* the next step, if it is one of the same run              */
    bool mean_there; /* buffer CT_DATA_MEAN has it                                */
} ct_data_instance;

/** What a layer type tells of its parameters. */
typedef struct ct_data_source {
    const char *backend;
    ct_reader_options options; /* source, color, …; who and the fields are filled in  */
    bool absent;               /* the source is not there: made up if that is allowed */
    uint32_t batch_size;
    bool has_shuffle, shuffle;
    uint32_t stripes; /* 0: the set's own */
    uint32_t rand_skip;
    uint32_t threads;
    const Ct__AnnotatedDataParameter *annotated; /* field 1 is rows of boxes; NULL: it is none */
    bool whole; /* samples come as they go into the top: transform_param is the reader's business */
    Ct__BlobShape *const *synthetic; /* synthetic_shape of each top without the batch axis, …  */
    size_t n_synthetic;              /* … as many as are given                                 */
} ct_data_source;

/** setup: opens the reader and the transform. Errors are logged. */
ct_status ct_data_setup(ct_layer *l, const ct_data_source *source);
ct_status ct_data_reshape(const ct_layer *l, ct_instance *in);
ct_status ct_data_forward(const ct_layer *l, ct_instance *in, ct_exec *ex);
void ct_data_release(const ct_layer *l, ct_instance *in);
void ct_data_destroy(ct_layer *l);

/** Batches into tops, and for devices that transform them ahead of their step.
 * reshape: buffers for `loader`, which packs. */
void ct_data_ahead_buffers(const ct_layer *l, ct_instance *in);
/** Before the loader is asked for the batch of this step: ends what was begun for others. */
ct_status ct_data_ahead_begin(const ct_layer *l, ct_instance *in, ct_exec *ex);
/** Its batch into the tops, and back to the loader: where it was packed, at the next begin. Then
 *  those that come next go up. */
ct_status ct_data_ahead_use(const ct_layer *l, ct_instance *in, ct_exec *ex, const ct_batch *b);
/** Waits for what is under way. */
void ct_data_ahead_end(const ct_layer *l, ct_instance *in);

/** What a source of samples gives this rank, of batch_size samples a rank, or of the solver's
 *  global_batch_size. A divided net has batch_size on all ranks together. CT_ERR_CONFIG: some rank
 *  would get none. */
ct_status ct_data_share(const ct_layer *l, int64_t batch_size, ct_share *share_p);
/** What this rank has of a source whose own parameters give the batch: of a divided net, of all its
 *  ranks; otherwise of each. */
int64_t ct_data_batch_here(const ct_layer *l, int64_t batch);
/** The batch fields of in, for such a source. */
void ct_data_set_even_batch(const ct_layer *l, ct_instance *in, int64_t batch);
/** CT_ERR_SHAPE, logged, where a top of this shape is beyond any memory. */
ct_status ct_data_check_size(const ct_layer *l, const ct_shape *shape);
/** Copies host values into a top, wherever it lies. */
ct_status ct_data_put(const ct_exec *ex, ct_blob *top, const float *values, int64_t n);

#endif
