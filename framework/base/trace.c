#include "framework/base/trace.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ROW = 64 /* of the exchange; more buckets at a time share the last */ };
enum { DEVICE_ROW = MAX_ROW + 1, COPY_ROW /* up; down is the next */ };

static const struct {
    const char *name, *category;
    const char *detail; /* what a span's detail is */
} kind_table[] = {
    [CT_TRACE_ITERATION] = { "iteration", "iteration", NULL },
    [CT_TRACE_FORWARD] = { "forward", "forward", "type" },
    [CT_TRACE_BACKWARD] = { "backward", "backward", "type" },
    [CT_TRACE_WAIT] = { "wait for gradients", "wait", "parameter" },
    [CT_TRACE_SUM_BEGIN] = { "begin sum", "sum", "type" },
    [CT_TRACE_SUM_WAIT] = { "wait for sum", "wait", "type" },
    [CT_TRACE_DATA] = { "wait for data", "data", NULL },
    [CT_TRACE_MOVE] = { "move messages", "move", NULL },
    [CT_TRACE_UPDATE] = { "update", "update", "parameter" },
    [CT_TRACE_AGREE] = { "agree", "wait", NULL },
    [CT_TRACE_DISPLAY] = { "display", "report", NULL },
    [CT_TRACE_TEST] = { "test", "report", NULL },
    [CT_TRACE_SNAPSHOT] = { "snapshot", "report", NULL },
    [CT_TRACE_CHECKSUM] = { "checksum", "report", NULL },
    [CT_TRACE_DEVICE] = { "device", "device", "type" },
    [CT_TRACE_COPY] = { "copy", "copy", NULL },
    [CT_TRACE_BUCKET] = { "bucket", "bucket", "algorithm" },
    [CT_TRACE_ENCODE] = { "encode", "codec", NULL },
    [CT_TRACE_DECODE] = { "decode", "codec", NULL },
};

