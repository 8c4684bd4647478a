/* What segments within segments would gain: values that backward makes again more than once
 * (Beaumont et al., "Optimal checkpointing for heterogeneous chains", 2019, persistent schedules).
 *
 *   bench_nested NET.prototxt [GFLOP/S GB/S]     PREDICTED: the net as a chain of blocks, nothing
 * runs
 *
 * Three searches, exact for their rules, in 512 slots a limit:
 *   made again once, as ct_chain_solve(): the limit holds all that is kept and the largest segment;
 *   made again once, in turn: backward frees what lies behind a segment before it makes the
 * segment; nested: likewise, and of a segment that is made again parts may be dropped once more.
 * The difference of the last two is what nesting gains. Printed for limits from what keeps
 * everything down: the time that is added, of forward and backward. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "framework/proto/prototxt.h"
#include "framework/proto/upgrade.h"
#include "planner/chain.h"
#include "planner/net_chain.h"

enum { SLOTS = 512, LIMITS = 20 };

typedef struct sizes {
    int n;
    int64_t *kept, *input; /* in slots */
    double *time_s, *again_s;
    double *sum_again; /* [n + 1], of the blocks in front */
} sizes;

/* Least seconds added by [in][first][last][slots]: of the blocks first to last, whose first input
 * counts (in 0) or is there (in 1). */
typedef struct table {
    int n;
    double *s;
} table;

static double *cell(const table *t, int in, int first, int last)
{
    return &t->s[(((int64_t)in * (t->n + 1) + first) * (t->n + 1) + last + 1) * (SLOTS + 1)];
}

static double slots_at(const double *row, int64_t m)
{
    return (m < 0) ? INFINITY : row[m];
}

/* A segment first … k - 1 in front of k … last. */
static double try_segment(const sizes *z, const table *t, bool nested, int in, int first, int k,
                          int last, int64_t m)
{
    int64_t left = m - ((in == 0) ? z->input[first] : 0);
    double inner = 0, again = z->sum_again[k] - z->sum_again[first];

    if (left < 0) return INFINITY;
    if (nested) {
        inner = slots_at(cell(t, 1, first, k - 1), left);
    } else {
        int64_t all = 0;

        for (int b = first; b < k; b++) all += z->kept[b];
        if (all > left) return INFINITY;
    }
    return again + inner + slots_at(cell(t, 0, k, last), left);
}

static void fill_cell(const sizes *z, const table *t, bool nested, int in, int first, int last)
{
    double *to = cell(t, in, first, last);

    for (int64_t m = 0; m <= SLOTS; m++) {
        double least = slots_at(cell(t, 0, first + 1, last), m - z->kept[first]);

        for (int k = first + 1; k <= last + 1; k++) {
            /* the whole as one segment again: for ever */
            if ((k == last + 1) && (in == 1)) continue;
            least = fmin(least, try_segment(z, t, nested, in, first, k, last, m));
        }
        to[m] = least;
    }
}

static double solve_in_turn(const sizes *z, const table *t, bool nested)
{
    for (int in = 0; in < 2; in++)
        for (int k = 0; k <= z->n; k++)
            for (int m = 0; m <= SLOTS; m++) cell(t, in, k, k - 1)[m] = 0;
    for (int length = 1; length <= z->n; length++)
        for (int first = 0; first + length <= z->n; first++)
            for (int in = 1; in >= 0; in--) fill_cell(z, t, nested, in, first, first + length - 1);
    return cell(t, 0, 0, z->n - 1)[SLOTS];
}

static double solve_chain(const sizes *z, const int64_t *zero, int *strategy, ct_chain_mode *mode)
{
    ct_chain c = { .n_block = z->n,
                   .n_strategy = 1,
                   .limit = SLOTS,
                   .in_flight = 1,
                   .time_s = z->time_s,
                   .again_s = z->again_s,
                   .weight = zero,
                   .kept = z->kept,
                   .input = z->input };
    double step_s = INFINITY;

    if (ct_chain_solve(&c, strategy, mode, &step_s) != CT_OK) exit(1);
    for (int b = 0; b < z->n; b++) step_s -= z->time_s[b];
    return step_s;
}

