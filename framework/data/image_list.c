#include "framework/data/image_list.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/log.h"
#include "framework/base/file.h"
#include "framework/base/text.h"

/* Splits "path label" in place. */
static bool split_line(char *line, int *label_p)
{
    char *blank = strrchr(line, ' '), *end;
    char *tab = strrchr(line, '\t');
    long label;

    if ((tab != NULL) && ((blank == NULL) || (tab > blank))) blank = tab;
    if ((blank == NULL) || (blank == line)) return false;
    errno = 0;
    label = strtol(blank + 1, &end, 10);
    if ((end == blank + 1) || (*end != '\0') || (errno != 0) || (label < INT_MIN) ||
        (label > INT_MAX)) {
        return false;
    }
    *label_p = (int)label;
    while ((blank > line) && ((*blank == ' ') || (*blank == '\t'))) *blank-- = '\0';
    return true;
}

static void trim(char *line)
{
    size_t n = strlen(line);

    while ((n > 0) && (strchr(" \t\r", line[n - 1]) != NULL)) line[--n] = '\0';
}

static ct_status parse(ct_image_list *list, const char *path, const char *who)
{
    int64_t line = 0, capacity = 0;
    char *next;

    for (char *at = list->text; at != NULL; at = next) {
        char *newline = strchr(at, '\n');
        int label;

        line++;
        next = (newline != NULL) ? newline + 1 : NULL;
        if (newline != NULL) *newline = '\0';
        trim(at);
        if (*at == '\0') continue;
        if (!split_line(at, &label)) {
            return CT_FAIL(CT_ERR_DATA, "%s: %s:%lld: expected \"path label\", found \"%.80s\"",
                           who, path, (long long)line, at);
        }
        if (list->count == capacity) {
            ct_image_entry *grown;

            capacity = (capacity > 0) ? 2 * capacity : 1024;
            grown = realloc(list->entry, (size_t)capacity * sizeof(*grown));
            if (grown == NULL) return CT_FAIL(CT_ERR_NOMEM, "%s: no memory for %s", who, path);
            list->entry = grown;
        }
        list->entry[list->count++] = (ct_image_entry){ (size_t)(at - list->text), line, label };
    }
    return CT_OK;
}

ct_status ct_image_list_parse(ct_image_list *list, char *text, size_t size, const char *path,
                              const char *root, const char *who)
{
    ct_status status;

    *list = (ct_image_list){ .text = text };
    list->root = strdup((root != NULL) ? root : "");
    if (list->root == NULL) {
        status = CT_FAIL(CT_ERR_NOMEM, "%s: no memory for %s", who, path);
    } else if (memchr(list->text, '\0', size) != NULL) {
        status = CT_FAIL(CT_ERR_DATA, "%s: %s: not a text file", who, path);
    } else {
        status = parse(list, path, who);
    }
    if (status != CT_OK) ct_image_list_release(list);
    return status;
}

ct_status ct_image_list_read(ct_image_list *list, const char *path, const char *root,
                             const char *who)
{
    char *text;
    size_t size;

    *list = (ct_image_list){ 0 };
    CT_TRY(ct_file_read(path, &text, &size));
    return ct_image_list_parse(list, text, size, path, root, who);
}

void ct_image_list_release(ct_image_list *list)
{
    free(list->text);
    free(list->root);
    free(list->entry);
    *list = (ct_image_list){ 0 };
}

const char *ct_image_list_path(const ct_image_list *list, int64_t i)
{
    return list->text + list->entry[i].path;
}

ct_status ct_image_list_bytes(const ct_image_list *list, int64_t i, ct_image_buffer *room,
                              size_t *size_p, ct_why *why)
{
    char path[4096];
    long size;
    FILE *f;
    bool good;

    if (snprintf(path, sizeof(path), "%s%s", list->root, ct_image_list_path(list, i)) >=
        (int)sizeof(path)) {
        return CT_WHY(why, CT_ERR_IO, "the path is too long");
    }
    f = ct_file_open_stream(path);
    if (f == NULL)
        return CT_WHY(why, CT_ERR_IO, "cannot open %s: %s", path, ct_path_why(path, errno).text);
    good = (fseek(f, 0, SEEK_END) == 0) && ((size = ftell(f)) >= 0) && (fseek(f, 0, SEEK_SET) == 0);
    good = good && (size < LONG_MAX) &&
           (ct_sample_buffer_reserve(&room->file, (size_t)size + 1) == CT_OK);
    good = good && (fread(room->file.data, 1, (size_t)size, f) == (size_t)size);
    fclose(f);
    if (!good) return CT_WHY(why, CT_ERR_IO, "cannot read %s", path);
    *size_p = (size_t)size;
    return CT_OK;
}

