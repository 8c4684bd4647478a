#include "layers/layer_util.h"

#include <string.h>

#include "framework/base/memory.h"
#include "framework/base/bf16.h"
#include "framework/base/simd.h"
#include "framework/base/task_loop.h"

bool ct_layer_takes_block(const ct_blob *b)
{
    return (b->data.layout.order == CT_ORDER_NCHW) && (b->data.layout.block > 0) &&
           (b->data.layout.block <= CT_BLOCK_MAX);
}

static bool takes_blocks(const Ct__LayerParameter *p, const ct_blob *const *bottom, int slot)
{
    (void)p;
    return ct_layer_takes_block(bottom[slot]);
}

bool ct_layer_takes_rows(const ct_blob *b)
{
    return (b->data.layout.order == CT_ORDER_NCHW) && (b->data.layout.block == 0);
}

static bool takes_rows(const Ct__LayerParameter *p, const ct_blob *const *bottom, int slot)
{
    if (!ct_layer_takes_rows(bottom[slot])) return false;
    for (size_t i = 0; i < p->n_bottom; i++) {
        if (bottom[i]->data.dtype != bottom[slot]->data.dtype) return false;
    }
    return true;
}

static bool takes_each(const Ct__LayerParameter *p, const ct_blob *const *bottom, int slot)
{
    (void)p;
    return !ct_blob_is_bf16(bottom[slot]) || ct_layer_takes_rows(bottom[slot]);
}

static bool takes_all(const Ct__LayerParameter *p, const ct_blob *const *bottom, int slot)
{
    (void)p, (void)bottom, (void)slot;
    return true;
}

const ct_sequence_ops ct_sequence_apart = { .apart = NULL };

const ct_layout_ops ct_layout_blocks = { .takes = takes_blocks };
const ct_layout_ops ct_layout_rows = { .takes = takes_rows, .bf16 = true, .tokens = true };
const ct_layout_ops ct_layout_each = { .takes = takes_each, .bf16 = true, .tokens = true };
const ct_layout_ops ct_layout_all = {
    .takes = takes_all, .last = true, .bf16 = true, .tokens = true
};

bool ct_layer_makes_tokens(const ct_layer *l, const ct_instance *in)
{
    return in->read_tokens && (l->dev->kind == CT_DEVICE_CPU) && (l->env != NULL) &&
           (l->env->precision == CT__SOLVER_PARAMETER__PRECISION__BF16);
}

ct_status ct_device_copy(ct_exec *ex, int64_t n, const float *from, float *to)
{
    if (ex->dev->kind == CT_DEVICE_CPU) {
        ct_copy_f32(n, from, to);
        return CT_OK;
    }
    return ((from == to) || (n == 0))
               ? CT_OK
               : ex->dev->copy(ex->stream, to, from, (size_t)n * sizeof(*to));
}

ct_status ct_device_zero(ct_exec *ex, int64_t n, float *to)
{
    return ex->dev->zero(ex->stream, to, (size_t)n * sizeof(*to));
}

ct_status ct_layer_copy_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)l;
    return ct_device_copy(ex, ct_tensor_count(&in->bottom[0]->data), ct_blob_data(in->bottom[0]),
                          ct_blob_data(in->top[0]));
}

ct_status ct_layer_copy_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)l;
    if (ct_blob_diff(in->bottom[0]) == NULL) return CT_OK;
    return ct_device_copy(ex, ct_tensor_count(&in->bottom[0]->data), ct_blob_diff(in->top[0]),
                          ct_blob_diff(in->bottom[0]));
}

void ct_layer_view_last(const ct_blob *b, ct_view *view_p)
{
    view_p->dtype = b->data.dtype;
    if (!ct_blob_is_last(b)) return;
    view_p->outer *= view_p->inner;
    view_p->inner = 1;
}

bool ct_layer_is_channels(const ct_shape *s, int axis)
{
    int index;

    return ct_shape_axis(s, axis, &index) && (index == 1);
}

ct_status ct_layer_axis(const ct_layer *l, const ct_shape *s, int axis, const char *field,
                        int *index_p)
{
    if (!ct_shape_axis(s, axis, index_p))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "%s %d is outside the bottom's %d dimensions: %s",
                             field, axis, s->ndim, ct_shape_str(s).text);
    return CT_OK;
}

ct_view ct_view_make(const ct_shape *s, int axis, int n_axis)
{
    return (ct_view){ ct_shape_count(s, 0, axis), ct_shape_count(s, axis, axis + n_axis),
                      ct_shape_count(s, axis + n_axis, -1), 0, CT_F32 };
}

