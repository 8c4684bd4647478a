/* The files of MNIST and of CIFAR-10, compressed or not, as data sets. */
#include <dirent.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "framework/base/file.h"
#include "framework/base/status.h"
#include "framework/base/text.h"
#include "framework/data/convert_sink.h"

typedef struct ct_gz {
    char *path;
    void *file;
} ct_gz;

static void gz_close(ct_gz *g);

enum { BUFFER = 1 << 18 };

/* CT_ERR_IO, logged. Closed with gz_close(), also after a failure. */
static ct_status gz_open(ct_gz *g, const char *path)
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

static void gz_close(ct_gz *g)
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

/* Exactly n bytes. CT_ERR_IO where the file (or its compressed stream) ends before. */
static ct_status gz_read(ct_gz *g, void *to, size_t n)
{
    size_t got;

    CT_TRY(read_some(g, to, n, &got));
    if (got == n) return CT_OK;
    CT_TRY(check_whole(g));
    return CT_FAIL(CT_ERR_IO, "%s is truncated: %zu bytes are missing", g->path, n - got);
}

/* CT_ERR_DATA where more follows, CT_ERR_IO where the stream is damaged. */
static ct_status gz_expect_end(ct_gz *g)
{
    char more;
    size_t got;

    CT_TRY(read_some(g, &more, 1, &got));
    if (got > 0) return CT_FAIL(CT_ERR_DATA, "%s is longer than its header says", g->path);
    return check_whole(g);
}

/* Length of what is left, by reading it. */
static ct_status gz_length(ct_gz *g, int64_t *length_p)
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

/* ---- MNIST's idx files: big-endian headers {0, 0, 8, dimensions}, sizes, then bytes */

enum { IMAGES = 0x803, LABELS = 0x801 };

typedef struct idx_set {
    ct_gz images, labels;
    int64_t n, height, width;
} idx_set;

/* The same file under the names it goes by. */
static ct_status open_any(ct_gz *g, const char *folder, const char *stem, const char *kind)
{
    static const char *const form[] = { "%s/%s-%s-ubyte", "%s/%s-%s-ubyte.gz", "%s/%s.%s-ubyte",
                                        "%s/%s.%s-ubyte.gz" };
    char path[4096];

    for (size_t i = 0; i < sizeof(form) / sizeof(form[0]); i++) {
        snprintf(path, sizeof(path), form[i], folder, stem, kind);
        if (access(path, R_OK) == 0) return gz_open(g, path);
    }
    return CT_FAIL(CT_ERR_IO, "neither %s-%s-ubyte nor %s-%s-ubyte.gz is in %s", stem, kind, stem,
                   kind, folder);
}

static ct_status read_word(ct_gz *g, int64_t *v_p)
{
    uint8_t b[4];

    CT_TRY(gz_read(g, b, 4));
    *v_p = ((int64_t)b[0] << 24) | (b[1] << 16) | (b[2] << 8) | b[3];
    return CT_OK;
}

static ct_status read_magic(ct_gz *g, int64_t want)
{
    int64_t magic;

    CT_TRY(read_word(g, &magic));
    if (magic != want) {
        return CT_FAIL(CT_ERR_DATA,
                       "%s is not an idx file of %s: it starts with 0x%08llx, not "
                       "0x%08llx",
                       g->path, (want == IMAGES) ? "images" : "labels", (long long)magic,
                       (long long)want);
    }
    return CT_OK;
}

