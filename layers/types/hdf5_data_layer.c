/* HDF5Data: one data set a top, by the top's name. Unlike in Caffe, transform_param is allowed and
 * acts on the first top, so that 8-bit images can stay 8 bits in the file. */
#include <unistd.h>

#include "layers/types/data_common.h"
#include "layers/types/layer_types.h"

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
