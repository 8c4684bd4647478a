#include "cli/scale/points_fill.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const kind_name[CT_N_KIND] = { "measured", "emulated", "simulated", "modelled" };

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
        snprintf(jitter, sizeof(jitter), ", jitter, seed %d",
                 (int)ct_json_number(d, "jitter_seed", 0));
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
    q->nodes = (int)ct_json_number(d, "nodes", 1);
    q->ranks = (int)ct_json_number(d, "ranks", 1);
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
    ct_point_fill(q, good, n);
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
        b->nodes = (int)ct_json_number(d, "nodes", 1);
        b->ranks = (int)ct_json_number(d, "ranks", 1);
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
    for (int i = 0; i < p->n; i++) {
        if (!p->point[i].failed && same_series(&p->point[i], of)) return i;
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
