/* Choices for chains: against every choice of small ones, against a plain table of longer ones. */
#include "tests/test.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/rng.h"
#include "planner/chain.h"
#include "planner/chain_in_turn.h"
#include "tests/log_capture.h"

enum { MOST_BLOCKS = 40, MOST_WAYS = MOST_BLOCKS * 4, MODES = 3 };

/* Numbers that belong together. */
typedef struct made {
    ct_chain c;
    double time_s[MOST_WAYS], again_s[MOST_WAYS], reshard_s[MOST_WAYS * 4];
    int64_t weight[MOST_WAYS], kept[MOST_WAYS], input[MOST_WAYS];
    uint64_t key;
    uint64_t drawn;
} made;

typedef struct choice {
    int strategy[MOST_BLOCKS];
    ct_chain_mode mode[MOST_BLOCKS];
} choice;

static int64_t draw(made *m, int64_t below)
{
    return (int64_t)(ct_rng_philox(m->key, 0, m->drawn++).v[0] % (uint32_t)below);
}

static double draw_time(made *m)
{
    return (double)ct_rng_uniform(ct_rng_philox(m->key, 0, m->drawn++).v[0]);
}

/* Of every size the largest; 0: none is larger than 0. */
static void make(made *m, uint64_t key, int n_block, int n_strategy, int weight, int kept,
                 int input)
{
    int n = n_block * n_strategy;

    *m = (made){ .key = key };
    for (int i = 0; i < n; i++) {
        m->time_s[i] = (draw(m, 8) == 0) ? 0 : draw_time(m);
        m->again_s[i] = 0.4 * draw_time(m);
        m->weight[i] = draw(m, weight + 1);
        m->kept[i] = draw(m, kept + 1);
        m->input[i] = draw(m, input + 1);
    }
    for (int i = 0; i < n * n_strategy; i++) m->reshard_s[i] = 0.3 * draw_time(m);
    m->c = (ct_chain){ .n_block = n_block,
                       .n_strategy = n_strategy,
                       .in_flight = 1,
                       .time_s = m->time_s,
                       .again_s = m->again_s,
                       .weight = m->weight,
                       .kept = m->kept,
                       .input = m->input,
                       .reshard_s = m->reshard_s };
}

/* ---- time and memory from the definition: segment by segment */

static double time_of(const ct_chain *c, const choice *k)
{
    double sum = 0;

    for (int l = 0; l < c->n_block; l++) {
        int n = c->n_strategy, b = k->strategy[l];

        sum += c->time_s[l * n + b];
        if (k->mode[l] != CT_CHAIN_KEEP) sum += c->again_s[l * n + b];
        if ((l > 0) && (c->reshard_s != NULL))
            sum += c->reshard_s[(l * n + k->strategy[l - 1]) * n + b];
    }
    return sum;
}

static int64_t memory_of(const ct_chain *c, const choice *k)
{
    int64_t weight = 0, kept = 0, input = 0, largest = 0;

    for (int l = 0; l < c->n_block; l++) {
        int at = l * c->n_strategy + k->strategy[l];
        int64_t segment = 0;

        weight += c->weight[at];
        if (k->mode[l] == CT_CHAIN_KEEP) kept += c->kept[at];
        if (k->mode[l] != CT_CHAIN_START) continue;
        input += c->input[at];
        segment = c->kept[at];
        for (int i = l + 1; (i < c->n_block) && (k->mode[i] == CT_CHAIN_CONTINUE); i++)
            segment += c->kept[i * c->n_strategy + k->strategy[i]];
        if (segment > largest) largest = segment;
    }
    return weight + c->in_flight * (kept + input) + largest;
}

static bool is_allowed(const ct_chain *c, const choice *k)
{
    for (int l = 0; l < c->n_block; l++) {
        if ((k->strategy[l] < 0) || (k->strategy[l] >= c->n_strategy)) return false;
        if (k->mode[l] != CT_CHAIN_CONTINUE) continue;
        if ((l == 0) || (k->mode[l - 1] == CT_CHAIN_KEEP)) return false;
    }
    return true;
}

