#include "framework/data/hdf5_files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/base/hdf5.h"
#include "framework/data/hdf5_list.h"

enum {
    MAX_OPEN = 64 /* files open at once: a process may have no more than some hundred */
};

static const int64_t max_rows = (int64_t)1 << 40, max_row = (int64_t)1 << 40;

static hid_t value_type(const ct_hdf5_state *s, int field)
{
    return ((field == 0) && s->u8) ? H5T_NATIVE_UINT8 : H5T_NATIVE_FLOAT;
}

ct_status ct_hdf5_read_list(ct_reader *r)
{
    ct_hdf5_state *s = r->state;
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

void ct_hdf5_close_file(ct_hdf5_state *s, ct_hdf5_file *f, int n_field)
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
    ct_hdf5_state *s = r->state;

    while (s->n_open >= MAX_OPEN) {
        ct_hdf5_close_file(s, &s->file[s->next_closed], r->n_field);
        s->next_closed = (s->next_closed + 1) % s->n_file;
    }
}

ct_status ct_hdf5_open_file(const ct_reader *r, ct_hdf5_file *f)
{
    ct_hdf5_state *s = r->state;

    if (f->open) return CT_OK;
    make_room(r);
    if (access(f->path, R_OK) != 0) {
        return CT_READER_FAIL(r, CT_ERR_IO, "cannot open %s: %s", f->path, strerror(errno));
    }
    f->file = ct_hdf5_open(f->path);
    if (f->file < 0) {
        return CT_READER_FAIL(r, CT_ERR_IO, "%s: not an HDF5 file, or truncated", f->path);
    }
    f->open = true;
    s->n_open++;
    for (int i = 0; i < r->n_field; i++) f->set[i] = -1;
    for (int i = 0; i < r->n_field; i++) {
        f->set[i] = ct_hdf5_open_set(f->file, s->name[i]);
        if (f->set[i] < 0) return ct_hdf5_no_set(f->file, f->path, s->name[i], r->who);
    }
    return CT_OK;
}

static ct_status bad_set(const ct_reader *r, const ct_hdf5_file *f, int field, const char *why)
{
    const ct_hdf5_state *s = r->state;

    return CT_READER_FAIL(r, CT_ERR_DATA, "%s: data set \"%s\" %s", f->path, s->name[field], why);
}

/* The row shape and number of rows of one data set. */
static ct_status look_at(const ct_reader *r, const ct_hdf5_file *f, int field, ct_shape *row_p,
                         int64_t *rows_p, bool *u8_p)
{
    char why[CT_HDF5_WHY];
    ct_hdf5_array a;
    int64_t row = 1; /* values: some beside an axis without any, so not count / rows */

    if (!ct_hdf5_look_numbers(f->set[field], &a, why)) return bad_set(r, f, field, why);
    if (a.n_dim < 1) return bad_set(r, f, field, "has no rows: it is one number");
    if (a.dim[0] > max_rows) return bad_set(r, f, field, "has an impossible size");
    for (int i = 1; i < a.n_dim; i++) row *= a.dim[i];
    if (row > max_row) return bad_set(r, f, field, "has an impossible size");
    /* of the rows many may never have been written and take no room; one is read as a whole */
    if (!ct_hdf5_holds(f->set[field], &a, row * a.item, false, why))
        return bad_set(r, f, field, why);
    *row_p = (ct_shape){ .ndim = a.n_dim - 1 };
    for (int i = 1; i < a.n_dim; i++) row_p->dim[i - 1] = a.dim[i];
    *rows_p = a.dim[0];
    *u8_p = a.is_bytes;
    return CT_OK;
}

ct_status ct_hdf5_scan_file(ct_reader *r, int index)
{
    ct_hdf5_state *s = r->state;
    ct_hdf5_file *f = &s->file[index];

    CT_TRY(ct_hdf5_open_file(r, f));
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
ct_status ct_hdf5_read_rows(const ct_reader *r, ct_hdf5_file *f, int field, int64_t first,
                            int64_t n, void *to, ct_why *why)
{
    const ct_hdf5_state *s = r->state;
    hsize_t start[CT_MAX_DIM] = { (hsize_t)first }, count[CT_MAX_DIM] = { (hsize_t)n };
    int ndim = r->field[field].ndim + 1;
    hid_t in, out;
    herr_t rc;

    for (int i = 1; i < ndim; i++) count[i] = (hsize_t)r->field[field].dim[i - 1];
    in = H5Dget_space(f->set[field]);
    out = H5Screate_simple(ndim, count, NULL);
    /* a file that was opened again may be another one by now */
    rc = (H5Sget_simple_extent_ndims(in) == ndim)
             ? H5Sselect_hyperslab(in, H5S_SELECT_SET, start, NULL, count, NULL)
             : -1;
    if (rc >= 0) rc = H5Dread(f->set[field], value_type(s, field), out, in, H5P_DEFAULT, to);
    H5Sclose(out);
    H5Sclose(in);
    if (rc < 0) {
        return CT_WHY(why, CT_ERR_IO, "%s: cannot read rows %lld to %lld of \"%s\"", f->path,
                      (long long)first, (long long)(first + n - 1), s->name[field]);
    }
    return CT_OK;
}

ct_status ct_hdf5_load_all(ct_reader *r)
{
    ct_hdf5_state *s = r->state;
    ct_why why;

    for (int i = 0; i < r->n_field; i++) {
        size_t row = (size_t)ct_shape_count(&r->field[i], 0, -1) * ct_hdf5_value_size(s, i);

        s->ram[i] = malloc((size_t)r->count * row + 1);
        if (s->ram[i] == NULL) {
            return CT_READER_FAIL(r, CT_ERR_NOMEM, "no memory for %s", r->source);
        }
        for (int k = 0; k < s->n_file; k++) {
            ct_hdf5_file *f = &s->file[k];

            if (f->rows == 0) continue;
            CT_TRY(ct_hdf5_open_file(r, f));
            if (ct_hdf5_read_rows(r, f, i, 0, f->rows, (char *)s->ram[i] + (size_t)f->first * row,
                                  &why) != CT_OK)
                return CT_READER_FAIL(r, CT_ERR_IO, "%s", why.text);
        }
    }
    for (int k = 0; k < s->n_file; k++) ct_hdf5_close_file(s, &s->file[k], r->n_field);
    return CT_OK;
}
