/** @file grad_auto_impl.h  What the parts of AUTO share. Private to grad_auto*.c. */
#ifndef CT_GRAD_AUTO_IMPL_H
#define CT_GRAD_AUTO_IMPL_H

#include "comm/auto_rule.h"
#include "comm/choose.h"
#include "comm/coded_cost.h"
#include "comm/grad_auto.h"
#include "comm/watch.h"

/* What was not sent goes in as many dense steps as there were without them, an equal part in each:
 * so much a step as momentum would have made of it. No fewer, and no more, than these. */
enum { CT_AUTO_LEAST_FOLDS = 6, CT_AUTO_MOST_FOLDS = 24 };
enum { CT_AUTO_TRIED = CT_AUTO_PLANS - 1 /* plans with codecs */ };

typedef enum {
    CT_AUTO_MODEL, /* the model decided, and that is that   */
    CT_AUTO_WATCH, /* how long computation takes            */
    CT_AUTO_TRY,   /* a plan takes its steps                */
    CT_AUTO_FOLD,  /* the step that is over was dense: now to a plan that keeps nothing */
    CT_AUTO_FIXED
} ct_auto_phase;

typedef struct ct_auto_plan {
    int *way; /* [n_range] */
    double predicted_s, bytes;
} ct_auto_plan;

struct ct_grad_auto {
    ct_grad_pipe *gp;
    ct_choose_ways ways;
    ct_coded_comm_costs costs;
    double taken; /* ct_line's */
    ct_grad_sizes sizes;
    ct_grad_range *range; /* [n_range] as the configuration has them */
    ct_coded_seconds *seconds;
    int64_t *count; /* [n_range] */
    ct_watch watch;
    ct_auto_phase phase;
    int64_t unsent; /* steps, since everything was sent, of plans that keep something */
    int fold;       /* dense steps that are left, this one included, until everything is sent */
    int n_plan;
    ct_auto_plan plan[CT_AUTO_PLANS]; /* the last is dense                     */
    ct_auto_trials trials;            /* of them                               */
    int *way;                         /* [n_range] that the pipe goes          */
    int next;                         /* plan to go to                          */
    bool decided;                     /* … for good                             */
    int skip;
    double begun_at;
    ct_auto_drift drift;
    int held; /* the plan that was decided on; -1: none yet */
};

/** Rank 0 chooses on the line that was seen; NULL: on the configuration's, or an empty one. All
 *  ranks then have its plans. Collective. */
ct_status ct_grad_auto_plan(ct_grad_auto *a, ct_line *seen);
/** The pipe's ranges from now on have the plan's codecs; its buckets are still the old ones. */
void ct_grad_auto_take(ct_grad_auto *a, const ct_auto_plan *p);
void ct_grad_auto_log(const ct_grad_auto *a, const ct_auto_plan *p, const char *why);

#endif
