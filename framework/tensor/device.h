/** @file device.h  Where memory lives and which mathematics runs there.
 *
 * One static const object per kind of device: ct_device_cpu(), and with CUDA=1 ct_device_cuda().
 * Copies between host and device are explicit; nothing moves behind a layer's back.
 */
#ifndef CT_DEVICE_H
#define CT_DEVICE_H

#include <stddef.h>

#include "framework/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { CT_DEVICE_CPU, CT_DEVICE_CUDA } ct_device_kind;

struct ct_math_ops;
typedef void *ct_stream; /* a device's queue of work; NULL: the default one, always on the CPU */

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
} ct_device;

const ct_device *ct_device_cpu(void);
/** The device of `mode` ("cpu" or "cuda"), bound to this process; local_rank picks among the
 *  visible ones. Errors: CT_ERR_CONFIG where it is not built in, CT_ERR_DEVICE where none works. */
ct_status ct_device_open(const char *mode, int local_rank, const ct_device **dev_p);
/** ct_device_open() for "cuda"; only in builds with CUDA=1. */
ct_status ct_device_cuda_open(int local_rank, const ct_device **dev_p);

#ifdef __cplusplus
}
#endif

#endif
