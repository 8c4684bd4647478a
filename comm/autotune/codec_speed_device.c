#include "comm/autotune/codec_speed.h"

#include <math.h>
#include <string.h>

#include "comm/codec/codec_kernels.h"
#include "comm/codec/sign.h"
#include "comm/collective/blocking.h"
#include "framework/base/clock.h"

/* As many elements as take a millisecond to update, so that launches do not count; fewer where a
 * device is slow. */
enum { LEAST = 1 << 16, MOST = 1 << 22, ROWS = 1024, COLUMNS = 2, RUNS = 3 };
enum { PER_SELECTED = 1024, PER_ENTRY = 32 /* elements, as in codec_speed.c */ };

static const double enough_s = 1e-3;

typedef enum { COPY, UPDATE, SELECT, ADD, SIGN, UNSIGN, FACTORS, DOWN, UP, FIGURES } figure;

typedef struct bench {
    ct_comm *c;
    const ct_device *dev;
    const ct_codec_kernels *codec;
    ct_stream st;
    int64_t n;
    float *grad, *u, *v, *sum; /* [MOST] */
    char *payload;             /* signs, and factors with their scratch */
    float *host;               /* [MOST] */
    ct_codec_coder *few, *many;
    double best[FIGURES];
} bench;

static ct_status floats(const bench *b, size_t count, float **at)
{
    void *data = NULL;

    CT_TRY(b->dev->mem_acquire(sizeof(float) * count, &data));
    *at = data;
    return CT_OK;
}

/* Numbers of which few are large. */
static void fill(float *v, int64_t n)
{
    uint32_t x = 12345;

    for (int64_t i = 0; i < n; ++i) {
        float f = 0;

        x = x * 1664525u + 1013904223u;
        f = (float)(x >> 8) * 0x1p-23f - 1;
        v[i] = f * f * f;
    }
}

static ct_status prepare(bench *b)
{
    float *payload = NULL;
    void *host = NULL;

    CT_TRY(b->codec->stream(&b->c->n_thread, &b->st));
    CT_TRY(floats(b, MOST, &b->grad));
    CT_TRY(floats(b, MOST, &b->u));
    CT_TRY(floats(b, MOST, &b->v));
    CT_TRY(floats(b, MOST, &b->sum));
    CT_TRY(floats(b, MOST, &payload));
    b->payload = (void *)payload;
    CT_TRY(b->dev->host_acquire(sizeof(float) * MOST, &host));
    b->host = host;
    fill(b->host, MOST);
    return CT_OK;
}

static void release(bench *b)
{
    (void)b->dev->sync(b->st);
    b->codec->destroy(b->few);
    b->codec->destroy(b->many);
    b->dev->mem_release(b->grad);
    b->dev->mem_release(b->u);
    b->dev->mem_release(b->v);
    b->dev->mem_release(b->sum);
    b->dev->mem_release(b->payload);
    if (b->host != NULL) b->dev->host_release(b->host);
}

static ct_momentum_correction accum(const bench *b)
{
    return (ct_momentum_correction){ .grad = b->grad,
                                     .u = b->u,
                                     .v = b->v,
                                     .n = b->n,
                                     .scale = 1,
                                     .rate = 0.01f,
                                     .momentum = 0.9f,
                                     .carry = 1,
                                     .mask_momentum = true };
}

/* ---- one figure */

static ct_status factors(const bench *b, const ct_momentum_correction *a)
{
    ct_low_rank s = { .rows = ROWS, .cols = b->n / ROWS, .r = COLUMNS };
    float *p = (void *)b->payload, *q = p + COLUMNS * s.rows, *scratch = q + COLUMNS * s.cols;

    CT_TRY(b->codec->left(b->few, b->st, &s, a, q, p));
    CT_TRY(b->codec->right(b->st, &s, b->v, p, scratch, q));
    CT_TRY(b->codec->product(b->st, &s, p, q, true, b->sum));
    return b->codec->product(b->st, &s, p, q, false, b->sum);
}

static ct_status work(bench *b, figure what)
{
    ct_momentum_correction a = accum(b);
    const void *payload = NULL;
    size_t bytes = 0;

    switch (what) {
    case COPY:
        return b->dev->copy(b->st, b->sum, b->grad, sizeof(float) * (size_t)b->n);
    case UPDATE:
        return b->codec->update(b->few, b->st, &a);
    case SELECT:
        return b->codec->select(b->few, b->st, &a, 0);
    case ADD:
        payload = b->codec->payload(b->many);
        bytes = ct_payload_bytes(CT_PAYLOAD_PAIRS, b->n, b->n / PER_ENTRY);
        return b->codec->add(b->many, b->st, &payload, &bytes, 1, b->sum);
    case SIGN:
        return b->codec->sign(b->few, b->st, &a, 1, -1, b->payload);
    case UNSIGN:
        return b->codec->sign_add(b->few, b->st, b->payload, 0, 1, true, b->sum, b->n);
    default:
        return factors(b, &a);
    }
}

static ct_status time_work(bench *b, figure what)
{
    double s = 0;

    CT_TRY(b->dev->marks->mark(b->st, 0));
    CT_TRY(work(b, what));
    CT_TRY(b->dev->marks->mark(b->st, 1));
    CT_TRY(b->dev->marks->between(0, 1, &s));
    b->best[what] = fmin(b->best[what], s);
    return CT_OK;
}

