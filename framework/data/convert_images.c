/* Image files by a list: as planes, or kept compressed. A team reads, decodes, resizes and encodes
 * a few images at a time; they are written in the order of the list. */
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/rng.h"
#include "framework/base/text.h"
#include "framework/data/convert_sink.h"
#include "framework/data/image_list.h"
#include "framework/data/reader.h"

enum { JPEG_QUALITY = 95, MOST_SLOTS = 128 };

/* An image on its way. */
typedef struct slot {
    ct_image_buffer room;
    ct_sample_buffer encoded;
    ct_record record;
    int64_t at; /* in the list */
    ct_status status;
    ct_why why; /* of a status that is not CT_OK; empty where it was logged */
} slot;

typedef struct work {
    const ct_convert_options *o;
    ct_image_list list;
    slot *slot;
    int n_slot;
} work;

/* The compressed bytes: the file's own, or new ones where the image was changed. */
static ct_status compress(const work *w, const ct_image *image, slot *t)
{
    ct_record *r = &t->record;

    if ((w->o->height == 0) && !w->o->gray) {
        CT_TRY(ct_image_list_bytes(&w->list, t->at, &t->room, &r->n, &t->why));
        r->values = t->room.file.data;
        return CT_OK;
    }
    CT_TRY(ct_image_encode_jpeg(image, JPEG_QUALITY, &t->encoded, &r->n));
    r->values = t->encoded.data;
    return CT_OK;
}

/* Any thread. */
static ct_status make_record(const work *w, slot *t)
{
    ct_color color = w->o->gray ? CT_COLOR_GRAY : CT_COLOR_BGR;
    ct_record *r = &t->record;
    ct_image image;

    t->why.text[0] = '\0';
    *r = (ct_record){ .label = w->list.entry[t->at].label, .encoded = w->o->encoded };
    CT_TRY(ct_image_load(&w->list, t->at, color, w->o->height, w->o->width, &t->room, &image,
                         &t->why));
    r->channels = image.channels;
    r->height = image.height;
    r->width = image.width;
    r->n = (size_t)(image.height * image.width * image.channels);
    CT_TRY(ct_sample_buffer_reserve(&t->room.planes, r->n));
    ct_image_to_planes(&image, t->room.planes.data);
    r->values = t->room.planes.data;
    return w->o->encoded ? compress(w, &image, t) : CT_OK;
}

/* The next n images of the order, which `at` of each slot has. */
static ct_status convert_some(work *w, int n, ct_sink *sink)
{
#pragma omp parallel for schedule(dynamic, 1)
    for (int k = 0; k < n; k++) w->slot[k].status = make_record(w, &w->slot[k]);
    for (int k = 0; k < n; k++) {
        slot *t = &w->slot[k];
        const char *path = ct_image_list_path(&w->list, t->at);

        if ((t->status != CT_OK) && (t->why.text[0] == '\0')) return t->status;
        if (t->status != CT_OK)
            return CT_FAIL(t->status, "%s:%lld: %s: %s", w->o->list,
                           (long long)w->list.entry[t->at].line, path, t->why.text);
        CT_TRY(ct_sink_add(sink, &t->record, path, t->room.planes.data));
    }
    return CT_OK;
}

/* --skip-broken: takes what cannot be used off the list, before a set of so many images is begun.
 */
static ct_status drop_broken(work *w)
{
    ct_color color = w->o->gray ? CT_COLOR_GRAY : CT_COLOR_BGR;
    ct_image_list *list = &w->list;
    ct_image_buffer *room = &w->slot[0].room;
    int64_t kept = 0, all = list->count;

    for (int64_t i = 0; i < all; i++) {
        ct_image image;
        ct_why why;
        ct_status status =
            ct_image_load(list, i, color, w->o->height, w->o->width, room, &image, &why);

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
    for (int64_t i = 0; (i < w->list.count) && (status == CT_OK); i += w->n_slot) {
        int64_t left = w->list.count - i;
        int n = (left < w->n_slot) ? (int)left : w->n_slot;

        for (int k = 0; k < n; k++)
            w->slot[k].at = w->o->shuffle ? (int64_t)ct_rng_permute(key, (uint64_t)(i + k),
                                                                    (uint64_t)w->list.count)
                                          : i + k;
        status = convert_some(w, n, &sink);
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

static ct_status make_slots(work *w)
{
    int n = 2 * omp_get_max_threads();

    w->n_slot = (n < MOST_SLOTS) ? n : MOST_SLOTS;
    w->slot = calloc((size_t)w->n_slot, sizeof(*w->slot));
    return (w->slot != NULL) ? CT_OK : CT_FAIL(CT_ERR_NOMEM, "no memory for images");
}

static void release_slots(work *w)
{
    for (int k = 0; (w->slot != NULL) && (k < w->n_slot); k++) {
        ct_image_room_release(&w->slot[k].room);
        ct_sample_buffer_release(&w->slot[k].encoded);
    }
    free(w->slot);
}

ct_status ct_convert_images(const ct_convert_options *o)
{
    work w = { .o = o };
    ct_text root = { 0 };
    ct_status status = root_with_slash(o->root, &root);

    if ((status == CT_OK) && o->encoded && (strcmp(ct_convert_backend(o), "hdf5") == 0)) {
        status = CT_FAIL(CT_ERR_CONFIG, "--encoded is for --backend=lmdb only");
    }
    if (status == CT_OK) status = make_slots(&w);
    if (status == CT_OK) status = ct_image_list_read(&w.list, o->list, root.text, "images");
    if (status == CT_OK) {
        status = convert_all(&w);
        ct_image_list_release(&w.list);
    }
    release_slots(&w);
    ct_text_destroy(&root);
    return status;
}
