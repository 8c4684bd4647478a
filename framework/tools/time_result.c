#include "framework/tools/time_result.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "framework/tools/net_open.h"

ct_status ct_time_result_create(const ct_net *net, int n_step, ct_time_result *r)
{
    size_t n = (size_t)n_step, n_list = (size_t)net->n_forward + (size_t)net->n_backward;

    *r = (ct_time_result){ .net = net, .n_step = n_step };
    r->step = calloc(n * (5 + 2 * n_list), sizeof(double));
    if (r->step == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the times");
    r->update = r->step + n;
    r->exposed = r->update + n;
    r->wait_data = r->exposed + n;
    r->scratch = r->wait_data + n;
    r->forward = r->scratch + n;
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

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double ct_time_result_median(const ct_time_result *r, const double *v)
{
    double *s = r->scratch;
    int n = r->n_step;

    memcpy(s, v, (size_t)n * sizeof(*v));
    qsort(s, (size_t)n, sizeof(*s), compare);
    return (n % 2 == 1) ? s[n / 2] : (s[n / 2 - 1] + s[n / 2]) / 2;
}

double ct_time_result_images_per_s(const ct_time_result *r)
{
    return (double)r->net->batch_global / ct_time_result_median(r, r->step) * 1e3;
}

/* The median of step k of a list. */
static double of_step(const ct_time_result *r, const double *all, int k)
{
    return ct_time_result_median(r, all + (size_t)k * (size_t)r->n_step);
}

/* The median of layer i's forward or backward; 0 where it has none. */
static double of_layer(const ct_time_result *r, ct_step_kind kind, int i)
{
    bool forward = (kind == CT_STEP_FORWARD);
    const ct_step *list = forward ? r->net->forward : r->net->backward;
    int n = forward ? r->net->n_forward : r->net->n_backward;

    for (int k = 0; k < n; k++) {
        if ((list[k].kind == kind) && (list[k].layer == i))
            return of_step(r, forward ? r->forward : r->backward, k);
    }
    return 0.0;
}

static double of_layers(const ct_time_result *r, ct_step_kind kind)
{
    double sum = 0.0;

    for (int i = 0; i < r->net->n_layer; i++) sum += of_layer(r, kind, i);
    return sum;
}

void ct_time_result_print(const ct_time_result *r, FILE *out)
{
    const ct_net *net = r->net;

    fprintf(out, "%-24s %-16s %12s %12s %12s %9s %9s\n", "layer", "type", "parameters",
            "forward ms", "backward ms", "GFLOP/s f", "GFLOP/s b");
    for (int i = 0; i < net->n_layer; i++) {
        const ct_layer *l = net->layer[i];
        double f = of_layer(r, CT_STEP_FORWARD, i), w = of_layer(r, CT_STEP_BACKWARD, i);
        ct_estimate e = { 0 };

        if (l->ops->estimate != NULL) l->ops->estimate(l, net->instance[i], &e);
        fprintf(out, "%-24s %-16s %12" PRId64 " %12.3f %12.3f %9.1f %9.1f\n", l->name, l->ops->type,
                ct_net_layer_params(net, i), f, w, (f > 0) ? e.forward_flop / f * 1e-6 : 0,
                (w > 0) ? e.backward_flop / w * 1e-6 : 0);
    }
    fprintf(out,
            "\nmedians of %d steps after %d: step %.3f ms = forward %.3f + backward %.3f + update "
            "%.3f + the rest;\nexposed communication %.3f ms, wait for data %.3f ms; %.1f images/s "
            "(batch %" PRId64 ")\n",
            r->n_step, r->n_warm_up, ct_time_result_median(r, r->step),
            of_layers(r, CT_STEP_FORWARD), of_layers(r, CT_STEP_BACKWARD),
            ct_time_result_median(r, r->update), ct_time_result_median(r, r->exposed),
            ct_time_result_median(r, r->wait_data), ct_time_result_images_per_s(r),
            net->batch_global);
}

/* ---- the profile */

/* The learned ones: what travels. */
static void add_params(const ct_time_result *r, ct_text *t)
{
    const ct_net *net = r->net;

    ct_text_add(t, ",\"params\":[");
    for (int k = 0; (k < net->n_param) && net->param[k].learns; k++) {
        const ct_param *p = &net->param[k];

        ct_text_add(t, "%s{\"key\":", (k > 0) ? "," : "");
        ct_text_add_json(t, p->key);
        ct_text_add(t, ",\"offset\":%" PRId64 ",\"count\":%" PRId64 ",\"rows\":%" PRId64 "}",
                    p->offset, p->count, ct_param_rows(p));
    }
    ct_text_add(t, "]");
}

static void add_list(const ct_time_result *r, bool forward, ct_text *t)
{
    const ct_step *list = forward ? r->net->forward : r->net->backward;
    int n = forward ? r->net->n_forward : r->net->n_backward;
    const char *comma = "";

    ct_text_add(t, ",\"%s\":[", forward ? "forward" : "backward");
    for (int k = 0; k < n; k++) {
        const ct_step *s = &list[k];

        switch (s->kind) {
        case CT_STEP_WAIT:
        case CT_STEP_READY:
            ct_text_add(t, "%s{\"kind\":\"%s\",\"param\":%d}", comma,
                        (s->kind == CT_STEP_WAIT) ? "wait" : "ready", s->param);
            break;
        case CT_STEP_FORWARD:
        case CT_STEP_BACKWARD:
            ct_text_add(t, "%s{\"kind\":\"%s\",\"layer\":%d,\"ms\":%.9g,\"polls\":%.0f}", comma,
                        forward ? "forward" : "backward", s->layer,
                        of_step(r, forward ? r->forward : r->backward, k),
                        of_step(r, forward ? r->forward_polls : r->backward_polls, k));
            break;
        case CT_STEP_ZERO_DIFF:
        case CT_STEP_LOSS_DIFF:
            continue; /* counted with the backward that follows */
        }
        comma = ",";
    }
    ct_text_add(t, "]");
}

static void add_layers(const ct_time_result *r, ct_text *t)
{
    const ct_net *net = r->net;

    ct_text_add(t, ",\"layers\":[");
    for (int i = 0; i < net->n_layer; i++) {
        ct_text_add(t, "%s{\"name\":", (i > 0) ? "," : "");
        ct_text_add_json(t, net->layer[i]->name);
        ct_text_add(
            t,
            ",\"type\":\"%s\",\"forward_ms\":%.9g,\"backward_ms\":%.9g,\"parameters\":%" PRId64 "}",
            net->layer[i]->ops->type, of_layer(r, CT_STEP_FORWARD, i),
            of_layer(r, CT_STEP_BACKWARD, i), ct_net_layer_params(net, i));
    }
    ct_text_add(t, "]");
}

void ct_time_result_json(const ct_time_result *r, ct_text *out)
{
    const ct_net *net = r->net;
    int64_t parameters = 0;

    for (int i = 0; i < net->n_param; i++) parameters += net->param[i].count;
    ct_text_add(out,
                ",\"profile\":1,\"net_hash\":\"%016" PRIx64 "\",\"batch\":%" PRId64
                ",\"global_batch\":%" PRId64 ",\"iterations\":%d,\"images_per_s\":%.9g,"
                "\"step_ms\":%.9g,\"forward_ms\":%.9g,\"backward_ms\":%.9g,\"update_ms\":%.9g,"
                "\"comm_exposed_ms\":%.9g,\"wait_data_ms\":%.9g,\"bytes_sent\":%" PRId64
                ",\"parameters\":%" PRId64,
                ct_net_hash(net), net->batch_local, net->batch_global, r->n_step,
                ct_time_result_images_per_s(r), ct_time_result_median(r, r->step),
                of_layers(r, CT_STEP_FORWARD), of_layers(r, CT_STEP_BACKWARD),
                ct_time_result_median(r, r->update), ct_time_result_median(r, r->exposed),
                ct_time_result_median(r, r->wait_data), r->bytes_sent, parameters);
    add_params(r, out);
    add_list(r, true, out);
    add_list(r, false, out);
    add_layers(r, out);
    ct_text_add(out, ",\"step_ms_samples\":[");
    for (int i = 0; i < r->n_step; i++) ct_text_add(out, "%s%.9g", (i > 0) ? "," : "", r->step[i]);
    ct_text_add(out, "]");
}
