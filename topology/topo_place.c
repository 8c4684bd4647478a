/* A made-up job on a machine: which place each rank gets. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/rng.h"
#include "topology/names.h"
#include "topology/topo.h"

/* A job's places, in machine order: place s lies on the s / per_node-th of its nodes. */
typedef struct job {
    const ct_machine *machine;
    int n_rank, per_node, n_node;
    int64_t *node; /* [n_node] of the machine, ascending      */
    int64_t *key;  /* [n_level * n_rank] of each place        */
    int *place;    /* [n_rank] the place of each rank         */
} job;

static void destroy(job *j)
{
    free(j->node);
    free(j->key);
    free(j->place);
}

static ct_status check_size(const ct_machine *m, int n_rank, int per_node, int64_t n_node)
{
    int64_t inside = ct_machine_product(m, 0, m->node_level);
    int64_t has = (m->names != NULL) ? m->names->n_node : ct_machine_n_node(m);

    if ((n_rank < 1) || (per_node < 1))
        return CT_FAIL(CT_ERR_ARG, "%d ranks, %d a node", n_rank, per_node);
    if ((inside != 0) && (per_node > inside))
        return CT_FAIL(CT_ERR_CONFIG, "machine \"%s\": its nodes hold %lld ranks, not %d", m->name,
                       (long long)inside, per_node);
    if ((has != 0) && (n_node > has))
        return CT_FAIL(CT_ERR_CONFIG,
                       "machine \"%s\": has %lld nodes; %d ranks, %d a node, need %lld", m->name,
                       (long long)has, n_rank, per_node, (long long)n_node);
    return CT_OK;
}

/* The keys of a place: of the levels inside its node by its number there, of those above by the
 * node's switches or, without names, by its number in the machine. */
static void fill_keys(job *j)
{
    const ct_machine *m = j->machine;
    int nodes = m->node_level;

    for (int s = 0; s < j->n_rank; ++s) {
        int64_t at = s % j->per_node, node = j->node[s / j->per_node];

        for (int l = 0; l < nodes; ++l) {
            at = (m->level[l].size == 0) ? 0 : at / m->level[l].size;
            j->key[(ptrdiff_t)l * j->n_rank + s] = at;
        }
        at = node;
        j->key[(ptrdiff_t)nodes * j->n_rank + s] = at;
        for (int l = nodes + 1; l < m->n_level - 1; ++l) {
            at = (m->level[l].size == 0) ? 0 : at / m->level[l].size;
            if (m->names != NULL) at = ct_names_above(m->names, (int)node, l);
            j->key[(ptrdiff_t)l * j->n_rank + s] = at;
        }
    }
}

/* ---- cyclic: places by (number in the vertex of level 0, …, of the last level) */

typedef struct digits {
    int digit[CT_MAX_LEVEL], place;
} digits;

static int by_digits(const void *a, const void *b)
{
    const digits *x = a, *y = b;

    for (int l = 0; l < CT_MAX_LEVEL; ++l) {
        if (x->digit[l] != y->digit[l]) return (x->digit[l] < y->digit[l]) ? -1 : 1;
    }
    return (x->place < y->place) ? -1 : (x->place > y->place);
}

/* With ranks in machine order the members of a vertex have consecutive numbers. */
static ct_status deal_cyclic(job *j)
{
    ct_topo *t = NULL;
    digits *d = calloc((size_t)j->n_rank, sizeof(*d));
    int first[CT_MAX_LEVEL] = { 0 };

    if (d == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d ranks", j->n_rank);
    if (ct_topo_build(j->machine, j->key, j->n_rank, "", &t) != CT_OK) {
        free(d);
        return CT_ERR_NOMEM;
    }
    for (int s = 0; s < j->n_rank; ++s) {
        d[s].place = s;
        for (int l = 0; l < t->machine.n_level; ++l) {
            int member = (l == 0) ? s : t->vertex[l - 1][s];

            if ((s == 0) || (t->vertex[l][s] != t->vertex[l][s - 1])) first[l] = member;
            d[s].digit[l] = member - first[l];
        }
    }
    qsort(d, (size_t)j->n_rank, sizeof(*d), by_digits);
    for (int r = 0; r < j->n_rank; ++r) j->place[r] = d[r].place;
    ct_topo_destroy(t);
    free(d);
    return CT_OK;
}

/* ---- random and scatter */

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x < y) ? -1 : (x > y);
}

static ct_status scatter_nodes(job *j, uint64_t seed)
{
    const ct_machine *m = j->machine;
    int64_t has = (m->names != NULL) ? m->names->n_node : ct_machine_n_node(m);

    if (has == 0)
        return CT_FAIL(CT_ERR_CONFIG,
                       "machine \"%s\" does not say how many nodes it has: nothing to scatter over",
                       m->name);
    for (int i = 0; i < j->n_node; ++i)
        j->node[i] =
            (int64_t)ct_rng_permute(ct_rng_key(seed, 0x5ca77e4, 0), (uint64_t)i, (uint64_t)has);
    qsort(j->node, (size_t)j->n_node, sizeof(*j->node), ascending);
    return CT_OK;
}

