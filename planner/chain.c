#include "planner/chain.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/simd.h"

/* ---- sizes: sums and products end at INT64_MAX */

static int64_t plus(int64_t a, int64_t b)
{
    return (a > INT64_MAX - b) ? INT64_MAX : a + b;
}

static int64_t product(int64_t a, int64_t b)
{
    return ((b != 0) && (a > INT64_MAX / b)) ? INT64_MAX : a * b;
}

static int64_t greater(int64_t a, int64_t b)
{
    return (a > b) ? a : b;
}

static int64_t divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t rest = a % b;

        a = b;
        b = rest;
    }
    return a;
}

int64_t ct_chain_memory(const ct_chain *c, const int *strategy, const ct_chain_mode *mode)
{
    int64_t weight = 0, held = 0, segment = 0, largest = 0;

    for (int l = 0; l < c->n_block; l++) {
        int64_t at = (int64_t)l * c->n_strategy + strategy[l];

        weight = plus(weight, c->weight[at]);
        if (mode[l] == CT_CHAIN_KEEP) held = plus(held, c->kept[at]);
        if (mode[l] == CT_CHAIN_START) held = plus(held, c->input[at]);
        segment = (mode[l] == CT_CHAIN_KEEP)    ? 0
                  : (mode[l] == CT_CHAIN_START) ? c->kept[at]
                                                : plus(segment, c->kept[at]);
        largest = greater(largest, segment);
    }
    return plus(plus(weight, product(c->in_flight, held)), largest);
}

static double paid(const double *reshard_s, int n, int l, int from, int to)
{
    return ((reshard_s == NULL) || (l == 0)) ? 0 : reshard_s[((int64_t)l * n + from) * n + to];
}

double ct_chain_time(const ct_chain *c, const int *strategy, const ct_chain_mode *mode)
{
    double sum = 0;

    for (int l = 0; l < c->n_block; l++) {
        int64_t at = (int64_t)l * c->n_strategy + strategy[l];

        sum += paid(c->reshard_s, c->n_strategy, l, strategy[(l > 0) ? l - 1 : 0], strategy[l]);
        sum += c->time_s[at];
        if (mode[l] != CT_CHAIN_KEEP) sum += c->again_s[at];
    }
    return sum;
}

/* ---- the chain as the tables want it: without what every choice takes, in the largest slots */

typedef struct way {          /* what a block takes with one strategy, in slots; > limit: never */
    int mode[3];              /* beside the largest segment, by mode                            */
    int size;                 /* in a segment                                                   */
    double keep_s, segment_s; /* INFINITY: not to be had                                        */
} way;

typedef struct problem {
    int n, n_strategy, limit;
    int most_segment;        /* no segment is larger */
    way *way;                /* [block][strategy]    */
    const double *reshard_s; /* borrowed             */
} problem;

enum { N_SIZE = 4 }; /* of a way: the modes', and the segment's */

static void find_sizes(const ct_chain *c, int64_t at, int64_t least, int64_t size[N_SIZE])
{
    int64_t weight = c->weight[at] - least;

    size[CT_CHAIN_KEEP] = plus(weight, product(c->in_flight, c->kept[at]));
    size[CT_CHAIN_START] = plus(weight, product(c->in_flight, c->input[at]));
    size[CT_CHAIN_CONTINUE] = weight;
    size[3] = c->kept[at];
}

static int64_t least_weight(const ct_chain *c, int l)
{
    int64_t least = INT64_MAX;

    for (int b = 0; b < c->n_strategy; b++) {
        int64_t at = (int64_t)l * c->n_strategy + b;

        if (isfinite(c->time_s[at]) && (c->weight[at] < least)) least = c->weight[at];
    }
    return least;
}

