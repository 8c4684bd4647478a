/* Layers of NVIDIA's and Intel's forks that do more than one thing, as layers that do one each: a
 * BatchNorm that also scales and shifts is "bn" and "bn_scale" (Scale), one with relu or a
 * convolution with relu has "NAME_relu" (ReLU) behind it. The net runs them as one where it can. */
#include <stdlib.h>
#include <string.h>

#include "framework/proto/message.h"
#include "framework/proto/upgrade.h"

enum { MOST_PARTS = 3, N_STATISTIC = 3 };

static const char *const batch_norm_field[] = { "scale_filler", "bias_filler", "scale_bias",
                                                "filler",       "bias_term",   "use_weight_bias",
                                                "relu",         NULL };
static const char *const relu_field[] = { "relu", "negative_slope", NULL };

/* The message that may say so, of a layer, and which of its fields do; NULL: none. */
static ProtobufCMessage *fused_param(const Ct__LayerParameter *l, const char *const **field_p)
{
    *field_p = relu_field;
    if (l->type == NULL) return NULL;
    if (strcmp(l->type, "BatchNorm") == 0) {
        *field_p = batch_norm_field;
        return (ProtobufCMessage *)l->batch_norm_param;
    }
    if (strcmp(l->type, "InnerProduct") == 0) return (ProtobufCMessage *)l->inner_product_param;
    if ((strcmp(l->type, "Convolution") == 0) || (strcmp(l->type, "Deconvolution") == 0) ||
        (strcmp(l->type, "DepthwiseConvolution") == 0))
        return (ProtobufCMessage *)l->convolution_param;
    return NULL;
}

static const ProtobufCFieldDescriptor *field_of(const ProtobufCMessage *m, const char *name)
{
    return ct_field_find(m->descriptor, name, strlen(name));
}

static bool gives_any(const ProtobufCMessage *m, const char *const *field)
{
    for (; (m != NULL) && (*field != NULL); field++) {
        if (ct_field_count(m, field_of(m, *field)) > 0) return true;
    }
    return false;
}

static bool is_fused(const Ct__LayerParameter *l)
{
    const char *const *field;
    const ProtobufCMessage *m = fused_param(l, &field);

    return gives_any(m, field) ||
           ((field == batch_norm_field) && (l->n_blobs > N_STATISTIC)); /* a file of weights */
}

/* NVIDIA's scales with scale_bias, and with a filler alone; Intel's unless use_weight_bias is
 * false, where engines other than MKL's take no notice without one of its fields. */
static bool scales(const Ct__LayerParameter *l)
{
    const Ct__BatchNormParameter *p = l->batch_norm_param;

    if (strcmp(l->type, "BatchNorm") != 0) return false;
    if (l->n_blobs > N_STATISTIC) return true;
    if ((p == NULL) || (p->has_use_weight_bias && !p->use_weight_bias)) return false;
    return p->scale_bias || p->use_weight_bias || (p->scale_filler != NULL) ||
           (p->filler != NULL) || (p->bias_filler != NULL);
}

static bool shifts(const Ct__LayerParameter *l)
{
    if (l->n_blobs > N_STATISTIC) return l->n_blobs > N_STATISTIC + 1;
    return !l->batch_norm_param->has_bias_term || l->batch_norm_param->bias_term;
}

static bool rectifies(const Ct__LayerParameter *l, float *slope_p)
{
    *slope_p = 0;
    if (strcmp(l->type, "BatchNorm") == 0)
        return (l->batch_norm_param != NULL) && l->batch_norm_param->relu;
    if (l->inner_product_param != NULL) {
        *slope_p = l->inner_product_param->negative_slope;
        return l->inner_product_param->relu;
    }
    if (l->convolution_param == NULL) return false;
    *slope_p = l->convolution_param->negative_slope;
    return l->convolution_param->relu;
}

static bool is_nvidia(const Ct__LayerParameter *l)
{
    const Ct__BatchNormParameter *p = l->batch_norm_param;

    return (p != NULL) && (p->scale_bias || (p->scale_filler != NULL));
}

/* As NVIDIA's fork has it, whatever a net says: statistics are not learned, the scale and the
 * shift are at the net's rate, and eps is at least 1e-5. */
static void set_nvidia(Ct__LayerParameter *l)
{
    for (size_t i = 0; i < l->n_param; i++) {
        l->param[i]->has_lr_mult = l->param[i]->has_decay_mult = true;
        l->param[i]->lr_mult = l->param[i]->decay_mult = 0;
    }
    if (l->batch_norm_param->eps < 1e-5f) l->batch_norm_param->eps = 1e-5f;
}

/* Takes the last messages off a list, from `from` on. */
static void cut_list(const ct_expansion *e, size_t from, size_t *n_p, ProtobufCMessage **message)
{
    for (; *n_p > from; --*n_p) {
        ct_source_map_forget(e->u->map, message[*n_p - 1]);
        protobuf_c_message_free_unpacked(message[*n_p - 1], NULL);
    }
}

/* The layer without what its parts do. */
static ct_status begin_first(ct_expansion *e)
{
    Ct__LayerParameter *layer;
    const char *const *field;
    ProtobufCMessage *m;

    CT_TRY(ct_expansion_clone(e, e->from, &layer));
    e->to[e->n++] = layer;
    m = fused_param(layer, &field);
    if (field == batch_norm_field) {
        cut_list(e, N_STATISTIC, &layer->n_param, (ProtobufCMessage **)layer->param);
        cut_list(e, N_STATISTIC, &layer->n_blobs, (ProtobufCMessage **)layer->blobs);
        if (is_nvidia(layer)) set_nvidia(layer);
    }
    for (; (m != NULL) && (*field != NULL); field++) {
        const ProtobufCFieldDescriptor *f = field_of(m, *field);

        if (ct_field_count(m, f) == 0) continue;
        if (f->type == PROTOBUF_C_TYPE_MESSAGE)
            ct_source_map_forget(e->u->map, ct_field_message(m, f, 0));
        CT_TRY(ct_field_clear(m, f));
    }
    return CT_OK;
}

