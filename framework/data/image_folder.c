/* Folders of images whose names are the classes, as a list. */
#include "framework/data/image_list.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "framework/base/file.h"
#include "framework/base/log.h"
#include "framework/base/text.h"

enum { MOST_DEPTH = 32 }; /* beyond it a link leads to a folder above itself */

typedef struct walk {
    const char *folder;
    ct_text paths; /* of the list, each with its NUL */
    ct_image_list *list;
    int64_t capacity;
    int64_t other; /* files that are no images by their names */
    char first_other[512];
} walk;

typedef struct listing {
    struct dirent **entry;
    int n;
} listing;

static int is_visible(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

/* strcmp, not the locale's order: the same numbers everywhere. */
static int by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static ct_status list_folder(const char *path, listing *l)
{
    l->n = scandir(path, &l->entry, is_visible, by_bytes);
    if (l->n >= 0) return CT_OK;
    l->n = 0;
    l->entry = NULL;
    return CT_FAIL(CT_ERR_IO, "cannot read the folder %s: %s", path, ct_path_why(path, errno).text);
}

static void release(listing *l)
{
    for (int i = 0; i < l->n; i++) free(l->entry[i]);
    free(l->entry);
}

static bool is_image(const char *name)
{
    static const char *const suffix[] = { ".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff" };
    const char *dot = strrchr(name, '.');

    for (size_t i = 0; (dot != NULL) && (i < sizeof(suffix) / sizeof(suffix[0])); i++)
        if (strcasecmp(dot, suffix[i]) == 0) return true;
    return false;
}

static void note_other(walk *w, const char *path)
{
    if (w->other++ == 0) snprintf(w->first_other, sizeof(w->first_other), "%s", path);
}

/* path: behind the folder. */
static ct_status add_image(walk *w, const char *path, int label)
{
    ct_image_list *list = w->list;

    if (list->count == w->capacity) {
        int64_t capacity = (w->capacity > 0) ? 2 * w->capacity : 1024;
        ct_image_entry *grown = realloc(list->entry, (size_t)capacity * sizeof(*grown));

        if (grown == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the files of %s", w->folder);
        list->entry = grown;
        w->capacity = capacity;
    }
    list->entry[list->count++] =
        (ct_image_entry){ .path = w->paths.length, .line = 0, .label = label };
    ct_text_add_bytes(&w->paths, path, strlen(path) + 1);
    return w->paths.failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for the files of %s", w->folder)
                           : CT_OK;
}

/* Of a walk without classes. */
static ct_status add_file(walk *w, const char *whole)
{
    ct_text_add_bytes(&w->paths, whole, strlen(whole) + 1);
    return w->paths.failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for the files of %s", w->folder)
                           : CT_OK;
}

static ct_status walk_folder(walk *w, const char *path, int label, int depth);

/* path: behind the folder, whole: the full one. label -1: beside the classes. */
static ct_status walk_entry(walk *w, const char *path, const char *whole, int label, int depth)
{
    struct stat st;

    if (stat(whole, &st) != 0)
        return CT_FAIL(CT_ERR_IO, "cannot look at %s: %s", whole, strerror(errno));
    if (S_ISDIR(st.st_mode)) return walk_folder(w, path, label, depth + 1);
    if (S_ISREG(st.st_mode) && is_image(path))
        return (w->list != NULL) ? add_image(w, path, label) : add_file(w, whole);
    note_other(w, whole);
    return CT_OK;
}

static ct_status walk_folder(walk *w, const char *path, int label, int depth)
{
    ct_text whole = { 0 };
    listing l = { 0 };
    ct_status status = CT_OK;

    ct_text_add(&whole, "%s/%s", w->folder, path);
    if (whole.failed)
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for the files of %s", w->folder);
    else if (depth > MOST_DEPTH)
        status =
            CT_FAIL(CT_ERR_DATA, "%s: more than %d folders in one another", whole.text, MOST_DEPTH);
    else
        status = list_folder(whole.text, &l);
    for (int i = 0; (status == CT_OK) && (i < l.n); i++) {
        ct_text at = { 0 }, full = { 0 };

        ct_text_add(&at, "%s/%s", path, l.entry[i]->d_name);
        ct_text_add(&full, "%s/%s", whole.text, l.entry[i]->d_name);
        status = (at.failed || full.failed)
                     ? CT_FAIL(CT_ERR_NOMEM, "no memory for the files of %s", w->folder)
                     : walk_entry(w, at.text, full.text, label, depth);
        ct_text_destroy(&at);
        ct_text_destroy(&full);
    }
    release(&l);
    ct_text_destroy(&whole);
    return status;
}

/* A class: adds its name, and its images to the list. */
static ct_status walk_class(walk *w, const char *name, ct_text *names, int64_t *n_p)
{
    int64_t before = w->list->count;

    if (!ct_is_class_name(name))
        return CT_FAIL(CT_ERR_DATA,
                       "%s/%s: the name of a class must be UTF-8 without control characters",
                       w->folder, name);
    CT_TRY(walk_folder(w, name, (int)*n_p, 0));
    if (w->list->count == before)
        return CT_FAIL(CT_ERR_DATA,
                       "%s/%s: no image in it, expected files *.jpg, *.jpeg, *.png, *.webp, *.tif "
                       "or *.tiff of this class",
                       w->folder, name);
    ct_text_add_bytes(names, name, strlen(name) + 1);
    (*n_p)++;
    return names->failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for the names of classes") : CT_OK;
}

static ct_status walk_classes(walk *w, const listing *l, ct_text *names, int64_t *n_p)
{
    for (int i = 0; i < l->n; i++) {
        ct_text path = { 0 };
        struct stat st;
        bool folder;

        ct_text_add(&path, "%s/%s", w->folder, l->entry[i]->d_name);
        if (path.failed) return CT_FAIL(CT_ERR_NOMEM, "no memory for the files of %s", w->folder);
        folder = (stat(path.text, &st) == 0) && S_ISDIR(st.st_mode);
        if (!folder) note_other(w, path.text);
        ct_text_destroy(&path);
        if (folder) CT_TRY(walk_class(w, l->entry[i]->d_name, names, n_p));
    }
    if (*n_p >= 2) return CT_OK;
    return CT_FAIL(CT_ERR_DATA,
                   "%s: %" PRId64
                   " folder%s, expected one for each class, and two classes at least",
                   w->folder, *n_p, (*n_p == 1) ? "" : "s");
}

/* One behind the other, each with its NUL, as a list. Takes the text over. */
static ct_status take_names(ct_text *t, int64_t n, ct_class_names *names)
{
    char *at = t->text;

    names->name = calloc((size_t)n + 1, sizeof(names->name[0]));
    if (names->name == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %" PRId64 " names", n);
    for (names->n = 0; names->n < n; at += strlen(at) + 1) names->name[names->n++] = at;
    names->text = t->text;
    *t = (ct_text){ 0 };
    return CT_OK;
}

static ct_status read_all(walk *w, ct_class_names *names)
{
    ct_text text = { 0 };
    listing l = { 0 };
    int64_t n = 0;
    ct_status status = list_folder(w->folder, &l);

    if (status == CT_OK) status = walk_classes(w, &l, &text, &n);
    if (status == CT_OK) status = take_names(&text, n, names);
    if ((status == CT_OK) && (w->other > 0))
        CT_WARN("%s: %" PRId64 " file%s left out, no image of a class by the name: %s%s", w->folder,
                w->other, (w->other == 1) ? "" : "s", w->first_other, (w->other == 1) ? "" : ", …");
    ct_text_destroy(&text);
    release(&l);
    return status;
}

ct_status ct_image_folder_read(const char *folder, ct_image_list *list, ct_class_names *names)
{
    walk w = { .folder = folder, .list = list };
    ct_text root = { 0 };
    ct_status status;

    *list = (ct_image_list){ 0 };
    *names = (ct_class_names){ 0 };
    ct_text_add(&root, "%s%s", folder, ct_text_ends_with(folder, "/") ? "" : "/");
    list->root = root.text;
    status = root.failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for the files of %s", folder)
                         : read_all(&w, names);
    list->text = w.paths.text;
    if (status == CT_OK) return CT_OK;
    ct_image_list_release(list);
    ct_class_names_release(names);
    return status;
}

ct_status ct_image_files_add(const char *folder, ct_text *paths)
{
    walk w = { .folder = folder, .paths = *paths };
    listing l = { 0 };
    ct_status status = list_folder(folder, &l);

    for (int i = 0; (status == CT_OK) && (i < l.n); i++) {
        ct_text whole = { 0 };

        ct_text_add(&whole, "%s%s%s", folder, ct_text_ends_with(folder, "/") ? "" : "/",
                    l.entry[i]->d_name);
        status = whole.failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for the files of %s", folder)
                              : walk_entry(&w, l.entry[i]->d_name, whole.text, 0, 0);
        ct_text_destroy(&whole);
    }
    release(&l);
    *paths = w.paths;
    return status;
}
