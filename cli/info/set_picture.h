/** @file set_picture.h  `cortado info --data=SET --picture=FILE`: samples of a set side by side,
 * with their labels, or their boxes, as a net gets them. */
#ifndef CT_SET_PICTURE_H
#define CT_SET_PICTURE_H

#include "framework/base/status.h"

/** Writes up to 64 samples of the set at `path`, evenly spread, as a PNG to `file`. model: a net
 * whose data layer of phase TRAIN reads them, NULL: as the set has them. Names of classes are the
 * net's, or those beside the set. CT_ERR_CONFIG: no pictures, or no such layer; CT_ERR_IO,
 * CT_ERR_DATA; logged. */
ct_status ct_set_picture(const char *path, const char *model, const char *file);

#endif
