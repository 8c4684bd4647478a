/* The tables of batch normalisations, the reference, and trials for choosing by time. */
#include "layers/engine/batch_norm/batch_norm.h"

#include <omp.h>
#include <stddef.h>
#include <stdio.h>

const ct_batch_norm_engine *const ct_batch_norm_table[] = {
#ifdef CT_HAVE_CUDA
    &ct_batch_norm_cuda,
#endif
    &ct_batch_norm_omp,
    &ct_batch_norm_blocked,
    &ct_batch_norm_ref, /* last: written to be read, oracle of the others */
    NULL,
};

const ct_batch_norm_engine *ct_batch_norm_choose(const ct_batch_norm_desc *d)
{
    for (int i = 0; ct_batch_norm_table[i] != NULL; i++) {
        if (ct_batch_norm_table[i]->supports(d)) return ct_batch_norm_table[i];
    }
    return NULL;
}

int64_t ct_batch_norm_piece(const ct_batch_norm_desc *d, int arrays)
{
    static const int64_t CACHE = 8 << 20;
    int64_t step = (d->block > 0) ? d->block : 1, threads = omp_get_max_threads();
    int64_t bytes = d->n * d->spatial * step * arrays * (int64_t)sizeof(float);
    int64_t fit = CACHE / ((bytes > 0) ? bytes : 1);
    int64_t least = (d->block > 0) ? (threads + 7) / 8 : 4 * threads; /* work for all */

    if (fit < least) fit = least;
    return fit * step;
}

/* ---- Batch normalisation as its formulas say, in double. */

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

/* ---- Which normalisations devices have: ours last, which runs everything. And such passes on
 * made-up data, for choosing by timing. */

const ct_device_norm_impl *const ct_device_norm_forward_table[] = {
#ifdef CT_HAVE_CUDNN
    &ct_device_norm_cudnn_forward, /* by name or plan */
#endif
#ifdef CT_HAVE_CUDA
    &ct_device_norm_cuda_forward,
#endif
    NULL,
};
const ct_device_norm_impl *const ct_device_norm_backward_table[] = {
#ifdef CT_HAVE_CUDNN
    &ct_device_norm_cudnn_backward, /* by name or plan */
#endif
#ifdef CT_HAVE_CUDA
    &ct_device_norm_cuda_backward,
#endif
    NULL,
};

void ct_device_norm_key(const ct_device_norm_desc *d, ct_run_kind kind, char *text, size_t size)
{
    bool forward = (kind == CT_RUN_FORWARD);

    snprintf(text, size, "batchnorm %s n%lld c%lld s%lld t%d%s%s%s%s%s%s dy%d%s%s gpu",
             forward ? "forward" : "backward_data", (long long)d->n, (long long)d->c,
             (long long)d->s, (int)d->dtype, d->last ? " last" : "", d->in_place ? " inplace" : "",
             d->fixed ? " fixed" : "", d->affine ? " affine" : "", d->add ? " add" : "",
             d->relu ? " relu" : "", forward ? 0 : d->n_dy, (!forward && d->by_top) ? " top" : "",
             (!forward && d->wants_g) ? " g" : "");
}

/* Room for a number each of f32, whatever the type. */
void ct_device_norm_scratch(const ct_device_norm_desc *d, ct_run_kind kind, void *block,
                            size_t *bytes_p, ct_device_norm_args *a)
{
    int64_t all = d->n * d->c * d->s;
    float *vector[8];
    ct_batch_norm_map m = { 0 };

    *a = (ct_device_norm_args){ .decay = 0.5f };
    m.x = ct_engine_scratch(block, bytes_p, all, false);
    m.y = d->in_place ? (float *)m.x : ct_engine_scratch(block, bytes_p, all, false);
    if (d->add) m.add = ct_engine_scratch(block, bytes_p, all, false);
    if (d->in_place && !d->fixed) m.normal = ct_engine_scratch(block, bytes_p, all, false);
    for (int i = 0; i < 8; i++) vector[i] = ct_engine_scratch(block, bytes_p, d->c, false);
    m.mean = a->mean = vector[0];
    m.inv_std = a->inv_std = vector[1];
    if (d->affine) m.scale = vector[2], m.bias = vector[3];
    m.relu = d->relu;
    a->moving_mean = vector[4], a->moving_var = vector[5], a->factor = vector[6];
    a->scale_diff = a->bias_diff = d->affine ? vector[7] : NULL;
    a->back = (ct_batch_norm_back){ .map = m, .n_dy = d->n_dy, .fixed = d->fixed };
    if (kind == CT_RUN_FORWARD) return;
    for (int i = 0; i < d->n_dy; i++) a->back.dy[i] = ct_engine_scratch(block, bytes_p, all, false);
    if (d->wants_g) a->back.g = ct_engine_scratch(block, bytes_p, all, false);
    if (d->wants_dx) a->back.dx = ct_engine_scratch(block, bytes_p, all, false);
    a->back.sum = (double *)ct_engine_scratch(block, bytes_p, 4 * d->c, false);
    a->back.dot = (a->back.sum != NULL) ? a->back.sum + d->c : NULL;
}
