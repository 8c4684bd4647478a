/* HDF5 as Caffe's HDF5Data reads it: one data set a top, by the top's name, rows along the first
 * axis, in one file or in those that a text file lists.
 *
 * A set below the limit is read into memory whole, 8-bit data as 8 bits. Of a larger one, rows are
 * read as they are asked for: one alone, or, after a row that followed the one before it, a piece
 * of the rows behind it at once. The library is not thread-safe, so every call to it holds the
 * process-wide lock.
 */
#include "framework/data/hdf5_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/hdf5.h"

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
    ct_hdf5_state *s = r->state;
    double bytes = 0; /* beyond 64 bits, if the file says so */

    for (int k = 0; k < s->n_file; k++) CT_TRY(ct_hdf5_scan_file(r, k));
    for (int i = 0; i < r->n_field; i++) {
        bytes += (double)ct_shape_count(&r->field[i], 0, -1) * (double)r->count *
                 (double)ct_hdf5_value_size(s, i);
    }
    return (bytes <= (double)ram_limit) ? ct_hdf5_load_all(r) : CT_OK;
}

/* What fetch gives: the row of field 0, then, from a multiple of 8 on, the others'. */
static size_t rest_at(const ct_reader *r)
{
    size_t n = (size_t)ct_shape_count(&r->field[0], 0, -1) * (r->u8 ? 1 : sizeof(float));

    return (n + 7) / 8 * 8;
}

static ct_status hdf5_open(ct_reader *r, const ct_reader_options *o)
{
    ct_hdf5_state *s = r->state;
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
    CT_TRY(ct_hdf5_read_list(r));
    ct_hdf5_lock();
    status = scan(r, (o->ram_limit > 0) ? o->ram_limit : default_ram_limit);
    ct_hdf5_unlock();
    r->u8 = ((ct_hdf5_state *)r->state)->u8;
    r->largest = (int64_t)rest_at(r) + ct_reader_rest_count(r) * (int64_t)sizeof(float);
    if (__builtin_mul_overflow(r->largest, r->count, &r->bytes)) r->bytes = INT64_MAX;
    return status;
}

static void hdf5_close(ct_reader *r)
{
    ct_hdf5_state *s = r->state;

    ct_hdf5_lock();
    for (int k = 0; k < s->n_file; k++) {
        ct_hdf5_close_file(s, &s->file[k], r->n_field);
        free(s->file[k].path);
    }
    ct_hdf5_unlock();
    for (int i = 0; i < CT_MAX_FIELD; i++) {
        free(s->ram[i]);
        free(s->name[i]);
    }
    free(s->file);
}

static ct_hdf5_file *file_of(const ct_reader *r, int64_t id)
{
    const ct_hdf5_state *s = r->state;
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
static int64_t piece_rows(const ct_reader *r, const hdf5_local *l, const ct_hdf5_file *f,
                          int64_t id)
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
    ct_hdf5_file *f = file_of(r, id);
    int64_t n = piece_rows(r, l, f, id);
    ct_status status = CT_OK;

    l->rows = 0;
    for (int i = 0; i < r->n_field; i++) {
        size_t bytes =
            (size_t)(n * ct_shape_count(&r->field[i], 0, -1)) * ct_hdf5_value_size(r->state, i);

        CT_TRY(ct_sample_buffer_reserve(&l->value[i], bytes + 1));
    }
    ct_hdf5_lock();
    status = ct_hdf5_open_file(r, f);
    if (status != CT_OK) ct_why_set(why, "%s: cannot be opened again", f->path);
    for (int i = 0; (i < r->n_field) && (status == CT_OK); i++)
        status = ct_hdf5_read_rows(r, f, i, id - f->first, n, l->value[i].data, why);
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
    const ct_hdf5_state *s = r->state;
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
    const ct_hdf5_file *f = file_of(r, id);

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
    .state_size = sizeof(ct_hdf5_state),
};
