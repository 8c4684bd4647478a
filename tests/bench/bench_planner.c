/* How long the planner's solvers take: bench_planner [SEEDS]. Chains of 300 blocks with 3
 * strategies and 256 slots, and pipelines of 200 layers on 16 stages, of several kinds each. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "framework/base/clock.h"
#include "framework/base/rng.h"
#include "planner/chain.h"
#include "planner/partition.h"

enum { BLOCKS = 300, STRATEGIES = 3, SLOTS = 256, STAGES = 16, LAYERS = 200 };
enum { WAYS = BLOCKS * STRATEGIES, TIMES = STAGES * LAYERS };

typedef struct source {
    uint64_t key, drawn;
} source;

static double draw(source *s)
{
    return (double)ct_rng_uniform(ct_rng_philox(s->key, 0, s->drawn++).v[0]);
}

static int64_t whole(source *s, int most)
{
    return (int64_t)(draw(s) * (most + 1));
}

static void tell(const char *what, const double *seconds, int n)
{
    double least = INFINITY, most = 0, sum = 0;

    for (int i = 0; i < n; i++) {
        least = fmin(least, seconds[i]);
        most = fmax(most, seconds[i]);
        sum += seconds[i];
    }
    printf("%-58s %8.3f %8.3f %8.3f\n", what, least, sum / n, most);
    fflush(stdout);
}

/* ---- chains */

typedef struct chain_kind {
    const char *what;
    int in_flight, weight, kept, input; /* the largest sizes, in slots */
    bool alike;                         /* every block is as the first */
} chain_kind;

static const chain_kind chain_kinds[] = {
    { "few slots a block", 1, 0, 3, 1, false },
    { "weights of 0 or 1 slot", 1, 1, 3, 1, false },
    { "values of 0 or 1 slot", 2, 0, 1, 1, false },
    { "inputs of no slot", 1, 0, 2, 0, false },
    { "4 in flight", 4, 0, 4, 2, false },
    { "large values, 2 in flight", 2, 0, 8, 3, false },
    { "weights of up to 2 slots", 1, 2, 8, 3, false },
    { "very large values", 1, 0, 20, 2, false },
    { "inputs as large as values", 1, 0, 20, 20, false },
    { "all blocks alike", 1, 0, 3, 1, true },
    { "all blocks alike, large values", 1, 0, 9, 2, true },
    { "all blocks alike, 8 in flight", 8, 0, 5, 0, true },
};

static double time_chain(const chain_kind *k, uint64_t seed)
{
    static double time_s[WAYS], again_s[WAYS], reshard_s[WAYS * STRATEGIES];
    static int64_t weight[WAYS], kept[WAYS], input[WAYS];
    static int strategy[BLOCKS];
    static ct_chain_mode mode[BLOCKS];
    ct_chain c = { .n_block = BLOCKS,
                   .n_strategy = STRATEGIES,
                   .limit = SLOTS - 1,
                   .in_flight = k->in_flight,
                   .time_s = time_s,
                   .again_s = again_s,
                   .weight = weight,
                   .kept = kept,
                   .input = input,
                   .reshard_s = reshard_s };
    source s = { .key = seed };
    double start, step_s;

    for (int i = 0; i < WAYS; i++) {
        int from = (k->alike && (i >= STRATEGIES)) ? i - STRATEGIES : -1;

        time_s[i] = (from >= 0) ? time_s[from] : draw(&s);
        again_s[i] = (from >= 0) ? again_s[from] : draw(&s) / 3;
        weight[i] = (from >= 0) ? weight[from] : whole(&s, k->weight);
        kept[i] = (from >= 0) ? kept[from] : whole(&s, k->kept);
        input[i] = (from >= 0) ? input[from] : whole(&s, k->input);
    }
    for (int i = 0; i < WAYS * STRATEGIES; i++) reshard_s[i] = 0.3 * draw(&s);
    start = ct_clock_s();
    if (ct_chain_solve(&c, strategy, mode, &step_s) != CT_OK) exit(1);
    return ct_clock_s() - start;
}

/* ---- pipelines */

typedef struct line_kind {
    const char *what;
    int micro_batches;
    double cut, data; /* the largest, where a layer takes up to 1 */
    bool unlike;      /* stages differ by up to three times */
} line_kind;

static const line_kind line_kinds[] = {
    { "small cuts, little data", 16, 0.02, 0.05, false },
    { "cuts as layers", 16, 1, 1, false },
    { "large cuts, much data", 16, 5, 20, false },
    { "unlike stages, small cuts, little data", 16, 0.02, 0.05, true },
    { "unlike stages, cuts as layers", 16, 1, 1, true },
    { "unlike stages, 128 micro-batches", 128, 0.5, 1, true },
    { "unlike stages, 2 micro-batches", 2, 0.02, 1, true },
    { "unlike stages, 1 micro-batch", 1, 0.02, 1, true },
};

static double time_line(const line_kind *k, uint64_t seed)
{
    static double time_s[TIMES], cut_s[TIMES], data_s[TIMES];
    static int layers[STAGES];
    ct_partition p = { .n_stage = STAGES,
                       .n_layer = LAYERS,
                       .micro_batches = k->micro_batches,
                       .time_s = time_s,
                       .cut_s = cut_s,
                       .data_s = data_s };
    source s = { .key = seed };
    double start, step_s;

    for (int i = 0; i < LAYERS; i++) {
        time_s[i] = draw(&s);
        cut_s[i] = k->cut * draw(&s);
        data_s[i] = k->data * draw(&s);
    }
    for (int i = LAYERS, l = 0; i < TIMES; i += LAYERS) {
        double speed = k->unlike ? 0.5 + draw(&s) : 1;

        for (l = 0; l < LAYERS; l++) {
            time_s[i + l] = time_s[l] * speed;
            cut_s[i + l] = cut_s[l] * (k->unlike ? speed : 1);
            data_s[i + l] = data_s[l] * speed;
        }
    }
    start = ct_clock_s();
    if (ct_partition_solve(&p, layers, &step_s) != CT_OK) exit(1);
    return ct_clock_s() - start;
}

int main(int argc, char **argv)
{
    enum { MOST_SEEDS = 1000 };
    static double seconds[MOST_SEEDS];
    int n = (argc > 1) ? atoi(argv[1]) : 5;

    n = (n < 1) ? 1 : (n > MOST_SEEDS) ? MOST_SEEDS : n;
    printf("%-58s %8s %8s %8s\n", "seconds", "least", "mean", "most");
    for (size_t k = 0; k < sizeof(chain_kinds) / sizeof(chain_kinds[0]); k++) {
        for (int i = 0; i < n; i++) seconds[i] = time_chain(&chain_kinds[k], (uint64_t)i);
        tell(chain_kinds[k].what, seconds, n);
    }
    for (size_t k = 0; k < sizeof(line_kinds) / sizeof(line_kinds[0]); k++) {
        for (int i = 0; i < n; i++) seconds[i] = time_line(&line_kinds[k], (uint64_t)i);
        tell(line_kinds[k].what, seconds, n);
    }
    return 0;
}
