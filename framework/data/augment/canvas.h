/** @file canvas.h  An image on its way through the operations of augment.c; private to this folder.
 */
#ifndef CT_AUGMENT_CANVAS_H
#define CT_AUGMENT_CANVAS_H

#include "framework/data/augment/augment.h"
#include "framework/data/augment/boxes.h"

/** Planes lie in the sample, and then in one of the room's buffers; boxes in the sample's rest. */
typedef struct ct_canvas {
    ct_pixels now;
    ct_boxes boxes;                             /* row NULL: none */
    const Ct__AnnotatedDataParameter *samplers; /* of batch_sampler; NULL: none */
    ct_augment_room *room;
    ct_why *why;
    ct_crop crop; /* that the sample is wanted in */
    int at;       /* buffer that it is in; -1: the sample, which is not written */
} ct_canvas;

/** A buffer that the image is not in, of another size. */
ct_status ct_canvas_other(ct_canvas *c, int64_t height, int64_t width, ct_pixels *to_p);
/** The image is what ct_canvas_other() gave, now. */
void ct_canvas_move(ct_canvas *c, const ct_pixels *to);
/** So that operations in place may write. */
ct_status ct_canvas_own(ct_canvas *c);
/** CT_ERR_DATA with why where an image of this size is beyond any memory, or has no pixels. */
ct_status ct_canvas_check(const ct_canvas *c, int64_t height, int64_t width);

/* ---- Caffe-SSD's operations: detection.c, noise.c. As in SSD they act in TRAIN and in TEST. */

ct_status ct_distort_check(const Ct__TransformationParameter *p, const char *who);
ct_status ct_distort(const Ct__TransformationParameter *p, ct_phase phase, ct_draw *d,
                     ct_canvas *v);
ct_status ct_expand_check(const Ct__TransformationParameter *p, const char *who);
ct_status ct_expand(const Ct__TransformationParameter *p, ct_phase phase, ct_draw *d, ct_canvas *v);
ct_status ct_sample_part(const Ct__TransformationParameter *p, ct_phase phase, ct_draw *d,
                         ct_canvas *v);
ct_status ct_resize_check(const Ct__TransformationParameter *p, const char *who);
ct_status ct_resize(const Ct__TransformationParameter *p, ct_phase phase, ct_draw *d, ct_canvas *v);
/** Warned of, once: prob, which SSD does not look at. */
ct_status ct_noise_check(const Ct__TransformationParameter *p, const char *who);
ct_status ct_noise(const Ct__TransformationParameter *p, ct_phase phase, ct_draw *d, ct_canvas *v);
/** Three channels become hue (180 steps), saturation and value, in this order, as OpenCV's; others
 *  stay. */
void ct_pixels_to_hsv(ct_pixels *p);
/** Index i of n, mirrored at the edges without repeating the outermost. */
int64_t ct_reflect(int64_t i, int64_t n);
/** What resize_param makes of a size, borders included. */
void ct_resize_size(const Ct__ResizeParameter *p, int64_t *height, int64_t *width);

#endif
