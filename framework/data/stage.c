#include "framework/data/group.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "framework/base/file_lock.h"
#include "framework/base/rng.h"
#include "framework/base/file.h"
#include "framework/base/text.h"
#include "framework/data/writer.h"

enum { MAX_FILE = 1024, PIECE = 1 << 20 };

/* What is copied: the files of a folder, or one file. */
typedef struct set {
    const char *who;
    char *source; /* the full path */
    bool folder;
    int n;
    char *name[MAX_FILE];
    struct stat st[MAX_FILE];
    double bytes;
    ct_text list; /* stage.txt */
} set;

static void set_release(set *s)
{
    for (int i = 0; i < s->n; i++) free(s->name[i]);
    free(s->source);
    ct_text_destroy(&s->list);
}

bool ct_stage_can(const char *backend, const char *source)
{
    char magic[8] = "";
    FILE *f;
    bool good;

    if (strcmp(backend, "lmdb") == 0) return true;
    if (strcmp(backend, "hdf5") != 0) return false;
    f = ct_file_open_stream(source);
    good =
        (f != NULL) && (fread(magic, 1, 8, f) == 8) && (memcmp(magic, "\x89HDF\r\n\x1a\n", 8) == 0);
    if (f != NULL) fclose(f);
    return good;
}

static char *folder_of(const char *stage, const char *full)
{
    ct_text t = { 0 };

    ct_text_add(&t, "%s/%s-%016llx", stage, ct_path_base(full),
                (unsigned long long)ct_rng_hash(full));
    return t.failed ? NULL : t.text;
}

char *ct_stage_path(const char *stage, const char *source)
{
    char *full = realpath(source, NULL), *folder = (full != NULL) ? folder_of(stage, full) : NULL;
    ct_text t = { 0 };
    struct stat st;

    if ((folder != NULL) && (stat(full, &st) == 0) && !S_ISDIR(st.st_mode)) {
        ct_text_add(&t, "%s/%s", folder, ct_path_base(full));
        free(folder);
        folder = t.failed ? NULL : t.text;
    }
    free(full);
    return folder;
}

/* ---- what there is */

/* Not the set's: locks, indices (made anew beside the copy), what others are writing. */
static bool is_extra(const char *name)
{
    size_t n = strlen(name);

    return (name[0] == '.') || (strcmp(name, "lock.mdb") == 0) || (strcmp(name, "index") == 0) ||
           ((n > 6) && (strcmp(name + n - 6, ".index") == 0)) || (strstr(name, ".tmp.") != NULL);
}

static ct_status add_file(set *s, const char *name)
{
    ct_text path = { 0 };
    struct stat st;
    int rc;

    ct_text_add(&path, s->folder ? "%s/%s" : "%s", s->source, name);
    rc = path.failed ? -1 : stat(path.text, &st);
    ct_text_destroy(&path);
    if (rc != 0)
        return CT_FAIL(CT_ERR_IO, "%s: --stage: %s/%s: %s", s->who, s->source, name,
                       strerror(errno));
    if (!S_ISREG(st.st_mode)) return CT_OK;
    if (s->n == MAX_FILE)
        return CT_FAIL(CT_ERR_IO, "%s: --stage: %s has more than %d files", s->who, s->source,
                       MAX_FILE);
    s->name[s->n] = strdup(name);
    if (s->name[s->n] == NULL) return CT_FAIL(CT_ERR_NOMEM, "%s: no memory", s->who);
    s->bytes += (double)st.st_size;
    s->st[s->n++] = st;
    return CT_OK;
}

static ct_status list_folder(set *s)
{
    struct dirent **entry = NULL;
    int n = scandir(s->source, &entry, NULL, alphasort);
    ct_status status = CT_OK;

    if (n < 0) return CT_FAIL(CT_ERR_IO, "%s: --stage: %s: %s", s->who, s->source, strerror(errno));
    for (int i = 0; i < n; i++) {
        if ((status == CT_OK) && !is_extra(entry[i]->d_name))
            status = add_file(s, entry[i]->d_name);
        free(entry[i]);
    }
    free(entry);
    return status;
}

