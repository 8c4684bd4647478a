/** @file tuner.h  What takes turns in the steps of a pipe, and how it is changed. Private to comm/.
 *
 * One mechanism (ct_trial_step()): a trial's candidate goes, what it took is noted on the slowest
 * rank, the rule says who goes next, and in the end who stays. Three things are on trial:
 *
 *   plans of codecs          rule ct_trial_blocks   codec_tuner.c, codec_trials.c
 *   algorithms of buckets    rule ct_trial_duels    coll_tuner.c; one trial a class of buckets
 *   the thread, on or off    rule ct_trial_pairs    coll_tuner.c; once the algorithms are decided
 * on
 */
#ifndef CT_TUNER_H
#define CT_TUNER_H

#include "comm/autotune/codec_planner.h"
#include "comm/sync/step_timeline.h"
#include "comm/autotune/trial.h"
#include "comm/codec/codec_types.h"
#include "comm/sync/grad_pipe_impl.h"

/* ---- algorithms and the thread: the first steps of a pipe
 *
 * Buckets are put into classes by size (powers of two). In each class one bucket tries the
 * algorithms whose predicted cost is within three times the least. The time counted is that from
 * leaving to landing, as it is in training: with layers that compute, polls and other buckets.
 * Then, with progress AUTO, the thread is tried: both ways give the same numbers. */

typedef struct ct_coll_tuner ct_coll_tuner;

/** *tuner_p stays NULL where nothing is to be tried: tune_iterations 0, or one rank. Collective. */
ct_status ct_coll_tuner_create(ct_grad_pipe *gp, ct_coll_tuner **tuner_p);
/** As ct_grad_policy.count. */
ct_status ct_coll_tuner_count(const ct_grad_pipe_load *load, const int64_t *dense, int n_dense,
                              int64_t *bytes_p);
void ct_coll_tuner_destroy(ct_coll_tuner *t); /* NULL allowed; before the buckets go; collective */
/** At the start of every step, before anything leaves. Collective where something is decided. */
ct_status ct_coll_tuner_step(ct_coll_tuner *t);
/** Steps after which all is decided: fewer, once it is known that nobody challenges the model. */
int ct_coll_tuner_n_step(const ct_coll_tuner *t);
/** Most that it may be, of a pipe that is yet to be tuned. */
int ct_coll_tuner_most(int tune_iterations);

/* ---- codecs: `compression { type: AUTO }`
 *
 * When the pipe is made, the cost model chooses (codec_planner.h). It knows what codecs take here
 * and how fast messages are, both measured in some ten milliseconds. It knows of nothing to hide
 * behind, unless config.line says what the step is. What would land sooner dense even then, is
 * dense for good. The first steps are watched: what computes between gradients that get ready and
 * weights that are read is the line on which rank 0 chooses again. Then the best plans, and all
 * dense, take some real steps each: the fastest on the slowest rank is taken, a codec only where it
 * is clearly faster than dense. On devices nothing is watched, since the host has long gone on when
 * they compute: plans are tried that were chosen without anything to hide behind. Where steps may
 * not decide (no tune_iterations, or where codecs absorb momentum that the solver does not share)
 * the model does. Its plan then has to be much better, and the log says that nobody has verified
 * it. Later, steps that are much longer in a few windows in a row than they were when this was
 * decided have it decided anew.
 *
 * What is tried hurts nobody. In a trial the codecs that leave something behind work on shares of
 * the solver's momentum, and travel, land and are read as ever. But no weight moves by what they
 * sum, and what they keep is forgotten. What the pipe kept before waits aside. Plans that round,
 * plain codecs, whose V waits with that, and dense ones are steps like any other. The way that was
 * decided on loses nothing. Where it has no place for what was left behind before, dense steps
 * bring that to the weights, no faster than they move them by themselves (codec_side.h). */

enum {
    CT_AUTO_PLANS = 7,                 /* that are tried; the last is dense */
    CT_AUTO_TRIED = CT_AUTO_PLANS - 1, /* plans with codecs */
    /* Dense steps until nothing is left behind, at most; the last ones send more than may go at
     * once (codec_side.h). */
    CT_AUTO_MOST_LEAVING = 512
};

