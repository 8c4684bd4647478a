#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/clock.h"
#include "framework/math/math.h"
#include "framework/tools/exchange_open.h"
#include "framework/tools/net_open.h"

#define WARM_UP                                                                                    \
    3 /* steps at the start that are not counted: page faults, caches, first messages              \
       */

/* One training step after the other, with times. */
typedef struct bench {
    ct_net *net;
    ct_exec ex;
    ct_exchange exchange;
    float *momentum; /* as long as the gradient arena, on the device */
    const Ct__SolverParameter *param;
    int n_step;                 /* timed                                                  */
    double *step_ms;            /* [n_step]                                               */
    double *forward, *backward; /* [n_layer][n_step], ms                                  */
    double *update_ms, *exposed_ms, *wait_ms; /* [n_step]                                 */
    double update_s;                          /* of the current step */
    int64_t bytes_sent;
} bench;

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Sorts v. */
static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof(*v), compare);
    return (n % 2 == 1) ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static ct_status update(void *ctx, int first, int n)
{
    bench *b = ctx;
    const ct_math_ops *m = b->ex.dev->math;
    double start = ct_clock_s();

    for (int i = first; i < first + n; i++) {
        const ct_param *p = &b->net->param[i];
        float decay = b->param->weight_decay * p->decay_mult;

        if (!p->learns) continue;
        CT_TRY(m->sgd(b->ex.stream, p->count, 1, b->param->base_lr * p->lr_mult, b->param->momentum,
                      decay, 0, ct_blob_diff(&p->blob), b->momentum + p->offset,
                      ct_blob_data(&p->blob)));
    }
    b->update_s += ct_clock_s() - start;
    return CT_OK;
}

static ct_status ready(void *ctx, int param)
{
    bench *b = ctx;

    return b->exchange.ready(b->exchange.ctx, param);
}

static ct_status step(bench *b, int64_t i)
{
    const ct_exchange *x = &b->exchange;

    b->ex.micro_step = i;
    b->ex.wait_data_s = 0;
    b->update_s = 0;
    CT_TRY(x->begin(x->ctx, i));
    CT_TRY(ct_net_forward(b->net, &b->ex, NULL));
    CT_TRY(ct_net_backward(b->net, &b->ex, ready, b));
    CT_TRY(x->finish(x->ctx, update, b));
    ct_net_weights_changed(b->net);
    return b->ex.dev->sync(b->ex.stream);
}

static void take_layers(bench *b, int i)
{
    const ct_net *net = b->net;

    for (int k = 0; k < net->n_forward; k++) {
        if (net->forward[k].kind != CT_STEP_FORWARD) continue;
        b->forward[(size_t)net->forward[k].layer * (size_t)b->n_step + (size_t)i] +=
            net->forward[k].seconds * 1e3;
    }
    for (int k = 0; k < net->n_backward; k++) {
        if (net->backward[k].kind != CT_STEP_BACKWARD) continue;
        b->backward[(size_t)net->backward[k].layer * (size_t)b->n_step + (size_t)i] +=
            net->backward[k].seconds * 1e3;
    }
}

static ct_status run_steps(bench *b)
{
    ct_exchange_counters before, after;

    for (int i = 0; i < WARM_UP; i++) CT_TRY(step(b, i));
    b->net->timing = true;
    for (int i = 0; i < b->n_step; i++) {
        double start;

        CT_TRY(b->exchange.barrier(b->exchange.ctx));
        b->exchange.counters(b->exchange.ctx, &before);
        start = ct_clock_s();
        CT_TRY(step(b, WARM_UP + i));
        b->step_ms[i] = (ct_clock_s() - start) * 1e3;
        b->exchange.counters(b->exchange.ctx, &after);
        b->update_ms[i] = b->update_s * 1e3;
        b->wait_ms[i] = b->ex.wait_data_s * 1e3;
        b->exposed_ms[i] = (after.exposed_s - before.exposed_s) * 1e3;
        b->bytes_sent = after.bytes_sent - before.bytes_sent;
        take_layers(b, i);
    }
    return CT_OK;
}

