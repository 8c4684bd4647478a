/* int8 and int4: small integers and a scale for each 256 elements (integer.h), between the nodes,
 * in two hops (as ZeRO++ sends gradients: Wang et al., ICLR 2024).
 *
 * The ranks of a node add up first, in f32: each of as many ranks as the smallest node has owns a
 * slice. What follows is among the owners of the same slice, one a node.
 *
 * hop 1   The slice is cut into a part a node. Each owner sends each other one the integers of that
 *         one's part, and adds up, in f32, what it gets to its own part, which is exact.
 * hop 2   It sends the integers of the sum to everyone, and takes them itself: all ranks have the
 *         same bits.
 *
 * Then owners give the slice to the ranks of their node, in f32. So a node sends and gets 2 (P - 1)
 * / P payloads, of P nodes, and each element is rounded twice, however many nodes there are. Where
 * all ranks are on one node nothing is rounded.
 *
 * NaN and infinity come out as NaN, for loss scaling and whoever looks for divergence.
 *
 * With error feedback V goes into the gradient before anything else, and the owner keeps what both
 * roundings lose; nothing may be infinite then. */
#include <stdlib.h>
#include <string.h>

#include "comm/codec/codec_types.h"
#include "comm/codec/codec_side.h"
#include "comm/codec/integer.h"
#include "comm/collective/hier.h"
#include "comm/collective/schedule.h"
#include "comm/sparse/sparse_cost.h"
#include "comm/sparse/sparse_node.h"
#include "framework/base/clock.h"

enum { NODE_TAG = 1, SPLIT_TAG = 2, GATHER_TAG = 3, SHARE_TAG = 4 };

typedef enum {
    STAGE_FEEDBACK, /* what was left behind is to be added */
    STAGE_MEET,     /* the node's ranks may begin */
    STAGE_NODE,
    STAGE_ENCODE,
    STAGE_LEAVE, /* for hop 1 */
    STAGE_SPLIT,
    STAGE_PART,   /* this rank's part is to be added up … */
    STAGE_RETURN, /* … and may leave for hop 2 */
    STAGE_GATHER,
    STAGE_DECODE,
    STAGE_LAND,
    STAGE_SHARE,
    STAGE_DONE
} integer_stage;

typedef struct integer {
    ct_codec_setup setup;
    ct_codec_side side;
    int bits;
    bool keeps;                       /* error feedback                                          */
    ct_lanes lanes;                   /* several ranks                                           */
    int nodes;                        /* P                                                       */
    bool codes;                       /* this rank has a slice, and there are other nodes        */
    int64_t first, n;                 /* its slice                                               */
    char *payload;                    /* of the slice's parts, one after the other: out, then in */
    char *landed;                     /* [P - 1] for its own part, as they are added up          */
    ct_sparse_allreduce_node *node;   /* nodes of several ranks          */
    ct_schedule split, gather, share; /* messages */
    ct_sched_run *run_payload, *run_elements; /* … of bytes, and of f32    */
    integer_stage stage;
    ct_coll_where where;
    ct_codec_stats stats;
    double left_at;
    ct_codec_step step; /* under way */
    double coded_at[2]; /* the last computation: began, ended */
} integer;

/* ---- parts of the slice, one a node */

static int64_t slice_at(const integer *x, int lane)
{
    return ct_sparse_allreduce_node_slice(x->setup.n, x->lanes.n, CT_INTEGER_BLOCK, lane);
}

static int64_t part_at(const integer *x, int node)
{
    return ct_sparse_allreduce_node_slice(x->n, x->nodes, CT_INTEGER_BLOCK, node);
}

static int64_t part_n(const integer *x, int node)
{
    return part_at(x, node + 1) - part_at(x, node);
}

/* Where its payload begins: parts begin with whole blocks. */
static int64_t bytes_at(const integer *x, int node)
{
    return ct_integer_bytes(x->bits, part_at(x, node));
}

static int64_t part_bytes(const integer *x, int node)
{
    return ct_integer_bytes(x->bits, part_n(x, node));
}

/* ---- creation */

