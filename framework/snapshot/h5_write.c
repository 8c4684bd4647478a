#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "framework/base/hdf5.h"
#include "framework/base/file.h"
#include "framework/base/text.h"
#include "framework/snapshot/disk_file.h"
#include "framework/snapshot/h5.h"

typedef struct array_place { /* an array that goes to disk without HDF5 */
    int64_t offset, count;   /* in the file, and floats */
    ct_disk_floats v;
} array_place;

struct ct_h5_writer {
    bool head;
    int fd;        /* the memory file that HDF5 writes */
    int64_t bytes; /* of the arrays so far             */
    hid_t file;
    array_place *array;
    int n_array, capacity;
};

ct_status ct_h5_writer_create(bool head, ct_h5_writer **w_p)
{
    ct_h5_writer *w = calloc(1, sizeof(*w));
    char name[64];
    hid_t create, access;

    if (w == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to write a snapshot");
    w->head = head;
    w->file = -1;
    w->fd = memfd_create("cortado-snapshot", MFD_CLOEXEC);
    if (w->fd < 0) {
        ct_h5_writer_destroy(w);
        return CT_FAIL(CT_ERR_NOMEM, "no memory file for a snapshot: %s", strerror(errno));
    }
    snprintf(name, sizeof(name), "/proc/self/fd/%d", w->fd);
    ct_hdf5_lock();
    create = H5Pcreate(H5P_FILE_CREATE);
    access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_fapl_stdio(access); /* the default driver asks for the real path, which it has not */
    if (head) H5Pset_userblock(create, CT_H5_HEAD);
    w->file = H5Fcreate(name, H5F_ACC_TRUNC, create, access);
    H5Pclose(access);
    H5Pclose(create);
    ct_hdf5_unlock();
    if (w->file < 0) {
        ct_h5_writer_destroy(w);
        return CT_FAIL(CT_ERR_IO, "HDF5 cannot make a file in memory (%s)", name);
    }
    *w_p = w;
    return CT_OK;
}

void ct_h5_writer_destroy(ct_h5_writer *w)
{
    if (w == NULL) return;
    ct_hdf5_lock();
    if (w->file >= 0) H5Fclose(w->file);
    ct_hdf5_unlock();
    if (w->fd >= 0) close(w->fd);
    free(w->array);
    free(w);
}

/* A dataset whose space is laid out now and never filled by HDF5. */
static hid_t make_dataset(hid_t file, const char *path, hid_t type, int n_dim, const hsize_t *dim)
{
    hid_t link = H5Pcreate(H5P_LINK_CREATE), create = H5Pcreate(H5P_DATASET_CREATE);
    hid_t space = (n_dim == 0) ? H5Screate(H5S_SCALAR) : H5Screate_simple(n_dim, dim, NULL);
    hid_t set = -1;

    H5Pset_create_intermediate_group(link, 1);
    H5Pset_layout(create, H5D_CONTIGUOUS);
    H5Pset_alloc_time(create, H5D_ALLOC_TIME_EARLY);
    H5Pset_fill_time(create, H5D_FILL_TIME_NEVER);
    H5Pset_obj_track_times(create, false); /* equal content gives equal bytes */
    if (space >= 0) {
        set = H5Dcreate2(file, path, type, space, link, create, H5P_DEFAULT);
        H5Sclose(space);
    }
    H5Pclose(create);
    H5Pclose(link);
    return set;
}

static ct_status add_array(ct_h5_writer *w, int64_t offset, int64_t count, const ct_disk_floats *v)
{
    if (w->n_array == w->capacity) {
        int capacity = (w->capacity > 0) ? 2 * w->capacity : 64;
        array_place *grown = realloc(w->array, (size_t)capacity * sizeof(*grown));

        if (grown == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to write a snapshot");
        w->array = grown;
        w->capacity = capacity;
    }
    w->array[w->n_array++] = (array_place){ .offset = offset, .count = count, .v = *v };
    return CT_OK;
}

/* `ulimit -f` holds for the memory file too, where HDF5 would meet it in its close. */
static ct_status check_limit(ct_h5_writer *w, const char *path, int64_t bytes)
{
    const int64_t layout = 1 << 20; /* generous for HDF5's own structures */
    struct rlimit limit;

    w->bytes += bytes;
    if ((getrlimit(RLIMIT_FSIZE, &limit) == 0) && (limit.rlim_cur != RLIM_INFINITY) &&
        ((uint64_t)(w->bytes + layout) > limit.rlim_cur))
        return CT_FAIL(CT_ERR_IO,
                       "cannot write %s of a snapshot: %" PRId64
                       " bytes so far, the file size limit (ulimit -f) is %" PRIu64,
                       path, w->bytes, (uint64_t)limit.rlim_cur);
    return CT_OK;
}

static ct_status put_floats(ct_h5_writer *w, const char *path, const ct_shape *shape,
                            const ct_disk_floats *v)
{
    int64_t count = ct_shape_count(shape, 0, -1), bytes = count * (int64_t)sizeof(float);
    haddr_t offset = HADDR_UNDEF;
    hsize_t dim[CT_MAX_DIM];
    hid_t set;

    CT_TRY(check_limit(w, path, bytes));
    for (int i = 0; i < shape->ndim; i++) dim[i] = (hsize_t)shape->dim[i];
    ct_hdf5_lock();
    set = make_dataset(w->file, path, H5T_NATIVE_FLOAT, shape->ndim, dim);
    if (set >= 0) {
        offset = H5Dget_offset(set);
        H5Dclose(set);
    }
    ct_hdf5_unlock();
    if ((set < 0) || ((bytes > 0) && (offset == HADDR_UNDEF)))
        return CT_FAIL(CT_ERR_IO, "HDF5 cannot make %s in a snapshot", path);
    return (count > 0) ? add_array(w, (int64_t)offset, count, v) : CT_OK;
}

ct_status ct_h5_put_floats(ct_h5_writer *w, const char *path, const ct_shape *shape,
                           const float *data)
{
    return put_floats(w, path, shape, &(ct_disk_floats){ .data = data });
}

ct_status ct_h5_put_stored(ct_h5_writer *w, const char *path, const ct_shape *shape,
                           ct_storage *storage, int64_t from)
{
    return put_floats(w, path, shape, &(ct_disk_floats){ .storage = storage, .from = from });
}

/* A small value goes through HDF5 itself. */
static ct_status put_small(ct_h5_writer *w, const char *path, hid_t type, int n_dim, hsize_t n,
                           const void *v)
{
    herr_t rc = -1;
    hid_t set;

    ct_hdf5_lock();
    set = make_dataset(w->file, path, type, n_dim, &n);
    if (set >= 0) {
        rc = H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, v);
        H5Dclose(set);
    }
    ct_hdf5_unlock();
    return (rc < 0) ? CT_FAIL(CT_ERR_IO, "HDF5 cannot make %s in a snapshot", path) : CT_OK;
}

ct_status ct_h5_put_doubles(ct_h5_writer *w, const char *path, const double *v, int64_t n)
{
    return put_small(w, path, H5T_NATIVE_DOUBLE, 1, (hsize_t)n, v);
}

ct_status ct_h5_put_int(ct_h5_writer *w, const char *path, int64_t v)
{
    return put_small(w, path, H5T_NATIVE_INT64, 0, 0, &v);
}

static hid_t text_type(const char *text)
{
    hid_t type = H5Tcopy(H5T_C_S1);

    H5Tset_size(type, strlen(text) + 1);
    return type;
}

ct_status ct_h5_put_text(ct_h5_writer *w, const char *path, const char *text)
{
    ct_status status;
    hid_t type;

    ct_hdf5_lock();
    type = text_type(text);
    status = put_small(w, path, type, 0, 0, text);
    H5Tclose(type);
    ct_hdf5_unlock();
    return status;
}

ct_status ct_h5_put_attribute(ct_h5_writer *w, const char *name, const char *text)
{
    hid_t type, space, attribute;
    herr_t rc = -1;

    ct_hdf5_lock();
    type = text_type(text);
    space = H5Screate(H5S_SCALAR);
    attribute = H5Acreate2(w->file, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    if (attribute >= 0) {
        rc = H5Awrite(attribute, type, text);
        H5Aclose(attribute);
    }
    H5Sclose(space);
    H5Tclose(type);
    ct_hdf5_unlock();
    return (rc < 0) ? CT_FAIL(CT_ERR_IO, "HDF5 cannot store the attribute %s", name) : CT_OK;
}

/* What HDF5 wrote, from d->at up to end. */
static void add_layout(ct_disk_file *d, int memory_fd, int64_t end)
{
    char block[65536];

    while ((d->error == 0) && (d->at < end)) {
        int64_t left = end - d->at;
        size_t want = (left < (int64_t)sizeof(block)) ? (size_t)left : sizeof(block);
        ssize_t n = pread(memory_fd, block, want, d->at);

        if (n <= 0)
            d->error = EIO;
        else
            ct_disk_add(d, block, n);
    }
}

static int by_offset(const void *a, const void *b)
{
    int64_t x = ((const array_place *)a)->offset, y = ((const array_place *)b)->offset;

    return (x > y) - (x < y);
}

static ct_status write_disk(ct_h5_writer *w, ct_disk_file *d, int64_t end, const char *title)
{
    char head[CT_H5_HEAD] = { 0 };

    if (w->n_array > 0) qsort(w->array, (size_t)w->n_array, sizeof(*w->array), by_offset);
    for (int i = 0; i < w->n_array; i++) {
        add_layout(d, w->fd, w->array[i].offset);
        CT_TRY(ct_disk_add_floats(d, &w->array[i].v, w->array[i].count));
    }
    add_layout(d, w->fd, end);
    if (!w->head) return CT_OK;
    snprintf(head, sizeof(head), "%s %016" PRIx64 "\n", title, ct_hash_value(&d->hash));
    ct_disk_head(d, head, sizeof(head));
    return CT_OK;
}

/* HDF5 has done its part, now or before. */
static ct_status close_layout(ct_h5_writer *w, const char *path, int64_t *end_p)
{
    herr_t closed = 0;

    if (w->file >= 0) {
        ct_hdf5_lock();
        closed = H5Fflush(w->file, H5F_SCOPE_GLOBAL);
        if (H5Fclose(w->file) < 0) closed = -1;
        w->file = -1;
        ct_hdf5_unlock();
    }
    *end_p = lseek(w->fd, 0, SEEK_END);
    if ((closed < 0) || (*end_p <= 0))
        return CT_FAIL(CT_ERR_IO, "%s: HDF5 cannot lay out the file in memory", path);
    return CT_OK;
}

static ct_status finish_disk(ct_h5_writer *w, ct_disk_file *d, int64_t end, const char *path,
                             const char *title, uint64_t *hash_p, int64_t *size_p)
{
    ct_status status = write_disk(w, d, end, title);

    if (status == CT_OK) return ct_disk_finish(d, path, hash_p, size_p);
    ct_disk_drop(d, path);
    return status;
}

ct_status ct_h5_writer_finish(ct_h5_writer *w, const char *path, const char *title,
                              uint64_t *hash_p, int64_t *size_p)
{
    ct_disk_file d;
    int64_t end;

    CT_TRY(close_layout(w, path, &end));
    ct_disk_open(&d, path, w->head ? CT_H5_HEAD : 0);
    return finish_disk(w, &d, end, path, title, hash_p, size_p);
}

ct_status ct_h5_writer_foresee(ct_h5_writer *w, const char *path, uint64_t *hash_p, int64_t *size_p)
{
    ct_disk_file d;
    int64_t end;

    CT_TRY(close_layout(w, path, &end));
    ct_disk_open_dry(&d, w->head ? CT_H5_HEAD : 0);
    return finish_disk(w, &d, end, path, "", hash_p, size_p);
}

/* ---- named arrays as one file */

static ct_status put(ct_h5_writer *w, const ct_named_array *a)
{
    ct_text path = { 0 };
    ct_status status;

    ct_text_add(&path, "/%s", a->name);
    status = path.failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for the name of an array")
                         : ct_h5_put_floats(w, path.text, &a->shape, a->data);
    ct_text_destroy(&path);
    return status;
}

void ct_h5_add_escaped(ct_text *t, const char *name)
{
    for (; *name != '\0'; name++) {
        if (strchr("/.%", *name) != NULL)
            ct_text_add(t, "%%%02X", (unsigned char)*name);
        else
            ct_text_add_bytes(t, name, 1);
    }
}

/* Under another name first, so that a file that is there stays until its successor is whole. */
static ct_status finish(ct_h5_writer *w, const char *path)
{
    ct_text part = { 0 };
    uint64_t hash;
    int64_t size;
    ct_status status;

    ct_path_add_own(&part, path, "part");
    if (part.failed) {
        ct_text_destroy(&part);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a file name");
    }
    status = ct_h5_writer_finish(w, part.text, NULL, &hash, &size);
    if ((status == CT_OK) && (rename(part.text, path) != 0)) {
        status = CT_FAIL(CT_ERR_IO, "cannot rename %s to %s", part.text, path);
        unlink(part.text);
    }
    ct_text_destroy(&part);
    return status;
}

ct_status ct_array_file_write(const char *path, const ct_named_array *array, int n)
{
    ct_h5_writer *w = NULL;
    ct_status status = ct_h5_writer_create(false, &w);

    for (int i = 0; (status == CT_OK) && (i < n); i++) status = put(w, &array[i]);
    if (status == CT_OK) status = finish(w, path);
    ct_h5_writer_destroy(w);
    return status;
}
