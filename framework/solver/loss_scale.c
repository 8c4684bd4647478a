#include "framework/solver/loss_scale.h"

#include <inttypes.h>

#include "framework/base/status.h"

ct_loss_scale ct_loss_scale_open(const Ct__SolverParameter *p)
{
    bool on = (p->precision == CT__SOLVER_PARAMETER__PRECISION__FP16);

    return (ct_loss_scale){ .on = on,
                            .scale = on ? p->loss_scale : 1.0f,
                            .window = p->loss_scale_window };
}

bool ct_loss_scale_step(ct_loss_scale *s, int64_t iteration, bool finite)
{
    bool passes = ct_loss_scale_next(s, finite);

    if (!passes)
        CT_INFO("iteration %" PRId64 ": gradients are not finite, no weight changes; loss scale %g",
                iteration, (double)s->scale);
    return passes;
}
