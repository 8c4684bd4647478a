/** @file average_precision.h  How good detections are, over all batches of a test and all ranks.
 *
 * DetectionEvaluate says of each detection whether it is right. Of a class, detections in the order
 * of their scores give a curve. With each further one it has the share of all true boxes that are
 * found (recall), and the share of detections that are right (precision). Its area is the average
 * precision (Everingham et al., "The PASCAL Visual Object Classes Challenge", 2010). The mean over
 * the classes that have true boxes is what a net is judged by. Rows of all batches and ranks are
 * looked at together: means of batches, or of ranks, would be something else.
 */
#ifndef CT_SOLVER_AVERAGE_PRECISION_H
#define CT_SOLVER_AVERAGE_PRECISION_H

#include <stdbool.h>
#include <stdint.h>

#include "framework/exchange/group.h"

typedef enum {
    CT_AP_11POINT,      /* the mean of the best precision at recall 0, 0.1 … 1 and beyond each */
    CT_AP_MAX_INTEGRAL, /* the area under the best precision at a recall and beyond           */
    CT_AP_INTEGRAL,     /* the area under the precision itself                                */
    CT_AP_N_VERSION
} ct_ap_version;

enum { CT_AP_POINTS = 11 };

/** Caffe-SSD's name for it: "11point", "MaxIntegral", "Integral"; NULL: the last, its default.
 * False: none of them. */
bool ct_ap_version_is(const char *name, ct_ap_version *version_p);

const char *ct_ap_version_name(ct_ap_version version);

/** What this rank has seen; zero-initialise. */
typedef struct ct_detections {
    double *row; /* class, score, 1 right and 0 wrong; n of them */
    int64_t n, room;
    double *truth; /* true boxes of each class */
    int64_t n_class;
} ct_detections;

/** Adds n rows of DetectionEvaluate's top. CT_ERR_NOMEM, logged. */
ct_status ct_detections_add(ct_detections *d, const float *row, int64_t n);
void ct_detections_clear(ct_detections *d); /* nothing has been seen */
void ct_detections_release(ct_detections *d);
/** The mean average precision of what the ranks of g have seen; 0 where no class has true boxes.
 *  each: logs that of each class. Collective. Of equal scores the wrong ones come first, so ranks
 *  and batches do not matter. */
ct_status ct_detections_judge(const ct_detections *d, const ct_group *g, ct_ap_version version,
                              bool each, double *mean_p);

/** Of one class. */
typedef struct ct_class_precision {
    double truth, found, right;   /* true boxes; detections that count, those that are right */
    double area[CT_AP_N_VERSION]; /* average precision; 0 without true boxes                 */
    double point[CT_AP_POINTS];   /* the best precision at recall 0, 0.1 … 1 and beyond each */
} ct_class_precision;

/** The same of each class up to the largest that has been seen; *class_p is freed by the caller.
 *  Collective. */
ct_status ct_detections_judge_classes(const ct_detections *d, const ct_group *g,
                                      ct_class_precision **class_p, int64_t *n_p);
/** The mean over those of n classes that have true boxes; 0: none has. */
double ct_class_precision_mean(const ct_class_precision *c, int64_t n, ct_ap_version version);

#endif
