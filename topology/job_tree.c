#include "topology/job_tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ct_status ct_job_tree_create(const ct_job_facts *facts, ct_job_tree *tree_p)
{
    size_t n = (size_t)facts->n_rank;
    uint64_t *host = malloc(sizeof(*host) * n);
    ct_job_tree t = { .facts = facts };
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
        ct_job_tree_destroy(&t);
        return status;
    }
    for (int r = facts->n_rank - 1; r >= 0; --r) t.leader[t.hosts->node[r]] = r;
    *tree_p = t;
    return CT_OK;
}

void ct_job_tree_destroy(ct_job_tree *tree)
{
    ct_topo_destroy(tree->hosts);
    free(tree->leader);
    free(tree->key);
}

int64_t *ct_job_tree_level(ct_job_tree *tree, int level)
{
    return tree->key + (ptrdiff_t)level * tree->facts->n_rank;
}

/* Where every rank is bound within one socket (numa: NUMA node), and some node uses several. */
static bool is_split(const ct_job_tree *tree, bool numa)
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

static void put_level(ct_job_tree *tree, ct_machine *m, const char *name, int below, bool numa)
{
    size_t n = (size_t)tree->facts->n_rank;

    memmove(ct_job_tree_level(tree, 1), tree->key, sizeof(*tree->key) * n * (size_t)m->n_level);
    memmove(&m->level[1], &m->level[0], sizeof(m->level[0]) * (size_t)m->n_level);
    ct_level_guess(name, -below, &m->level[0]);
    m->n_level += 1;
    m->node_level += 1;
    for (size_t r = 0; r < n; ++r)
        tree->key[r] = numa ? tree->facts->place[r].numa : tree->facts->place[r].socket;
}

void ct_job_add_inside(ct_job_tree *tree, ct_machine *m)
{
    bool socket = is_split(tree, false), numa = is_split(tree, true);

    if (socket && numa && same_split(tree->facts)) numa = false;
    if (socket && (m->n_level < CT_MAX_LEVEL)) put_level(tree, m, "socket", 1, false);
    if (numa && (m->n_level < CT_MAX_LEVEL)) put_level(tree, m, "numa", socket ? 2 : 1, true);
}

ct_status ct_job_name_vertices(const ct_job_tree *tree, ct_topo *t)
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
