#include "comm/sparse/sparse_allreduce_impl.h"

#include <stdlib.h>

#include "comm/core/node.h"
#include "comm/core/reduce.h"
#include "comm/collective/schedule.h"
#include "comm/collective/hier.h"
#include "framework/base/clock.h"

enum { BRIEF = 1 << 16 /* elements added up in one go where others wait for the thread */ };

struct ct_sparse_allreduce_node {
    ct_comm *comm;
    float *grad;
    int64_t n;
    int n_owner, tag;
    int64_t unit;         /* of slices    */
    ct_schedule schedule; /* the messages */
    ct_sched_run *run;
    bool adding; /* messages are under way */
    int slot;    /* signals; -1: nothing is shared */
    ct_signals **signals;
    char **home; /* [node_size] the ranks' grad    */
    const void **src;
    uint64_t use;
    int64_t at; /* of this rank's node_slice: elements that are added up; -1: nothing to do */
};

int64_t ct_sparse_allreduce_node_slice(int64_t n, int n_owner, int64_t unit, int i)
{
    int64_t units = (n + unit - 1) / unit, first = units * i / n_owner * unit;

    if (unit == 1) return ct_part(n, n_owner, i);
    return (first < n) ? first : n;
}

static int64_t node_slice(const ct_sparse_allreduce_node *x, int owner)
{
    return ct_sparse_allreduce_node_slice(x->n, x->n_owner, x->unit, owner);
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
            step.send_at = node_slice(x, to);
            step.send_n = node_slice(x, to + 1) - step.send_at;
        }
        if (me < x->n_owner) {
            step.recv_from = c->node_member[from];
            step.recv_at = node_slice(x, me);
            step.recv_n = node_slice(x, me + 1) - step.recv_at;
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

ct_status ct_sparse_allreduce_node_create(ct_comm *c, float *grad, int64_t n, int n_owner,
                                          int64_t unit, int tag, ct_sparse_allreduce_node **node_p)
{
    ct_sparse_allreduce_node *x = calloc(1, sizeof(*x));
    ct_status status = CT_OK;

    if (x == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a sparse exchange");
    *x = (ct_sparse_allreduce_node){
        .comm = c, .grad = grad, .n = n, .n_owner = n_owner, .unit = unit, .tag = tag
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
    first = node_slice(x, me);
    n = node_slice(x, me + 1) - first;
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

/* ---- hier: the node's ranks add their gradients first, so that a node selects once, whatever it
 * has of ranks. Of as many ranks as the smallest node has, each owns a slice of the elements: it
 * gets the node's sum of that slice, selects from it, and exchanges with the owners of the same
 * slice on the other nodes. What comes of that goes to the node's other ranks, as it is: exact
 * pairs, or dense where more than half of the elements are filled. */

enum { NODE_TAG = 60, SHARE_TAG = 61 }; /* the inner exchange has those below */

typedef enum { INNER, SHARE, DONE } stage;

typedef struct hier {
    ct_lanes lanes;
    ct_sparse_allreduce_node *node; /* adding up on the node */
    bool adding;
    const ct_sparse_allreduce_ops *ops; /* between the nodes */
    ct_sparse_allreduce_req inner;
    ct_allgatherv *share;
    ct_sparse result;
    stage stage;
} hier;

static int64_t slice(const ct_sparse_allreduce_req *r, int lane)
{
    return ct_part(r->n, ((const hier *)r->state)->lanes.n, lane);
}

static void hier_release(ct_sparse_allreduce_req *r)
{
    hier *h = r->state;

    if (h == NULL) return;
    if (h->ops != NULL) h->ops->release(&h->inner);
    ct_sparse_allreduce_node_destroy(h->node);
    ct_allgatherv_destroy(h->share);
    ct_sparse_destroy(&h->result);
    ct_lanes_destroy(&h->lanes);
    free(h);
    r->state = NULL;
}

static ct_status choose_inner(ct_sparse_allreduce_req *r, hier *h)
{
    static const ct_sparse_allreduce_ops *const of_kind[] = {
        [CT_SPARSE_ALLREDUCE_ALLGATHER] = &ct_sparse_allreduce_allgather,
        [CT_SPARSE_ALLREDUCE_GTOPK] = &ct_sparse_allreduce_gtopk,
        [CT_SPARSE_ALLREDUCE_OKTOPK] = &ct_sparse_allreduce_oktopk
    };
    const ct_sparse_allreduce_model *model = NULL;

    if (r->inner != NULL) {
        CT_TRY(ct_sparse_allreduce_choose(r->comm, r->n, r->k, r->form, r->inner, &h->ops));
        if (h->ops->node_start == NULL) return CT_OK;
        h->ops = NULL;
        return CT_FAIL(CT_ERR_CONFIG, "between the nodes of hier there are no nodes");
    }
    CT_TRY(ct_sparse_allreduce_model_of(r->comm, &model));
    h->ops = of_kind[ct_sparse_allreduce_model_inner(model, r->n, r->k, r->form)];
    return CT_OK;
}

static ct_status prepare_inner(ct_sparse_allreduce_req *r, hier *h)
{
    CT_TRY(choose_inner(r, h));
    h->inner = (ct_sparse_allreduce_req){ .comm = r->comm,
                                          .n = r->length,
                                          .k = r->k_own,
                                          .k_most = ct_sparse_allreduce_own_share(r, r->k_most),
                                          .room = r->room_own,
                                          .form = r->form,
                                          .tag = r->tag,
                                          .sum = r->sum + r->first,
                                          .member = h->lanes.member,
                                          .n_member = r->comm->topo->n_node,
                                          .me = h->lanes.me };
    return h->ops->prepare(&h->inner);
}

static ct_status hier_prepare(ct_sparse_allreduce_req *r)
{
    hier *h = NULL;
    int64_t most = 0;

    CT_TRY(ct_sparse_allreduce_defaults(r));
    r->state = h = calloc(1, sizeof(*h));
    if (h == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a sparse exchange");
    h->stage = DONE;
    CT_TRY(ct_lanes_find(r->comm, &h->lanes));
    r->copies = r->comm->topo->n_node;
    most = ct_part(r->n, h->lanes.n, 1); /* the first slice is the longest */
    r->first = r->length = r->k_own = r->room_own = 0;
    if (h->lanes.mine >= 0) {
        r->first = slice(r, h->lanes.mine);
        r->length = slice(r, h->lanes.mine + 1) - r->first;
        r->k_own = ct_sparse_allreduce_own_share(r, r->k);
        r->room_own = ct_sparse_allreduce_share(r->room, h->lanes.n);
        if (r->room_own < ct_sparse_allreduce_own_share(r, r->k_most))
            r->room_own = ct_sparse_allreduce_own_share(r, r->k_most);
        if (r->room_own > r->length) r->room_own = r->length;
        CT_TRY(prepare_inner(r, h));
        r->room_own = h->inner.room_own;
        r->most_lost = h->inner.most_lost;
    }
    CT_TRY(ct_sparse_allreduce_node_create(r->comm, r->sum, r->n, h->lanes.n, 1, r->tag + NODE_TAG,
                                           &h->node));
    return ct_allgatherv_create(r->comm, r->comm->node_member, r->comm->node_size,
                                r->comm->node_rank, ct_payload_bytes(CT_PAYLOAD_PAIRS, most, most),
                                r->tag + SHARE_TAG, &h->share);
}

/* ---- first the node's sum */

static ct_status hier_node_start(ct_sparse_allreduce_req *r, float *grad)
{
    hier *h = r->state;

    h->adding = true;
    return ct_sparse_allreduce_node_start(h->node, grad);
}

static ct_status hier_node_progress(ct_sparse_allreduce_req *r)
{
    hier *h = r->state;
    ct_status status = ct_sparse_allreduce_node_progress(h->node, &r->bytes_sent, &r->where);

    if (status == CT_OK) h->adding = false;
    return status;
}

/* ---- then its entries */

static ct_status hier_start(ct_sparse_allreduce_req *r)
{
    hier *h = r->state;

    h->stage = INNER;
    if (h->ops == NULL) return CT_OK;
    h->inner.own = r->own;
    h->inner.k = r->k_own;
    h->inner.residual = r->residual;
    h->inner.bytes_sent = 0;
    return h->ops->start(&h->inner);
}

static ct_status progress_inner(ct_sparse_allreduce_req *r)
{
    hier *h = r->state;
    double decoded = h->inner.decode_s;
    unsigned before = 0;
    ct_status status = CT_OK;

    if (h->ops == NULL) return CT_OK;
    before = atomic_load_explicit(&h->inner.where.n_moved, memory_order_relaxed);
    h->inner.where.brief = r->where.brief;
    status = h->ops->progress(&h->inner);
    r->decode_s += h->inner.decode_s - decoded; /* in the call that spent it: waits leave it out */
    if (before != atomic_load_explicit(&h->inner.where.n_moved, memory_order_relaxed))
        (void)atomic_fetch_add_explicit(&r->where.n_moved, 1, memory_order_relaxed);
    ct_sparse_allreduce_stands_at(r, &h->inner.where);
    if (status != CT_OK) return status;
    r->bytes_sent += h->inner.bytes_sent;
    return CT_OK;
}

static ct_status start_share(ct_sparse_allreduce_req *r)
{
    hier *h = r->state;
    double at = ct_clock_s();
    size_t bytes = 0;

    h->result.count = h->inner.filled;
    CT_TRY(ct_payload_pack_vector(r->sum + r->first, r->length, &h->result,
                                  ct_allgatherv_payload(h->share, r->comm->node_rank), &bytes));
    r->decode_s += ct_clock_s() - at;
    h->stage = SHARE;
    return ct_allgatherv_start(h->share, bytes);
}

static ct_status deliver(ct_sparse_allreduce_req *r)
{
    hier *h = r->state;
    double at = ct_clock_s();

    r->filled = 0;
    for (int i = 0; i < h->lanes.n; ++i) {
        int64_t first = slice(r, i), n = slice(r, i + 1) - first, filled = 0;
        const void *payload = ct_allgatherv_payload(h->share, i);
        size_t bytes = ct_allgatherv_bytes(h->share, i);

        CT_TRY(
            ct_payload_sum_all(&payload, &bytes, 1, r->sum + first, n, r->comm->n_thread, &filled));
        r->filled += filled;
    }
    h->stage = DONE;
    r->decode_s += ct_clock_s() - at;
    return CT_OK;
}

static ct_status hier_progress(ct_sparse_allreduce_req *r)
{
    hier *h = r->state;
    ct_status status = CT_OK;

    if (h->stage == INNER) {
        status = progress_inner(r);
        if (status != CT_OK) return status;
        CT_TRY(start_share(r));
    }
    if (h->stage == SHARE) {
        status = ct_allgatherv_progress(h->share, &r->bytes_sent, &r->where);
        if (status != CT_OK) return status;
        CT_TRY(deliver(r));
    }
    return CT_OK;
}

static int hier_pending(ct_sparse_allreduce_req *r, MPI_Request **out, int max)
{
    hier *h = r->state;

    if (h->adding) return ct_sparse_allreduce_node_pending(h->node, out, max);
    if (h->stage == SHARE) return ct_allgatherv_pending(h->share, out, max);
    if ((h->stage == DONE) || (h->ops == NULL)) return 0;
    return h->ops->pending(&h->inner, out, max);
}

static double hier_cost_s(const ct_comm *c, int64_t n, int64_t k, ct_payload_form form)
{
    return ct_sparse_allreduce_cost_s(c, CT_SPARSE_ALLREDUCE_HIER, n, k, form);
}

const ct_sparse_allreduce_ops ct_sparse_allreduce_hier = {
    .name = "hier",
    .prepare = hier_prepare,
    .node_start = hier_node_start,
    .node_progress = hier_node_progress,
    .start = hier_start,
    .progress = hier_progress,
    .pending = hier_pending,
    .release = hier_release,
    .cost_s = hier_cost_s,
    .bytes_theory = ct_sparse_allreduce_hier_bytes,
};
