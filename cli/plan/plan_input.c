/* What cortado plan is told of a net and of the machine. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/plan/plan.h"
#include "framework/base/log.h"
#include "framework/base/memory.h"
#include "framework/base/number.h"
#include "framework/solver/update_rule.h"
#include "runtime/machine_limit.h"

double ct_plan_mib(double bytes)
{
    return ldexp(bytes, -20);
}

void ct_plan_errors_alone(void *ctx, const char *text)
{
    (void)ctx;
    if (text[0] == 'E') fputs(text, stderr);
}

/* Of "A" or "A,B": numbers above 0. */
static bool read_numbers(const char *text, int n, double *v)
{
    for (int i = 0; i < n; i++) {
        char *end;

        if (!ct_number_real(text, &end, &v[i]) || (v[i] <= 0) ||
            (*end != ((i < n - 1) ? ',' : '\0')))
            return false;
        text = end + 1;
    }
    return true;
}

/* What this process takes now stands for it. It is rounded up, since that is not the same each time
 * and plans should be. */
static ct_status read_memory(const ct_call *call, ct_plan_input *in)
{
    const int64_t step = (int64_t)32 << 20;
    const char *text = ct_options_text(call->options, "memory_gib");
    double gib = 0;

    in->runtime = (ct_memory_resident_now() + step - 1) / step * step;
    if (text == NULL) return CT_OK;
    if (!read_numbers(text, 1, &gib) || (gib > 1e6))
        return CT_FAIL(CT_ERR_CONFIG, "--memory_gib=%s: expected a number above 0", text);
    in->memory = (int64_t)ldexp(gib, 30) - in->runtime;
    if (in->memory > 0) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG,
                   "--memory_gib=%s: expected more than the %.0f MiB that a rank takes before it "
                   "has a net (--memory_gib=%.4f)",
                   text, ct_plan_mib((double)in->runtime), ldexp((double)in->runtime, -30));
}

double ct_plan_gib_for(const ct_plan_input *in, double bytes)
{
    return ceil(ldexp(bytes + (double)in->runtime, -30) * 1e4) / 1e4;
}

static ct_status read_limits(const ct_call *call, ct_plan_input *in)
{
    const char *text = ct_options_text(call->options, "limits");
    double v[2];
    ct_machine_limit limit;

    in->is_measured = (text == NULL);
    if (text == NULL) {
        CT_TRY(ct_machine_limit_measure(1, &limit));
        in->limits = (ct_net_limits){ limit.flop, limit.memory };
        return CT_OK;
    }
    if (!read_numbers(text, 2, v))
        return CT_FAIL(CT_ERR_CONFIG,
                       "--limits=%s: expected two numbers above 0, 10^9 operations a second and "
                       "10^9 bytes of memory a second",
                       text);
    in->limits = (ct_net_limits){ 1e9 * v[0], 1e9 * v[1] };
    return CT_OK;
}

/* Of both phases: replicas that answer run the net of TEST. */
static ct_status fill_shapes(const ct_options *o, ct_plan_input *in)
{
    ct_net_options options = in->options;
    ct_data_shapes shapes = { 0 };
    ct_status status;

    CT_TRY(ct_data_shapes_read(o, &shapes));
    ct_data_shapes_meet(&shapes, in->config.net);
    CT_TRY_GOTO(status, out, ct_data_shapes_check_names(&shapes));
    CT_TRY_GOTO(status, out, ct_data_shapes_fill(&shapes, &options, in->config.net));
    options.phase = CT_TEST;
    status = ct_data_shapes_fill(&shapes, &options, in->config.net);
out:
    ct_data_shapes_destroy(&shapes);
    return status;
}

ct_status ct_plan_input_read_net(ct_call *call, int32_t count, ct_plan_input *in)
{
    const ct_options *o = call->options;
    const Ct__SolverParameter *s;

    CT_TRY(ct_net_state_read(o, &in->state));
    CT_TRY(ct_config_read_repeat(o, CT_TRAIN, count, &in->config));
    s = in->config.solver;
    if (in->config.net == NULL)
        return CT_FAIL(CT_ERR_CONFIG, "the solver gives its nets as train_net and test_net: "
                                      "cortado plan takes one net");
    ct_net_options_fill(call, &in->config, CT_TRAIN, &in->state, &in->options);
    if ((ct_options_text(o, "stage") == NULL) && (ct_options_text(o, "level") == NULL) &&
        (s->train_state != NULL)) {
        in->options.level = s->train_state->level;
        in->options.stage = (const char *const *)s->train_state->stage;
        in->options.n_stage = (int)s->train_state->n_stage;
    }
    in->options.no_data = true;
    CT_TRY(fill_shapes(o, in));
    if (!in->config.is_model) in->options.state_bytes = (double)ct_update_rule_state_bytes(s, 1);
    return CT_OK;
}

ct_status ct_plan_input_read(ct_call *call, ct_plan_input *in)
{
    CT_TRY(read_memory(call, in));
    CT_TRY(ct_plan_input_read_net(call, 0, in));
    return read_limits(call, in);
}
