/* What sees what, how work is cut into tasks, and what each thread has of it. */
#include <math.h>
#include <stdlib.h>

#include "layers/engine/attention/flash.h"

bool ct_flash_supports(const ct_attention_desc *d)
{
    return (d->device == CT_DEVICE_CPU) && (d->dim <= CT_FLASH_DIM);
}

void ct_flash_seen_by(const ct_attention_desc *d, int64_t key, int64_t end, int64_t *from_p,
                      int64_t *to_p)
{
    int64_t shift = ct_attention_shift(d), from = 0, to = d->tq;

    if (d->causal && (key - shift > 0)) from = ct_gemm_smaller(key - shift, d->tq);
    if ((d->window > 0) && (end - 1 + d->window - shift < to)) to = end - 1 + d->window - shift;
    *from_p = from;
    *to_p = (to > from) ? to : from;
}

bool ct_flash_meet(const ct_attention_desc *d, int64_t query, int64_t n, int64_t key, int64_t keys)
{
    int64_t from, to;

    ct_flash_seen_by(d, key, key + keys, &from, &to);
    return (query < to) && (query + n > from);
}

int64_t ct_flash_first_vector(const ct_attention_desc *d, int64_t lanes, int64_t query, int64_t key,
                              int64_t n)
{
    int64_t from, to;

    ct_flash_keys_of(d, query, lanes, key, key + n, &from, &to);
    return (to > key) ? to - key : 0;
}

void ct_flash_keys_of(const ct_attention_desc *d, int64_t query, int64_t n, int64_t key,
                      int64_t end, int64_t *from_p, int64_t *to_p)
{
    int64_t shift = ct_attention_shift(d), from, to, unused;

    ct_attention_sees(d, query + shift, &from, &unused);
    ct_attention_sees(d, query + n - 1 + shift, &unused, &to);
    *from_p = (from > key) ? from : key;
    *to_p = ct_gemm_smaller(to, end);
}

/* What is no number equals nothing. */
static bool range_of(const float *x, int64_t n, float *least_p, float *most_p)
{
    float least = INFINITY, most = -INFINITY;
    bool all = true;

    for (int64_t i = 0; i < n; i++) {
        least = (x[i] < least) ? x[i] : least;
        most = (x[i] > most) ? x[i] : most;
        all = all && (x[i] == x[i]);
    }
    *least_p = least;
    *most_p = most;
    return all;
}

ct_flash_equal ct_flash_segments(const float *a, int64_t n_a, const float *b, int64_t n_b)
{
    float least_a, most_a, least_b, most_b;
    bool all = range_of(a, n_a, &least_a, &most_a);

    all = range_of(b, n_b, &least_b, &most_b) && all;
    if (!(least_a <= most_b) || !(least_b <= most_a)) return CT_FLASH_NONE;
    all = all && (least_a == most_a) && (least_b == most_b);
    return all ? CT_FLASH_ALL : CT_FLASH_SOME;
}

/* Pairs of a sequence and a group of heads that are under way together: one a thread, so that few
 * threads have what they read in their own caches, and many wait little for one another. */
static int64_t together(const ct_attention_desc *d)
{
    return ct_gemm_smaller(d->n * d->kv_heads, d->n_thread);
}

static int64_t chunks_of(const ct_attention_desc *d)
{
    return ct_gemm_ceil_div(d->tk, d->task_keys);
}

int64_t ct_flash_units(const ct_attention_desc *d)
{
    return d->n * d->kv_heads * chunks_of(d);
}

ct_flash_unit ct_flash_unit_of(const ct_attention_desc *d, int64_t number)
{
    int64_t side = together(d), chunks = chunks_of(d), first = number / (side * chunks) * side;
    int64_t here = ct_gemm_smaller(side, d->n * d->kv_heads - first);
    int64_t rest = number - first * chunks;

    return (ct_flash_unit){ .pair = first + rest % here, .chunk = rest / here };
}

