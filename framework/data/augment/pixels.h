/** @file pixels.h  Operations on images of 8 bits, each as Pillow's, bit for bit.
 *
 * Published recipes were trained with Pillow's arithmetic: where it rounds, where it cuts off. What
 * an operation means is said here; tests/golden/make_augment_golden.py compares with Pillow.
 */
#ifndef CT_AUGMENT_PIXELS_H
#define CT_AUGMENT_PIXELS_H

#include "framework/data/augment/draw.h"
#include "framework/data/sample.h"
#include "framework/proto/cortado.pb-c.h"

/** Planes, one channel after the other: data[(c * height + y) * width + x]. */
typedef struct ct_pixels {
    uint8_t *data;
    int64_t channels, height, width;
    int red; /* of 3 channels: 0, or 2 where blue comes first; green is the middle one */
} ct_pixels;

static inline int64_t ct_pixels_bytes(const ct_pixels *p)
{
    return p->channels * p->height * p->width;
}

/** Resizes a box of `from` to the size of `to`, which has the channels of `from`. Of a reduction
 *  every pixel counts: the triangle is as wide as an output pixel is in the input, first along
 *  rows, then along columns, each rounded to 8 bits. Nothing outside the box is looked at. */
ct_status ct_pixels_resize(const ct_pixels *from, const ct_rect *box, ct_sample_buffer *room,
                           ct_pixels *to);
/** Resizes all of `from` to the size of `to` by a filter of OpenCV: LINEAR bit for bit, the others
 *  within 1 of it. Of a reduction AREA takes the mean of all pixels, the others pass over some. */
ct_status ct_pixels_interpolate(const ct_pixels *from, Ct__ResizeParameter__InterpMode mode,
                                ct_sample_buffer *room, ct_pixels *to);
/** to(x, y) = from(m0 x + m1 y + m2, m3 x + m4 y + m5) at the centres of pixels, bilinear; 0 where
 *  that is outside. `to` has the size of `from`, and is not it. */
void ct_pixels_warp(const ct_pixels *from, const double m[6], ct_pixels *to);

/* ---- colours, in place. A factor of 1 changes nothing; of grey images saturation and hue do
 * nothing. Grey is (19595 red + 38470 green + 7471 blue + 2^15) / 2^16. */

void ct_pixels_brightness(ct_pixels *p, float factor); /* between black and the image   */
void ct_pixels_contrast(ct_pixels *p, float factor);   /* between the mean grey and it  */
void ct_pixels_saturation(ct_pixels *p, float factor); /* between its grey image and it */
/** Turns the hue by so many of 256 steps, in HSV of 8 bits. */
void ct_pixels_hue(ct_pixels *p, uint8_t steps);
/** Between the image, smoothed with weights 1 and 5 in the middle, and the image. `to` has the size
 *  of `from`, and is not it. */
void ct_pixels_sharpness(const ct_pixels *from, float factor, ct_pixels *to);
void ct_pixels_posterize(ct_pixels *p, int bits);        /* keeps the upper bits */
void ct_pixels_solarize(ct_pixels *p, double threshold); /* inverts from there on */
void ct_pixels_autocontrast(ct_pixels *p);               /* each channel to 0 … 255 */
void ct_pixels_equalize(ct_pixels *p);                   /* each channel's histogram */

#endif
