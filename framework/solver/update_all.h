/** @file update_all.h  Updates of many parameters in one pass over the arenas, where a device
 * launches a pass at a price. Private to framework/solver.
 *
 * The numbers that change from step to step lie on the device (framework/math/step_there.h), and
 * whatever depends on norms is decided there: an update gives the device the same each time, and
 * waits for nothing.
 */
#ifndef CT_UPDATE_ALL_H
#define CT_UPDATE_ALL_H

#include "framework/math/step_there.h"
#include "framework/net/net.h"

typedef struct ct_update_plan {
    const ct_step_there_ops *ops; /* NULL: nothing of this; one parameter after the other */
    ct_step_there *at;            /* the net's */
    /* on the device: which parameter a line of the arena is of, and a trust ratio a parameter */
    void *part, *part_of_line, *trust;
    ct_update_ratio ratio; /* what it is of */
    bool has_loss;         /* at->loss is the host's */

    /* norms on their way to the host, in turn */
    struct {
        double *here;
        void *ticket; /* NULL: there is none */
        int64_t iteration;
    } told[2];
    int turn;
} ct_update_plan;

/** What a norm says, on the host. */
typedef void (*ct_norm_fn)(void *ctx, int64_t iteration, double norm);

/** Empty where the device sees no use in it. */
ct_status ct_update_plan_open(const ct_net *net, ct_update_ratio ratio, ct_update_plan *p);
void ct_update_plan_close(const ct_net *net, ct_update_plan *p);
/** Whether updates, and what depends on norms, are the device's affair. */
static inline bool ct_update_plan_is_open(const ct_update_plan *p)
{
    return p->ops != NULL;
}
/** A step's numbers; loss: the host's account of it, which goes up once. */
ct_status ct_update_plan_begin(const ct_net *net, ct_update_plan *p, ct_stream st,
                               const ct_step_numbers *now, const ct_loss_scale *loss);
/** The elements [from, to) of the arena in which parameters [first, first + n) lie, whole lines. */
void ct_update_plan_range(const ct_net *net, int first, int n, int64_t *from_p, int64_t *to_p);
/** The trust ratios of parameters [first, first + n), where the rule has any: before they are
 *  updated. u: of the whole arenas; see ct_update_all. local: LARS's factor. */
ct_status ct_update_plan_trust(const ct_net *net, const ct_update_plan *p, ct_stream st,
                               const ct_update *u, double local, int first, int n);
/** Elements [from, to) of the arena, whole lines of parameters that learn. average: NULL, or
 *  theirs, which follows. */
ct_status ct_update_plan_run(const ct_net *net, const ct_update_plan *p, ct_stream st, int kind,
                             const ct_update *u, float *average, int64_t from, int64_t to);
/** The norm that ct_step_there_ops.decide has found goes to the host, beside what follows. */
ct_status ct_update_plan_tell(const ct_net *net, ct_update_plan *p, ct_stream st,
                              int64_t iteration);
/** Calls hear for the norms that are there, in their order; all: waits for those under way. */
ct_status ct_update_plan_hear(const ct_net *net, ct_update_plan *p, bool all, ct_norm_fn hear,
                              void *ctx);

#endif