typedef struct result {
    double step_ms, update_ms, exposed_ms, wait_ms, forward_ms, backward_ms, images_per_s;
    int64_t parameters;
} result;

/* After this the times are sorted. */
static void summarise(bench *b, result *r)
{
    size_t n = (size_t)b->n_step;

    memset(r, 0, sizeof(*r));
    r->step_ms = median(b->step_ms, b->n_step);
    r->update_ms = median(b->update_ms, b->n_step);
    r->exposed_ms = median(b->exposed_ms, b->n_step);
    r->wait_ms = median(b->wait_ms, b->n_step);
    r->images_per_s = (double)b->net->batch_global / r->step_ms * 1e3;
    for (int i = 0; i < b->net->n_layer; i++) {
        r->forward_ms += median(b->forward + (size_t)i * n, b->n_step);
        r->backward_ms += median(b->backward + (size_t)i * n, b->n_step);
    }
    for (int i = 0; i < b->net->n_param; i++) r->parameters += b->net->param[i].count;
}

/* The median of layer i, after summarise(). */
static double of_layer(const bench *b, const double *all, int i)
{
    const double *v = all + (size_t)i * (size_t)b->n_step;
    int n = b->n_step;

    return (n % 2 == 1) ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static void print_table(const bench *b, const result *r)
{
    const ct_net *net = b->net;

    printf("%-24s %-16s %12s %12s %12s %9s %9s\n", "layer", "type", "parameters", "forward ms",
           "backward ms", "GFLOP/s f", "GFLOP/s b");
    for (int i = 0; i < net->n_layer; i++) {
        const ct_layer *l = net->layer[i];
        double f = of_layer(b, b->forward, i), w = of_layer(b, b->backward, i);
        ct_estimate e = { 0 };

        if (l->ops->estimate != NULL) l->ops->estimate(l, net->instance[i], &e);
        printf("%-24s %-16s %12" PRId64 " %12.3f %12.3f %9.1f %9.1f\n", l->name, l->ops->type,
               ct_net_layer_params(net, i), f, w, (f > 0) ? e.forward_flop / f * 1e-6 : 0,
               (w > 0) ? e.backward_flop / w * 1e-6 : 0);
    }
    printf("\nmedians of %d steps after %d: step %.3f ms = forward %.3f + backward %.3f + update "
           "%.3f + the rest;\nexposed communication %.3f ms, wait for data %.3f ms; %.1f images/s "
           "(batch %" PRId64 ")\n",
           b->n_step, WARM_UP, r->step_ms, r->forward_ms, r->backward_ms, r->update_ms,
           r->exposed_ms, r->wait_ms, r->images_per_s, net->batch_global);
}

static ct_status write_json(const ct_call *call, const ct_config *c, const bench *b,
                            const result *r, const char *file)
{
    const ct_net *net = b->net;
    ct_text t = { 0 }, from = { 0 };
    ct_status status;

    ct_call_provenance(call, c, &from);
    ct_text_add(&t, "{%s", (from.text != NULL) ? from.text : "");
    ct_text_destroy(&from);
    ct_text_add(&t,
                ",\"net_hash\":\"%016" PRIx64 "\",\"batch\":%" PRId64 ",\"iterations\":%d,"
                "\"images_per_s\":%.9g,\"step_ms\":%.9g,\"forward_ms\":%.9g,\"backward_ms\":%.9g,"
                "\"update_ms\":%.9g,\"comm_exposed_ms\":%.9g,\"wait_data_ms\":%.9g,"
                "\"bytes_sent\":%" PRId64 ",\"parameters\":%" PRId64 ",\"layers\":[",
                ct_net_hash(net), net->batch_global, b->n_step, r->images_per_s, r->step_ms,
                r->forward_ms, r->backward_ms, r->update_ms, r->exposed_ms, r->wait_ms,
                b->bytes_sent, r->parameters);
    for (int i = 0; i < net->n_layer; i++) {
        ct_text_add(&t, "%s{\"name\":", (i > 0) ? "," : "");
        ct_text_add_json(&t, net->layer[i]->name);
        ct_text_add(
            &t,
            ",\"type\":\"%s\",\"forward_ms\":%.9g,\"backward_ms\":%.9g,\"parameters\":%" PRId64 "}",
            net->layer[i]->ops->type, of_layer(b, b->forward, i), of_layer(b, b->backward, i),
            ct_net_layer_params(net, i));
    }
    ct_text_add(&t, "]}\n");
    status = t.failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for %s", file)
                      : ct_file_write(file, t.text, t.length);
    ct_text_destroy(&t);
    return status;
}

static ct_status acquire(bench *b)
{
    size_t n = (size_t)b->n_step, n_layer = (size_t)b->net->n_layer;

    b->step_ms = calloc(n * (4 + 2 * n_layer), sizeof(double));
    if (b->step_ms == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the times");
    b->update_ms = b->step_ms + n;
    b->exposed_ms = b->update_ms + n;
    b->wait_ms = b->exposed_ms + n;
    b->forward = b->wait_ms + n;
    b->backward = b->forward + n * n_layer;
    return b->ex.dev->mem_acquire((size_t)b->net->grad_count * sizeof(float),
                                  (void **)&b->momentum);
}

static ct_status measure(ct_call *call, const ct_config *c, ct_net *net)
{
    const char *json = ct_options_text(call->options, "json");
    bench b = { .net = net, .param = c->solver };
    ct_exchange_open open = { .job = call->job, .param = c->solver };
    ct_status status;
    result r;

    b.n_step = (int)ct_options_count(call->options, "iterations", 10);
    if (b.n_step < 1) return CT_FAIL(CT_ERR_CONFIG, "--iterations=0: at least 1");
    ct_exec_fill(call, net, &b.ex);
    CT_TRY_GOTO(status, out, acquire(&b));
    CT_TRY_GOTO(status, out, ct_exchange_open_net(&open, net, &b.exchange));
    b.ex.sum_ranks = b.exchange.sum;
    b.ex.poll = b.exchange.poll;
    b.ex.hook_ctx = b.exchange.ctx;
    CT_TRY_GOTO(status, out, run_steps(&b));
    summarise(&b, &r);
    if (call->job->rank == 0) {
        print_table(&b, &r);
        if (json != NULL) CT_TRY_GOTO(status, out, write_json(call, c, &b, &r, json));
    }
out:
    ct_exchange_open_close(&open);
    if (b.ex.dev != NULL) b.ex.dev->mem_release(b.momentum);
    free(b.step_ms);
    return status;
}

ct_status ct_verb_time(ct_call *call)
{
    ct_net_options options;
    ct_net_state state;
    ct_config c;
    ct_net *net = NULL;
    ct_status status;

    CT_TRY(ct_net_state_read(call->options, &state));
    CT_TRY(ct_call_setup(call, CT_TRAIN, &c));
    CT_TRY_GOTO(status, out, ct_call_connect(call, &c));
    ct_net_options_fill(call, &c, CT_TRAIN, &state, &options);
    options.env.synthetic = true;
    CT_TRY_GOTO(status, out, ct_call_device(call, &c, &options.dev));
    CT_TRY_GOTO(status, out, ct_net_create(c.net, &options, &net));
    if (net->grad_arena == NULL) {
        status =
            CT_FAIL(CT_ERR_CONFIG, "%s: nothing to learn: no parameter has a gradient", c.file);
        goto out;
    }
    CT_TRY_GOTO(status, out, measure(call, &c, net));
out:
    ct_net_destroy(net);
    ct_config_destroy(&c);
    return status;
}
