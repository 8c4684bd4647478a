#include "framework/snapshot/disk_file.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "framework/base/file.h"

void ct_disk_open(ct_disk_file *d, const char *path, int64_t from)
{
    *d = (ct_disk_file){ .at = from };
    ct_hash_init(&d->hash);
    d->fd = ct_file_create(path);
    if (d->fd < 0) d->error = errno;
}

void ct_disk_open_dry(ct_disk_file *d, int64_t from)
{
    *d = (ct_disk_file){ .fd = -1, .dry = true, .at = from };
    ct_hash_init(&d->hash);
}

static void put(ct_disk_file *d, const char *p, int64_t bytes, int64_t at)
{
    while (!d->dry && (bytes > 0) && (d->error == 0)) {
        size_t want = (bytes < ((int64_t)1 << 30)) ? (size_t)bytes : (size_t)1 << 30;
        ssize_t n = pwrite(d->fd, p, want, at);

        if ((n < 0) && (errno == EINTR)) continue;
        if (n <= 0) {
            d->error = (n < 0) ? errno : ENOSPC;
            return;
        }
        p += n;
        at += n;
        bytes -= n;
    }
}

void ct_disk_add(ct_disk_file *d, const void *data, int64_t bytes)
{
    if ((d->error != 0) || (bytes <= 0)) return;
    ct_hash_add(&d->hash, data, (size_t)bytes);
    put(d, data, bytes, d->at);
    d->at += bytes;
}

static ct_status add_chunk(void *ctx, int64_t from, int64_t count, float *host)
{
    (void)from;
    ct_disk_add(ctx, host, count * (int64_t)sizeof(*host));
    return CT_OK;
}

ct_status ct_disk_add_floats(ct_disk_file *d, const ct_disk_floats *v, int64_t count)
{
    if (v->data == NULL)
        return ct_storage_each(v->storage, v->from, count, CT_STORAGE_READ, add_chunk, d);
    ct_disk_add(d, v->data, count * (int64_t)sizeof(*v->data));
    return CT_OK;
}

void ct_disk_head(ct_disk_file *d, const void *data, int64_t bytes)
{
    put(d, data, bytes, 0);
}

void ct_disk_drop(ct_disk_file *d, const char *path)
{
    if (d->fd < 0) return;
    close(d->fd);
    unlink(path);
}

ct_status ct_disk_finish(ct_disk_file *d, const char *path, uint64_t *hash_p, int64_t *size_p)
{
    if ((d->error == 0) && !d->dry && (fsync(d->fd) != 0)) d->error = errno;
    if ((d->fd >= 0) && (close(d->fd) != 0) && (d->error == 0)) d->error = errno;
    if (d->error != 0) {
        if (d->fd >= 0) unlink(path);
        return CT_FAIL(CT_ERR_IO, "cannot write %s (%" PRId64 " bytes): %s", path, d->at,
                       strerror(d->error));
    }
    *hash_p = ct_hash_value(&d->hash);
    *size_p = d->at;
    return CT_OK;
}

enum { LENGTH_DELIMITED = 2, BLOB_DATA = 5, BLOB_SHAPE = 7, SHAPE_DIM = 1 };

/* ---- The wire format of protocol buffers, for messages whose arrays are written
 * straight from where they lie; private to framework/snapshot.
 */
static int proto_size(uint64_t v)
{
    int n = 1;

    for (; v >= 0x80; v >>= 7) n++;
    return n;
}

void ct_proto_number(ct_disk_file *d, uint64_t v)
{
    uint8_t byte[10];
    int n = 0;

    for (; v >= 0x80; v >>= 7) byte[n++] = (uint8_t)(v | 0x80);
    byte[n++] = (uint8_t)v;
    ct_disk_add(d, byte, n);
}

void ct_proto_field(ct_disk_file *d, unsigned field, uint64_t bytes)
{
    ct_proto_number(d, (uint64_t)field << 3 | LENGTH_DELIMITED);
    ct_proto_number(d, bytes);
}

int64_t ct_proto_field_size(unsigned field, int64_t bytes)
{
    return proto_size((uint64_t)field << 3 | LENGTH_DELIMITED) + proto_size((uint64_t)bytes) +
           bytes;
}

static int64_t dims_size(const ct_shape *shape)
{
    int64_t bytes = 0;

    for (int i = 0; i < shape->ndim; i++) bytes += proto_size((uint64_t)shape->dim[i]);
    return bytes;
}

/* A scalar's shape is a message with nothing in it. */
static int64_t shape_size(const ct_shape *shape)
{
    return (shape->ndim > 0) ? ct_proto_field_size(SHAPE_DIM, dims_size(shape)) : 0;
}

int64_t ct_proto_blob_size(const ct_shape *shape)
{
    int64_t data = ct_shape_count(shape, 0, -1) * (int64_t)sizeof(float);

    return ((data > 0) ? ct_proto_field_size(BLOB_DATA, data) : 0) +
           ct_proto_field_size(BLOB_SHAPE, shape_size(shape));
}

/* The wire has floats with the low byte first, and so has every machine that this runs on. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "floats are written as they lie");

ct_status ct_proto_blob(ct_disk_file *d, const ct_shape *shape, const ct_disk_floats *v)
{
    int64_t count = ct_shape_count(shape, 0, -1);

    if (count > 0) {
        ct_proto_field(d, BLOB_DATA, (uint64_t)count * sizeof(float));
        CT_TRY(ct_disk_add_floats(d, v, count));
    }
    ct_proto_field(d, BLOB_SHAPE, (uint64_t)shape_size(shape));
    if (shape->ndim == 0) return CT_OK;
    ct_proto_field(d, SHAPE_DIM, (uint64_t)dims_size(shape));
    for (int i = 0; i < shape->ndim; i++) ct_proto_number(d, (uint64_t)shape->dim[i]);
    return CT_OK;
}

static uint64_t read_number(const uint8_t *m, size_t size, size_t *at_p)
{
    uint64_t v = 0;

    for (int shift = 0; (*at_p < size) && (shift < 64); shift += 7) {
        uint8_t byte = m[(*at_p)++];

        v |= (uint64_t)(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0) break;
    }
    return v;
}

size_t ct_proto_split(const uint8_t *message, size_t size, unsigned field)
{
    size_t at = 0;

    while (at < size) {
        size_t start = at;
        uint64_t tag = read_number(message, size, &at);

        if ((tag >> 3) > field) return start;
        if ((tag & 7) == 0)
            (void)read_number(message, size, &at);
        else if ((tag & 7) == 1)
            at += 8;
        else if ((tag & 7) == LENGTH_DELIMITED)
            at += read_number(message, size, &at);
        else
            at += 4;
    }
    return size;
}
