#include "planner/job_machine.h"

#include <math.h>
#include <stdlib.h>

/* A message through shared memory is written, read, and written where it belongs. */
#define COPIES 3.0
/* … and takes so long at least. */
#define SHARED_LATENCY_S 1e-6

/* ---- made */

static double or_else(double given, double otherwise)
{
    return (given > 0) ? given : otherwise;
}

static void fill_class(const ct_job_request *q, const ct_node_class *c, ct_job_class *k)
{
    const ct_machine *m = q->machine;
    double ranks = q->ranks_per_node, pair, bus, memory = 0;

    k->speed = (c != NULL) ? c->speed : 1;
    k->flop = k->speed * q->limits.flop / ranks;
    k->bytes = k->speed * q->limits.bytes / ranks;
    k->inject = INFINITY;
    k->measured = -1;
    if (m == NULL) {
        pair = bus = q->limits.bytes / COPIES;
    } else {
        const ct_level *in = &m->level[m->node_level], *out = &m->level[m->node_level + 1];

        pair = in->bandwidth;
        bus = (in->bus > 0) ? in->bus : ranks * pair;
        if ((c != NULL) && (c->inside > 0)) {
            bus *= c->inside / pair;
            pair = c->inside;
        }
        k->inject = or_else((c != NULL) ? c->inject : 0, or_else(out->uplink, out->bandwidth));
        memory = (c != NULL) ? c->memory / ranks : 0;
    }
    k->inside = fmin(pair, bus / ranks);
    k->memory = memory;
    if ((q->memory > 0) && ((memory == 0) || (q->memory < memory))) k->memory = q->memory;
}

static void fill_levels(const ct_machine *machine, ct_job_machine *m)
{
    ct_machine filled = *machine;

    ct_machine_fill_uplinks(&filled, NULL);
    m->latency_s = filled.level[filled.node_level].latency_s;
    for (int l = filled.node_level + 1; l < filled.n_level; l++) {
        const ct_level *from = &filled.level[l];
        ct_job_level *to = &m->level[m->n_level++];

        *to = (ct_job_level){ .nodes = ct_machine_product(&filled, filled.node_level + 1, l),
                              .latency_s = from->latency_s,
                              .bandwidth = from->bandwidth,
                              .uplink = from->uplink };
        if (l == filled.n_level - 1) to->nodes = 0;
        /* of members that are joined pairwise each pair has its part */
        if (from->pairwise && (from->size > 1)) to->uplink /= (double)(from->size - 1);
    }
}

static ct_status fill_nodes(const ct_job_request *q, ct_job_machine *m)
{
    m->node_class = calloc((size_t)m->n_node, sizeof(*m->node_class));
    if (m->node_class == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d nodes", m->n_node);
    m->n_class = 1;
    if ((q->machine == NULL) || (q->machine->n_node_class == 0)) {
        fill_class(q, NULL, &m->kind[0]);
        return CT_OK;
    }
    m->n_class = q->machine->n_node_class;
    for (int k = 0; k < m->n_class; k++) fill_class(q, &q->machine->node_class[k], &m->kind[k]);
    for (int i = 0; i < m->n_node; i++) m->node_class[i] = ct_machine_node_class(q->machine, i);
    return CT_OK;
}

ct_status ct_job_machine_make(const ct_job_request *q, ct_job_machine *m)
{
    ct_job_machine made = { .n_rank = q->n_rank, .ranks_per_node = q->ranks_per_node };
    int64_t nodes = (q->machine != NULL) ? ct_machine_n_node(q->machine) : 1;
    ct_status status;

    if ((q->n_rank < 1) || (q->ranks_per_node < 1) || (q->n_rank % q->ranks_per_node != 0))
        return CT_FAIL(CT_ERR_CONFIG, "%d ranks cannot be %d on each node", q->n_rank,
                       q->ranks_per_node);
    made.n_node = q->n_rank / q->ranks_per_node;
    if ((nodes > 0) && (made.n_node > nodes))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%d ranks, %d on a node, need %d nodes, but the machine has %lld", q->n_rank,
                       q->ranks_per_node, made.n_node, (long long)nodes);
    made.latency_s = SHARED_LATENCY_S;
    if (q->machine != NULL) fill_levels(q->machine, &made);
    status = fill_nodes(q, &made);
    if (status == CT_OK)
        *m = made;
    else
        ct_job_machine_destroy(&made);
    return status;
}

void ct_job_machine_destroy(ct_job_machine *m)
{
    free(m->node_class);
    *m = (ct_job_machine){ 0 };
}

/* ---- places */

int ct_job_data_of(const ct_job_layout *l, int stage)
{
    return (l->file != NULL) ? l->file->stage[stage].n_replica : l->data;
}

int ct_job_tensor_of(const ct_job_layout *l, int stage)
{
    return (l->file != NULL) ? l->file->stage[stage].tensor : l->tensor;
}

/* The rank at the i-th place of a stage. */
static int rank_at(const ct_job_layout *l, int stage, int64_t i)
{
    int k = l->machine->ranks_per_node;
    int64_t at = (int64_t)stage * l->data * l->tensor + i;

    return (l->file != NULL) ? l->file->stage[stage].rank[i] : l->order[at / k] * k + (int)(at % k);
}

