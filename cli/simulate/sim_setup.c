#include "cli/simulate/sim_setup.h"

#include <ctype.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const ct_option ct_sim_option_table[] = {
    { "machine", CT_OPTION_TEXT, "*", "NAME|FILE|SPEC", "the machine: docs/topology.md" },
    { "nodes", CT_OPTION_SOME, "*", "N", "nodes in use" },
    { "ranks_per_node", CT_OPTION_SOME, "*", "N", "ranks on a node (1)" },
    { "placement", CT_OPTION_TEXT, "*", "block|cyclic|random:SEED", "of the ranks (block)" },
    { "order", CT_OPTION_CHOICE, "*", "tree|rank",
      "collectives join ranks that are near (tree), or take them as they are numbered" },
    { "profile", CT_OPTION_TEXT, "*", "FILE", "of the net: cortado time --json" },
    { "pass", CT_OPTION_TEXT, "*", "FILE",
      "a forward pass that ranks share: cortado check --parallel --phase=TEST --json" },
    { "images_per_s", CT_OPTION_TEXT, "*", "S", "of one rank alone, instead of the profile's" },
    { "batch", CT_OPTION_SOME, "*", "N", "of one rank, instead of the profile's" },
    { "iterations", CT_OPTION_SOME, "*", "N", "that count (2)" },
    { "warmup", CT_OPTION_COUNT, "*", "N", "iterations before them (1); 0 with --overlap=off" },
    { "jitter_seed", CT_OPTION_SEED, "*", "SEED",
      "each rank's steps vary as the profile's samples do; without it they do not" },
    { "overlap", CT_OPTION_CHOICE, "*", "off|backward|both", "how far communication hides (both)" },
    { "progress", CT_OPTION_CHOICE, "*", "thread|poll",
      "communication moves as soon as it can, or at the profile's poll points (thread)" },
    { "set", CT_OPTION_LIST, "*", "FIELD=VALUE", "a solver field, such as comm.bucket_mb" },
    { "compression", CT_OPTION_TEXT, "*", "TYPE[:FIELD=VALUE,...]", "as in cortado train" },
    { "bench", CT_OPTION_TEXT, "*", "BYTES[,BYTES]", "collectives alone, instead of training" },
    { "algorithm", CT_OPTION_TEXT, "*", "NAME|all", "of the bench (all)" },
    { "kind", CT_OPTION_CHOICE, "*", "allreduce|reduce_scatter|allgather",
      "of the bench: a whole sum, or one of its halves (allreduce)" },
    { "check", CT_OPTION_FLAG, "*", NULL, "the sums of the bench (needs a build with SIM_REAL=1)" },
    { "json", CT_OPTION_OUT, "*", "FILE", "where the result goes; standard output without it" },
};

const int ct_sim_option_table_n = sizeof(ct_sim_option_table) / sizeof(ct_sim_option_table[0]);

const char *ct_sim_placement(const ct_options *o)
{
    const char *text = ct_options_text(o, "placement");

    return (text != NULL) ? text : "block";
}

static ct_status count_ranks(const ct_options *o, int n_rank, int64_t *per_node_p, int64_t *n_p)
{
    int64_t nodes = ct_options_count(o, "nodes", 0);

    *per_node_p = ct_options_count(o, "ranks_per_node", 1);
    *n_p = (n_rank > 0) ? n_rank : nodes * *per_node_p;
    if ((n_rank == 0) && (nodes < 1))
        return CT_FAIL(CT_ERR_CONFIG, "--nodes=N is needed: how many nodes, 1 or more");
    if ((*per_node_p < 1) || (nodes > INT_MAX) || (*per_node_p > INT_MAX) || (*n_p > INT_MAX))
        return CT_FAIL(CT_ERR_CONFIG, "--nodes=%lld --ranks_per_node=%lld", (long long)nodes,
                       (long long)*per_node_p);
    if ((nodes > 0) && (nodes * *per_node_p != *n_p))
        return CT_FAIL(CT_ERR_CONFIG, "--nodes=%lld and --ranks_per_node=%lld, but %d ranks run",
                       (long long)nodes, (long long)*per_node_p, n_rank);
    return CT_OK;
}

