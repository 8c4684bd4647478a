/** @file convert_sink.h  Where converted records go: a writer, and the mean; private to
 * framework/data. */
#ifndef CT_CONVERT_SINK_H
#define CT_CONVERT_SINK_H

#include "framework/data/convert.h"
#include "framework/data/image_list.h"
#include "framework/data/writer.h"

typedef struct ct_sink {
    ct_writer *writer;
    const char *path, *mean_path; /* mean_path NULL: no mean */
    bool force;
    int64_t *sum;
    ct_record first;       /* whose shape the others must have for a mean */
    ct_label_count labels; /* of the records, or of their boxes */
    bool boxes;            /* records have boxes */
    int64_t n;
} ct_sink;

/** Path of the set `which` ("train", "test") in the folder o->to; freed by the caller. */
ct_status ct_convert_path(const ct_convert_options *o, const char *which, char **path_p);
/** Makes the folder and those above it. CT_ERR_IO. */
ct_status ct_convert_make_folder(const char *path);
/** Makes the folder that a set goes into, and those above it. CT_ERR_IO. */
ct_status ct_convert_make_parent(const char *to);
const char *ct_convert_backend(const ct_convert_options *o);

/** mean: o->mean, or NULL. expected: records to come. */
ct_status ct_sink_open(ct_sink *s, const ct_convert_options *o, const char *path, const char *mean,
                       int64_t expected);
/** Adds a record; record->key is made up here from the count ("00000000", …), with `name` behind it
 *  where there is one. pixels: the planes of an encoded record, for the mean; NULL otherwise. */
ct_status ct_sink_add(ct_sink *s, ct_record *record, const char *name, const uint8_t *pixels);
/** Commits where status is CT_OK, else drops what was written. Returns the first failure. */
ct_status ct_sink_close(ct_sink *s, ct_status status);

/** Makes the sets "train" and "test" of o->to; both appear, or none. fill puts `n` records into a
 *  sink; its errors are logged. */
typedef struct ct_pair {
    int64_t n[2]; /* records of train, of test */
    ct_status (*fill)(void *ctx, int which, ct_sink *sink);
    void *ctx;
    bool single; /* no test set is made */
} ct_pair;

ct_status ct_convert_pair(const ct_convert_options *o, const ct_pair *pair);

#endif