static ct_status broadcast_shape(const ct_layer *l, const ct_shape *bottom, int axis, int num_axes,
                                 int *from_p, ct_shape *shape_p)
{
    ct_shape shape = { 0 };
    int from = 0, to;

    if (num_axes < -1)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "num_axes %d is below -1, which means all",
                             num_axes);
    if (num_axes != 0) CT_TRY(ct_layer_axis(l, bottom, axis, "axis", &from));
    if (num_axes > bottom->ndim - from)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "%d axes from axis %d on do not fit into shape %s",
                             num_axes, from, ct_shape_str(bottom).text);
    to = (num_axes < 0) ? bottom->ndim : from + num_axes;
    for (int i = from; i < to; i++) shape.dim[shape.ndim++] = bottom->dim[i];
    *from_p = from;
    *shape_p = shape;
    return CT_OK;
}

ct_status ct_layer_broadcast_cut(const ct_layer *l, const ct_shape *bottom, int axis, int num_axes,
                                 ct_cut *cut_p)
{
    const Ct__LayerPart *part = ct_layer_narrowed(l);
    ct_shape whole = *bottom, shape;
    int at = 0, from;

    if ((part != NULL) && ct_layer_is_split(l, CT__PARALLEL_LAYER_PARAMETER__SPLIT__SEQUENCE)) {
        CT_TRY(broadcast_shape(l, bottom, axis, num_axes, &from, &shape));
        *cut_p = (ct_cut){ .whole = shape };
        return CT_OK;
    }
    if (part != NULL) {
        CT_TRY(ct_layer_axis(l, bottom, part->axis, "part.axis", &at));
        CT_TRY(ct_layer_widen(l, at, &whole));
    }
    CT_TRY(broadcast_shape(l, &whole, axis, num_axes, &from, &shape));
    if ((part != NULL) && ((l->n_bottom > 1) || (at < from) || (at >= from + shape.ndim)))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "it has no weight along axis %d, which parts are cut along", at);
    return ct_layer_cut(l, &shape, at - from, cut_p);
}

ct_status ct_layer_broadcast_view(const ct_layer *l, const ct_shape *bottom, const ct_shape *small,
                                  int axis, ct_view *view_p)
{
    int from = 0;
    bool fits;

    if (small->ndim > 0) CT_TRY(ct_layer_axis(l, bottom, axis, "axis", &from));
    fits = small->ndim <= bottom->ndim - from;
    for (int i = 0; fits && (i < small->ndim); i++) fits = small->dim[i] == bottom->dim[from + i];
    if (!fits)
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "shape %s does not fit on %s from axis %d on",
                             ct_shape_str(small).text, ct_shape_str(bottom).text, from);
    *view_p = ct_view_make(bottom, from, small->ndim);
    return CT_OK;
}

/* One row of the last axis that varies: with inner == 1 that is the scaled axis itself. */
static void affine_row(int64_t n, const float *x, const float *scale, const float *bias,
                       int64_t stride, float *y)
{
    float one = 1.0f, zero = 0.0f;
    const float *s = (scale != NULL) ? scale : &one, *b = (bias != NULL) ? bias : &zero;
    int64_t step_s = (scale != NULL) ? stride : 0, step_b = (bias != NULL) ? stride : 0;

#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = x[i] * s[i * step_s] + b[i * step_b];
}

void ct_view_affine(const ct_view *v, const float *x, const float *scale, const float *bias,
                    float *y)
{
    int64_t n_row = (v->inner == 1) ? v->outer : v->outer * v->mid;
    int64_t n = (v->inner == 1) ? v->mid : v->inner;
    bool along = v->inner == 1;

    if (v->block > 0) {
        ct_blocked_affine(
            &(ct_blocked){ v->outer, v->mid, v->inner, v->block, v->dtype == CT_BF16 }, x, scale,
            bias, y);
        return;
    }
#pragma omp parallel for schedule(static) if (n_row * n >= CT_PARALLEL_MIN)
    for (int64_t r = 0; r < n_row; r++) {
        int64_t d = along ? 0 : r % v->mid;

        affine_row(n, x + r * n, (scale != NULL) ? scale + d : NULL,
                   (bias != NULL) ? bias + d : NULL, along ? 1 : 0, y + r * n);
    }
}

/* Columns [from, to) of the outer x mid matrices a and b, row by row: memory is read in order. */
static void dot_columns(const ct_view *v, const float *a, const float *b, int64_t from, int64_t to,
                        double *sum)
{
    for (int64_t d = from; d < to; d++) sum[d - from] = 0;
    for (int64_t o = 0; o < v->outer; o++) {
        const float *ra = a + o * v->mid, *rb = (b != NULL) ? b + o * v->mid : NULL;

        for (int64_t d = from; d < to; d++)
            sum[d - from] += (double)ra[d] * ((rb != NULL) ? (double)rb[d] : 1.0);
    }
}