/* The least time of all choices, written out one by one. */
static double try_all(const ct_chain *c)
{
    double least = INFINITY;
    int64_t n = 1;

    for (int l = 0; l < c->n_block; l++) n *= (int64_t)c->n_strategy * MODES;
    for (int64_t i = 0; i < n; i++) {
        choice k;
        int64_t rest = i;

        for (int l = 0; l < c->n_block; l++, rest /= (int64_t)c->n_strategy * MODES) {
            k.strategy[l] = (int)(rest / MODES % c->n_strategy);
            k.mode[l] = (ct_chain_mode)(rest % MODES);
        }
        if (!is_allowed(c, &k) || (memory_of(c, &k) > c->limit)) continue;
        if (time_of(c, &k) < least) least = time_of(c, &k);
    }
    return least;
}

/* Returns whether anything fits. Rounding: each side adds at most 3 numbers a block. */
static bool expect(const made *m, double least)
{
    choice k;
    double step_s = -1;

    assert_int_equal(ct_chain_solve(&m->c, k.strategy, k.mode, &step_s), CT_OK);
    if (isinf(least)) {
        assert_true(isinf(step_s) && (step_s > 0));
        return false;
    }
    assert_true(is_allowed(&m->c, &k));
    assert_true(memory_of(&m->c, &k) <= m->c.limit);
    assert_true(memory_of(&m->c, &k) == ct_chain_memory(&m->c, k.strategy, k.mode));
    assert_true(fabs(step_s - time_of(&m->c, &k)) <= 6 * m->c.n_block * 0x1p-53 * step_s);
    assert_true(fabs(step_s - least) <= 6 * m->c.n_block * 0x1p-53 * least);
    return true;
}

static void test_every_choice(void **state)
{
    int n_fit = 0, n_not = 0;

    (void)state;
    for (uint64_t i = 0; i < 600; i++) {
        static const int64_t most[] = { 8, 20, 61 };
        int n_block = 1 + (int)(i % 5), n_strategy = 1 + (int)(i / 5 % 3);
        made m;

        if ((n_block == 5) && (n_strategy == 3) && (i % 4 != 0)) n_block = 4; /* 59049 choices */
        make(&m, i, n_block, n_strategy, (int)(i % 4), (int)(i % 7), (int)(i / 7 % 4));
        m.c.in_flight = 1 + (int64_t)(i % 4);
        m.c.limit = draw(&m, most[i % 3]);
        if (i % 11 == 0) m.c.reshard_s = NULL;
        if (expect(&m, try_all(&m.c)))
            n_fit++;
        else
            n_not++;
    }
    assert_true((n_fit > 300) && (n_not > 50));
}

/* ---- memory that backward frees as it goes: what is there at each moment, added up */

static int64_t peak_of(const ct_chain *c, const choice *k)
{
    int64_t now = 0, peak, weight = 0;

    for (int l = 0; l < c->n_block; l++) {
        weight += c->weight[l];
        if (k->mode[l] == CT_CHAIN_KEEP) now += c->kept[l];
        if (k->mode[l] == CT_CHAIN_START) now += c->input[l];
    }
    peak = now;
    for (int l = c->n_block - 1; l >= 0; l--) {
        int first = l;
        int64_t again = 0;

        if (k->mode[l] == CT_CHAIN_KEEP) {
            now -= c->kept[l];
            continue;
        }
        while (k->mode[first] == CT_CHAIN_CONTINUE) first--;
        for (; l > first; l--) again += c->kept[l];
        again += c->kept[first];
        if (now + again > peak) peak = now + again;
        now -= c->input[first];
    }
    assert_true(now == 0);
    return weight + peak;
}

