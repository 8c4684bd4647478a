/* What samples of a net look like. */
#include "framework/data/reader.h"

#include <string.h>
#include <unistd.h>

#include "framework/data/augment/augment.h"
#include "framework/data/transform.h"
#include "framework/net/graph.h"

static const char no_samples[] =
    "in phase TEST it needs a data layer of samples whose source is there or that has "
    "synthetic_shape";

static bool in_test(const Ct__NetParameter *net, const Ct__LayerParameter *l)
{
    ct_net_options o = { .phase = CT_TEST };

    return ct_graph_includes(net, &o, l);
}

/* shape less its first `skip` axes */
static bool take(const Ct__BlobShape *s, size_t skip, ct_shape *shape_p)
{
    if ((s == NULL) || (s->n_dim <= skip) || (s->n_dim - skip > CT_MAX_DIM)) return false;
    shape_p->ndim = (int)(s->n_dim - skip);
    for (int i = 0; i < shape_p->ndim; i++) shape_p->dim[i] = s->dim[(size_t)i + skip];
    return true;
}

static ct_status read_set(const Ct__LayerParameter *l, const char *backend, const char *source,
                          ct_shape *shape_p)
{
    const char *const name[1] = { l->top[0] };
    ct_reader_options o = { .who = l->name, .source = source, .n_field = 1, .field_name = name };
    const Ct__TransformationParameter *t = l->transform_param;
    ct_reader *r = NULL;

    if (((t != NULL) && t->force_color) ||
        ((l->data_param != NULL) && l->data_param->force_encoded_color))
        o.color = CT_COLOR_BGR;
    if ((t != NULL) && t->force_gray) o.color = CT_COLOR_GRAY;
    if (l->hdf5_data_param != NULL) o.other_files = l->hdf5_data_param->other_files;
    CT_TRY(ct_reader_open(backend, &o, &r));
    *shape_p = r->field[0];
    ct_reader_close(r);
    return CT_OK;
}

/* Layers that read an LMDB. */
static bool has_records(const Ct__LayerParameter *l)
{
    return (ct_layer_param_is(l, "Data") || ct_layer_param_is(l, "AnnotatedData")) &&
           (l->data_param != NULL);
}

/* Images with boxes have sizes of their own, and come out with that of resize_param. */
static bool look_at_resize(const Ct__LayerParameter *l, ct_shape *shape_p)
{
    const Ct__TransformationParameter *t = l->transform_param;

    if (!ct_layer_param_is(l, "AnnotatedData") || (t == NULL) || (t->resize_param == NULL))
        return false;
    *shape_p =
        (ct_shape){ 3, { t->force_gray ? 1 : 3, t->resize_param->height, t->resize_param->width } };
    return true;
}

/* What the layer says itself. */
static bool look(const Ct__LayerParameter *l, ct_shape *shape_p)
{
    const Ct__ImageDataParameter *image = l->image_data_param;
    const Ct__MemoryDataParameter *m = l->memory_data_param;
    const Ct__TokenDataParameter *tokens = l->token_data_param;

    /* What is hidden is no text to go on with. */
    if (ct_layer_param_is(l, "TokenData") && (tokens != NULL)) {
        *shape_p = (ct_shape){ 1, { tokens->seq_len } };
        return tokens->mask_ratio == 0.0f;
    }
    if (ct_layer_param_is(l, "TextData")) {
        *shape_p = (ct_shape){ 1, { 1 } };
        return true;
    }
    if (has_records(l))
        return take(l->data_param->synthetic_shape, 0, shape_p) || look_at_resize(l, shape_p);
    if (ct_layer_param_is(l, "HDF5Data") && (l->hdf5_data_param != NULL) &&
        (l->hdf5_data_param->n_synthetic_shape > 0))
        return take(l->hdf5_data_param->synthetic_shape[0], 0, shape_p);
    if (ct_layer_param_is(l, "Input") && (l->input_param != NULL) && (l->input_param->n_shape > 0))
        return take(l->input_param->shape[0], 1, shape_p);
    if (ct_layer_param_is(l, "DummyData") && (l->dummy_data_param != NULL) &&
        (l->dummy_data_param->n_shape > 0))
        return take(l->dummy_data_param->shape[0], 1, shape_p);
    if (ct_layer_param_is(l, "ImageData") && (image != NULL) && (image->new_height > 0)) {
        *shape_p =
            (ct_shape){ 3, { image->is_color ? 3 : 1, image->new_height, image->new_width } };
        return true;
    }
    if (ct_layer_param_is(l, "ImageData") && (image != NULL))
        return take(image->synthetic_shape, 0, shape_p);
    if (!ct_layer_param_is(l, "MemoryData") || (m == NULL)) return false;
    *shape_p = (ct_shape){ 3, { m->channels, m->height, m->width } };
    if (m->n_dim == 0) return true;
    if (m->n_dim > CT_MAX_DIM) return false;
    *shape_p = (ct_shape){ .ndim = (int)m->n_dim - 1 };
    for (size_t i = 1; i < m->n_dim; i++) shape_p->dim[i - 1] = m->dim[i];
    return true;
}

