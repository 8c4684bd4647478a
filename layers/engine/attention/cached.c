/* Attention of new tokens on sequences that grow: their keys, turned by their positions, and values
 * go behind those that pages keep, and their queries attend to all of them.
 *
 * In a page each group of heads has its keys in blocks of a panel's tokens, [block][dim][token],
 * and its values in panels of dimensions, [panel][token][dimension]: both as the tiles of
 * gemm_private.h read them. In nets of bf16 values they are kept so, in pairs where the processor
 * multiplies pairs; then queries and probabilities are rounded, too, as flash does it. Elsewhere
 * they are widened on their way. So scores and sums of values are products of tiles, for as many
 * queries of a group at a time as a tile has rows. Values are added up page by page, so what a
 * query gets depends on its sequence alone, however this was cut and whatever else is in the pass.
 * Tasks are dealt out whole: no bit depends on the number of threads. */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "framework/base/bf16.h"
#include "framework/base/simd.h"
#include "framework/math/gemm_private.h"
#include "framework/math/sigmoid.h"
#include "layers/engine/attention/attention.h"

enum { SUMS = 16, ALIGN = 16 /* floats of a cache line */, MOST_DIM = 512 };

_Static_assert(CT_PAGE_TOKENS % CT_GEMM_MAX_WIDTH == 0, "a page has whole panels");

/* What one call works on. */
typedef struct cached {
    const ct_attention_desc *d;
    const ct_attention_cache *c;
    const ct_attention_args *a;
    const ct_gemm_set *set;
    int64_t width, panels;  /* of a panel; panels of dimensions */
    bool widens;            /* panels are kept in bf16, and multiplied as floats */
    int64_t of_group, room; /* queries of a group a token; tokens of the longest, in pages */
    int64_t *task;          /* [n + 1] the first task of each sequence, and their number */
} cached;

/* A thread's: queries, scores, probabilities turned over, sums of values, a panel widened. */
typedef struct scratch {
    float *q, *s, *p, *y, *b;
} scratch;

/* One sequence. */
typedef struct growing {
    int64_t at, fresh, before; /* row of its first new token; new ones; those before */
    const int32_t *page;
} growing;

static int64_t round_up(int64_t n)
{
    return ct_gemm_round_up(n, ALIGN);
}

static cached describe(const ct_attention_desc *d, int64_t capacity)
{
    cached t = { .d = d, .set = ct_gemm_set_pick(d->bf16), .of_group = d->heads / d->kv_heads };

    t.widens = d->bf16 && (t.set->pair == 1);
    t.width = ct_gemm_panel(t.set);
    t.room = ct_gemm_round_up(capacity, CT_PAGE_TOKENS);
    t.panels = ct_gemm_ceil_div(d->dim, t.width);
    return t;
}

static growing sequence_of(const ct_attention_cache *c, int64_t i)
{
    return (growing){ c->at[i], c->at[i + 1] - c->at[i], c->before[i], c->page[i] };
}

/* Whole pairs. */
static int64_t keys_of_group(const cached *t)
{
    return CT_PAGE_TOKENS * ct_gemm_round_up(t->d->dim, 2);
}

/* The number (q, i) of a panel of so many columns. */
static int64_t place_in(const ct_gemm_set *s, int64_t columns, int64_t q, int64_t i)
{
    return (s->pair == 2) ? (q / 2 * columns + i) * 2 + q % 2 : q * columns + i;
}

static int64_t numbers_of_group(const cached *t)
{
    return keys_of_group(t) + CT_PAGE_TOKENS * t->panels * t->width;
}

size_t ct_attention_page_bytes(const ct_attention_desc *d)
{
    cached t = describe(d, 0);

    return (size_t)(d->kv_heads * numbers_of_group(&t)) * ct_num_size(d->bf16);
}

static int64_t widened_room(const cached *t)
{
    int64_t longest = (t->d->dim > CT_PAGE_TOKENS) ? t->d->dim : CT_PAGE_TOKENS;

    return t->widens ? longest * t->width : 0;
}

