#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "framework/tools/exchange_config.h"
#include "framework/tools/net_open.h"
#include "framework/tools/verdict.h"

/* What a step sends, by the payload of each parameter. */
typedef struct traffic {
    double dense;    /* bytes of gradients that are summed           */
    double gathered; /* bytes of payloads that every rank gets of every rank */
} traffic;

typedef struct totals {
    int64_t param, learned;
    double forward, backward; /* FLOP of this rank's batch */
} totals;

static void print_layers(const ct_net *net, totals *t)
{
    printf("%-24s %-16s %-32s %12s %10s %10s\n", "layer", "type", "top", "parameters", "fwd GFLOP",
           "bwd GFLOP");
    for (int i = 0; i < net->n_layer; i++) {
        const ct_layer *l = net->layer[i];
        ct_shape_text shape = { "" };
        ct_estimate e;

        ct_net_estimate(net, i, &e);
        if (l->n_top > 0) shape = ct_shape_str(&net->instance[i]->top[0]->data.shape);
        printf("%-24s %-16s %-32s %12" PRId64 " %10.4g %10.4g\n", l->name, l->ops->type, shape.text,
               ct_net_layer_params(net, i), e.forward_flop * 1e-9, e.backward_flop * 1e-9);
        t->forward += e.forward_flop;
        t->backward += e.backward_flop;
    }
    for (int i = 0; i < net->n_param; i++) {
        t->param += net->param[i].count;
        if (net->param[i].learns) t->learned += net->param[i].count;
    }
}

static ct_status find_traffic(const ct_net *net, const Ct__SolverParameter *s, traffic *out)
{
    ct_grad_pipe_config config = { .allreduce = NULL };

    memset(out, 0, sizeof(*out));
    CT_TRY(
        ct_codec_read_config(s->compression, "compression", &config.codec, &config.codec_config));
    for (int i = 0; i < net->n_param; i++) {
        const ct_param *q = &net->param[i];
        double bytes = (double)q->count * 4;
        const ct_coded_ops *codec = NULL, *own = NULL;
        const ct_codec_config *c = NULL;
        ct_codec_config own_config;
        ct_grad_range range = { .count = q->count, .rows = ct_param_rows(q) };

        if (!q->learns) continue;
        if (q->compress != NULL) {
            CT_TRY(ct_codec_read_own(q->compress, q->key, &own, &own_config));
            range.codec = own;
            range.codec_config = &own_config;
        }
        codec = ct_grad_range_codec(&config, &range, &c);
        if (codec->payload_bytes != NULL)
            bytes = (double)codec->payload_bytes(c, q->count, ct_param_rows(q));
        if (codec->gathers) {
            out->gathered += bytes;
        } else {
            out->dense += bytes;
        }
    }
    return CT_OK;
}

static double sent(const traffic *t, int64_t n_rank)
{
    double p = (double)n_rank;

    return t->dense * 2 * (p - 1) / p + t->gathered * (p - 1);
}

/* verdict: more members. */
static ct_status write_json(const char *file, const ct_net *net, const totals *t, double bytes,
                            int64_t n_rank, const ct_text *verdict)
{
    ct_text text = { 0 };
    ct_status status;

    ct_text_add(&text, "{\"net\":");
    ct_text_add_json(&text, net->name);
    ct_text_add(&text,
                ",\"net_hash\":\"%016" PRIx64 "\",\"batch\":%" PRId64 ",\"ranks\":%" PRId64
                ",\"parameters\":%" PRId64 ",\"learned\":%" PRId64,
                ct_net_hash(net), net->batch_local, n_rank, t->param, t->learned);
    ct_text_add(&text,
                ",\"forward_gflop\":%.9g,\"backward_gflop\":%.9g,\"memory_planned\":%zu,"
                "\"memory_peak_alive\":%zu,\"memory_unshared\":%zu,\"memory_weights\":%zu,"
                "\"bytes_sent\":%.0f%s}\n",
                t->forward * 1e-9, t->backward * 1e-9, net->memory.planned, net->memory.peak_alive,
                net->memory.unshared, net->memory.weights, bytes,
                (verdict->text != NULL) ? verdict->text : "");
    status = text.failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for %s", file)
                         : ct_file_write(file, text.text, text.length);
    ct_text_destroy(&text);
    return status;
}

static ct_status report(const ct_call *call, const ct_config *c, const ct_net *net, int64_t n_rank)
{
    const char *json = ct_options_text(call->options, "json");
    const double mib = ldexp(1, 20);
    totals t = { 0 };
    traffic way;
    ct_text verdict = { 0 };
    double bytes;
    ct_status status;

    print_layers(net, &t);
    CT_TRY(find_traffic(net, c->solver, &way));
    bytes = sent(&way, n_rank);
    printf("\nnet         %s, hash %016" PRIx64 "\n", net->name, ct_net_hash(net));
    printf("batch       %" PRId64 " a rank, %" PRId64 " on %" PRId64 " rank%s\n", net->batch_local,
           net->batch_global, n_rank, (n_rank > 1) ? "s" : "");
    printf("parameters  %" PRId64 ", learned %" PRId64 "\n", t.param, t.learned);
    printf("operations  forward %.4g GFLOP, backward %.4g GFLOP a step and rank\n",
           t.forward * 1e-9, t.backward * 1e-9);
    printf("memory      activations %.1f MiB planned, %.1f MiB alive at the peak, %.1f MiB without "
           "sharing;\n            weights and gradients %.1f MiB\n",
           (double)net->memory.planned / mib, (double)net->memory.peak_alive / mib,
           (double)net->memory.unshared / mib, (double)net->memory.weights / mib);
    printf("traffic     %.3f MiB a rank and step: 2 (P-1)/P x %.3f MiB summed + (P-1) x %.3f MiB "
           "gathered, P = %" PRId64 "\n",
           bytes / mib, way.dense / mib, way.gathered / mib, n_rank);
    status = ct_verdict(call->options, c->solver, net, &verdict);
    if ((status == CT_OK) && (json != NULL))
        status = write_json(json, net, &t, bytes, n_rank, &verdict);
    ct_text_destroy(&verdict);
    return status;
}

ct_status ct_verb_check(ct_call *call)
{
    const char *word = ct_options_text(call->options, "phase");
    ct_phase phase = ((word != NULL) && (strcmp(word, "TEST") == 0)) ? CT_TEST : CT_TRAIN;
    int64_t n_rank = 1;
    ct_grad_pipe_config unused;
    ct_net_options options;
    ct_net_state state;
    ct_config c;
    ct_net *net = NULL;
    ct_status status;

    CT_TRY(ct_verdict_ranks(call->options, &n_rank));
    CT_TRY(ct_net_state_read(call->options, &state));
    CT_TRY(ct_config_read(call->options, phase, &c));
    CT_TRY_GOTO(status, out, ct_exchange_read_config(c.solver, &unused));
    ct_net_options_fill(call, &c, phase, &state, &options);
    options.env.n_rank = (int)n_rank;
    options.no_data = true;
    options.forward_only = (phase == CT_TEST);
    CT_TRY_GOTO(status, out, ct_net_create(c.net, &options, &net));
    CT_TRY_GOTO(status, out, report(call, &c, net, n_rank));
out:
    ct_net_destroy(net);
    ct_config_destroy(&c);
    return status;
}
