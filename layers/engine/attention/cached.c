/* Attention of new tokens on a sequence that grows: their keys, turned by their positions, and
 * values go behind those that are kept, and their queries attend to all of them.
 *
 * Keys lie in blocks of a panel's tokens, [group][block][dim][token], values in panels of
 * dimensions, [group][panel][token][dimension]: both as the tiles of gemm_private.h read them. So
 * scores and sums of values are products of tiles, for as many queries of a group at a time as a
 * tile has rows. Tasks are dealt out whole: no bit depends on the number of threads. */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "framework/base/simd.h"
#include "framework/math/gemm_private.h"
#include "framework/math/sigmoid.h"
#include "layers/engine/attention/attention.h"

enum { SUMS = 16, ALIGN = 16 /* floats of a cache line */ };

/* What one call works on. */
typedef struct cached {
    const ct_attention_desc *d;
    const ct_attention_cache *c;
    const ct_attention_args *a;
    const ct_gemm_set *set;
    int64_t width, room, panels; /* of a panel; tokens in whole panels; panels of dimensions */
    int64_t of_group, fresh;
    const float *turn; /* of the first new token's position on */
} cached;

/* A thread's: queries, scores, probabilities turned over, sums of values. */
typedef struct scratch {
    float *q, *s, *p, *y;
} scratch;

static int64_t round_up(int64_t n)
{
    return ct_gemm_round_up(n, ALIGN);
}

static cached describe(const ct_attention_desc *d, int64_t capacity)
{
    cached t = { .d = d, .set = ct_gemm_set_pick(false), .of_group = d->heads / d->kv_heads };

    t.width = ct_gemm_panel(t.set);
    t.room = ct_gemm_round_up(capacity, t.width);
    t.panels = ct_gemm_ceil_div(d->dim, t.width);
    return t;
}

static int64_t keys_of_group(const cached *t)
{
    return t->room * t->d->dim;
}

static int64_t values_of_group(const cached *t)
{
    return t->room * t->panels * t->width;
}

size_t ct_attention_cache_bytes(const ct_attention_desc *d, int64_t capacity)
{
    cached t = describe(d, capacity);

    return (size_t)(d->kv_heads * (keys_of_group(&t) + values_of_group(&t))) * sizeof(float);
}

static int64_t scratch_room(const cached *t)
{
    int64_t rows = t->set->rows;

    return round_up(rows * t->d->dim) + 2 * round_up(rows * t->room) +
           round_up(rows * t->panels * t->width);
}

size_t ct_attention_cached_workspace(const ct_attention_desc *d, int64_t capacity)
{
    cached t = describe(d, capacity);
    int64_t threads = (d->n_thread > 1) ? d->n_thread : 1;

    return (size_t)(round_up(d->tq * d->rope_dim) + threads * scratch_room(&t)) * sizeof(float);
}

static scratch scratch_of(const cached *t)
{
    float *work = (float *)t->a->work + round_up(t->d->tq * t->d->rope_dim);
    int64_t rows = t->set->rows;
    scratch w;

    work += omp_get_thread_num() * scratch_room(t);
    w.q = work;
    w.s = w.q + round_up(rows * t->d->dim);
    w.p = w.s + round_up(rows * t->room);
    w.y = w.p + round_up(rows * t->room);
    return w;
}

/* to[c step] = scale x[c], turned by the position of new token i where turn is not NULL. */
static void put(const cached *t, const float *turn, int64_t i, float scale, const float *x,
                float *to, int64_t step)
{
    const ct_attention_desc *d = t->d;
    int64_t turned = (turn != NULL) ? d->rope_dim : 0, half = turned / 2;

    for (int64_t k = 0; k < half; k++) {
        int64_t one = d->interleaved ? 2 * k : k, other = d->interleaved ? 2 * k + 1 : k + half;
        float cosine = turn[i * turned + k], sine = turn[i * turned + half + k];

        to[one * step] = scale * (x[one] * cosine - x[other] * sine);
        to[other * step] = scale * (x[other] * cosine + x[one] * sine);
    }
    for (int64_t c = turned; c < d->dim; c++) to[c * step] = scale * x[c];
}

static float *key_at(const cached *t, int64_t group, int64_t token)
{
    return t->c->kept + group * keys_of_group(t) + token / t->width * t->d->dim * t->width +
           token % t->width;
}

/* The dimensions of a panel of a token. */
static float *value_at(const cached *t, int64_t group, int64_t panel, int64_t token)
{
    return t->c->kept + t->d->kv_heads * keys_of_group(t) + group * values_of_group(t) +
           (panel * t->room + token) * t->width;
}

static void append(const cached *t)
{
    const ct_attention_desc *d = t->d;

    for (int64_t i = 0; i < t->fresh; i++) {
        int64_t token = t->c->length + i;

        for (int64_t g = 0; g < d->kv_heads; g++) {
            const float *v = t->a->v + i * d->v_row + g * d->dim;

            put(t, t->turn, i, 1.0f, t->a->k + i * d->k_row + g * d->dim, key_at(t, g, token),
                t->width);
            for (int64_t p = 0; p < t->panels; p++) {
                int64_t n = ct_gemm_smaller(t->width, d->dim - p * t->width);

                memcpy(value_at(t, g, p, token), v + p * t->width, (size_t)n * sizeof(float));
            }
        }
    }
}

