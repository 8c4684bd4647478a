/* The list of a run's best sets: PREFIX.best. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/base/file.h"
#include "framework/base/text.h"
#include "framework/snapshot/set_files.h"
#include "framework/snapshot/snapshot.h"

/* PREFIX.best, malloc'ed; NULL without memory. */
static char *list_path(const char *prefix)
{
    ct_text t = { 0 };

    ct_text_add(&t, "%s.best", prefix);
    if (t.failed) ct_text_destroy(&t);
    return t.text;
}

/* Whole, or as it was. */
static ct_status write_list(const char *path, const ct_best *best, int n, bool higher)
{
    char *temp = ct_path_temp(path);
    ct_text t = { 0 };
    ct_status status;

    ct_text_add(&t, "%s %s\n", best->metric, higher ? "HIGHER" : "LOWER");
    for (int i = 0; i < n; i++)
        ct_text_add(&t, "%" PRId64 " %.9g\n", best->set[i].iteration, best->set[i].value);
    status = ((temp == NULL) || t.failed) ? CT_FAIL(CT_ERR_NOMEM, "no memory to write %s", path)
                                          : ct_file_write(temp, t.text, t.length);
    if (status == CT_OK) status = ct_file_commit(temp, path);
    ct_text_destroy(&t);
    free(temp);
    return status;
}

ct_status ct_snapshot_list_best(const char *prefix, const ct_snapshot_state *state, bool higher,
                                int keep)
{
    const ct_best *best = &state->best;
    int n = (best->n < state->keep_best) ? best->n : state->keep_best;
    char *path = list_path(prefix);
    ct_status status = CT_OK;

    if (path == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a file name");
    if (n > 0)
        status = write_list(path, best, n, higher);
    else if ((unlink(path) != 0) && (errno != ENOENT))
        status = CT_FAIL(CT_ERR_IO, "cannot remove %s: %s", path, strerror(errno));
    for (int i = n; (status == CT_OK) && (keep == 0) && (i < best->n); i++)
        if (best->set[i].own) ct_set_remove(prefix, best->set[i].iteration);
    if ((status == CT_OK) && (n > 0)) ct_set_prune(prefix, state, keep, INT32_MAX);
    free(path);
    return status;
}

/* The sets of an open list, until one is whole. */
static ct_status find_whole(FILE *f, const char *path, const char *prefix, char **file_p)
{
    char line[256];

    for (int number = 1; (*file_p == NULL) && (fgets(line, sizeof(line), f) != NULL); number++) {
        int64_t iteration;
        double value;

        if (number == 1) continue; /* the metric */
        if (sscanf(line, "%" SCNd64 " %lf", &iteration, &value) != 2)
            return CT_FAIL(CT_ERR_DATA, "%s:%d: expected an iteration and a value", path, number);
        CT_TRY(ct_set_weights(prefix, iteration, file_p));
    }
    if (ferror(f)) return CT_FAIL(CT_ERR_IO, "%s: %s", path, strerror(errno));
    return CT_OK;
}

ct_status ct_snapshot_best_weights(const char *prefix, char **file_p)
{
    char *path = list_path(prefix);
    FILE *f = (path != NULL) ? fopen(path, "re") : NULL;
    ct_status status = CT_OK;

    *file_p = NULL;
    if (path == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a file name");
    if (f != NULL) {
        status = find_whole(f, path, prefix, file_p);
        fclose(f);
    } else if (errno != ENOENT) {
        status = CT_FAIL(CT_ERR_IO, "%s: %s", path, strerror(errno));
    }
    free(path);
    return status;
}
