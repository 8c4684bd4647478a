/* Attention on CUDA, in tiles of 64 queries by 64 keys whose scores are in registers and shared
 * memory alone. Forward keeps a running maximum and sum of each row. Backward makes the scores
 * again: one kernel over tiles of keys makes the gradients of keys and values, another one over
 * tiles of queries that of queries. Each number of a result is added up by one thread, in a fixed
 * order.
 *
 * Products of a tile run over a head's channels, 32 at a time, so that heads may have any number of
 * them. A block makes up to 128 channels of its result. Heads with more have several blocks, each
 * of which makes the scores.
 */
#include <cmath>

#include "framework/math/cuda/narrow.cuh"
#include "framework/tensor/cuda/launch.cuh"
#include "framework/tensor/cuda/warp.cuh"

extern "C" {
#include "framework/base/rng.h"
#include "layers/engine/attention/attention.h"
}

enum {
    TILE = 64,                     /* queries, and keys, of a tile                          */
    DEPTH = 32,                    /* channels, or tokens, that are staged at a time        */
    MOST = 128,                    /* channels of a result that a block makes               */
    ACROSS = 16,                   /* threads side by side: each has 4 neighbouring columns */
    DOWN = CT_CUDA_BLOCK / ACROSS, /* threads one above the other: each has FOURS x 4 rows  */
    FOURS = TILE / 4 / DOWN
};

template <int W> struct alignas(4 * W) some {
    float v[W];
};
typedef some<4> four;
typedef some<2> two;

/* A thread's part of a tile: rows 4 (down + g DOWN) + r, columns 4 across + j. */
struct part {
    float v[FOURS][4][4];
};

/* Its part of a result of D channels. */
template <int D> struct result {
    enum { C = D / ACROSS, W = (C < 4) ? C : 4 };

    float v[FOURS][4][C];
};

/* 32 channels of the rows' tokens and of the columns', or 32 tokens of up to 128 channels; and what
 * those are weighed with. The columns of weights are turned, so that neither side of a transposed
 * tile is in one bank. */
struct room {
    union {
        struct {
            four a[DEPTH][TILE / 4 + 1], b[DEPTH][TILE / 4 + 1];
        } of;
        float x[DEPTH * MOST];
    };
    four weight[TILE][TILE / 4];
};

static __device__ inline int across_of()
{
    return (int)threadIdx.x % ACROSS;
}

static __device__ inline int row_of(int g, int r)
{
    return 4 * ((int)threadIdx.x / ACROSS + g * DOWN) + r;
}

/* f(g, r) of each row that a thread has. */
template <class F> static __device__ inline void each_row(F f)
{
    CT_UNROLLED for (int g = 0; g < FOURS; g++)
    {
        CT_UNROLLED for (int r = 0; r < 4; r++) f(g, r);
    }
}

/* ---- tokens of one head of one sequence, where they lie */

struct tokens {
    ct_numbers x;
    int64_t first, row; /* number of token 0's channel 0; from one token to the next */
    int n, dim;
    const float *turn; /* of token 0's position */
    int turns;         /* channels that turn    */
    bool interleaved;
};

/* Which channel stands at place c: those that turn together are neighbours. */
static __device__ inline int channel_of(const tokens &t, int c)
{
    return ((c >= t.turns) || t.interleaved) ? c : c / 2 + c % 2 * (t.turns / 2);
}

/* The channels at places c, which is even, and c + 1 turned by the angles of token i; way -1: back.
 */
static __device__ inline two turned(const tokens &t, int i, int c, two x, float way)
{
    const float *angles = t.turn + (int64_t)i * t.turns + c / 2;
    float cosine, sine;

    if (c >= t.turns) return x;
    cosine = angles[0];
    sine = way * angles[t.turns / 2];
    return { { x.v[0] * cosine - x.v[1] * sine, x.v[1] * cosine + x.v[0] * sine } };
}

