/* flash, backward. A unit is some keys of one group of heads; it holds their gradients, and goes
 * over the queries that see them, block by block, from the last one back. Five products a block:
 * scores and dp once, then the gradients of keys, values and queries.
 *
 * What units add to a query's gradient comes in the order of the keys: a block of queries has a
 * turn, the unit that adds next. Units are begun in that order, and a unit's products go on while
 * it waits. A sum's order so depends neither on threads nor on how many keys a unit has. */
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "framework/base/bf16.h"
#include "framework/base/rng.h"
#include "layers/engine/attention/flash.h"

/* A thread's memory, in rows of CT_FLASH_ROW. */
typedef struct room {
    /* of a unit's keys */
    float *k;                   /* [piece][CT_FLASH_KEYS]: turned keys */
    float *k_panels, *v_panels; /* [dim]: turned over                  */
    float *dk, *dv;             /* [piece][CT_FLASH_KEYS]              */
    /* of a block of queries */
    float *q, *dy, *dq; /* [piece][CT_FLASH_QUERIES]: turned queries, gradients */
    float *p, *ds;      /* [CT_FLASH_QUERIES]                                   */
    /* of pairs, [CT_FLASH_QUERIES / 2]: two queries in a row; ds has pairs of keys then */
    float *q_pairs, *dy_pairs, *p_pairs, *ds_pairs;
} room;

typedef struct pass {
    const ct_attention_desc *d;
    const ct_attention_args *a;
    const ct_flash_set *set;
    const ct_flash_rows *rows;
    int64_t width, pieces;
    bool pairs;              /* products are of pairs of bf16 numbers */
    ct_attention_desc words; /* d, with a head's words as dim         */
    float *dot;              /* [sequence][head][query]: sum of dy y         */
    atomic_int *turn;        /* [sequence][head][block]: the chunk whose turn it is */
    float *sums; /* of bf16: what units have added to dq so far, in f32: tokens x heads dim */
    float *rooms;
} pass;

enum { KEY_ROWS = CT_FLASH_KEYS * CT_FLASH_ROW, QUERY_ROWS = CT_FLASH_QUERIES * CT_FLASH_ROW };

static int64_t blocks_of(const ct_attention_desc *d)
{
    return ct_gemm_ceil_div(d->tq, CT_FLASH_QUERIES);
}

static int64_t room_floats(const ct_attention_desc *d)
{
    int64_t pieces = ct_flash_pieces(d->dim);

    return 3 * pieces * KEY_ROWS + 2 * d->dim * CT_FLASH_ROW +
           (3 * pieces + 2 + (ct_flash_pairs(d) ? 2 : 0)) * QUERY_ROWS;
}

static room room_of(const pass *p, int thread)
{
    int64_t panels = p->d->dim * CT_FLASH_ROW;
    room r = { .k = p->rooms + thread * ct_flash_room(room_floats(p->d)) };

    r.k_panels = r.k + p->pieces * KEY_ROWS;
    r.v_panels = r.k_panels + panels;
    r.dk = r.v_panels + panels;
    r.dv = r.dk + p->pieces * KEY_ROWS;
    r.q = r.dv + p->pieces * KEY_ROWS;
    r.dy = r.q + p->pieces * QUERY_ROWS;
    r.dq = r.dy + p->pieces * QUERY_ROWS;
    r.p = r.dq + p->pieces * QUERY_ROWS;
    r.ds = r.p + QUERY_ROWS;
    r.q_pairs = r.ds + QUERY_ROWS;
    r.dy_pairs = r.q_pairs + QUERY_ROWS / 2;
    r.p_pairs = r.dy_pairs + QUERY_ROWS / 2;
    r.ds_pairs = r.p_pairs + QUERY_ROWS / 2;
    return r;
}

/* ---- a block of queries and a unit's keys */

typedef struct step {
    int64_t sample, head, group, chunk;
    int64_t key, keys, query, n; /* first key, keys; first query, queries */
    int64_t tiles;               /* of queries                            */
    const float *segment;        /* of the sample; NULL: none             */
    float most[CT_FLASH_QUERIES], inverse[CT_FLASH_QUERIES]; /* as forward left them */
    /* what dropout keeps: a bit a key, for each query; NULL: all */
    uint16_t (*kept)[CT_FLASH_DRAWN];
} step;

static int64_t tile_row(const step *s, int64_t t)
{
    return ct_gemm_tile_row(s->n, s->tiles, t);
}