/* What the chain can use of `limit` at most, and what divides all its sizes. */
static void measure(const ct_chain *c, int64_t limit, int64_t *useful_p, int64_t *unit_p)
{
    int64_t useful = 0, unit = 0;

    for (int l = 0; l < c->n_block; l++) {
        int64_t beside = 0, segment = 0, least = least_weight(c, l);

        for (int b = 0; b < c->n_strategy; b++) {
            int64_t at = (int64_t)l * c->n_strategy + b, size[N_SIZE];

            if (!isfinite(c->time_s[at])) continue;
            find_sizes(c, at, least, size);
            for (int i = 0; i < N_SIZE; i++) {
                int64_t *most = (i == N_SIZE - 1) ? &segment : &beside;

                if (size[i] > limit) continue;
                unit = divisor(size[i], unit);
                *most = greater(*most, size[i]);
            }
        }
        useful = plus(useful, plus(beside, segment));
    }
    *useful_p = useful;
    *unit_p = greater(unit, 1);
}

/* Rounded up: sizes above the whole limit need not be multiples of the unit. */
static int in_slots(int64_t size, int64_t unit, int limit)
{
    int64_t slots = size / unit + (size % unit != 0);

    return (slots > limit) ? limit + 1 : (int)slots;
}

static void fill_ways(const ct_chain *c, int64_t unit, problem *p)
{
    int64_t most = 0;

    for (int l = 0; l < p->n; l++) {
        int64_t least = least_weight(c, l), largest = 0;

        for (int b = 0; b < p->n_strategy; b++) {
            int64_t at = (int64_t)l * p->n_strategy + b, size[N_SIZE];
            way *w = &p->way[at];

            w->keep_s = c->time_s[at];
            w->segment_s = c->time_s[at] + c->again_s[at];
            if (!isfinite(w->keep_s)) continue;
            find_sizes(c, at, least, size);
            for (int i = 0; i < 3; i++) w->mode[i] = in_slots(size[i], unit, p->limit);
            w->size = in_slots(size[3], unit, p->limit);
            if (w->size <= p->limit) largest = greater(largest, w->size);
        }
        most = plus(most, largest);
    }
    p->most_segment = (most > p->limit) ? p->limit : (int)most;
}

static const char *name_of(const ct_chain *c)
{
    return (c->name != NULL) ? c->name : "chain";
}

static bool is_time(double v)
{
    return (v >= 0) && ((v <= CT_CHAIN_MOST_S) || isinf(v)); /* not NaN */
}

static ct_status check(const ct_chain *c)
{
    int64_t n = (int64_t)c->n_block * c->n_strategy;
    bool good = (c->n_block >= 1) && (c->n_strategy >= 1) &&
                (c->n_strategy <= CT_CHAIN_MOST_STRATEGIES) && (c->limit >= 0) &&
                (c->in_flight >= 1);

    for (int64_t i = 0; good && (i < n); i++)
        good = is_time(c->time_s[i]) && is_time(c->again_s[i]) && (c->weight[i] >= 0) &&
               (c->kept[i] >= 0) && (c->input[i] >= 0);
    for (int64_t i = n; good && (c->reshard_s != NULL) && (i < n * c->n_strategy); i++)
        good = is_time(c->reshard_s[i]);
    return good ? CT_OK : CT_FAIL(CT_ERR_ARG, "%s: a size or a time is out of range", name_of(c));
}

/* Of tables: two blocks' times, and who gave each of all blocks its time. */
static double table_bytes(const problem *p, int bound, int n_column, bool recorded)
{
    double line = (double)p->n_strategy * n_column, rows = (bound + 1.0) * line;

    return 2.0 * sizeof(double) * rows + (recorded ? p->n * (rows + 3 * line) : 0);
}

/* A recorded table is largest in the middle: its columns are what the bound leaves. */
static ct_status check_bytes(const problem *p, const char *name)
{
    int middle = (p->most_segment < p->limit / 2) ? p->most_segment : p->limit / 2;
    double search = table_bytes(p, p->most_segment, p->limit + 1, false);
    double last = table_bytes(p, middle, p->limit - middle + 1, true);
    double bytes = (search > last) ? search : last;

    if (bytes <= CT_CHAIN_MOST_BYTES) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG,
                   "%s: limit: %d slots beside the least weights would take %.1f GiB, expected at "
                   "most %.1f; take larger slots",
                   name, p->limit, bytes / (1 << 30), (double)CT_CHAIN_MOST_BYTES / (1 << 30));
}

