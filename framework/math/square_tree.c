/* Sums of squares as binary trees over lines of 16. */
#include "framework/math/square_tree.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/log.h"
#include "framework/base/simd.h"

enum {
    LINE = CT_SQUARE_LINE,
    LEVELS = CT_SQUARE_LEVELS,
    BLOCK = CT_SQUARE_BLOCK,
    UNIT = CT_SQUARE_UNIT,
    ARRAYS = CT_SQUARE_ARRAYS,
    UNIT_LEVEL = 8,
    TEAM_MIN = 65536, /* below this a team costs more than it brings */
    AT_ONCE = 1024,   /* units whose sums wait for their turn        */
    ENTRY = 1 + LINE, /* numbers of a node in what is shared         */
    PIECE = 15        /* in place of a level: of a piece of a line   */
};
_Static_assert((LINE << UNIT_LEVEL) == UNIT, "a unit is a node");

typedef struct ct_square_node {
    int level, i; /* in its block */
    int next;     /* in its chain, -1: the last; of a piece of a line its block */
    double sum[LINE];
} ct_square_node;

/* ---- nodes of floats that lie in memory */

#define SQ(_k)   ((double)x[LINE * (_k) + j] * (double)x[LINE * (_k) + j])
#define PAIR(_k) (SQ(_k) + SQ(_k + 1))
#define FOUR(_k) (PAIR(_k) + PAIR(_k + 2))

CT_SIMD_PART void node_of_8(const float *x, double *sum)
{
#pragma omp simd
    for (int j = 0; j < LINE; j++) sum[j] = FOUR(0) + FOUR(4);
}

/* The node of n lines, 8 2^k of them, k < 6: what is made waits for what it is added to. */
CT_SIMD_CLONES static void node_of_many(int n, const float *x, double *sum)
{
    double wait[UNIT_LEVEL][LINE];
    int top = 0;

    for (int l = 0; l < n; l += 8) {
        double *now = wait[top++];

        node_of_8(x + l * LINE, now);
        for (int bits = l / 8; bits & 1; bits >>= 1, top--) {
            const double *right = wait[top - 1];
            double *left = wait[top - 2];

#pragma omp simd
            for (int j = 0; j < LINE; j++) left[j] += right[j];
        }
    }
    memcpy(sum, wait[0], LINE * sizeof(*sum));
}

static void node_of(int level, const float *x, double *sum)
{
    if (level >= 3) {
        node_of_many(1 << level, x, sum);
        return;
    }
    for (int j = 0; j < LINE; j++) sum[j] = (level == 0) ? SQ(0) : (level == 1) ? PAIR(0) : FOUR(0);
}

/* ---- nodes of a block */

static double folded(const double *sum)
{
    double v[LINE];

    memcpy(v, sum, sizeof(v));
    for (int w = LINE / 2; w > 0; w /= 2)
        for (int j = 0; j < w; j++) v[j] += v[j + w];
    return v[0];
}

