/* A MultiHeadAttention layer stands for its projections and an Attention between them. Of "attn"
 * come the layers "attn_qkv" (of one bottom; else "attn_q", "attn_k", "attn_v"), "attn" and
 * "attn_proj". So engines, weights and names of files are those of the layers that are there. */
#include <stdlib.h>
#include <string.h>

#include "framework/proto/message.h"
#include "framework/proto/upgrade.h"

enum { MOST_PARTS = 5 };

typedef struct expansion {
    const ct_upgrade *u;
    const Ct__LayerParameter *from;
    const Ct__MultiHeadAttentionParameter *p;
    Ct__LayerParameter **to; /* room for MOST_PARTS behind n */
    size_t n, n_param;       /* layers there are; entries of param that are taken */
} expansion;

static ct_status no_memory(void)
{
    return CT_FAIL(CT_ERR_NOMEM, "no memory for a MultiHeadAttention layer");
}

/* A copy of a message; NULL of NULL. */
static ct_status clone(const expansion *e, const void *message, void *copy_p)
{
    const ProtobufCMessage *m = message;
    ProtobufCMessage *copy = NULL;
    uint8_t *packed;

    memcpy(copy_p, &copy, sizeof(copy));
    if (m == NULL) return CT_OK;
    packed = malloc(protobuf_c_message_get_packed_size(m) + 1);
    if (packed == NULL) return no_memory();
    copy =
        protobuf_c_message_unpack(m->descriptor, NULL, protobuf_c_message_pack(m, packed), packed);
    free(packed);
    if (copy == NULL) return no_memory();
    memcpy(copy_p, &copy, sizeof(copy));
    return (e->u->map != NULL) ? ct_source_map_copy_all(e->u->map, copy, m) : CT_OK;
}

static ct_status name_with(const char *name, const char *ending, char **text_p)
{
    ct_text t = { 0 };

    ct_text_add(&t, "%s%s", name, ending);
    if (t.failed) {
        ct_text_destroy(&t);
        return no_memory();
    }
    *text_p = t.text;
    return CT_OK;
}

static ct_status add_blob(Ct__LayerParameter *layer, const char *field, const char *name)
{
    char *text = strdup(name);
    ct_status status;

    if (text == NULL) return no_memory();
    status = ct_field_put(&layer->base, ct_field_find(layer->base.descriptor, field, strlen(field)),
                          &text, true);
    if (status != CT_OK) free(text);
    return status;
}

static ct_status copy_rules(const expansion *e, size_t n, Ct__NetStateRule *const *rule,
                            size_t *n_p, Ct__NetStateRule ***to_p)
{
    *to_p = calloc(n + 1, sizeof(**to_p));
    if (*to_p == NULL) return no_memory();
    for (*n_p = 0; *n_p < n; ++*n_p) {
        ct_status status = clone(e, rule[*n_p], &(*to_p)[*n_p]);

        if (status != CT_OK) {
            *n_p += ((*to_p)[*n_p] != NULL);
            return status;
        }
    }
    return CT_OK;
}

/* A layer called "NAME" and the ending, that stands where the whole one did. */
static ct_status begin(expansion *e, const char *ending, const char *type,
                       Ct__LayerParameter **layer_p)
{
    const Ct__LayerParameter *from = e->from;
    Ct__LayerParameter *layer =
        (Ct__LayerParameter *)(void *)ct_message_create(&ct__layer_parameter__descriptor);

    if (layer == NULL) return no_memory();
    e->to[e->n++] = layer;
    *layer_p = layer;
    if (e->u->map != NULL) CT_TRY(ct_source_map_copy(e->u->map, layer, from));
    CT_TRY(name_with(from->name, ending, &layer->name));
    layer->type = strdup(type);
    if (layer->type == NULL) return no_memory();
    layer->has_phase = from->has_phase;
    layer->phase = from->phase;
    CT_TRY(copy_rules(e, from->n_include, from->include, &layer->n_include, &layer->include));
    CT_TRY(copy_rules(e, from->n_exclude, from->exclude, &layer->n_exclude, &layer->exclude));
    return clone(e, from->repeat_copy, &layer->repeat_copy);
}

/* The entries of param that belong to its weight, and to its bias. */
static ct_status take_params(expansion *e, Ct__LayerParameter *layer)
{
    size_t most = e->p->bias_term ? 2 : 1;

    layer->param = calloc(most, sizeof(layer->param[0]));
    if (layer->param == NULL) return no_memory();
    while ((layer->n_param < most) && (e->n_param < e->from->n_param)) {
        CT_TRY(clone(e, e->from->param[e->n_param++], &layer->param[layer->n_param]));
        layer->n_param++;
    }
    return CT_OK;
}

/* A projection, with the name of its top where it has another than its layer. */
static ct_status project(expansion *e, const char *ending, const char *bottom, const char *top,
                         uint32_t width, const Ct__FillerParameter *filler, const char **name_p)
{
    Ct__LayerParameter *layer;
    Ct__InnerProductParameter *ip;

    CT_TRY(begin(e, ending, "InnerProduct", &layer));
    CT_TRY(add_blob(layer, "bottom", bottom));
    CT_TRY(add_blob(layer, "top", (top != NULL) ? top : layer->name));
    CT_TRY(take_params(e, layer));
    CT_TRY(ct_upgrade_add(e->u, &layer->base, "inner_product_param", e->p, &ip));
    ip->has_num_output = ip->has_axis = true;
    ip->num_output = width;
    ip->axis = 2;
    ip->has_bias_term = !e->p->bias_term;
    ip->bias_term = e->p->bias_term;
    CT_TRY(clone(e, filler, &ip->weight_filler));
    *name_p = layer->top[0];
    return e->p->bias_term ? clone(e, e->p->bias_filler, &ip->bias_filler) : CT_OK;
}

