/* HDF5 as Caffe's HDF5Data reads it: one data set a top, by the top's name, rows along the first
 * axis, in one file or in those that a text file lists.
 *
 * A set below the limit is read into memory whole, 8-bit data as 8 bits; a larger one row by row.
 * The library is not thread-safe, so every call to it holds the process-wide lock.
 */
#include "framework/data/reader_private.h"

#include <ctype.h>
#include <errno.h>
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/base/hdf5_lock.h"
#include "framework/base/text.h"

enum { MAX_OPEN = 64 }; /* files open at once: a process may have no more than some hundred */

static const int64_t default_ram_limit = (int64_t)512 << 20;

typedef struct h5_file {
    char *path;
    int64_t first, rows;
    bool open;
    hid_t file, set[CT_MAX_FIELD];
} h5_file;

typedef struct hdf5_state {
    h5_file *file;
    int n_file, n_open, next_closed;
    char *name[CT_MAX_FIELD];
    bool u8;                 /* field 0 is of bytes in every file */
    void *ram[CT_MAX_FIELD]; /* whole fields, or NULL              */
} hdf5_state;

typedef struct hdf5_local {
    ct_room value;
} hdf5_local;

static size_t value_size(const hdf5_state *s, int field)
{
    return ((field == 0) && s->u8) ? 1 : sizeof(float);
}

static hid_t value_type(const hdf5_state *s, int field)
{
    return ((field == 0) && s->u8) ? H5T_NATIVE_UINT8 : H5T_NATIVE_FLOAT;
}

/* ---- the list */

static bool is_hdf5(const char *path)
{
    char magic[8] = "";
    FILE *f = fopen(path, "rb");
    bool good =
        (f != NULL) && (fread(magic, 1, 8, f) == 8) && (memcmp(magic, "\x89HDF\r\n\x1a\n", 8) == 0);

    if (f != NULL) fclose(f);
    return good;
}

static bool has_suffix(const char *path)
{
    const char *dot = strrchr(path, '.');

    return (dot != NULL) && ((strcmp(dot, ".h5") == 0) || (strcmp(dot, ".hdf5") == 0));
}

/* A listed name is taken as it stands, as in Caffe, else from the folder of the list. */
static char *resolve(const char *list, const char *name)
{
    const char *slash = strrchr(list, '/');
    ct_text t = { 0 };

    if ((name[0] == '/') || (slash == NULL) || (access(name, F_OK) == 0)) return strdup(name);
    ct_text_add(&t, "%.*s/%s", (int)(slash - list), list, name);
    if (access((t.text != NULL) ? t.text : name, F_OK) == 0) return t.text;
    ct_text_destroy(&t);
    return strdup(name);
}

static ct_status add_file(ct_reader *r, char *path)
{
    hdf5_state *s = r->state;
    h5_file *grown =
        (path != NULL) ? realloc(s->file, (size_t)(s->n_file + 1) * sizeof(*grown)) : NULL;

    if (grown == NULL) {
        free(path);
        return CT_READER_FAIL(r, CT_ERR_NOMEM, "no memory for the list %s", r->source);
    }
    s->file = grown;
    s->file[s->n_file++] = (h5_file){ .path = path };
    return CT_OK;
}

static ct_status read_list(ct_reader *r)
{
    char *text, *save = NULL;
    size_t size;
    ct_status status = CT_OK;

    if (access(r->source, R_OK) != 0) {
        return CT_READER_FAIL(r, CT_ERR_IO, "cannot open %s: %s", r->source, strerror(errno));
    }
    if (is_hdf5(r->source) || has_suffix(r->source)) return add_file(r, strdup(r->source));
    CT_TRY(ct_file_read(r->source, &text, &size));
    for (char *name = strtok_r(text, " \t\r\n", &save); (name != NULL) && (status == CT_OK);
         name = strtok_r(NULL, " \t\r\n", &save)) {
        status = add_file(r, resolve(r->source, name));
    }
    free(text);
    if ((status == CT_OK) && (((hdf5_state *)r->state)->n_file == 0)) {
        status = CT_READER_FAIL(r, CT_ERR_DATA, "%s lists no HDF5 file", r->source);
    }
    return status;
}

