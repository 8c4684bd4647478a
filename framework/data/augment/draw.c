#include "framework/data/augment/draw.h"

#include <math.h>

ct_draw ct_draw_begin(uint64_t seed, const char *purpose, int64_t position)
{
    return (ct_draw){ .key = ct_rng_key(seed, ct_rng_hash("augment"), ct_rng_hash(purpose)),
                      .position = (uint64_t)position };
}

static uint32_t word(ct_draw *d)
{
    if (d->next % 4 == 0) d->block = ct_rng_philox(d->key, d->next / 4, d->position);
    return d->block.v[d->next++ % 4];
}

double ct_draw_uniform(ct_draw *d)
{
    return (double)word(d) * 0x1p-32;
}

double ct_draw_between(ct_draw *d, double from, double to)
{
    return from + (to - from) * ct_draw_uniform(d);
}

int64_t ct_draw_below(ct_draw *d, int64_t n)
{
    return (int64_t)(((uint64_t)word(d) * (uint64_t)n) >> 32);
}

bool ct_draw_chance(ct_draw *d, double probability)
{
    return ct_draw_uniform(d) < probability;
}

double ct_draw_normal(ct_draw *d)
{
    const double turn = 6.283185307179586;
    double radius = sqrt(-2.0 * log(1.0 - ct_draw_uniform(d)));

    return radius * cos(turn * ct_draw_uniform(d));
}

/* The logarithm of one of Gamma(alpha). Below 1 it is one of Gamma(alpha + 1) times U^(1 / alpha),
 * which a double would not hold for a small alpha. */
static double log_gamma_draw(ct_draw *d, double alpha)
{
    double boost = 0, shape = alpha, factor;

    if (alpha < 1) {
        boost = log(1.0 - ct_draw_uniform(d)) / alpha;
        shape = alpha + 1;
    }
    shape -= 1.0 / 3.0;
    factor = 1.0 / sqrt(9.0 * shape);
    for (;;) {
        double x = ct_draw_normal(d), u = 1.0 - ct_draw_uniform(d), v = 1.0 + factor * x;

        if (v <= 0) continue;
        v = v * v * v;
        if (log(u) < 0.5 * x * x + shape - shape * v + shape * log(v))
            return boost + log(shape * v);
    }
}

double ct_draw_beta(ct_draw *d, double alpha)
{
    double a = log_gamma_draw(d, alpha), b = log_gamma_draw(d, alpha);

    return 1.0 / (1.0 + exp(b - a));
}

bool ct_draw_rect(ct_draw *d, const ct_rect_rule *rule, int64_t height, int64_t width,
                  ct_rect *box_p)
{
    enum { TRIES = 10 };
    double low = log(rule->aspect_min), high = log(rule->aspect_max);

    for (int i = 0; i < TRIES; i++) {
        double area =
            (double)height * (double)width * ct_draw_between(d, rule->area_min, rule->area_max);
        double aspect = exp(ct_draw_between(d, low, high));
        ct_rect b = { .height = llround(sqrt(area / aspect)),
                      .width = llround(sqrt(area * aspect)) };

        if ((b.height < 1) || (b.width < 1) || (b.height > height) || (b.width > width)) continue;
        b.top = ct_draw_below(d, height - b.height + 1);
        b.left = ct_draw_below(d, width - b.width + 1);
        *box_p = b;
        return true;
    }
    return false;
}
