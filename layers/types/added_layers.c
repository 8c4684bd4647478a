/* Layers that no file needs to name.
 *
 * The net adds them where a reader does not take a value as it is; where they are written into a
 * prototxt, they copy:
 *  Reorder  the bottom in plain order and f32, whatever its layout and dtype
 *  Cast     the bottom in f32, in its layout
 *  ToBlocks the bottom with channels in blocks, where there is a whole one; --parallel adds it
 * behind what came from other ranks, so that the layers there run as in the undivided net
 *
 * --parallel adds the others, where a net is divided among ranks. In a tensor group, whose ranks
 * each have a part of a layer:
 *
 *                  forward                              backward
 *  CopyToParts     the bottom                           sum of the ranks' gradients
 *  SumParts        sum of the ranks' bottoms            the gradient
 *  Gather          the ranks' pieces along an axis      own piece of the gradient, or of the sum
 *  ReduceScatter   own piece of the sum of the bottoms  the ranks' pieces
 *  ScatterToParts  own piece of the bottom              the ranks' pieces
 *
 * CopyToParts and SumParts are f and g of Megatron-LM (Shoeybi et al., 2019), the others those of
 * its sequence parallelism (Korthikanti et al., 2022). Between two stages:
 *
 *  Send            to a rank of another stage           from there
 *  Receive         from a rank of another stage         to there
 *
 * What is gathered and scattered lies in memory as one piece behind the other. Along another axis
 * than the first it is packed or unpacked beside the transfer. Send and Receive have buffers that
 * always live: a message is read or written until the next one of the same pass, so that nobody
 * waits for the other stage to come that far. */
#include <string.h>

#include "framework/base/bf16.h"
#include "framework/base/simd.h"
#include "framework/math/math.h"
#include "layers/layer_util.h"
#include "layers/types/device_kernels.h"
#include "layers/types/layer_types.h"

/* ---- Reorder, Cast */

static ct_status reorder_reshape(const ct_layer *l, ct_instance *in)
{
    (void)l;
    ct_blob_set_shape(in->top[0], &in->bottom[0]->data.shape);
    return CT_OK;
}

static ct_status cast_reshape(const ct_layer *l, ct_instance *in)
{
    (void)l;
    ct_blob_set_layout(in->top[0], &in->bottom[0]->data.shape, in->bottom[0]->data.layout);
    return CT_OK;
}

static int64_t places(const ct_shape *s)
{
    return ct_shape_count(s, 2, -1);
}

/* Of the same layout. */
static ct_status widen(ct_exec *ex, const ct_tensor *x, float *y)
{
    if (x->dtype != CT_BF16) return ex->dev->copy(ex->stream, y, x->data, ct_tensor_bytes(x));
    ct_bf16_widen_all(ct_tensor_stored(x), x->data, y);
    return CT_OK;
}

static ct_status narrow(ct_exec *ex, const float *dy, const ct_tensor *dx)
{
    if (dx->dtype != CT_BF16) return ex->dev->copy(ex->stream, dx->data, dy, ct_tensor_bytes(dx));
    ct_bf16_narrow_all(ct_tensor_stored(dx), dy, dx->data);
    return CT_OK;
}

static ct_status cast_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)l;
    return widen(ex, &in->bottom[0]->data, ct_blob_data(in->top[0]));
}

static ct_status cast_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)l;
    if (ct_blob_diff(in->bottom[0]) == NULL) return CT_OK;
    return narrow(ex, ct_blob_diff(in->top[0]), &in->bottom[0]->diff);
}

static ct_status reorder_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_tensor *x = &in->bottom[0]->data;

    if (ct_blob_is_last(in->bottom[0]))
        return ct_kernels(ex)->last_to_plain(ex, x->shape.dim[0], x->shape.dim[1],
                                             places(&x->shape), x->dtype, x->data, CT_F32,
                                             ct_blob_data(in->top[0]));
    if (x->layout.block == 0) return cast_forward(l, in, ex);
    if (x->dtype == CT_BF16)
        ct_reorder_to_plain_bf16(x->shape.dim[0], x->shape.dim[1], places(&x->shape),
                                 x->layout.block, x->data, ct_blob_data(in->top[0]));
    else
        ct_reorder_to_plain(x->shape.dim[0], x->shape.dim[1], places(&x->shape), x->layout.block,
                            x->data, ct_blob_data(in->top[0]));
    return CT_OK;
}