/* ---- files; the lock is held */

static void close_file(hdf5_state *s, h5_file *f, int n_field)
{
    if (!f->open) return;
    for (int i = 0; i < n_field; i++) {
        if (f->set[i] >= 0) H5Dclose(f->set[i]);
    }
    H5Fclose(f->file);
    f->open = false;
    s->n_open--;
}

static void make_room(const ct_reader *r)
{
    hdf5_state *s = r->state;

    while (s->n_open >= MAX_OPEN) {
        close_file(s, &s->file[s->next_closed], r->n_field);
        s->next_closed = (s->next_closed + 1) % s->n_file;
    }
}

static hid_t open_for_reading(const char *path)
{
    hid_t access_list = H5Pcreate(H5P_FILE_ACCESS), file;

#if (H5_VERS_MAJOR > 1) || (H5_VERS_MINOR >= 14) || (H5_VERS_MINOR == 10 && H5_VERS_RELEASE >= 7)
    H5Pset_file_locking(access_list, 0, 1); /* shared file systems often have no locks */
#endif
    file = H5Fopen(path, H5F_ACC_RDONLY, access_list);
    H5Pclose(access_list);
    return file;
}

static ct_status open_file(const ct_reader *r, h5_file *f)
{
    hdf5_state *s = r->state;

    if (f->open) return CT_OK;
    make_room(r);
    if (access(f->path, R_OK) != 0) {
        return CT_READER_FAIL(r, CT_ERR_IO, "cannot open %s: %s", f->path, strerror(errno));
    }
    f->file = open_for_reading(f->path);
    if (f->file < 0) {
        return CT_READER_FAIL(r, CT_ERR_IO, "%s: not an HDF5 file, or truncated", f->path);
    }
    f->open = true;
    s->n_open++;
    for (int i = 0; i < r->n_field; i++) f->set[i] = -1;
    for (int i = 0; i < r->n_field; i++) {
        f->set[i] = H5Dopen2(f->file, s->name[i], H5P_DEFAULT);
        if (f->set[i] < 0) {
            return CT_READER_FAIL(r, CT_ERR_DATA,
                                  "%s has no data set \"%s\"; tops are named after data sets",
                                  f->path, s->name[i]);
        }
    }
    return CT_OK;
}

/* The row shape and number of rows of one data set. */
static ct_status look_at(const ct_reader *r, const h5_file *f, int field, ct_shape *row_p,
                         int64_t *rows_p, bool *u8_p)
{
    const hdf5_state *s = r->state;
    hid_t space = H5Dget_space(f->set[field]), type = H5Dget_type(f->set[field]);
    H5T_class_t kind = H5Tget_class(type);
    int ndim = H5Sget_simple_extent_ndims(space);
    hsize_t dim[H5S_MAX_RANK] = { 0 };
    double row = 1; /* values; may be beyond 64 bits */

    *u8_p =
        (kind == H5T_INTEGER) && (H5Tget_size(type) == 1) && (H5Tget_sign(type) == H5T_SGN_NONE);
    if (ndim > 0) H5Sget_simple_extent_dims(space, dim, NULL);
    H5Sclose(space);
    H5Tclose(type);
    if ((kind != H5T_INTEGER) && (kind != H5T_FLOAT)) {
        return CT_READER_FAIL(r, CT_ERR_DATA, "%s: data set \"%s\" holds no numbers", f->path,
                              s->name[field]);
    }
    if ((ndim < 1) || (ndim > CT_MAX_DIM)) {
        return CT_READER_FAIL(r, CT_ERR_DATA, "%s: data set \"%s\" has %d dimensions, not 1 to %d",
                              f->path, s->name[field], ndim, CT_MAX_DIM);
    }
    *row_p = (ct_shape){ .ndim = ndim - 1 };
    for (int i = 0; i < ndim; i++) {
        if (dim[i] > ((hsize_t)1 << 40)) {
            return CT_READER_FAIL(r, CT_ERR_DATA, "%s: data set \"%s\": impossible size", f->path,
                                  s->name[field]);
        }
        if (i == 0) continue;
        row_p->dim[i - 1] = (int64_t)dim[i];
        row *= (double)dim[i];
    }
    *rows_p = (int64_t)dim[0];
    if (row > 0x1p40) {
        return CT_READER_FAIL(r, CT_ERR_DATA, "%s: data set \"%s\": impossible size", f->path,
                              s->name[field]);
    }
    return CT_OK;
}

