/* Resizing with a filter that is as wide as the reduction asks for: no pixel is passed over. */
#include <math.h>
#include <string.h>

#include "framework/base/memory.h"
#include "framework/base/simd.h"
#include "framework/data/augment/pixels.h"

/* Weights are whole numbers of 2^-FRACTION. */
enum { FRACTION = 22, HALF = 1 << (FRACTION - 1) };
/* So many rows side by side: pixels of one column are neighbours then, and one operation works on
 * all of them. */
enum { LANES = 32 };

/* What an axis's outputs are made of: output i of `count` inputs from `first` on. */
typedef struct axis {
    int64_t in, out, most; /* sizes; inputs of an output */
    int64_t *first, *count;
    int32_t *weight; /* out x most */
} axis;

static int64_t most_inputs(int64_t in, int64_t out)
{
    double scale = (double)in / (double)out;

    return (int64_t)ceil((scale > 1) ? scale : 1) * 2 + 1;
}

static int32_t fixed(double w)
{
    return (int32_t)(w * (1 << FRACTION) + ((w < 0) ? -0.5 : 0.5));
}

/* The triangle of output i: inputs by their distance from its centre. */
static void weigh(axis *a, int64_t i, double *w)
{
    double scale = (double)a->in / (double)a->out, wide = (scale > 1) ? scale : 1;
    double centre = ((double)i + 0.5) * scale, sum = 0;
    int64_t first = (int64_t)(centre - wide + 0.5), end = (int64_t)(centre + wide + 0.5);

    if (centre - wide + 0.5 < 0) first = 0;
    if (end > a->in) end = a->in;
    for (int64_t k = 0; k < end - first; k++) {
        double away = fabs(((double)(k + first) - centre + 0.5) * (1.0 / wide));

        w[k] = (away < 1) ? 1 - away : 0;
        sum += w[k];
    }
    a->first[i] = first;
    a->count[i] = end - first;
    for (int64_t k = 0; k < end - first; k++)
        a->weight[i * a->most + k] = fixed((sum != 0) ? w[k] * (1.0 / sum) : w[k]);
}

static size_t axis_bytes(int64_t in, int64_t out)
{
    return ct_align_up((size_t)(2 * out) * sizeof(int64_t)) +
           ct_align_up((size_t)(out * most_inputs(in, out)) * sizeof(int32_t));
}

/* In memory of axis_bytes(). w: room for most_inputs(). */
static void axis_make(int64_t in, int64_t out, uint8_t *memory, double *w, axis *a)
{
    *a = (axis){ .in = in, .out = out, .most = most_inputs(in, out) };
    a->first = (int64_t *)(void *)memory;
    a->count = a->first + out;
    a->weight = (int32_t *)(void *)(memory + ct_align_up((size_t)(2 * out) * sizeof(int64_t)));
    for (int64_t i = 0; i < out; i++) weigh(a, i, w);
}

CT_SIMD_PART void sum_of(const uint8_t *in, int64_t stride, const int32_t *weight, int64_t count,
                         int64_t n, int32_t *restrict sum)
{
#pragma omp simd
    for (int64_t x = 0; x < n; x++) sum[x] = HALF;
    for (int64_t k = 0; k < count; k++) {
        const uint8_t *from = in + k * stride;
        int32_t w = weight[k];

#pragma omp simd
        for (int64_t x = 0; x < n; x++) sum[x] += w * from[x];
    }
}

/* Weights are not negative and add up to about 1, so a sum is not below 0. */
CT_SIMD_PART void put(const int32_t *sum, int64_t n, uint8_t *restrict out)
{
#pragma omp simd
    for (int64_t x = 0; x < n; x++) {
        int32_t v = sum[x] >> FRACTION;

        out[x] = (uint8_t)((v > 255) ? 255 : v);
    }
}

/* Up to LANES rows of a plane along x. turned, made: a->in and a->out columns of LANES. */
CT_SIMD_CLONES static void along_rows(const axis *a, const uint8_t *in, int64_t stride,
                                      int64_t rows, uint8_t *turned, uint8_t *made, uint8_t *out)
{
    int32_t sum[LANES];

    for (int64_t r = 0; r < rows; r++)
        for (int64_t x = 0; x < a->in; x++) turned[x * LANES + r] = in[r * stride + x];
    for (int64_t i = 0; i < a->out; i++) {
        sum_of(turned + a->first[i] * LANES, LANES, a->weight + i * a->most, a->count[i], LANES,
               sum);
        put(sum, LANES, made + i * LANES);
    }
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < a->out; i++) out[r * a->out + i] = made[i * LANES + r];
}

CT_SIMD_CLONES static void along_columns(const axis *a, const uint8_t *in, int64_t width,
                                         int32_t *sum, uint8_t *out)
{
    for (int64_t i = 0; i < a->out; i++) {
        sum_of(in + a->first[i] * width, width, a->weight + i * a->most, a->count[i], width, sum);
        put(sum, width, out + i * width);
    }
}

/* Memory of a resize, in pieces. */
typedef struct workspace {
    axis x, y;
    uint8_t *turned, *made, *plane;
    int32_t *sum;
} workspace;

static size_t place(size_t *at, size_t bytes)
{
    size_t here = *at;

    *at += ct_align_up(bytes);
    return here;
}

static ct_status prepare(const ct_rect *box, const ct_pixels *to, ct_sample_buffer *room,
                         workspace *w)
{
    size_t bytes = 0;
    int64_t most = (box->height > box->width) ? box->height : box->width;
    size_t weights = place(&bytes, (size_t)(2 * most + 8) * sizeof(double));
    size_t x = place(&bytes, axis_bytes(box->width, to->width));
    size_t y = place(&bytes, axis_bytes(box->height, to->height));
    size_t turned = place(&bytes, (size_t)box->width * LANES);
    size_t made = place(&bytes, (size_t)to->width * LANES);
    size_t plane = place(&bytes, (size_t)(box->height * to->width));
    size_t sum = place(&bytes, (size_t)to->width * sizeof(int32_t));
    double *of;

    CT_TRY(ct_sample_buffer_reserve(room, bytes));
    of = (double *)(void *)(room->data + weights);
    axis_make(box->width, to->width, room->data + x, of, &w->x);
    axis_make(box->height, to->height, room->data + y, of, &w->y);
    w->turned = room->data + turned;
    w->made = room->data + made;
    w->plane = room->data + plane;
    w->sum = (int32_t *)(void *)(room->data + sum);
    memset(w->turned, 0, (size_t)box->width * LANES); /* lanes without a row */
    return CT_OK;
}

ct_status ct_pixels_resize(const ct_pixels *from, const ct_rect *box, ct_sample_buffer *room,
                           ct_pixels *to)
{
    workspace w;

    CT_TRY(prepare(box, to, room, &w));
    for (int64_t c = 0; c < from->channels; c++) {
        const uint8_t *in = from->data + (c * from->height + box->top) * from->width + box->left;

        for (int64_t y = 0; y < box->height; y += LANES) {
            int64_t rows = (box->height - y < LANES) ? box->height - y : LANES;

            along_rows(&w.x, in + y * from->width, from->width, rows, w.turned, w.made,
                       w.plane + y * to->width);
        }
        along_columns(&w.y, w.plane, to->width, w.sum, to->data + c * to->height * to->width);
    }
    return CT_OK;
}
