/* Boxes of detection nets, and the losses of one sample that are made of them. */
#include "layers/types/box.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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

/* The class of a true box, which stands two before it in its row. */
static int class_of(const ct_multibox_rule *s, const float *box)
{
    return s->p->map_object_to_agnostic ? s->background + 1 : (int)box[-2];
}

/* ---- losses of one prior */

static double softmax_loss(const float *x, int64_t n, int label, double scale, float *dx)
{
    float largest = x[0];
    double most, sum = 0, p;

    /* in floats: gcc 12 for AArch64 breaks down over fmax() of what it widens */
    for (int64_t c = 1; c < n; c++) largest = fmaxf(largest, x[c]);
    most = (double)largest;
    for (int64_t c = 0; c < n; c++) sum += exp((double)x[c] - most);
    p = exp((double)x[label] - most) / sum;
    for (int64_t c = 0; (dx != NULL) && (c < n); c++)
        dx[c] = (float)(scale * (exp((double)x[c] - most) / sum - ((c == label) ? 1.0 : 0.0)));
    return -log(fmax(p, 0x1p-126));
}

static double logistic_loss(const float *x, int64_t n, int label, double scale, float *dx)
{
    double loss = 0;

    for (int64_t c = 0; c < n; c++) {
        double v = (double)x[c], target = (c == label) ? 1.0 : 0.0;

        loss += fmax(v, 0.0) - v * target + log1p(exp(-fabs(v)));
        if (dx != NULL) dx[c] = (float)(scale * (1.0 / (1.0 + exp(-v)) - target));
    }
    return loss;
}

static double conf_loss(const ct_multibox_rule *s, const float *x, int label, double scale,
                        float *dx)
{
    bool soft = s->p->conf_loss_type == CT__MULTI_BOX_LOSS_PARAMETER__CONF_LOSS_TYPE__SOFTMAX;

    return soft ? softmax_loss(x, s->n_class, label, scale, dx)
                : logistic_loss(x, s->n_class, label, scale, dx);
}

/* Of prior i, to predict `truth`; where dx, the gradient. */
static double loc_loss(const ct_multibox_rule *s, const ct_priors *p, int64_t i, const float *truth,
                       const float *x, double scale, float *dx)
{
    bool smooth = s->p->loc_loss_type == CT__MULTI_BOX_LOSS_PARAMETER__LOC_LOSS_TYPE__SMOOTH_L1;
    float code[4], box[4];
    double loss = 0;

    ct_box_encode(p, i, truth, code);
    memcpy(box, p->box + 4 * i, sizeof(box));
    if (s->p->bp_inside && !s->p->use_prior_for_matching) ct_box_decode(p, i, x, box);
    for (int k = 0; k < 4; k++) {
        double unit = p->plain ? (double)p->variance[4 * i + k] : 1.0;
        double d = ((double)x[k] - (double)code[k]) / unit;
        bool flat = smooth && (fabs(d) >= 1.0);

        if (s->p->bp_inside && ((box[k] < 0.0f) || (box[k] > 1.0f))) d = 0, flat = false;
        loss += flat ? fabs(d) - 0.5 : 0.5 * d * d;
        if (dx != NULL) dx[k] = (float)(scale * (flat ? copysign(1.0, d) : d) / unit);
    }
    return loss;
}

/* The place of prior k's location among the predictions, for the class of its box. */
static int64_t loc_at(const ct_multibox_sample *m, int64_t k)
{
    int label = (m->rule->loc_class > 1) ? class_of(m->rule, m->truth.box[m->match[k]]) : 0;

    return (k * m->rule->loc_class + label) * 4;
}

static int label_of(const ct_multibox_sample *m, int64_t k)
{
    return (m->match[k] >= 0) ? class_of(m->rule, m->truth.box[m->match[k]]) : m->rule->background;
}