ct_status ct_image_load(const ct_image_list *list, int64_t i, ct_color color, int64_t height,
                        int64_t width, ct_image_buffer *room, ct_image *image_p, ct_why *why)
{
    ct_image image;
    size_t size;

    CT_TRY(ct_image_list_bytes(list, i, room, &size, why));
    CT_TRY(ct_image_decode(room->file.data, size, color, &room->decoded, &image, why));
    if ((height > 0) && ((image.height != height) || (image.width != width))) {
        ct_image resized;

        if (ct_image_resize(&image, height, width, &room->resized, &resized) != CT_OK) {
            return CT_WHY(why, CT_ERR_NOMEM, "no memory for %lld x %lld pixels", (long long)height,
                          (long long)width);
        }
        image = resized;
    }
    *image_p = image;
    return CT_OK;
}

void ct_image_room_release(ct_image_buffer *room)
{
    ct_sample_buffer_release(&room->file);
    ct_sample_buffer_release(&room->decoded);
    ct_sample_buffer_release(&room->resized);
    ct_sample_buffer_release(&room->planes);
}

/* ---- labels */

enum { MAX_CLASS = 1 << 20, SHOWN = 20, UNEVEN = 10 };

static bool reserve(ct_label_count *c, int64_t label)
{
    int64_t size = (c->size > 0) ? c->size : 16;
    int64_t *grown;

    if (label < c->size) return true;
    while (size <= label) size *= 2;
    grown = realloc(c->n, (size_t)size * sizeof(*grown));
    if (grown == NULL) return false;
    memset(grown + c->size, 0, (size_t)(size - c->size) * sizeof(*grown));
    c->n = grown;
    c->size = size;
    return true;
}

void ct_label_count_add(ct_label_count *c, int64_t label)
{
    c->samples++;
    if (label < 0)
        c->negative++;
    else if ((label >= MAX_CLASS) || !reserve(c, label))
        c->large++;
    else
        c->n[label]++;
}

typedef struct summary {
    int64_t last, classes; /* largest label, classes that have samples */
    int64_t least, most;   /* classes with the fewest and most samples */
} summary;

static summary summarize(const ct_label_count *c)
{
    summary s = { .last = -1, .least = -1, .most = -1 };

    for (int64_t i = 0; i < c->size; i++) {
        if (c->n[i] == 0) continue;
        s.last = i;
        s.classes++;
        if ((s.least < 0) || (c->n[i] < c->n[s.least])) s.least = i;
        if ((s.most < 0) || (c->n[i] > c->n[s.most])) s.most = i;
    }
    return s;
}

/* The first classes that are (or are not) there, with their counts. */
static void list_classes(const ct_label_count *c, const summary *s, bool there, ct_text *t)
{
    int n = 0;

    for (int64_t i = 0; i <= s->last; i++) {
        if ((c->n[i] > 0) != there) continue;
        if (n++ == SHOWN) {
            ct_text_add(t, ", …");
            return;
        }
        ct_text_add(t, (n > 1) ? ", %lld" : "%lld", (long long)i);
        if (there) ct_text_add(t, ": %lld", (long long)c->n[i]);
    }
}

static void warn_of(const ct_label_count *c, const summary *s, const char *of)
{
    ct_text t = { 0 };

    if (c->negative > 0)
        CT_WARN("%s: %lld labels are below 0: losses take them only as ignore_label", of,
                (long long)c->negative);
    /* numbers with more gaps than classes are no classes */
    if ((s->classes <= s->last) && (2 * s->classes > s->last)) {
        list_classes(c, s, false, &t);
        CT_WARN("%s: no sample of class %s, though labels go up to %lld", of,
                (t.text != NULL) ? t.text : "", (long long)s->last);
        ct_text_destroy(&t);
    }
    if ((s->classes > 1) && (c->n[s->most] / UNEVEN > c->n[s->least])) {
        list_classes(c, s, true, &t);
        CT_WARN("%s: the classes are uneven (samples of each: %s)", of,
                (t.text != NULL) ? t.text : "");
        ct_text_destroy(&t);
    }
}

void ct_label_count_report(const ct_label_count *c, const char *of, bool warn)
{
    summary s = summarize(c);

    if (s.classes > 0)
        CT_INFO("%s: %lld classes up to label %lld, of %lld (class %lld) to %lld (class %lld) "
                "samples",
                of, (long long)s.classes, (long long)s.last, (long long)c->n[s.least],
                (long long)s.least, (long long)c->n[s.most], (long long)s.most);
    if (warn) warn_of(c, &s, of);
}

void ct_label_count_release(ct_label_count *c)
{
    free(c->n);
    *c = (ct_label_count){ 0 };
}
