/* An HDF5 source: its list of files, the files, and the rows that a reader takes from them. */
#include <errno.h>
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/base/hdf5.h"
#include "framework/base/status.h"
#include "framework/base/file.h"
#include "framework/base/text.h"
#include "framework/data/reader.h"

typedef struct hdf5_file {
    char *path;
    int64_t first, rows;
    bool open;
    hid_t file, set[CT_MAX_FIELD];
} hdf5_file;

typedef struct hdf5_state {
    hdf5_file *file;
    int n_file, n_open, next_closed;
    char *name[CT_MAX_FIELD];
    bool u8;                 /* field 0 is of bytes in every file */
    bool other_files;        /* which the files name are read, too */
    void *ram[CT_MAX_FIELD]; /* whole fields, or NULL              */
} hdf5_state;

static inline size_t ct_hdf5_value_size(const hdf5_state *s, int field)
{
    return ((field == 0) && s->u8) ? 1 : sizeof(float);
}

static ct_status hdf5_read_rows(const ct_reader *r, hdf5_file *f, int field, int64_t first,
                                int64_t n, void *to, ct_why *why);

/* ---- the list of files */

static bool is_hdf5(const char *path)
{
    char magic[8] = "";
    FILE *f = ct_file_open_stream(path);
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

/* Takes over name. */
static ct_status add(char *name, const char *source, const char *who, char ***path, int *n)
{
    char **grown = (name != NULL) ? realloc(*path, (size_t)(*n + 1) * sizeof(*grown)) : NULL;

    if (grown == NULL) {
        free(name);
        return CT_FAIL(CT_ERR_NOMEM, "%s: no memory for the list %s", who, source);
    }
    *path = grown;
    grown[(*n)++] = name;
    return CT_OK;
}

static ct_status add_listed(const char *source, const char *who, char ***path, int *n)
{
    char *text, *save = NULL;
    size_t size;
    ct_status status = CT_OK;

    CT_TRY(ct_file_read(source, &text, &size));
    for (char *name = strtok_r(text, " \t\r\n", &save); (name != NULL) && (status == CT_OK);
         name = strtok_r(NULL, " \t\r\n", &save)) {
        status = add(resolve(source, name), source, who, path, n);
    }
    free(text);
    if ((status == CT_OK) && (*n == 0))
        status = CT_FAIL(CT_ERR_DATA, "%s: %s lists no HDF5 file", who, source);
    return status;
}

/* The files of a source: itself where it is an HDF5 file, else those that it lists, between
 * blanks. A listed name is taken as it stands, as in Caffe, else from the folder of the list.
 * *path_p and each of its *n_p names are freed by the caller. CT_ERR_IO, CT_ERR_DATA (none),
 * logged. */
static ct_status hdf5_list(const char *source, const char *who, char ***path_p, int *n_p)
{
    char **path = NULL;
    struct stat st;
    int n = 0;
    ct_status status;

    if ((access(source, R_OK) != 0) || (stat(source, &st) != 0))
        return CT_FAIL(CT_ERR_IO, "%s: cannot open %s: %s", who, source,
                       ct_path_why(source, errno).text);
    if (!S_ISREG(st.st_mode)) /* a pipe would never open */
        return CT_FAIL(CT_ERR_IO, "%s: %s: not a regular file", who, source);
    if (is_hdf5(source) || has_suffix(source))
        status = add(strdup(source), source, who, &path, &n);
    else
        status = add_listed(source, who, &path, &n);
    if (status != CT_OK) {
        for (int i = 0; i < n; i++) free(path[i]);
        free(path);
        return status;
    }
    *path_p = path;
    *n_p = n;
    return CT_OK;
}

typedef struct set_names {
    char *name[256];
    int n;
} set_names;

static herr_t add_name(hid_t group, const char *name, const H5L_info_t *info, void *arg)
{
    set_names *s = arg;

    (void)group;
    (void)info;
    s->name[s->n] = strdup(name);
    if (s->name[s->n] != NULL) s->n++;
    return s->n == (int)(sizeof(s->name) / sizeof(s->name[0])); /* 1: that is enough */
}

/* A data set is named after its top: which one may be meant. */
static ct_status hdf5_no_set(hid_t file, const char *path, const char *wanted, const char *who)
{
    set_names s = { .n = 0 };
    ct_text have = { 0 };
    const char *nearest;
    ct_status status;

    H5Literate(file, H5_INDEX_NAME, H5_ITER_INC, NULL, add_name, &s);
    nearest = ct_text_nearest(wanted, (const char *const *)s.name, s.n);
    for (int i = 0; (i < s.n) && (i < 10); i++)
        ct_text_add(&have, "%s%s", (i > 0) ? ", " : "", s.name[i]);
    if (s.n > 10) ct_text_add(&have, ", …");
    status =
        CT_FAIL(CT_ERR_DATA,
                "%s: %s has no data set \"%s\" (it has: %s)%s%s%s; tops are named after data sets",
                who, path, wanted, (have.text != NULL) ? have.text : "none",
                (nearest != NULL) ? "; did you mean \"" : "", (nearest != NULL) ? nearest : "",
                (nearest != NULL) ? "\"?" : "");
    for (int i = 0; i < s.n; i++) free(s.name[i]);
    ct_text_destroy(&have);
    return status;
}

enum {
    MAX_OPEN = 64 /* files open at once: a process may have no more than some hundred */
};

/* ---- the files */

static const int64_t max_rows = (int64_t)1 << 40, max_row = (int64_t)1 << 40;

static hid_t value_type(const hdf5_state *s, int field)
{
    return ((field == 0) && s->u8) ? H5T_NATIVE_UINT8 : H5T_NATIVE_FLOAT;
}

/* The files that r->source names, or lists. Logged, as all errors here but hdf5_read_rows()'s.
 */
static ct_status hdf5_read_list(ct_reader *r)
{
    hdf5_state *s = r->state;
    char **path;
    int n;

    CT_TRY(hdf5_list(r->source, r->who, &path, &n));
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

static void hdf5_close_file(hdf5_state *s, hdf5_file *f, int n_field)
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
        hdf5_close_file(s, &s->file[s->next_closed], r->n_field);
        s->next_closed = (s->next_closed + 1) % s->n_file;
    }
}

