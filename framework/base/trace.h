/** @file trace.h  What ran when: a fixed buffer of spans, written once as Chrome trace JSON.
 *
 * The buffer is made at the start and nothing is allocated or written while it fills; a NULL trace
 * records nothing and costs a comparison. Spans are recorded inside a window of iterations, from
 * any thread. The caller puts the ranks' texts together (runtime/call.h).
 *
 *     double start = ct_trace_start(t);
 *     …
 *     if (start > 0) ct_trace_add(t, &(ct_trace_span){ .kind = CT_TRACE_UPDATE, .start_s = start, …
 * });
 */
#ifndef CT_TRACE_H
#define CT_TRACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "framework/base/clock.h"
#include "framework/base/json_writer.h"
#include "framework/base/status.h"
#include "framework/base/text.h"

typedef enum {
    /* of the main thread: they nest */
    CT_TRACE_ITERATION,
    CT_TRACE_FORWARD,   /* a layer's */
    CT_TRACE_BACKWARD,  /* a layer's */
    CT_TRACE_WAIT,      /* for the sum of a gradient: of the forward, or of the end of a step */
    CT_TRACE_SUM_BEGIN, /* a layer's sum over the ranks */
    CT_TRACE_SUM_WAIT,  /* … which was begun before     */
    CT_TRACE_DATA,      /* a data layer waited for its batch */
    CT_TRACE_MOVE,      /* between layers: messages, additions, codecs */
    CT_TRACE_UPDATE,
    CT_TRACE_AGREE, /* the ranks met at a step's end */
    CT_TRACE_DISPLAY,
    CT_TRACE_TEST,
    CT_TRACE_SNAPSHOT,
    CT_TRACE_CHECKSUM,
    CT_TRACE_DEVICE, /* what a device computed: a layer; it has a row of its own */
    CT_TRACE_COPY,   /* between host and device, beside that: a row each way; number: 1 down */
    /* of the exchange: they overlap each other, and get rows of their own */
    CT_TRACE_BUCKET, /* from leaving to landing               */
    CT_TRACE_ENCODE, /* inside the bucket of the same number  */
    CT_TRACE_DECODE
} ct_trace_kind;

typedef struct ct_trace_span {
    ct_trace_kind kind;
    int number;         /* BUCKET, ENCODE, DECODE: of the bucket             */
    const char *name;   /* layer, parameter …; NULL: what the kind is called */
    const char *detail; /* layer type, algorithm; may be NULL                */
    int64_t bytes;      /* of a bucket, of a copy; of what a layer sums, or sends, whole */
    int64_t iteration;
    double start_s, end_s; /* ct_clock_s()                                   */
} ct_trace_span;           /* name and detail are borrowed until the trace is written */

typedef struct ct_trace {
    _Atomic int on;
    int64_t first, last; /* iterations of the window                              */
    bool relative;       /* counted from the first that begins, until then        */
    _Atomic int64_t iteration;
    int64_t capacity;
    _Atomic int64_t n; /* spans that were added; those beyond the capacity are lost */
    ct_trace_span *span;
} ct_trace;

/** For iterations first to last; relative: counted from the first that begins. Its room is 0. */
ct_status ct_trace_create(int64_t first, int64_t last, bool relative, ct_trace **trace_p);
/** Room for `capacity` spans; once, before recording. CT_ERR_NOMEM. */
ct_status ct_trace_reserve(ct_trace *t, int64_t capacity);
void ct_trace_destroy(ct_trace *t); /* NULL allowed */
/** Iteration i begins: recording is on inside the window. t may be NULL. */
void ct_trace_begin(ct_trace *t, int64_t i);
/** Recording is off, until another iteration begins. t may be NULL. */
void ct_trace_stop(ct_trace *t);

/** Now where spans are recorded, else 0. t may be NULL. */
static inline double ct_trace_start(const ct_trace *t)
{
    if ((t == NULL) || !atomic_load_explicit(&t->on, memory_order_relaxed)) return 0;
    return ct_clock_s();
}
/** Keeps *span, whether or not recording is still on; counts what finds no room. */
void ct_trace_add(ct_trace *t, const ct_trace_span *span);
/** A span of this iteration, from start to now; nothing where start is 0. */
void ct_trace_end(ct_trace *t, double start, ct_trace_kind kind, const char *name,
                  const char *detail);

/** Of what is recorded now; t is not NULL. */
static inline int64_t ct_trace_iteration(const ct_trace *t)
{
    return atomic_load_explicit(&t->iteration, memory_order_relaxed);
}

/** A rank's clock against that of rank 0 at two moments: mine - rank 0's, interpolated between. */
typedef struct ct_trace_clock {
    double at_s[2], offset_s[2]; /* moments by my clock */
    double error_s;              /* of the offsets, at most */
} ct_trace_clock;

/** Spans that were recorded, and of them lost. */
int64_t ct_trace_count(const ct_trace *t, int64_t *lost_p);
/** Appends the rank's events, with a comma after each: process `rank`, microseconds since zero_s of
 *  rank 0's clock; of the clock, how sure it is. Sorts the spans. CT_ERR_NOMEM. */
ct_status ct_trace_write(ct_trace *t, int rank, const char *host, const ct_trace_clock *clock,
                         double zero_s, ct_text *out);
/** Begins an event "M", what viewers are told of row r of a rank, and its arguments: both open. */
void ct_trace_add_meta(ct_json_writer *w, const char *what, int rank, int r);

#endif
