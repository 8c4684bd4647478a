#include "topology/topo.h"

#include <stdlib.h>
#include <string.h>

/* What two members that are joined pairwise carry, in one direction. */
typedef struct pair_load {
    int64_t key; /* from * members of the level + to, + 1; 0: free */
    double bytes;
} pair_load;

struct ct_flow {
    const ct_topo *t;
    double *up[CT_MAX_LEVEL], *down[CT_MAX_LEVEL]; /* [members of the level] bytes */
    double *bus[CT_MAX_LEVEL];                     /* [n_vertex[l]]; NULL: no bus  */
    double *torus;         /* [vertices of its level x nodes x 2 dimensions]; NULL: no torus */
    int64_t n_torus, *way; /* [diameter] */
    int *n_member[CT_MAX_LEVEL]; /* [n_vertex[l]] if pairwise    */
    pair_load *pair[CT_MAX_LEVEL];
    int64_t n_pair[CT_MAX_LEVEL], pair_room[CT_MAX_LEVEL]; /* room: a power of two, or 0 */
    double met[CT_MAX_LEVEL];
    double alpha_s, beta_s;
    int slowest;
};

/* Members of all vertices of level l: ranks, or vertices of the level below. */
static int64_t members(const ct_topo *t, int l)
{
    return (l == 0) ? t->n_rank : t->n_vertex[l - 1];
}

static int member_of(const ct_topo *t, int l, int rank)
{
    return (l == 0) ? rank : t->vertex[l - 1][rank];
}

void ct_flow_destroy(ct_flow *f)
{
    if (f == NULL) return;
    for (int l = 0; l < CT_MAX_LEVEL; ++l) {
        free(f->up[l]);
        free(f->down[l]);
        free(f->bus[l]);
        free(f->n_member[l]);
        free(f->pair[l]);
    }
    free(f->torus);
    free(f->way);
    free(f);
}

