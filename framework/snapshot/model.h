/** @file model.h  Weights by layer and place, in a file of any format or in a net.
 *
 * Formats (a row each in the table): Caffe's binary .caffemodel, its HDF5 (/data/LAYER/INDEX),
 * NumPy's .npz and .safetensors with arrays "LAYER/INDEX", .safetensors and GGUF with others' names
 * of language models. A file is recognised by its content, written by its suffix.
 */
#ifndef CT_MODEL_H
#define CT_MODEL_H

#include <stdio.h>

#include "framework/base/name_map.h"
#include "framework/net/net.h"
#include "framework/tensor/storage.h"

typedef struct ct_model_array {
    bool present;
    bool shared; /* another layer's, which comes first                       */
    ct_shape shape;
    const float *data;   /* NULL: in the storage, or in the file yet                 */
    ct_storage *storage; /* NULL: none                                             */
    int64_t from;        /* the first float there                                  */
    void *owned;         /* what data points to, where the model owns it             */
    int64_t place;       /* the format's                                             */
} ct_model_array;

typedef struct ct_model_layer {
    char *name;                      /* owned                                      */
    const Ct__LayerParameter *param; /* borrowed; NULL: the file does not say      */
    int n_array;                     /* one beyond the last that is present        */
    ct_model_array array[CT_MAX_WEIGHT];
} ct_model_layer;

struct ct_model_format;

typedef struct ct_model {
    char *file;        /* for messages: a path, or the net's name */
    char *name;        /* of the net; NULL: unknown               */
    char *class_names; /* of its classes, each with a newline behind; NULL: it says none */
    const struct ct_model_format *format;
    void *source; /* the format's, while the file is open    */
    int n_layer, capacity;
    ct_name_map by_name;   /* numbers of layers */
    ct_model_layer *layer; /* in the file's order; some have no arrays */
    int64_t n_blob;        /* of a binary file                         */
    /* of a language model: what else its source says of it, as Hugging Face's config.json; NULL:
     * nothing */
    struct json_t *config;
    int written_as; /* a ct_lm_family: as .safetensors with Hugging Face's names; 0: with ours */
} ct_model;

typedef struct ct_model_format {
    const char *name, *suffix;
    bool (*is)(const char *file);
    /** Fills in layers and arrays; those without data are got later. */
    ct_status (*open)(ct_model *m);
    ct_status (*get)(ct_model *m, int layer, int i, float *out);
    void (*close)(ct_model *m);
    /** All arrays have data. Writes path itself, synced. NULL: the format is only read. */
    ct_status (*write)(const ct_model *m, const char *path, const char *provenance,
                       uint64_t *hash_p, int64_t *size_p);
} ct_model_format;

/** The format of a file name; CT_ERR_CONFIG with the suffixes there are. */
ct_status ct_model_format_of(const char *path, const ct_model_format **format_p);
extern const ct_model_format ct_model_binary, ct_model_h5, ct_model_npz, ct_model_safetensors,
    ct_model_shards, ct_model_gguf;

/** The table of a file. CT_ERR_IO, CT_ERR_DATA (what it is instead, what is broken). */
ct_status ct_model_open(const char *file, ct_model **m_p);
/** The weights of a net, in its order. Borrowed, in the order of its arena: weights: instead of the
 *  net's; NULL: those. learned: the same of those that learn. */
ct_status ct_model_of_net(const ct_net *net, ct_storage *weights, ct_storage *learned,
                          ct_model **m_p);
void ct_model_close(ct_model *m);                        /* NULL allowed */
int ct_model_find(const ct_model *m, const char *layer); /* -1: none */
/** Takes these as the names of its classes. CT_ERR_NOMEM. */
ct_status ct_model_name_classes(ct_model *m, char *const *name, int64_t n);
/** Array i of a layer, which is present. */
ct_status ct_model_get(ct_model *m, int layer, int i, float *out);
/** Every array into memory. */
ct_status ct_model_load(ct_model *m);
/** provenance may be NULL. */
ct_status ct_model_write(const ct_model *m, const ct_model_format *format, const char *path,
                         const char *provenance, uint64_t *hash_p, int64_t *size_p);

/** Has the model written with Hugging Face's names from now on, where it is one of the families
 * that have them; false: it is none. */
bool ct_model_write_as_hf(ct_model *m);
/** Loads what is not loaded and writes all in the format of the name, whole or not at all. */
ct_status ct_model_save(ct_model *m, const char *file);

/* ---- for formats */

/** The layer of that name, which is added where it is new. */
ct_status ct_model_add_layer(ct_model *m, const char *layer, size_t n, int *layer_p);
/** Adds array `index` of the layer whose name has n bytes. CT_ERR_DATA where it is there already or
 *  is beyond CT_MAX_WEIGHT. */
ct_status ct_model_add(ct_model *m, const char *layer, size_t n, int index, const ct_shape *shape,
                       ct_model_array **array_p);
/** "LAYER/INDEX": the name may itself have slashes, or be empty. False: it is not that. */
bool ct_model_split(const char *path, size_t *n_p, int *index_p);
/** "LAYER/INDEX" and what follows; malloc'ed, NULL without memory. */
char *ct_model_path(const char *layer, int index, const char *suffix);
/** The shape of a blob as Caffe stores it, today's form or four old numbers; the number of values
 *  is checked. who names it in messages. CT_ERR_DATA. */
ct_status ct_blob_shape(const Ct__BlobProto *blob, const char *who, ct_shape *shape_p);

/** Caffe's rule for the old four-dimensional blobs, for all: leading ones do not count. */
bool ct_shapes_fit(const ct_shape *a, const ct_shape *b);

#endif
