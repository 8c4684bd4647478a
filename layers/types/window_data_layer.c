/* WindowData: windows of images by Caffe's window files, some foreground, the rest background. Top
 * 0: batch x channels x crop_size x crop_size; top 1 (if there): classes, 0 for background. */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "framework/data/window_rule.h"
#include "layers/types/data_common.h"
#include "layers/types/layer_types.h"

static ct_status read_crop(const ct_layer *l, ct_window_rule *r)
{
    const Ct__WindowDataParameter *p = l->param->window_data_param;
    const Ct__TransformationParameter *t = l->param->transform_param;

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
