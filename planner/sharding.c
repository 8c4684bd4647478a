/* Which layers may be split in which way, and how values lie on the ranks of a replica by that. */
#include "planner/sharding.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *ct_split_name(ct_parallel_split split)
{
    const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(
        &ct__parallel_layer_parameter__split__descriptor, (int)split);

    return (v != NULL) ? v->name : "?";
}

/* ---- which layers may be split, and how: the layers say it */

static bool may(unsigned how, ct_parallel_split split)
{
    return ct_layer_may_split(how, (Ct__ParallelLayerParameter__Split)split);
}

/* It may be cut along any axis that the values in front of it are cut along. */
static bool goes_along(unsigned how)
{
    return (how & CT_SPLIT_FEATURE) == CT_SPLIT_FEATURE;
}

/* "it may be BATCH, OUTPUT, INPUT or REPLICATE" */
static void list_ways(unsigned how, char *why, size_t size)
{
    size_t at = (size_t)snprintf(why, size, "it may be BATCH");

    for (int k = CT_PARALLEL_OUTPUT; k <= CT_PARALLEL_ONE; k++) {
        if (!may(how, (ct_parallel_split)k) || (at >= size)) continue;
        at += (size_t)snprintf(why + at, size - at, "%s%s", (k == CT_PARALLEL_ONE) ? " or " : ", ",
                               ct_split_name((ct_parallel_split)k));
    }
}

/* ---- whether there is enough of it */

/* n things over the ranks of a replica, a whole one each at least. */
static bool too_few(int64_t n, const char *things, int tensor, char *why, size_t size)
{
    if (n >= tensor) return false;
    snprintf(why, size, "it has %" PRId64 " %s for tensor %d", n, things, tensor);
    return true;
}

static bool uneven(int64_t n, const char *things, int tensor, char *why, size_t size)
{
    if (n % tensor == 0) return false;
    snprintf(why, size, "its %" PRId64 " %s cannot be divided by tensor %d", n, things, tensor);
    return true;
}

static bool refuses_heads(const Ct__LayerParameter *l, int tensor, char *why, size_t size)
{
    const Ct__AttentionParameter *p = l->attention_param;

    if (p == NULL) return false; /* the net says it */
    if (uneven(p->num_heads, "heads", tensor, why, size)) return true;
    return uneven(p->num_kv_heads, "heads of keys and values", tensor, why, size);
}

/* The axis that a product's outputs lie along. */
static int output_axis(const ct_instance *in)
{
    const Ct__InnerProductParameter *p = in->layer->param->inner_product_param;
    int axis = (p != NULL) ? p->axis : 1;

    return (axis < 0) ? axis + in->bottom[0]->data.shape.ndim : axis;
}

/* Groups stay whole. Where bottom and top have as many channels as there are groups, these may be
 * uneven; otherwise the shares of both fit only where they are equal. */
static bool refuses_groups(const ct_instance *in, int tensor, char *why, size_t size)
{
    unsigned how = ct_layer_splits(in->layer->param);
    int64_t bottom = in->bottom[0]->data.shape.dim[1], top = in->top[0]->data.shape.dim[1];

    if ((how & CT_SPLIT_GROUP) != 0)
        return uneven(in->layer->param->convolution_param->group, "groups", tensor, why, size);
    if (((how & CT_SPLIT_CHANNEL) == 0) || (bottom == top)) return false;
    return uneven((bottom < top) ? bottom : top, "groups", tensor, why, size);
}

