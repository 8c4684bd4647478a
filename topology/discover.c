#include "topology/discover.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/base/rng.h"
#include "topology/names.h"

/* The job by MPI's word alone, and keys to be filled in. */
typedef struct job_tree {
    const ct_job_facts *facts;
    ct_topo *hosts; /* nodes: the ranks that share memory */
    int *leader;    /* [hosts->n_node] lowest rank        */
    int64_t *key;   /* [CT_MAX_LEVEL * n_rank], 0 at first */
} job_tree;

static void job_tree_destroy(job_tree *tree);

static ct_status job_tree_create(const ct_job_facts *facts, job_tree *tree_p)
{
    size_t n = (size_t)facts->n_rank;
    uint64_t *host = malloc(sizeof(*host) * n);
    job_tree t = { .facts = facts };
    ct_status status = CT_OK;

    t.leader = malloc(sizeof(*t.leader) * n);
    t.key = calloc(n * CT_MAX_LEVEL, sizeof(*t.key));
    if ((host == NULL) || (t.leader == NULL) || (t.key == NULL)) {
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for %d ranks", facts->n_rank);
    } else {
        for (size_t r = 0; r < n; ++r) host[r] = facts->place[r].host;
        status = ct_topo_from_hosts(host, facts->n_rank, "mpi shared split", &t.hosts);
    }
    free(host);
    if (status != CT_OK) {
        job_tree_destroy(&t);
        return status;
    }
    for (int r = facts->n_rank - 1; r >= 0; --r) t.leader[t.hosts->node[r]] = r;
    *tree_p = t;
    return CT_OK;
}

static void job_tree_destroy(job_tree *tree)
{
    ct_topo_destroy(tree->hosts);
    free(tree->leader);
    free(tree->key);
}

static int64_t *job_tree_level(job_tree *tree, int level)
{
    return tree->key + (ptrdiff_t)level * tree->facts->n_rank;
}

/* Where every rank is bound within one socket (numa: NUMA node), and some node uses several. */
static bool is_split(const job_tree *tree, bool numa)
{
    const ct_job_facts *f = tree->facts;
    bool several = false;

    for (int r = 0; r < f->n_rank; ++r) {
        const ct_rank_place *mine = &f->place[r];
        const ct_rank_place *first = &f->place[tree->leader[tree->hosts->node[r]]];

        if ((numa ? mine->numa : mine->socket) < 0) return false;
        several = several || (numa ? (mine->numa != first->numa) : (mine->socket != first->socket));
    }
    return several;
}

/* One NUMA node a socket says nothing new. Nodes of a job are alike, so one map must do for all. */
static bool same_split(const ct_job_facts *f)
{
    enum { MOST = 1024 };
    int socket_of[MOST], numa_of[MOST];

    for (int i = 0; i < MOST; ++i) socket_of[i] = numa_of[i] = -1;
    for (int r = 0; r < f->n_rank; ++r) {
        int s = f->place[r].socket, n = f->place[r].numa;

        if ((s >= MOST) || (n >= MOST)) return false;
        if (socket_of[n] < 0) socket_of[n] = s;
        if (numa_of[s] < 0) numa_of[s] = n;
        if ((socket_of[n] != s) || (numa_of[s] != n)) return false;
    }
    return true;
}

static void put_level(job_tree *tree, ct_machine *m, const char *name, int below, bool numa)
{
    size_t n = (size_t)tree->facts->n_rank;

    memmove(job_tree_level(tree, 1), tree->key, sizeof(*tree->key) * n * (size_t)m->n_level);
    memmove(&m->level[1], &m->level[0], sizeof(m->level[0]) * (size_t)m->n_level);
    ct_level_guess(name, -below, &m->level[0]);
    m->n_level += 1;
    m->node_level += 1;
    for (size_t r = 0; r < n; ++r)
        tree->key[r] = numa ? tree->facts->place[r].numa : tree->facts->place[r].socket;
}

