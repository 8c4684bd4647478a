/** @file data_common.h  What the layers that read data sets share; private to layers/.
 *
 * Such a layer owns a reader and a transform (its description); an instance owns the loader with
 * its prefetch threads, which start at the first forward.
 */
#ifndef CT_DATA_COMMON_H
#define CT_DATA_COMMON_H

#include "framework/data/loader.h"
#include "framework/net/layer.h"

typedef struct ct_data_state {
    char *who; /* in front of the readers' messages */
    ct_reader *reader;
    ct_transform *transform;
    ct_shape shape; /* of field 0 of a sample, transformed */
    int64_t batch_size;
    int64_t stripes; /* of the order: as in ct_loader_options */
    uint32_t rand_skip;
    int depth, threads;
    int64_t skip_broken; /* 0: broken samples are errors */
    bool synthetic;
    char *staged; /* the node-local copy that is read; NULL: the source itself */
    bool fed;     /* one rank of a node reads for the others */
} ct_data_state;

typedef struct ct_data_instance {
    ct_loader *loader;
    int64_t next_step, epoch;
    int64_t broken[2]; /* samples of all ranks that were replaced in this epoch, in the next */
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

/** The batch fields of in, for a layer whose own part is `local` samples on every rank. */
void ct_data_set_even_batch(const ct_layer *l, ct_instance *in, int64_t local);
/** CT_ERR_SHAPE, logged, where a top of this shape is beyond any memory. */
ct_status ct_data_check_size(const ct_layer *l, const ct_shape *shape);
/** Copies host values into a top, wherever it lies. */
ct_status ct_data_put(const ct_exec *ex, ct_blob *top, const float *values, int64_t n);

#endif
