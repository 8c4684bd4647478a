#include "framework/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *ct_path_base(const char *path)
{
    const char *slash = strrchr(path, '/');

    return (slash != NULL) ? slash + 1 : path;
}

static ct_status read_whole(const char *path, int64_t most, char **data_p, size_t *size_p)
{
    FILE *f = ct_file_open_stream(path);
    char *data = NULL;
    struct stat st;
    ct_status status = CT_OK;

    if (f == NULL) return CT_FAIL(CT_ERR_IO, "%s: %s", path, ct_path_why(path, errno).text);
    if (fstat(fileno(f), &st) != 0) {
        status = CT_FAIL(CT_ERR_IO, "%s: %s", path, strerror(errno));
        goto out;
    }
    if (st.st_size > most) {
        status = CT_FAIL(CT_ERR_DATA, "%s: %lld bytes, at most %lld are read of such a file", path,
                         (long long)st.st_size, (long long)most);
        goto out;
    }
    data = malloc((size_t)st.st_size + 1);
    if (data == NULL) {
        status = CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", path);
        goto out;
    }
    if (fread(data, 1, (size_t)st.st_size, f) != (size_t)st.st_size) {
        free(data);
        status = CT_FAIL(CT_ERR_IO, "%s: cannot read %lld bytes", path, (long long)st.st_size);
        goto out;
    }
    data[st.st_size] = '\0';
    *data_p = data;
    *size_p = (size_t)st.st_size;
out:
    fclose(f);
    return status;
}

ct_status ct_file_read(const char *path, char **data_p, size_t *size_p)
{
    return read_whole(path, INT64_MAX - 1, data_p, size_p);
}

ct_status ct_settings_read(const char *path, char **data_p, size_t *size_p)
{
    return read_whole(path, CT_MOST_SETTINGS, data_p, size_p);
}

/* Why no file can come to stand under this name; 0: one can. It would take the place of a device or
 * a pipe. The temporary name is longer. */
static int name_reason(const char *path)
{
    ct_text own = { 0 };
    struct stat st;
    int reason = 0;

    if (stat(path, &st) != 0)
        reason = (errno == ENOENT) ? 0 : errno;
    else if (!S_ISREG(st.st_mode))
        reason = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
    ct_path_add_own(&own, path, "tmp");
    if ((reason == 0) && !own.failed && (lstat(own.text, &st) != 0) && (errno == ENAMETOOLONG))
        reason = ENAMETOOLONG;
    ct_text_destroy(&own);
    return reason;
}

ct_status ct_file_check_writable(const char *path)
{
    ct_text folder = { 0 };
    const char *slash = strrchr(path, '/');
    int reason = 0;

    if (slash == NULL)
        ct_text_add(&folder, ".");
    else
        ct_text_add(&folder, "%.*s", (slash == path) ? 1 : (int)(slash - path), path);
    if (folder.failed) return CT_FAIL(CT_ERR_NOMEM, "no memory to write %s", path);
    if (access(folder.text, W_OK | X_OK) != 0)
        reason = errno;
    else
        reason = name_reason(path);
    ct_text_destroy(&folder);
    if (reason != 0)
        return CT_FAIL(CT_ERR_IO, "cannot write %s: %s", path, ct_path_why(path, reason).text);
    ct_path_remove_leftovers(path);
    return CT_OK;
}

int ct_file_open(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), why = EINVAL;
    struct stat st;

    if (fd < 0) return -1;
    if (fstat(fd, &st) != 0)
        why = errno;
    else if (S_ISREG(st.st_mode))
        return fd;
    else if (S_ISDIR(st.st_mode))
        why = EISDIR;
    close(fd);
    errno = why;
    return -1;
}

const char *ct_file_reason(int reason)
{
    if (reason == EISDIR) return "a folder; expected a file";
    return (reason == EINVAL) ? "not a regular file" : strerror(reason);
}

FILE *ct_file_open_stream(const char *path)
{
    int fd = ct_file_open(path);
    FILE *f = (fd >= 0) ? fdopen(fd, "rb") : NULL;

    if ((fd >= 0) && (f == NULL)) close(fd);
    return f;
}

int ct_file_create(const char *path)
{
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    int fd = open(path, flags, 0666);

    if ((fd < 0) && (errno == EEXIST) && (unlink(path) == 0)) fd = open(path, flags, 0666);
    return fd;
}

FILE *ct_file_create_stream(const char *path)
{
    int fd = ct_file_create(path);
    FILE *f = (fd >= 0) ? fdopen(fd, "wb") : NULL;

    if ((fd >= 0) && (f == NULL)) close(fd);
    return f;
}

ct_status ct_file_write(const char *path, const void *data, size_t size)
{
    ct_text temporary = { 0 };
    bool good = false;
    int reason = name_reason(path);
    FILE *f;

    if ((reason == EINVAL) || (reason == EISDIR))
        return CT_FAIL(CT_ERR_IO, "cannot write %s: %s", path, ct_file_reason(reason));
    ct_path_remove_leftovers(path);
    ct_path_add_own(&temporary, path, "tmp");
    if (temporary.failed) return CT_FAIL(CT_ERR_NOMEM, "no memory to write %s", path);
    f = ct_file_create_stream(temporary.text);
    if (f != NULL) {
        good = (fwrite(data, 1, size, f) == size) && (fflush(f) == 0) && (fsync(fileno(f)) == 0);
        good = (fclose(f) == 0) && good;
        good = good && (rename(temporary.text, path) == 0);
    }
    if (!good) {
        reason = errno;
        if (f != NULL) unlink(temporary.text);
        ct_text_destroy(&temporary);
        return CT_FAIL(CT_ERR_IO, "cannot write %s: %s", path, strerror(reason));
    }
    ct_text_destroy(&temporary);
    return CT_OK;
}

const char *ct_folder_next(DIR *d, int *reason_p)
{
    const struct dirent *e;

    if (d == NULL) return NULL;
    do {
        errno = 0;
        e = readdir(d);
    } while ((e != NULL) && ((strcmp(e->d_name, ".") == 0) || (strcmp(e->d_name, "..") == 0)));
    if (reason_p != NULL) *reason_p = (e != NULL) ? 0 : errno;
    return (e != NULL) ? e->d_name : NULL;
}