/* Both of token i; 0 behind the last channel or token. */
static __device__ inline two pair_of(const tokens &t, int i, int c)
{
    int64_t at = t.first + i * t.row;
    two x = {};

    if ((i >= t.n) || (c >= t.dim)) return x;
    x.v[0] = t.x[at + channel_of(t, c)];
    if (c + 1 < t.dim) x.v[1] = t.x[at + channel_of(t, c + 1)];
    return turned(t, i, c, x, 1.0f);
}

/* to[c][i] = the channel at place from + c of token first + i. A warp takes four pairs of eight
 * tokens: whole sectors of memory, and each number into a bank of its own. */
static __device__ void stage_channels(const tokens &t, int first, int from,
                                      four (*to)[TILE / 4 + 1])
{
    for (int k = (int)threadIdx.x; k < TILE * DEPTH / 2; k += CT_CUDA_BLOCK) {
        int group = k / CT_WARP, lane = k % CT_WARP;
        int c = 2 * (group % 4 * 4 + lane % 4), i = group / 4 * 8 + lane / 4;
        two x = pair_of(t, first + i, from + c);

        to[c][i / 4].v[i % 4] = x.v[0];
        to[c + 1][i / 4].v[i % 4] = x.v[1];
    }
}

/* x[i][c] = the same, of DEPTH tokens and D channels. */
template <int D> static __device__ void stage_tokens(const tokens &t, int first, int from, float *x)
{
    for (int k = (int)threadIdx.x; k < DEPTH * D / 2; k += CT_CUDA_BLOCK)
        ((two *)x)[k] = pair_of(t, first + k / (D / 2), from + k % (D / 2) * 2);
}

/* ---- products of tiles */

/* s = the products of tokens a0 + row of a and b0 + column of b. */
static __device__ void multiply(const tokens &a, int a0, const tokens &b, int b0, room *m, part *s)
{
    *s = {};
    for (int from = 0; from < a.dim; from += DEPTH) {
        stage_channels(a, a0, from, m->of.a);
        stage_channels(b, b0, from, m->of.b);
        __syncthreads();
        for (int c = 0; c < DEPTH; c++) {
            four y = m->of.b[c][across_of()];

            CT_UNROLLED for (int g = 0; g < FOURS; g++)
            {
                four x = m->of.a[c][row_of(g, 0) / 4];

                CT_UNROLLED for (int r = 0; r < 4; r++)
                {
                    CT_UNROLLED for (int j = 0; j < 4; j++) s->v[g][r][j] += x.v[r] * y.v[j];
                }
            }
        }
        __syncthreads();
    }
}

static __device__ inline int turned_four(int column, int four_of_rows)
{
    return (four_of_rows + column / 4) % (TILE / 4);
}

static __device__ inline void put_weights(const part &s, room *m)
{
    CT_UNROLLED for (int g = 0; g < FOURS; g++)
    {
        CT_UNROLLED for (int j = 0; j < 4; j++)
        {
            int column = 4 * across_of() + j;
            four w;

            CT_UNROLLED for (int r = 0; r < 4; r++) w.v[r] = s.v[g][r][j];
            m->weight[column][turned_four(column, row_of(g, 0) / 4)] = w;
        }
    }
}

/* y += the sum over columns of weight[column][row] times channels from .. from + D of token
 * first + column. */
template <int D>
static __device__ void add_weighted(const tokens &t, int first, int from, room *m, result<D> *y)
{
    enum { W = result<D>::W, GROUPS = result<D>::C / W };
    const some<W> *x = (const some<W> *)m->x;

    for (int begin = 0; begin < TILE; begin += DEPTH) {
        stage_tokens<D>(t, first + begin, from, m->x);
        __syncthreads();
        for (int i = 0; i < DEPTH; i++) {
            some<W> u[GROUPS];

            CT_UNROLLED for (int k = 0; k < GROUPS; k++) u[k] =
                x[i * (D / W) + k * ACROSS + across_of()];
            CT_UNROLLED for (int g = 0; g < FOURS; g++)
            {
                four w = m->weight[begin + i][turned_four(begin + i, row_of(g, 0) / 4)];

                CT_UNROLLED for (int r = 0; r < 4; r++)
                {
                    CT_UNROLLED for (int k = 0; k < GROUPS; k++)
                    {
                        CT_UNROLLED for (int j = 0; j < W; j++) y->v[g][r][k * W + j] +=
                            w.v[r] * u[k].v[j];
                    }
                }
            }
        }
        __syncthreads();
    }
}

