/** @file layer_util.h  What several layers share; private to layers/. */
#ifndef CT_LAYER_UTIL_H
#define CT_LAYER_UTIL_H

#include "framework/net/layer.h"

/** Loops over fewer elements run on one thread: waking the team costs more. */
enum { CT_PARALLEL_MIN = 8192 };

/** Resolves a prototxt axis against s, negative ones from the end. CT_ERR_CONFIG, logged with the
 *  field's name. */
ct_status ct_layer_axis(const ct_layer *l, const ct_shape *s, int axis, const char *field,
                        int *index_p);

/** to[0..n) = from, nothing where they are the same memory. */
ct_status ct_device_copy(ct_exec *ex, int64_t n, const float *from, float *to);
ct_status ct_device_zero(ct_exec *ex, int64_t n, float *to);

/** forward and backward of layers whose top has the bottom's values in the same order, in another
 *  shape: a copy, which costs nothing where the two lie in one place. */
ct_status ct_layer_copy_forward(const ct_layer *l, ct_instance *in, ct_exec *ex);
ct_status ct_layer_copy_backward(const ct_layer *l, ct_instance *in, ct_exec *ex);

/** CT_SPLIT_TOKEN of a layer that works along axes from this one of its prototxt on, where tokens,
 *  axis 1, lie before them; else 0. */
static inline unsigned ct_splits_behind_tokens(int axis)
{
    return ((axis == -1) || (axis > 1)) ? CT_SPLIT_TOKEN : 0;
}

/** Of layers that work on each element, or along axes behind the second one, whatever their
 *  parameters. */
extern const ct_sequence_ops ct_sequence_apart;

/** A blob seen as outer x mid x inner around the axes [axis, axis + n_axis). */
typedef struct ct_view {
    int64_t outer, mid, inner;
    int block;      /* mid in blocks, as channels are in tensor.h; 0: plain order */
    ct_dtype dtype; /* of the large arrays of ct_view_affine() and ct_view_dot(): in blocks bf16,
                     * and on devices bf16 and f16, besides f32 */
} ct_view;

ct_view ct_view_make(const ct_shape *s, int axis, int n_axis);

/** setup of Bias and Scale: a blob that covers `num_axes` axes of `bottom` from `axis` on (-1: to
 *  the end; 0: a scalar, whatever the axis), and what of it the layer has. CT_ERR_CONFIG, logged.
 */
ct_status ct_layer_broadcast_cut(const ct_layer *l, const ct_shape *bottom, int axis, int num_axes,
                                 ct_cut *cut_p);
/** reshape of Bias and Scale: how a blob of shape `small` lies on `bottom` from `axis` on.
 *  CT_ERR_SHAPE, logged, where it does not fit. */
ct_status ct_layer_broadcast_view(const ct_layer *l, const ct_shape *bottom, const ct_shape *small,
                                  int axis, ct_view *view_p);

/** Bottoms of an Eltwise at most whose channels come last. */
enum { CT_ELTWISE_LAST = 8 };
/** Gives a view along the channels of b the dtype of b, and turns it where they come last. */
void ct_layer_view_last(const ct_blob *b, ct_view *view_p);
/** Whether b has channels in blocks, of a width that layers here know. */
bool ct_layer_takes_block(const ct_blob *b);
/** Whether b is in plain order, f32 or bf16: rows of numbers. */
bool ct_layer_takes_rows(const ct_blob *b);
/** Of layers, in this order: those that take such blocks; those whose every bottom may be such
 * rows, all of one dtype; those that go element by element, in any order in f32, and over such
 * rows; those that go over any dtype in any order, channels last, too. */
extern const ct_layout_ops ct_layout_blocks, ct_layout_rows, ct_layout_each, ct_layout_all;
/** Whether a maker of rows of tokens had better make bf16 numbers: precision, place and readers. */
bool ct_layer_makes_tokens(const ct_layer *l, const ct_instance *in);
/** Whether `axis`, as in a prototxt, is that of the channels of s. */
bool ct_layer_is_channels(const ct_shape *s, int axis);

/** y[o][d][i] = x[o][d][i] scale[d] + bias[d]; scale NULL: 1, bias NULL: 0. y may be x. */
void ct_view_affine(const ct_view *v, const float *x, const float *scale, const float *bias,
                    float *y);
/** out[d] = sum over o, i of a[o][d][i] b[o][d][i], summed in double; b NULL: 1. add: out[d] is
 *  added to instead of overwritten. The same for any number of threads. */
void ct_view_dot(const ct_view *v, const float *a, const float *b, bool add, float *out);

/** Backward of ct_view_affine(): dscale = sums of dy x, dbias = sums of dy, dx = dy scale, as three
 *  of the calls above do, but in one pass where inner > 1. dbias, dx: NULL: unwanted; dx may be dy.
 *  Sums as of ct_view_dot(). */
typedef struct ct_scale_back {
    const float *x, *dy, *scale;
    bool add_scale, add_bias;
    float *dscale, *dbias, *dx;
} ct_scale_back;

void ct_view_scale_back(const ct_view *v, const ct_scale_back *a);

/** Numbers that setup made and passes read on l->dev, as *there_p: on the CPU `host` itself, else a
 * copy of its own. Undone by ct_layer_constant_release(), in destroy. */
