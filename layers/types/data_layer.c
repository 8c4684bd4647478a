/* Data: records of an LMDB. Top 0: batch x channels x height x width; top 1 (if there): labels. */
#include <stdio.h>
#include <unistd.h>

#include "layers/types/data_common.h"
#include "layers/types/layer_types.h"

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

static ct_status data_setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__DataParameter *p = l->param->data_param;
    ct_data_source s = { .backend = "lmdb" };

    (void)bottom;
    if (p == NULL) return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "data_param is missing");
    CT_TRY(check_old(l));
    /* Caffe's default is LevelDB; a set without the field is taken for what we read */
    if (p->has_backend && (p->backend == CT__DATA_PARAMETER__DB__LEVELDB)) s.backend = "leveldb";
    s.options.source = p->source;
    s.options.color = color_of(l);
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

const ct_layer_ops ct_layer_data = {
    .type = "Data",
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