static ct_status reorder_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_tensor *dx = &in->bottom[0]->diff;
    const float *dy = ct_blob_diff(in->top[0]);

    if ((dx->data != NULL) && ct_blob_is_last(in->bottom[0]))
        return ct_kernels(ex)->plain_to_last(ex, dx->shape.dim[0], dx->shape.dim[1],
                                             places(&dx->shape), CT_F32, dy, dx->dtype, dx->data);
    if ((dx->data == NULL) || (dx->layout.block == 0)) return cast_backward(l, in, ex);
    if (dx->dtype == CT_BF16)
        ct_reorder_to_blocked_bf16(dx->shape.dim[0], dx->shape.dim[1], places(&dx->shape),
                                   dx->layout.block, dy, dx->data);
    else
        ct_reorder_to_blocked(dx->shape.dim[0], dx->shape.dim[1], places(&dx->shape),
                              dx->layout.block, dy, dx->data);
    return CT_OK;
}

static int block_of(const ct_shape *s)
{
    int block = ct_simd_block();

    return ((s->ndim == 4) && (s->dim[1] >= block)) ? block : 0;
}

static ct_status to_blocks_reshape(const ct_layer *l, ct_instance *in)
{
    const ct_shape *s = &in->bottom[0]->data.shape;

    (void)l;
    ct_blob_set_layout(in->top[0], s, (ct_layout){ .block = block_of(s) });
    return CT_OK;
}

static ct_status to_blocks_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_shape *s = &in->bottom[0]->data.shape;

    if (in->top[0]->data.layout.block == 0) return cast_forward(l, in, ex);
    ct_reorder_to_blocked(s->dim[0], s->dim[1], places(s), in->top[0]->data.layout.block,
                          ct_blob_data(in->bottom[0]), ct_blob_data(in->top[0]));
    return CT_OK;
}

static ct_status to_blocks_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_shape *s = &in->bottom[0]->data.shape;

    if (in->top[0]->data.layout.block == 0) return cast_backward(l, in, ex);
    if (ct_blob_diff(in->bottom[0]) == NULL) return CT_OK;
    ct_reorder_to_plain(s->dim[0], s->dim[1], places(s), in->top[0]->data.layout.block,
                        ct_blob_diff(in->top[0]), ct_blob_diff(in->bottom[0]));
    return CT_OK;
}

#define CONVERSION(_type, _name)                                                                   \
    {                                                                                              \
        .type = _type, .min_bottom = 1, .max_bottom = 1, .min_top = 1, .max_top = 1,               \
        .by_net = true, .reshape = _name##_reshape, .forward = _name##_forward,                    \
        .backward = _name##_backward, .on_cuda = true, .sequence = &ct_sequence_apart,             \
        .splits = CT_SPLIT_EACH,                                                                   \
    }

const ct_layer_ops ct_layer_reorder = CONVERSION("Reorder", reorder);
const ct_layer_ops ct_layer_cast = CONVERSION("Cast", cast);

const ct_layer_ops ct_layer_to_blocks = {
    .type = "ToBlocks",
    .min_bottom = 1,
    .max_bottom = 1,
    .min_top = 1,
    .max_top = 1,
    .by_net = true,
    .reshape = to_blocks_reshape,
    .forward = to_blocks_forward,
    .backward = to_blocks_backward,
};

/* ---- in a tensor group */

typedef enum { COPY, SUM, GATHER, SCATTER, SLICE } action;

enum { PACKED = 0, COMES = 0, LEAVES = 1 }; /* buffers */

static action action_of(const ct_layer *l, bool forward)
{
    if (l->ops == &ct_layer_copy_to_parts) return forward ? COPY : SUM;
    if (l->ops == &ct_layer_sum_parts) return forward ? SUM : COPY;
    if (l->ops == &ct_layer_reduce_scatter) return forward ? SCATTER : GATHER;
    if (l->ops == &ct_layer_scatter_to_parts) return forward ? SLICE : GATHER;
    if (forward) return GATHER;
    return l->param->transfer->sum_gradients ? SCATTER : SLICE;
}

