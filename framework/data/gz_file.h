/** @file gz_file.h  Reads a file that may be gzipped, whole pieces at a time; private to
 * framework/data. */
#ifndef CT_GZ_FILE_H
#define CT_GZ_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "framework/base/status.h"

typedef struct ct_gz {
    char *path;
    void *file;
} ct_gz;

/** CT_ERR_IO, logged. Closed with ct_gz_close(), also after a failure. */
ct_status ct_gz_open(ct_gz *g, const char *path);
void ct_gz_close(ct_gz *g);
/** Exactly n bytes. CT_ERR_IO where the file (or its compressed stream) ends before. */
ct_status ct_gz_read(ct_gz *g, void *to, size_t n);
/** CT_ERR_DATA where more follows, CT_ERR_IO where the stream is damaged. */
ct_status ct_gz_expect_end(ct_gz *g);
/** Length of what is left, by reading it. */
ct_status ct_gz_length(ct_gz *g, int64_t *length_p);

#endif