static ct_status time_bus(bench *b)
{
    size_t bytes = sizeof(float) * (size_t)b->n;
    void *ticket = NULL;
    bool done = false;
    double start = 0;

    CT_TRY(ct_comm_barrier(b->c)); /* ranks may share a bus */
    start = ct_clock_s();
    CT_TRY(b->dev->copy_begin(b->st, b->host, b->grad, bytes, true, &ticket));
    CT_TRY(b->dev->copy_done(ticket, true, &done));
    b->best[DOWN] = fmin(b->best[DOWN], ct_clock_s() - start);
    start = ct_clock_s();
    CT_TRY(b->dev->copy_begin(b->st, b->host, b->sum, bytes, false, &ticket));
    CT_TRY(b->dev->sync(b->st));
    b->best[UP] = fmin(b->best[UP], ct_clock_s() - start);
    return CT_OK;
}

/* ---- all of them */

static ct_status make_coder(const bench *b, int64_t k, ct_codec_coder **c)
{
    ct_coder_setup s = { .kind = CT_SELECT_EXACT, .n = b->n, .k = k, .form = CT_PAYLOAD_PAIRS };

    return b->codec->create(&s, c);
}

/* Ranks may have devices of different speeds: all take the least. */
static ct_status choose_size(bench *b)
{
    int64_t fewer = 0;

    b->n = LEAST;
    CT_TRY(make_coder(b, 1, &b->few));
    for (;;) {
        for (int i = 0; i < RUNS; ++i) CT_TRY(time_work(b, UPDATE));
        if ((b->best[UPDATE] > enough_s) || (b->n == MOST)) break;
        b->n *= 4;
        b->best[UPDATE] = INFINITY;
    }
    b->codec->destroy(b->few);
    b->few = NULL;
    fewer = -b->n;
    CT_TRY(ct_comm_max(b->c, &fewer, 1));
    b->n = -fewer;
    b->best[UPDATE] = INFINITY;
    return CT_OK;
}

static ct_status measure(bench *b)
{
    ct_momentum_correction a;

    CT_TRY(b->dev->from_host(b->st, b->grad, b->host, sizeof(float) * (size_t)b->n));
    CT_TRY(make_coder(b, b->n / PER_SELECTED, &b->few));
    CT_TRY(make_coder(b, b->n / PER_ENTRY, &b->many));
    a = accum(b);
    CT_TRY(b->codec->select(b->many, b->st, &a, 0));
    for (int i = 0; i < RUNS; ++i) {
        for (int f = COPY; f <= FACTORS; ++f) CT_TRY(time_work(b, (figure)f));
        CT_TRY(time_bus(b));
    }
    return CT_OK;
}

/* Seconds of a unit, on the slowest rank. */
static ct_status agree(const bench *b, double *seconds)
{
    const double femto = 1e-15;
    double n = (double)b->n;
    const double units[FIGURES] = { [COPY] = 8 * n,          [UPDATE] = n,   [SELECT] = n,
                                    [ADD] = n / PER_ENTRY,   [SIGN] = n,     [UNSIGN] = n,
                                    [FACTORS] = COLUMNS * n, [DOWN] = 4 * n, [UP] = 4 * n };
    int64_t fs[FIGURES] = { 0 };

    for (int f = 0; f < FIGURES; ++f) fs[f] = 1 + (int64_t)(b->best[f] / units[f] / femto);
    CT_TRY(ct_comm_max(b->c, fs, FIGURES));
    for (int f = 0; f < FIGURES; ++f) seconds[f] = femto * (double)fs[f];
    return CT_OK;
}

static ct_status run(bench *b, double *seconds)
{
    CT_TRY(prepare(b));
    CT_TRY(choose_size(b));
    CT_TRY(measure(b));
    return agree(b, seconds);
}

ct_status ct_codec_speed_on_device(ct_comm *c, const ct_device *dev, ct_codec_speed *speed_p,
                                   ct_codec_bus *bus_p)
{
    bench b = { .c = c, .dev = dev, .codec = ct_codec_kernels_find(dev->kind) };
    double s[FIGURES] = { 0 }, start = ct_clock_s();
    ct_status status = CT_OK;

    for (int f = 0; f < FIGURES; ++f) b.best[f] = INFINITY;
    status = run(&b, s);
    release(&b);
    CT_TRY(status);
    speed_p->memory = 1 / s[COPY];
    speed_p->update_s = s[UPDATE];
    speed_p->select_s = fmax(0, s[SELECT] - s[UPDATE]);
    speed_p->pack_s = 0; /* goes with the selection */
    speed_p->add_s = s[ADD];
    speed_p->sign_s = fmax(0, s[SIGN] - s[UPDATE]);
    speed_p->unsign_s = s[UNSIGN];
    speed_p->factor_s = 0;
    speed_p->column_s = fmax(0, s[FACTORS] - s[UPDATE] / COLUMNS);
    *bus_p = (ct_codec_bus){ .there = true, .down_s = s[DOWN], .up_s = s[UP] };
    CT_INFO("codecs on device %s: copies %.3g GB/s, update %.3g ns an element and selection %.3g "
            "more; an entry %.3g ns to add; signs %.3g ns, a column of factors %.3g; to the host "
            "%.3g GB/s, back %.3g (measured in %.0f ms)",
            dev->name, 1e-9 * speed_p->memory, 1e9 * s[UPDATE], 1e9 * speed_p->select_s,
            1e9 * s[ADD], 1e9 * speed_p->sign_s, 1e9 * s[FACTORS], 1e-9 / s[DOWN], 1e-9 / s[UP],
            1e3 * (ct_clock_s() - start));
    return CT_OK;
}
