#include "framework/data/gz_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { BUFFER = 1 << 18 };

ct_status ct_gz_open(ct_gz *g, const char *path)
{
    *g = (ct_gz){ .path = strdup(path) };
    if (g->path == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", path);
    errno = 0;
    g->file = gzopen(path, "rb");
    if (g->file == NULL) {
        return CT_FAIL(CT_ERR_IO, "cannot open %s: %s", path,
                       (errno != 0) ? strerror(errno) : "no memory");
    }
    gzbuffer(g->file, BUFFER);
    return CT_OK;
}

void ct_gz_close(ct_gz *g)
{
    if (g->file != NULL) gzclose(g->file);
    free(g->path);
    *g = (ct_gz){ 0 };
}

/* As many as there are, up to n. */
static ct_status read_some(ct_gz *g, void *to, size_t n, size_t *got_p)
{
    size_t got = 0;

    while (got < n) {
        size_t left = n - got;
        int rc = gzread(g->file, (char *)to + got, (unsigned)((left < BUFFER) ? left : BUFFER));

        if (rc < 0) {
            int code;
            const char *why = gzerror(g->file, &code);

            return CT_FAIL(CT_ERR_IO, "cannot read %s: %s", g->path,
                           (code == Z_ERRNO) ? strerror(errno) : why);
        }
        if (rc == 0) break;
        got += (size_t)rc;
    }
    *got_p = got;
    return CT_OK;
}

/* At the end of a stream that breaks off zlib gives what there is, and says so only here. */
static ct_status check_whole(ct_gz *g)
{
    int code;

    gzerror(g->file, &code);
    if (code == Z_BUF_ERROR) return CT_FAIL(CT_ERR_IO, "%s is truncated", g->path);
    return CT_OK;
}

ct_status ct_gz_read(ct_gz *g, void *to, size_t n)
{
    size_t got;

    CT_TRY(read_some(g, to, n, &got));
    if (got == n) return CT_OK;
    CT_TRY(check_whole(g));
    return CT_FAIL(CT_ERR_IO, "%s is truncated: %zu bytes are missing", g->path, n - got);
}

ct_status ct_gz_expect_end(ct_gz *g)
{
    char more;
    size_t got;

    CT_TRY(read_some(g, &more, 1, &got));
    if (got > 0) return CT_FAIL(CT_ERR_DATA, "%s is longer than its header says", g->path);
    return check_whole(g);
}

ct_status ct_gz_length(ct_gz *g, int64_t *length_p)
{
    char *buffer = malloc(BUFFER);
    int64_t length = 0;
    size_t got = BUFFER;
    ct_status status = CT_OK;

    if (buffer == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", g->path);
    while ((got == BUFFER) && (status == CT_OK)) {
        status = read_some(g, buffer, BUFFER, &got);
        if (status == CT_OK) length += (int64_t)got;
    }
    free(buffer);
    if (status == CT_OK) status = check_whole(g);
    if (status == CT_OK) *length_p = length;
    return status;
}
