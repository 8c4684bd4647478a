/** @file reader.h  A data set as numbered samples: open, count, read any of them from any thread.
 *
 * Which samples a rank reads, and when, is the loader's business (loader.h); a reader gives sample
 * `id` of [0, count), the same whatever was read before. Backends are listed in reader.c.
 */
#ifndef CT_READER_H
#define CT_READER_H

#include "framework/data/image.h"
#include "framework/proto/cortado.pb-c.h"

typedef struct ct_reader_options {
    const char *who;    /* in front of messages: "net.prototxt:3: layer "mnist" (Data)"      */
    const char *source; /* LMDB folder or file; list of images; HDF5 file or list of such  */
    int n_field;        /* how many fields are wanted: 1 leaves labels unread               */
    const char *const *field_name; /* HDF5: names of the data sets                          */
    ct_color color;                /* of compressed images                                  */
    const char *root_folder;       /* images: in front of each path; NULL: none             */
    int64_t new_height, new_width; /* images: 0, or the size they are resized to            */
    int64_t ram_limit;             /* HDF5: read whole into memory up to this; 0: 512 MiB    */
    bool other_files;    /* HDF5: which the files name by links, virtual sets, external storage */
    int64_t skip_broken; /* so many samples may be broken, the first ones too      */
    const struct ct_window_rule *window; /* windows: window_list.h; borrowed                 */
    int64_t max_boxes; /* annotated: rows of field 1, as many as a record may have */
    /* synthetic: */
    ct_shape shape[CT_MAX_FIELD];
    int64_t count;
} ct_reader_options;

typedef struct ct_reader ct_reader;

typedef struct ct_reader_ops {
    const char *name; /* "lmdb", "annotated", "hdf5", "images", "synthetic", "windows" */
    /** Fills r->count, r->n_field, r->field; r->state is zeroed and state_size long. */
    ct_status (*open)(ct_reader *r, const ct_reader_options *o);
    void (*close)(ct_reader *r); /* also after an open that failed half way */
    /** Memory of one reading thread, or NULL where none is needed. */
    size_t local_size;
    void (*local_release)(void *local); /* what local points to; may be NULL */
    /** Reads sample id; local: this thread's, zeroed before its first call. Errors go through
     *  ct_reader_bad(): they are logged with the record's name, or come back in sample->why. */
    ct_status (*read)(const ct_reader *r, void *local, int64_t id, ct_sample *sample);
    /** The two halves of read, where one rank reads for others (feed.h): what the file has of the
     *  sample, r->largest bytes at most; and the sample from these, which needs no file. NULL:
     * none. */
    ct_status (*fetch)(const ct_reader *r, void *local, int64_t id, void *to, size_t *size_p);
    ct_status (*decode)(const ct_reader *r, void *local, int64_t id, const void *bytes, size_t size,
                        ct_sample *sample);
    /** Writes the record's name: `record 7 (key "00000007") of examples/mnist_train_lmdb`. */
    void (*describe)(const ct_reader *r, int64_t id, char *text, size_t size);
    /** Writes what the source calls the sample: a key, a path. NULL: nothing. */
    void (*name_of)(const ct_reader *r, int64_t id, char *text, size_t size);
    size_t state_size;
    bool probes; /* field[0] is left to the first good sample; otherwise open fills it */
    /** Draws a sample instead of going through the set: of place `place` in a global batch of
     *  `global`, at a position of the stream. Ids are then the backend's own. NULL: none. */
    int64_t (*pick)(const ct_reader *r, uint64_t seed, int64_t position, int64_t place,
                    int64_t global);
    /** The sample that stands in for a broken one. NULL: id + 1, after the last the first. */
    int64_t (*next)(const ct_reader *r, int64_t id);
} ct_reader_ops;

/** What a reader did to its files; counted by backends that have `fetch`, in any thread. */
typedef struct ct_reader_io {
    _Atomic int64_t bytes, opened; /* read, metadata included; files opened */
    bool walked;                   /* no index was found: it made one       */
} ct_reader_io;

/** Immutable once open; shared by threads. */
struct ct_reader {
    const ct_reader_ops *ops;
    char *who, *source;
    int64_t count;
    int n_field;
    ct_shape field[CT_MAX_FIELD]; /* per sample; field[0] is the first sample's: others may differ
                                     in height and width where the backend allows it */
    bool same_shape;              /* all samples are known to have the shape of field[0] */
    ct_color color;               /* what decode needs to know: of compressed images, … */
    bool u8;                      /* … field 0 is of bytes, that of the first sample if mixed */
    int64_t largest, bytes;       /* of one sample as fetch gives it, of all; 0: no fetch */
    int64_t stripes; /* runs of samples that lie together, as the set was made; 0, 1: none */
    int n_file;
    ct_reader_io *io; /* under the backend's lock while threads read */
    void *state;
};

