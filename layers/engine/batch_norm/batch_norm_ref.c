/* Batch normalisation as its formulas stand, in double. */
#include "layers/engine/batch_norm/batch_norm.h"

#include <stddef.h>

static bool supports(const ct_batch_norm_desc *d)
{
    return d->device == CT_DEVICE_CPU;
}

static int64_t at(const ct_batch_norm_desc *d, int64_t n, int64_t c, int64_t s)
{
    int64_t b = (d->block > 0) ? d->block : 1, n_block = (d->channels + b - 1) / b;

    return ((n * n_block + c / b) * d->spatial + s) * b + c % b;
}

static void statistics(const ct_batch_norm_desc *d, const float *x, float *mean, float *var)
{
    double m = (double)(d->n * d->spatial);

    for (int64_t c = 0; c < d->channels; c++) {
        double sum = 0, square = 0;

        for (int64_t n = 0; n < d->n; n++)
            for (int64_t s = 0; s < d->spatial; s++) sum += (double)x[at(d, n, c, s)];
        for (int64_t n = 0; n < d->n; n++) {
            for (int64_t s = 0; s < d->spatial; s++) {
                double centred = (double)x[at(d, n, c, s)] - sum / m;

                square += centred * centred;
            }
        }
        mean[c] = (float)(sum / m);
        var[c] = (float)(square / m);
    }
}

static void normalise(const ct_batch_norm_desc *d, const float *x, const float *mean,
                      const float *inv_std, float *y, float *normal)
{
    for (int64_t n = 0; n < d->n; n++) {
        for (int64_t c = 0; c < d->channels; c++) {
            for (int64_t s = 0; s < d->spatial; s++) {
                int64_t i = at(d, n, c, s);

                y[i] = (float)(((double)x[i] - (double)mean[c]) * (double)inv_std[c]);
                if (normal != NULL) normal[i] = y[i];
            }
        }
    }
}

static void backward(const ct_batch_norm_desc *d, const float *x, const float *normal,
                     const float *mean, const float *inv_std, const float *dy, float *dx)
{
    double m = (double)(d->n * d->spatial);

    for (int64_t c = 0; c < d->channels; c++) {
        double sum = 0, dot = 0;

        for (int pass = 0; pass < 2; pass++) {
            for (int64_t n = 0; n < d->n; n++) {
                for (int64_t s = 0; s < d->spatial; s++) {
                    int64_t i = at(d, n, c, s);
                    double y = (normal != NULL)
                                   ? (double)normal[i]
                                   : ((double)x[i] - (double)mean[c]) * (double)inv_std[c];

                    if (pass == 0) {
                        sum += (double)dy[i];
                        dot += (double)dy[i] * y;
                    } else {
                        dx[i] =
                            (float)(((double)dy[i] - sum / m - y * dot / m) * (double)inv_std[c]);
                    }
                }
            }
        }
    }
}

const ct_batch_norm_engine ct_batch_norm_ref = { "ref", supports, statistics, normalise, backward };
