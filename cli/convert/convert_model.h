/** @file convert_model.h  `cortado convert model`: weights from one format to another. */
#ifndef CT_CONVERT_MODEL_H
#define CT_CONVERT_MODEL_H

#include "framework/data/convert.h"

/** Reads the weights of `from`, in whatever format, and writes them to `to` in the format that its
 *  name says; without `to` lists them on stdout. net: takes shapes and layers' fields from this
 *  prototxt. CT_ERR_CONFIG, CT_ERR_IO, CT_ERR_DATA, CT_ERR_SHAPE. */
ct_status ct_convert_model(const ct_convert_options *o);

#endif
