/* HDF5 as Caffe's HDF5Data reads it: one data set a top, by the top's name, rows along the first
 * axis, in one file or in those that a text file lists.
 *
 * A set below the limit is read into memory whole, 8-bit data as 8 bits. Of a larger one, rows are
 * read as they are asked for: one alone, or, after a row that followed the one before it, a piece
 * of the rows behind it at once. The library is not thread-safe, so every call to it holds the
 * process-wide lock.
 */
#include "framework/data/reader_private.h"

#include <errno.h>
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/base/hdf5_lock.h"
#include "framework/data/hdf5_list.h"

enum {
    MAX_OPEN = 64,  /* files open at once: a process may have no more than some hundred */
    PIECE = 1 << 20 /* bytes of rows that are read at once */
};

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

/* A thread's rows [first, first + rows) of the whole set, all of one file. */
typedef struct hdf5_local {
    int64_t first, rows;
    int64_t last; /* the row that was asked for before, and 1: zeroed, none was */
    ct_room value[CT_MAX_FIELD];
} hdf5_local;

static size_t value_size(const hdf5_state *s, int field)
{
    return ((field == 0) && s->u8) ? 1 : sizeof(float);
}

static hid_t value_type(const hdf5_state *s, int field)
{
    return ((field == 0) && s->u8) ? H5T_NATIVE_UINT8 : H5T_NATIVE_FLOAT;
}

static ct_status read_list(ct_reader *r)
{
    hdf5_state *s = r->state;
    char **path;
    int n;

    CT_TRY(ct_hdf5_list(r->source, r->who, &path, &n));
    s->file = calloc((size_t)n, sizeof(*s->file));
    for (int i = 0; i < n; i++) {
        if (s->file != NULL)
            s->file[s->n_file++].path = path[i];
        else
            free(path[i]);
    }
    free(path);
    if (s->file == NULL)
        return CT_READER_FAIL(r, CT_ERR_NOMEM, "no memory for the list %s", r->source);
    return CT_OK;
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
        if (f->set[i] < 0) return ct_hdf5_no_set(f->file, f->path, s->name[i], r->who);
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

/* Rows [first, first + n) of one field. Quiet. */
static ct_status read_rows(const ct_reader *r, h5_file *f, int field, int64_t first, int64_t n,
                           void *to, ct_why *why)
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
        return CT_WHY(why, CT_ERR_IO, "%s: cannot read rows %lld to %lld of \"%s\"", f->path,
                      (long long)first, (long long)(first + n - 1), s->name[field]);
    }
    return CT_OK;
}

