/** @file tensor.h  N-d array = device + dtype + logical shape + storage layout.
 *
 * shape.dim[] is always in logical order (N, C, H, W), whatever the layout: layers reason about
 * shapes, only kernels and conversions look at the layout. A tensor is a view: whoever made the
 * memory (an arena, the net's memory plan, a test) owns it.
 */
#ifndef CT_TENSOR_H
#define CT_TENSOR_H

#include <stdbool.h>
#include <stdint.h>

#include "framework/base/status.h"
#include "framework/tensor/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- A shape is a value: up to eight dimensions, 64-bit, in logical order */

#define CT_MAX_DIM 8

typedef struct ct_shape {
    int ndim; /* 0: a scalar, one element */
    int64_t dim[CT_MAX_DIM];
} ct_shape;

/** Product of dim[from..to); to < 0: to the end. 1 for an empty range. */
static inline int64_t ct_shape_count(const ct_shape *s, int from, int to)
{
    int64_t n = 1;

    if (to < 0) to = s->ndim;
    for (int i = from; i < to; i++) n *= s->dim[i];
    return n;
}

static inline bool ct_shape_equal(const ct_shape *a, const ct_shape *b)
{
    if (a->ndim != b->ndim) return false;
    for (int i = 0; i < a->ndim; i++) {
        if (a->dim[i] != b->dim[i]) return false;
    }
    return true;
}

/** Dimension i of Caffe's legacy (num, channels, height, width) view: 1 beyond ndim. */
static inline int64_t ct_shape_legacy(const ct_shape *s, int i)
{
    return (i < s->ndim) ? s->dim[i] : 1;
}

/** axis as in Caffe: negative counts from the end. False where it is outside [-ndim, ndim). */
static inline bool ct_shape_axis(const ct_shape *s, int axis, int *index_p)
{
    int index = (axis < 0) ? axis + s->ndim : axis;

    if ((index < 0) || (index >= s->ndim)) return false;
    *index_p = index;
    return true;
}

/** a * b of numbers that a file gave, both at least 0; too large: the largest number, which no
 *  valid shape has. */
