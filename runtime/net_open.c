#include "runtime/net_open.h"

#include <stdlib.h>
#include <string.h>

#include "comm/collective/blocking.h"
#include "framework/base/simd.h"
#include "framework/snapshot/snapshot.h"

ct_status ct_net_state_read(const ct_options *o, ct_net_state *state)
{
    const char *stages = ct_options_text(o, "stage");

    memset(state, 0, sizeof(*state));
    state->level = (int)ct_options_count(o, "level", 0);
    if (stages == NULL) return CT_OK;
    if (strlen(stages) >= sizeof(state->text)) {
        return CT_FAIL(CT_ERR_CONFIG, "--stage: more than %zu bytes", sizeof(state->text) - 1);
    }
    snprintf(state->text, sizeof(state->text), "%s", stages);
    for (char *rest = state->text, *at; (at = strsep(&rest, ",")) != NULL;) {
        if (state->n_stage == CT_MAX_STAGE) {
            return CT_FAIL(CT_ERR_CONFIG, "--stage: more than %d stages", CT_MAX_STAGE);
        }
        if (*at != '\0') state->stage[state->n_stage++] = at;
    }
    return CT_OK;
}

void ct_net_options_fill(const ct_call *call, const ct_config *c, ct_phase phase,
                         const ct_net_state *state, ct_net_options *out)
{
    const Ct__SolverParameter *s = c->solver;

    memset(out, 0, sizeof(*out));
    out->phase = phase;
    out->level = state->level;
    out->stage = state->stage;
    out->n_stage = state->n_stage;
    out->map = c->map;
    out->env.rank = (call->job != NULL) ? call->job->rank : 0;
    out->env.n_rank = (call->job != NULL) ? call->job->size : 1;
    out->env.group = (call->job != NULL) ? call->job->data : NULL;
    out->env.seed = (s->random_seed >= 0) ? (uint64_t)s->random_seed : 1;
    out->env.global_batch_size = s->global_batch_size;
    out->no_fuse = (s->fuse == 0);
    out->recompute = (s->recompute != 0);
    out->graph = (s->cuda_graph != 0);
    out->env.deterministic = (s->deterministic != 0);
    out->env.winograd = s->winograd;
    out->env.precision = s->precision;
}

const char *ct_precision_text(const ct_net *net)
{
    const ct_device *dev = net->options.dev;
    Ct__SolverParameter__Precision precision = net->options.env.precision;

    if (precision == CT__SOLVER_PARAMETER__PRECISION__F32) return "F32";
    if (precision == CT__SOLVER_PARAMETER__PRECISION__TF32)
        return "TF32: operands of products are rounded to 10 bits behind the point";
    if (precision == CT__SOLVER_PARAMETER__PRECISION__FP16)
        return "FP16: operands of products are rounded to f16, sums are f32, the loss is scaled";
    if ((dev != NULL) && (dev->kind != CT_DEVICE_CPU))
        return "BF16: operands of products are rounded to bf16, sums are f32";
    return ct_simd_has_bf16() ? "BF16: operands of products are pairs of bf16 (AVX512_BF16)"
                              : "BF16: operands of products are rounded (no instruction for bf16)";
}

int ct_precision_tops(const ct_net *net, int *all_p)
{
    int n = 0, all = 0;

    for (int i = 0; i < net->n_layer; i++) {
        for (int t = 0; t < net->layer[i]->n_top; t++) {
            all++;
            n += net->instance[i]->top[t]->data.dtype != CT_F32;
        }
    }
    *all_p = all;
    return n;
}

const char *ct_precision_stored(const ct_net *net)
{
    return (net->options.env.precision == CT__SOLVER_PARAMETER__PRECISION__FP16) ? "f16" : "bf16";
}

static ct_status sum_ranks(void *ctx, double *v, int n)
{
    return ct_comm_sum(ctx, v, n);
}

void ct_exec_fill(const ct_call *call, const ct_net *net, ct_exec *ex)
{
    memset(ex, 0, sizeof(*ex));
    ex->dev = (net->options.dev != NULL) ? net->options.dev : ct_device_cpu();
    ex->phase = net->options.phase;
    ex->deterministic = net->options.env.deterministic;
    ex->seed = net->options.env.seed;
    ex->batch_local = net->batch_local;
    ex->batch_global = net->batch_global;
    ex->batch_first = net->batch_first;
    ex->batch_axis = net->batch_axis;
    if ((call->job != NULL) && (call->job->comm != NULL) && (call->job->size > 1)) {
        ex->sum_ranks = sum_ranks;
        ex->hook_ctx = call->job->comm;
    }
}

ct_status ct_weights_load_list(const char *files, ct_net *net)
{
    char *list = strdup(files);
    ct_status status = CT_OK;

    if (list == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a file name");
    for (char *rest = list, *at; (status == CT_OK) && ((at = strsep(&rest, ",")) != NULL);) {
        status = ct_weights_load(at, net);
    }
    free(list);
    return status;
}

int64_t ct_net_layer_params(const ct_net *net, int layer)
{
    int64_t n = 0;

    for (int i = 0; i < net->n_param; i++) {
        const ct_param *p = &net->param[i];

        if (strcmp(p->layer, net->layer[layer]->name) == 0) n += p->count;
    }
    return n;
}
