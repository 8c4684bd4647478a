#include "cli/scale/scale.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/config/features.h"

enum { MAX_NAME = 64, MAX_FOLDER = 5 };

ct_status ct_scale_self(char *out, size_t size)
{
    ssize_t n = readlink("/proc/self/exe", out, size - 1);

    if ((n <= 0) || ((size_t)n >= size - 1))
        return CT_FAIL(CT_ERR_IO, "/proc/self/exe: %s", (n < 0) ? strerror(errno) : "too long");
    out[n] = '\0';
    return CT_OK;
}

/* Where models/ may lie: named, in the build tree (build/mpicc/cortado), installed (bin/cortado),
 * here. */
static int folders(char folder[MAX_FOLDER][600])
{
    const char *share = getenv("CORTADO_SHARE");
    char self[512];
    int n = 0;

    if (share != NULL) snprintf(folder[n++], 600, "%s/models", share);
    if (ct_scale_self(self, sizeof(self)) == CT_OK) {
        char *slash = strrchr(self, '/');

        if (slash != NULL) *slash = '\0';
        snprintf(folder[n++], 600, "%s/../../models", self);
        snprintf(folder[n++], 600, "%s/../share/cortado/models", self);
        snprintf(folder[n++], 600, "%s/models", self);
    }
    snprintf(folder[n++], 600, "models");
    return n;
}

static int list_names(char folder[MAX_FOLDER][600], int n_folder, char name[MAX_NAME][64])
{
    int n = 0;

    for (int f = 0; f < n_folder; f++) {
        DIR *d = opendir(folder[f]);

        for (struct dirent *e; (d != NULL) && (n < MAX_NAME) && ((e = readdir(d)) != NULL);) {
            if (e->d_name[0] != '.') snprintf(name[n++], 64, "%.63s", e->d_name);
        }
        if (d != NULL) closedir(d);
    }
    return n;
}

ct_status ct_scale_find_net(const char *name, char *out, size_t size)
{
    char folder[MAX_FOLDER][600], known[MAX_NAME][64];
    const char *names[MAX_NAME], *near;
    int n_folder = folders(folder), n;

    for (int f = 0; (f < n_folder) && (strchr(name, '/') == NULL); f++) {
        char path[800], *real;

        snprintf(path, sizeof(path), "%.500s/%.200s/train_val.prototxt", folder[f], name);
        if ((real = realpath(path, NULL)) == NULL) continue;
        snprintf(out, size, "%s", real);
        free(real);
        return CT_OK;
    }
    if (access(name, R_OK) == 0) {
        snprintf(out, size, "%s", name);
        return CT_OK;
    }
    n = list_names(folder, n_folder, known);
    for (int i = 0; i < n; i++) names[i] = known[i];
    near = ct_text_nearest(name, names, n);
    if (near != NULL)
        return CT_FAIL(CT_ERR_CONFIG, "--net: unknown net \"%s\"; did you mean \"%s\"?", name,
                       near);
    return CT_FAIL(CT_ERR_CONFIG,
                   "--net: neither a ready net nor a file: \"%s\"; a file of your own "
                   "goes into --model",
                   name);
}