static ct_status scan_file(ct_reader *r, int index)
{
    hdf5_state *s = r->state;
    h5_file *f = &s->file[index];

    CT_TRY(open_file(r, f));
    for (int i = 0; i < r->n_field; i++) {
        ct_shape row;
        int64_t rows;
        bool u8;

        CT_TRY(look_at(r, f, i, &row, &rows, &u8));
        if (i == 0) {
            f->rows = rows;
            s->u8 = u8 && ((index == 0) || s->u8);
        }
        if (index == 0) r->field[i] = row;
        if (rows != f->rows) {
            return CT_READER_FAIL(r, CT_ERR_DATA, "%s: \"%s\" has %lld rows, \"%s\" has %lld",
                                  f->path, s->name[i], (long long)rows, s->name[0],
                                  (long long)f->rows);
        }
        if (!ct_shape_equal(&row, &r->field[i])) {
            return CT_READER_FAIL(r, CT_ERR_DATA, "%s: rows of \"%s\" are %s, those of %s are %s",
                                  f->path, s->name[i], ct_shape_str(&row).text, s->file[0].path,
                                  ct_shape_str(&r->field[i]).text);
        }
    }
    f->first = r->count;
    r->count += f->rows;
    return CT_OK;
}

/* Rows [first, first + n) of one field. */
static ct_status read_rows(const ct_reader *r, h5_file *f, int field, int64_t first, int64_t n,
                           void *to)
{
    const hdf5_state *s = r->state;
    hsize_t start[CT_MAX_DIM] = { (hsize_t)first }, count[CT_MAX_DIM] = { (hsize_t)n };
    int ndim = r->field[field].ndim + 1;
    hid_t in, out;
    herr_t rc;

    for (int i = 1; i < ndim; i++) count[i] = (hsize_t)r->field[field].dim[i - 1];
    in = H5Dget_space(f->set[field]);
    out = H5Screate_simple(ndim, count, NULL);
    rc = H5Sselect_hyperslab(in, H5S_SELECT_SET, start, NULL, count, NULL);
    if (rc >= 0) rc = H5Dread(f->set[field], value_type(s, field), out, in, H5P_DEFAULT, to);
    H5Sclose(out);
    H5Sclose(in);
    if (rc < 0) {
        return CT_READER_FAIL(r, CT_ERR_IO, "%s: cannot read rows %lld to %lld of \"%s\"", f->path,
                              (long long)first, (long long)(first + n - 1), s->name[field]);
    }
    return CT_OK;
}

static ct_status load_all(ct_reader *r)
{
    hdf5_state *s = r->state;

    for (int i = 0; i < r->n_field; i++) {
        size_t row = (size_t)ct_shape_count(&r->field[i], 0, -1) * value_size(s, i);

        s->ram[i] = malloc((size_t)r->count * row + 1);
        if (s->ram[i] == NULL) {
            return CT_READER_FAIL(r, CT_ERR_NOMEM, "no memory for %s", r->source);
        }
        for (int k = 0; k < s->n_file; k++) {
            h5_file *f = &s->file[k];

            if (f->rows == 0) continue;
            CT_TRY(open_file(r, f));
            CT_TRY(read_rows(r, f, i, 0, f->rows, (char *)s->ram[i] + (size_t)f->first * row));
        }
    }
    for (int k = 0; k < s->n_file; k++) close_file(s, &s->file[k], r->n_field);
    return CT_OK;
}

/* ---- the reader */

static ct_status scan(ct_reader *r, int64_t ram_limit)
{
    hdf5_state *s = r->state;
    double bytes = 0; /* beyond 64 bits, if the file says so */

    for (int k = 0; k < s->n_file; k++) CT_TRY(scan_file(r, k));
    for (int i = 0; i < r->n_field; i++) {
        bytes += (double)ct_shape_count(&r->field[i], 0, -1) * (double)r->count *
                 (double)value_size(s, i);
    }
    return (bytes <= (double)ram_limit) ? load_all(r) : CT_OK;
}

