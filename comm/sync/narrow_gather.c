#include "comm/sync/narrow_gather.h"

#include <stdlib.h>
#include <string.h>

#include "comm/collective/coll.h"
#include "framework/base/bf16.h"

/* ---- who has what */

/* The elements of a range that are in the bucket. */
static ct_range within(const ct_bucket_cut *cut, const ct_grad_range *r)
{
    int64_t from = r->offset - cut->offset, end = from + r->count;

    if (from < 0) from = 0;
    if (end > cut->count) end = cut->count;
    return (ct_range){ from, (end > from) ? end - from : 0 };
}

/* Returns how many elements are rounded; padding is 0 and counts among none. */
static int64_t list_wide(const ct_bucket_cut *cut, const ct_grad_range *range, ct_narrow_gather *n)
{
    int64_t rounded = 0;

    for (int i = 0; i < cut->n; ++i) {
        ct_range r = within(cut, &range[i]);

        if (range[i].rounded)
            rounded += r.count;
        else if (r.count > 0)
            n->wide[n->n_wide++] = r;
    }
    return rounded;
}

static int by_first(const void *a, const void *b)
{
    const ct_narrow_part *x = a, *y = b;

    return (x->first > y->first) - (x->first < y->first);
}

/* Numbers of 16 bits that elements [first, first + count) take. */
static int64_t units_of(const ct_narrow_gather *n, int64_t first, int64_t count)
{
    int64_t units = count;

    for (int i = 0; i < n->n_wide; ++i) {
        int64_t from = n->wide[i].first, end = from + n->wide[i].count;

        if (from < first) from = first;
        if (end > first + count) end = first + count;
        if (end > from) units += end - from;
    }
    return units;
}

/* The parts of an allgather of n->units; *more_p: what is missing in one of them. */
static ct_status lay_out(const ct_comm *c, ct_narrow_gather *n, int64_t *more_p)
{
    *more_p = 0;
    for (int i = 0; i < n->n_part; ++i) {
        ct_narrow_part *p = &n->part[i];
        int64_t room = 0, need = units_of(n, p->first, p->count);

        CT_TRY(ct_coll_part(c, n->units, p->rank, &p->at, &room));
        if (need - room > *more_p) *more_p = need - room;
    }
    return CT_OK;
}

/* In place: no element stands in front of where half of it came from. */
static bool fits(const ct_narrow_gather *n, int64_t count)
{
    bool ok = (n->units <= count * 2);

    for (int i = 0; i < n->n_part; ++i)
        ok = ok && ((n->part[i].count == 0) || (n->part[i].at <= 2 * n->part[i].first));
    return ok;
}

static ct_status find_units(const ct_comm *c, int64_t count, ct_narrow_gather *n)
{
    enum { MOST_TRIES = 8 };
    int64_t more = 0, most = count / 5 * 9; /* a tenth of the bytes is saved at least */

    for (int i = 0; i < n->n_part; ++i) {
        ct_narrow_part *p = &n->part[i];

        p->rank = i;
        CT_TRY(ct_coll_part(c, count, i, &p->first, &p->count));
    }
    qsort(n->part, (size_t)n->n_part, sizeof(*n->part), by_first);
    n->units = count;
    for (int k = 0; k < MOST_TRIES; ++k) {
        CT_TRY(lay_out(c, n, &more));
        if ((more == 0) || (n->units > most)) break;
        n->units += more * n->n_part;
    }
    if ((more > 0) || (n->units > most) || !fits(n, count)) n->units = 0;
    return CT_OK;
}

ct_status ct_narrow_gather_open(const ct_comm *c, const ct_bucket_cut *cut,
                                const ct_grad_range *range, ct_narrow_gather *n)
{
    ct_status status = CT_OK;

    *n = (ct_narrow_gather){ .n_part = c->size };
    n->wide = calloc((size_t)cut->n + 1, sizeof(*n->wide));
    n->part = calloc((size_t)c->size, sizeof(*n->part));
    if ((n->wide == NULL) || (n->part == NULL))
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for the parts of %d ranks", c->size);
    else if (list_wide(cut, range, n) > 0)
        status = find_units(c, cut->count, n);
    if ((status != CT_OK) || (n->units == 0)) ct_narrow_gather_close(n);
    return status;
}

