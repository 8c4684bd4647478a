/** @file flash.h  The parts of the engine `flash`; private to attention/.
 *
 * Neither direction ever has more of the tq x tk scores than a block. All matrices of a block lie
 * in rows of CT_FLASH_ROW numbers: tokens (a piece of at most CT_FLASH_PIECE dimensions of a head
 * in each row), tokens turned over (a row a dimension), scores. So no product has a stride that is
 * not known when it is compiled. A panel is as many columns as two vectors have lanes. Words of 32
 * bits are multiplied and added up: numbers, or pairs of bf16 numbers, which have tiles of their
 * own and half as many words. Of pairs P and the scores' gradient are rounded to bf16, as turned
 * queries and keys are; scores are scaled in f32.
 *
 * forward   vectors lie along the queries, so that a row's maximum and sum are lanes:
 *           scores^T = k q^T, y^T += v^T p^T
 * backward  vectors lie along the keys, then along the dimensions:
 *           scores = q k^T, dp = dy v^T, then dv += p^T dy, dk += ds^T q, dq += ds k
 *
 * Queries are multiplied by scale / ln 2, so probabilities are powers of 2.
 */
#ifndef CT_ENGINE_ATTENTION_FLASH_H
#define CT_ENGINE_ATTENTION_FLASH_H

#include "framework/math/gemm_private.h"
#include "layers/engine/attention/attention.h"

enum {
    CT_FLASH_PIECE = 128,  /* dimensions of a row, at most                             */
    CT_FLASH_ROW = 144,    /* floats: an odd number of cache lines, so that neighbouring
                            * rows lie in unlike sets; and whole vectors               */
    CT_FLASH_DIM = 512,    /* of a head, at most                                       */
    CT_FLASH_QUERIES = 64, /* of a block of backward                                  */
    CT_FLASH_KEYS = 128,   /* of a block of forward, and at most of a unit of backward */
    CT_FLASH_TASK = 256,   /* queries of a task of forward, at most                    */
    CT_FLASH_TILE = 14,    /* rows of a tile, at most                                  */
    CT_FLASH_WIDTH = 32,   /* of a panel, at most                                      */
    CT_FLASH_DRAWN = CT_FLASH_KEYS / 16 + 4 /* words of 16 bits that dropout draws a query */
};

/** c[i][0..vectors) (= or, with add, +=) sum over q < k of a(i, q) b[q][0..vectors), one product
 *  after the other, for the rows i of a tile. a(i, q) is a[q][i] of tiles `down`, a[i][q] of tiles
 *  `along`. */
typedef void (*ct_flash_tile)(int64_t k, const float *a, const float *b, float *c, bool add);

/** Some keys for one panel of queries, in forward. */
typedef struct ct_flash_softmax {
    int64_t n;         /* keys                                                          */
    float *s;          /* a row a key: scores; then 2^(score - most)                    */
    float *most, *sum; /* width: so far                                                 */
    float *factor;     /* width: what sums before these keys are to be multiplied by    */
    int64_t first;     /* position of key 0 minus that of query 0                       */
    bool causal;       /* a key is seen by queries from its position on …               */
    int64_t window;    /* … > 0: that are so many, at most                              */
    const float *of_query, *of_key; /* segments; NULL: all equal                            */
} ct_flash_softmax;

/** Some queries and one panel of keys, in backward. */
typedef struct ct_flash_grad {
    int64_t n;     /* queries                                                       */
    float *s, *dp; /* a row a query: scores and dp; then what values were multiplied by,
                    * and ds                                                        */
    const float *most, *inverse, *dot; /* of a query, as forward left them; sum of dy y  */
    int64_t first; /* position of query 0 minus that of key 0                       */
    bool causal;
    int64_t window;
    const float *of_query, *of_key;
    int vecs;             /* 1: the second vector of keys is seen by none of the queries */
    const uint32_t *kept; /* NULL: all. Bit i of word q: whether key i is kept           */
    float keep_scale;
} ct_flash_grad;

/** What is made for each instruction set. */
typedef struct ct_flash_set {
    int lanes, rows; /* floats of a vector; rows of a tile, at most */
    ct_flash_tile down[CT_GEMM_VECS][CT_FLASH_TILE], along[CT_GEMM_VECS][CT_FLASH_TILE];
} ct_flash_set;

typedef struct ct_flash_rows {
    /** Whether any factor is not 1. */
    bool (*softmax)(const ct_flash_softmax *a);
    /** Rows of a panel: x[n][..] *= factor[..]. */
    void (*scale)(int64_t n, const float *factor, float *x);
    /** p[n][..] = p keep_scale where it is kept, else 0: bit i of word q is lane i's of row q. */
    void (*drop)(int64_t n, const uint32_t *kept, float keep_scale, float *p);
    void (*grad)(const ct_flash_grad *a);
    /** dot[i] = sum over dim of x y for n tokens, `row` apart, in the order in which tiles make dp.
     *  Where one key has it all, so that y is its value, the two are equal and ds is 0. */
    void (*dots)(int64_t n, int64_t dim, const float *x, const float *y, int64_t row, float *dot);
    /** to[i to_row + c] = by from[i from_row + c] for i < n, c < dim. */
    void (*copy)(int64_t n, int64_t dim, float by, const float *from, int64_t from_row, float *to,
                 int64_t to_row);
} ct_flash_rows;

