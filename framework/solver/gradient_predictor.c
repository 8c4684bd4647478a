#include "framework/solver/gradient_predictor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/log.h"
#include "framework/base/memory.h"

enum { BLOCK = 1 << 16 /* elements that one thread adds up: bits do not depend on threads */ };

static int64_t n_block(int64_t count)
{
    return (count + BLOCK - 1) / BLOCK;
}

int64_t ct_gradient_predictor_bytes(int room, int64_t count)
{
    return 2 * room * count * (int64_t)sizeof(float) +
           (n_block(count) + 1) * (int64_t)sizeof(double);
}

ct_status ct_gradient_predictor_open(ct_gradient_predictor *p)
{
    size_t bytes = (size_t)(p->count + 1) * sizeof(float);

    if ((p->room < 1) || (p->room > CT_PREDICTOR_ROOM) || !(p->noise >= 0.0))
        return CT_FAIL(CT_ERR_ARG, "a predictor of gradients with room for %d points, noise %g",
                       p->room, p->noise);
    p->partial = calloc((size_t)n_block(p->count) + 1, sizeof(*p->partial));
    for (int i = 0; i < p->room; i++) {
        p->point[i] = ct_mem_acquire(bytes);
        p->gradient[i] = ct_mem_acquire(bytes);
        if ((p->partial == NULL) || (p->point[i] == NULL) || (p->gradient[i] == NULL))
            return CT_FAIL(CT_ERR_NOMEM, "no memory for %d points of %zu bytes each", p->room,
                           2 * bytes);
    }
    return CT_OK;
}

void ct_gradient_predictor_close(ct_gradient_predictor *p)
{
    for (int i = 0; i < CT_PREDICTOR_ROOM; i++) {
        ct_mem_release(p->point[i]);
        ct_mem_release(p->gradient[i]);
        p->point[i] = p->gradient[i] = NULL;
    }
    free(p->partial);
    p->partial = NULL;
    p->n = 0;
}

/* ---- sums over the elements */

static double square_of_block(const float *a, const float *b, int64_t n)
{
    double sum = 0.0;

    for (int64_t i = 0; i < n; i++) {
        double d = (double)a[i] - ((b != NULL) ? (double)b[i] : 0.0);

        sum += d * d;
    }
    return sum;
}

/* |a - b|^2; b NULL: |a|^2. Not finite where an element is not. */
static double square(const ct_gradient_predictor *p, const float *a, const float *b)
{
    double sum = 0.0;

#pragma omp parallel for schedule(static)
    for (int64_t k = 0; k < n_block(p->count); k++) {
        int64_t from = k * BLOCK, n = (p->count - from < BLOCK) ? p->count - from : BLOCK;

        p->partial[k] = square_of_block(a + from, (b != NULL) ? b + from : NULL, n);
    }
    for (int64_t k = 0; k < n_block(p->count); k++) sum += p->partial[k];
    return sum;
}

/* ---- the points */

/* Point i goes, and its memory behind the last. */
static void drop(ct_gradient_predictor *p, int i)
{
    float *point = p->point[i], *gradient = p->gradient[i];

    for (int a = i; a + 1 < p->n; a++) {
        p->point[a] = p->point[a + 1];
        p->gradient[a] = p->gradient[a + 1];
    }
    for (int a = 0, to = 0; a < p->n; a++) {
        if (a == i) continue;
        for (int b = 0, at = 0; b < p->n; b++)
            if (b != i) p->square[to][at++] = p->square[a][b];
        to++;
    }
    p->n--;
    p->point[p->n] = point;
    p->gradient[p->n] = gradient;
}

/* What a sum over the elements tells of m new points beside n old ones: of each new one the squares
 * of its weights and gradient, of its distance from each old one, and from each newer one before.
 */
typedef struct squares {
    int n, m;
    double v[CT_PREDICTOR_ROOM * (2 + CT_PREDICTOR_ROOM) +
             CT_PREDICTOR_ROOM * (CT_PREDICTOR_ROOM - 1) / 2];
} squares;

