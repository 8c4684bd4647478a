/* Layer types of Caffe and of its forks that are known and not there: what each would take. A type
 * that is in the table of layers is not looked up here. */
#include <stddef.h>
#include <string.h>

#include "framework/proto/foreign.h"

const ct_foreign_type ct_foreign_table[] = {
    { "AnnotatedData",
      "images with boxes are not read yet; give images and rows of true boxes "
      "(sample, class, instance, x0 y0 x1 y1, difficult) as two tops of HDF5Data" },
    { "BoxAnnotatorOHEM",
      "hard examples are not picked while a net runs; losses take all regions" },
    { "DetectionEvaluate", "average precision is not computed yet; write DetectionOutput's rows "
                           "with HDF5Output and evaluate them outside" },
    { "Proposal",
      "no boxes are proposed while a net runs; let proposals come in as boxes, through an "
      "Input or HDF5Data layer" },
    { "Python", "there is no interpreter in a run; write it with the layers there are, or as a "
                "layer in C (docs/contributing.md: one file, one line in a table), or compute its "
                "tops beforehand and read them with HDF5Data" },
    { "Region", "YOLO's layers are not there" },
    { "Reorg", "YOLO's layers are not there" },
    { "SmoothL1LossOHEM", "hard examples are not picked while a net runs; SmoothL1Loss takes all" },
    { "SoftmaxFocalLoss", "FocalLoss is, and takes a softmax too" },
    { "SoftmaxWithLossOHEM",
      "hard examples are not picked while a net runs; SoftmaxWithLoss takes all" },
    { "VideoData", "cut the video into images, and read them with ImageData" },
    { NULL, NULL },
};

const char *ct_foreign_why(const char *type)
{
    for (const ct_foreign_type *f = ct_foreign_table; f->type != NULL; f++) {
        if (strcmp(f->type, type) == 0) return f->why;
    }
    return NULL;
}
