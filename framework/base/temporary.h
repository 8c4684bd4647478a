/** @file temporary.h  Names that files and folders have until they are whole, and what is left
 * under such names where a job was killed. */
#ifndef CT_TEMPORARY_H
#define CT_TEMPORARY_H

#include "framework/base/text.h"

/** Appends PATH.WORD.PROCESS-HOST: the number of this process, and 32 bits of a hash of its host's
 *  name and of where its number counts (a name space, as of a container), so that other processes,
 *  also on other hosts, call their files otherwise. */
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

#endif
