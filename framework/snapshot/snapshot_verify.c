#include "framework/snapshot/snapshot.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/snapshot/h5.h"
#include "framework/snapshot/set_files.h"
#include "framework/snapshot/set_state.h"

/* Only such can be read to its end: there are devices without one. */
static bool is_regular(const char *path, int64_t *size_p)
{
    struct stat st;

    if (stat(path, &st) != 0) return false;
    errno = EINVAL;
    *size_p = (int64_t)st.st_size;
    return S_ISREG(st.st_mode);
}

/* The solverstate against the hash in its first line. */
static ct_status verify_state(const char *file, ct_text *why)
{
    char head[CT_H5_HEAD + 1] = { 0 }, format[64];
    uint64_t said = 0, hash = 0;
    int64_t size;
    size_t n;
    FILE *f = is_regular(file, &size) ? fopen(file, "rb") : NULL;

    if (f == NULL) {
        ct_text_add(why, "%s: %s", file, strerror(errno));
        return CT_ERR_IO;
    }
    n = fread(head, 1, CT_H5_HEAD, f);
    fclose(f);
    snprintf(format, sizeof(format), "%s %%16" SCNx64, CT_STATE_TITLE);
    if ((n != CT_H5_HEAD) || (sscanf(head, format, &said) != 1)) {
        ct_text_add(why, "%s: no solverstate of cortado, or its first line is damaged", file);
        return CT_ERR_DATA;
    }
    if (ct_h5_file_hash(file, CT_H5_HEAD, &hash, &size) != CT_OK) {
        ct_text_add(why, "%s: cannot be read", file);
        return CT_ERR_IO;
    }
    if (hash != said) {
        ct_text_add(why, "%s: damaged: its hash is %016" PRIx64 ", its first line says %016" PRIx64,
                    file, hash, said);
        return CT_ERR_DATA;
    }
    return CT_OK;
}

static ct_status verify_part(const char *file, const char *name, int64_t size, uint64_t hash,
                             ct_text *why)
{
    char *path = ct_path_beside(file, name);
    int64_t found_size = 0;
    uint64_t found = 0;
    ct_status status;

    if (path == NULL) return CT_ERR_NOMEM;
    status = is_regular(path, &found_size) ? CT_OK : CT_ERR_IO;
    if ((status == CT_OK) && (found_size == size))
        status = ct_h5_file_hash(path, 0, &found, &found_size);
    if (status != CT_OK) {
        ct_text_add(why, "%s: its part %s cannot be read: %s", file, name, strerror(errno));
    } else if (found_size != size) {
        ct_text_add(why, "%s: its part %s has %" PRId64 " bytes, expected %" PRId64, file, name,
                    found_size, size);
        status = CT_ERR_DATA;
    } else if (found != hash) {
        ct_text_add(why,
                    "%s: its part %s is damaged: its hash is %016" PRIx64 ", expected %016" PRIx64,
                    file, name, found, hash);
        status = CT_ERR_DATA;
    }
    free(path);
    return status;
}

static ct_status verify_parts(const char *file, char *parts, ct_text *why)
{
    char *rest = parts, *line;

    while ((line = strsep(&rest, "\n")) != NULL) {
        /* names may have spaces: size and hash are the last two words */
        char *hash = strrchr(line, ' '), *size = NULL;

        if (line[0] == '\0') continue;
        if (hash != NULL) {
            *hash = '\0';
            size = strrchr(line, ' ');
        }
        if (size != NULL) *size = '\0';
        /* parts lie beside the solver state */
        if ((size == NULL) || (strchr(line, '/') != NULL)) {
            ct_text_add(why, "%s: its list of parts is broken", file);
            return CT_ERR_DATA;
        }
        CT_TRY(verify_part(file, line, strtoll(size + 1, NULL, 10), strtoull(hash + 1, NULL, 16),
                           why));
    }
    return CT_OK;
}

static ct_status verify(const char *file, ct_text *why)
{
    ct_h5_reader *r = NULL;
    char *parts = NULL;
    ct_status status;

    CT_TRY(verify_state(file, why));
    CT_TRY(ct_h5_reader_create(file, why, &r));
    status = ct_h5_get_text(r, "/parts", &parts);
    ct_h5_reader_destroy(r);
    if (status == CT_OK) status = verify_parts(file, parts, why);
    free(parts);
    return status;
}

ct_status ct_snapshot_verify(const char *file, char **why_p)
{
    ct_text why = { 0 };
    ct_status status = verify(file, &why);

    if ((status != CT_OK) && (why.text == NULL)) ct_text_add(&why, "%s: cannot be read", file);
    if ((why_p != NULL) && (status != CT_OK)) {
        *why_p = why.text;
    } else {
        ct_text_destroy(&why);
    }
    return status;
}

ct_status ct_snapshot_newest(const char *prefix, char **file_p)
{
    ct_set_entry *list = NULL;
    char *file = NULL;
    int n = 0;

    CT_TRY(ct_set_list(prefix, &list, &n));
    for (int i = 0; (i < n) && (file == NULL); i++) {
        char *why = NULL;

        if (!list[i].committed) {
            CT_WARN("snapshot of iteration %" PRId64
                    " at %s was never finished (no .solverstate.h5), skipped",
                    list[i].iteration, prefix);
            continue;
        }
        file = ct_set_path(prefix, list[i].iteration, CT_SET_STATE);
        if (file == NULL) break;
        if (ct_snapshot_verify(file, &why) == CT_OK) continue;
        CT_WARN("snapshot skipped: %s", (why != NULL) ? why : file);
        free(why);
        free(file);
        file = NULL;
    }
    free(list);
    *file_p = file;
    return CT_OK;
}
