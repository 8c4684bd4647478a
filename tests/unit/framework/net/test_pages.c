/* The table of a cache's pages: who has which, what is found again, and what is given away. */
#include "tests/test.h"
#include "tests/log_capture.h"

#include "framework/net/pages.h"

#include <stdlib.h>
#include <string.h>

enum { P = CT_PAGE_TOKENS, LONG = 20 * P };

static void count_up(int32_t *id, int64_t n, int32_t first)
{
    for (int64_t i = 0; i < n; i++) id[i] = first + (int32_t)i;
}

static ct_page_list open_list(ct_page_pool *p, const int32_t *id, int64_t n, int64_t capacity,
                              int64_t length)
{
    ct_page_list list;
    bool room;

    assert_int_equal(ct_page_list_open(p, id, n, capacity, &list, &room), CT_OK);
    assert_true(room);
    assert_int_equal(list.n, ct_pages_of(capacity));
    assert_int_equal(list.length, length);
    return list;
}

static void assert_full(ct_page_pool *p, int64_t capacity)
{
    static const int32_t id[1] = { -7 };
    int64_t before = ct_page_pool_free(p);
    ct_page_list list;
    bool room;

    assert_int_equal(ct_page_list_open(p, id, 1, capacity, &list, &room), CT_OK);
    assert_false(room);
    assert_null(list.page);
    assert_int_equal(ct_page_pool_free(p), before);
}

static void test_room(void **state)
{
    ct_page_pool *p = NULL;
    ct_page_list a, b;
    int32_t id[3 * P];

    (void)state;
    count_up(id, 3 * P, 0);
    assert_int_equal(ct_page_pool_create(3, &p), CT_OK);
    assert_full(p, 3 * P + 1);
    a = open_list(p, id, 1, P, 0);
    b = open_list(p, id, 1, P + 1, 0);
    assert_true((a.page[0] != b.page[0]) && (a.page[0] != b.page[1]) && (b.page[0] != b.page[1]));
    assert_int_equal(ct_page_pool_free(p), 0);
    assert_full(p, 1);
    ct_page_list_close(p, &a);
    assert_int_equal(ct_page_pool_free(p), 1);
    assert_full(p, P + 1);
    ct_page_list_close(p, &b);
    a = open_list(p, id, 1, 3 * P, 0);
    ct_page_list_close(p, &a);
    ct_page_pool_destroy(p);
    log_capture_start(NULL);
    assert_int_equal(ct_page_pool_create(0, &p), CT_ERR_ARG);
    log_capture_stop();
}

static void test_shared(void **state)
{
    ct_page_pool *p = NULL;
    ct_page_list a, b, c, d;
    int32_t id[3 * P], other[3 * P];

    (void)state;
    count_up(id, 3 * P, 0);
    count_up(other, 3 * P, 0);
    other[P + 3] = -1;
    assert_int_equal(ct_page_pool_create(8, &p), CT_OK);
    a = open_list(p, id, 3 * P, 3 * P, 0);
    ct_page_list_grow(p, &a, id, P + 5);
    ct_page_list_grow(p, &a, id + P + 5, P - 5);
    b = open_list(p, id, 3 * P, 3 * P, 2 * P); /* the third is not full */
    assert_memory_equal(a.page, b.page, 2 * sizeof(a.page[0]));
    assert_true(a.page[2] != b.page[2]);
    assert_int_equal(ct_page_pool_free(p), 4);
    c = open_list(p, id, 2 * P, 2 * P, P); /* the last token's scores are wanted */
    d = open_list(p, other, 3 * P, 3 * P, P);
    assert_true((c.page[1] != a.page[1]) && (d.page[1] != a.page[1]));
    assert_int_equal(c.page[0], a.page[0]);
    assert_int_equal(d.page[0], a.page[0]);
    ct_page_list_grow(p, &c, id + P, P); /* one alike is there: its own stays unknown */
    ct_page_list_close(p, &a);
    ct_page_list_close(p, &b);
    ct_page_list_close(p, &c);
    ct_page_list_close(p, &d);
    assert_int_equal(ct_page_pool_free(p), 8);
    a = open_list(p, id, 3 * P, 3 * P, 2 * P);
    ct_page_list_close(p, &a);
    ct_page_pool_destroy(p);
}

/* The least recently used go first, and of a sequence its end. */
static void test_given_away(void **state)
{
    ct_page_pool *p = NULL;
    ct_page_list a, b;
    int32_t old[2 * P + 1], newer[2 * P + 1], next[P];

    (void)state;
    count_up(old, 2 * P + 1, 0);
    count_up(newer, 2 * P + 1, 1000);
    count_up(next, P, 5000);
    assert_int_equal(ct_page_pool_create(4, &p), CT_OK);
    a = open_list(p, old, 2 * P, 2 * P, 0);
    ct_page_list_grow(p, &a, old, 2 * P);
    ct_page_list_close(p, &a);
    b = open_list(p, newer, 2 * P, 2 * P, 0);
    ct_page_list_grow(p, &b, newer, 2 * P);
    ct_page_list_close(p, &b);
    a = open_list(p, next, P, P, 0);
    ct_page_list_close(p, &a);
    b = open_list(p, newer, 2 * P + 1, 2 * P + 1, 2 * P);
    ct_page_list_close(p, &b);
    a = open_list(p, old, 2 * P + 1, 2 * P + 1, P);
    ct_page_list_close(p, &a);
    ct_page_pool_destroy(p);
}

