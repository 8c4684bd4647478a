/** @file device_sum.h  Sums over ranks that a device's own library makes, on the device's memory.
 *
 * The ranks share an id, which one of them makes, and each opens a group with it. From then on all
 * begin the same sums in the same order; they run on a stream of their own, beside what the device
 * computes, and the host waits for none of them. While they are under way, what the host waits for
 * on the device may be behind them: such waits end with an error where the library tells of one. An
 * MPI that takes the device's memory does the same but for that: it moves while it is called, and
 * is waited for (comm/collective/sum_mpi.h).
 */
#ifndef CT_DEVICE_SUM_H
#define CT_DEVICE_SUM_H

#include "framework/tensor/device.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CT_DEVICE_SUM_ID = 128 /* bytes */ };

typedef struct ct_device_sum_ops {
    const char *name;    /* "nccl", "MPI"                                            */
    bool (*there)(void); /* whether the library is, on this rank; logs nothing       */
    ct_status (*make_id)(void *id);
    /** Collective over the ranks that have the id. Errors name the rank. */
    ct_status (*open)(const ct_device *dev, const void *id, int rank, int n_rank, void **group_p);
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
    /** Of a begin that was recorded in vain: its ticket is gone. */
    void (*drop)(void *group, void *ticket);
} ct_device_sum_ops;

/** Of a device; NULL: none was built in. */
const ct_device_sum_ops *ct_device_sum_of(const ct_device *dev);

extern const ct_device_sum_ops ct_device_sum_nccl;

#ifdef __cplusplus
}
#endif

#endif