/* Opens it, if it is not open, and closes another where too many are. */
static ct_status hdf5_open_file(const ct_reader *r, hdf5_file *f)
{
    hdf5_state *s = r->state;

    if (f->open) return CT_OK;
    make_room(r);
    if (access(f->path, R_OK) != 0) {
        return CT_READER_FAIL(r, CT_ERR_IO, "cannot open %s: %s", f->path,
                              ct_path_why(f->path, errno).text);
    }
    f->file = ct_hdf5_open(f->path);
    if (f->file < 0) {
        return CT_READER_FAIL(r, CT_ERR_IO, "%s: not an HDF5 file, or truncated", f->path);
    }
    f->open = true;
    s->n_open++;
    for (int i = 0; i < r->n_field; i++) f->set[i] = -1;
    for (int i = 0; i < r->n_field; i++) {
        char why[CT_HDF5_WHY] = "";

        f->set[i] = s->other_files ? ct_hdf5_open_set_anywhere(f->file, s->name[i])
                                   : ct_hdf5_open_set(f->file, s->name[i], why);
        if ((f->set[i] < 0) && (why[0] == '\0'))
            return hdf5_no_set(f->file, f->path, s->name[i], r->who);
        if (f->set[i] < 0)
            return CT_READER_FAIL(r, CT_ERR_DATA,
                                  "%s: data set \"%s\" %s; hdf5_data_param { other_files: true } "
                                  "reads what a file names",
                                  f->path, s->name[i], why);
    }
    return CT_OK;
}

static ct_status bad_set(const ct_reader *r, const hdf5_file *f, int field, const char *why)
{
    const hdf5_state *s = r->state;

    return CT_READER_FAIL(r, CT_ERR_DATA, "%s: data set \"%s\" %s", f->path, s->name[field], why);
}

