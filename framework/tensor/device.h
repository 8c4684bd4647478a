/** @file device.h  Where memory lives and which mathematics runs there.
 *
 * One static const object per kind of device: ct_device_cpu(), and with CUDA=1 ct_device_cuda().
 * Copies between host and device are explicit; nothing moves behind a layer's back.
 */
#ifndef CT_DEVICE_H
#define CT_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "framework/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { CT_DEVICE_CPU, CT_DEVICE_CUDA } ct_device_kind;

struct ct_math_ops;
typedef void *ct_stream; /* a device's queue of work; NULL: the default one, always on the CPU */

/** Work of a stream that is recorded once and given again as one. While it is recorded nothing
 *  runs, and nothing may wait for the stream. */
typedef struct ct_graph_ops {
    ct_status (*stream_open)(
        ct_stream *st_p); /* a stream that can be recorded, the same each time */
    ct_status (*begin)(ct_stream st);
    ct_status (*end)(ct_stream st, void **graph_p); /* an error where something could not be */
    ct_status (*run)(ct_stream st, void *graph);
    void (*release)(void *graph);
    int64_t (*waits)(void); /* how often this process has waited for the device so far */
} ct_graph_ops;

/** A copy between host and device, beside what it computes. */
typedef struct ct_copy_seen {
    bool down; /* to the host */
    size_t bytes;
    double start_s, end_s;
} ct_copy_seen;

/** Moments of a stream, and names for what profilers show. */
typedef struct ct_mark_ops {
    ct_status (*mark)(ct_stream st, int slot); /* the stream gets here; slots count from 0 */
    ct_status (*between)(int from, int to, double *seconds_p); /* of two that were passed */
    void (*range)(const char *name); /* what the host gives from here on; NULL: the last ends */
    /** From here on copies beside streams (copy_begin, copy_ahead, upload) are kept for `who`; what
     *  was kept for another is dropped. NULL: for nobody. */
    void (*watch)(const void *who);
    /** The next of them, in the order in which they were begun, if it has ended; wait: once it has.
     *  *got_p false: there is none. Times count from mark slot `from`. */
    ct_status (*watched)(const void *who, int from, bool wait, ct_copy_seen *copy_p, bool *got_p);
} ct_mark_ops;

typedef struct ct_device {
    const char *name; /* "cpu", "cuda" */
    ct_device_kind kind;
    ct_status (*mem_acquire)(size_t bytes, void **data_p); /* 64-byte aligned, zeroed */
    void (*mem_release)(void *data);                       /* NULL allowed            */
    /* Copies are ordered after earlier work of the stream; to_host returns when done. */
    ct_status (*to_host)(ct_stream st, void *host, const void *data, size_t bytes);
    ct_status (*from_host)(ct_stream st, void *data, const void *host, size_t bytes);
    ct_status (*copy)(ct_stream st, void *to, const void *from, size_t bytes);
    ct_status (*zero)(ct_stream st, void *data, size_t bytes);
    ct_status (*sync)(ct_stream st); /* waits for all work of the stream */
    const struct ct_math_ops *math;  /* framework/math/math.h            */
    /* Host memory that copies to and from it are fast with; NULL: any. */
    ct_status (*host_acquire)(size_t bytes, void **data_p); /* 64-byte aligned, of any content */
    void (*host_release)(void *data);
    /* Copies beside what the device computes; NULL: none. down: `data` to `host`, after the
     * stream's work so far; *ticket_p tells when it is there. Else up, and the stream's further
     * work waits for it; *ticket_p is NULL. Many may be under way. host: of host_acquire. */
    ct_status (*copy_begin)(ct_stream st, void *host, void *data, size_t bytes, bool down,
                            void **ticket_p);
    ct_status (*copy_done)(void *ticket, bool wait, bool *done_p); /* where done, it is gone */
    /** As from_host, but the host block may be used again at once, and nobody waits for the stream.
     *  Bytes go to pinned memory first, up beside what the device computes, and to their place in
     *  the order of the stream. NULL: from_host is as good. */
    ct_status (*upload)(ct_stream st, void *data, const void *host, size_t bytes);
    const ct_graph_ops *graph; /* NULL: none */
    const ct_mark_ops *marks;  /* NULL: none */
    /** Up, too, for work that is given later: as copy_begin, but the stream waits for it only from
     *  copy_follow() on. The ticket ends with copy_done(). NULL: none. */
    ct_status (*copy_ahead)(ct_stream st, const void *host, void *data, size_t bytes,
                            void **ticket_p);
    ct_status (*copy_follow)(ct_stream st, void *ticket);
} ct_device;