static ct_status set_open(idx_set *s, const char *folder, const char *which)
{
    char stem[32];
    int64_t n_label;

    snprintf(stem, sizeof(stem), "%s-images", which);
    CT_TRY(open_any(&s->images, folder, stem, "idx3"));
    snprintf(stem, sizeof(stem), "%s-labels", which);
    CT_TRY(open_any(&s->labels, folder, stem, "idx1"));
    CT_TRY(read_magic(&s->images, IMAGES));
    CT_TRY(read_word(&s->images, &s->n));
    CT_TRY(read_word(&s->images, &s->height));
    CT_TRY(read_word(&s->images, &s->width));
    CT_TRY(read_magic(&s->labels, LABELS));
    CT_TRY(read_word(&s->labels, &n_label));
    if ((s->height < 1) || (s->width < 1) || (s->height > 4096) || (s->width > 4096)) {
        return CT_FAIL(CT_ERR_DATA, "%s: images of %lld x %lld", s->images.path,
                       (long long)s->height, (long long)s->width);
    }
    if (s->n != n_label) {
        return CT_FAIL(CT_ERR_DATA, "%s has %lld images, %s %lld labels", s->images.path,
                       (long long)s->n, s->labels.path, (long long)n_label);
    }
    return CT_OK;
}

static void set_close(idx_set *s)
{
    gz_close(&s->images);
    gz_close(&s->labels);
}

static ct_status fill(void *ctx, int which, ct_sink *sink)
{
    idx_set *s = (idx_set *)ctx + which;
    size_t size = (size_t)(s->height * s->width);
    uint8_t *pixels = malloc(size), label;
    ct_status status = CT_OK;

    if (pixels == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory");
    for (int64_t i = 0; (i < s->n) && (status == CT_OK); i++) {
        ct_record r = {
            .values = pixels, .n = size, .channels = 1, .height = s->height, .width = s->width
        };

        status = gz_read(&s->images, pixels, size);
        if (status == CT_OK) status = gz_read(&s->labels, &label, 1);
        if (status != CT_OK) break;
        r.label = label;
        status = ct_sink_add(sink, &r, NULL, NULL);
    }
    free(pixels);
    CT_TRY(status);
    CT_TRY(gz_expect_end(&s->images));
    return gz_expect_end(&s->labels);
}

ct_status ct_convert_mnist(const ct_convert_options *o)
{
    idx_set set[2] = { { .n = 0 }, { .n = 0 } };
    ct_status status;

    CT_TRY_GOTO(status, out, set_open(&set[0], o->from, "train"));
    CT_TRY_GOTO(status, out, set_open(&set[1], o->from, "t10k"));
    status =
        ct_convert_pair(o, &(ct_pair){ .n = { set[0].n, set[1].n }, .fill = fill, .ctx = set });
out:
    set_close(&set[0]);
    set_close(&set[1]);
    return status;
}

/* ---- CIFAR-10's binary form: records of 1 byte label, then 32 x 32 red, green and blue bytes */

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

    if (n < 0)
        return CT_FAIL(CT_ERR_IO, "cannot open the folder %s: %s", folder,
                       ct_path_why(folder, errno).text);
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
    int64_t length = 0;
    ct_status status = gz_open(&g, path);

    if (status == CT_OK) status = gz_length(&g, &length);
    gz_close(&g);
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
    ct_status status;

    CT_TRY(count_records(path, &n));
    status = gz_open(&g, path);
    for (int64_t i = 0; (i < n) && (status == CT_OK); i++) {
        ct_record r = {
            .values = record + 1, .n = PIXELS, .channels = 3, .height = SIDE, .width = SIDE
        };

        status = gz_read(&g, record, RECORD);
        if ((status == CT_OK) && (record[0] >= CLASSES)) {
            status = CT_FAIL(CT_ERR_DATA, "%s: record %lld has label %d, not 0 to %d", path,
                             (long long)i, record[0], CLASSES - 1);
        }
        r.label = record[0];
        if (status == CT_OK) status = ct_sink_add(sink, &r, NULL, NULL);
    }
    gz_close(&g);
    return status;
}

static ct_status fill_cifar10(void *ctx, int which, ct_sink *sink)
{
    const batch_files *f = ctx;

    for (int i = 0; i < f->n[which]; i++) CT_TRY(fill_from(f->path[which][i], sink));
    return CT_OK;
}

ct_status ct_convert_cifar10(const ct_convert_options *o)
{
    batch_files f = { .n = { 0, 0 } };
    ct_pair pair = { .fill = fill_cifar10, .ctx = &f };
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
