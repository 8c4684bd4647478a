#include "framework/snapshot/zip.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "framework/base/file.h"
#include "framework/base/file_map.h"
#include "framework/base/text.h"
#include "framework/snapshot/disk_file.h"

enum {
    LOCAL = 30,     /* bytes of a local header without name and extra field */
    CENTRAL = 46,   /* of a directory's entry                               */
    END = 22,       /* of the record at the end                             */
    END64 = 56,     /* of its 64-bit form                                   */
    LOCATOR64 = 20, /* of what points to that, in front of the end          */
    MAX_COMMENT = 65535,
    MAX_ENTRY = 1 << 20,
    EXTRA64 = 1 /* id of the extra field with 64-bit sizes */
};
static const uint32_t FULL = 0xffffffffu; /* a 32-bit field whose value stands in the extra field */

struct ct_zip {
    char *path;
    int fd;
    uint64_t size;
    int n;
    ct_zip_entry *entry;
};

static bool is_mark(const uint8_t *p, uint8_t a, uint8_t b)
{
    return (p[0] == 'P') && (p[1] == 'K') && (p[2] == a) && (p[3] == b);
}

static ct_status broken(const ct_zip *z, const char *what)
{
    return CT_FAIL(CT_ERR_DATA, "%s: a broken or cut zip file: %s", z->path, what);
}

static ct_status read_at(const ct_zip *z, uint64_t at, void *out, size_t n)
{
    char *p = out;

    if ((at > z->size) || (n > z->size - at)) return broken(z, "it points beyond its end");
    while (n > 0) {
        ssize_t got = pread(z->fd, p, n, (off_t)at);

        if ((got < 0) && (errno == EINTR)) continue;
        if (got <= 0) return CT_FAIL(CT_ERR_IO, "%s: cannot be read: %s", z->path, strerror(errno));
        p += got;
        at += (uint64_t)got;
        n -= (size_t)got;
    }
    return CT_OK;
}

bool ct_zip_is(const char *path)
{
    uint8_t mark[4] = { 0 };
    FILE *f = ct_file_open_stream(path);
    bool is;

    if (f == NULL) return false;
    is = (fread(mark, 1, sizeof(mark), f) == sizeof(mark)) &&
         (is_mark(mark, 3, 4) || is_mark(mark, 5, 6));
    fclose(f);
    return is;
}

typedef struct directory {
    uint64_t n, size, offset;
} directory;

/* The 64-bit form of the record at the end, where there is one. */
static ct_status find_end64(const ct_zip *z, uint64_t end, directory *d)
{
    uint8_t locator[LOCATOR64], record[END64];

    if (end < LOCATOR64) return CT_OK;
    CT_TRY(read_at(z, end - LOCATOR64, locator, sizeof(locator)));
    if (!is_mark(locator, 6, 7)) return CT_OK;
    CT_TRY(read_at(z, ct_little_endian(locator + 8, 8), record, sizeof(record)));
    if (!is_mark(record, 6, 6)) return broken(z, "no 64-bit directory where it should be");
    *d = (directory){ ct_little_endian(record + 32, 8), ct_little_endian(record + 40, 8),
                      ct_little_endian(record + 48, 8) };
    return CT_OK;
}

