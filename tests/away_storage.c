#include "tests/away_storage.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { POISONED = 16 /* blocks that are kept, so that their memory is not used again at once */ };

typedef struct away {
    FILE *file;
    away_tally *tally;
    const ct_device *dev;
    void *old[POISONED];
    int next;
} away;

static const uint32_t poison = 0xffffffff; /* a NaN that no arithmetic makes */

static ct_status fill(const ct_device *dev, ct_stream st, float *data, int64_t count)
{
    size_t bytes = (size_t)count * sizeof(*data);
    float *host = malloc(bytes + 1);
    ct_status status;

    if (host == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a poison");
    memset(host, 0xff, bytes);
    status = dev->from_host(st, data, host, bytes);
    if (status == CT_OK) status = dev->sync(st);
    free(host);
    return status;
}

static ct_status in_file(const away *a, int64_t from, size_t bytes, void *data, bool write)
{
    off_t at = (off_t)from * (off_t)sizeof(float);
    ssize_t n =
        write ? pwrite(fileno(a->file), data, bytes, at) : pread(fileno(a->file), data, bytes, at);

    return (n == (ssize_t)bytes) ? CT_OK : CT_FAIL(CT_ERR_IO, "the file of a storage");
}

static ct_status want(ct_storage *s, ct_stream st, ct_storage_range *r)
{
    away *a = s->own;
    size_t bytes = (size_t)r->count * sizeof(float);
    void *data = NULL, *host = NULL;
    ct_status status;

    CT_TRY(s->dev->mem_acquire(bytes, &data));
    r->data = data;
    if (a->tally != NULL) {
        a->tally->wants++;
        if (r->count > a->tally->most) a->tally->most = r->count;
    }
    if (r->use == CT_STORAGE_WRITE) return fill(s->dev, st, data, r->count);
    host = malloc(bytes + 1);
    status = (host != NULL) ? in_file(a, r->from, bytes, host, false) : CT_ERR_NOMEM;
    if (status == CT_OK) status = s->dev->from_host(st, data, host, bytes);
    if (status == CT_OK) status = s->dev->sync(st);
    free(host);
    return status;
}

/* What a range holds now goes to the file, or is what the file has. */
static ct_status take(const away *a, const ct_storage_range *r, uint32_t *now, uint32_t *was)
{
    size_t bytes = (size_t)r->count * sizeof(*now);

    CT_TRY(in_file(a, r->from, bytes, was, false));
    if (r->use == CT_STORAGE_READ)
        return (memcmp(now, was, bytes) == 0)
                   ? CT_OK
                   : CT_FAIL(CT_ERR_ARG, "a range that is only read was changed");
    for (int64_t i = 0; (r->use == CT_STORAGE_WRITE) && (i < r->count); i++)
        if (now[i] == poison)
            return CT_FAIL(CT_ERR_ARG, "a range that is only written was not written whole");
    return in_file(a, r->from, bytes, now, true);
}

static ct_status done(ct_storage *s, ct_stream st, const ct_storage_range *r)
{
    away *a = s->own;
    size_t bytes = (size_t)r->count * sizeof(float);
    uint32_t *now = malloc(bytes + 1), *was = malloc(bytes + 1);
    ct_status status = ((now != NULL) && (was != NULL)) ? CT_OK : CT_ERR_NOMEM;

    if (status == CT_OK) status = s->dev->to_host(st, now, r->data, bytes);
    if (status == CT_OK) status = take(a, r, now, was);
    if (status == CT_OK) status = fill(s->dev, st, r->data, r->count);
    free(now);
    free(was);
    s->dev->mem_release(a->old[a->next]);
    a->old[a->next] = r->data;
    a->next = (a->next + 1) % POISONED;
    return status;
}

static void close_away(ct_storage *s)
{
    away *a = s->own;

    for (int i = 0; i < POISONED; i++) s->dev->mem_release(a->old[i]);
    fclose(a->file);
    free(a);
}

ct_status away_storage_open(void *ctx, const ct_device *dev, int64_t count, ct_storage *s_p)
{
    static const ct_storage_ops ops = {
        .name = "away", .want = want, .done = done, .close = close_away
    };
    away *a = calloc(1, sizeof(*a));

    if (a == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a storage");
    a->tally = ctx;
    a->file = tmpfile();
    if ((a->file == NULL) ||
        (ftruncate(fileno(a->file), (off_t)count * (off_t)sizeof(float)) != 0)) {
        if (a->file != NULL) fclose(a->file);
        free(a);
        return CT_FAIL(CT_ERR_IO, "no file for a storage");
    }
    if (a->tally != NULL) a->tally->opened++;
    *s_p = (ct_storage){ .ops = &ops, .dev = dev, .count = count, .own = a };
    return CT_OK;
}
