/* The loss as it is shown: the mean of the last average_loss iterations. It is linear, so every
 * rank keeps its own share and only what is shown is summed. */
#include "framework/solver/solver_private.h"

void ct_solver_note_loss(ct_solver *s, double share)
{
    int length = s->param->average_loss;

    s->loss_window[s->next_loss] = share;
    if (s->n_loss < length) s->n_loss++;
    s->next_loss = (s->next_loss + 1) % length;
}

double ct_solver_smoothed_loss(const ct_solver *s)
{
    double sum = 0.0;

    for (int i = 0; i < s->n_loss; i++) sum += s->loss_window[i];
    return (s->n_loss > 0) ? sum / s->n_loss : 0.0;
}