/* What tile t of the queries has to do with the panel of keys from j on, but for what `causal` and
 * the window say of single ones. */
static ct_flash_equal meet(const pass *p, const step *s, int64_t t, int64_t j)
{
    int64_t i = tile_row(s, t), rows = tile_row(s, t + 1) - i;
    int64_t keys = ct_gemm_smaller(p->width, s->keys - j);

    if (!ct_flash_meet(p->d, s->query + i, rows, s->key + j, keys)) return CT_FLASH_NONE;
    if (s->segment == NULL) return CT_FLASH_ALL;
    return ct_flash_segments(s->segment + s->query + i + ct_attention_shift(p->d), rows,
                             s->segment + s->key + j, keys);
}

/* Units and panels begin at multiples of 16 keys, as numbers of a row do. */
static void draw_kept(const pass *p, const step *s)
{
    const ct_attention_desc *d = p->d;

    for (int64_t i = 0; i < s->n; i++)
        ct_rng_bits(p->a->key,
                    ct_attention_number(d, p->a->first + s->sample, s->head, s->query + i, s->key),
                    s->keys, (uint32_t)d->drop_below, s->kept[i]);
}

/* Queries of pairs come as they are. */
static void scale_scores(const pass *p, int64_t n, float *s)
{
    float by[CT_FLASH_WIDTH];

    for (int64_t i = 0; i < p->width; i++) by[i] = p->d->scale * 0x1.715476p+0f;
    p->rows->scale(n, by, s);
}

/* Scores and dp of a cell, then probabilities and ds in their places. */
static void cell(const pass *p, const step *s, const room *r, int64_t t, int64_t j,
                 ct_flash_equal equal)
{
    const ct_attention_desc *d = p->d;
    int64_t i = tile_row(s, t), n = tile_row(s, t + 1) - i, shift = ct_attention_shift(d);
    int vecs =
        (ct_flash_first_vector(d, n, s->query + i, s->key + j, p->width) > p->set->lanes) ? 2 : 1;
    ct_flash_tile tile = p->set->along[vecs - 1][n - 1];
    uint32_t word[CT_FLASH_TILE];
    ct_flash_grad g = { .n = n,
                        .s = r->p + i * CT_FLASH_ROW + j,
                        .dp = r->ds + i * CT_FLASH_ROW + j,
                        .most = s->most + i,
                        .inverse = s->inverse + i,
                        .dot = p->dot + (s->sample * d->heads + s->head) * d->tq + s->query + i,
                        .first = s->query + i + shift - (s->key + j),
                        .causal = d->causal,
                        .window = d->window,
                        .vecs = vecs,
                        .keep_scale = d->keep_scale };
    float of_key[CT_FLASH_WIDTH]; /* lanes beyond the last key may have any */

    for (int64_t c = 0; c < p->words.dim; c += CT_FLASH_PIECE) {
        int64_t k = ct_gemm_smaller(CT_FLASH_PIECE, p->words.dim - c), at = c * CT_FLASH_ROW + j;
        const float *rows = r->q + c / CT_FLASH_PIECE * QUERY_ROWS + i * CT_FLASH_ROW;

        tile(k, rows, r->k_panels + at, g.s, c > 0);
        tile(k, rows + (r->dy - r->q), r->v_panels + at, g.dp, c > 0);
    }
    if (p->pairs) scale_scores(p, n, g.s);
    if (equal == CT_FLASH_SOME) {
        memcpy(of_key, s->segment + s->key + j,
               (size_t)ct_gemm_smaller(p->width, s->keys - j) * sizeof(float));
        g.of_key = of_key;
        g.of_query = s->segment + s->query + i + shift;
    }
    if (s->kept != NULL) {
        for (int64_t x = 0; x < n; x++) word[x] = ct_flash_bits(s->kept[i + x], j);
        g.kept = word;
    }
    p->rows->grad(&g);
}

