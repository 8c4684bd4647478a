#include "cli/report/trace_data.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/json.h"
#include "framework/base/log.h"

/* Kinds of spans, as trace.c names them; what is not here is of CT_TRACED_OTHER. */
static const struct {
    const char *kind;
    ct_traced_part part;
} parts[] = { { "forward", CT_TRACED_COMPUTE },
              { "backward", CT_TRACED_COMPUTE },
              { "update", CT_TRACED_COMPUTE },
              { "wait for data", CT_TRACED_DATA },
              { "wait for gradients", CT_TRACED_EXPOSED },
              { "begin sum", CT_TRACED_EXPOSED },
              { "wait for sum", CT_TRACED_EXPOSED },
              { "agree", CT_TRACED_EXPOSED },
              { "move messages", CT_TRACED_MOVE } };

typedef enum { ITERATION, INSIDE, BUCKET } span_kind;

typedef struct span {
    int64_t rank;
    span_kind kind;
    ct_traced_part part;
    double start, end; /* us */
} span;

/* Moments of a main thread, one behind the other. */
typedef struct piece {
    ct_traced_part part;
    double start, end;
} piece;

/* ---- reading */

/* false: it is none that counts. */
static bool read_span(const json_t *e, span *s)
{
    const char *kind = ct_json_text(e, "args.kind", NULL);
    double rank = ct_json_number(e, "pid", -1), row = ct_json_number(e, "tid", -1);
    double duration = ct_json_number(e, "dur", -1);

    s->start = ct_json_number(e, "ts", NAN);
    if ((kind == NULL) || (strcmp(ct_json_text(e, "ph", ""), "X") != 0)) return false;
    if (!isfinite(s->start) || !(duration >= 0) || !(rank >= 0) || !(rank < 1e9)) return false;
    s->end = s->start + duration;
    s->rank = (int64_t)rank;
    s->kind = (strcmp(kind, "bucket") == 0)      ? BUCKET
              : (strcmp(kind, "iteration") == 0) ? ITERATION
                                                 : INSIDE;
    if ((s->kind != BUCKET) && (row != 0)) return false;
    s->part = CT_TRACED_OTHER;
    for (size_t k = 0; k < sizeof(parts) / sizeof(parts[0]); k++)
        if (strcmp(kind, parts[k].kind) == 0) s->part = parts[k].part;
    return true;
}

/* By rank; buckets behind the rest; by start, what contains another before it. */
static int compare(const void *a, const void *b)
{
    const span *x = a, *y = b;

    if (x->rank != y->rank) return (x->rank > y->rank) ? 1 : -1;
    if ((x->kind == BUCKET) != (y->kind == BUCKET)) return (x->kind == BUCKET) ? 1 : -1;
    if (x->start != y->start) return (x->start > y->start) ? 1 : -1;
    if (x->end != y->end) return (x->end < y->end) ? 1 : -1;
    return (int)x->kind - (int)y->kind;
}