void ct_narrow_gather_close(ct_narrow_gather *n)
{
    free(n->wide);
    free(n->part);
    *n = (ct_narrow_gather){ .units = 0 };
}

/* ---- on the way */

/* The wide range that element e is in, or the next one before it (after: behind it); -1: none. */
static int find_wide(const ct_narrow_gather *n, int64_t e, bool after)
{
    int found = -1;

    for (int i = 0; i < n->n_wide; ++i) {
        int64_t end = n->wide[i].first + n->wide[i].count;

        if (after && (end > e)) return i;
        if (!after && (n->wide[i].first <= e)) found = i;
    }
    return after ? -1 : found;
}

/* Room beside, since a vector may be stored before the one in front of it is read. */
static void narrow(int64_t count, const float *from, char *to)
{
    enum { BLOCK = 256 };
    ct_bf16 room[BLOCK];

    for (int64_t at = 0, len = 0; at < count; at += len) {
        len = (count - at < BLOCK) ? count - at : BLOCK;
        ct_bf16_narrow(len, from + at, room);
        memcpy(to + at * (int64_t)sizeof(*room), room, (size_t)len * sizeof(*room));
    }
}

void ct_narrow_gather_pack(ct_narrow_gather *n, const ct_comm *c, float *place)
{
    const int64_t unit = (int64_t)sizeof(ct_bf16);
    const ct_narrow_part *p = n->part;
    int64_t e, end, at;

    if (n->units == 0) return;
    while (p->rank != c->rank) ++p;
    at = p->at;
    for (e = p->first; e < p->first + p->count; e = end) {
        int w = find_wide(n, e, true);
        bool wide = (w >= 0) && (n->wide[w].first <= e);
        char *to = (char *)place + at * unit;

        end = p->first + p->count;
        if (wide && (n->wide[w].first + n->wide[w].count < end))
            end = n->wide[w].first + n->wide[w].count;
        if (!wide && (w >= 0) && (n->wide[w].first < end)) end = n->wide[w].first;
        if (wide)
            memmove(to, place + e, (size_t)(end - e) * sizeof(*place));
        else
            narrow(end - e, place + e, to);
        at += (end - e) * (wide ? 2 : 1);
    }
    n->packed = true;
}

/* place[from, end) of the numbers from `at` on, which lie no farther than half of it. From behind,
 * in blocks that do not reach into what they come of. */
static void widen(float *place, int64_t from, int64_t end, int64_t at, int n_thread)
{
    enum { SHARE = 1 << 13 };
    const int64_t unit = (int64_t)sizeof(ct_bf16);
    const char *source = (const char *)place + at * unit;

    while (end > from) {
        int64_t first = (at + end - from + 1) / 2;

        if (first < from) first = from;
        if (first >= end) { /* its own half is where it goes */
            ct_bf16 v;

            end -= 1;
            memcpy(&v, source + (end - from) * unit, sizeof(v));
            place[end] = ct_bf16_to_f32(v);
            continue;
        }
#pragma omp parallel for num_threads(n_thread) schedule(static) if (end - first > 4 * SHARE)
        for (int64_t e = first; e < end; e += SHARE)
            ct_bf16_widen((end - e < SHARE) ? end - e : SHARE, source + (e - from) * unit,
                          place + e);
        end = first;
    }
}

static void unpack_part(const ct_narrow_gather *n, const ct_narrow_part *p, float *place,
                        int n_thread)
{
    const int64_t unit = (int64_t)sizeof(ct_bf16);
    int64_t end = p->first + p->count, at = p->at + units_of(n, p->first, p->count), from;

    for (; end > p->first; end = from) {
        int w = find_wide(n, end - 1, false);
        bool wide = (w >= 0) && (n->wide[w].first + n->wide[w].count >= end);

        from = (w < 0) ? p->first : n->wide[w].first + (wide ? 0 : n->wide[w].count);
        if (from < p->first) from = p->first;
        at -= (end - from) * (wide ? 2 : 1);
        if (wide)
            memmove(place + from, (const char *)place + at * unit,
                    (size_t)(end - from) * sizeof(*place));
        else
            widen(place, from, end, at, n_thread);
    }
}

void ct_narrow_gather_unpack(ct_narrow_gather *n, const ct_comm *c, float *place)
{
    for (int i = n->n_part - 1; n->packed && (i >= 0); --i)
        unpack_part(n, &n->part[i], place, c->n_thread);
    n->packed = false;
}
