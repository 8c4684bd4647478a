/** @file batch_norm.h  Kernels of batch normalisation, and the table they are chosen from.
 *
 * x is n x channels x spatial; statistics run over n and spatial (Ioffe and Szegedy 2015). What may
 * follow in the same pass is a tail, as in framework/net/layer.h:
 *   normal = (x - mean[c]) inv_std[c],  z = normal scale[c] + bias[c] + add,  y = z or relu(z).
 * All calls take channels [from, to), where from and to are multiples of the block or the end, so
 * that what one pass read is still near in the next. Vectors of the channels are given whole.
 */
#ifndef CT_BATCH_NORM_H
#define CT_BATCH_NORM_H

#include "framework/tensor/device.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct ct_batch_norm_desc {
    ct_device_kind device;
    int64_t n, channels, spatial;
    int block; /* channels that stand together, as in tensor.h; 0: plain order */
    bool bf16; /* x, y, add, normal, dy, g and dx; in blocks alone             */
} ct_batch_norm_desc;

enum { CT_BATCH_NORM_MAX_DY = 4 };

typedef struct ct_batch_norm_map {
    const float *x, *mean, *inv_std;
    const float *scale, *bias; /* channels; NULL: 1, 0 */
    const float *add;          /* as x; NULL: 0        */
    bool relu;
    float *y;      /* may be x or add */
    float *normal; /* may be NULL     */
} ct_batch_norm_map;

typedef struct ct_batch_norm_back {
    ct_batch_norm_map map; /* of the forward. y: what it made, read where there is relu and add;
                            * mean NULL: x is normal already */
    const float *dy[CT_BATCH_NORM_MAX_DY]; /* gradients of y, added up in this order */
    int n_dy;
    bool fixed;        /* mean and inv_std do not depend on x                                */
    float *g;          /* gradient of z, that is of add; NULL: not wanted. May be a dy or dx */
    float *dx;         /* NULL: not wanted. May be a dy                                      */
    double *sum, *dot; /* channels: sums of g, of g normal                                   */
} ct_batch_norm_back;

typedef struct ct_batch_norm_engine {
    const char *name;
    bool (*supports)(const ct_batch_norm_desc *d);
    /** mean[c], and var[c] = E (x - mean)^2, not corrected for the sample's size. */
    void (*statistics)(const ct_batch_norm_desc *d, int64_t from, int64_t to, const float *x,
                       float *mean, float *var);
    void (*apply)(const ct_batch_norm_desc *d, int64_t from, int64_t to,
                  const ct_batch_norm_map *m);
    /** With dn = g scale: dx = (dn - E dn - normal E(dn normal)) inv_std[c], or dn inv_std[c] where
     *  the statistics are fixed. */
    void (*backward)(const ct_batch_norm_desc *d, int64_t from, int64_t to,
                     const ct_batch_norm_back *b);
} ct_batch_norm_engine;

/** On CUDA the layers have forms of their own (layers/cuda), which run these kernels differently.
 */
extern const ct_batch_norm_engine ct_batch_norm_cuda;
extern const ct_batch_norm_engine ct_batch_norm_omp, ct_batch_norm_blocked, ct_batch_norm_ref;
/** Best first, the reference last; NULL-terminated. */
extern const ct_batch_norm_engine *const ct_batch_norm_table[];

/** The first engine that supports d; NULL: none. */
const ct_batch_norm_engine *ct_batch_norm_choose(const ct_batch_norm_desc *d);
/** Channels to do at a time, so that `arrays` of them stay in a shared cache: a multiple of the
 *  block. */
int64_t ct_batch_norm_piece(const ct_batch_norm_desc *d, int arrays);

#endif
