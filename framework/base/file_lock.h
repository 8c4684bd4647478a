/** @file file_lock.h  Locks by which jobs that want the same file find each other.
 *
 * A lock is that of POSIX on a whole file. It ends with the process, so one that is killed blocks
 * nobody, and it holds on file servers, too. It also ends where its process closes the file by any
 * descriptor: whoever locks a file opens it once. File systems without locks have none, and jobs
 * there are as free as without this.
 */
#ifndef CT_FILE_LOCK_H
#define CT_FILE_LOCK_H

#include <stdbool.h>

#include "framework/base/status.h"

/** Locks a regular file that is open for writing. CT_ERR_CONFIG, logged with host and process:
 *  another process has it; of one that this process cannot see, as on another host, a lock file
 *  alone knows these. Files of other kinds take no lock. */
ct_status ct_file_lock(int fd, const char *path);
/** The same error, where another process has locked the file; takes nothing. CT_OK without one. */
ct_status ct_file_lock_ask(const char *path);

/** A file PATH.tmp.lock, for a path that nobody may open before it is whole. It says who has it. */
typedef struct ct_lock_file {
    int fd; /* -1: none */
    char *path;
} ct_lock_file;

/** Takes the lock of a path; `wait`: once another process gives it back. A folder that is not there
 *  takes none: whoever writes the path says so. CT_ERR_CONFIG as above, CT_ERR_IO. */
ct_status ct_lock_file_take(const char *path, bool wait, ct_lock_file *l);
void ct_lock_file_release(ct_lock_file *l); /* removes the file; zeroed after an error of take */
/** Removes the lock file of a path that a killed process left. One that another process has stays;
 *  this one must have none. */
void ct_lock_file_clear(const char *path);

#endif
