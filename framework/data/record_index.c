#include "framework/data/record_index.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/base/text.h"
#include "framework/data/lmdb_file.h"

/* The file: this, the stamps, the offsets, the sizes; in the machine's byte order, which the magic
 * number shows. */
typedef struct index_head {
    uint64_t magic, checksum; /* of all that follows the checksum */
    int64_t count, n_file;
} index_head;

static const uint64_t index_magic = 0x3158444E49544343u; /* "CCTINDX1" */

ct_status ct_record_index_create(ct_record_index *x, int64_t count, int64_t n_file)
{
    *x = (ct_record_index){ .count = count, .n_file = n_file };
    x->file = calloc((size_t)n_file, sizeof(*x->file));
    x->offset = malloc((size_t)count * sizeof(*x->offset) + 1);
    x->size = malloc((size_t)count * sizeof(*x->size) + 1);
    if ((x->file != NULL) && (x->offset != NULL) && (x->size != NULL)) return CT_OK;
    ct_record_index_release(x);
    return CT_FAIL(CT_ERR_NOMEM, "no memory for an index of %lld records", (long long)count);
}

void ct_record_index_release(ct_record_index *x)
{
    free(x->file);
    free(x->offset);
    free(x->size);
    *x = (ct_record_index){ 0 };
}

void ct_record_index_sum(ct_record_index *x)
{
    x->largest = x->bytes = 0;
    for (int64_t i = 0; i < x->count; i++) {
        if (x->size[i] > x->largest) x->largest = x->size[i];
        x->bytes += x->size[i];
    }
}

static uint64_t add_checksum(uint64_t h, const void *data, size_t n)
{
    const unsigned char *p = data;
    uint64_t word;

    for (; n >= sizeof(word); n -= sizeof(word), p += sizeof(word)) {
        memcpy(&word, p, sizeof(word));
        h = (h ^ word) * 0x9E3779B97F4A7C15u;
        h ^= h >> 29;
    }
    for (; n > 0; n--, p++) h = (h ^ *p) * 0x100000001B3u;
    return h;
}

static uint64_t checksum_of(const ct_record_index *x)
{
    int64_t n[2] = { x->count, x->n_file };
    uint64_t h = add_checksum(1, n, sizeof(n));

    h = add_checksum(h, x->file, (size_t)x->n_file * sizeof(*x->file));
    h = add_checksum(h, x->offset, (size_t)x->count * sizeof(*x->offset));
    return add_checksum(h, x->size, (size_t)x->count * sizeof(*x->size));
}

/* ---- reading */

static bool fits(const ct_record_index *x, int64_t (*file_of)(const void *ctx, int64_t i),
                 const void *ctx)
{
    for (int64_t i = 0; i < x->count; i++) {
        int64_t end = x->file[file_of(ctx, i)].size;

        if ((x->offset[i] < 0) || (x->offset[i] > end) || (x->size[i] > end - x->offset[i]))
            return false;
    }
    return true;
}

/* `found` has room for the same counts as x. */
static ct_index_state load(int fd, int64_t size, ct_record_index *x, ct_record_index *found)
{
    size_t stamps = (size_t)x->n_file * sizeof(*x->file);
    size_t offsets = (size_t)x->count * sizeof(*x->offset);
    size_t sizes = (size_t)x->count * sizeof(*x->size);
    int64_t at = (int64_t)sizeof(index_head);
    index_head h;

    if ((size < at) || !ct_read_at(fd, &h, sizeof(h), 0) || (h.magic != index_magic))
        return CT_INDEX_CORRUPT;
    /* another number of files or records is another set: whole or not, it is of no use */
    if ((h.count != x->count) || (h.n_file != x->n_file)) return CT_INDEX_STALE;
    if (size != at + (int64_t)(stamps + offsets + sizes)) return CT_INDEX_CORRUPT;
    if (!ct_read_at(fd, found->file, stamps, at) ||
        !ct_read_at(fd, found->offset, offsets, at + (int64_t)stamps) ||
        !ct_read_at(fd, found->size, sizes, at + (int64_t)(stamps + offsets)) ||
        (h.checksum != checksum_of(found)))
        return CT_INDEX_CORRUPT;
    return (memcmp(found->file, x->file, stamps) == 0) ? CT_INDEX_GOOD : CT_INDEX_STALE;
}

ct_index_state ct_record_index_load(ct_record_index *x, const char *path,
                                    int64_t (*file_of)(const void *ctx, int64_t i), const void *ctx,
                                    int64_t *bytes_p)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ct_index_state state = CT_INDEX_CORRUPT;
    ct_record_index found;
    struct stat st;

    if (fd < 0) return CT_INDEX_ABSENT;
    if (fstat(fd, &st) != 0) st.st_size = 0;
    if (ct_record_index_create(&found, x->count, x->n_file) == CT_OK) {
        state = load(fd, st.st_size, x, &found);
        *bytes_p += st.st_size;
        if ((state == CT_INDEX_GOOD) && !fits(&found, file_of, ctx)) state = CT_INDEX_CORRUPT;
        if (state == CT_INDEX_GOOD) {
            ct_record_index_release(x);
            *x = found;
            ct_record_index_sum(x);
        } else {
            ct_record_index_release(&found);
        }
    }
    close(fd);
    return state;
}

/* ---- writing */

static bool put(int fd, const void *data, size_t n)
{
    const char *p = data;

    while (n > 0) {
        ssize_t put_now = write(fd, p, n);

        if ((put_now < 0) && (errno == EINTR)) continue;
        if (put_now <= 0) return false;
        p += put_now;
        n -= (size_t)put_now;
    }
    return true;
}

bool ct_record_index_save(const ct_record_index *x, const char *path)
{
    index_head h = { index_magic, checksum_of(x), x->count, x->n_file };
    ct_text name = { 0 };
    bool good = false;
    int fd, why;

    ct_text_add(&name, "%s.tmp.%d", path, (int)getpid());
    if (name.failed) return false;
    /* whoever makes the same one at the same time, on another host, has a name of its own or fails
     */
    fd = open(name.text, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    why = errno;
    if (fd >= 0) {
        good = put(fd, &h, sizeof(h)) && put(fd, x->file, (size_t)x->n_file * sizeof(*x->file)) &&
               put(fd, x->offset, (size_t)x->count * sizeof(*x->offset)) &&
               put(fd, x->size, (size_t)x->count * sizeof(*x->size)) && (fsync(fd) == 0);
        why = errno;
        good = (close(fd) == 0) && good && (rename(name.text, path) == 0);
        if (!good) {
            if (why == 0) why = errno;
            unlink(name.text);
        }
    }
    ct_text_destroy(&name);
    errno = why;
    return good;
}