void ct_multibox_match(const ct_multibox_sample *m)
{
    const Ct__MultiBoxLossParameter *p = m->rule->p;
    bool each = p->match_type == CT__MULTI_BOX_LOSS_PARAMETER__MATCH_TYPE__PER_PREDICTION;
    const float *box = m->prior.box;

    if (!p->use_prior_for_matching) {
        for (int64_t k = 0; k < m->prior.n; k++)
            ct_box_decode(&m->prior, k, m->loc + 4 * k, m->decoded + 4 * k);
        box = m->decoded;
    }
    ct_box_match(&m->truth, box, m->prior.n, p->ignore_cross_boundary_bbox,
                 each ? p->overlap_threshold : -1.0f, m->match, m->overlap, m->best);
}

/* The hardest candidates; how many of *n_p count. */
static int64_t pick_hardest(const ct_multibox_sample *m, bool all)
{
    const Ct__MultiBoxLossParameter *p = m->rule->p;
    int64_t n = 0, matched = 0, most;

    for (int64_t k = 0; k < m->prior.n; k++) {
        const float *x = m->conf + k * m->rule->n_class;
        double loss;

        matched += m->match[k] >= 0;
        if (!all && ((m->match[k] != CT_BOX_NO_MATCH) || !(m->overlap[k] < p->neg_overlap)))
            continue;
        loss = conf_loss(m->rule, x, label_of(m, k), 0, NULL);
        if (all && (m->match[k] >= 0))
            loss += loc_loss(m->rule, &m->prior, k, m->truth.box[m->match[k]],
                             m->loc + loc_at(m, k), 0, NULL);
        m->ranked[n++] = (ct_ranked){ (float)loss, (int32_t)k };
    }
    ct_box_rank(m->ranked, n);
    most = all ? p->sample_size : (int64_t)((float)matched * p->neg_pos_ratio);
    return (most < n) ? most : n;
}

void ct_multibox_targets(const ct_multibox_sample *m)
{
    bool hard = m->rule->mining == CT__MULTI_BOX_LOSS_PARAMETER__MINING_TYPE__HARD_EXAMPLE;
    bool none = m->rule->mining == CT__MULTI_BOX_LOSS_PARAMETER__MINING_TYPE__NONE;
    int64_t n;

    for (int64_t k = 0; k < m->prior.n; k++) {
        bool counts = none || (!hard && (m->match[k] >= 0));

        m->target[k] = counts ? label_of(m, k) : CT_MULTIBOX_NOT_COUNTED;
    }
    if (none || (m->truth.n == 0)) return;
    n = pick_hardest(m, hard);
    for (int64_t i = 0; i < n; i++) {
        int32_t k = m->ranked[i].index;

        if (m->match[k] != CT_BOX_OUTSIDE) m->target[k] = label_of(m, k);
    }
    for (int64_t k = 0; hard && (k < m->prior.n); k++) {
        if ((m->match[k] >= 0) && (m->target[k] == CT_MULTIBOX_NOT_COUNTED))
            m->match[k] = CT_BOX_NO_MATCH;
    }
}

double ct_multibox_sum(const ct_multibox_sample *m, int64_t *matched_p)
{
    double loc = 0, conf = 0;

    *matched_p = 0;
    for (int64_t k = 0; k < m->prior.n; k++) {
        if (m->match[k] >= 0) {
            loc += loc_loss(m->rule, &m->prior, k, m->truth.box[m->match[k]], m->loc + loc_at(m, k),
                            0, NULL);
            (*matched_p)++;
        }
        if (m->target[k] != CT_MULTIBOX_NOT_COUNTED)
            conf += conf_loss(m->rule, m->conf + k * m->rule->n_class, m->target[k], 0, NULL);
    }
    return (double)m->rule->p->loc_weight * loc + conf;
}

void ct_multibox_gradient(const ct_multibox_sample *m, double scale, float *dloc, float *dconf)
{
    const ct_multibox_rule *s = m->rule;

    for (int64_t k = 0; k < m->prior.n; k++) {
        if ((dloc != NULL) && (m->match[k] >= 0))
            loc_loss(s, &m->prior, k, m->truth.box[m->match[k]], m->loc + loc_at(m, k),
                     scale * (double)s->p->loc_weight, dloc + loc_at(m, k));
        if ((dconf != NULL) && (m->target[k] != CT_MULTIBOX_NOT_COUNTED))
            conf_loss(s, m->conf + k * s->n_class, m->target[k], scale, dconf + k * s->n_class);
    }
}
