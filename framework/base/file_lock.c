#include "framework/base/file_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/base/text.h"

static struct flock whole(void)
{
    return (struct flock){ .l_type = F_WRLCK, .l_whence = SEEK_SET };
}

static bool is_busy(int why)
{
    return (why == EAGAIN) || (why == EACCES);
}

typedef struct holder {
    char host[64];
    long process;
} holder;

/* A lock file says who has it, for those who cannot see that process. */
static void write_holder(int fd)
{
    holder me = { .process = (long)getpid() };
    char text[128];
    int n;

    (void)gethostname(me.host, sizeof(me.host) - 1);
    n = snprintf(text, sizeof(text), "host %s process %ld\n", me.host, me.process);
    if (pwrite(fd, text, (size_t)n, 0) == n) (void)!ftruncate(fd, n);
}

/* Any file may be asked: most say nothing of the kind. */
static bool read_holder(int fd, holder *it)
{
    char text[128];
    ssize_t n = pread(fd, text, sizeof(text) - 1, 0);

    text[(n > 0) ? n : 0] = '\0';
    return sscanf(text, "host %63[A-Za-z0-9._-] process %ld", it->host, &it->process) == 2;
}

/* Who has the lock; CT_OK: nobody, or nobody can say. The system's number of a process that this
 * one cannot see is below 1. */
static ct_status ask(int fd, const char *path)
{
    struct flock lock = whole();
    holder it = { .host = "?" };

    if ((fcntl(fd, F_GETLK, &lock) != 0) || (lock.l_type == F_UNLCK)) return CT_OK;
    it.process = (long)lock.l_pid;
    if (it.process >= 1)
        (void)gethostname(it.host, sizeof(it.host) - 1);
    else if (!read_holder(fd, &it))
        return CT_FAIL(CT_ERR_CONFIG, "%s belongs to another job that runs, on another host", path);
    return CT_FAIL(CT_ERR_CONFIG, "%s belongs to another job that runs: host %s, process %ld", path,
                   it.host, it.process);
}

ct_status ct_file_lock(int fd, const char *path)
{
    struct stat st;

    if ((fstat(fd, &st) != 0) || !S_ISREG(st.st_mode)) return CT_OK;
    for (;;) {
        struct flock mine = whole();

        if ((fcntl(fd, F_SETLK, &mine) == 0) || !is_busy(errno)) return CT_OK;
        CT_TRY(ask(fd, path)); /* CT_OK: it was given back meanwhile */
    }
}

ct_status ct_file_lock_ask(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ct_status status;

    if (fd < 0) return CT_OK;
    status = ask(fd, path);
    close(fd);
    return status;
}

/* ---- lock files */

static ct_status open_lock(const char *path, ct_lock_file *l)
{
    l->fd = open(l->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if ((l->fd >= 0) || (errno == ENOENT) || (errno == ENOTDIR)) return CT_OK;
    return CT_FAIL(CT_ERR_IO, "cannot write %s: %s", path, strerror(errno));
}

static ct_status lock(const char *path, bool wait, const ct_lock_file *l)
{
    struct flock mine = whole();

    if (!wait) return ct_file_lock(l->fd, path);
    while ((fcntl(l->fd, F_SETLKW, &mine) != 0) && (errno == EINTR)) {
    }
    return CT_OK;
}

/* Whoever gives a lock back removes its file first, so the file may be another one by now. */
static bool is_there(const ct_lock_file *l)
{
    struct stat mine, there;

    return (fstat(l->fd, &mine) == 0) && (stat(l->path, &there) == 0) &&
           (mine.st_ino == there.st_ino) && (mine.st_dev == there.st_dev);
}

static char *name_of(const char *path)
{
    size_t n = strlen(path);
    ct_text name = { 0 };

    while ((n > 1) && (path[n - 1] == '/')) n--;
    ct_text_add(&name, "%.*s.tmp.lock", (int)n, path);
    if (name.failed) ct_text_destroy(&name);
    return name.text;
}

ct_status ct_lock_file_take(const char *path, bool wait, ct_lock_file *l)
{
    ct_status status;

    *l = (ct_lock_file){ .fd = -1, .path = name_of(path) };
    if (l->path == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to write %s", path);
    for (;;) {
        status = open_lock(path, l);
        if ((status != CT_OK) || (l->fd < 0)) break;
        status = lock(path, wait, l);
        if ((status != CT_OK) || is_there(l)) break;
        close(l->fd);
    }
    if ((status == CT_OK) && (l->fd >= 0)) write_holder(l->fd);
    if (status == CT_OK) return CT_OK;
    if (l->fd >= 0) close(l->fd);
    free(l->path);
    *l = (ct_lock_file){ .fd = -1 };
    return status;
}

void ct_lock_file_clear(const char *path)
{
    ct_lock_file l = { .fd = -1, .path = name_of(path) };
    struct flock mine = whole();

    if (l.path != NULL) l.fd = open(l.path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if ((l.fd >= 0) && (fcntl(l.fd, F_SETLK, &mine) == 0) && is_there(&l)) (void)unlink(l.path);
    if (l.fd >= 0) close(l.fd);
    free(l.path);
}

void ct_lock_file_release(ct_lock_file *l)
{
    if (l->fd >= 0) {
        (void)unlink(l->path);
        close(l->fd);
    }
    free(l->path);
    *l = (ct_lock_file){ .fd = -1 };
}
