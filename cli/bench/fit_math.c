#include "cli/bench/fit_math.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { MAX_POINT = 64, PLACES = 8 };

/* Solves a x = b in place, with pivots; false where a is singular. */
static bool solve(double a[CT_FIT_MAX][CT_FIT_MAX], double *b, int n)
{
    for (int c = 0; c < n; ++c) {
        int best = c;

        for (int r = c + 1; r < n; ++r) {
            if (fabs(a[r][c]) > fabs(a[best][c])) best = r;
        }
        if (a[best][c] == 0) return false;
        for (int k = 0; k < n; ++k) {
            double swap = a[c][k];

            a[c][k] = a[best][k];
            a[best][k] = swap;
        }
        double swap = b[c];

        b[c] = b[best];
        b[best] = swap;
        for (int r = 0; r < n; ++r) {
            double times = (r == c) ? 0 : a[r][c] / a[c][c];

            for (int k = c; k < n; ++k) a[r][k] -= times * a[c][k];
            b[r] -= times * b[c];
        }
    }
    for (int c = 0; c < n; ++c) b[c] /= a[c][c];
    return true;
}

/* The free fit of the terms whose bits are in `set`; false where it has no answer, or a negative.
 */
static bool fit_set(const double *const *f, unsigned set, const double *scale, const double *t,
                    int n, double *p)
{
    double a[CT_FIT_MAX][CT_FIT_MAX] = { { 0 } }, b[CT_FIT_MAX] = { 0 };
    int term[CT_FIT_MAX] = { 0 }, m = 0;

    for (int k = 0; k < CT_FIT_MAX; ++k) {
        p[k] = 0;
        if ((set >> k & 1) != 0) term[m++] = k;
    }
    for (int r = 0; r < m; ++r) {
        for (int i = 0; i < n; ++i) {
            double fr = f[term[r]][i] * scale[term[r]] / t[i];

            for (int c = 0; c < m; ++c) a[r][c] += fr * f[term[c]][i] * scale[term[c]] / t[i];
            b[r] += fr;
        }
    }
    if (!solve(a, b, m)) return false;
    for (int r = 0; r < m; ++r) {
        p[term[r]] = b[r] * scale[term[r]];
        if (!(p[term[r]] >= 0)) return false;
    }
    return true;
}

static double error_of(const double *const *f, int n_p, const double *t, int n, const double *p)
{
    double sum = 0;

    for (int i = 0; i < n; ++i) {
        double v = 0;

        for (int k = 0; k < n_p; ++k) v += p[k] * f[k][i];
        sum += (v / t[i] - 1) * (v / t[i] - 1);
    }
    return sqrt(sum / n);
}

double ct_fit_solve(const double *const *f, int n_p, const double *t, int n, double *p)
{
    double scale[CT_FIT_MAX] = { 0 }, least = HUGE_VAL;

    /* bytes and ones: brought to one size, or the elimination loses digits */
    for (int k = 0; k < n_p; ++k) {
        for (int i = 0; i < n; ++i) scale[k] += fabs(f[k][i] / t[i]) / n;
        scale[k] = (scale[k] > 0) ? 1 / scale[k] : 1;
    }
    for (unsigned set = 1; set < (1u << n_p); ++set) {
        double q[CT_FIT_MAX], error = 0;

        if (!fit_set(f, set, scale, t, n, q)) continue;
        error = error_of(f, n_p, t, n, q);
        if (error >= least) continue;
        least = error;
        memcpy(p, q, sizeof(*p) * (size_t)n_p);
    }
    return least;
}

ct_fit_line ct_fit_line_of(const double *bytes, const double *seconds, int n)
{
    double one[MAX_POINT], p[CT_FIT_MAX] = { 0 };
    const double *f[2] = { one, bytes };
    ct_fit_line l;

    for (int i = 0; i < n; ++i) one[i] = 1;
    l.residual = ct_fit_solve(f, 2, seconds, n, p);
    l.alpha_s = p[0];
    l.beta = p[1];
    return l;
}

double ct_fit_line_s(const ct_fit_line *l, double bytes)
{
    return l->alpha_s + l->beta * bytes;
}

static ct_fit_knee fit_at(const double *bytes, const double *seconds, int n, double knee)
{
    double one[MAX_POINT], below[MAX_POINT], above[MAX_POINT], p[CT_FIT_MAX] = { 0 };
    const double *f[3] = { one, below, above };
    ct_fit_knee k = { .knee = knee };

    for (int i = 0; i < n; ++i) {
        one[i] = 1;
        below[i] = (bytes[i] < knee) ? bytes[i] : knee;
        above[i] = (bytes[i] < knee) ? 0 : bytes[i] - knee;
    }
    k.residual = ct_fit_solve(f, 3, seconds, n, p);
    k.alpha_s = p[0];
    k.beta = p[1];
    k.beyond = p[2];
    return k;
}

ct_fit_knee ct_fit_knee_of(const double *bytes, const double *seconds, int n)
{
    ct_fit_knee best = { .residual = HUGE_VAL };

    for (int i = 1; i + 2 < n; ++i) { /* two sizes at least on either side */
        for (int place = 0; place < PLACES; ++place) {
            double at = bytes[i] + (bytes[i + 1] - bytes[i]) * place / PLACES;
            ct_fit_knee k = fit_at(bytes, seconds, n, at);

            if (k.residual < best.residual) best = k;
        }
    }
    return best;
}

double ct_fit_knee_s(const ct_fit_knee *k, double bytes)
{
    double below = (bytes < k->knee) ? bytes : k->knee;

    return k->alpha_s + k->beta * below + k->beyond * (bytes - below);
}