typedef enum { BLOCK, CYCLIC, RANDOM, SCATTER } way;

static ct_status parse_placement(const char *text, way *way_p, uint64_t *seed_p)
{
    static const char *const seeded[] = { [RANDOM] = "random:", [SCATTER] = "scatter:" };

    if (strcmp(text, "block") == 0) {
        *way_p = BLOCK;
        return CT_OK;
    }
    if (strcmp(text, "cyclic") == 0) {
        *way_p = CYCLIC;
        return CT_OK;
    }
    for (way w = RANDOM; w <= SCATTER; ++w) {
        size_t n = strlen(seeded[w]);
        char *end = NULL;

        if ((strncmp(text, seeded[w], n) != 0) || (text[n] < '0') || (text[n] > '9')) continue;
        errno = 0;
        *seed_p = strtoull(text + n, &end, 10);
        if ((*end != '\0') || (errno != 0)) continue;
        *way_p = w;
        return CT_OK;
    }
    return CT_FAIL(CT_ERR_CONFIG,
                   "placement \"%s\": expected block, cyclic, random:SEED or scatter:SEED", text);
}

ct_status ct_topo_check_placement(const char *placement)
{
    uint64_t seed = 0;
    way how = BLOCK;

    return parse_placement(placement, &how, &seed);
}

static ct_status place(job *j, const char *placement)
{
    uint64_t seed = 0;
    way how = BLOCK;

    CT_TRY(parse_placement(placement, &how, &seed));
    for (int i = 0; i < j->n_node; ++i) j->node[i] = i;
    if (how == SCATTER) CT_TRY(scatter_nodes(j, seed));
    fill_keys(j);
    for (int r = 0; r < j->n_rank; ++r) {
        j->place[r] = r;
        if (how == RANDOM)
            j->place[r] =
                (int)ct_rng_permute(ct_rng_key(seed, 0x4a2d, 0), (uint64_t)r, (uint64_t)j->n_rank);
    }
    return (how == CYCLIC) ? deal_cyclic(j) : CT_OK;
}

static ct_status name_nodes(const job *j, ct_topo *t)
{
    const ct_machine *m = j->machine;

    for (int l = m->node_level; l < m->n_level - 1; ++l) {
        t->vertex_name[l] = calloc((size_t)t->n_vertex[l], sizeof(char *));
        if (t->vertex_name[l] == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for names");
        for (int r = 0; r < j->n_rank; ++r) {
            char **name = &t->vertex_name[l][t->vertex[l][r]];
            int node = (int)j->node[j->place[r] / j->per_node];
            int above = (l > m->node_level) ? ct_names_above(m->names, node, l) : -1;

            if (*name != NULL) continue;
            *name = strdup((l == m->node_level) ? m->names->node[node]
                           : (above >= 0)       ? m->names->sw[above].name
                                                : "?");
            if (*name == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for names");
        }
    }
    return CT_OK;
}

static ct_status build(const job *j, const char *source, ct_topo **topo_p)
{
    size_t n = (size_t)j->n_rank;
    int64_t *key = malloc(sizeof(*key) * n * (size_t)j->machine->n_level);
    ct_status status = CT_OK;
    ct_topo *t = NULL;

    if (key == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d ranks", j->n_rank);
    for (size_t l = 0; l < (size_t)j->machine->n_level; ++l) {
        for (size_t r = 0; r < n; ++r) key[l * n + r] = j->key[l * n + (size_t)j->place[r]];
    }
    status = ct_topo_build(j->machine, key, j->n_rank, source, &t);
    free(key);
    if ((status == CT_OK) && (j->machine->names != NULL)) status = name_nodes(j, t);
    if (status != CT_OK) {
        ct_topo_destroy(t);
        return status;
    }
    *topo_p = t;
    return CT_OK;
}

ct_status ct_topo_place(const ct_machine *machine, int n_rank, int ranks_per_node,
                        const char *placement, ct_topo **topo_p)
{
    int64_t n_node =
        ((int64_t)n_rank + ranks_per_node - 1) / ((ranks_per_node > 0) ? ranks_per_node : 1);
    job j = { machine, n_rank, ranks_per_node, (int)n_node, NULL, NULL, NULL };
    ct_status status = CT_OK;
    char source[128];

    CT_TRY(check_size(machine, n_rank, ranks_per_node, n_node));
    j.node = malloc(sizeof(*j.node) * (size_t)n_node);
    j.key = calloc((size_t)machine->n_level * (size_t)n_rank, sizeof(*j.key));
    j.place = malloc(sizeof(*j.place) * (size_t)n_rank);
    if ((j.node == NULL) || (j.key == NULL) || (j.place == NULL)) {
        destroy(&j);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %d ranks", n_rank);
    }
    snprintf(source, sizeof(source), "%.60s, placed %.40s", machine->name, placement);
    status = place(&j, placement);
    if (status == CT_OK) status = build(&j, source, topo_p);
    destroy(&j);
    return status;
}