static inline int64_t ct_dim_mul(int64_t a, int64_t b)
{
    int64_t product;

    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

typedef struct ct_shape_text {
    char text[160];
} ct_shape_text;

/** "64 1 28 28 (50176)", as Caffe logs shapes. */
ct_shape_text ct_shape_str(const ct_shape *s);
/** False where a dimension is negative, or where any dimensions multiplied come near 2^62. */
bool ct_shape_is_valid(const ct_shape *s);

/* ---- A part of a whole array: of one axis some ranges, of the others all. Parts lie as arrays of
 * their own, in plain order. */

enum { CT_MAX_RANGE = 4 };

typedef struct ct_range {
    int64_t first, count;
} ct_range;

/** Part `index` of n things in `count` parts, uneven by at most one: the first have one more. */
ct_range ct_range_of(int64_t n, int index, int count);

typedef struct ct_cut {
    int n_range; /* 0: the part is the whole */
    int axis;
    ct_range range[CT_MAX_RANGE]; /* in this order in the part */
    ct_shape whole;
} ct_cut;

/** What lies together in both: `count` elements from these on. */
typedef struct ct_cut_run {
    int64_t whole, part, count;
} ct_cut_run;

ct_shape ct_cut_shape(const ct_cut *c);
bool ct_cut_equal(const ct_cut *a, const ct_cut *b);
/** In the order of the part; run i of so many. */
int64_t ct_cut_runs(const ct_cut *c);
ct_cut_run ct_cut_run_at(const ct_cut *c, int64_t i);
/** Between arrays of f32, on the host; take also in place, where ranges ascend. Of `whole` put
 *  writes the part's elements alone. */
void ct_cut_take(const ct_cut *c, const float *whole, float *part);
void ct_cut_put(const ct_cut *c, const float *part, float *whole);

/* ---- tensors */

typedef enum { CT_F32, CT_BF16, CT_F16, CT_I32, CT_U8, CT_I64 } ct_dtype;

/** Order of the axes in memory, and how many channels stand together innermost.
 *
 * Blocked by b channels, memory is [N][C / b, rounded up][H][W][b]. What fills up the last block is
 * finite and means nothing: whoever reads lets it reach no channel that there is. */
typedef enum { CT_ORDER_NCHW, CT_ORDER_NHWC, CT_ORDER_HWCN } ct_order;
typedef struct ct_layout {
    ct_order order;
    int block; /* 0: plain; 4, 8, 16 …: channels blocked, e.g. NCHW16c */
} ct_layout;

static inline bool ct_layout_equal(ct_layout a, ct_layout b)
{
    return (a.order == b.order) && (a.block == b.block);
}

typedef struct ct_tensor {
    const ct_device *dev; /* borrowed, static           */
    void *data;           /* on dev; NULL: not placed   */
    ct_dtype dtype;
    ct_layout layout;
    ct_shape shape;
} ct_tensor;

/** Whether t is as every layer takes it: f32 in plain order. */
static inline bool ct_tensor_is_usual(const ct_tensor *t)
{
    return (t->dtype == CT_F32) && (t->layout.order == CT_ORDER_NCHW) && (t->layout.block == 0);
}

/** What flows between layers: values and, where wanted, the gradient of the loss by them. */
typedef struct ct_blob {
    const char *name; /* borrowed; for messages                                        */
    ct_tensor data;
    ct_tensor diff;      /* same shape; diff.data == NULL at run time: no gradient wanted  */
    bool wants_diff;     /* known before memory is placed: shape functions ask this        */
    bool varies;         /* its shape changes from batch to batch; before the first: the largest  */
    bool restarts_first; /* it is 1 but in row 0: cont of sequences that only begin with a batch.
                          * Reshape of who makes it says so                                   */
    int64_t ids; /* whole numbers below it; 0: nobody said. Reshape of who makes it says so   */
} ct_blob;

size_t ct_dtype_size(ct_dtype dtype);
/** Elements of t. */
static inline int64_t ct_tensor_count(const ct_tensor *t)
{
    return ct_shape_count(&t->shape, 0, -1);
}
/** Bytes of t in its dtype and layout. */
size_t ct_tensor_bytes(const ct_tensor *t);
/** Elements in memory: more than ct_tensor_count() where channels fill up a block. */
int64_t ct_tensor_stored(const ct_tensor *t);
/** Memory of t in words of 4 bytes, for copies. An odd number of 16 bits is rounded up: what the
 *  net places begins at multiples of CT_ALIGN. */
static inline int64_t ct_tensor_words(const ct_tensor *t)
{
    return (int64_t)((ct_tensor_bytes(t) + sizeof(float) - 1) / sizeof(float));
}

/** Gives both halves of b this shape, f32 in plain NCHW order. The memory is placed later. */
void ct_blob_set_shape(ct_blob *b, const ct_shape *shape);
/** The same in another layout; plain order where blocks lie in memory just so. */
void ct_blob_set_layout(ct_blob *b, const ct_shape *shape, ct_layout layout);
/** The same in another dtype, too: CT_F32, or CT_BF16 (on devices CT_F16, too) where all who read
 * it know that. */
void ct_blob_set_storage(ct_blob *b, const ct_shape *shape, ct_layout layout, ct_dtype dtype);
/** Layout and dtype of `like`: for tops of layers that only pass over what they are given. */
static inline void ct_blob_set_like(ct_blob *b, const ct_shape *shape, const ct_tensor *like)
{
    ct_blob_set_storage(b, shape, like->layout, like->dtype);
}
/** Whether values and gradients of b are bf16: memory is 2 bytes an element then, whatever the type
 *  of the pointer that ct_blob_data() and ct_blob_diff() give (framework/base/bf16.h). */
static inline bool ct_blob_is_bf16(const ct_blob *b)
{
    return b->data.dtype == CT_BF16;
}
/** Whether channels of b come last, which values of 16 bits have on devices, and they alone. */
static inline bool ct_blob_is_last(const ct_blob *b)
{
    return b->data.layout.order == CT_ORDER_NHWC;
}
static inline float *ct_blob_data(const ct_blob *b)
{
    return (float *)b->data.data;
}
/** NULL where no gradient is wanted. */
static inline float *ct_blob_diff(const ct_blob *b)
{
    return (float *)b->diff.data;
}

/* ---- Between plain and blocked order of channels (above), on the CPU. Plain order
 * is f32; blocks may be bf16, to which numbers are rounded. */

/** plain[n][c][s] from blocked[n][c / block, rounded up][s][block]. */
void ct_reorder_to_plain(int64_t n, int64_t c, int64_t s, int block, const float *blocked,
                         float *plain);
/** The other way; what fills up the last block becomes 0. */
void ct_reorder_to_blocked(int64_t n, int64_t c, int64_t s, int block, const float *plain,
                           float *blocked);
/** The same for blocks of bf16 numbers. */
void ct_reorder_to_plain_bf16(int64_t n, int64_t c, int64_t s, int block, const void *blocked,
                              float *plain);
void ct_reorder_to_blocked_bf16(int64_t n, int64_t c, int64_t s, int block, const float *plain,
                                void *blocked);

#ifdef __cplusplus
}
#endif

#endif
