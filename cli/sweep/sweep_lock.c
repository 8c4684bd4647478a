/* Who works in a sweep's folder, and who has a run of it.
 *
 * The folder's is sweep.lock: one sweep at a time, or any number that make a single run each. It
 * ends with the sweep's own process. A run's is runs/NNNN.lock, which its process inherits.
 *
 * A sweep that is killed tells its runs to end, and they write a snapshot first. Until the last of
 * them is gone the lock is theirs, so the same sweep, called again at once, knows to wait. A file
 * system without such locks has none, and the owner of the snapshots decides alone (owner.h).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "cli/scale/spawn.h"
#include "cli/sweep/sweep.h"
#include "framework/base/clock.h"
#include "framework/snapshot/set_files.h"

#define WAIT_S 300.0 /* as long as a run may take for its last snapshot */

typedef enum taking { LOCK_TAKEN, LOCK_BUSY, LOCK_NONE, LOCK_ERROR } taking;

/* how: LOCK_EX or LOCK_SH. *fd_p is open where the lock was taken; errno says why of LOCK_ERROR. */
static taking take(const char *path, int how, int *fd_p)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644), why;

    if (fd < 0) return LOCK_ERROR;
    *fd_p = fd;
    if (flock(fd, how | LOCK_NB) == 0) return LOCK_TAKEN;
    why = errno;
    close(fd);
    *fd_p = 0;
    if (why == EWOULDBLOCK) return LOCK_BUSY;
    errno = why;
    return ((why == ENOSYS) || (why == ENOTSUP) || (why == ENOLCK)) ? LOCK_NONE : LOCK_ERROR;
}

static ct_status path_of(const ct_sweep *s, int i, ct_text *path)
{
    ct_text_add(path, "%s/runs/%04d.lock", s->folder, i + 1);
    return path->failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for a file name") : CT_OK;
}

static ct_status wait_for(const char *path, int i)
{
    double start = ct_clock_s();
    bool told = false;
    int fd = 0;

    for (;;) {
        switch (take(path, LOCK_EX, &fd)) {
        case LOCK_TAKEN:
            close(fd);
            return CT_OK;
        case LOCK_NONE:
            return CT_OK;
        case LOCK_ERROR:
            return CT_FAIL(CT_ERR_IO, "%s: %s", path, strerror(errno));
        case LOCK_BUSY:
            break;
        }
        if (ct_clock_s() - start > WAIT_S)
            return CT_FAIL(CT_ERR_CONFIG,
                           "run %04d still trains: another sweep of this folder has it (%s)", i + 1,
                           path);
        if (!told)
            CT_INFO("run %04d still trains, as after a sweep that was killed: waiting up to %.0f s "
                    "for its end",
                    i + 1, WAIT_S);
        told = true;
        CT_TRY(ct_stop_signals_nap());
    }
}

ct_status ct_sweep_wait(const ct_sweep *s, int i)
{
    ct_text path = { 0 };
    ct_status status = path_of(s, i, &path);

    /* a run that never began has no lock, and needs none to be looked at */
    if ((status == CT_OK) && (access(path.text, F_OK) == 0)) status = wait_for(path.text, i);
    ct_text_destroy(&path);
    return status;
}

ct_status ct_sweep_lock(const ct_sweep *s, int i, int *fd_p)
{
    ct_text path = { 0 };
    ct_status status = path_of(s, i, &path);
    taking what = (status == CT_OK) ? take(path.text, LOCK_EX, fd_p) : LOCK_NONE;

    if (what == LOCK_BUSY)
        status = CT_FAIL(CT_ERR_CONFIG, "run %04d trains: another sweep of this folder has it (%s)",
                         i + 1, path.text);
    else if (what == LOCK_ERROR)
        status = CT_FAIL(CT_ERR_IO, "%s: %s", path.text, strerror(errno));
    ct_text_destroy(&path);
    return status;
}

ct_status ct_sweep_lock_folder(const ct_sweep *s, bool one_run, int *fd_p)
{
    ct_text path = { 0 };
    taking what = LOCK_NONE;
    ct_status status = CT_OK;

    ct_text_add(&path, "%s/sweep.lock", s->folder);
    if (path.failed) status = CT_FAIL(CT_ERR_NOMEM, "no memory for a file name");
    if (status == CT_OK) status = ct_set_directories(path.text);
    if (status == CT_OK) what = take(path.text, one_run ? LOCK_SH : LOCK_EX, fd_p);
    if (what == LOCK_BUSY)
        status = CT_FAIL(CT_ERR_CONFIG,
                         "%s: another sweep works in this folder; wait for its end, or give --to "
                         "another one",
                         s->folder);
    else if (what == LOCK_ERROR)
        status = CT_FAIL(CT_ERR_IO, "%s: %s", path.text, strerror(errno));
    ct_text_destroy(&path);
    return status;
}

void ct_sweep_unlock(int *fd)
{
    if (*fd > 0) close(*fd);
    *fd = 0;
}
