/* From lifetimes to memory: regions placed in one block, and every blob and buffer bound to its
 * place. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/memory.h"
#include "framework/net/engine_plan.h"
#include "framework/net/net_impl.h"

#define N_ORDER     5           /* weight() has them …                            */
#define BY_END      4           /* … and this one                                 */
#define MAX_REPAIR  200         /* times the order is changed                     */
#define MAX_WORK    400000000.0 /* comparisons spent on that                      */
#define MAX_CHANGES 20000000.0  /* comparisons spent on changes of the best order */
#define MAX_STEP    2           /* times a pass's own bytes grow                  */
#define GOOD_ENOUGH 1.001       /* of the rounded peak: no more repairs           */

typedef struct job {
    const ct_region *region;
    int n_region;
    int n;          /* of them are to be placed …                     */
    int *item;      /* … these                                        */
    int n_fixed;    /* the others lie at their offsets …              */
    int *fixed;     /* … in the order of these                        */
    size_t own;     /* each region ends here or begins from here on; SIZE_MAX: that is no matter */
    size_t *bytes;  /* rounded up                                     */
    int *order;     /* regions in the order of placing                */
    int *placed;    /* regions placed so far, by offset               */
    size_t *offset; /* by region                                      */
    int *best;      /* the best order so far                          */
    bool tight;     /* smallest gap that fits, else the lowest        */
    bool best_tight;
    void *entries; /* room to sort them                               */
} job;

/* The most bytes that are alive at a time; rounded: as they are placed. */
static size_t peak_of(const ct_region *r, int n, bool rounded)
{
    int end = -1;
    size_t *alive, most = 0;

    for (int i = 0; i < n; i++) {
        if (r[i].last > end) end = r[i].last;
    }
    alive = calloc((size_t)end + 2, sizeof(alive[0]));
    if (alive == NULL) return 0;
    for (int i = 0; i < n; i++) {
        size_t bytes = rounded ? ct_align_up(r[i].bytes) : r[i].bytes;

        for (int t = r[i].first; t <= r[i].last; t++) alive[t] += bytes;
    }
    for (int t = 0; t <= end; t++) {
        if (alive[t] > most) most = alive[t];
    }
    free(alive);
    return most;
}

size_t ct_memory_plan_peak(const ct_region *r, int n)
{
    return peak_of(r, n, false);
}

static bool meet(const ct_region *a, const ct_region *b)
{
    return (a->first <= b->last) && (b->first <= a->last);
}

/* A place from `from` up to `to` beside those placed that live at the same time; CT_NOWHERE: there
 * is none. */
static size_t find(const job *j, int n_placed, int k, size_t from, size_t to)
{
    size_t at = from, best = CT_NOWHERE, best_gap = SIZE_MAX;

    for (int i = 0; i < n_placed; i++) {
        int p = j->placed[i];

        if (j->offset[p] >= to) break;
        if ((j->offset[p] < from) || !meet(&j->region[p], &j->region[k])) continue;
        if ((j->offset[p] >= at + j->bytes[k]) && (j->offset[p] - at < best_gap)) {
            best = at;
            best_gap = j->offset[p] - at;
            if (!j->tight) return best;
        }
        if (j->offset[p] + j->bytes[p] > at) at = j->offset[p] + j->bytes[p];
    }
    if ((to >= j->bytes[k]) && (at <= to - j->bytes[k]) &&
        ((best == CT_NOWHERE) || (to - at < best_gap)))
        best = at;
    return best;
}

/* Puts one region there. */
static void put(job *j, int n_placed, int k)
{
    size_t best = find(j, n_placed, k, 0, j->own);
    int place = n_placed;

    if (best == CT_NOWHERE) best = find(j, n_placed, k, j->own, SIZE_MAX);
    j->offset[k] = best;
    while ((place > 0) && (j->offset[j->placed[place - 1]] > best)) place--;
    memmove(&j->placed[place + 1], &j->placed[place], (size_t)(n_placed - place) * sizeof(int));
    j->placed[place] = k;
}

