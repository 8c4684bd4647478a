/** @file decoder.h  Threads that prepare works which take long to read, such as pictures, so that
 * neither the thread of HTTP nor the model waits for them.
 */
#ifndef CT_DECODER_H
#define CT_DECODER_H

#include <stdbool.h>
#include <stddef.h>

#include "framework/base/status.h"

typedef struct ct_decoder ct_decoder;

/** One that waits in the queue; who adds it keeps it until `run`. */
typedef struct ct_decoder_job {
    void (*run)(void *ctx); /* from one of the threads; the job may go in it */
    void *ctx;
    size_t bytes; /* that it holds */
    struct ct_decoder_job *next;
} ct_decoder_job;

/** As many threads as a quarter of the machine's processors, 2 to 8. */
ct_status ct_decoder_create(ct_decoder **d_p);
/** Ends the threads; no job may be left. NULL allowed. */
void ct_decoder_destroy(ct_decoder *d);
/** False: those that wait hold too many bytes, and it is not added. In their order. */
bool ct_decoder_add(ct_decoder *d, ct_decoder_job *job);

#endif