/* rows of c += a^T b over the queries of tiles [t, end), for the keys of the panel from j on. */
static void add_to_keys(const pass *p, const step *s, int64_t j, int64_t t, int64_t end,
                        const float *a, const float *b, float *c)
{
    int64_t keys = ct_gemm_smaller(p->width, s->keys - j);
    int64_t tiles = ct_gemm_ceil_div(keys, p->set->rows);

    for (int64_t k = 0; k < tiles; k++) {
        int64_t i = ct_gemm_tile_row(keys, tiles, k);
        int64_t rows = ct_gemm_tile_row(keys, tiles, k + 1) - i, from, to;

        ct_flash_seen_by(p->d, s->key + j + i, s->key + j + i + rows, &from, &to);
        from -= s->query;
        if (from < tile_row(s, t)) from = tile_row(s, t);
        to = ct_gemm_smaller(to - s->query, tile_row(s, end));
        if (p->pairs && (from < to)) from /= 2, to = (to + 1) / 2; /* others' are 0 */
        for (int64_t x = 0; (from < to) && (x < p->d->dim); x += p->width) {
            int64_t piece = x / CT_FLASH_PIECE, at = x % CT_FLASH_PIECE;
            int vecs = (p->d->dim - x > p->set->lanes) ? 2 : 1;

            p->set->down[vecs - 1][rows - 1](to - from, a + from * CT_FLASH_ROW + j + i,
                                             b + piece * QUERY_ROWS + from * CT_FLASH_ROW + at,
                                             c + piece * KEY_ROWS + (j + i) * CT_FLASH_ROW + at,
                                             true);
        }
    }
}

/* dq += ds k for tile t and the keys [j, end). */
static void add_to_queries(const pass *p, const step *s, const room *r, int64_t t, int64_t j,
                           int64_t end)
{
    int64_t i = tile_row(s, t), rows = tile_row(s, t + 1) - i, from, to;

    ct_flash_keys_of(p->d, s->query + i, rows, s->key + j, s->key + end, &from, &to);
    from -= s->key;
    to -= s->key;
    if (p->pairs) from /= 2, to = (to + 1) / 2; /* others' are 0 */
    for (int64_t x = 0; x < p->d->dim; x += p->width) {
        int64_t piece = x / CT_FLASH_PIECE, at = x % CT_FLASH_PIECE;
        int vecs = (p->d->dim - x > p->set->lanes) ? 2 : 1;

        p->set->along[vecs - 1][rows - 1](to - from, r->ds + i * CT_FLASH_ROW + from,
                                          r->k + piece * KEY_ROWS + from * CT_FLASH_ROW + at,
                                          r->dq + piece * QUERY_ROWS + i * CT_FLASH_ROW + at, true);
    }
}

/* P and ds of the tiles [t, end) and the panel of keys from j on: pairs of queries, and in place of
 * ds pairs of keys. Panels come in order, so these overwrite what is paired already. */
static void pair_cells(const pass *p, const step *s, const room *r, int64_t j, int64_t t,
                       int64_t end)
{
    int64_t from = tile_row(s, t), to = tile_row(s, end);
    float *ds = r->ds + from * CT_FLASH_ROW;

    if (p->d->wants_kv) {
        ct_flash_pair_rows(from, to, p->width, r->p + j, r->p_pairs + j);
        ct_flash_pair_rows(from, to, p->width, r->ds + j, r->ds_pairs + j);
    }
    ct_flash_pair_along(to - from, ct_gemm_smaller(p->width, s->keys - j), p->width, ds + j,
                        ds + j / 2);
}

static void keys_of_step(const pass *p, const step *s, const room *r)
{
    for (int64_t j = 0; j < s->keys; j += p->width) {
        for (int64_t t = 0, end; t < s->tiles; t = end + 1) {
            for (end = t; end < s->tiles; end++) {
                ct_flash_equal equal = meet(p, s, end, j);

                if (equal == CT_FLASH_NONE) break;
                cell(p, s, r, end, j, equal);
            }
            if (end == t) continue;
            if (p->pairs) pair_cells(p, s, r, j, t, end);
            if (!p->d->wants_kv) continue;
            add_to_keys(p, s, j, t, end, p->pairs ? r->p_pairs : r->p,
                        p->pairs ? r->dy_pairs : r->dy, r->dv);
            add_to_keys(p, s, j, t, end, p->pairs ? r->ds_pairs : r->ds,
                        p->pairs ? r->q_pairs : r->q, r->dk);
        }
    }
}

static void queries_of_step(const pass *p, const step *s, const room *r)
{
    for (int64_t t = 0; t < s->tiles; t++) {
        for (int64_t j = 0, end; j < s->keys; j = end + p->width) {
            for (end = j; (end < s->keys) && (meet(p, s, t, end) != CT_FLASH_NONE);)
                end += p->width;
            if (end > j) add_to_queries(p, s, r, t, j, ct_gemm_smaller(end, s->keys));
        }
    }
}

/* ---- turns */

