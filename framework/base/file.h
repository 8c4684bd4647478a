/** @file file.h  Files read and written whole, their names, and the names in a folder. */
#ifndef CT_FILE_H
#define CT_FILE_H

#include <dirent.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "framework/base/status.h"
#include "framework/base/text.h"

/** What follows the last slash. */
const char *ct_path_base(const char *path);

/** Reads a whole file; *data_p is NUL-terminated beyond *size_p and freed by the caller with
 *  free(). Errors: CT_ERR_IO, logged with the reason. */
ct_status ct_file_read(const char *path, char **data_p, size_t *size_p);
/** The same of a file that people write, or that describes something: beyond CT_MOST_SETTINGS bytes
 *  CT_ERR_DATA, logged, and nothing is read. */
ct_status ct_settings_read(const char *path, char **data_p, size_t *size_p);
#define CT_MOST_SETTINGS ((int64_t)256 << 20)
/** Opens a regular file to read. Nobody waits for a writer, as open() does for that of a pipe. -1,
 *  NULL: errno says why; EISDIR of a folder, EINVAL of what else is no regular file. */
int ct_file_open(const char *path);
FILE *ct_file_open_stream(const char *path);
/** What an errno of these two says to a user, as strerror() otherwise. */
const char *ct_file_reason(int reason);

/** The same of a path, and of one that is not there what may be meant: "No such file or directory;
 *  there is no folder net; did you mean nets?". The nearest name has two letters wrong at most. */
typedef struct ct_path_reason {
    char text[1024];
} ct_path_reason;
ct_path_reason ct_path_why(const char *path, int reason);
/** Makes a file under a temporary name and opens it to write. What has the name already, a link or
 *  what a killed process left, is removed and never written through. -1, NULL: errno says why. */
int ct_file_create(const char *path);
FILE *ct_file_create_stream(const char *path);
/** CT_ERR_IO, logged, where ct_file_write() would fail for want of the folder or of rights, by a
 *  name that is too long, or because a device or a pipe has it. Asked before the work whose result
 *  is to be written. What killed jobs left is removed (ct_path_remove_leftovers()). */
ct_status ct_file_check_writable(const char *path);
/** Writes a file whole or not at all: a temporary name, flush, fsync, rename. CT_ERR_IO, also where
 *  it would take the place of a folder, a device or a pipe. What killed jobs left of it is removed.
 */
ct_status ct_file_write(const char *path, const void *data, size_t size);

/* ---- names that files and folders have until they are whole */

/** Appends PATH.WORD.PROCESS-HOST: the number of this process, and 32 bits of a hash. The hash is
 *  of its host's name and of where its number counts (a name space, as of a container). So other
 *  processes, also on other hosts, call their files otherwise. */
void ct_path_add_own(ct_text *t, const char *path, const char *word);

/** Removes a file, or a folder and the files in it. Quiet. */
void ct_path_remove(const char *path);

/** Removes what killed jobs left beside a path that this job is about to make: PATH.tmp.*, .part.*
 *  and .old.*, where the process of the name counts as this one's does, and is gone. Where the path
 *  is not there, an old one gets it back. Quiet: what cannot be removed stays. */
void ct_path_remove_leftovers(const char *path);

/** Puts a file or folder `from` in the place of `to`, which is there, and that one in the place of
 *  `from`, at once. -1: errno; EINVAL or ENOSYS where the file system cannot. */
int ct_path_exchange(const char *from, const char *to);

/* ---- folders */

/** The next name in a folder, "." and ".." left out; it stays until the next call. NULL: there is
 *  none, and *reason_p is 0. Or the file system failed, so that there may be more, and *reason_p is
 *  the errno. reason_p may be NULL. d may be NULL, too: what could not be opened has no names, and
 *  *reason_p stays. */
const char *ct_folder_next(DIR *d, int *reason_p);

#endif
