#include "planner/memory_price.h"

#include <math.h>

const ct_memory_speeds ct_memory_speeds_assumed = { .compute = { 1e12, 1e11 },
                                                    .file_read = 2e9,
                                                    .file_write = 1e9 };

/* States of GPT-2 in files, all of it hidden, left 0.95 to 0.996 of the speed. */
#define HIDDEN_COST 0.05

double ct_memory_file_s(const ct_memory_speeds *v, double read, double written)
{
    return fmax(read / v->file_read, written / v->file_write);
}

double ct_memory_step_s(const ct_memory_step *s)
{
    const ct_net_seconds *c = &s->compute;
    double backward_s = c->backward_s + c->again_s, all_s = c->forward_s + backward_s;
    double update_in_s = s->waits ? 0 : backward_s;
    double files_s = s->update_s + s->visit_s, shown_s;

    shown_s = fmax(s->update_s - update_in_s, 0);
    /* with updates behind backward, what is hidden are visits alone */
    if (s->waits)
        shown_s += fmax(s->visit_s - all_s, 0);
    else
        shown_s = fmax(shown_s, files_s - all_s);
    shown_s += s->exposed ? s->network_s : fmax(s->network_s - all_s, 0);
    return all_s + c->update_s + shown_s + HIDDEN_COST * (files_s + s->network_s - shown_s);
}

int ct_memory_fastest(const ct_memory_way *way, int n, double limit)
{
    int best = -1;

    for (int i = 0; i < n; i++) {
        if ((limit > 0) && ((double)way[i].need > limit)) continue;
        if ((best < 0) || (way[i].seconds < way[best].seconds)) best = i;
    }
    return best;
}

int ct_memory_least(const ct_memory_way *way, int n)
{
    int best = 0;

    for (int i = 1; i < n; i++)
        if (way[i].need < way[best].need) best = i;
    return best;
}
