/** @file crop.h  One of several crops of a picture, over whose scores a test takes the mean.
 *
 * A crop may be mirrored. Krizhevsky et al., "ImageNet Classification", 2012, section
 * 4.1, take ten; the order is that of pycaffe's oversample and torchvision's TenCrop:
 *
 *   1    the middle
 *   2    the middle, and the same mirrored
 *   5    the corners (top left, top right, bottom left, bottom right), the middle
 *   10   those five, and the same mirrored
 */
#ifndef CT_DATA_CROP_H
#define CT_DATA_CROP_H

#include <stdbool.h>
#include <stdint.h>

/** Crop i of n, from 0 on. n 0: none of them, the sample comes as its phase has it. */
typedef struct ct_crop {
    int i, n;
} ct_crop;

/** The crop that a step takes, of n: a batch comes n times, each time in another one. */
static inline ct_crop ct_crop_at(int64_t step, int n)
{
    return (ct_crop){ .i = (n > 0) ? (int)(step % n) : 0, .n = n };
}

static inline bool ct_crop_is_mirrored(ct_crop c)
{
    return (c.n % 2 == 0) && (c.i >= c.n / 2);
}

/** Where the crop lies along an axis with `places` places, of which `middle` is the middle's.
 *  down: from the top, else from the left. */
static inline int64_t ct_crop_place(ct_crop c, bool down, int64_t places, int64_t middle)
{
    int corner = c.i % 5;

    if ((c.n < 5) || (corner == 4)) return middle;
    return ((down ? corner / 2 : corner % 2) != 0) ? places - 1 : 0;
}

#endif