static int64_t scratch_room(const cached *t)
{
    int64_t rows = t->set->rows;

    return round_up(rows * t->d->dim) + 2 * round_up(rows * t->room) +
           round_up(rows * t->panels * t->width) + widened_room(t);
}

/* Of int64_t, in floats. */
static int64_t task_room(int64_t n)
{
    return round_up(2 * (n + 1));
}

size_t ct_attention_cached_workspace(const ct_attention_desc *d, int64_t capacity, int64_t n)
{
    cached t = describe(d, capacity);
    int64_t threads = (d->n_thread > 1) ? d->n_thread : 1;

    return (size_t)(task_room(n) + threads * scratch_room(&t)) * sizeof(float);
}

static scratch scratch_of(const cached *t)
{
    float *work = (float *)t->a->work + task_room(t->c->n);
    int64_t rows = t->set->rows;
    scratch w;

    work += omp_get_thread_num() * scratch_room(t);
    w.q = work;
    w.s = w.q + round_up(rows * t->d->dim);
    w.p = w.s + round_up(rows * t->room);
    w.y = w.p + round_up(rows * t->room);
    w.b = w.y + round_up(rows * t->panels * t->width);
    return w;
}

/* to[c] = scale x[c], turned by its position where the head turns. */
static void turn_row(const cached *t, int64_t position, float scale, const float *x, float *to)
{
    const ct_attention_desc *d = t->d;
    int64_t turned = d->rope_dim, half = turned / 2;
    const float *turn = t->a->turn + position * turned;

    for (int64_t k = 0; k < half; k++) {
        int64_t one = d->interleaved ? 2 * k : k, other = d->interleaved ? 2 * k + 1 : k + half;
        float cosine = turn[k], sine = turn[half + k];

        to[one] = scale * (x[one] * cosine - x[other] * sine);
        to[other] = scale * (x[other] * cosine + x[one] * sine);
    }
    for (int64_t c = turned; c < d->dim; c++) to[c] = scale * x[c];
}

static float *group_of(const cached *t, const growing *s, int64_t group, int64_t token)
{
    int64_t page = s->page[token / CT_PAGE_TOKENS];

    return ct_num_to(t->c->kept, t->d->bf16, (page * t->d->kv_heads + group) * numbers_of_group(t));
}

/* The keys of the panel of tokens that has this one. */
static float *keys_at(const cached *t, const growing *s, int64_t group, int64_t token)
{
    return ct_num_to(group_of(t, s, group, token), t->d->bf16,
                     token % CT_PAGE_TOKENS / t->width * ct_gemm_round_up(t->d->dim, 2) * t->width);
}

/* A panel of the dimensions of its page's tokens. */
static float *values_at(const cached *t, const growing *s, int64_t group, int64_t panel,
                        int64_t token)
{
    return ct_num_to(group_of(t, s, group, token), t->d->bf16,
                     keys_of_group(t) + panel * CT_PAGE_TOKENS * t->width);
}

/* Numbers (q, i), (q + step_q, i + step_i), … of a panel, n of them. The second half of a pair is 0
 * until its number comes. */
static void put(const cached *t, float *panel, int64_t q, int64_t i, int64_t step_q, int64_t step_i,
                const void *x, int64_t n)
{
    const ct_bf16 *from = x;
    ct_bf16 *to = (void *)panel;

    for (int64_t c = 0; c < n; c++, q += step_q, i += step_i) {
        int64_t at = place_in(t->set, t->width, q, i);

        if (!t->d->bf16)
            panel[at] = ((const float *)x)[c];
        else
            to[at] = from[c];
        if ((t->set->pair == 2) && (q % 2 == 0)) to[at + 1] = 0;
    }
}

