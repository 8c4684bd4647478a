#include "layers/engine/engine.h"

#include <omp.h>

static const char *const kind_name[] = { "forward", "backward_data", "backward_weight" };

const char *ct_engine_policy(const ct_layer *l, ct_run_kind kind)
{
    const Ct__KernelParameter *p = l->param->ct_kernel;

    if (p == NULL) return "auto";
    if (kind == CT_RUN_FORWARD) return p->forward;
    return (kind == CT_RUN_BACKWARD_DATA) ? p->backward_data : p->backward_weight;
}

int ct_engine_n_thread(const ct_layer *l)
{
    return (l->dev->kind == CT_DEVICE_CPU) ? omp_get_max_threads() : 1;
}

void ct_engine_list(char *text, size_t size, const char *name)
{
    size_t used = strlen(text);

    if (used + strlen(name) + 3 > size) return;
    strcat(strcat(text, (used > 0) ? ", " : ""), name);
}

ct_status ct_engine_refuse(const ct_layer *l, ct_run_kind kind, const char *policy,
                           const char *names)
{
    return CT_LAYER_FAIL(
        l, CT_ERR_CONFIG, "ct_kernel.%s: \"%s\" cannot run this layer on device %s; there are: %s",
        kind_name[kind], policy, l->dev->name, (names[0] != '\0') ? names : "none");
}
