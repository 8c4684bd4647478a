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
    double bound;              /* no step that begins so takes less */
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

/* What stages behind `stage` take at least that begin with layer l: each the least by itself. */
typedef struct rest {
    double sum, slowest, data;
} rest;

typedef struct stair {
    double slowest, data;
} stair;

typedef struct search {
    const ct_partition *p;
    rest *rest;    /* [stage][layer + 1] */
    labels found;  /* of all (stage, layer) */
    int *from;     /* [stage][layer + 1]: the first one in found */
    int *n;        /* [stage][layer + 1]: their number */
    labels made;   /* of one (stage, layer), before they are compared */
    stair *stairs; /* of the labels taken so far: slowest rises, data falls */
    int n_stairs, stairs_capacity;
    double best_s;
    int *layers; /* of the best; the caller's */
} search;

static int64_t state_at(const search *s, int stage, int layer)
{
    return (int64_t)stage * (s->p->n_layer + 1) + layer;
}

static void find_rest(search *s)
{
    const ct_partition *p = s->p;

    for (int stage = p->n_stage - 1; stage >= 0; stage--) {
        for (int l = 0; l <= p->n_layer; l++) {
            rest *r = &s->rest[state_at(s, stage, l)];
            int next = stage + 1, left = p->n_stage - 1 - next;
            double e = 0, data = 0;

            *r = (rest){ INFINITY, INFINITY, INFINITY };
            if ((next == p->n_stage) && (l == p->n_layer)) *r = (rest){ .sum = 0 };
            if ((next == p->n_stage) || (l < next)) continue;
            for (int end = l + 1; end <= p->n_layer - left; end++) {
                const rest *then = &s->rest[state_at(s, next, end)];
                double out = cut_of(p, next, end);

                e += p->time_s[(int64_t)next * p->n_layer + end - 1];
                data += p->data_s[(int64_t)next * p->n_layer + end - 1];
                r->sum = lesser(r->sum, e + 2 * out + then->sum);
                r->slowest =
                    lesser(r->slowest, greater(e + cut_of(p, stage, l) + out, then->slowest));
                r->data = lesser(r->data, greater(data, then->data));
            }
        }
    }
}

/* All ways to end `stage` in front of layer `end` that may still beat the best. */
static ct_status make_labels(search *s, int stage, int end)
{
    const ct_partition *p = s->p;
    const rest *r = &s->rest[state_at(s, stage, end)];
    double e = 0, data = 0, out = cut_of(p, stage, end);

    s->made.n = 0;
    for (int first = end - 1; first >= stage; first--) {
        int64_t at = state_at(s, stage - 1, first);
        double cost;

        e += p->time_s[(int64_t)stage * p->n_layer + first];
        data += p->data_s[(int64_t)stage * p->n_layer + first];
        if ((stage == 0) && (first > 0)) continue;
        cost = e + cut_of(p, stage - 1, first) + out;
        for (int i = 0; i < ((stage == 0) ? 1 : s->n[at]); i++) {
            const label *b = (stage == 0) ? &(label){ .sum = 0 } : &s->found.at[s->from[at] + i];
            label a = { .sum = b->sum + e + 2 * out,
                        .slowest = greater(greater(b->slowest, cost), r->slowest),
                        .data = greater(greater(b->data, data), r->data),
                        .first = first,
                        .before = (stage == 0) ? -1 : s->from[at] + i };

            a.bound = step_of(p, a.sum + r->sum, a.slowest, a.data);
            if (a.bound < s->best_s) CT_TRY(add(&s->made, &a));
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

static int by_bound(const void *a, const void *b)
{
    const label *x = a, *y = b;

    return (x->bound > y->bound) - (x->bound < y->bound);
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

/* Of the labels made those that are worse than no other, at most `width` of the least bounds; 0:
 * all. */
static ct_status keep_labels(search *s, int stage, int end, int width)
{
    int64_t at = state_at(s, stage, end);
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
    if ((width > 0) && (n > width)) {
        qsort(s->made.at, (size_t)n, sizeof(s->made.at[0]), by_bound);
        n = width;
    }
    s->from[at] = s->found.n;
    s->n[at] = n;
    for (int i = 0; i < n; i++) CT_TRY(add(&s->found, &s->made.at[i]));
    return CT_OK;
}

/* Leaves the best partition in layers where it beats best_s. */
static void take_best(search *s)
{
    const ct_partition *p = s->p;
    int64_t at = state_at(s, p->n_stage - 1, p->n_layer);
    const label *best = NULL;

    for (int i = s->from[at]; i < s->from[at] + s->n[at]; i++) {
        const label *a = &s->found.at[i];

        if (a->bound < ((best != NULL) ? best->bound : s->best_s)) best = a;
    }
    if (best == NULL) return;
    s->best_s = best->bound;
    for (int stage = p->n_stage - 1, end = p->n_layer; stage >= 0; stage--) {
        s->layers[stage] = end - best->first;
        end = best->first;
        if (stage > 0) best = &s->found.at[best->before];
    }
}

static ct_status run(search *s, int width)
{
    const ct_partition *p = s->p;

    s->found.n = 0;
    for (int stage = 0; stage < p->n_stage; stage++) {
        int last = p->n_layer - (p->n_stage - 1 - stage);
        int end = (stage == p->n_stage - 1) ? last : stage + 1;

        for (int l = 0; l <= p->n_layer; l++) s->n[state_at(s, stage, l)] = 0;
        for (; end <= last; end++) {
            CT_TRY(make_labels(s, stage, end));
            CT_TRY(keep_labels(s, stage, end, width));
        }
    }
    take_best(s);
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

enum { FEW = 4 };

ct_status ct_partition_solve(const ct_partition *p, int *layers, double *step_s_p)
{
    int64_t n = (int64_t)p->n_stage * ((int64_t)p->n_layer + 1);
    search s = { .p = p, .best_s = INFINITY, .layers = layers };
    ct_status status;

    if ((p->n_stage < 1) || (p->n_layer < 1) || (p->micro_batches < 1) ||
        (p->micro_batches > INT32_MAX) ||
        !are_times(p->time_s, p->n_stage, p->n_layer, p->n_layer) ||
        !are_times(p->cut_s, p->n_stage - 1, p->n_layer, p->n_layer - 1) ||
        !are_times(p->data_s, p->n_stage, p->n_layer, p->n_layer))
        return CT_FAIL(CT_ERR_ARG, "a partition's times or numbers are out of range");
    *step_s_p = INFINITY;
    if (p->n_stage > p->n_layer) return CT_OK;
    s.rest = malloc((size_t)n * sizeof(s.rest[0]));
    s.from = malloc((size_t)n * sizeof(s.from[0]));
    s.n = malloc((size_t)n * sizeof(s.n[0]));
    if ((s.rest == NULL) || (s.from == NULL) || (s.n == NULL)) {
        status = CT_FAIL(CT_ERR_NOMEM, "no memory to cut %d layers", p->n_layer);
    } else {
        find_rest(&s);
        status = run(&s, FEW); /* a good partition first: fewer may still beat it */
        if (status == CT_OK) status = run(&s, 0);
    }
    if (status == CT_OK) *step_s_p = ct_partition_time(p, layers);
    free(s.rest);
    free(s.from);
    free(s.n);
    free(s.found.at);
    free(s.made.at);
    free(s.stairs);
    return status;
}
