/** @file step_model.h  The timeline of training steps over the cost model of the collectives.
 *
 * A profile's step list goes through comm/sync/step_timeline.h: layers take their time, a bucket
 * leaves when its last gradient is ready, forward waits before it reads a weight whose sum has not
 * landed. Buckets are cut as the program cuts them; dense ones take what comm/cost/cost.h says of
 * the cheapest algorithm, coded ones what their codec says (comm/codec/codec.h). With the codec
 * "auto" comm/autotune/codec_planner.h chooses, as at the start of a job.
 */
#ifndef CT_STEP_MODEL_H
#define CT_STEP_MODEL_H

#include "comm/sync/bucket_partition.h"
#include "cli/profile/profile.h"
#include "topology/topo.h"

typedef struct ct_step_model_bucket {
    int64_t bytes;           /* of payload                                            */
    const char *algorithm;   /* or the exchange, or "sum": the codec's own             */
    const char *codec, *key; /* of the first gradient; borrowed from the profile */
    bool coded;
    double seconds; /* alone, coding included                                       */
    double encode_s, wire_s, decode_s; /* of that */
    int first, n;                      /* of the profile's parameters */
    int64_t count;                     /* elements */
} ct_step_model_bucket;

typedef struct ct_step_model {
    double step_s, compute_s, exposed_s; /* compute_s: the update included, factor applied    */
    double bytes_sent;                   /* a rank and step                                   */
    int n_bucket, n_coded;
    ct_step_model_bucket *bucket;
} ct_step_model;

/** What a parameter's own `compress` says. codec NULL: there is none. */
typedef struct ct_step_model_own {
    const ct_codec_ops *codec;
    ct_codec_config config;
} ct_step_model_own;

/** One step in the steady state. profile: scaled to the machine and batch. config: of the exchange,
 *  its overlap is not read. own: [profile->n_param], borrowed; NULL: no parameter has any. factor:
 *  on all compute (1; the slowest of many ranks where times vary). CT_ERR_CONFIG: an algorithm that
 * has no costs. Freed by ct_step_model_release(). */
ct_status ct_step_model_run(const ct_profile *profile, const ct_topo *topo,
                            const ct_grad_pipe_config *config, const ct_step_model_own *own,
                            ct_step_timeline_overlap overlap, double factor, ct_step_model *out);
void ct_step_model_release(ct_step_model *m);

/** Expected largest of n draws of the profile's samples, and their mean, over their median. */
double ct_step_model_slowest(const ct_profile *p, int64_t n);
double ct_step_model_mean(const ct_profile *p);

#endif