/* Keys and values of a group of a sequence's new tokens. */
static void append(const cached *t, const growing *s, int64_t group)
{
    const ct_attention_desc *d = t->d;
    float room[MOST_DIM], turned[MOST_DIM];
    ct_bf16 narrow[MOST_DIM];

    for (int64_t i = 0; i < s->fresh; i++) {
        int64_t token = s->before + i, row = s->at + i;
        const float *x = ct_num_at(t->a->k, d->bf16, row * d->k_row + group * d->dim);

        turn_row(t, token, 1.0f, ct_num_read(x, d->bf16, d->dim, room), turned);
        if (d->bf16) ct_bf16_narrow(d->dim, turned, narrow);
        put(t, keys_at(t, s, group, token), 0, token % t->width, 1, 0,
            d->bf16 ? (const void *)narrow : turned, d->dim);
        x = ct_num_at(t->a->v, d->bf16, row * d->v_row + group * d->dim);
        for (int64_t p = 0; p < t->panels; p++)
            put(t, values_at(t, s, group, p, token), token % CT_PAGE_TOKENS, 0, 0, 1,
                ct_num_at(x, d->bf16, p * t->width),
                ct_gemm_smaller(t->width, d->dim - p * t->width));
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

/* Query u of a group: of new token u / of_group head u % of_group. The row of q or y that it has.
 */
static int64_t place_of(const cached *t, const growing *s, int64_t group, int64_t u, int64_t row)
{
    return (s->at + u / t->of_group) * row + (group * t->of_group + u % t->of_group) * t->d->dim;
}

/* In panels of so many rows as a tile takes, as numbers that it multiplies. */
static void put_row(const cached *t, int64_t rows, int64_t r, int64_t from, int64_t n,
                    const float *x, float *to)
{
    enum { SOME = 64 };
    ct_bf16 narrow[SOME];

    for (int64_t k = 0; k < n; k++) {
        if (t->set->pair == 1) {
            to[(from + k) * rows + r] = x[k];
            continue;
        }
        if (k % SOME == 0) ct_bf16_narrow(ct_gemm_smaller(SOME, n - k), x + k, narrow);
        ((ct_bf16 *)(void *)to)[place_in(t->set, rows, from + k, r)] = narrow[k % SOME];
    }
}

static void turn_queries(const cached *t, const growing *s, int64_t group, int64_t from,
                         int64_t rows, float *q)
{
    const ct_attention_desc *d = t->d;
    float room[MOST_DIM], turned[MOST_DIM];

    memset(q, 0, (size_t)(ct_gemm_words(t->set, d->dim) * rows) * sizeof(*q));
    for (int64_t r = 0; r < rows; r++) {
        int64_t u = from + r;
        const float *x = ct_num_at(t->a->q, d->bf16, place_of(t, s, group, u, d->q_row));

        turn_row(t, s->before + u / t->of_group, d->scale, ct_num_read(x, d->bf16, d->dim, room),
                 turned);
        put_row(t, rows, r, 0, d->dim, turned, q);
    }
}

/* A token of the page behind token k's, which is fetched meanwhile; of the last page the same. */
static int64_t next_page(int64_t k, int64_t end)
{
    return (k + CT_PAGE_TOKENS < end) ? k + CT_PAGE_TOKENS : k;
}

/* y (+)= the product of a panel of rows and one that is kept, over n numbers. */
static void multiply(const cached *t, const scratch *w, int64_t rows, int64_t n, const float *a,
                     const float *b, const float *next, float beta, float *y, int64_t y_row)
{
    if (t->widens) {
        ct_bf16_widen(n * t->width, b, w->b);
        b = next = w->b;
    }
    t->set->tile[CT_GEMM_VECS - 1][rows - 1](ct_gemm_words(t->set, n), a, b, next, t->width, 1.0f,
                                             beta, y, y_row);
}

/* The sums of values that w->p[end - begin][rows] weighs, page by page. */
static void add_values(const cached *t, const growing *s, int64_t group, int64_t begin, int64_t end,
                       int64_t rows, const scratch *w)
{
    for (int64_t k = begin; k < end; k += CT_PAGE_TOKENS) {
        int64_t n = ct_gemm_smaller(CT_PAGE_TOKENS, end - k), soon = next_page(k, end);
        const float *p = w->p + ct_gemm_words(t->set, k - begin) * rows;

        for (int64_t i = 0; i < t->panels; i++)
            multiply(t, w, rows, n, p, values_at(t, s, group, i, k),
                     values_at(t, s, group, i, soon), (k > begin) ? 1.0f : 0.0f,
                     w->y + i * t->width, t->panels * t->width);
    }
}

/* The queries [from, from + rows) of a group. */
static void run_task(const cached *t, const growing *s, int64_t group, int64_t from, int64_t rows)
{
    const ct_attention_desc *d = t->d;
    int64_t first = from / t->of_group, last = (from + rows - 1) / t->of_group, begin, end, none;
    scratch w = scratch_of(t);

    ct_attention_sees(d, s->before + first, &begin, &none);
    end = s->before + last + 1;
    begin = begin / CT_PAGE_TOKENS * CT_PAGE_TOKENS;
    turn_queries(t, s, group, from, rows, w.q);
    for (int64_t k = begin; k < end; k += t->width)
        multiply(t, &w, rows, d->dim, w.q, keys_at(t, s, group, k),
                 keys_at(t, s, group, next_page(k, end)), 0.0f, w.s + k - begin, t->room);
    memset(w.p, 0, (size_t)(ct_gemm_words(t->set, end - begin) * rows) * sizeof(float));
    for (int64_t r = 0; r < rows; r++) {
        int64_t p = s->before + (from + r) / t->of_group, low, high;
        float *score = w.s + r * t->room;

        ct_attention_sees(d, p, &low, &high);
        softmax(p + 1 - low, score + low - begin);
        put_row(t, rows, r, low - begin, p + 1 - low, score + low - begin, w.p);
    }
    add_values(t, s, group, begin, end, rows, &w);
    for (int64_t r = 0; r < rows; r++) {
        float *y = ct_num_to(t->a->y, d->bf16, place_of(t, s, group, from + r, d->heads * d->dim));

        if (d->bf16)
            ct_bf16_narrow(d->dim, w.y + r * t->panels * t->width, y);
        else
            memcpy(y, w.y + r * t->panels * t->width, (size_t)d->dim * sizeof(float));
    }
}

bool ct_attention_cached_supports(const ct_attention_desc *d)
{
    return (d->device == CT_DEVICE_CPU) && d->causal && (d->tq == d->tk) && (d->dim <= MOST_DIM);
}

/* Tiles of a group's queries. */
static int64_t tiles_of(const cached *t, int64_t fresh)
{
    return ct_gemm_ceil_div(fresh * t->of_group, t->set->rows);
}

/* Task i of all: first those of sequence 0. */
static void run_one(const cached *t, int64_t i)
{
    int64_t low = 0, high = t->c->n - 1, tiles, tile, from, queries;
    growing s;

    while (low < high) {
        int64_t middle = (low + high + 1) / 2;

        if (t->task[middle] <= i)
            low = middle;
        else
            high = middle - 1;
    }
    s = sequence_of(t->c, low);
    queries = s.fresh * t->of_group;
    tiles = tiles_of(t, s.fresh);
    tile = (i - t->task[low]) % tiles;
    from = ct_gemm_tile_row(queries, tiles, tile);
    run_task(t, &s, (i - t->task[low]) / tiles, from,
             ct_gemm_tile_row(queries, tiles, tile + 1) - from);
}

void ct_attention_cached(const ct_attention_desc *d, const ct_attention_cache *c,
                         const ct_attention_args *a)
{
    cached t = describe(d, c->capacity);
    double work = 0;

    t.c = c;
    t.a = a;
    t.task = a->work;
    t.task[0] = 0;
    for (int64_t i = 0; i < c->n; i++) {
        growing s = sequence_of(c, i);

        work += 4.0 * (double)(s.fresh * d->heads * d->dim) * (double)(s.before + s.fresh);
        t.task[i + 1] = t.task[i] + tiles_of(&t, s.fresh) * d->kv_heads;
    }
#pragma omp parallel num_threads(d->n_thread) if (work > 1e6)
    {
#pragma omp for schedule(static)
        for (int64_t i = 0; i < c->n * d->kv_heads; i++) {
            growing s = sequence_of(c, i / d->kv_heads);

            append(&t, &s, i % d->kv_heads);
        }
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < t.task[c->n]; i++) run_one(&t, i);
    }
}
