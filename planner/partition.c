#include "planner/partition.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static double greater(double a, double b)
{
    return (a > b) ? a : b;
}

static double lesser(double a, double b)
{
    return (a < b) ? a : b;
}

/* What the cut in front of `layer` takes from `stage` on; 0 where there is none. */
static double cut_of(const ct_partition *p, int stage, int layer)
{
    return ((stage < 0) || (stage >= p->n_stage - 1))
               ? 0
               : p->cut_s[(int64_t)stage * p->n_layer + layer - 1];
}

static double step_of(const ct_partition *p, double sum, double slowest, double data)
{
    return sum + (double)(p->micro_batches - 1) * slowest + data;
}

double ct_partition_time(const ct_partition *p, const int *layers)
{
    double sum = 0, slowest = 0, most_data = 0;

    for (int s = 0, first = 0; s < p->n_stage; first += layers[s++]) {
        double e = 0, data = 0, in = cut_of(p, s - 1, first);
        double out = cut_of(p, s, first + layers[s]);

        for (int l = first; l < first + layers[s]; l++) {
            e += p->time_s[(int64_t)s * p->n_layer + l];
            data += p->data_s[(int64_t)s * p->n_layer + l];
        }
        sum += e + 2 * out;
        slowest = greater(slowest, e + in + out);
        most_data = greater(most_data, data);
    }
    return step_of(p, sum, slowest, most_data);
}

/* ---- partitions of the first layers */

typedef struct label {
    double sum, slowest, data; /* of the stages so far; what must follow counts for the last two */
    int first;                 /* layer of the last stage */
    int before;                /* the label of the stages before */
} label;

enum { MOST_LABELS = 1 << 23 };

typedef struct labels {
    label *at;
    int n, capacity;
} labels;

static ct_status add(labels *v, const label *a)
{
    if (v->n == v->capacity) {
        int capacity = (v->capacity == 0) ? 1024 : 2 * v->capacity;
        label *more =
            (capacity > MOST_LABELS) ? NULL : realloc(v->at, (size_t)capacity * sizeof(v->at[0]));

        if (more == NULL)
            return CT_FAIL(CT_ERR_NOMEM,
                           "no memory for more than %d partitions of the first layers", v->n);
        v->at = more;
        v->capacity = capacity;
    }
    v->at[v->n++] = *a;
    return CT_OK;
}

typedef struct stair {
    double slowest, data;
} stair;

enum { CELLS = 8, ROUNDS = 4 };

/* Stages are numbered, and so are layers: at (stage, layer) that stage begins with that layer.
 * Behind the last of both is the end, (n_stage, n_layer). */

typedef struct search {
    const ct_partition *p;
    double *slowest, *data; /* [stage][layer]: of this and later stages at least, each by itself */
    struct grid {
        int n_x, n_y;
        double x[CELLS + 1], y[CELLS + 1]; /* rising */
        double *sum;                       /* [x][y][stage][layer] */
    } grid;
    int *next;     /* [stage][layer]: where the next stage begins */
    labels found;  /* of all (stage, layer) */
    int *from, *n; /* [stage][layer]: the first label in found, their number */
    labels made;   /* of one (stage, layer), before they are compared */
    stair *stairs; /* of the labels taken so far: slowest rises, data falls */
    int n_stairs, stairs_capacity;
    double best_s;
    int *layers; /* of the best; the caller's */
    int *tried;  /* [stage] */
} search;

static int64_t state_at(const search *s, int stage, int layer)
{
    return (int64_t)stage * (s->p->n_layer + 1) + layer;
}

static int64_t n_states(const search *s)
{
    return state_at(s, s->p->n_stage + 1, 0);
}

/* ---- what is left from each (stage, layer) on */

/* The last layer behind which `stage` may end. */
static int last_end(const ct_partition *p, int stage)
{
    return p->n_layer - (p->n_stage - 1 - stage);
}

static void find_least(search *s)
{
    const ct_partition *p = s->p;
    int64_t end_state = state_at(s, p->n_stage, p->n_layer);

    for (int64_t i = 0; i < n_states(s); i++) s->slowest[i] = s->data[i] = INFINITY;
    s->slowest[end_state] = s->data[end_state] = 0;
    for (int stage = p->n_stage - 1; stage >= 0; stage--) {
        for (int l = stage; l < last_end(p, stage); l++) {
            int64_t at = state_at(s, stage, l);
            double e = 0, data = 0, in = cut_of(p, stage - 1, l);

            for (int end = l + 1; end <= last_end(p, stage); end++) {
                int64_t then = state_at(s, stage + 1, end);

                e += p->time_s[(int64_t)stage * p->n_layer + end - 1];
                data += p->data_s[(int64_t)stage * p->n_layer + end - 1];
                s->slowest[at] = lesser(s->slowest[at],
                                        greater(e + in + cut_of(p, stage, end), s->slowest[then]));
                s->data[at] = lesser(s->data[at], greater(data, s->data[then]));
            }
        }
    }
}