static int node_at(const ct_job_layout *l, int stage, int64_t i)
{
    return rank_at(l, stage, i) / l->machine->ranks_per_node;
}

int ct_job_rank(const ct_job_layout *l, int stage, int replica, int part)
{
    return rank_at(l, stage, (int64_t)replica * ct_job_tensor_of(l, stage) + part);
}

int ct_job_node(const ct_job_layout *l, int stage, int replica, int part)
{
    return ct_job_rank(l, stage, replica, part) / l->machine->ranks_per_node;
}

int ct_job_class_of(const ct_job_layout *l, int stage, int replica)
{
    return l->machine->node_class[ct_job_node(l, stage, replica, 0)];
}

/* ---- links */

static const ct_job_class *kind_of(const ct_job_machine *m, int node)
{
    return &m->kind[m->node_class[node]];
}

static int64_t vertex(const ct_job_machine *m, int level, int node)
{
    return (m->level[level].nodes > 0) ? node / m->level[level].nodes : 0;
}

/* Between two nodes; so many streams leave a, and enter b. */
static ct_job_link between(const ct_job_machine *m, int a, int b, double out, double in, bool dense)
{
    ct_job_link k = { 0 };

    if (a == b) return (ct_job_link){ 1 / kind_of(m, a)->inside, m->latency_s, 0 };
    k.card_s = fmax(out / kind_of(m, a)->inject, in / kind_of(m, b)->inject);
    k.byte_s = k.card_s;
    for (int l = 0; l < m->n_level; l++) {
        if (l > 0) {
            double below = dense ? (double)m->level[l - 1].nodes : 1;

            if (m->level[l].uplink > 0)
                k.byte_s = fmax(k.byte_s, fmax(out, in) * below / m->level[l].uplink);
        }
        if (vertex(m, l, a) != vertex(m, l, b)) continue;
        k.byte_s = fmax(k.byte_s, 1 / m->level[l].bandwidth);
        k.latency_s = m->level[l].latency_s;
        break;
    }
    return k;
}

static void take_slower(ct_job_link *most, ct_job_link k)
{
    most->byte_s = fmax(most->byte_s, k.byte_s);
    most->latency_s = fmax(most->latency_s, k.latency_s);
    most->card_s = fmax(most->card_s, k.card_s);
}

/* Edges go from each of n places of a stage on, from `first`: `step` places ahead in a ring of them
 * all; or (step 0) from all ranks of a stage to those of another, in proportion where one has more.
 * As many streams leave a node as it has of these places. */
typedef struct edges {
    const ct_job_layout *l;
    int stage, to;
    int64_t first, n, step;
} edges;

static int64_t ranks_of(const ct_job_layout *l, int stage)
{
    return (int64_t)ct_job_data_of(l, stage) * ct_job_tensor_of(l, stage);
}

static int start_at(const edges *e, int64_t i)
{
    if (e->step > 0) return node_at(e->l, e->stage, e->first + i);
    return node_at(e->l, e->stage, i * ranks_of(e->l, e->stage) / e->n);
}

static int end_at(const edges *e, int64_t i)
{
    if (e->step > 0) return node_at(e->l, e->stage, e->first + (i + e->step) % e->n);
    return node_at(e->l, e->to, i * ranks_of(e->l, e->to) / e->n);
}

/* Streams between two nodes go on from rank to rank; those of a node are counted at its first. A
 * file may list the ranks of a node anywhere. */
static ct_job_link slowest(const edges *e, bool dense)
{
    const ct_job_machine *m = e->l->machine;
    bool anywhere = (e->l->file != NULL);
    ct_job_link most = { 0 };

    for (int64_t i = 0, end; i < e->n; i = end) {
        int a = start_at(e, i);
        int64_t streams = 0;

        for (end = i; (end < e->n) && (start_at(e, end) == a); end++) {
        }
        for (int64_t x = anywhere ? 0 : i; x < (anywhere ? e->n : end); x++)
            streams += (start_at(e, x) == a) && (end_at(e, x) != a);
        for (int64_t x = i; x < end; x++)
            take_slower(&most,
                        between(m, a, end_at(e, x), (double)streams, (double)streams, dense));
    }
    return most;
}

ct_job_link ct_job_tensor_link(const ct_job_layout *l, int stage)
{
    int tensor = ct_job_tensor_of(l, stage);
    ct_job_link most = { 0 };

    if (tensor == 1) return most;
    for (int j = 0; j < ct_job_data_of(l, stage); j++) {
        edges e = { l, stage, stage, (int64_t)j * tensor, tensor, 1 };

        take_slower(&most, slowest(&e, true));
    }
    return most;
}

ct_job_link ct_job_ring_link(const ct_job_layout *l, int stage)
{
    edges e = { l, stage, stage, 0, ranks_of(l, stage), ct_job_tensor_of(l, stage) };

    return (ct_job_data_of(l, stage) > 1) ? slowest(&e, false) : (ct_job_link){ 0 };
}

ct_job_link ct_job_cut_link(const ct_job_layout *l, int stage, int to)
{
    int64_t a = ranks_of(l, stage), b = ranks_of(l, to);
    edges e = { l, stage, to, 0, (a > b) ? a : b, 0 };

    return slowest(&e, true);
}