static double layer_util_dot_rows(const ct_view *v, const float *a, const float *b, int64_t d)
{
    double sum = 0;

    for (int64_t o = 0; o < v->outer; o++) {
        const float *ra = a + (o * v->mid + d) * v->inner;
        const float *rb = (b != NULL) ? b + (o * v->mid + d) * v->inner : NULL;

        if (rb != NULL) {
#pragma omp simd reduction(+ : sum)
            for (int64_t i = 0; i < v->inner; i++) sum += (double)ra[i] * (double)rb[i];
        } else {
#pragma omp simd reduction(+ : sum)
            for (int64_t i = 0; i < v->inner; i++) sum += (double)ra[i];
        }
    }
    return sum;
}

void ct_view_dot(const ct_view *v, const float *a, const float *b, bool add, float *out)
{
    enum { BLOCK = 64 };
    int64_t block = (v->inner == 1) ? BLOCK : 1, n_block = (v->mid + block - 1) / block;

    if (v->block > 0) {
        ct_blocked_dot(&(ct_blocked){ v->outer, v->mid, v->inner, v->block, v->dtype == CT_BF16 },
                       a, b, add, out);
        return;
    }
#pragma omp parallel for schedule(static) if (v->outer * v->mid * v->inner >= CT_PARALLEL_MIN)
    for (int64_t k = 0; k < n_block; k++) {
        int64_t from = k * block, to = (from + block < v->mid) ? from + block : v->mid;
        double sum[BLOCK];

        if (v->inner == 1)
            dot_columns(v, a, b, from, to, sum);
        else
            sum[0] = layer_util_dot_rows(v, a, b, from);
        for (int64_t d = from; d < to; d++)
            out[d] = (float)(sum[d - from] + (add ? (double)out[d] : 0.0));
    }
}

ct_status ct_layer_constant(const ct_layer *l, const float *host, int64_t n, float **there_p)
{
    void *there = NULL;
    ct_status status;

    if (l->dev->kind == CT_DEVICE_CPU) {
        *there_p = (float *)host;
        return CT_OK;
    }
    CT_TRY(l->dev->mem_acquire((size_t)n * sizeof(float), &there));
    status = l->dev->from_host(NULL, there, host, (size_t)n * sizeof(float));
    if (status == CT_OK)
        *there_p = there;
    else
        l->dev->mem_release(there);
    return status;
}

void ct_layer_constant_release(const ct_layer *l, const float *host, float *there)
{
    if ((there != NULL) && (there != host)) l->dev->mem_release(there);
}

/* A thread has columns of its own, so that every element is summed in the order of the batch. */
void ct_rows_add(int64_t m, int64_t n, const int32_t *index, const float *from, float *to)
{
    enum { COLUMNS = 64 };
    int64_t n_block = (n + COLUMNS - 1) / COLUMNS;

#pragma omp parallel for schedule(static) if (m * n >= CT_PARALLEL_MIN)
    for (int64_t k = 0; k < n_block; k++) {
        int64_t first = k * COLUMNS, last = (first + COLUMNS < n) ? first + COLUMNS : n;

        for (int64_t i = 0; i < m; i++) {
            float *row = to + index[i] * n;

            if (index[i] < 0) continue;
#pragma omp simd
            for (int64_t c = first; c < last; c++) row[c] += from[i * n + c];
        }
    }
}

void ct_copy_bytes(size_t bytes, const void *from, void *to)
{
    const size_t chunk = 1 << 16;
    int64_t n_chunk = (int64_t)((bytes + chunk - 1) / chunk);

    if ((from == to) || (bytes == 0)) return;
#pragma omp parallel for schedule(static) if (n_chunk > 1)
    for (int64_t c = 0; c < n_chunk; c++) {
        size_t at = (size_t)c * chunk, len = (at + chunk <= bytes) ? chunk : bytes - at;

        memcpy((char *)to + at, (const char *)from + at, len);
    }
}

ct_status ct_layer_check_labels(const ct_layer *l, const ct_shape *x, const ct_shape *label,
                                const ct_view *v)
{
    if (v->mid < 1)
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "no classes in shape %s", ct_shape_str(x).text);
    if (v->mid > INT32_MAX)
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "%lld classes are too many", (long long)v->mid);
    if ((label->ndim < 1) || (ct_shape_count(label, 0, -1) != v->outer * v->inner))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE,
                             "bottom 1 (labels) has shape %s, but scores of shape %s need %lld "
                             "labels, one for each distribution over %lld classes",
                             ct_shape_str(label).text, ct_shape_str(x).text,
                             (long long)(v->outer * v->inner), (long long)v->mid);
    return CT_OK;
}

