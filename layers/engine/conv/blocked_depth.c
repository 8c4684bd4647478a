/* Depthwise convolution on blocked layouts: a block's channels each with its own kernel, so a place
 * is one vector and nothing is broadcast. Bound by loads: a task is some rows of one block of one
 * image. Compiled with -ffp-contract=fast, as blocked_tile.c. */
#include "framework/base/memory.h"
#include "layers/engine/conv/blocked.h"
#include "layers/engine/conv/blocked_vec.h"

static const int64_t TASKS = 4;   /* for a thread, at least, where it can be so */
static const int64_t SLICES = 16; /* of the images, for weight gradients        */

/* Row i of the grid of `s`; x and y: planes of a block, w: [p][q][b]. */
typedef void (*row_fn)(const ct_blk_sum *s, int64_t i, const float *x, const float *w,
                       const float *start, float *y);
/* sum[] += x[j step] dy[j], j < n */
typedef void (*dot_fn)(int64_t n, const float *x, int64_t step, const float *dy, float *sum);

/* Blocks of _b in registers of _l. */
#define DEPTH(_name, _target, _b, _l)                                                              \
    _target static void _name##_row(const ct_blk_sum *s, int64_t i, const float *x,                \
                                    const float *w, const float *start, float *y)                  \
    {                                                                                              \
        CT_VEC(_l);                                                                                \
        int64_t lo, hi, row = i * s->si_h + s->row_first;                                          \
        float *to = y + ((s->row + i * s->so_h) * s->y_w + s->col) * (_b);                         \
                                                                                                   \
        valid_range(row, s->row_step, s->h, s->n_p, &lo, &hi);                                     \
        for (int64_t j = 0; j < s->ow; j++, to += s->so_w * (_b)) {                                \
            int64_t q_lo = 0, q_hi = s->n_q, col = j * s->si_w + s->col_first;                     \
            vec sum[CT_PARTS(_b, _l)];                                                             \
                                                                                                   \
            if ((col < 0) || (col + (s->n_q - 1) * s->col_step >= s->w))                           \
                valid_range(col, s->col_step, s->w, s->n_q, &q_lo, &q_hi);                         \
            CT_UNROLL for (int v = 0; v < CT_PARTS(_b, _l); v++) sum[v] =                          \
                *(const vec *)(start + v * (_l));                                                  \
            for (int64_t p = lo; p < hi; p++) {                                                    \
                const float *from = x + ((row + p * s->row_step) * s->w + col) * (_b);             \
                                                                                                   \
                for (int64_t q = q_lo; q < q_hi; q++) {                                            \
                    CT_UNROLL for (int v = 0; v < CT_PARTS(_b, _l); v++) sum[v] +=                 \
                        *(const vec *)(from + q * s->col_step * (_b) + v * (_l)) *                 \
                        *(const vec *)(w + (p * s->n_q + q) * (_b) + v * (_l));                    \
                }                                                                                  \
            }                                                                                      \
            CT_UNROLL for (int v = 0; v < CT_PARTS(_b, _l); v++) * (vec *)(to + v * (_l)) =        \
                sum[v];                                                                            \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    _target static void _name##_dot(int64_t n, const float *x, int64_t step, const float *dy,      \
                                    float *sum)                                                    \
    {                                                                                              \
        CT_VEC(_l);                                                                                \
        for (int c = 0; c < (_b); c += (_l)) {                                                     \
            vec acc[4] = { *(const vec *)(sum + c) };                                              \
            int64_t j = 0;                                                                         \
                                                                                                   \
            for (; j + 4 <= n; j += 4) {                                                           \
                CT_UNROLL for (int k = 0; k < 4; k++) acc[k] +=                                    \
                    *(const vec *)(x + (j + k) * step + c) *                                       \
                    *(const vec *)(dy + (j + k) * (_b) + c);                                       \
            }                                                                                      \
            for (; j < n; j++)                                                                     \
                acc[0] += *(const vec *)(x + j * step + c) * *(const vec *)(dy + j * (_b) + c);    \
            *(vec *)(sum + c) = (acc[0] + acc[1]) + (acc[2] + acc[3]);                             \
        }                                                                                          \
    }

DEPTH(any, , CT_SIMD_ANY_BLOCK, CT_SIMD_ANY_LANES)
#if defined(__x86_64__) && defined(__GNUC__)
DEPTH(avx2, CT_AVX2, 8, 8)
DEPTH(avx512, CT_AVX512, 16, 16)
static const row_fn row_table[] = { any_row, avx2_row, avx512_row };
static const dot_fn dot_table[] = { any_dot, avx2_dot, avx512_dot };
#else
static const row_fn row_table[] = { any_row };
static const dot_fn dot_table[] = { any_dot };
#endif

bool ct_blk_supports_depth(const ct_conv_desc *d)
{
    int64_t b = ct_simd_block();

    return (d->device == CT_DEVICE_CPU) && (d->x_block == b) && (d->y_block == b) &&
           (d->group > 1) && (d->c == d->group) && (d->m == d->group) && !d->x_bf16 && !d->y_bf16;
}

/* ---- by data, both ways: weights [block][p][q][b], what sums start with [block][b] */

int64_t ct_blk_depth_work(const ct_blk_sum *s)
{
    return blk_count(s->group, s->set.b) * s->set.b * (s->n_p * s->n_q + 1);
}

static void pack(const ct_blk_sum *s, float *start, float *w)
{
    int64_t b = s->set.b, taps = s->n_p * s->n_q;

    for (int64_t i = 0; i < blk_count(s->group, b) * b; i++) {
        start[i] = ((s->bias != NULL) && (i < s->group)) ? s->bias[i] : 0.0f;
        for (int64_t t = 0; t < taps; t++) {
            int64_t p = t / s->n_q, q = t % s->n_q;

            w[(i / b * taps + t) * b + i % b] =
                (i < s->group) ? s->weight[i * s->w_taps + s->w_first + p * s->w_p + q * s->w_q]
                               : 0.0f;
        }
    }
}

ct_status ct_blk_depth_run(const ct_blk_sum *s, ct_exec *ex)
{
    int64_t b = s->set.b, n_block = blk_count(s->group, b), planes = s->n * n_block;
    int64_t n_part = blk_count(TASKS * s->n_thread, blk_larger(planes, 1));
    float *start = s->work, *w = start + n_block * b;
    ct_status polled = CT_OK;

    pack(s, start, w);
#pragma omp parallel for num_threads(s->n_thread) schedule(static)
    for (int64_t t = 0; t < planes * n_part; t++) {
        int64_t plane = t / n_part, part = t % n_part, block = plane % n_block;

        for (int64_t i = s->oh * part / n_part; i < s->oh * (part + 1) / n_part; i++) {
            row_table[s->set.level](s, i, s->x + plane * s->h * s->w * b,
                                    w + block * s->n_p * s->n_q * b, start + block * b,
                                    s->y + plane * s->y_h * s->y_w * b);
            if (s->relu) ct_blk_rectify(s->ow * b, s->y + (plane * s->y_h + i) * s->y_w * b);
        }
        ct_engine_poll(ex, &polled);
    }
    return polled;
}

/* ---- weight gradients: [slice][block][p][q][b] */

static int64_t n_slice(const ct_conv_desc *d)
{
    return blk_larger(blk_smaller(d->n, SLICES), 1);
}

size_t ct_blk_depth_weight_workspace(const ct_conv_desc *d)
{
    int64_t b = ct_simd_block();

    return (size_t)(n_slice(d) * blk_count(d->c, b) * b * d->kh * d->kw) * sizeof(float);
}

/* All taps of a block over one image. */
static void add_image(const ct_conv_desc *d, const ct_blk_set *set, const float *x, const float *dy,
                      float *dw)
{
    for (int64_t t = 0; t < d->kh * d->kw; t++) {
        int64_t row = t / d->kw * d->dh - d->ph, col = t % d->kw * d->dw - d->pw;
        int64_t i, i_end, j, j_end;

        valid_range(row, d->sh, d->h, d->oh, &i, &i_end);
        valid_range(col, d->sw, d->w, d->ow, &j, &j_end);
        for (; (i < i_end) && (j < j_end); i++)
            dot_table[set->level](j_end - j,
                                  x + ((i * d->sh + row) * d->w + j * d->sw + col) * set->b,
                                  d->sw * set->b, dy + (i * d->ow + j) * set->b, dw + t * set->b);
    }
}

ct_status ct_blk_depth_weight(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a)
{
    ct_blk_set set = ct_blk_pick(false);
    int64_t b = set.b, n_block = blk_count(d->c, b), taps = d->kh * d->kw, slices = n_slice(d);
    float *dw = a->work;
    ct_status polled = CT_OK;

#pragma omp parallel num_threads(d->n_thread)
    {
#pragma omp for schedule(static)
        for (int64_t t = 0; t < slices * n_block; t++) {
            int64_t slice = t / n_block, block = t % n_block;

            memset(dw + t * taps * b, 0, (size_t)(taps * b) * sizeof(float));
            for (int64_t n = d->n * slice / slices; n < d->n * (slice + 1) / slices; n++)
                add_image(d, &set, a->x + (n * n_block + block) * in_size(d) * b,
                          a->dy + (n * n_block + block) * out_size(d) * b, dw + t * taps * b);
            ct_engine_poll(ex, &polled);
        }
#pragma omp for schedule(static)
        for (int64_t c = 0; c < d->c; c++) {
            for (int64_t t = 0; t < taps; t++) {
                float *to = a->dweight + c * taps + t, sum = 0.0f;

                for (int64_t s = 0; s < slices; s++)
                    sum += dw[((s * n_block + c / b) * taps + t) * b + c % b];
                *to = (a->beta != 0.0f) ? a->beta * *to + sum : sum;
            }
        }
    }
    return polled;
}
