#include "cli/scale/study.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "framework/base/hash.h"

/* ---- the folder */

static const char *const inner[] = { "runs", "logs", "plots", "work" };

/* *made_p, unless NULL: so many characters of path name the outermost folder that was not there. */
static ct_status make_folder(const char *path, size_t *made_p)
{
    char at[600];
    size_t made = 0;

    snprintf(at, sizeof(at), "%s", path);
    for (char *c = at + 1; *c != '\0'; c++) {
        if (*c != '/') continue;
        *c = '\0';
        if (mkdir(at, 0777) == 0)
            made = (made > 0) ? made : strlen(at);
        else if (errno != EEXIST)
            return CT_FAIL(CT_ERR_IO, "%s: %s", at, strerror(errno));
        *c = '/';
    }
    if (mkdir(at, 0777) == 0)
        made = (made > 0) ? made : strlen(at);
    else if (errno != EEXIST)
        return CT_FAIL(CT_ERR_IO, "%s: %s", at, strerror(errno));
    if (made_p != NULL) *made_p = made;
    return CT_OK;
}

void ct_study_path(const ct_study *study, char *out, size_t size, const char *format, ...)
{
    int n = snprintf(out, size, "%s/", study->dir);
    va_list args;

    if ((n < 0) || ((size_t)n >= size)) return;
    va_start(args, format);
    vsnprintf(out + n, size - (size_t)n, format, args);
    va_end(args);
}

ct_status ct_study_open(const char *dir, ct_study *study)
{
    char path[600];

    if ((dir[0] == '\0') || (strlen(dir) >= sizeof(study->dir) - 1))
        return CT_FAIL(CT_ERR_CONFIG, "--out: not a folder's name: \"%s\"", dir);
    snprintf(study->dir, sizeof(study->dir), "%s", dir);
    for (size_t n = strlen(dir); (n > 1) && (dir[n - 1] == '/'); n--) study->dir[n - 1] = '\0';
    CT_TRY(make_folder(study->dir, &study->made));
    for (size_t i = 0; i < sizeof(inner) / sizeof(inner[0]); i++) {
        ct_study_path(study, path, sizeof(path), "%s", inner[i]);
        CT_TRY(make_folder(path, NULL));
        if (access(path, W_OK | X_OK) != 0)
            return CT_FAIL(CT_ERR_IO, "%s: %s", path, strerror(errno));
    }
    return CT_OK;
}

/* path becomes that of the folder around it. false: it names none. */
static bool leave_folder(char *path)
{
    bool is_dot;

    do {
        char *slash = strrchr(path, '/');

        if ((slash == NULL) || (slash == path)) return false;
        while ((slash > path + 1) && (slash[-1] == '/')) slash--;
        *slash = '\0';
        slash = strrchr(path, '/');
        is_dot = (slash != NULL) && (strcmp(slash, "/.") == 0);
    } while (is_dot);
    return true;
}

void ct_study_discard(const ct_study *study)
{
    char path[600];

    for (size_t i = 0; i < sizeof(inner) / sizeof(inner[0]); i++) {
        ct_study_path(study, path, sizeof(path), "%s", inner[i]);
        (void)rmdir(path);
    }
    snprintf(path, sizeof(path), "%s", study->dir);
    while ((study->made > 0) && (strlen(path) >= study->made))
        if ((rmdir(path) != 0) || !leave_folder(path)) return;
}

ct_status ct_study_notes(const ct_study *study, json_t **array_p)
{
    json_t *list = NULL;
    char path[600];

    ct_study_path(study, path, sizeof(path), "study.json");
    if (access(path, F_OK) != 0) {
        *array_p = json_array();
        return (*array_p != NULL) ? CT_OK : CT_FAIL(CT_ERR_NOMEM, "no memory for %s", path);
    }
    CT_TRY(ct_json_read(path, &list));
    if (!json_is_array(list)) {
        json_decref(list);
        return CT_FAIL(CT_ERR_DATA, "%s: not the list of a study", path);
    }
    *array_p = list;
    return CT_OK;
}

ct_status ct_study_note(const ct_study *study, json_t *entry)
{
    json_t *list = NULL;
    char path[600];
    ct_status status = ct_study_notes(study, &list);

    if (status != CT_OK) {
        json_decref(entry);
        return status;
    }
    json_array_append_new(list, entry);
    ct_study_path(study, path, sizeof(path), "study.json");
    status = ct_json_write(path, list);
    json_decref(list);
    return status;
}