bool ct_labels_are_distributions(const ct_shape *x, const ct_shape *label, const ct_view *v)
{
    return (v->mid > 1) && (label->ndim > 1) && (label->dim[0] == x->dim[0]) &&
           (ct_shape_count(label, 1, -1) == ct_shape_count(x, 1, -1));
}

ct_status ct_layer_check_distributions(const ct_layer *l)
{
    if (l->dev->kind == CT_DEVICE_CPU) return CT_OK;
    return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                         "labels that are distributions are not implemented on device %s",
                         l->dev->name);
}

ct_status ct_label_fail(const ct_layer *l, const ct_exec *ex, float value, int64_t at,
                        int64_t per_sample, int64_t n_class)
{
    return CT_LAYER_FAIL(l, CT_ERR_DATA,
                         "label %g of sample %lld of batch %lld is not a whole number in 0..%lld: "
                         "there are %lld classes",
                         (double)value,
                         (long long)(ex->batch_first + at / ((per_sample > 0) ? per_sample : 1)),
                         (long long)ex->micro_step, (long long)(n_class - 1), (long long)n_class);
}

int64_t ct_index_per_sample(const ct_shape *x, const ct_exec *ex)
{
    if ((x->ndim > 1) && (x->dim[0] != ex->batch_local) && (x->dim[1] == ex->batch_local))
        return -x->dim[1];
    return (x->dim[0] > 0) ? ct_shape_count(x, 0, -1) / x->dim[0] : 1;
}

ct_status ct_index_fail(const ct_layer *l, const ct_exec *ex, float value, int64_t at,
                        int64_t per_sample, int64_t n)
{
    int64_t sample = (per_sample > 0) ? at / per_sample : at % -per_sample;
    int64_t element = (per_sample > 0) ? at % per_sample : at / -per_sample;

    return CT_LAYER_FAIL(l, CT_ERR_DATA,
                         "element %lld of sample %lld of batch %lld is %g, not a whole number in "
                         "0..%lld: input_dim is %lld",
                         (long long)element, (long long)(ex->batch_first + sample),
                         (long long)ex->micro_step, (double)value, (long long)(n - 1),
                         (long long)n);
}

/* ---- affine */

CT_SIMD_PART void affine_rows(int64_t inner, int block, bool bf16, const float *x,
                              const float *scale, const float *bias, float *y)
{
    for (int64_t s = 0; s < inner; s++) {
#pragma omp simd
        for (int i = 0; i < block; i++)
            ct_num_put(y, bf16, s * block + i,
                       ct_num_get(x, bf16, s * block + i) * scale[i] + bias[i]);
    }
}

CT_SIMD_CLONES static void affine(int64_t inner, int block, bool bf16, const float *x,
                                  const float *scale, const float *bias, float *y)
{
    if ((block == 16) && bf16)
        affine_rows(inner, 16, true, x, scale, bias, y);
    else if (block == 16)
        affine_rows(inner, 16, false, x, scale, bias, y);
    else if ((block == 8) && !bf16)
        affine_rows(inner, 8, false, x, scale, bias, y);
    else
        affine_rows(inner, block, bf16, x, scale, bias, y);
}

void ct_blocked_affine(const ct_blocked *v, const float *x, const float *scale, const float *bias,
                       float *y)
{
    int64_t n = ct_blocked_n(v), row = v->inner * v->block;

#pragma omp parallel for schedule(static) if (v->outer * n * row >= CT_PARALLEL_MIN)
    for (int64_t r = 0; r < v->outer * n; r++) {
        float s[CT_BLOCK_MAX], b[CT_BLOCK_MAX];

        ct_blocked_pick(v, r % n, scale, 1.0f, s);
        ct_blocked_pick(v, r % n, bias, 0.0f, b);
        affine(v->inner, v->block, v->bf16, ct_num_at(x, v->bf16, r * row), s, b,
               ct_num_to(y, v->bf16, r * row));
    }
}

/* ---- sums: the images go in a fixed number of slices, so that few channels keep a team busy */

enum { SLICES = 8 };

typedef struct partial {
    double first[CT_BLOCK_MAX], second[CT_BLOCK_MAX];
} partial;

