/* CIFAR-10's binary form: records of 1 byte label, then 32 x 32 red, green and blue bytes. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/base/text.h"
#include "framework/data/convert_sink.h"
#include "framework/data/gz_file.h"

enum { SIDE = 32, PIXELS = 3 * SIDE * SIDE, RECORD = 1 + PIXELS, CLASSES = 10, MAX_FILE = 64 };

typedef struct batch_files {
    char *path[2][MAX_FILE]; /* of train, of test */
    int n[2];
} batch_files;

/* 0 train, 1 test, -1 neither */
static int which_set(const char *name)
{
    if (!ct_text_ends_with(name, ".bin") && !ct_text_ends_with(name, ".bin.gz")) return -1;
    if ((strstr(name, "data_batch") != NULL) || (strstr(name, "train") != NULL)) return 0;
    return (strstr(name, "test") != NULL) ? 1 : -1;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static ct_status add_file(batch_files *f, const char *folder, const char *name)
{
    int which = which_set(name);
    ct_text path = { 0 };

    if (which < 0) return CT_OK;
    if (f->n[which] == MAX_FILE) {
        return CT_FAIL(CT_ERR_CONFIG, "more than %d batches in %s", MAX_FILE, folder);
    }
    if (ct_text_ends_with(name, ".gz")) { /* the same file unpacked beside it is taken instead */
        ct_text_add(&path, "%s/%.*s", folder, (int)strlen(name) - 3, name);
        if (!path.failed && (access(path.text, F_OK) == 0)) {
            ct_text_destroy(&path);
            return CT_OK;
        }
        ct_text_destroy(&path);
    }
    ct_text_add(&path, "%s/%s", folder, name);
    if (path.failed) return CT_FAIL(CT_ERR_NOMEM, "no memory");
    f->path[which][f->n[which]++] = path.text;
    return CT_OK;
}

static ct_status find_in(batch_files *f, const char *folder)
{
    struct dirent **entry;
    int n = scandir(folder, &entry, NULL, by_name);
    ct_status status = CT_OK;

    if (n < 0) return CT_FAIL(CT_ERR_IO, "cannot open the folder %s: %s", folder, strerror(errno));
    for (int i = 0; i < n; i++) {
        if (status == CT_OK) status = add_file(f, folder, entry[i]->d_name);
        free(entry[i]);
    }
    free(entry);
    return status;
}

static ct_status find_files(batch_files *f, const char *folder)
{
    CT_TRY(find_in(f, folder));
    if (f->n[0] + f->n[1] == 0) {
        ct_text inner = { 0 };
        ct_status status = CT_OK;

        ct_text_add(&inner, "%s/cifar-10-batches-bin", folder);
        if (!inner.failed && (access(inner.text, F_OK) == 0)) status = find_in(f, inner.text);
        ct_text_destroy(&inner);
        CT_TRY(status);
    }
    for (int i = 0; i < 2; i++) {
        if (f->n[i] == 0) {
            return CT_FAIL(CT_ERR_IO, "no file %s in %s (or .bin.gz)",
                           (i == 0) ? "data_batch_*.bin or *train*.bin" : "*test*.bin", folder);
        }
    }
    return CT_OK;
}

static ct_status count_records(const char *path, int64_t *n_p)
{
    ct_gz g;
    int64_t length;
    ct_status status = ct_gz_open(&g, path);

    if (status == CT_OK) status = ct_gz_length(&g, &length);
    ct_gz_close(&g);
    CT_TRY(status);
    if (length % RECORD != 0) {
        return CT_FAIL(CT_ERR_IO,
                       "%s: %lld bytes are not whole records of %d: truncated, or not CIFAR-10",
                       path, (long long)length, RECORD);
    }
    *n_p += length / RECORD;
    return CT_OK;
}

static ct_status fill_from(const char *path, ct_sink *sink)
{
    uint8_t record[RECORD];
    int64_t n = 0;
    ct_gz g;
    ct_status status = count_records(path, &n);

    if (status == CT_OK) status = ct_gz_open(&g, path);
    CT_TRY(status);
    for (int64_t i = 0; (i < n) && (status == CT_OK); i++) {
        ct_record r = {
            .values = record + 1, .n = PIXELS, .channels = 3, .height = SIDE, .width = SIDE
        };

        status = ct_gz_read(&g, record, RECORD);
        if ((status == CT_OK) && (record[0] >= CLASSES)) {
            status = CT_FAIL(CT_ERR_DATA, "%s: record %lld has label %d, not 0 to %d", path,
                             (long long)i, record[0], CLASSES - 1);
        }
        r.label = record[0];
        if (status == CT_OK) status = ct_sink_add(sink, &r, NULL, NULL);
    }
    ct_gz_close(&g);
    return status;
}

static ct_status fill(void *ctx, int which, ct_sink *sink)
{
    const batch_files *f = ctx;

    for (int i = 0; i < f->n[which]; i++) CT_TRY(fill_from(f->path[which][i], sink));
    return CT_OK;
}

ct_status ct_convert_cifar10(const ct_convert_options *o)
{
    batch_files f = { .n = { 0, 0 } };
    ct_pair pair = { .fill = fill, .ctx = &f };
    ct_status status = find_files(&f, o->from);

    for (int w = 0; w < 2; w++) {
        for (int i = 0; (i < f.n[w]) && (status == CT_OK); i++) {
            status = count_records(f.path[w][i], &pair.n[w]);
        }
    }
    if (status == CT_OK) status = ct_convert_pair(o, &pair);
    for (int w = 0; w < 2; w++) {
        for (int i = 0; i < f.n[w]; i++) free(f.path[w][i]);
    }
    return status;
}
