/* SLURM_TOPOLOGY_ADDR of every rank ("spine.leaf2.n3", pattern "switch.switch.node") as levels. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/rng.h"
#include "topology/hostlist.h"
#include "topology/job_tree.h"

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
__attribute__((format(printf, 3, 4))) static ct_status doubt(const ct_job_tree *tree, bool demanded,
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

static ct_status check_address(const ct_job_tree *tree, int r, bool demanded, address *a)
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

static ct_status find_nodes(const ct_job_tree *tree, const node_set *set)
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

static ct_status check_node_list(const ct_job_tree *tree)
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
static bool all_share(const ct_job_tree *tree, const address *a, int depth)
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

static ct_status name_switches(const address *a, ct_topo *t)
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

static ct_status build(ct_job_tree *tree, const address *a, int n_switch, ct_topo **topo_p)
{
    static const char *const above[] = { "node", "switch", "group", "island", "region" };
    ct_machine m = { .n_level = n_switch + 2, .sum_bandwidth = 10e9 };
    ct_status status = CT_OK;
    ct_topo *t = NULL;

    snprintf(m.name, sizeof(m.name), "slurm");
    snprintf(m.source, sizeof(m.source), "SLURM_TOPOLOGY_ADDR; the figures are guesses");
    for (int l = 0; l < m.n_level; ++l) {
        int64_t *key = ct_job_tree_level(tree, l);

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
    ct_job_add_inside(tree, &m);
    CT_TRY(ct_topo_build(&m, tree->key, tree->facts->n_rank, "slurm", &t));
    status = name_switches(a, t);
    if (status == CT_OK) status = ct_job_name_vertices(tree, t);
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

ct_status ct_job_slurm_tree(ct_job_tree *tree, bool demanded, ct_topo **topo_p)
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