/* A layer in place on the whole one's top. */
static ct_status begin_behind(ct_expansion *e, const char *ending, const char *type,
                              Ct__LayerParameter **layer_p)
{
    CT_TRY(ct_expansion_begin(e, ending, type, layer_p));
    CT_TRY(ct_expansion_add_blob(e, *layer_p, "bottom", e->from->top[0]));
    return ct_expansion_add_blob(e, *layer_p, "top", e->from->top[0]);
}

/* Copies the messages from the third on into the list of the Scale. */
static ct_status take_rest(const ct_expansion *e, Ct__LayerParameter *to, const char *name)
{
    const ProtobufCFieldDescriptor *f = field_of(&to->base, name);

    for (size_t i = N_STATISTIC; i < ct_field_count(&e->from->base, f); i++) {
        ProtobufCMessage *copy;
        ct_status status;

        CT_TRY(ct_expansion_clone(e, ct_field_message(&e->from->base, f, i), &copy));
        status = ct_field_put(&to->base, f, &copy, true);
        if (status == CT_OK) continue;
        protobuf_c_message_free_unpacked(copy, NULL);
        return status;
    }
    return CT_OK;
}

static ct_status add_scale(ct_expansion *e)
{
    const Ct__BatchNormParameter *p = e->from->batch_norm_param;
    Ct__LayerParameter *layer;
    Ct__ScaleParameter *scale;

    CT_TRY(begin_behind(e, "_scale", "Scale", &layer));
    if (!is_nvidia(e->from)) CT_TRY(take_rest(e, layer, "param"));
    CT_TRY(take_rest(e, layer, "blobs"));
    CT_TRY(ct_upgrade_add(e->u, &layer->base, "scale_param", e->from, &scale));
    scale->has_bias_term = true;
    scale->bias_term = shifts(e->from);
    if (p == NULL) return CT_OK;
    CT_TRY(ct_expansion_clone(e, (p->scale_filler != NULL) ? p->scale_filler : p->filler,
                              &scale->filler));
    return scale->bias_term ? ct_expansion_clone(e, p->bias_filler, &scale->bias_filler) : CT_OK;
}

static ct_status add_relu(ct_expansion *e, float slope)
{
    Ct__LayerParameter *layer;
    Ct__ReLUParameter *relu;

    CT_TRY(begin_behind(e, "_relu", "ReLU", &layer));
    if (slope == 0) return CT_OK;
    CT_TRY(ct_upgrade_add(e->u, &layer->base, "relu_param", e->from, &relu));
    relu->has_negative_slope = true;
    relu->negative_slope = slope;
    return CT_OK;
}

static ct_status expand(ct_expansion *e)
{
    const Ct__LayerParameter *from = e->from;
    size_t most = N_STATISTIC + 2;
    float slope;

    if (scales(from)) most = N_STATISTIC + (shifts(from) ? 2 : 1);
    if ((scales(from) || rectifies(from, &slope)) && ((from->name == NULL) || (from->n_top != 1)))
        return ct_upgrade_fail(e->u, from,
                               "layer \"%s\" (%s): with a scale or a ReLU of its own it needs a "
                               "name and one top, not %zu",
                               (from->name != NULL) ? from->name : "", from->type, from->n_top);
    if (scales(from) && ((from->n_param > most) || (from->n_blobs > most)))
        return ct_upgrade_fail(e->u, from,
                               "layer \"%s\" (BatchNorm): %zu of \"param\" and %zu of \"blobs\" "
                               "for its %zu statistics and weights",
                               from->name, from->n_param, from->n_blobs, most);
    CT_TRY(begin_first(e));
    if (scales(from)) CT_TRY(add_scale(e));
    return rectifies(from, &slope) ? add_relu(e, slope) : CT_OK;
}

/* Parts must not meet a layer of the net's own. */
static ct_status check_name(const ct_upgrade *u, const Ct__LayerParameter *l, const char *ending)
{
    for (size_t i = 0; i < u->net->n_layer; i++) {
        const char *name = u->net->layer[i]->name;
        size_t n = (l->name != NULL) ? strlen(l->name) : 0;

        if ((n == 0) || (name == NULL) || (strncmp(name, l->name, n) != 0) ||
            (strcmp(name + n, ending) != 0))
            continue;
        return ct_upgrade_fail(u, l,
                               "layer \"%s\" (%s) would get a layer \"%s\" behind it, and the net "
                               "has one of that name; rename either",
                               l->name, l->type, name);
    }
    return CT_OK;
}

ct_status ct_upgrade_fused(const ct_upgrade *u)
{
    float slope;

    for (size_t i = 0; i < u->net->n_layer; i++) {
        const Ct__LayerParameter *l = u->net->layer[i];

        if (!is_fused(l)) continue;
        if (scales(l)) CT_TRY(check_name(u, l, "_scale"));
        if (rectifies(l, &slope)) CT_TRY(check_name(u, l, "_relu"));
    }
    return ct_upgrade_expand(u, &(ct_expander){ is_fused, expand, MOST_PARTS });
}
