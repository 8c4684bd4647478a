#include "comm/sparse/sparse_cost.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comm/collective/coll_types.h"
#include "comm/sparse/sparse_allreduce_impl.h"
#include "topology/topo.h"

enum { MAX_ROUND = 32, MAX_SHIFT = 32, OKTOPK_WINDOW = 8 };

static const double per_cleared = 8; /* bytes of memory traffic: an element that is cleared and, by
                                        the solver, read */

/* One step of all ranks, for messages of one byte. */
typedef struct step {
    double alpha_s, beta;
    const ct_level *level;
} step;

/* Exchanges among groups of m ranks, all groups at a time. */
typedef struct group {
    int m, n_round, n_shift;
    step ring, round[MAX_ROUND];
    step shift[MAX_SHIFT]; /* some of the m - 1, evenly spread */
} group;

struct ct_sparse_allreduce_model {
    group flat, lanes, node;
    ct_codec_speed speed;
};

typedef struct work {
    const ct_topo *t;
    ct_flow *flow;
    const int *table; /* [n_group][m], -1: nobody */
    int n_group, m;
} work;

static ct_status no_memory(void)
{
    return CT_FAIL(CT_ERR_NOMEM, "no memory for costs of sparse exchanges");
}

static ct_status send_all(work *w, int from, int to)
{
    for (int g = 0; g < w->n_group; ++g) {
        const int *rank = w->table + (size_t)g * (size_t)w->m;

        if ((rank[from] < 0) || (rank[to] < 0)) continue;
        CT_TRY(ct_flow_add(w->flow, rank[from], rank[to], 1));
    }
    return CT_OK;
}

static step take_step(work *w)
{
    step s = { .level = NULL };
    int slowest = ct_flow_slowest(w->flow);

    ct_flow_time(w->flow, &s.alpha_s, &s.beta);
    if (slowest >= 0) s.level = &w->t->machine.level[slowest];
    ct_flow_clear(w->flow);
    return s;
}

static ct_status shift_step(work *w, int by, step *out)
{
    for (int i = 0; i < w->m; ++i) CT_TRY(send_all(w, i, (i + by) % w->m));
    *out = take_step(w);
    return CT_OK;
}

/* The messages of all halves that are split `depth` levels below [at, at + n). */
static ct_status merge_at(work *w, int at, int n, int depth)
{
    int low = (n + 1) / 2, high = n / 2;

    if (n == 1) return CT_OK;
    if (depth > 0) {
        CT_TRY(merge_at(w, at, low, depth - 1));
        return merge_at(w, at + low, high, depth - 1);
    }
    for (int i = 0; i < high; ++i) {
        CT_TRY(send_all(w, at + i, at + low + i));
        CT_TRY(send_all(w, at + low + i, at + i));
    }
    return (low > high) ? send_all(w, at + low, at + high) : CT_OK;
}

static ct_status make_group(work *w, group *out)
{
    int m = w->m;

    *out = (group){ .m = m };
    if (m == 1) return CT_OK;
    CT_TRY(shift_step(w, 1, &out->ring));
    out->n_shift = (m - 1 < MAX_SHIFT) ? m - 1 : MAX_SHIFT;
    for (int i = 0; i < out->n_shift; ++i) {
        int by = 1;

        if (out->n_shift > 1) by += (int)((int64_t)i * (m - 2) / (out->n_shift - 1));
        CT_TRY(shift_step(w, by, &out->shift[i]));
    }
    while ((1 << out->n_round) < m) out->n_round += 1;
    for (int k = 0; k < out->n_round; ++k) { /* the lowest first */
        CT_TRY(merge_at(w, 0, m, out->n_round - 1 - k));
        out->round[k] = take_step(w);
    }
    return CT_OK;
}

/* Ranks by node and place on it: [n_node][most], -1 where a node has fewer. */
static int *table_of_nodes(const ct_topo *t, int most)
{
    int *table = malloc(sizeof(*table) * (size_t)t->n_node * (size_t)most);
    int node = -1;

    for (size_t i = 0; (table != NULL) && (i < (size_t)t->n_node * (size_t)most); ++i)
        table[i] = -1;
    for (int i = 0; (table != NULL) && (i < t->n_rank); ++i) {
        int r = t->order[i];

        if ((i == 0) || (t->node[t->order[i - 1]] != t->node[r])) node += 1;
        table[(size_t)node * (size_t)most + (size_t)t->local_rank[r]] = r;
    }
    return table;
}