static ct_status check_param(ct_layer *l, const ct_shape *bottom)
{
    (void)bottom;
    if (l->param->transfer != NULL) return CT_OK;
    return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "no file has layers of this type: --parallel adds them");
}

/* ---- pieces: the whole is [outer][whole][inner], a rank's piece [outer][mine][inner]. Of an axis
 * that is several one behind the other, each shared out for itself, outer counts these, too. */

typedef struct pieces {
    int axis;
    int64_t outer, inner, whole, mine, at;
} pieces;

static bool has_pieces(const ct_layer *l)
{
    return (action_of(l, true) != COPY) && (action_of(l, true) != SUM);
}

static pieces pieces_of(const ct_layer *l, const ct_shape *s)
{
    const Ct__TransferParameter *p = l->param->transfer;
    pieces v = { .axis = p->axis };

    v.outer = ct_shape_count(s, 0, v.axis) * p->pieces;
    v.inner = ct_shape_count(s, v.axis + 1, -1);
    v.mine = p->part[p->rank];
    for (size_t r = 0; r < p->n_part; r++) {
        v.whole += p->part[r];
        if ((int)r < p->rank) v.at += p->part[r];
    }
    return v;
}

static ct_status check_parts(ct_layer *l, const ct_shape *bottom)
{
    const Ct__TransferParameter *p = l->param->transfer;

    CT_TRY(check_param(l, bottom));
    if ((p->rank < 0) || ((size_t)p->rank >= p->n_part))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "rank %d of %zu parts", p->rank, p->n_part);
    if (p->pieces < 1) return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "an axis of %d pieces", p->pieces);
    if ((p->axis < 0) || (p->axis >= bottom->ndim))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "its bottom %s has no axis %d",
                             ct_shape_str(bottom).text, p->axis);
    return CT_OK;
}

static ct_status reshape_parts(const ct_layer *l, ct_instance *in)
{
    const ct_blob *x = in->bottom[0];
    ct_shape shape = x->data.shape;
    bool first = false;

    if (has_pieces(l)) {
        pieces v = pieces_of(l, &shape);
        bool gathers = (action_of(l, true) == GATHER);
        int64_t from = gathers ? v.mine : v.whole, to = gathers ? v.whole : v.mine;

        from *= l->param->transfer->pieces;
        if (shape.dim[v.axis] != from)
            return CT_LAYER_FAIL(l, CT_ERR_SHAPE,
                                 "its bottom has %lld along axis %d, where the parts say %lld",
                                 (long long)shape.dim[v.axis], v.axis, (long long)from);
        shape.dim[v.axis] = l->param->transfer->pieces * to;
        first = (v.axis == 0);
        if (v.outer > 1)
            ct_instance_buffer(in, PACKED, CT_LIFETIME_CALL,
                               (size_t)(v.outer * v.whole * v.inner) *
                                   ct_dtype_size(x->data.dtype));
    }
    ct_blob_set_like(in->top[0], &shape, &x->data);
    in->top[0]->ids = x->ids;
    in->top[0]->restarts_first = x->restarts_first && !first;
    in->over = (action_of(l, false) == SUM) ? 1 : 0;
    return CT_OK;
}

static int count_parts(const ct_layer *l, const ct_instance *in, bool forward, int k)
{
    action a = action_of(l, forward);

    if ((k > 0) || (a == COPY) || (a == SLICE)) return 0;
    return (forward || in->bottom[0]->wants_diff) ? 1 : 0;
}

static void transfer_parts(const ct_layer *l, const ct_instance *in, bool forward, ct_transfer *t_p)
{
    static const ct_transfer_kind kind[] = {
        [SUM] = CT_TRANSFER_SUM, [GATHER] = CT_TRANSFER_GATHER, [SCATTER] = CT_TRANSFER_SCATTER
    };
    const ct_blob *x = in->bottom[0], *y = in->top[0];
    action a = action_of(l, forward);

    *t_p = (ct_transfer){ .kind = kind[a], .dtype = x->data.dtype };
    t_p->from = forward ? x->data.data : y->diff.data;
    t_p->to = forward ? y->data.data : x->diff.data;
    t_p->n = ct_tensor_count(&x->data);
    if (a != SUM) {
        pieces v = pieces_of(l, &x->data.shape);

        t_p->n = v.outer * v.whole * v.inner;
        t_p->piece = l->param->transfer->part;
        t_p->unit = v.outer * v.inner;
        if ((v.outer > 1) && (a == GATHER)) t_p->to = in->buffer[PACKED].data;
        if ((v.outer > 1) && (a == SCATTER)) t_p->from = in->buffer[PACKED].data;
    }
}

