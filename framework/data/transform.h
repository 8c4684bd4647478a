/** @file transform.h  Caffe's transform_param: crop, mirror, mean, scale; lighting, erasing.
 *
 * value = (pixel - mean) * scale, where the mean is that of the pixel's place before cropping.
 * Where sizes are drawn as in NVIDIA's fork, it is the middle of mean_file, of the crop's size:
 * that of the place in the crop, before mirroring. In TRAIN the crop's place and the mirroring are
 * random, keyed by (seed, position of the sample in the endless stream). So they depend neither on
 * threads nor on the number of ranks. Two data layers that walk in step are cropped and mirrored
 * alike. In TEST the crop is the centre, or the crop of the sample (crop.h), whose places and
 * mirroring take the place of both. With `pad` (ours) a random crop may reach that many pixels out
 * of the sample, where values are 0, the mean (He et al., "Deep Residual Learning", 2016, section
 * 4.2: 4 pixels on CIFAR-10). In TRAIN `lighting` adds a colour to all pixels, drawn along the axes
 * in which colours of ImageNet vary (Krizhevsky et al., "ImageNet Classification", 2012, section
 * 4.1). `erase` sets a box of the output to 0, the mean (Zhong et al., "Random Erasing Data
 * Augmentation", 2017).
 */
#ifndef CT_TRANSFORM_H
#define CT_TRANSFORM_H

#include "framework/data/augment/boxes.h"
#include "framework/data/pack.h"
#include "framework/net/exec.h"
#include "framework/proto/cortado.pb-c.h"

typedef struct ct_transform ct_transform;

/** Height and width of the crop that p (NULL allowed) asks for, by crop_size or by crop_h and
 *  crop_w; false, and both 0, where it asks for none. */
bool ct_transform_crop(const Ct__TransformationParameter *p, int64_t *height_p, int64_t *width_p);
/** p NULL: values go through as they are. who: in front of messages. Reads mean_file.
 *  CT_ERR_CONFIG: fields that contradict each other; CT_ERR_IO, CT_ERR_DATA: the mean file. */
ct_status ct_transform_create(const Ct__TransformationParameter *p, ct_phase phase, const char *who,
                              ct_transform **transform_p);
void ct_transform_destroy(ct_transform *t); /* NULL allowed */
/** The shape that a sample of shape `in` comes out with. Quiet: CT_ERR_DATA (smaller than the crop,
 *  another shape than the mean's) or CT_ERR_CONFIG (does not apply to this shape) with why. */
ct_status ct_transform_shape(const ct_transform *t, const ct_shape *in, ct_shape *out_p,
                             ct_why *why);
/** Transforms field 0 of a sample whose shape ct_transform_shape() accepted. position: of the
 *  sample in the stream. out: as many floats as the shape says. */
void ct_transform_apply(const ct_transform *t, const ct_sample *sample, uint64_t seed,
                        int64_t position, float *out);
/** What the same crop and mirroring do to the sample's boxes; shape: that of the sample. */
void ct_transform_boxes(const ct_transform *t, const ct_shape *shape, uint64_t seed,
                        int64_t position, ct_boxes *boxes);
/** The part of a sample of this shape that the crop of phase TEST takes; all of it without one. */
ct_image_part ct_transform_part(const ct_transform *t, const ct_shape *shape);
/** Whether ct_transform_pack() can do it: a device knows neither lighting nor erasing, nor a
 *  mean of the crop. */
bool ct_transform_packs(const ct_transform *t);
/** The same but for the arithmetic, which pack.h says: the sample's window as `wide` has it, and
 *  where it lies. False, and nothing is written, where a sample of floats meets a batch of bytes.
 */
bool ct_transform_pack(const ct_transform *t, const ct_sample *sample, uint64_t seed,
                       int64_t position, bool wide, ct_pack_place *place_p, void *out);
/** What is left to do; mean lies on the host and is the transform's. */
ct_pack_rule ct_transform_rule(const ct_transform *t);

/** Reads and writes a BlobProto file (a mean). mean_p is freed with ct_mem_release(). Logged. */
ct_status ct_mean_read(const char *path, const char *who, ct_shape *shape_p, float **mean_p);
ct_status ct_mean_write(const char *path, const ct_shape *shape, const float *mean);

#endif