static void integer_destroy(void *obj)
{
    integer *x = obj;

    if (x == NULL) return;
    ct_sparse_allreduce_node_destroy(x->node);
    ct_sched_run_destroy(x->run_payload);
    ct_sched_run_destroy(x->run_elements);
    ct_schedule_destroy(&x->split);
    ct_schedule_destroy(&x->gather);
    ct_schedule_destroy(&x->share);
    ct_lanes_destroy(&x->lanes);
    ct_mem_release(x->payload);
    ct_side_close(&x->side);
    free(x);
}

/* A step of a schedule; what has no length is left out, on both sides. */
static ct_status add_step(ct_schedule *s, int to, int64_t send_at, int64_t send_n, int from,
                          int64_t recv_at, int64_t recv_n)
{
    return ct_schedule_add(s, &(ct_sched_step){ .send_to = (send_n > 0) ? to : -1,
                                                .send_at = send_at,
                                                .send_n = send_n,
                                                .recv_from = (recv_n > 0) ? from : -1,
                                                .recv_at = recv_at,
                                                .recv_n = recv_n });
}

/* Both hops: to the next node first, then to the one after that. */
static ct_status plan_hops(integer *x)
{
    const ct_lanes *l = &x->lanes;
    int64_t own = part_bytes(x, l->me), landed = ct_integer_bytes(x->bits, x->n);

    for (int shift = 1; shift < x->nodes; ++shift) {
        int to = (l->me + shift) % x->nodes, from = (l->me - shift + x->nodes) % x->nodes;

        CT_TRY(add_step(&x->split, l->member[to], bytes_at(x, to), part_bytes(x, to),
                        l->member[from], landed + own * (shift - 1), own));
        CT_TRY(add_step(&x->gather, l->member[to], bytes_at(x, l->me), own, l->member[from],
                        bytes_at(x, from), part_bytes(x, from)));
    }
    return ct_sched_run_create(x->setup.comm, CT_U8, 0, &x->run_payload);
}

