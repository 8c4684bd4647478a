/** @file step_model.h  The timeline of training steps over the cost model of the collectives.
 *
 * A profile's step list goes through comm/sync/step_timeline.h: layers take their time, a bucket
 * leaves when its last gradient is ready, forward waits before it reads a weight whose sum has not
 * landed. Buckets are cut as the program cuts them; dense ones take what comm/cost/cost.h says of
 * the cheapest algorithm, coded ones what their codec says (comm/codec/codec.h). With the codec
 * "auto" comm/autotune/codec_planner.h chooses, as at the start of a job. Under memory { zero } a
 * bucket goes by a reduce-scatter and allgathers (ct_profile_zero).
 */
#ifndef CT_STEP_MODEL_H
#define CT_STEP_MODEL_H

#include <stdint.h>

#include "cli/profile/profile.h"
#include "comm/sync/bucket_partition.h"
#include "framework/base/status.h"
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
    double coding_s; /* what encoding and decoding add to the step: with both free it is shorter */
    double bytes_sent; /* a rank and step                                   */
    bool apart; /* another thread encodes and decodes: progress THREAD, or AUTO where it is shorter
                 */
    int n_bucket, n_coded;
    ct_step_model_bucket *bucket;
} ct_step_model;

/** What a parameter's own `compress` says. codec NULL: there is none. */
typedef struct ct_step_model_own {
    const ct_codec_ops *codec;
    ct_codec_config config;
} ct_step_model_own;

/** One step in the steady state. profile: scaled to the machine and batch. config: of the exchange,
 *  its overlap is not read. own: [profile->n_param], borrowed; NULL: no parameter has any. zero:
 * NULL: nothing is shared out. factor: on all compute (1; the slowest of many ranks where times
 * vary). CT_ERR_CONFIG: an algorithm that has no costs, or no halves under zero; a codec under
 * zero that sends whole gradients. Freed by ct_step_model_release(). */
ct_status ct_step_model_run(const ct_profile *profile, const ct_topo *topo,
                            const ct_grad_pipe_config *config, const ct_step_model_own *own,
                            const ct_profile_zero *zero, ct_step_timeline_overlap overlap,
                            double factor, ct_step_model *out);
void ct_step_model_release(ct_step_model *m);

/** Expected largest of n draws of the profile's samples, and their mean, over their median. */
double ct_step_model_slowest(const ct_profile *p, int64_t n);
double ct_step_model_mean(const ct_profile *p);

/* ---- What reading the samples of a step takes: the input term of modelled steps.
 *
 * P nodes read a batch of D bytes each at the same time, prefetched: a step waits for what reading
 * takes longer than itself. Three things bound reading:
 *
 *     node      D / b_node                 what one node can take in
 *     file      D n(P, F) / b_file         the busiest of the F files (disk arrays) serves n
 * batches system    D P / b_total              all arrays together
 *
 *     T_read = max of them;  waiting for data = max(0, T_read - step)
 *
 * With one file all nodes meet at it: n = P. Striped over F files in stripes of a batch or more, a
 * batch touches at most 2 of them and each serves at most 2 ceil(P / F) readers (Fang et al.,
 * "swCaffe", CLUSTER 2018, section on parallel I/O: 32 arrays, 256 MB stripes, 192 MB a batch of
 * 256); of these each takes half a batch in the mean, so n = ceil(P / F). */

/** Bytes a second; 0: no limit. */
typedef struct ct_read_model {
    double sample_bytes; /* 0: reading is not modelled */
    double node, file, total;
    int64_t files;
} ct_read_model;

typedef struct ct_read_times {
    double read_s, node_s, file_s, total_s;
    const char *bound; /* "node", "file", "system": what read_s is */
    int64_t readers;   /* nodes that meet at one file, at most   */
} ct_read_times;

/** "bytes=750000,node=1.2,file=0.5,files=32,total=40": bytes of a sample, GB/s, how many files.
 *  CT_ERR_CONFIG, logged, with the option's name. */
ct_status ct_read_model_parse(const char *option, const char *text, ct_read_model *m);
/** node_batch: samples of one node in a step. */
ct_read_times ct_read_model_run(const ct_read_model *m, int64_t nodes, double node_batch);

#endif