/* Rows of bytes from one array to another, each with so many from row to row. */
static void copy_rows(int64_t n, size_t bytes, const char *from, size_t from_step, char *to,
                      size_t to_step)
{
#pragma omp parallel for schedule(static) if (n * (int64_t)bytes >= 4 * CT_PARALLEL_MIN)
    for (int64_t i = 0; i < n; i++)
        memcpy(to + (size_t)i * to_step, from + (size_t)i * from_step, bytes);
}

/* The same where the layer runs; a device has f32 alone. */
static ct_status move_rows(ct_exec *ex, int64_t n, size_t bytes, const char *from, size_t from_step,
                           char *to, size_t to_step)
{
    const int64_t one = sizeof(float);
    ct_strided s = { 0 };

    if (ex->dev->kind == CT_DEVICE_CPU) {
        copy_rows(n, bytes, from, from_step, to, to_step);
        return CT_OK;
    }
    if ((n == 0) || (bytes == 0)) return CT_OK;
    ct_strided_axis(&s, n, (int64_t)from_step / one, (int64_t)to_step / one);
    ct_strided_axis(&s, (int64_t)bytes / one, 1, 1);
    return ct_kernels(ex)->strided(ex, &s, (const float *)(const void *)from, (float *)(void *)to);
}

/* Between the whole and the pieces behind each other. */
static ct_status pack(const ct_layer *l, ct_exec *ex, const pieces *v, size_t size, bool unpacks,
                      char *whole, char *packed)
{
    const Ct__TransferParameter *p = l->param->transfer;
    size_t row = (size_t)(v->whole * v->inner) * size, at = 0;

    for (size_t r = 0; r < p->n_part; r++) {
        size_t bytes = (size_t)(p->part[r] * v->inner) * size;
        char *piece = packed + at * (size_t)v->outer;

        if (unpacks)
            CT_TRY(move_rows(ex, v->outer, bytes, piece, bytes, whole + at, row));
        else
            CT_TRY(move_rows(ex, v->outer, bytes, whole + at, row, piece, bytes));
        at += bytes;
    }
    return CT_OK;
}

static ct_status run_parts(const ct_layer *l, ct_instance *in, ct_exec *ex, bool forward, int part)
{
    const ct_blob *x = in->bottom[0], *y = in->top[0];
    const void *from = forward ? x->data.data : y->diff.data;
    void *to = forward ? y->data.data : x->diff.data;
    size_t size = ct_dtype_size(x->data.dtype);
    action a = action_of(l, forward);
    pieces v;

    if (to == NULL) return CT_OK;
    if ((a == COPY) && (from != to))
        return ex->dev->copy(ex->stream, to, from, ct_tensor_bytes(&x->data));
    if ((a == COPY) || (a == SUM)) return CT_OK;
    if ((size != sizeof(float)) && (ex->dev->kind != CT_DEVICE_CPU))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "values of %zu bytes on a device", size);
    v = pieces_of(l, &x->data.shape);
    if (a == SLICE) {
        size_t mine = (size_t)(v.mine * v.inner) * size, row = (size_t)(v.whole * v.inner) * size;

        return move_rows(ex, v.outer, mine, (const char *)from + (size_t)(v.at * v.inner) * size,
                         row, to, mine);
    }
    if ((a == SCATTER) && (part == 0) && (v.outer > 1))
        return pack(l, ex, &v, size, false, (char *)(uintptr_t)from, in->buffer[PACKED].data);
    if ((a == GATHER) && (part == 1) && (v.outer > 1))
        return pack(l, ex, &v, size, true, to, in->buffer[PACKED].data);
    return CT_OK;
}

static ct_status forward_parts(const ct_layer *l, ct_instance *in, ct_exec *ex, int part)
{
    return run_parts(l, in, ex, true, part);
}

