/* O_DIRECT, O_TMPFILE, fallocate */
#include "framework/base/scratch_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "framework/base/log.h"
#include "framework/base/text.h"

static ct_status fail(const char *folder, const char *what)
{
    return CT_FAIL(CT_ERR_IO, "memory { path }: %s in \"%s\": %s", what, folder, strerror(errno));
}

/* A file with a name for a moment, where the file system has none without. */
static int open_named(const char *folder)
{
    ct_text name = { 0 };
    int fd = -1;

    ct_text_add(&name, "%s/cortado.XXXXXX", folder);
    if (!name.failed) fd = mkostemp(name.text, O_CLOEXEC);
    if (fd >= 0) (void)unlink(name.text);
    ct_text_destroy(&name);
    return fd;
}

/* Whether reads past the page cache work, not only the flag. */
static bool is_direct(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    void *block = NULL;
    bool works = false;

    if ((flags < 0) || (fcntl(fd, F_SETFL, flags | O_DIRECT) != 0)) return false;
    if (posix_memalign(&block, CT_SCRATCH_ALIGN, CT_SCRATCH_ALIGN) == 0) {
        memset(block, 0, CT_SCRATCH_ALIGN);
        works = (pwrite(fd, block, CT_SCRATCH_ALIGN, 0) == CT_SCRATCH_ALIGN) &&
                (pread(fd, block, CT_SCRATCH_ALIGN, 0) == CT_SCRATCH_ALIGN);
    }
    free(block);
    if (!works) (void)fcntl(fd, F_SETFL, flags);
    return works;
}

static ct_status reserve(const char *folder, int64_t bytes, ct_scratch_file *f)
{
    struct statfs room;

    f->reserved = (bytes == 0) || (fallocate(f->fd, 0, 0, (off_t)bytes) == 0);
    if (f->reserved) return CT_OK;
    if ((errno == ENOSPC) || (errno == EDQUOT) || (errno == EFBIG)) {
        int error = errno;
        double there =
            (statfs(folder, &room) == 0) ? (double)room.f_bavail * (double)room.f_bsize : NAN;

        return CT_FAIL(CT_ERR_IO,
                       "memory { path }: \"%s\" has no room for a file of %.1f MiB: %s, %.1f MiB "
                       "are free; give another folder, or keep less in files",
                       folder, ldexp((double)bytes, -20), strerror(error), ldexp(there, -20));
    }
    if (ftruncate(f->fd, (off_t)bytes) != 0) return fail(folder, "cannot make a file");
    CT_INFO("memory { path }: \"%s\" does not reserve room for files: one may run full later",
            folder);
    return CT_OK;
}

ct_status ct_scratch_open(const char *folder, int64_t bytes, ct_scratch_file *f)
{
    ct_status status;

    *f = (ct_scratch_file){ .fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600) };
    if (f->fd < 0) f->fd = open_named(folder);
    if (f->fd < 0) return fail(folder, "cannot make a file");
    status = reserve(folder, bytes, f);
    if (status != CT_OK) {
        ct_scratch_close(f);
        return status;
    }
    f->direct = (bytes >= CT_SCRATCH_ALIGN) && is_direct(f->fd);
    return CT_OK;
}

void ct_scratch_close(ct_scratch_file *f)
{
    if (f->fd >= 0) (void)close(f->fd);
    f->fd = -1;
}

void ct_scratch_forget(const ct_scratch_file *f, int64_t at, int64_t bytes)
{
    if (f->direct) return;
    (void)sync_file_range(f->fd, at, bytes,
                          SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                              SYNC_FILE_RANGE_WAIT_AFTER);
    (void)posix_fadvise(f->fd, (off_t)at, (off_t)bytes, POSIX_FADV_DONTNEED);
}

ct_status ct_scratch_check(const char *folder, bool *memory_p)
{
    const long tmpfs = 0x01021994, ramfs = 0x858458f6L;
    struct statfs s;
    struct stat st;

    if ((stat(folder, &st) != 0) || !S_ISDIR(st.st_mode))
        return CT_FAIL(CT_ERR_CONFIG, "memory { path }: \"%s\" is no folder", folder);
    if (access(folder, W_OK | X_OK) != 0)
        return CT_FAIL(CT_ERR_CONFIG, "memory { path }: no files can be made in \"%s\": %s", folder,
                       strerror(errno));
    *memory_p =
        (statfs(folder, &s) == 0) && (((long)s.f_type == tmpfs) || ((long)s.f_type == ramfs));
    return CT_OK;
}
