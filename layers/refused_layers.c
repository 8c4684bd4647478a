/* Layer types that Caffe or a fork has and Cortado does not run: each says why, and what to use. */
#include "layers/layer_types.h"

#include <string.h>

static const struct {
    const char *type, *why;
} reason_table[] = {
    { "Filter",
      "how many samples pass changes from batch to batch, but shapes are fixed when a net "
      "is made; keep all samples, and multiply by the selector (Eltwise PROD, Scale) or "
      "give those that shall not count the loss's ignore_label" },
    { "AnnotatedData",
      "images with boxes are not read yet; give images and rows of true boxes (sample, "
      "class, instance, x0 y0 x1 y1, difficult) as two tops of HDF5Data" },
    { "DetectionEvaluate",
      "average precision is not computed yet; write DetectionOutput's rows with "
      "HDF5Output and evaluate them outside" },
    { "Python",
      "there is no interpreter in a run; write it with the layers there are, or as a layer "
      "in C (docs/contributing.md: one file, one line in a table)" },
};

static ct_status setup(ct_layer *l, const ct_shape *bottom)
{
    (void)bottom;
    for (size_t i = 0; i < sizeof(reason_table) / sizeof(reason_table[0]); i++) {
        if (strcmp(reason_table[i].type, l->ops->type) == 0)
            return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "this layer is not supported: %s",
                                 reason_table[i].why);
    }
    return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "this layer is not supported");
}

const ct_layer_ops ct_layer_filter = {
    .type = "Filter", .max_bottom = -1, .max_top = -1, .setup = setup
};
const ct_layer_ops ct_layer_annotated_data = {
    .type = "AnnotatedData", .max_bottom = -1, .max_top = -1, .setup = setup
};
const ct_layer_ops ct_layer_detection_evaluate = {
    .type = "DetectionEvaluate", .max_bottom = -1, .max_top = -1, .setup = setup
};
const ct_layer_ops ct_layer_python = {
    .type = "Python", .max_bottom = -1, .max_top = -1, .setup = setup
};
