/* 1F1B: the list of every stage of 1 to 8 stages with 1 to 16 micro-batches, and lists damaged on
 * purpose. */
#include "tests/test.h"

#include <stdlib.h>
#include <string.h>

#include "planner/schedule.h"
#include "tests/log_capture.h"

enum { MOST_STAGE = 8, MOST_MICRO = 16 };

static void check_list(const ct_pipeline_list *list, int stage, int n_stage, int n_micro)
{
    int next[2] = { 0, 0 };
    int ahead = n_stage - stage; /* how many may be in flight */

    assert_int_equal(list->n, 2 * n_micro);
    for (int i = 0; i < list->n; ++i) {
        ct_pipeline_item item = list->item[i];

        assert_int_equal(item.micro, next[item.direction]++);
        assert_true(next[CT_PIPELINE_BACKWARD] <= next[CT_PIPELINE_FORWARD]);
    }
    assert_int_equal(next[CT_PIPELINE_FORWARD], n_micro);
    assert_int_equal(next[CT_PIPELINE_BACKWARD], n_micro);
    assert_int_equal(ct_pipeline_list_in_flight(list), (n_micro < ahead) ? n_micro : ahead);
}

static void test_all_sizes(void **state)
{
    (void)state;
    for (int n_stage = 1; n_stage <= MOST_STAGE; ++n_stage) {
        for (int n_micro = 1; n_micro <= MOST_MICRO; ++n_micro) {
            ct_pipeline_list *list;

            assert_int_equal(ct_pipeline_lists_1f1b(n_stage, n_micro, &list), CT_OK);
            for (int s = 0; s < n_stage; ++s) check_list(&list[s], s, n_stage, n_micro);
            assert_int_equal(ct_pipeline_lists_check(list, n_stage, n_micro), CT_OK);
            ct_pipeline_lists_destroy(list, n_stage);
        }
    }
}

/* The list of the middle one of 3 stages with 4 micro-batches, written out. */
static void test_by_hand(void **state)
{
    static const ct_pipeline_item expected[] = {
        { CT_PIPELINE_FORWARD, 0 },  { CT_PIPELINE_FORWARD, 1 },  { CT_PIPELINE_BACKWARD, 0 },
        { CT_PIPELINE_FORWARD, 2 },  { CT_PIPELINE_BACKWARD, 1 }, { CT_PIPELINE_FORWARD, 3 },
        { CT_PIPELINE_BACKWARD, 2 }, { CT_PIPELINE_BACKWARD, 3 },
    };
    ct_pipeline_list list;

    (void)state;
    assert_int_equal(ct_pipeline_list_1f1b(1, 3, 4, &list), CT_OK);
    assert_int_equal(list.n, 8);
    for (int i = 0; i < list.n; ++i) {
        assert_int_equal(list.item[i].direction, expected[i].direction);
        assert_int_equal(list.item[i].micro, expected[i].micro);
    }
    ct_pipeline_list_destroy(&list);
}

static void expect_refused(const ct_pipeline_list *list, int n_stage, int n_micro,
                           const char *message)
{
    log_capture said;
    ct_status status;

    log_capture_start(&said);
    status = ct_pipeline_lists_check(list, n_stage, n_micro);
    log_capture_stop();
    assert_int_equal(status, CT_ERR_CONFIG);
    assert_int_equal(said.n_error, 1);
    if (strstr(said.error, message) == NULL) fail_msg("said \"%s\"", said.error);
}

static void swap_items(ct_pipeline_list *list, int a, int b)
{
    ct_pipeline_item held = list->item[a];

    list->item[a] = list->item[b];
    list->item[b] = held;
}

static void test_damaged(void **state)
{
    ct_pipeline_list *list;

    (void)state;
    assert_int_equal(ct_pipeline_lists_1f1b(3, 4, &list), CT_OK);
    /* stage 1: F0 F1 B0 F2 … */
    list[1].item[3].micro = 1;
    expect_refused(list, 3, 4, "schedule of stage 1: forward of micro-batch 1 twice");
    list[1].item[3].micro = 4;
    expect_refused(list, 3, 4, "schedule of stage 1: forward of micro-batch 4 of 4");
    list[1].item[3].micro = 2;
    swap_items(&list[1], 0, 2);
    expect_refused(list, 3, 4, "stage 1: backward of micro-batch 0 before its forward");
    swap_items(&list[1], 0, 2);
    list[2].n = 7;
    expect_refused(list, 3, 4, "schedule of stage 2: 7 items for 4 micro-batches");
    list[2].n = 8;
    assert_int_equal(ct_pipeline_lists_check(list, 3, 4), CT_OK);
    ct_pipeline_lists_destroy(list, 3);
}