/* Tokens first + row of t, from place `from` on, = y times by[g][r], turned back. */
template <int D>
static __device__ void put_result(const tokens &t, int first, int from, const result<D> &y,
                                  const float (*by)[4])
{
    enum { W = result<D>::W };

    each_row([&](int g, int r) {
        int i = first + row_of(g, r);
        int64_t at = t.first + i * t.row;

        if (i >= t.n) return;
        CT_UNROLLED for (int k = 0; k < result<D>::C; k += 2)
        {
            int c = from + (k / W * ACROSS + across_of()) * W + k % W;
            two x = { { y.v[g][r][k] * by[g][r], y.v[g][r][k + 1] * by[g][r] } };

            if (c >= t.dim) continue;
            x = turned(t, i, c, x, -1.0f);
            t.x.put(at + channel_of(t, c), x.v[0]);
            if (c + 1 < t.dim) t.x.put(at + channel_of(t, c + 1), x.v[1]);
        }
    });
}

/* ---- what all kernels know */

struct job {
    ct_attention_desc d;
    ct_attention_args a;
    uint64_t seed;
    const uint64_t *step; /* NULL: a.key is the key */
    float unit;           /* of scores: they are in units of ln 2 then */
    float *dot;           /* n x heads x tq: of y and its gradient */
    int chunks;           /* blocks that share a tile's channels   */
};

static __device__ inline int least(int64_t a, int64_t b)
{
    return (int)((a < b) ? a : b);
}

static __device__ inline tokens plain_tokens(const job &t, const float *x, int64_t n, int64_t row,
                                             int64_t sample, int64_t head)
{
    tokens k = {};

    k.x = ct_numbers_at(x, t.d.bf16 ? CT_BF16 : CT_F32);
    k.first = sample * n * row + head * t.d.dim;
    k.row = row;
    k.n = (int)n;
    k.dim = (int)t.d.dim;
    return k;
}

/* Queries and keys, and their gradients, turn. */
static __device__ inline tokens turning_tokens(const job &t, const float *x, int64_t n, int64_t row,
                                               int64_t sample, int64_t head, int64_t position)
{
    tokens k = plain_tokens(t, x, n, row, sample, head);

    k.turn = t.a.turn + position * t.d.rope_dim;
    k.turns = (int)t.d.rope_dim;
    k.interleaved = t.d.interleaved;
    return k;
}

/* One head of the queries of one sequence, and the keys and values of its group. */
struct head {
    tokens q, k, v, dy;
    const float *segment;        /* of the sequence; NULL: all equal */
    int64_t sample, number, row; /* row: of stats and dot, of query 0 */
    int shift;
};

static __device__ inline head head_of(const job &t, int64_t sample, int64_t number)
{
    const ct_attention_desc &d = t.d;
    int64_t group = number / (d.heads / d.kv_heads), shift = ct_attention_shift(&d);
    head h;

    h.q = turning_tokens(t, t.a.q, d.tq, d.q_row, sample, number, shift);
    h.k = turning_tokens(t, t.a.k, d.tk, d.k_row, sample, group, 0);
    h.v = plain_tokens(t, t.a.v, d.tk, d.v_row, sample, group);
    h.dy = plain_tokens(t, t.a.dy, d.tq, d.heads * d.dim, sample, number);
    h.segment = (t.a.segment != NULL) ? t.a.segment + sample * d.tk : NULL;
    h.sample = sample;
    h.number = number;
    h.row = (sample * d.heads + number) * d.tq;
    h.shift = (int)shift;
    return h;
}