ct_status ct_layer_constant(const ct_layer *l, const float *host, int64_t n, float **there_p);
void ct_layer_constant_release(const ct_layer *l, const float *host, float *there);

/** By a team; nothing where they are the same memory. */
void ct_copy_bytes(size_t bytes, const void *from, void *to);
/** to[i] = from[i]. */
static inline void ct_copy_f32(int64_t n, const float *from, float *to)
{
    ct_copy_bytes((size_t)n * sizeof(float), from, to);
}

/** reshape of layers that compare scores x with labels: one label for each of the outer x inner
 *  distributions of v. CT_ERR_SHAPE, logged. */
ct_status ct_layer_check_labels(const ct_layer *l, const ct_shape *x, const ct_shape *label,
                                const ct_view *v);

/** Whether labels are distributions over the classes of scores x, `v->mid` of them: without axes of
 *  1 they have the shape of the scores, where one label for each distribution would be less. Of no
 *  samples, too. */
bool ct_labels_are_distributions(const ct_shape *x, const ct_shape *label, const ct_view *v);
/** reshape of layers that take such labels. CT_ERR_CONFIG, logged: not on this device. */
ct_status ct_layer_check_distributions(const ct_layer *l);

/** The label of a sample as a class: true and the class where `value` is a whole number in
 *  [0, n_class), false otherwise (NaN included). */
static inline bool ct_label_class(float value, int64_t n_class, int32_t *class_p)
{
    if (!((value >= 0.0f) && (value < (float)n_class)) || (value != (float)(int32_t)value))
        return false;
    *class_p = (int32_t)value;
    return true;
}

/** Whole numbers that a buffer for m row indices below n needs: on devices backward finds the rows
 * of an index in order of the batch. */
static inline size_t ct_index_ints(const ct_layer *l, int64_t m, int64_t n)
{
    return (size_t)((l->dev->kind == CT_DEVICE_CPU) ? m : 2 * m + n + 1);
}

/** Row index[i] of to += row i of from[m x n], in the order of i; the same for any number of
 * threads. Nothing where index[i] < 0. */
void ct_rows_add(int64_t m, int64_t n, const int32_t *index, const float *from, float *to);

/** Logs a label that ct_label_class() refused and evaluates to CT_ERR_DATA. at: index of the
 *  label in its blob, of which a sample has `per_sample`. */
ct_status ct_label_fail(const ct_layer *l, const ct_exec *ex, float value, int64_t at,
                        int64_t per_sample, int64_t n_class);
/** Elements of a sample in a blob of indices, where axis 0 counts the batch's samples; where axis 1
 *  does, as behind TextData, minus that axis. */
int64_t ct_index_per_sample(const ct_shape *x, const ct_exec *ex);
/** Of an index that is not below n. per_sample: as above. */
ct_status ct_index_fail(const ct_layer *l, const ct_exec *ex, float value, int64_t at,
                        int64_t per_sample, int64_t n);

/* ---- Sums and affine maps along the channels of blocked arrays.
 *
 * x[outer][mid / block, rounded up][inner][block]; vectors of the channels have mid elements. What
 * fills up the last block is read and written, and counts for nothing. No result depends on the
 * number of threads. */

enum { CT_BLOCK_MAX = 16, CT_BLOCKED_GROUP = 16 };

typedef struct ct_blocked {
    int64_t outer, mid, inner;
    int block; /* at most CT_BLOCK_MAX */
    bool bf16; /* x and y, a and b     */
} ct_blocked;

/** y = x scale + bias; NULL: 1, 0. y may be x. */
void ct_blocked_affine(const ct_blocked *v, const float *x, const float *scale, const float *bias,
                       float *y);

/** What one image's block of channels adds to each channel's two sums: x[inner][block], or several
 *  such arrays that ctx knows of; `at`: of its first element in the whole array. */
typedef void (*ct_blocked_fn)(const void *ctx, int64_t k, int64_t at, int64_t inner, int block,
                              double *first, double *second);
/** The two sums of the channels of blocks [from, to), at most CT_BLOCKED_GROUP of them:
 *  first, second [(to - from) block]. */
void ct_blocked_sums(const ct_blocked *v, int64_t from, int64_t to, ct_blocked_fn add,
                     const void *ctx, double *first, double *second);
/** out[c] = the first sum of channel c. add: added to out. */
void ct_blocked_total(const ct_blocked *v, ct_blocked_fn fn, const void *ctx, bool add, float *out);
/** out[c] = sum of a b over channel c, in double; b NULL: 1. add: added to out. */
void ct_blocked_dot(const ct_blocked *v, const float *a, const float *b, bool add, float *out);

static inline int64_t ct_blocked_n(const ct_blocked *v)
{
    return (v->mid + v->block - 1) / v->block;
}

/** Channels of block k that there are. */
static inline int ct_blocked_used(const ct_blocked *v, int64_t k)
{
    int64_t rest = v->mid - k * v->block;

    return (int)((rest < v->block) ? rest : v->block);
}

/** to[block] = channels of block k of a vector; `rest` where there is none. from NULL: rest. */
static inline void ct_blocked_pick(const ct_blocked *v, int64_t k, const float *from, float rest,
                                   float *to)
{
    int used = (from != NULL) ? ct_blocked_used(v, k) : 0;

    for (int i = 0; i < used; i++) to[i] = from[k * v->block + i];
    for (int i = used; i < v->block; i++) to[i] = rest;
}

#endif