static ct_status backward_parts(const ct_layer *l, ct_instance *in, ct_exec *ex, int part)
{
    return run_parts(l, in, ex, false, part);
}

static const ct_sum_ops parts_sums = {
    .count = count_parts,
    .forward = forward_parts,
    .backward = backward_parts,
    .transfer = transfer_parts,
};

/* ---- between stages */

/* The message that an instance sent last. */
typedef struct message {
    const ct_transfer_ops *transfers;
    void *ctx, *ticket;
} message;

static ct_dtype wire_of(const ct_layer *l)
{
    return l->param->transfer->bf16 ? CT_BF16 : CT_F32;
}

static void make_buffer(const ct_layer *l, ct_instance *in, int slot, const ct_tensor *of)
{
    ct_instance_buffer(in, slot, CT_LIFETIME_ALWAYS,
                       (size_t)ct_tensor_count(of) * ct_dtype_size(wire_of(l)));
}

static void convert(int64_t n, ct_dtype from_type, const void *from, ct_dtype to_type, void *to)
{
    if (from_type == to_type)
        memcpy(to, from, (size_t)n * ct_dtype_size(to_type));
    else if (to_type == CT_BF16)
        ct_bf16_narrow_all(n, from, to);
    else
        ct_bf16_widen_all(n, from, to);
}

static void describe(const ct_layer *l, const ct_tensor *of, ct_transfer_kind kind, void *buffer,
                     ct_transfer *t_p)
{
    const Ct__TransferParameter *p = l->param->transfer;

    *t_p = (ct_transfer){ .kind = kind, .dtype = wire_of(l), .n = ct_tensor_count(of) };
    t_p->peer = p->peer;
    t_p->tag = p->tag;
    t_p->from = (kind == CT_TRANSFER_SEND) ? buffer : NULL;
    t_p->to = (kind == CT_TRANSFER_SEND) ? NULL : buffer;
}

static ct_status send_out(const ct_layer *l, ct_instance *in, ct_exec *ex, const ct_tensor *what)
{
    message *m = in->state;
    void *room = in->buffer[LEAVES].data, *before = m->ticket;
    ct_transfer t;

    m->ticket = NULL;
    if (before != NULL) CT_TRY(ct_exec_transfer_wait(ex, before));
    convert(ct_tensor_count(what), what->dtype, what->data, wire_of(l), room);
    describe(l, what, CT_TRANSFER_SEND, room, &t);
    m->transfers = ex->transfers;
    m->ctx = ex->transfers_ctx;
    return ct_exec_transfer_begin(ex, &t, &m->ticket);
}

static void take(const ct_layer *l, const ct_instance *in, const ct_tensor *to)
{
    if (to->data == NULL) return;
    convert(ct_tensor_count(to), wire_of(l), in->buffer[COMES].data, to->dtype, to->data);
}

static void release(const ct_layer *l, ct_instance *in)
{
    const message *m = in->state;

    (void)l;
    if ((m != NULL) && (m->ticket != NULL)) m->transfers->drop(m->ctx, m->ticket);
}

static ct_status reshape_send(const ct_layer *l, ct_instance *in)
{
    make_buffer(l, in, LEAVES, &in->bottom[0]->data);
    if (in->bottom[0]->wants_diff) make_buffer(l, in, COMES, &in->bottom[0]->data);
    return CT_OK;
}

static ct_status check_receive(ct_layer *l, const ct_shape *bottom)
{
    const Ct__BlobShape *s;

    CT_TRY(check_param(l, bottom));
    s = l->param->transfer->shape;
    if ((s != NULL) && (s->n_dim <= CT_MAX_DIM)) return CT_OK;
    return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "it has no shape");
}

static ct_status reshape_receive(const ct_layer *l, ct_instance *in)
{
    const Ct__TransferParameter *p = l->param->transfer;
    ct_blob *y = in->top[0];
    ct_shape shape = { .ndim = (int)p->shape->n_dim };

    for (size_t i = 0; i < p->shape->n_dim; i++) shape.dim[i] = p->shape->dim[i];
    CT_TRY(ct_layer_check_shape(l, &shape));
    ct_blob_set_storage(y, &shape, (ct_layout){ .block = 0 },
                        (p->bf16 && in->read_tokens) ? CT_BF16 : CT_F32);
    y->ids = p->ids;
    y->restarts_first = p->restarts_first;
    in->batch_local = p->batch_local;
    in->batch_global = p->batch_global;
    in->batch_first = p->batch_first;
    in->batch_axis = p->batch_axis;
    make_buffer(l, in, COMES, &y->data);
    if (y->wants_diff) make_buffer(l, in, LEAVES, &y->data);
    return CT_OK;
}

