#include "layers/engine/engine.h"

#include "framework/base/memory.h"

#include <omp.h>

static const char *const kind_name[] = { "forward", "backward_data", "backward_weight" };

const char *ct_engine_policy(const ct_layer *l, ct_run_kind kind)
{
    const Ct__KernelParameter *p = l->param->ct_kernel;

    if (p == NULL) return "auto";
    if (kind == CT_RUN_FORWARD) return p->forward;
    return (kind == CT_RUN_BACKWARD_DATA) ? p->backward_data : p->backward_weight;
}

bool ct_engine_is_auto(const Ct__KernelParameter *k)
{
    return (k == NULL) ||
           ((strcmp(k->forward, "auto") == 0) && (strcmp(k->backward_data, "auto") == 0) &&
            (strcmp(k->backward_weight, "auto") == 0));
}

int ct_engine_n_thread(const ct_layer *l)
{
    return (l->dev->kind == CT_DEVICE_CPU) ? omp_get_max_threads() : 1;
}

ct_operand ct_engine_operand(const ct_layer *l)
{
    switch ((l->env != NULL) ? l->env->precision : CT__SOLVER_PARAMETER__PRECISION__F32) {
    case CT__SOLVER_PARAMETER__PRECISION__BF16:
        return CT_OPERAND_BF16;
    case CT__SOLVER_PARAMETER__PRECISION__FP16:
        return CT_OPERAND_F16;
    case CT__SOLVER_PARAMETER__PRECISION__TF32:
        return CT_OPERAND_TF32;
    default:
        return CT_OPERAND_F32;
    }
}

bool ct_engine_bf16(const ct_layer *l)
{
    return ct_engine_operand(l) == CT_OPERAND_BF16;
}

#define NAMES(_name)                                                                               \
    {                                                                                              \
        _name, _name "-tf32", _name "-bf16", _name "-f16"                                          \
    }

const char *ct_engine_name(const char *name, ct_operand operand)
{
    static const char *const all[][4] = { NAMES("packed"),  NAMES("gemm"),     NAMES("fold"),
                                          NAMES("blocked"), NAMES("winograd"), NAMES("blas"),
                                          NAMES("cuda"),    NAMES("cudnn"),    NAMES("lt") };

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (strcmp(all[i][0], name) == 0) return all[i][operand];
    }
    return name;
}

void ct_engine_list(char *text, size_t size, const char *name)
{
    size_t used = strlen(text);

    if (used + strlen(name) + 3 > size) return;
    strcat(strcat(text, (used > 0) ? ", " : ""), name);
}

ct_status ct_engine_check_rows(const ct_layer *l, const char *policy)
{
    if ((l->dev->kind != CT_DEVICE_CPU) || !l->env->rows_vary || !l->env->deterministic ||
        (strcmp(policy, "blas") != 0))
        return CT_OK;
    return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                         "engine \"blas\": its sums hang on how many rows run together, and the "
                         "run is deterministic: take \"packed\" or \"ref\"");
}

ct_status ct_engine_refuse(const ct_layer *l, ct_run_kind kind, const char *policy,
                           const char *names)
{
    return CT_LAYER_FAIL(
        l, CT_ERR_CONFIG, "ct_kernel.%s: \"%s\" cannot run this layer on device %s; there are: %s",
        kind_name[kind], policy, l->dev->name, (names[0] != '\0') ? names : "none");
}

/* ---- choices by timing */

ct_engine_plan *ct_engine_plan_of(const ct_layer *l)
{
    return (l->env != NULL) ? l->env->plan : NULL;
}

void ct_engine_offer_add(ct_engine_offer *o, const char *name, int index, bool fixed)
{
    if (fixed && (o->n == CT_ENGINE_PLAN_ENGINES)) o->n--; /* the static rule's is always offered */
    if (o->n == CT_ENGINE_PLAN_ENGINES) return;
    if (fixed) o->fixed = o->n;
    o->name[o->n] = name;
    o->index[o->n++] = index;
}

/* Ranks of unlike processors, or whose batches differ by a sample, may have unlike engines. */
static ct_status agree(const ct_layer *l, const char *key, ct_engine_offer *o)
{
    bool all[CT_ENGINE_PLAN_ENGINES] = { false };
    int n = 0, fixed = 0;

    CT_TRY(ct_engine_plan_agree(l->env->plan, o->name, o->n, all));
    for (int i = 0; i < o->n; i++) {
        if (!all[i]) continue;
        if (i == o->fixed) fixed = n;
        o->name[n] = o->name[i];
        o->index[n++] = o->index[i];
    }
    o->n = n;
    o->fixed = fixed;
    if (n > 0) return CT_OK;
    if (o->optional) return CT_UNSUPPORTED;
    return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                         "plan: the ranks' processors have no engine in common for \"%s\": run "
                         "without --plan",
                         key);
}

ct_status ct_engine_ask(const ct_layer *l, const char *key, ct_engine_offer *o,
                        ct_status (*prepare)(void *ctx), ct_status (*run)(void *ctx, int i),
                        void *ctx, int *index_p)
{
    ct_engine_plan_ask a = {
        .layer = l->name, .key = key, .dev = l->dev, .prepare = prepare, .run = run, .ctx = ctx
    };
    int choice = 0;

    CT_TRY(agree(l, key, o));
    a.n = o->n;
    a.fixed = o->fixed;
    for (int i = 0; i < o->n; i++) a.name[i] = o->name[i];
    CT_TRY(ct_engine_plan_choose(l->env->plan, &a, &choice));
    *index_p = o->index[choice];
    return CT_OK;
}

float *ct_engine_scratch(void *block, size_t *bytes_p, int64_t n, bool fill)
{
    float *v = (block != NULL) ? (float *)((char *)block + *bytes_p) : NULL;

    *bytes_p += ct_align_up((size_t)n * sizeof(float));
    if ((v == NULL) || !fill) return v;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++) /* any numbers, none of them tiny */
        v[i] = (float)((int32_t)((uint32_t)i * 2654435761u) | 0x10000) * 0x1p-31f;
    return v;
}
