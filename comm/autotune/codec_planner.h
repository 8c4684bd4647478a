/** @file codec_planner.h  Which gradients travel by a codec: `compression { type: AUTO }`. No MPI.
 *
 * A pure function of costs and of the step's timeline (step_timeline.h). What counts is the length
 * of a step. A bucket that hides behind computation costs nothing but what coding takes of the
 * rank's own time. So there dense wins, however few bytes a codec would send. A range whose coding,
 * or whose coded messages, take longer than all of it dense is never coded. Otherwise each way by
 * itself is tried on all ranges at once, and from there on one range after the other dense, and the
 * other way round. In the best of these plans each range is offered the other ways. In this search
 * messages take a quarter longer than they should: what would only just hide is compressed. The
 * plans found are ranked with a tenth, in which a codec that sends little goes before one that
 * codes fast and just hides. Where, without either, nothing gains at least `margin`, all is dense.
 * Beside these stands the plan that trusts in no hiding: each range goes as is shortest alone.
 * Where a thread may encode and decode, or the rank itself, each plan has what is shorter for it.
 */
#ifndef CT_CODEC_PLANNER_H
#define CT_CODEC_PLANNER_H

#include "comm/sync/bucket_partition.h"
#include "comm/sync/step_timeline.h"

enum { CT_CODEC_CANDIDATES = 24 };

/** A way to travel: way 0 is dense. */
typedef struct ct_codec_candidate {
    const ct_codec_ops *ops;
    ct_codec_config config;
} ct_codec_candidate;

typedef struct ct_codec_candidates {
    int n;
    ct_codec_candidate way[CT_CODEC_CANDIDATES];
} ct_codec_candidates;

typedef struct ct_codec_plan {
    int *way; /* [n_range]; those that are not up to AUTO: -1 */
    ct_step_timeline_times times;
    double bytes;     /* that a rank sends in a step                        */
    double careful_s; /* a step, where messages take a tenth longer */
    bool apart;       /* `apart` of the planner is shorter: these are its times */
} ct_codec_plan;

typedef struct ct_codec_planner {
    /* the caller's; borrowed */
    const ct_grad_pipe_config *config; /* of AUTO: codec_config says density, min_bytes … */
    const ct_bucket_sizes *sizes;      /* of dense buckets                               */
    const ct_grad_range *range;
    int n_range, n_rank;
    const ct_codec_candidates *ways;
    const ct_codec_seconds *seconds; /* [n_range][CT_CODEC_CANDIDATES]; of ranges with a codec of
                                        their own: at way 0                                   */
    double (*dense_s)(void *ctx, int64_t bytes);  /* line->owned > 0: of the reduce-scatter … */
    double (*gather_s)(void *ctx, int64_t bytes); /* … and of the allgather; else not read */
    void *ctx;
    const ct_step_timeline *line;
    const ct_step_timeline *apart; /* the same where another thread codes; NULL: line alone */
    double margin;                 /* share of a dense step that must be gained */
    double caution;                /* private: messages take so many times as long; 0: 1 */

    /* out: the best with caution first; the last is dense. Those that gain nothing are not there */
    int n_plan;
    ct_codec_plan plan[CT_CODEC_CANDIDATES + 2];
    /* out: each range as it takes least, coding and messages one after the other; way NULL: there
     * is nothing to choose. It may be one of the others, or dense, and may gain nothing */
    ct_codec_plan alone;
} ct_codec_planner;

/** What AUTO may take: codecs whose `automatic` is set, or those among the names where there are
 *  any. A sparse one is taken once for each exchange that the configuration allows. deterministic:
 *  none whose sums hang on the steps before. CT_ERR_CONFIG: nothing is left, or one does not take
 *  these settings. */
ct_status ct_codec_candidates_list(const ct_codec_config *c, bool deterministic,
                                   ct_codec_candidates *out);
/** Whether AUTO decides on this range. */
bool ct_codec_planner_decides(const ct_grad_pipe_config *config, const ct_grad_range *range);
/** seconds[n_range][CT_CODEC_CANDIDATES] by the codecs' own models. */
void ct_codec_planner_seconds(const ct_codec_costs *m, const ct_grad_pipe_config *config,
                              const ct_grad_range *range, int n_range,
                              const ct_codec_candidates *ways, ct_codec_seconds *seconds);
/** CT_ERR_NOMEM. */
ct_status ct_codec_planner_run(ct_codec_planner *c);
void ct_codec_planner_release(ct_codec_planner *c);
/** The length of a step with ranges that go these ways. */
ct_status ct_codec_planner_cost(const ct_codec_planner *c, ct_codec_plan *plan);
/** Ranges as a plan has them: their codec and codec_config are set, out of ways, which is
 *  borrowed. */
void ct_codec_planner_apply(const ct_codec_candidates *ways, const int *way, ct_grad_range *range,
                            int n_range);

#endif
