#include "framework/base/json_writer.h"
#include "framework/base/sort.h"
#include "cli/time/time_result.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "framework/net/engine_plan.h"
#include "framework/net/team_clock.h"
#include "planner/forward_pass.h"
#include "runtime/call.h"

ct_status ct_time_result_create(const ct_net *net, int n_step, ct_time_result *r)
{
    size_t n = (size_t)n_step, n_list = (size_t)net->n_forward + (size_t)net->n_backward;

    *r = (ct_time_result){ .net = net, .n_step = n_step };
    r->step = calloc(n * (7 + 2 * n_list), sizeof(double));
    if (r->step == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the times");
    r->update = r->step + n;
    r->exposed = r->update + n;
    r->wait_data = r->exposed + n;
    r->scratch = r->wait_data + n;
    r->pass = r->scratch + n;
    r->norm = r->pass + n;
    r->forward = r->norm + n;
    r->backward = r->forward + n * (size_t)net->n_forward;
    r->forward_polls = r->backward + n * (size_t)net->n_backward;
    r->backward_polls = r->forward_polls + n * (size_t)net->n_forward;
    return CT_OK;
}

void ct_time_result_destroy(ct_time_result *r)
{
    free(r->step);
    memset(r, 0, sizeof(*r));
}

static void take_list(const ct_step *list, int n, int n_step, int i, double *ms, double *polls)
{
    double before = 0.0; /* what prepares a diff */

    for (int k = 0; k < n; k++) {
        size_t at = (size_t)k * (size_t)n_step + (size_t)i;

        if ((list[k].kind == CT_STEP_ZERO_DIFF) || (list[k].kind == CT_STEP_LOSS_DIFF)) {
            before += list[k].seconds;
            continue;
        }
        ms[at] = (list[k].seconds + before) * 1e3;
        polls[at] = list[k].polls;
        before = 0.0;
    }
}

void ct_time_result_take(ct_time_result *r, int i)
{
    const ct_net *net = r->net;

    take_list(net->forward, net->n_forward, r->n_step, i, r->forward, r->forward_polls);
    take_list(net->backward, net->n_backward, r->n_step, i, r->backward, r->backward_polls);
}

double ct_time_result_median(const ct_time_result *r, const double *v)
{
    double *s = r->scratch;
    int n = r->n_step;

    memcpy(s, v, (size_t)n * sizeof(*v));
    return ct_median(s, n);
}

/* The median of what is left of each step: the difference of medians may be below 0. */
static double compute_ms(const ct_time_result *r)
{
    for (int i = 0; i < r->n_step; i++) r->pass[i] = r->step[i] - r->exposed[i] - r->wait_data[i];
    return ct_time_result_median(r, r->pass);
}

double ct_time_result_images_per_s(const ct_time_result *r)
{
    return (double)(r->net->batch_global * r->n_micro) / ct_time_result_median(r, r->step) * 1e3;
}

double ct_time_result_tokens_per_s(const ct_time_result *r)
{
    return (double)(ct_net_tokens(r->net) * r->n_micro) / ct_time_result_median(r, r->step) * 1e3;
}

/* The median of step k of a list. */
static double of_step(const ct_time_result *r, const double *all, int k)
{
    return ct_time_result_median(r, all + (size_t)k * (size_t)r->n_step);
}

/* Whether a step is counted with a layer's `kind`: with its backward what is made again for it. */
static bool is_of(const ct_step *s, ct_step_kind kind)
{
    return (s->kind == kind) || ((kind == CT_STEP_BACKWARD) && (s->kind == CT_STEP_AGAIN));
}

/* What layer i's forward or backward took in each step, all its parts together, in r->pass; false
 * where it has none. */
static bool take_pass(const ct_time_result *r, ct_step_kind kind, int i)
{
    bool forward = (kind == CT_STEP_FORWARD), has = false;
    const ct_step *list = forward ? r->net->forward : r->net->backward;
    int n = forward ? r->net->n_forward : r->net->n_backward;

    memset(r->pass, 0, (size_t)r->n_step * sizeof(*r->pass));
    for (int k = 0; k < n; k++) {
        const double *ms = (forward ? r->forward : r->backward) + (size_t)k * (size_t)r->n_step;

        if (!is_of(&list[k], kind) || (list[k].layer != i)) continue;
        for (int j = 0; j < r->n_step; j++) r->pass[j] += ms[j];
        has = true;
    }
    return has;
}

/* The median of that; 0 where it has none. */
static double of_layer(const ct_time_result *r, ct_step_kind kind, int i)
{
    return take_pass(r, kind, i) ? ct_time_result_median(r, r->pass) : 0.0;
}

static double of_layers(const ct_time_result *r, ct_step_kind kind)
{
    double sum = 0.0;

    for (int i = 0; i < r->net->n_layer; i++) sum += of_layer(r, kind, i);
    return sum;
}

/* Half the distance between the quartiles of n_step values. */
static double half_quartiles(const ct_time_result *r, const double *v)
{
    double *s = r->scratch;
    int n = r->n_step;

    memcpy(s, v, (size_t)n * sizeof(*v));
    ct_sort(s, n);
    return (s[(3 * (n - 1) + 2) / 4] - s[(n - 1 + 2) / 4]) / 2;
}

static void name_engine(const ct_estimate *e, bool forward, char *text, size_t size)
{
    const char *data = e->engine[CT_RUN_BACKWARD_DATA], *weight = e->engine[CT_RUN_BACKWARD_WEIGHT];

    text[0] = '\0';
    if (forward) {
        if (e->engine[CT_RUN_FORWARD] != NULL)
            snprintf(text, size, "%s", e->engine[CT_RUN_FORWARD]);
    } else if ((data != NULL) && (weight != NULL) && (strcmp(data, weight) != 0)) {
        snprintf(text, size, "%s, %s", data, weight);
    } else if ((data != NULL) || (weight != NULL)) {
        snprintf(text, size, "%s", (data != NULL) ? data : weight);
    }
}

/* False where the layer has no such step of its own. */
static bool make_pass(const ct_time_result *r, int layer, bool forward, ct_time_pass *p)
{
    const ct_step *list = forward ? r->net->forward : r->net->backward;
    ct_step_kind kind = forward ? CT_STEP_FORWARD : CT_STEP_BACKWARD;
    int n = forward ? r->net->n_forward : r->net->n_backward;
    ct_estimate e;

    if (!take_pass(r, kind, layer)) return false;
    ct_net_estimate(r->net, layer, &e);
    *p = (ct_time_pass){ .layer = layer,
                         .forward = forward,
                         .ms = ct_time_result_median(r, r->pass),
                         .flop = forward ? e.forward_flop : e.backward_flop,
                         .bytes = forward ? e.forward_bytes : e.backward_bytes };
    for (int k = 0; (r->whole != NULL) && (k < n); k++) {
        ct_team_work w;

        if (!is_of(&list[k], kind) || (list[k].layer != layer)) continue;
        w = ct_team_clock_of(r->net->team, forward ? k : r->net->n_forward + k);
        p->mean_ms += w.mean * 1e3;
        p->most_ms += w.most * 1e3;
        p->first_ms += w.first * 1e3;
    }
    if (p->ms > 0) p->spread = half_quartiles(r, r->pass) / p->ms;
    if (r->limit.flop > 0) p->bound_ms = 1e3 * ct_machine_limit_bound(&r->limit, p->flop, p->bytes);
    name_engine(&e, forward, p->engine, sizeof(p->engine));
    return true;
}

/* What `memory` puts into the lists: it is no part of a profile, and told of as a sum. */
static bool is_of_memory(const ct_step *s, bool forward)
{
    return ct_step_is_of_chunk(s) ||
           (!forward && (s->kind == CT_STEP_WAIT) && ct_step_is_of_weights(s));
}

/* ---- pairs */

/* Between replicas nobody waits where there is one; ranks that share layers do. */
static bool waits(const ct_time_result *r, const ct_step *s)
{
    return (r->net->options.env.n_rank > 1) || (s->of == CT_PAIR_TRANSFER);
}

void ct_time_result_pairs(const ct_time_result *r, ct_time_pair *list, int *n_p)
{
    const ct_net *net = r->net;

    *n_p = 0;
    for (int k = 0; k < net->n_forward + net->n_backward; k++) {
        bool forward = (k < net->n_forward);
        const ct_step *s = forward ? &net->forward[k] : &net->backward[k - net->n_forward];
        double ms =
            forward ? of_step(r, r->forward, k) : of_step(r, r->backward, k - net->n_forward);
        int at = 0;

        if (!ct_step_is_pair(s) || is_of_memory(s, forward) || !waits(r, s)) continue;
        while ((at < *n_p) && (list[at].pair != s->pair)) at++;
        if (at == *n_p)
            list[(*n_p)++] = (ct_time_pair){ .pair = s->pair, .of = s->of, .forward = forward };
        list[at].layer = s->layer;
        list[at].param = s->param;
        list[at].sum = s->part;
        list[at].count = s->count;
        *((s->kind == CT_STEP_BEGIN) ? &list[at].begin_ms : &list[at].wait_ms) = ms;
    }
}

void ct_time_result_passes(const ct_time_result *r, ct_time_pass *list, int *n_p)
{
    *n_p = 0;
    for (int i = 0; i < r->net->n_layer; i++) {
        if (make_pass(r, i, true, &list[*n_p])) *n_p += 1;
        if (make_pass(r, i, false, &list[*n_p])) *n_p += 1;
    }
}

/* ---- the profile */

/* The learned ones: what travels. */
static void add_params(const ct_time_result *r, ct_json_writer *w)
{
    const ct_net *net = r->net;

    ct_json_begin_list(w, "params");
    for (int k = 0; (k < net->n_param) && net->param[k].learns; k++) {
        const ct_param *p = &net->param[k];

        ct_json_begin_object(w, NULL);
        ct_json_add_text(w, "key", p->key);
        ct_json_add_integer(w, "offset", p->offset);
        ct_json_add_integer(w, "count", p->count);
        ct_json_add_integer(w, "rows", ct_param_rows(p));
        ct_json_end(w);
    }
    ct_json_end(w);
}

/* Where nobody waits no time is told. */
static void add_pair(const ct_time_result *r, const ct_step *s, double ms, ct_json_writer *w)
{
    bool begins = (s->kind == CT_STEP_BEGIN);

    if (ct_step_is_of_weights(s)) {
        ct_json_add_text(w, "kind", begins ? "ready" : "wait");
        ct_json_add_integer(w, "param", s->param);
    } else {
        ct_json_add_text(w, "kind", begins ? "sum_begin" : "sum_wait");
        ct_json_add_integer(w, "layer", s->layer);
        ct_json_add_integer(w, "pair", s->pair);
        ct_json_add_integer(w, "count", s->count);
    }
    if (waits(r, s)) ct_json_add_number(w, "ms", ms);
}

static void add_layer(const ct_step *s, double ms, double polls, ct_json_writer *w)
{
    ct_json_add_text(w, "kind",
                     (s->kind == CT_STEP_FORWARD) ? "forward"
                     : (s->kind == CT_STEP_AGAIN) ? "again"
                                                  : "backward");
    ct_json_add_integer(w, "layer", s->layer);
    if (s->n_part > 1) ct_json_add_integer(w, "part", s->part);
    ct_json_add_number(w, "ms", ms);
    ct_json_add_decimals(w, "polls", polls, 0);
}

static double memory_ms(const ct_time_result *r, bool forward)
{
    const ct_step *list = forward ? r->net->forward : r->net->backward;
    int n = forward ? r->net->n_forward : r->net->n_backward;
    double ms = 0.0;

    for (int k = 0; k < n; k++)
        if (is_of_memory(&list[k], forward))
            ms += of_step(r, forward ? r->forward : r->backward, k);
    return ms;
}

static void add_list(const ct_time_result *r, bool forward, ct_json_writer *w)
{
    const ct_step *list = forward ? r->net->forward : r->net->backward;
    int n = forward ? r->net->n_forward : r->net->n_backward;

    ct_json_begin_list(w, forward ? "forward" : "backward");
    for (int k = 0; k < n; k++) {
        const ct_step *s = &list[k];

        if (s->blob >= 0) continue; /* a diff: counted with the backward that follows */
        if (is_of_memory(s, forward)) continue;
        ct_json_begin_object(w, NULL);
        if (ct_step_is_pair(s))
            add_pair(r, s, of_step(r, forward ? r->forward : r->backward, k), w);
        else
            add_layer(s, of_step(r, forward ? r->forward : r->backward, k),
                      of_step(r, forward ? r->forward_polls : r->backward_polls, k), w);
        ct_json_end(w);
    }
    ct_json_end(w);
}

static void add_pass(const ct_time_result *r, int layer, bool forward, ct_json_writer *w)
{
    const char *name = forward ? "forward" : "backward";
    ct_time_pass p;

    if (!make_pass(r, layer, forward, &p)) return;
    ct_json_begin_object(w, name);
    ct_json_add_number(w, "ms", p.ms);
    ct_json_add_digits(w, "spread", p.spread, 4);
    ct_json_add_number(w, "flop", p.flop);
    ct_json_add_number(w, "bytes", p.bytes);
    if (p.bound_ms > 0) ct_json_add_number(w, "bound_ms", p.bound_ms);
    if (r->whole != NULL) {
        ct_json_add_number(w, "thread_mean_ms", p.mean_ms);
        ct_json_add_number(w, "thread_most_ms", p.most_ms);
        ct_json_add_number(w, "thread_first_ms", p.first_ms);
    }
    if (p.engine[0] != '\0') {
        ct_json_add_text(w, "engine", p.engine);
    }
    ct_json_end(w);
}

static void add_layers(const ct_time_result *r, ct_json_writer *w)
{
    const ct_net *net = r->net;

    ct_json_begin_list(w, "layers");
    for (int i = 0; i < net->n_layer; i++) {
        ct_json_begin_object(w, NULL);
        ct_json_add_text(w, "name", net->layer[i]->name);
        ct_json_add_text(w, "type", net->layer[i]->ops->type);
        ct_json_add_integer(w, "runner", ct_net_runner(net, i));
        ct_json_add_number(w, "forward_ms", of_layer(r, CT_STEP_FORWARD, i));
        ct_json_add_number(w, "backward_ms", of_layer(r, CT_STEP_BACKWARD, i));
        ct_json_add_integer(w, "parameters", ct_net_layer_params(net, i));
        add_pass(r, i, true, w);
        add_pass(r, i, false, w);
        ct_json_end(w);
    }
    ct_json_end(w);
}

/* What the processor can do, and what the net was made to do beside its layers. */
static void add_limit(const ct_time_result *r, ct_json_writer *w)
{
    const ct_machine_limit *m = &r->limit;
    const char *precision = ct_precision_text(r->net);
    int n_reorder = 0, n_top;

    for (int i = 0; i < r->net->n_layer; i++) n_reorder += r->net->layer[i]->ops->by_net;
    ct_json_add_integer(w, "conversions", n_reorder);
    ct_json_add_bytes(w, "precision", precision, strnlen(precision, 4));
    ct_json_add_integer(w, "bf16_tops", ct_precision_tops(r->net, &n_top));
    if (!(m->flop > 0)) return;
    ct_json_begin_object(w, "limit");
    ct_json_add_text(w, "simd", m->simd);
    ct_json_add_integer(w, "threads", m->n_thread);
    ct_json_add_number(w, "flop_per_s", m->flop);
    ct_json_add_number(w, "read_bytes_per_s", m->read);
    ct_json_add_number(w, "triad_bytes_per_s", m->triad);
    ct_json_add_integer(w, "array_bytes", m->array);
    ct_json_end(w);
}

static void add_engines(const ct_engine_plan *plan, ct_json_writer *w)
{
    const ct_engine_plan_entry *row;

    ct_json_begin_list(w, "engines");
    for (int i = 0; (plan != NULL) && ((row = ct_engine_plan_row(plan, i)) != NULL); i++) {
        if (row->n_asked == 0) continue;
        ct_json_begin_object(w, NULL);
        ct_json_add_text(w, "key", row->key);
        ct_json_add_text(w, "layer", row->layer);
        ct_json_add_integer(w, "layers", row->n_asked);
        ct_json_add_text(w, "engine", row->taken);
        ct_json_begin_object(w, "ms");
        for (int e = 0; e < row->n; e++) {
            ct_json_add_number(w, row->engine[e].name,
                               (row->engine[e].ms < 0.0) ? NAN : row->engine[e].ms);
        }
        ct_json_end(w);
        ct_json_end(w);
    }
    ct_json_end(w);
}

void ct_time_result_json(const ct_time_result *r, ct_json_writer *w)
{
    const ct_net *net = r->net;
    int64_t parameters = 0;

    for (int i = 0; i < net->n_param; i++) parameters += net->param[i].count;
    ct_json_add_integer(w, "profile", 1);
    ct_json_add_hash(w, "net_hash", ct_net_hash(net));
    ct_json_add_integer(w, "batch", net->batch_local);
    ct_json_add_integer(w, "global_batch", net->batch_global * r->n_micro);
    ct_json_add_integer(w, "iterations", r->n_step);
    ct_json_add_number(w, "images_per_s", ct_time_result_images_per_s(r));
    ct_json_add_number(w, "step_ms", ct_time_result_median(r, r->step));
    ct_json_add_number(w, "forward_ms", of_layers(r, CT_STEP_FORWARD));
    ct_json_add_number(w, "backward_ms", of_layers(r, CT_STEP_BACKWARD));
    ct_json_add_number(w, "update_ms", ct_time_result_median(r, r->update));
    ct_json_add_number(w, "compute_ms", compute_ms(r));
    ct_json_add_number(w, "comm_exposed_ms", ct_time_result_median(r, r->exposed));
    ct_json_add_number(w, "wait_data_ms", ct_time_result_median(r, r->wait_data));
    ct_json_add_integer(w, "bytes_sent", r->bytes_sent);
    ct_json_add_number(w, "tokens_per_s", ct_time_result_tokens_per_s(r));
    ct_json_add_number(w, "norm_ms", ct_time_result_median(r, r->norm));
    ct_json_add_bool(w, "after_all", r->after_all);
    ct_json_add_integer(w, "parameters", parameters);
    add_params(r, w);
    add_list(r, true, w);
    add_list(r, false, w);
    if (r->net->options.window != NULL)
        ct_json_add_number(w, "memory_ms", memory_ms(r, true) + memory_ms(r, false));
    add_layers(r, w);
    add_limit(r, w);
    if (r->engines) add_engines(r->net->options.env.plan, w);
    ct_json_begin_list(w, "step_ms_samples");
    for (int i = 0; i < r->n_step; i++) ct_json_add_number(w, NULL, r->step[i]);
    ct_json_end(w);
}

ct_status ct_time_result_add_pass(const ct_time_result *r, int n_rank, ct_json_writer *w)
{
    const ct_net *net = r->net;
    double *seconds = calloc((size_t)net->n_forward + 1, sizeof(*seconds));
    ct_forward_pass pass;
    ct_status status;

    if (seconds == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d steps", net->n_forward);
    for (int k = 0; k < net->n_forward; k++) seconds[k] = 1e-3 * of_step(r, r->forward, k);
    status = ct_forward_pass_of(net, n_rank, seconds, &pass);
    if (status == CT_OK) {
        ct_json_begin_object(w, "pass");
        ct_forward_pass_json(net->name, &pass, w);
        ct_json_end(w);
    }
    ct_forward_pass_destroy(&pass);
    free(seconds);
    return status;
}
