/* The layers that read samples from files: Data, AnnotatedData, HDF5Data, ImageData, WindowData,
 * TextData. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "layers/types/data_common.h"
#include "layers/types/layer_types.h"
#include "framework/data/window_list.h"
#include "framework/base/rng.h"
#include "framework/data/words.h"

/* ---- Data: records of an LMDB. Top 0: batch x channels x height x width; top 1 (if there):
 * labels. */

static ct_color color_of(const ct_layer *l)
{
    const Ct__TransformationParameter *t = l->param->transform_param;

    if ((t != NULL) && t->force_gray) return CT_COLOR_GRAY;
    if (((t != NULL) && t->force_color) || l->param->data_param->force_encoded_color) {
        return CT_COLOR_BGR;
    }
    return CT_COLOR_NATIVE;
}

/* Old fields that an upgrade moves to transform_param; what it left behind would be lost silently.
 */
static ct_status check_old(const ct_layer *l)
{
    const Ct__DataParameter *p = l->param->data_param;
    const Ct__TransformationParameter *t = l->param->transform_param;
    bool left = (p->has_scale && ((t == NULL) || !t->has_scale)) ||
                ((p->mean_file != NULL) && ((t == NULL) || (t->mean_file == NULL))) ||
                (p->has_crop_size && ((t == NULL) || !t->has_crop_size)) ||
                (p->has_mirror && ((t == NULL) || !t->has_mirror));

    if (left) {
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "scale, mean_file, crop_size and mirror belong in transform_param");
    }
    return CT_OK;
}

/* The set that data_param names, as `backend` reads it. */
static ct_status setup_set(ct_layer *l, const char *backend,
                           const Ct__AnnotatedDataParameter *boxes)
{
    const Ct__DataParameter *p = l->param->data_param;
    ct_data_source s = { .backend = backend, .annotated = boxes };

    if (p == NULL) return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "data_param is missing");
    CT_TRY(check_old(l));
    /* Caffe's default is LevelDB; a set without the field is taken for what we read */
    if (p->has_backend && (p->backend == CT__DATA_PARAMETER__DB__LEVELDB)) s.backend = "leveldb";
    s.options.source = p->source;
    s.options.color = color_of(l);
    if (boxes != NULL) s.options.max_boxes = boxes->max_boxes;
    s.absent = (p->source == NULL) || (access(p->source, F_OK) != 0);
    s.batch_size = p->batch_size;
    s.has_shuffle = p->has_shuffle;
    s.shuffle = p->shuffle;
    s.stripes = p->stripes;
    s.rand_skip = p->rand_skip;
    s.threads = p->threads;
    s.synthetic = &p->synthetic_shape;
    s.n_synthetic = (p->synthetic_shape != NULL);
    return ct_data_setup(l, &s);
}

static ct_status data_setup(ct_layer *l, const ct_shape *bottom)
{
    (void)bottom;
    return setup_set(l, "lmdb", NULL);
}

const ct_layer_ops ct_layer_data = {
    .type = "Data",
    .params = "transform_param data_param",
    .min_top = 1,
    .max_top = 2,
    .is_data = true,
    .state_size = sizeof(ct_data_state),
    .instance_state_size = sizeof(ct_data_instance),
    .setup = data_setup,
    .reshape = ct_data_reshape,
    .forward = ct_data_forward,
    .release = ct_data_release,
    .destroy = ct_data_destroy,
    .on_cuda = true,
};

/* ---- AnnotatedData: images with boxes from an LMDB of Caffe-SSD's AnnotatedDatum. Top 1 (if
 * there): 1 x 1 x rows x 8, max_boxes rows for each sample, of which those that are not used are
 * -1. */

static ct_status annotated_data_setup(ct_layer *l, const ct_shape *bottom)
{
    enum { MOST_BOXES = 1 << 16 };
    static const Ct__AnnotatedDataParameter plain = CT__ANNOTATED_DATA_PARAMETER__INIT;
    const Ct__AnnotatedDataParameter *p = l->param->annotated_data_param;

    (void)bottom;
    if (p == NULL) p = &plain;
    if ((p->max_boxes < 1) || (p->max_boxes > MOST_BOXES))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "annotated_data_param.max_boxes is %u, must be 1 to %d", p->max_boxes,
                             MOST_BOXES);
    if ((p->n_batch_sampler > 0) && (l->n_top < 2))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "annotated_data_param.batch_sampler goes by the boxes: give the layer "
                             "its second top, which has them");
    return setup_set(l, "annotated", p);
}