/* *fits_p false: the least weights alone do not fit; then there is nothing to free. */
static ct_status make_problem(const ct_chain *c, problem *p, bool *fits_p)
{
    int64_t least = 0, useful, unit, limit;

    for (int l = 0; l < c->n_block; l++) least = plus(least, least_weight(c, l));
    *fits_p = (least <= c->limit) && (least < INT64_MAX);
    if (!*fits_p) return CT_OK;
    limit = c->limit - least;
    measure(c, limit, &useful, &unit);
    limit = ((useful < limit) ? useful : limit) / unit;
    if (limit >= CT_CHAIN_MOST_SLOTS)
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: limit: the chain can use %" PRId64 " slots of it beside its least "
                       "weights, expected at most %d; take larger slots",
                       name_of(c), limit, CT_CHAIN_MOST_SLOTS - 1);
    *p = (problem){
        .n = c->n_block, .n_strategy = c->n_strategy, .limit = (int)limit, .reshard_s = c->reshard_s
    };
    p->way = calloc((size_t)p->n * (size_t)p->n_strategy, sizeof(p->way[0]));
    if (p->way == NULL) return CT_FAIL(CT_ERR_NOMEM, "%s: no memory for its ways", name_of(c));
    fill_ways(c, unit, p);
    return CT_OK;
}

/* ---- a table: the least times of all that has no segment larger than `bound` */

typedef struct record { /* who gave each entry its least time */
    uint8_t *row; /* [block][kept by the segment][strategy][column]: a strategy before, or OPENED */
    uint8_t *enter;  /* [block][strategy][column]: a strategy before        */
    int16_t *closed; /* [block][strategy][column]: KEPT, or the segment's size */
} record;

enum { OPENED = 255, KEPT = -1 };

/* A column is the memory of all blocks so far but for what the largest segment keeps. */
typedef struct table {
    const problem *p;
    int bound, n_column;
    double *row[2];  /* [kept by the segment under way][strategy][column], of two blocks in turn */
    uint8_t *has[2]; /* [kept by the segment under way][strategy]: whether there is such a row   */
    double *closed[2]; /* [strategy][column]: the segment may be under way, or the block is kept */
    double *entered;   /* [column] */
    record by;         /* NULLs: nobody asks */
} table;

CT_SIMD_CLONES static void fill(double *to, double value, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] = value;
}

CT_SIMD_CLONES static void copy_sums(double *restrict to, const double *restrict from, double add,
                                     int n)
{
    for (int i = 0; i < n; i++) to[i] = from[i] + add;
}

CT_SIMD_CLONES static void take_less(double *restrict to, const double *restrict from, double add,
                                     int n)
{
    for (int i = 0; i < n; i++) {
        double v = from[i] + add;

        to[i] = (v < to[i]) ? v : to[i];
    }
}

static void take_less_by(double *restrict to, uint8_t *restrict by, const double *restrict from,
                         double add, int who, int n)
{
    for (int i = 0; i < n; i++) {
        double v = from[i] + add;

        if (v < to[i]) by[i] = (uint8_t)who;
        to[i] = (v < to[i]) ? v : to[i];
    }
}

static void end_block_by(double *restrict to, int16_t *restrict by, const double *restrict from,
                         double add, int who, int n)
{
    for (int i = 0; i < n; i++) {
        double v = from[i] + add;

        if (v < to[i]) by[i] = (int16_t)who;
        to[i] = (v < to[i]) ? v : to[i];
    }
}

static int64_t row_at(const table *t, int size, int b)
{
    return ((int64_t)size * t->p->n_strategy + b) * t->n_column;
}

