#include "framework/base/hdf5.h"

#include <hdf5.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The library it guards is one per process, so is the lock. */
static pthread_mutex_t lock;
static pthread_once_t lock_once = PTHREAD_ONCE_INIT;

static void lock_init(void)
{
    pthread_mutexattr_t attr;

    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&lock, &attr);
    pthread_mutexattr_destroy(&attr);
    /* at exit the library would try once more to write files that a full disk kept it from writing,
     * and crash; ours are closed by then */
    H5dont_atexit();
}

void ct_hdf5_lock(void)
{
    pthread_once(&lock_once, lock_init);
    pthread_mutex_lock(&lock);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL); /* a thread-safe HDF5 keeps this per thread */
}

void ct_hdf5_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

enum {
    MAX_ITEM = 16, /* bytes of a number: long double */
    DENSEST = 2048 /* values in place of each stored byte: deflate comes to 1032 */
};

/* ---- arrays */

static const int64_t max_chunk = (int64_t)512 << 20; /* bytes that a filter takes at once */
static const int64_t small = (int64_t)1 << 20;       /* bytes that may be missing in any file */

static bool is_regular(const char *path)
{
    struct stat st;

    return (stat(path, &st) == 0) && S_ISREG(st.st_mode);
}

hid_t ct_hdf5_open(const char *path)
{
    hid_t access, file;

    if (!is_regular(path)) return -1;
    access = H5Pcreate(H5P_FILE_ACCESS);
#if H5_VERSION_GE(1, 12, 1) || (H5_VERSION_GE(1, 10, 7) && !H5_VERSION_GE(1, 12, 0))
    H5Pset_file_locking(access, false, true);
#endif
    file = H5Fopen(path, H5F_ACC_RDONLY, access);
    H5Pclose(access);
    return file;
}

static herr_t refuse_link(const char *parent, const char *parent_group, const char *child,
                          const char *child_object, unsigned *flags, hid_t access, void *ctx)
{
    (void)parent;
    (void)parent_group;
    (void)child;
    (void)child_object;
    (void)flags;
    (void)access;
    (void)ctx;
    return -1;
}

/* The library looks for the file beside the one with the link, and from the working folder. */
static herr_t check_link(const char *parent, const char *parent_group, const char *child,
                         const char *child_object, unsigned *flags, hid_t access, void *ctx)
{
    const char *slash = strrchr(parent, '/');
    char beside[4096];
    struct stat st;
    int n = snprintf(beside, sizeof(beside), "%.*s%s",
                     (slash != NULL) ? (int)(slash + 1 - parent) : 0, parent, child);

    (void)parent_group;
    (void)child_object;
    (void)flags;
    (void)access;
    (void)ctx;
    if ((n < 0) || ((size_t)n >= sizeof(beside))) return -1;
    if ((stat(beside, &st) == 0) && !S_ISREG(st.st_mode)) return -1;
    return ((stat(child, &st) == 0) && !S_ISREG(st.st_mode)) ? -1 : 0;
}

hid_t ct_hdf5_link_access(void)
{
    hid_t access = H5Pcreate(H5P_LINK_ACCESS);

    H5Pset_elink_cb(access, refuse_link, NULL);
    return access;
}

hid_t ct_hdf5_open_object(hid_t group, const char *name)
{
    hid_t access = ct_hdf5_link_access(), object = H5Oopen(group, name, access);

    H5Pclose(access);
    return object;
}

static hid_t open_set(hid_t file, const char *name, H5L_elink_traverse_t link)
{
    hid_t access = H5Pcreate(H5P_DATASET_ACCESS), set = -1;

    if (H5Pset_elink_cb(access, link, NULL) >= 0) set = H5Dopen2(file, name, access);
    H5Pclose(access);
    return set;
}

hid_t ct_hdf5_open_set_anywhere(hid_t file, const char *name)
{
    return open_set(file, name, check_link);
}

/* Whether the name, or a group on the way, is a link into another file. */
static bool is_outside(hid_t file, const char *name)
{
    hid_t access = ct_hdf5_link_access();
    char *part = strdup(name);
    bool there = (part != NULL), outside = false;

    for (char *p = part; there && !outside; *p = '/') {
        H5L_info_t info;

        p = strchr(p + 1, '/');
        if (p != NULL) *p = '\0';
        there = H5Lget_info(file, part, &info, access) >= 0;
        outside = there && (info.type == H5L_TYPE_EXTERNAL);
        if (p == NULL) break;
    }
    H5Pclose(access);
    free(part);
    return outside;
}

/* Its space is not asked for before: a virtual set opens its files for that. */
static bool lies_elsewhere(hid_t set)
{
    hid_t create = H5Dget_create_plist(set);
    bool elsewhere = (create >= 0) && ((H5Pget_layout(create) == H5D_VIRTUAL) ||
                                       (H5Pget_external_count(create) != 0));

    if (create >= 0) H5Pclose(create);
    return elsewhere;
}

hid_t ct_hdf5_open_set(hid_t file, const char *name, char why[CT_HDF5_WHY])
{
    hid_t set = open_set(file, name, refuse_link);

    why[0] = '\0';
    if ((set < 0) && is_outside(file, name))
        snprintf(why, CT_HDF5_WHY, "is a link to another file");
    if ((set < 0) || !lies_elsewhere(set)) return set;
    snprintf(why, CT_HDF5_WHY, "lies in other files");
    H5Dclose(set);
    return -1;
}

