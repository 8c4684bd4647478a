#include "framework/data/augment/mix.h"

#include <math.h>
#include <string.h>

static ct_status check_alpha(const char *who, const char *field, float alpha)
{
    if ((alpha > 0) && (alpha <= 100)) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG,
                   "%s: transform_param.%s.alpha is %g, must be above 0 and at most 100", who,
                   field, (double)alpha);
}

ct_status ct_mixing_read(const Ct__TransformationParameter *p, ct_phase phase, const char *who,
                         ct_mixing *m_p)
{
    bool any = (p != NULL) && ((p->mixup != NULL) || (p->cutmix != NULL));

    *m_p = (ct_mixing){ .classes = 0 };
    if (!any) return CT_OK;
    if (p->mixup != NULL) CT_TRY(check_alpha(who, "mixup", p->mixup->alpha));
    if (p->cutmix != NULL) CT_TRY(check_alpha(who, "cutmix", p->cutmix->alpha));
    if ((p->classes < 2) || (p->classes > (1u << 24)))
        return CT_FAIL(
            CT_ERR_CONFIG,
            "%s: transform_param.classes is %u: mixup and cutmix make distributions over "
            "2 classes or more, at most %u",
            who, p->classes, 1u << 24);
    if (phase != CT_TRAIN) return CT_OK;
    m_p->mixup = (p->mixup != NULL) ? (double)p->mixup->alpha : 0;
    m_p->cutmix = (p->cutmix != NULL) ? (double)p->cutmix->alpha : 0;
    m_p->classes = p->classes;
    return CT_OK;
}

static void blend(float *restrict a, float *restrict b, int64_t n, float share)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float x = a[i], y = b[i];

        a[i] = share * x + (1.0f - share) * y;
        b[i] = share * y + (1.0f - share) * x;
    }
}

/* A box around a point of the image, cut off at its edges. */
static ct_rect box_of(ct_draw *d, double share, int64_t height, int64_t width)
{
    double half = 0.5 * sqrt(1.0 - share);
    int64_t y = ct_draw_below(d, height), x = ct_draw_below(d, width);
    int64_t up = (int64_t)(half * (double)height), left = (int64_t)(half * (double)width);
    ct_rect r = { .top = (y > up) ? y - up : 0, .left = (x > left) ? x - left : 0 };

    r.height = ((y + up < height) ? y + up : height) - r.top;
    r.width = ((x + left < width) ? x + left : width) - r.left;
    return r;
}

static void exchange(float *restrict a, float *restrict b, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float x = a[i];

        a[i] = b[i];
        b[i] = x;
    }
}

static double cut(ct_draw *d, double share, const ct_shape *shape, float *a, float *b)
{
    int64_t h = shape->dim[1], w = shape->dim[2];
    ct_rect r = box_of(d, share, h, w);

    for (int64_t c = 0; c < shape->dim[0]; c++)
        for (int64_t y = r.top; y < r.top + r.height; y++)
            exchange(a + (c * h + y) * w + r.left, b + (c * h + y) * w + r.left, r.width);
    return 1.0 - (double)(r.height * r.width) / (double)(h * w);
}

double ct_mixing_pair(const ct_mixing *m, const ct_shape *shape, uint64_t seed, int64_t first,
                      float *a, float *b)
{
    ct_draw d = ct_draw_begin(seed, "mix", first);
    bool cuts = (m->cutmix > 0) && ((m->mixup == 0) || ct_draw_chance(&d, 0.5));
    double share = ct_draw_beta(&d, cuts ? m->cutmix : m->mixup);

    if (cuts) return cut(&d, share, shape, a, b);
    blend(a, b, ct_shape_count(shape, 0, -1), (float)share);
    return share;
}

void ct_mixing_labels(const ct_mixing *m, double share, float *a, float *b)
{
    int64_t of_a = (int64_t)a[0], of_b = (int64_t)b[0];

    memset(a, 0, (size_t)m->classes * sizeof(float));
    memset(b, 0, (size_t)m->classes * sizeof(float));
    a[of_a] += (float)share;
    a[of_b] += 1.0f - (float)share;
    b[of_b] += (float)share;
    b[of_a] += 1.0f - (float)share;
}
