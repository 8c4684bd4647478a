/* Tops that come from no file: Input and MemoryData, DummyData, Parameter. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/base/rng.h"
#include "layers/types/data_common.h"
#include "layers/types/layer_types.h"
#include "framework/net/net.h"
#include "framework/math/math.h"
#include "layers/types/device_kernels.h"
#include "layers/layer_util.h"

/* ---- Input: tops of given shapes, which the caller fills before forward. */

static const Ct__BlobShape *shape_of(const ct_layer *l, int top)
{
    const Ct__InputParameter *p = l->param->input_param;

    return p->shape[(p->n_shape == 1) ? 0 : top];
}

static ct_status input_setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__InputParameter *p = l->param->input_param;

    (void)bottom;
    if ((p == NULL) || ((p->n_shape != 1) && (p->n_shape != (size_t)l->n_top))) {
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "%zu shapes for %d tops: give one, or one each",
                             (p != NULL) ? p->n_shape : (size_t)0, l->n_top);
    }
    for (int i = 0; i < l->n_top; i++) {
        const Ct__BlobShape *s = shape_of(l, i);

        if (s->n_dim > CT_MAX_DIM) {
            return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "shape of %zu dimensions, at most %d", s->n_dim,
                                 CT_MAX_DIM);
        }
        for (size_t k = 0; k < s->n_dim; k++) {
            if (s->dim[k] < 1) {
                return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "dimension %zu of top \"%s\" is %lld", k,
                                     l->param->top[i], (long long)s->dim[k]);
            }
        }
    }
    return CT_OK;
}

static bool input_varies(const Ct__LayerParameter *p)
{
    return (p->input_param != NULL) && p->input_param->varies;
}

static ct_status input_reshape(const ct_layer *l, ct_instance *in)
{
    int64_t tokens = l->env->sequence_tokens, batch = 0;

    for (int i = 0; i < l->n_top; i++) {
        const Ct__BlobShape *s = shape_of(l, i);
        ct_shape shape = { .ndim = (int)s->n_dim };

        for (size_t k = 0; k < s->n_dim; k++) shape.dim[k] = s->dim[k];
        if (tokens > 0) shape = (ct_shape){ 2, { 1, tokens } };
        CT_TRY(ct_data_check_size(l, &shape));
        if (i == 0) batch = ct_shape_legacy(&shape, 0);
        if ((shape.ndim > 0) && (shape.dim[0] == batch))
            shape.dim[0] = ct_data_batch_here(l, batch);
        ct_blob_set_shape(in->top[i], &shape);
    }
    ct_data_set_even_batch(l, in, batch);
    return CT_OK;
}

/* Where data is to be made up, uniform numbers; else what the caller put there stays. */
static ct_status input_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    if (!l->env->synthetic) return CT_OK;
    for (int i = 0; i < l->n_top; i++) {
        int64_t n = ct_tensor_count(&in->top[i]->data);
        float *values = malloc((size_t)n * sizeof(float));
        ct_status status;

        if (values == NULL) return CT_LAYER_FAIL(l, CT_ERR_NOMEM, "no memory");
        for (int64_t k = 0; k < n; k++) values[k] = (float)(k % 251) / 251.0f;
        status = ct_data_put(ex, in->top[i], values, n);
        free(values);
        CT_TRY(status);
    }
    return CT_OK;
}

const ct_layer_ops ct_layer_input = {
    .type = "Input",
    .params = "input_param",
    .min_top = 1,
    .max_top = -1,
    .is_data = true,
    .keeps_top = true,
    .varies_of = input_varies,
    .setup = input_setup,
    .reshape = input_reshape,
    .forward = input_forward,
    .on_cuda = true,
};

/* ---- MemoryData: a batch of images and one of labels. The caller fills them, as those of Input,
 * or they come from the file that --memory_data names: in its order, as Caffe takes images that a
 * program added, transformed. */

