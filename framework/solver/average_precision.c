#include "framework/solver/average_precision.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROW = 3 };

static const char *const version_name[CT_AP_N_VERSION] = {
    [CT_AP_11POINT] = "11point", [CT_AP_MAX_INTEGRAL] = "MaxIntegral", [CT_AP_INTEGRAL] = "Integral"
};

bool ct_ap_version_is(const char *name, ct_ap_version *version_p)
{
    *version_p = CT_AP_INTEGRAL;
    for (int i = 0; (name != NULL) && (i < CT_AP_N_VERSION); i++) {
        if (strcmp(version_name[i], name) != 0) continue;
        *version_p = (ct_ap_version)i;
        return true;
    }
    return name == NULL;
}

const char *ct_ap_version_name(ct_ap_version version)
{
    return version_name[version];
}

/* ---- seeing */

static ct_status add_truth(ct_detections *d, int64_t label, double n)
{
    if (label >= d->n_class) {
        double *grown = realloc(d->truth, (size_t)(label + 1) * sizeof(*grown));

        if (grown == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for average precision");
        for (int64_t c = d->n_class; c <= label; c++) grown[c] = 0;
        d->truth = grown;
        d->n_class = label + 1;
    }
    d->truth[label] += n;
    return CT_OK;
}

static ct_status add_row(ct_detections *d, const float *row)
{
    if (d->n == d->room) {
        int64_t room = (d->room > 0) ? 2 * d->room : 1024;
        double *grown = realloc(d->row, (size_t)(room * ROW) * sizeof(*grown));

        if (grown == NULL)
            return CT_FAIL(CT_ERR_NOMEM, "no memory for average precision of %lld detections",
                           (long long)room);
        d->row = grown;
        d->room = room;
    }
    d->row[d->n * ROW] = (double)row[1];
    d->row[d->n * ROW + 1] = (double)row[2];
    d->row[d->n++ * ROW + 2] = (double)row[3];
    return CT_OK;
}

ct_status ct_detections_add(ct_detections *d, const float *row, int64_t n)
{
    for (int64_t i = 0; i < n; i++, row += 5) {
        if (row[1] < 0) continue; /* not used */
        if (row[0] < 0) {
            CT_TRY(add_truth(d, (int64_t)row[1], (double)row[2]));
        } else if ((row[3] > 0) || (row[4] > 0)) { /* else it counts neither way */
            CT_TRY(add_row(d, row));
        }
    }
    return CT_OK;
}

void ct_detections_clear(ct_detections *d)
{
    d->n = 0;
    d->n_class = 0;
}

void ct_detections_release(ct_detections *d)
{
    free(d->row);
    free(d->truth);
    *d = (ct_detections){ 0 };
}

/* ---- judging */

/* Those of all ranks; to be released. */
static ct_status gather(const ct_detections *d, const ct_group *g, ct_detections *all_p)
{
    int64_t n_class = d->n_class, first = 0, n = 0;
    double *count = calloc((size_t)g->size + 1, sizeof(*count));
    ct_status status = (count != NULL) ? CT_OK : CT_FAIL(CT_ERR_NOMEM, "no memory");

    *all_p = (ct_detections){ 0 };
    CT_TRY_GOTO(status, out, ct_group_agree(g, status));
    CT_TRY_GOTO(status, out, ct_group_max(g, &n_class, 1));
    count[g->rank] = (double)d->n;
    CT_TRY_GOTO(status, out, ct_group_sum(g, count, g->size));
    for (int r = 0; r < g->size; n += (int64_t)count[r++])
        if (r < g->rank) first += (int64_t)count[r];
    all_p->n = n;
    all_p->n_class = n_class;
    all_p->row = calloc((size_t)(n * ROW) + 1, sizeof(double));
    all_p->truth = calloc((size_t)n_class + 1, sizeof(double));
    if ((all_p->row == NULL) || (all_p->truth == NULL) || (n > INT32_MAX / ROW))
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for average precision of %lld detections",
                         (long long)n);
    CT_TRY_GOTO(status, out, ct_group_agree(g, status));
    if (d->n > 0) memcpy(all_p->row + first * ROW, d->row, (size_t)(d->n * ROW) * sizeof(double));
    if (d->n_class > 0) memcpy(all_p->truth, d->truth, (size_t)d->n_class * sizeof(double));
    CT_TRY_GOTO(status, out, ct_group_sum(g, all_p->row, (int)(n * ROW)));
    status = ct_group_sum(g, all_p->truth, (int)n_class);
out:
    free(count);
    if (status != CT_OK) ct_detections_release(all_p);
    return status;
}

