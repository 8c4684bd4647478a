/** @file plan.h  The kinds of `cortado plan`. Private to cli/plan. */
#ifndef CT_CLI_PLAN_H
#define CT_CLI_PLAN_H

#include "cli/verb.h"
#include "framework/base/text.h"
#include "planner/net_chain.h"
#include "runtime/call.h"

/** --json=FILE, or alone: the answer to stdout, and nothing else. */
ct_status ct_plan_write_json(const char *to, const ct_text *json);

/** The net, and what the options say of the machine. */
typedef struct ct_plan_input {
    ct_config config;
    ct_net_state state;
    ct_net_options options; /* of phase TRAIN, without data */
    ct_net_limits limits;   /* of this machine, or as --limits says */
    bool is_measured;       /* they were measured                   */
    int64_t memory;         /* --memory_gib in bytes, less the runtime; 0: not given */
    int64_t runtime;        /* what a rank takes before it has a net                 */
} ct_plan_input;

/** options.env points into the input. The caller destroys the config, also after errors. */
ct_status ct_plan_input_read(ct_call *call, ct_plan_input *in);
/** The net alone, its only `repeat` with `count` copies; 0: as many as it says. */
ct_status ct_plan_input_read_net(ct_call *call, int32_t count, ct_plan_input *in);

/** A sink for ct_log_set_sink(): many nets of one message would say the same again and again. */
void ct_plan_errors_alone(void *ctx, const char *text);
double ct_plan_mib(double bytes);
/** --memory_gib that leaves so many bytes for nets. */
double ct_plan_gib_for(const ct_plan_input *in, double bytes);

/** --model or --solver: a plan of that net for one rank. */
ct_status ct_plan_net(ct_call *call);
/** The same for several ranks. */
ct_status ct_plan_job(ct_call *call);
/** Where model state lies on the GPUs of a described node, its memory and files. */
ct_status ct_plan_tiers(ct_call *call);
/** The options ask for that. */
bool ct_plan_is_of_tiers(const ct_options *o);

#endif