static ct_status hdf5_open(ct_reader *r, const ct_reader_options *o)
{
    hdf5_state *s = r->state;
    ct_status status;

    if (o->n_field > CT_MAX_FIELD) {
        return CT_READER_FAIL(r, CT_ERR_CONFIG, "%d tops, at most %d", o->n_field, CT_MAX_FIELD);
    }
    for (int i = 0; i < o->n_field; i++) {
        s->name[i] = strdup(o->field_name[i]);
        if (s->name[i] == NULL) return CT_READER_FAIL(r, CT_ERR_NOMEM, "no memory");
    }
    r->n_field = o->n_field;
    r->same_shape = true;
    CT_TRY(read_list(r));
    ct_hdf5_lock();
    status = scan(r, (o->ram_limit > 0) ? o->ram_limit : default_ram_limit);
    ct_hdf5_unlock();
    return status;
}

static void hdf5_close(ct_reader *r)
{
    hdf5_state *s = r->state;

    ct_hdf5_lock();
    for (int k = 0; k < s->n_file; k++) {
        close_file(s, &s->file[k], r->n_field);
        free(s->file[k].path);
    }
    ct_hdf5_unlock();
    for (int i = 0; i < CT_MAX_FIELD; i++) {
        free(s->ram[i]);
        free(s->name[i]);
    }
    free(s->file);
}

static h5_file *file_of(const ct_reader *r, int64_t id)
{
    const hdf5_state *s = r->state;
    int low = 0, high = s->n_file - 1;

    while (low < high) { /* the last file that starts at or before id */
        int middle = (low + high + 1) / 2;

        if (s->file[middle].first <= id) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return &s->file[low];
}

static ct_status read_from_file(const ct_reader *r, int64_t id, void *value, float *rest)
{
    h5_file *f = file_of(r, id);

    CT_TRY(open_file(r, f));
    for (int i = 0; i < r->n_field; i++) {
        CT_TRY(read_rows(r, f, i, id - f->first, 1, (i == 0) ? value : rest));
        if (i > 0) rest += ct_shape_count(&r->field[i], 0, -1);
    }
    return CT_OK;
}

static ct_status hdf5_read(const ct_reader *r, void *local, int64_t id, ct_sample *sample)
{
    const hdf5_state *s = r->state;
    hdf5_local *l = local;
    size_t row = (size_t)ct_shape_count(&r->field[0], 0, -1) * value_size(s, 0);
    const void *value;

    if (s->ram[0] != NULL) {
        float *rest = sample->rest;

        value = (const char *)s->ram[0] + (size_t)id * row;
        for (int i = 1; i < r->n_field; i++) {
            int64_t n = ct_shape_count(&r->field[i], 0, -1);

            memcpy(rest, (const float *)s->ram[i] + id * n, (size_t)n * sizeof(float));
            rest += n;
        }
    } else {
        ct_status status;

        CT_TRY(ct_room_reserve(&l->value, row + 1));
        ct_hdf5_lock();
        status = read_from_file(r, id, l->value.data, sample->rest);
        ct_hdf5_unlock();
        CT_TRY(status);
        value = l->value.data;
    }
    sample->u8 = s->u8 ? value : NULL;
    sample->f32 = s->u8 ? NULL : value;
    sample->shape = r->field[0];
    return CT_OK;
}

static void hdf5_describe(const ct_reader *r, int64_t id, char *text, size_t size)
{
    const h5_file *f = file_of(r, id);

    snprintf(text, size, "row %lld of %s", (long long)(id - f->first), f->path);
}

static void hdf5_local_release(void *local)
{
    ct_room_release(&((hdf5_local *)local)->value);
}

const ct_reader_ops ct_reader_hdf5 = {
    .name = "hdf5",
    .open = hdf5_open,
    .close = hdf5_close,
    .local_size = sizeof(hdf5_local),
    .local_release = hdf5_local_release,
    .read = hdf5_read,
    .describe = hdf5_describe,
    .state_size = sizeof(hdf5_state),
};