static ct_status make_model(const ct_topo *t, work *w, ct_sparse_allreduce_model *m)
{
    int most = ct_topo_max_node_size(t), lanes = ct_topo_min_node_size(t);
    int *nodes = table_of_nodes(t, most);
    int *lane = malloc(sizeof(*lane) * (size_t)lanes * (size_t)t->n_node);
    ct_status status = CT_OK;

    if ((nodes == NULL) || (lane == NULL)) CT_TRY_GOTO(status, done, no_memory());
    for (size_t k = 0; k < (size_t)lanes; ++k) {
        for (size_t v = 0; v < (size_t)t->n_node; ++v)
            lane[k * (size_t)t->n_node + v] = nodes[v * (size_t)most + k];
    }
    *w = (work){ .t = t, .flow = w->flow, .table = t->order, .n_group = 1, .m = t->n_rank };
    CT_TRY_GOTO(status, done, make_group(w, &m->flat));
    *w = (work){ .t = t, .flow = w->flow, .table = lane, .n_group = lanes, .m = t->n_node };
    CT_TRY_GOTO(status, done, make_group(w, &m->lanes));
    *w = (work){ .t = t, .flow = w->flow, .table = nodes, .n_group = t->n_node, .m = most };
    CT_TRY_GOTO(status, done, make_group(w, &m->node));
    m->speed = ct_topo_codec_speed(t);

done:
    free(nodes);
    free(lane);
    return status;
}

ct_status ct_sparse_allreduce_model_create(const ct_topo *t, ct_sparse_allreduce_model **model_p)
{
    ct_sparse_allreduce_model *m = calloc(1, sizeof(*m));
    work w = { .t = t };
    ct_status status = CT_OK;

    if (m == NULL) return no_memory();
    CT_TRY_GOTO(status, done, ct_flow_create(t, &w.flow));
    CT_TRY_GOTO(status, done, make_model(t, &w, m));
    *model_p = m;
    m = NULL;

done:
    ct_flow_destroy(w.flow);
    ct_sparse_allreduce_model_destroy(m);
    return status;
}

void ct_sparse_allreduce_model_speed(ct_sparse_allreduce_model *m, const ct_topo *topo)
{
    m->speed = ct_topo_codec_speed(topo);
}

void ct_sparse_allreduce_model_destroy(ct_sparse_allreduce_model *m)
{
    free(m);
}

/* ---- seconds */

/* As cost.c's: what was measured of messages counts where a fit has it. */
static double transfer_s(const step *s, double bytes)
{
    double t = s->beta * bytes;

    if ((s->level != NULL) && (s->level->n_time > 0))
        t += ct_level_message_s(s->level, CT_PATTERN_SWAP, bytes) - s->level->latency_s -
             bytes / s->level->bandwidth;
    return fmax(0, t);
}

static double step_s(const step *s, double bytes)
{
    return s->alpha_s + transfer_s(s, bytes);
}

static double stream_s(const ct_sparse_allreduce_model *m, double bytes)
{
    return (m->speed.memory > 0) ? bytes / m->speed.memory : 0;
}

static double clear_s(const ct_sparse_allreduce_model *m, int64_t n)
{
    return stream_s(m, per_cleared * (double)n);
}

static void allgather_s(const ct_sparse_allreduce_model *m, const group *g, int64_t n, int64_t k,
                        ct_payload_form form, ct_sparse_allreduce_seconds *out)
{
    out->wire_s = (g->m - 1) * step_s(&g->ring, (double)ct_payload_bytes(form, n, k));
    out->work_s = clear_s(m, n) + m->speed.add_s * (double)k * g->m;
}

static void gtopk_s(const ct_sparse_allreduce_model *m, const group *g, int64_t n, int64_t k,
                    ct_payload_form form, ct_sparse_allreduce_seconds *out)
{
    *out = (ct_sparse_allreduce_seconds){ .work_s = clear_s(m, n) };
    for (int i = 0; i < g->n_round; ++i) {
        ct_payload_form f = (i == 0) ? form : ct_sparse_allreduce_merged_form(form);

        out->wire_s += step_s(&g->round[i], (double)ct_payload_bytes(f, n, k));
        out->work_s += m->speed.merge_s * 2 * (double)k;
    }
}

/* To everyone else, a few under way at a time. */
static double split_s(const group *g, double bytes)
{
    double s = 0;

    for (int i = 0; i < g->n_shift; ++i)
        s += g->shift[i].alpha_s / OKTOPK_WINDOW + transfer_s(&g->shift[i], bytes);
    return (g->n_shift > 0) ? s * (double)(g->m - 1) / g->n_shift : 0;
}

