/* Parameters that a layer's type does not read: Caffe passes over them in silence, and whoever
 * wrote `pooling_param` into a convolution never learns of it. */
#include <string.h>

#include "framework/base/log.h"
#include "framework/proto/message.h"
#include "framework/proto/upgrade.h"

static void look_at(const Ct__LayerParameter *layer, const char *file, const ct_source_map *map)
{
    const ProtobufCMessage *m = &layer->base;

    for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
        ct_place place;

        if ((f->type != PROTOBUF_C_TYPE_MESSAGE) || (ct_field_count(m, f) == 0) ||
            !ct_layer_type_reads(NULL, f->name) || ct_layer_type_reads(layer->type, f->name))
            continue;
        place = ct_source_map_find(map, ct_field_message((ProtobufCMessage *)m, f, 0));
        CT_WARN("%s:%d: in layer \"%s\" (%s): %s means nothing to this type of layer, and has no "
                "effect",
                file, place.line, (layer->name != NULL) ? layer->name : "", layer->type, f->name);
    }
}

void ct_net_warn_unused(const Ct__NetParameter *net, const char *file, const ct_source_map *map)
{
    if (net->debug_info) CT_WARN("%s: debug_info is not supported, nothing more is printed", file);
    for (size_t i = 0; i < net->n_layer; i++) {
        const Ct__LayerParameter *layer = net->layer[i];

        if ((layer->type != NULL) && ct_layer_type_reads(layer->type, NULL))
            look_at(layer, file, map);
    }
}
