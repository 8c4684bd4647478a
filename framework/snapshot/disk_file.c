#include "framework/snapshot/disk_file.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "framework/base/text.h"

void ct_disk_open(ct_disk_file *d, const char *path, int64_t from)
{
    *d = (ct_disk_file){ .at = from };
    ct_hash_init(&d->hash);
    d->fd = ct_file_create(path);
    if (d->fd < 0) d->error = errno;
}

static void put(ct_disk_file *d, const char *p, int64_t bytes, int64_t at)
{
    while ((bytes > 0) && (d->error == 0)) {
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
    if ((d->error == 0) && (fsync(d->fd) != 0)) d->error = errno;
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