/* ---- runs */

static uint64_t hash_of(const json_t *define)
{
    char *text = json_dumps(define, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(12));
    ct_hash h;

    ct_hash_init(&h);
    if (text != NULL) ct_hash_add(&h, text, strlen(text));
    free(text);
    return ct_hash_value(&h);
}

void ct_run_name(const json_t *define, char *out, size_t size)
{
    char words[200];

    snprintf(words, sizeof(words), "%s-%s-%s-n%d-r%d-%s-%s", ct_json_text(define, "kind", "run"),
             ct_json_text(define, "machine", "here"), ct_json_text(define, "net", "net"),
             ct_json_int(define, "nodes", 0), ct_json_int(define, "ranks", 0),
             ct_json_text(define, "mode", "any"), ct_json_text(define, "config", "default"));
    for (char *c = words; *c != '\0'; c++) {
        if (!isalnum((unsigned char)*c) && (*c != '-') && (*c != '_') && (*c != '.')) *c = '_';
    }
    snprintf(out, size, "%.150s-%016" PRIx64, words, hash_of(define));
}

json_t *ct_run_find(const ct_study *study, const json_t *define)
{
    char name[200], path[800];
    json_t *run = NULL;

    ct_run_name(define, name, sizeof(name));
    ct_study_path(study, path, sizeof(path), "runs/%s.json", name);
    if (access(path, F_OK) != 0) return NULL;
    run = json_load_file(path, 0, NULL);
    if ((run == NULL) || !json_equal(json_object_get(run, "define"), define)) {
        CT_WARN("%s is broken or of another definition; it is made anew", path);
        json_decref(run);
        return NULL;
    }
    if (json_is_object(json_object_get(run, "result"))) return run;
    json_decref(run);
    return NULL;
}

/* To a millisecond, since points tell by it which of two runs is the later one. */
static void set_ended(json_t *run)
{
    struct timespec now = { 0 };
    char when[32] = "", text[48];
    struct tm tm;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    if (gmtime_r(&now.tv_sec, &tm) != NULL) strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(text, sizeof(text), "%s.%03dZ", when, (int)(now.tv_nsec / 1000000));
    json_object_set_new(run, "ended", json_string(text));
}

ct_status ct_run_save(const ct_study *study, json_t *define, json_t *result, const char *why,
                      json_t *extra)
{
    json_t *run = json_object();
    char name[200], path[800];
    ct_status status;

    ct_run_name(define, name, sizeof(name));
    ct_study_path(study, path, sizeof(path), "runs/%s.json", name);
    json_object_set(run, "define", define);
    if (extra != NULL) json_object_update(run, extra);
    set_ended(run);
    if (result != NULL) {
        json_object_set_new(run, "status", json_string("ok"));
        json_object_set(run, "result", result);
    } else {
        json_object_set_new(run, "status", json_string("failed"));
        json_object_set_new(run, "why", json_string((why != NULL) ? why : "no reason known"));
    }
    status = ct_json_write(path, run);
    json_decref(run);
    return status;
}

static int is_run(const struct dirent *e)
{
    size_t n = strlen(e->d_name);

    return (n > 5) && (strcmp(e->d_name + n - 5, ".json") == 0);
}

ct_status ct_run_all(const ct_study *study, json_t **array_p, json_t **broken_p)
{
    struct dirent **list = NULL;
    char path[800];
    int n;

    ct_study_path(study, path, sizeof(path), "runs");
    n = scandir(path, &list, is_run, alphasort);
    if (n < 0)
        return CT_FAIL(CT_ERR_IO, "%s: %s: not the folder of a study", study->dir, strerror(errno));
    *array_p = json_array();
    *broken_p = json_array();
    for (int i = 0; i < n; i++) {
        json_t *run;

        ct_study_path(study, path, sizeof(path), "runs/%s", list[i]->d_name);
        run = json_load_file(path, 0, NULL);
        if (json_is_object(run) && json_is_object(json_object_get(run, "define"))) {
            json_object_set_new(run, "file", json_string(list[i]->d_name));
            json_array_append_new(*array_p, run);
        } else {
            json_array_append_new(*broken_p, json_string(list[i]->d_name));
            json_decref(run);
        }
        free(list[i]);
    }
    free(list);
    return CT_OK;
}
