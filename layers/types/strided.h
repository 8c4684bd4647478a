/** @file strided.h  Copies between arrays of any strides: what layers that only move values are
 * made of (Slice, Crop, Tile, Permute, ShuffleChannel). Private to layers/. */
#ifndef CT_STRIDED_H
#define CT_STRIDED_H

#include "framework/net/layer.h"

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

#endif
