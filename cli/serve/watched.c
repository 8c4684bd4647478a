#include "cli/serve/watched.h"

#include <omp.h>
#include <stdio.h>

/* OpenMP keeps the number of threads a thread of ours, and which one runs a batch is not known. */
static void begin(const ct_watched *w, const char *what, int n)
{
    char text[64];

    omp_set_num_threads(w->n_thread);
    (void)snprintf(text, sizeof(text), "%s of %d requests", what, n);
    ct_watchdog_beat(w->watchdog, text);
    ct_watchdog_limit(w->watchdog, w->limit_s);
}

static ct_status end(const ct_watched *w, ct_status status)
{
    ct_watchdog_limit(w->watchdog, 0);
    ct_watchdog_beat(w->watchdog, "the wait for requests");
    return status;
}

static ct_status encode(void *ctx, const char *text, size_t n, ct_ids *ids)
{
    const ct_watched *w = ctx;

    return w->of->encode(w->of->ctx, text, n, ids);
}

static ct_status decode(void *ctx, const char *file, size_t n, float *to, char *why, size_t size)
{
    const ct_watched *w = ctx;

    return w->of->decode(w->of->ctx, file, n, to, why, size);
}

static ct_status embed(void *ctx, ct_work *const *work, int n)
{
    const ct_watched *w = ctx;

    begin(w, "embeddings", n);
    return end(w, w->of->embed(w->of->ctx, work, n));
}

static ct_status infer(void *ctx, ct_work *const *work, int n)
{
    const ct_watched *w = ctx;

    begin(w, "a pass", n);
    return end(w, w->of->infer(w->of->ctx, work, n));
}

static ct_status open_sequence(void *ctx, const int32_t *id, int64_t n, int64_t capacity,
                               void **sequence_p, int64_t *kept_p)
{
    const ct_watched *w = ctx;

    return w->of->open(w->of->ctx, id, n, capacity, sequence_p, kept_p);
}

static ct_status place_sequence(void *ctx, const ct_sequence_place *place, void **sequence_p)
{
    const ct_watched *w = ctx;

    return w->of->place(w->of->ctx, place, sequence_p);
}

static void close_sequence(void *ctx, void *sequence)
{
    const ct_watched *w = ctx;

    w->of->close(w->of->ctx, sequence);
}

static int64_t peek(void *ctx, const int32_t *id, int64_t n)
{
    const ct_watched *w = ctx;

    return w->of->peek(w->of->ctx, id, n);
}

static ct_status grow(void *ctx, ct_work_piece *piece, int n)
{
    const ct_watched *w = ctx;

    begin(w, "texts that go on", n);
    return end(w, w->of->grow(w->of->ctx, piece, n));
}

void ct_watched_init(ct_watched *w, const ct_served_model *of, const ct_job *job, double limit_s)
{
    *w = (ct_watched){ .model = *of,
                       .of = of,
                       .watchdog = job->watchdog,
                       .limit_s = limit_s,
                       .n_thread = job->threads.n };
    w->model.ctx = w;
    if (of->encode != NULL) w->model.encode = encode;
    if (of->decode != NULL) w->model.decode = decode;
    w->model.embed = embed;
    w->model.infer = infer;
    w->model.open = open_sequence;
    w->model.close = close_sequence;
    w->model.peek = peek;
    w->model.place = place_sequence;
    w->model.grow = grow;
}
