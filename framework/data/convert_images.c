/* Image files by a list, or of a folder for each class: as planes, or kept compressed. A team
 * reads, decodes, resizes and encodes a few images at a time; they are written in the order of the
 * list. */
#include <math.h>
#include <omp.h>
#include <stdio.h>
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
    ct_class_names names;   /* of the folders' classes */
    int64_t first[2], n[2]; /* of the list: those to train on, those to test with */
    slot *slot;
    int n_slot;
} work;

/* What messages call an image. */
typedef struct place {
    char text[1200];
} place;

static place place_of(const work *w, int64_t i)
{
    const char *path = ct_image_list_path(&w->list, i);
    place p;

    if (w->o->list != NULL)
        snprintf(p.text, sizeof(p.text), "%s:%lld: %s", w->o->list,
                 (long long)w->list.entry[i].line, path);
    else
        snprintf(p.text, sizeof(p.text), "%s%s", w->list.root, path);
    return p;
}

/* The list, or the folder. */
static const char *source_of(const work *w)
{
    return (w->o->list != NULL) ? w->o->list : w->o->from;
}

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
            return CT_FAIL(t->status, "%s: %s", place_of(w, t->at).text, t->why.text);
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
        CT_WARN("%s: %s; left out", place_of(w, i).text, why.text);
        if (i + 1 - kept > w->o->skip_broken)
            return CT_FAIL(status, "%s: more broken images than --skip-broken=%lld allows",
                           source_of(w), (long long)w->o->skip_broken);
    }
    list->count = kept;
    if (kept < all)
        CT_WARN("%s: %lld of %lld images are broken and left out", source_of(w),
                (long long)(all - kept), (long long)all);
    return CT_OK;
}

/* Part `which` of the list into its set. */
static ct_status fill(void *ctx, int which, ct_sink *sink)
{
    work *w = ctx;
    uint64_t key = ct_rng_key(w->o->seed, ct_rng_hash("convert"), (uint64_t)which);
    int64_t count = w->n[which];
    ct_status status = CT_OK;

    for (int64_t i = 0; (i < count) && (status == CT_OK); i += w->n_slot) {
        int64_t left = count - i;
        int n = (left < w->n_slot) ? (int)left : w->n_slot;

        for (int k = 0; k < n; k++)
            w->slot[k].at =
                w->first[which] +
                (w->o->shuffle ? (int64_t)ct_rng_permute(key, (uint64_t)(i + k), (uint64_t)count)
                               : i + k);
        status = convert_some(w, n, sink);
    }
    return status;
}

static ct_status convert_list(work *w)
{
    ct_sink sink;

    if (w->o->skip_broken > 0) CT_TRY(drop_broken(w));
    w->n[0] = w->list.count;
    CT_TRY(ct_convert_make_parent(w->o->to));
    CT_TRY(ct_sink_open(&sink, w->o, w->o->to, w->o->mean, w->n[0]));
    return ct_sink_close(&sink, fill(w, 0, &sink));
}

/* ---- a folder of classes */

/* Of a class with n images this many are kept for testing: the share, but one at least, and one at
 * least is left. */
static int64_t test_share(double share, int64_t n)
{
    int64_t k = llround((double)n * share);

    if ((share <= 0.0) || (n < 2)) return 0;
    if (k < 1) return 1;
    return (k < n) ? k : n - 1;
}

