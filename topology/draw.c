#include "topology/topo.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "topology/names.h"

/* Siblings get lines of their own up to this many in a level; nodes always share one. */
enum { MANY = 16, MAX_PARTS = 8, MAX_NAMES_TEXT = 160 };

typedef struct drawing {
    const ct_topo *t;
    ct_text *out;
    bool ranks;                    /* a job: say where its ranks are */
    uint64_t *shape[CT_MAX_LEVEL]; /* [l][v] equal where all below is alike                     */
    int *list[CT_MAX_LEVEL];  /* [l] vertices in tree order                                   */
    int *first[CT_MAX_LEVEL]; /* [l][i] where the members of list[l][i] begin in list[l - 1],
                                 of level 0 in order; one more at the end                      */
    int *number;              /* [n_rank] scratch                                             */
} drawing;

/* ---- the table */

void ct_draw_noun(const char *name, int n, ct_text *out)
{
    size_t length = strlen(name);
    bool ends_in_s = (length > 0) && (name[length - 1] == 's');
    bool hisses = (length > 1) && (strcmp(name + length - 2, "ch") == 0);

    ct_text_add(out, "%s%s", name, ((n == 1) || ends_in_s) ? "" : hisses ? "es" : "s");
}

static void add_seconds(ct_text *out, double s)
{
    ct_text_add(out, "%8.2f us", s * 1e6);
}

static void add_rate(ct_text *out, double bytes)
{
    if (bytes > 0)
        ct_text_add(out, " %10.4g GB/s", bytes / 1e9);
    else
        ct_text_add(out, " %15s", "-");
}

/* What a member's own members inject, against what its uplink carries. */
static double oversubscription(const ct_machine *m, int l)
{
    if ((l < m->node_level + 2) || (m->level[l - 1].size == 0) || (m->level[l].uplink <= 0))
        return 0;
    return (double)m->level[l - 1].size * m->level[l - 1].uplink / m->level[l].uplink;
}

static void draw_classes(const ct_machine *m, ct_text *out)
{
    for (int i = 0; i < m->n_node_class; ++i) {
        const ct_node_class *c = &m->node_class[i];

        ct_text_add(out, "node class %s:", c->name);
        if (m->n_node_run > 0) {
            ct_text_add(out, " nodes ");
            ct_machine_list_nodes(m, i, out);
            ct_text_add(out, ",");
        }
        ct_text_add(out, " speed %.4g", c->speed);
        if (c->memory > 0) ct_text_add(out, ", %.4g GiB", ldexp(c->memory, -30));
        if (c->inside > 0) ct_text_add(out, ", inside %.4g GB/s", c->inside / 1e9);
        if (c->inject > 0) ct_text_add(out, ", into the network %.4g GB/s", c->inject / 1e9);
        ct_text_add(out, "\n");
    }
}

void ct_machine_draw_levels(const ct_machine *m, ct_text *out)
{
    ct_text_add(out, "%-12s %-18s %11s %15s %15s\n", "level", "joins", "latency", "a pair alone",
                "a member's link");
    for (int l = m->n_level - 1; l >= 0; --l) {
        const ct_level *level = &m->level[l];
        const char *member = (l > 0) ? m->level[l - 1].name : "rank";
        double over = oversubscription(m, l);
        ct_text joins = { 0 };

        if (level->size > 0) ct_text_add(&joins, "%lld ", (long long)level->size);
        ct_draw_noun(member, (level->size == 1) ? 1 : 2, &joins);
        ct_text_add(out, "%-12s %-18s ", level->name, (joins.text != NULL) ? joins.text : "");
        ct_text_destroy(&joins);
        add_seconds(out, level->latency_s);
        add_rate(out, level->bandwidth);
        add_rate(out, level->uplink);
        if (over > 1.005) ct_text_add(out, "  %.3g:1", over);
        if (level->pairwise && (level->size > 1))
            ct_text_add(out, "  a pair %.4g GB/s", level->uplink / (double)(level->size - 1) / 1e9);
        for (int d = 0; d < level->torus.n_dim; ++d)
            ct_text_add(out, "%s%d", (d == 0) ? "  torus " : "x", level->torus.dim[d]);
        if (level->bus > 0) ct_text_add(out, "  all share %.4g GB/s", level->bus / 1e9);
        if (level->residual > 0) ct_text_add(out, "  fit +-%.1f %%", 100 * level->residual);
        ct_text_add(out, "\n");
    }
    if (m->shared.bandwidth > 0)
        ct_text_add(out, "sums in a node's memory: %.4g us, %.4g GB/s a rank\n",
                    m->shared.latency_s * 1e6, m->shared.bandwidth / 1e9);
    if (m->in_network.bandwidth > 0) {
        ct_text_add(out, "MPI's sums in the network: %.4g us, %.4g GB/s",
                    m->in_network.latency_s * 1e6, m->in_network.bandwidth / 1e9);
        if (m->in_network.max_bytes > 0)
            ct_text_add(out, ", in pieces of %lld bytes", (long long)m->in_network.max_bytes);
        ct_text_add(out, "\n");
    }
    if (m->sum_bandwidth > 0)
        ct_text_add(out, "a rank adds %.4g GB/s of f32\n", m->sum_bandwidth / 1e9);
    draw_classes(m, out);
}

