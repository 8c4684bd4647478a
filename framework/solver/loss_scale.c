#include "framework/solver/loss_scale.h"

#include <inttypes.h>

#include "framework/base/status.h"

#define MOST  0x1p24f /* beyond, f32 sums of gradients are in danger, and nothing is gained */
#define LEAST 0x1p-14f

ct_loss_scale ct_loss_scale_open(const Ct__SolverParameter *p)
{
    bool on = (p->precision == CT__SOLVER_PARAMETER__PRECISION__FP16);

    return (ct_loss_scale){ .on = on,
                            .scale = on ? p->loss_scale : 1.0f,
                            .window = p->loss_scale_window };
}

bool ct_loss_scale_step(ct_loss_scale *s, int64_t iteration, bool finite)
{
    if (!s->on) return true;
    if (!finite) {
        s->good = 0;
        if (s->scale > LEAST) s->scale *= 0.5f;
        CT_INFO("iteration %" PRId64 ": gradients are not finite, no weight changes; loss scale %g",
                iteration, (double)s->scale);
        return false;
    }
    if ((++s->good >= s->window) && (s->window > 0)) {
        s->good = 0;
        if (s->scale < MOST) s->scale *= 2.0f;
    }
    return true;
}
