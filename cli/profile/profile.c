#include "cli/profile/profile.h"

#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/sort.h"
#include "framework/base/file.h"
#include "framework/solver/update_rule.h"

enum {
    MOST_SUMS = 64,        /* of layers, under way at a time */
    MOST_NUMBERS = 1 << 24 /* in one                         */
};

typedef struct reader {
    const char *path;
    ct_profile *p;
} reader;

void ct_profile_destroy(ct_profile *p)
{
    if (p == NULL) return;
    for (int i = 0; (p->param != NULL) && (i < p->n_param); i++) free(p->param[i].key);
    free(p->param);
    free(p->forward);
    free(p->backward);
    free(p->sample_ms);
    free(p);
}

static ct_status fail_member(const reader *r, const char *where, const char *member,
                             const char *what)
{
    return CT_FAIL(CT_ERR_DATA, "%s: %s%s%s: expected %s", r->path, where,
                   (where[0] != '\0') ? "." : "", member, what);
}

/* A number of at least `least`; absent and otherwise >= least: that. */
static ct_status read_number(const reader *r, const json_t *from, const char *where,
                             const char *member, double least, double otherwise, double *value_p)
{
    const json_t *j = json_object_get(from, member);

    if ((j == NULL) && (otherwise >= least)) {
        *value_p = otherwise;
        return CT_OK;
    }
    if (!json_is_number(j) || !isfinite(json_number_value(j)) || (json_number_value(j) < least))
        return fail_member(r, where, member,
                           (least > 0) ? "a number above 0" : "a number, 0 or more");
    *value_p = json_number_value(j);
    return CT_OK;
}

static ct_status read_count(const reader *r, const json_t *from, const char *where,
                            const char *member, int64_t least, int64_t most, int64_t *value_p)
{
    const json_t *j = json_object_get(from, member);
    char what[80];

    if (json_is_integer(j) && (json_integer_value(j) >= least) && (json_integer_value(j) <= most)) {
        *value_p = json_integer_value(j);
        return CT_OK;
    }
    snprintf(what, sizeof(what), "a whole number from %lld to %lld", (long long)least,
             (long long)most);
    return fail_member(r, where, member, what);
}

static ct_status read_text(const reader *r, const json_t *from, const char *where,
                           const char *member, const char **text_p)
{
    const char *text = json_string_value(json_object_get(from, member));

    if (text == NULL) return fail_member(r, where, member, "a text");
    *text_p = text;
    return CT_OK;
}

static ct_status read_list(const reader *r, const json_t *root, const char *member, bool must,
                           const json_t **list_p, int *n_p)
{
    const json_t *list = json_object_get(root, member);

    *n_p = 0;
    *list_p = list;
    if ((list == NULL) && !must) return CT_OK;
    if (!json_is_array(list) || (must && (json_array_size(list) == 0)) ||
        (json_array_size(list) > INT_MAX))
        return fail_member(r, "", member, must ? "a list that is not empty" : "a list");
    *n_p = (int)json_array_size(list);
    return CT_OK;
}

static ct_status read_head(const reader *r, const json_t *root)
{
    ct_profile *p = r->p;
    const char *text = NULL;
    int64_t count = 0;

    if (!json_is_integer(json_object_get(root, "profile")) ||
        (json_integer_value(json_object_get(root, "profile")) != 1))
        return CT_FAIL(CT_ERR_DATA,
                       "%s is no profile: it lacks \"profile\": 1, which cortado time "
                       "--json writes",
                       r->path);
    CT_TRY(read_text(r, root, "", "net", &text));
    snprintf(p->net, sizeof(p->net), "%s", text);
    CT_TRY(read_text(r, root, "", "net_hash", &text));
    snprintf(p->net_hash, sizeof(p->net_hash), "%s", text);
    CT_TRY(read_count(r, root, "", "batch", 1, INT_MAX, &p->batch));
    CT_TRY(read_count(r, root, "", "ranks", 1, INT_MAX, &count));
    p->ranks = (int)count;
    CT_TRY(read_count(r, root, "", "threads", 1, INT_MAX, &count));
    p->threads = (int)count;
    CT_TRY(read_number(r, root, "", "images_per_s", 1e-30, -1, &p->images_per_s));
    CT_TRY(read_number(r, root, "", "step_ms", 1e-30, -1, &p->step_ms));
    CT_TRY(read_number(r, root, "", "update_ms", 0, 0, &p->update_ms));
    CT_TRY(read_number(r, root, "", "norm_ms", 0, 0, &p->norm_ms));
    p->after_all = json_is_true(json_object_get(root, "after_all"));
    return read_number(r, root, "", "wait_data_ms", 0, 0, &p->wait_data_ms);
}

