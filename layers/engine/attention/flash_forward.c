/* flash, forward: the scores of a block of keys and a panel of queries at a time, with a running
 * maximum and sum. A task is some panels of one head; it packs the keys and values that they see
 * once for all of them. */
#include <math.h>
#include <string.h>

#include "framework/base/bf16.h"
#include "framework/base/rng.h"
#include "framework/math/scalar.h"
#include "layers/engine/attention/flash.h"

/* A thread's memory, in rows of CT_FLASH_ROW. SIDE queries of a task lie side by side. */
enum { SIDE = CT_FLASH_PIECE, SIDES = CT_FLASH_TASK / SIDE };

typedef struct room {
    float *k, *v;      /* [piece][CT_FLASH_KEYS]: tokens; k: first of all queries */
    float *s;          /* [CT_FLASH_KEYS]                                         */
    float *q, *y;      /* [SIDES][dim]: turned queries, results                   */
    float *most, *sum; /* [CT_FLASH_TASK] numbers                                 */
    float *factor;     /* [CT_FLASH_WIDTH]                                        */
} room;

/* What the threads share. */
typedef struct pass {
    const ct_attention_desc *d;
    const ct_attention_args *a;
    const ct_flash_set *set;
    const ct_flash_rows *rows;
    int64_t width, pieces;
    bool pairs;              /* products are of pairs of bf16 numbers */
    ct_attention_desc words; /* d, with a head's words as dim         */
} pass;

/* The queries [from, to) of one head of one sequence. */
typedef struct task {
    int64_t sample, head, group, from, to;
    const float *segment; /* of the sample; NULL: none */
} task;

static int64_t room_floats(const ct_attention_desc *d)
{
    int64_t tokens = ct_flash_pieces(d->dim) * CT_FLASH_KEYS;

    return (2 * tokens + CT_FLASH_KEYS + 2 * SIDES * d->dim) * CT_FLASH_ROW + 2 * CT_FLASH_TASK +
           CT_FLASH_WIDTH;
}

static room room_of(const pass *p, int thread)
{
    int64_t tokens = p->pieces * CT_FLASH_KEYS * CT_FLASH_ROW;
    int64_t queries = SIDES * p->d->dim * CT_FLASH_ROW;
    room r = { .k = (float *)p->a->work + thread * ct_flash_room(room_floats(p->d)) };

    r.v = r.k + tokens;
    r.s = r.v + tokens;
    r.q = r.s + CT_FLASH_KEYS * CT_FLASH_ROW;
    r.y = r.q + queries;
    r.most = r.y + queries;
    r.sum = r.most + CT_FLASH_TASK;
    r.factor = r.sum + CT_FLASH_TASK;
    return r;
}

/* ---- one panel and one block of keys */

typedef struct block {
    int64_t query, queries, key, n; /* first query of the panel, queries, first key, keys */
    float *q, *y, *most, *sum;
    const float *k, *v; /* of the first key */
} block;

/* Some keys of a block, and which of the panel's vectors have to do with them. */
typedef struct part {
    int64_t from, to;
    int vec, vecs;
} part;

/* scores^T = k q^T */
static void scores(const pass *p, const block *b, const part *x, float *s)
{
    int64_t n = x->to - x->from, tiles = ct_gemm_ceil_div(n, p->set->rows);
    int64_t capacity = CT_FLASH_KEYS * CT_FLASH_ROW, at = (int64_t)x->vec * p->set->lanes;

    for (int64_t t = 0; t < tiles; t++) {
        int64_t i = ct_gemm_tile_row(n, tiles, t), row = (x->from + i) * CT_FLASH_ROW;
        int64_t rows = ct_gemm_tile_row(n, tiles, t + 1) - i;
        ct_flash_tile tile = p->set->along[x->vecs - 1][rows - 1];

        for (int64_t c = 0; c < p->words.dim; c += CT_FLASH_PIECE)
            tile(ct_gemm_smaller(CT_FLASH_PIECE, p->words.dim - c),
                 b->k + c / CT_FLASH_PIECE * capacity + row, b->q + c * CT_FLASH_ROW + at,
                 s + row + at, c > 0);
    }
}

