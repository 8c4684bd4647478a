/* Layer types of Caffe and of its forks that are known and not there: what each would take. A type
 * that a table holds is never looked up here. */
#include <stddef.h>
#include <string.h>

#include "framework/net/graph.h"

static const struct {
    const char *type, *why;
} foreign[] = {
    { "AnnotatedData", "images with boxes in SSD's databases are not read" },
    { "ConvolutionDepthwise", "DepthwiseConvolution, or Convolution with group = channels, is" },
    { "DetectionEvaluate", "precision of detections is computed outside of the net, from what "
                           "DetectionOutput gives" },
    { "HDF5Output", "make the blob an output of the net instead" },
    { "MemoryData", "it gets its data from a program that calls Caffe; Input, or a data layer that "
                    "reads files, takes its place" },
    { "Proposal", "proposals are made outside of the net and come in as boxes, through an Input or "
                  "HDF5Data layer" },
    { "Python",
      "no Python runs inside a net; write a layer in C (docs/contributing.md), or compute "
      "its top beforehand and read it with HDF5Data" },
    { "Region", "YOLO's layers are not there" },
    { "Reorg", "YOLO's layers are not there" },
    { "SoftmaxFocalLoss", "FocalLoss is, and takes a softmax too" },
    { "VideoData", "cut the video into images, and read them with ImageData" },
    { "WindowData", "cut the windows out of the images beforehand, and read them with ImageData" },
};

const char *ct_net_foreign_type(const char *type)
{
    for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++) {
        if (strcmp(foreign[i].type, type) == 0) return foreign[i].why;
    }
    return NULL;
}