/* s[0 … n) become the shares of a whole; 0, all of them, where it is 0. */
CT_SIMD_CLONES static void softmax(int64_t n, float *s)
{
    float most = -INFINITY, part[SUMS] = { 0 }, sum = 0;

    for (int64_t t = 0; t < n; t++) most = (s[t] > most) ? s[t] : most;
    if (most == -INFINITY) most = 0;
    for (int64_t t = 0; t < n; t++) s[t] = ct_exp_f32(s[t] - most);
    for (int64_t t = 0; t < n / SUMS * SUMS; t += SUMS) {
        for (int i = 0; i < SUMS; i++) part[i] += s[t + i];
    }
    for (int64_t t = n / SUMS * SUMS; t < n; t++) part[t % SUMS] += s[t];
    for (int i = 0; i < SUMS; i++) sum += part[i];
    for (int64_t t = 0; t < n; t++) s[t] /= sum;
}

/* The queries [from, from + rows) of a group: of new token u / of_group head u % of_group. */
static void run_task(const cached *t, int64_t group, int64_t from, int64_t rows)
{
    const ct_attention_desc *d = t->d;
    int64_t first = from / t->of_group, last = (from + rows - 1) / t->of_group, begin, end, none;
    int64_t y_row = t->panels * t->width;
    scratch w = scratch_of(t);
    float row[512];

    ct_attention_sees(d, t->c->length + first, &begin, &none);
    end = t->c->length + last + 1;
    begin = begin / t->width * t->width; /* a whole panel */
    for (int64_t r = 0; r < rows; r++) {
        int64_t u = from + r, head = group * t->of_group + u % t->of_group;

        put(t, t->turn, u / t->of_group, d->scale,
            t->a->q + u / t->of_group * d->q_row + head * d->dim, row, 1);
        for (int64_t c = 0; c < d->dim; c++) w.q[c * rows + r] = row[c];
    }
    for (int64_t k = begin; k < end; k += t->width) {
        const float *keys = key_at(t, group, k);

        t->set->tile[CT_GEMM_VECS - 1][rows - 1](d->dim, w.q, keys, keys + d->dim * t->width,
                                                 t->width, 1.0f, 0.0f, w.s + k - begin, t->room);
    }
    memset(w.p, 0, (size_t)((end - begin) * rows) * sizeof(float));
    for (int64_t r = 0; r < rows; r++) {
        int64_t p = t->c->length + (from + r) / t->of_group, low, high;
        float *s = w.s + r * t->room;

        ct_attention_sees(d, p, &low, &high);
        softmax(p + 1 - low, s + low - begin);
        for (int64_t k = low; k <= p; k++) w.p[(k - begin) * rows + r] = s[k - begin];
    }
    for (int64_t p = 0; p < t->panels; p++) {
        const float *values = value_at(t, group, p, begin);

        t->set->tile[CT_GEMM_VECS - 1][rows - 1](end - begin, w.p, values, values, t->width, 1.0f,
                                                 0.0f, w.y + p * t->width, y_row);
    }
    for (int64_t r = 0; r < rows; r++) {
        int64_t u = from + r, head = group * t->of_group + u % t->of_group;

        memcpy(t->a->y + (u / t->of_group * d->heads + head) * d->dim, w.y + r * y_row,
               (size_t)d->dim * sizeof(float));
    }
}

bool ct_attention_cached_supports(const ct_attention_desc *d)
{
    return (d->device == CT_DEVICE_CPU) && d->causal && (d->tq == d->tk) && (d->dim <= 512);
}

void ct_attention_cached(const ct_attention_desc *d, const ct_attention_cache *c, int64_t fresh,
                         double base, const ct_attention_args *a)
{
    cached t = describe(d, c->capacity);
    int64_t queries = fresh * t.of_group, tasks = ct_gemm_ceil_div(queries, t.set->rows);
    double work = 4.0 * (double)(queries * d->kv_heads * d->dim) * (double)(c->length + fresh);

    t.c = c;
    t.a = a;
    t.fresh = fresh;
    if (d->rope_dim > 0) {
        ct_attention_turns(c->length, fresh, d->rope_dim, base, a->work);
        t.turn = a->work;
    }
    append(&t);
    memset(a->y + fresh * d->heads * d->dim, 0,
           (size_t)((d->tq - fresh) * d->heads * d->dim) * sizeof(float));
#pragma omp parallel for num_threads(d->n_thread) schedule(static) if (work > 1e6)
    for (int64_t i = 0; i < tasks * d->kv_heads; i++) {
        int64_t from = ct_gemm_tile_row(queries, tasks, i % tasks);

        run_task(&t, i / tasks, from, ct_gemm_tile_row(queries, tasks, i % tasks + 1) - from);
    }
}
