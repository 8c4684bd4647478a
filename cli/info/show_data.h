/** @file show_data.h  `cortado info --data=PATH`. */
#ifndef CT_SHOW_DATA_H
#define CT_SHOW_DATA_H

#include "framework/base/status.h"

/** Prints what a data set is: LMDB, in shards too, or an HDF5 file with `data` and `label`. */
ct_status ct_show_data(const char *path);

#endif
