#include "layers/types/box.h"

#include <math.h>
#include <stdlib.h>

static const float least_overlap = 1e-6f; /* less is none */

ct_status ct_box_check_bottoms(const ct_layer *l, const ct_instance *in, int64_t n_class,
                               int64_t loc_class, int64_t *n_prior_p)
{
    const ct_shape *loc = &in->bottom[0]->data.shape, *conf = &in->bottom[1]->data.shape;
    const ct_shape *prior = &in->bottom[2]->data.shape;
    int64_t n_prior = ct_shape_count(prior, 0, -1) / 8;

    if ((loc->ndim < 1) || (conf->ndim < 1) || (loc->dim[0] != conf->dim[0]) ||
        (ct_shape_count(prior, 0, -1) % 8 != 0) || (n_prior > INT32_MAX) ||
        (ct_shape_count(loc, 1, -1) != ct_dim_mul(n_prior, loc_class * 4)) ||
        (ct_shape_count(conf, 1, -1) != ct_dim_mul(n_prior, n_class)))
        return CT_LAYER_FAIL(
            l, CT_ERR_SHAPE,
            "bottoms of shapes %s, %s, %s: with P priors and %lld classes, N x %s, "
            "N x PC and 1 x 2 x 4P are needed",
            ct_shape_str(loc).text, ct_shape_str(conf).text, ct_shape_str(prior).text,
            (long long)n_class, (loc_class == 1) ? "4P" : "4PC");
    *n_prior_p = n_prior;
    return CT_OK;
}

float ct_box_area(const float *b)
{
    return ((b[2] < b[0]) || (b[3] < b[1])) ? 0.0f : (b[2] - b[0]) * (b[3] - b[1]);
}

float ct_box_overlap(const float *a, const float *b)
{
    float w = fminf(a[2], b[2]) - fmaxf(a[0], b[0]), h = fminf(a[3], b[3]) - fmaxf(a[1], b[1]);

    if (!(w > 0.0f) || !(h > 0.0f)) return 0.0f;
    return w * h / (ct_box_area(a) + ct_box_area(b) - w * h);
}

bool ct_box_crosses(const float *b)
{
    for (int i = 0; i < 4; i++) {
        if ((b[i] < 0.0f) || (b[i] > 1.0f)) return true;
    }
    return false;
}

/* Of a prior: what a code is relative to, and its unit. */
static void frame_of(const ct_priors *p, int64_t i, float *origin, float *unit)
{
    const float *b = p->box + 4 * i;
    bool sizes = p->code != CT__PRIOR_BOX_PARAMETER__CODE_TYPE__CORNER;

    for (int k = 0; k < 4; k++) {
        origin[k] = b[k];
        unit[k] = sizes ? b[2 + k % 2] - b[k % 2] : 1.0f;
    }
    if (p->code != CT__PRIOR_BOX_PARAMETER__CODE_TYPE__CENTER_SIZE) return;
    for (int k = 0; k < 2; k++) origin[k] = (b[k] + b[2 + k]) / 2.0f;
}

void ct_box_encode(const ct_priors *p, int64_t i, const float *box, float *code)
{
    float origin[4], unit[4], value[4];
    bool center = p->code == CT__PRIOR_BOX_PARAMETER__CODE_TYPE__CENTER_SIZE;

    frame_of(p, i, origin, unit);
    for (int k = 0; k < 4; k++) value[k] = (box[k] - origin[k]) / unit[k];
    for (int k = 0; center && (k < 2); k++) {
        value[k] = ((box[k] + box[2 + k]) / 2.0f - origin[k]) / unit[k];
        value[2 + k] = logf((box[2 + k] - box[k]) / unit[k]);
    }
    for (int k = 0; k < 4; k++) code[k] = p->plain ? value[k] : value[k] / p->variance[4 * i + k];
}

void ct_box_decode(const ct_priors *p, int64_t i, const float *code, float *box)
{
    float origin[4], unit[4], value[4];

    frame_of(p, i, origin, unit);
    for (int k = 0; k < 4; k++) value[k] = p->plain ? code[k] : code[k] * p->variance[4 * i + k];
    if (p->code != CT__PRIOR_BOX_PARAMETER__CODE_TYPE__CENTER_SIZE) {
        for (int k = 0; k < 4; k++) box[k] = origin[k] + value[k] * unit[k];
        return;
    }
    for (int k = 0; k < 2; k++) {
        float at = origin[k] + value[k] * unit[k], size = expf(value[2 + k]) * unit[k];

        box[k] = at - size / 2.0f;
        box[2 + k] = at + size / 2.0f;
    }
}

