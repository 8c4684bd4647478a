/* The backends there are; the only file that knows which are built in. */
#include "framework/data/reader_private.h"

#include <stddef.h>

#ifdef CT_HAVE_LMDB
#define LMDB &ct_reader_lmdb
#else
#define LMDB NULL
#endif

const ct_reader_entry ct_reader_table[] = {
    { "lmdb", LMDB, "LMDB (liblmdb-dev)" },
    { "hdf5", &ct_reader_hdf5, "" },
    { "images", &ct_reader_images, "" },
    { "synthetic", &ct_reader_synthetic, "" },
    { "windows", &ct_reader_windows, "" },
    { "leveldb", NULL,
      "LevelDB: convert the data set to LMDB, with `cortado convert` or with Caffe" },
    { NULL, NULL, NULL },
};