static ct_status read_spans(const json_t *events, span **span_p, int64_t *n_p)
{
    span *list = calloc(json_array_size(events) + 1, sizeof(*list));
    const json_t *e;
    size_t i;

    *span_p = list;
    *n_p = 0;
    if (list == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a trace");
    json_array_foreach(events, i, e) *n_p += read_span(e, &list[*n_p]);
    qsort(list, (size_t)*n_p, sizeof(*list), compare);
    return CT_OK;
}

/* ---- a rank */

static void add_piece(piece *list, int64_t *n, ct_traced_part part, double start, double end)
{
    if (end > start) list[(*n)++] = (piece){ part, start, end };
}

/* The main thread's spans nest: cuts them into pieces, at most 2 n, inside iterations alone. open:
 * room for n. Returns how many there are. */
static int64_t cut(const span *s, int64_t n, const span **open, piece *list)
{
    int64_t n_open = 0, n_piece = 0;
    double at = 0;

    for (int64_t i = 0; i <= n; i++) {
        while ((n_open > 0) && ((i == n) || (open[n_open - 1]->end <= s[i].start))) {
            n_open--;
            add_piece(list, &n_piece, open[n_open]->part, at, open[n_open]->end);
            if (open[n_open]->end > at) at = open[n_open]->end;
        }
        if (i == n) break;
        if ((n_open == 0) && (s[i].kind != ITERATION)) continue;
        if (n_open > 0) add_piece(list, &n_piece, open[n_open - 1]->part, at, s[i].start);
        if ((n_open == 0) || (s[i].start > at)) at = s[i].start;
        open[n_open++] = &s[i];
    }
    return n_piece;
}

/* Adds what of [start, end) lies in pieces. *k: the first that may reach it. */
static void count_bucket(ct_traced_rank *r, const piece *list, int64_t n, int64_t *k, double start,
                         double end)
{
    while ((*k < n) && (list[*k].end <= start)) ++*k;
    for (int64_t i = *k; (i < n) && (list[i].start < end); i++) {
        double both = fmin(end, list[i].end) - fmax(start, list[i].start);

        r->under_way_ms += 1e-3 * both;
        if (list[i].part != CT_TRACED_EXPOSED) r->hidden_ms += 1e-3 * both;
    }
}

/* Buckets overlap: each adds what none before it had. */
static void count_buckets(ct_traced_rank *r, const span *bucket, int64_t n, const piece *list,
                          int64_t n_piece)
{
    double until = -INFINITY;
    int64_t k = 0;

    for (int64_t i = 0; i < n; i++) {
        double start = fmax(bucket[i].start, until);

        if (bucket[i].end <= start) continue;
        count_bucket(r, list, n_piece, &k, start, bucket[i].end);
        until = bucket[i].end;
    }
}

/* The n spans of a rank, as compare() has them. */
static ct_status sum_rank(const span *s, int64_t n, ct_traced_rank *r)
{
    const span **open = calloc((size_t)n + 1, sizeof(*open));
    piece *list = calloc(2 * (size_t)n + 2, sizeof(*list));
    int64_t n_main = 0, n_piece;

    *r = (ct_traced_rank){ .rank = s[0].rank };
    if ((open == NULL) || (list == NULL)) {
        free(open);
        free(list);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a trace");
    }
    while ((n_main < n) && (s[n_main].kind != BUCKET)) r->steps += (s[n_main++].kind == ITERATION);
    n_piece = cut(s, n_main, open, list);
    for (int64_t i = 0; i < n_piece; i++)
        r->ms[list[i].part] += 1e-3 * (list[i].end - list[i].start);
    count_buckets(r, s + n_main, n - n_main, list, n_piece);
    free(open);
    free(list);
    if (r->steps == 0) return CT_OK;
    for (int k = 0; k < CT_TRACED_N; k++) {
        r->ms[k] /= (double)r->steps;
        r->step_ms += r->ms[k];
    }
    r->under_way_ms /= (double)r->steps;
    r->hidden_ms /= (double)r->steps;
    return CT_OK;
}

/* ---- all of them */

static ct_status sum_ranks(const span *s, int64_t n, ct_traced *t)
{
    int64_t ranks = 0;

    for (int64_t i = 0; i < n; i++) ranks += (i == 0) || (s[i].rank != s[i - 1].rank);
    t->rank = calloc((size_t)ranks + 1, sizeof(t->rank[0]));
    if (t->rank == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a trace");
    for (int64_t i = 0, end; i < n; i = end) {
        for (end = i + 1; (end < n) && (s[end].rank == s[i].rank);) end++;
        CT_TRY(sum_rank(s + i, end - i, &t->rank[t->n]));
        t->n += (t->rank[t->n].steps > 0);
    }
    return CT_OK;
}

ct_status ct_traced_read(const char *file, ct_traced *t)
{
    json_t *json = NULL, *events;
    span *s = NULL;
    int64_t n = 0;
    ct_status status;

    *t = (ct_traced){ .n = 0 };
    CT_TRY(ct_json_read(file, &json));
    events = json_object_get(json, "traceEvents");
    if (json_is_array(json) && (json_array_size(json) == 0)) { /* no end of the run was written */
        json_decref(json);
        return CT_OK;
    }
    status = json_is_array(events)
                 ? read_spans(events, &s, &n)
                 : CT_FAIL(CT_ERR_DATA,
                           "%s: no member \"traceEvents\"; expected what cortado train --trace "
                           "writes",
                           file);
    if (status == CT_OK) status = sum_ranks(s, n, t);
    snprintf(t->iterations, sizeof(t->iterations), "%s",
             ct_json_text(json, "otherData.iterations", "?"));
    free(s);
    json_decref(json);
    if (status != CT_OK) ct_traced_destroy(t);
    return status;
}

void ct_traced_destroy(ct_traced *t)
{
    free(t->rank);
    *t = (ct_traced){ .n = 0 };
}
