#include "framework/snapshot/h5.h"

#include <hdf5.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "framework/base/file.h"
#include "framework/base/hash.h"
#include "framework/base/hdf5.h"
#include "framework/base/text.h"

enum {
    MAX_DEPTH = 32,     /* of groups: names of layers have slashes */
    MAX_LINK = 1 << 18, /* of a file that is looked through        */
    MAX_NAME = 4096
};

static const int64_t max_text = (int64_t)64 << 20;

struct ct_h5_reader {
    hid_t file;
    char *path;
    ct_text *why; /* takes errors in place of the log; NULL: none */
};

__attribute__((format(printf, 3, 4))) static ct_status fail(const ct_h5_reader *r, ct_status status,
                                                            const char *fmt, ...)
{
    char text[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (r->why == NULL) return CT_FAIL(status, "%s: %s", r->path, text);
    ct_text_add(r->why, "%s: %s", r->path, text);
    return status;
}

ct_status ct_h5_file_hash(const char *path, int64_t from, uint64_t *hash_p, int64_t *size_p)
{
    enum { BLOCK = 1 << 20 };
    FILE *f = ct_file_open_stream(path);
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
    struct stat st;
    htri_t is;

    if ((stat(path, &st) != 0) || !S_ISREG(st.st_mode)) return false; /* a pipe would never open */
    ct_hdf5_lock();
    is = H5Fis_hdf5(path);
    ct_hdf5_unlock();
    return is > 0;
}

ct_status ct_h5_reader_create(const char *path, ct_text *why, ct_h5_reader **r_p)
{
    ct_h5_reader *r = calloc(1, sizeof(*r));

    if ((r == NULL) || ((r->path = strdup(path)) == NULL)) {
        free(r);
        return CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", path);
    }
    ct_hdf5_lock();
    r->file = ct_hdf5_open(path);
    ct_hdf5_unlock();
    r->why = why;
    if (r->file < 0) {
        ct_status status = fail(r, CT_ERR_IO, "cannot be opened as HDF5");

        ct_h5_reader_destroy(r);
        return status;
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
    hid_t access = ct_hdf5_link_access();

    for (char *p = part; found; *p = '/') {
        p = strchr(p + 1, '/');
        if (p != NULL) *p = '\0';
        found = H5Lexists(file, part, access) > 0;
        if (p == NULL) break;
    }
    H5Pclose(access);
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

/* What is wrong with the array at path. */
static ct_status bad(const ct_h5_reader *r, const char *path, const char *why)
{
    return fail(r, CT_ERR_DATA, "%s %s", path, why);
}

/* The array at path, of numbers or of text, or a logged error. */
static ct_status open_set(ct_h5_reader *r, const char *path, bool numbers, hid_t *set_p,
                          ct_hdf5_array *a_p)
{
    char why[CT_HDF5_WHY];
    hid_t set = ct_hdf5_open_set(r->file, path, why);

    if (set < 0) {
        if (why[0] != '\0') return bad(r, path, why);
        return fail(r, CT_ERR_DATA, "holds no array %s", path);
    }
    if (numbers ? ct_hdf5_look_numbers(set, a_p, why) : ct_hdf5_look(set, a_p, why)) {
        *set_p = set;
        return CT_OK;
    }
    H5Dclose(set);
    return bad(r, path, why);
}

ct_status ct_h5_get_shape(ct_h5_reader *r, const char *path, ct_shape *shape_p)
{
    char why[CT_HDF5_WHY];
    ct_hdf5_array a;
    ct_status status;
    hid_t set = -1;

    ct_hdf5_lock();
    CT_TRY_GOTO(status, out, open_set(r, path, true, &set, &a));
    /* whoever asks takes memory for it */
    if (!ct_hdf5_holds(set, &a, a.count * a.item, true, why)) {
        status = bad(r, path, why);
        goto out;
    }
    *shape_p = (ct_shape){ .ndim = a.n_dim };
    for (int i = 0; i < a.n_dim; i++) shape_p->dim[i] = a.dim[i];
out:
    if (set >= 0) H5Dclose(set);
    ct_hdf5_unlock();
    return status;
}

/* Reads an array of numbers that has between 0 and capacity elements, or exactly `exact`. */
static ct_status get_numbers(ct_h5_reader *r, const char *path, hid_t type, int64_t exact,
                             int64_t capacity, void *data, int64_t *n_p)
{
    ct_hdf5_array a = { .count = 0 };
    ct_status status;
    hid_t set = -1;

    ct_hdf5_lock();
    CT_TRY_GOTO(status, out, open_set(r, path, true, &set, &a));
    if ((a.count > capacity) || ((exact >= 0) && (a.count != exact))) {
        status = fail(r, CT_ERR_DATA, "%s has %" PRId64 " elements, expected %s%" PRId64, path,
                      a.count, (exact >= 0) ? "" : "at most ", capacity);
    } else if ((a.count > 0) && (H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0)) {
        status = bad(r, path, "cannot be read as numbers");
    }
    if (n_p != NULL) *n_p = a.count;
out:
    if (set >= 0) H5Dclose(set);
    ct_hdf5_unlock();
    return status;
}

ct_status ct_h5_get_floats(ct_h5_reader *r, const char *path, int64_t count, float *data)
{
    return get_numbers(r, path, H5T_NATIVE_FLOAT, count, count, data, NULL);
}

static int row_axis(const ct_shape *shape)
{
    int axis = 0;

    while ((axis + 1 < shape->ndim) && (shape->dim[axis] == 1)) axis++;
    return axis;
}

int64_t ct_h5_row_floats(const ct_shape *shape)
{
    return (shape->ndim > 0) ? ct_shape_count(shape, row_axis(shape) + 1, -1) : 1;
}

/* Elements [from, from + count) of a set with `shape`. */
static herr_t read_rows(hid_t set, const ct_shape *shape, int64_t from, int64_t count, float *data)
{
    hsize_t start[CT_MAX_DIM] = { 0 }, size[CT_MAX_DIM], n = (hsize_t)count;
    int64_t row = ct_h5_row_floats(shape);
    hid_t in_file = H5Dget_space(set), in_memory = H5Screate_simple(1, &n, NULL);
    herr_t rc = -1;

    for (int i = 0; i < shape->ndim; i++) size[i] = (hsize_t)shape->dim[i];
    if (shape->ndim > 0) {
        start[row_axis(shape)] = (hsize_t)(from / row);
        size[row_axis(shape)] = (hsize_t)(count / row);
    }
    if ((shape->ndim == 0) ||
        (H5Sselect_hyperslab(in_file, H5S_SELECT_SET, start, NULL, size, NULL) >= 0))
        rc = H5Dread(set, H5T_NATIVE_FLOAT, in_memory, in_file, H5P_DEFAULT, data);
    H5Sclose(in_memory);
    H5Sclose(in_file);
    return rc;
}

ct_status ct_h5_get_rows(ct_h5_reader *r, const char *path, const ct_shape *shape, int64_t from,
                         int64_t count, float *data)
{
    ct_hdf5_array a = { .count = 0 };
    ct_status status;
    bool same;
    hid_t set = -1;

    ct_hdf5_lock();
    CT_TRY_GOTO(status, out, open_set(r, path, true, &set, &a));
    same = (a.n_dim == shape->ndim);
    for (int i = 0; same && (i < a.n_dim); i++) same = (a.dim[i] == shape->dim[i]);
    if (!same)
        status = bad(r, path, "has another shape than before");
    else if ((count > 0) && (read_rows(set, shape, from, count, data) < 0))
        status = bad(r, path, "cannot be read as numbers");
out:
    if (set >= 0) H5Dclose(set);
    ct_hdf5_unlock();
    return status;
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

ct_status ct_h5_get_count(ct_h5_reader *r, const char *path, int64_t least, int64_t most,
                          int64_t *v_p)
{
    int64_t v = 0;

    CT_TRY(ct_h5_get_int(r, path, &v));
    if ((v < least) || (v > most))
        return fail(r, CT_ERR_DATA, "%s is %" PRId64 ", expected %" PRId64 " to %" PRId64, path, v,
                    least, most);
    *v_p = v;
    return CT_OK;
}

/* One string of a fixed length, with room behind it for its end. */
static ct_status read_text(ct_h5_reader *r, const char *path, hid_t set, const ct_hdf5_array *a,
                           char **text_p)
{
    char why[CT_HDF5_WHY], *text;
    hid_t type;
    herr_t rc;

    if (!a->is_text) return bad(r, path, "cannot be read as text");
    if (a->count != 1)
        return fail(r, CT_ERR_DATA, "%s has %" PRId64 " strings, expected one", path, a->count);
    if (a->item > max_text)
        return fail(r, CT_ERR_DATA, "%s is a text of %" PRId64 " bytes, at most %" PRId64, path,
                    a->item, max_text);
    if (!ct_hdf5_holds(set, a, a->item, true, why)) return bad(r, path, why);
    text = calloc(1, (size_t)a->item + 1);
    if (text == NULL) return fail(r, CT_ERR_NOMEM, "no memory to read it");
    type = H5Dget_type(set);
    rc = H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, text);
    H5Tclose(type);
    if (rc < 0) {
        free(text);
        return bad(r, path, "cannot be read as text");
    }
    *text_p = text;
    return CT_OK;
}

ct_status ct_h5_get_text(ct_h5_reader *r, const char *path, char **text_p)
{
    ct_hdf5_array a;
    ct_status status;
    hid_t set = -1;

    ct_hdf5_lock();
    status = open_set(r, path, false, &set, &a);
    if (status == CT_OK) {
        status = read_text(r, path, set, &a, text_p);
        H5Dclose(set);
    }
    ct_hdf5_unlock();
    return status;
}

typedef struct visit_ctx {
    ct_status (*visit)(void *ctx, const char *path);
    void *ctx;
    const ct_h5_reader *r;
    const char *group;
    int depth, n_link;
    char path[MAX_NAME]; /* of the group that is looked through, with a slash behind it */
    ct_status status;
} visit_ctx;

static herr_t visit_link(hid_t group, const char *name, const H5L_info_t *info, void *arg);

/* The groups below one, and their arrays. H5Lvisit() would go as deep as the file says. */
static herr_t visit_group(hid_t object, visit_ctx *v)
{
    herr_t rc;

    if (v->depth == MAX_DEPTH) {
        v->status = fail(v->r, CT_ERR_DATA, "%s has groups more than %d deep", v->group, MAX_DEPTH);
        return 1;
    }
    v->depth++;
    rc = H5Literate(object, H5_INDEX_NAME, H5_ITER_INC, NULL, visit_link, v);
    v->depth--;
    return rc;
}

static herr_t visit_link(hid_t group, const char *name, const H5L_info_t *info, void *arg)
{
    hid_t object = ct_hdf5_open_object(group, name);
    H5I_type_t type = (object >= 0) ? H5Iget_type(object) : H5I_BADID;
    visit_ctx *v = arg;
    size_t end = strlen(v->path);
    int n = snprintf(v->path + end, sizeof(v->path) - end, "%s", name);
    herr_t rc = 0;

    if ((n < 0) || ((size_t)n + 1 >= sizeof(v->path) - end) || (v->n_link++ == MAX_LINK)) {
        v->status = fail(v->r, CT_ERR_DATA, "%s has more than %d names, or longer ones than %d",
                         v->group, MAX_LINK, MAX_NAME);
        rc = 1;
    } else if (info->type == H5L_TYPE_EXTERNAL) {
        v->status = fail(v->r, CT_ERR_DATA, "%s/%s is a link to another file", v->group, v->path);
        rc = 1;
    } else if (type == H5I_DATASET) {
        v->status = v->visit(v->ctx, v->path);
        rc = (v->status == CT_OK) ? 0 : 1;
    } else if ((type == H5I_GROUP) && (info->type == H5L_TYPE_HARD)) {
        v->path[end + (size_t)n] = '/';
        v->path[end + (size_t)n + 1] = '\0';
        rc = visit_group(object, v);
    }
    v->path[end] = '\0';
    if (object >= 0) H5Oclose(object);
    return rc;
}

ct_status ct_h5_visit(ct_h5_reader *r, const char *group,
                      ct_status (*visit)(void *ctx, const char *path), void *ctx)
{
    visit_ctx v = { .visit = visit, .ctx = ctx, .r = r, .group = group, .status = CT_OK };
    herr_t rc = -1;
    hid_t id;

    ct_hdf5_lock();
    id = has(r->file, group) ? ct_hdf5_open_object(r->file, group) : -1;
    if (id >= 0) {
        if (H5Iget_type(id) == H5I_GROUP) rc = visit_group(id, &v);
        H5Oclose(id);
    }
    ct_hdf5_unlock();
    if (v.status != CT_OK) return v.status;
    if (id < 0) return fail(r, CT_ERR_DATA, "holds no group %s", group);
    if (rc < 0) return fail(r, CT_ERR_DATA, "%s is no group, or a broken one", group);
    return CT_OK;
}
