/* Plans over several ranks against all that there are, on small nets and a made-up machine. */
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "planner/job_search.h"
#include "planner/stage_cuts.h"
#include "tests/parsed_net.h"

/* ---- cuts of stages whose times do not add up */

enum { N_STAGE = 3, N_BLOCK = 6 };

typedef struct runs {
    double time_s[N_STAGE][N_BLOCK][N_BLOCK + 1], sums_s[N_STAGE][N_BLOCK][N_BLOCK + 1];
    bool told[N_STAGE][N_BLOCK][N_BLOCK + 1]; /* else from below */
    int n_settled;
} runs;

static ct_status look(void *ctx, int stage, int first, int end, ct_stage_time *t, bool *exact_p)
{
    runs *r = ctx;

    *exact_p = r->told[stage][first][end];
    t->time_s = r->time_s[stage][first][end] * (*exact_p ? 1 : 0.5);
    t->sums_s = r->sums_s[stage][first][end] * (*exact_p ? 1 : 0.5);
    return CT_OK;
}

static ct_status settle(void *ctx, int stage, int first, int end)
{
    runs *r = ctx;

    assert_false(r->told[stage][first][end]);
    r->told[stage][first][end] = true;
    r->n_settled++;
    return CT_OK;
}

static double random_s(unsigned *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (double)(*seed >> 8) / (double)(1u << 24);
}

/* All cuts; longer runs take longer. */
static void stage_cuts(void **state)
{
    unsigned seed = 1;

    (void)state;
    for (int round = 0; round < 100; round++) {
        runs r = { 0 };
        double cut_s[N_STAGE][N_BLOCK], best = INFINITY, step_s;
        int first[N_STAGE + 1], found[N_STAGE + 1];
        ct_stage_cuts c = { .n_stage = N_STAGE,
                            .n_block = N_BLOCK,
                            .micro_batches = 1 + round % 5,
                            .look = look,
                            .settle = settle,
                            .ctx = &r,
                            .cut_s = &cut_s[0][0] };

        for (int s = 0; s < N_STAGE; s++) {
            for (int b = 0; b < N_BLOCK; b++) {
                double sum = 0;

                cut_s[s][b] = (random_s(&seed) < 0.1) ? INFINITY : 0.3 * random_s(&seed);
                for (int e = b + 1; e <= N_BLOCK; e++) {
                    sum += random_s(&seed);
                    r.time_s[s][b][e] = (sum > 3.2) ? INFINITY : sum;
                    r.sums_s[s][b][e] = random_s(&seed) * (e - b);
                    r.told[s][b][e] = isinf(r.time_s[s][b][e]) || (random_s(&seed) < 0.5);
                }
            }
        }
        assert_int_equal(ct_stage_cuts_solve(&c, INFINITY, found, &step_s), CT_OK);
        memset(r.told, true, sizeof(r.told));
        first[0] = 0;
        first[N_STAGE] = N_BLOCK;
        for (first[1] = 1; first[1] < N_BLOCK - 1; first[1]++) {
            for (first[2] = first[1] + 1; first[2] < N_BLOCK; first[2]++) {
                double t;

                assert_int_equal(ct_stage_cuts_time(&c, first, &t), CT_OK);
                if (t < best) best = t;
            }
        }
        if (isinf(best)) {
            assert_true(isinf(step_s));
            continue;
        }
        assert_true(fabs(step_s - best) <= 1e-12 * best);
        assert_int_equal(ct_stage_cuts_time(&c, found, &step_s), CT_OK);
        assert_true(fabs(step_s - best) <= 1e-12 * best);
    }
}

/* ---- a net on a machine */

#define DATA                                                                                       \
    "layer { name: 'x' type: 'DummyData' top: 'x' dummy_data_param { shape { dim: 4 dim: 48 } } }" \
    "layer { name: 'y' type: 'DummyData' top: 'y' dummy_data_param { shape { dim: 4 } } }"
#define FC(_name, _bottom, _n)                                                                     \
    "layer { name: '" _name "' type: 'InnerProduct' bottom: '" _bottom "' top: '" _name            \
    "' inner_product_param { num_output: " _n " weight_filler { type: 'xavier' } } }"
#define EACH(_name, _type, _bottom)                                                                \
    "layer { name: '" _name "' type: '" _type "' bottom: '" _bottom "' top: '" _name "' }"