/* y^T += v^T p^T */
static void values(const pass *p, const block *b, const part *x, const float *s)
{
    int64_t dim = p->d->dim, capacity = CT_FLASH_KEYS * CT_FLASH_ROW;
    int64_t pair = p->pairs ? 2 : 1, words = ct_gemm_ceil_div(x->to - x->from, pair);
    int64_t row = x->from / pair * CT_FLASH_ROW, at = (int64_t)x->vec * p->set->lanes;

    for (int64_t c = 0; (x->to > x->from) && (c < dim); c += CT_FLASH_PIECE) {
        int64_t n = ct_gemm_smaller(CT_FLASH_PIECE, dim - c);
        int64_t tiles = ct_gemm_ceil_div(n, p->set->rows);

        for (int64_t t = 0; t < tiles; t++) {
            int64_t i = ct_gemm_tile_row(n, tiles, t);
            int64_t rows = ct_gemm_tile_row(n, tiles, t + 1) - i;

            p->set->down[x->vecs - 1][rows - 1](
                words, b->v + c / CT_FLASH_PIECE * capacity + row + i, s + row + at,
                b->y + (c + i) * CT_FLASH_ROW + at, true);
        }
    }
}

/* Keys that both vectors of queries see, or the first alone where there is no more, and those that
 * stand behind all queries of the first. */
static void cut_block(const pass *p, const block *b, part x[2])
{
    int64_t lanes = p->set->lanes;
    int64_t cut = ct_flash_first_vector(p->d, lanes, b->query, b->key, b->n);
    bool few = b->queries <= lanes;

    if (p->pairs) cut = ct_gemm_smaller(ct_gemm_round_up(cut, 2), b->n); /* whole pairs of keys */
    x[0] = (part){ .from = 0, .to = cut, .vec = 0, .vecs = few ? 1 : 2 };
    x[1] = (part){ .from = cut, .to = few ? cut : b->n, .vec = 1, .vecs = 1 };
}

/* Which probabilities of a block dropout keeps: word j: a bit a query. */
static void kept_words(const pass *p, const task *t, const block *b, uint32_t *word)
{
    const ct_attention_desc *d = p->d;
    uint16_t bits[32][CT_FLASH_DRAWN] = { { 0 } };
    int64_t queries = b->queries, skip = b->key % 16;

    for (int64_t i = 0; i < queries; i++) {
        uint64_t first =
            ct_attention_number(d, p->a->first + t->sample, t->head, b->query + i, b->key - skip);

        ct_rng_bits(p->a->key, first, b->n + skip, (uint32_t)d->drop_below, bits[i]);
    }
    for (int64_t j = 0; j < b->n; j += 32) {
        uint32_t square[32];

        for (int64_t i = 0; i < 32; i++) square[i] = ct_flash_bits(bits[i], j + skip);
        ct_flash_turn_bits(square);
        memcpy(word + j, square, (size_t)ct_gemm_smaller(32, b->n - j) * sizeof(*word));
    }
}

/* Queries of pairs come as they are. */
static void scale_scores(const pass *p, int64_t n, float *s)
{
    float by[CT_FLASH_WIDTH];

    for (int64_t i = 0; i < p->width; i++) by[i] = p->d->scale * 0x1.715476p+0f;
    p->rows->scale(n, by, s);
}

static void run_block(const pass *p, const task *t, const block *b, const room *r)
{
    const ct_attention_desc *d = p->d;
    int64_t shift = ct_attention_shift(d);
    ct_flash_softmax a = { .n = b->n,
                           .s = r->s,
                           .most = b->most,
                           .sum = b->sum,
                           .factor = r->factor,
                           .first = b->key - (b->query + shift),
                           .causal = d->causal,
                           .window = d->window };
    float of_query[CT_FLASH_WIDTH];
    part x[2];

    if (t->segment != NULL) {
        int64_t last = b->query + b->queries - 1;
        const float *own = t->segment + shift, *of_key = t->segment + b->key;
        ct_flash_equal equal = ct_flash_segments(own + b->query, b->queries, of_key, b->n);

        if (equal == CT_FLASH_NONE) return;
        for (int64_t i = 0; i < p->width; i++)
            of_query[i] = own[ct_gemm_smaller(b->query + i, last)];
        a.of_query = of_query;
        a.of_key = (equal == CT_FLASH_SOME) ? of_key : NULL;
    }
    cut_block(p, b, x);
    for (int64_t i = 0; (x[0].vecs == 1) && (i < b->n); i++) /* lanes of nobody */
        memset(r->s + i * CT_FLASH_ROW + p->set->lanes, 0, (size_t)p->set->lanes * sizeof(float));
    for (int i = 0; i < 2; i++) scores(p, b, &x[i], r->s);
    if (p->pairs) scale_scores(p, b->n, r->s);
    if (p->rows->softmax(&a)) p->rows->scale(d->dim, r->factor, b->y);
    if (d->drop_below > 0) {
        uint32_t word[CT_FLASH_KEYS];

        kept_words(p, t, b, word);
        p->rows->drop(b->n, word, d->keep_scale, r->s);
    }
    if (p->pairs) ct_flash_pair_rows(0, b->n, p->width, r->s, r->s);
    for (int i = 0; i < 2; i++) values(p, b, &x[i], r->s);
}

