#include "framework/data/text_parts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "framework/base/file.h"
#include "framework/base/text.h"
#include "framework/data/writer.h"

static const char *const part_name[CT_TEXT_N_PART] = { "train", "valid", "test" };

/* -1: none of the parts; "valid" and "dev" are one. */
static int part_of(const char *name)
{
    if (!ct_text_ends_with(name, ".txt") || (strcmp(name, "vocabulary.txt") == 0)) return -1;
    if (strstr(name, "train") != NULL) return CT_TEXT_TRAIN;
    if ((strstr(name, "valid") != NULL) || (strstr(name, "dev") != NULL)) return CT_TEXT_VALID;
    return (strstr(name, "test") != NULL) ? CT_TEXT_TEST : -1;
}

static ct_status join(const char *folder, const char *name, const char *suffix, char **path_p)
{
    ct_text t = { 0 };

    ct_text_add(&t, "%s/%s%s", folder, name, suffix);
    if (t.failed) return CT_FAIL(CT_ERR_NOMEM, "no memory");
    *path_p = t.text;
    return CT_OK;
}

static ct_status take_name(const ct_convert_options *o, const char *suffix, const char *name,
                           ct_text_parts *parts)
{
    int part = part_of(name);

    if (part < 0) return CT_OK;
    if (parts->from[part] != NULL)
        return CT_FAIL(CT_ERR_DATA, "%s and %s/%s: two texts for %s; convert them one by one",
                       parts->from[part], o->from, name, part_name[part]);
    CT_TRY(join(o->from, name, "", &parts->from[part]));
    return join(o->to, part_name[part], suffix, &parts->to[part]);
}

static ct_status find_in_folder(const ct_convert_options *o, const char *suffix, const char *list,
                                ct_text_parts *parts)
{
    DIR *dir = opendir(o->from);
    int reason = (dir != NULL) ? 0 : errno;
    ct_status status = CT_OK;

    for (const char *name; (status == CT_OK) && ((name = ct_folder_next(dir, &reason)) != NULL);)
        status = take_name(o, suffix, name, parts);
    if (dir != NULL) closedir(dir);
    CT_TRY(status);
    if (reason != 0)
        return CT_FAIL(CT_ERR_IO, "cannot read the folder %s: %s", o->from,
                       ct_path_why(o->from, reason).text);
    if (parts->from[CT_TEXT_TRAIN] == NULL)
        return CT_FAIL(CT_ERR_IO, "%s has no text *train*.txt", o->from);
    return (list != NULL) ? join(o->to, list, "", &parts->list) : CT_OK;
}

ct_status ct_text_parts_find(const ct_convert_options *o, const char *suffix, const char *list,
                             ct_text_parts *parts)
{
    struct stat st;

    if (stat(o->from, &st) != 0)
        return CT_FAIL(CT_ERR_IO, "%s: %s", o->from, ct_path_why(o->from, errno).text);
    parts->folder = S_ISDIR(st.st_mode);
    if (parts->folder) {
        CT_TRY(find_in_folder(o, suffix, list, parts));
    } else {
        parts->from[0] = strdup(o->from);
        parts->to[0] = strdup(o->to);
        if ((parts->from[0] == NULL) || (parts->to[0] == NULL))
            return CT_FAIL(CT_ERR_NOMEM, "no memory");
    }
    for (int i = 0; i < CT_TEXT_N_PART; i++)
        if (parts->to[i] != NULL) CT_TRY(ct_path_check_free(parts->to[i], o->force));
    return (parts->list != NULL) ? ct_path_check_free(parts->list, o->force) : CT_OK;
}

void ct_text_parts_destroy(ct_text_parts *parts)
{
    for (int i = 0; i < CT_TEXT_N_PART; i++) {
        free(parts->from[i]);
        free(parts->to[i]);
    }
    free(parts->list);
    *parts = (ct_text_parts){ .list = NULL };
}