/* The least sums of stages that are not slower than `slowest` and have not more than `data`. */
static void find_sums(search *s, double slowest, double data, double *sum)
{
    const ct_partition *p = s->p;

    for (int64_t i = 0; i < n_states(s); i++) sum[i] = INFINITY;
    sum[state_at(s, p->n_stage, p->n_layer)] = 0;
    for (int stage = p->n_stage - 1; stage >= 0; stage--) {
        const double *time_s = p->time_s + (int64_t)stage * p->n_layer;
        const double *data_s = p->data_s + (int64_t)stage * p->n_layer;

        for (int l = stage; l < last_end(p, stage); l++) {
            int64_t at = state_at(s, stage, l);
            double e = 0, d = 0, in = cut_of(p, stage - 1, l);

            for (int end = l + 1; end <= last_end(p, stage); end++) {
                double out = cut_of(p, stage, end), v;

                e += time_s[end - 1];
                d += data_s[end - 1];
                if ((e + in > slowest) || (d > data)) break;
                v = e + 2 * out + sum[state_at(s, stage + 1, end)];
                if ((e + in + out > slowest) || !(v < sum[at])) continue;
                sum[at] = v;
                s->next[at] = end;
            }
        }
    }
}

/* The partition in `tried` becomes the best, if it is. */
static void try_layers(search *s)
{
    double step_s = ct_partition_time(s->p, s->tried);

    if (!(step_s < s->best_s)) return;
    s->best_s = step_s;
    memcpy(s->layers, s->tried, (size_t)s->p->n_stage * sizeof(s->layers[0]));
}

/* ---- cells: where the slowest stage and the most data of a better partition may lie */

static double *cell_sum(const search *s, int x, int y)
{
    return s->grid.sum + ((int64_t)x * CELLS + y) * n_states(s);
}

static void solve_cell(search *s, double slowest, double data, double *sum)
{
    find_sums(s, slowest, data, sum);
    if (!isfinite(sum[0])) return;
    for (int stage = 0, l = 0; stage < s->p->n_stage; stage++) {
        int end = s->next[state_at(s, stage, l)];

        s->tried[stage] = end - l;
        l = end;
    }
    try_layers(s);
}

static int cut_range(double low, double high, double *edge)
{
    int n = ((high > low) && isfinite(high)) ? CELLS : 1;

    for (int i = 0; i < n; i++) edge[i] = low + (n > 1 ? (high - low) * i / n : 0);
    edge[n] = high;
    return n;
}

/* Each cell's least sums, with its upper edges as bounds. */
static void solve_cells(search *s, double x_low, double x_high, double y_low, double y_high)
{
    struct grid *g = &s->grid;

    g->n_x = cut_range(x_low, x_high, g->x);
    g->n_y = cut_range(y_low, y_high, g->y);
    for (int x = 0; x < g->n_x; x++)
        for (int y = 0; y < g->n_y; y++) solve_cell(s, g->x[x + 1], g->y[y + 1], cell_sum(s, x, y));
}

/* No step from (stage, layer) on takes less, behind stages with this sum, slowest and data. */
static double bound_of(const search *s, int64_t at, double sum, double slowest, double data)
{
    const struct grid *g = &s->grid;
    double least = INFINITY;
    int from_x = 0, from_y = 0;

    /* where a cell's edges lie below what is there already, a larger cell takes no more */
    while ((from_x < g->n_x - 1) && (g->x[from_x + 1] < slowest)) from_x++;
    while ((from_y < g->n_y - 1) && (g->y[from_y + 1] < data)) from_y++;
    for (int x = from_x; x < g->n_x; x++) {
        for (int y = from_y; y < g->n_y; y++) {
            double v = step_of(s->p, sum + cell_sum(s, x, y)[at], greater(slowest, g->x[x]),
                               greater(data, g->y[y]));

            least = lesser(least, v);
        }
    }
    return least;
}

/* Leaves in *x_p … the range of the cells where a better partition may lie. False: there is none.
 */
