/* Runs of a study's folder put together into points, groups and speed-ups. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/scale/report.h"
#include "framework/base/sort.h"

/* ---- the figures of a point, from what its runs wrote */

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

/* Fills step times and parts of p from the n runs that went well; define, kind and ranks of p are
 *  set. Steps of all runs are pooled; other figures are medians over the runs. */
static void point_fill(ct_point *p, json_t *const *run, int n)
{
    const json_t *result = (n > 0) ? json_object_get(run[0], "result") : NULL;
    samples s = { 0 };

    p->failed = true;
    for (int i = 0; i < n; i++) take_steps(&s, json_object_get(run[i], "result"));
    if (s.n == 0) {
        free(s.v);
        return;
    }
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
    p->threads = ct_json_int(result, "threads", 0);
    find_algorithm(result, p->algorithm, sizeof(p->algorithm));
}

static const char *const kind_name[CT_N_KIND] = { "measured", "emulated", "simulated", "modelled" };

/* ---- points and groups */

const char *ct_kind_str(ct_kind kind)
{
    return kind_name[kind];
}

/* ---- groups */

static bool same_text(const json_t *a, const json_t *b, const char *name)
{
    return strcmp(ct_json_text(a, name, ""), ct_json_text(b, name, "")) == 0;
}

static bool same_number(const json_t *a, const json_t *b, const char *name)
{
    return ct_json_number(a, name, 0) == ct_json_number(b, name, 0);
}

static bool same_group(const json_t *a, const json_t *b)
{
    bool sim = (strcmp(ct_json_text(a, "kind", ""), "measured") == 0) ==
               (strcmp(ct_json_text(b, "kind", ""), "measured") == 0);

    return sim && same_text(a, b, "machine") && same_text(a, b, "net") && same_text(a, b, "mode") &&
           same_text(a, b, "base") && same_number(a, b, "batch") &&
           same_number(a, b, "images_per_s") && same_number(a, b, "jitter_seed");
}

/* The same point, maybe of another version, profile, number of iterations. */
static bool same_place(const json_t *a, const json_t *b)
{
    return same_group(a, b) && same_text(a, b, "kind") && same_text(a, b, "config") &&
           same_number(a, b, "nodes") && same_number(a, b, "ranks");
}

/* The same but for the repetition. */
static bool same_point(const json_t *a, const json_t *b)
{
    json_t *x = json_copy((json_t *)(uintptr_t)a), *y = json_copy((json_t *)(uintptr_t)b);
    bool same;

    json_object_del(x, "repeat");
    json_object_del(y, "repeat");
    same = json_equal(x, y);
    json_decref(x);
    json_decref(y);
    return same;
}

static void fill_group(ct_point_group *g, const json_t *d)
{
    bool weak = strcmp(ct_json_text(d, "mode", "weak"), "weak") == 0;
    const char *base = ct_json_text(d, "base", "");
    char speed[64] = "", jitter[32] = "";

    g->define = d;
    snprintf(g->machine, sizeof(g->machine), "%s", ct_json_text(d, "machine", "?"));
    snprintf(g->net, sizeof(g->net), "%s", ct_json_text(d, "net", "?"));
    snprintf(g->net_hash, sizeof(g->net_hash), "%s", ct_json_text(d, "net_hash", ""));
    snprintf(g->mode, sizeof(g->mode), "%s", weak ? "weak" : "strong");
    g->batch = ct_json_number(d, "batch", 0);
    g->speed = ct_json_number(d, "images_per_s", 0);
    g->jitter = ct_json_number(d, "jitter_seed", 0) > 0;
    if (g->speed > 0) snprintf(speed, sizeof(speed), ", %g images/s a node alone", g->speed);
    if (g->jitter)
        snprintf(jitter, sizeof(jitter), ", jitter, seed %d", ct_json_int(d, "jitter_seed", 0));
    snprintf(g->title, sizeof(g->title), "%s on %s, %s scaling, batch %g %s%s%s%s%s", g->net,
             g->machine, g->mode, g->batch, weak ? "a rank" : "of all ranks", speed, jitter,
             (base[0] != '\0') ? ", " : "", base);
    snprintf(g->slug, sizeof(g->slug), "%s-%s-%s-b%g%s", g->net, g->machine, g->mode, g->batch,
             g->jitter ? "-jitter" : "");
    for (char *c = g->slug; *c != '\0'; c++)
        *c = isalnum((unsigned char)*c) ? (char)tolower(*c) : '-';
}