static bool is_spec(const char *machine)
{
    static const char torus[] = "torus:";

    if (strncmp(machine, torus, sizeof(torus) - 1) == 0) return true;
    return isdigit((unsigned char)machine[0]) && (access(machine, F_OK) != 0);
}

ct_status ct_sim_place(const ct_options *o, int n_rank, ct_topo **topo_p)
{
    const char *order = ct_options_text(o, "order"), *name = ct_options_text(o, "machine");
    ct_machine *machine = NULL;
    int64_t per_node = 1, n = 0;
    ct_status status = CT_OK;

    if (name == NULL) return CT_FAIL(CT_ERR_CONFIG, "--machine=NAME is missing");
    CT_TRY(count_ranks(o, n_rank, &per_node, &n));
    if (is_spec(name))
        CT_TRY(ct_machine_from_spec(name, &machine));
    else
        CT_TRY(ct_machine_read(name, &machine));
    status = ct_topo_place(machine, (int)n, (int)per_node, ct_sim_placement(o), topo_p);
    ct_machine_destroy(machine);
    CT_TRY(status);
    for (int r = 0; (order != NULL) && (strcmp(order, "rank") == 0) && (r < n); ++r)
        (*topo_p)->order[r] = r;
    return CT_OK;
}

/* ---- zones: a vertex that joins hosts alone is a cluster, if a cluster can say it; every other
 * vertex is a zone with full routing between its members. Vertices of one member are left out. */

static const double free_speed = 1e15; /* of hosts that add for nothing */

enum { CT_SIM_MOST_TORUS = 512, CT_SIM_MOST_HOPS = 64 };

/* What a member's own link into its vertex and the pair's own link must be. */
typedef struct figures {
    double base[CT_MAX_LEVEL]; /* of latency_s, in the members' links; never falls with the level */
    double extra[CT_MAX_LEVEL]; /* the rest, in a link of the pair */
    bool capped[CT_MAX_LEVEL]; /* a pair gets less than its members inject                        */
    bool paired[CT_MAX_LEVEL]; /* pairs need links of their own                                   */
} figures;

typedef struct writer {
    const ct_topo *t;
    figures f;
    ct_text *xml;
    int *first[CT_MAX_LEVEL]; /* [l][n_vertex[l] + 1] members of vertex v: member[first[v]] …    */
    int *member[CT_MAX_LEVEL];
} writer;

/* A member of a vertex, seen past vertices of one member: a rank, or a vertex with several. */
typedef struct member {
    int level; /* -1: a rank */
    int id;
    double uplink; /* least of all links passed */
    double base;   /* latency that its own links hold, one way up */
} member;

/* A pair that meets on level l above the nodes gets less than some node injects. */
static bool caps_a_node(const ct_topo *t, int l)
{
    for (int r = 0; r < t->n_rank; ++r) {
        double inject = ct_topo_uplink(t, 0, r);

        for (int k = 1; k <= l; ++k)
            inject = fmin(inject, ct_topo_uplink(t, k, t->vertex[k - 1][r]));
        if (t->machine.level[l].bandwidth < 0.999999 * inject) return true;
    }
    return false;
}

