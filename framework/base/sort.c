#include "framework/base/sort.h"

#include <stdlib.h>

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

void ct_sort(double *v, int64_t n)
{
    qsort(v, (size_t)n, sizeof(*v), ascending);
}

double ct_median(double *v, int64_t n)
{
    ct_sort(v, n);
    return (n % 2 == 1) ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}