/* What the data are, the batch first: `dim`, or the four sizes. */
static ct_status memory_shape(const ct_layer *l, ct_shape *shape_p)
{
    const Ct__MemoryDataParameter *p = l->param->memory_data_param;
    bool four =
        (p != NULL) && (p->has_batch_size || p->has_channels || p->has_height || p->has_width);

    if ((p != NULL) && (p->n_dim > 0)) {
        if (four)
            return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                                 "memory_data_param: dim is the whole shape: give it, or "
                                 "batch_size, channels, height and width");
        if (p->n_dim > CT_MAX_DIM)
            return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "memory_data_param: %zu of dim, at most %d",
                                 p->n_dim, CT_MAX_DIM);
        *shape_p = (ct_shape){ .ndim = (int)p->n_dim };
        for (size_t i = 0; i < p->n_dim; i++) shape_p->dim[i] = p->dim[i];
    } else if (four) {
        *shape_p = (ct_shape){ 4, { p->batch_size, p->channels, p->height, p->width } };
    } else {
        *shape_p = (ct_shape){ 1, { 0 } };
    }
    for (int i = 0; i < shape_p->ndim; i++) {
        if (shape_p->dim[i] == 0)
            return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                                 "memory_data_param.batch_size, channels, height and width (or "
                                 "dim) must be given, at least 1");
    }
    return CT_OK;
}

static bool reads_file(const ct_layer *l)
{
    const char *source = l->param->memory_data_param->source;

    return (source != NULL) && (!l->env->synthetic || (access(source, F_OK) == 0));
}

/* A sample must come out as the layer says its tops are. */
static ct_status check_file(const ct_layer *l)
{
    const Ct__MemoryDataParameter *p = l->param->memory_data_param;
    const ct_data_state *d = l->state;
    ct_shape whole, wanted;

    CT_TRY(memory_shape(l, &whole));
    wanted = (ct_shape){ .ndim = whole.ndim - 1 };
    memcpy(wanted.dim, whole.dim + 1, sizeof(wanted.dim) - sizeof(wanted.dim[0]));
    if (!ct_shape_equal(&d->shape, &wanted))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "%s: samples of \"%s\" are %s, transformed %s; memory_data_param says "
                             "%s",
                             p->source, l->param->top[0], ct_shape_str(&d->reader->field[0]).text,
                             ct_shape_str(&d->shape).text, ct_shape_str(&wanted).text);
    if ((l->n_top > 1) && (ct_shape_count(&d->reader->field[1], 0, -1) != 1))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "%s: rows of \"%s\" are %s, expected one label each",
                             p->source, l->param->top[1], ct_shape_str(&d->reader->field[1]).text);
    return CT_OK;
}

static ct_status open_file(ct_layer *l)
{
    const Ct__MemoryDataParameter *p = l->param->memory_data_param;
    const char *const name[] = { l->param->top[0], (l->n_top > 1) ? l->param->top[1] : NULL };
    ct_data_source s = { .backend = "hdf5", .threads = 1, .has_shuffle = true };

    s.options.source = p->source;
    s.options.field_name = name;
    s.batch_size = (p->n_dim > 0) ? p->dim[0] : p->batch_size;
    CT_TRY(ct_data_setup(l, &s));
    return check_file(l);
}

static ct_status memory_setup(ct_layer *l, const ct_shape *bottom)
{
    ct_shape shape;

    (void)bottom;
    CT_TRY(memory_shape(l, &shape));
    if (reads_file(l)) return open_file(l);
    if (l->param->transform_param != NULL)
        CT_INFO("%s%slayer \"%s\" (%s): transform_param is not applied: arrays that a program sets "
                "come to the net as they are",
                l->where, (l->where[0] != '\0') ? ": " : "", l->name, l->ops->type);
    if (!l->env->synthetic && !l->env->no_data)
        CT_WARN("%s%slayer \"%s\" (%s): the program that made the net is to fill its tops; to read "
                "them from a file, give --memory_data=FILE.h5",
                l->where, (l->where[0] != '\0') ? ": " : "", l->name, l->ops->type);
    return CT_OK;
}

static ct_status memory_reshape(const ct_layer *l, ct_instance *in)
{
    ct_shape data;
    int64_t batch;

    CT_TRY(memory_shape(l, &data));
    batch = data.dim[0];
    data.dim[0] = ct_data_batch_here(l, batch);
    if (reads_file(l)) {
        CT_TRY(ct_data_reshape(l, in));
        if (l->n_top > 1) ct_blob_set_shape(in->top[1], &(ct_shape){ 1, { in->batch_local } });
        if (in->n_sample >= in->batch_global) return CT_OK;
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "%s has %lld samples, fewer than a batch of all ranks, %lld",
                             l->param->memory_data_param->source, (long long)in->n_sample,
                             (long long)in->batch_global);
    }
    CT_TRY(ct_data_check_size(l, &data));
    ct_blob_set_shape(in->top[0], &data);
    if (l->n_top > 1) ct_blob_set_shape(in->top[1], &(ct_shape){ 1, { data.dim[0] } });
    ct_data_set_even_batch(l, in, batch);
    return CT_OK;
}