/* What a query sees. */
struct sight {
    int64_t from, to;
    const float *segment;
    float mine;

    __device__ bool has(int key) const
    {
        return (key >= from) && (key < to) && ((segment == NULL) || (segment[key] == mine));
    }
};

static __device__ inline sight sight_of(const job &t, const head &h, int query)
{
    sight s = { 0, 0, h.segment, 0.0f };

    if (query >= t.d.tq) return s;
    ct_attention_sees(&t.d, query + h.shift, &s.from, &s.to);
    if ((h.segment != NULL) && (s.from < s.to)) s.mine = h.segment[query + h.shift];
    return s;
}

/* What dropout multiplies the probabilities of four keys by; the first is a multiple of 4. */
static __device__ inline four kept(const job &t, const head &h, int query, int key)
{
    four f = { { 1.0f, 1.0f, 1.0f, 1.0f } };
    uint64_t number, stream;
    ct_rng_block b;

    if (t.d.drop_below == 0) return f;
    number = ct_attention_number(&t.d, t.a.first + h.sample, h.number, query, key);
    stream = (t.step != NULL) ? ct_mix_key(t.seed, *t.step, t.a.layer) : t.a.key;
    b = ct_philox(stream, 0, number / 4);
    for (int j = 0; j < 4; j++) f.v[j] = (b.v[j] < t.d.drop_below) ? 0.0f : t.d.keep_scale;
    return f;
}

/* The keys that queries first .. first + TILE see, from a whole tile on. */
static __device__ inline void keys_of(const job &t, const head &h, int first, int *from_p,
                                      int *to_p)
{
    int64_t from, to, end = least(first + TILE, t.d.tq), none;

    ct_attention_sees(&t.d, first + h.shift, &from, &none);
    ct_attention_sees(&t.d, end - 1 + h.shift, &none, &to);
    *from_p = (int)(from / TILE * TILE);
    *to_p = (int)to;
}

/* The queries that may see keys first .. first + TILE. */
static __device__ inline void queries_of(const job &t, const head &h, int first, int *from_p,
                                         int *to_p)
{
    int64_t from = t.d.causal ? first - h.shift : 0, end = least(first + TILE, t.d.tk);

    *from_p = (int)((from > 0) ? from / TILE * TILE : 0);
    *to_p = (t.d.window > 0) ? least(end - 1 + t.d.window - h.shift, t.d.tq) : (int)t.d.tq;
}

/* ---- forward */

static __device__ inline float over_columns(float v, bool largest)
{
    for (unsigned step = 1; step < ACROSS; step *= 2) {
        float other = ct_warp_from(v, ct_lane() ^ step);

        v = largest ? fmaxf(v, other) : v + other;
    }
    return v;
}

/* What a thread knows of its rows: largest score so far, and the sum of its columns' powers. */
struct running {
    float most[FOURS][4], sum[FOURS][4];
};

/* s becomes what values are weighed with; y shrinks to the new maximum. */
template <int D>
static __device__ void weigh(const job &t, const head &h, int query, int key, part *s, running *u,
                             result<D> *y)
{
    int first = key + 4 * across_of();

    each_row([&](int g, int r) {
        int i = query + row_of(g, r);
        sight sees = sight_of(t, h, i);
        four keep = kept(t, h, i, first);
        float *v = s->v[g][r], most = u->most[g][r], base, shrink;

        CT_UNROLLED for (int j = 0; j < 4; j++)
        {
            v[j] = sees.has(first + j) ? v[j] * t.unit : -INFINITY;
            most = fmaxf(most, v[j]);
        }
        most = over_columns(most, true);
        base = (most == -INFINITY) ? 0.0f : most;
        shrink = exp2f(u->most[g][r] - base);
        u->most[g][r] = most;
        u->sum[g][r] *= shrink;
        CT_UNROLLED for (int k = 0; k < result<D>::C; k++) y->v[g][r][k] *= shrink;
        CT_UNROLLED for (int j = 0; j < 4; j++)
        {
            v[j] = exp2f(v[j] - base);
            u->sum[g][r] += v[j];
            v[j] *= keep.v[j];
        }
    });
}

