#include "framework/snapshot/h5.h"

#include <hdf5.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/hash.h"
#include "framework/base/hdf5_lock.h"
#include "framework/base/text.h"

struct ct_h5_reader {
    hid_t file;
    char *path;
};

/* An access list without file locks: not every parallel file system has them. */
static hid_t make_access(void)
{
    hid_t list = H5Pcreate(H5P_FILE_ACCESS);

#if H5_VERSION_GE(1, 12, 1) || (H5_VERSION_GE(1, 10, 7) && !H5_VERSION_GE(1, 12, 0))
    H5Pset_file_locking(list, false, true);
#endif
    return list;
}

ct_status ct_h5_file_hash(const char *path, int64_t from, uint64_t *hash_p, int64_t *size_p)
{
    enum { BLOCK = 1 << 20 };
    FILE *f = fopen(path, "rb");
    char *block = malloc(BLOCK);
    ct_status status = CT_ERR_IO;
    int64_t size = from;
    ct_hash hash;
    size_t n;

    ct_hash_init(&hash);
    if ((f == NULL) || (block == NULL) || (fseeko(f, from, SEEK_SET) != 0)) goto out;
    while ((n = fread(block, 1, BLOCK, f)) > 0) {
        ct_hash_add(&hash, block, n);
        size += (int64_t)n;
    }
    if (ferror(f) != 0) goto out;
    *hash_p = ct_hash_value(&hash);
    *size_p = size;
    status = CT_OK;
out:
    free(block);
    if (f != NULL) fclose(f);
    return status;
}

bool ct_h5_is_hdf5(const char *path)
{
    htri_t is;

    ct_hdf5_lock();
    is = H5Fis_hdf5(path);
    ct_hdf5_unlock();
    return is > 0;
}

ct_status ct_h5_reader_create(const char *path, ct_h5_reader **r_p)
{
    ct_h5_reader *r = calloc(1, sizeof(*r));
    hid_t list;

    if ((r == NULL) || ((r->path = strdup(path)) == NULL)) {
        free(r);
        return CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", path);
    }
    ct_hdf5_lock();
    list = make_access();
    r->file = H5Fopen(path, H5F_ACC_RDONLY, list);
    H5Pclose(list);
    ct_hdf5_unlock();
    if (r->file < 0) {
        ct_h5_reader_destroy(r);
        return CT_FAIL(CT_ERR_IO, "%s: cannot be opened as HDF5", path);
    }
    *r_p = r;
    return CT_OK;
}

void ct_h5_reader_destroy(ct_h5_reader *r)
{
    if (r == NULL) return;
    ct_hdf5_lock();
    if (r->file >= 0) H5Fclose(r->file);
    ct_hdf5_unlock();
    free(r->path);
    free(r);
}

/* H5Lexists wants every group on the way to exist: it is asked for each prefix. */
static bool has(hid_t file, const char *path)
{
    char *part = strdup(path);
    bool found = (part != NULL);

    for (char *p = part; found; *p = '/') {
        p = strchr(p + 1, '/');
        if (p != NULL) *p = '\0';
        found = H5Lexists(file, part, H5P_DEFAULT) > 0;
        if (p == NULL) break;
    }
    free(part);
    return found;
}

bool ct_h5_has(ct_h5_reader *r, const char *path)
{
    bool found;

    ct_hdf5_lock();
    found = has(r->file, path);
    ct_hdf5_unlock();
    return found;
}

/* The dataset at path, or a logged error. */
static ct_status open_set(ct_h5_reader *r, const char *path, hid_t *set_p)
{
    hid_t set = has(r->file, path) ? H5Dopen2(r->file, path, H5P_DEFAULT) : -1;

    if (set < 0) return CT_FAIL(CT_ERR_DATA, "%s: holds no array %s", r->path, path);
    *set_p = set;
    return CT_OK;
}

static ct_status get_shape(ct_h5_reader *r, hid_t set, const char *path, ct_shape *shape_p)
{
    hid_t space = H5Dget_space(set);
    hsize_t dim[H5S_MAX_RANK];
    int n = (space >= 0) ? H5Sget_simple_extent_dims(space, dim, NULL) : -1;

    if (space >= 0) H5Sclose(space);
    if ((n < 0) || (n > CT_MAX_DIM))
        return CT_FAIL(CT_ERR_DATA, "%s: %s has %d dimensions, at most %d are known", r->path, path,
                       n, CT_MAX_DIM);
    memset(shape_p, 0, sizeof(*shape_p));
    shape_p->ndim = n;
    for (int i = 0; i < n; i++) shape_p->dim[i] = (int64_t)dim[i];
    return ct_shape_check(shape_p);
}

