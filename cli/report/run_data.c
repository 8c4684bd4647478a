#include "cli/report/run_data.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/base/file.h"
#include "framework/base/log.h"
#include "framework/base/sort.h"

/* ---- curves */

static ct_status find_curve(ct_run_data *r, const char *field, bool of_test, ct_run_curve **c_p)
{
    ct_run_curve *grown;

    for (int i = 0; i < r->n_curve; i++) {
        *c_p = &r->curve[i];
        if (((*c_p)->of_test == of_test) && (strcmp((*c_p)->field, field) == 0)) return CT_OK;
    }
    grown = realloc(r->curve, ((size_t)r->n_curve + 1) * sizeof(*grown));
    if (grown == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the curves of %s", r->path);
    r->curve = grown;
    *c_p = &grown[r->n_curve];
    **c_p = (ct_run_curve){ .field = strdup(field), .of_test = of_test };
    if ((*c_p)->field == NULL)
        return CT_FAIL(CT_ERR_NOMEM, "no memory for the curves of %s", r->path);
    r->n_curve += 1;
    return CT_OK;
}

ct_status ct_run_data_add(ct_run_data *r, const char *field, bool of_test, double x, double y)
{
    ct_run_curve *c = NULL;

    CT_TRY(find_curve(r, field, of_test, &c));
    while ((c->n > 0) && (c->point[c->n - 1].x >= x)) c->n--; /* the run went on from before */
    if (c->n == c->capacity) {
        int64_t capacity = 2 * c->capacity + 64;
        ct_chart_point *grown = realloc(c->point, (size_t)capacity * sizeof(*grown));

        if (grown == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the curves of %s", r->path);
        c->point = grown;
        c->capacity = capacity;
    }
    c->point[c->n++] = (ct_chart_point){ .x = x, .y = y };
    return CT_OK;
}

const ct_run_curve *ct_run_data_curve(const ct_run_data *r, const char *field, bool of_test)
{
    for (int i = 0; i < r->n_curve; i++)
        if ((r->curve[i].of_test == of_test) && (strcmp(r->curve[i].field, field) == 0))
            return &r->curve[i];
    return NULL;
}

double ct_run_curve_last(const ct_run_curve *c)
{
    return ((c != NULL) && (c->n > 0)) ? c->point[c->n - 1].y : NAN;
}

double ct_run_curve_least(const ct_run_curve *c)
{
    double v = NAN;

    for (int64_t i = 0; (c != NULL) && (i < c->n); i++) v = fmin(v, c->point[i].y);
    return v;
}

double ct_run_curve_most(const ct_run_curve *c)
{
    double v = NAN;

    for (int64_t i = 0; (c != NULL) && (i < c->n); i++) v = fmax(v, c->point[i].y);
    return v;
}

double ct_run_curve_median(const ct_run_curve *c)
{
    double *v, median = NAN;
    int n = 0;

    if ((c == NULL) || (c->n == 0)) return NAN;
    v = malloc((size_t)c->n * sizeof(*v));
    for (int64_t i = 0; (v != NULL) && (i < c->n); i++)
        if (isfinite(c->point[i].y)) v[n++] = c->point[i].y;
    if (n > 0) median = ct_median(v, n);
    free(v);
    return median;
}

/* ---- events */

static bool is_no_curve(const char *field)
{
    static const char *const other[] = { "iter", "net", "time", "epoch", "broken_samples" };

    for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++)
        if (strcmp(field, other[i]) == 0) return true;
    return false;
}

/* Numbers, and nulls, which are numbers that are not finite. */
static ct_status add_members(ct_run_data *r, json_t *o, bool of_test, double iteration, int net)
{
    const char *key;
    json_t *v;

    json_object_foreach(o, key, v)
    {
        char field[160];

        if (is_no_curve(key) || (!json_is_number(v) && !json_is_null(v))) continue;
        snprintf(field, sizeof(field), "%s", key);
        if (net > 0) snprintf(field, sizeof(field), "%s (net %d)", key, net);
        CT_TRY(ct_run_data_add(r, field, of_test, iteration,
                               json_is_number(v) ? json_number_value(v) : NAN));
    }
    return CT_OK;
}

static void keep(json_t **to, json_t *event)
{
    json_decref(*to);
    *to = json_incref(event);
}

static ct_status add_event(void *ctx, const char *file, int line, json_t *e)
{
    ct_run_data *r = ctx;
    const char *what = ct_json_text(e, "event", NULL);
    double iteration = ct_json_number(e, "iter", NAN);
    int net = ct_json_int(e, "net", 0);

    if (what == NULL)
        return CT_FAIL(CT_ERR_DATA, "%s:%d: no member \"event\"; expected an event of --metrics",
                       file, line);
    if (strcmp(what, "run") == 0) keep(&r->about, e);
    if (strcmp(what, "compression") == 0) keep(&r->compression, e);
    if (strcmp(what, "done") == 0) keep(&r->done, e);
    if (!isfinite(iteration)) return CT_OK;
    if (strcmp(what, "train") == 0) return add_members(r, e, false, iteration, 0);
    if (strcmp(what, "test") != 0) return CT_OK;
    CT_TRY(add_members(r, json_object_get(e, "outputs"), true, iteration, net));
    return add_members(r, e, true, iteration, net);
}

static ct_status read_metrics(ct_run_data *r, const char *file)
{
    CT_TRY(ct_json_lines(file, add_event, r));
    if ((r->about == NULL) && (r->n_curve == 0))
        return CT_FAIL(CT_ERR_DATA, "%s: no event of a training in it", file);
    return CT_OK;
}

/* A JSON file of the folder, with one of the members, ended by NULL, as `verb` writes it. It may be
 * missing. */
static ct_status read_json(const ct_run_data *r, const char *name, const char *const *member,
                           const char *verb, json_t **json_p)
{
    bool known = false;
    ct_text file = { 0 };
    ct_status status = CT_OK;

    ct_text_add(&file, "%s/%s", r->path, name);
    if (file.failed) status = CT_FAIL(CT_ERR_NOMEM, "no memory for the files of %s", r->path);
    if ((status == CT_OK) && (access(file.text, F_OK) == 0))
        status = ct_json_read(file.text, json_p);
    for (int i = 0; (*json_p != NULL) && (member[i] != NULL); i++)
        known |= json_is_array(json_object_get(*json_p, member[i])) ||
                 json_is_number(json_object_get(*json_p, member[i]));
    if ((status == CT_OK) && (*json_p != NULL) && !known)
        status = CT_FAIL(CT_ERR_DATA, "%s: no member \"%s\"; expected what %s writes", file.text,
                         member[0], verb);
    ct_text_destroy(&file);
    return status;
}

static ct_status read_trace(ct_run_data *r)
{
    ct_text file = { 0 };
    ct_status status = CT_OK;

    ct_text_add(&file, "%s/" CT_RUN_TRACE, r->path);
    if (file.failed) status = CT_FAIL(CT_ERR_NOMEM, "no memory for the files of %s", r->path);
    if ((status == CT_OK) && (access(file.text, F_OK) == 0))
        status = ct_traced_read(file.text, &r->traced);
    ct_text_destroy(&file);
    return status;
}

static ct_status read_folder(ct_run_data *r)
{
    static const char *const scores[] = { "confusion", "perplexity", "precision_at_recall", NULL };
    static const char *const times[] = { "layers", NULL };
    ct_text file = { 0 };
    ct_status status = CT_OK;

    ct_text_add(&file, "%s/" CT_RUN_METRICS, r->path);
    if (file.failed) status = CT_FAIL(CT_ERR_NOMEM, "no memory for the files of %s", r->path);
    if ((status == CT_OK) && (access(file.text, F_OK) != 0))
        status = CT_FAIL(CT_ERR_IO,
                         "%s: %s; expected the folder of a training with --run, or a file of "
                         "--metrics",
                         file.text, strerror(errno));
    if (status == CT_OK) status = read_metrics(r, file.text);
    ct_text_destroy(&file);
    CT_TRY(status);
    CT_TRY(read_json(r, CT_RUN_SCORES, scores, "cortado test --report", &r->scores));
    CT_TRY(read_json(r, CT_RUN_TIMES, times, "cortado time --json", &r->times));
    return read_trace(r);
}

/* "first" of "runs/first/". */
static char *name_of(const char *path)
{
    size_t n = strlen(path), from;

    while ((n > 1) && (path[n - 1] == '/')) n--;
    from = n;
    while ((from > 0) && (path[from - 1] != '/')) from--;
    return strndup(path + from, n - from);
}

/* Metrics begin with an object. */
static bool is_json(const char *path)
{
    FILE *f = ct_file_open_stream(path);
    int c = (f != NULL) ? getc(f) : '{';

    if (f != NULL) fclose(f);
    return (c == '{') || (c == '[') || (c == EOF);
}

ct_status ct_run_data_read(const char *path, ct_run_data *r)
{
    struct stat st;

    *r = (ct_run_data){ .path = path, .name = name_of(path) };
    if (r->name == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %s", path);
    if (stat(path, &st) != 0)
        return CT_FAIL(CT_ERR_IO, "%s: %s", path, ct_path_why(path, errno).text);
    r->is_folder = S_ISDIR(st.st_mode);
    if (r->is_folder) return read_folder(r);
    return is_json(path) ? read_metrics(r, path) : ct_run_log_read(r, path);
}

void ct_run_data_destroy(ct_run_data *r)
{
    for (int i = 0; i < r->n_curve; i++) {
        free(r->curve[i].field);
        free(r->curve[i].point);
    }
    free(r->curve);
    free(r->name);
    json_decref(r->about);
    json_decref(r->compression);
    json_decref(r->done);
    json_decref(r->scores);
    json_decref(r->times);
    ct_traced_destroy(&r->traced);
    *r = (ct_run_data){ .path = NULL };
}