static bool shrink(const search *s, double x[2], double y[2])
{
    const struct grid *g = &s->grid;
    double range[4] = { INFINITY, 0, INFINITY, 0 };
    bool any = false;

    for (int i = 0; i < g->n_x; i++) {
        for (int k = 0; k < g->n_y; k++) {
            if (!(step_of(s->p, cell_sum(s, i, k)[0], g->x[i], g->y[k]) < s->best_s)) continue;
            range[0] = lesser(range[0], g->x[i]);
            range[1] = greater(range[1], g->x[i + 1]);
            range[2] = lesser(range[2], g->y[k]);
            range[3] = greater(range[3], g->y[k + 1]);
            any = true;
        }
    }
    x[0] = range[0];
    x[1] = range[1];
    y[0] = range[2];
    y[1] = range[3];
    return any;
}

static bool narrow(search *s)
{
    double x[2] = { s->slowest[0], INFINITY }, y[2] = { s->data[0], INFINITY };
    double m = (double)(s->p->micro_batches - 1), least_sum;

    solve_cell(s, INFINITY, y[0], s->grid.sum);
    solve_cell(s, x[0], INFINITY, s->grid.sum);
    solve_cell(s, INFINITY, INFINITY, s->grid.sum);
    least_sum = s->grid.sum[0];
    y[1] = greater(y[0], s->best_s - least_sum - m * x[0]);
    x[1] = (m > 0) ? greater(x[0], (s->best_s - least_sum - y[0]) / m) : 0;
    if (m == 0) { /* the slowest stage counts for nothing */
        x[0] = 0;
        x[1] = INFINITY;
    }
    for (int round = 0; round < ROUNDS; round++) {
        double was_x = x[1] - x[0], was_y = y[1] - y[0];

        solve_cells(s, x[0], x[1], y[0], y[1]);
        if (!shrink(s, x, y)) return false;
        if ((x[1] - x[0] > 0.6 * was_x) && (y[1] - y[0] > 0.6 * was_y)) break;
    }
    return true;
}

/* ---- all partitions that may be better */

/* All ways to end `stage` in front of layer `end` that may still beat the best. */
static ct_status make_labels(search *s, int stage, int end)
{
    const ct_partition *p = s->p;
    const struct grid *g = &s->grid;
    int64_t at = state_at(s, stage + 1, end);
    double e = 0, data = 0, out = cut_of(p, stage, end);
    double slowest = greater(s->slowest[at], g->x[0]), most_data = greater(s->data[at], g->y[0]);

    s->made.n = 0;
    for (int first = end - 1; first >= stage; first--) {
        int64_t before = state_at(s, stage, first);
        double cost;

        e += p->time_s[(int64_t)stage * p->n_layer + first];
        data += p->data_s[(int64_t)stage * p->n_layer + first];
        if ((e + out > g->x[g->n_x]) || (data > g->y[g->n_y])) break;
        cost = e + cut_of(p, stage - 1, first) + out;
        for (int i = s->from[before]; i < s->from[before] + s->n[before]; i++) {
            const label *b = &s->found.at[i];
            label a = { .sum = b->sum + e + 2 * out,
                        .slowest = greater(greater(b->slowest, cost), slowest),
                        .data = greater(greater(b->data, data), most_data),
                        .first = first,
                        .before = i };

            if (p->micro_batches == 1) a.slowest = 0; /* which counts for nothing */
            if (!(bound_of(s, at, a.sum, a.slowest, a.data) < s->best_s)) continue;
            CT_TRY(add(&s->made, &a));
        }
    }
    return CT_OK;
}

static int by_sum(const void *a, const void *b)
{
    const label *x = a, *y = b;

    if (x->sum != y->sum) return (x->sum < y->sum) ? -1 : 1;
    if (x->slowest != y->slowest) return (x->slowest < y->slowest) ? -1 : 1;
    return (x->data > y->data) - (x->data < y->data);
}

/* Labels come by their sums. False: one that came before is as good in all. */
static bool is_better(search *s, const label *a)
{
    int low = 0, high = s->n_stairs;

    while (low < high) { /* to the first that is slower */
        int middle = (low + high) / 2;

        if (s->stairs[middle].slowest <= a->slowest)
            low = middle + 1;
        else
            high = middle;
    }
    if ((low > 0) && (s->stairs[low - 1].data <= a->data)) return false;
    if ((low > 0) && (s->stairs[low - 1].slowest == a->slowest)) low--;
    for (high = low; (high < s->n_stairs) && (s->stairs[high].data >= a->data);) high++;
    memmove(s->stairs + low + 1, s->stairs + high,
            (size_t)(s->n_stairs - high) * sizeof(s->stairs[0]));
    s->stairs[low] = (stair){ a->slowest, a->data };
    s->n_stairs += 1 - (high - low);
    return true;
}

