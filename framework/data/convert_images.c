/* Image files by a list: as planes, or kept compressed. */
#include <stdlib.h>
#include <string.h>

#include "framework/base/rng.h"
#include "framework/base/text.h"
#include "framework/data/convert_sink.h"
#include "framework/data/image_list.h"
#include "framework/data/reader.h"

enum { JPEG_QUALITY = 95 };

typedef struct work {
    const ct_convert_options *o;
    ct_image_list list;
    ct_image_room room;
    ct_room encoded;
} work;

/* The compressed bytes: the file's own, or new ones where the image was changed. */
static ct_status compress(work *w, int64_t i, const ct_image *image, ct_record *r)
{
    ct_why why;

    if ((w->o->height == 0) && !w->o->gray) {
        ct_status status = ct_image_list_bytes(&w->list, i, &w->room, &r->n, &why);

        r->values = w->room.file.data;
        return (status == CT_OK) ? CT_OK : CT_FAIL(status, "%s", why.text);
    }
    CT_TRY(ct_image_encode_jpeg(image, JPEG_QUALITY, &w->encoded, &r->n));
    r->values = w->encoded.data;
    return CT_OK;
}

static ct_status convert_one(work *w, int64_t i, ct_sink *sink)
{
    ct_color color = w->o->gray ? CT_COLOR_GRAY : CT_COLOR_BGR;
    ct_record r = { .label = w->list.entry[i].label, .encoded = w->o->encoded };
    ct_image image;
    ct_why why;
    ct_status status;

    status = ct_image_load(&w->list, i, color, w->o->height, w->o->width, &w->room, &image, &why);
    if (status != CT_OK) {
        return CT_FAIL(status, "%s:%lld: %s: %s", w->o->list, (long long)w->list.entry[i].line,
                       ct_image_list_path(&w->list, i), why.text);
    }
    r.channels = image.channels;
    r.height = image.height;
    r.width = image.width;
    r.n = (size_t)(image.height * image.width * image.channels);
    CT_TRY(ct_room_reserve(&w->room.planes, r.n));
    ct_image_to_planes(&image, w->room.planes.data);
    r.values = w->room.planes.data;
    if (w->o->encoded) CT_TRY(compress(w, i, &image, &r));
    return ct_sink_add(sink, &r, ct_image_list_path(&w->list, i), w->room.planes.data);
}

/* --skip-broken: takes what cannot be used off the list, before a set of so many images is begun.
 */
static ct_status drop_broken(work *w)
{
    ct_color color = w->o->gray ? CT_COLOR_GRAY : CT_COLOR_BGR;
    ct_image_list *list = &w->list;
    int64_t kept = 0, all = list->count;

    for (int64_t i = 0; i < all; i++) {
        ct_image image;
        ct_why why;
        ct_status status =
            ct_image_load(list, i, color, w->o->height, w->o->width, &w->room, &image, &why);

        if (status == CT_OK) {
            list->entry[kept++] = list->entry[i];
            continue;
        }
        if (!ct_reader_may_skip(status)) return CT_FAIL(status, "%s", why.text);
        CT_WARN("%s:%lld: %s: %s; left out", w->o->list, (long long)list->entry[i].line,
                ct_image_list_path(list, i), why.text);
        if (i + 1 - kept > w->o->skip_broken)
            return CT_FAIL(status, "%s: more broken images than --skip-broken=%lld allows",
                           w->o->list, (long long)w->o->skip_broken);
    }
    list->count = kept;
    if (kept < all)
        CT_WARN("%s: %lld of %lld images are broken and left out", w->o->list,
                (long long)(all - kept), (long long)all);
    return CT_OK;
}

/* The folder that the set goes into, as for the other kinds. */
static ct_status make_parent(const char *to)
{
    const char *slash = strrchr(to, '/');
    char *folder;
    ct_status status;

    if ((slash == NULL) || (slash == to)) return CT_OK;
    folder = strndup(to, (size_t)(slash - to));
    status = (folder != NULL) ? ct_convert_make_folder(folder) : CT_FAIL(CT_ERR_NOMEM, "no memory");
    free(folder);
    return status;
}

static ct_status convert_all(work *w)
{
    uint64_t key = ct_rng_key(w->o->seed, ct_rng_hash("convert"), 0);
    ct_sink sink;
    ct_status status;

    if (w->o->skip_broken > 0) CT_TRY(drop_broken(w));
    CT_TRY(make_parent(w->o->to));
    CT_TRY(ct_sink_open(&sink, w->o, w->o->to, w->o->mean, w->list.count));
    status = CT_OK;
    for (int64_t i = 0; (i < w->list.count) && (status == CT_OK); i++) {
        uint64_t at =
            w->o->shuffle ? ct_rng_permute(key, (uint64_t)i, (uint64_t)w->list.count) : (uint64_t)i;

        status = convert_one(w, (int64_t)at, &sink);
    }
    return ct_sink_close(&sink, status);
}

/* "DIR" becomes "DIR/": the list's paths follow without a slash in Caffe. */
static ct_status root_with_slash(const char *root, ct_text *t)
{
    size_t n = (root != NULL) ? strlen(root) : 0;

    ct_text_add(t, "%s%s", (n > 0) ? root : "", ((n > 0) && (root[n - 1] != '/')) ? "/" : "");
    return t->failed ? CT_FAIL(CT_ERR_NOMEM, "no memory") : CT_OK;
}

ct_status ct_convert_images(const ct_convert_options *o)
{
    work w = { .o = o };
    ct_text root = { 0 };
    ct_status status = root_with_slash(o->root, &root);

    if ((status == CT_OK) && o->encoded && (strcmp(ct_convert_backend(o), "hdf5") == 0)) {
        status = CT_FAIL(CT_ERR_CONFIG, "--encoded is for --backend=lmdb only");
    }
    if (status == CT_OK) status = ct_image_list_read(&w.list, o->list, root.text, "images");
    if (status == CT_OK) {
        status = convert_all(&w);
        ct_image_list_release(&w.list);
    }
    ct_image_room_release(&w.room);
    ct_room_release(&w.encoded);
    ct_text_destroy(&root);
    return status;
}
