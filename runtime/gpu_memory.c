#include "runtime/gpu_memory.h"

#include <math.h>

#include "comm/collective/blocking.h"
#include "framework/base/log.h"
#include "framework/solver/update_rule.h"
#include "runtime/config/exchange_config.h"

/* Of a GPU's memory; the rest is the runtime's and what libraries take. */
static const double usable = 0.95;

enum { ALL_THERE, STATE_AWAY, BOTH_AWAY, N_WAY };

typedef Ct__MemoryParameter__Tier tier;
#define TIER(_name) CT__MEMORY_PARAMETER__TIER__##_name

typedef struct choice {
    const ct_gpu_memory_ask *ask;
    tier state, weights; /* as they are given */
    double limit, need[N_WAY];
    bool may[N_WAY];
} choice;

/* Where an array lies that is given as `given`, where it is away or not. */
static tier tier_of(tier given, bool away)
{
    if (given != TIER(AUTO)) return given;
    return away ? TIER(HOST) : TIER(DEVICE);
}

static bool is_away(tier t)
{
    return (t == TIER(HOST)) || (t == TIER(FILE));
}

static void take(const choice *c, int way)
{
    Ct__MemoryParameter *m = c->ask->param->memory;

    m->state = tier_of(c->state, way >= STATE_AWAY);
    m->weights = tier_of(c->weights, way == BOTH_AWAY);
    m->has_state = m->has_weights = true;
}

/* What is given; beyond that AUTO takes what is built (ct_job_memory_open()). */
static bool is_possible(const choice *c, int way)
{
    const Ct__CompressionParameter *p = c->ask->param->compression;
    bool coded = (p != NULL) && (p->type != CT__COMPRESSION_PARAMETER__TYPE__NONE);
    bool state = is_away(tier_of(c->state, way >= STATE_AWAY));
    bool weights = is_away(tier_of(c->weights, way == BOTH_AWAY));

    if (state != (way >= STATE_AWAY)) return false;
    if (weights != (way == BOTH_AWAY)) return false;
    if (state && (c->state == TIER(AUTO)) && (c->weights == TIER(AUTO)) && coded) return false;
    return !weights || (c->weights != TIER(AUTO)) || (!coded && (c->ask->comm->size == 1));
}

/* States there, or the slots through which they come; which parameter lines are of. */
static double state_bytes(const choice *c, int way, int64_t learned)
{
    const Ct__MemoryParameter *m = c->ask->param->memory;
    double all = (double)ct_update_rule_state_bytes(c->ask->param, learned);
    double one = (double)ct_update_rule_state_bytes(c->ask->param, 1) / sizeof(float);
    double chunk = ldexp((m->chunk_mb > 0) ? m->chunk_mb : 4.0, 20);
    double slots = (2.0 * ((m->prefetch > 0) ? m->prefetch : 4) + 1.0) * chunk * one;
    double lines = (double)learned / CT_UPDATE_LINE * sizeof(uint16_t);

    return lines + ((way == ALL_THERE) ? all : fmin(all, slots));
}

static ct_status plan(choice *c, int way)
{
    ct_exchange_window window;
    double bytes = 0;
    int64_t learned = 0;

    take(c, way);
    CT_TRY(c->ask->planned(
        c->ask->ctx, ct_exchange_window_open(&window, c->ask->comm, c->ask->dev, c->ask->param),
        &bytes, &learned));
    c->need[way] = bytes + state_bytes(c, way, learned);
    return CT_OK;
}

/* The first that fits; N_WAY: none. */
static ct_status find(choice *c, int64_t *way_p)
{
    *way_p = N_WAY;
    for (int way = 0; way < N_WAY; way++) {
        c->may[way] = is_possible(c, way);
        if (!c->may[way]) continue;
        CT_TRY(plan(c, way));
        if (c->need[way] > c->limit) continue;
        *way_p = way;
        return CT_OK;
    }
    return CT_OK;
}

static ct_status too_small(const choice *c)
{
    const double mib = ldexp(1, 20);
    double least = INFINITY;

    for (int way = 0; way < N_WAY; way++)
        if (c->may[way]) least = fmin(least, c->need[way]);
    if (!isfinite(least))
        return CT_FAIL(CT_ERR_CONFIG,
                       "memory { state: DEVICE }: the host updates weights that lie with it, so "
                       "their states do, too: take state: HOST or FILE");
    return CT_FAIL(CT_ERR_CONFIG,
                   "gpu_limit_mb: %.6g: the least is %.0f MiB; take smaller batches with "
                   "iter_size, recompute: BLOCKS%s",
                   c->limit / mib, ceil(least / mib),
                   c->may[BOTH_AWAY] ? "" : ", or leave state and weights to AUTO");
}

static void tell(const choice *c, int64_t way)
{
    const double mib = ldexp(1, 20);
    bool given = (c->ask->param->memory->gpu_limit_mb > 0);
    int before = (way == BOTH_AWAY) && c->may[STATE_AWAY] ? STATE_AWAY : ALL_THERE;

    if ((way == ALL_THERE) || !c->may[before]) return;
    CT_INFO("memory: AUTO takes %s: HOST, since %.1f MiB of the device would be needed, where "
            "there are %.1f (%s); %.1f are planned",
            (way == BOTH_AWAY) ? "weights and state" : "state", c->need[before] / mib,
            c->limit / mib, given ? "gpu_limit_mb" : "0.95 of its memory", c->need[way] / mib);
}

ct_status ct_gpu_memory_choose(const ct_gpu_memory_ask *ask)
{
    Ct__MemoryParameter *m = ask->param->memory;
    choice c = { .ask = ask };
    int64_t way = ALL_THERE;
    ct_status status;

    if ((m == NULL) || (ask->dev->kind == CT_DEVICE_CPU)) return CT_OK;
    c.state = m->state;
    c.weights = m->weights;
    c.limit = (m->gpu_limit_mb > 0) ? ldexp(m->gpu_limit_mb, 20) : usable * ask->capacity;
    status = find(&c, &way);
    if (status != CT_OK) way = N_WAY;
    CT_TRY(ct_comm_max(ask->comm, &way, 1)); /* ranks have other batches, and other GPUs */
    CT_TRY(status);
    if (way == N_WAY) return too_small(&c);
    take(&c, (int)way);
    if (!(c.need[way] > 0)) CT_TRY(plan(&c, (int)way)); /* another rank's choice */
    tell(&c, way);
    return CT_OK;
}