static ct_status look(const char *source, const char *who, set *s)
{
    struct stat st;

    *s = (set){ .who = who, .source = realpath(source, NULL) };
    if ((s->source == NULL) || (stat(s->source, &st) != 0))
        return CT_FAIL(CT_ERR_IO, "%s: --stage: %s: %s", who, source, strerror(errno));
    s->folder = S_ISDIR(st.st_mode);
    CT_TRY(s->folder ? list_folder(s) : add_file(s, ct_path_base(s->source)));
    ct_text_add(&s->list, "%s\n", s->source);
    for (int i = 0; i < s->n; i++)
        ct_text_add(&s->list, "%lld %lld.%09ld %s\n", (long long)s->st[i].st_size,
                    (long long)s->st[i].st_mtim.tv_sec, s->st[i].st_mtim.tv_nsec, s->name[i]);
    return s->list.failed ? CT_FAIL(CT_ERR_NOMEM, "%s: no memory", who) : CT_OK;
}

/* ---- what was copied */

static bool is_current(const set *s, const char *folder)
{
    ct_text path = { 0 };
    struct stat st;
    char *text = NULL;
    size_t size = 0;
    bool good;

    ct_text_add(&path, "%s/stage.txt", folder);
    good = !path.failed && (access(path.text, R_OK) == 0) &&
           (ct_file_read(path.text, &text, &size) == CT_OK) && (strcmp(text, s->list.text) == 0);
    free(text);
    for (int i = 0; good && (i < s->n); i++) {
        path.length = 0;
        ct_text_add(&path, "%s/%s", folder, s->name[i]);
        good = !path.failed && (stat(path.text, &st) == 0) && (st.st_size == s->st[i].st_size);
    }
    ct_text_destroy(&path);
    return good;
}

static ct_status check_space(const set *s, const char *stage)
{
    const double mib = 1 << 20;
    struct statvfs fs;
    double space;

    if (statvfs(stage, &fs) != 0)
        return CT_FAIL(CT_ERR_IO, "%s: --stage=%s: %s", s->who, stage, strerror(errno));
    space = (double)fs.f_bavail * (double)fs.f_frsize;
    if (s->bytes <= space) return CT_OK;
    return CT_FAIL(CT_ERR_IO, "%s: --stage=%s: %s takes %.0f MiB, %.0f MiB are free there", s->who,
                   stage, s->source, s->bytes / mib, space / mib);
}

static bool put_all(int fd, const char *p, ssize_t n)
{
    while (n > 0) {
        ssize_t now = write(fd, p, (size_t)n);

        if ((now < 0) && (errno == EINTR)) continue;
        if (now <= 0) return false;
        p += now;
        n -= now;
    }
    return true;
}

/* Exactly size bytes; false with errno, 0 where the source became shorter or longer. */
static bool copy_bytes(int from, int to, int64_t size, char *piece)
{
    for (;;) {
        ssize_t n = read(from, piece, PIECE);

        if ((n < 0) && (errno == EINTR)) continue;
        if (n < 0) return false;
        if (n == 0) break;
        if (!put_all(to, piece, n)) return false;
        size -= n;
    }
    errno = 0;
    return size == 0;
}

