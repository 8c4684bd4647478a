/* Images with annotations: Caffe-SSD's AnnotatedDatum of image files and PASCAL VOC's XML files. A
 * team reads and decodes a few images at a time; they are written in the order of the list. */
#include <omp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/base/thread.h"
#include "framework/base/name_map.h"
#include "framework/base/rng.h"
#include "framework/base/file.h"
#include "framework/base/text.h"
#include "framework/data/augment/boxes.h"
#include "framework/data/convert_sink.h"
#include "framework/data/datum.h"
#include "framework/data/voc.h"
#include "framework/proto/prototxt.h"

#define ANNOTATIONS "Annotations"
#define IMAGES      "JPEGImages"
#define SETS        "ImageSets/Main"

enum { MOST_SLOTS = 64 };

/* An image and its annotation: paths from the root on. image "": the annotation names it. */
typedef struct entry {
    char *image, *annotation;
    int64_t line; /* of the list; 0: none */
    ct_voc voc;
} entry;

typedef struct work {
    const ct_convert_options *o;
    const char *root; /* with its slash, or "" */
    entry *entry;
    int64_t n, capacity, n_set[2]; /* entries; of train, of test, which follow */
    ct_class_names names;          /* by number; "": a number without a class */
    ct_name_map class_of;          /* numbers by name, the first of several */
} work;

/* An image on its way. */
typedef struct slot {
    ct_image_buffer room;
    ct_sample_buffer box;
    ct_record record;
    ct_status status;
    char why[600]; /* where it is not CT_OK */
} slot;

