/** @file boxes.h  Boxes of an image on their way with its pixels: rows of 8 numbers, as SSD's.
 *
 * A row is: 0 (what loaders make the number of the sample), class, instance, x0 y0 x1 y1 in parts
 * of the image, and 1 where the object is difficult. Rows that are used stand in front; the others
 * have -1 in all places. What happens to boxes as their image is cut out, widened and resized is
 * that of Caffe-SSD (Liu et al., "SSD: Single Shot MultiBox Detector", 2016, and its code).
 */
#ifndef CT_AUGMENT_BOXES_H
#define CT_AUGMENT_BOXES_H

#include "framework/data/augment/draw.h"
#include "framework/base/status.h"
#include "framework/proto/cortado.pb-c.h"

enum { CT_BOX_ROW = 8, CT_BOX_CORNER = 3 }; /* numbers of a row; where its corners begin */

/** Room for `room` rows, of which the first n are boxes. row NULL: no boxes go with the image. */
typedef struct ct_boxes {
    float *row;
    int64_t room, n;
} ct_boxes;

/** The boxes of room rows as they come from a reader. */
ct_boxes ct_boxes_of(float *row, int64_t room);
/** A part of an image, in parts of it: x0 y0 x1 y1; may reach out of it. */
typedef struct ct_image_part {
    float corner[4];
} ct_image_part;

/** The image becomes a part of it: boxes are moved along and cut off at its edges. Those that lie
 *  outside, or that emit (NULL: none) does not let through, go; the others keep their order. */
void ct_boxes_project(ct_boxes *b, const ct_image_part *part, const Ct__EmitConstraint *emit);
/** The image is mirrored left to right. */
void ct_boxes_mirror(ct_boxes *b);
/** What resizing from height x width by p does to the corners: cut off, and with the border that
 *  FIT_LARGE_SIZE_AND_PAD puts around. */
void ct_boxes_resize(ct_boxes *b, const Ct__ResizeParameter *p, int64_t height, int64_t width);
/** The way back: the part of an image of height x width that it shows once p has resized it. */
ct_image_part ct_boxes_resized_part(const Ct__ResizeParameter *p, int64_t height, int64_t width);
/** CT_ERR_CONFIG, logged: an impossible range of a sampler. */
ct_status ct_boxes_check_samplers(const Ct__AnnotatedDataParameter *p, const char *who);
/** Draws a part of the image: of those that the samplers find, one. False: they find none. */
bool ct_boxes_sample(const ct_boxes *b, const Ct__AnnotatedDataParameter *p, ct_draw *d,
                     ct_image_part *part_p);

#endif
