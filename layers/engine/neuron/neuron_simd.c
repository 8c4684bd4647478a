/* One file, since its loops become vectors only where the compiler may evaluate both sides of a
 * choice, and where sqrtf is an instruction (CFLAGS_neuron_simd in the Makefile). */
#include <string.h>

#include "framework/base/bf16.h"
#include "framework/base/stream.h"
#include "layers/engine/neuron/neuron_math.h"
#include "layers/layer_util.h"

#define FORWARD(_name, _value)                                                                     \
    CT_SIMD_CLONES static void _name##_forward(const arg *args, int64_t n, const float *x,         \
                                               float *y)                                           \
    {                                                                                              \
        arg k = *args;                                                                             \
                                                                                                   \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) y[i] = _value(k, x[i]);                \
    }

#define BACKWARD(_name, _slope)                                                                    \
    CT_SIMD_CLONES static void _name##_backward(const arg *args, int64_t n, const float *v,        \
                                                const float *dy, float *dx)                        \
    {                                                                                              \
        arg k = *args;                                                                             \
                                                                                                   \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) dx[i] = dy[i] * _slope(k, v[i]);       \
    }

#define NEURON(_name, _reads, _value, _slope)                                                      \
    FORWARD(_name, _value)                                                                         \
    BACKWARD(_name, _slope)                                                                        \
    const ct_neuron ct_neuron_##_name = { _reads, _name##_forward, _name##_backward };

CT_NEURON_LIST(NEURON)

/* ---- passes: a thread takes a chunk at a time; what leaves the caches anyway is written past them
 */

/* Of the sums down the columns: rows and columns at a time, blocks of rows with sums of their own,
 * and rows of such a block at least. */
enum { CHUNK = 2048, GROUP = 4, COLUMNS = 1024, BLOCKS = 64, BLOCK_ROWS = 32 };

static int64_t smaller(int64_t a, int64_t b)
{
    return (a < b) ? a : b;
}

CT_SIMD_CLONES static void add(int64_t n, const float *a, const float *b, float *y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = a[i] + b[i];
}

/* Numbers [at, at + len) that go into the function: where they lie, or in room. */
static const float *take(const ct_neuron_rows *r, int64_t at, int64_t len, float *room)
{
    if (r->bias == NULL) return ct_num_read(ct_num_at(r->x, r->bf16, at), r->bf16, len, room);
    for (int64_t i = 0, j = at % r->n, part; i < len; i += part, j = 0) {
        part = smaller(len - i, r->n - j);
        add(part, r->x + at + i, r->bias + j, room + i);
    }
    return room;
}

static bool streams(const ct_neuron_rows *r, const float *to)
{
    return (r->x != to) && !r->bf16 && ct_stream_pays(to, (size_t)(r->rows * r->n) * sizeof(*to));
}

/* What was made elsewhere than in its place. */
static void put(const ct_neuron_rows *r, int64_t at, int64_t len, const float *made, float *to)
{
    if (r->bf16)
        ct_bf16_narrow(len, made, ct_num_to(to, true, at));
    else
        ct_stream_copy(len, made, to + at);
}

void ct_neuron_forward(const ct_neuron_state *s, const ct_neuron_rows *r, float *y)
{
    int64_t n = r->rows * r->n;
    bool stream = streams(r, y), apart = stream || r->bf16;

#pragma omp parallel if (n >= CT_PARALLEL_MIN)
    {
        float room[CHUNK], made[CHUNK];

#pragma omp for schedule(static) nowait
        for (int64_t at = 0; at < n; at += CHUNK) {
            int64_t len = smaller(CHUNK, n - at);

            s->fn->forward(&s->args, len, take(r, at, len, room), apart ? made : y + at);
            if (apart) put(r, at, len, made, y);
        }
        if (stream) ct_stream_end();
    }
}

void ct_neuron_row(const ct_neuron_state *s, int64_t n, const float *x, float *y)
{
    float wide[CHUNK];

    for (int64_t at = 0; at < n; at += CHUNK) {
        int64_t len = smaller(CHUNK, n - at);

        ct_bf16_widen(len, ct_num_at(x, true, at), wide);
        s->fn->forward(&s->args, len, wide, wide);
        ct_bf16_narrow(len, wide, ct_num_to(y, true, at));
    }
}