static bool refuses_size(const ct_instance *in, ct_parallel_split split, int tensor, char *why,
                         size_t size)
{
    const ct_layer *l = in->layer;
    const ct_shape *bottom = (l->n_bottom > 0) ? &in->bottom[0]->data.shape : NULL;
    bool embeds = (strcmp(l->ops->type, "Embed") == 0);
    bool turned =
        (l->param->inner_product_param != NULL) && l->param->inner_product_param->transpose;

    if ((split == CT_PARALLEL_SEQUENCE) && (bottom != NULL)) {
        if (bottom->ndim < 3) {
            snprintf(why, size, "its bottom has shape %s, and no tokens",
                     ct_shape_str(bottom).text);
            return true;
        }
        return uneven(bottom->dim[1], "tokens", tensor, why, size);
    }
    if ((split == CT_PARALLEL_OUTPUT) && (l->param->convolution_param != NULL) &&
        refuses_groups(in, tensor, why, size))
        return true;
    if ((l->n_weight == 0) || !(ct_layer_splits(l->param) & (CT_SPLIT_OUTPUT | CT_SPLIT_INPUT)))
        return false;
    if (split == CT_PARALLEL_OUTPUT)
        return too_few(l->weight[0].shape.dim[(turned || embeds) ? 1 : 0], "outputs", tensor, why,
                       size);
    if (split == CT_PARALLEL_INPUT)
        return embeds
                   ? too_few(l->weight[0].shape.dim[0], "rows", tensor, why, size)
                   : too_few(l->weight[0].shape.dim[turned ? 0 : 1], "inputs", tensor, why, size);
    return false;
}

bool ct_split_refuses(const Ct__LayerParameter *l, const ct_instance *in, ct_parallel_split split,
                      int tensor, char *why, size_t size)
{
    unsigned how = ct_layer_splits(l);

    if (!may(how, split)) {
        list_ways(how, why, size);
        return true;
    }
    if (split == CT_PARALLEL_HEADS) return refuses_heads(l, tensor, why, size);
    return (in != NULL) && refuses_size(in, split, tensor, why, size);
}

/* ---- how values lie */

static const ct_sharding on_batch = { .kind = CT_SHARDING_BATCH };
static const ct_sharding on_tokens = { .kind = CT_SHARDING_SEQUENCE };
static const ct_sharding everywhere = { .kind = CT_SHARDING_WHOLE };
static const ct_sharding in_parts = { .kind = CT_SHARDING_PARTIAL };

static ct_sharding on_channels(int axis, int pieces)
{
    return (ct_sharding){ CT_SHARDING_CHANNEL, axis, pieces, 0 };
}

static ct_sharding on_one(int part)
{
    return (ct_sharding){ CT_SHARDING_ONE, 0, 0, part };
}

static bool same(ct_sharding a, ct_sharding b)
{
    return (a.kind == b.kind) && (a.axis == b.axis) && (a.pieces == b.pieces) && (a.part == b.part);
}

const char *ct_conversion_name(const ct_conversion *c)
{
    if (c->to.kind == CT_SHARDING_WHOLE)
        return (c->from.kind == CT_SHARDING_PARTIAL) ? "SumParts" : "Gather";
    if (c->from.kind == CT_SHARDING_PARTIAL) return "ReduceScatter";
    return (c->from.kind == CT_SHARDING_WHOLE) ? "Slice" : "Gather, Slice";
}

typedef struct sharder {
    const ct_parallel *p;
    const ct_net *net;
    ct_sharded_net *s;
    int *file; /* of each layer: its number in p->layer; -1: the net added it, or another file has
                * it under a name of its own */
} sharder;

/* The last layer before i that made bottom b; -1: none. */
static int maker_of(const ct_net *net, int i, int b)
{
    const ct_blob *blob = net->pass->instance[i]->bottom[b];

    for (int k = i - 1; k >= 0; k--) {
        for (int t = 0; t < net->layer[k]->n_top; t++) {
            if (net->pass->instance[k]->top[t] == blob) return k;
        }
    }
    return -1;
}

/* The layer that reads top t of layer i, and at which bottom; -1: none. */
static int reader_of(const ct_net *net, int i, int t, int *b_p)
{
    const ct_blob *blob = net->pass->instance[i]->top[t];

    for (int k = i + 1; k < net->n_layer; k++) {
        for (int b = 0; b < net->layer[k]->n_bottom; b++) {
            if (net->pass->instance[k]->bottom[b] != blob) continue;
            *b_p = b;
            return k;
        }
    }
    return -1;
}

static bool is_given(const sharder *h, int i)
{
    return (h->file[i] >= 0) && h->p->layer[h->file[i]].is_given;
}

/* Two ranks or more share layer i. */
static bool is_shared(const sharder *h, int i)
{
    return h->p->stage[h->s->stage[i]].tensor > 1;
}

static bool reads_packed(const ct_layer *l)
{
    return ct_layer_is(l, "Attention") && (l->n_bottom < 3);
}