static ct_status find_figures(const ct_topo *t, figures *f)
{
    const ct_machine *m = &t->machine;
    double least = DBL_MAX, inject = DBL_MAX;

    for (int l = m->n_level - 1; l >= 0; --l) {
        const ct_level *at = &m->level[l];

        if (!(at->bandwidth > 0) || !(at->uplink > 0) || !(at->latency_s >= 0))
            return CT_FAIL(CT_ERR_CONFIG,
                           "machine %s, level %s: latency %g s, bandwidth %g, uplink %g bytes/s "
                           "cannot be simulated",
                           m->name, at->name, at->latency_s, at->bandwidth, at->uplink);
        if (at->latency_s - at->hop_s < least) least = at->latency_s - at->hop_s;
        f->base[l] = least;
        f->extra[l] = at->latency_s - at->hop_s - least; /* each link of a torus has hop_s */
    }
    for (int l = 0; l < m->n_level; ++l) {
        const ct_level *at = &m->level[l];

        if (at->uplink < inject) inject = at->uplink;
        f->capped[l] = (at->bandwidth < 0.999999 * inject);
        if ((t->node_class != NULL) && (l > m->node_level)) f->capped[l] = caps_a_node(t, l);
        if (at->torus.n_dim > 0) f->capped[l] = false; /* its links carry no more */
        f->paired[l] = f->capped[l] || (f->extra[l] > 0) || at->pairwise || (at->bus > 0) ||
                       (at->torus.n_dim > 0);
    }
    return CT_OK;
}

static ct_status list_members(writer *w)
{
    const ct_topo *t = w->t;

    for (int l = 0; l < t->machine.n_level; ++l) {
        int n = (l == 0) ? t->n_rank : t->n_vertex[l - 1];
        const int *up = (l == 0) ? t->vertex[0] : t->parent[l - 1];
        int *at = calloc((size_t)t->n_vertex[l] + 2, sizeof(*at));

        w->first[l] = at;
        w->member[l] = calloc((size_t)n + 1, sizeof(*w->member[l]));
        if ((at == NULL) || (w->member[l] == NULL))
            return CT_FAIL(CT_ERR_NOMEM, "no memory for a platform of %d ranks", t->n_rank);
        for (int i = 0; i < n; ++i) at[up[i] + 2] += 1;
        for (int v = 0; v < t->n_vertex[l]; ++v) at[v + 2] += at[v + 1];
        for (int i = 0; i < n; ++i) w->member[l][at[up[i] + 1]++] = i;
    }
    return CT_OK;
}

static int count_members(const writer *w, int l, int v)
{
    return w->first[l][v + 1] - w->first[l][v];
}

/* Member k of vertex v of level l. */
static member find_member(const writer *w, int l, int v, int k)
{
    member m = { l - 1, w->member[l][w->first[l][v] + k], 0, 0 };

    m.uplink = ct_topo_uplink(w->t, l, m.id);
    while ((m.level >= 0) && (count_members(w, m.level, m.id) == 1)) {
        double up;

        m.id = w->member[m.level][w->first[m.level][m.id]];
        up = ct_topo_uplink(w->t, m.level, m.id);
        if (up < m.uplink) m.uplink = up;
        m.level -= 1;
    }
    if (m.level >= 0) m.base = w->f.base[m.level] / 2;
    return m;
}

static double speed(const ct_machine *m)
{
    return (m->sum_bandwidth > 0) ? m->sum_bandwidth : free_speed;
}

/* Hosts that add for nothing do so whatever their class. */
static double speed_of(const ct_topo *t, int rank)
{
    double one = speed(&t->machine);

    return (one < free_speed) ? one * ct_topo_speed(t, t->node[rank]) : one;
}

/* Of a vertex that joins ranks: their speeds and links are the same. */
static bool all_alike(const writer *w, int l, int v)
{
    member first = find_member(w, l, v, 0);

    for (int k = 1; (w->t->node_class != NULL) && (k < count_members(w, l, v)); ++k) {
        member m = find_member(w, l, v, k);

        if ((m.uplink != first.uplink) || (speed_of(w->t, m.id) != speed_of(w->t, first.id)))
            return false;
    }
    return true;
}

static bool all_ranks(const writer *w, int l, int v)
{
    for (int k = 0; k < count_members(w, l, v); ++k) {
        if (find_member(w, l, v, k).level >= 0) return false;
    }
    return true;
}

/* ---- names: hosts h5, zones z1.0 and zh5, gateways r1.0, a member's link u1.5 or uh5 */