static int count_send(const ct_layer *l, const ct_instance *in, bool forward, int k)
{
    (void)l;
    return (!forward && (k == 0) && in->bottom[0]->wants_diff) ? 1 : 0;
}

static int count_receive(const ct_layer *l, const ct_instance *in, bool forward, int k)
{
    (void)l, (void)in;
    return (forward && (k == 0)) ? 1 : 0;
}

/* Only what comes is a step of its own. */
static void transfer_comes(const ct_layer *l, const ct_instance *in, bool forward, ct_transfer *t_p)
{
    const ct_tensor *of = forward ? &in->top[0]->data : &in->bottom[0]->diff;

    describe(l, of, CT_TRANSFER_RECEIVE, in->buffer[COMES].data, t_p);
}

static ct_status send_forward(const ct_layer *l, ct_instance *in, ct_exec *ex, int part)
{
    (void)part;
    return send_out(l, in, ex, &in->bottom[0]->data);
}

static ct_status send_backward(const ct_layer *l, ct_instance *in, ct_exec *ex, int part)
{
    (void)ex;
    if (part == 1) take(l, in, &in->bottom[0]->diff);
    return CT_OK;
}

static ct_status receive_forward(const ct_layer *l, ct_instance *in, ct_exec *ex, int part)
{
    (void)ex;
    if (part == 1) take(l, in, &in->top[0]->data);
    return CT_OK;
}

static ct_status receive_backward(const ct_layer *l, ct_instance *in, ct_exec *ex, int part)
{
    (void)part;
    return send_out(l, in, ex, &in->top[0]->diff);
}

static const ct_sum_ops send_sums = {
    .count = count_send,
    .forward = send_forward,
    .backward = send_backward,
    .transfer = transfer_comes,
    .ahead = true,
};

static const ct_sum_ops receive_sums = {
    .count = count_receive,
    .forward = receive_forward,
    .backward = receive_backward,
    .transfer = transfer_comes,
    .ahead = true,
};

#define TRANSFER                                                                                   \
    .by_net = true, .layout = &ct_layout_rows, .forward = ct_layer_forward_parts,                  \
    .backward = ct_layer_backward_parts

#define PARTS(_type, _setup, _alias)                                                               \
    {                                                                                              \
        .type = _type, .min_bottom = 1, .max_bottom = 1, .min_top = 1, .max_top = 1,               \
        .alias = _alias, .setup = _setup, .reshape = reshape_parts, .sums = &parts_sums,           \
        .on_cuda = true, .sequence = &ct_sequence_apart, TRANSFER                                  \
    }

const ct_layer_ops ct_layer_copy_to_parts = PARTS("CopyToParts", check_param, CT_ALIAS_DATA);
const ct_layer_ops ct_layer_sum_parts = PARTS("SumParts", check_param, CT_ALIAS_DIFF);
const ct_layer_ops ct_layer_gather = PARTS("Gather", check_parts, 0);
const ct_layer_ops ct_layer_reduce_scatter = PARTS("ReduceScatter", check_parts, 0);
const ct_layer_ops ct_layer_scatter_to_parts = PARTS("ScatterToParts", check_parts, 0);

const ct_layer_ops ct_layer_send = {
    .type = "Send",
    .min_bottom = 1,
    .max_bottom = 1,
    .instance_state_size = sizeof(message),
    .setup = check_param,
    .reshape = reshape_send,
    .release = release,
    .sums = &send_sums,
    TRANSFER,
};

const ct_layer_ops ct_layer_receive = {
    .type = "Receive",
    .min_top = 1,
    .max_top = 1,
    .instance_state_size = sizeof(message),
    .setup = check_receive,
    .reshape = reshape_receive,
    .release = release,
    .sums = &receive_sums,
    TRANSFER,
};
