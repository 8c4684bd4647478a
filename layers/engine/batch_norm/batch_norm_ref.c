/* Batch normalisation as its formulas say, in double. */
#include "layers/engine/batch_norm/batch_norm.h"

#include <stddef.h>

static bool supports(const ct_batch_norm_desc *d)
{
    return (d->device == CT_DEVICE_CPU) && !d->bf16;
}

static int64_t at(const ct_batch_norm_desc *d, int64_t n, int64_t c, int64_t s)
{
    int64_t b = (d->block > 0) ? d->block : 1, n_block = (d->channels + b - 1) / b;

    return ((n * n_block + c / b) * d->spatial + s) * b + c % b;
}

static void statistics(const ct_batch_norm_desc *d, int64_t from, int64_t to, const float *x,
                       float *mean, float *var)
{
    double m = (double)(d->n * d->spatial);

    for (int64_t c = from; c < to; c++) {
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

static double normal(const ct_batch_norm_map *m, int64_t c, int64_t i)
{
    if (m->mean == NULL) return (double)m->x[i];
    return ((double)m->x[i] - (double)m->mean[c]) * (double)m->inv_std[c];
}

static double before_relu(const ct_batch_norm_map *m, int64_t c, int64_t i)
{
    double z = normal(m, c, i);

    if (m->scale != NULL) z *= (double)m->scale[c];
    if (m->bias != NULL) z += (double)m->bias[c];
    return (m->add != NULL) ? z + (double)m->add[i] : z;
}

static void apply(const ct_batch_norm_desc *d, int64_t from, int64_t to, const ct_batch_norm_map *m)
{
    for (int64_t n = 0; n < d->n; n++) {
        for (int64_t c = from; c < to; c++) {
            for (int64_t s = 0; s < d->spatial; s++) {
                int64_t i = at(d, n, c, s);
                double z = before_relu(m, c, i);

                if (m->normal != NULL) m->normal[i] = (float)normal(m, c, i);
                m->y[i] = (m->relu && (z < 0)) ? 0.0f : (float)z;
            }
        }
    }
}

/* The gradient of z. */
static double gradient(const ct_batch_norm_back *b, int64_t c, int64_t i)
{
    const ct_batch_norm_map *m = &b->map;
    double g = 0, sign = 1;

    for (int k = 0; k < b->n_dy; k++) g += (double)b->dy[k][i];
    if (m->relu) sign = (m->add != NULL) ? (double)m->y[i] : before_relu(m, c, i);
    return (sign > 0) ? g : 0;
}

static void backward(const ct_batch_norm_desc *d, int64_t from, int64_t to,
                     const ct_batch_norm_back *b)
{
    const ct_batch_norm_map *m = &b->map;
    double count = (double)(d->n * d->spatial);

    for (int64_t c = from; c < to; c++) {
        double scale = (m->scale != NULL) ? (double)m->scale[c] : 1;

        b->sum[c] = b->dot[c] = 0;
        for (int64_t n = 0; n < d->n; n++) {
            for (int64_t s = 0; s < d->spatial; s++) {
                double g = gradient(b, c, at(d, n, c, s));

                b->sum[c] += g;
                b->dot[c] += g * normal(m, c, at(d, n, c, s));
            }
        }
        for (int64_t n = 0; n < d->n; n++) {
            for (int64_t s = 0; s < d->spatial; s++) {
                int64_t i = at(d, n, c, s);
                double g = gradient(b, c, i), less = 0;

                if (!b->fixed) less = (b->sum[c] + normal(m, c, i) * b->dot[c]) / count;
                if (b->g != NULL) b->g[i] = (float)g;
                if (b->dx != NULL) b->dx[i] = (float)((g - less) * scale * (double)m->inv_std[c]);
            }
        }
    }
}

const ct_batch_norm_engine ct_batch_norm_ref = { "ref", supports, statistics, apply, backward };