/* In how many pieces the top of product i is cut: as who reads it wants it. */
static int pieces_for(const sharder *h, int i)
{
    int b, k = reader_of(h->net, i, 0, &b);

    while ((k >= 0) && (h->net->layer[k]->n_bottom == 1) &&
           !ct_layer_is(h->net->layer[k], "Split") && !ct_layer_is(h->net->layer[k], "SwiGLU") &&
           goes_along(ct_layer_splits(h->net->layer[k]->param)))
        k = reader_of(h->net, k, 0, &b);
    if ((k < 0) || (b != 0)) return 1;
    if (reads_packed(h->net->layer[k])) return 3;
    return (ct_layer_is(h->net->layer[k], "SwiGLU") && (h->net->layer[k]->n_bottom == 1)) ? 2 : 1;
}

/* The axis of a loss's classes. */
static int class_axis(const ct_instance *in)
{
    const Ct__SoftmaxParameter *p = in->layer->param->softmax_param;
    int axis = (p != NULL) ? p->axis : 1;

    return (axis < 0) ? axis + in->bottom[0]->data.shape.ndim : axis;
}

/* How bottom b of layer i was made, or comes from outside. */
static ct_sharding comes(const sharder *h, int i, int b)
{
    int from = maker_of(h->net, i, b);

    return (from >= 0) ? h->s->top[from] : on_batch;
}

/* Bottom b as a layer with that split takes it. */
static ct_sharding wanted(const sharder *h, int i, int b)
{
    const ct_layer *l = h->net->layer[i];
    const ct_instance *in = h->net->pass->instance[i];
    unsigned how = ct_layer_splits(l->param);

    switch (h->s->split[i]) {
    case CT_PARALLEL_ONE:
        return same(comes(h, i, b), on_one(h->s->part[i])) ? on_one(h->s->part[i]) : everywhere;
    case CT_PARALLEL_BATCH:
        return on_batch;
    case CT_PARALLEL_SEQUENCE:
        return on_tokens;
    case CT_PARALLEL_OUTPUT:
        if (how & CT_SPLIT_OUTPUT) return everywhere;
        if (how & CT_SPLIT_CLASS) return (b == 0) ? on_channels(class_axis(in), 1) : everywhere;
        return on_channels(h->s->top[i].axis,
                           (ct_layer_is(l, "SwiGLU") && (l->n_bottom == 1)) ? 2 : 1);
    case CT_PARALLEL_INPUT:
        if (ct_layer_is(l, "Eltwise")) return comes(h, i, b);
        if (ct_layer_is(l, "Embed")) return everywhere;
        return on_channels(ct_layer_is(l, "InnerProduct") ? output_axis(in) : 1, 1);
    case CT_PARALLEL_HEADS:
        if (reads_packed(l)) return (b == 0) ? on_channels(2, 3) : everywhere;
        return (b < 3) ? on_channels(2, 1) : everywhere;
    default:
        return everywhere;
    }
}

/* The tops of a layer with that split; `axis` of what it follows. */
static ct_sharding made(const sharder *h, int i, int axis)
{
    const ct_layer *l = h->net->layer[i];
    unsigned how = ct_layer_splits(l->param);

    switch (h->s->split[i]) {
    case CT_PARALLEL_BATCH:
        return on_batch;
    case CT_PARALLEL_SEQUENCE:
        return on_tokens;
    case CT_PARALLEL_OUTPUT:
        if (how & CT_SPLIT_CLASS) return everywhere; /* a sum of all */
        if (ct_layer_is(l, "InnerProduct"))
            return on_channels(output_axis(h->net->pass->instance[i]), pieces_for(h, i));
        if (ct_layer_is(l, "Embed"))
            return on_channels(h->net->pass->instance[i]->bottom[0]->data.shape.ndim, 1);
        return on_channels((how & (CT_SPLIT_OUTPUT | CT_SPLIT_GROUP)) ? 1 : axis, 1);
    case CT_PARALLEL_INPUT:
        return in_parts;
    case CT_PARALLEL_HEADS:
        return on_channels(2, 1);
    case CT_PARALLEL_ONE:
        return on_one(h->s->part[i]);
    default:
        return everywhere;
    }
}

