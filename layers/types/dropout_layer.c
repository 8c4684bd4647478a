/* Dropout: in TRAIN y = x / (1 - ratio) with probability 1 - ratio, else 0; identity in TEST.
 * Element i of sample n of the global batch draws number n * per_sample + i of a stream keyed by
 * (seed, step, layer), so the mask is the same on any number of ranks. Of sequences, time first,
 * the blob of time t is numbered like a batch of its own, after those before it. */
#include "framework/base/bf16.h"
#include "framework/base/rng.h"
#include "framework/base/simd.h"
#include "framework/base/stream.h"
#include "layers/types/drop.h"
#include "layers/types/layer_types.h"
#include "layers/layer_util.h"

typedef ct_dropout_state dropout_state;

enum { MASK };

static ct_status find_part(const ct_layer *l, const ct_shape *bottom, dropout_state *s)
{
    const Ct__LayerPart *part = ct_layer_narrowed(l);
    ct_shape whole = *bottom;
    int at;

    if (part == NULL) return CT_OK;
    CT_TRY(ct_layer_axis(l, bottom, part->axis, "part.axis", &at));
    CT_TRY(ct_layer_widen(l, at, &whole));
    CT_TRY(ct_layer_cut(l, &whole, at, &s->cut));
    if (at < 1) return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "a part is cut along axis 1 or later");
    return CT_OK;
}

static ct_status setup(ct_layer *l, const ct_shape *bottom)
{
    dropout_state *s = l->state;
    const Ct__DropoutParameter *p = l->param->dropout_param;
    double ratio = (p != NULL) ? (double)p->dropout_ratio : 0.5;

    /* Whatever the ratio, TEST changes nothing; in TRAIN 1 would leave nothing. */
    if (!((ratio >= 0.0) && ((ratio < 1.0) || ((ratio == 1.0) && (l->phase == CT_TEST)))))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "dropout_ratio %g is not in [0, 1)", ratio);
    s->drop_below = (uint64_t)(ratio * 0x1p32);
    s->scale = (ratio < 1.0) ? (float)(1.0 / (1.0 - ratio)) : 1.0f;
    s->name_hash = ct_rng_hash(l->name);
    return find_part(l, &bottom[0], s);
}

/* A bit an element; each row of the numbering, of which there are at most as many as the first axis
 * has, or the axes before the one that is cut, begins a word of WORD. Ranges of a part follow each
 * other. */
enum { WORD = 16 };

static int64_t words_of(int64_t row)
{
    return (row + WORD - 1) / WORD;
}

static size_t most_bytes(const dropout_state *s, const ct_tensor *x)
{
    int64_t rows = ct_shape_count(&x->shape, 0, (x->shape.ndim > 0) ? 1 : 0);

    if (s->cut.n_range > 0) rows = s->cut.n_range * ct_shape_count(&x->shape, 0, s->cut.axis);

    return (size_t)(words_of(ct_tensor_count(x)) + rows) * sizeof(uint16_t);
}

/* Of 16 bits, channels last on devices, rows on the CPU. */
static bool takes(const Ct__LayerParameter *p, const ct_blob *const *bottom, int slot)
{
    (void)p;
    return ct_blob_is_last(bottom[slot]) || ct_layer_takes_rows(bottom[slot]);
}

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    ct_blob *x = in->bottom[0];

    if (in->top[0] != x) ct_blob_set_like(in->top[0], &x->data.shape, &x->data);
    in->over = 1;
    ct_instance_buffer(in, MASK, CT_LIFETIME_PASS,
                       ((l->phase == CT_TRAIN) && x->wants_diff && (l->dev->kind == CT_DEVICE_CPU))
                           ? most_bytes(l->state, &x->data)
                           : 0); /* others draw the numbers again */
    return CT_OK;
}

/* The stream's number of this rank's first element. A sample's elements: those of a step's blob
 * shared evenly among its samples. */
static uint64_t first_counter(const ct_tensor *x, const ct_exec *ex)
{
    int64_t n = ct_tensor_count(x), samples = ex->batch_local;

    if ((samples <= 0) || (n % samples != 0)) samples = ct_shape_legacy(&x->shape, 0);
    return (samples > 0) ? (uint64_t)ex->batch_first * (uint64_t)(n / samples) : 0;
}