/* The longest rows of a causal matrix begin first. */
template <int D> __global__ void __launch_bounds__(CT_CUDA_BLOCK) forward_kernel(job t)
{
    __shared__ room m;
    int64_t block = blockIdx.x / t.chunks, heads = t.d.n * t.d.heads;
    int chunk = (int)(blockIdx.x % t.chunks), from = chunk * D, key, end;
    int query = ((int)(gridDim.x / t.chunks / heads) - 1 - (int)(block / heads)) * TILE;
    head h = head_of(t, block % heads / t.d.heads, block % t.d.heads);
    tokens out = plain_tokens(t, t.a.y, t.d.tq, t.d.heads * t.d.dim, h.sample, h.number);
    result<D> y = {};
    running u = {};
    part s;

    each_row([&](int g, int r) { u.most[g][r] = -INFINITY; });
    keys_of(t, h, query, &key, &end);
    for (; key < end; key += TILE) {
        multiply(h.q, query, h.k, key, &m, &s);
        weigh<D>(t, h, query, key, &s, &u, &y);
        put_weights(s, &m);
        add_weighted<D>(h.v, key, from, &m, &y);
    }
    each_row([&](int g, int r) {
        int i = query + row_of(g, r);
        float sum = over_columns(u.sum[g][r], false), *stats = t.a.stats + (h.row + i) * 2;

        u.sum[g][r] = (sum > 0.0f) ? 1.0f / sum : ((sum == sum) ? 0.0f : sum); /* NaN stays NaN */
        if ((t.a.stats == NULL) || (i >= t.d.tq) || (chunk > 0) || (across_of() > 0)) return;
        stats[0] = (u.most[g][r] == -INFINITY) ? 0.0f : u.most[g][r];
        stats[1] = u.sum[g][r];
    });
    put_result<D>(out, query, from, y, u.sum);
}

/* ---- backward */

/* dot = the product of a query's y and its gradient; a warp each. */
static __global__ void dot_kernel(job t)
{
    ct_numbers y = ct_numbers_at(t.a.y, t.d.bf16 ? CT_BF16 : CT_F32);
    ct_numbers dy = ct_numbers_at(t.a.dy, t.d.bf16 ? CT_BF16 : CT_F32);

    for (int64_t k = blockIdx.x * (int64_t)CT_WARPS + threadIdx.x / CT_WARP;
         k < t.d.n * t.d.heads * t.d.tq; k += (int64_t)gridDim.x * CT_WARPS) {
        int64_t i = k % t.d.tq, h = k / t.d.tq % t.d.heads, sample = k / (t.d.tq * t.d.heads);
        int64_t at = ((sample * t.d.tq + i) * t.d.heads + h) * t.d.dim;
        float sum = 0.0f;

        for (int64_t c = ct_lane(); c < t.d.dim; c += CT_WARP) sum += y[at + c] * dy[at + c];
        sum = ct_warp_add(sum);
        if (ct_lane() == 0) t.dot[k] = sum;
    }
}

/* What forward left of a query. */
struct left {
    sight sees;
    float most, inverse, dot;
};

static __device__ inline left left_of(const job &t, const head &h, int query)
{
    left f = { sight_of(t, h, query), 0.0f, 0.0f, 0.0f };

    if (query >= t.d.tq) return f;
    f.most = t.a.stats[(h.row + query) * 2];
    f.inverse = t.a.stats[(h.row + query) * 2 + 1];
    f.dot = t.dot[h.row + query];
    return f;
}

/* score, the product of a query and a key, becomes the probability times what dropout keeps; dp,
 * that of dy and v, becomes the gradient of the score. */
