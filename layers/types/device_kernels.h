/** @file device_kernels.h  What many layers are made of, on the device of an execution; private to
 * layers/. */
#ifndef CT_TYPES_DEVICE_KERNELS_H
#define CT_TYPES_DEVICE_KERNELS_H

#include "framework/net/layer.h"
#include "framework/data/pack.h"
#include "layers/layer_util.h"

/* ---- Copies between arrays of any strides: what layers that only move values
 * are made of (Slice, Crop, Tile, Permute, ShuffleChannel). */

enum { CT_MAX_STRIDED = CT_MAX_DIM + 1 };

/** Element (i_0, i_1, …) of dim[0] x dim[1] x … lies at first + sum of i_k step_k on either side.
 */
typedef struct ct_strided {
    int n;
    int64_t dim[CT_MAX_STRIDED];
    int64_t from[CT_MAX_STRIDED], to[CT_MAX_STRIDED]; /* steps, in elements */
    int64_t from_first, to_first;
} ct_strided;

/** Appends an axis. */
void ct_strided_axis(ct_strided *s, int64_t dim, int64_t from, int64_t to);
/** The elements of shape `part`, densely on the side `to`, out of an array of shape `whole`, from
 *  place at[] on; both of the same number of axes. */
ct_strided ct_strided_part(const ct_shape *whole, const ct_shape *part, const int64_t *at);
/** The same copy the other way. */
ct_strided ct_strided_turn(const ct_strided *s);
/** Copies. Threads share the work; no element of `to` may occur twice. */
void ct_strided_copy(const ct_strided *s, const float *from, float *to);

/* ---- layers that copy their one bottom's elements to their tops */

/** What goes from bottom 0 to top t, in shapes that are known. */
typedef void (*ct_move_fn)(const ct_instance *in, int t, ct_strided *s);

/** forward: every top from its elements of the bottom. */
ct_status ct_move_forward(const ct_instance *in, ct_exec *ex, ct_move_fn plan);
/** backward of elements that each go to one top at most; `partly`: those that go to none get 0. */
ct_status ct_move_backward(const ct_instance *in, ct_exec *ex, ct_move_fn plan, bool partly);

/* ---- What many layers are made of, on the device of an execution.
 *
 * A layer that calls only these, the device's mathematics and its copies runs on every device as it
 * stands. */

typedef struct ct_device_kernels {
    ct_device_kind device;
    /** As ct_strided_copy(), ct_view_affine(), ct_view_dot(); of devices in plain order alone. */
    ct_status (*strided)(ct_exec *ex, const ct_strided *s, const float *from, float *to);
    ct_status (*affine)(ct_exec *ex, const ct_view *v, const float *x, const float *scale,
                        const float *bias, float *y);
    ct_status (*dot)(ct_exec *ex, const ct_view *v, const float *a, const float *b, bool add,
                     float *out);
    /** As ct_view_scale_back(); NULL: by the two before it. */
    ct_status (*scale_back)(ct_exec *ex, const ct_view *v, const ct_scale_back *a);
    /** As layers/engine/recurrent/recurrent.h says; y[m x n] rows of b; sum over t of x[t][n]. */
    ct_status (*lstm_step)(ct_exec *ex, int64_t n, int64_t hidden, const float *cont,
                           const float *c_before, float *gates, float *c, float *h);
    ct_status (*lstm_step_backward)(ct_exec *ex, int64_t n, int64_t hidden, const float *cont,
                                    const float *c_before, const float *gates, const float *c,
                                    const float *top, const float *more, float *dc, float *d_gates);
    ct_status (*rows_cont)(ct_exec *ex, int64_t n, int64_t hidden, const float *cont,
                           const float *x, float *y);
    ct_status (*tanh_forward)(ct_exec *ex, int64_t n, const float *x, float *y);
    ct_status (*tanh_backward)(ct_exec *ex, int64_t n, const float *y, const float *dy, float *dx);
    ct_status (*fill_rows)(ct_exec *ex, int64_t m, int64_t n, const float *b, float *y);
    ct_status (*sum_steps)(ct_exec *ex, int64_t steps, int64_t n, const float *x, float *sum);
    /** x[n][s][c] of a dtype to y[n][c][s] of the same or of f32, and back: channels that come
     * last. */
    ct_status (*last_to_plain)(ct_exec *ex, int64_t n, int64_t c, int64_t s, ct_dtype type,
                               const float *x, ct_dtype to, float *y);
    ct_status (*plain_to_last)(ct_exec *ex, int64_t n, int64_t c, int64_t s, ct_dtype from,
                               const float *x, ct_dtype type, float *y);
    /** y[i] = x[i], of n numbers of other types. */
    ct_status (*convert)(ct_exec *ex, int64_t n, ct_dtype from, const float *x, ct_dtype to,
                         float *y);
    /** y[m x n], of 16 bits, = x + bias in each row (NULL: none), 0 where that is below with relu;
     * n is a multiple of 8. */
    ct_status (*round_rows)(ct_exec *ex, int64_t m, int64_t n, const float *x, const float *bias,
                            bool relu, ct_dtype type, float *y);
    /** y = a + b, of a dtype; y may be a. */
    ct_status (*add)(ct_exec *ex, int64_t n, ct_dtype type, const float *a, const float *b,
                     float *y);
    /** Field 0 of a packed batch, transformed: framework/data/pack.h. NULL: the host does that. */
    ct_status (*unpack)(ct_exec *ex, const ct_pack *pack, const ct_pack_rule *rule,
                        const void *block, float *y);
} ct_device_kernels;

extern const ct_device_kernels ct_kernels_cpu, ct_kernels_cuda;

/** Those of ex->dev. */
const ct_device_kernels *ct_kernels(const ct_exec *ex);

#endif