static ct_status load_all(ct_reader *r)
{
    hdf5_state *s = r->state;
    ct_why why;

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
            if (read_rows(r, f, i, 0, f->rows, (char *)s->ram[i] + (size_t)f->first * row, &why) !=
                CT_OK)
                return CT_READER_FAIL(r, CT_ERR_IO, "%s", why.text);
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

/* What fetch gives: the row of field 0, then, from a multiple of 8 on, the others'. */
static size_t rest_at(const ct_reader *r)
{
    size_t n = (size_t)ct_shape_count(&r->field[0], 0, -1) * (r->u8 ? 1 : sizeof(float));

    return (n + 7) / 8 * 8;
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
    r->u8 = ((hdf5_state *)r->state)->u8;
    r->largest = (int64_t)rest_at(r) + ct_reader_rest_count(r) * (int64_t)sizeof(float);
    r->bytes = r->largest * r->count;
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

/* How many rows from `id` on to read at once. Rows in mixed order come one by one. */
static int64_t piece_rows(const ct_reader *r, const hdf5_local *l, const h5_file *f, int64_t id)
{
    int64_t bytes = 0, n, left = f->first + f->rows - id;

    if (l->last != id) return 1; /* last counts from 1: the row before id */
    for (int i = 0; i < r->n_field; i++)
        bytes += ct_shape_count(&r->field[i], 0, -1) * (int64_t)value_size(r->state, i);
    n = (bytes > 0) ? PIECE / bytes : 1;
    return (n < 1) ? 1 : (n < left) ? n : left;
}

/* Row id, and what follows it, into l. */
static ct_status read_piece(const ct_reader *r, hdf5_local *l, int64_t id, ct_why *why)
{
    h5_file *f = file_of(r, id);
    int64_t n = piece_rows(r, l, f, id);
    ct_status status = CT_OK;

    l->rows = 0;
    for (int i = 0; i < r->n_field; i++) {
        size_t bytes = (size_t)(n * ct_shape_count(&r->field[i], 0, -1)) * value_size(r->state, i);

        CT_TRY(ct_room_reserve(&l->value[i], bytes + 1));
    }
    ct_hdf5_lock();
    status = open_file(r, f);
    if (status != CT_OK) ct_why_set(why, "%s: cannot be opened again", f->path);
    for (int i = 0; (i < r->n_field) && (status == CT_OK); i++)
        status = read_rows(r, f, i, id - f->first, n, l->value[i].data, why);
    ct_hdf5_unlock();
    CT_TRY(status);
    l->first = id;
    l->rows = n;
    return CT_OK;
}

static const void *row_of(const ct_reader *r, const void *rows, int field, int64_t row)
{
    size_t n = (size_t)ct_shape_count(&r->field[field], 0, -1) * value_size(r->state, field);

    return (const char *)rows + (size_t)row * n;
}

static ct_status hdf5_read(const ct_reader *r, void *local, int64_t id, ct_sample *sample)
{
    const hdf5_state *s = r->state;
    hdf5_local *l = local;
    bool whole = s->ram[0] != NULL;
    float *rest = sample->rest;
    const void *value;

    if (!whole && ((id < l->first) || (id >= l->first + l->rows))) {
        ct_why why;
        ct_status status = read_piece(r, l, id, &why);

        if (status != CT_OK) return ct_reader_bad(r, id, sample, status, &why);
    }
    l->last = id + 1;
    for (int i = 1; i < r->n_field; i++) {
        int64_t n = ct_shape_count(&r->field[i], 0, -1);

        memcpy(rest,
               whole ? row_of(r, s->ram[i], i, id) : row_of(r, l->value[i].data, i, id - l->first),
               (size_t)n * sizeof(float));
        rest += n;
    }
    value = whole ? row_of(r, s->ram[0], 0, id) : row_of(r, l->value[0].data, 0, id - l->first);
    sample->u8 = s->u8 ? value : NULL;
    sample->f32 = s->u8 ? NULL : value;
    sample->shape = r->field[0];
    return CT_OK;
}

static ct_status hdf5_fetch(const ct_reader *r, void *local, int64_t id, void *to, size_t *size_p)
{
    ct_sample sample = { .rest = (float *)(void *)((char *)to + rest_at(r)) };

    CT_TRY(hdf5_read(r, local, id, &sample));
    memcpy(to, (sample.u8 != NULL) ? (const void *)sample.u8 : sample.f32,
           (size_t)ct_shape_count(&r->field[0], 0, -1) * (r->u8 ? 1 : sizeof(float)));
    *size_p = (size_t)r->largest;
    return CT_OK;
}

static ct_status hdf5_decode(const ct_reader *r, void *local, int64_t id, const void *bytes,
                             size_t size, ct_sample *sample)
{
    int64_t rest = ct_reader_rest_count(r);

    (void)local;
    (void)id;
    (void)size;
    if (rest > 0)
        memcpy(sample->rest, (const char *)bytes + rest_at(r), (size_t)rest * sizeof(float));
    sample->u8 = r->u8 ? bytes : NULL;
    sample->f32 = r->u8 ? NULL : bytes;
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
    for (int i = 0; i < CT_MAX_FIELD; i++) ct_room_release(&((hdf5_local *)local)->value[i]);
}

const ct_reader_ops ct_reader_hdf5 = {
    .name = "hdf5",
    .open = hdf5_open,
    .close = hdf5_close,
    .local_size = sizeof(hdf5_local),
    .local_release = hdf5_local_release,
    .read = hdf5_read,
    .fetch = hdf5_fetch,
    .decode = hdf5_decode,
    .describe = hdf5_describe,
    .state_size = sizeof(hdf5_state),
};
