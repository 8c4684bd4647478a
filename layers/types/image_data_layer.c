/* ImageData: image files by a list of "path label". Tops as of Data. */
#include <unistd.h>

#include "layers/types/data_common.h"
#include "layers/types/layer_types.h"

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