/* The row shape and number of rows of one data set. */
static ct_status look_at(const ct_reader *r, const hdf5_file *f, int field, ct_shape *row_p,
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

/* What a file has of every field, and how many rows. */
static ct_status hdf5_scan_file(ct_reader *r, int index)
{
    hdf5_state *s = r->state;
    hdf5_file *f = &s->file[index];

    CT_TRY(hdf5_open_file(r, f));
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
static ct_status hdf5_read_rows(const ct_reader *r, hdf5_file *f, int field, int64_t first,
                                int64_t n, void *to, ct_why *why)
{
    const hdf5_state *s = r->state;
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

/* All rows of all files into memory. */
static ct_status hdf5_load_all(ct_reader *r)
{
    hdf5_state *s = r->state;
    ct_why why;

    for (int i = 0; i < r->n_field; i++) {
        size_t row = (size_t)ct_shape_count(&r->field[i], 0, -1) * ct_hdf5_value_size(s, i);

        s->ram[i] = malloc((size_t)r->count * row + 1);
        if (s->ram[i] == NULL) {
            return CT_READER_FAIL(r, CT_ERR_NOMEM, "no memory for %s", r->source);
        }
        for (int k = 0; k < s->n_file; k++) {
            hdf5_file *f = &s->file[k];

            if (f->rows == 0) continue;
            CT_TRY(hdf5_open_file(r, f));
            if (hdf5_read_rows(r, f, i, 0, f->rows, (char *)s->ram[i] + (size_t)f->first * row,
                               &why) != CT_OK)
                return CT_READER_FAIL(r, CT_ERR_IO, "%s", why.text);
        }
    }
    for (int k = 0; k < s->n_file; k++) hdf5_close_file(s, &s->file[k], r->n_field);
    return CT_OK;
}

/* ---- HDF5 as Caffe's HDF5Data reads it: one data set a top, by the top's name, rows along the
 * first axis, in one file or in those that a text file lists.
 *
 * A set below the limit is read into memory whole, 8-bit data as 8 bits. Of a larger one, rows are
 * read as they are asked for: one alone, or, after a row that followed the one before it, a piece
 * of the rows behind it at once. The library is not thread-safe, so every call to it holds the
 * process-wide lock. */

enum { PIECE = 1 << 20 }; /* bytes of rows that are read at once */

static const int64_t default_ram_limit = (int64_t)512 << 20;

/* A thread's rows [first, first + rows) of the whole set, all of one file. */
typedef struct hdf5_local {
    int64_t first, rows;
    int64_t last; /* the row that was asked for before, and 1: zeroed, none was */
    ct_sample_buffer value[CT_MAX_FIELD];
} hdf5_local;

static ct_status scan(ct_reader *r, int64_t ram_limit)
{
    hdf5_state *s = r->state;
    double bytes = 0; /* beyond 64 bits, if the file says so */

    for (int k = 0; k < s->n_file; k++) CT_TRY(hdf5_scan_file(r, k));
    for (int i = 0; i < r->n_field; i++) {
        bytes += (double)ct_shape_count(&r->field[i], 0, -1) * (double)r->count *
                 (double)ct_hdf5_value_size(s, i);
    }
    return (bytes <= (double)ram_limit) ? hdf5_load_all(r) : CT_OK;
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
    s->other_files = o->other_files;
    CT_TRY(hdf5_read_list(r));
    ct_hdf5_lock();
    status = scan(r, (o->ram_limit > 0) ? o->ram_limit : default_ram_limit);
    ct_hdf5_unlock();
    r->u8 = ((hdf5_state *)r->state)->u8;
    r->largest = (int64_t)rest_at(r) + ct_reader_rest_count(r) * (int64_t)sizeof(float);
    if (__builtin_mul_overflow(r->largest, r->count, &r->bytes)) r->bytes = INT64_MAX;
    return status;
}

static void hdf5_close(ct_reader *r)
{
    hdf5_state *s = r->state;

    ct_hdf5_lock();
    for (int k = 0; k < s->n_file; k++) {
        hdf5_close_file(s, &s->file[k], r->n_field);
        free(s->file[k].path);
    }
    ct_hdf5_unlock();
    for (int i = 0; i < CT_MAX_FIELD; i++) {
        free(s->ram[i]);
        free(s->name[i]);
    }
    free(s->file);
}

static hdf5_file *file_of(const ct_reader *r, int64_t id)
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
static int64_t piece_rows(const ct_reader *r, const hdf5_local *l, const hdf5_file *f, int64_t id)
{
    int64_t bytes = 0, n, left = f->first + f->rows - id;

    if (l->last != id) return 1; /* last counts from 1: the row before id */
    for (int i = 0; i < r->n_field; i++)
        bytes += ct_shape_count(&r->field[i], 0, -1) * (int64_t)ct_hdf5_value_size(r->state, i);
    n = (bytes > 0) ? PIECE / bytes : 1;
    return (n < 1) ? 1 : (n < left) ? n : left;
}

/* Row id, and what follows it, into l. */
static ct_status read_piece(const ct_reader *r, hdf5_local *l, int64_t id, ct_why *why)
{
    hdf5_file *f = file_of(r, id);
    int64_t n = piece_rows(r, l, f, id);
    ct_status status = CT_OK;

    l->rows = 0;
    for (int i = 0; i < r->n_field; i++) {
        size_t bytes =
            (size_t)(n * ct_shape_count(&r->field[i], 0, -1)) * ct_hdf5_value_size(r->state, i);

        CT_TRY(ct_sample_buffer_reserve(&l->value[i], bytes + 1));
    }
    ct_hdf5_lock();
    status = hdf5_open_file(r, f);
    if (status != CT_OK) ct_why_set(why, "%s: cannot be opened again", f->path);
    for (int i = 0; (i < r->n_field) && (status == CT_OK); i++)
        status = hdf5_read_rows(r, f, i, id - f->first, n, l->value[i].data, why);
    ct_hdf5_unlock();
    CT_TRY(status);
    l->first = id;
    l->rows = n;
    return CT_OK;
}

static const void *row_of(const ct_reader *r, const void *rows, int field, int64_t row)
{
    size_t n =
        (size_t)ct_shape_count(&r->field[field], 0, -1) * ct_hdf5_value_size(r->state, field);

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
    sample->u8 = r->u8 ? value : NULL;
    sample->f32 = r->u8 ? NULL : value;
    sample->shape = r->field[0];
    return CT_OK;
}

static ct_status hdf5_fetch(const ct_reader *r, void *local, int64_t id, void *to, size_t *size_p)
{
    ct_sample sample = { .rest = (float *)(void *)((char *)to + rest_at(r)) };

    CT_TRY(hdf5_read(r, local, id, &sample));
    memcpy(to, r->u8 ? (const void *)sample.u8 : sample.f32,
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
    const hdf5_file *f = file_of(r, id);

    snprintf(text, size, "row %lld of %s", (long long)(id - f->first), f->path);
}

static void hdf5_local_release(void *local)
{
    for (int i = 0; i < CT_MAX_FIELD; i++)
        ct_sample_buffer_release(&((hdf5_local *)local)->value[i]);
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