const ct_layer_ops ct_layer_annotated_data = {
    .type = "AnnotatedData",
    .params = "transform_param data_param annotated_data_param",
    .min_top = 1,
    .max_top = 2,
    .is_data = true,
    .state_size = sizeof(ct_data_state),
    .instance_state_size = sizeof(ct_data_instance),
    .setup = annotated_data_setup,
    .reshape = ct_data_reshape,
    .forward = ct_data_forward,
    .release = ct_data_release,
    .destroy = ct_data_destroy,
    .on_cuda = true,
};

/* ---- HDF5Data: one data set a top, by the top's name. Unlike in Caffe, transform_param is allowed
 * and acts on the first top, so that 8-bit images can stay 8 bits in the file. */

static ct_status hdf5_data_setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__HDF5DataParameter *p = l->param->hdf5_data_param;
    ct_data_source s = { .backend = "hdf5", .threads = 1 };
    const char *name[CT_MAX_FIELD];

    (void)bottom;
    if (p == NULL) return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "hdf5_data_param is missing");
    for (int i = 0; i < l->n_top; i++) name[i] = l->param->top[i];
    s.options.source = p->source;
    s.options.field_name = name;
    s.options.other_files = p->other_files;
    s.absent = (p->source == NULL) || (access(p->source, F_OK) != 0);
    s.batch_size = p->batch_size;
    s.has_shuffle = p->has_shuffle;
    s.shuffle = p->shuffle;
    s.synthetic = p->synthetic_shape;
    s.n_synthetic = p->n_synthetic_shape;
    return ct_data_setup(l, &s);
}

const ct_layer_ops ct_layer_hdf5_data = {
    .type = "HDF5Data",
    .params = "transform_param hdf5_data_param",
    .min_top = 1,
    .max_top = CT_MAX_FIELD,
    .is_data = true,
    .state_size = sizeof(ct_data_state),
    .instance_state_size = sizeof(ct_data_instance),
    .setup = hdf5_data_setup,
    .reshape = ct_data_reshape,
    .forward = ct_data_forward,
    .release = ct_data_release,
    .destroy = ct_data_destroy,
    .on_cuda = true,
};

/* ---- ImageData: image files by a list of "path label". Tops as of Data. */

static ct_status image_data_setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__ImageDataParameter *p = l->param->image_data_param;
    const Ct__TransformationParameter *t = l->param->transform_param;
    ct_data_source s = { .backend = "images" };

    (void)bottom;
    if (p == NULL) return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "image_data_param is missing");
    if ((p->new_height > 0) != (p->new_width > 0)) {
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "new_height is %u and new_width %u: give both or neither",
                             p->new_height, p->new_width);
    }
    if ((p->new_height > 65536) || (p->new_width > 65536)) {
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "new_height %u, new_width %u: too large",
                             p->new_height, p->new_width);
    }
    if ((p->has_scale || (p->mean_file != NULL) || p->has_crop_size || p->has_mirror) &&
        (t == NULL)) {
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "scale, mean_file, crop_size and mirror belong in transform_param");
    }
    s.options.source = p->source;
    s.options.root_folder = p->root_folder;
    s.options.new_height = p->new_height;
    s.options.new_width = p->new_width;
    s.options.color = p->is_color ? CT_COLOR_BGR : CT_COLOR_GRAY;
    s.absent = (p->source == NULL) || (access(p->source, F_OK) != 0);
    s.batch_size = p->batch_size;
    s.has_shuffle = p->has_shuffle;
    s.shuffle = p->shuffle;
    s.rand_skip = p->rand_skip;
    s.threads = p->threads;
    s.synthetic = &p->synthetic_shape;
    s.n_synthetic = (p->synthetic_shape != NULL);
    return ct_data_setup(l, &s);
}

const ct_layer_ops ct_layer_image_data = {
    .type = "ImageData",
    .params = "transform_param image_data_param",
    .min_top = 1,
    .max_top = 2,
    .is_data = true,
    .state_size = sizeof(ct_data_state),
    .instance_state_size = sizeof(ct_data_instance),
    .setup = image_data_setup,
    .reshape = ct_data_reshape,
    .forward = ct_data_forward,
    .release = ct_data_release,
    .destroy = ct_data_destroy,
    .on_cuda = true,
};

/* ---- WindowData: windows of images by Caffe's window files, some foreground, the rest background.
 * Top 0: batch x channels x crop_size x crop_size; top 1 (if there): classes, 0 for background. */

