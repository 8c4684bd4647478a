/** @file async_io.h  Reads and writes of files that go on beside the caller.
 *
 * A request is the caller's memory and stays where it is until it was waited for. Requests that
 * touch the same bytes of a file are not under way together; who makes them waits first. One thread
 * at a time submits and waits.
 */
#ifndef CT_ASYNC_IO_H
#define CT_ASYNC_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "framework/base/status.h"

typedef struct ct_io_request {
    int fd;
    bool write;
    void *data;
    int64_t at; /* byte of the file */
    size_t bytes;
    /* set while it is under way */
    int error;    /* errno of what failed; 0: all bytes have moved; -1: the file ended before */
    size_t moved; /* bytes */
    bool done;
    struct ct_io_request *next;
} ct_io_request;

typedef struct ct_io ct_io;

/** By io_uring where the kernel has it, else by threads; then it says so. CT_ERR_NOMEM. */
ct_status ct_io_open(ct_io **io_p);
/** By one form: "io_uring" or "threads". CT_UNSUPPORTED where that is not to be had. */
ct_status ct_io_open_as(const char *form, ct_io **io_p);
/** NULL allowed; when nothing is under way. */
void ct_io_close(ct_io *io);
/** Its form. */
const char *ct_io_name(const ct_io *io);
/** Begins one. Short transfers and interrupted calls are gone on with. */
void ct_io_submit(ct_io *io, ct_io_request *r);
/** Whether it is done. Never blocks. */
bool ct_io_done(ct_io *io, ct_io_request *r);
/** Returns when it is done; what became of it is in r->error. */
void ct_io_wait(ct_io *io, ct_io_request *r);

#endif