/* A sum of what it reads, each as it is. */
static bool is_plain_sum(const ct_layer *l)
{
    const Ct__EltwiseParameter *p = l->param->eltwise_param;

    return ct_layer_is(l, "Eltwise") &&
           ((p == NULL) ||
            ((p->n_coeff == 0) && (p->operation == CT__ELTWISE_PARAMETER__ELTWISE_OP__SUM)));
}

/* A sum of what it reads, each as it is or scaled. */
static bool is_sum(const ct_layer *l)
{
    const Ct__EltwiseParameter *p = l->param->eltwise_param;

    return ct_layer_is(l, "Eltwise") &&
           ((p == NULL) || (p->operation == CT__ELTWISE_PARAMETER__ELTWISE_OP__SUM));
}

/* Bottom b of the sum i comes in parts, from the same stage. */
static bool is_term_in_parts(const sharder *h, int i, int b)
{
    int from = maker_of(h->net, i, b);

    return (from >= 0) && (h->s->stage[from] == h->s->stage[i]) &&
           (h->s->top[from].kind == CT_SHARDING_PARTIAL) &&
           (h->net->pass->instance[i]->bottom[b]->data.layout.block == 0);
}

/* A sum of terms that all come in parts is one in parts. */
static bool follows_parts(const sharder *h, int i)
{
    const ct_layer *l = h->net->layer[i];

    if (!is_sum(l) || (l->n_bottom < 2)) return false;
    for (int b = 0; b < l->n_bottom; b++) {
        if (!is_term_in_parts(h, i, b)) return false;
    }
    h->s->split[i] = CT_PARALLEL_INPUT;
    h->s->top[i] = in_parts;
    return true;
}

/* Bottom b of the sum i is added to an earlier one before the ranks add that up. */
static bool joins_earlier(const sharder *h, int i, int b)
{
    if (!is_sum(h->net->layer[i]) || !is_term_in_parts(h, i, b)) return false;
    for (int k = 0; k < b; k++) {
        if (is_term_in_parts(h, i, k)) return true;
    }
    return false;
}

/* The layer reads what one rank has. It goes with it; a sum of what several of them have is one in
 * parts. Losses are made by all. */
static bool follows_one(const sharder *h, int i)
{
    const ct_layer *l = h->net->layer[i];
    int part = -1, n = 0;
    bool alike = true;

    for (int b = 0; b < l->n_bottom; b++) {
        ct_sharding from = comes(h, i, b);

        if (from.kind != CT_SHARDING_ONE) continue;
        alike = alike && ((n == 0) || (from.part == part));
        part = from.part;
        n++;
    }
    if ((n == 0) || l->ops->is_loss) return false;
    if (!alike && (!is_plain_sum(l) || (n < l->n_bottom))) return false;
    h->s->split[i] = alike ? CT_PARALLEL_ONE : CT_PARALLEL_INPUT;
    h->s->part[i] = alike ? part : 0;
    h->s->top[i] = alike ? on_one(part) : in_parts;
    return true;
}

/* The split of a layer that goes with its bottom; false: it cannot. */
static bool follows(unsigned how, ct_sharding bottom, ct_parallel_split *split_p)
{
    unsigned channel = (bottom.axis == 1) ? CT_SPLIT_CHANNEL : CT_SPLIT_LAST;

    if (!(how & CT_SPLIT_EACH)) return false;
    switch (bottom.kind) {
    case CT_SHARDING_BATCH:
        *split_p = CT_PARALLEL_BATCH;
        return true;
    case CT_SHARDING_CHANNEL:
        *split_p = CT_PARALLEL_OUTPUT;
        return (how & channel) != 0;
    case CT_SHARDING_SEQUENCE:
        *split_p = CT_PARALLEL_SEQUENCE;
        return (how & CT_SPLIT_TOKEN) != 0;
    default:
        *split_p = CT_PARALLEL_REPLICATE;
        return true; /* parts are added up before it */
    }
}

/* The same, and there is enough of it. */
static bool goes_with(const sharder *h, int i, ct_sharding bottom, ct_parallel_split *split_p)
{
    const Ct__LayerParameter *l = h->net->layer[i]->param;
    int tensor = h->p->stage[h->s->stage[i]].tensor;
    char why[300];

    return follows(ct_layer_splits(l), bottom, split_p) &&
           !ct_split_refuses(l, h->net->pass->instance[i], *split_p, tensor, why, sizeof(why));
}