/* A member as the end of a route between hosts, or between zones. */
static void add_end(writer *w, const char *attribute, const member *m, bool hosts)
{
    if (m->level >= 0)
        ct_text_add(w->xml, " %s=\"z%d.%d\"", attribute, m->level, m->id);
    else
        ct_text_add(w->xml, " %s=\"%sh%d\"", attribute, hosts ? "" : "z", m->id);
}

static void add_gateway(writer *w, const char *attribute, const member *m)
{
    if (m->level >= 0)
        ct_text_add(w->xml, " %s=\"r%d.%d\"", attribute, m->level, m->id);
    else
        ct_text_add(w->xml, " %s=\"h%d\"", attribute, m->id);
}

static void add_own_link(writer *w, const member *m, const char *direction)
{
    if (m->level < 0)
        ct_text_add(w->xml, "<link_ctn id=\"uh%d\" direction=\"%s\"/>", m->id, direction);
    else
        ct_text_add(w->xml, "<link_ctn id=\"u%d.%d\" direction=\"%s\"/>", m->level, m->id,
                    direction);
}

static void declare_own_link(writer *w, int l, const member *m)
{
    if (m->level < 0)
        ct_text_add(w->xml, "<link id=\"uh%d\"", m->id);
    else
        ct_text_add(w->xml, "<link id=\"u%d.%d\"", m->level, m->id);
    ct_text_add(w->xml,
                " bandwidth=\"%.9gBps\" latency=\"%.9gs\" sharing_policy=\"SPLITDUPLEX\"/>\n",
                m->uplink, w->f.base[l] / 2 - m->base);
}

static void add_host(writer *w, int rank)
{
    ct_text_add(w->xml, "<host id=\"h%d\" speed=\"%.9gf\"/>\n", rank, speed_of(w->t, rank));
}

/* In a zone all hosts come first, then all links, then all routes. */
static void declare_loopback(writer *w, int rank)
{
    ct_text_add(w->xml,
                "<link id=\"t%d\" bandwidth=\"%.9gBps\" latency=\"0s\" "
                "sharing_policy=\"FATPIPE\"/>\n",
                rank, CT_SIM_TIMER_BANDWIDTH);
}

static void add_loopback(writer *w, int rank)
{
    ct_text_add(w->xml, "<route src=\"h%d\" dst=\"h%d\"><link_ctn id=\"t%d\"/></route>\n", rank,
                rank, rank);
}

static void add_lone_host(writer *w, int rank)
{
    add_host(w, rank);
    declare_loopback(w, rank);
    add_loopback(w, rank);
}

/* ---- the links of a pair, and routes */

static double pair_bandwidth(const writer *w, int l, int v)
{
    const ct_level *at = &w->t->machine.level[l];
    int64_t others = (at->size > 1) ? at->size - 1 : count_members(w, l, v) - 1;

    return at->uplink / (double)others;
}

/* Declares the links that members j and k of a vertex have for themselves. */
static void declare_pair(writer *w, int l, int v, int j, int k, const member *a, const member *b)
{
    const ct_level *at = &w->t->machine.level[l];
    double latency = w->f.extra[l];

    if (at->pairwise) {
        double wire = w->f.base[l] - a->base - b->base;

        ct_text_add(w->xml,
                    "<link id=\"p%d.%d.%d.%d\" bandwidth=\"%.9gBps\" latency=\"%.9gs\" "
                    "sharing_policy=\"SPLITDUPLEX\"/>\n",
                    l, v, j, k, pair_bandwidth(w, l, v), latency + wire);
        latency = 0;
    }
    if (w->f.capped[l] || (latency > 0))
        ct_text_add(w->xml,
                    "<link id=\"c%d.%d.%d.%d\" bandwidth=\"%.9gBps\" latency=\"%.9gs\" "
                    "sharing_policy=\"FATPIPE\"/>\n",
                    l, v, j, k, ct_topo_bandwidth(w->t, l, v), latency);
}