static size_t put_all(job *j)
{
    size_t end = (j->own == SIZE_MAX) ? 0 : j->own;

    if (j->n_fixed > 0) memcpy(j->placed, j->fixed, (size_t)j->n_fixed * sizeof(int));
    for (int i = 0; i < j->n; i++) {
        int k = j->order[i];

        put(j, j->n_fixed + i, k);
        if (j->offset[k] + j->bytes[k] > end) end = j->offset[k] + j->bytes[k];
    }
    return end;
}

/* What an order goes by, largest first. */
static double weight(const ct_region *r, int order)
{
    double bytes = (double)r->bytes, life = (double)(r->last - r->first + 1);

    switch (order) {
    case 0:
        return bytes;
    case 1:
        return life;
    case 2:
        return bytes * life;
    case 3:
        return -(double)r->first;
    default:
        return (double)r->last;
    }
}

typedef struct entry {
    double weight, bytes;
    int index;
} entry;

static int compare(const void *left, const void *right)
{
    const entry *a = left, *b = right;

    if (a->weight != b->weight) return (a->weight > b->weight) ? -1 : 1;
    if (a->bytes != b->bytes) return (a->bytes > b->bytes) ? -1 : 1;
    return (a->index < b->index) ? -1 : 1;
}

static void sort(job *j, int order)
{
    entry *e = j->entries;

    for (int i = 0; i < j->n; i++) {
        int k = j->item[i];

        e[i] = (entry){ weight(&j->region[k], order), (double)j->region[k].bytes, k };
    }
    qsort(e, (size_t)j->n, sizeof(e[0]), compare);
    for (int i = 0; i < j->n; i++) j->order[i] = e[i].index;
}

/* Moves the regions that reach the end of the block to the front. */
static void promote(job *j, size_t end)
{
    int n_front = 0;

    for (int i = 0; i < j->n; i++) {
        int k = j->order[i];

        if (j->offset[k] + j->bytes[k] < end) continue;
        memmove(&j->order[n_front + 1], &j->order[n_front], (size_t)(i - n_front) * sizeof(int));
        j->order[n_front++] = k;
    }
}

static void keep(job *j, size_t end, ct_region *r, size_t *best_p)
{
    if (end >= *best_p) return;
    *best_p = end;
    memcpy(j->best, j->order, (size_t)j->n * sizeof(int));
    j->best_tight = j->tight;
    for (int i = 0; i < j->n_region; i++) r[i].offset = j->offset[i];
}

/* to[0..n) = from, but the element at `a` stands at `b`. */
static void move(const int *from, int n, int a, int b, int *to)
{
    memcpy(to, from, (size_t)n * sizeof(int));
    if (a < b)
        memmove(&to[a], &to[a + 1], (size_t)(b - a) * sizeof(int));
    else
        memmove(&to[b + 1], &to[b], (size_t)(a - b) * sizeof(int));
    to[b] = from[a];
}

/* One region is placed earlier or later; an order that is not worse becomes the one to change. The
 * numbers are always the same, so plans are. */
static void change(job *j, size_t enough, ct_region *r, size_t *best_p)
{
    int tries = (int)(MAX_CHANGES / ((double)j->n * (double)(j->n + j->n_fixed) + 1.0));
    size_t at = *best_p;
    uint32_t draw = 1;
    int *now = malloc(((size_t)j->n + 1) * sizeof(now[0]));

    if (now == NULL) return; /* the plan is good as it is */
    memcpy(now, j->best, (size_t)j->n * sizeof(int));
    j->tight = j->best_tight;
    for (int i = 0; (i < tries) && (*best_p > enough); i++) {
        int a, b;
        size_t end;

        draw = draw * 1664525u + 1013904223u;
        a = (int)((draw >> 8) % (uint32_t)j->n);
        draw = draw * 1664525u + 1013904223u;
        b = (int)((draw >> 8) % (uint32_t)j->n);
        move(now, j->n, a, b, j->order);
        end = put_all(j);
        keep(j, end, r, best_p);
        if (end > at) continue;
        at = end;
        memcpy(now, j->order, (size_t)j->n * sizeof(int));
    }
    free(now);
}