#define LOSS "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'b' bottom: 'y' top: 'l' }"

/* Of four blocks, with products to split; of eight, of which pairs keep much and read little. */
static const char wide[] = DATA FC("a", "x", "96") EACH("t", "TanH", "a") FC("b", "t", "32") LOSS;
static const char deep[] = DATA FC("a", "x", "8") FC("c", "a", "200") FC("d", "c", "8")
    FC("e", "d", "200") FC("f", "e", "8") FC("g", "f", "200") FC("b", "g", "8") LOSS;

enum { MOST_BLOCKS = 8 };

typedef struct fixture {
    Ct__NetParameter *param;
    ct_net_options options;
    ct_job_net net;
    ct_job_machine machine;
} fixture;

/* states: bytes of a float that learns */
static void open_states(fixture *f, const char *net, int ranks, double memory, double states)
{
    ct_net_limits limits = { 1e9, 1e9 };
    ct_job_request q = {
        .n_rank = ranks, .ranks_per_node = ranks, .limits = limits, .memory = memory
    };

    memset(f, 0, sizeof(*f));
    f->param = (Ct__NetParameter *)test_parsed(&ct__net_parameter__descriptor, net);
    f->options = (ct_net_options){
        .phase = CT_TRAIN, .env = { .n_rank = 1, .seed = 1 }, .no_data = true, .no_fuse = true
    };
    f->options.state_bytes = states;
    assert_int_equal(ct_job_net_make(f->param, &f->options, 4, &limits, &f->net), CT_OK);
    assert_true(f->net.n_block <= MOST_BLOCKS);
    assert_int_equal(ct_job_machine_make(&q, &f->machine), CT_OK);
}

static void open_job(fixture *f, const char *net, int ranks, double memory)
{
    open_states(f, net, ranks, memory, 0);
}

static void close_job(fixture *f)
{
    ct_job_net_destroy(&f->net);
    ct_job_machine_destroy(&f->machine);
    ct__net_parameter__free_unpacked(f->param, NULL);
}

/* ---- all choices of a stage */

typedef struct choice {
    double time_s, sums_s;
} choice;

/* Of all ways and modes of a run that fit, that of least time_s + sums_s / micro. */
static choice best_choice(ct_job_stage *g, int first, int end, int64_t in_flight, double limit,
                          double micro)
{
    int n = end - first, ways = 1, modes = 1;
    int n_way = (ct_job_stage_prices(g)->s->tensor > 1) ? CT_JOB_N_WAY : 1;
    choice best = { INFINITY, 0 };

    for (int b = 0; b < n; b++) {
        ways *= n_way;
        modes *= 3;
    }
    for (int k = 0; k < ways * modes; k++) {
        int way[MOST_BLOCKS], w = k % ways, m = k / ways;
        ct_chain_mode mode[MOST_BLOCKS];
        bool valid = true;
        ct_job_figures f;

        for (int b = 0; b < n; b++, w /= n_way, m /= 3) {
            way[b] = w % n_way;
            mode[b] = (ct_chain_mode)(m % 3);
            valid = valid && !((mode[b] == CT_CHAIN_CONTINUE) &&
                               ((b == 0) || (mode[b - 1] == CT_CHAIN_KEEP)));
        }
        if (!valid) continue;
        f = ct_job_prices_figures(ct_job_stage_prices(g), first, end, in_flight, way, mode, -1);
        if (!isfinite(f.forward_s + f.backward_s)) continue;
        if ((limit > 0) && (ct_job_plan_bytes(&f) > limit)) continue;
        if (f.forward_s + f.backward_s + (f.sums_s + f.update_s) / micro <
            best.time_s + best.sums_s / micro)
            best = (choice){ f.forward_s + f.backward_s, f.sums_s + f.update_s };
    }
    return best;
}

static choice choice_of[MOST_BLOCKS + 1][MOST_BLOCKS][MOST_BLOCKS + 1];

static ct_status look_choice(void *ctx, int stage, int first, int end, ct_stage_time *t,
                             bool *exact_p)
{
    (void)ctx;
    *t =
        (ct_stage_time){ choice_of[stage][first][end].time_s, choice_of[stage][first][end].sums_s };
    *exact_p = true;
    return CT_OK;
}

