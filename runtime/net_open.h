/** @file net_open.h  Nets for the verbs that have no solver: test, time, check. */
#ifndef CT_NET_OPEN_H
#define CT_NET_OPEN_H

#include "framework/net/net.h"
#include "runtime/call.h"

#define CT_MAX_STAGE 16

typedef struct ct_net_state { /* --level and --stage, and the memory they need */
    char text[256];
    const char *stage[CT_MAX_STAGE];
    int n_stage, level;
} ct_net_state;

ct_status ct_net_state_read(const ct_options *o, ct_net_state *state);
/** The options of a net of that phase, as config and job have it; state must outlive the net. */
void ct_net_options_fill(const ct_call *call, const ct_config *c, ct_phase phase,
                         const ct_net_state *state, ct_net_options *out);
/** An exec context for it; sum_ranks goes through the job's comm where there is one. */
void ct_exec_fill(const ct_call *call, const ct_net *net, ct_exec *ex);

/** Tops that are stored in 16 bits; and all there are. */
int ct_precision_tops(const ct_net *net, int *all_p);
/** As what: "bf16" or "f16"; static. */
const char *ct_precision_stored(const ct_net *net);
/** What the solver's precision means on this processor: "F32", or "BF16: …"; static. */
const char *ct_precision_text(const ct_net *net);

/** ct_weights_load() of each of these files, separated by commas. */
ct_status ct_weights_load_list(const char *files, ct_net *net);
/** What stands in a column of the per-layer tables. */
int64_t ct_net_layer_params(const ct_net *net, int layer);

#endif
