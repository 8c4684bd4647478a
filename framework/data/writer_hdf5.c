/* HDF5: `data`, bytes, records x channels x height x width, and `label`, 32-bit integers. */
#include "framework/data/writer.h"

#include <fcntl.h>
#include <hdf5.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/base/hdf5.h"

static const size_t buffer_bytes = (size_t)4 << 20;

typedef struct hdf5_state {
    hid_t file, data, label; /* 0: not open */
    int64_t shape[3];        /* of the first record */
    uint8_t *values;         /* records not written yet */
    int *labels;
    int64_t room, n, done; /* records: that fit the buffer, in it, written */
} hdf5_state;

static ct_status failed(const ct_writer *w, const char *what)
{
    return CT_FAIL(CT_ERR_IO, "cannot write %s: HDF5 failed to %s (disk full?)", w->path, what);
}

/* The library's file is closed even where it cannot write what it still holds. */
static void drop(hdf5_state *s)
{
    if (s->data > 0) H5Dclose(s->data);
    if (s->label > 0) H5Dclose(s->label);
    if (s->file > 0) H5Fclose(s->file);
    s->data = s->label = s->file = 0;
}

static ct_status hdf5_open(ct_writer *w)
{
    hdf5_state *s = w->state;

    ct_hdf5_lock();
    unlink(w->temporary); /* of a process that was killed and had our number, or a link */
    s->file = H5Fcreate(w->temporary, H5F_ACC_EXCL, H5P_DEFAULT, H5P_DEFAULT);
    ct_hdf5_unlock();
    return (s->file > 0) ? CT_OK : failed(w, "create the file");
}

static ct_status start(ct_writer *w, const ct_record *r)
{
    hdf5_state *s = w->state;
    hsize_t dim[4] = { (hsize_t)w->expected, (hsize_t)r->channels, (hsize_t)r->height,
                       (hsize_t)r->width };

    s->shape[0] = r->channels;
    s->shape[1] = r->height;
    s->shape[2] = r->width;
    s->room = (int64_t)(buffer_bytes / r->n) + 1;
    s->values = malloc((size_t)s->room * r->n);
    s->labels = malloc((size_t)s->room * sizeof(int));
    if ((s->values == NULL) || (s->labels == NULL)) {
        return CT_FAIL(CT_ERR_NOMEM, "no memory to write %s", w->path);
    }
    s->data = ct_hdf5_make_set(s->file, "data", H5T_STD_U8LE, 4, dim);
    s->label = ct_hdf5_make_set(s->file, "label", H5T_STD_I32LE, 1, dim);
    return ((s->data > 0) && (s->label > 0)) ? CT_OK : failed(w, "create the data sets");
}

static herr_t write_rows(hid_t set, hid_t type, int ndim, const hsize_t *first,
                         const hsize_t *count, const void *values)
{
    hid_t file_space = H5Dget_space(set), space = H5Screate_simple(ndim, count, NULL);
    herr_t rc = H5Sselect_hyperslab(file_space, H5S_SELECT_SET, first, NULL, count, NULL);

    if (rc >= 0) rc = H5Dwrite(set, type, space, file_space, H5P_DEFAULT, values);
    H5Sclose(space);
    H5Sclose(file_space);
    return rc;
}

static ct_status flush(ct_writer *w)
{
    hdf5_state *s = w->state;
    hsize_t first[4] = { (hsize_t)s->done, 0, 0, 0 };
    hsize_t count[4] = { (hsize_t)s->n, (hsize_t)s->shape[0], (hsize_t)s->shape[1],
                         (hsize_t)s->shape[2] };

    if (s->n == 0) return CT_OK;
    if ((write_rows(s->data, H5T_NATIVE_UINT8, 4, first, count, s->values) < 0) ||
        (write_rows(s->label, H5T_NATIVE_INT, 1, first, count, s->labels) < 0)) {
        return failed(w, "write records");
    }
    s->done += s->n;
    s->n = 0;
    return CT_OK;
}

static ct_status put_locked(ct_writer *w, const ct_record *r)
{
    hdf5_state *s = w->state;

    if (s->values == NULL) CT_TRY(start(w, r));
    if ((r->channels != s->shape[0]) || (r->height != s->shape[1]) || (r->width != s->shape[2])) {
        return CT_FAIL(CT_ERR_DATA,
                       "%s: record %lld (%s) is %d x %lld x %lld, the first %lld x %lld x %lld; "
                       "in HDF5 all have one shape (--resize)",
                       w->path, (long long)w->count, r->key, r->channels, (long long)r->height,
                       (long long)r->width, (long long)s->shape[0], (long long)s->shape[1],
                       (long long)s->shape[2]);
    }
    memcpy(s->values + (size_t)s->n * r->n, r->values, r->n);
    s->labels[s->n] = r->label;
    s->n++;
    return (s->n == s->room) ? flush(w) : CT_OK;
}

static ct_status hdf5_put(ct_writer *w, const ct_record *r)
{
    ct_status status;

    if (r->encoded) {
        return CT_FAIL(CT_ERR_CONFIG, "compressed images go into an LMDB, not into HDF5");
    }
    if (w->count >= w->expected) return CT_FAIL(CT_ERR_ARG, "%s: too many records", w->path);
    ct_hdf5_lock();
    status = put_locked(w, r);
    ct_hdf5_unlock();
    return status;
}

static ct_status finish_locked(ct_writer *w)
{
    hdf5_state *s = w->state;
    herr_t rc;

    CT_TRY(flush(w));
    rc = H5Fflush(s->file, H5F_SCOPE_GLOBAL);
    if (s->data > 0) rc = (H5Dclose(s->data) < 0) ? -1 : rc;
    if (s->label > 0) rc = (H5Dclose(s->label) < 0) ? -1 : rc;
    s->data = s->label = 0;
    rc = (H5Fclose(s->file) < 0) ? -1 : rc;
    s->file = 0;
    return (rc >= 0) ? CT_OK : failed(w, "flush the file");
}

static ct_status hdf5_finish(ct_writer *w)
{
    ct_status status;
    int fd;

    ct_hdf5_lock();
    status = finish_locked(w);
    ct_hdf5_unlock();
    CT_TRY(status);
    fd = open(w->temporary, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return failed(w, "reopen the file");
    if (fsync(fd) != 0) status = failed(w, "sync the file");
    if ((close(fd) != 0) && (status == CT_OK)) status = failed(w, "close the file");
    return status;
}

static void hdf5_close(ct_writer *w)
{
    hdf5_state *s = w->state;

    ct_hdf5_lock();
    drop(s);
    ct_hdf5_unlock();
    free(s->values);
    free(s->labels);
}

const ct_writer_ops ct_writer_hdf5 = {
    .name = "hdf5",
    .open = hdf5_open,
    .put = hdf5_put,
    .finish = hdf5_finish,
    .close = hdf5_close,
    .state_size = sizeof(hdf5_state),
};