/* The least estimate of a configuration, of all cuts, ways and modes. */
static double best_of_all(fixture *f, int64_t batch, int tensor, int n_stage, int64_t micro,
                          double limit)
{
    int order[1] = { 0 }, first[MOST_BLOCKS + 1], n_block = f->net.n_block;
    ct_job_config c = { .tensor = tensor,
                        .data = f->machine.n_rank / tensor / n_stage,
                        .n_stage = n_stage,
                        .micro_batches = micro,
                        .order = order,
                        .tie_way = -1 };
    ct_job_space space = { .net = &f->net, .machine = &f->machine, .batch = batch };
    double cut_s[MOST_BLOCKS * MOST_BLOCKS] = { 0 }, best = INFINITY;
    ct_stage_cuts k = { .n_stage = n_stage,
                        .n_block = n_block,
                        .micro_batches = micro,
                        .look = look_choice,
                        .cut_s = cut_s };
    int64_t share[8];

    for (int s = 0; s < n_stage; s++) {
        ct_job_layout l = ct_job_layout_of(&space, &c);
        ct_job_stage *g;

        assert_int_equal(ct_job_shares(&space, &c, s, share), CT_OK);
        assert_int_equal(ct_job_space_stage(&space, &c, s, share, &g), CT_OK);
        for (int a = 0; a < n_block; a++) {
            ct_job_link link =
                (s + 1 < n_stage) ? ct_job_cut_link(&l, s, s + 1) : (ct_job_link){ 0 };

            for (int b = a + 1; b <= n_block; b++)
                choice_of[s][a][b] =
                    best_choice(g, a, b, ct_job_in_flight(&c, s), limit, (double)micro);
            if (a > 0)
                cut_s[s * n_block + a] =
                    link.latency_s + link.byte_s * (double)ct_job_most_share(share, c.data) *
                                         ct_job_heard_bytes(&f->net, tensor, a, 0);
        }
    }
    first[0] = 0;
    first[n_stage] = n_block;
    for (int code = 0; code < n_block * n_block; code++) {
        bool rising = true;
        double t;

        if (n_stage > 1) first[1] = code % n_block;
        if (n_stage > 2) first[2] = code / n_block;
        if (n_stage > 3) first[3] = 3;
        for (int s = 0; s < n_stage; s++) rising = rising && (first[s + 1] > first[s]);
        if (!rising) continue;
        assert_int_equal(ct_stage_cuts_time(&k, first, &t), CT_OK);
        best = fmin(best, t);
    }
    ct_job_space_destroy(&space);
    return best;
}

/* The search's least estimate of a configuration; INFINITY: nothing fits. */
static double best_found(fixture *f, int64_t batch, int tensor, int n_stage, int64_t micro)
{
    ct_job_search_request q = { .net = &f->net,
                                .machine = &f->machine,
                                .batch = batch,
                                .fix = { false, tensor, n_stage, micro } };
    ct_job_search s;
    double best = INFINITY;

    assert_int_equal(ct_job_search_run(&q, &s), CT_OK);
    for (int i = 0; i < s.n; i++) {
        const ct_job_config *c = &s.plan[i].config;

        assert_true((c->tensor == tensor) && (c->n_stage == n_stage) &&
                    (c->micro_batches == micro));
        best = fmin(best, s.plan[i].estimate_s);
    }
    ct_job_search_destroy(&s);
    return best;
}

/* One way, all cuts: without a limit exactly; stages of one block, too. */
static void pipelines(void **state)
{
    fixture f;

    (void)state;
    open_job(&f, wide, 4, 0);
    for (int n_stage = 1; n_stage <= 4; n_stage *= 2) {
        for (int64_t m = 1; m <= 4; m *= 2) {
            double all = best_of_all(&f, 16, 1, n_stage, m, 0);

            assert_true(fabs(best_found(&f, 16, 1, n_stage, m) - all) <= 1e-9 * all);
        }
    }
    close_job(&f);
}

/* One stage, all ways: what is least by the estimate is among the plans. */
static void ways(void **state)
{
    fixture f;

    (void)state;
    open_job(&f, wide, 4, 0);
    for (int tensor = 2; tensor <= 4; tensor *= 2) {
        for (int64_t m = 1; m <= 2; m *= 2) {
            double all = best_of_all(&f, 16, tensor, 1, m, 0);

            assert_true(fabs(best_found(&f, 16, tensor, 1, m) - all) <= 1e-9 * all);
        }
    }
    close_job(&f);
}