static __device__ inline void back_score(const job &t, const left &f, int key, float keep,
                                         float *score, float *dp)
{
    float p = f.sees.has(key) ? exp2f(*score * t.unit - f.most) * f.inverse : 0.0f;

    *dp = (p != 0.0f) ? p * (*dp * keep - f.dot) * t.d.scale : 0.0f;
    *score = p * keep;
}

template <int D> __global__ void __launch_bounds__(CT_CUDA_BLOCK) query_kernel(job t)
{
    __shared__ room m;
    int64_t block = blockIdx.x / t.chunks, heads = t.d.n * t.d.heads;
    int from = (int)(blockIdx.x % t.chunks) * D, key, end;
    int query = ((int)(gridDim.x / t.chunks / heads) - 1 - (int)(block / heads)) * TILE;
    head h = head_of(t, block % heads / t.d.heads, block % t.d.heads);
    tokens out = h.q;
    result<D> dq = {};
    float one[FOURS][4];
    part s, ds;

    out.x = ct_numbers_at(t.a.dq, t.d.bf16 ? CT_BF16 : CT_F32);
    each_row([&](int g, int r) { one[g][r] = 1.0f; });
    keys_of(t, h, query, &key, &end);
    for (; key < end; key += TILE) {
        multiply(h.q, query, h.k, key, &m, &s);
        multiply(h.dy, query, h.v, key, &m, &ds);
        each_row([&](int g, int r) {
            int i = query + row_of(g, r), first = key + 4 * across_of();
            left f = left_of(t, h, i);
            four keep = kept(t, h, i, first);

            CT_UNROLLED for (int j = 0; j < 4; j++)
                back_score(t, f, first + j, keep.v[j], &s.v[g][r][j], &ds.v[g][r][j]);
        });
        put_weights(ds, &m);
        add_weighted<D>(h.k, key, from, &m, &dq);
    }
    put_result<D>(out, query, from, dq, one);
}

/* The same of a tile whose rows are keys, and its columns queries. */
static __device__ inline void back_scores(const job &t, const head &h, int key, int query, part *s,
                                          part *ds)
{
    CT_UNROLLED for (int j = 0; j < 4; j++)
    {
        int i = query + 4 * across_of() + j;
        left f = left_of(t, h, i);

        CT_UNROLLED for (int g = 0; g < FOURS; g++)
        {
            four keep = kept(t, h, i, key + row_of(g, 0));

            CT_UNROLLED for (int r = 0; r < 4; r++)
                back_score(t, f, key + row_of(g, r), keep.v[r], &s->v[g][r][j], &ds->v[g][r][j]);
        }
    }
}

/* A group's keys and values have the gradients of all heads of queries that read them. */
template <int D> __global__ void __launch_bounds__(CT_CUDA_BLOCK) key_kernel(job t)
{
    __shared__ room m;
    int64_t block = blockIdx.x / t.chunks, groups = t.d.n * t.d.kv_heads;
    int64_t sample = block % groups / t.d.kv_heads, group = block % t.d.kv_heads;
    int64_t of_group = t.d.heads / t.d.kv_heads;
    int from = (int)(blockIdx.x % t.chunks) * D, key = (int)(block / groups) * TILE, query, end;
    result<D> dk = {}, dv = {};
    float one[FOURS][4];
    part s, ds;
    head h;

    each_row([&](int g, int r) { one[g][r] = 1.0f; });
    for (int64_t k = 0; k < of_group; k++) {
        h = head_of(t, sample, group * of_group + k);
        queries_of(t, h, key, &query, &end);
        for (; query < end; query += TILE) {
            multiply(h.k, key, h.q, query, &m, &s);
            multiply(h.v, key, h.dy, query, &m, &ds);
            back_scores(t, h, key, query, &s, &ds);
            if (t.a.dv != NULL) {
                put_weights(s, &m);
                add_weighted<D>(h.dy, query, from, &m, &dv);
            }
            if (t.a.dk == NULL) continue;
            put_weights(ds, &m);
            add_weighted<D>(h.q, query, from, &m, &dk);
        }
    }
    h.k.x = ct_numbers_at(t.a.dk, h.k.x.type);
    h.v.x = ct_numbers_at(t.a.dv, h.v.x.type);
    if (t.a.dk != NULL) put_result<D>(h.k, key, from, dk, one);
    if (t.a.dv != NULL) put_result<D>(h.v, key, from, dv, one);
}