/** Whether products are of pairs of bf16 numbers (flash_pairs.c): those of a head in one piece. */
static inline bool ct_flash_pairs(const ct_attention_desc *d)
{
    return d->bf16 && (d->dim <= CT_FLASH_PIECE);
}
/** Tiles of words that are such pairs. */
const ct_flash_set *ct_flash_pairs_pick(void);
/** Word row q of to = rows 2 q and 2 q + 1, `width` numbers of each, for all q with a row of [from,
 *  end); zeros stand for rows outside. to may be rows, with from 0. */
void ct_flash_pair_rows(int64_t from, int64_t end, int64_t width, const float *rows, float *to);
/** Word w of row i of to = numbers 2 w and 2 w + 1 of row i of from, of which there are count;
 * zeros behind them up to width <= CT_FLASH_PIECE. to may lie at the row's start, or before `from`
 * in it. */
void ct_flash_pair_along(int64_t n, int64_t count, int64_t width, const float *from, float *to);

/** The best that ct_simd_pick() allows. */
const ct_flash_set *ct_flash_set_pick(void);
const ct_flash_rows *ct_flash_rows_pick(void);

static inline int64_t ct_flash_pieces(int64_t dim)
{
    return ct_gemm_ceil_div(dim, CT_FLASH_PIECE);
}

/** A thread's memory begins at a cache line. */
static inline int64_t ct_flash_room(int64_t floats)
{
    return ct_gemm_round_up(floats, 16);
}

/** 32 bits from bit `at` on. */
static inline uint32_t ct_flash_bits(const uint16_t *bits, int64_t at)
{
    const uint16_t *from = bits + at / 16;
    uint64_t some = (uint64_t)from[0] | (uint64_t)from[1] << 16 | (uint64_t)from[2] << 32;

    return (uint32_t)(some >> (at % 16));
}

/* ---- what sees what, and how work is cut */

bool ct_flash_supports(const ct_attention_desc *d);
/** The queries [*from_p, *to_p) that see any of the keys [key, end), but for segments. */
void ct_flash_seen_by(const ct_attention_desc *d, int64_t key, int64_t end, int64_t *from_p,
                      int64_t *to_p);
/** Whether any query of [query, query + n) sees any key of [key, key + keys), but for segments. */
bool ct_flash_meet(const ct_attention_desc *d, int64_t query, int64_t n, int64_t key, int64_t keys);
/** How many of n keys from `key` on any of `lanes` queries from `query` on may see: those behind
 * them are for others alone. Queries see at least what those before them see. */
int64_t ct_flash_first_vector(const ct_attention_desc *d, int64_t lanes, int64_t query, int64_t key,
                              int64_t n);
/** The keys [*from_p, *to_p) of [key, end) that any query of [query, query + n) sees, but for
 *  segments. */
void ct_flash_keys_of(const ct_attention_desc *d, int64_t query, int64_t n, int64_t key,
                      int64_t end, int64_t *from_p, int64_t *to_p);
/** Which pairs of two lists of segments are equal: none for sure, some perhaps, or all. */
typedef enum { CT_FLASH_NONE, CT_FLASH_SOME, CT_FLASH_ALL } ct_flash_equal;
ct_flash_equal ct_flash_segments(const float *a, int64_t n_a, const float *b, int64_t n_b);

/** A unit of backward: some keys of one group of heads of one sequence. Units are taken in order:
 *  what a unit waits for has a smaller number. */
typedef struct ct_flash_unit {
    int64_t pair;  /* sequence kv_heads + group */
    int64_t chunk; /* of task_keys keys         */
} ct_flash_unit;

int64_t ct_flash_units(const ct_attention_desc *d);
ct_flash_unit ct_flash_unit_of(const ct_attention_desc *d, int64_t number);

/* ---- copies */

/** rows[piece][capacity][CT_FLASH_ROW] = scale x of n tokens `from`, `step` apart, turned by the
 *  positions from `position` on where turn is not NULL; zero up to whole vectors. */
typedef struct ct_flash_copy {
    const ct_attention_desc *d;
    const ct_flash_rows *rows;
    const float *turn; /* of position 0; NULL: nothing turns */
    int64_t position, n, capacity;
    float scale;
    bool bf16; /* tokens as they lie are bf16 numbers */
} ct_flash_copy;

void ct_flash_take(const ct_flash_copy *c, const float *from, int64_t step, float *rows);
/** The way back: to = scale x, turned back. */
void ct_flash_put(const ct_flash_copy *c, const float *rows, float *to, int64_t step);
/** Fetches n tokens' dimensions, `step` apart, into the second cache: those of the next block,
 * which no processor guesses, since tokens lie pages apart. */
void ct_flash_fetch(const ct_attention_desc *d, int64_t n, const float *from, int64_t step);
/** Such rows of n <= width tokens turned over: to[dim][width], zero beyond them. */
void ct_flash_panel(const ct_attention_desc *d, int64_t width, int64_t n, int64_t capacity,
                    const float *rows, float *to);
/** Bit i of word j and bit j of word i change places. */
void ct_flash_turn_bits(uint32_t word[32]);

#endif
