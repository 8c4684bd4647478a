#include "tests/forge_hdf5.h"

#include <hdf5.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/hdf5.h"
#include "framework/snapshot/h5.h"
#include "framework/snapshot/snapshot_impl.h"

bool forge_create(const char *file)
{
    hid_t f;

    ct_hdf5_lock();
    f = H5Fcreate(file, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    if (f >= 0) H5Fclose(f);
    ct_hdf5_unlock();
    return f >= 0;
}

static hid_t open_without(const char *file, const char *path)
{
    hid_t f;

    ct_hdf5_lock();
    f = H5Fopen(file, H5F_ACC_RDWR, H5P_DEFAULT);
    if (f >= 0) (void)H5Ldelete(f, path, H5P_DEFAULT);
    return f;
}

static bool finish(hid_t f, bool good)
{
    if ((f >= 0) && (H5Fclose(f) < 0)) good = false;
    ct_hdf5_unlock();
    return good && (f >= 0);
}

/* Makes the array and writes it, where there are data. The space and the lists are closed. */
static bool put(hid_t f, const char *path, hid_t type, hid_t space, hid_t create, const void *data)
{
    hid_t link = H5Pcreate(H5P_LINK_CREATE), set;
    bool good;

    H5Pset_create_intermediate_group(link, 1);
    set = H5Dcreate2(f, path, type, space, link, create, H5P_DEFAULT);
    good = (set >= 0);
    if (good && (data != NULL))
        good = H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0;
    if (set >= 0) H5Dclose(set);
    H5Pclose(link);
    H5Sclose(space);
    if (create != H5P_DEFAULT) H5Pclose(create);
    return good;
}

bool forge_delete(const char *file, const char *path)
{
    return finish(open_without(file, path), true);
}

static bool put_scalar(const char *file, const char *path, hid_t type, const void *data)
{
    hid_t f = open_without(file, path);

    return finish(f, put(f, path, type, H5Screate(H5S_SCALAR), H5P_DEFAULT, data));
}

bool forge_int(const char *file, const char *path, int64_t v)
{
    return put_scalar(file, path, H5T_NATIVE_INT64, &v);
}

bool forge_double(const char *file, const char *path, double v)
{
    return put_scalar(file, path, H5T_NATIVE_DOUBLE, &v);
}

bool forge_doubles(const char *file, const char *path, int64_t n, const double *v)
{
    hid_t f = open_without(file, path), space;
    hsize_t dim = (hsize_t)n;

    space = H5Screate_simple(1, &dim, NULL);
    return finish(f, put(f, path, H5T_NATIVE_DOUBLE, space, H5P_DEFAULT, v));
}

static hid_t text_type(int64_t size)
{
    hid_t type = H5Tcopy(H5T_C_S1);

    H5Tset_size(type, (size > 0) ? (size_t)size : H5T_VARIABLE);
    return type;
}

bool forge_text(const char *file, const char *path, int64_t size, int64_t count, char fill)
{
    hid_t f = open_without(file, path), type = text_type(size);
    hsize_t n = (hsize_t)count;
    size_t bytes = (size_t)(size * ((count > 0) ? count : 1));
    char *data = malloc(bytes);
    bool good = (data != NULL);

    if (good) {
        memset(data, fill, bytes);
        good =
            put(f, path, type, (count > 0) ? H5Screate_simple(1, &n, NULL) : H5Screate(H5S_SCALAR),
                H5P_DEFAULT, data);
    }
    free(data);
    H5Tclose(type);
    return finish(f, good);
}

bool forge_words(const char *file, const char *path, const char *text)
{
    hid_t f = open_without(file, path), type = text_type((int64_t)strlen(text) + 1);
    bool good = put(f, path, type, H5Screate(H5S_SCALAR), H5P_DEFAULT, text);

    H5Tclose(type);
    return finish(f, good);
}

bool forge_variable(const char *file, const char *path, const char *text)
{
    hid_t f = open_without(file, path), type = text_type(0);
    bool good = put(f, path, type, H5Screate(H5S_SCALAR), H5P_DEFAULT, &text);

    H5Tclose(type);
    return finish(f, good);
}

bool forge_null(const char *file, const char *path)
{
    hid_t f = open_without(file, path);

    return finish(f, put(f, path, H5T_IEEE_F32LE, H5Screate(H5S_NULL), H5P_DEFAULT, NULL));
}

bool forge_floats(const char *file, const char *path, int n_dim, const int64_t *dim, bool filtered)
{
    hid_t f = open_without(file, path), create = H5Pcreate(H5P_DATASET_CREATE);
    hsize_t size[H5S_MAX_RANK] = { 0 };

    for (int i = 0; i < n_dim; i++) size[i] = (hsize_t)dim[i];
    if (filtered) {
        H5Pset_chunk(create, n_dim, size);
        H5Pset_deflate(create, 1);
    }
    return finish(f,
                  put(f, path, H5T_IEEE_F32LE, H5Screate_simple(n_dim, size, NULL), create, NULL));
}

bool forge_bytes(const char *file, const char *path, int64_t n)
{
    hid_t f = open_without(file, path);
    hsize_t size = (hsize_t)n;

    return finish(f,
                  put(f, path, H5T_STD_U8LE, H5Screate_simple(1, &size, NULL), H5P_DEFAULT, NULL));
}

bool forge_external(const char *file, const char *path, int64_t n, const char *other)
{
    hid_t f = open_without(file, path), create = H5Pcreate(H5P_DATASET_CREATE);
    hsize_t size = (hsize_t)n;

    H5Pset_external(create, other, 0, (hsize_t)n * sizeof(float));
    return finish(f, put(f, path, H5T_IEEE_F32LE, H5Screate_simple(1, &size, NULL), create, NULL));
}

bool forge_deep(const char *file, const char *path, int depth)
{
    hid_t f = open_without(file, path), group = H5Gcreate2(f, path, 0, 0, 0);
    bool good = (group >= 0);

    for (int i = 0; (i < depth) && good; i++) {
        hid_t inner = H5Gcreate2(group, "a", 0, 0, 0);

        H5Gclose(group);
        group = inner;
        good = (inner >= 0);
    }
    if (group >= 0) H5Gclose(group);
    return finish(f, good);
}

bool forge_loop(const char *file, const char *path)
{
    hid_t f = open_without(file, path), group = H5Gcreate2(f, path, 0, 0, 0);
    bool good = (group >= 0);

    if (good) {
        good = (H5Lcreate_hard(group, ".", group, "a", 0, 0) >= 0) &&
               (H5Lcreate_hard(group, ".", group, "b", 0, 0) >= 0);
        H5Gclose(group);
    }
    return finish(f, good);
}

bool forge_link(const char *file, const char *path, const char *other, const char *object)
{
    hid_t f = open_without(file, path);

    return finish(f, H5Lcreate_external(other, object, f, path, 0, 0) >= 0);
}

bool forge_seal(const char *file)
{
    char head[CT_H5_HEAD] = { 0 };
    uint64_t hash = 0;
    int64_t size;
    FILE *f;
    bool good;

    if (ct_h5_file_hash(file, CT_H5_HEAD, &hash, &size) != CT_OK) return false;
    snprintf(head, sizeof(head), "%s %016" PRIx64 "\n", CT_STATE_TITLE, hash);
    f = fopen(file, "r+b");
    if (f == NULL) return false;
    good = fwrite(head, 1, sizeof(head), f) == sizeof(head);
    return (fclose(f) == 0) && good;
}