static double try_all_in_turn(const ct_chain *c)
{
    double least = INFINITY;
    int64_t n = 1;

    for (int l = 0; l < c->n_block; l++) n *= MODES;
    for (int64_t i = 0; i < n; i++) {
        choice k = { .strategy = { 0 } };
        int64_t rest = i;

        for (int l = 0; l < c->n_block; l++, rest /= MODES)
            k.mode[l] = (ct_chain_mode)(rest % MODES);
        if (!is_allowed(c, &k)) continue;
        assert_true(ct_chain_memory_in_turn(c, k.mode) == peak_of(c, &k));
        if (peak_of(c, &k) <= c->limit) least = fmin(least, time_of(c, &k));
    }
    return least;
}

static void test_every_choice_in_turn(void **state)
{
    int n_fit = 0, n_not = 0, n_less = 0;

    (void)state;
    for (uint64_t i = 0; i < 400; i++) {
        choice k = { .strategy = { 0 } };
        double step_s = -1, least, once_s;
        made m;

        make(&m, 3000 + i, 1 + (int)(i % 8), 1, (int)(i % 3), (int)(i % 7), (int)(i / 7 % 4));
        m.c.reshard_s = NULL;
        m.c.limit = draw(&m, 24);
        least = try_all_in_turn(&m.c);
        assert_int_equal(ct_chain_solve_in_turn(&m.c, k.mode, &step_s), CT_OK);
        if (isinf(least)) {
            assert_true(isinf(step_s) && (step_s > 0));
            n_not++;
            continue;
        }
        n_fit++;
        assert_true(is_allowed(&m.c, &k) && (peak_of(&m.c, &k) <= m.c.limit));
        assert_true(fabs(step_s - time_of(&m.c, &k)) <= 6 * m.c.n_block * 0x1p-53 * step_s);
        assert_true(fabs(step_s - least) <= 6 * m.c.n_block * 0x1p-53 * least);
        /* all that fits at once fits in turn */
        assert_int_equal(ct_chain_solve(&m.c, k.strategy, k.mode, &once_s), CT_OK);
        if (isfinite(once_s)) assert_true(step_s <= once_s * (1 + 6 * m.c.n_block * 0x1p-53));
        if (step_s < 0.99 * once_s) n_less++;
    }
    assert_true((n_fit > 200) && (n_not > 30) && (n_less > 30));
}

/* ---- longer chains: a table of all (strategy, segment under way, memory), for every bound */

enum { SLOTS = 48 };

typedef struct plain {
    double t[4][SLOTS + 2][SLOTS + 1]; /* strategy, kept by the segment or NONE, memory beside it */
} plain;

enum { NONE = SLOTS + 1 };

static void empty(plain *p)
{
    for (int a = 0; a < 4; a++)
        for (int q = 0; q <= NONE; q++)
            for (int u = 0; u <= SLOTS; u++) p->t[a][q][u] = INFINITY;
}

static void put(plain *p, int b, int64_t q, int64_t u, int64_t bound, double v)
{
    if ((u > SLOTS) || ((q != NONE) && (q > bound))) return;
    if (v < p->t[b][q][u]) p->t[b][q][u] = v;
}

static void go_on(const ct_chain *c, int l, int64_t bound, int a, int q, int u, double so_far,
                  plain *next)
{
    for (int b = 0; b < c->n_strategy; b++) {
        int at = l * c->n_strategy + b;
        int64_t weight = u + c->weight[at];
        double v = so_far + c->time_s[at], again = v + c->again_s[at];

        if (l > 0) {
            v += c->reshard_s[(l * c->n_strategy + a) * c->n_strategy + b];
            again = v + c->again_s[at];
        }
        put(next, b, NONE, weight + c->in_flight * c->kept[at], bound, v);
        put(next, b, c->kept[at], weight + c->in_flight * c->input[at], bound, again);
        if (q != NONE) put(next, b, q + c->kept[at], weight, bound, again);
    }
}

