#include "comm/core/comm.h"

#include <errno.h>
#include <mpi.h>
#include <omp.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/bf16.h"
#include "comm/core/node.h"
#include "comm/core/reduce.h"
#include "topology/topo.h"
#include "topology/discover.h"

/* ---- what the ranks know of the machine */

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
    rc = MPI_Bcast(head, 2, MPI_INT64_T, 0, c->mpi);
    if ((rc == MPI_SUCCESS) && (head[0] == 0)) {
        if (c->rank != 0) data = malloc((size_t)head[1] + 1);
        if (data == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %s", text->machine);
        rc = MPI_Bcast(data, (int)head[1] + 1, MPI_BYTE, 0, c->mpi);
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

    CT_TRY_MPI(MPI_Comm_split_type(c->mpi, MPI_COMM_TYPE_SHARED, c->rank, MPI_INFO_NULL, &c->host));
    CT_TRY_MPI(MPI_Comm_set_errhandler(c->host, MPI_ERRORS_RETURN));
    CT_TRY_MPI(MPI_Bcast(&mine.host, 1, MPI_UINT64_T, 0, c->host)); /* its first rank */
    ct_rank_place_inside(&mine.socket, &mine.numa);
    CT_TRY_MPI(MPI_Allgather(&mine, (int)sizeof(mine), MPI_BYTE, place, (int)sizeof(mine), MPI_BYTE,
                             c->mpi));
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
    CT_TRY_MPI(MPI_Allreduce(MPI_IN_PLACE, &needed, 1, MPI_INT, MPI_MAX, c->mpi));
    if (!needed) return CT_OK;
    name = malloc(sizeof(*name) * (size_t)c->size);
    if (name == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the names of %d ranks", c->size);
    *name_p = name;
    CT_TRY_MPI(MPI_Allgather(&mine, (int)sizeof(mine), MPI_BYTE, name, (int)sizeof(mine), MPI_BYTE,
                             c->mpi));
    return CT_OK;
}

/* Rank 0's list is everybody's. */
static ct_status share_node_list(ct_comm *c, char **list_p)
{
    const char *mine = ct_slurm_node_list();
    int n = (int)strlen(mine) + 1;
    char *list = NULL;

    CT_TRY_MPI(MPI_Bcast(&n, 1, MPI_INT, 0, c->mpi));
    list = malloc((size_t)n);
    if (list == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a node list");
    if (c->rank == 0) memcpy(list, mine, (size_t)n);
    *list_p = list;
    CT_TRY_MPI(MPI_Bcast(list, n, MPI_BYTE, 0, c->mpi));
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

/* Fills in host, topo and node_shares of c. Rank 0 reads the file that `topology` names, for all.
 * Collective over c->mpi; fails on all ranks or on none. CT_ERR_CONFIG, CT_ERR_IO. */
static ct_status find_topology(ct_comm *c, const char *topology)
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

/* ---- the communicators */

void ct_comm_mpi_log(const char *file, int line, const char *what, int mpi_rc)
{
    char text[MPI_MAX_ERROR_STRING] = "unknown error";
    int length = 0;

    if (MPI_Error_string(mpi_rc, text, &length) != MPI_SUCCESS) length = 0;
    ct_log_at(CT_LOG_ERROR, file, line, "%s: %s", what, text);
}

MPI_Datatype ct_comm_datatype(ct_dtype dtype)
{
    switch (dtype) {
    case CT_F32:
        return MPI_FLOAT;
    case CT_BF16:
    case CT_F16:
        return MPI_UINT16_T;
    case CT_I32:
        return MPI_INT32_T;
    case CT_U8:
        return MPI_UINT8_T;
    case CT_I64:
        return MPI_INT64_T;
    }
    return MPI_BYTE;
}

static void sum_bf16(void *in, void *inout, int *n, MPI_Datatype *type)
{
    const uint16_t *x = in;
    uint16_t *y = inout;

    (void)type;
    for (int i = 0; i < *n; ++i)
        y[i] = ct_bf16_from_f32(ct_bf16_to_f32(y[i]) + ct_bf16_to_f32(x[i]));
}

static void sum_f16(void *in, void *inout, int *n, MPI_Datatype *type)
{
    (void)type;
    ct_reduce_add(CT_F16, *n, in, inout, 1);
}

static ct_status split_nodes(ct_comm *c)
{
    int k = c->topo->node[c->rank], at = 0;

    CT_TRY_MPI(MPI_Comm_split(c->mpi, k, c->rank, &c->node));
    CT_TRY_MPI(MPI_Comm_set_errhandler(c->node, MPI_ERRORS_RETURN));
    c->node_rank = c->topo->local_rank[c->rank];
    c->node_size = c->topo->node_size[k];
    c->node_member = malloc(sizeof(*c->node_member) * (size_t)c->node_size);
    if (c->node_member == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d ranks", c->size);
    for (int r = 0; r < c->size; ++r) {
        if (c->topo->node[r] == k) c->node_member[at++] = r;
    }
    return CT_OK;
}

/* How many cores the ranks of this machine may use together, and so how many each. */
static ct_status count_cores(ct_comm *c)
{
    int n_host = 0, n_core = 0;
    cpu_set_t mine;
    uint64_t mask[CPU_SETSIZE / 64] = { 0 };

    CPU_ZERO(&mine);
    if (sched_getaffinity(0, sizeof(mine), &mine) == 0) {
        for (int i = 0; i < CPU_SETSIZE; ++i) {
            if (CPU_ISSET(i, &mine)) mask[i / 64] |= (uint64_t)1 << (i % 64);
        }
    }
    CT_TRY_MPI(MPI_Comm_size(c->host, &n_host));
    c->host_size = c->host_all = n_host;
    CT_TRY_MPI(MPI_Allreduce(MPI_IN_PLACE, mask, CPU_SETSIZE / 64, MPI_UINT64_T, MPI_BOR, c->host));
    for (int i = 0; i < CPU_SETSIZE; ++i) n_core += (int)((mask[i / 64] >> (i % 64)) & 1);
    if (n_core == 0) n_core = omp_get_num_procs(); /* more cores than a mask holds */
    c->n_core = n_core;
    c->oversubscribed = (n_host > n_core);
    c->n_thread = (n_core / n_host > 1) ? n_core / n_host : 1;
    if (c->n_thread > omp_get_max_threads()) c->n_thread = omp_get_max_threads();
    if (c->n_thread > omp_get_num_procs()) c->n_thread = omp_get_num_procs();
    return CT_OK;
}

static ct_status find_tags(ct_comm *c)
{
    int *bound = NULL, found = 0;

    CT_TRY_MPI(MPI_Comm_get_attr(c->mpi, MPI_TAG_UB, &bound, &found));
    c->tag_limit = found ? *bound : 32767; /* what MPI promises at least */
    c->next_tag = CT_COMM_BLOCKING_TAGS;   /* the first belong to blocking collectives */
    return CT_OK;
}

int ct_comm_take_tags(ct_comm *c, int n)
{
    int first = (n > c->tag_limit - c->next_tag) ? CT_COMM_BLOCKING_TAGS : c->next_tag;

    c->next_tag = first + n;
    return first;
}

typedef struct ct_comm_attachment {
    const void *key;
    void *what;
    void (*destroy)(void *what);
    struct ct_comm_attachment *next;
} attachment;

struct ct_comm_attachments {
    attachment *first;
};

void *ct_comm_attached(const ct_comm *c, const void *key)
{
    for (const attachment *a = c->attached->first; a != NULL; a = a->next) {
        if (a->key == key) return a->what;
    }
    return NULL;
}

ct_status ct_comm_attach(const ct_comm *c, const void *key, void *what, void (*destroy)(void *what))
{
    attachment *a = malloc(sizeof(*a));

    if (a == NULL) {
        destroy(what);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for what a communicator keeps");
    }
    *a = (attachment){ .key = key, .what = what, .destroy = destroy, .next = c->attached->first };
    c->attached->first = a;
    return CT_OK;
}

static void detach_all(ct_comm *c)
{
    while ((c->attached != NULL) && (c->attached->first != NULL)) {
        attachment *a = c->attached->first;

        c->attached->first = a->next;
        a->destroy(a->what);
        free(a);
    }
    free(c->attached);
}

/* ---- what moves during waits: a communicator and all that were split off it have it in common */

struct ct_comm_family {
    int n; /* communicators that live */
    ct_comm_mover *first;
    ct_status (*hear)(void *ctx);
    void *hear_ctx;
};

void ct_comm_plug(ct_comm *c, ct_comm_mover *m)
{
    m->next = c->family->first;
    c->family->first = m;
}

void ct_comm_unplug(ct_comm *c, ct_comm_mover *m)
{
    ct_comm_mover **at = &c->family->first;

    while ((*at != NULL) && (*at != m)) at = &(*at)->next;
    if (*at != NULL) *at = m->next;
}

void ct_comm_listen(ct_comm *c, ct_status (*hear)(void *ctx), void *ctx)
{
    c->family->hear = hear;
    c->family->hear_ctx = ctx;
}

ct_status ct_comm_hear(const ct_comm *c)
{
    return (c->family->hear != NULL) ? c->family->hear(c->family->hear_ctx) : CT_OK;
}

ct_status ct_comm_move(ct_comm *c)
{
    for (ct_comm_mover *m = c->family->first; m != NULL; m = m->next) CT_TRY(m->move(m->ctx));
    return CT_OK;
}

int ct_comm_pending(ct_comm *c, MPI_Request **out, int max)
{
    int n = 0;

    for (ct_comm_mover *m = c->family->first; (m != NULL) && (n < max); m = m->next)
        n += m->pending(m->ctx, out + n, max - n);
    return n;
}

/* ---- making them */

static void log_topology(const ct_comm *c)
{
    const ct_topo *t = c->topo;
    ct_text above = { 0 };

    for (int l = t->machine.node_level + 1; l < t->machine.n_level - 1; ++l) {
        ct_text_add(&above, ", %d ", t->n_vertex[l]);
        ct_draw_noun(t->machine.level[l].name, t->n_vertex[l], &above);
    }
    CT_INFO("%d rank%s on %d node%s%s (%s), %d thread%s each for sums%s", c->size,
            (c->size == 1) ? "" : "s", t->n_node, (t->n_node == 1) ? "" : "s",
            (above.text != NULL) ? above.text : "", t->source, c->n_thread,
            (c->n_thread == 1) ? "" : "s",
            c->oversubscribed ? "; fewer cores than ranks: idle ranks yield" : "");
    ct_text_destroy(&above);
}

/* Ranks said to be where they are: no two can share memory. */
static ct_status place(ct_comm *c, ct_topo *placed)
{
    c->topo = placed;
    if (placed->n_rank != c->size)
        return CT_FAIL(CT_ERR_CONFIG, "a topology of %d ranks, but %d run", placed->n_rank,
                       c->size);
    CT_TRY_MPI(MPI_Comm_split(c->mpi, c->rank, 0, &c->host));
    return CT_OK;
}

/* All that hangs on c->mpi alone. */
static ct_status set_up_mpi(ct_comm *c)
{
    CT_TRY_MPI(MPI_Comm_set_errhandler(c->mpi, MPI_ERRORS_RETURN));
    CT_TRY_MPI(MPI_Comm_dup(c->mpi, &c->sums));
    CT_TRY_MPI(MPI_Comm_set_errhandler(c->sums, MPI_ERRORS_RETURN));
    CT_TRY_MPI(MPI_Comm_rank(c->mpi, &c->rank));
    CT_TRY_MPI(MPI_Comm_size(c->mpi, &c->size));
    CT_TRY_MPI(MPI_Op_create(sum_bf16, 1, &c->bf16_sum));
    CT_TRY_MPI(MPI_Op_create(sum_f16, 1, &c->f16_sum));
    return find_tags(c);
}

static ct_status set_up(ct_comm *c, MPI_Comm of, const char *topology, ct_topo *placed)
{
    CT_TRY_MPI(MPI_Comm_dup(of, &c->mpi));
    CT_TRY(set_up_mpi(c));
    CT_TRY((placed != NULL) ? place(c, placed) : find_topology(c, topology));
    CT_TRY(split_nodes(c));
    CT_TRY(count_cores(c));
    CT_TRY(ct_node_create(c, &c->node_memory));
    log_topology(c);
    return CT_OK;
}

/* One without ranks yet; family NULL: it founds its own. */
static ct_status make_empty(struct ct_comm_family *family, ct_comm **comm_p)
{
    ct_comm *c = calloc(1, sizeof(*c));

    if (c != NULL) {
        c->attached = calloc(1, sizeof(*c->attached));
        c->family = (family != NULL) ? family : calloc(1, sizeof(*c->family));
    }
    if ((c == NULL) || (c->attached == NULL) || (c->family == NULL)) {
        if (c != NULL) free(c->attached);
        if ((c != NULL) && (c->family != family)) free(c->family);
        free(c);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a communicator");
    }
    c->family->n += 1;
    c->mpi = c->sums = c->checks = c->node = c->host = MPI_COMM_NULL;
    c->bf16_sum = c->f16_sum = MPI_OP_NULL;
    *comm_p = c;
    return CT_OK;
}

static ct_status create(MPI_Comm of, const char *topology, ct_topo *placed, ct_comm **comm_p)
{
    ct_comm *c = NULL;
    ct_status status = make_empty(NULL, &c);

    if (status != CT_OK) {
        ct_topo_destroy(placed);
        return status;
    }
    CT_TRY_GOTO(status, err_destroy, set_up(c, of, topology, placed));
    *comm_p = c;
    return CT_OK;

err_destroy:
    if (c->topo != placed) ct_topo_destroy(placed);
    ct_comm_destroy(c);
    return status;
}

ct_status ct_comm_create(MPI_Comm of, const char *topology, ct_comm **comm_p)
{
    return create(of, topology, NULL, comm_p);
}

ct_status ct_comm_create_placed(MPI_Comm of, ct_topo *topo, ct_comm **comm_p)
{
    return create(of, NULL, topo, comm_p);
}

ct_status ct_comm_create_planned(ct_topo *topo, int rank, ct_comm **comm_p)
{
    ct_comm *c = NULL;
    ct_status status = make_empty(NULL, &c);

    if (status != CT_OK) {
        ct_topo_destroy(topo);
        return status;
    }
    c->topo = topo;
    c->rank = rank;
    c->size = topo->n_rank;
    c->node_rank = topo->local_rank[rank];
    c->node_size = topo->node_size[topo->node[rank]];
    c->node_shares = true;
    c->host_size = c->host_all = c->node_size;
    c->n_core = c->n_thread = 1;
    *comm_p = c;
    return CT_OK;
}

ct_status ct_comm_verify(ct_comm *c)
{
    CT_TRY_MPI(MPI_Comm_dup(c->mpi, &c->checks));
    CT_TRY_MPI(MPI_Comm_set_errhandler(c->checks, MPI_ERRORS_RETURN));
    return CT_OK;
}

bool ct_comm_only_plans(const ct_comm *c)
{
    return c->mpi == MPI_COMM_NULL;
}

/* ---- a part of them */

/* The part of the parent's topology that holds c's ranks. */
static ct_status take_topology(ct_comm *c, const ct_comm *parent)
{
    int *member = malloc(sizeof(*member) * (size_t)c->size), rc;
    ct_status status = CT_OK;

    if (member == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d ranks", c->size);
    rc = MPI_Allgather(&parent->rank, 1, MPI_INT, member, 1, MPI_INT, c->mpi);
    if (rc == MPI_SUCCESS) status = ct_topo_subset(parent->topo, member, c->size, &c->topo);
    free(member);
    CT_TRY_MPI(rc);
    return status;
}

/* The others of this machine keep their share of its cores. */
static ct_status take_share(ct_comm *c, const ct_comm *parent)
{
    CT_TRY_MPI(MPI_Comm_set_errhandler(c->host, MPI_ERRORS_RETURN));
    CT_TRY_MPI(MPI_Comm_size(c->host, &c->host_size));
    c->host_all = parent->host_all;
    c->n_core = parent->n_core * c->host_size / parent->host_size;
    if (c->n_core < 1) c->n_core = 1;
    c->n_thread = parent->n_thread;
    c->oversubscribed = parent->oversubscribed;
    c->node_shares = parent->node_shares;
    return CT_OK;
}

static ct_status set_up_part(ct_comm *c, const ct_comm *parent)
{
    CT_TRY(set_up_mpi(c));
    if (parent->checks != MPI_COMM_NULL) CT_TRY(ct_comm_verify(c));
    CT_TRY(take_share(c, parent));
    CT_TRY(take_topology(c, parent));
    CT_TRY(split_nodes(c));
    return ct_node_create(c, &c->node_memory);
}

ct_status ct_comm_split(ct_comm *parent, int colour, int key, ct_comm **comm_p)
{
    int of = (colour < 0) ? MPI_UNDEFINED : colour;
    ct_comm *c = NULL;
    ct_status status = CT_OK;

    CT_TRY(make_empty(parent->family, &c));
    if ((MPI_Comm_split(parent->mpi, of, key, &c->mpi) != MPI_SUCCESS) ||
        (MPI_Comm_split(parent->host, of, key, &c->host) != MPI_SUCCESS))
        status = CT_FAIL(CT_ERR_COMM, "MPI cannot split a communicator of %d ranks", parent->size);
    if ((status == CT_OK) && (of != MPI_UNDEFINED)) status = set_up_part(c, parent);
    if ((status != CT_OK) || (of == MPI_UNDEFINED)) {
        ct_comm_destroy(c);
        c = NULL;
    }
    CT_TRY(status);
    *comm_p = c;
    return CT_OK;
}

static void destroy_node(void *node)
{
    ct_comm_destroy(node);
}

ct_status ct_comm_of_node(ct_comm *c, ct_comm **node_p)
{
    static const char key;
    ct_comm *node = ct_comm_attached(c, &key);

    if (node == NULL) {
        CT_TRY(ct_comm_split(c, c->topo->node[c->rank], c->rank, &node));
        CT_TRY(ct_comm_attach(c, &key, node, destroy_node));
    }
    *node_p = node;
    return CT_OK;
}

MPI_Comm ct_comm_everyone(int *rank_p, int *size_p)
{
    (void)MPI_Comm_rank(MPI_COMM_WORLD, rank_p); /* errors end the process here */
    (void)MPI_Comm_size(MPI_COMM_WORLD, size_p);
    return MPI_COMM_WORLD;
}

void ct_comm_destroy(ct_comm *comm)
{
    if (comm == NULL) return;
    ct_node_destroy(comm->node_memory);
    detach_all(comm);
    if (comm->bf16_sum != MPI_OP_NULL) MPI_Op_free(&comm->bf16_sum);
    if (comm->f16_sum != MPI_OP_NULL) MPI_Op_free(&comm->f16_sum);
    if (comm->node != MPI_COMM_NULL) MPI_Comm_free(&comm->node);
    if (comm->host != MPI_COMM_NULL) MPI_Comm_free(&comm->host);
    if (comm->sums != MPI_COMM_NULL) MPI_Comm_free(&comm->sums);
    if (comm->checks != MPI_COMM_NULL) MPI_Comm_free(&comm->checks);
    if (comm->mpi != MPI_COMM_NULL) MPI_Comm_free(&comm->mpi);
    ct_topo_destroy(comm->topo);
    free(comm->node_member);
    comm->family->n -= 1;
    if (comm->family->n == 0) free(comm->family);
    free(comm);
}

/* ---- the launch check */

/* A launcher's variable as a number; *found_p false where it is not set. */
static ct_status read_count(const char *name, bool *found_p, long *value_p)
{
    const char *text = getenv(name);
    char *end = NULL;

    *found_p = (text != NULL);
    if (text == NULL) return CT_OK;
    errno = 0;
    *value_p = strtol(text, &end, 10);
    if ((end == text) || (*end != '\0') || (errno != 0) || (*value_p < 1))
        return CT_FAIL(CT_ERR_LAUNCH, "%s=%s in the environment is no number of ranks", name, text);
    return CT_OK;
}

ct_status ct_comm_check_launch(int world_size)
{
    static const char *const variable[] = { "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
                                            "SLURM_STEP_NUM_TASKS" };

    for (size_t i = 0; i < sizeof(variable) / sizeof(variable[0]); ++i) {
        bool found = false;
        long count = 0;

        CT_TRY(read_count(variable[i], &found, &count));
        if (!found) continue;
        if (count != world_size)
            return CT_FAIL(CT_ERR_LAUNCH,
                           "the launcher started %ld ranks (%s), but MPI sees %d: the launcher and "
                           "the MPI library of this program do not fit together; with srun try "
                           "--mpi=pmix or --mpi=pmi2 (srun --mpi=list shows what there is)",
                           count, variable[i], world_size);
        return CT_OK;
    }
    return CT_OK;
}

/* Open MPI sends what is larger than its eager limit over TCP only once both sides have spoken, and
 * then whole: when two ranks exchange data, what one says queues behind what the other sends, and
 * the connection works in one direction at a time. Messages below the limit keep both busy. The
 * usual limit is 64 KB; segments of our collectives are 256 KB to 1 MB where they matter. */
void ct_comm_prepare_launch(void)
{
    static const char *const name[] = { "OMPI_MCA_btl_tcp_eager_limit",
                                        "OMPI_MCA_btl_tcp_rndv_eager_limit",
                                        "OMPI_MCA_btl_tcp_max_send_size" };

    for (size_t i = 0; i < sizeof(name) / sizeof(name[0]); ++i) {
        if (getenv(name[i]) != NULL) return; /* who sets one of them knows what they do */
    }
    for (size_t i = 0; i < sizeof(name) / sizeof(name[0]); ++i)
        (void)setenv(name[i], "1100000", 0); /* 1 MB and what MPI puts before it */
}

#ifdef OPEN_MPI /* from its mpi.h; other MPIs may read Slurm's own variables */
#define NEEDS_A_WORD true
#else
#define NEEDS_A_WORD false
#endif

ct_status ct_comm_check_launcher(void)
{
    static const char *const word[] = { "OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_FD" };
    const char *task;
    bool found = false;
    long count = 0;

    if (!NEEDS_A_WORD) return CT_OK;
    for (size_t i = 0; i < sizeof(word) / sizeof(word[0]); i++) {
        if (getenv(word[i]) != NULL) return CT_OK;
    }
    CT_TRY(read_count("SLURM_STEP_NUM_TASKS", &found, &count));
    if (!found || (count <= 1)) return CT_OK;
    task = getenv("SLURM_PROCID"); /* every task finds this: the first one says it */
    if ((task != NULL) && (strcmp(task, "0") != 0)) return CT_ERR_LAUNCH;
    return CT_FAIL(
        CT_ERR_LAUNCH,
        "srun started %ld ranks (SLURM_STEP_NUM_TASKS), but told MPI nothing of them, so "
        "that each would run alone, as 1 of 1: try srun --mpi=pmix (srun --mpi=list "
        "shows what there is)",
        count);
}

/* ---- an MPI that takes CUDA: asked, never assumed; one that cannot would read the address as the
 * host's */

/* Open MPI's and MPICH's way to ask; a simulator's MPI has no such header. */
#if defined(OPEN_MPI) && defined(__has_include)
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif
#endif

const char *ct_mpi_takes_cuda(void)
{
#ifdef MPIX_CUDA_AWARE_SUPPORT
    return (MPIX_Query_cuda_support() != 0) ? "yes" : "no";
#else
    return "it does not say";
#endif
}