bool ct_box_priors_ok(const ct_priors *p, int64_t *bad_p)
{
    bool sizes = p->code != CT__PRIOR_BOX_PARAMETER__CODE_TYPE__CORNER;

    for (int64_t i = 0; i < p->n; i++) {
        const float *b = p->box + 4 * i, *v = p->variance + 4 * i;
        bool ok = true;

        for (int k = 0; k < 4; k++) ok = ok && isfinite(b[k]) && (v[k] > 0.0f) && isfinite(v[k]);
        if (sizes) ok = ok && (b[2] > b[0]) && (b[3] > b[1]);
        if (ok) continue;
        *bad_p = i;
        return false;
    }
    return true;
}

static int by_score(const void *a, const void *b)
{
    const ct_ranked *x = a, *y = b;

    if (x->score != y->score) return (x->score > y->score) ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

void ct_box_rank(ct_ranked *r, int64_t n)
{
    qsort(r, (size_t)n, sizeof(*r), by_score);
}

int64_t ct_box_suppress(const float *box, ct_ranked *r, int64_t n, float threshold, float eta)
{
    int64_t kept = 0;

    for (int64_t i = 0; i < n; i++) {
        const float *here = box + 4 * (int64_t)r[i].index;
        bool keep = true;

        for (int64_t k = 0; keep && (k < kept); k++)
            keep = ct_box_overlap(here, box + 4 * (int64_t)r[k].index) <= threshold;
        if (!keep) continue;
        r[kept++] = r[i];
        if ((eta < 1.0f) && (threshold > 0.5f)) threshold *= eta;
    }
    return kept;
}

/* The free box that overlaps true box g most; index -1: none. */
static ct_ranked best_free(const float *truth, const float *box, int64_t n, const int32_t *match)
{
    ct_ranked best = { least_overlap, -1 };

    for (int64_t i = 0; i < n; i++) {
        float o;

        if (match[i] != CT_BOX_NO_MATCH) continue;
        o = ct_box_overlap(box + 4 * i, truth);
        if (o > best.score) best = (ct_ranked){ o, (int32_t)i };
    }
    return best;
}

/* Pairs, the best first: of equal ones that of the lowest box, then of the first true box. */
static void match_pairs(const ct_truth *t, const float *box, int64_t n, int32_t *match,
                        float *overlap, ct_ranked *best)
{
    for (int64_t g = 0; g < t->n; g++) best[g] = best_free(t->box[g], box, n, match);
    for (;;) {
        int64_t first = -1;
        int32_t taken;

        for (int64_t g = 0; g < t->n; g++) {
            if (best[g].index < 0) continue;
            if ((first < 0) || (by_score(&best[g], &best[first]) < 0)) first = g;
        }
        if (first < 0) return;
        taken = best[first].index;
        match[taken] = (int32_t)first;
        overlap[taken] = best[first].score;
        best[first].index = -1;
        for (int64_t g = 0; g < t->n; g++) {
            if (best[g].index == taken) best[g] = best_free(t->box[g], box, n, match);
        }
    }
}

void ct_box_match(const ct_truth *t, const float *box, int64_t n, bool leave_out, float threshold,
                  int32_t *match, float *overlap, ct_ranked *best)
{
    for (int64_t i = 0; i < n; i++) {
        match[i] = CT_BOX_NO_MATCH;
        overlap[i] = 0.0f;
        if (leave_out && ct_box_crosses(box + 4 * i)) match[i] = CT_BOX_OUTSIDE;
    }
    match_pairs(t, box, n, match, overlap, best);
    for (int64_t i = 0; i < n; i++) {
        int32_t most = -1;
        float o, limit = -1.0f;

        if (match[i] != CT_BOX_NO_MATCH) continue;
        for (int64_t g = 0; g < t->n; g++) {
            o = ct_box_overlap(box + 4 * i, t->box[g]);
            if (!(o > least_overlap)) continue;
            if (o > overlap[i]) overlap[i] = o;
            if ((threshold >= 0.0f) && (o >= threshold) && (o > limit)) {
                limit = o;
                most = (int32_t)g;
            }
        }
        if (most >= 0) match[i] = most;
    }
}
