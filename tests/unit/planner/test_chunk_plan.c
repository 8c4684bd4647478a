/* Plans of chunks: chains of every size, and small random nets against every plan there is. */
#include "tests/test.h"

#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/rng.h"
#include "planner/chunk_plan.h"
#include "planner/memory_tiers.h"
#include "tests/log_capture.h"

enum { MOST = 80, SETS = 256 };

/* Loads a step of a plan, from its slots alone: what lies where, over two steps. Every use finds
 * its chunk, and chunks of one moment lie apart. */
static int count_loads(const ct_chunk_use *use, int n_use, int room, const ct_chunk_plan *p)
{
    int lies[MOST], when[MOST], n = 0, n_load = 0;

    assert_int_equal(p->n_use, n_use);
    for (int i = 0; i < MOST; i++) lies[i] = when[i] = -1;
    for (int round = 0; round < 2; round++) {
        n = 0;
        for (int u = 0; u < n_use; u++) {
            int at = p->slot[u], m = round * MOST + use[u].moment;

            assert_in_range(at, 0, room - 1);
            if (lies[at] != use[u].chunk) {
                assert_true(when[at] < m);
                assert_true((round == 0) || ((n < p->n_load) && (p->load[n].slot == at) &&
                                             (p->load[n].chunk == use[u].chunk) &&
                                             (p->load[n].moment == use[u].moment) &&
                                             (p->load[n].from == when[at] % MOST)));
                n++;
            }
            lies[at] = use[u].chunk;
            when[at] = m;
        }
    }
    n_load = n;
    assert_int_equal(p->n_load, n_load);
    return n_load;
}

static int n_bit(int set)
{
    int n = 0;

    for (; set != 0; set &= set - 1) n++;
    return n;
}

/* The fewest loads from each set of chunks to each other one over the moment; `to` has room. */
static void pass(int used, int room, const int *from, int *to)
{
    for (int b = 0; b < SETS; b++) to[b] = INT_MAX;
    for (int a = 0; a < SETS; a++) {
        int all = a | used;

        if (from[a] == INT_MAX) continue;
        for (int b = all;; b = (b - 1) & all) {
            int cost = from[a] + n_bit(used & ~a);

            if (((b & used) == used) && (n_bit(b) <= room) && (cost < to[b])) to[b] = cost;
            if (b == 0) break;
        }
    }
}

/* Of all plans that are the same in every step. */
static int fewest(const ct_chunk_use *use, int n_use, int room)
{
    int best = INT_MAX, row[2][SETS];

    for (int start = 0; start < SETS; start++) {
        int now = 0;

        if (n_bit(start) > room) continue;
        for (int b = 0; b < SETS; b++) row[0][b] = (b == start) ? 0 : INT_MAX;
        for (int u = 0; u < n_use;) {
            int used = 0, m = use[u].moment;

            for (; (u < n_use) && (use[u].moment == m); u++) used |= 1 << use[u].chunk;
            pass(used, room, row[now], row[1 - now]);
            now = 1 - now;
        }
        if (row[now][start] < best) best = row[now][start];
    }
    return best;
}

static void test_chains(void **state)
{
    ct_chunk_use use[MOST];

    (void)state;
    for (int n = 1; n <= MOST / 2; n++) {
        ct_chunk_chain(n, use);
        for (int room = 1; room <= n + 1; room++) {
            int lru, slots = (room < n) ? room : n, most = (n > room) ? 2 * (n - room) : 0;
            ct_chunk_plan p;

            assert_int_equal(ct_chunk_plan_make(use, 2 * n, n, room, &p), CT_OK);
            assert_int_equal(count_loads(use, 2 * n, room, &p), most);
            assert_int_equal(p.n_shift, 0);
            for (int u = 0; u < 2 * n; u++) assert_int_equal(p.slot[u], use[u].chunk % slots);
            ct_chunk_plan_destroy(&p);
            assert_int_equal(ct_chunk_plan_lru(use, 2 * n, n, room, &lru), CT_OK);
            assert_int_equal(lru, most);
        }
    }
}

/* Uses of a net in which layers share chunks and have several. */
static int draw_net(uint64_t key, int n_chunk, int n_moment, int most, ct_chunk_use *use)
{
    uint64_t drawn = 0;
    int n = 0;

    for (int m = 0; m < n_moment; m++) {
        int wanted = 1 + (int)(ct_rng_philox(key, 0, drawn++).v[0] % (uint32_t)most), set = 0;

        while (n_bit(set) < wanted)
            set |= 1 << (int)(ct_rng_philox(key, 0, drawn++).v[0] % (uint32_t)n_chunk);
        for (int c = 0; c < n_chunk; c++) {
            if (((set >> c) & 1) != 0) use[n++] = (ct_chunk_use){ m, c };
        }
    }
    return n;
}

