/* lr_policy "plateau", as Intel's Caffe defines it: an event is a new least loss or a step; when
 * there was none for plateau_winsize[step] iterations, the rate takes the next step down. The loss
 * is the shown one, the mean of the last average_loss iterations, over the global batch.
 *
 * The rate must be known before the first gradients leave, so the loss of an iteration counts from
 * the next one on, where Intel's counts it at once. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "framework/solver/solver_private.h"

bool ct_plateau_is(const Ct__SolverParameter *p)
{
    return (p->lr_policy != NULL) && (strcmp(p->lr_policy, "plateau") == 0);
}

void ct_plateau_note(const Ct__SolverParameter *p, int64_t iteration, double loss,
                     ct_plateau *state)
{
    int64_t step = state->step;

    if (!state->begun || (loss < state->least)) {
        state->begun = true;
        state->least = loss;
        state->event = iteration;
    }
    if ((step >= (int64_t)p->n_plateau_winsize) ||
        (iteration < state->event + p->plateau_winsize[step]))
        return;
    state->step = step + 1;
    state->event = iteration;
    CT_INFO("Plateau Status: Iteration %" PRId64 ", step = %" PRId64 ", minimum loss %g", iteration,
            state->step, state->least);
}

double ct_plateau_factor(const Ct__SolverParameter *p, const ct_plateau *state)
{
    return pow((double)p->gamma, (double)state->step);
}