/* A thread that another one waits for may have lost its processor. */
static void wait_for(atomic_int *turn, int chunk)
{
    for (int64_t i = 0; atomic_load_explicit(turn, memory_order_acquire) != chunk; i++) {
        if (i > 1000) sched_yield();
    }
}

static void gradient_of_queries(const pass *p, const step *s, const room *r)
{
    const ct_attention_desc *d = p->d;
    int64_t shift = ct_attention_shift(d), first, end, unused;
    atomic_int *turn =
        p->turn + (s->sample * d->heads + s->head) * blocks_of(d) + s->query / CT_FLASH_QUERIES;
    int64_t token = s->sample * d->tq + s->query, row = d->bf16 ? d->heads * d->dim : d->q_row;
    float *dq = ct_num_to(p->a->dq, d->bf16, token * d->q_row + s->head * d->dim);
    float *sums = d->bf16 ? p->sums + token * row + s->head * d->dim : dq;
    ct_flash_copy copy = {
        d, p->rows, NULL, s->query + shift, s->n, CT_FLASH_QUERIES, 1.0f, false
    };

    ct_attention_sees(d, s->query + shift, &first, &unused);
    ct_attention_sees(d, s->query + s->n - 1 + shift, &unused, &end);
    if (s->chunk == first / d->task_keys) {
        memset(r->dq, 0, (size_t)(p->pieces * QUERY_ROWS) * sizeof(float));
    } else {
        wait_for(turn, (int)s->chunk);
        ct_flash_take(&copy, sums, row, r->dq);
    }
    queries_of_step(p, s, r);
    if (s->chunk == (end - 1) / d->task_keys) {
        copy.turn = p->a->turn;
        copy.scale = d->scale;
        copy.bf16 = d->bf16;
        ct_flash_put(&copy, r->dq, dq, d->q_row);
    } else {
        ct_flash_put(&copy, r->dq, sums, row);
    }
    atomic_store_explicit(turn, (int)s->chunk + 1, memory_order_release);
}

/* ---- a unit */

static void take_keys(const pass *p, const step *s, const room *r)
{
    const ct_attention_desc *d = p->d;
    int64_t token = s->sample * d->tk + s->key;
    const float *k = ct_num_at(p->a->k, d->bf16, token * d->k_row + s->group * d->dim);
    const float *v = ct_num_at(p->a->v, d->bf16, token * d->v_row + s->group * d->dim);
    ct_flash_copy copy = { d, p->rows, p->a->turn, s->key, s->keys, CT_FLASH_KEYS, 1.0f, d->bf16 };
    size_t rows = (size_t)(p->pieces * KEY_ROWS) * sizeof(float);
    const float *of_keys = r->k;

    ct_flash_take(&copy, k, d->k_row, r->k);
    copy.turn = NULL;
    ct_flash_take(&copy, v, d->v_row, r->dv); /* on their way into panels */
    if (p->pairs) { /* panels of pairs of dimensions; for dq pairs of keys */
        ct_flash_pair_along(s->keys, d->dim, d->dim, r->k, r->dk);
        ct_flash_pair_along(s->keys, d->dim, d->dim, r->dv, r->dv);
        ct_flash_pair_rows(0, s->keys, ct_gemm_round_up(d->dim, 16), r->k, r->k);
        of_keys = r->dk;
    }
    for (int64_t j = 0; j < s->keys; j += p->width) {
        int64_t n = ct_gemm_smaller(p->width, s->keys - j), at = j * CT_FLASH_ROW;

        ct_flash_panel(&p->words, p->width, n, CT_FLASH_KEYS, of_keys + at, r->k_panels + j);
        ct_flash_panel(&p->words, p->width, n, CT_FLASH_KEYS, r->dv + at, r->v_panels + j);
    }
    memset(r->dk, 0, rows);
    memset(r->dv, 0, rows);
}

/* Queries came multiplied by scale / ln 2, so the keys' gradient is ln 2 times what it adds up to.
 */
static void put_keys(const pass *p, const step *s, const room *r)
{
    const ct_attention_desc *d = p->d;
    int64_t token = s->sample * d->tk + s->key;
    ct_flash_copy copy = { d,       p->rows,       p->a->turn,    s->key,
                           s->keys, CT_FLASH_KEYS, 0x1.62e43p-1f, d->bf16 };

    if (p->pairs) copy.scale = d->scale;
    if (p->a->dk != NULL)
        ct_flash_put(&copy, r->dk,
                     ct_num_to(p->a->dk, d->bf16, token * d->k_row + s->group * d->dim), d->k_row);
    copy.turn = NULL;
    copy.scale = 1.0f;
    if (p->a->dv != NULL)
        ct_flash_put(&copy, r->dv,
                     ct_num_to(p->a->dv, d->bf16, token * d->v_row + s->group * d->dim), d->v_row);
}

