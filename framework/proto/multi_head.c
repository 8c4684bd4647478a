/* A MultiHeadAttention layer stands for its projections and an Attention between them. Of "attn"
 * come the layers "attn_qkv" (of one bottom; else "attn_q", "attn_k", "attn_v"), "attn" and
 * "attn_proj". So engines, weights and names of files are those of the layers that are there. */
#include <stdlib.h>
#include <string.h>

#include "framework/proto/message.h"
#include "framework/proto/upgrade.h"

enum { MOST_PARTS = 5 };

typedef struct expansion {
    ct_expansion base;
    const Ct__MultiHeadAttentionParameter *p;
    size_t n_param; /* entries of param that are taken */
} expansion;

/* The entries of param that belong to its weight, and to its bias. */
static ct_status take_params(expansion *e, Ct__LayerParameter *layer)
{
    size_t most = e->p->bias_term ? 2 : 1;

    layer->param = calloc(most, sizeof(layer->param[0]));
    if (layer->param == NULL) return ct_expansion_no_memory(&e->base);
    while ((layer->n_param < most) && (e->n_param < e->base.from->n_param)) {
        CT_TRY(ct_expansion_clone(&e->base, e->base.from->param[e->n_param++],
                                  &layer->param[layer->n_param]));
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

    CT_TRY(ct_expansion_begin(&e->base, ending, "InnerProduct", &layer));
    CT_TRY(ct_expansion_add_blob(&e->base, layer, "bottom", bottom));
    CT_TRY(ct_expansion_add_blob(&e->base, layer, "top", (top != NULL) ? top : layer->name));
    CT_TRY(take_params(e, layer));
    CT_TRY(ct_upgrade_add(e->base.u, &layer->base, "inner_product_param", e->p, &ip));
    ip->has_num_output = ip->has_axis = true;
    ip->num_output = width;
    ip->axis = 2;
    ip->has_bias_term = !e->p->bias_term;
    ip->bias_term = e->p->bias_term;
    CT_TRY(ct_expansion_clone(&e->base, filler, &ip->weight_filler));
    *name_p = layer->top[0];
    return e->p->bias_term ? ct_expansion_clone(&e->base, e->p->bias_filler, &ip->bias_filler)
                           : CT_OK;
}

/* Bottoms less that of the segments. */
static size_t n_values(const expansion *e)
{
    return e->base.from->n_bottom - (e->p->segments ? 1 : 0);
}

static ct_status project_in(expansion *e, uint32_t kv_width, const char *name[3])
{
    static const char *const ending[3] = { "_q", "_k", "_v" };
    const Ct__MultiHeadAttentionParameter *p = e->p;
    size_t n = n_values(e);

    if (n == 1)
        return project(e, "_qkv", e->base.from->bottom[0], NULL, p->num_output + 2 * kv_width,
                       p->weight_filler, &name[0]);
    for (size_t k = 0; k < 3; k++)
        CT_TRY(project(e, ending[k], e->base.from->bottom[(k < n) ? k : n - 1], NULL,
                       (k == 0) ? p->num_output : kv_width, p->weight_filler, &name[k]));
    return CT_OK;
}

static ct_status expand(expansion *e)
{
    const Ct__LayerParameter *from = e->base.from;
    const Ct__AttentionParameter *a = from->attention_param;
    uint32_t kv = (a->num_kv_heads > 0) ? a->num_kv_heads : a->num_heads;
    const char *name[3] = { NULL }, *unused;
    Ct__LayerParameter *layer;
    char *top = NULL;
    ct_status status;

    CT_TRY(project_in(e, e->p->num_output / a->num_heads * kv, name));
    CT_TRY(ct_expansion_begin(&e->base, "", "Attention", &layer));
    for (size_t k = 0; (k < 3) && (name[k] != NULL); k++)
        CT_TRY(ct_expansion_add_blob(&e->base, layer, "bottom", name[k]));
    if (e->p->segments)
        CT_TRY(ct_expansion_add_blob(&e->base, layer, "bottom", from->bottom[from->n_bottom - 1]));
    CT_TRY(ct_expansion_name(&e->base, from->name, "_heads", &top));
    status = ct_expansion_add_blob(&e->base, layer, "top", top);
    free(top);
    CT_TRY(status);
    CT_TRY(ct_expansion_clone(&e->base, a, &layer->attention_param));
    return project(e, "_proj", layer->top[0], from->top[0], e->p->num_output,
                   (e->p->output_filler != NULL) ? e->p->output_filler : e->p->weight_filler,
                   &unused);
}

/* What would be said of a layer that nobody wrote otherwise. */
static ct_status check(const expansion *e)
{
    const Ct__LayerParameter *l = e->base.from;
    const Ct__MultiHeadAttentionParameter *p = e->p;
    const Ct__AttentionParameter *a = l->attention_param;
    uint32_t heads = (a != NULL) ? a->num_heads : 0, kv = (a != NULL) ? a->num_kv_heads : 0;
    const char *name = (l->name != NULL) ? l->name : "";
    size_t n, most;

    if ((l->name == NULL) || (p == NULL) || (p->num_output == 0))
        return ct_upgrade_fail(e->base.u, l,
                               "layer \"%s\": MultiHeadAttention needs a name and "
                               "multi_head_attention_param.num_output, the width of its heads "
                               "together",
                               name);
    if (heads == 0)
        return ct_upgrade_fail(e->base.u, l,
                               "layer \"%s\": attention_param.num_heads is missing or 0", name);
    if ((p->num_output % heads != 0) || ((kv > 0) && (heads % kv != 0)))
        return ct_upgrade_fail(e->base.u, l,
                               "layer \"%s\": num_output %u, %u heads, %u of keys and values: each "
                               "must divide the one before",
                               name, p->num_output, heads, (kv > 0) ? kv : heads);
    n = (l->n_bottom > (p->segments ? 1 : 0)) ? n_values(e) : 0;
    if ((n < 1) || (n > 3) || (l->n_top != 1))
        return ct_upgrade_fail(e->base.u, l,
                               "layer \"%s\": %zu bottoms and %zu tops; MultiHeadAttention has one "
                               "top, and 1 to 3 bottoms before that of the segments",
                               name, l->n_bottom, l->n_top);
    most = ((n == 1) ? 2 : 4) * (p->bias_term ? 2 : 1);
    if (l->n_param > most)
        return ct_upgrade_fail(e->base.u, l,
                               "layer \"%s\": %zu of \"param\" for %zu weights and biases", name,
                               l->n_param, most);
    return CT_OK;
}

static bool is_multi_head(const Ct__LayerParameter *l)
{
    return (l->type != NULL) && (strcmp(l->type, "MultiHeadAttention") == 0);
}

static ct_status expand_layer(ct_expansion *base)
{
    expansion e = { .base = *base, .p = base->from->multi_head_attention_param };
    ct_status status = check(&e);

    if (status == CT_OK) status = expand(&e);
    base->n = e.base.n;
    return status;
}

ct_status ct_upgrade_multi_head(const ct_upgrade *u)
{
    return ct_upgrade_expand(u, &(ct_expander){ is_multi_head, expand_layer, MOST_PARTS });
}
