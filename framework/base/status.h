/** @file status.h  Error convention of the whole project.
 *
 * A function that can fail returns ct_status. Results go out through trailing pointers whose
 * names end in _p, and are written only on success. The function that discovers an error logs
 * it, once, with CT_FAIL and the values that show it; its callers only pass it up (CT_TRY) or
 * clean up (CT_TRY_GOTO). No library code calls exit() or abort(): only a verb's main decides
 * to end the job, with ct_status_exit_code().
 */
#ifndef CT_STATUS_H
#define CT_STATUS_H

#include "framework/base/log.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ct_status {
    CT_OK = 0,
    CT_INPROGRESS,   /* not an error: poll again                                  */
    CT_UNSUPPORTED,  /* not an error: try the next implementation, no log         */
    CT_STOPPED,      /* not an error: a signal ended the run early, snapshot good */
    CT_ERR_ARG,      /* the caller broke the contract                             */
    CT_ERR_CONFIG,   /* usage, prototxt or option is wrong; message: file:line    */
    CT_ERR_SHAPE,    /* shapes do not fit together                                */
    CT_ERR_NOMEM,    /* no memory                                                 */
    CT_ERR_IO,       /* file missing, short, corrupt, disk full                   */
    CT_ERR_DATA,     /* a record or label out of its range                        */
    CT_ERR_COMM,     /* MPI or NCCL failed                                        */
    CT_ERR_DEVICE,   /* CUDA failed                                               */
    CT_ERR_LAUNCH,   /* the launcher started another number of ranks              */
    CT_ERR_DIVERGED, /* NaN or infinity in the loss, or ranks disagree            */
    CT_ERR_WATCHDOG  /* no progress for too long                                  */
} ct_status;

/** Name of a status for messages, never NULL; the string is static. */
const char *ct_status_str(ct_status status);

/** The process exit code of a status: 0 ok, 1 run time, 2 usage or config, 3 data or I/O,
 *  4 launch mismatch, 5 diverged, 6 watchdog, 75 stopped early with a good snapshot. 76, stopped
 *  before the first step, comes from a signal handler and has no status. */
int ct_status_exit_code(ct_status status);

#ifdef __cplusplus
}
#endif

/** Logs an error where it is discovered and evaluates to _code. */
#define CT_FAIL(_code, ...) (ct_log_at(CT_LOG_ERROR, __FILE__, __LINE__, __VA_ARGS__), (_code))

#define CT_TRY(_expr)                                                                              \
    do {                                                                                           \
        ct_status try_status_ = (_expr);                                                           \
        if (try_status_ != CT_OK) return try_status_;                                              \
    } while (0)

#define CT_TRY_GOTO(_status, _label, _expr)                                                        \
    do {                                                                                           \
        (_status) = (_expr);                                                                       \
        if ((_status) != CT_OK) goto _label;                                                       \
    } while (0)

#endif