static void search(job *j, size_t enough, ct_region *r, size_t *best_p)
{
    double work = (double)j->n * (double)(j->n + j->n_fixed);
    int n_repair = (work * 2 * N_ORDER * MAX_REPAIR <= MAX_WORK)
                       ? MAX_REPAIR
                       : (int)(MAX_WORK / (work * 2 * N_ORDER));

    for (int order = 0; order < 2 * N_ORDER; order++) {
        j->tight = (order % 2) == 1;
        sort(j, order / 2);
        for (int i = 0; (i <= n_repair) && (*best_p > enough); i++) {
            size_t end = put_all(j);

            keep(j, end, r, best_p);
            promote(j, end);
        }
    }
}

static void close_job(job *j)
{
    free(j->item);
    free(j->bytes);
    free(j->offset);
    free(j->entries);
}

/* Nothing is to be placed yet. */
static ct_status open_job(const ct_region *r, int n, job *j)
{
    size_t count = (size_t)n + 1;

    *j = (job){ .region = r, .n_region = n, .own = SIZE_MAX };
    j->item = malloc(5 * count * sizeof(j->item[0]));
    j->bytes = malloc(count * sizeof(j->bytes[0]));
    j->offset = calloc(count, sizeof(j->offset[0]));
    j->entries = malloc(count * sizeof(entry));
    if ((j->item == NULL) || (j->bytes == NULL) || (j->offset == NULL) || (j->entries == NULL)) {
        close_job(j);
        return CT_FAIL(CT_ERR_NOMEM, "no memory to plan %d regions", n);
    }
    j->fixed = j->item + count;
    j->order = j->fixed + count;
    j->placed = j->order + count;
    j->best = j->placed + count;
    for (int i = 0; i < n; i++) j->bytes[i] = ct_align_up(r[i].bytes);
    return CT_OK;
}

/* The best plan of all orders that are tried, or one that ends at `enough`. */
static size_t place(job *j, size_t enough, ct_region *r)
{
    size_t best = SIZE_MAX;

    search(j, enough, r, &best);
    if (j->n > 1) change(j, enough, r, &best);
    return best;
}

static size_t good_enough(size_t least)
{
    return (size_t)(GOOD_ENOUGH * (double)least);
}

ct_status ct_memory_plan_place(ct_region *r, int n, size_t *bytes_p)
{
    job j;

    CT_TRY(open_job(r, n, &j));
    for (int i = 0; i < n; i++) j.item[i] = i;
    j.n = n;
    *bytes_p = place(&j, good_enough(peak_of(r, n, true)), r);
    close_job(&j);
    return CT_OK;
}

/* ---- several passes in flight: what each keeps lies in its own bytes, all of it beside each
 * other, since it lives at one moment. The rest lies where that is dead, or in bytes of all. */

typedef struct sharing {
    ct_region *best, *trial; /* the best plan so far; the one that is tried */
    ct_region *room;         /* for as many */
    int n;
    size_t in_flight, own, shared, enough;
} sharing;

static size_t total(const sharing *s, size_t own, size_t shared)
{
    return s->in_flight * own + shared;
}

static bool is_enough(const sharing *s)
{
    return total(s, s->own, s->shared) <= s->enough;
}

/* Takes the plan that was tried, where it is better. */
static void take(sharing *s, size_t own, size_t shared)
{
    if (total(s, own, shared) >= total(s, s->own, s->shared)) return;
    s->own = own;
    s->shared = shared;
    memcpy(s->best, s->trial, (size_t)s->n * sizeof(s->best[0]));
}

