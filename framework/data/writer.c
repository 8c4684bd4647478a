#include "framework/data/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/base/file.h"
#include "framework/base/text.h"

ct_status ct_path_check_free(const char *path, bool force)
{
    struct stat st;

    ct_path_remove_leftovers(path);
    if (force || (lstat(path, &st) != 0)) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG, "%s exists already; --force replaces it", path);
}

ct_status ct_writer_find(const char *backend, const ct_writer_ops **ops_p)
{
    for (const ct_writer_entry *e = ct_writer_table; e->name != NULL; e++) {
        if (strcmp(e->name, backend) != 0) continue;
        if (e->ops == NULL) return CT_FAIL(CT_ERR_CONFIG, "built without %s", e->without);
        *ops_p = e->ops;
        return CT_OK;
    }
    return CT_FAIL(CT_ERR_CONFIG, "unknown backend \"%s\": lmdb or hdf5", backend);
}

static void release(ct_writer *w)
{
    if (w->state != NULL) w->ops->close(w);
    free(w->state);
    free(w->path);
    free(w->temporary);
    free(w);
}

ct_status ct_writer_open(const char *backend, const char *path, int64_t expected, bool force,
                         ct_writer **writer_p)
{
    const ct_writer_ops *ops;

    CT_TRY(ct_writer_find(backend, &ops));
    return ct_writer_open_with(ops, NULL, path, expected, force, writer_p);
}

ct_status ct_writer_open_with(const ct_writer_ops *ops, const struct ct_shards *shards,
                              const char *path, int64_t expected, bool force, ct_writer **writer_p)
{
    ct_text temporary = { 0 };
    ct_status status;
    ct_writer *w;

    CT_TRY(ct_path_check_free(path, force));
    w = calloc(1, sizeof(*w));
    if (w == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to write %s", path);
    ct_path_add_own(&temporary, path, "tmp");
    w->ops = ops;
    w->path = strdup(path);
    w->temporary = temporary.text;
    w->expected = expected;
    w->force = force;
    w->shards = shards;
    w->state = calloc(1, ops->state_size);
    if ((w->path == NULL) || temporary.failed || (w->state == NULL)) {
        status = CT_FAIL(CT_ERR_NOMEM, "no memory to write %s", path);
        release(w);
        return status;
    }
    status = ops->open(w);
    if (status != CT_OK) {
        ct_writer_abort(w);
        return status;
    }
    w->shards = NULL; /* the caller's */
    *writer_p = w;
    return CT_OK;
}

ct_status ct_writer_put(ct_writer *w, const ct_record *record)
{
    CT_TRY(w->ops->put(w, record));
    w->count++;
    return CT_OK;
}

void ct_writer_abort(ct_writer *w)
{
    char *temporary;

    if (w == NULL) return;
    temporary = w->temporary;
    w->temporary = NULL;
    release(w);
    ct_path_remove(temporary);
    free(temporary);
}

/* The rename itself must reach the disk too. The number of the error, or 0. */
static int sync_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = (slash == NULL) ? strdup(".") : strndup(path, (size_t)(slash - path) + 1);
    int fd = (folder != NULL) ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    int why = (fd < 0) ? errno : 0;

    /* some file systems cannot sync a folder; there the rename is durable or nothing is */
    if ((fd >= 0) && (fsync(fd) != 0) && (errno != EINVAL) && (errno != ENOTSUP)) why = errno;
    if (fd >= 0) close(fd);
    free(folder);
    return why;
}

/* The new one is under the name, where no other had it; or it goes back. */
static ct_status sync_in(ct_writer *w)
{
    int why = sync_folder(w->path);

    if (why == 0) return CT_OK;
    (void)rename(w->path, w->temporary);
    return CT_FAIL(CT_ERR_IO, "cannot sync the folder of %s: %s", w->path, strerror(why));
}

static ct_status fail_rename(const ct_writer *w)
{
    return CT_FAIL(CT_ERR_IO, "cannot rename %s to %s: %s", w->temporary, w->path, strerror(errno));
}

/* For file systems that cannot exchange two names, and a folder cannot be renamed over another: the
 * old one steps aside first, and comes back where the new one does not get in. */
static ct_status replace_aside(ct_writer *w)
{
    ct_text aside = { 0 };
    ct_status status;

    ct_path_add_own(&aside, w->path, "old");
    if (aside.failed) return CT_FAIL(CT_ERR_NOMEM, "no memory to rename %s", w->path);
    if (rename(w->path, aside.text) != 0) {
        status = CT_FAIL(CT_ERR_IO, "cannot rename %s: %s", w->path, strerror(errno));
    } else {
        status = (rename(w->temporary, w->path) == 0) ? sync_in(w) : fail_rename(w);
        if (status == CT_OK)
            ct_path_remove(aside.text);
        else if (rename(aside.text, w->path) != 0)
            CT_WARN("the old %s is now %s", w->path, aside.text);
    }
    ct_text_destroy(&aside);
    return status;
}

/* There is one under the name at any time. */
static ct_status replace(ct_writer *w)
{
    int why;

    if (ct_path_exchange(w->temporary, w->path) != 0) {
        if ((errno == EINVAL) || (errno == ENOSYS) || (errno == ENOTSUP)) return replace_aside(w);
        return fail_rename(w);
    }
    why = sync_folder(w->path);
    if (why == 0) {
        ct_path_remove(w->temporary); /* the old one */
        return CT_OK;
    }
    if (ct_path_exchange(w->temporary, w->path) != 0)
        CT_WARN("the old %s is now %s", w->path, w->temporary);
    return CT_FAIL(CT_ERR_IO, "cannot sync the folder of %s: %s", w->path, strerror(why));
}

static ct_status move_in(ct_writer *w)
{
    struct stat st;

    if (w->force && (lstat(w->path, &st) == 0)) return replace(w);
    return (rename(w->temporary, w->path) == 0) ? sync_in(w) : fail_rename(w);
}

ct_status ct_writer_commit(ct_writer *w)
{
    ct_status status;

    if (w->count != w->expected) {
        status = CT_FAIL(CT_ERR_ARG, "%s: %lld records put, %lld announced", w->path,
                         (long long)w->count, (long long)w->expected);
    } else {
        status = w->ops->finish(w);
    }
    if (status == CT_OK) status = move_in(w);
    if (status == CT_OK) {
        release(w);
    } else {
        ct_writer_abort(w);
    }
    return status;
}

/* ---- the backends there are; the only file that knows which are built in */

#ifdef CT_HAVE_LMDB
#define LMDB &ct_writer_lmdb
#else
#define LMDB NULL
#endif

const ct_writer_entry ct_writer_table[] = {
    { "lmdb", LMDB, "LMDB (liblmdb-dev)" },
    { "hdf5", &ct_writer_hdf5, "" },
    { NULL, NULL, NULL },
};
