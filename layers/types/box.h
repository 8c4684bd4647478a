/** @file box.h  Boxes of detection nets (SSD): overlap, coding, matching, losses, priors; private
 * to layers/. */
#ifndef CT_TYPES_BOX_H
#define CT_TYPES_BOX_H

#include "framework/base/simd.h"
#include "framework/net/layer.h"
#include "layers/types/loss.h"

/* ---- Boxes x0 y0 x1 y1 as SSD has them (Liu et al. 2016): overlap, coding by priors,
 * matching, suppression. */

/** Where boxes may be, and how predictions lie on them: the third bottom of MultiBoxLoss and
 *  DetectionOutput, 1 x 2 x 4n. */
typedef struct ct_priors {
    int64_t n;
    const float *box, *variance; /* 4 each */
    Ct__PriorBoxParameter__CodeType code;
    bool plain; /* codes are not in units of the variances */
} ct_priors;

/** reshape of those two: whether locations, scores and priors, bottoms 0, 1 and 2, fit each other;
 *  loc_class: sets of locations, 1 or n_class. *n_prior_p fits an int32_t. CT_ERR_SHAPE, logged. */
ct_status ct_box_check_bottoms(const ct_layer *l, const ct_instance *in, int64_t n_class,
                               int64_t loc_class, int64_t *n_prior_p);
/** Area; 0 where a side is negative. */
float ct_box_area(const float *b);
/** Intersection over union; 0 where they do not overlap. */
float ct_box_overlap(const float *a, const float *b);
/** Whether an edge lies outside of [0, 1]. */
bool ct_box_crosses(const float *b);
/** The code of a box by prior i, and back. CENTER_SIZE: sides must be positive. */
void ct_box_encode(const ct_priors *p, int64_t i, const float *box, float *code);
void ct_box_decode(const ct_priors *p, int64_t i, const float *code, float *box);
/** Whether all priors can code: finite, and with positive sides and variances where those divide.
 */
bool ct_box_priors_ok(const ct_priors *p, int64_t *bad_p);

typedef struct ct_ranked {
    float score;
    int32_t index;
} ct_ranked;

/** Best first; of equal scores the lowest index. */
void ct_box_rank(ct_ranked *r, int64_t n);
/** Of ranked boxes those that overlap no better kept one by more than `threshold`, which each kept
 *  one multiplies by eta while it is above 0.5; they move to the front. Returns how many. */
int64_t ct_box_suppress(const float *box, ct_ranked *r, int64_t n, float threshold, float eta);

/** The true boxes of one sample. */
typedef struct ct_truth {
    int64_t n;
    const float *const *box; /* [n] */
} ct_truth;

enum { CT_BOX_NO_MATCH = -1, CT_BOX_OUTSIDE = -2 };

/** match[i]: the true box that box i of `box` [n] stands for, CT_BOX_NO_MATCH, or CT_BOX_OUTSIDE
 *  where boxes that reach out of the image are left out. First each true box takes the best free
 *  box, the best pair first. Then, with `threshold` >= 0, each free box takes the true one that it
 *  overlaps most, by the threshold at least. overlap[i]: with the best true box. best: scratch, one
 *  for each true box. */
void ct_box_match(const ct_truth *t, const float *box, int64_t n, bool leave_out, float threshold,
                  int32_t *match, float *overlap, ct_ranked *best);

/* ---- One sample of a MultiBoxLoss: matching, mining, losses */

typedef struct ct_multibox_rule {
    const Ct__MultiBoxLossParameter *p;
    int64_t n_class, loc_class; /* loc_class: sets of locations, 1 or n_class */
    int background;
    Ct__MultiBoxLossParameter__MiningType mining;
    ct_loss_rule loss;
} ct_multibox_rule;

enum { CT_MULTIBOX_NOT_COUNTED = -1 }; /* target */

typedef struct ct_multibox_sample {
    const ct_multibox_rule *rule;
    ct_priors prior;
    ct_truth truth;
    const float *loc, *conf; /* of this sample   */
    int32_t *match, *target; /* of its priors    */
    float *overlap, *decoded;
    ct_ranked *ranked, *best;
} ct_multibox_sample;

/** match: which true box each prior stands for. */
void ct_multibox_match(const ct_multibox_sample *m);
/** target: the class that a prior's scores are to show, or CT_MULTIBOX_NOT_COUNTED; matches that do
 *  not count are taken back. After match. */
void ct_multibox_targets(const ct_multibox_sample *m);
/** The sum of the sample's losses; *matched_p priors have a true box. After targets. */
double ct_multibox_sum(const ct_multibox_sample *m, int64_t *matched_p);
/** Gradients of scale times that sum into dloc and dconf of this sample, which are zero so far;
 *  either may be NULL. */
void ct_multibox_gradient(const ct_multibox_sample *m, double scale, float *dloc, float *dconf);

/* ---- The boxes of PriorBox, for every device */

enum { CT_PRIOR_MAX_RATIO = 64 };

typedef struct ct_prior_state {
    float ratio[CT_PRIOR_MAX_RATIO]; /* the first is 1 */
    int n_ratio;
    int64_t n_prior; /* a cell */
    float variance[4];
    float *side;  /* width and height in pixels of each of a cell's boxes */
    float *there; /* the same on the layer's device                       */
} ct_prior_state;

/** Image and steps in pixels, width first; cells are `width` to a row. */
typedef struct ct_prior_frame {
    float image[2], step[2], offset;
    int64_t width;
    bool clip;
} ct_prior_frame;

ct_prior_frame ct_prior_frame_of(const ct_layer *l, const ct_instance *in);

/** Number i of a cell's box of these sides: x0, y0, x1, y1 in parts of the image. */
static inline CT_HD float ct_prior_number(const ct_prior_frame *f, int64_t cell, const float *side,
                                          int i)
{
    int axis = i % 2;
    float at = (float)((axis == 0) ? cell % f->width : cell / f->width);
    float centre = (at + f->offset) * f->step[axis], half = side[axis] / 2.0f;
    float y = ((i < 2) ? centre - half : centre + half) / f->image[axis];

    if (!f->clip) return y;
    return (y < 0.0f) ? 0.0f : (y > 1.0f) ? 1.0f : y;
}

#endif