/* What all readers of a Split take, where none of them may go with what comes. */
static bool agreed(const sharder *h, int i, ct_sharding *all_p)
{
    for (int t = 0; t < h->net->layer[i]->n_top; t++) {
        int b, k = reader_of(h->net, i, t, &b);
        ct_sharding w;

        if ((k < 0) || (h->s->stage[k] != h->s->stage[i])) return false;
        if (ct_layer_splits(h->net->layer[k]->param) & CT_SPLIT_EACH) return false;
        h->s->split[k] = is_given(h, k) ? h->p->layer[h->file[k]].split : CT_PARALLEL_BATCH;
        w = wanted(h, k, b);
        if ((t > 0) && !same(w, *all_p)) return false;
        *all_p = w;
    }
    return true;
}

static ct_parallel_split split_for(ct_sharding s)
{
    switch (s.kind) {
    case CT_SHARDING_BATCH:
        return CT_PARALLEL_BATCH;
    case CT_SHARDING_CHANNEL:
        return CT_PARALLEL_OUTPUT;
    case CT_SHARDING_SEQUENCE:
        return CT_PARALLEL_SEQUENCE;
    default:
        return CT_PARALLEL_REPLICATE;
    }
}

/* The axis along which layer i would have channels. */
static int axis_of(const sharder *h, int i, ct_sharding bottom)
{
    const ct_layer *l = h->net->layer[i];

    if (bottom.kind == CT_SHARDING_CHANNEL) return bottom.axis;
    return ((l->n_bottom > 0) && (ct_layer_splits(l->param) & CT_SPLIT_LAST) &&
            (h->net->pass->instance[i]->bottom[0]->data.shape.ndim == 3))
               ? 2
               : 1;
}

/* Layer i's split and how its tops lie, of the layers before it. What several layers read is turned
 * once, in front of their Split, where all want the same. */
static void decide(const sharder *h, int i)
{
    const ct_layer *l = h->net->layer[i];
    int from = (l->n_bottom > 0) ? maker_of(h->net, i, 0) : -1;
    ct_sharding bottom = (from >= 0) ? h->s->top[from] : on_batch, all;
    ct_parallel_split *split = &h->s->split[i];

    *split = CT_PARALLEL_BATCH;
    h->s->top[i] = on_batch;
    if (is_given(h, i)) {
        *split = h->p->layer[h->file[i]].split;
        h->s->part[i] = h->p->layer[h->file[i]].part;
    }
    if (!is_shared(h, i)) return;
    if (!is_given(h, i) && (follows_one(h, i) || follows_parts(h, i))) return;
    if (!is_given(h, i) && ct_layer_is(l, "Split") && agreed(h, i, &all)) {
        *split = split_for(all);
        h->s->top[i] = all;
        return;
    }
    if (!is_given(h, i) && !goes_with(h, i, bottom, split)) *split = CT_PARALLEL_BATCH;
    h->s->top[i] = made(h, i, axis_of(h, i, bottom));
    if (ct_layer_is(l, "SwiGLU")) return;
    if ((h->s->top[i].kind == CT_SHARDING_CHANNEL) && (bottom.kind == CT_SHARDING_CHANNEL) &&
        goes_along(ct_layer_splits(l->param))) /* what each element goes through keeps the pieces */
        h->s->top[i].pieces = bottom.pieces;
}

/* Bottom b as layer i takes it, its top decided. */
static ct_sharding taken(const sharder *h, int i, int b)
{
    const ct_layer *l = h->net->layer[i];
    ct_sharding to;

    if (!is_shared(h, i)) return on_batch;
    if (joins_earlier(h, i, b)) return in_parts;
    to = ct_layer_is(l, "Split") ? h->s->top[i] : wanted(h, i, b);
    if ((to.kind == CT_SHARDING_CHANNEL) && !ct_layer_is(l, "SwiGLU") &&
        goes_along(ct_layer_splits(l->param)))
        to = h->s->top[i];
    return to;
}

