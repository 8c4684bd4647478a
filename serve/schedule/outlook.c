#include "serve/schedule/outlook.h"

#include <math.h>

static double alone_s(const ct_outlook *o, double made)
{
    return o->own_s + (made - 1) * o->own_step_s;
}

static double others_s(const ct_outlook *o, double made)
{
    return o->wait_s + (made - 1) * o->step_s;
}

double ct_outlook_most_s(const ct_outlook *o, const ct_lateness *l, double made)
{
    return alone_s(o, made) + ct_lateness_factor(l) * others_s(o, made);
}

/* What waits longer than twice what is expected, and a batch, counts as that: a pause of the
 * machine is no reason to refuse others for long. */
void ct_lateness_note(ct_lateness *l, const ct_outlook *o, double made, double took_s,
                      double unit_s)
{
    const double share = 1.0 / 64;
    double expected = others_s(o, made), added = fmax(took_s - alone_s(o, made), 0);
    double mean = (l->expected_s > 0) ? l->added_s / l->expected_s : 1;

    added = fmin(added, 2 * expected + unit_s) + unit_s;
    expected += unit_s;
    l->expected_s += share * (expected - l->expected_s);
    l->added_s += share * (added - l->added_s);
    l->deviation_s += share * (fabs(added - mean * expected) - l->deviation_s);
}

double ct_lateness_factor(const ct_lateness *l)
{
    if (!(l->expected_s > 0)) return 1;
    return fmax(1, (l->added_s + 4 * l->deviation_s) / l->expected_s);
}
