#include "framework/base/file.h"
#include "runtime/call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/discover.h"
#include "topology/topo.h"

bool ct_show_topology_in_job(int argc, char *const *argv)
{
    bool wanted = false;

    for (int i = 1; i < argc; ++i) wanted = wanted || (strncmp(argv[i], "--topology", 10) == 0);
    return wanted && ct_job_is_launched();
}

static void print_head(const ct_machine *m, ct_text *out)
{
    ct_text_add(out, "%s", m->name);
    if (m->source[0] != '\0') ct_text_add(out, ": %s", m->source);
    ct_text_add(out, "\n");
    ct_machine_draw_levels(m, out);
}

/* Names for the nodes, which only a job's drawing needs. */
static ct_status name_nodes(const ct_comm *c)
{
    enum { SIZE = sizeof(((ct_rank_name *)NULL)->node) };
    ct_topo *t = c->topo;
    int l = t->machine.node_level;
    ct_rank_name mine;
    char *all = NULL;

    if ((t->vertex_name[l] != NULL) || !c->node_shares) return CT_OK;
    all = malloc((size_t)SIZE * (size_t)c->size);
    if (all == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for names");
    ct_rank_name_fill(&mine);
    CT_TRY_MPI(MPI_Allgather(mine.node, SIZE, MPI_CHAR, all, SIZE, MPI_CHAR, c->mpi));
    t->vertex_name[l] = calloc((size_t)t->n_vertex[l], sizeof(char *));
    for (int r = 0; (r < c->size) && (t->vertex_name[l] != NULL); ++r) {
        char **at = &t->vertex_name[l][t->node[r]];

        if (*at == NULL) *at = strdup(all + (ptrdiff_t)SIZE * r);
        if (*at == NULL) break;
    }
    free(all);
    return CT_OK;
}

static ct_status draw_job(ct_job *job, const char *topology, ct_text *out)
{
    const ct_topo *t = NULL;

    CT_TRY(ct_job_connect(job, topology, false));
    t = job->comm->topo;
    if (strncmp(t->source, "synthetic", 9) != 0) CT_TRY(name_nodes(job->comm));
    if (job->rank != 0) return CT_OK;
    ct_text_add(out, "found by: %s\n", t->source);
    print_head(&t->machine, out);
    return ct_topo_draw(t, out);
}

/* Without a job: the machine that is named. */
static ct_status draw_alone(const char *topology, ct_text *out)
{
    ct_topo_text text;
    ct_machine *m = NULL;
    ct_status status = CT_OK;
    const char *path = NULL;
    char *file = NULL;
    size_t size = 0;

    CT_TRY(ct_topo_text_parse(topology, &text));
    if ((text.kind == CT_TOPO_AUTO) || (text.kind == CT_TOPO_SLURM)) {
        ct_text_add(out,
                    "one process, no job: start it with mpirun or srun to see the job's tree, or "
                    "name a machine, such as --topology=%s\n",
                    ct_ready_machine_table[0].name);
        return CT_OK;
    }
    if ((text.kind == CT_TOPO_SPEC) && (strncmp(text.spec, "map:", 4) == 0))
        return CT_FAIL(CT_ERR_CONFIG, "topology \"%s\": a map is of a job's ranks", topology);
    path = ct_topo_text_file(&text);
    if (path != NULL) CT_TRY(ct_settings_read(path, &file, &size));
    status = ct_topo_text_machine(&text, file, size, &m);
    free(file);
    if ((status == CT_OK) && (text.kind == CT_TOPO_SPEC)) status = ct_topo_text_spec(&text, &m);
    if (status == CT_OK) {
        print_head(m, out);
        status = ct_machine_draw(m, out);
    }
    ct_machine_destroy(m);
    return status;
}

ct_status ct_show_topology(const ct_call *call, const char *topology)
{
    const char *said = getenv("CORTADO_TOPOLOGY");
    ct_text out = { 0 };
    ct_status status;

    if (strcmp(topology, "-") == 0)
        topology = ((said != NULL) && (said[0] != '\0')) ? said : "auto";
    status = (call->job != NULL) ? draw_job(call->job, topology, &out) : draw_alone(topology, &out);
    if ((status == CT_OK) && (out.text != NULL)) fputs(out.text, stdout);
    ct_text_destroy(&out);
    return status;
}