static int find_group(ct_points *p, const json_t *define)
{
    char slug[200];

    for (int i = 0; i < p->n_group; i++) {
        if (same_group(p->group[i].define, define)) return i;
    }
    fill_group(&p->group[p->n_group], define);
    snprintf(slug, sizeof(slug), "%s", p->group[p->n_group].slug);
    for (int i = 0, k = 2; i < p->n_group; i++) {
        if (strcmp(p->group[i].slug, p->group[p->n_group].slug) != 0) continue;
        snprintf(p->group[p->n_group].slug, sizeof(slug), "%.100s-%d", slug, k++);
        i = -1;
    }
    return p->n_group++;
}

/* ---- from runs to points */

static ct_kind kind_of(const json_t *run)
{
    const char *kind = ct_json_text(json_object_get(run, "define"), "kind", "");

    if (strstr(kind, "simulated") != NULL) return CT_KIND_SIMULATED;
    if (strcmp(kind, "modelled") == 0) return CT_KIND_MODELLED;
    return json_is_true(json_object_get(run, "emulated")) ? CT_KIND_EMULATED : CT_KIND_MEASURED;
}

static bool is_bench(const json_t *run)
{
    return strncmp(ct_json_text(json_object_get(run, "define"), "kind", ""), "bench", 5) == 0;
}

/* Whether another definition of the same place has a later run. */
static bool is_superseded(const json_t *runs, size_t i)
{
    const json_t *me = json_array_get(runs, i), *d = json_object_get(me, "define");

    for (size_t k = 0; k < json_array_size(runs); k++) {
        const json_t *other = json_array_get(runs, k), *e = json_object_get(other, "define");

        if ((k == i) || is_bench(other) || !same_place(d, e) || same_point(d, e)) continue;
        if (strcmp(ct_json_text(other, "ended", ""), ct_json_text(me, "ended", "")) > 0)
            return true;
    }
    return false;
}

static void add_point(ct_points *p, size_t first, bool *used)
{
    size_t n_run = json_array_size(p->runs);
    const json_t *d = json_object_get(json_array_get(p->runs, first), "define");
    json_t **good = calloc(n_run, sizeof(json_t *));
    ct_point *q = &p->point[p->n];
    int n = 0;

    if (good == NULL) return;
    q->define = d;
    q->group = find_group(p, d);
    q->kind = kind_of(json_array_get(p->runs, first));
    q->nodes = ct_json_int(d, "nodes", 1);
    q->ranks = ct_json_int(d, "ranks", 1);
    snprintf(q->config, sizeof(q->config), "%s", ct_json_text(d, "config", "default"));
    for (size_t i = first; i < n_run; i++) {
        json_t *run = json_array_get(p->runs, i);

        if (used[i] || is_bench(run) || !same_point(d, json_object_get(run, "define"))) continue;
        used[i] = true;
        if (json_is_object(json_object_get(run, "result")))
            good[n++] = run;
        else
            q->n_bad += 1;
    }
    q->n_run = n;
    q->speedup = q->efficiency = NAN;
    point_fill(q, good, n);
    free(good);
    p->n += 1;
}

static void add_bench(ct_points *p, const json_t *run)
{
    const json_t *d = json_object_get(run, "define");
    const json_t *list = json_object_get(json_object_get(run, "result"), "results");

    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *r = json_array_get(list, i);
        ct_bench_point *b;
        double us = ct_json_number(r, "us", 1e3 * ct_json_number(r, "median_ms", NAN));

        if (!(us > 0)) continue;
        b = realloc(p->bench, ((size_t)p->n_bench + 1) * sizeof(*b));
        if (b == NULL) return;
        p->bench = b;
        b += p->n_bench++;
        memset(b, 0, sizeof(*b));
        b->kind = kind_of(run);
        snprintf(b->machine, sizeof(b->machine), "%s", ct_json_text(d, "machine", "?"));
        snprintf(b->algorithm, sizeof(b->algorithm), "%s", ct_json_text(r, "algorithm", "?"));
        b->nodes = ct_json_int(d, "nodes", 1);
        b->ranks = ct_json_int(d, "ranks", 1);
        b->bytes = ct_json_number(r, "bytes", 0);
        b->us = us;
        b->predicted_us = ct_json_number(r, "predicted_us", NAN);
        b->algbw = b->bytes / us * 1e-3;
        b->busbw = b->algbw * 2 * (b->ranks - 1) / b->ranks;
    }
}

