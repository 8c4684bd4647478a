/** @file machine_study.h  A study on a described machine: what simulation and model share. */
#ifndef CT_MACHINE_STUDY_H
#define CT_MACHINE_STUDY_H

#include "cli/profile/profile.h"
#include "cli/scale/read_model.h"
#include "cli/scale/scale.h"
#include "topology/topo.h"

typedef struct ct_machine_study {
    ct_scale *scale; /* borrowed */
    ct_machine *machine;
    ct_profile *profile; /* as the file has it */
    const char *machine_text, *profile_path, *placement;
    char machine_hash[20], profile_hash[20];
    bool simulated, modelled, weak;
    int64_t simulate_to; /* nodes */
    int64_t per_node, batch, global_batch, iterations, warmup, jitter_seed;
    double images_per_s; /* 0: the profile's */
    ct_read_model read;  /* --read */
} ct_machine_study;

/** Reads and checks all of it: an unknown machine, one too small, a profile of another net, counts
 *  that do not fit end here. Needs ct_scale.net. */
ct_status ct_machine_study_read(ct_scale *s, ct_machine_study *m);
void ct_machine_study_destroy(ct_machine_study *m);

/** Samples of one rank with so many nodes. */
int64_t ct_machine_study_batch(const ct_machine_study *m, int64_t nodes);
/** The definition of a point, but for what only its kind knows. */
json_t *ct_machine_study_define(const ct_machine_study *m, const char *kind, int64_t nodes,
                                const ct_scale_config *c);
/** The read model of a configuration. CT_ERR_CONFIG. */
ct_status ct_machine_study_reading(const ct_machine_study *m, const ct_scale_config *c,
                                   ct_read_model *out);
/** Steps of a point: with jitter more on few nodes, so that all points average over as many draws.
 */
int64_t ct_machine_study_iterations(const ct_machine_study *m, int64_t nodes);
/** The run's placement: the configuration's or the study's. */
const char *ct_machine_study_placement(const ct_machine_study *m, const ct_scale_config *c);

/** The simulator: SMPI runs it, with the files of the platform in the study's folder. */
ct_status ct_scale_simulated(const ct_machine_study *m);
/** The model, in this process. */
ct_status ct_scale_modelled(const ct_machine_study *m);

#endif