/* Bytes of all passes without which it cannot be: of what finds no room beside what is kept. */
static size_t least_outside(const sharing *s, job *j)
{
    int n = 0;

    memcpy(j->placed, j->fixed, (size_t)j->n_fixed * sizeof(int));
    for (int i = 0; i < j->n; i++) {
        int k = j->item[i];

        if (find(j, j->n_fixed, k, 0, j->own) == CT_NOWHERE) s->room[n++] = j->region[k];
    }
    return peak_of(s->room, n, true);
}

static void try_own(sharing *s, job *j)
{
    size_t before = s->in_flight * j->own, enough = good_enough(least_outside(s, j));

    if (s->enough > before + enough) enough = s->enough - before;
    take(s, j->own, place(j, j->own + enough, s->trial) - j->own);
}

/* What is kept lies at the bottom that lives longest: so what is dead of it is one piece. */
static void fix(job *j, const bool *own)
{
    size_t at = 0;
    int n_other = 0;

    j->n = 0;
    for (int i = 0; i < j->n_region; i++) {
        if (own[i]) j->item[j->n++] = i;
    }
    sort(j, BY_END);
    j->n_fixed = j->n;
    memcpy(j->fixed, j->order, (size_t)j->n * sizeof(int));
    for (int i = 0; i < j->n_fixed; i++) {
        j->offset[j->fixed[i]] = at;
        at += j->bytes[j->fixed[i]];
    }
    for (int i = 0; i < j->n_region; i++) {
        if (!own[i]) j->item[n_other++] = i;
    }
    j->n = n_other;
    j->own = at;
}

/* The most bytes that are alive at a time of region i. */
static size_t most_beside(const job *j, int i)
{
    size_t most = 0;

    for (int t = j->region[i].first; t <= j->region[i].last; t++) {
        size_t alive = 0;

        for (int k = 0; k < j->n_region; k++) {
            if ((j->region[k].first <= t) && (t <= j->region[k].last)) alive += j->bytes[k];
        }
        if (alive > most) most = alive;
    }
    return most;
}

/* Lengthens a pass's own bytes, so that the largest regions which lie outside may find room. False:
 * they have it, or none lies outside. */
static bool grow(const sharing *s, job *j)
{
    size_t most = 0, before = j->own;

    for (int i = 0; i < s->n; i++) {
        if ((s->trial[i].offset >= before) && (j->bytes[i] > most)) most = j->bytes[i];
    }
    for (int i = 0; i < s->n; i++) {
        bool outside = (s->trial[i].offset >= before) && (j->bytes[i] == most);
        size_t wanted = outside ? most_beside(j, i) : 0;

        if (wanted > j->own) j->own = wanted;
    }
    return j->own > before;
}

static void try_kept(sharing *s, job *j, const bool *own)
{
    fix(j, own);
    try_own(s, j);
    for (int left = MAX_STEP; (left > 0) && !is_enough(s) && grow(s, j); left--) try_own(s, j);
}

/* So many plans of a single pass. */
static ct_status try_single(sharing *s)
{
    size_t bytes = 0;

    CT_TRY(ct_memory_plan_place(s->trial, s->n, &bytes));
    take(s, bytes, 0);
    return CT_OK;
}

static size_t sum_of(const job *j, const bool *own)
{
    size_t bytes = 0;

    for (int i = 0; i < j->n_region; i++) bytes += own[i] ? j->bytes[i] : 0;
    return bytes;
}

