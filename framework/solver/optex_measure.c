#include "framework/solver/optex_round.h"

#include <math.h>
#include <string.h>

#include "framework/math/math.h"

enum { PARTS = 64 /* of a sum: its bits do not depend on threads, and ranks decide alike */ };

static double product_of(int64_t n, const float *a, const float *b)
{
    double sum = 0.0;

    for (int64_t i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

double ct_optex_round_product(const ct_optex_round *r, const float *a, const float *b)
{
    int64_t n = ct_optex_round_count(r);
    double part[PARTS], sum = 0.0;

#pragma omp parallel for schedule(static)
    for (int k = 0; k < PARTS; k++) {
        int64_t from = n * k / PARTS, to = n * (k + 1) / PARTS;

        part[k] = product_of(to - from, a + from, b + from);
    }
    for (int k = 0; k < PARTS; k++) sum += part[k];
    return sum;
}

/* The batches at one point have unlike gradients: by their variance. The gradient arena is free. */
ct_status ct_optex_measure_noise(ct_optex_round *r)
{
    int64_t count = ct_optex_round_count(r);
    int together = r->stays ? r->parallel : r->batches; /* at one point */
    float *sum = r->step->net->grad_arena;
    double noise = 0.0;

    r->measure = (ct_optex_measure){ .steps = r->steps, .batches = r->batches, .noise = -1.0 };
    if (together == 1) return CT_OK;
    for (int b = 0; b < r->parallel; b++) {
        const float *g = ct_optex_round_gradient(r, b);

        noise += ct_optex_round_product(r, g, g);
        if (b % together == 0)
            memcpy(sum, g, (size_t)count * sizeof(float));
        else
            CT_TRY(r->step->net->options.dev->math->axpy(NULL, count, 1.0f, g, sum));
        if ((b + 1) % together == 0) noise -= ct_optex_round_product(r, sum, sum) / together;
    }
    noise /= r->parallel - r->parallel / together;
    r->measure.noise = (noise > 0.0) ? noise : 0.0;
    return CT_OK;
}

/* Of the estimate at a point: |estimate|^2, and its product with the step's gradient. */
static void estimate_at(ct_optex_round *r, int s, double *square_p, double *both_p)
{
    float *guess = r->step->net->grad_arena;

    *square_p = *both_p = 0.0;
    if (r->predictor.prediction == CT_PREDICT_NONE) return;
    ct_gradient_predictor_estimate(&r->predictor, r->point[s], guess);
    *square_p = ct_optex_round_product(r, guess, guess);
    *both_p = ct_optex_round_product(r, guess, ct_optex_round_sum(r, s)) / r->batches;
}

/* Points that all are where the round begins say nothing about those a round's way from there. */
void ct_optex_measure_estimates(ct_optex_round *r)
{
    ct_optex_measure *m = &r->measure;
    bool knows = (r->predictor.prediction == CT_PREDICT_NONE) || (r->predictor.n > 0);
    bool far = (r->predictor.prediction == CT_PREDICT_NONE) || !r->stays || (r->steps == 1);
    double c[CT_PREDICTOR_ROOM], square, both, own = 0.0;

    m->error = -1.0;
    for (int s = 0; s < r->steps; s++) {
        own = ct_optex_round_product(r, ct_optex_round_sum(r, s), ct_optex_round_sum(r, s)) /
              ((double)r->batches * r->batches);
        m->square += own / r->steps;
        estimate_at(r, s, &square, &both);
        m->cosine[s] = (square > 0.0) && (own > 0.0) ? both / sqrt(square * own) : 0.0;
        if (knows && far && (s == r->steps - 1)) m->error = square - 2.0 * both + own;
    }
    if (r->predictor.prediction == CT_PREDICT_NONE) return;
    ct_gradient_predictor_weigh(&r->predictor, r->point[r->steps - 1], c);
    for (int i = 0; i < r->predictor.n; i++) m->echo += c[i] * c[i];
}