/* ---- a task */

/* Panel i's memory, its first query as the rest of the block. */
static block panel_of(const pass *p, const task *t, const room *r, int64_t i)
{
    int64_t at = i * p->width, lies = at / SIDE * p->d->dim * CT_FLASH_ROW + at % SIDE;

    return (block){ .query = t->from + at,
                    .queries = ct_gemm_smaller(p->width, t->to - t->from - at),
                    .q = r->q + lies,
                    .y = r->y + lies,
                    .most = r->most + at,
                    .sum = r->sum + at };
}

static void begin(const pass *p, const task *t, const room *r, int64_t panels)
{
    const ct_attention_desc *d = p->d;
    int64_t shift = ct_attention_shift(d);
    const float *q = ct_num_at(p->a->q, d->bf16, t->sample * d->tq * d->q_row + t->head * d->dim);

    for (int64_t i = 0; i < panels; i++) {
        block b = panel_of(p, t, r, i);
        ct_flash_copy copy = { .d = d,
                               .rows = p->rows,
                               .turn = p->a->turn,
                               .position = b.query + shift,
                               .n = b.queries,
                               .capacity = CT_FLASH_KEYS,
                               .scale = p->pairs ? 1.0f : d->scale * 0x1.715476p+0f /* 1 / ln 2 */,
                               .bf16 = d->bf16 };

        ct_flash_take(&copy, ct_num_at(q, d->bf16, b.query * d->q_row), d->q_row, r->k);
        if (p->pairs) ct_flash_pair_along(b.queries, d->dim, d->dim, r->k, r->k);
        ct_flash_panel(&p->words, p->width, b.queries, CT_FLASH_KEYS, r->k, b.q);
        for (int64_t c = 0; c < d->dim; c++)
            memset(b.y + c * CT_FLASH_ROW, 0, (size_t)p->width * sizeof(float));
        for (int64_t lane = 0; lane < p->width; lane++) {
            b.most[lane] = -INFINITY;
            b.sum[lane] = 0;
        }
    }
}

/* Divides by the sums and writes a panel. */
static void end(const pass *p, const task *t, const room *r, const block *b)
{
    const ct_attention_desc *d = p->d;
    int64_t n = b->queries, row = d->heads * d->dim;
    int64_t first = (t->sample * d->heads + t->head) * d->tq + b->query;
    int64_t at = (t->sample * d->tq + b->query) * row + t->head * d->dim;

    for (int64_t i = 0; i < p->width; i++) {
        bool any = b->most[i] > -INFINITY;

        r->factor[i] = (any || (b->sum[i] != 0)) ? 1.0f / b->sum[i] : 0.0f; /* NaN stays */
        if ((p->a->stats == NULL) || (i >= n)) continue;
        p->a->stats[2 * (first + i)] = any ? b->most[i] : 0.0f;
        p->a->stats[2 * (first + i) + 1] = r->factor[i];
    }
    p->rows->scale(d->dim, r->factor, b->y);
    if (!d->bf16) {
        ct_gemm_turn(ct_gemm_set_pick(false), d->dim, n, b->y, CT_FLASH_ROW, p->a->y + at, row);
        return;
    }
    ct_gemm_turn(ct_gemm_set_pick(false), d->dim, n, b->y, CT_FLASH_ROW, r->k, d->dim);
    for (int64_t i = 0; i < n; i++)
        ct_bf16_narrow(d->dim, r->k + i * d->dim, ct_num_to(p->a->y, true, at + i * row));
}