ct_status ct_memory_plan_share(ct_region *r, const bool *own, int n, int in_flight, size_t *own_p,
                               size_t *shared_p)
{
    size_t peak = peak_of(r, n, true), kept, k = (size_t)in_flight;
    sharing s = { .best = r, .n = n, .in_flight = k, .shared = SIZE_MAX };
    ct_status status = CT_OK;
    job j;

    CT_TRY(open_job(r, n, &j));
    s.trial = malloc(2 * ((size_t)n + 1) * sizeof(s.trial[0]));
    if (s.trial == NULL) {
        close_job(&j);
        return CT_FAIL(CT_ERR_NOMEM, "no memory to plan %d regions", n);
    }
    s.room = s.trial + n + 1;
    memcpy(s.trial, r, (size_t)n * sizeof(r[0]));
    kept = sum_of(&j, own);
    s.enough = good_enough((k - 1) * kept + ((peak > kept) ? peak : kept));
    try_kept(&s, &j, own);
    if (k * peak < total(&s, s.own, s.shared)) status = try_single(&s);
    *own_p = s.own;
    *shared_p = s.shared;
    free(s.trial);
    close_job(&j);
    return status;
}

/* ---- from lifetimes to memory: the plan of one block */

/* What other passes of the net must leave alone between forward and backward: values that backward
 * reads, and outputs. */
static bool is_own(const ct_net *net, int i)
{
    const ct_region *r = &ct_net_impl_of(net)->region[i];
    int last = net->n_forward - ((net->n_backward == 0) ? 1 : 0);

    return ct_net_impl_of(net)->use[i].persists ||
           ((r->first < net->n_forward) && (r->last >= last));
}

/* In flight: one, which has all of the block, or several. */
static ct_status place_passes(const ct_net *net, int in_flight)
{
    ct_net_impl *m = ct_net_impl_of(net);
    bool *own;
    ct_status status;

    m->shared_bytes = 0;
    if (in_flight == 1) return ct_memory_plan_place(m->region, m->n_region, &m->own_bytes);
    own = malloc((size_t)m->n_region + 1);
    if (own == NULL)
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a plan of %d regions", m->n_region);
    for (int i = 0; i < m->n_region; i++) own[i] = is_own(net, i);
    status = ct_memory_plan_share(m->region, own, m->n_region, in_flight, &m->own_bytes,
                                  &m->shared_bytes);
    free(own);
    return status;
}

/* Bytes that all passes but one have while that one is where it takes most. */
static size_t kept_bytes(const ct_net *net)
{
    const ct_net_impl *m = ct_net_impl_of(net);
    size_t bytes = 0;

    for (int i = 0; i < m->n_region; i++) bytes += is_own(net, i) ? m->region[i].bytes : 0;
    return bytes;
}

ct_status ct_net_place(ct_net *net)
{
    ct_net_impl *m = ct_net_impl_of(net);
    int in_flight = (net->options.in_flight > 1) ? net->options.in_flight : 1;
    size_t unshared = 0, bytes = 0, k = (size_t)in_flight;

    CT_TRY(ct_net_place_weights(net));
    CT_TRY(ct_net_place_gradients(net));
    m->always_bytes = 0;
    for (int i = 0; i < m->n_region; i++) {
        bool second = !m->use[i].forward && (m->use[i].backward || m->use[i].again);

        if (net->options.unshared) m->region[i].offset = bytes;
        bytes += ct_align_up(m->region[i].bytes);
        if (!second) unshared += ct_align_up(m->region[i].bytes);
    }
    for (int i = 0; i < net->n_layer; i++) {
        for (int s = 0; s < CT_MAX_BUFFER; s++) {
            const ct_buffer *b = &net->pass->instance[i]->buffer[s];

            if ((b->keep == CT_LIFETIME_ALWAYS) && !ct_host_layer_is(net, i))
                m->always_bytes += ct_align_up(b->bytes);
        }
    }
    m->own_bytes = bytes;
    m->shared_bytes = 0;
    if (!net->options.unshared) CT_TRY(place_passes(net, in_flight));
    net->memory.lasting = k * m->always_bytes;
    net->memory.planned = k * (m->own_bytes + m->always_bytes) + m->shared_bytes;
    net->memory.peak_alive = ct_memory_plan_peak(m->region, m->n_region) + k * m->always_bytes +
                             (k - 1) * kept_bytes(net);
    net->memory.unshared = k * (unshared + m->always_bytes);
    return CT_OK;
}