/* What is forgotten is not found; lists keep their pages, and what they add is found by nobody. */
static void test_forget(void **state)
{
    ct_page_pool *p = NULL;
    ct_page_list a, b;
    int32_t id[4 * P];

    (void)state;
    count_up(id, 4 * P, 0);
    assert_int_equal(ct_page_pool_create(9, &p), CT_OK);
    a = open_list(p, id, 3 * P, 4 * P, 0);
    ct_page_list_grow(p, &a, id, 3 * P);
    assert_int_equal(ct_page_pool_peek(p, id, 4 * P), 3 * P);
    assert_int_equal(ct_page_pool_peek(p, id, 3 * P), 2 * P);
    ct_page_pool_forget(p);
    assert_int_equal(ct_page_pool_peek(p, id, 4 * P), 0);
    ct_page_list_grow(p, &a, id + 3 * P, P);
    b = open_list(p, id, 4 * P, 4 * P, 0);
    for (int64_t i = 0; i < 4; i++)
        for (int64_t k = 0; k < 4; k++) assert_true(a.page[i] != b.page[k]);
    ct_page_list_grow(p, &b, id, 2 * P);
    ct_page_list_close(p, &a);
    assert_int_equal(ct_page_pool_peek(p, id, 4 * P), 2 * P);
    ct_page_list_close(p, &b);
    assert_int_equal(ct_page_pool_free(p), 9);
    ct_page_pool_destroy(p);
}

/* At random, beside a table that is written to be read: what is found was there, none is had twice
 * but by sequences that begin alike, and room is as counted. */
static void test_random(void **state)
{
    enum { PAGES = 40, LISTS = 7, ROUNDS = 20000 };
    static int32_t id[LISTS][LONG], holds[PAGES][LONG], held[PAGES];
    ct_page_list list[LISTS];
    bool open[LISTS] = { false };
    ct_page_pool *p = NULL;
    uint32_t seed = 1;
    int64_t n_found = 0;

    (void)state;
    memset(held, 0, sizeof(held));
    assert_int_equal(ct_page_pool_create(PAGES, &p), CT_OK);
    for (int round = 0; round < ROUNDS; round++) {
        int k = (int)((seed = seed * 1664525u + 1013904223u) >> 16) % LISTS;
        int64_t n = (int64_t)((seed = seed * 1664525u + 1013904223u) >> 16) % (5 * P) + 1;
        int64_t peeked;
        bool room;

        if (open[k]) {
            for (int64_t i = 0; i < list[k].n; i++) held[list[k].page[i]]--;
            ct_page_list_close(p, &list[k]);
            open[k] = false;
            continue;
        }
        for (int64_t i = 0; i < n; i++) /* few beginnings, many ends */
            id[k][i] = (int32_t)((i / P < 2) ? (seed >> 28) % 2 : (seed >> 20) % 8);
        peeked = ct_page_pool_peek(p, id[k], n);
        assert_int_equal(ct_page_list_open(p, id[k], n, n, &list[k], &room), CT_OK);
        if (!room) continue;
        assert_int_equal(list[k].length, peeked);
        open[k] = true;
        assert_true((list[k].length < n) && (list[k].length % P == 0));
        for (int64_t i = 0; i < list[k].n; i++) {
            int32_t g = list[k].page[i];
            bool found = (i < list[k].length / P);

            n_found += found;
            assert_in_range(g, 0, PAGES - 1);
            if (found)
                assert_memory_equal(holds[g], id[k], (size_t)((i + 1) * P) * sizeof(id[k][0]));
            else
                assert_int_equal(held[g], 0);
            held[g]++;
        }
        for (int64_t i = list[k].length / P; i < list[k].n; i++)
            memcpy(holds[list[k].page[i]], id[k], (size_t)n * sizeof(id[k][0]));
        ct_page_list_grow(p, &list[k], id[k] + list[k].length, n - list[k].length);
        assert_int_equal(list[k].length, n);
        for (int64_t g = 0, unused = 0; g < PAGES; g++) {
            unused += (held[g] == 0);
            if (g == PAGES - 1) assert_int_equal(ct_page_pool_free(p), unused);
        }
    }
    for (int k = 0; k < LISTS; k++)
        if (open[k]) ct_page_list_close(p, &list[k]);
    assert_int_equal(ct_page_pool_free(p), PAGES);
    assert_true(n_found > ROUNDS / 10);
    ct_page_pool_destroy(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_room),       cmocka_unit_test(test_shared),
        cmocka_unit_test(test_given_away), cmocka_unit_test(test_forget),
        cmocka_unit_test(test_random),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
