/* Schedules of any count, beyond 2^31 and down to nothing: played through for all ranks without
 * memory, each interval between two cuts standing for its elements, a set of ranks for its sum. */
#include "tests/test.h"

#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "comm/collective/schedule.h"

enum { MOST_RANKS = 12, MOST_CUTS = 4096 };

static const int64_t counts[] = { 0,
                                  1,
                                  3,
                                  17,
                                  1000003,
                                  ((int64_t)1 << 31) - 1,
                                  ((int64_t)1 << 31) + 3,
                                  ((int64_t)1 << 33) + 5,
                                  ((int64_t)1 << 40) + 1 };

typedef struct message {
    int from, to;
    int64_t at, n;
    uint64_t *sum; /* of each interval of the whole buffer, when it was sent */
    bool taken;
} message;

typedef struct game {
    int n;
    int64_t count;
    ct_schedule schedule[MOST_RANKS];
    int64_t cut[MOST_CUTS]; /* ascending; the first is 0 */
    int n_cut;
    uint64_t *sum[MOST_RANKS]; /* [n_cut] */
    message *message;          /* in the order in which they were sent */
    int n_message;
} game;

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

static void find_cuts(game *g)
{
    int n = 0;

    g->cut[n++] = 0;
    g->cut[n++] = g->count;
    for (int r = 0; r < g->n; r++) {
        for (int i = 0; i < g->schedule[r].n_step; i++) {
            const ct_sched_step *s = &g->schedule[r].step[i];

            assert_true(n + 4 < MOST_CUTS);
            assert_true((s->send_n >= 0) && (s->recv_n >= 0));
            if (s->send_to >= 0) g->cut[n++] = s->send_at;
            if (s->send_to >= 0) g->cut[n++] = s->send_at + s->send_n;
            if (s->recv_from >= 0) g->cut[n++] = s->recv_at;
            if (s->recv_from >= 0) g->cut[n++] = s->recv_at + s->recv_n;
        }
    }
    qsort(g->cut, (size_t)n, sizeof(*g->cut), compare);
    assert_true((g->cut[0] == 0) && (g->cut[n - 1] == g->count)); /* nothing outside */
    for (int i = 0; i < n; i++) {
        if ((i == 0) || (g->cut[i] != g->cut[g->n_cut - 1])) g->cut[g->n_cut++] = g->cut[i];
    }
}

/* Messages of a step, as the engine cuts it: each of a length that an int counts, all of it. */
static void check_segments(int64_t n)
{
    int64_t each = ct_segment_elements(n), last = n - (n - 1) / each * each;

    if (n == 0) return;
    assert_true((each > 0) && (each * 8 <= INT_MAX)); /* bytes of the widest type, too */
    assert_true((last > 0) && (last <= each));
}

static void send(game *g, int r, const ct_sched_step *s)
{
    message *m = &g->message[g->n_message++];

    *m = (message){ .from = r, .to = s->send_to, .at = s->send_at, .n = s->send_n };
    m->sum = malloc(sizeof(*m->sum) * (size_t)g->n_cut);
    memcpy(m->sum, g->sum[r], sizeof(*m->sum) * (size_t)g->n_cut);
    check_segments(s->send_n);
}

/* The oldest message on the way from there; false: none. */
static bool receive(game *g, int r, const ct_sched_step *s)
{
    message *m = NULL;

    for (int i = 0; (i < g->n_message) && (m == NULL); i++) {
        if (!g->message[i].taken && (g->message[i].from == s->recv_from) && (g->message[i].to == r))
            m = &g->message[i];
    }
    if (m == NULL) return false;
    m->taken = true;
    assert_true((m->at == s->recv_at) && (m->n == s->recv_n));
    for (int i = 0; i + 1 < g->n_cut; i++) {
        if ((g->cut[i] < m->at) || (g->cut[i] >= m->at + m->n)) continue;
        if (s->add) {
            assert_int_equal(g->sum[r][i] & m->sum[i], 0); /* nobody's share twice */
            g->sum[r][i] |= m->sum[i];
        } else {
            g->sum[r][i] = m->sum[i];
        }
    }
    return true;
}

/* Every rank does its steps in order, as far as it gets. */
static void play(game *g)
{
    int step[MOST_RANKS] = { 0 }, total = 0;
    bool sent[MOST_RANKS] = { false }, moved = true;

    for (int r = 0; r < g->n; r++) {
        g->sum[r] = malloc(sizeof(*g->sum[r]) * (size_t)(g->n_cut + 1));
        for (int i = 0; i < g->n_cut; i++) g->sum[r][i] = (uint64_t)1 << r;
        total += g->schedule[r].n_step;
    }
    g->message = calloc((size_t)total + 1, sizeof(*g->message));
    while (moved) {
        moved = false;
        for (int r = 0; r < g->n; r++) {
            const ct_sched_step *s = &g->schedule[r].step[step[r]];

            if (step[r] == g->schedule[r].n_step) continue;
            if (!sent[r] && (s->send_to >= 0) && (s->send_n > 0)) send(g, r, s);
            sent[r] = true;
            if ((s->recv_from >= 0) && (s->recv_n > 0) && !receive(g, r, s)) continue;
            step[r] += 1;
            sent[r] = false;
            moved = true;
        }
    }
    for (int r = 0; r < g->n; r++) {
        assert_int_equal(step[r], g->schedule[r].n_step); /* nobody waits for ever */
        for (int i = 0; i + 1 < g->n_cut; i++)
            assert_true(g->sum[r][i] == ((uint64_t)1 << g->n) - 1);
    }
    for (int i = 0; i < g->n_message; i++) assert_true(g->message[i].taken);
}

