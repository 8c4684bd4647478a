#include "planner/memory_tiers.h"

#include <inttypes.h>
#include <math.h>

static const char *const tier_name[CT_N_TIER] = { "device", "host", "file" };
static const char *const use_name[CT_N_USE] = { "weights",      "gradients",   "states",
                                                "window",       "activations", "logits",
                                                "communication" };

const char *ct_tier_name(ct_tier tier)
{
    return tier_name[tier];
}

const char *ct_memory_use_name(ct_memory_use use)
{
    return use_name[use];
}

int64_t ct_memory_tier_sum(const ct_memory_tiers *t, ct_tier tier)
{
    int64_t sum = (tier == CT_TIER_HOST) ? t->runtime : 0;

    for (int u = 0; u < CT_N_USE; u++) sum += t->bytes[tier][u];
    return sum;
}

bool ct_memory_tier_used(const ct_memory_tiers *t, ct_tier tier)
{
    return ct_memory_tier_sum(t, tier) > 0;
}

void ct_memory_tiers_json(const ct_memory_tiers *t, ct_text *out)
{
    bool first = true;

    ct_text_add(out, "\"tiers\":[");
    for (int k = 0; k < CT_N_TIER; k++) {
        if (!ct_memory_tier_used(t, k)) continue;
        ct_text_add(out, "%s{\"tier\":\"%s\"", first ? "" : ",", tier_name[k]);
        for (int u = 0; u < CT_N_USE; u++)
            ct_text_add(out, ",\"%s\":%" PRId64, use_name[u], t->bytes[k][u]);
        if ((k == CT_TIER_HOST) && (t->runtime > 0))
            ct_text_add(out, ",\"runtime\":%" PRId64, t->runtime);
        ct_text_add(out, ",\"sum\":%" PRId64 ",\"limit\":%" PRId64 "}", ct_memory_tier_sum(t, k),
                    t->limit[k]);
        first = false;
    }
    ct_text_add(out, "],\"chunk_loads\":%" PRId64, t->chunk_loads);
}

static void print_mib(int width, int64_t bytes, FILE *to)
{
    if (bytes == 0)
        fprintf(to, " %*s", width, "-");
    else
        fprintf(to, " %*.1f", width, ldexp((double)bytes, -20));
}

void ct_memory_tiers_print(const ct_memory_tiers *t, FILE *to)
{
    const int width = 9;

    fprintf(to, "%-7s %*s %*s %*s %*s %*s %*s %*s", "MiB", width, "weights", width, "gradients",
            width, "states", width, "window", width, "activat.", width, "logits", width,
            "communic.");
    if (t->runtime > 0) fprintf(to, " %*s", width, "runtime");
    fprintf(to, " %*s %*s\n", width, "sum", width, "limit");
    for (int k = 0; k < CT_N_TIER; k++) {
        if (!ct_memory_tier_used(t, k)) continue;
        fprintf(to, "%-7s", tier_name[k]);
        for (int u = 0; u < CT_N_USE; u++) print_mib(width, t->bytes[k][u], to);
        if (t->runtime > 0) print_mib(width, (k == CT_TIER_HOST) ? t->runtime : 0, to);
        print_mib(width, ct_memory_tier_sum(t, k), to);
        print_mib(width, t->limit[k], to);
        fprintf(to, "\n");
    }
}