/* Each list alone is in order, but stage 0 waits for the backward of micro-batch 0 before it runs
 * forward 1, and stage 1 does not begin that backward before it has forward 1. */
static void test_deadlock(void **state)
{
    ct_pipeline_list *list;

    (void)state;
    assert_int_equal(ct_pipeline_lists_1f1b(2, 2, &list), CT_OK);
    swap_items(&list[0], 1, 2); /* F0 B0 F1 B1 */
    assert_int_equal(ct_pipeline_lists_check(list, 2, 2), CT_OK);
    swap_items(&list[1], 1, 2); /* F0 F1 B0 B1 */
    expect_refused(list, 2, 2,
                   "schedules of 2 stages deadlock: stage 0 waits for backward of micro-batch 0");
    ct_pipeline_lists_destroy(list, 2);
}

enum { MOST_NODE = 48 };

static bool reach[MOST_NODE][MOST_NODE];

static int place_of(const ct_pipeline_list *list, ct_pipeline_direction direction, int micro)
{
    for (int i = 0; i < list->n; ++i) {
        if ((list->item[i].direction == direction) && (list->item[i].micro == micro)) return i;
    }
    fail_msg("micro-batch %d is missing", micro);
    return -1;
}

/* Whether the graph of what has to wait for what has a circle, by its transitive closure. */
static bool has_circle(const ct_pipeline_list *list, int n_stage, int n_micro)
{
    int n = 2 * n_micro;
    bool circle = false;

    memset(reach, 0, sizeof(reach));
    for (int s = 0; s < n_stage; ++s) {
        for (int i = 0; i + 1 < n; ++i) reach[s * n + i][s * n + i + 1] = true;
        for (int m = 0; m < n_micro; ++m) {
            int forward = place_of(&list[s], CT_PIPELINE_FORWARD, m);
            int backward = place_of(&list[s], CT_PIPELINE_BACKWARD, m);

            reach[s * n + forward][s * n + backward] = true;
            if (s > 0)
                reach[(s - 1) * n + place_of(&list[s - 1], CT_PIPELINE_FORWARD, m)]
                     [s * n + forward] = true;
            if (s + 1 < n_stage)
                reach[(s + 1) * n + place_of(&list[s + 1], CT_PIPELINE_BACKWARD, m)]
                     [s * n + backward] = true;
        }
    }
    n *= n_stage;
    for (int k = 0; k < n; ++k) {
        for (int i = 0; i < n; ++i) {
            for (int j = 0; j < n; ++j) reach[i][j] |= reach[i][k] && reach[k][j];
        }
    }
    for (int i = 0; i < n; ++i) circle |= reach[i][i];
    return circle;
}

static int below(uint32_t *random, int n)
{
    *random = *random * 1664525u + 1013904223u;
    return (int)((*random >> 16) % (uint32_t)n);
}

/* Neighbours in lists exchanged at random: refused exactly where the graph has a circle. */
static void test_random_damage(void **state)
{
    uint32_t random = 1;
    int refused = 0;

    (void)state;
    for (int round = 0; round < 300; ++round) {
        int n_stage = 2 + round % 3, n_micro = 2 + round % 5;
        ct_pipeline_list *list;
        ct_status status;
        bool circle;

        assert_int_equal(ct_pipeline_lists_1f1b(n_stage, n_micro, &list), CT_OK);
        for (int k = 0; k < 3; ++k) {
            ct_pipeline_list *one = &list[below(&random, n_stage)];
            int i = below(&random, one->n - 1);

            swap_items(one, i, i + 1);
        }
        circle = has_circle(list, n_stage, n_micro);
        log_capture_start(NULL);
        status = ct_pipeline_lists_check(list, n_stage, n_micro);
        log_capture_stop();
        assert_int_equal(status, circle ? CT_ERR_CONFIG : CT_OK);
        refused += circle;
        ct_pipeline_lists_destroy(list, n_stage);
    }
    assert_in_range(refused, 30, 270); /* both kinds were there */
}

static void test_arguments(void **state)
{
    ct_pipeline_list list;

    (void)state;
    log_capture_start(NULL);
    assert_int_equal(ct_pipeline_list_1f1b(2, 2, 1, &list), CT_ERR_ARG);
    assert_int_equal(ct_pipeline_list_1f1b(-1, 2, 1, &list), CT_ERR_ARG);
    assert_int_equal(ct_pipeline_list_1f1b(0, 1, 0, &list), CT_ERR_ARG);
    log_capture_stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_sizes),     cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_damaged),       cmocka_unit_test(test_deadlock),
        cmocka_unit_test(test_random_damage), cmocka_unit_test(test_arguments),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