const ct_device *ct_device_cpu(void);
/** The device of `mode` ("cpu" or "cuda"), bound to this process; local_rank picks among the
 *  visible ones. Errors: CT_ERR_CONFIG where it is not built in, CT_ERR_DEVICE where none works. */
ct_status ct_device_open(const char *mode, int local_rank, const ct_device **dev_p);
/** Where one device of this process stands. */
typedef struct ct_device_place {
    char name[128], id[32]; /* what it is; which one in this computer: its PCI bus id */
    double memory;          /* bytes */
} ct_device_place;

/** Devices of `mode` that this process sees; 0 where there is none, no driver, or it is not built
 * in. Logs nothing. */
int ct_device_count(const char *mode);
/** Of number i of them. CT_ERR_DEVICE, CT_ERR_CONFIG. */
ct_status ct_device_look(const char *mode, int i, ct_device_place *place_p);
/** What the open device of `mode` really does: bytes/s of a copy on it, read and written counted,
 * and operations/s of a large product in f32, and of operands in bf16. */
ct_status ct_device_measure(const char *mode, double *copy_p, double *product_p, double *narrow_p);

/* Those for "cuda"; only in builds with CUDA. */
ct_status ct_device_cuda_open(int local_rank, const ct_device **dev_p);
int ct_device_cuda_count(void);
ct_status ct_device_cuda_look(int i, ct_device_place *place_p);
ct_status ct_device_cuda_measure(double *copy_p, double *product_p, double *narrow_p);

/* ---- Sums over ranks that a device's own library makes, on the device's memory.
 *
 * The ranks share an id, which one of them makes, and each opens a group with it. From then on all
 * begin the same sums in the same order; they run on a stream of their own, beside what the device
 * computes, and the host waits for none of them. While they are under way, what the host waits for
 * on the device may be behind them: such waits end with an error where the library tells of one. An
 * MPI that takes the device's memory does the same but for that: it moves while it is called, and
 * is waited for (comm/collective/sum_mpi.c).
 */

enum { CT_DEVICE_SUM_ID = 128 /* bytes */ };
struct ct_transfer;

typedef struct ct_device_sum_ops {
    const char *name;    /* "nccl", "MPI"                                            */
    bool (*there)(void); /* whether the library is, on this rank; logs nothing       */
    ct_status (*make_id)(void *id);
    /** Collective over the ranks that have the id. comm: their ct_comm, for a library that is MPI
     *  itself; the others go by the id. Errors name the rank. */
    ct_status (*open)(const ct_device *dev, void *comm, const void *id, int rank, int n_rank,
                      void **group_p);
    /** Collective, and waits for the sums under way, but after an error: then those are given up,
     *  where the other ranks close, too. NULL allowed. */
    void (*close)(void *group);
    /** data[0..n) becomes the sum over ranks, after what `st` was given so far. */
    ct_status (*begin)(void *group, ct_stream st, float *data, int64_t n, void **ticket_p);
    /** What `st` is given from here on comes after that sum, whose ticket is gone. */
    ct_status (*follow)(void *group, ct_stream st, void *ticket);
    /** data[0..n) becomes the sum over ranks between what `st` was given so far and what it is
     * given next; among the other sums in the order of the calls. May be recorded. NULL: begin and
     * follow alone. */
    ct_status (*sum)(void *group, ct_stream st, double *data, int64_t n);
    /** Now and then, from the host, while sums are under way; NULL: the device needs nobody. */
    ct_status (*poll)(void *group);
    /** Not NULL: begin and follow may be recorded, both in one graph. The host takes part in
     * nothing else, but calls this when sums were given again: has another rank failed? No graph
     * that has them is left when the group closes. */
    ct_status (*given)(void *group);
    /** Of a begin that was recorded in vain, or that nobody waits for: its ticket is gone. */
    void (*drop)(void *group, void *ticket);
    /** As begin, of a transfer of f32 in the group (transfer.h). NULL: it makes none. */
    ct_status (*transfer)(void *group, const struct ct_transfer *t, void **ticket_p);
} ct_device_sum_ops;

/** Of a device; NULL: none was built in. */
const ct_device_sum_ops *ct_device_sum_of(const ct_device *dev);

extern const ct_device_sum_ops ct_device_sum_nccl;

#ifdef __cplusplus
}
#endif

#endif
