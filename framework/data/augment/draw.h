/** @file draw.h  What augmentation draws: numbers of (seed, purpose, position), and boxes by them.
 *
 * A draw is a stream of its own for each operation and sample. So what one operation draws depends
 * neither on the others, nor on threads, nor on the number of ranks.
 */
#ifndef CT_AUGMENT_DRAW_H
#define CT_AUGMENT_DRAW_H

#include <stdbool.h>
#include <stdint.h>

#include "framework/base/rng.h"

typedef struct ct_draw {
    uint64_t key, position, next; /* of words */
    ct_rng_block block;
} ct_draw;

/** purpose: the operation's name. position: of the sample in the stream. */
ct_draw ct_draw_begin(uint64_t seed, const char *purpose, int64_t position);
/** In [0, 1): 32 bits. */
double ct_draw_uniform(ct_draw *d);
/** In [from, to). */
double ct_draw_between(ct_draw *d, double from, double to);
/** A whole number of [0, n), n at least 1. */
int64_t ct_draw_below(ct_draw *d, int64_t n);
bool ct_draw_chance(ct_draw *d, double probability);
/** A standard normal (Box-Muller). */
double ct_draw_normal(ct_draw *d);
/** Of Beta(alpha, alpha), alpha > 0: by two of Gamma (Marsaglia and Tsang, "A simple method for
 *  generating gamma variables", 2000). */
double ct_draw_beta(ct_draw *d, double alpha);

/** Rows [top, top + height), columns [left, left + width). */
typedef struct ct_rect {
    int64_t top, left, height, width;
} ct_rect;

/** Ranges that a box is drawn from: its share of the image's area, and width / height, whose
 *  logarithm is uniform. */
typedef struct ct_rect_rule {
    double area_min, area_max, aspect_min, aspect_max;
} ct_rect_rule;

/** A box within an image, by ten tries. False: none fits. */
bool ct_draw_rect(ct_draw *d, const ct_rect_rule *rule, int64_t height, int64_t width,
                  ct_rect *box_p);

#endif
