/* The backends there are; the only file that knows which are built in. */
#include "framework/data/reader_private.h"

#include <stddef.h>

const ct_reader_entry ct_reader_table[] = {
    { "lmdb", &ct_reader_lmdb, "" },
    { "hdf5", &ct_reader_hdf5, "" },
    { "images", &ct_reader_images, "" },
    { "synthetic", &ct_reader_synthetic, "" },
    { "windows", &ct_reader_windows, "" },
    { "leveldb", NULL,
      "LevelDB: convert the data set to LMDB, with `cortado convert` or with Caffe" },
    { NULL, NULL, NULL },
};
