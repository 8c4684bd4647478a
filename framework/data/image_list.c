#include "framework/data/image_list.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    f = fopen(path, "rb");
    if (f == NULL) return CT_WHY(why, CT_ERR_IO, "cannot open %s: %s", path, strerror(errno));
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