/* A block's q and dy, turned and multiplied; what forward kept of it. */
static void take_queries(const pass *p, step *s, const room *r)
{
    const ct_attention_desc *d = p->d;
    const float *stats = p->a->stats + 2 * ((s->sample * d->heads + s->head) * d->tq + s->query);
    int64_t row = d->heads * d->dim, token = s->sample * d->tq + s->query;
    ct_flash_copy copy = { .d = d,
                           .rows = p->rows,
                           .turn = p->a->turn,
                           .position = s->query + ct_attention_shift(d),
                           .n = s->n,
                           .capacity = CT_FLASH_QUERIES,
                           .scale = p->pairs ? 1.0f : d->scale * 0x1.715476p+0f /* 1 / ln 2 */,
                           .bf16 = d->bf16 };
    const float *q = ct_num_at(p->a->q, d->bf16, token * d->q_row + s->head * d->dim);
    const float *dy = ct_num_at(p->a->dy, d->bf16, token * row + s->head * d->dim);

    for (int64_t i = 0; i < s->n; i++) {
        s->most[i] = stats[2 * i];
        s->inverse[i] = stats[2 * i + 1];
    }
    ct_flash_take(&copy, q, d->q_row, r->q);
    copy.turn = NULL;
    copy.scale = 1.0f;
    ct_flash_take(&copy, dy, row, r->dy);
    if (p->pairs) {
        int64_t width = ct_gemm_round_up(d->dim, 16);

        ct_flash_pair_rows(0, s->n, width, r->q, r->q_pairs);
        ct_flash_pair_rows(0, s->n, width, r->dy, r->dy_pairs);
        ct_flash_pair_along(s->n, d->dim, d->dim, r->q, r->q);
        ct_flash_pair_along(s->n, d->dim, d->dim, r->dy, r->dy);
    }
    if (s->query < CT_FLASH_QUERIES) return; /* the block in front comes next */
    ct_flash_fetch(d, CT_FLASH_QUERIES, ct_num_at(q, d->bf16, -CT_FLASH_QUERIES * d->q_row),
                   d->q_row);
    ct_flash_fetch(d, CT_FLASH_QUERIES, ct_num_at(dy, d->bf16, -CT_FLASH_QUERIES * row), row);
}

static void run_step(const pass *p, step *s, const room *r, int64_t block)
{
    const ct_attention_desc *d = p->d;
    uint16_t kept[CT_FLASH_QUERIES][CT_FLASH_DRAWN];

    s->query = block * CT_FLASH_QUERIES;
    s->n = ct_gemm_smaller(CT_FLASH_QUERIES, d->tq - s->query);
    s->tiles = ct_gemm_ceil_div(s->n, p->set->rows);
    s->kept = NULL;
    if (d->drop_below > 0) {
        memset(kept, 0, sizeof(kept));
        s->kept = kept;
        draw_kept(p, s);
    }
    take_queries(p, s, r);
    if (p->a->dq != NULL)
        ct_flash_fetch(d, s->n,
                       ct_num_at(p->a->dq, d->bf16,
                                 (s->sample * d->tq + s->query) * d->q_row + s->head * d->dim),
                       d->q_row);
    keys_of_step(p, s, r);
    if (p->a->dq != NULL) gradient_of_queries(p, s, r);
    s->kept = NULL;
}

static void run_unit(const pass *p, int64_t number, const room *r)
{
    const ct_attention_desc *d = p->d;
    ct_flash_unit unit = ct_flash_unit_of(d, number);
    int64_t of_group = d->heads / d->kv_heads, from, to;
    step s = { .sample = unit.pair / d->kv_heads,
               .group = unit.pair % d->kv_heads,
               .chunk = unit.chunk,
               .key = unit.chunk * d->task_keys };

    s.keys = ct_gemm_smaller(d->task_keys, d->tk - s.key);
    if (p->a->segment != NULL) s.segment = p->a->segment + s.sample * d->tk;
    ct_flash_seen_by(d, s.key, s.key + s.keys, &from, &to);
    take_keys(p, &s, r);
    for (int64_t g = 0; (g < of_group) && (from < to); g++) {
        s.head = s.group * of_group + g;
        for (int64_t b = (to - 1) / CT_FLASH_QUERIES; b >= from / CT_FLASH_QUERIES; b--)
            run_step(p, &s, r, b);
    }
    put_keys(p, &s, r);
}

