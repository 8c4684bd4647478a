#include "framework/data/token_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/base/file.h"
#include "framework/base/text.h"

enum {
    HEAD_ITEM = 4,         /* bytes of a number in llm.c's head      */
    HEAD = 256 * HEAD_ITEM /* bytes of it                            */
};

/* https://github.com/karpathy/llm.c/blob/master/dev/data/data_common.py */
static const struct {
    uint32_t magic, version;
    int width;
} heads[] = { { 20240520, 1, 2 }, { 20240801, 7, 4 } };

enum { N_HEAD = sizeof(heads) / sizeof(heads[0]) };

int ct_token_width(int64_t n_vocabulary)
{
    return (n_vocabulary > 65536) ? 4 : 2;
}

static uint32_t head_number(const ct_token_file *f, int i)
{
    return (uint32_t)ct_little_endian(f->map.data + i * HEAD_ITEM, HEAD_ITEM);
}

/* -1: raw */
static int find_head(const ct_token_file *f)
{
    if (f->map.size < HEAD) return -1;
    for (int i = 0; i < N_HEAD; i++)
        if (head_number(f, 0) == heads[i].magic) return i;
    return -1;
}

static ct_status read_head(ct_token_file *f, int kind)
{
    int64_t n = head_number(f, 2), left;

    f->has_head = true;
    f->width = heads[kind].width;
    f->ids = f->map.data + HEAD;
    left = (f->map.size - HEAD) / f->width;
    if (head_number(f, 1) != heads[kind].version)
        return CT_FAIL(CT_ERR_DATA, "%s: llm.c's head %u has version %u, expected %u", f->path,
                       heads[kind].magic, head_number(f, 1), heads[kind].version);
    if (f->map.size - HEAD != n * f->width)
        return CT_FAIL(CT_ERR_DATA, "%s: the head promises %lld tokens of %d bytes, %lld follow",
                       f->path, (long long)n, f->width, (long long)left);
    f->count = n;
    return CT_OK;
}

/* Ids of 32 bits are small numbers; two ids of 16 bits read as one are not, but for texts of a few
 * letters, whose ids read so have no large lower half. */
static int guess_width(const ct_token_file *f)
{
    int64_t n = f->map.size / 4, most = (n < (1 << 20)) ? n : 1 << 20;
    bool any_large = false;

    if ((f->map.size % 4 != 0) || (n == 0)) return 2;
    for (int64_t i = 0; i < most; i++) {
        uint32_t v = (uint32_t)ct_little_endian(f->map.data + 4 * i, 4);

        if (v >= (1u << 21)) return 2;
        any_large = any_large || ((v & 0xffff) > 256);
    }
    return any_large ? 4 : 2;
}

static ct_status read_raw(ct_token_file *f, int width)
{
    f->width = (width > 0) ? width : guess_width(f);
    f->ids = f->map.data;
    if (f->map.size % f->width != 0)
        return CT_FAIL(CT_ERR_DATA, "%s has %lld bytes: no whole number of tokens of %d bytes",
                       f->path, (long long)f->map.size, f->width);
    f->count = f->map.size / f->width;
    return CT_OK;
}