static ct_status read_crop(const ct_layer *l, ct_window_rule *r)
{
    const Ct__WindowDataParameter *p = l->param->window_data_param;
    const Ct__TransformationParameter *t = l->param->transform_param;

    if ((t != NULL) && ((t->crop_h > 0) || (t->crop_w > 0)))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "transform_param.%s: windows become squares: give crop_size in place "
                             "of crop_h and crop_w",
                             (t->crop_h > 0) ? "crop_h" : "crop_w");
    if ((t == NULL) || (t->crop_size == 0))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "transform_param has no crop_size, the size that windows become");
    if ((t->crop_size > 65536) || (2 * (int64_t)p->context_pad >= t->crop_size))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "context_pad %u on both sides of crop_size %u: nothing is left",
                             p->context_pad, t->crop_size);
    r->crop = t->crop_size;
    r->context_pad = p->context_pad;
    r->square = strcmp(p->crop_mode, "square") == 0;
    if (!r->square && (strcmp(p->crop_mode, "warp") != 0))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "crop_mode \"%s\": \"warp\" or \"square\"",
                             p->crop_mode);
    return CT_OK;
}

static ct_status read_rule(const ct_layer *l, ct_window_rule *r)
{
    const Ct__WindowDataParameter *p = l->param->window_data_param;
    const Ct__TransformationParameter *t = l->param->transform_param;

    CT_TRY(read_crop(l, r));
    r->fg_threshold = p->fg_threshold;
    r->bg_threshold = p->bg_threshold;
    r->fg_fraction = p->fg_fraction;
    if (!(r->fg_fraction >= 0.0f) || !(r->fg_fraction <= 1.0f))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "fg_fraction is %g, must be 0 to 1",
                             (double)r->fg_fraction);
    if (isnan(r->fg_threshold) || isnan(r->bg_threshold))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "fg_threshold and bg_threshold must be numbers");
    r->mirror = t->mirror;
    r->scale = t->scale;
    r->mean_file = t->mean_file;
    r->mean_value = t->mean_value;
    r->n_mean_value = t->n_mean_value;
    r->cache = p->cache_images;
    if ((t->mean_file != NULL) && (t->n_mean_value > 0))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "transform_param has both mean_file and mean_value");
    if (t->pad > 0)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "transform_param.pad: windows have context_pad");
    if (ct_augment_named(t) != NULL)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "transform_param.%s: windows are not augmented",
                             ct_augment_named(t));
    return CT_OK;
}

static ct_status window_data_setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__WindowDataParameter *p = l->param->window_data_param;
    ct_window_rule rule = { 0 };
    ct_data_source s = { .backend = "windows", .whole = true };

    (void)bottom;
    if (p == NULL) return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "window_data_param is missing");
    CT_TRY(read_rule(l, &rule));
    s.options.source = p->source;
    s.options.root_folder = p->root_folder;
    s.options.color = CT_COLOR_BGR;
    s.options.window = &rule;
    s.absent = (p->source == NULL) || (access(p->source, F_OK) != 0);
    s.batch_size = p->batch_size;
    s.threads = p->threads;
    return ct_data_setup(l, &s);
}

const ct_layer_ops ct_layer_window_data = {
    .type = "WindowData",
    .params = "transform_param window_data_param",
    .min_top = 1,
    .max_top = 2,
    .is_data = true,
    .state_size = sizeof(ct_data_state),
    .instance_state_size = sizeof(ct_data_instance),
    .setup = window_data_setup,
    .reshape = ct_data_reshape,
    .forward = ct_data_forward,
    .release = ct_data_release,
    .destroy = ct_data_destroy,
    .on_cuda = true,
};

/* ---- TextData: a text as numbers of words, in columns of contiguous streams. Tops, each steps x
 * columns: the words; cont, 0 where a column starts anew, else 1; the words that follow them.
 *
 * A text of W words gives each of the G columns of the global batch L = (W - 1) / G words: column g
 * has those from g L on. Global step s takes the `steps` words of every column from place
 * (s mod E) * steps on, E = L / steps being the steps of an epoch: a function of s, whatever ran
 * before. A rank reads its own columns into memory, and nothing else. */

typedef struct text_state {
    char who[256];
    ct_words words;
    bool synthetic;
    int64_t vocabulary; /* of made-up words */
    int64_t batch_size, steps;
} text_state;

typedef struct text_instance {
    int64_t columns, first; /* of this rank, of the global batch */
    int64_t length;         /* L: words of a column              */
    int32_t *word;          /* columns x length, and one more; NULL: made up */
    float *values;          /* steps x columns, one top          */
} text_instance;