/* ---- the whole */

/* Sums of dy y of n tokens, the first at number `at` of both; bf16 numbers are widened. */
static void dots_of(const pass *p, int64_t n, int64_t at, float *dot)
{
    enum { SOME = 8 };
    const ct_attention_desc *d = p->d;
    int64_t row = d->heads * d->dim;
    float dy[SOME * CT_FLASH_DIM], y[SOME * CT_FLASH_DIM];

    if (!d->bf16) {
        p->rows->dots(n, d->dim, p->a->dy + at, p->a->y + at, row, dot);
        return;
    }
    for (int64_t i = 0; i < n; i += SOME) {
        int64_t some = ct_gemm_smaller(SOME, n - i);

        for (int64_t k = 0; k < some; k++) {
            ct_bf16_widen(d->dim, ct_num_at(p->a->dy, true, at + (i + k) * row), dy + k * d->dim);
            ct_bf16_widen(d->dim, ct_num_at(p->a->y, true, at + (i + k) * row), y + k * d->dim);
        }
        p->rows->dots(some, d->dim, dy, y, d->dim, dot + i);
    }
}

/* What a thread begins with: turns and dots of its part of the queries. */
static void prepare(const pass *p)
{
    const ct_attention_desc *d = p->d;
    int64_t blocks = blocks_of(d), heads = d->n * d->heads;

#pragma omp for schedule(static)
    for (int64_t b = 0; b < heads * blocks; b++) {
        int64_t sample = b / blocks / d->heads, head = b / blocks % d->heads;
        int64_t from = b % blocks * CT_FLASH_QUERIES, first, unused;
        int64_t to = ct_gemm_smaller(from + CT_FLASH_QUERIES, d->tq), at;

        ct_attention_sees(d, from + ct_attention_shift(d), &first, &unused);
        atomic_init(&p->turn[b], (int)(first / d->task_keys));
        at = ((sample * d->tq + from) * d->heads + head) * d->dim;
        dots_of(p, to - from, at, p->dot + (sample * d->heads + head) * d->tq + from);
    }
}

static int64_t dots(const ct_attention_desc *d)
{
    return ct_flash_room(d->n * d->heads * d->tq);
}

static int64_t turns(const ct_attention_desc *d)
{
    return ct_flash_room(d->n * d->heads * blocks_of(d));
}

static int64_t sums(const ct_attention_desc *d)
{
    return (d->bf16 && d->wants_q) ? ct_flash_room(d->n * d->tq * d->heads * d->dim) : 0;
}

static ct_status run(const ct_attention_desc *d, ct_exec *ex, const ct_attention_args *a)
{
    pass p = { .d = d, .a = a, .rows = ct_flash_rows_pick() };
    atomic_llong next = 0;
    int64_t units = ct_flash_units(d);
    ct_status worst = CT_OK;

    p.pairs = ct_flash_pairs(d);
    p.set = p.pairs ? ct_flash_pairs_pick() : ct_flash_set_pick();
    p.words = *d;
    if (p.pairs) p.words.dim = (d->dim + 1) / 2;
    p.width = (int64_t)CT_GEMM_VECS * p.set->lanes;
    p.pieces = ct_flash_pieces(d->dim);
    p.dot = a->work;
    p.turn = (atomic_int *)(void *)(p.dot + dots(d));
    p.sums = p.dot + dots(d) + turns(d);
    p.rooms = p.sums + sums(d);
#pragma omp parallel num_threads(d->n_thread)
    {
        room r = room_of(&p, omp_get_thread_num());

        prepare(&p);
        for (;;) {
            int64_t unit = atomic_fetch_add(&next, 1);

            if (unit >= units) break;
            run_unit(&p, unit, &r);
            ct_engine_poll(ex, &worst);
        }
    }
    return worst;
}

static size_t workspace(const ct_attention_desc *d)
{
    return (size_t)(dots(d) + turns(d) + sums(d) + d->n_thread * ct_flash_room(room_floats(d))) *
           sizeof(float);
}

const ct_attention_impl ct_attention_flash_backward = {
    .name = "flash",
    .supports = ct_flash_supports,
    .workspace = workspace,
    .run = run,
};