/* New point i and point k: an old one, or behind those a new one before i. */
static double *apart_at(squares *s, int i, int k)
{
    int from = 2 * s->m;

    if (k < s->n) return &s->v[from + i * s->n + k];
    return &s->v[from + s->m * s->n + i * (i - 1) / 2 + k - s->n];
}

static ct_status add_up(const ct_gradient_predictor *p, double *v, int n)
{
    return ((p->ranks != NULL) && (n > 0)) ? ct_group_sum(p->ranks, v, n) : CT_OK;
}

static ct_status find_squares(const ct_gradient_predictor *p, float *const *point,
                              float *const *gradient, squares *s)
{
    for (int i = 0; i < s->m; i++) {
        s->v[2 * i] = square(p, point[i], NULL);
        s->v[2 * i + 1] = square(p, gradient[i], NULL);
        for (int k = 0; k < s->n + i; k++)
            *apart_at(s, i, k) = square(p, point[i], (k < s->n) ? p->point[k] : point[k - s->n]);
    }
    return add_up(p, s->v, s->m * (2 + s->n) + s->m * (s->m - 1) / 2);
}

/* New point i gets a place; id[p->n]: what the points are in s. */
static void put(ct_gradient_predictor *p, const float *point, const float *gradient, squares *s,
                int i, int *id)
{
    size_t bytes = (size_t)p->count * sizeof(float);
    int gone = (p->n == p->room) ? 0 : -1;

    for (int k = 0; k < p->n; k++)
        if (*apart_at(s, i, id[k]) == 0.0) gone = k;
    if (gone >= 0) {
        drop(p, gone);
        memmove(id + gone, id + gone + 1, (size_t)(p->n - gone) * sizeof(*id));
    }
    for (int k = 0; k < p->n; k++) p->square[k][p->n] = p->square[p->n][k] = *apart_at(s, i, id[k]);
    p->square[p->n][p->n] = 0.0;
    memcpy(p->point[p->n], point, bytes);
    memcpy(p->gradient[p->n], gradient, bytes);
    id[p->n++] = s->n + i;
}

ct_status ct_gradient_predictor_add(ct_gradient_predictor *p, int m, float *const *point,
                                    float *const *gradient, int *added_p)
{
    squares s = { .n = p->n, .m = m };
    int id[CT_PREDICTOR_ROOM + 1];

    *added_p = 0;
    if (m > CT_PREDICTOR_ROOM) return CT_FAIL(CT_ERR_ARG, "%d points for a predictor at once", m);
    CT_TRY(find_squares(p, point, gradient, &s));
    for (int k = 0; k < p->n; k++) id[k] = k;
    for (int i = 0; i < m; i++) {
        if (!isfinite(s.v[2 * i]) || !isfinite(s.v[2 * i + 1])) continue;
        put(p, point[i], gradient[i], &s, i, id);
        *added_p += 1;
    }
    return CT_OK;
}

/* What stays is new to a predictor without points. */
ct_status ct_gradient_predictor_refill(ct_gradient_predictor *p, int n, bool *good_p)
{
    squares s = { .n = 0, .m = n };

    p->n = 0;
    *good_p = true;
    CT_TRY(find_squares(p, p->point, p->gradient, &s));
    for (int i = 0; i < n; i++) {
        *good_p = *good_p && isfinite(s.v[2 * i]) && isfinite(s.v[2 * i + 1]);
        for (int k = 0; k < i; k++) p->square[k][i] = p->square[i][k] = *apart_at(&s, i, k);
        p->square[i][i] = 0.0;
    }
    if (*good_p) p->n = n;
    return CT_OK;
}

/* ---- the kernel */

