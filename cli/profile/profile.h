/** @file profile.h  What a net's training step is made of, and how long each part takes.
 *
 * Written by `cortado time --json`, read by the simulator and the scaling study: the real lists of
 * steps with their median durations, and the parameters in the order of the gradient arena. The
 * file is described in docs/scaling.md.
 */
#ifndef CT_PROFILE_H
#define CT_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "comm/sync/step_timeline.h"
#include "framework/base/status.h"
#include "framework/net/step.h"
#include "framework/proto/cortado.pb-c.h"

typedef struct ct_profile_param {
    char *key;
    int64_t offset, count; /* elements in the arena; ascending */
    int64_t rows;          /* as a matrix; 0: the profile does not say */
} ct_profile_param;

typedef struct ct_profile {
    char net[128];
    char net_hash[32]; /* as the file has it */
    int64_t batch;     /* of one rank        */
    int ranks, threads;
    double images_per_s; /* of the run that was measured, all its ranks               */
    double step_ms, update_ms, wait_data_ms;
    double norm_ms; /* of the norm of all gradients; 0: it was not asked for */
    bool after_all; /* no weight changed before all gradients had landed: clip_gradients */
    int n_param;    /* learned ones */
    ct_profile_param *param;
    int n_forward, n_backward;
    ct_step *forward, *backward; /* FORWARD, BACKWARD (seconds, polls), BEGIN, WAIT (param, or pair
                                  * and count of a sum) */
    int n_sum;                   /* whose pairs are numbered from n_param on */
    int n_sample;
    double *sample_ms; /* [n_sample] of whole steps, in the order of the run; may be none */
} ct_profile;

/** Every parameter is ready once in the backward list. CT_ERR_IO; CT_ERR_DATA, with file and
 *  member, where the file is no such profile. Freed with ct_profile_destroy(). */
ct_status ct_profile_read(const char *path, ct_profile **profile_p);
/** The same of a text; path serves the messages. */
ct_status ct_profile_parse(const char *path, const char *text, size_t size, ct_profile **profile_p);
void ct_profile_destroy(ct_profile *p); /* NULL allowed */

/** CT_ERR_CONFIG where the profile was taken of a net with another hash. path serves the message.
 */
ct_status ct_profile_check_net(const ct_profile *p, const char *path, const char *net_hash);

/** Forward, backward and update of one rank's batch, in seconds; without a norm. */
double ct_profile_compute_s(const ct_profile *p);
/** The norm of all gradients, in seconds; an estimate where it was not measured. */
double ct_profile_norm_s(const ct_profile *p);
/** Whether weights change only once all gradients have landed: what the solver says, which need
 *  have no fields but those that were set for a study; else what the measured run did. */
bool ct_profile_after_all(const ct_profile *p, const Ct__SolverParameter *solver);

/** What replicas share out. Zeroed: nothing. */
typedef struct ct_profile_zero {
    int stage; /* of ZeRO, 0 to 3                         */
    int ahead; /* 3: chunks of weights that are fetched ahead */
} ct_profile_zero;

/** Of the solver's memory { }. */
ct_profile_zero ct_profile_read_zero(const Ct__SolverParameter *solver);

/** Another chip and batch: all durations times one factor, so that one rank alone makes
 *  images_per_s (0: as measured) with the profile's batch; then times batch / the profile's (0:
 *  that one). So images/s do not depend on the batch, as published figures are used. */
void ct_profile_scale(ct_profile *p, double images_per_s, int64_t batch);

/** The profile as a line (comm/sync/step_timeline.h). */
typedef struct ct_profile_timeline {
    ct_step_timeline line;         /* its lists: */
    ct_step_timeline_event *event; /* owned */
    int64_t *count;                /* owned */
} ct_profile_timeline;
/** factor: on all computation. The line's after_all is the caller's. CT_ERR_NOMEM. */
ct_status ct_profile_make_line(const ct_profile *p, ct_step_timeline_overlap overlap, double factor,
                               ct_profile_timeline *out);
void ct_profile_line_release(ct_profile_timeline *l); /* zeroed ones too */

/** Sample i's time over the median of the samples; 1 where there are none. */
double ct_profile_jitter(const ct_profile *p, int i);

#endif
