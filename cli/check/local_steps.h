/** @file local_steps.h  What an iteration takes with `outer { }`, by the model of steps.
 *
 * Between two meetings a group is a job of its own: its step is the step model's
 * (cli/scale/step_model.h) on the group's part of the machine. A meeting is
 *
 *     passes    the differences and the outer rule, at the bandwidth of memory
 *     coding    of the outer codec
 *     messages  of the ranks with one place in their groups; those of a node share its link, so
 * what all of them send is modelled as sent by one sharing   the new weights within the group: an
 * allreduce of all of them
 *
 * With delay 1 messages travel beside the local_iter iterations that follow; what is longer than
 * these is waited for. The first group stands for all; messages of other groups on the same
 * switches are not in it.
 */
#ifndef CT_LOCAL_STEPS_H
#define CT_LOCAL_STEPS_H

#include <stdio.h>

#include "cli/scale/step_model.h"
#include "comm/sync/grad_pipe.h"
#include "framework/base/json_writer.h"
#include "framework/proto/cortado.pb-c.h"
#include "topology/topo.h"

typedef struct ct_local_steps {
    int n_group, size; /* groups; ranks of each           */
    int local_iter, delay;
    const char *codec;  /* of differences                                                        */
    double step_s;      /* an iteration between meetings                                         */
    double exposed_s;   /* of that                                                               */
    double meeting_s;   /* all parts of a meeting, one after the other                           */
    double messages_s;  /* of that                                                               */
    double waited_s;    /* of that, what no iteration hides                                      */
    double mean_s;      /* an iteration, its share of a meeting in it                            */
    double sent, meets; /* bytes of a rank in an iteration; of a node's ranks of a group in a
                         * meeting */
} ct_local_steps;

/** solver: with an `outer`. p: scaled to the batch; its lists may take no time. config: of the
 *  exchange inside a group, whose codec is none. factor: on all computation. CT_ERR_CONFIG: groups
 *  of unlike size, or an algorithm that has no costs. */
ct_status ct_local_steps_model(const Ct__SolverParameter *solver, const ct_profile *p,
                               const ct_topo *topo, const ct_grad_pipe_config *config,
                               double factor, ct_local_steps *out);
/** Three lines of it; plain_s: an iteration without `outer`. */
void ct_local_steps_print(const ct_local_steps *s, double plain_s, FILE *to);
/** Appends the member "local_steps", times in ms. */
void ct_local_steps_json(const ct_local_steps *s, ct_json_writer *w);

#endif
