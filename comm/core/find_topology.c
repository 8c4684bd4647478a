#include "comm/core/find_topology.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "topology/discover.h"

enum { MAX_FILE = 64 << 20 };

/* The whole of a file, or why not as an errno. Says nothing: all ranks will. */
static int read_file(const char *path, char **data_p, int64_t *size_p)
{
    FILE *f = fopen(path, "rb");
    char *data = NULL;
    size_t size = 0, room = 0, got = 1;
    int error = 0;

    if (f == NULL) return (errno != 0) ? errno : EIO;
    while ((error == 0) && (got > 0)) {
        if (size + 1 >= room) {
            char *more = realloc(data, room = (room == 0) ? 1 << 16 : 2 * room);

            if ((more == NULL) || (room > MAX_FILE)) error = (more == NULL) ? ENOMEM : EFBIG;
            if (more != NULL) data = more;
            if (error != 0) break;
        }
        errno = 0;
        got = fread(data + size, 1, room - size - 1, f);
        if (ferror(f)) error = (errno != 0) ? errno : EIO;
        size += got;
    }
    fclose(f);
    if (error != 0) {
        free(data);
        return error;
    }
    data[size] = '\0';
    *data_p = data;
    *size_p = (int64_t)size;
    return 0;
}

/* Rank 0 reads the file, if there is one; data is NULL where there is none. */
static ct_status share_file(ct_comm *c, const ct_topo_text *text, char **data_p, size_t *size_p)
{
    const char *path = (c->rank == 0) ? ct_topo_text_file(text) : NULL;
    int64_t head[2] = { -1, 0 }; /* -1: no file, 0: read, else an errno; bytes */
    char *data = NULL;
    int rc;

    if (path != NULL) head[0] = read_file(path, &data, &head[1]);
    rc = MPI_Bcast(head, 2, MPI_INT64_T, 0, c->world);
    if ((rc == MPI_SUCCESS) && (head[0] == 0)) {
        if (c->rank != 0) data = malloc((size_t)head[1] + 1);
        if (data == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %s", text->machine);
        rc = MPI_Bcast(data, (int)head[1] + 1, MPI_BYTE, 0, c->world);
    }
    if ((rc != MPI_SUCCESS) || (head[0] > 0)) {
        free(data);
        CT_TRY_MPI(rc);
        return CT_FAIL(CT_ERR_IO, "topology: cannot read %s: %s", text->machine,
                       strerror((int)head[0]));
    }
    *data_p = data;
    *size_p = (size_t)head[1];
    return CT_OK;
}

static ct_status share_machine(ct_comm *c, const ct_topo_text *text, ct_machine **machine_p)
{
    char *data = NULL;
    size_t size = 0;
    ct_status status = CT_OK;

    CT_TRY(share_file(c, text, &data, &size));
    status = ct_topo_text_machine(text, data, size, machine_p);
    free(data);
    return status;
}

/* Splits off the ranks of this real machine, and tells all ranks where each runs. */
static ct_status gather_places(ct_comm *c, ct_rank_place *place)
{
    ct_rank_place mine = { .host = (uint64_t)c->rank };

    CT_TRY_MPI(
        MPI_Comm_split_type(c->world, MPI_COMM_TYPE_SHARED, c->rank, MPI_INFO_NULL, &c->host));
    CT_TRY_MPI(MPI_Comm_set_errhandler(c->host, MPI_ERRORS_RETURN));
    CT_TRY_MPI(MPI_Bcast(&mine.host, 1, MPI_UINT64_T, 0, c->host)); /* its first rank */
    ct_rank_place_inside(&mine.socket, &mine.numa);
    CT_TRY_MPI(MPI_Allgather(&mine, (int)sizeof(mine), MPI_BYTE, place, (int)sizeof(mine), MPI_BYTE,
                             c->world));
    return CT_OK;
}

/* The ranks' names where somebody needs them; half a kilobyte a rank is much in a large job. */
static ct_status gather_names(ct_comm *c, const ct_topo_text *text, const ct_machine *machine,
                              ct_rank_name **name_p)
{
    int needed = text->needs_names || ((machine != NULL) && (machine->names != NULL));
    ct_rank_name mine, *name = NULL;

    ct_rank_name_fill(&mine);
    if (text->kind == CT_TOPO_AUTO) needed = (mine.address[0] != '\0');
    CT_TRY_MPI(MPI_Allreduce(MPI_IN_PLACE, &needed, 1, MPI_INT, MPI_MAX, c->world));
    if (!needed) return CT_OK;
    name = malloc(sizeof(*name) * (size_t)c->size);
    if (name == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the names of %d ranks", c->size);
    *name_p = name;
    CT_TRY_MPI(MPI_Allgather(&mine, (int)sizeof(mine), MPI_BYTE, name, (int)sizeof(mine), MPI_BYTE,
                             c->world));
    return CT_OK;
}

/* Rank 0's list is everybody's. */
static ct_status share_node_list(ct_comm *c, char **list_p)
{
    const char *mine = ct_slurm_node_list();
    int n = (int)strlen(mine) + 1;
    char *list = NULL;

    CT_TRY_MPI(MPI_Bcast(&n, 1, MPI_INT, 0, c->world));
    list = malloc((size_t)n);
    if (list == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a node list");
    if (c->rank == 0) memcpy(list, mine, (size_t)n);
    *list_p = list;
    CT_TRY_MPI(MPI_Bcast(list, n, MPI_BYTE, 0, c->world));
    return CT_OK;
}

/* SLURM's word on how many nodes the step has, where SLURM started us. A difference is no error
 * (containers hide shared memory), but explains slow collectives. */
static void check_slurm_nodes(const ct_comm *c)
{
    const char *tasks = getenv("SLURM_STEP_NUM_TASKS"), *nodes = getenv("SLURM_STEP_NUM_NODES");

    if ((c->rank != 0) || (tasks == NULL) || (nodes == NULL) || (atoi(tasks) != c->size)) return;
    if (atoi(nodes) != c->topo->n_node)
        CT_WARN("SLURM gave this step %s nodes, but MPI finds %d groups of ranks that share memory",
                nodes, c->topo->n_node);
}

/* The ranks of every node, which may be a pretended one, are on one real machine. */
static bool nodes_share(const ct_topo *t, const ct_rank_place *place)
{
    for (int r = 1; r < t->n_rank; ++r) {
        int a = t->order[r - 1], b = t->order[r];

        if ((t->node[a] == t->node[b]) && (place[a].host != place[b].host)) return false;
    }
    return true;
}

static ct_status find(ct_comm *c, const ct_topo_text *text, const ct_machine *machine,
                      ct_job_facts *f, ct_rank_name **name_p, char **list_p)
{
    CT_TRY(gather_names(c, text, machine, name_p));
    CT_TRY(share_node_list(c, list_p));
    f->name = *name_p;
    f->node_list = *list_p;
    CT_TRY(ct_topo_discover(text, machine, f, &c->topo));
    if (text->kind == CT_TOPO_AUTO) check_slurm_nodes(c);
    c->node_shares = nodes_share(c->topo, f->place);
    return CT_OK;
}

ct_status ct_comm_find_topology(ct_comm *c, const char *topology)
{
    ct_rank_place *place = calloc((size_t)c->size, sizeof(*place));
    ct_job_facts facts = { .n_rank = c->size, .place = place, .speaks = (c->rank == 0) };
    ct_machine *machine = NULL;
    ct_rank_name *name = NULL;
    char *list = NULL;
    ct_topo_text text;
    ct_status status = CT_OK;

    if (place == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d ranks", c->size);
    CT_TRY_GOTO(status, done, gather_places(c, place));
    CT_TRY_GOTO(status, done, ct_topo_text_parse(topology, &text));
    CT_TRY_GOTO(status, done, share_machine(c, &text, &machine));
    CT_TRY_GOTO(status, done, find(c, &text, machine, &facts, &name, &list));

done:
    ct_machine_destroy(machine);
    free(place);
    free(name);
    free(list);
    return status;
}
