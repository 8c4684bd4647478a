/** @file verdict.h  `cortado check --nodes=N`: does compression pay, before a job is queued?
 *
 * Each codec, and AUTO's choice, in the step model (scale/step_model.h) on N nodes of a machine:
 * bytes, the length of a step, and what of it is exposed. How long the net computes comes from a
 * profile (`cortado time --json`); without one nothing hides anything, and the times are those of
 * the exchange and of coding alone.
 */
#ifndef CT_VERDICT_H
#define CT_VERDICT_H

#include "framework/base/option.h"
#include "framework/net/net.h"
#include "framework/proto/cortado.pb-c.h"
#include "framework/base/text.h"

/** Ranks that --nodes and --ranks_per_node, or --ranks, ask for. CT_ERR_CONFIG. */
ct_status ct_verdict_ranks(const ct_options *o, int64_t *n_p);
/** Prints the verdict to `to` (NULL: nowhere) and appends `,"verdict":{…}` to json (NULL: not
 * wanted); without --nodes nothing. CT_ERR_CONFIG, CT_ERR_IO, CT_ERR_DATA. */
ct_status ct_verdict(const ct_options *o, const Ct__SolverParameter *solver, const ct_net *net,
                     FILE *to, ct_text *json);

#endif