/* The record at the end, in front of a comment. */
static ct_status find_end(const ct_zip *z, directory *d)
{
    uint64_t most = END + MAX_COMMENT;
    size_t n = (size_t)((z->size < most) ? z->size : most);
    uint8_t *tail = malloc(n + 1);
    ct_status status = CT_OK;
    size_t at;

    if (tail == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", z->path);
    status = read_at(z, z->size - n, tail, n);
    for (at = (n >= END) ? n - END + 1 : 0; (status == CT_OK) && (at > 0); at--)
        if (is_mark(tail + at - 1, 5, 6)) break;
    if ((status == CT_OK) && (at == 0)) status = broken(z, "no directory at its end");
    if (status == CT_OK) {
        const uint8_t *end = tail + at - 1;

        *d = (directory){ ct_little_endian(end + 10, 2), ct_little_endian(end + 12, 4),
                          ct_little_endian(end + 16, 4) };
        status = find_end64(z, z->size - n + at - 1, d);
    }
    free(tail);
    return status;
}

/* 64-bit values that the directory's entry has no room for, in this order. */
static void read_extra(const uint8_t *extra, size_t n, ct_zip_entry *e)
{
    uint64_t *value[] = { &e->size, &e->packed, &e->offset };

    for (size_t at = 0; at + 4 <= n;) {
        size_t length = (size_t)ct_little_endian(extra + at + 2, 2);
        const uint8_t *p = extra + at + 4;

        if (at + 4 + length > n) return;
        for (int i = 0; (ct_little_endian(extra + at, 2) == EXTRA64) && (i < 3); i++) {
            if ((*value[i] != FULL) || (p + 8 > extra + at + 4 + length)) continue;
            *value[i] = ct_little_endian(p, 8);
            p += 8;
        }
        at += 4 + length;
    }
}

/* An entry of the directory; *at_p moves behind it. */
static ct_status read_entry(ct_zip *z, const uint8_t *dir, size_t size, size_t *at_p)
{
    const uint8_t *p = dir + *at_p;
    ct_zip_entry *e = &z->entry[z->n];
    size_t name, extra, comment;

    if ((size - *at_p < CENTRAL) || !is_mark(p, 1, 2)) return broken(z, "its directory is cut");
    name = (size_t)ct_little_endian(p + 28, 2);
    extra = (size_t)ct_little_endian(p + 30, 2);
    comment = (size_t)ct_little_endian(p + 32, 2);
    if (size - *at_p - CENTRAL < name + extra + comment) return broken(z, "its directory is cut");
    if ((ct_little_endian(p + 8, 2) & 1) != 0)
        return CT_FAIL(CT_ERR_DATA, "%s: has encrypted entries", z->path);
    *e = (ct_zip_entry){ .method = (int)ct_little_endian(p + 10, 2),
                         .crc = (uint32_t)ct_little_endian(p + 16, 4),
                         .packed = ct_little_endian(p + 20, 4),
                         .size = ct_little_endian(p + 24, 4),
                         .offset = ct_little_endian(p + 42, 4) };
    e->name = strndup((const char *)p + CENTRAL, name);
    if (e->name == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", z->path);
    z->n++;
    read_extra(p + CENTRAL + name, extra, e);
    *at_p += CENTRAL + name + extra + comment;
    if ((e->method != 0) && (e->method != 8))
        return CT_FAIL(CT_ERR_DATA, "%s: %s is compressed by method %d; known: stored, deflated",
                       z->path, e->name, e->method);
    /* deflate makes at most 1032 bytes of one */
    if ((e->packed > z->size) || (e->size / 1040 > e->packed) ||
        ((e->method == 0) && (e->size != e->packed)))
        return broken(z, "an entry has an impossible size");
    return CT_OK;
}

static ct_status read_directory(ct_zip *z)
{
    directory d = { 0 };
    ct_status status = CT_OK;
    uint8_t *dir;
    size_t at = 0;

    CT_TRY(find_end(z, &d));
    if ((d.offset > z->size) || (d.size > z->size - d.offset) || (d.n > d.size / CENTRAL) ||
        (d.n > MAX_ENTRY))
        return broken(z, "its directory lies elsewhere");
    dir = malloc((size_t)d.size + 1);
    z->entry = calloc((size_t)d.n + 1, sizeof(*z->entry));
    if ((dir == NULL) || (z->entry == NULL))
        status = CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", z->path);
    if (status == CT_OK) status = read_at(z, d.offset, dir, (size_t)d.size);
    for (uint64_t i = 0; (i < d.n) && (status == CT_OK); i++)
        status = read_entry(z, dir, (size_t)d.size, &at);
    free(dir);
    return status;
}

ct_status ct_zip_open(const char *path, ct_zip **z_p)
{
    ct_zip *z = calloc(1, sizeof(*z));
    struct stat st;
    ct_status status;

    if ((z == NULL) || ((z->path = strdup(path)) == NULL)) {
        free(z);
        return CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", path);
    }
    z->fd = ct_file_open(path);
    if ((z->fd < 0) || (fstat(z->fd, &st) != 0)) {
        status = CT_FAIL(CT_ERR_IO, "%s: %s", path, strerror(errno));
    } else {
        z->size = (uint64_t)st.st_size;
        status = read_directory(z);
    }
    if (status != CT_OK) {
        ct_zip_close(z);
        return status;
    }
    *z_p = z;
    return CT_OK;
}

void ct_zip_close(ct_zip *z)
{
    if (z == NULL) return;
    if (z->fd >= 0) close(z->fd);
    for (int i = 0; i < z->n; i++) free(z->entry[i].name);
    free(z->entry);
    free(z->path);
    free(z);
}

int ct_zip_count(const ct_zip *z)
{
    return z->n;
}

const ct_zip_entry *ct_zip_at(const ct_zip *z, int i)
{
    return &z->entry[i];
}

/* Until out is full. */
static ct_status inflate_entry(const ct_zip *z, const ct_zip_entry *e, uint64_t at, uint8_t *out,
                               size_t n)
{
    enum { PIECE = 1 << 16, MOST = 1 << 30 };
    uint8_t *in = malloc(PIECE);
    uint64_t left = e->packed;
    z_stream s = { 0 };
    ct_status status = CT_OK;
    size_t done = 0;
    int rc = Z_OK;

    if ((in == NULL) || (inflateInit2(&s, -MAX_WBITS) != Z_OK)) {
        free(in);
        return CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", z->path);
    }
    while ((status == CT_OK) && (rc == Z_OK) && (done < n)) {
        if ((s.avail_in == 0) && (left > 0)) {
            s.avail_in = (uInt)((left < PIECE) ? left : PIECE);
            s.next_in = in;
            status = read_at(z, at, in, s.avail_in);
            at += s.avail_in;
            left -= s.avail_in;
        }
        if (status != CT_OK) break;
        s.next_out = out + done;
        s.avail_out = (uInt)((n - done < MOST) ? n - done : MOST);
        rc = inflate(&s, Z_NO_FLUSH);
        done = (size_t)(s.next_out - out);
    }
    inflateEnd(&s);
    free(in);
    if ((status == CT_OK) && (done < n)) status = broken(z, "an entry ends early");
    return status;
}

ct_status ct_zip_read(ct_zip *z, const ct_zip_entry *e, uint8_t *out, size_t n)
{
    uint8_t local[LOCAL];
    uint64_t at;

    if (n > e->size) return broken(z, "an entry is too short");
    CT_TRY(read_at(z, e->offset, local, sizeof(local)));
    if (!is_mark(local, 3, 4)) return broken(z, "no entry where one should be");
    at = e->offset + LOCAL + ct_little_endian(local + 26, 2) + ct_little_endian(local + 28, 2);
    if ((at > z->size) || (e->packed > z->size - at)) return broken(z, "an entry is cut");
    return (e->method == 0) ? read_at(z, at, out, n) : inflate_entry(z, e, at, out, n);
}

/* ---- writing */

static uint32_t crc_of(uint32_t crc, const void *data, uint64_t n)
{
    return (uint32_t)crc32_z(crc, data, (z_size_t)n);
}

bool ct_zip_sound(const ct_zip_entry *e, const uint8_t *content)
{
    return crc_of(0, content, e->size) == e->crc;
}

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