static ct_status memory_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    return reads_file(l) ? ct_data_forward(l, in, ex) : input_forward(l, in, ex);
}

static void memory_release(const ct_layer *l, ct_instance *in)
{
    if (((ct_data_instance *)in->state)->source != NULL) ct_data_release(l, in);
}

const ct_layer_ops ct_layer_memory_data = {
    .type = "MemoryData",
    .params = "transform_param memory_data_param",
    .min_top = 1,
    .max_top = 2,
    .is_data = true,
    .keeps_top = true,
    .state_size = sizeof(ct_data_state),
    .instance_state_size = sizeof(ct_data_instance),
    .setup = memory_setup,
    .reshape = memory_reshape,
    .forward = memory_forward,
    .release = memory_release,
    .destroy = ct_data_destroy,
    .on_cuda = true,
};

/* ---- DummyData: tops filled by fillers, anew in every forward as in Caffe (a constant filler
 * gives the same). Sample n of the global batch gets the same numbers on any number of ranks. */

typedef struct dummy_instance {
    float *values; /* the largest top, on the host */
} dummy_instance;

static ct_status check_count(const ct_layer *l, const char *name, size_t n)
{
    if ((n == 1) || (n == (size_t)l->n_top)) return CT_OK;
    return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                         "%s is given %zu times for %d tops: give one, or one each", name, n,
                         l->n_top);
}

static ct_status dummy_setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__DummyDataParameter *p = l->param->dummy_data_param;
    bool legacy;

    (void)bottom;
    if (p == NULL) return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "dummy_data_param is missing");
    legacy = (p->n_num > 0) || (p->n_channels > 0) || (p->n_height > 0) || (p->n_width > 0);
    if (p->n_data_filler > 0) CT_TRY(check_count(l, "data_filler", p->n_data_filler));
    if (!legacy) return check_count(l, "shape", p->n_shape);
    if (p->n_shape > 0) {
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "both shape and num, channels, height, width are given");
    }
    CT_TRY(check_count(l, "num", p->n_num));
    CT_TRY(check_count(l, "channels", p->n_channels));
    CT_TRY(check_count(l, "height", p->n_height));
    return check_count(l, "width", p->n_width);
}

static uint32_t pick(const uint32_t *v, size_t n, int top)
{
    return v[(n == 1) ? 0 : top];
}

static ct_status top_shape(const ct_layer *l, int top, ct_shape *s)
{
    const Ct__DummyDataParameter *p = l->param->dummy_data_param;

    if (p->n_shape == 0) {
        *s = (ct_shape){ 4,
                         { pick(p->num, p->n_num, top), pick(p->channels, p->n_channels, top),
                           pick(p->height, p->n_height, top), pick(p->width, p->n_width, top) } };
    } else {
        const Ct__BlobShape *b = p->shape[(p->n_shape == 1) ? 0 : top];

        if (b->n_dim > CT_MAX_DIM) {
            return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "shape of %zu dimensions, at most %d", b->n_dim,
                                 CT_MAX_DIM);
        }
        *s = (ct_shape){ .ndim = (int)b->n_dim };
        for (size_t k = 0; k < b->n_dim; k++) s->dim[k] = b->dim[k];
    }
    for (int k = 0; k < s->ndim; k++) {
        if (s->dim[k] < 1) {
            return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "dimension %d of top \"%s\" is %lld", k,
                                 l->param->top[top], (long long)s->dim[k]);
        }
    }
    return ct_data_check_size(l, s);
}

/* NULL: zeros. */
static const Ct__FillerParameter *filler_of(const ct_layer *l, int top)
{
    const Ct__DummyDataParameter *p = l->param->dummy_data_param;

    return (p->n_data_filler > 0) ? p->data_filler[(p->n_data_filler == 1) ? 0 : top] : NULL;
}

static bool is_one(const Ct__FillerParameter *filler)
{
    return (filler != NULL) && (strcmp(filler->type, "constant") == 0) && (filler->value == 1.0f);
}

