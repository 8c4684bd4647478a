#include "layers/types/row_norm.h"

#include "layers/layer_util.h"

void ct_row_stats(int64_t rows, int64_t n, const float *x, ct_row_stat *stat)
{
#pragma omp parallel for schedule(static) if (rows * n >= CT_PARALLEL_MIN)
    for (int64_t r = 0; r < rows; r++) {
        const float *row = x + r * n;
        double sum = 0, square = 0, mean;

#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < n; i++) sum += (double)row[i];
        mean = sum / (double)n;
#pragma omp simd reduction(+ : square)
        for (int64_t i = 0; i < n; i++) square += ((double)row[i] - mean) * ((double)row[i] - mean);
        stat[r].mean = mean;
        stat[r].variance = square / (double)n;
    }
}

void ct_row_normalise(int64_t rows, int64_t n, const float *x, const ct_row_stat *stat, float *y)
{
#pragma omp parallel for schedule(static) if (rows * n >= CT_PARALLEL_MIN)
    for (int64_t r = 0; r < rows; r++) {
        double mean = stat[r].mean, factor = stat[r].factor;

#pragma omp simd
        for (int64_t i = r * n; i < (r + 1) * n; i++)
            y[i] = (float)(((double)x[i] - mean) * factor);
    }
}

void ct_row_gradient(int64_t rows, int64_t n, const ct_row_stat *stat, const float *y,
                     const float *dy, const float *scale, float *dx)
{
    const float one = 1.0f, *s = (scale != NULL) ? scale : &one;
    int64_t step = (scale != NULL) ? 1 : 0;

#pragma omp parallel for schedule(static) if (rows * n >= CT_PARALLEL_MIN)
    for (int64_t r = 0; r < rows; r++) {
        const float *g = dy + r * n, *v = y + r * n;
        double sum = 0, dot = 0, factor = stat[r].factor;

#pragma omp simd reduction(+ : sum, dot)
        for (int64_t i = 0; i < n; i++) {
            double d = (double)g[i] * (double)s[i * step];

            sum += d;
            dot += d * (double)v[i];
        }
        sum /= (double)n;
        dot *= stat[r].gain / (double)n;
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            dx[r * n + i] =
                (float)(((double)g[i] * (double)s[i * step] - sum - (double)v[i] * dot) * factor);
    }
}