static void oktopk_s(const ct_sparse_allreduce_model *m, const group *g, int64_t n, int64_t k,
                     ct_payload_form form, ct_sparse_allreduce_seconds *out)
{
    int64_t region = n / g->m, share = ct_sparse_allreduce_share(k, g->m);
    double split = split_s(g, (double)ct_payload_bytes(form, region, share));
    double bytes = (double)ct_payload_bytes(ct_sparse_allreduce_merged_form(form), region, share);
    bytes += sizeof(ct_region_news);
    out->wire_s = split + (g->m - 1) * step_s(&g->ring, bytes);
    out->work_s = clear_s(m, n) + (m->speed.merge_s + m->speed.add_s) * (double)k;
}

/* Clearing, putting, and counting what is not 0. */
static void dense_s(const ct_sparse_allreduce_model *m, int64_t n, int64_t k,
                    ct_sparse_allreduce_seconds *out)
{
    *out = (ct_sparse_allreduce_seconds){
        .work_s =
            clear_s(m, n) + stream_s(m, sizeof(float) * (double)n) + m->speed.add_s * (double)k,
    };
}

static void among_s(const ct_sparse_allreduce_model *m, const group *g,
                    ct_sparse_allreduce_kind kind, int64_t n, int64_t k, ct_payload_form form,
                    ct_sparse_allreduce_seconds *out)
{
    if (kind == CT_SPARSE_ALLREDUCE_GTOPK)
        gtopk_s(m, g, n, k, form, out);
    else if (kind == CT_SPARSE_ALLREDUCE_OKTOPK)
        oktopk_s(m, g, n, k, form, out);
    else
        allgather_s(m, g, n, k, form, out);
}

/* Ranks of a node, of unlike ones in the mean; every node has one. */
static int lanes_of(const ct_sparse_allreduce_model *m)
{
    return m->flat.m / m->lanes.m;
}

ct_sparse_allreduce_kind ct_sparse_allreduce_model_inner(const ct_sparse_allreduce_model *m,
                                                         int64_t n, int64_t k, ct_payload_form form)
{
    ct_sparse_allreduce_kind best = CT_SPARSE_ALLREDUCE_ALLGATHER;
    double least = DBL_MAX;
    int lanes = lanes_of(m);

    for (int kind = CT_SPARSE_ALLREDUCE_ALLGATHER; kind < CT_SPARSE_ALLREDUCE_HIER; ++kind) {
        ct_sparse_allreduce_seconds s;

        among_s(m, &m->lanes, (ct_sparse_allreduce_kind)kind, n / lanes,
                ct_sparse_allreduce_share(k, lanes), form, &s);
        if (s.wire_s + s.work_s >= least) continue;
        least = s.wire_s + s.work_s;
        best = (ct_sparse_allreduce_kind)kind;
    }
    return best;
}

/* The node's sum of slices in f32, and so many bytes of each owner to the node's others. */
static void add_node_s(const ct_sparse_allreduce_model *m, int64_t slice, double bytes,
                       ct_sparse_allreduce_seconds *out)
{
    for (int i = 0; i < m->node.n_shift; ++i)
        out->wire_s +=
            step_s(&m->node.shift[i], 4 * (double)slice) * (m->node.m - 1) / m->node.n_shift;
    out->wire_s += (m->node.m - 1) * step_s(&m->node.ring, bytes);
    out->work_s += stream_s(m, 12 * (double)slice * (m->node.m - 1));
}

void ct_sparse_allreduce_model_two_hops_s(const ct_sparse_allreduce_model *m, int64_t n,
                                          double bytes, ct_sparse_allreduce_seconds *out)
{
    int lanes = lanes_of(m), nodes = m->lanes.m;
    double part = bytes / lanes / nodes;
    int64_t each = n / lanes;

    *out = (ct_sparse_allreduce_seconds){
        .wire_s = 2 * split_s(&m->lanes, part),
    };
    add_node_s(m, each, 4 * (double)each, out);
}

void ct_sparse_allreduce_model_hier_s(const ct_sparse_allreduce_model *m,
                                      ct_sparse_allreduce_kind inner, int64_t n, int64_t k,
                                      ct_payload_form form, ct_sparse_allreduce_seconds *out)
{
    int lanes = lanes_of(m);
    int64_t slice = n / lanes, share = ct_sparse_allreduce_share(k, lanes), filled = share;

    among_s(m, &m->lanes, inner, slice, share, form, out);
    if (inner == CT_SPARSE_ALLREDUCE_ALLGATHER)
        filled = ct_sparse_allreduce_union(slice, share, m->lanes.m);
    add_node_s(m, slice, (double)ct_payload_bytes(CT_PAYLOAD_PAIRS, slice, filled), out);
    out->work_s += clear_s(m, n - slice) + m->speed.add_s * (double)filled * lanes;
}

