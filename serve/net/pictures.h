/** @file pictures.h  From the bytes of an image file to the values of a net's input, as `serve` of
 * the net says: decoded, resized, transformed. Any threads.
 */
#ifndef CT_PICTURES_H
#define CT_PICTURES_H

#include "framework/data/transform.h"
#include "framework/proto/prototxt.h"

typedef struct ct_pictures ct_pictures;

/** Pixels of a picture; larger ones are refused before they are decoded. */
#define CT_MOST_PIXELS ((int64_t)50000000)

/** CT_ERR_CONFIG, logged, where p says how files become pictures, which the net does not take.
 *  input: what it takes, for the message. */
ct_status ct_pictures_refuse(const Ct__ServeParameter *p, const ct_source_map *map,
                             const char *input);
/** p: NULL where the net says nothing; map: its places, for messages. input: N x C x H x W. Without
 *  a crop and a new size pictures become H x W. CT_ERR_CONFIG, CT_ERR_IO, CT_ERR_DATA, logged: what
 *  is said cannot give this input. *p_p NULL: C is neither 1 nor 3. */
ct_status ct_pictures_create(const Ct__ServeParameter *p, const ct_source_map *map,
                             const ct_shape *input, ct_pictures **p_p);
void ct_pictures_destroy(ct_pictures *p); /* NULL allowed */
/** A picture, and what of it the net gets. */
typedef struct ct_picture_frame {
    int64_t height, width; /* pixels of the file, the right way up */
    ct_image_part shown;   /* the part that the Input shows; may reach out of the picture */
} ct_picture_frame;

/** Fills to[C][H][W]. Quiet: CT_ERR_CONFIG (a kind that is not known here), CT_ERR_DATA (damaged,
 *  too large, too small), CT_ERR_NOMEM with why. */
ct_status ct_pictures_read(const ct_pictures *p, const char *file, size_t size, float *to,
                           ct_why *why);
/** The same of n crops (framework/data/crop.h) of one picture, one behind the other, in their
 *  order: to[n][C][H][W]. The file is decoded once.
 *
 *  n is 1, 2, 5 or 10. frame_p (NULL: not asked for) is that of the first. Mirroring and places are
 * those of a test with as many crops, so a net says the same of a picture here and there. Status as
 * of ct_pictures_read(). */
ct_status ct_pictures_read_crops(const ct_pictures *p, const char *file, size_t size, int n,
                                 float *to, ct_picture_frame *frame_p, ct_why *why);
/** CT_ERR_CONFIG, logged: boxes on the Input have no place on the picture, since a field of
 *  serve.transform_param takes a part of it that frames do not know. */
ct_status ct_pictures_check_boxes(const ct_pictures *p);
/** For a clear message before any file is read. CT_ERR_CONFIG, logged: n crops need pictures that
 * are cut, and these are not. */
ct_status ct_pictures_check_crops(const ct_pictures *p, int n);

#endif