static ct_status read_or_look(const Ct__LayerParameter *l, ct_shape *shape_p, ct_why *why)
{
    if (has_records(l) && (l->data_param->source != NULL) &&
        (access(l->data_param->source, R_OK) == 0))
        return read_set(l, ct_layer_param_is(l, "Data") ? "lmdb" : "annotated",
                        l->data_param->source, shape_p);
    if (ct_layer_param_is(l, "HDF5Data") && (l->hdf5_data_param != NULL) &&
        (l->hdf5_data_param->source != NULL) && (access(l->hdf5_data_param->source, R_OK) == 0))
        return read_set(l, "hdf5", l->hdf5_data_param->source, shape_p);
    return look(l, shape_p) ? CT_OK : CT_WHY(why, CT_UNSUPPORTED, "%s", no_samples);
}

/* What the layer's transform_param makes of a sample. Values do not matter, so no mean is read. */
static ct_status transform(const Ct__LayerParameter *l, const ct_shape *sample, ct_shape *input_p,
                           ct_why *why)
{
    const char *chance = ct_augment_chance_in_test(l->transform_param);
    Ct__TransformationParameter p;
    ct_augment *augment = NULL;
    ct_transform *t = NULL;
    ct_shape augmented;
    ct_status status;

    *input_p = *sample;
    if (l->transform_param == NULL) return CT_OK;
    if (chance != NULL)
        return CT_WHY(why, CT_UNSUPPORTED,
                      "layer \"%s\" has transform_param.%s in phase TEST, by which sizes are drawn",
                      l->name, chance);
    p = *l->transform_param;
    p.mean_file = NULL;
    status = ct_augment_create(&p, CT_TEST, l->name, &augment);
    if (status == CT_OK) status = ct_transform_create(&p, CT_TEST, l->name, &t);
    if (status == CT_OK) {
        status = ct_augment_shape(augment, sample, &augmented, why);
        if (status == CT_OK) status = ct_transform_shape(t, &augmented, input_p, why);
        if (status != CT_OK) status = CT_FAIL(status, "layer \"%s\": %s", l->name, why->text);
    }
    ct_augment_destroy(augment);
    ct_transform_destroy(t);
    return status;
}

ct_status ct_net_sample_shape(const Ct__NetParameter *net, ct_shape *sample_p, ct_shape *input_p,
                              ct_why *why)
{
    for (size_t i = 0; i < net->n_layer; i++) {
        const Ct__LayerParameter *l = net->layer[i];

        if ((l->n_bottom > 0) || (l->n_top == 0) || !in_test(net, l)) continue;
        CT_TRY(read_or_look(l, sample_p, why));
        return transform(l, sample_p, input_p, why);
    }
    return CT_WHY(why, CT_UNSUPPORTED, "%s", no_samples);
}