ct_status ct_token_file_open(const char *path, int width, ct_token_file *f_p)
{
    ct_token_file f = { .path = strdup(path) };
    ct_status status;
    int kind;

    if (f.path == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", path);
    status = ct_file_map_open(path, &f.map);
    if (status == CT_OK) {
        kind = find_head(&f);
        status = (kind >= 0) ? read_head(&f, kind) : read_raw(&f, width);
    }
    if (status != CT_OK) {
        ct_token_file_close(&f);
        return status;
    }
    *f_p = f;
    return CT_OK;
}

void ct_token_file_close(ct_token_file *f)
{
    free(f->path);
    ct_file_map_close(&f->map);
    *f = (ct_token_file){ .path = NULL };
}

static uint32_t id_at(const ct_token_file *f, int64_t i)
{
    const uint8_t *p = f->ids + i * f->width;
    uint32_t v = (uint32_t)p[0] | (uint32_t)p[1] << 8;

    return (f->width == 2) ? v : v | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

ct_status ct_token_file_get(const ct_token_file *f, int64_t offset, int64_t count, int32_t *to)
{
    if ((offset < 0) || (count < 0) || (offset > f->count) || (count > f->count - offset))
        return CT_FAIL(CT_ERR_ARG, "%s: %lld tokens from %lld on asked for, it has %lld", f->path,
                       (long long)count, (long long)offset, (long long)f->count);
    for (int64_t i = 0; i < count; i++) {
        uint32_t v = id_at(f, offset + i);

        if (v > INT32_MAX)
            return CT_FAIL(CT_ERR_DATA, "%s: token %lld is %u, above any vocabulary", f->path,
                           (long long)(offset + i), v);
        to[i] = (int32_t)v;
    }
    return CT_OK;
}

int64_t ct_token_file_find_large(const ct_token_file *f, int64_t n_vocabulary)
{
    for (int64_t i = 0; i < f->count; i++)
        if (id_at(f, i) >= n_vocabulary) return i;
    return -1;
}

/* ---- writing */

struct ct_token_writer {
    char *path;
    ct_text temporary;
    FILE *f;
    int width, error; /* errno of the first call that failed */
};

ct_status ct_token_writer_open(const char *path, int width, ct_token_writer **w_p)
{
    ct_token_writer *w = calloc(1, sizeof(*w));

    if ((w == NULL) || ((w->path = strdup(path)) == NULL)) {
        free(w);
        return CT_FAIL(CT_ERR_NOMEM, "no memory to write %s", path);
    }
    w->width = width;
    ct_path_add_own(&w->temporary, path, "tmp");
    if (!w->temporary.failed) w->f = ct_file_create_stream(w->temporary.text);
    if (w->f == NULL) {
        w->error = w->temporary.failed ? ENOMEM : errno;
        return ct_token_writer_close(w, CT_OK);
    }
    *w_p = w;
    return CT_OK;
}

void ct_token_writer_add(ct_token_writer *w, const int32_t *id, int64_t n)
{
    enum { MOST = 4096 };
    uint8_t bytes[MOST * 4];

    while ((n > 0) && (w->error == 0)) {
        int64_t now = (n < MOST) ? n : MOST;
        size_t size = (size_t)(now * w->width);

        for (int64_t i = 0; i < now; i++)
            for (int k = 0; k < w->width; k++)
                bytes[i * w->width + k] = (uint8_t)((uint32_t)id[i] >> 8 * k);
        if (fwrite(bytes, 1, size, w->f) != size) w->error = errno;
        id += now;
        n -= now;
    }
}

ct_status ct_token_writer_close(ct_token_writer *w, ct_status status)
{
    bool opened = (w->f != NULL);

    if (opened && (status == CT_OK) && (w->error == 0) &&
        ((fflush(w->f) != 0) || (fsync(fileno(w->f)) != 0)))
        w->error = errno;
    if (opened && (fclose(w->f) != 0) && (w->error == 0)) w->error = errno;
    if ((status == CT_OK) && (w->error == 0) && (rename(w->temporary.text, w->path) != 0))
        w->error = errno;
    if (opened && ((status != CT_OK) || (w->error != 0))) unlink(w->temporary.text);
    if ((status == CT_OK) && (w->error != 0))
        status = CT_FAIL(CT_ERR_IO, "cannot write %s: %s", w->path, strerror(w->error));
    ct_text_destroy(&w->temporary);
    free(w->path);
    free(w);
    return status;
}

ct_status ct_token_file_write(const char *path, const int32_t *id, int64_t n, int width)
{
    ct_token_writer *w = NULL;

    CT_TRY(ct_token_writer_open(path, width, &w));
    ct_token_writer_add(w, id, n);
    return ct_token_writer_close(w, CT_OK);
}
