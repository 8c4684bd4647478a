#include "framework/tensor/storage_ring.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/clock.h"
#include "framework/base/memory.h"

enum {
    USUAL_CHUNK = 1 << 20, /* floats */
    USUAL_AHEAD = 4,
    UNIT = 64, /* floats: whole lines of arenas, which no update divides */
    NOBODY = -1
};

typedef enum {
    EMPTY,
    HERE,   /* as in host memory, or about to be, in the order of the streams that want it */
    DIRTY,  /* changed                                                                   */
    LEAVING /* on its way to `out`, from where the host copies it                        */
} slot_state;

typedef struct slot {
    int64_t chunk; /* NOBODY: none */
    slot_state state;
    int pins;               /* ranges of it that are wanted */
    ct_stream stream;       /* that changed it last */
    float *data;            /* on the device */
    float *in, *out;        /* pinned */
    void *coming, *leaving; /* tickets of copies; NULL: none under way */
} slot;

typedef struct ring {
    ct_storage_rings *rings;
    const ct_device *dev;
    int64_t chunk, n_chunk, now; /* now: the chunk that was wanted last */
    int n_slot;
    slot *s;
    float *home; /* [n_chunk * chunk] */
    void *block, *pinned;
} ring;

static size_t chunk_bytes(const ring *g)
{
    return (size_t)g->chunk * sizeof(float);
}

static slot *slot_of(const ring *g, int64_t chunk)
{
    return &g->s[chunk % g->n_slot];
}

/* ---- transfers */

/* What the ticket is of has ended; it is gone. */
static ct_status end_copy(ring *g, void **ticket)
{
    double start = ct_clock_s();
    bool done;

    if (*ticket == NULL) return CT_OK;
    CT_TRY(g->dev->copy_done(*ticket, true, &done));
    *ticket = NULL;
    g->rings->waited_s += ct_clock_s() - start;
    return CT_OK;
}

/* Work that `st` is given from now on finds the chunk. */
static ct_status bring(ring *g, slot *s, int64_t chunk, ct_stream st)
{
    CT_TRY(end_copy(g, &s->coming)); /* it read `in` */
    s->chunk = NOBODY;
    s->state = EMPTY;
    memcpy(s->in, g->home + chunk * g->chunk, chunk_bytes(g));
    CT_TRY(g->dev->copy_ahead(st, s->in, s->data, chunk_bytes(g), &s->coming));
    g->rings->up += (int64_t)chunk_bytes(g);
    s->chunk = chunk;
    s->state = HERE;
    return CT_OK;
}

static ct_status send_back(ring *g, slot *s)
{
    CT_TRY(g->dev->copy_begin(s->stream, s->out, s->data, chunk_bytes(g), true, &s->leaving));
    g->rings->down += (int64_t)chunk_bytes(g);
    s->state = LEAVING;
    return CT_OK;
}

/* Waits for what leaves the slot. */
static ct_status land(ring *g, slot *s)
{
    if (s->state == DIRTY) CT_TRY(send_back(g, s));
    if (s->state != LEAVING) return CT_OK;
    CT_TRY(end_copy(g, &s->leaving));
    memcpy(g->home + s->chunk * g->chunk, s->out, chunk_bytes(g));
    s->state = HERE;
    return CT_OK;
}

/* The same of what has arrived by now. */
static ct_status land_done(ring *g)
{
    for (int i = 0; i < g->n_slot; i++) {
        slot *s = &g->s[i];
        bool done = false;

        if (s->state != LEAVING) continue;
        CT_TRY(g->dev->copy_done(s->leaving, false, &done));
        if (!done) continue;
        s->leaving = NULL;
        CT_TRY(land(g, s));
    }
    return CT_OK;
}

/* What was changed and is not wanted leaves. */
static ct_status write_behind(ring *g)
{
    for (int i = 0; i < g->n_slot; i++) {
        slot *s = &g->s[i];

        if ((s->state == DIRTY) && (s->pins == 0) && (s->chunk != g->now)) CT_TRY(send_back(g, s));
    }
    return CT_OK;
}

/* The next chunks come, where their slots are free by now. After the last one the first follows. */
static ct_status bring_ahead(ring *g, ct_stream st)
{
    for (int i = 1; (i <= g->rings->ahead) && (i < g->n_chunk); i++) {
        int64_t c = (g->now + i) % g->n_chunk;
        slot *s = slot_of(g, c);

        if ((s->chunk == c) || (s->chunk == g->now)) continue;
        if ((s->pins > 0) || (s->state == DIRTY) || (s->state == LEAVING)) continue;
        CT_TRY(bring(g, s, c, st));
    }
    return CT_OK;
}

/* ---- the storage */