static double try_bound(const ct_chain *c, int64_t bound)
{
    plain *p = malloc(2 * sizeof(*p));
    double least = INFINITY;

    assert_non_null(p);
    empty(&p[0]);
    p[0].t[0][NONE][0] = 0;
    for (int l = 0; l < c->n_block; l++) {
        const plain *from = &p[l % 2];

        empty(&p[(l + 1) % 2]);
        for (int a = 0; a < c->n_strategy; a++)
            for (int q = 0; q <= NONE; q++)
                for (int u = 0; u <= SLOTS; u++)
                    if (isfinite(from->t[a][q][u]))
                        go_on(c, l, bound, a, q, u, from->t[a][q][u], &p[(l + 1) % 2]);
    }
    for (int a = 0; a < c->n_strategy; a++)
        for (int q = 0; q <= NONE; q++)
            for (int u = 0; u + bound <= c->limit; u++)
                if (p[c->n_block % 2].t[a][q][u] < least) least = p[c->n_block % 2].t[a][q][u];
    free(p);
    return least;
}

static void test_longer_chains(void **state)
{
    int n_fit = 0;

    (void)state;
    for (uint64_t i = 0; i < 40; i++) {
        double least = INFINITY;
        made m;

        make(&m, 1000 + i, 8 + (int)(i % 23), 1 + (int)(i % 3), (int)(i % 5 == 0), 1 + (int)(i % 6),
             (int)(i % 4));
        m.c.limit = SLOTS - (int64_t)(i % 30);
        m.c.in_flight = 1 + (int64_t)(i % 2);
        for (int64_t bound = 0; bound <= m.c.limit; bound++) {
            double t = try_bound(&m.c, bound);

            if (t < least) least = t;
        }
        if (expect(&m, least)) n_fit++;
    }
    assert_true(n_fit > 20);
}

/* ---- sizes at both ends */

static void test_units(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 20; i++) {
        choice k, same;
        double step_s = 0, same_s = 0;
        made m;

        make(&m, 2000 + i, 6, 2, 2, 6, 3);
        m.c.limit = 14;
        m.c.in_flight = 2;
        assert_int_equal(ct_chain_solve(&m.c, k.strategy, k.mode, &step_s), CT_OK);
        for (int a = 0; a < 12; a++) {
            m.weight[a] = m.weight[a] * 1000003 + 1000000007; /* each choice takes that */
            m.kept[a] *= 1000003;
            m.input[a] *= 1000003;
        }
        m.c.limit = 6 * INT64_C(1000000007) + 14 * 1000003 + 1000002;
        assert_int_equal(ct_chain_solve(&m.c, same.strategy, same.mode, &same_s), CT_OK);
        assert_true(same_s == step_s);
        if (isinf(step_s)) continue;
        assert_memory_equal(k.strategy, same.strategy, 6 * sizeof(int));
        assert_memory_equal(k.mode, same.mode, 6 * sizeof(ct_chain_mode));
    }
}

static void test_zero_and_huge(void **state)
{
    choice k;
    double step_s = 0;
    made m;

    (void)state;
    make(&m, 1, 4, 2, 0, 0, 0);
    assert_true(expect(&m, try_all(&m.c))); /* nothing takes anything: limit 0 */
    m.c.limit = INT64_MAX;
    assert_true(expect(&m, try_all(&m.c)));

    make(&m, 2, 4, 2, 3, 5, 2);
    m.c.limit = INT64_MAX;
    m.c.in_flight = 3;
    assert_true(expect(&m, try_all(&m.c)));
    m.kept[3] = m.weight[1] = m.input[6] = INT64_MAX; /* these ways never fit */
    m.c.limit = 1000000000;
    m.c.in_flight = INT64_MAX;
    assert_int_equal(ct_chain_solve(&m.c, k.strategy, k.mode, &step_s), CT_OK);
    m.c.in_flight = 1;
    assert_int_equal(ct_chain_solve(&m.c, k.strategy, k.mode, &step_s), CT_OK);
    assert_true(isfinite(step_s));
    for (int l = 0; l < 4; l++) {
        int at = l * 2 + k.strategy[l];

        assert_true((at != 3) && (at != 1) && ((at != 6) || (k.mode[3] != CT_CHAIN_START)));
    }
    for (int i = 0; i < 8; i++) m.weight[i] = INT64_MAX / 2;
    m.c.limit = INT64_MAX;
    assert_int_equal(ct_chain_solve(&m.c, k.strategy, k.mode, &step_s), CT_OK);
    assert_true(isinf(step_s));
    k = (choice){ .mode = { CT_CHAIN_KEEP } };
    assert_true(ct_chain_memory(&m.c, k.strategy, k.mode) == INT64_MAX);
}

