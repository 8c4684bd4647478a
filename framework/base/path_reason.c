/* What a user is told of a path that is not there: the first part of it that is missing, and which
 * name beside it is nearly the same. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "framework/base/file.h"

/* Of a folder so many names are looked at; a name may have so many letters wrong. */
enum { MOST_NAMES = 4096, MOST_WRONG = 2 };

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Names of a folder in one order on every machine; each is freed by the caller. */
static int list_names(const char *folder, char **name)
{
    DIR *dir = opendir(folder);
    int n = 0;

    for (const char *at; (n < MOST_NAMES) && ((at = ct_folder_next(dir, NULL)) != NULL);)
        if ((at[0] != '.') && ((name[n] = strdup(at)) != NULL)) n++;
    if (dir != NULL) closedir(dir);
    qsort(name, (size_t)n, sizeof(*name), by_bytes);
    return n;
}

/* folder ends with a slash, or is "". */
static void add_nearest(ct_text *t, const char *folder, const char *missing)
{
    char **name = calloc(MOST_NAMES, sizeof(*name));
    const char *near;
    int n;

    if (name == NULL) return;
    n = list_names((folder[0] == '\0') ? "." : folder, name);
    near = ct_text_nearest_within(missing, (const char *const *)name, n, MOST_WRONG);
    if (near != NULL) ct_text_add(t, "; did you mean %s%s?", folder, near);
    for (int i = 0; i < n; i++) free(name[i]);
    free(name);
}

/* Of a path whose first `begin` bytes are there, and whose first `end` are not. */
static void add_missing(ct_text *t, const char *path, size_t begin, size_t end)
{
    ct_text folder = { 0 }, missing = { 0 };

    if (path[end + strspn(path + end, "/")] != '\0')
        ct_text_add(t, "; there is no folder %.*s", (int)end, path);
    ct_text_add(&folder, "%.*s", (int)begin, path);
    ct_text_add(&missing, "%.*s", (int)(end - begin), path + begin);
    if (!folder.failed && !missing.failed) add_nearest(t, folder.text, missing.text);
    ct_text_destroy(&folder);
    ct_text_destroy(&missing);
}

static void add_hint(ct_text *t, const char *path)
{
    size_t begin = strspn(path, "/");
    bool there = true;

    while (there && (path[begin] != '\0')) {
        size_t end = begin + strcspn(path + begin, "/");
        char *part = strndup(path, end);
        struct stat st;

        if (part == NULL) return;
        there = (stat(part, &st) == 0);
        if (!there) add_missing(t, path, begin, end);
        free(part);
        begin = end + strspn(path + end, "/");
    }
}

ct_path_reason ct_path_why(const char *path, int reason)
{
    ct_path_reason why;
    ct_text t = { 0 };

    ct_text_add(&t, "%s", ct_file_reason(reason));
    if (reason == ENOENT) add_hint(&t, path);
    snprintf(why.text, sizeof(why.text), "%s", t.failed ? ct_file_reason(reason) : t.text);
    ct_text_destroy(&t);
    return why;
}
