/** @file storage.h  Arenas whose ranges are reached by handles.
 *
 * State that is used a range at a time, such as the optimiser's, need not lie for good where it is
 * used. Whoever uses a range wants it, works at the address that the handle then has, and says that
 * it is done. Nobody keeps that address any longer: the range may come and go, and lie elsewhere
 * the next time. In its simplest form a storage is memory of a device, and a range has one address.
 *
 * Ranges of a storage that are wanted at the same time do not overlap, unless all of them are only
 * read. A storage checks that, and that every range is given back. One thread at a time.
 */
#ifndef CT_STORAGE_H
#define CT_STORAGE_H

#include "framework/tensor/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    CT_STORAGE_READ = 1,   /* nothing is changed                                    */
    CT_STORAGE_WRITE = 2,  /* everything is overwritten; what was there is not seen */
    CT_STORAGE_UPDATE = 3, /* both                                                  */
} ct_storage_use;

struct ct_storage;

/** Floats [from, from + count) of a storage, from want to done. */
typedef struct ct_storage_range {
    struct ct_storage *storage; /* NULL: not wanted */
    int64_t from, count;
    ct_storage_use use;
    float *data; /* on the storage's device */
} ct_storage_range;

typedef struct ct_storage_ops {
    const char *name;
    bool fixed; /* a range has the same address each time, so work that is recorded may hold it */
    /** Sets r->data, where work that `st` is given from here on finds the range. */
    ct_status (*want)(struct ct_storage *s, ct_stream st, ct_storage_range *r);
    /** Work that `st` was given so far is the last at r->data. */
    ct_status (*done)(struct ct_storage *s, ct_stream st, const ct_storage_range *r);
    /** Floats from `from` on that may be wanted as one range. NULL: all. */
    int64_t (*together)(const struct ct_storage *s, int64_t from);
    void (*close)(struct ct_storage *s);
} ct_storage_ops;

enum {
    CT_STORAGE_OUT = 4,        /* ranges that may be wanted at the same time            */
    CT_STORAGE_CHUNK = 1 << 20 /* floats that the functions below move at once, at most */
};

typedef struct ct_storage {
    const ct_storage_ops *ops; /* NULL: not open */
    const ct_device *dev;      /* of the addresses */
    int64_t count;             /* floats */
    size_t bytes;              /* that it has allocated on dev for good */
    void *own;                 /* the form's */
    int n_out;
    ct_storage_range out[CT_STORAGE_OUT]; /* what is wanted now */
} ct_storage;

/** Opens a storage of `count` zeros whose ranges are reached on dev. */
typedef ct_status (*ct_storage_open_fn)(void *ctx, const ct_device *dev, int64_t count,
                                        ct_storage *s_p);

/** Memory of dev: one address a range. ctx is not looked at. */
ct_status ct_storage_open_fixed(void *ctx, const ct_device *dev, int64_t count, ct_storage *s_p);
/** The same on memory of the caller's, which outlives it. */
ct_storage ct_storage_at(const ct_device *dev, float *data, int64_t count);
/** One that is not open is allowed. CT_ERR_ARG as ct_storage_settled(); it is closed all the same.
 */
ct_status ct_storage_close(ct_storage *s);

/** The range [from, from + count). CT_ERR_ARG where it is not inside, or overlaps one that is
 *  wanted and either is written. */
ct_status ct_storage_want(ct_storage *s, ct_stream st, int64_t from, int64_t count,
                          ct_storage_use use, ct_storage_range *r);
/** The most floats from `from` on that may be wanted as one range. */
int64_t ct_storage_together(const ct_storage *s, int64_t from);
/** Gives it back; one that is not wanted is allowed. */
ct_status ct_storage_done(ct_storage_range *r, ct_stream st);
/** CT_ERR_ARG, logged, where a range is still wanted. */
ct_status ct_storage_settled(const ct_storage *s);

/* ---- whole ranges to and from memory, chunk by chunk */

ct_status ct_storage_get(ct_storage *s, int64_t from, int64_t count, float *host);
ct_status ct_storage_put(ct_storage *s, int64_t from, int64_t count, const float *host);
ct_status ct_storage_zero(ct_storage *s, int64_t from, int64_t count);
/** data: on the storage's device. */
ct_status ct_storage_copy(ct_storage *s, int64_t from, int64_t count, const float *data);

/** What ct_storage_each() calls with a chunk in host memory, the first of which is float `from` of
 *  the storage. */
typedef ct_status (*ct_storage_fn)(void *ctx, int64_t from, int64_t count, float *host);
/** Calls fn with the range, chunk by chunk, in order. What fn changes goes back unless use is
 *  CT_STORAGE_READ. Takes one chunk of memory where the device is not the host. */
ct_status ct_storage_each(ct_storage *s, int64_t from, int64_t count, ct_storage_use use,
                          ct_storage_fn fn, void *ctx);

#ifdef __cplusplus
}
#endif

#endif