static void show(double added, double step_s)
{
    if (isinf(added))
        printf(" %12s", "-");
    else
        printf(" %11.2f%%", 100 * added / step_s);
}

static void study(const ct_net_chain *c)
{
    size_t n = (size_t)c->n_block;
    sizes z = {
        c->n_block, calloc(n, 8), calloc(n, 8), calloc(n, 8), calloc(n, 8), calloc(n + 1, 8)
    };
    int64_t *zero = calloc(n, 8), all = 0, fixed = 0;
    int *strategy = calloc(n, sizeof(int));
    ct_chain_mode *mode = calloc(n, sizeof(*mode));
    table t = { z.n, malloc(2 * (n + 1) * (n + 1) * (SLOTS + 1) * sizeof(double)) };
    double step_s = 0;

    if (!z.kept || !z.input || !z.time_s || !z.again_s || !z.sum_again || !zero || !strategy ||
        !mode || !t.s)
        exit(1);
    for (int b = 0; b < z.n; b++) {
        z.time_s[b] = c->block[b].forward_s + c->block[b].backward_s;
        z.again_s[b] = c->block[b].joint_s;
        z.sum_again[b + 1] = z.sum_again[b] + z.again_s[b];
        step_s += z.time_s[b];
        all += c->block[b].kept_bytes;
        fixed += c->block[b].fixed_bytes;
    }
    printf("%d blocks, %.1f MiB kept whatever is chosen, %.1f MiB by choice, %.1f ms\n", z.n,
           ldexp((double)fixed, -20), ldexp((double)all, -20), 1e3 * step_s);
    printf("%12s %12s %12s %12s\n", "MiB", "once", "in turn", "nested");
    for (int i = LIMITS; i >= 1; i--) {
        double slot = (double)all * i / LIMITS / SLOTS;

        for (int b = 0; b < z.n; b++) {
            z.kept[b] = (int64_t)ceil((double)c->block[b].kept_bytes / slot - 1e-9);
            z.input[b] = (int64_t)ceil((double)c->block[b].input_bytes / slot - 1e-9);
        }
        printf("%12.1f", ldexp((double)all * i / LIMITS, -20));
        show(solve_chain(&z, zero, strategy, mode), step_s);
        show(solve_in_turn(&z, &t, false), step_s);
        show(solve_in_turn(&z, &t, true), step_s);
        printf("\n");
        fflush(stdout);
    }
    free(z.kept), free(z.input), free(z.time_s), free(z.again_s), free(z.sum_again);
    free(zero), free(strategy), free(mode), free(t.s);
}

int main(int argc, char **argv)
{
    ct_net_limits limits = { 354e9, 33.8e9 };
    ct_net_options options = { .phase = CT_TRAIN,
                               .env = { .n_rank = 1, .seed = 1 },
                               .no_data = true };
    Ct__NetParameter *param = NULL;
    ct_source_map *map = NULL;
    ct_net_chain chain = { 0 };

    if (argc < 2) {
        fprintf(stderr, "usage: bench_nested NET.prototxt [GFLOP/S GB/S]\n");
        return 2;
    }
    if (argc > 3) limits = (ct_net_limits){ 1e9 * atof(argv[2]), 1e9 * atof(argv[3]) };
    if ((ct_source_map_create(&map) != CT_OK) || (ct_net_read(argv[1], map, &param) != CT_OK))
        return 2;
    options.map = map;
    if (ct_net_chain_make(param, &options, &limits, &chain) != CT_OK) return 2;
    study(&chain);
    ct_net_chain_destroy(&chain);
    ct__net_parameter__free_unpacked(param, NULL);
    ct_source_map_destroy(map);
    return 0;
}