static void game_end(game *g)
{
    for (int r = 0; r < g->n; r++) {
        ct_schedule_destroy(&g->schedule[r]);
        free(g->sum[r]);
    }
    for (int i = 0; i < g->n_message; i++) free(g->message[i].sum);
    free(g->message);
    free(g);
}

/* An allreduce over plan, every phase that way; positions are ranks. */
static void try_plan(const ct_hierarchical_plan *plan, ct_group_algorithm w, int64_t count)
{
    game *g = calloc(1, sizeof(*g));
    ct_group_algorithm way[CT_HIERARCHICAL_PLAN_PHASES];
    int rank[MOST_RANKS];

    g->n = plan->n;
    g->count = count;
    for (int k = 0; k < CT_HIERARCHICAL_PLAN_PHASES; k++) {
        bool fits = (k < plan->n_phase) && (plan->phase[k].most <= CT_HIERARCHICAL_PLAN_DIRECT);

        way[k] = ((w == CT_GROUP_ALGORITHM_DIRECT) && !fits) ? CT_GROUP_ALGORITHM_RING : w;
    }
    for (int r = 0; r < g->n; r++) rank[r] = r;
    for (int r = 0; r < g->n; r++) {
        ct_engine_plan_use use = { .plan = plan, .way = way, .rank = rank, .me = r, .n = count };

        assert_int_equal(ct_hierarchical_plan_scatter(&use, &g->schedule[r]), CT_OK);
        assert_int_equal(ct_hierarchical_plan_gather(&use, &g->schedule[r]), CT_OK);
    }
    find_cuts(g);
    play(g);
    game_end(g);
}

static void try_counts(ct_hierarchical_plan *plan)
{
    for (int w = 0; w < CT_GROUP_ALGORITHM_N; w++) {
        for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
            try_plan(plan, (ct_group_algorithm)w, counts[i]);
    }
    ct_hierarchical_plan_destroy(plan);
}

static void test_flat(void **state)
{
    (void)state;
    for (int n = 2; n <= MOST_RANKS; n++) {
        ct_hierarchical_plan *plan = NULL;

        assert_int_equal(ct_hierarchical_plan_flat(n, &plan), CT_OK);
        try_counts(plan);
    }
}

static void test_trees(void **state)
{
    static const char *const spec[] = { "2x3", "3x2", "4x3", "2sn x 3n x 2" };
    static const char *const uneven[] = { "map:0010", "map:0122", "map:00101110", "map:aabb/0120" };
    ct_hierarchical_plan *plan = NULL;
    ct_topo *t = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof(spec) / sizeof(spec[0]); i++) {
        int n = (i < 2) ? 6 : 12;

        assert_int_equal(ct_topo_from_string(spec[i], n, &t), CT_OK);
        assert_int_equal(ct_hierarchical_plan_tree(t, 0, &plan), CT_OK);
        try_counts(plan);
        ct_topo_destroy(t);
    }
    for (size_t i = 0; i < sizeof(uneven) / sizeof(uneven[0]); i++) {
        int n = (i == 2) ? 8 : 4;

        assert_int_equal(ct_topo_from_string(uneven[i], n, &t), CT_OK);
        assert_int_equal(ct_hierarchical_plan_tree(t, 0, &plan), CT_OK);
        try_counts(plan);
        ct_topo_destroy(t);
    }
}

static void test_grids(void **state)
{
    const int square[] = { 3, 3 }, box[] = { 2, 3, 2 };
    ct_hierarchical_plan *plan = NULL;

    (void)state;
    assert_int_equal(ct_hierarchical_plan_grid(9, square, 2, &plan), CT_OK);
    try_counts(plan);
    assert_int_equal(ct_hierarchical_plan_grid(12, box, 3, &plan), CT_OK);
    try_counts(plan);
}

static void test_binomial(void **state)
{
    int rank[MOST_RANKS];

    (void)state;
    for (int r = 0; r < MOST_RANKS; r++) rank[r] = r;
    for (int n = 2; n <= MOST_RANKS; n++) {
        for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
            game *g = calloc(1, sizeof(*g));

            g->n = n;
            g->count = counts[i];
            for (int r = 0; r < n; r++) {
                assert_int_equal(ct_tree_reduce(rank, n, 0, r, g->count, &g->schedule[r]), CT_OK);
                assert_int_equal(ct_tree_broadcast(rank, n, 0, r, g->count, &g->schedule[r]),
                                 CT_OK);
            }
            find_cuts(g);
            play(g);
            game_end(g);
        }
    }
}

/* Parts of large counts: ascending, none missing, near-equal. */
static void test_parts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        for (int parts = 1; parts < 40; parts++) {
            int64_t n = counts[i], each = n / parts;

            assert_true((ct_part(n, parts, 0) == 0) && (ct_part(n, parts, parts) == n));
            for (int k = 0; k < parts; k++) {
                int64_t length = ct_part(n, parts, k + 1) - ct_part(n, parts, k);

                assert_true((length >= 0) && (length <= each + 17));
            }
        }
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flat),     cmocka_unit_test(test_trees), cmocka_unit_test(test_grids),
        cmocka_unit_test(test_binomial), cmocka_unit_test(test_parts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
