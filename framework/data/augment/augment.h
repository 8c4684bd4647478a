/** @file augment.h  Augmentation of one sample: from pixels of 8 bits to such pixels.
 *
 * What transform_param says beyond Caffe's crop, mirror and mean, in the order of the table in
 * augment.c, before them. All draws are functions of (seed, operation, position of the sample in
 * the stream). They act in TRAIN; in TEST random_resized_crop resizes the shorter
 * side and takes the middle, and what forks draw of sizes acts as in TRAIN. Lighting and erasing
 * act on values after the mean (transform.h).
 */
#ifndef CT_AUGMENT_H
#define CT_AUGMENT_H

#include "framework/data/augment/pixels.h"
#include "framework/net/exec.h"
#include "framework/proto/cortado.pb-c.h"

typedef struct ct_augment ct_augment;

/** Memory that one thread keeps from sample to sample; zero-initialise. */
typedef struct ct_augment_room {
    ct_sample_buffer pixels[2], work;
} ct_augment_room;

void ct_augment_room_release(ct_augment_room *r);

/** Whether p (NULL allowed) asks for any augmentation, also of transform.h and mix.h; its name, or
 * NULL. */
const char *ct_augment_named(const Ct__TransformationParameter *p);
/** Whether sizes are drawn as NVIDIA's fork does, which takes the middle of mean_file off each
 * crop; Intel's takes a mean of the image's size alone. */
bool ct_augment_mean_of_crop(const Ct__TransformationParameter *p);
/** The field of p (NULL allowed) by which sizes or places of a sample are drawn by chance in TEST,
 * too, so that no one picture has them; NULL: none. */
const char *ct_augment_chance_in_test(const Ct__TransformationParameter *p);
/** p is borrowed. *a_p is NULL where samples stay as they are. who: in front of messages.
 *  CT_ERR_CONFIG, logged: a field out of its range, or two that exclude each other. */
ct_status ct_augment_create(const Ct__TransformationParameter *p, ct_phase phase, const char *who,
                            ct_augment **a_p);
/** The same of images with boxes, a part of which the samplers of q (borrowed) may choose. */
ct_status ct_augment_create_with_boxes(const Ct__TransformationParameter *p,
                                       const Ct__AnnotatedDataParameter *q, ct_phase phase,
                                       const char *who, ct_augment **a_p);
void ct_augment_destroy(ct_augment *a); /* NULL allowed */
/** The shape that a sample of shape `in` comes out with; where sizes are drawn, the crop_size that
 *  follows, which they reach. CT_ERR_CONFIG with why: not an image of 1
 *  or 3 channels. a NULL: the same. */
ct_status ct_augment_shape(const ct_augment *a, const ct_shape *in, ct_shape *out_p, ct_why *why);
/** Field 0 of a sample, augmented, is *out_p's: in room, until the next call, or where it was. All
 *  else is the sample's; its boxes are changed where they lie. CT_ERR_CONFIG with the sample's why:
 * it has floats. a NULL: the same. */
ct_status ct_augment_apply(const ct_augment *a, const ct_sample *sample, uint64_t seed,
                           int64_t position, ct_augment_room *room, ct_sample *out_p);

/** The inverse of what `degrees` (clockwise), a shift and a scale and shears (degrees along x and
 *  y) make of an image around its middle: for ct_pixels_warp(). As torchvision's affine(). */
typedef struct ct_affine {
    double degrees, shift_x, shift_y, scale, shear_x, shear_y;
} ct_affine;
void ct_affine_matrix(const ct_affine *a, double centre_x, double centre_y, double m[6]);

#endif
