#include "framework/data/net_set.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/net/graph.h"

/* Layers that read an LMDB. */
static bool has_records(const Ct__LayerParameter *l)
{
    return (ct_layer_param_is(l, "Data") || ct_layer_param_is(l, "AnnotatedData")) &&
           (l->data_param != NULL);
}

static const Ct__LayerParameter *find_layer(const Ct__NetParameter *net, ct_phase phase)
{
    ct_net_options o = { .phase = phase };

    for (size_t i = 0; i < net->n_layer; i++) {
        const Ct__LayerParameter *l = net->layer[i];

        if ((l->n_bottom > 0) || (l->n_top == 0) || !ct_graph_includes(net, &o, l)) continue;
        if (has_records(l)) return l;
        if (ct_layer_param_is(l, "ImageData") && (l->image_data_param != NULL)) return l;
        if (ct_layer_param_is(l, "HDF5Data") && (l->hdf5_data_param != NULL)) return l;
    }
    return NULL;
}

/* As the data layers open their readers. */
static void options_of_data(const Ct__LayerParameter *l, ct_reader_options *o)
{
    static const Ct__AnnotatedDataParameter plain = CT__ANNOTATED_DATA_PARAMETER__INIT;
    const Ct__AnnotatedDataParameter *a = l->annotated_data_param;
    const Ct__TransformationParameter *t = l->transform_param;

    o->source = l->data_param->source;
    o->max_boxes = (a != NULL) ? a->max_boxes : plain.max_boxes;
    if (l->data_param->force_encoded_color || ((t != NULL) && t->force_color))
        o->color = CT_COLOR_BGR;
    if ((t != NULL) && t->force_gray) o->color = CT_COLOR_GRAY;
}

static void options_of_images(const Ct__LayerParameter *l, ct_reader_options *o)
{
    const Ct__ImageDataParameter *p = l->image_data_param;

    o->source = p->source;
    o->root_folder = p->root_folder;
    o->new_height = p->new_height;
    o->new_width = p->new_width;
    o->color = p->is_color ? CT_COLOR_BGR : CT_COLOR_GRAY;
}

static void options_of_hdf5(const Ct__LayerParameter *l, ct_reader_options *o)
{
    o->source = l->hdf5_data_param->source;
    o->other_files = l->hdf5_data_param->other_files;
    o->n_field = (int)l->n_top;
    o->field_name = (const char *const *)l->top;
}

/* The backend of its reader. */
static const char *backend_of(const Ct__LayerParameter *l)
{
    if (ct_layer_param_is(l, "HDF5Data")) return "hdf5";
    if (ct_layer_param_is(l, "AnnotatedData")) return "annotated";
    return ct_layer_param_is(l, "Data") ? "lmdb" : "images";
}

/* As ct_net_set_values() needs it. */
static ct_status open_augment(const Ct__LayerParameter *l, ct_phase phase,
                              const ct_reader_options *o, ct_net_set *s)
{
    if (!ct_layer_param_is(l, "AnnotatedData"))
        return ct_augment_create(l->transform_param, phase, o->who, &s->augment);
    s->box = calloc((size_t)ct_reader_rest_count(s->reader) + 1, sizeof(*s->box));
    if (s->box == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for boxes");
    return ct_augment_create_with_boxes(l->transform_param, l->annotated_data_param, phase, o->who,
                                        &s->augment);
}

static ct_status open_layer(const Ct__LayerParameter *l, ct_phase phase, const ct_reader_options *o,
                            ct_net_set *s)
{
    CT_TRY(ct_reader_open(backend_of(l), o, &s->reader));
    CT_TRY(ct_reader_local(s->reader, &s->local));
    s->sample.rest = calloc((size_t)ct_reader_rest_count(s->reader) + 1, sizeof(float));
    if (s->sample.rest == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a sample");
    CT_TRY(open_augment(l, phase, o, s));
    return ct_transform_create(l->transform_param, phase, o->who, &s->transform);
}

ct_status ct_net_set_open(const Ct__NetParameter *net, ct_phase phase, const char *source,
                          ct_net_set *s)
{
    const Ct__LayerParameter *l = find_layer(net, phase);
    ct_reader_options o = { .n_field = 2, .color = CT_COLOR_NATIVE };
    ct_status status;

    *s = (ct_net_set){ .reader = NULL };
    if (l == NULL) return CT_UNSUPPORTED;
    o.who = l->name;
    if (has_records(l)) options_of_data(l, &o);
    if (ct_layer_param_is(l, "ImageData")) options_of_images(l, &o);
    if (ct_layer_param_is(l, "HDF5Data")) options_of_hdf5(l, &o);
    if (source != NULL) o.source = source;
    s->source = o.source;
    if ((o.source == NULL) || (access(o.source, R_OK) != 0)) return CT_UNSUPPORTED;
    status = open_layer(l, phase, &o, s);
    if (status != CT_OK) ct_net_set_close(s);
    return status;
}

void ct_net_set_close(ct_net_set *s)
{
    ct_transform_destroy(s->transform);
    ct_augment_destroy(s->augment);
    ct_augment_room_release(&s->room);
    free(s->box);
    if (s->reader != NULL) ct_reader_local_release(s->reader, s->local);
    ct_reader_close(s->reader);
    free(s->sample.rest);
    *s = (ct_net_set){ .reader = NULL };
}

ct_status ct_net_set_read(ct_net_set *s, int64_t id)
{
    s->id = id;
    return s->reader->ops->read(s->reader, s->local, id, &s->sample);
}

int64_t ct_net_set_label(const ct_net_set *s)
{
    return (ct_reader_rest_count(s->reader) == 1) ? (int64_t)s->sample.rest[0] : -1;
}

/* The seed by which samples are looked at. */
enum { SEED = 1 };

ct_status ct_net_set_values(ct_net_set *s, ct_shape *shape_p, float **values_p)
{
    ct_sample read = s->sample, augmented;
    ct_why why = { "no memory" };
    ct_boxes boxes;
    float *values;
    ct_status status;

    if (s->box != NULL) {
        memcpy(s->box, s->sample.rest, (size_t)ct_reader_rest_count(s->reader) * sizeof(*s->box));
        read.rest = s->box;
    }
    read.why = &why;
    status = ct_augment_apply(s->augment, &read, SEED, s->id, &s->room, &augmented);
    if (status == CT_OK) status = ct_transform_shape(s->transform, &augmented.shape, shape_p, &why);
    if (status != CT_OK) return CT_READER_FAIL(s->reader, status, "%s", why.text);
    values = malloc((size_t)ct_shape_count(shape_p, 0, -1) * sizeof(*values) + 1);
    if (values == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a sample");
    ct_transform_apply(s->transform, &augmented, SEED, s->id, values);
    boxes = ct_net_set_boxes(s);
    if (boxes.n > 0) ct_transform_boxes(s->transform, &augmented.shape, SEED, s->id, &boxes);
    *values_p = values;
    return CT_OK;
}

ct_boxes ct_net_set_boxes(const ct_net_set *s)
{
    if ((s->box == NULL) || (s->sample.boxes == 0)) return (ct_boxes){ NULL, 0, 0 };
    return ct_boxes_of(s->box, s->sample.boxes);
}

void ct_net_set_name(const ct_net_set *s, int64_t id, char *text, size_t size)
{
    size_t n;

    ct_reader_name(s->reader, id, text, size);
    n = strspn(text, "0123456789");
    if ((n > 0) && (text[n] == '_')) memmove(text, text + n + 1, strlen(text + n + 1) + 1);
}
