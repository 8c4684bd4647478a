/** @file rate_curve.h  The loss of a run whose learning rate rises from step to step, and the rate
 * that it suggests.
 *
 * The curve is that of the mean over 2 h + 1 neighbouring steps, fewer at both ends. The suggestion
 * is a tenth of the rate at which that mean is least; none where it falls nowhere. The test is that
 * of L. N. Smith, "Cyclical Learning Rates for Training Neural Networks", WACV 2017, section 3.3,
 * who reads a range of rates off the curve by eye.
 */
#ifndef CT_RATE_CURVE_H
#define CT_RATE_CURVE_H

#include "framework/base/json_writer.h"
#include "framework/base/text.h"

typedef struct ct_rate_point {
    double rate, loss, mean;
} ct_rate_point;

typedef struct ct_rate_curve {
    int n, h;
    bool diverged;        /* the last step's loss was no number, or far above the least */
    ct_rate_point *point; /* [n]                                                        */
    int least, steepest;  /* which of them; steepest -1: the loss falls nowhere         */
    double suggested;     /* a rate; NAN then                                           */
} ct_rate_curve;

/** Room for that many steps. CT_ERR_NOMEM. */
ct_status ct_rate_curve_create(int n_step, ct_rate_curve *c);
void ct_rate_curve_destroy(ct_rate_curve *c); /* zeroed ones too */
/** The next step. True: it diverged, and more steps tell nothing. */
bool ct_rate_curve_add(ct_rate_curve *c, double rate, double loss);
/** Means, the least, and the suggestion, once all steps are there. */
void ct_rate_curve_finish(ct_rate_curve *c);

/** A table of some of the steps, and what follows from them. */
void ct_rate_curve_print(const ct_rate_curve *c, ct_text *out);
void ct_rate_curve_csv(const ct_rate_curve *c, ct_text *out);
/** Members of a JSON object. */
void ct_rate_curve_json(const ct_rate_curve *c, ct_json_writer *w);
/** An SVG. */
void ct_rate_curve_draw(const ct_rate_curve *c, const char *net, ct_text *out);

#endif
