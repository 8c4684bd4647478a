/** @file fit_math.h  Least squares for a handful of non-negative figures. No MPI in here. */
#ifndef CT_FIT_MATH_H
#define CT_FIT_MATH_H

#include "framework/base/status.h"

enum { CT_FIT_MAX = 3 };

/** p[k] >= 0 that make the sum over i of ((sum over k of p[k] f[k][i] - t[i]) / t[i])^2 least:
 *  relative errors, so that a microsecond counts as much as a second does among seconds. k < n_p <=
 *  CT_FIT_MAX; t > 0. The best over all choices of which p are zero, each by its normal equations.
 *  Returns the root of the mean of the squares. */
double ct_fit_solve(const double *const *f, int n_p, const double *t, int n, double *p);

/** seconds = alpha_s + beta * bytes. */
typedef struct ct_fit_line {
    double alpha_s, beta, residual;
} ct_fit_line;
/** n <= 64. */
ct_fit_line ct_fit_line_of(const double *bytes, const double *seconds, int n);
double ct_fit_line_s(const ct_fit_line *l, double bytes);

/** seconds = alpha_s + beta * min(bytes, knee) + beyond * max(0, bytes - knee). */
typedef struct ct_fit_knee {
    double alpha_s, beta, knee, beyond, residual;
} ct_fit_knee;
/** The knee is one of 8 places between each two neighbouring sizes, the best of all. bytes ascends,
 *  4 <= n <= 64. */
ct_fit_knee ct_fit_knee_of(const double *bytes, const double *seconds, int n);
double ct_fit_knee_s(const ct_fit_knee *k, double bytes);

#endif