/* ---- engines */

static int64_t tiles_of(int64_t n)
{
    return (n + TILE - 1) / TILE;
}

/* Blocks that share a tile, each with up to MOST channels. */
static int chunks_of(const ct_attention_desc *d)
{
    return (int)((d->dim + MOST - 1) / MOST);
}

static int64_t blocks_of(const ct_attention_desc *d, bool keys)
{
    return d->n * (keys ? d->kv_heads * tiles_of(d->tk) : d->heads * tiles_of(d->tq)) *
           chunks_of(d);
}

static bool supports(const ct_attention_desc *d)
{
    const int64_t most = INT32_MAX - TILE; /* places of a sequence are ints */

    return (d->device == CT_DEVICE_CUDA) && (d->tq <= most) && (d->tk <= most) &&
           (d->dim <= most) && (blocks_of(d, false) <= most) && (blocks_of(d, true) <= most);
}

static size_t workspace(const ct_attention_desc *d)
{
    return (size_t)(d->n * d->heads * d->tq) * sizeof(float);
}

static job job_of(const ct_attention_desc *d, const ct_exec *ex, const ct_attention_args *a)
{
    job t = { *d, *a, ex->seed, ex->step_there, 0.0f, (float *)a->work, chunks_of(d) };

    t.unit = (float)((double)d->scale * 1.4426950408889634); /* 1 / ln 2 */
    return t;
}

/* _kernel<channels of a block>, of heads that have some. */
#define RUN(_kernel, _keys, _ex, _job)                                                             \
    if ((_job).d.dim <= 32)                                                                        \
        CT_CUDA_RUN_BLOCKS(_kernel<32>, (unsigned)blocks_of(&(_job).d, _keys), (_ex)->stream,      \
                           _job);                                                                  \
    else if ((_job).d.dim <= 64)                                                                   \
        CT_CUDA_RUN_BLOCKS(_kernel<64>, (unsigned)blocks_of(&(_job).d, _keys), (_ex)->stream,      \
                           _job);                                                                  \
    else                                                                                           \
        CT_CUDA_RUN_BLOCKS(_kernel<MOST>, (unsigned)blocks_of(&(_job).d, _keys), (_ex)->stream,    \
                           _job)

static ct_status forward(const ct_attention_desc *d, ct_exec *ex, const ct_attention_args *a)
{
    job t = job_of(d, ex, a);

    if (blocks_of(d, false) == 0) return CT_OK;
    RUN(forward_kernel, false, ex, t);
    return ct_cuda_launched("attention");
}

static ct_status backward(const ct_attention_desc *d, ct_exec *ex, const ct_attention_args *a)
{
    job t = job_of(d, ex, a);

    if (blocks_of(d, false) == 0) return CT_OK;
    CT_CUDA_RUN_BLOCKS(dot_kernel, ct_cuda_grid(d->n * d->heads * d->tq * CT_WARP), ex->stream, t);
    CT_TRY(ct_cuda_launched("attention backward"));
    if (a->dq != NULL) {
        RUN(query_kernel, false, ex, t);
        CT_TRY(ct_cuda_launched("attention, gradient of queries"));
    }
    if ((a->dk == NULL) && (a->dv == NULL)) return CT_OK;
    RUN(key_kernel, true, ex, t);
    return ct_cuda_launched("attention, gradients of keys and values");
}

const ct_attention_impl ct_attention_cuda_forward = { "cuda", supports, NULL, forward };
const ct_attention_impl ct_attention_cuda_backward = { "cuda", supports, workspace, backward };