/* ---- the links of a torus: t0.5.1 from node 5 up along dimension 1 of vertex 0 */

static int64_t place_of(const writer *w, const member *m)
{
    int level = m->level, id = m->id;

    for (; level >= 0; --level) id = w->member[level][w->first[level][id]];
    return w->t->torus_place[w->t->node[id]];
}

/* Of all nodes, since messages pass those without ranks, too. */
static void declare_torus(writer *w, int l, int v)
{
    const ct_level *at = &w->t->machine.level[l];

    for (int64_t i = 0; i < ct_torus_nodes(&at->torus); ++i) {
        for (int d = 0; d < at->torus.n_dim; ++d)
            ct_text_add(w->xml,
                        "<link id=\"t%d.%lld.%d\" bandwidth=\"%.9gBps\" latency=\"%.9gs\" "
                        "sharing_policy=\"SPLITDUPLEX\"/>\n",
                        v, (long long)i, d, at->bandwidth, at->hop_s);
    }
}

/* A message goes one way round, where half of it each would be equally long. */
static void add_torus(writer *w, int l, int v, const member *a, const member *b)
{
    const ct_torus *t = &w->t->machine.level[l].torus;
    int64_t way[CT_SIM_MOST_HOPS];
    int n = ct_torus_way(t, place_of(w, a), place_of(w, b), 0, way), at[CT_MAX_TORUS];

    for (int i = 0; i < n; ++i) {
        int64_t node = way[i] / (2 * t->n_dim);
        int d = (int)(way[i] % (2 * t->n_dim)) / 2;
        bool down = (way[i] % 2 != 0);

        ct_torus_place(t, node, at);
        if (down) at[d] = (at[d] + t->dim[d] - 1) % t->dim[d]; /* it is that one's link */
        ct_text_add(w->xml, "<link_ctn id=\"t%d.%lld.%d\" direction=\"%s\"/>", v,
                    (long long)ct_torus_node(t, at), d, down ? "DOWN" : "UP");
    }
}

static void add_pair(writer *w, int l, int v, int j, int k)
{
    const ct_level *at = &w->t->machine.level[l];

    if (at->pairwise)
        ct_text_add(w->xml, "<link_ctn id=\"p%d.%d.%d.%d\" direction=\"UP\"/>", l, v, j, k);
    if (w->f.capped[l] || (!at->pairwise && (w->f.extra[l] > 0))) /* both ways by one link */
        ct_text_add(w->xml, "<link_ctn id=\"c%d.%d.%d.%d\"/>", l, v, (j < k) ? j : k,
                    (j < k) ? k : j);
    if (at->bus > 0) ct_text_add(w->xml, "<link_ctn id=\"b%d.%d\"/>", l, v);
}

static void add_route(writer *w, int l, int v, int j, int k, bool hosts)
{
    member a = find_member(w, l, v, j), b = find_member(w, l, v, k);
    const char *tag = hosts ? "route" : "zoneRoute";

    ct_text_add(w->xml, "<%s", tag);
    add_end(w, "src", &a, hosts);
    add_end(w, "dst", &b, hosts);
    if (!hosts) {
        add_gateway(w, "gw_src", &a);
        add_gateway(w, "gw_dst", &b);
    }
    if (w->t->machine.level[l].torus.n_dim > 0) ct_text_add(w->xml, " symmetrical=\"NO\"");
    ct_text_add(w->xml, ">");
    if (!w->t->machine.level[l].pairwise) add_own_link(w, &a, "UP");
    add_pair(w, l, v, j, k);
    if (w->t->machine.level[l].torus.n_dim > 0) add_torus(w, l, v, &a, &b);
    if (!w->t->machine.level[l].pairwise) add_own_link(w, &b, "DOWN");
    ct_text_add(w->xml, "</%s>\n", tag);
}