ct_status ct_trace_create(int64_t first, int64_t last, bool relative, ct_trace **trace_p)
{
    ct_trace *t = calloc(1, sizeof(*t));

    if (t == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a trace");
    t->first = first;
    t->last = last;
    t->relative = relative;
    *trace_p = t;
    return CT_OK;
}

ct_status ct_trace_reserve(ct_trace *t, int64_t capacity)
{
    t->span = malloc(sizeof(*t->span) * (size_t)(capacity + 1));
    if (t->span == NULL)
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a trace of %" PRId64 " spans", capacity);
    /* its pages are there before the window begins */
    memset(t->span, 0, sizeof(*t->span) * (size_t)(capacity + 1));
    t->capacity = capacity;
    return CT_OK;
}

void ct_trace_destroy(ct_trace *t)
{
    if (t == NULL) return;
    free(t->span);
    free(t);
}

void ct_trace_begin(ct_trace *t, int64_t i)
{
    if (t == NULL) return;
    if (t->relative) {
        t->first += i;
        t->last += i;
        t->relative = false;
    }
    atomic_store_explicit(&t->iteration, i, memory_order_relaxed);
    atomic_store_explicit(&t->on, (i >= t->first) && (i <= t->last), memory_order_relaxed);
}

void ct_trace_stop(ct_trace *t)
{
    if (t != NULL) atomic_store_explicit(&t->on, 0, memory_order_relaxed);
}

void ct_trace_add(ct_trace *t, const ct_trace_span *span)
{
    int64_t at = atomic_fetch_add_explicit(&t->n, 1, memory_order_relaxed);

    if (at < t->capacity) t->span[at] = *span;
}

void ct_trace_end(ct_trace *t, double start, ct_trace_kind kind, const char *name,
                  const char *detail)
{
    ct_trace_span span = { .kind = kind, .name = name, .detail = detail, .start_s = start };

    if (start == 0) return;
    span.end_s = ct_clock_s();
    span.iteration = atomic_load_explicit(&t->iteration, memory_order_relaxed);
    ct_trace_add(t, &span);
}

int64_t ct_trace_count(const ct_trace *t, int64_t *lost_p)
{
    int64_t n = atomic_load(&t->n), kept = (n < t->capacity) ? n : t->capacity;

    if (lost_p != NULL) *lost_p = n - kept;
    return kept;
}

/* ---- writing */

/* By start; what contains another stands before it. */
static int compare(const void *a, const void *b)
{
    const ct_trace_span *x = a, *y = b;

    if (x->start_s != y->start_s) return (x->start_s > y->start_s) ? 1 : -1;
    if (x->end_s != y->end_s) return (x->end_s < y->end_s) ? 1 : -1;
    return (int)x->kind - (int)y->kind;
}

/* What a row of the exchange shows at the moment. */
typedef struct row {
    double until_s;
    int bucket;
} row;

/* A bucket takes the first row that is free; its encode and decode go along. Rows count from 1; row
 * 0 is the main thread's. */
static int row_of(const ct_trace_span *s, row *rows, int *n_row)
{
    int r = 0;

    if (s->kind == CT_TRACE_DEVICE) return DEVICE_ROW;
    if (s->kind == CT_TRACE_COPY) return COPY_ROW + s->number;
    if (s->kind < CT_TRACE_BUCKET) return 0;
    if (s->kind != CT_TRACE_BUCKET) {
        for (r = *n_row - 1; r >= 0; --r) {
            if ((rows[r].bucket == s->number) && (s->start_s <= rows[r].until_s)) return r + 1;
        }
        return 1;
    }
    while ((r < *n_row) && (rows[r].until_s > s->start_s)) r += 1;
    if (r == MAX_ROW) r -= 1;
    if (r == *n_row) *n_row += 1;
    rows[r] = (row){ s->end_s, s->number };
    return r + 1;
}

/* Nanoseconds, so that what is written nests as exactly as what was measured. */
static int64_t to_ns(const ct_trace_clock *c, double zero_s, double at_s)
{
    double span = c->at_s[1] - c->at_s[0], offset = c->offset_s[0];

    if (span > 0) offset += (c->offset_s[1] - c->offset_s[0]) * (at_s - c->at_s[0]) / span;
    return llround(1e9 * (at_s - offset - zero_s));
}

/* Its arguments, itself, and the comma before the next event: the last one is the file's. */
static void end_event(ct_json_writer *w)
{
    ct_json_end(w);
    ct_json_end(w);
    ct_text_add_bytes(w->to, ",\n", 2);
}

static void add_span(const ct_trace_span *s, int rank, int r, int64_t start, int64_t end,
                     ct_text *out)
{
    ct_json_writer w = ct_json_into(out);

    ct_json_begin_object(&w, NULL);
    ct_json_add_text(&w, "ph", "X");
    ct_json_add_integer(&w, "pid", rank);
    ct_json_add_integer(&w, "tid", r);
    ct_json_add_decimals(&w, "ts", 1e-3 * (double)start, 3);
    ct_json_add_decimals(&w, "dur", 1e-3 * (double)(end - start), 3);
    ct_json_add_text(&w, "cat", kind_table[s->kind].category);
    ct_json_add_text(&w, "name", (s->name != NULL) ? s->name : kind_table[s->kind].name);
    ct_json_begin_object(&w, "args");
    ct_json_add_text(&w, "kind", kind_table[s->kind].name);
    ct_json_add_integer(&w, "iteration", s->iteration);
    if (s->kind >= CT_TRACE_BUCKET) ct_json_add_integer(&w, "bucket", s->number);
    if ((s->kind == CT_TRACE_BUCKET) || (s->kind == CT_TRACE_COPY) || (s->bytes > 0))
        ct_json_add_integer(&w, "bytes", s->bytes);
    if ((s->detail != NULL) && (kind_table[s->kind].detail != NULL))
        ct_json_add_text(&w, kind_table[s->kind].detail, s->detail);
    end_event(&w);
}

void ct_trace_add_meta(ct_json_writer *w, const char *what, int rank, int r)
{
    ct_json_begin_object(w, NULL);
    ct_json_add_text(w, "ph", "M");
    ct_json_add_text(w, "name", what);
    ct_json_add_integer(w, "pid", rank);
    ct_json_add_integer(w, "tid", r);
    ct_json_begin_object(w, "args");
}

static void add_name(ct_text *out, const char *what, int rank, int r, const char *name)
{
    ct_json_writer w = ct_json_into(out);

    ct_trace_add_meta(&w, what, rank, r);
    ct_json_add_text(&w, "name", name);
    end_event(&w);
}

static void add_order(ct_text *out, int rank)
{
    ct_json_writer w = ct_json_into(out);

    ct_trace_add_meta(&w, "process_sort_index", rank, 0);
    ct_json_add_integer(&w, "sort_index", rank);
    end_event(&w);
}

static void add_clock(ct_text *out, int rank, const ct_trace_clock *clock, int64_t n, int64_t lost)
{
    ct_json_writer w = ct_json_into(out);

    ct_trace_add_meta(&w, "clock", rank, 0);
    ct_json_add_decimals(&w, "offset_us", 1e6 * clock->offset_s[1], 3);
    ct_json_add_decimals(&w, "error_us", 1e6 * clock->error_s, 3);
    ct_json_add_integer(&w, "spans", n);
    ct_json_add_integer(&w, "lost", lost);
    end_event(&w);
}

ct_status ct_trace_write(ct_trace *t, int rank, const char *host, const ct_trace_clock *clock,
                         double zero_s, ct_text *out)
{
    int64_t lost = 0, n = ct_trace_count(t, &lost);
    row rows[MAX_ROW] = { { 0, -1 } };
    int n_row = 0;
    bool device = false, copies[2] = { false, false };
    char name[128];

    if (n > 0) qsort(t->span, (size_t)n, sizeof(*t->span), compare);
    snprintf(name, sizeof(name), "rank %d on %s", rank, host);
    add_name(out, "process_name", rank, 0, name);
    add_order(out, rank);
    add_name(out, "thread_name", rank, 0, "steps");
    add_clock(out, rank, clock, n, lost);
    for (int64_t i = 0; i < n; ++i) {
        const ct_trace_span *s = &t->span[i];

        device |= (s->kind == CT_TRACE_DEVICE);
        if (s->kind == CT_TRACE_COPY) copies[s->number] = true;
        add_span(s, rank, row_of(s, rows, &n_row), to_ns(clock, zero_s, s->start_s),
                 to_ns(clock, zero_s, s->end_s), out);
    }
    for (int r = 1; r <= n_row; ++r) {
        snprintf(name, sizeof(name), "gradients %d", r);
        add_name(out, "thread_name", rank, r, name);
    }
    if (device) add_name(out, "thread_name", rank, DEVICE_ROW, "device");
    if (copies[0]) add_name(out, "thread_name", rank, COPY_ROW, "copies up");
    if (copies[1]) add_name(out, "thread_name", rank, COPY_ROW + 1, "copies down");
    return out->failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for the text of a trace") : CT_OK;
}
