/** @file scratch_file.h  A file that only this process sees, for what does not fit into memory.
 *
 * It has no name, so nothing is left of it when the process ends. Its room is taken when it is
 * made, and past the page cache where the file system allows that.
 */
#ifndef CT_SCRATCH_FILE_H
#define CT_SCRATCH_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "framework/base/status.h"

enum { CT_SCRATCH_ALIGN = 4096 /* of addresses, offsets and sizes of what is read and written */ };

typedef struct ct_scratch_file {
    int fd;        /* -1: none */
    bool direct;   /* past the page cache */
    bool reserved; /* its room is taken   */
} ct_scratch_file;

/** Of so many bytes, in a folder. CT_ERR_IO with the folder, what is needed and what is free. */
ct_status ct_scratch_open(const char *folder, int64_t bytes, ct_scratch_file *f);
void ct_scratch_close(ct_scratch_file *f); /* one that is not open, too: fd -1 */
/** Buffered ones: what was written of these bytes need not stay in the page cache. */
void ct_scratch_forget(const ct_scratch_file *f, int64_t at, int64_t bytes);
/** A folder that takes files. *memory_p: it lies in memory (tmpfs), and saves none. CT_ERR_CONFIG.
 */
ct_status ct_scratch_check(const char *folder, bool *memory_p);

#endif