static ct_status setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__TextDataParameter *p = l->param->text_data_param;
    text_state *s = l->state;
    bool absent;

    (void)bottom;
    if (p == NULL) return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "text_data_param is missing");
    snprintf(s->who, sizeof(s->who), "%s%slayer \"%s\" (TextData)", l->where,
             (l->where[0] != '\0') ? ": " : "", l->name);
    s->batch_size = p->batch_size;
    s->steps = p->steps;
    s->vocabulary = p->synthetic_words;
    absent = (p->source == NULL) || (access(p->source, F_OK) != 0);
    s->synthetic = absent && l->env->synthetic;
    if (s->synthetic && (l->env->synthetic_batch > 0)) s->batch_size = l->env->synthetic_batch;
    if ((s->batch_size < 1) || (s->batch_size > INT32_MAX))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "batch_size, the columns, is %lld, must be at least 1",
                             (long long)s->batch_size);
    if (s->steps < 1)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "steps is 0; it counts the words of a column in a "
                             "batch");
    if (s->vocabulary < 1) return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "synthetic_words is 0");
    if (s->synthetic) return CT_OK;
    if (p->source == NULL) return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "source is not set");
    return ct_words_open(p->source, s->who, &s->words);
}

/* This rank's columns, with the word behind the last, which is what its end is followed by. */
static ct_status read_columns(const ct_layer *l, ct_instance *in)
{
    const text_state *s = l->state;
    text_instance *d = in->state;
    int64_t n = d->columns * d->length + 1;

    free(d->word);
    d->word = malloc((size_t)n * sizeof(*d->word));
    if (d->word == NULL)
        return CT_LAYER_FAIL(l, CT_ERR_NOMEM, "no memory for %lld words", (long long)n);
    return ct_words_read(&s->words, s->who, d->first * d->length, n, d->word);
}

static ct_status deal(const ct_layer *l, ct_instance *in)
{
    const text_state *s = l->state;
    text_instance *d = in->state;
    ct_share share;

    CT_TRY(ct_data_share(l, s->batch_size, &share));
    in->batch_local = d->columns = share.local;
    in->batch_global = share.global;
    in->batch_first = d->first = share.first;
    in->batch_axis = 1;
    if (s->synthetic) return CT_OK;
    d->length = (s->words.count - 1) / share.global;
    if (d->length < s->steps)
        return CT_LAYER_FAIL(
            l, CT_ERR_CONFIG, "%s has %lld words: too few for %lld columns of %lld steps",
            s->words.path, (long long)s->words.count, (long long)share.global, (long long)s->steps);
    in->n_sample = d->length / s->steps * share.global;
    return l->env->no_data ? CT_OK : read_columns(l, in);
}

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    const text_state *s = l->state;
    text_instance *d = in->state;
    ct_shape shape = { 2, { s->steps, 0 } };

    CT_TRY(deal(l, in));
    shape.dim[1] = d->columns;
    CT_TRY(ct_data_check_size(l, &shape));
    for (int i = 0; i < l->n_top; i++) ct_blob_set_shape(in->top[i], &shape);
    if (l->n_top > 1) in->top[1]->restarts_first = true;
    if (l->env->no_data) return CT_OK;
    free(d->values);
    d->values = malloc((size_t)(s->steps * d->columns) * sizeof(*d->values));
    if (d->values == NULL) return CT_LAYER_FAIL(l, CT_ERR_NOMEM, "no memory for a batch");
    return CT_OK;
}

/* Word `place` of this rank's column c, or of what follows the column. */
static float word_at(const text_state *s, const text_instance *d, const ct_exec *ex, int64_t c,
                     int64_t place)
{
    uint64_t key;

    if (d->word != NULL) return (float)d->word[c * d->length + place];
    key = ct_rng_key(ex->seed, (uint64_t)(d->first + c), (uint64_t)place);
    return (float)(key % (uint64_t)s->vocabulary);
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const text_state *s = l->state;
    const text_instance *d = in->state;
    int64_t epoch = d->word != NULL ? d->length / s->steps : INT64_MAX, n = s->steps * d->columns;
    int64_t from = ex->micro_step % epoch * s->steps;

    for (int i = 0; i < l->n_top; i++) {
        for (int64_t k = 0; k < n; k++) {
            int64_t t = k / d->columns, c = k % d->columns;

            if (i == 1)
                d->values[k] = (from + t == 0) ? 0.0f : 1.0f;
            else
                d->values[k] = word_at(s, d, ex, c, from + t + ((i == 2) ? 1 : 0));
        }
        CT_TRY(ct_data_put(ex, in->top[i], d->values, n));
    }
    return CT_OK;
}

static void release(const ct_layer *l, ct_instance *in)
{
    text_instance *d = in->state;

    (void)l;
    free(d->word);
    free(d->values);
}

static void destroy(ct_layer *l)
{
    text_state *s = l->state;

    ct_words_close(&s->words);
}

const ct_layer_ops ct_layer_text_data = {
    .type = "TextData",
    .params = "text_data_param",
    .min_top = 1,
    .max_top = 3,
    .is_data = true,
    .state_size = sizeof(text_state),
    .instance_state_size = sizeof(text_instance),
    .setup = setup,
    .reshape = reshape,
    .forward = forward,
    .release = release,
    .destroy = destroy,
    .on_cuda = true,
};
