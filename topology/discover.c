#include "topology/discover.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/job_tree.h"
#include "topology/names.h"

/* ---- by MPI's word */

static ct_status by_mpi(ct_job_tree *tree, ct_topo **topo_p)
{
    ct_machine m = tree->hosts->machine;
    ct_topo *t = NULL;
    ct_status status = CT_OK;
    int64_t *key = ct_job_tree_level(tree, 0);

    for (int r = 0; r < tree->facts->n_rank; ++r) key[r] = tree->hosts->node[r];
    for (int l = 0; l < m.n_level; ++l)
        m.level[l].uplink = 0; /* of one more level inside, perhaps */
    memset(ct_job_tree_level(tree, 1), 0, sizeof(*key) * (size_t)tree->facts->n_rank);
    ct_job_add_inside(tree, &m);
    CT_TRY(ct_topo_build(&m, tree->key, tree->facts->n_rank,
                         (m.node_level > 0) ? "mpi shared split, hwloc" : "mpi shared split", &t));
    status = ct_job_name_vertices(tree, t);
    if (status != CT_OK) {
        ct_topo_destroy(t);
        return status;
    }
    *topo_p = t;
    return CT_OK;
}

/* ---- on a machine that the user names */

/* No vertex holds more than its level's size says. */
static ct_status check_room(const ct_job_tree *tree, const ct_topo *t)
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
static void fill_inside(ct_job_tree *tree, const ct_machine *m)
{
    const ct_job_facts *f = tree->facts;

    for (int l = 0; l < m->node_level; ++l) {
        bool numa = (strcmp(m->level[l].name, "numa") == 0), known = true;
        int64_t *key = ct_job_tree_level(tree, l), inside = ct_machine_product(m, 0, l);

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
static ct_status fill_in_blocks(ct_job_tree *tree, const ct_machine *m)
{
    int64_t has = ct_machine_n_node(m);

    if ((has != 0) && (tree->hosts->n_node > has))
        return CT_FAIL(CT_ERR_CONFIG, "machine \"%s\" has %lld nodes, but the job runs on %d",
                       m->name, (long long)has, tree->hosts->n_node);
    for (int r = 0; r < tree->facts->n_rank; ++r) {
        int64_t at = tree->hosts->node[r];

        ct_job_tree_level(tree, m->node_level)[r] = at;
        for (int l = m->node_level + 1; l < m->n_level - 1; ++l) {
            at = (m->level[l].size == 0) ? 0 : at / m->level[l].size;
            ct_job_tree_level(tree, l)[r] = at;
        }
    }
    if (m->n_level > m->node_level + 2)
        CT_INFO("machine \"%s\" names no nodes: the job's %d fill it in blocks, in the order of "
                "their lowest ranks",
                m->name, tree->hosts->n_node);
    return CT_OK;
}

/* "n3, n7, … (12 in all)" of the job's nodes that the machine does not name. */
static ct_status fail_missing(const ct_job_tree *tree, const ct_machine *m)
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

static ct_status fill_by_name(ct_job_tree *tree, const ct_machine *m, int *node)
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
        ct_job_tree_level(tree, m->node_level)[r] = tree->hosts->node[r];
        for (int l = m->node_level + 1; l < m->n_level - 1; ++l)
            ct_job_tree_level(tree, l)[r] = ct_names_above(m->names, node[r], l);
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

static ct_status on_machine(ct_job_tree *tree, const ct_machine *m, const char *source,
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
    if (status == CT_OK) status = ct_job_name_vertices(tree, t);
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

/* Latencies and bandwidths as they are; uplinks of the same oversubscription, as this one's
 * switches may have fewer nodes. */
static ct_status borrow_figures(const char *spec, const ct_machine *from, ct_machine *m)
{
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
        if (m->level[l].uplink > 0) m->level[l].uplink *= members;
        if (l == m->node_level + 1) m->level[l].uplink = from->level[from->node_level + 1].uplink;
        if (like->pairwise && (like->size > 1) && (mine.size > 1))
            m->level[l].uplink *= (double)(mine.size - 1) / (double)(like->size - 1);
    }
    m->sum_bandwidth = from->sum_bandwidth;
    m->shared = from->shared;
    m->in_network = from->in_network;
    m->coding = from->coding;
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
    ct_job_tree tree;
    ct_status status = CT_OK;
    ct_topo *t = NULL;
    char source[128];

    if (text->kind == CT_TOPO_SPEC) return by_spec(text, machine, facts->n_rank, topo_p);
    if (text->kind == CT_TOPO_PLACE)
        return ct_topo_place(machine, facts->n_rank, text->ranks_per_node, text->spec, topo_p);
    CT_TRY(ct_job_tree_create(facts, &tree));
    if ((text->kind == CT_TOPO_FILE) || (text->kind == CT_TOPO_CONF)) {
        snprintf(source, sizeof(source), "machine file %.100s", text->machine);
        status = on_machine(&tree, machine, source, &t);
    } else {
        status = ct_job_slurm_tree(&tree, text->kind == CT_TOPO_SLURM, &t);
        if ((status == CT_UNSUPPORTED) && (text->kind == CT_TOPO_SLURM))
            status =
                CT_FAIL(CT_ERR_CONFIG, "topology \"slurm\": SLURM says nothing about switches");
        if (status == CT_UNSUPPORTED) status = by_mpi(&tree, &t);
        if ((status == CT_OK) && (machine != NULL)) status = take_figures(machine, t);
    }
    ct_job_tree_destroy(&tree);
    if (status != CT_OK) {
        ct_topo_destroy(t);
        return status;
    }
    *topo_p = t;
    return CT_OK;
}