ct_status ct_h5_get_shape(ct_h5_reader *r, const char *path, ct_shape *shape_p)
{
    ct_status status;
    hid_t set = -1;

    ct_hdf5_lock();
    status = open_set(r, path, &set);
    if (status == CT_OK) {
        status = get_shape(r, set, path, shape_p);
        H5Dclose(set);
    }
    ct_hdf5_unlock();
    return status;
}

/* Reads an array of numbers that has between 0 and capacity elements, or exactly `exact`. */
static ct_status get_numbers(ct_h5_reader *r, const char *path, hid_t type, int64_t exact,
                             int64_t capacity, void *data, int64_t *n_p)
{
    ct_shape shape = { 0 };
    ct_status status;
    int64_t n = 0;
    hid_t set = -1;

    ct_hdf5_lock();
    CT_TRY_GOTO(status, out, open_set(r, path, &set));
    CT_TRY_GOTO(status, out, get_shape(r, set, path, &shape));
    n = ct_shape_count(&shape, 0, -1);
    if ((n > capacity) || ((exact >= 0) && (n != exact))) {
        status = CT_FAIL(CT_ERR_DATA, "%s: %s has %" PRId64 " elements, expected %s%" PRId64,
                         r->path, path, n, (exact >= 0) ? "" : "at most ", capacity);
    } else if ((n > 0) && (H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0)) {
        status = CT_FAIL(CT_ERR_DATA, "%s: %s cannot be read as numbers", r->path, path);
    }
    if (n_p != NULL) *n_p = n;
out:
    if (set >= 0) H5Dclose(set);
    ct_hdf5_unlock();
    return status;
}

ct_status ct_h5_get_floats(ct_h5_reader *r, const char *path, int64_t count, float *data)
{
    return get_numbers(r, path, H5T_NATIVE_FLOAT, count, count, data, NULL);
}

ct_status ct_h5_get_doubles(ct_h5_reader *r, const char *path, int64_t capacity, double *v,
                            int64_t *n_p)
{
    return get_numbers(r, path, H5T_NATIVE_DOUBLE, -1, capacity, v, n_p);
}

ct_status ct_h5_get_int(ct_h5_reader *r, const char *path, int64_t *v_p)
{
    return get_numbers(r, path, H5T_NATIVE_INT64, 1, 1, v_p, NULL);
}

ct_status ct_h5_get_text(ct_h5_reader *r, const char *path, char **text_p)
{
    ct_status status;
    char *text = NULL;
    hid_t set = -1, type = -1;
    size_t size = 0;

    ct_hdf5_lock();
    CT_TRY_GOTO(status, out, open_set(r, path, &set));
    type = H5Dget_type(set);
    if ((type >= 0) && (H5Tget_class(type) == H5T_STRING) && (H5Tis_variable_str(type) == 0))
        size = H5Tget_size(type);
    if (size > 0) text = calloc(1, size + 1);
    if ((text == NULL) || (H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, text) < 0)) {
        status = CT_FAIL(CT_ERR_DATA, "%s: %s cannot be read as text", r->path, path);
        free(text);
        goto out;
    }
    *text_p = text;
out:
    if (type >= 0) H5Tclose(type);
    if (set >= 0) H5Dclose(set);
    ct_hdf5_unlock();
    return status;
}

typedef struct visit_ctx {
    ct_status (*visit)(void *ctx, const char *path);
    void *ctx;
    ct_status status;
} visit_ctx;

static herr_t visit_link(hid_t group, const char *name, const H5L_info_t *info, void *arg)
{
    hid_t object = H5Oopen(group, name, H5P_DEFAULT);
    bool array = (object >= 0) && (H5Iget_type(object) == H5I_DATASET);
    visit_ctx *v = arg;

    (void)info;
    if (object >= 0) H5Oclose(object);
    if (!array) return 0;
    v->status = v->visit(v->ctx, name);
    return (v->status == CT_OK) ? 0 : 1;
}

ct_status ct_h5_visit(ct_h5_reader *r, const char *group,
                      ct_status (*visit)(void *ctx, const char *path), void *ctx)
{
    visit_ctx v = { .visit = visit, .ctx = ctx, .status = CT_OK };
    herr_t rc = -1;
    hid_t id;

    ct_hdf5_lock();
    id = has(r->file, group) ? H5Gopen2(r->file, group, H5P_DEFAULT) : -1;
    if (id >= 0) {
        rc = H5Lvisit(id, H5_INDEX_NAME, H5_ITER_INC, visit_link, &v);
        H5Gclose(id);
    }
    ct_hdf5_unlock();
    if (rc < 0) return CT_FAIL(CT_ERR_DATA, "%s: holds no group %s", r->path, group);
    return v.status;
}
