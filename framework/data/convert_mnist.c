/* idx files: big-endian headers {0, 0, 8, dimensions}, sizes, then bytes. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/base/text.h"
#include "framework/data/convert_sink.h"
#include "framework/data/gz_file.h"

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
        if (access(path, R_OK) == 0) return ct_gz_open(g, path);
    }
    return CT_FAIL(CT_ERR_IO, "neither %s-%s-ubyte nor %s-%s-ubyte.gz is in %s", stem, kind, stem,
                   kind, folder);
}

static ct_status read_word(ct_gz *g, int64_t *v_p)
{
    uint8_t b[4];

    CT_TRY(ct_gz_read(g, b, 4));
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
    ct_gz_close(&s->images);
    ct_gz_close(&s->labels);
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

        status = ct_gz_read(&s->images, pixels, size);
        if (status == CT_OK) status = ct_gz_read(&s->labels, &label, 1);
        if (status != CT_OK) break;
        r.label = label;
        status = ct_sink_add(sink, &r, NULL, NULL);
    }
    free(pixels);
    CT_TRY(status);
    CT_TRY(ct_gz_expect_end(&s->images));
    return ct_gz_expect_end(&s->labels);
}

ct_status ct_convert_mnist(const ct_convert_options *o)
{
    idx_set set[2] = { { .n = 0 }, { .n = 0 } };
    ct_status status;

    CT_TRY_GOTO(status, out, set_open(&set[0], o->from, "train"));
    CT_TRY_GOTO(status, out, set_open(&set[1], o->from, "t10k"));
    status = ct_convert_pair(o, &(ct_pair){ { set[0].n, set[1].n }, fill, set });
out:
    set_close(&set[0]);
    set_close(&set[1]);
    return status;
}