static void convert(const sharder *h, int i)
{
    for (int b = 0; b < h->net->layer[i]->n_bottom; b++) {
        int from = maker_of(h->net, i, b);
        ct_sharding to = h->s->bottom[i][b] = taken(h, i, b);

        if ((from < 0) || (h->s->stage[from] != h->s->stage[i]) || !is_shared(h, i)) continue;
        if (same(h->s->top[from], to)) continue;
        h->s->conversion[h->s->n_conversion++] = (ct_conversion){
            .layer = i, .bottom = b, .stage = h->s->stage[i], .from = h->s->top[from], .to = to
        };
    }
}

/* ---- what one rank of a replica has */

/* Others read it in sums alone, of which each rank has a term. */
static ct_status check_one(const sharder *h, const ct_conversion *c)
{
    const ct_layer *l = h->net->layer[c->layer];

    if (c->from.kind != CT_SHARDING_ONE) return CT_OK;
    return ct_parallel_fail(h->p, h->p->stage[c->stage].param, NULL,
                            "layer \"%.100s\" (%.40s) reads \"%.100s\", which rank %d of a replica "
                            "has by itself: it must be ONE there, too, or a plain sum of such "
                            "values",
                            l->name, l->ops->type,
                            h->net->pass->instance[c->layer]->bottom[c->bottom]->name,
                            c->from.part);
}

static ct_status check_terms(const sharder *h, int i)
{
    const ct_layer *l = h->net->layer[i];
    int tensor = h->p->stage[h->s->stage[i]].tensor;

    if ((h->s->split[i] != CT_PARALLEL_INPUT) || !ct_layer_is(l, "Eltwise")) return CT_OK;
    if (h->s->bottom[i][0].kind != CT_SHARDING_ONE) return CT_OK;
    for (int part = 0; part < tensor; part++) {
        int b = 0;

        while ((b < l->n_bottom) && (h->s->bottom[i][b].part != part)) b++;
        if (b == l->n_bottom)
            return ct_parallel_fail(h->p, h->p->stage[h->s->stage[i]].param, NULL,
                                    "layer \"%.100s\" adds up what ranks of a replica have by "
                                    "themselves, but rank %d of %d has none of it",
                                    l->name, part, tensor);
    }
    return CT_OK;
}

/* What bottom b of layer i is, however often it was passed on: the blob, and the layer that made
 * it.
 */
typedef struct origin {
    const ct_blob *blob;
    int maker;
} origin;

bool ct_layer_is_passage(const ct_layer *l)
{
    return ct_layer_is(l, "Split") || (l->ops->by_net && (l->param->transfer == NULL));
}

static origin origin_of(const sharder *h, int i, int b)
{
    origin o = { h->net->pass->instance[i]->bottom[b], maker_of(h->net, i, b) };

    while ((o.maker >= 0) && ct_layer_is_passage(h->net->layer[o.maker])) {
        o.blob = h->net->pass->instance[o.maker]->bottom[0];
        o.maker = maker_of(h->net, o.maker, 0);
    }
    return o;
}

/* Layer i reads o whole, and a gradient of its own comes back on the rank that has it. */
static bool reads_whole(const sharder *h, int i, const origin *o)
{
    for (int b = 0; b < h->net->layer[i]->n_bottom; b++) {
        origin mine;

        if (h->s->bottom[i][b].kind != CT_SHARDING_WHOLE) continue;
        mine = origin_of(h, i, b);
        if ((mine.blob == o->blob) && (mine.maker == o->maker)) return true;
    }
    return false;
}

/* The gradient of what ONE layers read whole is a sum over the ranks: each needs a term. */
static ct_status check_readers(const sharder *h, int i, int b)
{
    const ct_layer *l = h->net->layer[i];
    origin o = origin_of(h, i, b);
    int tensor = h->p->stage[h->s->stage[i]].tensor;

    for (int part = 0; part < tensor; part++) {
        int k = 0;

        while ((k < h->net->n_layer) &&
               ((h->s->split[k] != CT_PARALLEL_ONE) || (h->s->part[k] != part) ||
                (h->s->stage[k] != h->s->stage[i]) || !reads_whole(h, k, &o)))
            k++;
        if (k == h->net->n_layer)
            return ct_parallel_fail(h->p, h->p->stage[h->s->stage[i]].param, NULL,
                                    "layer \"%.100s\" (%.40s) is ONE and reads \"%.100s\", whose "
                                    "gradient is a sum over the %d ranks of a replica: rank %d has "
                                    "no ONE layer that reads it",
                                    l->name, l->ops->type, o.blob->name, tensor, part);
    }
    return CT_OK;
}