static ct_status copy_file(const set *s, int i, const char *folder, char *piece)
{
    ct_text from = { 0 }, to = { 0 };
    struct timespec times[2] = { s->st[i].st_mtim, s->st[i].st_mtim };
    int in = -1, out = -1, why = 0;
    bool good = false;

    ct_text_add(&from, s->folder ? "%s/%s" : "%s", s->source, s->name[i]);
    ct_text_add(&to, "%s/%s", folder, s->name[i]);
    if (!from.failed && !to.failed) {
        in = ct_file_open(from.text);
        out = open(to.text, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        good = (in >= 0) && (out >= 0) && copy_bytes(in, out, s->st[i].st_size, piece) &&
               (futimens(out, times) == 0) && (fsync(out) == 0);
        why = errno;
        if (in >= 0) close(in);
        if (out >= 0) good = (close(out) == 0) && good;
    }
    ct_text_destroy(&from);
    ct_text_destroy(&to);
    if (good) return CT_OK;
    return CT_FAIL(CT_ERR_IO, "%s: --stage: cannot copy %s of %s to %s: %s", s->who, s->name[i],
                   s->source, folder, (why != 0) ? strerror(why) : "it changed meanwhile");
}

static ct_status copy_all(const set *s, const char *folder)
{
    char *piece = malloc(PIECE);
    ct_text list = { 0 };
    ct_status status = CT_OK;

    ct_text_add(&list, "%s/stage.txt", folder);
    if ((piece == NULL) || list.failed) status = CT_FAIL(CT_ERR_NOMEM, "%s: no memory", s->who);
    for (int i = 0; (i < s->n) && (status == CT_OK); i++) status = copy_file(s, i, folder, piece);
    if (status == CT_OK) status = ct_file_write(list.text, s->list.text, s->list.length);
    free(piece);
    ct_text_destroy(&list);
    return status;
}

/* The old copy steps aside; whoever has it open keeps it. */
static ct_status move_in(const set *s, const char *temporary, const char *folder)
{
    ct_text aside = { 0 };
    ct_status status = CT_OK;

    ct_path_add_own(&aside, folder, "old");
    if (aside.failed) return CT_FAIL(CT_ERR_NOMEM, "%s: no memory", s->who);
    if ((rename(folder, aside.text) != 0) && (errno != ENOENT)) {
        status = CT_FAIL(CT_ERR_IO, "%s: --stage: cannot replace %s: %s", s->who, folder,
                         strerror(errno));
    } else if (rename(temporary, folder) != 0) {
        status =
            CT_FAIL(CT_ERR_IO, "%s: --stage: cannot make %s: %s", s->who, folder, strerror(errno));
    }
    ct_path_remove(aside.text);
    ct_text_destroy(&aside);
    return status;
}

static ct_status make_copy(const set *s, const char *stage, const char *folder)
{
    ct_text temporary = { 0 };
    ct_status status;

    CT_TRY(check_space(s, stage));
    ct_path_add_own(&temporary, folder, "tmp");
    if (temporary.failed) return CT_FAIL(CT_ERR_NOMEM, "%s: no memory", s->who);
    CT_INFO("%s: copying %s to %s: %d files, %.1f MiB", s->who, s->source, folder, s->n,
            s->bytes / (1 << 20));
    ct_path_remove(temporary.text); /* of a process that was killed and had our number */
    if (mkdir(temporary.text, 0777) != 0) {
        status = CT_FAIL(CT_ERR_IO, "%s: --stage: cannot make %s: %s", s->who, temporary.text,
                         strerror(errno));
    } else {
        status = copy_all(s, temporary.text);
        if (status == CT_OK) status = move_in(s, temporary.text, folder);
        ct_path_remove(temporary.text); /* there only where something failed */
    }
    ct_text_destroy(&temporary);
    return status;
}

/* One job copies, and the others wait for it: that takes them as long as their own copy would. */
static ct_status make_or_wait(const set *s, const char *stage, const char *folder)
{
    ct_lock_file lock;
    ct_status status = CT_OK;

    CT_TRY(ct_lock_file_take(folder, true, &lock));
    ct_path_remove_leftovers(folder);
    if (!is_current(s, folder)) status = make_copy(s, stage, folder);
    ct_lock_file_release(&lock);
    return status;
}

ct_status ct_stage_make(const char *stage, const char *source, const char *who)
{
    char *folder = NULL;
    ct_status status;
    set *s = malloc(sizeof(*s));

    if (s == NULL) return CT_FAIL(CT_ERR_NOMEM, "%s: no memory", who);
    status = look(source, who, s);
    if (status == CT_OK) {
        (void)mkdir(stage, 0777); /* where it is not there; what is wrong with it shows below */
        folder = folder_of(stage, s->source);
        if (folder == NULL) status = CT_FAIL(CT_ERR_NOMEM, "%s: no memory", who);
    }
    if (status == CT_OK) {
        ct_lock_file_clear(folder); /* a job that was killed behind its copy left one */
        if (is_current(s, folder))
            CT_INFO("%s: %s is staged already: %s", who, s->source, folder);
        else
            status = make_or_wait(s, stage, folder);
    }
    set_release(s);
    free(folder);
    free(s);
    return status;
}
