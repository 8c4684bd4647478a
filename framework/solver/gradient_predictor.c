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

bool ct_gradient_predictor_add(ct_gradient_predictor *p, const float *point, const float *gradient)
{
    double apart[CT_PREDICTOR_ROOM];
    size_t bytes = (size_t)p->count * sizeof(float);
    int same = -1, n;

    if (!isfinite(square(p, point, NULL)) || !isfinite(square(p, gradient, NULL))) return false;
    for (int i = 0; i < p->n; i++)
        if (square(p, point, p->point[i]) == 0.0) same = i;
    if (same >= 0)
        drop(p, same);
    else if (p->n == p->room)
        drop(p, 0);
    n = p->n;
    for (int i = 0; i < n; i++) apart[i] = square(p, point, p->point[i]);
    for (int i = 0; i < n; i++) p->square[i][n] = p->square[n][i] = apart[i];
    p->square[n][n] = 0.0;
    memcpy(p->point[n], point, bytes);
    memcpy(p->gradient[n], gradient, bytes);
    p->n++;
    return true;
}

bool ct_gradient_predictor_refill(ct_gradient_predictor *p, int n)
{
    p->n = 0;
    for (int i = 0; i < n; i++) {
        if (!isfinite(square(p, p->point[i], NULL)) || !isfinite(square(p, p->gradient[i], NULL)))
            return false;
        for (int k = 0; k < i; k++)
            p->square[k][i] = p->square[i][k] = square(p, p->point[i], p->point[k]);
        p->square[i][i] = 0.0;
    }
    p->n = n;
    return true;
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
    for (int i = n - 1; i >= 0; i--) {
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
    if (n < 2) return;
    all = p->square[n - 1][n - 2];
    share = (apart[n - 2] - apart[n - 1] - all) / (2.0 * all);
    share = fmin(fmax(share, -1.0), 1.0);
    c[n - 1] += share;
    c[n - 2] -= share;
}

void ct_gradient_predictor_weigh(ct_gradient_predictor *p, const float *z, double *c)
{
    double apart[CT_PREDICTOR_ROOM];

    for (int i = 0; i < p->n; i++) c[i] = 0.0;
    if ((p->n == 0) || (p->prediction == CT_PREDICT_NONE)) return;
    if (p->prediction == CT_PREDICT_LAST) {
        c[p->n - 1] = 1.0;
        return;
    }
    for (int i = 0; i < p->n; i++) apart[i] = square(p, z, p->point[i]);
    if (p->prediction == CT_PREDICT_SECANT)
        weigh_by_secant(p, apart, c);
    else
        weigh_by_kernel(p, apart, c);
}

void ct_gradient_predictor_estimate(ct_gradient_predictor *p, const float *z, float *gradient)
{
    double c[CT_PREDICTOR_ROOM];

    ct_gradient_predictor_weigh(p, z, c);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < p->count; i++) {
        double sum = 0.0;

        for (int k = 0; k < p->n; k++) sum += c[k] * (double)p->gradient[k][i];
        gradient[i] = (float)sum;
    }
}