static ct_status prepare_hops(integer *x)
{
    int64_t bytes = ct_integer_bytes(x->bits, x->n);
    size_t room = (size_t)(bytes + (x->nodes - 1) * part_bytes(x, x->lanes.me));

    x->payload = ct_mem_acquire((room > 0) ? room : 1);
    if (x->payload == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to compress %s", x->setup.key);
    x->landed = x->payload + bytes;
    return plan_hops(x);
}

/* Owners give the node's other ranks their slices. */
static ct_status prepare_node(integer *x)
{
    ct_comm *c = x->setup.comm;
    int m = c->node_size, me = c->node_rank;

    CT_TRY(ct_sparse_allreduce_node_create(c, x->setup.grad, x->setup.n, x->lanes.n,
                                           CT_INTEGER_BLOCK, x->setup.tag + NODE_TAG, &x->node));
    for (int shift = 1; shift < m; ++shift) {
        int to = (me + shift) % m, from = (me - shift + m) % m;
        int64_t at = 0, n = 0;

        if (from < x->lanes.n) {
            at = slice_at(x, from);
            n = slice_at(x, from + 1) - at;
        }
        CT_TRY(
            add_step(&x->share, c->node_member[to], x->first, x->n, c->node_member[from], at, n));
    }
    return ct_sched_run_create(c, CT_F32, 0, &x->run_elements);
}

static ct_status prepare(integer *x, const ct_codec_setup *setup, int bits)
{
    x->setup = *setup;
    x->bits = bits;
    x->keeps = setup->config->error_feedback;
    x->stage = STAGE_DONE;
    x->nodes = 1;
    x->n = setup->n;
    atomic_store(&x->where.rank, -1);
    CT_TRY(ct_side_open(&x->side, &x->setup, x->keeps));
    if (x->keeps) CT_TRY(ct_side_plain_coder(&x->side));
    if (setup->comm->size == 1) return CT_OK;
    CT_TRY(ct_lanes_find(setup->comm, &x->lanes));
    x->nodes = setup->comm->topo->n_node;
    x->first = x->n = 0;
    if (x->lanes.mine >= 0) {
        x->first = slice_at(x, x->lanes.mine);
        x->n = slice_at(x, x->lanes.mine + 1) - x->first;
    }
    x->codes = (x->lanes.mine >= 0) && (x->nodes > 1);
    if (x->codes) CT_TRY(prepare_hops(x));
    return (ct_topo_max_node_size(setup->comm->topo) > 1) ? prepare_node(x) : CT_OK;
}

static ct_status int8_prepare(void *obj, const ct_codec_setup *setup)
{
    return prepare(obj, setup, 8);
}

static ct_status int4_prepare(void *obj, const ct_codec_setup *setup)
{
    return prepare(obj, setup, 4);
}

/* ---- a step */

static ct_status integer_fold(void *obj, const ct_codec_step *step)
{
    integer *x = obj;

    return x->keeps ? ct_side_fold(&x->side, step, &x->stats, &x->where) : CT_OK;
}

/* What was left behind goes into the gradient: of the whole, since another number of ranks may have
 * left it. */
static ct_status bring_feedback(integer *x)
{
    const ct_codec_setup *s = &x->setup;
    ct_codec_side *d = &x->side;
    ct_momentum_correction a = ct_error_feedback_accum(&d->keep, &x->step, 0, s->n, s->comm->size);
    size_t bytes = sizeof(*s->grad) * (size_t)s->n;

    CT_TRY(d->kernels->update(d->coder, d->stream, &a));
    memcpy(s->grad, d->keep.v, bytes);
    return ct_side_zero(d, d->keep.v, bytes);
}

static ct_status encode(integer *x, int node, char *to)
{
    const ct_codec_setup *s = &x->setup;
    float *part = s->grad + x->first + part_at(x, node);

    if (!ct_integer_encode(x->bits, part, part_n(x, node), x->keeps, *s->n_thread, to) && x->keeps)
        return CT_FAIL(CT_ERR_DIVERGED, "the gradient, or what is kept of it, is no longer finite");
    return CT_OK;
}

static ct_status start_share(integer *x)
{
    x->stage = STAGE_SHARE;
    if (x->node == NULL) return CT_OK;
    return ct_sched_run_start(x->run_elements, &x->share, x->setup.grad, x->setup.tag + SHARE_TAG);
}

/* The node's sum is there: hop 1. */
static ct_status encode_parts(integer *x)
{
    for (int j = 0; j < x->nodes; ++j) {
        if (j != x->lanes.me) CT_TRY(encode(x, j, x->payload + bytes_at(x, j)));
    }
    return CT_OK;
}

/* The sum of this rank's part: its own term is exact. Hop 2. */
static ct_status complete_part(integer *x)
{
    const ct_codec_setup *s = &x->setup;
    int me = x->lanes.me;
    int64_t n = part_n(x, me), bytes = part_bytes(x, me);
    float *slice = s->grad + x->first, *part = slice + part_at(x, me);

    for (int shift = 1; shift < x->nodes; ++shift)
        ct_integer_decode(x->bits, x->landed + bytes * (shift - 1), n, true, *s->n_thread, part);
    CT_TRY(encode(x, me, x->payload + bytes_at(x, me)));
    if (x->keeps) memcpy(x->side.keep.v + x->first, slice, sizeof(*slice) * (size_t)x->n);
    return CT_OK;
}

static bool computes_next(const integer *x)
{
    return (x->stage == STAGE_FEEDBACK) || (x->stage == STAGE_ENCODE) || (x->stage == STAGE_PART) ||
           (x->stage == STAGE_DECODE);
}

static bool integer_codes(const void *obj)
{
    const integer *x = obj;

    return x->step.apart && computes_next(x);
}

/* Whoever computes notes the time of it, and no other figure. */
static ct_status integer_code(void *obj)
{
    integer *x = obj;
    const ct_codec_setup *s = &x->setup;

    x->coded_at[0] = ct_clock_s();
    if (x->stage == STAGE_FEEDBACK) CT_TRY(bring_feedback(x));
    if (x->stage == STAGE_ENCODE) CT_TRY(encode_parts(x));
    if (x->stage == STAGE_PART) CT_TRY(complete_part(x));
    if (x->stage == STAGE_DECODE)
        ct_integer_decode(x->bits, x->payload, x->n, false, *s->n_thread, s->grad + x->first);
    x->coded_at[1] = ct_clock_s();
    x->stage += 1;
    return CT_OK;
}

/* What was computed is done: so long it took, and then messages may leave. */
static double spent(integer *x)
{
    x->left_at += x->coded_at[1] - x->coded_at[0];
    return x->coded_at[1] - x->coded_at[0];
}

static ct_status meet(integer *x)
{
    if (x->keeps) {
        memcpy(x->stats.encoded_at, x->coded_at, sizeof(x->coded_at));
        x->stats.accumulate_s += spent(x);
    }
    x->stage = STAGE_NODE;
    return (x->node != NULL) ? ct_sparse_allreduce_node_start(x->node, x->setup.grad) : CT_OK;
}

static ct_status progress_node(integer *x)
{
    if (x->node != NULL)
        CT_TRY(ct_sparse_allreduce_node_progress(x->node, &x->stats.bytes_sent, &x->where));
    x->stage = STAGE_ENCODE;
    return x->codes ? CT_OK : start_share(x);
}

static ct_status compute(integer *x)
{
    if (!computes_next(x)) return CT_OK;
    return integer_codes(x) ? CT_INPROGRESS : integer_code(x);
}

static ct_status run_hop(integer *x, integer_stage next)
{
    CT_TRY(ct_sched_run_progress(x->run_payload, &x->stats.bytes_sent, &x->where));
    x->stage = next;
    return CT_OK;
}

static ct_status leave(integer *x)
{
    if (!x->keeps) x->stats.encoded_at[0] = x->coded_at[0];
    x->stats.encoded_at[1] = x->coded_at[1];
    x->stats.pack_s += spent(x);
    x->stage = STAGE_SPLIT;
    return ct_sched_run_start(x->run_payload, &x->split, x->payload, x->setup.tag + SPLIT_TAG);
}

static ct_status leave_again(integer *x)
{
    x->stats.pack_s += spent(x);
    x->stage = STAGE_GATHER;
    return ct_sched_run_start(x->run_payload, &x->gather, x->payload, x->setup.tag + GATHER_TAG);
}

static ct_status land(integer *x)
{
    (void)spent(x);
    ct_codec_decoded(&x->stats, x->coded_at);
    return start_share(x);
}

static ct_status integer_start(void *obj, const ct_codec_step *step)
{
    integer *x = obj;

    x->step = *step;
    x->stats.n_step += 1;
    x->stats.bytes_dense += x->setup.n * (int64_t)sizeof(float);
    x->stats.bytes_coded +=
        x->codes ? ct_integer_bytes(x->bits, x->n) : x->n * (int64_t)sizeof(float);
    x->left_at = x->stats.encoded_at[0] = x->stats.encoded_at[1] = ct_clock_s();
    x->stage = x->keeps ? STAGE_FEEDBACK : STAGE_MEET;
    if (step->apart) return CT_OK;
    CT_TRY(compute(x));
    CT_TRY(meet(x));
    if (x->node != NULL) return CT_OK;
    CT_TRY(progress_node(x));
    CT_TRY(compute(x));
    return (x->stage == STAGE_LEAVE) ? leave(x) : CT_OK;
}

/* Stages pass by, each as soon as it may. */
static ct_status integer_progress(void *obj)
{
    integer *x = obj;

    CT_TRY(compute(x));
    if (x->stage == STAGE_MEET) CT_TRY(meet(x));
    if (x->stage == STAGE_NODE) CT_TRY(progress_node(x));
    CT_TRY(compute(x));
    if (x->stage == STAGE_LEAVE) CT_TRY(leave(x));
    if (x->stage == STAGE_SPLIT) CT_TRY(run_hop(x, STAGE_PART));
    CT_TRY(compute(x));
    if (x->stage == STAGE_RETURN) CT_TRY(leave_again(x));
    if (x->stage == STAGE_GATHER) CT_TRY(run_hop(x, STAGE_DECODE));
    CT_TRY(compute(x));
    if (x->stage == STAGE_LAND) CT_TRY(land(x));
    if ((x->stage == STAGE_SHARE) && (x->node != NULL))
        CT_TRY(ct_sched_run_progress(x->run_elements, &x->stats.bytes_sent, &x->where));
    x->stage = STAGE_DONE;
    x->stats.exchange_s += ct_clock_s() - x->left_at;
    return CT_OK;
}

/* ---- looks */

static int integer_pending(void *obj, MPI_Request **out, int max)
{
    integer *x = obj;

    switch (x->stage) {
    case STAGE_NODE:
        return ct_sparse_allreduce_node_pending(x->node, out, max);
    case STAGE_SPLIT:
    case STAGE_GATHER:
        return ct_sched_run_pending(x->run_payload, out, max);
    case STAGE_SHARE:
        return (x->node != NULL) ? ct_sched_run_pending(x->run_elements, out, max) : 0;
    default:
        return 0;
    }
}

static ct_coll_where *integer_where(void *obj)
{
    return &((integer *)obj)->where;
}

static const char *integer_exchange(const void *obj)
{
    const integer *x = obj;

    if (x->setup.comm->size == 1) return "one rank";
    return (x->nodes > 1) ? "two hops" : "one node";
}

static bool integer_state(void *obj, int i, ct_codec_state *out)
{
    integer *x = obj;

    return x->keeps && ct_error_feedback_state(&x->side.keep, i, out);
}

static void integer_stats(const void *obj, ct_codec_stats *out)
{
    *out = ((const integer *)obj)->stats;
}

static double integer_left(void *obj)
{
    integer *x = obj;

    return x->keeps ? ct_side_left(&x->side) : 0;
}

/* ---- without an object */

static int64_t int8_bytes(const ct_codec_config *c, int64_t n, int64_t rows)
{
    (void)c;
    (void)rows;
    return ct_integer_bytes(8, n);
}

static int64_t int4_bytes(const ct_codec_config *c, int64_t n, int64_t rows)
{
    (void)c;
    (void)rows;
    return ct_integer_bytes(4, n);
}

/* Feedback reads and writes V and the gradient before, and what is taken out
 * writes the gradient, and its remainder V. An owner decodes as many elements twice as the slice
 * has: of its part from each node, and of all parts. */
static void integer_seconds(const ct_codec_costs *m, const ct_codec_config *c, int bits, int64_t n,
                            ct_codec_seconds *out)
{
    double elements = (double)n, bytes = (double)ct_integer_bytes(bits, n);
    double encode_s = (bits == 8) ? m->speed.int8_s : m->speed.int4_s;
    double decode_s = (bits == 8) ? m->speed.unint8_s : m->speed.unint4_s;
    ct_sparse_allreduce_seconds hops;

    ct_sparse_allreduce_model_two_hops_s(m->exch, n, bytes, &hops);
    *out = (ct_codec_seconds){
        .encode_s =
            encode_s * elements + ct_codec_stream_s(m, c->error_feedback ? 32 * elements : 0),
        .wire_s = m->wire_factor * hops.wire_s,
        .decode_s = 2 * decode_s * elements + hops.work_s,
        .bytes = ct_codec_sum_bytes(m, bytes),
        .exchange = "two hops",
    };
}

static void int8_seconds(const ct_codec_costs *m, const ct_codec_config *c, int64_t n, int64_t rows,
                         ct_codec_seconds *out)
{
    (void)rows;
    integer_seconds(m, c, 8, n, out);
}

static void int4_seconds(const ct_codec_costs *m, const ct_codec_config *c, int64_t n, int64_t rows,
                         ct_codec_seconds *out)
{
    (void)rows;
    integer_seconds(m, c, 4, n, out);
}

#define INTEGER_OPS                                                                                \
    .uses = CT_CODEC_USES_RESYNC | CT_CODEC_USES_FEEDBACK, .size = sizeof(integer),                \
    .destroy = integer_destroy, .fold = integer_fold, .start = integer_start,                      \
    .progress = integer_progress, .codes = integer_codes, .code = integer_code,                    \
    .pending = integer_pending, .where = integer_where, .exchange = integer_exchange,              \
    .state = integer_state, .stats = integer_stats, .left = integer_left

const ct_codec_ops ct_codec_int8 = {
    .name = "int8",
    INTEGER_OPS,
    .prepare = int8_prepare,
    .payload_bytes = int8_bytes,
    .seconds = int8_seconds,
};

const ct_codec_ops ct_codec_int4 = {
    .name = "int4",
    INTEGER_OPS,
    .prepare = int4_prepare,
    .payload_bytes = int4_bytes,
    .seconds = int4_seconds,
};