static double kernel(const ct_gradient_predictor *p, double r2, double length)
{
    double x;

    if (!(length > 0.0)) return 1.0; /* endless */
    if (p->kernel == CT_KERNEL_RBF) return exp(-0.5 * r2 / (length * length));
    x = sqrt(5.0 * r2) / length;
    return (1.0 + x + x * x / 3.0) * exp(-x);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Of an even number of distances the lower one in the middle. */
static double length_of(const ct_gradient_predictor *p)
{
    double all[CT_PREDICTOR_ROOM * (CT_PREDICTOR_ROOM - 1) / 2 + 1];
    int n = 0;

    if (p->length > 0.0) return p->length;
    for (int i = 0; i < p->n; i++)
        for (int j = 0; j < i; j++) all[n++] = p->square[i][j];
    if (n == 0) return 0.0;
    qsort(all, (size_t)n, sizeof(*all), compare);
    return sqrt(all[(n - 1) / 2]);
}

typedef double factor[CT_PREDICTOR_ROOM][CT_PREDICTOR_ROOM];

/* The lower L of L L^T; false: not positive. */
static bool decompose(int n, factor l)
{
    for (int j = 0; j < n; j++) {
        for (int i = j; i < n; i++) {
            double sum = l[i][j];

            for (int k = 0; k < j; k++) sum -= l[i][k] * l[j][k];
            if ((i == j) && !(sum > 0.0)) return false;
            l[i][j] = (i == j) ? sqrt(sum) : sum / l[j][j];
        }
    }
    return true;
}

static void solve(int n, factor l, double *x)
{
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < i; k++) x[i] -= l[i][k] * x[k];
        x[i] /= l[i][i];
    }
    for (int i = n; i-- > 0;) {
        for (int k = i + 1; k < n; k++) x[i] -= l[k][i] * x[k];
        x[i] /= l[i][i];
    }
}

/* Points that nearly are one make A singular, to rounding: then as much is added to its diagonal as
 * that takes. */
static void decompose_kernel(const ct_gradient_predictor *p, double length, factor l)
{
    double more = 0.0;

    do {
        for (int i = 0; i < p->n; i++)
            for (int j = 0; j <= i; j++)
                l[i][j] = kernel(p, p->square[i][j], length) + ((i == j) ? p->noise + more : 0.0);
        more = (more > 0.0) ? 10.0 * more : 1e-12;
    } while (!decompose(p->n, l));
}

static void weigh_by_kernel(const ct_gradient_predictor *p, const double *apart, double *c)
{
    double length = length_of(p), one[CT_PREDICTOR_ROOM], left = 1.0, sum = 0.0;
    factor l;

    decompose_kernel(p, length, l);
    for (int i = 0; i < p->n; i++) {
        c[i] = kernel(p, apart[i], length);
        one[i] = 1.0;
    }
    solve(p->n, l, c);
    if (!p->constant_mean) return;
    solve(p->n, l, one);
    for (int i = 0; i < p->n; i++) {
        left -= c[i];
        sum += one[i];
    }
    for (int i = 0; i < p->n; i++) c[i] += left * one[i] / sum;
}

/* ---- estimates */

static void weigh_by_secant(const ct_gradient_predictor *p, const double *apart, double *c)
{
    int n = p->n;
    double all, share;

    c[n - 1] = 1.0;
    all = p->square[n - 1][n - 2];
    share = (apart[n - 2] - apart[n - 1] - all) / (2.0 * all);
    share = fmin(fmax(share, -1.0), 1.0);
    c[n - 1] += share;
    c[n - 2] -= share;
}

ct_status ct_gradient_predictor_weigh(const ct_gradient_predictor *p, const float *z, double *c)
{
    bool secant = (p->prediction == CT_PREDICT_SECANT);
    int from = (secant && (p->n > 2)) ? p->n - 2 : 0;
    double apart[CT_PREDICTOR_ROOM];

    for (int i = 0; i < p->n; i++) c[i] = 0.0;
    if ((p->n == 0) || (p->prediction == CT_PREDICT_NONE)) return CT_OK;
    if ((p->prediction == CT_PREDICT_LAST) || (secant && (p->n == 1))) {
        c[p->n - 1] = 1.0;
        return CT_OK;
    }
    for (int i = from; i < p->n; i++) apart[i] = square(p, z, p->point[i]);
    CT_TRY(add_up(p, apart + from, p->n - from));
    if (secant)
        weigh_by_secant(p, apart, c);
    else
        weigh_by_kernel(p, apart, c);
    return CT_OK;
}

void ct_gradient_predictor_combine(const ct_gradient_predictor *p, const double *c, float *gradient)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < p->count; i++) {
        double sum = 0.0;

        for (int k = 0; k < p->n; k++) sum += c[k] * (double)p->gradient[k][i];
        gradient[i] = (float)sum;
    }
}