void ct_sparse_allreduce_model_s(const ct_sparse_allreduce_model *m, ct_sparse_allreduce_kind kind,
                                 int64_t n, int64_t k, ct_payload_form form,
                                 ct_sparse_allreduce_seconds *out)
{
    if (k > n) k = n;
    if (kind == CT_SPARSE_ALLREDUCE_HIER)
        ct_sparse_allreduce_model_hier_s(m, ct_sparse_allreduce_model_inner(m, n, k, form), n, k,
                                         form, out);
    else if (kind == CT_SPARSE_ALLREDUCE_DENSE)
        dense_s(m, n, k, out);
    else
        among_s(m, &m->flat, kind, n, k, form, out);
}

int64_t ct_sparse_allreduce_model_hier_bytes(const ct_sparse_allreduce_model *m,
                                             ct_sparse_allreduce_kind inner, int64_t n, int64_t k,
                                             ct_payload_form form)
{
    int lanes = lanes_of(m), nodes = m->lanes.m;
    int64_t slice = n / lanes, share = ct_sparse_allreduce_share(k, lanes), filled = share;

    if (inner == CT_SPARSE_ALLREDUCE_ALLGATHER)
        filled = (nodes * share < slice) ? nodes * share : slice;
    return ct_sparse_allreduce_bytes(inner, nodes, slice, share, form) +
           (lanes - 1) * (4 * slice + (int64_t)ct_payload_bytes(CT_PAYLOAD_PAIRS, slice, filled));
}

int64_t ct_sparse_allreduce_model_bytes(const ct_sparse_allreduce_model *m,
                                        ct_sparse_allreduce_kind kind, int64_t n, int64_t k,
                                        ct_payload_form form)
{
    if (kind != CT_SPARSE_ALLREDUCE_HIER)
        return ct_sparse_allreduce_bytes(kind, m->flat.m, n, k, form);
    return ct_sparse_allreduce_model_hier_bytes(m, ct_sparse_allreduce_model_inner(m, n, k, form),
                                                n, k, form);
}

const char *ct_sparse_allreduce_kind_name(ct_sparse_allreduce_kind kind)
{
    static const char *const name[] = { [CT_SPARSE_ALLREDUCE_ALLGATHER] = "allgather",
                                        [CT_SPARSE_ALLREDUCE_GTOPK] = "gtopk",
                                        [CT_SPARSE_ALLREDUCE_OKTOPK] = "oktopk",
                                        [CT_SPARSE_ALLREDUCE_HIER] = "hier",
                                        [CT_SPARSE_ALLREDUCE_DENSE] = "dense" };

    return name[kind];
}

double ct_sparse_allreduce_model_ring_s(const ct_sparse_allreduce_model *m, double bytes)
{
    return (m->flat.m - 1) * step_s(&m->flat.ring, bytes);
}

double ct_sparse_allreduce_model_split_s(const ct_sparse_allreduce_model *m, double bytes)
{
    return split_s(&m->flat, bytes);
}

const ct_codec_speed *ct_sparse_allreduce_model_coding(const ct_sparse_allreduce_model *m)
{
    return &m->speed;
}

double ct_sparse_allreduce_cost_s(const ct_comm *c, ct_sparse_allreduce_kind kind, int64_t n,
                                  int64_t k, ct_payload_form form)
{
    const ct_sparse_allreduce_model *m = NULL;
    ct_sparse_allreduce_seconds s;

    if (ct_sparse_allreduce_model_of(c, &m) != CT_OK) return DBL_MAX;
    ct_sparse_allreduce_model_s(m, kind, n, k, form, &s);
    return s.wire_s + s.work_s;
}

static const char model_key; /* of what the communicator keeps */

static void destroy_model(void *what)
{
    ct_sparse_allreduce_model_destroy(what);
}

ct_status ct_sparse_allreduce_model_of(const ct_comm *c, const ct_sparse_allreduce_model **model_p)
{
    ct_sparse_allreduce_model *model = ct_comm_attached(c, &model_key);

    if (model == NULL) {
        CT_TRY(ct_sparse_allreduce_model_create(c->topo, &model));
        CT_TRY(ct_comm_attach(c, &model_key, model, destroy_model));
    }
    *model_p = model;
    return CT_OK;
}

void ct_sparse_allreduce_model_renew(const ct_comm *c)
{
    ct_sparse_allreduce_model *model = ct_comm_attached(c, &model_key);

    if (model != NULL) ct_sparse_allreduce_model_speed(model, c->topo);
}
