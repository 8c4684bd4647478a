/** @file box_report.h  `cortado test --report=FILE` of a net that finds boxes: the average
 * precision of each class.
 *
 * What counts is DetectionEvaluate's in phase TEST: which detection is right, and which true boxes
 * there are. Each sample of the set counts once, on any number of ranks, whatever the batch. The
 * file is one JSON object:
 *
 *   classes                 all but the background: names, as class_name of the net has them, or
 *                           numbers as texts
 *   samples                 that count
 *   mean_average_precision  by version ("11point", "MaxIntegral", "Integral": average_precision.h),
 *                           over the classes that have true boxes
 *   average_precision       by version, of each class; null where it has no true box
 *   boxes                   true ones of each class
 *   detections, right       of each class, those that count and those of them that are right
 *   precision_at_recall     of each class the best precision at recall 0, 0.1 … 1 and beyond each
 */
#ifndef CT_BOX_REPORT_H
#define CT_BOX_REPORT_H

#include "runtime/call.h"

typedef struct ct_box_report ct_box_report;

/** Whether the net has a DetectionEvaluate in phase TEST. */
bool ct_box_report_is_of(const Ct__NetParameter *net);
/** Has the net keep what DetectionEvaluate reads and says. Before the net is made. CT_ERR_CONFIG,
 *  logged: an option that does not go with it. */
ct_status ct_box_report_create(const ct_call *call, ct_config *c, ct_box_report **r_p);
/** NULL allowed. */
void ct_box_report_destroy(ct_box_report *r);
/** Runs the net, which has its weights, over its set. Collective. CT_ERR_CONFIG, CT_ERR_DATA. */
ct_status ct_box_report_run(ct_box_report *r, const ct_call *call, ct_net *net);
/** On rank 0: the file, and the means on standard output. CT_ERR_IO. */
ct_status ct_box_report_write(const ct_box_report *r, const char *path);

#endif