/* How many members each vertex of a pairwise level has on the whole machine, or at least in use. */
static ct_status count_members(ct_flow *f, int l)
{
    const ct_topo *t = f->t;
    int64_t full = t->machine.level[l].size;

    f->n_member[l] = calloc((size_t)t->n_vertex[l], sizeof(*f->n_member[l]));
    if (f->n_member[l] == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for loads of links");
    for (int64_t m = 0; m < members(t, l); ++m)
        f->n_member[l][(l == 0) ? t->vertex[0][m] : t->parent[l - 1][m]] += 1;
    for (int v = 0; v < t->n_vertex[l]; ++v) {
        if (full > f->n_member[l][v]) f->n_member[l][v] = (int)full;
    }
    return CT_OK;
}

static ct_status acquire_torus(ct_flow *f)
{
    const ct_topo *t = f->t;
    int l = t->machine.node_level + 1;
    const ct_torus *on = &t->machine.level[l].torus;

    if (t->torus_place == NULL) return CT_OK;
    f->n_torus = t->n_vertex[l] * ct_torus_nodes(on) * 2 * on->n_dim;
    f->torus = calloc((size_t)f->n_torus, sizeof(*f->torus));
    f->way = calloc((size_t)ct_torus_diameter(on) + 1, sizeof(*f->way));
    if ((f->torus == NULL) || (f->way == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for loads of links");
    return CT_OK;
}

static ct_status acquire(ct_flow *f)
{
    const ct_topo *t = f->t;

    for (int l = 0; l < t->machine.n_level; ++l) {
        f->up[l] = calloc((size_t)members(t, l), sizeof(double));
        f->down[l] = calloc((size_t)members(t, l), sizeof(double));
        if ((f->up[l] == NULL) || (f->down[l] == NULL))
            return CT_FAIL(CT_ERR_NOMEM, "no memory for loads of links");
        if (t->machine.level[l].bus > 0) {
            f->bus[l] = calloc((size_t)t->n_vertex[l], sizeof(double));
            if (f->bus[l] == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for loads of links");
        }
        if (t->machine.level[l].pairwise) CT_TRY(count_members(f, l));
    }
    return acquire_torus(f);
}

ct_status ct_flow_create(const ct_topo *t, ct_flow **flow_p)
{
    ct_flow *f = calloc(1, sizeof(*f));
    ct_status status = CT_OK;

    if (f == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for loads of links");
    f->t = t;
    f->slowest = -1;
    status = acquire(f);
    if (status != CT_OK) {
        ct_flow_destroy(f);
        return status;
    }
    *flow_p = f;
    return CT_OK;
}

void ct_flow_clear(ct_flow *f)
{
    const ct_topo *t = f->t;

    for (int l = 0; l < t->machine.n_level; ++l) {
        memset(f->up[l], 0, sizeof(double) * (size_t)members(t, l));
        memset(f->down[l], 0, sizeof(double) * (size_t)members(t, l));
        if (f->bus[l] != NULL) memset(f->bus[l], 0, sizeof(double) * (size_t)t->n_vertex[l]);
        if (f->pair[l] != NULL)
            memset(f->pair[l], 0, sizeof(*f->pair[l]) * (size_t)f->pair_room[l]);
        f->n_pair[l] = 0;
        f->met[l] = 0;
    }
    if (f->torus != NULL) memset(f->torus, 0, sizeof(*f->torus) * (size_t)f->n_torus);
    f->alpha_s = f->beta_s = 0;
    f->slowest = -1;
}

/* The entry of a key in a table of `room` entries, or the free one where it belongs. */
static pair_load *find_pair(pair_load *table, int64_t room, int64_t key)
{
    uint64_t at = (uint64_t)key * 0x9e3779b97f4a7c15u >> 20;

    while ((table[at & (uint64_t)(room - 1)].key != 0) &&
           (table[at & (uint64_t)(room - 1)].key != key))
        at += 1;
    return &table[at & (uint64_t)(room - 1)];
}

static ct_status grow_pairs(ct_flow *f, int l)
{
    int64_t room = (f->pair_room[l] == 0) ? 1024 : 2 * f->pair_room[l];
    pair_load *more = calloc((size_t)room, sizeof(*more));

    if (more == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for loads of links");
    for (int64_t i = 0; i < f->pair_room[l]; ++i) {
        if (f->pair[l][i].key != 0) *find_pair(more, room, f->pair[l][i].key) = f->pair[l][i];
    }
    free(f->pair[l]);
    f->pair[l] = more;
    f->pair_room[l] = room;
    return CT_OK;
}

/* The load of the link between two members, with this message. */
static ct_status add_pair(ct_flow *f, int l, int from, int to, double bytes, double *load_p)
{
    int64_t key = from * members(f->t, l) + to + 1;
    pair_load *entry = NULL;

    if (2 * f->n_pair[l] >= f->pair_room[l]) CT_TRY(grow_pairs(f, l));
    entry = find_pair(f->pair[l], f->pair_room[l], key);
    if (entry->key == 0) f->n_pair[l] += 1;
    entry->key = key;
    entry->bytes += bytes;
    *load_p = entry->bytes;
    return CT_OK;
}

/* Takes note of a link that carries `bytes` and passes `capacity` bytes a second; 0: no limit. */
static void note(ct_flow *f, double bytes, double capacity)
{
    if ((capacity > 0) && (bytes > f->beta_s * capacity)) f->beta_s = bytes / capacity;
}

/* Figures of a job's own vertex, where nodes are of several classes. */
static double uplink_of(const ct_topo *t, int l, int member)
{
    return (t->node_class == NULL) ? t->machine.level[l].uplink : ct_topo_uplink(t, l, member);
}

/* Half of the message each way round, which is the same way where one is shorter. Returns how many
 * links it passes. */
static int add_to_torus(ct_flow *f, int from, int to, double bytes)
{
    const ct_topo *t = f->t;
    int l = t->machine.node_level + 1, n = 0;
    const ct_torus *on = &t->machine.level[l].torus;
    double *load = f->torus + t->vertex[l][from] * ct_torus_nodes(on) * 2 * on->n_dim;
    int64_t a = t->torus_place[t->node[from]], b = t->torus_place[t->node[to]];

    for (int other = 0; other < 2; ++other) {
        n = ct_torus_way(on, a, b, other, f->way);
        for (int i = 0; i < n; ++i) {
            load[f->way[i]] += bytes / 2;
            note(f, load[f->way[i]], t->machine.level[l].bandwidth);
        }
    }
    return n;
}

/* What the message meets first: the latency of its level, and of its way there. */
static void take_latency(ct_flow *f, int level, double latency_s)
{
    if ((f->slowest >= 0) && (latency_s <= f->alpha_s)) return;
    f->alpha_s = latency_s;
    f->slowest = level;
}

ct_status ct_flow_add(ct_flow *f, int from, int to, double bytes)
{
    const ct_topo *t = f->t;
    int top = ct_topo_meet(t, from, to);
    const ct_level *at = NULL;

    if (top < 0) return CT_OK;
    at = &t->machine.level[top];
    f->met[top] += bytes;
    if (at->torus.n_dim > 0) {
        int n = add_to_torus(f, from, to, bytes);

        take_latency(f, top, at->latency_s + (n - 1) * at->hop_s);
    } else {
        take_latency(f, top, at->latency_s);
        note(f, bytes, ct_topo_bandwidth(t, top, t->vertex[top][from]));
    }
    for (int l = 0; l <= top; ++l) {
        int a = member_of(t, l, from), b = member_of(t, l, to);

        f->up[l][a] += bytes;
        f->down[l][b] += bytes;
        note(f, f->up[l][a], uplink_of(t, l, a));
        note(f, f->down[l][b], uplink_of(t, l, b));
    }
    if (f->bus[top] != NULL) {
        double *bus = &f->bus[top][t->vertex[top][from]];

        *bus += bytes;
        note(f, *bus, ct_topo_bus(t, top, t->vertex[top][from]));
    }
    if (at->pairwise) {
        int n = f->n_member[top][t->vertex[top][from]];
        double load = 0;

        CT_TRY(add_pair(f, top, member_of(t, top, from), member_of(t, top, to), bytes, &load));
        note(f, load, at->uplink / (n - 1));
    }
    return CT_OK;
}

void ct_flow_time(const ct_flow *f, double *alpha_s_p, double *beta_s_p)
{
    *alpha_s_p = f->alpha_s;
    *beta_s_p = f->beta_s;
}

int ct_flow_slowest(const ct_flow *f)
{
    return f->slowest;
}

double ct_flow_met(const ct_flow *f, int level)
{
    return f->met[level];
}