/* ---- numbers and names */

void ct_draw_numbers(const int *number, int n, ct_text *out)
{
    int parts = 0;

    for (int i = 0; i < n;) {
        int step = (i + 1 < n) ? number[i + 1] - number[i] : 1, last = i;

        while ((last + 1 < n) && (number[last + 1] - number[last] == step)) last += 1;
        if ((last == i + 1) && (step > 1)) last = i; /* two numbers are no series */
        if (parts++ == MAX_PARTS) {
            ct_text_add(out, ",...");
            return;
        }
        ct_text_add(out, "%s%d", (i > 0) ? "," : "", number[i]);
        if (last > i) ct_text_add(out, "-%d", number[last]);
        if ((last > i) && (step > 1)) ct_text_add(out, ":%d", step);
        i = last + 1;
    }
}

/* "n[1-4]", or, without names, the vertices' numbers. */
static void add_names(const drawing *d, int l, const int *vertex, int n)
{
    char **name = d->t->vertex_name[l];
    ct_text list = { 0 };
    char **some = (name != NULL) ? malloc(sizeof(*some) * (size_t)n) : NULL;

    if (some == NULL) {
        ct_draw_numbers(vertex, n, d->out);
        return;
    }
    for (int i = 0; i < n; ++i) some[i] = name[vertex[i]];
    ct_hostlist_add(&list, some, n);
    if (list.length > MAX_NAMES_TEXT)
        ct_text_add(d->out, "%.*s...", MAX_NAMES_TEXT, list.text);
    else
        ct_text_add(d->out, "%s", (list.text != NULL) ? list.text : "");
    ct_text_destroy(&list);
    free(some);
}

static int ascending(const void *a, const void *b)
{
    return (*(const int *)a > *(const int *)b) - (*(const int *)a < *(const int *)b);
}

/* ---- the tree's shape */

static uint64_t mix(uint64_t a, uint64_t b)
{
    a ^= b + UINT64_C(0x9E3779B97F4A7C15) + (a << 6) + (a >> 2);
    return a * UINT64_C(0xBF58476D1CE4E5B9);
}

