/** @file sim.h  The parts of cortado-sim, the program that SMPI runs. docs/simulation.md.
 *
 * Collectives, topology, gradient pipe and step interpreter are those of the real program; compute
 * is durations, and large buffers are empty. Times are simulated seconds.
 */
#ifndef CT_SIM_H
#define CT_SIM_H

#include "cli/profile/profile.h"
#include "comm/core/comm.h"
#include "framework/base/json_writer.h"
#include "framework/base/option.h"
#include "framework/base/text.h"
#include "framework/proto/cortado.pb-c.h"

/** How far communication hides. */
typedef enum {
    CT_SIM_OFF,      /* it starts when backward is over                    */
    CT_SIM_BACKWARD, /* it ends before the next forward starts             */
    CT_SIM_BOTH      /* forward waits for each weight when it is to read it */
} ct_sim_overlap;

typedef struct ct_sim {
    const ct_options *options;
    ct_comm *comm;
    double began;         /* real time, for wall_s */
    double node_speed;    /* of this rank's node, over the profile's */
    ct_codec_speed speed; /* of codecs on this rank                  */
    ct_profile *profile;  /* scaled; NULL: --bench          */
    ct_sim_overlap overlap;
    int n_warmup, n_step; /* n_step: those that count           */
    bool thread;          /* messages move whenever they can; else at the profile's poll points */
    Ct__SolverParameter *solver;
} ct_sim;

/** Collectives alone: --bench. Collective, as all of these. */
ct_status ct_sim_bench(ct_sim *sim, ct_json_writer *w);
/** Training steps: --profile. */
ct_status ct_sim_train(ct_sim *sim, ct_json_writer *w);

/** One forward pass of a net that the ranks share, again and again: --pass. */
ct_status ct_sim_forward(ct_sim *sim, ct_json_writer *w);

typedef struct ct_sim_timer ct_sim_timer;

/** Local. CT_ERR_NOMEM. */
ct_status ct_sim_timer_create(ct_comm *comm, ct_sim_timer **timer_p);
void ct_sim_timer_destroy(ct_sim_timer *timer); /* NULL allowed */
/** Lets that much simulated time pass while messages of the communicator's movers complete. moved:
 *  called after each completion; NULL: they are only noted, for the next to move them. */
ct_status ct_sim_timer_pass(ct_sim_timer *timer, double seconds, ct_status (*moved)(void *ctx),
                            void *ctx);

#endif