static ct_status dummy_reshape(const ct_layer *l, ct_instance *in)
{
    dummy_instance *d = in->state;
    int64_t largest = 1, batch = 0;

    for (int i = 0; i < l->n_top; i++) {
        ct_shape shape = { 0 };
        int64_t n;

        CT_TRY(top_shape(l, i, &shape));
        if (i == 0) batch = ct_shape_legacy(&shape, 0);
        if ((shape.ndim > 0) && (shape.dim[0] == batch))
            shape.dim[0] = ct_data_batch_here(l, batch);
        ct_blob_set_shape(in->top[i], &shape);
        in->top[i]->restarts_first = is_one(filler_of(l, i));
        n = ct_shape_count(&shape, 0, -1);
        if (n > largest) largest = n;
    }
    ct_data_set_even_batch(l, in, batch);
    if (l->env->no_data) return CT_OK;
    free(d->values);
    d->values = malloc((size_t)largest * sizeof(float));
    if (d->values == NULL) return CT_LAYER_FAIL(l, CT_ERR_NOMEM, "no memory");
    return CT_OK;
}

/* Sample by sample, so that what a sample gets does not depend on how the batch is dealt out. */
static ct_status fill_top(const ct_layer *l, const ct_instance *in, const ct_exec *ex, int top,
                          const Ct__FillerParameter *filler, float *values)
{
    ct_shape sample = in->top[top]->data.shape;
    int64_t batch = ct_shape_legacy(&sample, 0), n;
    uint64_t layer = ct_rng_key(ex->seed, ct_rng_hash(l->name), (uint64_t)top);

    if (sample.ndim > 0) sample.dim[0] = 1;
    n = ct_shape_count(&sample, 0, -1);
    for (int64_t i = 0; i < batch; i++) {
        uint64_t place = (uint64_t)(in->batch_first + i);

        CT_TRY(ct_fill(filler, ct_rng_key(layer, (uint64_t)ex->micro_step, place), &sample,
                       values + i * n));
    }
    return CT_OK;
}

static ct_status dummy_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    dummy_instance *d = in->state;

    for (int i = 0; i < l->n_top; i++) {
        const Ct__FillerParameter *filler = filler_of(l, i);
        int64_t n = ct_tensor_count(&in->top[i]->data);

        if (filler == NULL) {
            memset(d->values, 0, (size_t)n * sizeof(float));
        } else if (strcmp(filler->type, "constant") == 0) {
            for (int64_t k = 0; k < n; k++) d->values[k] = filler->value;
        } else {
            CT_TRY(fill_top(l, in, ex, i, filler, d->values));
        }
        CT_TRY(ct_data_put(ex, in->top[i], d->values, n));
    }
    return CT_OK;
}

static void dummy_release(const ct_layer *l, ct_instance *in)
{
    dummy_instance *d = in->state;

    (void)l;
    free(d->values);
}

const ct_layer_ops ct_layer_dummy_data = {
    .type = "DummyData",
    .params = "dummy_data_param",
    .min_top = 1,
    .max_top = -1,
    .is_data = true,
    .instance_state_size = sizeof(dummy_instance),
    .setup = dummy_setup,
    .reshape = dummy_reshape,
    .forward = dummy_forward,
    .release = dummy_release,
    .on_cuda = true,
};

/* ---- Parameter: a learned blob as a top. */

static ct_status setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__ParameterParameter *p = l->param->parameter_param;
    ct_shape shape = { 0 };

    (void)bottom;
    if ((p == NULL) || (p->shape == NULL))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "parameter_param.shape is missing");
    if (p->shape->n_dim > CT_MAX_DIM)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "parameter_param.shape has %zu axes, at most %d",
                             p->shape->n_dim, CT_MAX_DIM);
    for (size_t i = 0; i < p->shape->n_dim; i++) {
        if (p->shape->dim[i] < 1)
            return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "parameter_param.shape has the dimension %lld",
                                 (long long)p->shape->dim[i]);
        shape.dim[shape.ndim++] = p->shape->dim[i];
    }
    ct_layer_add_weight(l, &shape, NULL);
    return CT_OK;
}

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    ct_blob_set_shape(in->top[0], &l->weight[0].shape);
    return CT_OK;
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)l;
    return ct_device_copy(ex, ct_tensor_count(&in->top[0]->data), ct_blob_data(&in->weight[0]),
                          ct_blob_data(in->top[0]));
}

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    float *dw = ct_blob_diff(&in->weight[0]);

    if (dw == NULL) return CT_OK;
    return l->dev->math->axpby(ex->stream, ct_tensor_count(&in->top[0]->data), 1.0f,
                               ct_blob_diff(in->top[0]), ct_weight_beta(in, ex, 0), dw);
}

const ct_layer_ops ct_layer_parameter = {
    .type = "Parameter",
    .params = "parameter_param",
    .min_top = 1,
    .max_top = 1,
    .setup = setup,
    .reshape = reshape,
    .forward = forward,
    .backward = backward,
    .on_cuda = true,
};