typedef ct_dropout_numbers numbering;

static numbering number_whole(const ct_tensor *x, const ct_exec *ex)
{
    numbering r = { .n_row = 1, .row = ct_tensor_count(x), .group = 1 };
    int64_t inner;

    r.step = r.row;
    if ((ex->batch_axis != 1) || (x->shape.ndim < 2) || (x->shape.dim[1] != ex->batch_local)) {
        r.first = first_counter(x, ex);
        return r;
    }
    inner = ct_shape_count(&x->shape, 2, -1);
    r.n_row = x->shape.dim[0];
    r.row = r.step = x->shape.dim[1] * inner;
    r.first = (uint64_t)(ex->batch_first * inner);
    r.stride = (uint64_t)(ex->batch_global * inner);
    return r;
}

ct_dropout_numbers ct_dropout_number(const ct_dropout_state *s, const ct_tensor *x,
                                     const ct_exec *ex, int k)
{
    const ct_cut *c = &s->cut;
    ct_tensor whole = *x;
    int64_t inner, length;
    numbering r;

    if (c->n_range == 0) return number_whole(x, ex);
    length = whole.shape.dim[c->axis] = c->whole.dim[c->axis];
    inner = ct_shape_count(&x->shape, c->axis + 1, -1);
    r = number_whole(&whole, ex);
    if (length * inner == 0) return r;
    r.group = r.row / (length * inner);
    r.n_row *= r.group;
    r.row = c->range[k].count * inner;
    r.step = x->shape.dim[c->axis] * inner;
    for (int i = 0; i < k; i++) r.at += c->range[i].count * inner;
    r.first += (uint64_t)(c->range[k].first * inner);
    r.within = (uint64_t)(length * inner);
    return r;
}

enum { CHUNK = 512 }; /* elements of a row that one task takes: whole words */

/* y = x scale of the elements whose bits are set, else 0: element i has bit i % WORD of word i /
 * WORD. Forward x and y, backward their gradients. */
CT_SIMD_CLONES static void pass_chunk(float scale, int64_t n, const uint16_t *mask, const float *x,
                                      float *y)
{
    int64_t whole = n / WORD;

    for (int64_t k = 0; k < whole; k++) {
        uint32_t bits = mask[k];

#pragma omp simd
        for (int i = 0; i < WORD; i++) {
            float passed = x[k * WORD + i] * scale;

            y[k * WORD + i] = ((bits >> i) & 1) ? passed : 0.0f;
        }
    }
    for (int64_t i = whole * WORD; i < n; i++)
        y[i] = ((mask[whole] >> (i % WORD)) & 1) ? x[i] * scale : 0.0f;
}

/* The same of rows of bf16 numbers; n at most CHUNK. */
static void pass_numbers(float scale, bool bf16, int64_t n, const uint16_t *mask, const float *x,
                         float *y)
{
    float wide[CHUNK];

    if (!bf16) {
        pass_chunk(scale, n, mask, x, y);
        return;
    }
    ct_bf16_widen(n, x, wide);
    pass_chunk(scale, n, mask, wide, wide);
    ct_bf16_narrow(n, wide, y);
}

/* One task; first: number of its first element. stream: y passes the caches by. */
static void run_chunk(const dropout_state *s, uint64_t key, uint64_t first, bool bf16, int64_t n,
                      const float *x, float *y, bool stream, uint16_t *mask)
{
    uint16_t drawn[CHUNK / WORD];
    float kept[CHUNK];

    if (mask == NULL) mask = drawn;
    for (int64_t i = 0; i < n; i += WORD) /* the next task's, while numbers are drawn */
        __builtin_prefetch(ct_num_at(x, bf16, CHUNK + i), 0, 2);
    ct_rng_bits(key, first, n, (uint32_t)s->drop_below, mask);
    pass_numbers(s->scale, bf16, n, mask, x, stream ? kept : y);
    if (stream) ct_stream_copy(n, kept, y);
}

/* What forward or backward goes through, and of backward the mask. */
typedef struct passage {
    const float *x;
    float *y;
    bool bf16, stream;
    uint16_t *mask; /* of the range's first row; may be NULL in forward */
} passage;

static int n_range(const dropout_state *s)
{
    return (s->cut.n_range > 0) ? s->cut.n_range : 1;
}

