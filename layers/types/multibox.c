#include "layers/types/multibox.h"

#include <math.h>
#include <string.h>

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
