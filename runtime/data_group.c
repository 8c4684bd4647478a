#include "runtime/data_group.h"

#include <stdlib.h>
#include <string.h>

typedef struct said {
    int status;
    char text[600];
} said;

static ct_status agree(void *ctx, ct_status mine)
{
    ct_comm *c = ctx;
    int failed = (mine == CT_OK) ? c->size : c->rank, first = c->size;
    said s = { .status = (int)mine };

    CT_TRY_MPI(MPI_Allreduce(&failed, &first, 1, MPI_INT, MPI_MIN, c->world));
    if (first == c->size) return CT_OK;
    if (c->rank == first) ct_log_last_error(s.text, sizeof(s.text));
    CT_TRY_MPI(MPI_Bcast(&s, (int)sizeof(s), MPI_BYTE, first, c->world));
    if (mine != CT_OK) return mine; /* it has spoken for itself */
    return CT_FAIL((ct_status)s.status, "rank %d says: %s", first, s.text);
}

static ct_status share(void *ctx, void *data, size_t size)
{
    ct_comm *c = ctx;

    CT_TRY_MPI(MPI_Bcast(data, (int)size, MPI_BYTE, 0, c->node));
    return CT_OK;
}

static ct_status acquire(void *ctx, size_t bytes, void **base_p, void **handle_p)
{
    ct_comm *c = ctx;

    return ct_comm_share_block(c, (c->node_rank == 0) ? bytes : 0, "records", base_p, handle_p);
}

static void release(void *ctx, void *handle)
{
    ct_comm_release_block(ctx, handle);
}

ct_status ct_data_group_open(ct_comm *comm, bool one_reader, const char *stage,
                             ct_data_group **group_p)
{
    ct_data_group *g = calloc(1, sizeof(*g));
    int host_rank = 0;

    if (g == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a group of ranks");
    MPI_Comm_rank(comm->host, &host_rank);
    *g = (ct_data_group){ .rank = comm->rank,
                          .n_rank = comm->size,
                          .node_rank = comm->node_rank,
                          .node_size = comm->node_size,
                          .member = comm->node_member,
                          .n_node = comm->topo->n_node,
                          .one_reader = one_reader && comm->node_shares &&
                                        (ct_topo_max_node_size(comm->topo) > 1),
                          .stage = stage,
                          .copies = (host_rank == 0),
                          .agree = agree,
                          .share = share,
                          .acquire = acquire,
                          .release = release,
                          .ctx = comm };
    *group_p = g;
    return CT_OK;
}

void ct_data_group_close(ct_data_group *g)
{
    free(g);
}
