/** @file async_io_form.h  What a form of asynchronous reads and writes consists of. Private.
 */
#ifndef CT_ASYNC_IO_FORM_H
#define CT_ASYNC_IO_FORM_H

#include "framework/base/async_io.h"

typedef struct ct_io_form {
    const char *name;
    /** CT_UNSUPPORTED where the kernel has it not; *error_p then says why, as errno. */
    ct_status (*open)(void **own_p, int *error_p);
    void (*close)(void *own);
    void (*submit)(void *own, ct_io_request *r); /* nothing of it has moved yet */
    void (*wait)(void *own, ct_io_request *r);
    bool (*done)(void *own, ct_io_request *r); /* whether wait would return at once */
} ct_io_form;

extern const ct_io_form ct_io_threads, ct_io_uring;

/** Moves what is left of a request, here and now, or sets its error. */
void ct_io_move(ct_io_request *r);

#endif
