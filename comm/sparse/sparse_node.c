#include "comm/sparse/sparse_node.h"

#include <stdlib.h>

#include "comm/core/node.h"
#include "comm/core/reduce.h"
#include "comm/collective/schedule.h"

enum { BRIEF = 1 << 16 /* elements added up in one go where others wait for the thread */ };

struct ct_sparse_allreduce_node {
    ct_comm *comm;
    float *grad;
    int64_t n;
    int n_owner, tag;
    ct_schedule schedule; /* the messages */
    ct_sched_run *run;
    bool adding; /* messages are under way */
    int slot;    /* signals; -1: nothing is shared */
    ct_signals **signals;
    char **home; /* [node_size] the ranks' grad    */
    const void **src;
    uint64_t use;
    int64_t at; /* of this rank's slice: elements that are added up; -1: nothing to do */
};

static int64_t slice(const ct_sparse_allreduce_node *x, int owner)
{
    return ct_part(x->n, x->n_owner, owner);
}

/* Each rank sends every owner on the node its slice, starting with another one. */
static ct_status plan_messages(ct_sparse_allreduce_node *x)
{
    const ct_comm *c = x->comm;
    int m = c->node_size, me = c->node_rank;

    for (int s = 1; s < m; ++s) {
        int to = (me + s) % m, from = (me + m - s) % m;
        ct_sched_step step = { .send_to = -1, .recv_from = -1, .add = true };

        if (to < x->n_owner) {
            step.send_to = c->node_member[to];
            step.send_at = slice(x, to);
            step.send_n = slice(x, to + 1) - step.send_at;
        }
        if (me < x->n_owner) {
            step.recv_from = c->node_member[from];
            step.recv_at = slice(x, me);
            step.recv_n = slice(x, me + 1) - step.recv_at;
        }
        CT_TRY(ct_schedule_add(&x->schedule, &step));
    }
    return ct_sched_run_create(x->comm, CT_F32, ct_schedule_most(&x->schedule), &x->run);
}

static ct_status share(ct_sparse_allreduce_node *x)
{
    ct_comm *c = x->comm;
    size_t m = (size_t)c->node_size;
    bool found = false;
    ct_status status = CT_OK;

    x->signals = calloc(m, sizeof(*x->signals));
    x->home = calloc(m, sizeof(*x->home));
    x->src = calloc(m, sizeof(*x->src));
    if ((x->signals == NULL) || (x->home == NULL) || (x->src == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %zu ranks of a node", m);
    CT_TRY(ct_node_find_all(c->node_memory, x->grad, sizeof(*x->grad) * (size_t)x->n, x->home,
                            &found));
    if (!found) return CT_OK;
    status = ct_node_take_slot(c->node_memory, &x->slot);
    if (status != CT_OK) {
        x->slot = -1;
        return (status == CT_UNSUPPORTED) ? CT_OK : status;
    }
    for (int i = 0; i < c->node_size; ++i)
        x->signals[i] = ct_node_signals(c->node_memory, x->slot, i);
    return CT_OK;
}

ct_status ct_sparse_allreduce_node_create(ct_comm *c, float *grad, int64_t n, int n_owner, int tag,
                                          ct_sparse_allreduce_node **node_p)
{
    ct_sparse_allreduce_node *x = calloc(1, sizeof(*x));
    ct_status status = CT_OK;

    if (x == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a sparse exchange");
    *x = (ct_sparse_allreduce_node){
        .comm = c, .grad = grad, .n = n, .n_owner = n_owner, .tag = tag
    };
    x->slot = -1;
    x->at = -1;
    if (c->node_shares && (ct_topo_max_node_size(c->topo) > 1)) status = share(x);
    if (status == CT_OK) status = plan_messages(x);
    if (status != CT_OK) {
        ct_sparse_allreduce_node_destroy(x);
        return status;
    }
    *node_p = x;
    return CT_OK;
}

void ct_sparse_allreduce_node_destroy(ct_sparse_allreduce_node *x)
{
    if (x == NULL) return;
    if (x->slot >= 0) ct_node_give_slot(x->comm->node_memory, x->slot);
    ct_sched_run_destroy(x->run);
    ct_schedule_destroy(&x->schedule);
    free(x->signals);
    free(x->home);
    free(x->src);
    free(x);
}

bool ct_sparse_allreduce_node_shares(const ct_sparse_allreduce_node *x)
{
    return x->slot >= 0;
}

ct_status ct_sparse_allreduce_node_start(ct_sparse_allreduce_node *x, float *v)
{
    x->adding = (x->slot < 0) || (v != x->grad);
    x->at = -1;
    if (x->adding) return ct_sched_run_start(x->run, &x->schedule, v, x->tag);
    x->use += 1;
    if (x->comm->node_rank < x->n_owner) x->at = 0;
    ct_node_signal(&x->signals[x->comm->node_rank]->in, x->use);
    return CT_OK;
}

/* Have all ranks of the node signalled? */
static bool all_came(const ct_sparse_allreduce_node *x, ct_coll_where *where)
{
    for (int i = 0; i < x->comm->node_size; ++i) {
        if (ct_node_reached(&x->signals[i]->in, x->use)) continue;
        atomic_store_explicit(&where->rank, x->comm->node_member[i], memory_order_relaxed);
        return false;
    }
    return true;
}

/* Elements [first, first + n), of all ranks, into this one's. */
static void add_up(ct_sparse_allreduce_node *x, int64_t first, int64_t n)
{
    void *dst = x->grad + first;

    for (int i = 0; i < x->comm->node_size; ++i)
        x->src[i] = x->home[i] + sizeof(*x->grad) * (size_t)first;
    ct_reduce_many(CT_F32, n, x->src, x->comm->node_size, &dst, 1, x->comm->n_thread);
}

static ct_status progress_shared(ct_sparse_allreduce_node *x, int64_t *bytes_sent,
                                 ct_coll_where *where)
{
    int me = x->comm->node_rank;
    int64_t first = 0, n = 0, some = 0;

    if (x->at < 0) return CT_OK;
    if (!all_came(x, where)) return CT_INPROGRESS;
    first = slice(x, me);
    n = slice(x, me + 1) - first;
    some = (where->brief && (n - x->at > BRIEF)) ? BRIEF : n - x->at;
    add_up(x, first + x->at, some);
    x->at += some;
    (void)atomic_fetch_add_explicit(&where->n_moved, 1, memory_order_relaxed);
    if (x->at < n) return CT_INPROGRESS;
    *bytes_sent += (int64_t)sizeof(*x->grad) * n * (x->comm->node_size - 1);
    x->at = -1;
    return CT_OK;
}

ct_status ct_sparse_allreduce_node_progress(ct_sparse_allreduce_node *x, int64_t *bytes_sent,
                                            ct_coll_where *where)
{
    ct_status status = CT_OK;

    if (!x->adding) return progress_shared(x, bytes_sent, where);
    status = ct_sched_run_progress(x->run, bytes_sent, where);
    if (status == CT_OK) x->adding = false;
    return status;
}

int ct_sparse_allreduce_node_pending(ct_sparse_allreduce_node *x, MPI_Request **out, int max)
{
    return x->adding ? ct_sched_run_pending(x->run, out, max) : 0;
}