static void run_task(const pass *p, const task *t, const room *r)
{
    const ct_attention_desc *d = p->d;
    int64_t panels = ct_gemm_ceil_div(t->to - t->from, p->width), shift = ct_attention_shift(d);
    const float *k = ct_num_at(p->a->k, d->bf16, t->sample * d->tk * d->k_row + t->group * d->dim);
    const float *v = ct_num_at(p->a->v, d->bf16, t->sample * d->tk * d->v_row + t->group * d->dim);
    int64_t from, to, unused;

    begin(p, t, r, panels);
    ct_attention_sees(d, t->from + shift, &from, &unused);
    ct_attention_sees(d, t->to - 1 + shift, &unused, &to);
    for (int64_t key = from / CT_FLASH_KEYS * CT_FLASH_KEYS; key < to; key += CT_FLASH_KEYS) {
        int64_t n = ct_gemm_smaller(CT_FLASH_KEYS, to - key);
        ct_flash_copy copy = { d, p->rows, p->a->turn, key, n, CT_FLASH_KEYS, 1.0f, d->bf16 };

        ct_flash_take(&copy, ct_num_at(k, d->bf16, key * d->k_row), d->k_row, r->k);
        copy.turn = NULL;
        ct_flash_take(&copy, ct_num_at(v, d->bf16, key * d->v_row), d->v_row, r->v);
        if (p->pairs) {
            ct_flash_pair_along(n, d->dim, d->dim, r->k, r->k);
            ct_flash_pair_rows(0, n, d->dim, r->v, r->v);
        }
        ct_flash_fetch(d, ct_gemm_smaller(CT_FLASH_KEYS, to - key - n),
                       ct_num_at(k, d->bf16, (key + n) * d->k_row), d->k_row);
        ct_flash_fetch(d, ct_gemm_smaller(CT_FLASH_KEYS, to - key - n),
                       ct_num_at(v, d->bf16, (key + n) * d->v_row), d->v_row);
        for (int64_t i = 0; i < panels; i++) {
            block b = panel_of(p, t, r, i);
            int64_t last = b.query + b.queries - 1, first_seen, end_seen;

            ct_attention_sees(d, b.query + shift, &first_seen, &unused);
            ct_attention_sees(d, last + shift, &unused, &end_seen);
            b.key = (first_seen > key) ? first_seen : key;
            if (p->pairs) b.key -= b.key % 2;
            b.n = ct_gemm_smaller(end_seen, key + n) - b.key;
            b.k = r->k + (b.key - key) * CT_FLASH_ROW;
            b.v = r->v + (b.key - key) / (p->pairs ? 2 : 1) * CT_FLASH_ROW;
            if (b.n > 0) run_block(p, t, &b, r);
        }
    }
    for (int64_t i = 0; i < panels; i++) {
        block b = panel_of(p, t, r, i);

        end(p, t, r, &b);
    }
}

/* Task i, the longest first: chunks of queries from the last one on, of all heads. */
static task task_of(const pass *p, int64_t chunks, int64_t i)
{
    const ct_attention_desc *d = p->d;
    int64_t heads = d->n * d->heads, chunk = chunks - 1 - i / heads;
    task t = { .sample = i % heads / d->heads, .head = i % heads % d->heads };

    t.group = t.head / (d->heads / d->kv_heads);
    t.from = chunk * d->task_queries;
    t.to = ct_gemm_smaller(t.from + d->task_queries, d->tq);
    if (p->a->segment != NULL) t.segment = p->a->segment + t.sample * d->tk;
    return t;
}

/* The same queries of a sequence that has others, of other lengths, beside it. */
static void run_packed_task(const pass *p, const task *among, const room *r)
{
    ct_attention_desc d;
    ct_attention_args a;
    pass own = *p;
    task t = *among;

    ct_attention_alone(p->d, p->a, t.sample, &d, &a);
    if (t.from >= d.tq) return;
    own.d = &d;
    own.a = &a;
    t.sample = 0;
    t.to = ct_gemm_smaller(t.from + d.task_queries, d.tq);
    t.segment = a.segment;
    run_task(&own, &t, r);
}

static ct_status run(const ct_attention_desc *d, ct_exec *ex, const ct_attention_args *a)
{
    int64_t chunks = ct_gemm_ceil_div(d->tq, d->task_queries), tasks = chunks * d->n * d->heads;
    pass p = { .d = d, .a = a, .rows = ct_flash_rows_pick(), .pieces = ct_flash_pieces(d->dim) };
    ct_status worst = CT_OK;

    p.pairs = ct_flash_pairs(d);
    p.set = p.pairs ? ct_flash_pairs_pick() : ct_flash_set_pick();
    p.words = *d;
    if (p.pairs) p.words.dim = (d->dim + 1) / 2;
    p.width = (int64_t)CT_GEMM_VECS * p.set->lanes;
#pragma omp parallel num_threads(d->n_thread)
    {
        room r = room_of(&p, omp_get_thread_num());

#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < tasks; i++) {
            task t = task_of(&p, chunks, i);

            (a->at != NULL ? run_packed_task : run_task)(&p, &t, &r);
            ct_engine_poll(ex, &worst);
        }
    }
    return worst;
}

static size_t workspace(const ct_attention_desc *d)
{
    return (size_t)(d->n_thread * ct_flash_room(room_floats(d))) * sizeof(float);
}

const ct_attention_impl ct_attention_flash_forward = {
    .name = "flash",
    .supports = ct_flash_supports,
    .workspace = workspace,
    .run = run,
};