static bool refuse(char why[CT_HDF5_WHY], const char *reason)
{
    snprintf(why, CT_HDF5_WHY, "%s", reason);
    return false;
}

static bool look_at_type(hid_t set, ct_hdf5_array *a)
{
    hid_t type = H5Dget_type(set);

    if (type < 0) return false;
    a->kind = H5Tget_class(type);
    a->item = (int64_t)H5Tget_size(type);
    a->is_text = (a->kind == H5T_STRING) && (H5Tis_variable_str(type) == 0);
    a->is_bytes = (a->kind == H5T_INTEGER) && (a->item == 1) && (H5Tget_sign(type) == H5T_SGN_NONE);
    H5Tclose(type);
    return a->item > 0;
}

static bool look_at_space(hid_t space, ct_hdf5_array *a, char why[CT_HDF5_WHY])
{
    H5S_class_t kind = H5Sget_simple_extent_type(space);
    hsize_t dim[H5S_MAX_RANK] = { 0 };
    int64_t count = 1, bytes;

    if ((kind != H5S_SCALAR) && (kind != H5S_SIMPLE)) return refuse(why, "holds nothing");
    a->n_dim = H5Sget_simple_extent_ndims(space);
    if ((a->n_dim < 0) || (a->n_dim > CT_HDF5_MAX_DIM)) {
        snprintf(why, CT_HDF5_WHY, "has %d dimensions, at most %d are known", a->n_dim,
                 CT_HDF5_MAX_DIM);
        return false;
    }
    if ((a->n_dim > 0) && (H5Sget_simple_extent_dims(space, dim, NULL) != a->n_dim))
        return refuse(why, "has no shape");
    for (int i = 0; i < a->n_dim; i++) {
        a->dim[i] = (int64_t)dim[i];
        /* axes without elements count too: parts of the shape are multiplied elsewhere */
        if ((dim[i] > INT64_MAX) ||
            __builtin_mul_overflow(count, (dim[i] > 0) ? a->dim[i] : 1, &count) ||
            __builtin_mul_overflow(count, a->item, &bytes) || (bytes > INT64_MAX / 16))
            return refuse(why, "has an impossible size");
    }
    a->count = count;
    for (int i = 0; i < a->n_dim; i++)
        if (a->dim[i] == 0) a->count = 0;
    return true;
}

/* A filter takes a chunk as a whole, whatever part of it is asked for. */
static bool check_chunk(hid_t create, const ct_hdf5_array *a, char why[CT_HDF5_WHY])
{
    hsize_t chunk[CT_HDF5_MAX_DIM] = { 0 };
    int64_t bytes = a->item;

    if ((H5Pget_layout(create) != H5D_CHUNKED) || (H5Pget_nfilters(create) <= 0)) return true;
    if (H5Pget_chunk(create, CT_HDF5_MAX_DIM, chunk) != a->n_dim)
        return refuse(why, "has chunks of another rank");
    for (int i = 0; i < a->n_dim; i++)
        if ((chunk[i] > INT32_MAX * 2ull + 1) ||
            __builtin_mul_overflow(bytes, (int64_t)chunk[i], &bytes) || (bytes > max_chunk))
            return refuse(why, "has compressed chunks of more than 512 MiB");
    return true;
}

bool ct_hdf5_look(hid_t set, ct_hdf5_array *a_p, char why[CT_HDF5_WHY])
{
    hid_t space = H5Dget_space(set), create = H5Dget_create_plist(set);
    ct_hdf5_array a = { .kind = H5T_NO_CLASS };
    bool good = false;

    if (!look_at_type(set, &a) || (space < 0) || (create < 0)) {
        refuse(why, "is broken");
    } else {
        a.elsewhere = lies_elsewhere(set);
        good = look_at_space(space, &a, why) && check_chunk(create, &a, why);
    }
    if (create >= 0) H5Pclose(create);
    if (space >= 0) H5Sclose(space);
    if (good) *a_p = a;
    return good;
}

bool ct_hdf5_look_numbers(hid_t set, ct_hdf5_array *a_p, char why[CT_HDF5_WHY])
{
    if (!ct_hdf5_look(set, a_p, why)) return false;
    if (((a_p->kind != H5T_INTEGER) && (a_p->kind != H5T_FLOAT)) || (a_p->item > MAX_ITEM))
        return refuse(why, "holds no numbers");
    return true;
}

bool ct_hdf5_holds(hid_t set, const ct_hdf5_array *a, int64_t bytes, bool by_chunk,
                   char why[CT_HDF5_WHY])
{
    hid_t create, file;
    hsize_t size = 0, there;
    bool chunked = true, filtered = true;
    double room;

    if (a->elsewhere || (bytes <= small)) return true;
    file = H5Iget_file_id(set);
    create = H5Dget_create_plist(set);
    if (create >= 0) {
        chunked = (H5Pget_layout(create) == H5D_CHUNKED);
        filtered = (H5Pget_nfilters(create) != 0);
        H5Pclose(create);
    }
    if (file >= 0) {
        if (H5Fget_filesize(file, &size) < 0) size = 0;
        H5Fclose(file);
    }
    there = (!chunked || by_chunk) ? H5Dget_storage_size(set) : size;
    room = (double)((there < size) ? there : size) * (filtered ? (double)DENSEST : 1.0);
    if ((double)bytes <= room + (double)small) return true;
    snprintf(why, CT_HDF5_WHY, "claims %" PRId64 " bytes, more than the file can hold", bytes);
    return false;
}

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