static ct_status new_node(ct_square_sums *s, int *at_p)
{
    if (s->spare >= 0) {
        *at_p = s->spare;
        s->spare = s->node[*at_p].next;
        return CT_OK;
    }
    if (s->n_node == s->most) {
        int most = 2 * s->most + 64;
        ct_square_node *node = realloc(s->node, (size_t)most * sizeof(*node));

        if (node == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d sums of squares", most);
        s->node = node;
        s->most = most;
    }
    *at_p = s->n_node++;
    return CT_OK;
}

/* Out of block b's chain: the node, or its place stays -1. */
static int take_node(ct_square_sums *s, int b, int level, int i)
{
    int *link = &s->head[b];

    for (int at = *link; at >= 0; link = &s->node[at].next, at = *link) {
        ct_square_node *node = &s->node[at];

        if ((node->level != level) || (node->i != i)) continue;
        *link = node->next;
        node->next = s->spare;
        s->spare = at;
        return at;
    }
    return -1;
}

/* Node (level, i) of block b joins the other half of its parent, as far up as that goes. */
static ct_status put_node(ct_square_sums *s, int b, int level, int i, const double *sum)
{
    double v[LINE];
    int at;

    memcpy(v, sum, sizeof(v));
    while (level < LEVELS) {
        at = take_node(s, b, level, i ^ 1);
        if (at < 0) break;
        for (int j = 0; j < LINE; j++) v[j] += s->node[at].sum[j];
        level++;
        i >>= 1;
    }
    if (level == LEVELS) {
        s->block[b] = folded(v);
        return CT_OK;
    }
    CT_TRY(new_node(s, &at));
    s->node[at] = (ct_square_node){ .level = level, .i = i, .next = s->head[b] };
    memcpy(s->node[at].sum, v, sizeof(v));
    s->head[b] = at;
    return CT_OK;
}

/* What block b lacks is 0. */
static ct_status finish(ct_square_sums *s, int b)
{
    while (s->head[b] >= 0) {
        const ct_square_node *low = &s->node[s->head[b]];
        double sum[LINE];
        int level, i;

        for (int at = low->next; at >= 0; at = s->node[at].next)
            if (s->node[at].level < low->level) low = &s->node[at];
        level = low->level;
        i = low->i;
        memcpy(sum, low->sum, sizeof(sum));
        (void)take_node(s, b, level, i);
        CT_TRY(put_node(s, b, level + 1, i >> 1, sum));
    }
    return CT_OK;
}

/* ---- lists */

ct_status ct_square_sums_open(const int64_t *count, int n, ct_square_sums *s)
{
    *s = (ct_square_sums){ .n = n, .spare = -1 };
    s->first = calloc((size_t)n + 1, sizeof(*s->first));
    s->count = calloc(2 * (size_t)n + 1, sizeof(*s->count));
    s->unit = calloc((size_t)AT_ONCE * ARRAYS * LINE, sizeof(*s->unit));
    for (int k = 0; (s->first != NULL) && (s->count != NULL) && (k < n); k++) {
        s->count[k] = count[k];
        s->first[k + 1] = s->first[k] + (int)((count[k] + BLOCK - 1) / BLOCK);
    }
    s->n_block = (s->first != NULL) ? s->first[n] : 0;
    s->block = calloc((size_t)s->n_block + 1, sizeof(*s->block));
    s->head = calloc((size_t)s->n_block + 1, sizeof(*s->head));
    if ((s->first == NULL) || (s->count == NULL) || (s->unit == NULL) || (s->block == NULL) ||
        (s->head == NULL)) {
        ct_square_sums_close(s);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for sums of squares of %d lists", n);
    }
    s->landed = s->count + n;
    for (int b = 0; b < s->n_block; b++) s->head[b] = -1;
    return CT_OK;
}

void ct_square_sums_close(ct_square_sums *s)
{
    free(s->first);
    free(s->count);
    free(s->unit);
    free(s->block);
    free(s->head);
    free(s->node);
    free(s->part);
    *s = (ct_square_sums){ .n = 0 };
}

void ct_square_sums_begin(ct_square_sums *s, int list, int n)
{
    for (int k = list; k < list + n; k++) s->landed[k] = 0;
    for (int b = s->first[list]; b < s->first[list + n]; b++) {
        s->block[b] = 0.0;
        while (s->head[b] >= 0)
            (void)take_node(s, b, s->node[s->head[b]].level, s->node[s->head[b]].i);
    }
    for (int i = 0; i < s->n_part; i++) {
        if ((s->part[i].next < s->first[list]) || (s->part[i].next >= s->first[list + n])) continue;
        s->part[i--] = s->part[--s->n_part];
    }
}

/* ---- numbers are added */

/* A piece of line i of block b: what it lacks is 0 in sum. */
static ct_status put_part(ct_square_sums *s, int b, int i, const double *sum)
{
    if (s->n_part == s->most_part) {
        int most = 2 * s->most_part + 64;
        ct_square_node *part = realloc(s->part, (size_t)most * sizeof(*part));

        if (part == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d sums of squares", most);
        s->part = part;
        s->most_part = most;
    }
    s->part[s->n_part] = (ct_square_node){ .level = PIECE, .i = i, .next = b };
    memcpy(s->part[s->n_part++].sum, sum, LINE * sizeof(*sum));
    return CT_OK;
}

static int by_line(const void *a, const void *b)
{
    const ct_square_node *x = a, *y = b;

    return (x->next != y->next) ? x->next - y->next : x->i - y->i;
}

/* A number comes in one piece, so adding pieces up is exact. */
ct_status ct_square_sums_join(ct_square_sums *s, int list, int n)
{
    int from = 0, to, next, end = s->first[list + n];

    if (s->n_part > 1) qsort(s->part, (size_t)s->n_part, sizeof(*s->part), by_line);
    while ((from < s->n_part) && (s->part[from].next < s->first[list])) from++;
    for (to = from; (to < s->n_part) && (s->part[to].next < end); to = next) {
        ct_square_node *line = &s->part[to];

        for (next = to + 1; (next < s->n_part) && (by_line(line, &s->part[next]) == 0); next++)
            for (int j = 0; j < LINE; j++) line->sum[j] += s->part[next].sum[j];
        while (line->next >= s->first[list + 1]) list++;
        s->landed[list]++;
        CT_TRY(put_node(s, line->next, 0, line->i, line->sum));
    }
    if (to > from)
        memmove(s->part + from, s->part + to, (size_t)(s->n_part - to) * sizeof(*s->part));
    s->n_part -= to - from;
    return CT_OK;
}

typedef struct adding {
    ct_square_sums *s;
    int list, n;
    ct_square_source source;
    const void *ctx;
} adding;

/* Of one line. */
static ct_status add_part(const adding *a, int64_t from, int64_t count)
{
    float room[ARRAYS][UNIT];
    const float *x[ARRAYS];

    a->source(a->ctx, from, count, room, x);
    for (int k = 0; k < a->n; k++) {
        float line[LINE] = { 0 };
        double sum[LINE];

        memcpy(line + from % LINE, x[k], (size_t)count * sizeof(*line));
        node_of(0, line, sum);
        CT_TRY(put_part(a->s, a->s->first[a->list + k] + (int)(from / BLOCK),
                        (int)(from % BLOCK / LINE), sum));
    }
    return CT_OK;
}

/* Lines, less than a unit of them. */
static ct_status add_some(const adding *a, int64_t from, int64_t count)
{
    float room[ARRAYS][UNIT];
    const float *x[ARRAYS];
    int64_t n_line = count / LINE;

    a->source(a->ctx, from, count, room, x);
    for (int k = 0; k < a->n; k++) {
        int b = a->s->first[a->list + k] + (int)(from / BLOCK), l0 = (int)(from % BLOCK / LINE);
        int l = l0, end = l0 + (int)n_line, level;
        double sum[LINE];

        for (; l < end; l += 1 << level) {
            for (level = 0; (l % (2 << level) == 0) && (l + (2 << level) <= end);) level++;
            node_of(level, x[k] + (int64_t)(l - l0) * LINE, sum);
            CT_TRY(put_node(a->s, b, level, l >> level, sum));
        }
    }
    return CT_OK;
}

/* Whole units, at most AT_ONCE. */
static ct_status add_units(const adding *a, int64_t from, int n_unit)
{
    ct_square_sums *s = a->s;

#pragma omp parallel for schedule(static) if (((int64_t)n_unit * UNIT >= TEAM_MIN) &&              \
                                              !omp_in_parallel())
    for (int u = 0; u < n_unit; u++) {
        float room[ARRAYS][UNIT];
        const float *x[ARRAYS];

        a->source(a->ctx, from + (int64_t)u * UNIT, UNIT, room, x);
        for (int k = 0; k < a->n; k++)
            node_of(UNIT_LEVEL, x[k], s->unit + ((int64_t)k * AT_ONCE + u) * LINE);
    }
    for (int k = 0; k < a->n; k++) {
        for (int u = 0; u < n_unit; u++) {
            int64_t at = from + (int64_t)u * UNIT;

            CT_TRY(put_node(s, s->first[a->list + k] + (int)(at / BLOCK), UNIT_LEVEL,
                            (int)(at % BLOCK / UNIT), s->unit + ((int64_t)k * AT_ONCE + u) * LINE));
        }
    }
    return CT_OK;
}

ct_status ct_square_sums_make(ct_square_sums *s, int list, int n, int64_t from, int64_t count,
                              ct_square_source source, const void *ctx)
{
    const adding a = { s, list, n, source, ctx };
    int64_t end = from + count, here;

    if ((from < 0) || (count < 0) || (end > s->count[list]) || (n > ARRAYS))
        return CT_FAIL(CT_ERR_ARG, "squares of [%lld, %lld) of %lld numbers", (long long)from,
                       (long long)end, (long long)s->count[list]);
    for (int64_t at = from; at < end; at += here) {
        int64_t n_unit = (at % UNIT == 0) ? (end - at) / UNIT : 0, inside = at % LINE;

        if ((inside > 0) || (end - at < LINE)) {
            here = (end - at < LINE - inside) ? end - at : LINE - inside;
            CT_TRY(add_part(&a, at, here));
            continue;
        }
        if (n_unit > 0) {
            if (n_unit > AT_ONCE) n_unit = AT_ONCE;
            here = n_unit * UNIT;
            CT_TRY(add_units(&a, at, (int)n_unit));
        } else {
            here = UNIT - at % UNIT;
            if (here > end - at) here = (end - at) / LINE * LINE;
            CT_TRY(add_some(&a, at, here));
        }
        for (int k = 0; k < n; k++) s->landed[list + k] += here / LINE;
    }
    return CT_OK;
}

typedef struct lying {
    const float *data;
    int64_t from;
} lying;

static void as_it_lies(const void *ctx, int64_t from, int64_t n, float room[][UNIT],
                       const float *x[])
{
    const lying *l = ctx;

    (void)n;
    (void)room;
    x[0] = l->data + (from - l->from);
}

ct_status ct_square_sums_add(ct_square_sums *s, int list, int64_t from, int64_t count,
                             const float *data)
{
    const lying l = { data, from };

    return ct_square_sums_make(s, list, 1, from, count, as_it_lies, &l);
}

/* ---- what several owners have added: landed, whole blocks, nodes, pieces of lines. A node is its
 * place, then its sums. The place is a number below 2^53. */

static int n_block_of(const ct_square_sums *s, int list, int n)
{
    return s->first[list + n] - s->first[list];
}

int64_t ct_square_sums_nodes(const ct_square_sums *s, int list, int n)
{
    int64_t n_open = 0;

    for (int i = 0; i < s->n_part; i++)
        n_open += (s->part[i].next >= s->first[list]) && (s->part[i].next < s->first[list + n]);
    for (int b = s->first[list]; b < s->first[list + n]; b++)
        for (int at = s->head[b]; at >= 0; at = s->node[at].next) n_open++;
    return n_open;
}

int64_t ct_square_sums_length(const ct_square_sums *s, int list, int n, int64_t n_open)
{
    return n + n_block_of(s, list, n) + n_open * ENTRY;
}

static void put_entry(const ct_square_node *node, int b, double *entry)
{
    entry[0] = (double)((((int64_t)b << 4 | node->level) << LEVELS) | node->i);
    memcpy(entry + 1, node->sum, sizeof(node->sum));
}

void ct_square_sums_put(const ct_square_sums *s, int list, int n, int64_t before, double *v)
{
    double *entry = v + ct_square_sums_length(s, list, n, before);

    for (int k = 0; k < n; k++) v[k] = (double)s->landed[list + k];
    memcpy(v + n, s->block + s->first[list], (size_t)n_block_of(s, list, n) * sizeof(*v));
    for (int b = s->first[list]; b < s->first[list + n]; b++) {
        for (int at = s->head[b]; at >= 0; at = s->node[at].next, entry += ENTRY)
            put_entry(&s->node[at], b - s->first[list], entry);
    }
    for (int i = 0; i < s->n_part; i++) {
        int b = s->part[i].next;

        if ((b < s->first[list]) || (b >= s->first[list + n])) continue;
        put_entry(&s->part[i], b - s->first[list], entry);
        entry += ENTRY;
    }
}

ct_status ct_square_sums_take(ct_square_sums *s, int list, int n, int64_t n_open, const double *v)
{
    const double *entry = v + ct_square_sums_length(s, list, n, 0);

    ct_square_sums_begin(s, list, n);
    for (int k = 0; k < n; k++) s->landed[list + k] = (int64_t)v[k];
    memcpy(s->block + s->first[list], v + n, (size_t)n_block_of(s, list, n) * sizeof(*v));
    for (int64_t e = 0; e < n_open; e++, entry += ENTRY) {
        int64_t place = (int64_t)entry[0];

        int b = s->first[list] + (int)(place >> (LEVELS + 4)), level = (int)(place >> LEVELS) & 15;
        int i = (int)(place & ((1 << LEVELS) - 1));

        CT_TRY((level == PIECE) ? put_part(s, b, i, entry + 1)
                                : put_node(s, b, level, i, entry + 1));
    }
    return ct_square_sums_join(s, list, n);
}

ct_status ct_square_sums_of(ct_square_sums *s, int list, double *sum_p)
{
    double sum = 0.0;

    CT_TRY(ct_square_sums_join(s, list, 1));
    for (int b = s->first[list]; b < s->first[list + 1]; b++) {
        CT_TRY(finish(s, b));
        sum += s->block[b];
    }
    *sum_p = sum;
    return CT_OK;
}
