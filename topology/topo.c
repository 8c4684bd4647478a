#include "topology/topo.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/rng.h"
#include "topology/names.h"

void ct_topo_destroy(ct_topo *topo)
{
    if (topo == NULL) return;
    for (int l = 0; l < CT_MAX_LEVEL; ++l) {
        for (int v = 0; (topo->vertex_name[l] != NULL) && (v < topo->n_vertex[l]); ++v)
            free(topo->vertex_name[l][v]);
        free(topo->vertex_name[l]);
        free(topo->vertex[l]);
        free(topo->parent[l]);
        free(topo->n_inside[l]);
    }
    free(topo->order);
    free(topo->torus_place);
    free(topo->node_class);
    free(topo->node);
    free(topo->local_rank);
    free(topo->node_size);
    free(topo);
}

/* ---- numbering the vertices of a level, from the level above and the ranks' keys */

typedef struct keyed {
    int64_t parent, key;
    int rank;
} keyed;

static int by_key(const void *a, const void *b)
{
    const keyed *x = a, *y = b;

    if (x->parent != y->parent) return (x->parent < y->parent) ? -1 : 1;
    if (x->key != y->key) return (x->key < y->key) ? -1 : 1;
    return (x->rank < y->rank) ? -1 : (x->rank > y->rank);
}

/* vertex[l] of every rank, numbered by first appearance. scratch: [n_rank]. */
static ct_status number_level(ct_topo *t, int l, const int64_t *key, keyed *scratch)
{
    const int *above = (l + 1 < t->machine.n_level) ? t->vertex[l + 1] : NULL;
    int *vertex = t->vertex[l];

    for (int r = 0; r < t->n_rank; ++r)
        scratch[r] = (keyed){ (above != NULL) ? above[r] : 0, (above != NULL) ? key[r] : 0, r };
    qsort(scratch, (size_t)t->n_rank, sizeof(*scratch), by_key);
    /* the lowest rank of a group speaks for it */
    for (int i = 0, first = 0; i < t->n_rank; ++i) {
        if ((scratch[i].parent != scratch[first].parent) || (scratch[i].key != scratch[first].key))
            first = i;
        vertex[scratch[i].rank] = scratch[first].rank;
    }
    t->n_vertex[l] = 0;
    for (int r = 0; r < t->n_rank; ++r)
        vertex[r] = (vertex[r] == r) ? t->n_vertex[l]++ : vertex[vertex[r]];
    t->n_inside[l] = calloc((size_t)t->n_vertex[l], sizeof(int));
    if (above != NULL) t->parent[l] = calloc((size_t)t->n_vertex[l], sizeof(int));
    if ((t->n_inside[l] == NULL) || ((above != NULL) && (t->parent[l] == NULL)))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a topology of %d ranks", t->n_rank);
    for (int r = 0; r < t->n_rank; ++r) {
        t->n_inside[l][vertex[r]] += 1;
        if (above != NULL) t->parent[l][vertex[r]] = above[r];
    }
    return CT_OK;
}

/* Ranks by (vertex of the last level, …, vertex of level 0, rank): one stable counting sort a
 * level, innermost first. */
static ct_status sort_ranks(ct_topo *t)
{
    int *next = malloc(sizeof(*next) * (size_t)(t->n_rank + 1));
    int *sorted = malloc(sizeof(*sorted) * (size_t)t->n_rank);

    if ((next == NULL) || (sorted == NULL)) {
        free(next);
        free(sorted);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a topology of %d ranks", t->n_rank);
    }
    for (int r = 0; r < t->n_rank; ++r) t->order[r] = r;
    for (int l = 0; l < t->machine.n_level; ++l) {
        next[0] = 0;
        for (int v = 0; v + 1 < t->n_vertex[l]; ++v) next[v + 1] = next[v] + t->n_inside[l][v];
        for (int i = 0; i < t->n_rank; ++i) sorted[next[t->vertex[l][t->order[i]]]++] = t->order[i];
        memcpy(t->order, sorted, sizeof(*sorted) * (size_t)t->n_rank);
    }
    free(next);
    free(sorted);
    return CT_OK;
}

