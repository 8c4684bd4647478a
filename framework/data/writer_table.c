/* The backends there are; the only file that knows which are built in. */
#include "framework/data/writer.h"

#include <stddef.h>

#ifdef CT_HAVE_LMDB
#define LMDB &ct_writer_lmdb
#else
#define LMDB NULL
#endif

const ct_writer_entry ct_writer_table[] = {
    { "lmdb", LMDB, "LMDB (liblmdb-dev)" },
    { "hdf5", &ct_writer_hdf5, "" },
    { NULL, NULL, NULL },
};
