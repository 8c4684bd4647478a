#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "framework/base/text.h"
#include "framework/snapshot/disk_file.h"
#include "framework/snapshot/zip.h"

struct ct_zip_writer {
    char *path;
    ct_disk_file file;
    ct_text directory;
    int n;
};

enum { VERSION = 20, UTF8 = 0x800, DAY = 0x21 /* 1 January 1980: equal content, equal bytes */ };
static const int64_t LIMIT = 0xfffffffe; /* beyond, 64-bit forms would be needed */

ct_status ct_zip_create(const char *path, ct_zip_writer **z_p)
{
    ct_zip_writer *z = calloc(1, sizeof(*z));

    if ((z == NULL) || ((z->path = strdup(path)) == NULL)) {
        free(z);
        return CT_FAIL(CT_ERR_NOMEM, "no memory to write %s", path);
    }
    ct_disk_open(&z->file, path, 0);
    *z_p = z;
    return CT_OK;
}

static uint8_t *put(uint8_t *p, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++) *p++ = (uint8_t)(v >> (8 * i));
    return p;
}

/* What a local header and an entry of the directory have in common. */
static uint8_t *put_common(uint8_t *p, uint32_t crc, int64_t size, size_t name)
{
    p = put(p, VERSION, 2);
    p = put(p, UTF8, 2);
    p = put(p, 0, 2); /* stored */
    p = put(p, 0, 2); /* midnight */
    p = put(p, DAY, 2);
    p = put(p, crc, 4);
    p = put(p, (uint64_t)size, 4);
    p = put(p, (uint64_t)size, 4);
    p = put(p, name, 2);
    return put(p, 0, 2); /* no extra field */
}

ct_status ct_zip_put(ct_zip_writer *z, const char *name, const void *head, int64_t head_bytes,
                     const void *data, int64_t data_bytes)
{
    uint32_t crc = (uint32_t)crc32_z(0, head, (z_size_t)head_bytes);
    int64_t start = z->file.at, size = head_bytes + data_bytes;
    size_t length = strlen(name);
    uint8_t record[46], *p;

    if ((start > LIMIT) || (size > LIMIT) || (z->n == 0xfffe) || (length > 0xffff))
        return CT_FAIL(CT_ERR_DATA, "%s: more than 4 GiB or 65534 arrays: take .caffemodel.h5",
                       z->path);
    if (data_bytes > 0) crc = (uint32_t)crc32_z(crc, data, (z_size_t)data_bytes);
    p = put(record, 0x04034b50, 4);
    p = put_common(p, crc, size, length);
    ct_disk_add(&z->file, record, p - record);
    ct_disk_add(&z->file, name, (int64_t)length);
    ct_disk_add(&z->file, head, head_bytes);
    ct_disk_add(&z->file, data, data_bytes);

    p = put(record, 0x02014b50, 4);
    p = put(p, VERSION, 2);
    p = put_common(p, crc, size, length);
    p = put(p, 0, 2); /* no comment, the first and only file, no attributes */
    p = put(p, 0, 2);
    p = put(p, 0, 2);
    p = put(p, 0, 4);
    p = put(p, (uint64_t)start, 4);
    ct_text_add_bytes(&z->directory, (const char *)record, (size_t)(p - record));
    ct_text_add_bytes(&z->directory, name, length);
    z->n++;
    return CT_OK;
}

static ct_status finish(ct_zip_writer *z, uint64_t *hash_p, int64_t *size_p)
{
    int64_t start = z->file.at;
    uint8_t record[22], *p;

    if (z->directory.failed) return CT_FAIL(CT_ERR_NOMEM, "no memory to write %s", z->path);
    if (start > LIMIT) return CT_FAIL(CT_ERR_DATA, "%s: more than 4 GiB", z->path);
    ct_disk_add(&z->file, z->directory.text, (int64_t)z->directory.length);
    p = put(record, 0x06054b50, 4);
    p = put(p, 0, 4); /* one file */
    p = put(p, (uint64_t)z->n, 2);
    p = put(p, (uint64_t)z->n, 2);
    p = put(p, z->directory.length, 4);
    p = put(p, (uint64_t)start, 4);
    p = put(p, 0, 2); /* no comment */
    ct_disk_add(&z->file, record, p - record);
    return ct_disk_finish(&z->file, z->path, hash_p, size_p);
}

ct_status ct_zip_finish(ct_zip_writer *z, ct_status status, uint64_t *hash_p, int64_t *size_p)
{
    bool closed = false;

    if (status == CT_OK) {
        closed = !z->directory.failed && (z->file.at <= LIMIT);
        status = finish(z, hash_p, size_p);
    }
    if (!closed) ct_disk_drop(&z->file, z->path);
    ct_text_destroy(&z->directory);
    free(z->path);
    free(z);
    return status;
}
