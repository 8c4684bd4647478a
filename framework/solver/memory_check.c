/* What `memory { }` and snapshot_async may say. */
#include <math.h>

#include "framework/solver/solver_private.h"

static ct_status check_size(const ct_solver_text *t, const double *field, const char *name)
{
    if (isfinite(*field) && (*field >= 0)) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG, "%s: memory.%s is %g, needs at least 0",
                   ct_source_map_where(t->map, t->p->memory, field, "solver").text, name, *field);
}

/* What lies in files has forms of its own. */
static ct_status check_verify(const ct_solver_text *t)
{
    const Ct__MemoryParameter *m = t->p->memory;
    bool weights = (m->weights == CT__MEMORY_PARAMETER__TIER__FILE);

    if (!t->p->verify_memory || (!weights && (m->state != CT__MEMORY_PARAMETER__TIER__FILE)))
        return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG,
                   "%s: verify_memory and memory { %s: FILE } do not go together: take memory { "
                   "checksum: true }",
                   CT_SOLVER_AT(t, verify_memory), weights ? "weights" : "state");
}

ct_status ct_memory_check(const ct_solver_text *t)
{
    const Ct__MemoryParameter *m = t->p->memory;

    if (m == NULL) return CT_OK;
    if ((m->zero < 0) || (m->zero > 3))
        return CT_FAIL(CT_ERR_CONFIG, "%s: memory.zero is %d, needs 0 to 3",
                       CT_SOLVER_AT(t, memory->zero), m->zero);
    if (m->prefetch < 0)
        return CT_FAIL(CT_ERR_CONFIG, "%s: memory.prefetch is %d, needs at least 0",
                       CT_SOLVER_AT(t, memory->prefetch), m->prefetch);
    CT_TRY(check_size(t, &m->limit_mb, "limit_mb"));
    CT_TRY(check_size(t, &m->gpu_limit_mb, "gpu_limit_mb"));
    CT_TRY(check_size(t, &m->chunk_mb, "chunk_mb"));
    return check_verify(t);
}