/* Puts those that are drawn for testing behind the others. Entries stand by class. */
static ct_status draw_tests(work *w)
{
    ct_image_entry *e = w->list.entry, *test;
    int64_t kept = 0;

    test = malloc(((size_t)w->list.count + 1) * sizeof(*test));
    if (test == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %s", w->o->from);
    for (int64_t i = 0, c = 0; c < w->names.n; c++) {
        uint64_t key = ct_rng_key(w->o->seed, ct_rng_hash("validation"), (uint64_t)c);
        int64_t n = 0, k;

        while ((i + n < w->list.count) && (e[i + n].label == c)) n++;
        k = test_share(w->o->validation, n);
        if ((n == 1) && (w->o->validation > 0.0))
            CT_WARN("%s: class \"%s\" has one image, which is kept for training", w->o->from,
                    w->names.name[c]);
        for (int64_t j = 0; j < n; j++, i++) {
            if ((int64_t)ct_rng_permute(key, (uint64_t)j, (uint64_t)n) < k)
                test[w->n[1]++] = e[i];
            else
                e[kept++] = e[i];
        }
    }
    memcpy(e + kept, test, (size_t)w->n[1] * sizeof(*test));
    free(test);
    w->n[0] = w->first[1] = kept;
    return CT_OK;
}

/* Broken images may have been all of a class. */
static ct_status check_classes(const work *w)
{
    for (int64_t i = 0, c = 0; c < w->names.n; c++) {
        int64_t n = 0;

        for (; (i < w->list.count) && (w->list.entry[i].label == c); i++) n++;
        if (n == 0)
            return CT_FAIL(CT_ERR_DATA, "%s: no image of class \"%s\" can be used", w->o->from,
                           w->names.name[c]);
    }
    return CT_OK;
}

/* The sets in the folder o->to, with names of classes and, of images of one size, the mean. */
static ct_status convert_classes(work *w)
{
    ct_text names = { 0 }, mean = { 0 };
    const ct_convert_options *given = w->o;
    ct_convert_options o = *given;
    ct_pair pair = { .fill = fill, .ctx = w };
    ct_status status;

    w->o = &o;
    o.shuffle = true; /* the order of folders says nothing */
    ct_text_add(&names, "%s/" CT_CLASS_FILE, o.to);
    ct_text_add(&mean, "%s/" CT_MEAN_FILE, o.to);
    if ((o.mean == NULL) && (o.height > 0)) o.mean = mean.text;
    if (names.failed || mean.failed)
        CT_TRY_GOTO(status, out, CT_FAIL(CT_ERR_NOMEM, "no memory for %s", o.to));
    CT_TRY_GOTO(status, out, ct_path_check_free(names.text, o.force));
    if (o.skip_broken > 0) CT_TRY_GOTO(status, out, drop_broken(w));
    CT_TRY_GOTO(status, out, check_classes(w));
    CT_TRY_GOTO(status, out, draw_tests(w));
    pair.n[0] = w->n[0];
    pair.n[1] = w->n[1];
    pair.single = (o.validation <= 0.0);
    CT_TRY_GOTO(status, out, ct_convert_pair(&o, &pair));
    CT_TRY_GOTO(status, out, ct_class_names_write(names.text, &w->names));
    CT_INFO("%s: %lld classes, their names in %s", o.from, (long long)w->names.n, names.text);
out:
    w->o = given;
    ct_text_destroy(&names);
    ct_text_destroy(&mean);
    return status;
}

/* ---- */

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

static ct_status check_options(const ct_convert_options *o)
{
    if ((o->list == NULL) == (o->from == NULL))
        return CT_FAIL(CT_ERR_CONFIG,
                       "cortado convert images: give --list=FILE, a list of images, or --from=DIR, "
                       "a folder for each class");
    if ((o->from != NULL) && (o->root != NULL))
        return CT_FAIL(CT_ERR_CONFIG, "--root is of --list; --from=%s has its own paths", o->from);
    if ((o->list != NULL) && (o->validation > 0.0))
        return CT_FAIL(CT_ERR_CONFIG, "--validation is of --from: a list is one set");
    if (o->encoded && (strcmp(ct_convert_backend(o), "hdf5") == 0))
        return CT_FAIL(CT_ERR_CONFIG, "--encoded is for --backend=lmdb only");
    return CT_OK;
}

ct_status ct_convert_images(const ct_convert_options *o)
{
    work w = { .o = o };
    ct_text root = { 0 };
    ct_status status;

    CT_TRY(check_options(o));
    CT_TRY_GOTO(status, out, make_slots(&w));
    if (o->from != NULL) {
        CT_TRY_GOTO(status, out, ct_image_folder_read(o->from, &w.list, &w.names));
        status = convert_classes(&w);
    } else {
        CT_TRY_GOTO(status, out, root_with_slash(o->root, &root));
        CT_TRY_GOTO(status, out, ct_image_list_read(&w.list, o->list, root.text, "images"));
        status = convert_list(&w);
    }
out:
    ct_image_list_release(&w.list);
    ct_class_names_release(&w.names);
    release_slots(&w);
    ct_text_destroy(&root);
    return status;
}