static int64_t block_at(const table *t, int l, int b)
{
    return ((int64_t)l * t->p->n_strategy + b) * t->n_column;
}

static int64_t record_at(const table *t, int l)
{
    return (int64_t)l * (t->bound + 1) * t->p->n_strategy * t->n_column;
}

/* The least times with which block l can begin with strategy b, whatever was before it. */
static void enter(table *t, int l, int b)
{
    const problem *p = t->p;
    uint8_t *by = (t->by.enter != NULL) ? t->by.enter + block_at(t, l, b) : NULL;

    fill(t->entered, INFINITY, t->n_column);
    if (l == 0) t->entered[0] = 0;
    for (int a = 0; (l > 0) && (a < p->n_strategy); a++) {
        const double *from = t->closed[l % 2] + block_at(t, 0, a);
        double add = paid(p->reshard_s, p->n_strategy, l, a, b);

        if (by != NULL)
            take_less_by(t->entered, by, from, add, a, t->n_column);
        else
            take_less(t->entered, from, add, t->n_column);
    }
}

/* from, `shift` columns to the right, also as block l's end with strategy b. */
static void end_block(table *t, int l, int b, const double *from, double add, int shift, int who)
{
    double *to = t->closed[(l + 1) % 2] + block_at(t, 0, b) + shift;

    if (t->by.closed != NULL)
        end_block_by(to, t->by.closed + block_at(t, l, b) + shift, from, add, who,
                     t->n_column - shift);
    else
        take_less(to, from, add, t->n_column - shift);
}

/* The row of block l becomes the least of itself and `from`, `shift` columns to the right. */
static void take_row(table *t, int l, int size, int b, const double *from, double add, int shift,
                     int who)
{
    double *to = t->row[(l + 1) % 2] + row_at(t, size, b);
    uint8_t *has = &t->has[(l + 1) % 2][size * t->p->n_strategy + b];
    int n = t->n_column - shift;

    if (t->by.row != NULL) {
        if (!*has) fill(to, INFINITY, t->n_column);
        take_less_by(to + shift, t->by.row + record_at(t, l) + row_at(t, size, b) + shift, from,
                     add, who, n);
    } else if (*has) {
        take_less(to + shift, from, add, n);
    } else {
        fill(to, INFINITY, shift);
        copy_sums(to + shift, from, add, n);
    }
    *has = 1;
}

static void begin(table *t, int l, int b)
{
    const way *w = &t->p->way[(int64_t)l * t->p->n_strategy + b];
    int keep = w->mode[CT_CHAIN_KEEP], start = w->mode[CT_CHAIN_START];

    enter(t, l, b);
    if (keep < t->n_column) end_block(t, l, b, t->entered, w->keep_s, keep, KEPT);
    if ((start >= t->n_column) || (w->size > t->bound)) return;
    take_row(t, l, w->size, b, t->entered, w->segment_s, start, OPENED);
    end_block(t, l, b, t->entered, w->segment_s, start, w->size);
}

/* Block l with strategy b goes on with the segments that had kept `size` before it. */
static void go_on(table *t, int l, int size, int b)
{
    const problem *p = t->p;
    const way *w = &p->way[(int64_t)l * p->n_strategy + b];
    int shift = w->mode[CT_CHAIN_CONTINUE], then = size + w->size;
    const uint8_t *has = t->has[l % 2] + (int64_t)size * p->n_strategy;
    bool any = false;

    if (!isfinite(w->segment_s) || (then > t->bound) || (shift >= t->n_column)) return;
    for (int a = 0; a < p->n_strategy; a++) {
        if (!has[a]) continue;
        take_row(t, l, then, b, t->row[l % 2] + row_at(t, size, a),
                 w->segment_s + paid(p->reshard_s, p->n_strategy, l, a, b), shift, a);
        any = true;
    }
    if (any) end_block(t, l, b, t->row[(l + 1) % 2] + row_at(t, then, b), 0, 0, then);
}