/* Bottoms less that of the segments. */
static size_t n_values(const expansion *e)
{
    return e->from->n_bottom - (e->p->segments ? 1 : 0);
}

static ct_status project_in(expansion *e, uint32_t kv_width, const char *name[3])
{
    static const char *const ending[3] = { "_q", "_k", "_v" };
    const Ct__MultiHeadAttentionParameter *p = e->p;
    size_t n = n_values(e);

    if (n == 1)
        return project(e, "_qkv", e->from->bottom[0], NULL, p->num_output + 2 * kv_width,
                       p->weight_filler, &name[0]);
    for (size_t k = 0; k < 3; k++)
        CT_TRY(project(e, ending[k], e->from->bottom[(k < n) ? k : n - 1], NULL,
                       (k == 0) ? p->num_output : kv_width, p->weight_filler, &name[k]));
    return CT_OK;
}

static ct_status expand(expansion *e)
{
    const Ct__LayerParameter *from = e->from;
    const Ct__AttentionParameter *a = from->attention_param;
    uint32_t kv = (a->num_kv_heads > 0) ? a->num_kv_heads : a->num_heads;
    const char *name[3] = { NULL }, *unused;
    Ct__LayerParameter *layer;
    char *top = NULL;
    ct_status status;

    CT_TRY(project_in(e, e->p->num_output / a->num_heads * kv, name));
    CT_TRY(begin(e, "", "Attention", &layer));
    for (size_t k = 0; (k < 3) && (name[k] != NULL); k++)
        CT_TRY(add_blob(layer, "bottom", name[k]));
    if (e->p->segments) CT_TRY(add_blob(layer, "bottom", from->bottom[from->n_bottom - 1]));
    CT_TRY(name_with(from->name, "_heads", &top));
    status = add_blob(layer, "top", top);
    free(top);
    CT_TRY(status);
    CT_TRY(clone(e, a, &layer->attention_param));
    return project(e, "_proj", layer->top[0], from->top[0], e->p->num_output,
                   (e->p->output_filler != NULL) ? e->p->output_filler : e->p->weight_filler,
                   &unused);
}

/* What would be said of a layer that nobody wrote otherwise. */
static ct_status check(const expansion *e)
{
    const Ct__LayerParameter *l = e->from;
    const Ct__MultiHeadAttentionParameter *p = e->p;
    const Ct__AttentionParameter *a = l->attention_param;
    uint32_t heads = (a != NULL) ? a->num_heads : 0, kv = (a != NULL) ? a->num_kv_heads : 0;
    const char *name = (l->name != NULL) ? l->name : "";
    size_t n, most;

    if ((l->name == NULL) || (p == NULL) || (p->num_output == 0))
        return ct_upgrade_fail(e->u, l,
                               "layer \"%s\": MultiHeadAttention needs a name and "
                               "multi_head_attention_param.num_output, the width of its heads "
                               "together",
                               name);
    if (heads == 0)
        return ct_upgrade_fail(e->u, l, "layer \"%s\": attention_param.num_heads is missing or 0",
                               name);
    if ((p->num_output % heads != 0) || ((kv > 0) && (heads % kv != 0)))
        return ct_upgrade_fail(e->u, l,
                               "layer \"%s\": num_output %u, %u heads, %u of keys and values: each "
                               "must divide the one before",
                               name, p->num_output, heads, (kv > 0) ? kv : heads);
    n = (l->n_bottom > (p->segments ? 1 : 0)) ? n_values(e) : 0;
    if ((n < 1) || (n > 3) || (l->n_top != 1))
        return ct_upgrade_fail(e->u, l,
                               "layer \"%s\": %zu bottoms and %zu tops; MultiHeadAttention has one "
                               "top, and 1 to 3 bottoms before that of the segments",
                               name, l->n_bottom, l->n_top);
    most = ((n == 1) ? 2 : 4) * (p->bias_term ? 2 : 1);
    if (l->n_param > most)
        return ct_upgrade_fail(e->u, l, "layer \"%s\": %zu of \"param\" for %zu weights and biases",
                               name, l->n_param, most);
    return CT_OK;
}

static bool is_multi_head(const Ct__LayerParameter *l)
{
    return (l->type != NULL) && (strcmp(l->type, "MultiHeadAttention") == 0);
}

ct_status ct_upgrade_multi_head(const ct_upgrade *u)
{
    Ct__NetParameter *net = u->net;
    Ct__LayerParameter **old = net->layer;
    size_t n_old = net->n_layer, n = 0, i = 0;
    ct_status status = CT_OK;

    for (size_t k = 0; k < n_old; k++) n += is_multi_head(old[k]);
    if (n == 0) return CT_OK;
    net->layer = calloc(n_old + MOST_PARTS * n, sizeof(net->layer[0]));
    if (net->layer == NULL) {
        net->layer = old;
        return no_memory();
    }
    net->n_layer = 0;
    for (; (i < n_old) && (status == CT_OK); i++) {
        expansion e = { .u = u, .from = old[i], .to = net->layer, .n = net->n_layer };

        if (!is_multi_head(old[i])) {
            net->layer[net->n_layer++] = old[i];
            continue;
        }
        e.p = old[i]->multi_head_attention_param;
        status = check(&e);
        if (status == CT_OK) status = expand(&e);
        net->n_layer = e.n;
        ct_source_map_forget(u->map, &old[i]->base);
        ct__layer_parameter__free_unpacked(old[i], NULL);
    }
    for (; i < n_old; i++) net->layer[net->n_layer++] = old[i];
    free(old);
    return status;
}