static void backward_alone(const ct_neuron_state *s, const ct_neuron_rows *r,
                           const ct_neuron_back *b)
{
    int64_t n = r->rows * r->n;
    bool stream = (b->dx != b->dy) && streams(r, b->dx), apart = stream || r->bf16;

#pragma omp parallel if (n >= CT_PARALLEL_MIN)
    {
        float room[CHUNK], made[CHUNK];

#pragma omp for schedule(static) nowait
        for (int64_t at = 0; at < n; at += CHUNK) {
            int64_t len = smaller(CHUNK, n - at);
            const float *dy = ct_num_read(ct_num_at(b->dy, r->bf16, at), r->bf16, len, made);

            s->fn->backward(&s->args, len, take(r, at, len, room), dy, apart ? made : b->dx + at);
            if (apart) put(r, at, len, made, b->dx);
        }
        if (stream) ct_stream_end();
    }
}

/* sum[i] += the i-th of all rows. */
CT_SIMD_CLONES static void add_columns(int64_t n, int rows, const float *const *x, double *sum)
{
    if (rows == GROUP) {
        const float *a = x[0], *b = x[1], *c = x[2], *d = x[3];

#pragma omp simd
        for (int64_t i = 0; i < n; i++) sum[i] += (double)((a[i] + b[i]) + (c[i] + d[i]));
        return;
    }
    for (int j = 0; j < rows; j++) {
        const float *a = x[j];

#pragma omp simd
        for (int64_t i = 0; i < n; i++) sum[i] += (double)a[i];
    }
}

/* From the shape alone. */
static int64_t block_rows(int64_t rows)
{
    int64_t most = (rows + BLOCKS - 1) / BLOCKS;

    return (most > BLOCK_ROWS) ? most : BLOCK_ROWS;
}

static int64_t n_block(int64_t rows)
{
    return (rows + block_rows(rows) - 1) / block_rows(rows);
}

size_t ct_neuron_part_bytes(int64_t rows, int64_t n)
{
    return (size_t)(n_block(rows) * n) * sizeof(double);
}

/* Rows [from, to) of a block. */
static void backward_block(const ct_neuron_state *s, const ct_neuron_rows *r,
                           const ct_neuron_back *b, int64_t from, int64_t to, double *sum)
{
    float room[COLUMNS], made[GROUP][COLUMNS];

    memset(sum, 0, (size_t)r->n * sizeof(*sum));
    for (int64_t i = from; i < to; i += GROUP) {
        int rows = (int)smaller(GROUP, to - i);

        for (int64_t c = 0; c < r->n; c += COLUMNS) {
            int64_t len = smaller(COLUMNS, r->n - c);
            const float *row[GROUP] = { NULL };

            for (int j = 0; j < rows; j++) {
                int64_t at = (i + j) * r->n + c;
                const float *dy = ct_num_read(ct_num_at(b->dy, r->bf16, at), r->bf16, len, made[j]);
                float *dx = r->bf16 ? made[j] : b->dx + at;

                s->fn->backward(&s->args, len, take(r, at, len, room), dy, dx);
                if (r->bf16) put(r, at, len, dx, b->dx);
                row[j] = dx;
            }
            add_columns(len, rows, row, sum + c);
        }
    }
}

/* dbias of columns [from, to) from the sums of all blocks, in their order. */
static void add_blocks(const ct_neuron_rows *r, const ct_neuron_back *b, int64_t from, int64_t to)
{
    for (int64_t c = from; c < to; c++) {
        double sum = (b->beta != 0.0f) ? (double)b->beta * (double)b->dbias[c] : 0.0;

        for (int64_t k = 0; k < n_block(r->rows); k++) sum += b->part[k * r->n + c];
        b->dbias[c] = (float)sum;
    }
}

void ct_neuron_backward(const ct_neuron_state *s, const ct_neuron_rows *r, const ct_neuron_back *b)
{
    int64_t step = block_rows(r->rows), blocks = n_block(r->rows);

    if (b->dbias == NULL) {
        backward_alone(s, r, b);
        return;
    }
#pragma omp parallel if (r->rows * r->n >= CT_PARALLEL_MIN)
    {
#pragma omp for schedule(static)
        for (int64_t k = 0; k < blocks; k++)
            backward_block(s, r, b, k * step, smaller((k + 1) * step, r->rows), b->part + k * r->n);
#pragma omp for schedule(static)
        for (int64_t c = 0; c < r->n; c += COLUMNS) add_blocks(r, b, c, smaller(c + COLUMNS, r->n));
    }
}