static void run_table(table *t)
{
    const problem *p = t->p;

    memset(t->has[0], 0, (size_t)(t->bound + 1) * (size_t)p->n_strategy);
    for (int l = 0; l < p->n; l++) {
        memset(t->has[(l + 1) % 2], 0, (size_t)(t->bound + 1) * (size_t)p->n_strategy);
        fill(t->closed[(l + 1) % 2], INFINITY, block_at(t, 1, 0));
        for (int b = 0; b < p->n_strategy; b++) {
            if (isfinite(p->way[(int64_t)l * p->n_strategy + b].keep_s)) begin(t, l, b);
        }
        for (int size = 0; size <= t->bound; size++) {
            for (int b = 0; b < p->n_strategy; b++) go_on(t, l, size, b);
        }
    }
}

static void table_release(table *t)
{
    for (int i = 0; i < 2; i++) {
        free(t->row[i]);
        free(t->has[i]);
        free(t->closed[i]);
    }
    free(t->entered);
    free(t->by.row);
    free(t->by.enter);
    free(t->by.closed);
}

static ct_status table_make(const problem *p, const char *name, int bound, int n_column,
                            bool recorded, table *t)
{
    size_t line = (size_t)p->n_strategy * (size_t)n_column, n_row = (size_t)bound + 1;
    size_t rows = n_row * line;
    bool good = true;

    *t = (table){ .p = p, .bound = bound, .n_column = n_column };
    for (int i = 0; i < 2; i++) {
        t->row[i] = malloc(rows * sizeof(double));
        t->has[i] = malloc(n_row * (size_t)p->n_strategy);
        t->closed[i] = malloc(line * sizeof(double));
        good = good && (t->row[i] != NULL) && (t->has[i] != NULL) && (t->closed[i] != NULL);
    }
    t->entered = malloc((size_t)n_column * sizeof(double));
    good = good && (t->entered != NULL);
    if (recorded) {
        t->by.row = malloc((size_t)p->n * rows);
        t->by.enter = malloc((size_t)p->n * line);
        t->by.closed = malloc((size_t)p->n * line * sizeof(int16_t));
        good = good && (t->by.row != NULL) && (t->by.enter != NULL) && (t->by.closed != NULL);
    }
    if (good) return CT_OK;
    table_release(t);
    return CT_FAIL(CT_ERR_NOMEM, "%s: no memory for its tables", name);
}

/* The column of the least time, of the first n, and in *b_p its strategy; -1: nothing fits. */
static int find_end(const table *t, int n, int *b_p, double *least_p)
{
    int column = -1;

    *least_p = INFINITY;
    for (int b = 0; b < t->p->n_strategy; b++) {
        const double *end = t->closed[t->p->n % 2] + block_at(t, 0, b);

        for (int i = 0; i < n; i++) {
            if (!(end[i] < *least_p)) continue;
            *least_p = end[i];
            *b_p = b;
            column = i;
        }
    }
    return column;
}

/* ---- which bound: the least time over all of them */

typedef struct search {
    const problem *p;
    const char *name;
    double *below; /* [bound]: no choice with a largest segment of that size is faster */
    bool *tried;   /* [bound] */
    double best_s;
    int best; /* bound; -1: nothing fits so far */
} search;

/* A table with this bound, wide enough to bound all down to `least` from below. */
static ct_status try_bound(search *s, int bound, int least)
{
    table t;
    double found = INFINITY;
    int b = 0;

    CT_TRY(table_make(s->p, s->name, bound, s->p->limit - least + 1, false, &t));
    run_table(&t);
    s->tried[bound] = true;
    (void)find_end(&t, s->p->limit - bound + 1, &b, &found);
    if (found < s->best_s) {
        s->best_s = found;
        s->best = bound;
    }
    for (int q = bound - 1; q >= least; q--) {
        (void)find_end(&t, s->p->limit - q + 1, &b, &found);
        if (found > s->below[q]) s->below[q] = found;
    }
    table_release(&t);
    return CT_OK;
}

