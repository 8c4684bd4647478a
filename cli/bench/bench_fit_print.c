/* A fit as a table. */
#include "cli/bench/bench_fit.h"

/* Above it latency and bandwidth say nothing: protocols and caches make 0.1 to 0.6. */
static const double wild = 1.5;

static void print_level(const ct_fit_report *r, int level)
{
    const ct_level *l = &r->machine.level[level];

    printf("%-12s", l->name);
    if (!r->measured[level]) {
        printf("  no two ranks meet here: guessed, %.3g us, %.4g GB/s\n", 1e6 * l->latency_s,
               1e-9 * l->bandwidth);
        return;
    }
    printf("  %4d %4d  %10.3f  %10.3f", r->pair[level][0], r->pair[level][1], 1e6 * l->latency_s,
           1e-9 * l->bandwidth);
    if (l->uplink > 0)
        printf("  %10.3f", 1e-9 * l->uplink);
    else
        printf("  %10s", "-");
    if (l->bus > 0)
        printf("  %10.3f", 1e-9 * l->bus);
    else
        printf("  %10s", "-");
    printf("  %6d  %6.1f\n", r->n_pair[level], 100 * l->residual);
}

void ct_bench_fit_print(const ct_comm *c, const ct_fit_report *report)
{
    const ct_shared_memory *s = &report->machine.shared;
    const ct_codec_speed *k = &report->machine.coding;

    if (c->rank != 0) return;
    printf(
        "%d ranks on %d nodes (%s); GB/s: 10^9 bytes a second, per direction\n\n"
        "level         between  latency us   bandwidth      uplink         bus   pairs  error %%\n",
        c->size, c->topo->n_node, c->topo->source);
    for (int l = 0; l < report->machine.n_level; ++l) print_level(report, l);
    printf("\nadding f32, all ranks at once: %.3f GB/s a rank\n",
           1e-9 * report->machine.sum_bandwidth);
    printf("codecs: streams %.3f GB/s; an element: update %.3f ns, selection %.3f more; an entry: "
           "packed %.3f ns, added %.3f, merged %.3f\n",
           1e-9 * k->memory, 1e9 * k->update_s, 1e9 * k->select_s, 1e9 * k->pack_s, 1e9 * k->add_s,
           1e9 * k->merge_s);
    printf("        an element: signs %.3f ns more than the update, added %.3f; factors %.3f more, "
           "and %.3f a column\n",
           1e9 * k->sign_s, 1e9 * k->unsign_s, 1e9 * k->factor_s, 1e9 * k->column_s);
    if (s->bandwidth > 0)
        printf("sums in shared memory: %.3f us twice, %.3f GB/s a rank to %.3f MB, %.3f beyond, "
               "error %.1f %%\n",
               1e6 * s->latency_s, 1e-9 * s->cached_bandwidth, 1e-6 * s->cached,
               1e-9 * s->bandwidth, 100 * s->residual);
    printf("error: of sizes that were not fitted\n");
    fflush(stdout);
    for (int l = 0; l < report->machine.n_level; ++l) {
        if (report->measured[l] && (report->machine.level[l].residual > wild))
            CT_WARN("fit: the times of level \"%s\" follow no line (error %.0f %%): measure again "
                    "when the machine is idle, with a core for each rank",
                    report->machine.level[l].name, 100 * report->machine.level[l].residual);
    }
}