/* The way from a member out of the vertex. */
static void add_way_out(writer *w, int l, int v, int k, bool hosts)
{
    member a = find_member(w, l, v, k);

    ct_text_add(w->xml, "<%s", hosts ? "route" : "zoneRoute");
    add_end(w, "src", &a, hosts);
    if (hosts) {
        ct_text_add(w->xml, " dst=\"r%d.%d\"", l, v);
    } else {
        ct_text_add(w->xml, " dst=\"g%d.%d\"", l, v);
        add_gateway(w, "gw_src", &a);
        ct_text_add(w->xml, " gw_dst=\"r%d.%d\"", l, v);
    }
    ct_text_add(w->xml, ">");
    add_own_link(w, &a, "UP");
    ct_text_add(w->xml, "</%s>\n", hosts ? "route" : "zoneRoute");
}

/* ---- zones */

static void write_cluster(writer *w, int l, int v)
{
    ct_text_add(w->xml, "<cluster id=\"z%d.%d\" prefix=\"h\" suffix=\"\" radical=\"", l, v);
    for (int k = 0; k < count_members(w, l, v); ++k)
        ct_text_add(w->xml, "%s%d", (k > 0) ? "," : "", find_member(w, l, v, k).id);
    ct_text_add(w->xml,
                "\" speed=\"%.9gf\" bw=\"%.9gBps\" lat=\"%.9gs\" sharing_policy=\"SPLITDUPLEX\" "
                "router_id=\"r%d.%d\" loopback_bw=\"%.9gBps\" loopback_lat=\"0s\"/>\n",
                speed_of(w->t, find_member(w, l, v, 0).id), find_member(w, l, v, 0).uplink,
                w->f.base[l] / 2, l, v, CT_SIM_TIMER_BANDWIDTH);
}

static void write_routes(writer *w, int l, int v, bool hosts, bool top)
{
    int n = count_members(w, l, v);

    for (int j = 0; j < n; ++j) {
        member a = find_member(w, l, v, j);

        declare_own_link(w, l, &a);
        if (hosts) declare_loopback(w, a.id);
        for (int k = j + 1; k < n; ++k) {
            member b = find_member(w, l, v, k);

            declare_pair(w, l, v, j, k, &a, &b);
        }
    }
    if (w->t->machine.level[l].torus.n_dim > 0) declare_torus(w, l, v);
    if (w->t->machine.level[l].bus > 0)
        ct_text_add(w->xml,
                    "<link id=\"b%d.%d\" bandwidth=\"%.9gBps\" latency=\"0s\" "
                    "sharing_policy=\"SHARED\"/>\n",
                    l, v, ct_topo_bus(w->t, l, v));
    for (int j = 0; j < n; ++j) {
        for (int k = j + 1; k < n; ++k) {
            add_route(w, l, v, j, k, hosts);
            /* the way back is another one: also along the first dimension first */
            if (w->t->machine.level[l].torus.n_dim > 0) add_route(w, l, v, k, j, hosts);
        }
        if (!top) add_way_out(w, l, v, j, hosts);
    }
}

static void write_zone(writer *w, int l, int v, bool top)
{
    bool hosts = all_ranks(w, l, v);

    if (hosts && !w->f.paired[l] && all_alike(w, l, v)) {
        write_cluster(w, l, v);
        return;
    }
    ct_text_add(w->xml, "<zone id=\"z%d.%d\" routing=\"Full\">\n", l, v);
    for (int k = 0; k < count_members(w, l, v); ++k) {
        member m = find_member(w, l, v, k);

        if (hosts) {
            add_host(w, m.id);
        } else if (m.level < 0) {
            ct_text_add(w->xml, "<zone id=\"zh%d\" routing=\"Full\">\n", m.id);
            add_lone_host(w, m.id);
            ct_text_add(w->xml, "</zone>\n");
        } else {
            write_zone(w, m.level, m.id, false); /* at most CT_MAX_LEVEL deep */
        }
    }
    if (!top && hosts) ct_text_add(w->xml, "<router id=\"r%d.%d\"/>\n", l, v);
    if (!top && !hosts)
        ct_text_add(w->xml, "<zone id=\"g%d.%d\" routing=\"Full\"><router id=\"r%d.%d\"/></zone>\n",
                    l, v, l, v);
    write_routes(w, l, v, hosts, top);
    for (int k = 0; hosts && (k < count_members(w, l, v)); ++k)
        add_loopback(w, find_member(w, l, v, k).id);
    ct_text_add(w->xml, "</zone>\n");
}