/* Between two bounds that were tried the times from below do not fall. So what is left to try
 * begins at the lower end: of all such ranges that with the least time, in its middle. False: none.
 */
static bool choose_bound(const search *s, int *bound_p, int *least_p)
{
    double least_s = s->best_s;
    bool any = false;

    for (int q = 0; q <= s->p->most_segment; q++) {
        int end = q;

        if (s->tried[q] || !(s->below[q] < s->best_s)) continue;
        while ((end < s->p->most_segment) && !s->tried[end + 1] && (s->below[end + 1] < s->best_s))
            end++;
        if (s->below[q] < least_s) {
            least_s = s->below[q];
            *least_p = q;
            *bound_p = q + (end - q) / 2;
            any = true;
        }
        q = end;
    }
    return any;
}

static ct_status find_bound(search *s)
{
    int bound = s->p->most_segment, least = 0;

    s->best = -1;
    s->best_s = INFINITY;
    do CT_TRY(try_bound(s, bound, least));
    while (choose_bound(s, &bound, &least));
    return CT_OK;
}

/* ---- the choice behind the least time */

static void walk_back(const table *t, int column, int b, int *strategy, ct_chain_mode *mode)
{
    const problem *p = t->p;
    int size = KEPT;
    bool ended = true; /* at the end of a block, whose mode is not known yet */

    for (int l = p->n - 1; l >= 0; l--) {
        const way *w = &p->way[(int64_t)l * p->n_strategy + b];
        int64_t at = block_at(t, l, b);

        if (ended) size = t->by.closed[at + column];
        strategy[l] = b;
        if (size == KEPT) {
            mode[l] = CT_CHAIN_KEEP;
        } else if (t->by.row[record_at(t, l) + row_at(t, size, b) + column] == OPENED) {
            mode[l] = CT_CHAIN_START;
        } else {
            mode[l] = CT_CHAIN_CONTINUE;
        }
        ended = mode[l] != CT_CHAIN_CONTINUE;
        if (!ended) {
            b = t->by.row[record_at(t, l) + row_at(t, size, b) + column];
            size -= w->size;
        }
        column -= w->mode[mode[l]];
        if (ended && (l > 0)) b = t->by.enter[at + column];
    }
}

static ct_status find_choice(const search *s, int *strategy, ct_chain_mode *mode)
{
    table t;
    double least;
    int b = 0, column;

    CT_TRY(table_make(s->p, s->name, s->best, s->p->limit - s->best + 1, true, &t));
    run_table(&t);
    column = find_end(&t, t.n_column, &b, &least);
    walk_back(&t, column, b, strategy, mode);
    table_release(&t);
    return CT_OK;
}

ct_status ct_chain_solve(const ct_chain *c, int *strategy, ct_chain_mode *mode, double *step_s_p)
{
    problem p = { .way = NULL };
    search s = { .p = &p, .name = name_of(c), .best = -1 };
    bool fits = false;
    ct_status status = CT_OK;

    CT_TRY(check(c));
    CT_TRY(make_problem(c, &p, &fits));
    if (fits) status = check_bytes(&p, s.name);
    if (fits && (status == CT_OK)) {
        s.below = calloc((size_t)p.most_segment + 1, sizeof(s.below[0]));
        s.tried = calloc((size_t)p.most_segment + 1, sizeof(s.tried[0]));
        status = ((s.below == NULL) || (s.tried == NULL))
                     ? CT_FAIL(CT_ERR_NOMEM, "%s: no memory for its bounds", s.name)
                     : find_bound(&s);
    }
    if ((status == CT_OK) && (s.best >= 0)) status = find_choice(&s, strategy, mode);
    if (status == CT_OK) *step_s_p = (s.best >= 0) ? ct_chain_time(c, strategy, mode) : INFINITY;
    free(s.below);
    free(s.tried);
    free(p.way);
    return status;
}