static void test_random_nets(void **state)
{
    ct_chunk_use use[MOST];
    int n_fewer = 0;

    (void)state;
    for (uint64_t key = 1; key <= 60; key++) {
        int n_chunk = 3 + (int)(key % 6), room = 2 + (int)(key / 6 % 3), lru;
        int n_use = draw_net(key, n_chunk, 12, (room < n_chunk) ? room : n_chunk, use), n;
        ct_chunk_plan p;

        assert_int_equal(ct_chunk_plan_make(use, n_use, n_chunk, room, &p), CT_OK);
        n = p.n_load;
        assert_int_equal(n, fewest(use, n_use, room));
        assert_int_equal(ct_chunk_plan_lru(use, n_use, n_chunk, room, &lru), CT_OK);
        assert_true(n <= lru);
        n_fewer += (n < lru);
        if (p.n_shift == 0) assert_int_equal(count_loads(use, n_use, room, &p), n);
        ct_chunk_plan_destroy(&p);
    }
    assert_true(n_fewer > 0);
}

/* Too many chunks to try all: no more loads than the least recently used takes. */
static void test_larger_nets(void **state)
{
    ct_chunk_use use[MOST];

    (void)state;
    for (uint64_t key = 1; key <= 20; key++) {
        int n_chunk = CT_CHUNK_EXACT + 1 + (int)(key % 12), room = 3 + (int)(key % 8), lru;
        int n_use = draw_net(key, n_chunk, 30, 2, use);
        ct_chunk_plan p;

        assert_int_equal(ct_chunk_plan_make(use, n_use, n_chunk, room, &p), CT_OK);
        assert_int_equal(ct_chunk_plan_lru(use, n_use, n_chunk, room, &lru), CT_OK);
        assert_true(p.n_load <= lru);
        if (p.n_shift == 0) count_loads(use, n_use, room, &p);
        ct_chunk_plan_destroy(&p);
    }
}

/* A table that the first and the last layer share stays in its slot, if there is room for it. */
static void test_tied(void **state)
{
    const ct_chunk_use use[] = { { 0, 0 }, { 1, 1 }, { 2, 2 }, { 3, 0 },
                                 { 4, 0 }, { 5, 2 }, { 6, 1 }, { 7, 0 } };
    ct_chunk_plan p;

    (void)state;
    assert_int_equal(ct_chunk_plan_make(use, 8, 3, 2, &p), CT_OK);
    assert_int_equal(count_loads(use, 8, 2, &p), 2); /* of 1 and 2, one each way */
    assert_int_equal(p.slot[0], p.slot[3]);
    ct_chunk_plan_destroy(&p);
}

static void test_errors(void **state)
{
    const ct_chunk_use use[] = { { 0, 0 }, { 0, 1 } };
    log_capture said;
    ct_chunk_plan p;

    (void)state;
    log_capture_start(&said);
    assert_int_equal(ct_chunk_plan_make(use, 2, 2, 1, &p), CT_ERR_CONFIG);
    log_capture_stop();
    assert_non_null(strstr(said.error, "moment 0 uses 2 chunks, but there is room for 1"));
    assert_int_equal(ct_chunk_plan_make(use, 0, 0, 1, &p), CT_OK);
    assert_int_equal(p.n_load, 0);
    ct_chunk_plan_destroy(&p);
}

/* ---- what lies in each tier */

static void test_tiers(void **state)
{
    ct_memory_tiers t = { .chunk_loads = 7, .runtime = 1000, .test = 200, .snapshot = 50 };
    ct_text json = { 0 };
    ct_json_writer w = ct_json_members_into(&json);

    (void)state;
    for (int u = 0; u < CT_N_USE; u++) t.bytes[CT_TIER_HOST][u] = 1 << u;
    t.bytes[CT_TIER_FILE][CT_USE_STATES] = 512;
    t.limit[CT_TIER_HOST] = 4096;
    assert_int_equal(ct_memory_tier_sum(&t, CT_TIER_HOST), 127 + 1000 + 200 + 50);
    assert_int_equal(ct_memory_tier_sum(&t, CT_TIER_FILE), 512);
    assert_false(ct_memory_tier_used(&t, CT_TIER_DEVICE));
    ct_memory_tiers_json(&t, &w);
    assert_string_equal(
        json.text, "\"tiers\":[{\"tier\":\"host\",\"weights\":1,\"gradients\":2,\"states\":4,"
                   "\"window\":8,\"activations\":16,\"logits\":32,\"communication\":64,"
                   "\"runtime\":1000,\"test\":200,\"snapshot\":50,\"sum\":1377,\"limit\":4096},"
                   "{\"tier\":\"file\",\"weights\":0,\"gradients\":0,\"states\":512,\"window\":0,"
                   "\"activations\":0,\"logits\":0,\"communication\":0,\"sum\":512,\"limit\":0}],"
                   "\"chunk_loads\":7");
    ct_text_destroy(&json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chains),      cmocka_unit_test(test_random_nets),
        cmocka_unit_test(test_larger_nets), cmocka_unit_test(test_tied),
        cmocka_unit_test(test_errors),      cmocka_unit_test(test_tiers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