static ct_status read_params(const reader *r, const json_t *root)
{
    ct_profile *p = r->p;
    const json_t *list = NULL;
    int64_t end = 0;
    int n = 0;

    CT_TRY(read_list(r, root, "params", true, &list, &n));
    p->param = calloc((size_t)n, sizeof(*p->param));
    if (p->param == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d parameters", n);
    p->n_param = n;
    for (int i = 0; i < n; i++) {
        const json_t *j = json_array_get(list, (size_t)i);
        ct_profile_param *at = &p->param[i];
        const char *key = NULL;
        char where[32];

        snprintf(where, sizeof(where), "params[%d]", i);
        CT_TRY(read_text(r, j, where, "key", &key));
        CT_TRY(read_count(r, j, where, "offset", end, INT64_MAX / 8, &at->offset));
        CT_TRY(read_count(r, j, where, "count", 0, INT64_MAX / 8, &at->count));
        if (json_object_get(j, "rows") != NULL)
            CT_TRY(read_count(r, j, where, "rows", 1, INT64_MAX / 8, &at->rows));
        end = at->offset + at->count;
        at->key = strdup(key);
        if (at->key == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d parameters", n);
    }
    return CT_OK;
}

static ct_status read_sum(const reader *r, const json_t *j, const char *where, ct_step *s)
{
    int64_t layer = 0, pair = 0, count = 0;

    CT_TRY(read_count(r, j, where, "layer", 0, INT_MAX, &layer));
    CT_TRY(read_count(r, j, where, "pair", 0, INT_MAX, &pair));
    CT_TRY(read_count(r, j, where, "count", 1, MOST_NUMBERS, &count));
    s->of = CT_PAIR_SUM;
    s->layer = (int)layer;
    s->pair = (int)pair;
    s->count = (int)count;
    return CT_OK;
}

static ct_status read_step(const reader *r, const json_t *j, const char *where, bool forward,
                           ct_step *s)
{
    const char *kind = NULL;
    int64_t count = 0;
    double ms = 0;
    bool again;

    *s = (ct_step){ .layer = -1, .pair = -1, .param = -1, .blob = -1 };
    CT_TRY(read_text(r, j, where, "kind", &kind));
    again = !forward && (strcmp(kind, "again") == 0);
    if (again || (strcmp(kind, forward ? "forward" : "backward") == 0)) {
        s->kind = forward ? CT_STEP_FORWARD : again ? CT_STEP_AGAIN : CT_STEP_BACKWARD;
        CT_TRY(read_count(r, j, where, "layer", 0, INT_MAX, &count));
        s->layer = (int)count;
        CT_TRY(read_number(r, j, where, "ms", 0, -1, &ms));
        s->seconds = 1e-3 * ms;
        count = 0;
        if (json_object_get(j, "polls") != NULL)
            CT_TRY(read_count(r, j, where, "polls", 0, INT_MAX, &count));
        s->polls = (int)count;
        return CT_OK;
    }
    if ((strcmp(kind, "sum_begin") == 0) || (strcmp(kind, "sum_wait") == 0)) {
        s->kind = (strcmp(kind, "sum_begin") == 0) ? CT_STEP_BEGIN : CT_STEP_WAIT;
        return read_sum(r, j, where, s);
    }
    if (strcmp(kind, forward ? "wait" : "ready") != 0)
        return fail_member(r, where, "kind",
                           forward ? "\"forward\", \"wait\", \"sum_begin\" or \"sum_wait\""
                                   : "\"backward\", \"again\", \"ready\", \"sum_begin\" or "
                                     "\"sum_wait\"");
    s->kind = forward ? CT_STEP_WAIT : CT_STEP_BEGIN;
    s->of = CT_PAIR_WEIGHTS;
    CT_TRY(read_count(r, j, where, "param", 0, r->p->n_param - 1, &count));
    s->param = s->pair = (int)count;
    return CT_OK;
}

/* A sum is waited for once, behind its beginning. Pairs get numbers of their own, from n_param on.
 */
static ct_status number_sums(const reader *r, const char *member, ct_step *step, int n)
{
    int raw[MOST_SUMS] = { 0 }, begun[MOST_SUMS] = { 0 }, open = 0;

    for (int i = 0; i < n; i++) {
        ct_step *s = &step[i];
        int at = 0;

        if (!ct_step_is_pair(s) || (s->of != CT_PAIR_SUM)) continue;
        while ((at < open) && (raw[at] != s->pair)) at++;
        if ((s->kind == CT_STEP_BEGIN) && (at == open) && (open < MOST_SUMS)) {
            raw[open] = s->pair;
            begun[open++] = i;
            s->pair = r->p->n_param + r->p->n_sum++;
        } else if ((s->kind == CT_STEP_WAIT) && (at < open) &&
                   (step[begun[at]].count == s->count)) {
            s->pair = step[begun[at]].pair;
            raw[at] = raw[--open];
            begun[at] = begun[open];
        } else {
            return CT_FAIL(CT_ERR_DATA,
                           "%s: %s[%d]: sum %d does not begin and end once each, with one count, "
                           "at most %d under way",
                           r->path, member, i, s->pair, MOST_SUMS);
        }
    }
    if (open == 0) return CT_OK;
    return CT_FAIL(CT_ERR_DATA, "%s: %s[%d]: nothing waits for sum %d", r->path, member, begun[0],
                   raw[0]);
}

static ct_status read_steps(const reader *r, const json_t *root, bool forward, ct_step **step_p,
                            int *n_p)
{
    const char *member = forward ? "forward" : "backward";
    const json_t *list = NULL;
    int n = 0;

    CT_TRY(read_list(r, root, member, true, &list, &n));
    *step_p = calloc((size_t)n, sizeof(**step_p));
    if (*step_p == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d steps", n);
    *n_p = n;
    for (int i = 0; i < n; i++) {
        char where[32];

        snprintf(where, sizeof(where), "%s[%d]", member, i);
        CT_TRY(read_step(r, json_array_get(list, (size_t)i), where, forward, &(*step_p)[i]));
    }
    return number_sums(r, member, *step_p, n);
}

/* Every gradient gets ready once. */
static ct_status check_ready(const reader *r)
{
    const ct_profile *p = r->p;
    int *times = calloc((size_t)p->n_param + 1, sizeof(*times));
    ct_status status = CT_OK;

    if (times == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d parameters", p->n_param);
    for (int i = 0; i < p->n_backward; i++) {
        if (ct_step_is_of_weights(&p->backward[i])) times[p->backward[i].param] += 1;
    }
    for (int i = 0; (i < p->n_param) && (status == CT_OK); i++) {
        if (times[i] != 1)
            status = CT_FAIL(CT_ERR_DATA, "%s: backward: parameter %d (%s) is ready %d times",
                             r->path, i, p->param[i].key, times[i]);
    }
    free(times);
    return status;
}

static ct_status read_samples(const reader *r, const json_t *root)
{
    ct_profile *p = r->p;
    const json_t *list = NULL;
    int n = 0;

    CT_TRY(read_list(r, root, "step_ms_samples", false, &list, &n));
    p->sample_ms = calloc((size_t)n + 1, sizeof(*p->sample_ms));
    if (p->sample_ms == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d samples", n);
    p->n_sample = n;
    for (int i = 0; i < n; i++) {
        const json_t *j = json_array_get(list, (size_t)i);
        char where[40];

        snprintf(where, sizeof(where), "step_ms_samples[%d]", i);
        if (!json_is_number(j) || !(json_number_value(j) > 0))
            return fail_member(r, "", where, "a number above 0");
        p->sample_ms[i] = json_number_value(j);
    }
    return CT_OK;
}

static ct_status read_all(const reader *r, const json_t *root)
{
    ct_profile *p = r->p;

    if (!json_is_object(root)) return CT_FAIL(CT_ERR_DATA, "%s: expected an object", r->path);
    CT_TRY(read_head(r, root));
    CT_TRY(read_params(r, root));
    CT_TRY(read_steps(r, root, true, &p->forward, &p->n_forward));
    CT_TRY(read_steps(r, root, false, &p->backward, &p->n_backward));
    CT_TRY(check_ready(r));
    CT_TRY(read_samples(r, root));
    if (!(ct_profile_compute_s(p) > 0))
        return CT_FAIL(CT_ERR_DATA, "%s: no step takes any time", r->path);
    return CT_OK;
}

ct_status ct_profile_parse(const char *path, const char *text, size_t size, ct_profile **profile_p)
{
    reader r = { .path = path };
    json_error_t error;
    json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    ct_status status = CT_OK;

    if (root == NULL)
        return CT_FAIL(CT_ERR_DATA, "%s:%d:%d: %s", path, error.line, error.column, error.text);
    r.p = calloc(1, sizeof(*r.p));
    status = (r.p == NULL) ? CT_FAIL(CT_ERR_NOMEM, "no memory for a profile") : read_all(&r, root);
    json_decref(root);
    if (status != CT_OK) {
        ct_profile_destroy(r.p);
        return status;
    }
    *profile_p = r.p;
    return CT_OK;
}

ct_status ct_profile_read(const char *path, ct_profile **profile_p)
{
    char *data = NULL;
    size_t size = 0;
    ct_status status = CT_OK;

    CT_TRY(ct_settings_read(path, &data, &size));
    status = ct_profile_parse(path, data, size, profile_p);
    free(data);
    return status;
}

ct_status ct_profile_check_net(const ct_profile *p, const char *path, const char *net_hash)
{
    if (strcmp(p->net_hash, net_hash) == 0) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG,
                   "%s is the profile of another net: net_hash %s (%s), but this net's is %s", path,
                   p->net_hash, p->net, net_hash);
}

double ct_profile_compute_s(const ct_profile *p)
{
    double sum = 1e-3 * p->update_ms;

    for (int i = 0; i < p->n_forward; i++) sum += p->forward[i].seconds;
    for (int i = 0; i < p->n_backward; i++) sum += p->backward[i].seconds;
    return sum;
}

/* Of the five arrays that an update by SGD with momentum reads and writes the norm reads one. */
double ct_profile_norm_s(const ct_profile *p)
{
    return 1e-3 * ((p->norm_ms > 0) ? p->norm_ms : p->update_ms / 5);
}

bool ct_profile_after_all(const ct_profile *p, const Ct__SolverParameter *solver)
{
    return ct_update_waits_for_all(solver) || (!solver->has_clip_gradients && p->after_all);
}

ct_profile_zero ct_profile_read_zero(const Ct__SolverParameter *solver)
{
    const Ct__MemoryParameter *m = solver->memory;

    if (m == NULL) return (ct_profile_zero){ .stage = 0 };
    return (ct_profile_zero){ .stage = m->zero, .ahead = (m->prefetch > 0) ? m->prefetch : 2 };
}

void ct_profile_scale(ct_profile *p, double images_per_s, int64_t batch)
{
    double factor = 1;

    if (images_per_s > 0) factor = (double)p->batch / images_per_s / ct_profile_compute_s(p);
    if (batch > 0) {
        factor *= (double)batch / (double)p->batch;
        p->batch = batch;
    }
    for (int i = 0; i < p->n_forward; i++) p->forward[i].seconds *= factor;
    for (int i = 0; i < p->n_backward; i++) p->backward[i].seconds *= factor;
    p->update_ms *= factor;
    p->norm_ms *= factor;
}

static double median_sample(const ct_profile *p)
{
    double *v = malloc(sizeof(*v) * (size_t)p->n_sample);
    double median = 1;

    if (v == NULL) return p->step_ms;
    memcpy(v, p->sample_ms, sizeof(*v) * (size_t)p->n_sample);
    median = ct_median(v, p->n_sample);
    free(v);
    return median;
}

double ct_profile_jitter(const ct_profile *p, int i)
{
    return (p->n_sample == 0) ? 1 : p->sample_ms[i % p->n_sample] / median_sample(p);
}

/* ---- a profile as a timeline of steps */

static int add_events(const ct_step *step, int n, double factor, ct_step_timeline_event *out)
{
    for (int i = 0; i < n; i++) {
        ct_step_timeline_event e = { .kind = CT_STEP_TIMELINE_RUN,
                                     .seconds = step[i].seconds * factor };

        if (ct_step_is_of_weights(&step[i]) && (step[i].kind == CT_STEP_WAIT))
            e = (ct_step_timeline_event){ .kind = CT_STEP_TIMELINE_READ, .range = step[i].param };
        if (ct_step_is_of_weights(&step[i]) && (step[i].kind == CT_STEP_BEGIN))
            e = (ct_step_timeline_event){ .kind = CT_STEP_TIMELINE_READY, .range = step[i].param };
        out[i] = e;
    }
    return n;
}

ct_status ct_profile_make_line(const ct_profile *p, ct_step_timeline_overlap overlap, double factor,
                               ct_profile_timeline *out)
{
    ct_profile_timeline l = { .event = NULL };
    int64_t count = 0;
    double update_s = factor * 1e-3 * p->update_ms, norm_s = factor * ct_profile_norm_s(p);

    l.event = calloc((size_t)(p->n_forward + p->n_backward) + 1, sizeof(*l.event));
    l.count = calloc((size_t)p->n_param + 1, sizeof(*l.count));
    if ((l.event == NULL) || (l.count == NULL)) {
        ct_profile_line_release(&l);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for the line of a step");
    }
    for (int i = 0; i < p->n_param; i++) count += l.count[i] = p->param[i].count;
    l.line = (ct_step_timeline){ .n_range = p->n_param,
                                 .count = l.count,
                                 .backward = l.event,
                                 .forward = l.event + p->n_backward,
                                 .update_s = update_s / (double)((count > 0) ? count : 1),
                                 .norm_s = norm_s / (double)((count > 0) ? count : 1),
                                 .overlap = overlap };
    l.line.n_backward = add_events(p->backward, p->n_backward, factor, l.event);
    l.line.n_forward = add_events(p->forward, p->n_forward, factor, l.event + l.line.n_backward);
    *out = l;
    return CT_OK;
}

void ct_profile_line_release(ct_profile_timeline *l)
{
    free(l->event);
    free(l->count);
    *l = (ct_profile_timeline){ .event = NULL };
}