/* What a net of one stage takes that keeps everything. */
static double bytes_of_all(const char *net, int64_t batch)
{
    int order[1] = { 0 }, first[2] = { 0 };
    ct_job_config c = { 1, 2, 1, 1, order, -1, 0, true, false };
    ct_job_plan plan;
    fixture f;
    double bytes;

    open_job(&f, net, 2, 0);
    first[1] = f.net.n_block;
    {
        ct_job_space space = { .net = &f.net, .machine = &f.machine, .batch = batch };

        assert_int_equal(ct_job_plan_make(&space, &c, first, true, &plan), CT_OK);
        bytes = ct_job_plan_bytes(&plan.stage[0].figures);
        ct_job_plan_destroy(&plan);
        ct_job_space_destroy(&space);
    }
    close_job(&f);
    return bytes;
}

/* Under a limit: never better than all that fits it, and no worse than what fits a part of it: of
 * at least 96 slots, what eight blocks keep and read rounds up by one each. */
static void limits(void **state)
{
    double whole = bytes_of_all(deep, 256);
    int planned = 0, again = 0;

    (void)state;
    for (double part = 0.99; part > 0.5; part -= 0.04) {
        for (int n_stage = 1; n_stage <= 2; n_stage++) {
            fixture f;
            double limit = part * whole, found, low, high, all;

            open_job(&f, deep, 2, limit);
            found = best_found(&f, 256, 1, n_stage, 1);
            low = best_of_all(&f, 256, 1, n_stage, 1, limit);
            high = best_of_all(&f, 256, 1, n_stage, 1, (1 - 16.0 / 96) * limit);
            all = best_of_all(&f, 256, 1, n_stage, 1, 0);
            assert_true(found >= low * (1 - 1e-9));
            assert_true(found <= high * (1 + 1e-9));
            planned += isfinite(high);
            again += isfinite(high) && (low > all);
            close_job(&f);
        }
    }
    assert_true((planned > 2) && (again > 0));
}

/* Whatever the limit: what is printed fits, and where nothing does, what is said does. */
static void plans_fit(void **state)
{
    int none = 0;

    (void)state;
    for (double limit = 2000; limit < 200000; limit *= 1.25) {
        fixture f;
        ct_job_search_request q = { .net = &f.net, .machine = &f.machine, .batch = 16 };
        ct_job_search s;

        open_job(&f, wide, 4, limit);
        assert_int_equal(ct_job_search_run(&q, &s), CT_OK);
        for (int i = 0; i < s.n; i++) {
            for (int k = 0; k < s.plan[i].config.n_stage; k++)
                assert_true(ct_job_plan_bytes(&s.plan[i].stage[k].figures) <= limit);
            assert_true((i == 0) || (s.plan[i - 1].step_s <= s.plan[i].step_s));
        }
        if (s.n == 0) {
            double least = s.least_bytes;

            none++;
            assert_true(least > limit);
            ct_job_search_destroy(&s);
            for (int k = 0; k < f.machine.n_class; k++) f.machine.kind[k].memory = least;
            assert_int_equal(ct_job_search_run(&q, &s), CT_OK);
            assert_true(s.n > 0);
        } else if ((s.data.config.n_stage > 0) && s.data.fits) {
            assert_true(s.plan[0].step_s <= s.data.step_s);
        }
        if (s.uniform.config.n_stage > 0) assert_true(s.uniform.config.even);
        if ((s.n > 0) && (s.uniform.config.n_stage > 0))
            assert_true(s.plan[0].step_s <= s.uniform.step_s);
        ct_job_search_destroy(&s);
        close_job(&f);
    }
    assert_true(none > 0);
}

/* ---- shares: a node at half the speed */