static ct_status add_entry(work *w, const char *image, const char *annotation, int64_t line)
{
    entry *e;

    if (w->n == w->capacity) {
        int64_t capacity = (w->capacity > 0) ? 2 * w->capacity : 256;
        entry *grown = realloc(w->entry, (size_t)capacity * sizeof(*grown));

        if (grown == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a list of images");
        w->entry = grown;
        w->capacity = capacity;
    }
    e = &w->entry[w->n++];
    *e = (entry){ strdup(image), strdup(annotation), line, { 0 } };
    return ((e->image != NULL) && (e->annotation != NULL))
               ? CT_OK
               : CT_FAIL(CT_ERR_NOMEM, "no memory for a list of images");
}

static char *end_of_name(char *s)
{
    char *end = s + strlen(s);

    while ((end > s) && (strchr(" \t\r", end[-1]) != NULL)) *--end = '\0';
    return end;
}

/* "image annotation": what follows the last blank is the annotation. */
static ct_status read_list(work *w)
{
    const char *path = w->o->list;
    int64_t line = 0;
    ct_status status = CT_OK;
    char *text, *next;
    size_t size;

    CT_TRY(ct_file_read(path, &text, &size));
    if (memchr(text, '\0', size) != NULL)
        status = CT_FAIL(CT_ERR_DATA, "%s: not a text file", path);
    next = text;
    for (char *at; (status == CT_OK) && ((at = strsep(&next, "\n")) != NULL);) {
        char *blank = end_of_name(at);

        line++;
        if (*at == '\0') continue;
        while ((blank > at) && (blank[-1] != ' ') && (blank[-1] != '\t')) blank--;
        if (blank == at) {
            status = CT_FAIL(CT_ERR_DATA, "%s:%lld: expected \"image annotation\", found \"%.80s\"",
                             path, (long long)line, at);
            break;
        }
        blank[-1] = '\0';
        (void)end_of_name(at);
        status = add_entry(w, at, blank, line);
    }
    free(text);
    if ((status == CT_OK) && (w->n == 0)) status = CT_FAIL(CT_ERR_DATA, "%s lists no image", path);
    w->n_set[0] = w->n;
    return status;
}

/* ---- a folder of VOC's form */

static ct_status add_name(work *w, const char *name)
{
    char annotation[1024], image[1024];
    char whole[2048];
    int n = snprintf(annotation, sizeof(annotation), ANNOTATIONS "/%s.xml", name);

    if ((n < 0) || ((size_t)n >= sizeof(annotation)))
        return CT_FAIL(CT_ERR_DATA, "%s: the name \"%.60s...\" is too long", w->o->from, name);
    snprintf(image, sizeof(image), IMAGES "/%s.jpg", name);
    snprintf(whole, sizeof(whole), "%s%s", w->root, image);
    return add_entry(w, (access(whole, R_OK) == 0) ? image : "", annotation, 0);
}

/* Names of images, one a line. CT_UNSUPPORTED, quiet: there is no such file. */
static ct_status read_set(work *w, const char *name)
{
    char path[2048];
    char *text, *next;
    ct_status status = CT_OK;
    size_t size;

    snprintf(path, sizeof(path), "%s" SETS "/%s.txt", w->root, name);
    if (access(path, F_OK) != 0) return CT_UNSUPPORTED;
    CT_TRY(ct_file_read(path, &text, &size));
    next = text;
    for (char *at; (status == CT_OK) && ((at = strsep(&next, "\n")) != NULL);) {
        (void)end_of_name(at);
        if (*at != '\0') status = add_name(w, at);
    }
    free(text);
    return status;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Every annotation there is, in the order of the bytes of their names. */
static ct_status read_all(work *w)
{
    char path[2048];
    char **name = NULL;
    int64_t n = 0;
    ct_status status = CT_OK;
    int reason = 0;
    DIR *dir;

    snprintf(path, sizeof(path), "%s" ANNOTATIONS, w->root);
    dir = opendir(path);
    if (dir == NULL) return CT_FAIL(CT_ERR_IO, "cannot read %s: %s", path, strerror(errno));
    for (const char *at; (status == CT_OK) && ((at = ct_folder_next(dir, &reason)) != NULL);) {
        char **grown;

        if ((at[0] == '.') || !ct_text_ends_with(at, ".xml")) continue;
        grown = realloc(name, (size_t)(n + 1) * sizeof(*name));
        if (grown != NULL) name = grown;
        if ((grown == NULL) || ((name[n] = strndup(at, strlen(at) - 4)) == NULL))
            status = CT_FAIL(CT_ERR_NOMEM, "no memory for a list of images");
        else
            n++;
    }
    closedir(dir);
    if ((status == CT_OK) && (reason != 0))
        status = CT_FAIL(CT_ERR_IO, "cannot read %s: %s", path, strerror(reason));
    if (n > 0) qsort(name, (size_t)n, sizeof(*name), by_bytes);
    for (int64_t i = 0; i < n; i++) {
        if (status == CT_OK) status = add_name(w, name[i]);
        free(name[i]);
    }
    free(name);
    return status;
}

static ct_status read_folder(work *w)
{
    ct_status status = read_set(w, "trainval");

    if (status == CT_UNSUPPORTED) status = read_set(w, "train");
    if (status == CT_UNSUPPORTED) status = read_all(w);
    CT_TRY(status);
    w->n_set[0] = w->n;
    if (w->n == 0) return CT_FAIL(CT_ERR_DATA, "%s: no annotation in it", w->o->from);
    status = read_set(w, "test");
    w->n_set[1] = w->n - w->n_set[0];
    return (status == CT_UNSUPPORTED) ? CT_OK : status;
}

/* ---- classes */

/* item { name label } of a label map, by their numbers. */
static ct_status read_items(const Ct__LabelMap *m, const char *path, ct_class_names *names)
{
    char **name;
    int64_t n = 0;
    ct_status status = CT_OK;

    for (size_t i = 0; i < m->n_item; i++) {
        const Ct__LabelMapItem *q = m->item[i];

        if ((q->name == NULL) || !q->has_label || (q->label < 0) || (q->label > CT_MAX_CLASS))
            return CT_FAIL(CT_ERR_CONFIG, "%s: item %zu needs a name and a label from 0 to %d",
                           path, i, CT_MAX_CLASS);
        if (q->label >= n) n = q->label + 1;
    }
    name = calloc((size_t)n + 1, sizeof(*name));
    if (name == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the classes of %s", path);
    for (size_t i = 0; i < m->n_item; i++) {
        char **at = &name[m->item[i]->label];

        if (*at != NULL)
            status = CT_FAIL(CT_ERR_CONFIG, "%s: two items have label %d", path, m->item[i]->label);
        *at = m->item[i]->name;
    }
    for (int64_t i = 0; (status == CT_OK) && (i < n); i++)
        if (name[i] == NULL)
            status = CT_FAIL(CT_ERR_CONFIG, "%s: no item has label %lld; labels go up to %lld",
                             path, (long long)i, (long long)n - 1);
    if (status == CT_OK) status = ct_class_names_copy(name, n, names);
    free(name);
    return status;
}

static ct_status read_labelmap(work *w)
{
    const char *path = w->o->labelmap;
    ProtobufCMessage *m;
    ct_status status;

    if (!ct_text_ends_with(path, ".prototxt")) return ct_class_names_read(path, path, 0, &w->names);
    CT_TRY(ct_prototxt_read(&ct__label_map__descriptor, path, NULL, &m));
    status = read_items((const Ct__LabelMap *)m, path, &w->names);
    protobuf_c_message_free_unpacked(m, NULL);
    return status;
}

/* Those that occur, behind the background. */
static ct_status collect_classes(work *w)
{
    char background[] = "background", **name;
    int64_t n = 1, kept = 1;
    ct_status status;

    for (int64_t i = 0; i < w->n; i++) n += w->entry[i].voc.n;
    name = malloc((size_t)n * sizeof(*name));
    if (name == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the names of classes");
    n = 1;
    for (int64_t i = 0; i < w->n; i++)
        for (int64_t k = 0; k < w->entry[i].voc.n; k++) name[n++] = w->entry[i].voc.object[k].name;
    qsort(name + 1, (size_t)(n - 1), sizeof(*name), by_bytes);
    name[0] = background;
    for (int64_t i = 1; i < n; i++)
        if ((kept == 1) || (strcmp(name[i], name[kept - 1]) != 0)) name[kept++] = name[i];
    status = ct_class_names_copy(name, kept, &w->names);
    free(name);
    return status;
}

static ct_status number_classes(work *w)
{
    for (int64_t i = w->names.n - 1; i >= 0; i--)
        CT_TRY(ct_name_map_put(&w->class_of, w->names.name[i], (int)i));
    return CT_OK;
}

/* ---- records */

static ct_status image_path(const work *w, const entry *e, char *path, size_t size)
{
    int n;

    if (e->image[0] != '\0') {
        n = snprintf(path, size, "%s%s", w->root, e->image);
    } else {
        if (e->voc.filename == NULL)
            return CT_FAIL(CT_ERR_DATA,
                           "%s%s: there is no image of this name in " IMAGES ", and no <filename> "
                           "names another",
                           w->root, e->annotation);
        n = snprintf(path, size, "%s" IMAGES "/%s", w->root, e->voc.filename);
    }
    return ((n > 0) && ((size_t)n < size))
               ? CT_OK
               : CT_FAIL(CT_ERR_DATA, "%s%s: the path is too long", w->root, e->annotation);
}

/* Corners in parts of the image. What reaches out of it is cut off where it is read. */
static ct_status set_boxes(const work *w, const entry *e, slot *t)
{
    const ct_record *r = &t->record;
    float *row;

    CT_TRY(ct_sample_buffer_reserve(&t->box, (size_t)(e->voc.n + 1) * CT_BOX_ROW * sizeof(*row)));
    row = (float *)(void *)t->box.data;
    for (int64_t i = 0; i < e->voc.n; i++, row += CT_BOX_ROW) {
        const ct_voc_object *o = &e->voc.object[i];
        int label = ct_name_map_find(&w->class_of, o->name, strlen(o->name));

        if (label < 0)
            return CT_FAIL(CT_ERR_DATA, "%s%s:%lld: object \"%s\": %s has no such class", w->root,
                           e->annotation, (long long)o->line, o->name, w->o->labelmap);
        if (label == 0)
            return CT_FAIL(
                CT_ERR_DATA,
                "%s%s:%lld: object \"%s\": class 0 is the background, where no object is", w->root,
                e->annotation, (long long)o->line, o->name);
        if ((o->corner[0] >= (double)r->width) || (o->corner[1] >= (double)r->height) ||
            (o->corner[2] <= 0) || (o->corner[3] <= 0))
            return CT_FAIL(CT_ERR_DATA,
                           "%s%s:%lld: object \"%s\" at %g %g %g %g lies outside of the image of "
                           "width %lld, height %lld",
                           w->root, e->annotation, (long long)o->line, o->name, o->corner[0],
                           o->corner[1], o->corner[2], o->corner[3], (long long)r->width,
                           (long long)r->height);
        row[0] = 0;
        row[1] = (float)label;
        row[2] = 0;
        for (int k = 0; k < 4; k++)
            row[CT_BOX_CORNER + k] =
                (float)(o->corner[k] / (double)((k % 2 == 0) ? r->width : r->height));
        row[7] = o->difficult ? 1.0f : 0.0f;
    }
    t->record.box = (const float *)(const void *)t->box.data;
    t->record.n_box = e->voc.n;
    return CT_OK;
}

/* Any thread. */
static ct_status make_record(const work *w, const entry *e, slot *t)
{
    ct_image_list list = { 0 };
    ct_image_entry one = { 0 };
    char path[4096], nowhere[] = "";
    ct_image image;
    ct_status status;
    size_t size;
    ct_why why;

    CT_TRY(image_path(w, e, path, sizeof(path)));
    list = (ct_image_list){ .text = path, .root = nowhere, .entry = &one, .count = 1 };
    status = ct_image_list_bytes(&list, 0, &t->room, &size, &why);
    if (status == CT_OK)
        status =
            ct_image_decode(t->room.file.data, size, CT_COLOR_BGR, &t->room.decoded, &image, &why);
    if (status != CT_OK)
        return CT_FAIL(status, "%s (of %s%s): %s", path, w->root, e->annotation, why.text);
    if ((e->voc.width > 0) && (e->voc.height > 0) &&
        ((e->voc.width != (double)image.width) || (e->voc.height != (double)image.height)))
        return CT_FAIL(CT_ERR_DATA,
                       "%s%s says that the image has width %g and height %g; %s has %lld and %lld",
                       w->root, e->annotation, e->voc.width, e->voc.height, path,
                       (long long)image.width, (long long)image.height);
    t->record = (ct_record){ .values = t->room.file.data,
                             .n = size,
                             .encoded = true,
                             .channels = image.channels,
                             .height = image.height,
                             .width = image.width,
                             .label = -1 };
    return set_boxes(w, e, t);
}

/* The entries of a set, in their order or mixed. */
static ct_status fill(void *ctx, int which, ct_sink *sink)
{
    work *w = ctx;
    uint64_t key = ct_rng_key(w->o->seed, ct_rng_hash("convert"), (uint64_t)which);
    int64_t first = (which == 0) ? 0 : w->n_set[0], count = w->n_set[which];
    bool mix = w->o->shuffle || (w->o->from != NULL);
    int n_slot = 2 * omp_get_max_threads();
    ct_status status = CT_OK;
    slot *s;

    if (n_slot > MOST_SLOTS) n_slot = MOST_SLOTS;
    s = calloc((size_t)n_slot, sizeof(*s));
    if (s == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for images");
    for (int64_t i = 0; (i < count) && (status == CT_OK); i += n_slot) {
        int n = (count - i < n_slot) ? (int)(count - i) : n_slot;

#pragma omp parallel for schedule(dynamic, 1)
        for (int k = 0; k < n; k++) {
            int64_t at = i + k;

            if (mix) at = (int64_t)ct_rng_permute(key, (uint64_t)at, (uint64_t)count);
            ct_log_hold_errors(true);
            s[k].status = make_record(w, &w->entry[first + at], &s[k]);
            ct_log_hold_errors(false);
            if (s[k].status != CT_OK) ct_log_last_error(s[k].why, sizeof(s[k].why));
        }
        for (int k = 0; (k < n) && (status == CT_OK); k++) {
            status = s[k].status;
            if (status == CT_OK)
                status = ct_sink_add(sink, &s[k].record, NULL, NULL);
            else
                (void)CT_FAIL(status, "%s", s[k].why);
        }
    }
    for (int k = 0; k < n_slot; k++) {
        ct_image_room_release(&s[k].room);
        ct_sample_buffer_release(&s[k].box);
    }
    free(s);
    return status;
}

/* ---- */

static ct_status check_options(const ct_convert_options *o)
{
    if ((o->list == NULL) == (o->from == NULL))
        return CT_FAIL(CT_ERR_CONFIG,
                       "cortado convert annotated: give --from=DIR, a folder as PASCAL VOC's, or "
                       "--list=FILE, lines \"image annotation\"");
    if ((o->from != NULL) && (o->root != NULL))
        return CT_FAIL(CT_ERR_CONFIG, "--root is of --list; --from=%s has its own paths", o->from);
    return CT_OK;
}

static ct_status read_annotations(work *w)
{
    for (int64_t i = 0; i < w->n; i++) {
        char path[4096];

        snprintf(path, sizeof(path), "%s%s", w->root, w->entry[i].annotation);
        if (access(path, R_OK) != 0)
            return (w->entry[i].line > 0)
                       ? CT_FAIL(CT_ERR_IO, "%s:%lld: cannot read %s: %s", w->o->list,
                                 (long long)w->entry[i].line, path, strerror(errno))
                       : CT_FAIL(CT_ERR_IO, "cannot read %s: %s", path, strerror(errno));
        CT_TRY(ct_voc_read(path, &w->entry[i].voc));
    }
    return (w->o->labelmap != NULL) ? read_labelmap(w) : collect_classes(w);
}

static ct_status convert_list(work *w)
{
    ct_sink sink;

    CT_TRY(ct_sink_open(&sink, w->o, w->o->to, NULL, w->n));
    return ct_sink_close(&sink, fill(w, 0, &sink));
}

/* Two sets and the names of the classes, all of them or none. */
static ct_status convert_folder(work *w)
{
    ct_pair pair = { .n = { w->n_set[0], w->n_set[1] }, .fill = fill, .ctx = w };
    ct_text names = { 0 };
    ct_status status;

    pair.single = w->n_set[1] == 0;
    ct_text_add(&names, "%s/" CT_CLASS_FILE, w->o->to);
    if (names.failed) return CT_FAIL(CT_ERR_NOMEM, "no memory for %s", w->o->to);
    status = ct_path_check_free(names.text, w->o->force);
    if (status == CT_OK) status = ct_convert_pair(w->o, &pair);
    if (status == CT_OK) status = ct_class_names_write(names.text, &w->names);
    if (status == CT_OK)
        CT_INFO("%s: %lld classes with the background, their names in %s", w->o->from,
                (long long)w->names.n, names.text);
    ct_text_destroy(&names);
    return status;
}

ct_status ct_convert_annotated(const ct_convert_options *o)
{
    work w = { .o = o };
    const char *root = (o->from != NULL) ? o->from : (o->root != NULL) ? o->root : "";
    size_t n = strlen(root);
    ct_text slashed = { 0 };
    ct_status status;

    CT_TRY(check_options(o));
    ct_text_add(&slashed, "%s%s", root, ((n > 0) && (root[n - 1] != '/')) ? "/" : "");
    if (slashed.failed) return CT_FAIL(CT_ERR_NOMEM, "no memory");
    w.root = slashed.text;
    CT_TRY_GOTO(status, out, (o->list != NULL) ? read_list(&w) : read_folder(&w));
    CT_TRY_GOTO(status, out, read_annotations(&w));
    CT_TRY_GOTO(status, out, number_classes(&w));
    status = (o->list != NULL) ? convert_list(&w) : convert_folder(&w);
out:
    for (int64_t i = 0; i < w.n; i++) {
        free(w.entry[i].image);
        free(w.entry[i].annotation);
        ct_voc_release(&w.entry[i].voc);
    }
    free(w.entry);
    ct_class_names_release(&w.names);
    ct_name_map_destroy(&w.class_of);
    ct_text_destroy(&slashed);
    return status;
}
