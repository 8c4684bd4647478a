/* The files behind an HDF5 source. */
#include "framework/data/hdf5_list.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/base/text.h"

static bool is_hdf5(const char *path)
{
    char magic[8] = "";
    FILE *f = fopen(path, "rb");
    bool good =
        (f != NULL) && (fread(magic, 1, 8, f) == 8) && (memcmp(magic, "\x89HDF\r\n\x1a\n", 8) == 0);

    if (f != NULL) fclose(f);
    return good;
}

static bool has_suffix(const char *path)
{
    const char *dot = strrchr(path, '.');

    return (dot != NULL) && ((strcmp(dot, ".h5") == 0) || (strcmp(dot, ".hdf5") == 0));
}

static char *resolve(const char *list, const char *name)
{
    const char *slash = strrchr(list, '/');
    ct_text t = { 0 };

    if ((name[0] == '/') || (slash == NULL) || (access(name, F_OK) == 0)) return strdup(name);
    ct_text_add(&t, "%.*s/%s", (int)(slash - list), list, name);
    if (access((t.text != NULL) ? t.text : name, F_OK) == 0) return t.text;
    ct_text_destroy(&t);
    return strdup(name);
}

/* Takes over name. */
static ct_status add(char *name, const char *source, const char *who, char ***path, int *n)
{
    char **grown = (name != NULL) ? realloc(*path, (size_t)(*n + 1) * sizeof(*grown)) : NULL;

    if (grown == NULL) {
        free(name);
        return CT_FAIL(CT_ERR_NOMEM, "%s: no memory for the list %s", who, source);
    }
    *path = grown;
    grown[(*n)++] = name;
    return CT_OK;
}

static ct_status add_listed(const char *source, const char *who, char ***path, int *n)
{
    char *text, *save = NULL;
    size_t size;
    ct_status status = CT_OK;

    CT_TRY(ct_file_read(source, &text, &size));
    for (char *name = strtok_r(text, " \t\r\n", &save); (name != NULL) && (status == CT_OK);
         name = strtok_r(NULL, " \t\r\n", &save)) {
        status = add(resolve(source, name), source, who, path, n);
    }
    free(text);
    if ((status == CT_OK) && (*n == 0))
        status = CT_FAIL(CT_ERR_DATA, "%s: %s lists no HDF5 file", who, source);
    return status;
}

ct_status ct_hdf5_list(const char *source, const char *who, char ***path_p, int *n_p)
{
    char **path = NULL;
    struct stat st;
    int n = 0;
    ct_status status;

    if ((access(source, R_OK) != 0) || (stat(source, &st) != 0))
        return CT_FAIL(CT_ERR_IO, "%s: cannot open %s: %s", who, source, strerror(errno));
    if (!S_ISREG(st.st_mode)) /* a pipe would never open */
        return CT_FAIL(CT_ERR_IO, "%s: %s: not a regular file", who, source);
    if (is_hdf5(source) || has_suffix(source))
        status = add(strdup(source), source, who, &path, &n);
    else
        status = add_listed(source, who, &path, &n);
    if (status != CT_OK) {
        for (int i = 0; i < n; i++) free(path[i]);
        free(path);
        return status;
    }
    *path_p = path;
    *n_p = n;
    return CT_OK;
}

typedef struct set_names {
    char *name[256];
    int n;
} set_names;

static herr_t add_name(hid_t group, const char *name, const H5L_info_t *info, void *arg)
{
    set_names *s = arg;

    (void)group;
    (void)info;
    s->name[s->n] = strdup(name);
    if (s->name[s->n] != NULL) s->n++;
    return s->n == (int)(sizeof(s->name) / sizeof(s->name[0])); /* 1: that is enough */
}

/* A data set is named after its top: which one may be meant. */
ct_status ct_hdf5_no_set(hid_t file, const char *path, const char *wanted, const char *who)
{
    set_names s = { .n = 0 };
    ct_text have = { 0 };
    const char *nearest;
    ct_status status;

    H5Literate(file, H5_INDEX_NAME, H5_ITER_INC, NULL, add_name, &s);
    nearest = ct_text_nearest(wanted, (const char *const *)s.name, s.n);
    for (int i = 0; (i < s.n) && (i < 10); i++)
        ct_text_add(&have, "%s%s", (i > 0) ? ", " : "", s.name[i]);
    if (s.n > 10) ct_text_add(&have, ", …");
    status =
        CT_FAIL(CT_ERR_DATA,
                "%s: %s has no data set \"%s\" (it has: %s)%s%s%s; tops are named after data sets",
                who, path, wanted, (have.text != NULL) ? have.text : "none",
                (nearest != NULL) ? "; did you mean \"" : "", (nearest != NULL) ? nearest : "",
                (nearest != NULL) ? "\"?" : "");
    for (int i = 0; i < s.n; i++) free(s.name[i]);
    ct_text_destroy(&have);
    return status;
}