/** One backend: ops is NULL where it is not built in, and `without` says what is missing. */
typedef struct ct_reader_entry {
    const char *name;
    const ct_reader_ops *ops;
    const char *without;
} ct_reader_entry;

extern const ct_reader_entry ct_reader_table[]; /* ends with name NULL */

/** Opens a data set. CT_ERR_CONFIG: an unknown backend or one that is not built in; CT_ERR_IO:
 *  missing, truncated; CT_ERR_DATA: empty, malformed. Logged. Not collective. */
ct_status ct_reader_open(const char *backend, const ct_reader_options *options,
                         ct_reader **reader_p);
void ct_reader_close(ct_reader *r); /* NULL allowed; no thread may still read */
/** Whether the first record of an LMDB is an image with boxes. Logged: it cannot be read. */
ct_status ct_lmdb_has_boxes(const char *source, const char *who, bool *has_p);
/** What the source calls the sample; "": nothing. */
void ct_reader_name(const ct_reader *r, int64_t id, char *text, size_t size);
/** For read: logs why sample id cannot be read, or hands that on in s->why. Evaluates to status. */
ct_status ct_reader_bad(const ct_reader *r, int64_t id, const ct_sample *s, ct_status status,
                        const ct_why *why);
/** Whether a status speaks against one sample alone, so that another may stand in for it. */
bool ct_reader_may_skip(ct_status status);
/** The sample that stands in for a broken one. */
int64_t ct_reader_after(const ct_reader *r, int64_t id);
/** Memory for one reading thread; released with ct_reader_local_release(). */
ct_status ct_reader_local(const ct_reader *r, void **local_p);
void ct_reader_local_release(const ct_reader *r, void *local); /* local NULL allowed */
/** Values of fields 1, 2 … of one sample together. */
int64_t ct_reader_rest_count(const ct_reader *r);

/** Logs an error with the reader's owner in front and evaluates to _code. */
#define CT_READER_FAIL(_r, _code, _fmt, ...) CT_FAIL(_code, "%s: " _fmt, (_r)->who, ##__VA_ARGS__)

/* ---- the backends */

extern const ct_reader_ops ct_reader_lmdb, ct_reader_annotated, ct_reader_hdf5, ct_reader_images,
    ct_reader_synthetic, ct_reader_windows;

/** CT_ERR_CONFIG, logged: unknown, or not built in. */
ct_status ct_reader_find(const char *backend, const char *who, const ct_reader_ops **ops_p);
/** A reader with nothing but its names and a zeroed state. CT_ERR_NOMEM, logged. */
ct_status ct_reader_create(const ct_reader_ops *ops, const char *who, const char *source,
                           ct_reader **reader_p);

/* ---- what a net reads */

/** The shape of one sample as the net's data layer of phase TEST reads it, of its source where that
 *  is there, else as the layer says. And the shape that its transform_param makes of it. Not
 *  collective. CT_UNSUPPORTED, quiet, with why: it is not known or drawn by chance, or the net is
 *  asked for hidden tokens. CT_ERR_CONFIG, CT_ERR_DATA, logged: transform_param does not fit. Of a
 *  text its length: a window of TokenData, one word of TextData.
 */
ct_status ct_net_sample_shape(const Ct__NetParameter *net, ct_shape *sample_p, ct_shape *input_p,
                              ct_why *why);

/* ---- a data set that another rank of the node reads.
 *
 * Such a reader knows what the set looks like and decodes what the other rank fetched (feed.h).
 * Read from directly it opens the set after all: for records that do not fit the memory that the
 * ranks share, and where there is none.
 */

/** What a rank that does not read needs to know: plain bytes, for ranks of one machine. */
typedef struct ct_reader_facts {
    int64_t count, largest, bytes, stripes;
    ct_shape field[CT_MAX_FIELD];
    int n_field, n_file;
    bool same_shape, u8;
} ct_reader_facts;

void ct_reader_tell(const ct_reader *r, ct_reader_facts *facts_p);
/** The reader of a set that somebody else has open. CT_ERR_NOMEM, CT_ERR_CONFIG; logged. */
ct_status ct_reader_open_far(const char *backend, const ct_reader_options *options,
                             const ct_reader_facts *facts, ct_reader **reader_p);
/** True where the backend can be read by one rank for others. */
bool ct_reader_can_feed(const char *backend);

#endif
