/** @file plan.h  The kinds of `cortado plan`. Private to cli/plan. */
#ifndef CT_CLI_PLAN_H
#define CT_CLI_PLAN_H

#include "cli/verb.h"
#include "framework/base/text.h"

/** --json=FILE, or alone: the answer to stdout, and nothing else. */
ct_status ct_plan_write_json(const char *to, const ct_text *json);
/** --model or --solver: a plan of that net. */
ct_status ct_plan_net(ct_call *call);

#endif