int ct_net_regions(const ct_net *net)
{
    return ct_net_impl_of(net)->n_region;
}

ct_net_region ct_net_region_of(const ct_net *net, int i)
{
    const ct_region *r = &ct_net_impl_of(net)->region[i];
    const ct_use *u = &ct_net_impl_of(net)->use[i];
    bool buffer = (u->kind == CT_USE_BUFFER);

    return (ct_net_region){ .bytes = ct_align_up(r->bytes),
                            .blob = buffer ? -1 : u->index,
                            .layer = buffer ? u->index : -1,
                            .kept = (r->first < net->n_forward) && (r->last >= net->n_forward),
                            .first = r->first,
                            .last = r->last };
}

int ct_net_memory_of(const ct_net *net, int blob)
{
    return ct_net_impl_of(net)->data_root[blob];
}

static ct_call_buffer *find_call(ct_net_impl *m, int layer, int slot)
{
    ct_call_buffer *c = &m->call_buffer[m->n_call_buffer];

    for (int i = 0; i < m->n_call_buffer; i++) {
        if ((m->call_buffer[i].layer == layer) && (m->call_buffer[i].slot == slot))
            return &m->call_buffer[i];
    }
    *c = (ct_call_buffer){ layer, slot, CT_NOWHERE, CT_NOWHERE, CT_NOWHERE };
    m->n_call_buffer++;
    return c;
}

/* Where in the block of a pass lies what has a place for forward and another for backward. */
static ct_status find_places(ct_net *net)
{
    ct_net_impl *m = ct_net_impl_of(net);

    m->call_buffer = calloc((size_t)m->n_region + 1, sizeof(m->call_buffer[0]));
    if (m->call_buffer == NULL)
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a plan of %d regions", m->n_region);
    for (int i = 0; i < m->n_region; i++) {
        const ct_use *u = &m->use[i];
        size_t at = m->region[i].offset;
        ct_call_buffer *c;

        for (int k = 0; (u->kind == CT_USE_DATA) && (k < m->n_again); k++) {
            if (m->again[k].root != u->index) continue;
            if (u->forward) m->again[k].forward = at;
            if (u->backward) m->again[k].backward = at;
        }
        if ((u->kind != CT_USE_BUFFER) || (u->forward && u->backward)) continue;
        c = find_call(m, u->index, u->slot);
        if (u->forward) c->forward = at;
        if (u->backward) c->backward = at;
        if (u->again) c->again = at;
    }
    return CT_OK;
}

/* NULL for none. */
static ct_status acquire(ct_net *net, size_t bytes, void **block_p)
{
    if (bytes == 0) return CT_OK;
    CT_TRY(net->options.dev->mem_acquire(bytes, block_p));
    net->memory.allocated += bytes;
    return CT_OK;
}

/* Of a net for forward alone on the host it takes memory when it is written: packed weights when
 * those that they are packed from go back one after the other. */
