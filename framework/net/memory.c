/* From lifetimes to memory: regions placed in one block, and every blob and buffer bound to its
 * place. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/memory.h"
#include "framework/net/engine_plan.h"
#include "framework/net/net_impl.h"

#define N_ORDER     5
#define MAX_REPAIR  200         /* times the order is changed                     */
#define MAX_WORK    400000000.0 /* comparisons spent on that                      */
#define MAX_CHANGES 20000000.0  /* comparisons spent on changes of the best order */
#define GOOD_ENOUGH 1.001       /* of the peak: no more repairs                   */

typedef struct job {
    const ct_region *region;
    int n;
    size_t *bytes;  /* rounded up                                     */
    int *order;     /* regions in the order of placing                */
    int *placed;    /* regions placed so far, by offset               */
    size_t *offset; /* by region                                      */
    int *best;      /* the best order so far                          */
    bool tight;     /* smallest gap that fits, else the lowest        */
    bool best_tight;
} job;

size_t ct_memory_plan_peak(const ct_region *r, int n)
{
    int end = -1;
    size_t *alive, most = 0;

    for (int i = 0; i < n; i++) {
        if (r[i].last > end) end = r[i].last;
    }
    alive = calloc((size_t)end + 2, sizeof(alive[0]));
    if (alive == NULL) return 0;
    for (int i = 0; i < n; i++) {
        for (int t = r[i].first; t <= r[i].last; t++) alive[t] += r[i].bytes;
    }
    for (int t = 0; t <= end; t++) {
        if (alive[t] > most) most = alive[t];
    }
    free(alive);
    return most;
}

static bool meet(const ct_region *a, const ct_region *b)
{
    return (a->first <= b->last) && (b->first <= a->last);
}

/* Puts one region beside those placed that live at the same time. */
static void put(job *j, int n_placed, int k)
{
    size_t at = 0, best = 0, best_gap = SIZE_MAX;
    int place = n_placed;

    for (int i = 0; i < n_placed; i++) {
        int p = j->placed[i];

        if (!meet(&j->region[p], &j->region[k])) continue;
        if ((j->offset[p] >= at + j->bytes[k]) && (j->offset[p] - at < best_gap)) {
            best = at;
            best_gap = j->offset[p] - at;
            if (!j->tight) break;
        }
        if (j->offset[p] + j->bytes[p] > at) at = j->offset[p] + j->bytes[p];
    }
    if (best_gap == SIZE_MAX) best = at;
    j->offset[k] = best;
    while ((place > 0) && (j->offset[j->placed[place - 1]] > best)) place--;
    memmove(&j->placed[place + 1], &j->placed[place], (size_t)(n_placed - place) * sizeof(int));
    j->placed[place] = k;
}

static size_t put_all(job *j)
{
    size_t end = 0;

    for (int i = 0; i < j->n; i++) {
        int k = j->order[i];

        put(j, i, k);
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

static void sort(job *j, int order, entry *e)
{
    for (int i = 0; i < j->n; i++)
        e[i] = (entry){ weight(&j->region[i], order), (double)j->region[i].bytes, i };
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
    for (int i = 0; i < j->n; i++) r[i].offset = j->offset[i];
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
    int tries = (int)(MAX_CHANGES / ((double)j->n * (double)j->n + 1.0));
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

static void search(job *j, entry *e, size_t enough, ct_region *r, size_t *best_p)
{
    double work = (double)j->n * (double)j->n;
    int n_repair = (work * 2 * N_ORDER * MAX_REPAIR <= MAX_WORK)
                       ? MAX_REPAIR
                       : (int)(MAX_WORK / (work * 2 * N_ORDER));

    for (int order = 0; order < 2 * N_ORDER; order++) {
        j->tight = (order % 2) == 1;
        sort(j, order / 2, e);
        for (int i = 0; (i <= n_repair) && (*best_p > enough); i++) {
            size_t end = put_all(j);

            keep(j, end, r, best_p);
            promote(j, end);
        }
    }
}

ct_status ct_memory_plan_place(ct_region *r, int n, size_t *bytes_p)
{
    size_t count = (size_t)n + 1, best = SIZE_MAX;
    job j = { .region = r, .n = n };
    entry *e = malloc(count * sizeof(e[0]));
    ct_status status = CT_OK;

    j.bytes = malloc(count * sizeof(j.bytes[0]));
    j.offset = malloc(count * sizeof(j.offset[0]));
    j.order = malloc(count * sizeof(j.order[0]));
    j.placed = malloc(count * sizeof(j.placed[0]));
    j.best = malloc(count * sizeof(j.best[0]));
    if ((e == NULL) || (j.bytes == NULL) || (j.offset == NULL) || (j.order == NULL) ||
        (j.placed == NULL) || (j.best == NULL)) {
        status = CT_FAIL(CT_ERR_NOMEM, "no memory to plan %d regions", n);
    } else {
        size_t enough = (size_t)(GOOD_ENOUGH * (double)ct_memory_plan_peak(r, n));

        for (int i = 0; i < n; i++) j.bytes[i] = ct_align_up(r[i].bytes);
        search(&j, e, enough, r, &best);
        if (n > 1) change(&j, enough, r, &best);
        *bytes_p = best;
    }
    free(e);
    free(j.bytes);
    free(j.offset);
    free(j.order);
    free(j.placed);
    free(j.best);
    return status;
}

/* ---- from lifetimes to memory: the plan of one block */

ct_status ct_net_place(ct_net *net)
{
    ct_net_impl *m = ct_net_impl_of(net);
    size_t unshared = 0, bytes = 0;

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
    if (!net->options.unshared) CT_TRY(ct_memory_plan_place(m->region, m->n_region, &bytes));
    net->memory.planned = bytes + m->always_bytes;
    net->memory.peak_alive = ct_memory_plan_peak(m->region, m->n_region) + m->always_bytes;
    net->memory.unshared = unshared + m->always_bytes;
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
                            .kept = (r->first < net->n_forward) && (r->last >= net->n_forward) };
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

ct_status ct_net_memory(ct_net *net)
{
    const char *poison = getenv("CORTADO_POISON");

    CT_TRY(find_places(net));
    ct_engine_plan_settle(net->options.env.plan);
    ct_net_impl_of(net)->poison =
        (poison != NULL) && (strcmp(poison, "1") == 0) && (net->options.dev->kind == CT_DEVICE_CPU);
    if (net->options.no_data) return CT_OK;
    CT_TRY(ct_net_numbers_make(net));
    return ct_pass_memory(net->pass);
}

void ct_net_memory_release(ct_net *net)
{
    ct_net_impl *m = ct_net_impl_of(net);

    if (m->numbers != NULL) net->options.dev->mem_release(m->numbers);
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
    const ct_net *net = pass->net;
    const ct_device *dev = net->options.dev;
    size_t always = ct_net_impl_of(net)->always_bytes;

    CT_TRY(dev->mem_acquire(net->memory.planned - always, &p->block));
    if (always > 0) CT_TRY(dev->mem_acquire(always, &p->always));
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
    const ct_device *dev = pass->net->options.dev;

    ct_pass_sums_release(pass); /* what is under way reads and writes the memory */
    if (p->block != NULL) dev->mem_release(p->block);
    if (p->always != NULL) dev->mem_release(p->always);
    ct_step_graphs_destroy(p->graphs);
    ct_host_layers_release(pass);
    ct_pass_report_release(pass);
}
