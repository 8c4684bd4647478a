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
    int64_t n = r->count;
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
    int together = r->stays ? r->parallel : r->batches; /* at one point */
    int n_sum = r->parallel / together;
    float *sum = ct_optex_round_room(r);
    double noise = 0.0;

    r->measure = (ct_optex_measure){ .steps = r->steps, .batches = r->batches, .noise = -1.0 };
    if (together == 1) return CT_OK;
    for (int b = 0; b < r->parallel; b++) {
        const float *g = ct_optex_round_gradient(r, b);

        noise += ct_optex_round_product(r, g, g);
        if (b % together == 0)
            memcpy(sum, g, (size_t)r->count * sizeof(float));
        else
            CT_TRY(r->step->net->options.dev->math->axpy(NULL, r->count, 1.0f, g, sum));
        if ((b + 1) % together == 0) noise -= ct_optex_round_product(r, sum, sum) / together;
    }
    CT_TRY(ct_optex_round_add_up(r, &noise, 1));
    noise /= r->parallel - n_sum;
    r->measure.noise = (noise > 0.0) ? noise : 0.0;
    return CT_OK;
}

/* At a point, of this rank's shares. */
enum { OWN, SQUARE, BOTH, N_PRODUCT };

/* The coefficients of the estimate there. All points but the last have gone by theirs; where they
 * stay they are one. */
static ct_status weigh_at(ct_optex_round *r, int s)
{
    if (!r->stays && (s + 1 < r->steps)) return CT_OK;
    if (!r->stays || (s == 0))
        return ct_gradient_predictor_weigh(&r->predictor, r->point[s], r->coefficient[s]);
    memcpy(r->coefficient[s], r->coefficient[0], sizeof(r->coefficient[s]));
    return CT_OK;
}

static ct_status products_at(ct_optex_round *r, int s, double *v)
{
    const float *sum = ct_optex_round_sum(r, s);
    float *guess = ct_optex_round_room(r);

    v[OWN] = ct_optex_round_product(r, sum, sum);
    v[SQUARE] = v[BOTH] = 0.0;
    if (r->predictor.prediction == CT_PREDICT_NONE) return CT_OK;
    CT_TRY(weigh_at(r, s));
    ct_gradient_predictor_combine(&r->predictor, r->coefficient[s], guess);
    v[SQUARE] = ct_optex_round_product(r, guess, guess);
    v[BOTH] = ct_optex_round_product(r, guess, sum);
    return CT_OK;
}

/* Points that all are where the round begins say nothing about those a round's way from there. */
ct_status ct_optex_measure_estimates(ct_optex_round *r)
{
    ct_optex_measure *m = &r->measure;
    bool none = (r->predictor.prediction == CT_PREDICT_NONE);
    bool knows = none || (r->predictor.n > 0), far = none || !r->stays || (r->steps == 1);
    const double *c = r->coefficient[r->steps - 1];
    double v[N_PRODUCT * CT_OPTEX_POINTS];

    for (int s = 0; s < r->steps; s++) CT_TRY(products_at(r, s, v + s * N_PRODUCT));
    CT_TRY(ct_optex_round_add_up(r, v, r->steps * N_PRODUCT));
    m->error = -1.0;
    for (int s = 0; s < r->steps; s++) {
        const double *at = v + s * N_PRODUCT;
        double own = at[OWN] / ((double)r->batches * r->batches), both = at[BOTH] / r->batches;
        double square = at[SQUARE];

        m->square += own / r->steps;
        m->cosine[s] = (square > 0.0) && (own > 0.0) ? both / sqrt(square * own) : 0.0;
        if (knows && far && (s == r->steps - 1)) m->error = square - 2.0 * both + own;
    }
    for (int i = 0; !none && (i < r->predictor.n); i++) m->echo += c[i] * c[i];
    return CT_OK;
}