/* Where layer i is ONE, so is who shares a weight with it, on the same rank. */
static ct_status check_shared_weights(const sharder *h, int i)
{
    const ct_net *net = h->net;

    for (int w = 0; w < net->layer[i]->n_weight; w++) {
        for (int k = 0; k < net->n_layer; k++) {
            for (int v = 0; v < net->layer[k]->n_weight; v++) {
                if (ct_net_param_of(net, k, v) != ct_net_param_of(net, i, w)) continue;
                if ((h->s->split[k] == CT_PARALLEL_ONE) && (h->s->part[k] == h->s->part[i]) &&
                    (h->s->stage[k] == h->s->stage[i]))
                    continue;
                return ct_parallel_fail(
                    h->p, h->p->stage[h->s->stage[i]].param, NULL,
                    "layers \"%.100s\" and \"%.100s\" share a weight: where one is ONE, the other "
                    "must be, with the same part",
                    net->layer[i]->name, net->layer[k]->name);
            }
        }
    }
    return CT_OK;
}

static bool share_weights(const ct_net *net, int i, int k)
{
    for (int w = 0; w < net->layer[i]->n_weight; w++) {
        for (int v = 0; v < net->layer[k]->n_weight; v++)
            if (ct_net_param_of(net, k, v) == ct_net_param_of(net, i, w)) return true;
    }
    return false;
}

/* A rank's gradient of a whole weight is all of it, or a term of a sum; of both there is no sum. */
static ct_status check_terms_alike(const sharder *h, int i)
{
    const ct_parallel_stage *g = &h->p->stage[h->s->stage[i]];

    if ((g->tensor == 1) || (h->s->split[i] != CT_PARALLEL_REPLICATE)) return CT_OK;
    for (int k = 0; k < h->net->n_layer; k++) {
        bool term =
            (h->s->split[k] == CT_PARALLEL_BATCH) || (h->s->split[k] == CT_PARALLEL_SEQUENCE);

        if (!term || (h->s->stage[k] != h->s->stage[i]) || !share_weights(h->net, i, k)) continue;
        return ct_parallel_fail(h->p, g->param, NULL,
                                "layers \"%.100s\" (REPLICATE) and \"%.100s\" (%s) share a weight: "
                                "where one is REPLICATE, the other must be",
                                h->net->layer[i]->name, h->net->layer[k]->name,
                                ct_split_name(h->s->split[k]));
    }
    return CT_OK;
}

static ct_status check_ones(const sharder *h)
{
    for (int c = 0; c < h->s->n_conversion; c++) CT_TRY(check_one(h, &h->s->conversion[c]));
    for (int i = 0; i < h->net->n_layer; i++) CT_TRY(check_terms(h, i));
    for (int i = 0; i < h->net->n_layer; i++) {
        if (h->s->split[i] != CT_PARALLEL_ONE) continue;
        CT_TRY(check_shared_weights(h, i));
        for (int b = 0; b < h->net->layer[i]->n_bottom; b++)
            if ((h->s->bottom[i][b].kind == CT_SHARDING_WHOLE) &&
                h->net->pass->instance[i]->bottom[b]->wants_diff)
                CT_TRY(check_readers(h, i, b));
    }
    return CT_OK;
}

/* ---- stages of a net's layers */

/* The layer of the file that layer i is: by its message, or of another file by its name. */
static int find_in_file(const ct_parallel *p, const ct_layer *l, bool by_name)
{
    for (int k = 0; k < p->n_layer; k++) {
        if (by_name ? (strcmp(p->layer[k].name, l->name) == 0) : (p->layer[k].param == l->param))
            return k;
    }
    return -1;
}

static bool is_of_file(const ct_parallel *p, const ct_net *net)
{
    for (int i = 0; i < net->n_layer; i++) {
        if (find_in_file(p, net->layer[i], false) >= 0) return true;
    }
    return false;
}