ct_status ct_topo_fullest(const ct_topo *topo, int64_t *n_member)
{
    int *count = malloc(sizeof(*count) * (size_t)topo->n_rank);

    if (count == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d ranks", topo->n_rank);
    for (int l = 0; l < topo->machine.n_level; ++l) {
        int n = (l == 0) ? topo->n_rank : topo->n_vertex[l - 1];

        n_member[l] = 0;
        memset(count, 0, sizeof(*count) * (size_t)topo->n_vertex[l]);
        for (int i = 0; i < n; ++i) {
            int now = ++count[(l == 0) ? topo->vertex[0][i] : topo->parent[l - 1][i]];

            if (now > n_member[l]) n_member[l] = now;
        }
    }
    free(count);
    return CT_OK;
}

/* The job's own sizes stand in where the machine leaves one open. */
static ct_status fill_uplinks(ct_topo *t)
{
    int64_t n_member[CT_MAX_LEVEL];

    CT_TRY(ct_topo_fullest(t, n_member));
    ct_machine_fill_uplinks(&t->machine, n_member);
    return CT_OK;
}

static void fill_node_view(ct_topo *t)
{
    const ct_machine *m = &t->machine;

    t->n_node = t->n_vertex[m->node_level];
    for (int r = 0; r < t->n_rank; ++r) {
        t->node[r] = t->vertex[m->node_level][r];
        t->local_rank[r] = t->node_size[t->node[r]]++;
    }
}

/* Nodes have the numbers that their keys say, within the torus. */
static ct_status place_on_torus(ct_topo *t, const int64_t *node_key)
{
    const ct_level *on = &t->machine.level[t->machine.node_level + 1];

    if (on->torus.n_dim == 0) return CT_OK;
    t->torus_place = calloc((size_t)t->n_node, sizeof(*t->torus_place));
    if (t->torus_place == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d nodes", t->n_node);
    for (int r = 0; r < t->n_rank; ++r) t->torus_place[t->node[r]] = (int)(node_key[r] % on->size);
    return CT_OK;
}

const ct_torus *ct_topo_torus(const ct_topo *topo)
{
    const ct_level *on = &topo->machine.level[topo->machine.node_level + 1];

    if ((topo->torus_place == NULL) || (topo->n_rank != topo->n_node)) return NULL;
    if ((topo->n_vertex[topo->machine.node_level + 1] != 1) || (topo->n_node != on->size))
        return NULL;
    return &on->torus;
}

static ct_status allocate(ct_topo *t)
{
    size_t n = (size_t)t->n_rank;
    bool good = true;

    t->node = calloc(n, sizeof(*t->node));
    t->local_rank = calloc(n, sizeof(*t->local_rank));
    t->node_size = calloc(n, sizeof(*t->node_size));
    t->order = calloc(n, sizeof(*t->order));
    for (int l = 0; l < t->machine.n_level; ++l) {
        t->vertex[l] = calloc(n, sizeof(int));
        good = good && (t->vertex[l] != NULL);
    }
    if (good && (t->node != NULL) && (t->local_rank != NULL) && (t->node_size != NULL) &&
        (t->order != NULL))
        return CT_OK;
    return CT_FAIL(CT_ERR_NOMEM, "no memory for a topology of %d ranks", t->n_rank);
}

ct_status ct_topo_build(const ct_machine *machine, const int64_t *key, int n_rank,
                        const char *source, ct_topo **topo_p)
{
    ct_topo *t = NULL;
    keyed *scratch = NULL;
    ct_status status = CT_OK;

    if (n_rank < 1) return CT_FAIL(CT_ERR_ARG, "a topology of %d ranks", n_rank);
    t = calloc(1, sizeof(*t));
    scratch = malloc(sizeof(*scratch) * (size_t)n_rank);
    if ((t == NULL) || (scratch == NULL)) {
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for a topology of %d ranks", n_rank);
        goto err_destroy;
    }
    t->n_rank = n_rank;
    t->machine = *machine;
    t->machine.names = NULL;
    t->machine.node_run = NULL;
    t->machine.n_node_run = 0;
    snprintf(t->source, sizeof(t->source), "%s", source);
    CT_TRY_GOTO(status, err_destroy, allocate(t));
    for (int l = machine->n_level - 1; l >= 0; --l)
        CT_TRY_GOTO(status, err_destroy, number_level(t, l, key + (ptrdiff_t)l * n_rank, scratch));
    CT_TRY_GOTO(status, err_destroy, sort_ranks(t));
    CT_TRY_GOTO(status, err_destroy, fill_uplinks(t));
    fill_node_view(t);
    CT_TRY_GOTO(status, err_destroy,
                place_on_torus(t, key + (ptrdiff_t)machine->node_level * n_rank));
    free(scratch);
    *topo_p = t;
    return CT_OK;

err_destroy:
    free(scratch);
    ct_topo_destroy(t);
    return status;
}

/* Vertices that are left have the names that they had. */
static ct_status keep_names(const ct_topo *t, const int *rank, ct_topo *part)
{
    for (int l = 0; l < t->machine.n_level; ++l) {
        if (t->vertex_name[l] == NULL) continue;
        part->vertex_name[l] = calloc((size_t)part->n_vertex[l], sizeof(char *));
        if (part->vertex_name[l] == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for names");
        for (int i = 0; i < part->n_rank; ++i) {
            const char *name = t->vertex_name[l][t->vertex[l][rank[i]]];
            char **to = &part->vertex_name[l][part->vertex[l][i]];

            if ((name == NULL) || (*to != NULL)) continue;
            *to = strdup(name);
            if (*to == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for names");
        }
    }
    return CT_OK;
}

static ct_status keep_classes(const ct_topo *t, const int *rank, ct_topo *part)
{
    if (t->node_class == NULL) return CT_OK;
    part->node_class = calloc((size_t)part->n_node, sizeof(*part->node_class));
    if (part->node_class == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for classes of nodes");
    for (int i = 0; i < part->n_rank; ++i)
        part->node_class[part->node[i]] = t->node_class[t->node[rank[i]]];
    return CT_OK;
}

static ct_status check_subset(const ct_topo *t, const int *rank, int n)
{
    bool *taken = calloc((size_t)t->n_rank, sizeof(*taken));
    int bad = -1;

    if (taken == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d ranks", t->n_rank);
    for (int i = 0; (i < n) && (bad < 0); ++i) {
        if ((rank[i] < 0) || (rank[i] >= t->n_rank) || taken[rank[i]])
            bad = i;
        else
            taken[rank[i]] = true;
    }
    free(taken);
    if (bad >= 0)
        return CT_FAIL(CT_ERR_ARG, "a part of %d ranks: rank %d is not there, or twice", t->n_rank,
                       rank[bad]);
    return CT_OK;
}

/* Nodes of a torus stay where they stand. */
static int64_t key_of(const ct_topo *t, int l, int rank)
{
    if ((t->torus_place == NULL) || (l != t->machine.node_level)) return t->vertex[l][rank];
    return t->vertex[l + 1][rank] * t->machine.level[l + 1].size + t->torus_place[t->node[rank]];
}

ct_status ct_topo_subset(const ct_topo *t, const int *rank, int n, ct_topo **topo_p)
{
    size_t n_level = (size_t)t->machine.n_level;
    int64_t *key = NULL;
    char source[128];
    ct_topo *part = NULL;
    ct_status status;

    CT_TRY(check_subset(t, rank, n));
    key = calloc(n_level * (size_t)n + 1, sizeof(*key));
    if (key == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d ranks", n);
    for (size_t l = 0; l < n_level; ++l) {
        for (int i = 0; i < n; ++i) key[l * (size_t)n + (size_t)i] = key_of(t, (int)l, rank[i]);
    }
    snprintf(source, sizeof(source), "%d of %d ranks: %.80s", n, t->n_rank, t->source);
    status = ct_topo_build(&t->machine, key, n, source, &part);
    free(key);
    if (status == CT_OK) status = keep_names(t, rank, part);
    if (status == CT_OK) status = keep_classes(t, rank, part);
    if (status != CT_OK) {
        ct_topo_destroy(part);
        return status;
    }
    *topo_p = part;
    return CT_OK;
}

int ct_topo_meet(const ct_topo *topo, int a, int b)
{
    int l = 0;

    if (a == b) return -1;
    while ((l < topo->machine.n_level - 1) && (topo->vertex[l][a] != topo->vertex[l][b])) l += 1;
    return l;
}

/* ---- from what is known of a job */

/* Nodes under one machine, or under switches as well; sizes open. */
static void open_machine(int n_level, ct_machine *m)
{
    static const char *const above[] = { "node", "switch", "group", "machine" };

    *m = (ct_machine){ .n_level = n_level, .sum_bandwidth = 10e9 };
    snprintf(m->name, sizeof(m->name), "this job");
    snprintf(m->source, sizeof(m->source), "the figures are guesses");
    for (int l = 0; l < n_level; ++l)
        ct_level_guess((l == n_level - 1) ? "machine" : above[l], l, &m->level[l]);
}

ct_status ct_topo_from_hosts(const uint64_t *host, int n_rank, const char *source, ct_topo **topo_p)
{
    ct_status status = CT_OK;
    ct_machine m;
    int64_t *key = NULL;

    if (n_rank < 1) return CT_FAIL(CT_ERR_ARG, "a topology of %d ranks", n_rank);
    key = calloc(2 * (size_t)n_rank, sizeof(*key));
    if (key == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d ranks", n_rank);
    open_machine(2, &m);
    memcpy(key, host, sizeof(*key) * (size_t)n_rank);
    status = ct_topo_build(&m, key, n_rank, source, topo_p);
    free(key);
    return status;
}

/* "aabb/0120" of 4 characters a map: the keys of the levels, the last map first. */
static ct_status from_map(const char *spec, const char *map, int n_rank, const char *source,
                          ct_topo **topo_p)
{
    size_t n = (size_t)n_rank, length = strlen(map), n_map = (length + 1) / (n + 1);
    ct_status status = CT_OK;
    ct_machine m;
    int64_t *key = NULL;

    if (((length + 1) % (n + 1) != 0) || (n_map < 1) || (n_map > 3))
        return CT_FAIL(CT_ERR_CONFIG, "topology \"%s\": names the nodes of %zu ranks, but %d run",
                       spec, strcspn(map, "/"), n_rank);
    for (size_t i = 0; i < length; ++i) {
        bool split = (i % (n + 1) == n);

        if (split ? (map[i] != '/') : !isalnum((unsigned char)map[i]))
            return CT_FAIL(CT_ERR_CONFIG, "topology \"%s\": '%c' is no %s", spec, map[i],
                           split ? "'/' between two maps of all ranks" : "letter or digit");
    }
    key = calloc((n_map + 1) * n, sizeof(*key));
    if (key == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d ranks", n_rank);
    for (size_t l = 0; l < n_map; ++l) {
        for (size_t r = 0; r < n; ++r)
            key[l * n + r] = (unsigned char)map[(n_map - 1 - l) * (n + 1) + r];
    }
    open_machine((int)n_map + 1, &m);
    status = ct_topo_build(&m, key, n_rank, source, topo_p);
    free(key);
    return status;
}

ct_status ct_topo_fill(const ct_machine *machine, const char *spec, int n_rank, ct_topo **topo_p)
{
    int64_t inside = ct_machine_product(machine, 0, machine->node_level);
    int64_t all = ct_machine_product(machine, 0, machine->n_level - 1);

    if (all != n_rank)
        return CT_FAIL(CT_ERR_CONFIG, "topology \"%s\": %lld nodes of %lld ranks, but %d ranks run",
                       spec, (long long)ct_machine_n_node(machine), (long long)inside, n_rank);
    CT_TRY(ct_topo_place(machine, n_rank, (int)inside, "block", topo_p));
    snprintf((*topo_p)->source, sizeof((*topo_p)->source), "synthetic %.100s", spec);
    return CT_OK;
}

ct_status ct_topo_from_string(const char *spec, int n_rank, ct_topo **topo_p)
{
    static const char map_prefix[] = "map:";
    size_t prefix = sizeof(map_prefix) - 1;
    ct_status status = CT_OK;
    ct_machine *m = NULL;
    char source[128];

    if (n_rank < 1) return CT_FAIL(CT_ERR_ARG, "a topology of %d ranks", n_rank);
    snprintf(source, sizeof(source), "synthetic %.100s", spec);
    if (strncmp(spec, map_prefix, prefix) == 0)
        return from_map(spec, spec + prefix, n_rank, source, topo_p);
    CT_TRY(ct_machine_from_spec(spec, &m));
    status = ct_topo_fill(m, spec, n_rank, topo_p);
    ct_machine_destroy(m);
    return status;
}

int ct_topo_min_node_size(const ct_topo *topo)
{
    int least = topo->node_size[0];

    for (int k = 1; k < topo->n_node; ++k) {
        if (topo->node_size[k] < least) least = topo->node_size[k];
    }
    return least;
}

int ct_topo_max_node_size(const ct_topo *topo)
{
    int most = topo->node_size[0];

    for (int k = 1; k < topo->n_node; ++k) {
        if (topo->node_size[k] > most) most = topo->node_size[k];
    }
    return most;
}

/* ---- a made-up job on a machine: which place each rank gets */

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
    ct_status status;

    if (d == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d ranks", j->n_rank);
    status = ct_topo_build(j->machine, j->key, j->n_rank, "", &t);
    if (status != CT_OK) {
        free(d);
        return status;
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

static ct_status class_nodes(const job *j, ct_topo *t)
{
    int64_t *node = malloc(sizeof(*node) * (size_t)j->n_rank);
    ct_status status = CT_OK;

    if (node == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d ranks", j->n_rank);
    for (int r = 0; r < j->n_rank; ++r) node[r] = j->node[j->place[r] / j->per_node];
    status = ct_topo_class_nodes(t, j->machine, node);
    free(node);
    return status;
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
    if (status == CT_OK) status = class_nodes(j, t);
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
