/* One layer of a net becomes several that stand where it did: the list of layers made anew, and
 * what those that make the parts share. */
#include <stdlib.h>
#include <string.h>

#include "framework/proto/message.h"
#include "framework/proto/upgrade.h"

ct_status ct_expansion_no_memory(const ct_expansion *e)
{
    return CT_FAIL(CT_ERR_NOMEM, "no memory for a %s layer", e->from->type);
}

ct_status ct_expansion_clone(const ct_expansion *e, const void *message, void *copy_p)
{
    const ProtobufCMessage *m = message;
    ProtobufCMessage *copy = NULL;
    uint8_t *packed;

    memcpy(copy_p, &copy, sizeof(copy));
    if (m == NULL) return CT_OK;
    packed = malloc(protobuf_c_message_get_packed_size(m) + 1);
    if (packed == NULL) return ct_expansion_no_memory(e);
    copy =
        protobuf_c_message_unpack(m->descriptor, NULL, protobuf_c_message_pack(m, packed), packed);
    free(packed);
    if (copy == NULL) return ct_expansion_no_memory(e);
    memcpy(copy_p, &copy, sizeof(copy));
    return (e->u->map != NULL) ? ct_source_map_copy_all(e->u->map, copy, m) : CT_OK;
}

ct_status ct_expansion_name(const ct_expansion *e, const char *name, const char *ending,
                            char **text_p)
{
    ct_text t = { 0 };

    ct_text_add(&t, "%s%s", name, ending);
    if (t.failed) {
        ct_text_destroy(&t);
        return ct_expansion_no_memory(e);
    }
    *text_p = t.text;
    return CT_OK;
}

ct_status ct_expansion_add_blob(const ct_expansion *e, Ct__LayerParameter *layer, const char *field,
                                const char *name)
{
    char *text = strdup(name);
    ct_status status;

    if (text == NULL) return ct_expansion_no_memory(e);
    status = ct_field_put(&layer->base, ct_field_find(layer->base.descriptor, field, strlen(field)),
                          &text, true);
    if (status != CT_OK) free(text);
    return status;
}

static ct_status copy_rules(const ct_expansion *e, size_t n, Ct__NetStateRule *const *rule,
                            size_t *n_p, Ct__NetStateRule ***to_p)
{
    *to_p = calloc(n + 1, sizeof(**to_p));
    if (*to_p == NULL) return ct_expansion_no_memory(e);
    for (*n_p = 0; *n_p < n; ++*n_p) {
        ct_status status = ct_expansion_clone(e, rule[*n_p], &(*to_p)[*n_p]);

        if (status != CT_OK) {
            *n_p += ((*to_p)[*n_p] != NULL);
            return status;
        }
    }
    return CT_OK;
}

ct_status ct_expansion_begin(ct_expansion *e, const char *ending, const char *type,
                             Ct__LayerParameter **layer_p)
{
    const Ct__LayerParameter *from = e->from;
    Ct__LayerParameter *layer =
        (Ct__LayerParameter *)(void *)ct_message_create(&ct__layer_parameter__descriptor);

    if (layer == NULL) return ct_expansion_no_memory(e);
    e->to[e->n++] = layer;
    *layer_p = layer;
    if (e->u->map != NULL) CT_TRY(ct_source_map_copy(e->u->map, layer, from));
    CT_TRY(ct_expansion_name(e, from->name, ending, &layer->name));
    layer->type = strdup(type);
    if (layer->type == NULL) return ct_expansion_no_memory(e);
    layer->has_phase = from->has_phase;
    layer->phase = from->phase;
    CT_TRY(copy_rules(e, from->n_include, from->include, &layer->n_include, &layer->include));
    CT_TRY(copy_rules(e, from->n_exclude, from->exclude, &layer->n_exclude, &layer->exclude));
    return ct_expansion_clone(e, from->repeat_copy, &layer->repeat_copy);
}

ct_status ct_upgrade_expand(const ct_upgrade *u, const ct_expander *x)
{
    Ct__NetParameter *net = u->net;
    Ct__LayerParameter **old = net->layer;
    size_t n_old = net->n_layer, n = 0, i = 0;
    ct_status status = CT_OK;

    for (size_t k = 0; k < n_old; k++) n += x->is(old[k]);
    if (n == 0) return CT_OK;
    net->layer = calloc(n_old + x->most_parts * n, sizeof(net->layer[0]));
    if (net->layer == NULL) {
        net->layer = old;
        return CT_FAIL(CT_ERR_NOMEM, "%s: no memory for its layers", u->file);
    }
    net->n_layer = 0;
    for (; (i < n_old) && (status == CT_OK); i++) {
        ct_expansion e = { u, old[i], net->layer, net->n_layer };

        if (!x->is(old[i])) {
            net->layer[net->n_layer++] = old[i];
            continue;
        }
        status = x->expand(&e);
        net->n_layer = e.n;
        ct_source_map_forget(u->map, &old[i]->base);
        ct__layer_parameter__free_unpacked(old[i], NULL);
    }
    for (; i < n_old; i++) net->layer[net->n_layer++] = old[i];
    free(old);
    return status;
}
