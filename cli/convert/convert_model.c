#include "cli/convert/convert_model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/proto/prototxt.h"
#include "framework/proto/upgrade.h"
#include "framework/snapshot/model.h"
#include "framework/snapshot/snapshot.h"
#include "cli/onnx/onnx.h"

static void list(const ct_model *m)
{
    int64_t total = 0;

    printf("%s: %s%s%s\n", m->file, m->format->name, (m->name != NULL) ? ", net " : "",
           (m->name != NULL) ? m->name : "");
    for (int l = 0; l < m->n_layer; l++) {
        const ct_model_layer *layer = &m->layer[l];

        for (int i = 0; i < layer->n_array; i++) {
            if (!layer->array[i].present) continue;
            printf("  %s/%d  %s\n", layer->name, i, ct_shape_str(&layer->array[i].shape).text);
            total += ct_shape_count(&layer->array[i].shape, 0, -1);
        }
    }
    printf("%" PRId64 " values\n", total);
}

/* Layer l of the net gives the file's layer its fields and shapes: those of old files have four
 * dimensions. */
static ct_status fit_layer(const ct_net *net, int l, const ct_model *m, ct_model_layer *to)
{
    const ct_layer *layer = net->layer[l];

    to->param = layer->param;
    if ((to->n_array != layer->n_weight) && (to->n_array > 0))
        return CT_FAIL(CT_ERR_SHAPE, "%s: layer \"%s\" has %d blobs in the file, %d in the net",
                       m->file, to->name, to->n_array, layer->n_weight);
    for (int i = 0; i < to->n_array; i++) {
        const ct_shape *shape = &layer->weight[i].shape;

        if (!ct_shapes_fit(&to->array[i].shape, shape))
            return CT_FAIL(CT_ERR_SHAPE,
                           "%s: blob %d of layer \"%s\" has shape %s in the file, %s in the net",
                           m->file, i, to->name, ct_shape_str(&to->array[i].shape).text,
                           ct_shape_str(shape).text);
        to->array[i].shape = *shape;
    }
    return CT_OK;
}

static ct_status fit(const ct_net *net, ct_model *m)
{
    for (int l = 0; l < m->n_layer; l++) {
        int k = ct_net_find_layer(net, m->layer[l].name);

        if (k >= 0)
            CT_TRY(fit_layer(net, k, m, &m->layer[l]));
        else if (m->layer[l].n_array > 0)
            CT_WARN("%s: the net has no layer \"%s\"; it is written as it is", m->file,
                    m->layer[l].name);
    }
    return CT_OK;
}

typedef struct fitted {
    ct_source_map *map;
    Ct__NetParameter *param;
    ct_net *net;
} fitted;

static ct_status open_net(const char *file, fitted *f)
{
    ct_net_options o = { .phase = CT_TEST,
                         .env = { .n_rank = 1, .no_data = true },
                         .no_data = true };

    CT_TRY(ct_source_map_create(&f->map));
    CT_TRY(ct_net_read(file, f->map, &f->param));
    o.map = f->map;
    return ct_net_create(f->param, &o, &f->net);
}

static ct_status save(const ct_convert_options *o, const ct_net *net, ct_model *m)
{
    if (ct_text_ends_with(o->to, ".onnx")) {
        CT_TRY(ct_model_load(m));
        CT_TRY(ct_onnx_write(net, m, o->to));
    } else {
        CT_TRY(ct_model_save(m, o->to));
    }
    CT_INFO("wrote %s", o->to);
    return CT_OK;
}

static ct_status convert(const ct_convert_options *o, ct_model *m)
{
    fitted f = { .map = NULL };
    ct_status status = CT_OK;

    if (o->net != NULL) {
        status = open_net(o->net, &f);
        if (status == CT_OK) status = fit(f.net, m);
    }
    if ((status == CT_OK) && (o->to == NULL)) list(m);
    if ((status == CT_OK) && (o->to != NULL)) status = save(o, f.net, m);
    ct_net_destroy(f.net);
    if (f.param != NULL) ct__net_parameter__free_unpacked(f.param, NULL);
    ct_source_map_destroy(f.map);
    return status;
}

ct_status ct_convert_model(const ct_convert_options *o)
{
    const ct_model_format *format;
    ct_model *m = NULL;
    ct_status status;

    if (o->to != NULL) {
        if (!ct_text_ends_with(o->to, ".onnx"))
            CT_TRY(ct_model_format_of(o->to, &format));
        else if (o->net == NULL)
            return CT_FAIL(CT_ERR_CONFIG, "%s: ONNX holds the net too: give its --net", o->to);
        if (!o->force && (access(o->to, F_OK) == 0))
            return CT_FAIL(CT_ERR_IO, "%s is there already; --force replaces it", o->to);
    }
    CT_TRY(ct_model_open(o->from, &m));
    status = convert(o, m);
    ct_model_close(m);
    return status;
}
