/* Names that files and folders have until they are whole, and what is left under such names where a
 * job was killed. */
#include "framework/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/base/hash.h"
#include "framework/base/log.h"

/* Of where the numbers of processes count: a host, and a name space of it. */
static uint32_t here(void)
{
    char host[256] = "", space[64];
    ssize_t n = readlink("/proc/self/ns/pid", space, sizeof(space));
    ct_hash h;

    (void)gethostname(host, sizeof(host) - 1);
    ct_hash_init(&h);
    ct_hash_add(&h, host, strlen(host));
    if (n > 0) ct_hash_add(&h, space, (size_t)n);
    return (uint32_t)ct_hash_value(&h);
}

void ct_path_add_own(ct_text *t, const char *path, const char *word)
{
    ct_text_add(t, "%s.%s.%d-%08" PRIx32, path, word, (int)getpid(), here());
}

void ct_path_remove(const char *path)
{
    /* a link is removed, not the files of the folder that it leads to */
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = (fd >= 0) ? fdopendir(fd) : NULL;

    if (dir == NULL) {
        if (fd >= 0) close(fd);
        unlink(path);
        return;
    }
    for (const char *name; (name = ct_folder_next(dir, NULL)) != NULL;)
        unlinkat(dirfd(dir), name, 0);
    closedir(dir);
    rmdir(path);
}

static bool is_gone(const char *process_host)
{
    char *end;
    long process = strtol(process_host, &end, 10);
    char host[16];

    if (access("/proc/self/ns/pid", F_OK) != 0) return false; /* maybe of another container */
    if ((process < 1) || (process > INT32_MAX) || (process == (long)getpid())) return false;
    snprintf(host, sizeof(host), "-%08" PRIx32, here());
    return (strcmp(end, host) == 0) && (kill((pid_t)process, 0) != 0) && (errno == ESRCH);
}

static void remove_one(const char *path, const char *left, bool is_old)
{
    struct stat st;

    if (is_old && (lstat(path, &st) != 0) && (rename(left, path) == 0)) {
        CT_INFO("%s is the old one again: a job was killed that would have replaced it", path);
        return;
    }
    ct_path_remove(left);
    if (lstat(left, &st) != 0) CT_INFO("removed %s, of a job that was killed", left);
}

void ct_path_remove_leftovers(const char *path)
{
    static const char *const word[] = { ".tmp.", ".part.", ".old." };
    const char *base = ct_path_base(path), *name;
    size_t length = strlen(base);
    ct_text folder = { 0 }, left = { 0 };
    DIR *dir;

    ct_text_add(&folder, "%.*s", (int)(base - path), path);
    dir = folder.failed ? NULL : opendir((base == path) ? "." : folder.text);
    while ((name = ct_folder_next(dir, NULL)) != NULL) {
        if ((length == 0) || (strncmp(name, base, length) != 0)) continue;
        for (int i = 0; i < 3; i++) {
            size_t n = strlen(word[i]);

            if ((strncmp(name + length, word[i], n) != 0) || !is_gone(name + length + n)) continue;
            ct_text_add(&left, "%.*s%s", (int)(base - path), path, name);
            if (!left.failed) remove_one(path, left.text, i == 2);
            ct_text_destroy(&left);
            break;
        }
    }
    if (dir != NULL) closedir(dir);
    ct_text_destroy(&folder);
}

int ct_path_exchange(const char *from, const char *to)
{
#ifdef RENAME_EXCHANGE
    return renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE);
#else
    (void)from;
    (void)to;
    errno = ENOSYS;
    return -1;
#endif
}