static void shares(void **state)
{
    fixture f;
    int node_class[2] = { 0, 1 }, order[2] = { 0, 1 }, *held;
    ct_job_config c = {
        .tensor = 1, .data = 2, .n_stage = 1, .micro_batches = 1, .order = order, .tie_way = -1
    };
    int64_t share[2];

    (void)state;
    open_job(&f, wide, 2, 0);
    held = f.machine.node_class;
    f.machine.node_class = node_class;
    f.machine.n_node = 2;
    f.machine.ranks_per_node = 1;
    f.machine.n_class = 2;
    f.machine.n_level = 1;
    f.machine.level[0] = (ct_job_level){ .bandwidth = 1e9 };
    f.machine.kind[0].inject = 1e9;
    f.machine.kind[1] = f.machine.kind[0];
    f.machine.kind[1].speed = 0.5;
    f.machine.kind[1].flop *= 0.5;
    f.machine.kind[1].bytes *= 0.5;
    {
        ct_job_space space = { .net = &f.net, .machine = &f.machine, .batch = 300 };

        assert_int_equal(ct_job_shares(&space, &c, 0, share), CT_OK);
        assert_int_equal(share[0] + share[1], 300);
        /* twice as many and a little more: weights, too, are read at half the speed */
        assert_true((share[0] >= 200) && (share[0] < 225));
        c.even = true;
        assert_int_equal(ct_job_shares(&space, &c, 0, share), CT_OK);
        assert_int_equal(share[0], 150);
        space.batch = 1; /* fewer than replicas */
        assert_int_equal(ct_job_shares(&space, &c, 0, share), CT_UNSUPPORTED);
        ct_job_space_destroy(&space);
    }
    f.machine.node_class = held;
    close_job(&f);
}

/* ---- what two replicas share out */

/* Everything kept. *come_s: of forward, with weights that come beside it. */
static ct_job_figures figures_of(ct_job_space *space, int zero, double *come_s)
{
    int order = 0, way[MOST_BLOCKS] = { 0 };
    int64_t share[2] = { 2, 2 };
    ct_job_config c = { .tensor = 1,
                        .data = 2,
                        .n_stage = 1,
                        .micro_batches = 1,
                        .order = &order,
                        .tie_way = -1,
                        .zero = zero };
    ct_chain_mode mode[MOST_BLOCKS];
    ct_job_stage *g;
    const ct_job_prices *p;

    for (int b = 0; b < MOST_BLOCKS; b++) mode[b] = CT_CHAIN_KEEP;
    assert_int_equal(ct_job_space_stage(space, &c, 0, share, &g), CT_OK);
    p = ct_job_stage_prices(g);
    *come_s = 0;
    for (int b = 0; b < p->n_block; b++)
        *come_s += fmax(p->group[0].forward[ct_job_cell(b, 0)],
                        space->net->block[b].learned / 2 * p->kind.ring.byte_s);
    return ct_job_prices_figures(p, 0, p->n_block, 1, way, mode, -1);
}

static void zeros(void **state)
{
    ct_job_figures f[4];
    double come_s[4], learned = 0;
    ct_job_space space;
    fixture job;

    (void)state;
    open_states(&job, wide, 2, 0, 8);
    space = (ct_job_space){ .net = &job.net, .machine = &job.machine, .batch = 4 };
    for (int b = 0; b < job.net.n_block; b++) learned += job.net.block[b].learned;
    for (int z = 0; z < 4; z++) f[z] = figures_of(&space, z, &come_s[z]);
    assert_true(learned > 0);
    assert_true(f[0].weights == 4 * learned); /* weights, gradients, two states */
    assert_true(f[1].weights == 3 * learned);
    assert_true(f[2].weights == 2.5 * learned);
    assert_true(f[3].weights == 2 * learned);
    for (int z = 1; z < 3; z++) {
        assert_true((f[z].sums_s == f[0].sums_s) && (f[z].sum_bytes == f[0].sum_bytes));
        assert_true(f[z].forward_s == f[0].forward_s);
    }
    assert_true((f[3].sums_s == f[0].sums_s / 2) && (f[3].sum_bytes == f[0].sum_bytes / 2));
    assert_true((f[3].forward_s == come_s[0]) && (come_s[0] > f[0].forward_s));
    for (int z = 0; z < 4; z++) assert_true(f[z].update_s == f[0].update_s);
    ct_job_space_destroy(&space);
    close_job(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stage_cuts), cmocka_unit_test(pipelines), cmocka_unit_test(ways),
        cmocka_unit_test(limits),     cmocka_unit_test(zeros),     cmocka_unit_test(plans_fit),
        cmocka_unit_test(shares),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