/* Keys of the sockets and NUMA nodes, where every rank is bound to one and some node uses several
 *  of them. Levels are put in front of m's, its keys moved. */
static void job_add_inside(job_tree *tree, ct_machine *m)
{
    bool socket = is_split(tree, false), numa = is_split(tree, true);

    if (socket && numa && same_split(tree->facts)) numa = false;
    if (socket && (m->n_level < CT_MAX_LEVEL)) put_level(tree, m, "socket", 1, false);
    if (numa && (m->n_level < CT_MAX_LEVEL)) put_level(tree, m, "numa", socket ? 2 : 1, true);
}

/* Names of the nodes, and of switches: name[l * n_rank + r], for levels above the node. */
static ct_status job_name_vertices(const job_tree *tree, ct_topo *t)
{
    const ct_rank_name *name = tree->facts->name;
    int l = t->machine.node_level;

    if (name == NULL) return CT_OK;
    t->vertex_name[l] = calloc((size_t)t->n_vertex[l], sizeof(char *));
    if (t->vertex_name[l] == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for names");
    for (int r = 0; r < t->n_rank; ++r) {
        char **at = &t->vertex_name[l][t->node[r]];

        if (*at == NULL) *at = strdup(name[r].node);
        if (*at == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for names");
    }
    return CT_OK;
}

/* ---- what SLURM tells a process about its place */

static void copy_variable(const char *variable, char *text, size_t size)
{
    const char *value = getenv(variable);

    snprintf(text, size, "%s", (value != NULL) ? value : "");
}

void ct_rank_name_fill(ct_rank_name *name)
{
    memset(name, 0, sizeof(*name));
    copy_variable("SLURMD_NODENAME", name->node, sizeof(name->node));
    copy_variable("SLURM_TOPOLOGY_ADDR", name->address, sizeof(name->address));
    copy_variable("SLURM_TOPOLOGY_ADDR_PATTERN", name->pattern, sizeof(name->pattern));
    if ((name->node[0] == '\0') && (gethostname(name->node, sizeof(name->node) - 1) != 0))
        snprintf(name->node, sizeof(name->node), "unknown");
}

const char *ct_slurm_node_list(void)
{
    static const char *const variable[] = { "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST",
                                            "SLURM_NODELIST" };

    for (size_t i = 0; i < sizeof(variable) / sizeof(variable[0]); ++i) {
        const char *value = getenv(variable[i]);

        if ((value != NULL) && (value[0] != '\0')) return value;
    }
    return "";
}

/* ---- SLURM_TOPOLOGY_ADDR of every rank ("spine.leaf2.n3", pattern "switch.switch.node") as levels
 */

enum { MAX_PART = 16, MAX_SWITCH_LEVEL = 4 };

/* The names of an address, outermost first; the last is the node. */
typedef struct address {
    int n;
    struct {
        const char *at;
        int length;
    } part[MAX_PART];
} address;

/* What is wrong with SLURM's word: an error where the user asked for it, else a reason to go on
 * with the next source. */
__attribute__((format(printf, 3, 4))) static ct_status doubt(const job_tree *tree, bool demanded,
                                                             const char *fmt, ...)
{
    char text[400];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (demanded) return CT_FAIL(CT_ERR_CONFIG, "topology \"slurm\": %s", text);
    if (tree->facts->speaks) CT_WARN("SLURM's topology is not used: %s", text);
    return CT_UNSUPPORTED;
}

/* The pattern says how many names there are; dots of the node's own name stand in the last. */
static bool split(const ct_rank_name *name, address *a)
{
    const char *p = name->address;
    int n = 1;

    for (const char *c = name->pattern; *c != '\0'; ++c) n += (*c == '.');
    if ((name->pattern[0] == '\0') || (n > MAX_PART)) return false;
    a->n = n;
    for (int i = 0; i < n; ++i) {
        size_t length = (i < n - 1) ? strcspn(p, ".") : strlen(p);

        if ((length == 0) || ((i < n - 1) && (p[length] != '.'))) return false;
        a->part[i].at = p;
        a->part[i].length = (int)length;
        p += length + (i < n - 1);
    }
    return true;
}

static ct_status check_address(const job_tree *tree, int r, bool demanded, address *a)
{
    const ct_rank_name *name = &tree->facts->name[r];
    int first = tree->leader[tree->hosts->node[r]];

    if (name->address[0] == '\0')
        return doubt(tree, demanded, "rank %d on %s has no SLURM_TOPOLOGY_ADDR", r, name->node);
    if (!split(name, a))
        return doubt(tree, demanded,
                     "rank %d on %s: SLURM_TOPOLOGY_ADDR \"%s\" does not follow \"%s\"", r,
                     name->node, name->address, name->pattern);
    if (strcmp(a->part[a->n - 1].at, name->node) != 0)
        return doubt(tree, demanded, "rank %d on %s: SLURM_TOPOLOGY_ADDR \"%s\" is of another node",
                     r, name->node, name->address);
    if (strcmp(name->address, tree->facts->name[first].address) != 0)
        return doubt(tree, demanded,
                     "ranks %d and %d share memory, but SLURM has them at \"%s\" and \"%s\"", first,
                     r, tree->facts->name[first].address, name->address);
    return CT_OK;
}

/* ---- the node list */

typedef struct node_set {
    char **name;
    int n;
} node_set;

static ct_status collect(void *ctx, const char *name)
{
    node_set *set = ctx;

    if ((set->n & (set->n - 1)) == 0) { /* full at every power of two */
        char **more = realloc(set->name, sizeof(*more) * (size_t)((set->n == 0) ? 1 : 2 * set->n));

        if (more == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a node list");
        set->name = more;
    }
    set->name[set->n] = strdup(name);
    if (set->name[set->n] == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a node list");
    set->n += 1;
    return CT_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static ct_status find_nodes(const job_tree *tree, const node_set *set)
{
    for (int k = 0; k < tree->hosts->n_node; ++k) {
        const char *node = tree->facts->name[tree->leader[k]].node;

        if (bsearch(&node, set->name, (size_t)set->n, sizeof(*set->name), by_name) != NULL)
            continue;
        return CT_FAIL(CT_ERR_CONFIG,
                       "rank %d runs on %s, which SLURM's node list \"%.200s\" lacks",
                       tree->leader[k], node, tree->facts->node_list);
    }
    return CT_OK;
}

static ct_status check_node_list(const job_tree *tree)
{
    const char *list = tree->facts->node_list;
    node_set set = { 0 };
    ct_status status = CT_OK;

    if ((list == NULL) || (list[0] == '\0')) return CT_OK;
    status = ct_hostlist_each(list, "SLURM", collect, &set);
    if (status == CT_OK) {
        qsort(set.name, (size_t)set.n, sizeof(*set.name), by_name);
        status = find_nodes(tree, &set);
    }
    for (int i = 0; i < set.n; ++i) free(set.name[i]);
    free(set.name);
    return status;
}

/* ---- levels */

/* The names of all addresses up to `depth` from the outside are the same. */
static bool all_share(const job_tree *tree, const address *a, int depth)
{
    for (int r = 1; r < tree->facts->n_rank; ++r) {
        if ((a[r].n - 1 < depth) || (a[0].n - 1 < depth) ||
            (a[r].part[depth - 1].length != a[0].part[depth - 1].length) ||
            (memcmp(a[r].part[depth - 1].at, a[0].part[depth - 1].at,
                    (size_t)a[0].part[depth - 1].length) != 0))
            return false;
    }
    return a[0].n - 1 >= depth;
}

/* The name that rank r has at a level that stands `above` levels over the node: where its branch of
 * the tree is shorter than others, its outermost switch stands for the missing ones. */
static int part_of(const address *a, int above)
{
    return (a->n - 1 - above >= 0) ? a->n - 1 - above : 0;
}

static ct_status name_addresses(const address *a, ct_topo *t)
{
    for (int l = t->machine.node_level + 1; l < t->machine.n_level - 1; ++l) {
        int above = l - t->machine.node_level;

        t->vertex_name[l] = calloc((size_t)t->n_vertex[l], sizeof(char *));
        if (t->vertex_name[l] == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for names");
        for (int r = 0; r < t->n_rank; ++r) {
            char **at = &t->vertex_name[l][t->vertex[l][r]];
            int i = part_of(&a[r], above);

            if (*at == NULL) *at = strndup(a[r].part[i].at, (size_t)a[r].part[i].length);
            if (*at == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for names");
        }
    }
    return CT_OK;
}

static ct_status build(job_tree *tree, const address *a, int n_switch, ct_topo **topo_p)
{
    static const char *const above[] = { "node", "switch", "group", "island", "region" };
    ct_machine m = { .n_level = n_switch + 2, .sum_bandwidth = 10e9 };
    ct_status status = CT_OK;
    ct_topo *t = NULL;

    snprintf(m.name, sizeof(m.name), "slurm");
    snprintf(m.source, sizeof(m.source), "SLURM_TOPOLOGY_ADDR; the figures are guesses");
    for (int l = 0; l < m.n_level; ++l) {
        int64_t *key = job_tree_level(tree, l);

        ct_level_guess((l == m.n_level - 1) ? "machine" : above[l], l, &m.level[l]);
        for (int r = 0; r < tree->facts->n_rank; ++r) {
            char name[64];

            if (l == 0) {
                key[r] = tree->hosts->node[r];
                continue;
            }
            /* a switch is told by its name and by how far out it stands */
            snprintf(name, sizeof(name), "%.*s", a[r].part[part_of(&a[r], l)].length,
                     a[r].part[part_of(&a[r], l)].at);
            key[r] = (int64_t)ct_rng_hash(name);
        }
    }
    job_add_inside(tree, &m);
    CT_TRY(ct_topo_build(&m, tree->key, tree->facts->n_rank, "slurm", &t));
    status = name_addresses(a, t);
    if (status == CT_OK) status = job_name_vertices(tree, t);
    if (status != CT_OK) {
        ct_topo_destroy(t);
        return status;
    }
    *topo_p = t;
    return CT_OK;
}

static bool any_address(const ct_job_facts *f)
{
    for (int r = 0; r < f->n_rank; ++r) {
        if (f->name[r].address[0] != '\0') return true;
    }
    return false;
}

/* SLURM's addresses as levels above the node. CT_UNSUPPORTED where there are none, where all name
 *  one switch, or, unless demanded, where they contradict something, after a warning.
 * CT_ERR_CONFIG: demanded, or the node list is none or lacks a node. */
static ct_status job_slurm_tree(job_tree *tree, bool demanded, ct_topo **topo_p)
{
    int n = tree->facts->n_rank, deepest = 0, shared = 0;
    address *a = NULL;
    ct_status status = CT_OK;

    if ((tree->facts->name == NULL) || (!demanded && !any_address(tree->facts)))
        return CT_UNSUPPORTED;
    a = calloc((size_t)n, sizeof(*a));
    if (a == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d ranks", n);
    for (int r = 0; (r < n) && (status == CT_OK); ++r) {
        status = check_address(tree, r, demanded, &a[r]);
        if (a[r].n - 1 > deepest) deepest = a[r].n - 1;
    }
    if (status == CT_OK) status = check_node_list(tree);
    if (status == CT_OK) {
        while ((shared < deepest) && all_share(tree, a, shared + 1)) shared += 1;
        deepest -= shared; /* what all share is the machine */
        if (deepest > MAX_SWITCH_LEVEL) deepest = MAX_SWITCH_LEVEL;
        status = ((deepest == 0) && !demanded) ? CT_UNSUPPORTED : build(tree, a, deepest, topo_p);
    }
    free(a);
    return status;
}

/* ---- by MPI's word */

static ct_status by_mpi(job_tree *tree, ct_topo **topo_p)
{
    ct_machine m = tree->hosts->machine;
    ct_topo *t = NULL;
    ct_status status = CT_OK;
    int64_t *key = job_tree_level(tree, 0);

    for (int r = 0; r < tree->facts->n_rank; ++r) key[r] = tree->hosts->node[r];
    for (int l = 0; l < m.n_level; ++l)
        m.level[l].uplink = 0; /* of one more level inside, perhaps */
    memset(job_tree_level(tree, 1), 0, sizeof(*key) * (size_t)tree->facts->n_rank);
    job_add_inside(tree, &m);
    CT_TRY(ct_topo_build(&m, tree->key, tree->facts->n_rank,
                         (m.node_level > 0) ? "mpi shared split, hwloc" : "mpi shared split", &t));
    status = job_name_vertices(tree, t);
    if (status != CT_OK) {
        ct_topo_destroy(t);
        return status;
    }
    *topo_p = t;
    return CT_OK;
}

/* ---- on a machine that the user names */

/* No vertex holds more than its level's size says. */
static ct_status check_room(const job_tree *tree, const ct_topo *t)
{
    int *n = malloc(sizeof(*n) * (size_t)t->n_rank);

    if (n == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d ranks", t->n_rank);
    for (int l = 0; l < t->machine.n_level; ++l) {
        const ct_level *level = &t->machine.level[l];
        int n_member = (l == 0) ? t->n_rank : t->n_vertex[l - 1];

        memset(n, 0, sizeof(*n) * (size_t)t->n_vertex[l]);
        for (int i = 0; i < n_member; ++i) {
            int v = (l == 0) ? t->vertex[0][i] : t->parent[l - 1][i];

            if ((++n[v] <= level->size) || (level->size == 0)) continue;
            free(n);
            return CT_FAIL(CT_ERR_CONFIG,
                           "machine \"%s\": a %s holds %lld %ss by its file, but more of the job "
                           "lie in one; the job has %d ranks on %d nodes",
                           t->machine.name, level->name, (long long)level->size,
                           (l == 0) ? "rank" : t->machine.level[l - 1].name, t->n_rank,
                           tree->hosts->n_node);
        }
    }
    free(n);
    return CT_OK;
}

/* Levels inside the node: by the binding where every rank has one, else by rank in blocks. */
static void fill_inside(job_tree *tree, const ct_machine *m)
{
    const ct_job_facts *f = tree->facts;

    for (int l = 0; l < m->node_level; ++l) {
        bool numa = (strcmp(m->level[l].name, "numa") == 0), known = true;
        int64_t *key = job_tree_level(tree, l), inside = ct_machine_product(m, 0, l);

        for (int r = 0; r < f->n_rank; ++r)
            known = known && ((numa ? f->place[r].numa : f->place[r].socket) >= 0);
        known = known && (numa || (strcmp(m->level[l].name, "socket") == 0));
        for (int r = 0; r < f->n_rank; ++r) {
            if (known)
                key[r] = numa ? f->place[r].numa : f->place[r].socket;
            else
                key[r] = (inside > 0) ? tree->hosts->local_rank[r] / inside : 0;
        }
    }
}

/* Nodes without names: the job's fill the machine's in blocks. */
static ct_status fill_in_blocks(job_tree *tree, const ct_machine *m)
{
    int64_t has = ct_machine_n_node(m);

    if ((has != 0) && (tree->hosts->n_node > has))
        return CT_FAIL(CT_ERR_CONFIG, "machine \"%s\" has %lld nodes, but the job runs on %d",
                       m->name, (long long)has, tree->hosts->n_node);
    for (int r = 0; r < tree->facts->n_rank; ++r) {
        int64_t at = tree->hosts->node[r];

        job_tree_level(tree, m->node_level)[r] = at;
        for (int l = m->node_level + 1; l < m->n_level - 1; ++l) {
            at = (m->level[l].size == 0) ? 0 : at / m->level[l].size;
            job_tree_level(tree, l)[r] = at;
        }
    }
    if (m->n_level > m->node_level + 2)
        CT_INFO("machine \"%s\" names no nodes: the job's %d fill it in blocks, in the order of "
                "their lowest ranks",
                m->name, tree->hosts->n_node);
    return CT_OK;
}

/* "n3, n7, … (12 in all)" of the job's nodes that the machine does not name. */
static ct_status fail_missing(const job_tree *tree, const ct_machine *m)
{
    ct_text list = { 0 };
    ct_status status = CT_ERR_CONFIG;
    int n = 0;

    for (int k = 0; k < tree->hosts->n_node; ++k) {
        const char *node = tree->facts->name[tree->leader[k]].node;

        if (ct_names_find(m->names, node) >= 0) continue;
        if (n < 5) ct_text_add(&list, "%s%s", (n > 0) ? ", " : "", node);
        n += 1;
    }
    status = CT_FAIL(status, "machine \"%s\" names %d nodes, but not %s%s, where ranks run",
                     m->name, m->names->n_node, (list.text != NULL) ? list.text : "?",
                     (n > 5) ? " and others" : "");
    ct_text_destroy(&list);
    return status;
}

static ct_status fill_by_name(job_tree *tree, const ct_machine *m, int *node)
{
    const ct_rank_name *name = tree->facts->name;

    for (int r = 0; r < tree->facts->n_rank; ++r) {
        int first = tree->leader[tree->hosts->node[r]];

        node[r] = ct_names_find(m->names, name[r].node);
        if (node[r] < 0) return fail_missing(tree, m);
        if (node[r] != node[first])
            return CT_FAIL(CT_ERR_CONFIG,
                           "machine \"%s\": ranks %d and %d share memory, but run on %s and %s, "
                           "which are two places",
                           m->name, first, r, name[first].node, name[r].node);
        job_tree_level(tree, m->node_level)[r] =
            (m->level[m->node_level + 1].torus.n_dim > 0) ? node[r] : tree->hosts->node[r];
        for (int l = m->node_level + 1; l < m->n_level - 1; ++l)
            job_tree_level(tree, l)[r] = ct_names_above(m->names, node[r], l);
    }
    return CT_OK;
}

static ct_status name_switches(const ct_machine *m, const int *node, ct_topo *t)
{
    for (int l = m->node_level + 1; l < m->n_level - 1; ++l) {
        t->vertex_name[l] = calloc((size_t)t->n_vertex[l], sizeof(char *));
        if (t->vertex_name[l] == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for names");
        for (int r = 0; r < t->n_rank; ++r) {
            char **at = &t->vertex_name[l][t->vertex[l][r]];
            int above = ct_names_above(m->names, node[r], l);

            if (*at == NULL) *at = strdup((above >= 0) ? m->names->sw[above].name : "?");
            if (*at == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for names");
        }
    }
    return CT_OK;
}

/* Without names node k of the job is the machine's k-th, as fill_in_blocks() has it. */
static ct_status class_nodes(const job_tree *tree, const ct_machine *m, const int *node, ct_topo *t)
{
    int64_t *at = malloc(sizeof(*at) * (size_t)t->n_rank);
    ct_status status = CT_OK;

    if (at == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d ranks", t->n_rank);
    for (int r = 0; r < t->n_rank; ++r) at[r] = (m->names != NULL) ? node[r] : tree->hosts->node[r];
    status = ct_topo_class_nodes(t, m, at);
    free(at);
    return status;
}

static ct_status on_machine(job_tree *tree, const ct_machine *m, const char *source,
                            ct_topo **topo_p)
{
    int *node = calloc((size_t)tree->facts->n_rank, sizeof(*node));
    ct_status status = CT_OK;
    ct_topo *t = NULL;

    if (node == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d ranks", tree->facts->n_rank);
    fill_inside(tree, m);
    if (m->names == NULL)
        status = fill_in_blocks(tree, m);
    else if (tree->facts->name == NULL)
        status =
            CT_FAIL(CT_ERR_ARG, "machine \"%s\" names nodes, but the job's are unnamed", m->name);
    else
        status = fill_by_name(tree, m, node);
    if (status == CT_OK) status = ct_topo_build(m, tree->key, tree->facts->n_rank, source, &t);
    if (status == CT_OK) status = check_room(tree, t);
    if ((status == CT_OK) && (m->names != NULL)) status = name_switches(m, node, t);
    if (status == CT_OK) status = job_name_vertices(tree, t);
    if (status == CT_OK) status = class_nodes(tree, m, node, t);
    free(node);
    if (status != CT_OK) {
        ct_topo_destroy(t);
        return status;
    }
    *topo_p = t;
    return CT_OK;
}

/* ---- a tree with another machine's figures */

/* Inside a node, where the other has no such level, its node's. */
static const ct_level *level_like(const ct_machine *from, const ct_machine *m, int l)
{
    if (l == m->n_level - 1) return &from->level[from->n_level - 1];
    for (int k = 0; k < from->n_level; ++k) {
        if (strcmp(from->level[k].name, m->level[l].name) == 0) return &from->level[k];
    }
    return (l < m->node_level) ? &from->level[from->node_level] : NULL;
}

/* Latencies and bandwidths as they are, of nodes that are all alike; uplinks of the same
 * oversubscription, as this one's switches may have fewer nodes. */
static ct_status borrow_figures(const char *spec, const ct_machine *from, ct_machine *m)
{
    bool all = (from->n_node_class == 1) && (from->n_node_run == 0);

    if ((from->n_node_class > 0) && !all)
        return CT_FAIL(CT_ERR_CONFIG,
                       "topology \"%s\": the node_class of machine \"%s\" are of its own nodes: "
                       "name the machine alone, or take them out of its file",
                       spec, from->name);
    for (int l = 0; l < m->n_level; ++l) {
        const ct_level *like = level_like(from, m, l);
        ct_level mine = m->level[l];
        double members = 1;

        if (like == NULL)
            return CT_FAIL(CT_ERR_CONFIG, "topology \"%s\": machine \"%s\" has no level \"%s\"",
                           spec, from->name, m->level[l].name);
        if ((l > m->node_level + 1) && (like > from->level) && (like[-1].size > 0))
            members = (double)m->level[l - 1].size / (double)like[-1].size;
        m->level[l] = *like;
        memcpy(m->level[l].name, mine.name, sizeof(mine.name));
        m->level[l].size = mine.size;
        if (mine.torus.n_dim > 0) m->level[l].torus = mine.torus;
        if ((m->level[l].torus.n_dim > 0) && (ct_torus_nodes(&m->level[l].torus) != mine.size))
            return CT_FAIL(
                CT_ERR_CONFIG,
                "topology \"%s\": a %s of machine \"%s\" is a torus of %lld nodes, not %lld", spec,
                like->name, from->name, (long long)like->size, (long long)mine.size);
        if (m->level[l].uplink > 0) m->level[l].uplink *= members;
        if (l == m->node_level + 1) m->level[l].uplink = from->level[from->node_level + 1].uplink;
        if (like->pairwise && (like->size > 1) && (mine.size > 1))
            m->level[l].uplink *= (double)(mine.size - 1) / (double)(like->size - 1);
    }
    m->sum_bandwidth = from->sum_bandwidth;
    m->shared = from->shared;
    m->in_network = from->in_network;
    m->coding = from->coding;
    m->n_node_class = from->n_node_class;
    m->node_class[0] = from->node_class[0];
    snprintf(m->source, sizeof(m->source), "%s", from->source);
    return CT_OK;
}

ct_status ct_topo_text_spec(const ct_topo_text *text, ct_machine **machine_p)
{
    ct_machine *figures = *machine_p, *m = NULL;
    ct_status status = CT_OK;

    CT_TRY(ct_machine_from_spec(text->spec, &m));
    if (figures != NULL) status = borrow_figures(text->spec, figures, m);
    if (status != CT_OK) {
        ct_machine_destroy(m);
        return status;
    }
    ct_machine_destroy(figures);
    *machine_p = m;
    return CT_OK;
}

static ct_status by_spec(const ct_topo_text *text, const ct_machine *figures, int n_rank,
                         ct_topo **topo_p)
{
    ct_status status = CT_OK;
    ct_machine *m = NULL;

    if (figures == NULL) return ct_topo_from_string(text->spec, n_rank, topo_p);
    CT_TRY(ct_machine_from_spec(text->spec, &m));
    status = borrow_figures(text->spec, figures, m);
    if (status == CT_OK) status = ct_topo_fill(m, text->spec, n_rank, topo_p);
    ct_machine_destroy(m);
    if (status == CT_OK)
        snprintf((*topo_p)->source, sizeof((*topo_p)->source),
                 "synthetic %.50s with figures of %.40s", text->spec, figures->name);
    return status;
}

/* The tree stays as it was found. */
static ct_status take_figures(const ct_machine *from, ct_topo *t)
{
    ct_machine m = t->machine;
    int64_t n_member[CT_MAX_LEVEL];
    char source[sizeof(t->source)];

    CT_TRY(ct_topo_fullest(t, n_member));
    for (int l = 0; l < m.n_level; ++l) m.level[l].size = n_member[l];
    CT_TRY(borrow_figures(t->source, from, &m));
    ct_machine_fill_uplinks(&m, NULL);
    for (int l = 0; l < m.n_level; ++l) m.level[l].size = 0;
    t->machine = m;
    memcpy(source, t->source, sizeof(source));
    snprintf(t->source, sizeof(t->source), "%.60s, figures of %.40s", source, from->name);
    return CT_OK;
}

ct_status ct_topo_discover(const ct_topo_text *text, const ct_machine *machine,
                           const ct_job_facts *facts, ct_topo **topo_p)
{
    job_tree tree;
    ct_status status = CT_OK;
    ct_topo *t = NULL;
    char source[128];

    if (text->kind == CT_TOPO_SPEC) return by_spec(text, machine, facts->n_rank, topo_p);
    if (text->kind == CT_TOPO_PLACE)
        return ct_topo_place(machine, facts->n_rank, text->ranks_per_node, text->spec, topo_p);
    CT_TRY(job_tree_create(facts, &tree));
    if ((text->kind == CT_TOPO_FILE) || (text->kind == CT_TOPO_CONF)) {
        snprintf(source, sizeof(source), "machine file %.100s", text->machine);
        status = on_machine(&tree, machine, source, &t);
    } else {
        status = job_slurm_tree(&tree, text->kind == CT_TOPO_SLURM, &t);
        if ((status == CT_UNSUPPORTED) && (text->kind == CT_TOPO_SLURM))
            status =
                CT_FAIL(CT_ERR_CONFIG, "topology \"slurm\": SLURM says nothing about switches");
        if (status == CT_UNSUPPORTED) status = by_mpi(&tree, &t);
        if ((status == CT_OK) && (machine != NULL)) status = take_figures(machine, t);
    }
    job_tree_destroy(&tree);
    if (status != CT_OK) {
        ct_topo_destroy(t);
        return status;
    }
    *topo_p = t;
    return CT_OK;
}
