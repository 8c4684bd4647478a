#include "framework/data/hdf5_set.h"

hid_t ct_hdf5_make_set(hid_t file, const char *name, hid_t type, int ndim, const hsize_t *dim)
{
    hid_t space = H5Screate_simple(ndim, dim, NULL), create = H5Pcreate(H5P_DATASET_CREATE);
    hid_t set = H5I_INVALID_HID;

    if (H5Pset_obj_track_times(create, false) >= 0)
        set = H5Dcreate2(file, name, type, space, H5P_DEFAULT, create, H5P_DEFAULT);
    H5Pclose(create);
    H5Sclose(space);
    return set;
}