static ct_status ring_want(ct_storage *storage, ct_stream st, ct_storage_range *r)
{
    ring *g = storage->own;
    int64_t chunk = r->from / g->chunk;
    slot *s = slot_of(g, chunk);

    if (r->count == 0) return CT_OK;
    if (r->from + r->count > (chunk + 1) * g->chunk)
        return CT_FAIL(CT_ERR_ARG,
                       "floats %" PRId64 " to %" PRId64 " of a storage in a ring lie in two chunks",
                       r->from, r->from + r->count);
    if ((s->pins > 0) && (s->chunk != chunk))
        return CT_FAIL(CT_ERR_ARG, "two chunks of one slot of a ring are wanted at once");
    if (chunk != g->now) {
        g->now = chunk;
        CT_TRY(write_behind(g));
        CT_TRY(land_done(g));
    }
    if (s->chunk != chunk) {
        CT_TRY(land(g, s));
        CT_TRY(bring(g, s, chunk, st));
    }
    CT_TRY(bring_ahead(g, st));
    /* what leaves is read until then */
    if ((s->state == LEAVING) && (r->use != CT_STORAGE_READ)) CT_TRY(land(g, s));
    if (s->coming != NULL) CT_TRY(g->dev->copy_follow(st, s->coming));
    s->pins++;
    r->data = s->data + (r->from - chunk * g->chunk);
    return CT_OK;
}

static ct_status ring_done(ct_storage *storage, ct_stream st, const ct_storage_range *r)
{
    ring *g = storage->own;
    slot *s = slot_of(g, r->from / g->chunk);

    if (r->count == 0) return CT_OK;
    s->pins--;
    if (r->use == CT_STORAGE_READ) return CT_OK;
    s->stream = st;
    s->state = DIRTY;
    return CT_OK;
}

static int64_t ring_together(const ct_storage *storage, int64_t from)
{
    const ring *g = storage->own;

    return (from / g->chunk + 1) * g->chunk - from;
}

static void destroy(ring *g)
{
    for (int i = 0; (g->s != NULL) && (i < g->n_slot); i++) {
        (void)end_copy(g, &g->s[i].coming);
        (void)end_copy(g, &g->s[i].leaving);
    }
    if (g->block != NULL) g->dev->mem_release(g->block);
    if (g->pinned != NULL) g->dev->host_release(g->pinned);
    ct_mem_release(g->home);
    free(g->s);
    free(g);
}

/* Bytes in host memory, pinned and on the device, which the storage has, or no longer. */
static void count(const ring *g, int64_t sign)
{
    int64_t bytes = (int64_t)chunk_bytes(g);

    g->rings->host_bytes += sign * g->n_chunk * bytes;
    g->rings->pinned_bytes += sign * 2 * g->n_slot * bytes;
    g->rings->device_bytes += sign * g->n_slot * bytes;
}

static void ring_close(ct_storage *storage)
{
    ring *g = storage->own;

    count(g, -1);
    destroy(g);
}

static ct_status acquire(ring *g)
{
    size_t slots = (size_t)g->n_slot * chunk_bytes(g);

    g->s = calloc((size_t)g->n_slot, sizeof(*g->s));
    g->home = ct_mem_acquire((size_t)g->n_chunk * chunk_bytes(g)); /* zeros */
    if ((g->s == NULL) || (g->home == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no host memory for a storage of %" PRId64 " floats",
                       g->n_chunk * g->chunk);
    CT_TRY(g->dev->mem_acquire(slots, &g->block));
    CT_TRY(g->dev->host_acquire(2 * slots, &g->pinned));
    for (int i = 0; i < g->n_slot; i++)
        g->s[i] = (slot){ .chunk = NOBODY,
                          .data = (float *)g->block + i * g->chunk,
                          .in = (float *)g->pinned + 2 * i * g->chunk,
                          .out = (float *)g->pinned + (2 * i + 1) * g->chunk };
    return CT_OK;
}

/* As many chunks come as leave, and one is worked on. */
static ring *make(ct_storage_rings *rings, const ct_device *dev, int64_t floats)
{
    int64_t chunk = (rings->chunk > 0) ? rings->chunk : USUAL_CHUNK;
    ring *g = calloc(1, sizeof(*g));

    if (g == NULL) return NULL;
    if (rings->ahead == 0) rings->ahead = USUAL_AHEAD;
    g->rings = rings;
    g->dev = dev;
    g->now = NOBODY;
    if (chunk > floats) chunk = (floats > 0) ? floats : 1;
    g->chunk = (chunk + UNIT - 1) / UNIT * UNIT;
    g->n_chunk = (floats + g->chunk - 1) / g->chunk;
    g->n_slot = 2 * rings->ahead + 1;
    if (g->n_slot > g->n_chunk) g->n_slot = (g->n_chunk > 0) ? (int)g->n_chunk : 1;
    return g;
}

ct_status ct_storage_open_ring(void *ctx, const ct_device *dev, int64_t floats, ct_storage *s_p)
{
    static const ct_storage_ops ops = { .name = "ring",
                                        .want = ring_want,
                                        .done = ring_done,
                                        .together = ring_together,
                                        .close = ring_close };
    ct_status status;
    ring *g;

    if (dev->kind == CT_DEVICE_CPU) return ct_storage_open_fixed(NULL, dev, floats, s_p);
    if ((dev->copy_begin == NULL) || (dev->copy_ahead == NULL) || (dev->host_acquire == NULL))
        return CT_FAIL(CT_ERR_CONFIG,
                       "memory { state: HOST }: device %s makes no copies beside "
                       "its work",
                       dev->name);
    g = make(ctx, dev, floats);
    if (g == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a storage");
    status = acquire(g);
    if (status != CT_OK) {
        destroy(g);
        return status;
    }
    count(g, 1);
    *s_p = (ct_storage){ .ops = &ops,
                         .dev = dev,
                         .count = floats,
                         .bytes = (size_t)g->n_slot * chunk_bytes(g),
                         .own = g };
    return CT_OK;
}
