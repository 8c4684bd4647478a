/** @file multibox.h  One sample of a MultiBoxLoss: matching, mining, losses. Private to layers/. */
#ifndef CT_MULTIBOX_H
#define CT_MULTIBOX_H

#include "layers/types/box.h"
#include "layers/types/loss_util.h"

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

#endif