static uint16_t *mask_at(const passage *p, const numbering *r, int64_t row, int64_t at)
{
    return (p->mask != NULL) ? p->mask + row * words_of(r->row) + at / WORD : NULL;
}

static void draw_rows(const dropout_state *s, uint64_t key, const numbering *r, const passage *p)
{
#pragma omp parallel
    {
#pragma omp for schedule(static) collapse(2) nowait
        for (int64_t row = 0; row < r->n_row; row++) {
            for (int64_t at = 0; at < r->row; at += CHUNK) {
                int64_t start = r->at + row * r->step + at;
                int64_t n = (at + CHUNK < r->row) ? CHUNK : r->row - at;
                uint64_t first = ct_dropout_first(r, row) + (uint64_t)at;

                run_chunk(s, key, first, p->bf16, n, ct_num_at(p->x, p->bf16, start),
                          ct_num_to(p->y, p->bf16, start), p->stream, mask_at(p, r, row, at));
            }
        }
        ct_stream_end();
    }
}

static void mask_rows(const dropout_state *s, const numbering *r, const passage *p)
{
#pragma omp parallel for schedule(static) collapse(2)
    for (int64_t row = 0; row < r->n_row; row++) {
        for (int64_t at = 0; at < r->row; at += CHUNK) {
            int64_t start = r->at + row * r->step + at;
            int64_t n = (at + CHUNK < r->row) ? CHUNK : r->row - at;

            pass_numbers(s->scale, p->bf16, n, mask_at(p, r, row, at),
                         ct_num_at(p->x, p->bf16, start), ct_num_to(p->y, p->bf16, start));
        }
    }
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const dropout_state *s = l->state;
    const ct_tensor *t = &in->bottom[0]->data;
    passage p = { .x = ct_blob_data(in->bottom[0]),
                  .y = ct_blob_data(in->top[0]),
                  .bf16 = ct_blob_is_bf16(in->bottom[0]),
                  .mask = (in->buffer[MASK].bytes > 0) ? in->buffer[MASK].data : NULL };
    uint64_t key;

    if (l->phase == CT_TEST) {
        ct_copy_bytes(ct_tensor_bytes(t), p.x, p.y);
        return CT_OK;
    }
    key = ct_rng_key(ex->seed, (uint64_t)ex->micro_step, s->name_hash);
    for (int k = 0; k < n_range(s); k++) {
        numbering r = ct_dropout_number(s, t, ex, k);

        p.stream = (p.x != p.y) && !p.bf16 && (r.row % WORD == 0) && (r.step % WORD == 0) &&
                   (r.at % WORD == 0) &&
                   ct_stream_pays(p.y, (size_t)(r.n_row * r.row) * sizeof(float));
        draw_rows(s, key, &r, &p);
        if (p.mask != NULL) p.mask += r.n_row * words_of(r.row);
    }
    return CT_OK;
}

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const dropout_state *s = l->state;
    passage p = { .x = ct_blob_diff(in->top[0]),
                  .y = ct_blob_diff(in->bottom[0]),
                  .bf16 = ct_blob_is_bf16(in->bottom[0]),
                  .mask = in->buffer[MASK].data };

    if (p.y == NULL) return CT_OK;
    if (l->phase == CT_TEST) {
        ct_copy_bytes(ct_tensor_bytes(&in->bottom[0]->diff), p.x, p.y);
        return CT_OK;
    }
    for (int k = 0; k < n_range(s); k++) {
        numbering r = ct_dropout_number(s, &in->bottom[0]->data, ex, k);

        mask_rows(s, &r, &p);
        p.mask += r.n_row * words_of(r.row);
    }
    return CT_OK;
}

static const ct_layout_ops dropout_layout = {
    .takes = takes, .last = true, .bf16 = true, .tokens = true
};

const ct_layer_ops ct_layer_dropout = {
    .type = "Dropout",
    .params = "dropout_param",
    .min_bottom = 1,
    .max_bottom = 1,
    .min_top = 1,
    .max_top = 1,
    .allow_inplace = true,
    .splits = CT_SPLIT_EACH,
    .state_size = sizeof(dropout_state),
    .setup = setup,
    .reshape = reshape,
    .forward = forward,
    .backward = backward,
    .layout = &dropout_layout,
    .sequence = &ct_sequence_apart,
};