static void place(sharder *h, int i, bool by_name, int *before_p)
{
    const ct_layer *l = h->net->layer[i];
    bool added = l->ops->by_net || ct_layer_is(l, "Split");
    int k = find_in_file(h->p, l, by_name && !added);
    int from = (l->n_bottom > 0) ? maker_of(h->net, i, 0) : -1;

    h->file[i] = k;
    h->s->again[i] = (k >= 0) ? h->p->layer[k].again : -1;
    if (k >= 0) {
        h->s->stage[i] = h->p->layer[k].stage;
    } else if (added && (from >= 0)) { /* with who makes what it reads */
        h->s->stage[i] = h->s->stage[from];
        h->s->again[i] = h->s->again[from];
    } else {
        h->s->stage[i] = *before_p;
    }
    if (l->n_bottom > 0) *before_p = h->s->stage[i];
}

/* A source that the file does not know: with its first reader. */
static void place_source(sharder *h, int i)
{
    if ((h->net->layer[i]->n_bottom > 0) || (h->file[i] >= 0)) return;
    for (int k = i + 1; k < h->net->n_layer; k++) {
        for (int b = 0; b < h->net->layer[k]->n_bottom; b++) {
            if (maker_of(h->net, k, b) != i) continue;
            h->s->stage[i] = h->s->stage[k];
            if (!ct_layer_is(h->net->layer[k], "Split")) return;
        }
    }
}

static ct_status shard(sharder *h)
{
    bool by_name = !is_of_file(h->p, h->net);
    size_t n_bottom = 0;
    int before = 0;

    for (int i = 0; i < h->net->n_layer; i++) {
        place(h, i, by_name, &before);
        n_bottom += (size_t)h->net->layer[i]->n_bottom;
    }
    for (int i = 0; i < h->net->n_layer; i++) place_source(h, i);
    h->s->conversion = calloc(n_bottom + 1, sizeof(*h->s->conversion));
    h->s->bottom[0] = calloc(n_bottom + 1, sizeof(*h->s->bottom[0]));
    if ((h->s->conversion == NULL) || (h->s->bottom[0] == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %zu conversions", n_bottom);
    for (int i = 0; i < h->net->n_layer; i++)
        h->s->bottom[i + 1] = h->s->bottom[i] + h->net->layer[i]->n_bottom;
    for (int i = 0; i < h->net->n_layer; i++) decide(h, i);
    for (int i = 0; i < h->net->n_layer; i++) convert(h, i);
    for (int i = 0; (i < h->net->n_layer) && (h->net->options.phase == CT_TRAIN); i++)
        CT_TRY(check_terms_alike(h, i));
    return check_ones(h);
}

ct_status ct_sharded_net_make(const ct_parallel *p, const ct_net *net, ct_sharded_net *s_p)
{
    size_t n = (size_t)net->n_layer + 1;
    ct_sharded_net s = { .net = net };
    sharder h = { .p = p, .net = net, .s = &s };
    ct_status status = CT_OK;

    s.stage = calloc(n, sizeof(*s.stage));
    s.split = calloc(n, sizeof(*s.split));
    s.part = calloc(n, sizeof(*s.part));
    s.top = calloc(n, sizeof(*s.top));
    s.bottom = calloc(n, sizeof(*s.bottom));
    s.again = calloc(n, sizeof(*s.again));
    h.file = calloc(n, sizeof(*h.file));
    if ((s.stage == NULL) || (s.split == NULL) || (s.part == NULL) || (s.top == NULL) ||
        (s.bottom == NULL) || (s.again == NULL) || (h.file == NULL))
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for %d layers", net->n_layer);
    if (status == CT_OK) status = shard(&h);
    free(h.file);
    if (status == CT_OK)
        *s_p = s;
    else
        ct_sharded_net_destroy(&s);
    return status;
}

void ct_sharded_net_destroy(ct_sharded_net *s)
{
    free(s->stage);
    free(s->split);
    free(s->part);
    free(s->top);
    if (s->bottom != NULL) free(s->bottom[0]);
    free(s->bottom);
    free(s->again);
    free(s->conversion);
    memset(s, 0, sizeof(*s));
}
