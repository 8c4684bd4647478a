#include "framework/base/sort.h"
#include "cli/scale/points_fill.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Of sorted values, between neighbours. */
static double quantile(const double *v, int n, double q)
{
    double at = q * (n - 1);
    int i = (int)at;

    return (i + 1 < n) ? v[i] + (at - i) * (v[i + 1] - v[i]) : v[n - 1];
}

static double mean_of(const double *v, int n)
{
    double sum = 0;

    for (int i = 0; i < n; i++) sum += v[i] / n;
    return sum;
}

/* ---- a point from its runs */

typedef struct samples {
    double *v;
    int n, capacity;
} samples;

static void take(samples *s, double v)
{
    if (s->n == s->capacity) {
        int capacity = (s->capacity > 0) ? 2 * s->capacity : 64;
        double *list = realloc(s->v, (size_t)capacity * sizeof(*list));

        if (list == NULL) return;
        s->v = list;
        s->capacity = capacity;
    }
    if (isfinite(v)) s->v[s->n++] = v;
}

static void take_steps(samples *s, const json_t *result)
{
    const json_t *list = json_object_get(result, "step_ms_samples");
    const json_t *plain = json_object_get(result, "step_ms");

    if (!json_is_array(list)) list = plain;
    for (size_t i = 0; i < json_array_size(list); i++)
        take(s, json_number_value(json_array_get(list, i)));
    if (json_is_number(list)) take(s, json_number_value(list));
}

/* The median of a member over the runs that have it. */
static double median_of(json_t *const *run, int n, const char *name)
{
    samples s = { 0 };
    double v = NAN;

    for (int i = 0; i < n; i++) take(&s, ct_json_number(run[i], name, NAN));
    if (s.n > 0) {
        ct_sort(s.v, s.n);
        v = quantile(s.v, s.n, 0.5);
    }
    free(s.v);
    return v;
}

static double either(double a, double b)
{
    return isfinite(a) ? a : b;
}

/* "hier 2 of 3, rhd 1 of 3" of the buckets, or the one algorithm. */
static void find_algorithm(const json_t *result, char *out, size_t size)
{
    const json_t *list = json_object_get(result, "buckets");
    const char *name[8];
    int count[8] = { 0 }, n = 0;

    snprintf(out, size, "%s", ct_json_text(result, "algorithm", ""));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *a = ct_json_text(json_array_get(list, i), "algorithm", "?");
        int k = 0;

        while ((k < n) && (strcmp(name[k], a) != 0)) k++;
        if (k == 8) continue;
        if (k == n) name[n++] = a;
        count[k] += 1;
    }
    if (n > 0) out[0] = '\0';
    for (int k = 0; k < n; k++) {
        size_t at = strlen(out);

        snprintf(out + at, size - at, "%s%s x%d", (k > 0) ? ", " : "", name[k], count[k]);
    }
}

static double sum_of(const json_t *list)
{
    double sum = 0;

    for (size_t i = 0; i < json_array_size(list); i++)
        sum += json_number_value(json_array_get(list, i));
    return sum;
}

/* What the simulation drew: the mean over the ranks and the slowest, step by step. */
static double drawn_bound(const ct_point *p, const json_t *result)
{
    double most = sum_of(json_object_get(result, "compute_max_ms"));

    if (!(ct_json_number(p->define, "jitter_seed", 0) > 0) || !(most > 0)) return NAN;
    return sum_of(json_object_get(result, "compute_mean_ms")) / most;
}

void ct_point_fill(ct_point *p, json_t *const *run, int n)
{
    const json_t *result = (n > 0) ? json_object_get(run[0], "result") : NULL;
    samples s = { 0 };

    p->failed = true;
    for (int i = 0; i < n; i++) take_steps(&s, json_object_get(run[i], "result"));
    if (s.n == 0) return;
    p->failed = false;
    ct_sort(s.v, s.n);
    p->n_sample = s.n;
    p->step_ms = quantile(s.v, s.n, 0.5);
    p->p5_ms = quantile(s.v, s.n, 0.05);
    p->p95_ms = quantile(s.v, s.n, 0.95);
    p->least_ms = s.v[0];
    p->most_ms = s.v[s.n - 1];
    /* a simulation is what it is: no disturbance to look away from */
    if (p->kind == CT_KIND_SIMULATED) p->step_ms = mean_of(s.v, s.n);
    /* and a model has one value */
    if (p->kind == CT_KIND_MODELLED) p->p5_ms = p->p95_ms = NAN;
    free(s.v);
    p->batch = ct_json_number(p->define, "batch", 0);
    if (strcmp(ct_json_text(p->define, "mode", "weak"), "weak") == 0) p->batch *= p->ranks;
    p->images_per_s = p->batch / p->step_ms * 1e3;
    p->exposed_ms =
        either(median_of(run, n, "result.comm_exposed_ms"), median_of(run, n, "result.exposed_ms"));
    p->comm_ms =
        either(median_of(run, n, "result.comm_total_ms"), median_of(run, n, "result.comm_ms"));
    p->wait_ms = median_of(run, n, "result.wait_data_ms");
    p->compress_ms = median_of(run, n, "result.compress_ms");
    p->compute_ms = either(median_of(run, n, "result.compute_ms"),
                           p->step_ms - either(p->exposed_ms, 0) - either(p->wait_ms, 0) -
                               either(p->compress_ms, 0));
    p->imbalance_ms = median_of(run, n, "result.imbalance_ms");
    p->bytes = median_of(run, n, "result.bytes_sent");
    p->memory = either(median_of(run, n, "result.memory_bytes"),
                       (p->kind < CT_KIND_SIMULATED) ? median_of(run, n, "peak_rss") : NAN);
    p->bound = either(median_of(run, n, "result.jitter_bound"), drawn_bound(p, result));
    p->read_ms = median_of(run, n, "result.read_ms");
    p->wall_s = median_of(run, n, "wall_s");
    p->threads = (int)ct_json_number(result, "threads", 0);
    find_algorithm(result, p->algorithm, sizeof(p->algorithm));
}