static ct_status acquire_always(ct_net *net, size_t bytes, void **block_p)
{
    bool later = ct_net_impl_of(net)->forward_only && (net->options.dev->kind == CT_DEVICE_CPU);

    if ((bytes == 0) || !later) return acquire(net, bytes, block_p);
    *block_p = ct_mem_reserve(bytes);
    if (*block_p == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %zu bytes that last", bytes);
    net->memory.allocated += bytes;
    return CT_OK;
}

static void release(ct_net *net, size_t bytes, void *block)
{
    if (block == NULL) return;
    if (net->options.dev->kind == CT_DEVICE_CPU) ct_unguard(block, bytes); /* CORTADO_POISON */
    net->options.dev->mem_release(block);
    net->memory.allocated -= bytes;
}

ct_status ct_net_memory(ct_net *net)
{
    const char *poison = getenv("CORTADO_POISON");

    CT_TRY(find_places(net));
    ct_engine_plan_settle(net->options.env.plan);
    ct_net_impl_of(net)->poison_window = (poison != NULL) && (strcmp(poison, "1") == 0);
    ct_net_impl_of(net)->poison =
        ct_net_impl_of(net)->poison_window && (net->options.dev->kind == CT_DEVICE_CPU);
    if (net->options.no_data) return CT_OK;
    CT_TRY(ct_net_numbers_make(net));
    CT_TRY(ct_net_weights(net));
    CT_TRY(ct_net_gradients(net));
    CT_TRY(acquire(net, ct_net_impl_of(net)->shared_bytes, &ct_net_impl_of(net)->shared));
    return ct_pass_memory(net->pass);
}

void ct_net_memory_release(ct_net *net)
{
    ct_net_impl *m = ct_net_impl_of(net);

    if (m->numbers != NULL) net->options.dev->mem_release(m->numbers);
    ct_net_chunks_release(net);
    release(net, m->shared_bytes, m->shared);
    free(m->call_buffer);
    free(m->region);
    free(m->use);
}

/* ---- the memory of a pass: a block by the net's plan, and every blob and buffer bound to its
 * place in it */

static void bind_blobs(ct_pass *pass, const ct_use *u, void *at)
{
    const ct_net_impl *m = ct_net_impl_of(pass->net);

    for (int b = 0; b < pass->net->n_blob; b++) {
        ct_blob *blob = pass->blob[b];

        if ((u->kind == CT_USE_DATA) && (m->data_root[b] == u->index)) blob->data.data = at;
        if ((u->kind == CT_USE_DIFF) && (m->diff_root[b] == u->index) && blob->wants_diff)
            blob->diff.data = at;
    }
}

static void bind(ct_pass *pass)
{
    const ct_net *net = pass->net;
    const ct_net_impl *m = ct_net_impl_of(net);
    char *always = ct_pass_impl_of(pass)->always;

    for (int i = 0; i < m->n_region; i++) {
        const ct_use *u = &m->use[i];
        void *at = ct_pass_at(pass, m->region[i].offset);

        if (u->kind == CT_USE_BUFFER)
            pass->instance[u->index]->buffer[u->slot].data = at;
        else if ((u->kind == CT_USE_DIFF) || u->forward)
            bind_blobs(pass, u, at);
    }
    for (int i = 0; i < net->n_layer; i++) {
        for (int s = 0; s < CT_MAX_BUFFER; s++) {
            ct_buffer *b = &pass->instance[i]->buffer[s];

            if ((b->bytes == 0) || (b->keep != CT_LIFETIME_ALWAYS) || ct_host_layer_is(net, i))
                continue;
            b->data = always;
            always += ct_align_up(b->bytes);
        }
    }
}

ct_status ct_pass_memory(ct_pass *pass)
{
    ct_pass_impl *p = ct_pass_impl_of(pass);
    const ct_net_impl *m = ct_net_impl_of(pass->net);

    CT_TRY(acquire(pass->net, m->own_bytes, &p->block));
    CT_TRY(acquire_always(pass->net, m->always_bytes, &p->always));
    bind(pass);
    CT_TRY(ct_host_layers(pass));
    CT_TRY(ct_pass_report_make(pass));
    CT_TRY(ct_pass_sums_make(pass));
    p->graphs = ct_step_graphs_create(pass);
    return CT_OK;
}

void ct_pass_memory_release(ct_pass *pass)
{
    const ct_pass_impl *p = ct_pass_impl_of(pass);
    const ct_net_impl *m = ct_net_impl_of(pass->net);

    ct_pass_sums_release(pass); /* what is under way reads and writes the memory */
    release(pass->net, m->own_bytes, p->block);
    release(pass->net, m->always_bytes, p->always);
    ct_step_graphs_destroy(p->graphs);
    ct_host_layers_release(pass);
    ct_pass_report_release(pass);
}