typedef enum {
    CT_AUTO_MODEL, /* the model decided, and that is that   */
    CT_AUTO_LOOK,  /* … and looks at a few steps, to say what it thinks of that */
    CT_AUTO_WATCH, /* how long computation takes            */
    CT_AUTO_TRY,   /* a plan takes its steps                */
    CT_AUTO_LEAVE, /* what codecs kept is sent, before they are given up */
    CT_AUTO_FIXED
} ct_auto_phase;

typedef struct ct_auto_plan {
    int *way; /* [n_range] */
    double predicted_s, bytes;
    bool apart; /* a thread encodes and decodes */
} ct_auto_plan;

typedef struct ct_codec_tuner {
    ct_grad_pipe *gp;
    ct_coll_tuner *
        *colls_p; /* where what tunes algorithms comes to lie, once plans are decided on */
    ct_codec_candidates ways;
    ct_codec_comm_costs costs;
    double taken; /* ct_step_timeline's */
    ct_bucket_sizes sizes;
    ct_grad_range *range; /* [n_range] as the configuration has them */
    ct_codec_seconds *seconds;
    int64_t *count; /* [n_range] */
    ct_step_observer watch;
    const char *untried; /* why real steps do not decide; static; NULL: they do, or the line is
                            given */
    ct_auto_phase phase;
    int leaving; /* dense steps that are left, this one included, until nothing is left behind */
    int n_plan;
    ct_auto_plan plan[CT_AUTO_PLANS]; /* the last is dense                     */
    ct_trial trial;                   /* of them                               */
    int *way;                         /* [n_range] that the pipe goes          */
    int *home;                        /* [n_range] that it went before plans were tried */
    int next;                         /* the plan that was decided on           */
    double begun_at;
    ct_trial_drift drift;
    int held; /* the plan that was decided on; -1: none yet */
} ct_codec_tuner;

/** gp->range has what the config says; leaves in it what is chosen. *a_p NULL: nothing is to be
 *  tried. colls_p: borrowed. Collective. */
ct_status ct_codec_tuner_create(ct_grad_pipe *gp, ct_coll_tuner **colls_p, ct_codec_tuner **a_p);
void ct_codec_tuner_destroy(ct_codec_tuner *a); /* NULL allowed */
/** A step begins; may change the pipe's plan. *begins_p, *least_p: of ct_codec_step. Collective;
 *  with the lock held. */
ct_status ct_codec_tuner_step(ct_codec_tuner *a, int64_t iteration, bool *begins_p, float *least_p);
/** Plans are going to be tried: the pipe is tuned afterwards. NULL allowed. */
bool ct_codec_tuner_tries(const ct_codec_tuner *a);
/** At the end: what steps took against what was predicted, and measured dense. NULL allowed. */
void ct_codec_tuner_report(const ct_codec_tuner *a);
/** Most steps that pass until a plan is decided on. */
int ct_codec_tuner_n_step(const ct_codec_tuner *a);
/** What the pipe tells its policy. NULL allowed. */
void ct_codec_tuner_observe(ct_codec_tuner *a, ct_grad_event event, int range);

/* … and what its two files share: */

/** Rank 0 chooses on the line that was seen; NULL: on the configuration's, or an empty one. All
 *  ranks then have its plans. Collective. */
ct_status ct_codec_tuner_plan(ct_codec_tuner *a, ct_step_timeline *seen);
/** Plans may have the thread, or not: the configuration leaves it open, and there is one. */
bool ct_codec_tuner_may_thread(const ct_codec_tuner *a);
/** Where no plan is tried, the log says so. dense: all is. */
void ct_codec_tuner_say_untried(const ct_codec_tuner *a, bool dense);
/** A step begins. After a few of them rank 0 says what the model thinks of the choice beside their
 *  computation; nothing changes. */
ct_status ct_codec_tuner_look(ct_codec_tuner *a);
/** The pipe's ranges from now on go these ways; its buckets are still the old ones. */
void ct_codec_tuner_take(ct_codec_tuner *a, const int *way);
void ct_codec_tuner_log(const ct_codec_tuner *a, const ct_auto_plan *p, const char *why);

#endif