static void sum_slice(const ct_blocked *v, ct_blocked_fn add, const void *ctx, int64_t k,
                      int64_t slice, partial *p)
{
    int64_t n = ct_blocked_n(v), row = v->inner * v->block;

    memset(p, 0, sizeof(*p));
    for (int64_t o = v->outer * slice / SLICES; o < v->outer * (slice + 1) / SLICES; o++)
        add(ctx, k, (o * n + k) * row, v->inner, v->block, p->first, p->second);
}

void ct_blocked_sums(const ct_blocked *v, int64_t from, int64_t to, ct_blocked_fn add,
                     const void *ctx, double *first, double *second)
{
    partial part[CT_BLOCKED_GROUP * SLICES];
    int64_t work = v->outer * v->inner * v->block * (to - from);
    ct_task_team team;

    ct_task_team_init(&team, omp_get_max_threads());
#pragma omp parallel if (work >= CT_PARALLEL_MIN)
    {
        ct_task_loop loop = ct_task_loop_of(&team);

        /* images to threads as in maps over all */
        for (int64_t t = ct_task_first(&loop, (to - from) * SLICES); t >= 0;
             t = ct_task_next(&loop)) {
            int64_t k = t % (to - from), slice = t / (to - from);

            sum_slice(v, add, ctx, from + k, slice, &part[k * SLICES + slice]);
        }
    }
    for (int64_t i = 0; i < (to - from) * v->block; i++) {
        const partial *p = &part[i / v->block * SLICES];

        first[i] = second[i] = 0;
        for (int s = 0; s < SLICES; s++) {
            first[i] += p[s].first[i % v->block];
            second[i] += p[s].second[i % v->block];
        }
    }
}

typedef struct dot_ctx {
    const float *a, *b;
    bool bf16;
} dot_ctx;

CT_SIMD_PART void blocked_dot_rows(int64_t inner, int block, bool bf16, const float *a,
                                   const float *b, double *sum)
{
    double acc[CT_BLOCK_MAX];

    for (int i = 0; i < block; i++) acc[i] = sum[i];
    for (int64_t s = 0; s < inner; s++) {
#pragma omp simd
        for (int i = 0; i < block; i++)
            acc[i] += (double)ct_num_get(a, bf16, s * block + i) *
                      ((b != NULL) ? (double)ct_num_get(b, bf16, s * block + i) : 1.0);
    }
    for (int i = 0; i < block; i++) sum[i] = acc[i];
}

CT_SIMD_PART void dot_cases(int64_t inner, int block, bool bf16, const float *a, const float *b,
                            double *sum)
{
    if (bf16 && (b != NULL))
        blocked_dot_rows(inner, block, true, a, b, sum);
    else if (bf16)
        blocked_dot_rows(inner, block, true, a, NULL, sum);
    else if (b != NULL)
        blocked_dot_rows(inner, block, false, a, b, sum);
    else
        blocked_dot_rows(inner, block, false, a, NULL, sum);
}

CT_SIMD_CLONES static void dot_block(int64_t inner, int block, bool bf16, const float *a,
                                     const float *b, double *sum)
{
    if (block == 16)
        dot_cases(inner, 16, bf16, a, b, sum);
    else if (block == 8)
        dot_cases(inner, 8, bf16, a, b, sum);
    else
        dot_cases(inner, block, bf16, a, b, sum);
}

static void add_dot(const void *ctx, int64_t k, int64_t at, int64_t inner, int block, double *first,
                    double *second)
{
    const dot_ctx *d = ctx;

    (void)k, (void)second;
    dot_block(inner, block, d->bf16, ct_num_at(d->a, d->bf16, at), ct_num_at(d->b, d->bf16, at),
              first);
}

void ct_blocked_total(const ct_blocked *v, ct_blocked_fn fn, const void *ctx, bool add, float *out)
{
    double first[CT_BLOCKED_GROUP * CT_BLOCK_MAX], second[CT_BLOCKED_GROUP * CT_BLOCK_MAX];
    int64_t n = ct_blocked_n(v);

    for (int64_t k = 0; k < n; k += CT_BLOCKED_GROUP) {
        int64_t to = (k + CT_BLOCKED_GROUP < n) ? k + CT_BLOCKED_GROUP : n;

        ct_blocked_sums(v, k, to, fn, ctx, first, second);
        for (int64_t c = k * v->block; (c < to * v->block) && (c < v->mid); c++)
            out[c] = (float)(first[c - k * v->block] + (add ? (double)out[c] : 0.0));
    }
}

void ct_blocked_dot(const ct_blocked *v, const float *a, const float *b, bool add, float *out)
{
    ct_blocked_total(v, add_dot, &(dot_ctx){ a, b, v->bf16 }, add, out);
}
