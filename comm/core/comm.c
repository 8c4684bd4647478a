#include "comm/core/comm.h"

#include <omp.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/bf16.h"
#include "comm/core/find_topology.h"
#include "comm/core/node.h"
#include "comm/core/reduce.h"
#include "topology/topo.h"

ct_status ct_comm_mpi_fail(const char *file, int line, const char *what, int mpi_rc)
{
    char text[MPI_MAX_ERROR_STRING] = "unknown error";
    int length = 0;

    if (MPI_Error_string(mpi_rc, text, &length) != MPI_SUCCESS) length = 0;
    ct_log_at(CT_LOG_ERROR, file, line, "%s: %s", what, text);
    return CT_ERR_COMM;
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

    CT_TRY_MPI(MPI_Comm_split(c->world, k, c->rank, &c->node));
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

    CT_TRY_MPI(MPI_Comm_get_attr(c->world, MPI_TAG_UB, &bound, &found));
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
    CT_TRY_MPI(MPI_Comm_split(c->world, c->rank, 0, &c->host));
    return CT_OK;
}

static ct_status set_up(ct_comm *c, MPI_Comm world, const char *topology, ct_topo *placed)
{
    CT_TRY_MPI(MPI_Comm_dup(world, &c->world));
    CT_TRY_MPI(MPI_Comm_set_errhandler(c->world, MPI_ERRORS_RETURN));
    CT_TRY_MPI(MPI_Comm_dup(world, &c->sums));
    CT_TRY_MPI(MPI_Comm_set_errhandler(c->sums, MPI_ERRORS_RETURN));
    CT_TRY_MPI(MPI_Comm_rank(c->world, &c->rank));
    CT_TRY_MPI(MPI_Comm_size(c->world, &c->size));
    CT_TRY_MPI(MPI_Op_create(sum_bf16, 1, &c->bf16_sum));
    CT_TRY_MPI(MPI_Op_create(sum_f16, 1, &c->f16_sum));
    CT_TRY(find_tags(c));
    CT_TRY((placed != NULL) ? place(c, placed) : ct_comm_find_topology(c, topology));
    CT_TRY(split_nodes(c));
    CT_TRY(count_cores(c));
    CT_TRY(ct_node_create(c, &c->node_memory));
    log_topology(c);
    return CT_OK;
}

static void create_lock(ct_comm *c)
{
    pthread_mutexattr_t kind;

    (void)pthread_mutexattr_init(&kind); /* these fail only on bad arguments */
    (void)pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE);
    (void)pthread_mutex_init(&c->lock, &kind);
    (void)pthread_mutexattr_destroy(&kind);
}

static ct_status create(MPI_Comm world, const char *topology, ct_topo *placed, ct_comm **comm_p)
{
    ct_comm *c = calloc(1, sizeof(*c));
    ct_status status = CT_OK;

    if (c != NULL) c->attached = calloc(1, sizeof(*c->attached));
    if ((c == NULL) || (c->attached == NULL)) {
        free(c);
        ct_topo_destroy(placed);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a communicator");
    }
    create_lock(c);
    c->world = c->sums = c->node = c->host = MPI_COMM_NULL;
    c->bf16_sum = c->f16_sum = MPI_OP_NULL;
    CT_TRY_GOTO(status, err_destroy, set_up(c, world, topology, placed));
    *comm_p = c;
    return CT_OK;

err_destroy:
    if (c->topo != placed) ct_topo_destroy(placed);
    ct_comm_destroy(c);
    return status;
}

ct_status ct_comm_create(MPI_Comm world, const char *topology, ct_comm **comm_p)
{
    return create(world, topology, NULL, comm_p);
}

ct_status ct_comm_create_placed(MPI_Comm world, ct_topo *topo, ct_comm **comm_p)
{
    return create(world, NULL, topo, comm_p);
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
    if (comm->world != MPI_COMM_NULL) MPI_Comm_free(&comm->world);
    ct_topo_destroy(comm->topo);
    (void)pthread_mutex_destroy(&comm->lock);
    free(comm->node_member);
    free(comm);
}