/* By class and score; of equal ones the wrong first. */
static int compare(const void *a, const void *b)
{
    const double *x = a, *y = b;

    if (x[0] != y[0]) return (x[0] < y[0]) ? -1 : 1;
    if (x[1] != y[1]) return (x[1] > y[1]) ? -1 : 1;
    return (x[2] > y[2]) - (x[2] < y[2]);
}

/* Of n rows of one class, from the last one on: `best` is the best precision from here on. */
static void judge_class(const double *row, int64_t n, ct_class_precision *c)
{
    double right = 0, best = 0;

    for (int64_t i = 0; i < n; i++) right += row[i * ROW + 2];
    c->found = (double)n;
    c->right = right;
    if (!(c->truth > 0)) return;
    for (int64_t i = n - 1; i >= 0; i--) {
        double precision = right / (double)(i + 1), recall = right / c->truth;

        best = fmax(best, precision);
        for (int k = 0; k < CT_AP_POINTS; k++)
            if (recall >= k / 10.0) c->point[k] = fmax(c->point[k], precision);
        if (row[i * ROW + 2] > 0) {
            c->area[CT_AP_MAX_INTEGRAL] += best / c->truth;
            c->area[CT_AP_INTEGRAL] += precision / c->truth;
        }
        right -= row[i * ROW + 2];
    }
    for (int k = 0; k < CT_AP_POINTS; k++) c->area[CT_AP_11POINT] += c->point[k] / CT_AP_POINTS;
}

ct_status ct_detections_judge_classes(const ct_detections *d, const ct_group *g,
                                      ct_class_precision **class_p, int64_t *n_p)
{
    ct_class_precision *of;
    ct_detections all;
    int64_t from = 0;

    CT_TRY(gather(d, g, &all));
    of = calloc((size_t)all.n_class + 1, sizeof(*of));
    if (of == NULL) {
        ct_detections_release(&all);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for average precision");
    }
    if (all.n > 0) qsort(all.row, (size_t)all.n, ROW * sizeof(double), compare);
    for (int64_t c = 0; c < all.n_class; c++) {
        int64_t n = 0;

        while ((from + n < all.n) && (all.row[(from + n) * ROW] == (double)c)) n++;
        of[c].truth = all.truth[c];
        judge_class(all.row + from * ROW, n, &of[c]);
        from += n;
    }
    *class_p = of;
    *n_p = all.n_class;
    ct_detections_release(&all);
    return CT_OK;
}

double ct_class_precision_mean(const ct_class_precision *c, int64_t n, ct_ap_version version)
{
    int64_t classes = 0;
    double sum = 0;

    for (int64_t i = 0; i < n; i++) {
        if (!(c[i].truth > 0)) continue;
        sum += c[i].area[version];
        classes++;
    }
    return (classes > 0) ? sum / (double)classes : 0;
}

ct_status ct_detections_judge(const ct_detections *d, const ct_group *g, ct_ap_version version,
                              bool each, double *mean_p)
{
    ct_class_precision *of;
    int64_t n;

    CT_TRY(ct_detections_judge_classes(d, g, &of, &n));
    for (int64_t c = 0; each && (c < n); c++)
        if (of[c].truth > 0) CT_INFO("class%lld: %g", (long long)c, of[c].area[version]);
    *mean_p = ct_class_precision_mean(of, n, version);
    free(of);
    return CT_OK;
}