static int by_place(const void *a, const void *b)
{
    const ct_point *x = a, *y = b;
    int c = strcmp(x->config, y->config);

    if (x->group != y->group) return x->group - y->group;
    if (c != 0) {
        if (strcmp(x->config, "default") == 0) return -1;
        return (strcmp(y->config, "default") == 0) ? 1 : c;
    }
    /* measured and emulated points are one series */
    if ((x->kind >= CT_KIND_SIMULATED || y->kind >= CT_KIND_SIMULATED) && (x->kind != y->kind))
        return (int)x->kind - (int)y->kind;
    return (x->ranks != y->ranks) ? x->ranks - y->ranks : x->nodes - y->nodes;
}

/* By net and machine, weak before strong, large batches first. */
static int by_title(const ct_point_group *a, const ct_point_group *b)
{
    int net = strcmp(a->net, b->net), machine = strcmp(a->machine, b->machine);

    if (net != 0) return net;
    if (machine != 0) return machine;
    if (strcmp(a->mode, b->mode) != 0) return strcmp(b->mode, a->mode);
    if (a->batch != b->batch) return (a->batch < b->batch) ? 1 : -1;
    return strcmp(a->title, b->title);
}

/* There are few: an insertion sort that takes the points along. */
static void sort_groups(ct_points *p)
{
    for (int i = 1; i < p->n_group; i++) {
        for (int k = i; (k > 0) && (by_title(&p->group[k - 1], &p->group[k]) > 0); k--) {
            ct_point_group g = p->group[k];

            p->group[k] = p->group[k - 1];
            p->group[k - 1] = g;
            for (int q = 0; q < p->n; q++) {
                if (p->point[q].group == k)
                    p->point[q].group = k - 1;
                else if (p->point[q].group == k - 1)
                    p->point[q].group = k;
            }
        }
    }
}

static bool same_series(const ct_point *a, const ct_point *b)
{
    bool real = (a->kind < CT_KIND_SIMULATED) && (b->kind < CT_KIND_SIMULATED);

    return (a->group == b->group) && ((a->kind == b->kind) || real) &&
           (strcmp(a->config, b->config) == 0);
}

int ct_points_base(const ct_points *p, const ct_point *of)
{
    ct_point like = *of;

    /* one point, of a parallel file: compared with what ranks do without */
    if (strcmp(of->config, CT_SCALE_PARALLEL) == 0)
        snprintf(like.config, sizeof(like.config), "default");
    for (int i = 0; i < p->n; i++) {
        if (!p->point[i].failed && same_series(&p->point[i], &like)) return i;
    }
    return -1;
}

int ct_points_twin(const ct_points *p, const ct_point *of, ct_kind kind)
{
    for (int i = 0; i < p->n; i++) {
        const ct_point *q = &p->point[i];

        if ((q->kind == kind) && (q->group == of->group) && (q->ranks == of->ranks) &&
            (q->nodes == of->nodes) && !q->failed && (strcmp(q->config, of->config) == 0))
            return i;
    }
    return -1;
}

static void compare(ct_points *p)
{
    for (int i = 0; i < p->n; i++) {
        ct_point *q = &p->point[i];
        int base = ct_points_base(p, q);

        if ((base < 0) || q->failed) continue;
        q->speedup = q->images_per_s / p->point[base].images_per_s;
        q->efficiency = q->speedup * p->point[base].ranks / q->ranks;
    }
}

ct_status ct_points_read(const ct_study *study, ct_points *p)
{
    bool *used;
    size_t n;

    memset(p, 0, sizeof(*p));
    CT_TRY(ct_run_all(study, &p->runs, &p->broken));
    n = json_array_size(p->runs);
    p->superseded = json_array();
    p->point = calloc(n + 1, sizeof(*p->point));
    p->group = calloc(n + 1, sizeof(*p->group));
    used = calloc(n + 1, sizeof(*used));
    if ((p->point == NULL) || (p->group == NULL) || (used == NULL)) {
        free(used);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %zu runs", n);
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *run = json_array_get(p->runs, i);

        if (is_bench(run)) {
            add_bench(p, run);
        } else if (is_superseded(p->runs, i)) {
            json_array_append(p->superseded, json_object_get(run, "file"));
        } else if (!used[i]) {
            add_point(p, i, used);
        }
    }
    free(used);
    sort_groups(p);
    qsort(p->point, (size_t)p->n, sizeof(*p->point), by_place);
    compare(p);
    return CT_OK;
}

void ct_points_destroy(ct_points *p)
{
    json_decref(p->runs);
    json_decref(p->broken);
    json_decref(p->superseded);
    free(p->point);
    free(p->group);
    free(p->bench);
    memset(p, 0, sizeof(*p));
}