/* ---- what threads do */

/* Multiply-adds of a task of forward: two products. */
static double forward_cost(const ct_attention_desc *d, int64_t lanes, int64_t chunk)
{
    int64_t from = chunk * d->task_queries, numbers = 0;
    int64_t to = ct_gemm_smaller(from + d->task_queries, d->tq);

    for (int64_t i = from; i < to; i += 2 * lanes) {
        int64_t queries = ct_gemm_smaller(2 * lanes, to - i), key, end, cut;

        ct_flash_keys_of(d, i, queries, 0, d->tk, &key, &end);
        cut = ct_flash_first_vector(d, lanes, i, key, end - key);
        numbers += (queries > lanes) ? lanes * (cut + end - key) : lanes * cut;
    }
    return 2.0 * (double)(numbers * d->dim);
}

/* Queries of [query, query + n) that see keys of [key, key + rows): of two sums over queries. */
static int64_t sums_over_queries(const ct_attention_desc *d, int64_t query, int64_t n, int64_t key,
                                 int64_t rows)
{
    int64_t from, to;

    ct_flash_seen_by(d, key, key + rows, &from, &to);
    from = (from > query) ? from : query;
    to = ct_gemm_smaller(to, query + n);
    return (to > from) ? 2 * rows * (to - from) : 0;
}

/* Of a block of queries and a unit's keys, for all heads of the group: five products. */
static double step_cost(const ct_attention_desc *d, const ct_flash_set *set, int64_t block,
                        int64_t chunk)
{
    int64_t query = block * CT_FLASH_QUERIES, key = chunk * d->task_keys, numbers = 0;
    int64_t n = ct_gemm_smaller(CT_FLASH_QUERIES, d->tq - query), lanes = set->lanes;
    int64_t keys = ct_gemm_smaller(d->task_keys, d->tk - key);
    int64_t tiles = ct_gemm_ceil_div(n, set->rows);

    for (int64_t j = 0; j < keys; j += 2 * lanes) {
        int64_t here = ct_gemm_smaller(2 * lanes, keys - j);
        int64_t key_tiles = ct_gemm_ceil_div(here, set->rows);

        for (int64_t t = 0; t < tiles; t++) {
            int64_t i = ct_gemm_tile_row(n, tiles, t), rows = ct_gemm_tile_row(n, tiles, t + 1) - i;
            int64_t from, to;

            ct_flash_keys_of(d, query + i, rows, key + j, key + j + here, &from, &to);
            if (to <= from) continue;
            numbers += 2 * rows * ((to - key - j > lanes) ? 2 * lanes : lanes) + rows * (to - from);
        }
        for (int64_t t = 0; t < key_tiles; t++) {
            int64_t i = ct_gemm_tile_row(here, key_tiles, t);

            numbers += sums_over_queries(d, query, n, key + j + i,
                                         ct_gemm_tile_row(here, key_tiles, t + 1) - i);
        }
    }
    numbers *= d->dim * (d->heads / d->kv_heads);
    return (double)numbers;
}

static int first_free(int n, const double *busy)
{
    int first = 0;

    for (int i = 1; i < n; i++) first = (busy[i] < busy[first]) ? i : first;
    return first;
}

typedef struct times {
    double *busy; /* [n_thread]: until when                                       */
    double *work; /* [n_thread]: may be NULL                                      */
    double *step; /* [chunk][block of queries]                                    */
    double *done; /* [pair][block]: when the last unit so far has added to its dq */
} times;

static void forward_times(const ct_attention_desc *d, const times *t)
{
    int64_t heads = d->n * d->heads, chunks = ct_gemm_ceil_div(d->tq, d->task_queries);
    int64_t lanes = ct_flash_set_pick()->lanes;

    for (int64_t chunk = chunks - 1; chunk >= 0; chunk--) {
        double cost = forward_cost(d, lanes, chunk);

        for (int64_t h = 0; h < heads; h++) {
            int who = first_free(d->n_thread, t->busy);

            t->busy[who] += cost;
            if (t->work != NULL) t->work[who] += cost;
        }
    }
}