/* The vertices of level l in tree order, and where their members begin. */
static ct_status list_level(drawing *d, int l)
{
    const ct_topo *t = d->t;
    int n = t->n_vertex[l], n_member = (l == 0) ? t->n_rank : t->n_vertex[l - 1], at = 0;

    d->list[l] = calloc((size_t)n, sizeof(int));
    d->first[l] = calloc((size_t)n + 1, sizeof(int));
    d->shape[l] = calloc((size_t)n, sizeof(uint64_t));
    if ((d->list[l] == NULL) || (d->first[l] == NULL) || (d->shape[l] == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory to draw %d ranks", t->n_rank);
    for (int i = 0; i < n_member; ++i) {
        int v = (l == 0) ? t->vertex[0][t->order[i]] : t->parent[l - 1][d->list[l - 1][i]];

        if ((i == 0) || (v != d->list[l][at - 1])) {
            d->list[l][at] = v;
            d->first[l][at++] = i;
        }
        d->shape[l][v] = mix(d->shape[l][v], (l == 0) ? 1 : d->shape[l - 1][d->list[l - 1][i]]);
    }
    d->first[l][at] = n_member;
    for (int v = 0; (t->node_class != NULL) && (l == t->machine.node_level) && (v < n); ++v)
        d->shape[l][v] = mix(d->shape[l][v], (uint64_t)t->node_class[v]);
    return CT_OK;
}

/* " (p3)" behind nodes of that class. */
static void add_class(const drawing *d, int l, int vertex)
{
    if ((d->t->node_class == NULL) || (l != d->t->machine.node_level)) return;
    ct_text_add(d->out, " (%s)", ct_topo_class(d->t, vertex)->name);
}

/* The ranks below list[l][first..last], ascending, in d->number. */
static int collect_ranks(const drawing *d, int l, int first, int last)
{
    int begin = first, end = last + 1, n;

    for (int k = l; k >= 0; --k) {
        begin = d->first[k][begin];
        end = d->first[k][end];
    }
    n = end - begin;
    memcpy(d->number, d->t->order + begin, sizeof(int) * (size_t)n);
    qsort(d->number, (size_t)n, sizeof(int), ascending);
    return n;
}

/* ---- lines */

static void indent(const drawing *d, int depth)
{
    ct_text_add(d->out, "%*s", 2 * depth, "");
}

/* "in each: 256 nodes of 1 rank", for the members of list[l][i], which stands for others too. */
static void draw_like(const drawing *d, int l, int i, int depth)
{
    const ct_topo *t = d->t;

    if (l == 0) return;
    for (int k = d->first[l][i]; k < d->first[l][i + 1];) {
        int last = k, n_rank;

        while ((last + 1 < d->first[l][i + 1]) &&
               (d->shape[l - 1][d->list[l - 1][last + 1]] == d->shape[l - 1][d->list[l - 1][k]]))
            last += 1;
        n_rank = t->n_inside[l - 1][d->list[l - 1][k]];
        indent(d, depth);
        ct_text_add(d->out, "in each: %d ", last - k + 1);
        ct_draw_noun(t->machine.level[l - 1].name, last - k + 1, d->out);
        add_class(d, l - 1, d->list[l - 1][k]);
        if (d->ranks) {
            ct_text_add(d->out, " of %d ", n_rank);
            ct_draw_noun("rank", n_rank, d->out);
        }
        ct_text_add(d->out, "\n");
        if (d->ranks || (l - 1 > t->machine.node_level)) draw_like(d, l - 1, k, depth + 1);
        k = last + 1;
    }
}

/* The vertices list[l][first..last], which are siblings: those alike in one line. */
static void draw_siblings(const drawing *d, int l, int first, int last, int depth)
{
    const ct_topo *t = d->t;
    bool inside = (l <= t->machine.node_level);
    bool share = inside || (t->n_vertex[l] > MANY) || (!d->ranks && (t->vertex_name[l] == NULL));

    for (int i = first; i <= last;) {
        int end = i, n;

        while (share && (end < last) &&
               (d->shape[l][d->list[l][end + 1]] == d->shape[l][d->list[l][i]]))
            end += 1;
        n = end - i + 1;
        indent(d, depth);
        if (n > 1) ct_text_add(d->out, "%d ", n);
        ct_draw_noun(t->machine.level[l].name, n, d->out);
        ct_text_add(d->out, " ");
        add_names(d, l, d->list[l] + i, n);
        add_class(d, l, d->list[l][i]);
        if (d->ranks) {
            int n_rank = collect_ranks(d, l, i, end);

            if ((n > 1) && (n_rank > n)) ct_text_add(d->out, ", %d each", n_rank / n);
            ct_text_add(d->out, ": ");
            ct_draw_noun("rank", n_rank, d->out);
            ct_text_add(d->out, " ");
            ct_draw_numbers(d->number, n_rank, d->out);
        }
        ct_text_add(d->out, "\n");
        if (!inside && (n == 1))
            draw_siblings(d, l - 1, d->first[l][i], d->first[l][i + 1] - 1, depth + 1);
        else if (d->ranks || !inside)
            draw_like(d, l, i, depth + 1);
        i = end + 1;
    }
}

static ct_status draw(const ct_topo *t, bool ranks, ct_text *out)
{
    drawing d = { .t = t, .out = out, .ranks = ranks };
    int top = t->machine.n_level - 1;
    ct_status status = CT_OK;

    d.number = malloc(sizeof(int) * (size_t)t->n_rank);
    if (d.number == NULL) status = CT_FAIL(CT_ERR_NOMEM, "no memory to draw %d ranks", t->n_rank);
    for (int l = 0; (l <= top) && (status == CT_OK); ++l) status = list_level(&d, l);
    if (status == CT_OK) {
        ct_text_add(out, "%s: ", t->machine.level[top].name);
        if (ranks) {
            ct_text_add(out, "%d ", t->n_rank);
            ct_draw_noun("rank", t->n_rank, out);
            ct_text_add(out, " on ");
        }
        for (int l = t->machine.node_level; l < top; ++l) {
            ct_text_add(out, "%s%d ", (l > t->machine.node_level) ? ", " : "", t->n_vertex[l]);
            ct_draw_noun(t->machine.level[l].name, t->n_vertex[l], out);
        }
        ct_text_add(out, "\n");
        draw_siblings(&d, top - 1, 0, t->n_vertex[top - 1] - 1, 1);
    }
    for (int l = 0; l <= top; ++l) {
        free(d.list[l]);
        free(d.first[l]);
        free(d.shape[l]);
    }
    free(d.number);
    if ((status == CT_OK) && out->failed) status = CT_FAIL(CT_ERR_NOMEM, "no memory for a drawing");
    return status;
}

ct_status ct_topo_draw(const ct_topo *t, ct_text *out)
{
    return draw(t, true, out);
}

ct_status ct_machine_draw(const ct_machine *m, ct_text *out)
{
    int64_t inside = ct_machine_product(m, 0, m->node_level);
    int64_t n_node = (m->names != NULL) ? m->names->n_node : ct_machine_n_node(m);
    int per_node = ((inside > 0) && (inside <= 1024)) ? (int)inside : 1;
    ct_topo *t = NULL;
    ct_status status = CT_OK;

    if ((n_node == 0) || (n_node * per_node > 1 << 26)) {
        ct_text_add(out, "%s: as many nodes as come\n", m->level[m->n_level - 1].name);
        return CT_OK;
    }
    CT_TRY(ct_topo_place(m, (int)n_node * per_node, per_node, "block", &t));
    status = draw(t, inside > 0, out);
    ct_topo_destroy(t);
    return status;
}
