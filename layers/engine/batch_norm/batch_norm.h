/** @file batch_norm.h  Kernels of batch normalisation, and the table they are chosen from.
 *
 * x is n x channels x spatial; statistics run over n and spatial (Ioffe and Szegedy 2015). What may
 * follow in the same pass is a tail, as in framework/net/layer.h:
 *   normal = (x - mean[c]) inv_std[c],  z = normal scale[c] + bias[c] + add,  y = z or relu(z).
 * All calls take channels [from, to), where from and to are multiples of the block or the end, so
 * that what one pass read is still near in the next. Vectors of the channels are given whole.
 */
#ifndef CT_ENGINE_BATCH_NORM_BATCH_NORM_H
#define CT_ENGINE_BATCH_NORM_BATCH_NORM_H

#include <stdbool.h>
#include <stdint.h>

#include "framework/tensor/device.h"
#include "layers/engine/engine.h"

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

/* ---- Batch normalisation on devices with the tail that it runs, whole passes at
 * a time: the table that engines are chosen from, by name or by timing. The maths is
 * batch_norm.h's.
 */

typedef struct ct_device_norm_desc {
    ct_device_kind device;
    ct_dtype dtype;  /* of all that has places; the rest is f32 */
    int64_t n, c, s; /* samples, channels, places of each       */
    bool last;       /* channels come last                      */
    bool in_place;   /* y is x, and dx is dy                    */
    bool fixed;      /* statistics are given, not the batch's   */
    float eps;
    bool affine, add, relu; /* the tail                                             */
    bool by_top;            /* backward: whether the ReLU passed is read from y, not made again */
    int n_dy;               /* gradients of y                                                 */
    bool wants_g;           /* the gradient of `add`                                          */
    bool wants_dx;          /* of x                                                           */
} ct_device_norm_desc;

/** Vectors have c numbers. `back.map` is forward's; its mean and inv_std are these. */
typedef struct ct_device_norm_args {
    ct_batch_norm_back back;
    float *mean, *inv_std; /* what x is normalised by: forward writes, backward reads them */
    /* Forward: sums that decay, as Caffe's layer keeps them. Fixed statistics are moving_mean and
     * moving_var over factor[0], or 0 where that is. Otherwise each becomes decay times itself plus
     * the batch's, the factor plus 1. Of the variance, over m values, m / (m - 1) of the batch's is
     * added. */
    float *moving_mean, *moving_var, *factor;
    float decay;
    float *scale_diff, *bias_diff; /* backward: of the tail's weights; NULL: not wanted */
    bool add_scale, add_bias;      /* to what is there */
    void *work;
} ct_device_norm_args;

/** In ct_device_norm_impl.can. Of forward: its y can be made again from x with mean and inv_std, so
 *  backward need not read it; of backward: dx may be a dy. */
enum { CT_DEVICE_NORM_REMADE = 1, CT_DEVICE_NORM_OVER = 2 };

CT_ENGINE_TIMED(device_norm)

extern const ct_device_norm_impl ct_device_norm_cuda_forward, ct_device_norm_cuda_backward;
extern const ct_device_norm_impl ct_device_norm_cudnn_forward, ct_device_norm_cudnn_backward;
extern const ct_device_norm_impl *const ct_device_norm_forward_table[];
extern const ct_device_norm_impl *const ct_device_norm_backward_table[];

#endif