/* A step's last fifth, what it adds to the gradient of the queries, waits for the unit before. */
static void backward_times(const ct_attention_desc *d, const times *t)
{
    int64_t blocks = ct_gemm_ceil_div(d->tq, CT_FLASH_QUERIES), units = ct_flash_units(d);
    const ct_flash_set *set = ct_flash_set_pick();

    for (int64_t chunk = 0; chunk < chunks_of(d); chunk++) {
        for (int64_t b = 0; b < blocks; b++)
            t->step[chunk * blocks + b] = step_cost(d, set, b, chunk);
    }
    for (int64_t u = 0; u < units; u++) {
        ct_flash_unit unit = ct_flash_unit_of(d, u);
        int who = first_free(d->n_thread, t->busy);

        for (int64_t b = blocks - 1; b >= 0; b--) {
            double cost = t->step[unit.chunk * blocks + b];
            double *done = &t->done[unit.pair * blocks + b];

            if (cost == 0) continue;
            t->busy[who] = fmax(t->busy[who] + 0.8 * cost, *done) + 0.2 * cost;
            *done = t->busy[who];
            if (t->work != NULL) t->work[who] += cost;
        }
    }
}

ct_status ct_attention_work(const ct_attention_desc *d, bool backward, double *work, double *last_p)
{
    int64_t blocks = ct_gemm_ceil_div(d->tq, CT_FLASH_QUERIES);
    size_t steps = backward ? (size_t)(chunks_of(d) * blocks) : 0;
    size_t pairs = backward ? (size_t)(d->n * d->kv_heads * blocks) : 0;
    double *block = calloc((size_t)d->n_thread + steps + pairs, sizeof(*block)), last = 0;
    times t = { .busy = block, .work = work };

    if (block == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to plan attention");
    t.step = block + d->n_thread;
    t.done = t.step + steps;
    for (int i = 0; (work != NULL) && (i < d->n_thread); i++) work[i] = 0;
    if (backward)
        backward_times(d, &t);
    else
        forward_times(d, &t);
    for (int i = 0; i < d->n_thread; i++) last = fmax(last, block[i]);
    free(block);
    *last_p = last;
    return CT_OK;
}

/* ---- how large tasks are */

enum { MANY = 16 /* tasks a thread: they even out whatever their sizes */ };

/* Tries sizes from *size_p down to `least`, halving, and keeps the one that is done first. Smaller
 * tasks copy more often what others have copied, so they must be worth a twentieth. */
static ct_status pick_size(ct_attention_desc *d, bool backward, int64_t length, int64_t heads,
                           int64_t least, int64_t *size_p)
{
    double best = INFINITY;
    int64_t taken = *size_p;

    if (d->n_thread == 1) return CT_OK;
    for (; *size_p >= least; *size_p /= 2) {
        int64_t tasks = ct_gemm_ceil_div(length, *size_p) * d->n * heads;
        double last;

        if ((best == INFINITY) && (tasks >= (int64_t)MANY * d->n_thread)) break;
        CT_TRY(ct_attention_work(d, backward, NULL, &last));
        if (last > 0.95 * best) continue;
        best = last;
        taken = *size_p;
    }
    *size_p = taken;
    return CT_OK;
}

ct_status ct_attention_split(ct_attention_desc *d)
{
    d->task_queries = CT_FLASH_TASK;
    d->task_keys = CT_FLASH_KEYS;
    if (d->n == 0) return CT_OK;
    CT_TRY(pick_size(d, false, d->tq, d->heads, CT_FLASH_WIDTH, &d->task_queries));
    if (!d->wants_q && !d->wants_kv) return CT_OK; /* keys are backward's */
    return pick_size(d, true, d->tk, d->kv_heads, CT_FLASH_WIDTH, &d->task_keys);
}
