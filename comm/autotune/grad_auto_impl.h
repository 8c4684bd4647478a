/** @file grad_auto_impl.h  What the parts of AUTO share. Private to grad_auto*.c. */
#ifndef CT_GRAD_AUTO_IMPL_H
#define CT_GRAD_AUTO_IMPL_H

#include "comm/autotune/auto_rule.h"
#include "comm/autotune/codec_planner.h"
#include "comm/codec/codec_types.h"
#include "comm/autotune/grad_auto.h"
#include "comm/autotune/step_observer.h"

/* Dense steps until nothing is left behind, at most; the last ones send more than may go at once
 * (codec_side.h). */
enum { CT_AUTO_MOST_LEAVING = 512 };
enum { CT_AUTO_TRIED = CT_AUTO_PLANS - 1 /* plans with codecs */ };

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
} ct_auto_plan;

struct ct_grad_auto {
    ct_grad_pipe *gp;
    ct_grad_tune **tune_p; /* borrowed: grad_auto.h */
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
    ct_auto_trials trials;            /* of them                               */
    int *way;                         /* [n_range] that the pipe goes          */
    int *home;                        /* [n_range] that it went before plans were tried */
    int next;                         /* the plan that was decided on           */
    int skip;
    double begun_at;
    ct_auto_drift drift;
    int held; /* the plan that was decided on; -1: none yet */
};

/** Rank 0 chooses on the line that was seen; NULL: on the configuration's, or an empty one. All
 *  ranks then have its plans. Collective. */
ct_status ct_grad_auto_plan(ct_grad_auto *a, ct_step_timeline *seen);
/** A choice between a's ways on this line, whose lists are there; both are borrowed. */
void ct_grad_auto_frame(const ct_grad_auto *a, ct_step_timeline *line, ct_codec_planner *c);
/** NULL: real steps decide, or the model, which is told what a step is. */
const char *ct_grad_auto_why_untried(const ct_grad_pipe_config *config);
/** dense: all is. */
void ct_grad_auto_say_untried(const ct_grad_auto *a, bool dense);
/** A step begins. After a few of them rank 0 says what the model thinks of the choice beside their
 *  computation; nothing changes. */
ct_status ct_grad_auto_look(ct_grad_auto *a);
/** The pipe's ranges from now on go these ways; its buckets are still the old ones. */
void ct_grad_auto_take(ct_grad_auto *a, const int *way);
void ct_grad_auto_log(const ct_grad_auto *a, const ct_auto_plan *p, const char *why);

#endif