/* Of the labels made those that are worse than no other. */
static ct_status keep_labels(search *s, int64_t at)
{
    int n = 0;

    if (s->made.n > s->stairs_capacity) {
        free(s->stairs);
        s->stairs_capacity = 0;
        s->stairs = malloc((size_t)s->made.capacity * sizeof(s->stairs[0]));
        if (s->stairs == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for partitions");
        s->stairs_capacity = s->made.capacity;
    }
    s->n_stairs = 0;
    if (s->made.n > 1) qsort(s->made.at, (size_t)s->made.n, sizeof(s->made.at[0]), by_sum);
    for (int i = 0; i < s->made.n; i++) {
        if (is_better(s, &s->made.at[i])) s->made.at[n++] = s->made.at[i];
    }
    s->from[at] = s->found.n;
    s->n[at] = n;
    for (int i = 0; i < n; i++) CT_TRY(add(&s->found, &s->made.at[i]));
    return CT_OK;
}

static ct_status try_all(search *s)
{
    const ct_partition *p = s->p;
    int64_t end_state = state_at(s, p->n_stage, p->n_layer);

    for (int64_t i = 0; i < n_states(s); i++) s->n[i] = s->from[i] = 0;
    CT_TRY(add(&s->found, &(label){ .before = -1 }));
    s->n[0] = 1;
    for (int stage = 0; stage < p->n_stage; stage++) {
        int last = last_end(p, stage), end = (stage == p->n_stage - 1) ? last : stage + 1;

        for (; end <= last; end++) {
            CT_TRY(make_labels(s, stage, end));
            CT_TRY(keep_labels(s, state_at(s, stage + 1, end)));
        }
    }
    for (int i = s->from[end_state]; i < s->from[end_state] + s->n[end_state]; i++) {
        const label *a = &s->found.at[i];

        for (int stage = p->n_stage - 1, end = p->n_layer; stage >= 0; stage--) {
            s->tried[stage] = end - a->first;
            end = a->first;
            a = &s->found.at[a->before];
        }
        try_layers(s);
    }
    return CT_OK;
}

static bool are_times(const double *v, int64_t rows, int n_layer, int n_read)
{
    for (int64_t r = 0; r < rows; r++)
        for (int l = 0; l < n_read; l++)
            if (!(v[r * n_layer + l] >= 0) || (v[r * n_layer + l] > CT_PARTITION_MOST_S))
                return false;
    return true;
}

static ct_status search_make(search *s)
{
    size_t n = (size_t)n_states(s);

    s->slowest = malloc(n * sizeof(double));
    s->data = malloc(n * sizeof(double));
    s->grid.sum = malloc(CELLS * CELLS * n * sizeof(double));
    s->next = malloc(n * sizeof(int));
    s->from = malloc(n * sizeof(int));
    s->n = malloc(n * sizeof(int));
    s->tried = malloc((size_t)s->p->n_stage * sizeof(int));
    if ((s->slowest != NULL) && (s->data != NULL) && (s->grid.sum != NULL) && (s->next != NULL) &&
        (s->from != NULL) && (s->n != NULL) && (s->tried != NULL))
        return CT_OK;
    return CT_FAIL(CT_ERR_NOMEM, "no memory to cut %d layers into %d stages", s->p->n_layer,
                   s->p->n_stage);
}

static void search_release(search *s)
{
    free(s->slowest);
    free(s->data);
    free(s->grid.sum);
    free(s->next);
    free(s->from);
    free(s->n);
    free(s->tried);
    free(s->found.at);
    free(s->made.at);
    free(s->stairs);
}

ct_status ct_partition_solve(const ct_partition *p, int *layers, double *step_s_p)
{
    search s = { .p = p, .best_s = INFINITY, .layers = layers };
    ct_status status;

    if ((p->n_stage < 1) || (p->n_layer < 1) || (p->micro_batches < 1) ||
        (p->micro_batches > INT32_MAX) ||
        !are_times(p->time_s, p->n_stage, p->n_layer, p->n_layer) ||
        !are_times(p->cut_s, p->n_stage - 1, p->n_layer, p->n_layer - 1) ||
        !are_times(p->data_s, p->n_stage, p->n_layer, p->n_layer))
        return CT_FAIL(CT_ERR_ARG, "a partition's times or numbers are out of range");
    if (p->n_stage > p->n_layer) {
        *step_s_p = INFINITY;
        return CT_OK;
    }
    status = search_make(&s);
    if (status == CT_OK) {
        find_least(&s);
        if (narrow(&s)) status = try_all(&s);
    }
    if (status == CT_OK) *step_s_p = s.best_s;
    search_release(&s);
    return status;
}