/* A way that takes forever is not to be had, though it takes the least memory. */
static void test_missing_strategy(void **state)
{
    choice k;
    double step_s = 0;
    made m;

    (void)state;
    make(&m, 3, 5, 2, 0, 3, 1);
    for (int l = 0; l < 5; l++) {
        m.time_s[2 * l + l % 2] = INFINITY;
        m.weight[2 * l + 1 - l % 2] = 5;
    }
    m.c.limit = 40;
    assert_int_equal(ct_chain_solve(&m.c, k.strategy, k.mode, &step_s), CT_OK);
    assert_true(isfinite(step_s));
    for (int l = 0; l < 5; l++) assert_int_equal(k.strategy[l], 1 - l % 2);
    m.time_s[0] = m.time_s[1] = INFINITY;
    assert_int_equal(ct_chain_solve(&m.c, k.strategy, k.mode, &step_s), CT_OK);
    assert_true(isinf(step_s));
}

static void test_errors(void **state)
{
    log_capture log;
    choice k;
    double step_s = 7;
    made m;

    (void)state;
    make(&m, 4, 40, 1, 0, 0, 0);
    for (int l = 0; l < 40; l++) m.kept[l] = 1000 + l;
    m.c.limit = 1000000;
    m.c.name = "here.json";
    log_capture_start(&log);
    assert_int_equal(ct_chain_solve(&m.c, k.strategy, k.mode, &step_s), CT_ERR_CONFIG);
    assert_non_null(strstr(log.error, "here.json: limit: the chain can use 81560 slots"));
    for (int l = 0; l < 40; l++) m.kept[l] = (l == 0) ? 4095 : 2;
    m.c.limit = 4095;
    m.c.in_flight = 100;
    m.c.n_block = 4;
    assert_int_equal(ct_chain_solve(&m.c, k.strategy, k.mode, &step_s), CT_OK);
    assert_true(isfinite(step_s));
    step_s = 7;
    m.c.n_block = 32;
    m.c.n_strategy = 5;
    m.c.reshard_s = NULL;
    for (int i = 0; i < 160; i++) m.time_s[i] = 1;
    assert_int_equal(ct_chain_solve(&m.c, k.strategy, k.mode, &step_s), CT_ERR_CONFIG);
    assert_non_null(strstr(log.error, "here.json: limit: 4095 slots beside the least weights"));
    m.c.n_strategy = 1;
    m.kept[7] = -1;
    assert_int_equal(ct_chain_solve(&m.c, k.strategy, k.mode, &step_s), CT_ERR_ARG);
    m.kept[7] = 1;
    m.time_s[7] = NAN;
    assert_int_equal(ct_chain_solve(&m.c, k.strategy, k.mode, &step_s), CT_ERR_ARG);
    m.time_s[7] = 1;
    m.c.in_flight = 0;
    assert_int_equal(ct_chain_solve(&m.c, k.strategy, k.mode, &step_s), CT_ERR_ARG);
    log_capture_stop();
    assert_int_equal(log.n_error, 5);
    assert_true(step_s == 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_choice),  cmocka_unit_test(test_every_choice_in_turn),
        cmocka_unit_test(test_longer_chains), cmocka_unit_test(test_units),
        cmocka_unit_test(test_zero_and_huge), cmocka_unit_test(test_missing_strategy),
        cmocka_unit_test(test_errors),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