static void write_world(writer *w)
{
    int l = w->t->machine.n_level - 1, v = 0;

    ct_text_add(w->xml, "<?xml version='1.0'?>\n"
                        "<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n"
                        "<platform version=\"4.1\">\n<zone id=\"world\" routing=\"Full\">\n");
    while ((l >= 0) && (count_members(w, l, v) == 1)) {
        v = w->member[l][w->first[l][v]];
        l -= 1;
    }
    if (l < 0) {
        add_lone_host(w, v);
    } else {
        write_zone(w, l, v, true);
    }
    ct_text_add(w->xml, "</zone>\n</platform>\n");
}

/* Each pair of nodes is a route of all links on its way. */
static ct_status check_torus(const ct_topo *t)
{
    const ct_level *on = &t->machine.level[t->machine.node_level + 1];

    if (on->torus.n_dim == 0) return CT_OK;
    if ((t->n_node > CT_SIM_MOST_TORUS) || (ct_torus_diameter(&on->torus) > CT_SIM_MOST_HOPS))
        return CT_FAIL(CT_ERR_CONFIG,
                       "machine %s: tori are simulated with up to %d nodes, and ways of up to %d "
                       "links; %d nodes, and %d links here",
                       t->machine.name, CT_SIM_MOST_TORUS, CT_SIM_MOST_HOPS, t->n_node,
                       ct_torus_diameter(&on->torus));
    return CT_OK;
}

ct_status ct_sim_platform_write(const ct_topo *t, ct_text *xml, ct_text *hosts)
{
    writer w = { .t = t, .xml = xml };
    ct_status status = CT_OK;

    CT_TRY_GOTO(status, done, check_torus(t));
    CT_TRY_GOTO(status, done, find_figures(t, &w.f));
    CT_TRY_GOTO(status, done, list_members(&w));
    write_world(&w);
    for (int r = 0; r < t->n_rank; ++r) ct_text_add(hosts, "h%d\n", r);
    if (xml->failed || hosts->failed)
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for a platform of %d ranks", t->n_rank);

done:
    for (int l = 0; l < CT_MAX_LEVEL; ++l) {
        free(w.first[l]);
        free(w.member[l]);
    }
    return status;
}

/* Each one matters: by default SMPI has the factors of an old Ethernet, charges for tests, and
 * takes the time that this program really runs for computing. Of the collectives, which only start
 * and end a run, those are named that do not first send p^2 messages to find shared memory. */
void ct_sim_settings(const ct_machine *m, ct_text *out)
{
    static const char *const setting[] = {
        "--cfg=smpi/simulate-computation:no",
        "--cfg=smpi/coll-selector:ompi",
        "--cfg=smpi/bcast:binomial_tree",
        "--cfg=smpi/allreduce:rdb",
        "--cfg=smpi/allgather:bruck",
        "--cfg=smpi/test:0",
        "--cfg=smpi/wtime:0",
        "--cfg=smpi/send-is-detached-thresh:0",
        "--cfg=contexts/stack-size:1024",
        "--cfg=smpi/shared-malloc:local",
        "--cfg=smpi/bw-factor:0:1",
        "--cfg=smpi/lat-factor:0:1",
        "--cfg=network/crosstraffic:0",
        "--log=root.thres:warning",
    };

    ct_text_add(out, "--cfg=smpi/host-speed:%.9gf\n", speed(m));
    for (size_t i = 0; i < sizeof(setting) / sizeof(setting[0]); ++i)
        ct_text_add(out, "%s\n", setting[i]);
}
