/* The interpreter of step lists, on hooks that write down what they hear. */
#include "tests/test.h"

#include <stdio.h>
#include <string.h>

#include "framework/net/step.h"

typedef struct journal {
    char text[256];
    double clock;
    int fails_at; /* the event that fails, from 1; 0: none */
    int n;
} journal;

static ct_status note(journal *j, char what, int which)
{
    size_t used = strlen(j->text);

    snprintf(j->text + used, sizeof(j->text) - used, "%c%d ", what, which);
    return (++j->n == j->fails_at) ? CT_ERR_DEVICE : CT_OK;
}

static ct_status run(void *ctx, ct_step *s, int i)
{
    journal *j = ctx;

    j->clock += 1.0 + i;
    return note(j, (s->kind == CT_STEP_FORWARD) ? 'f' : 'b', s->layer);
}

static ct_status begin(void *ctx, ct_step *s, int i)
{
    (void)i;
    return note(ctx, 'r', s->param);
}

static ct_status wait_for(void *ctx, ct_step *s, int i)
{
    (void)i;
    ((journal *)ctx)->clock += 100.0;
    return note(ctx, 'w', s->param);
}

static ct_status poll(void *ctx)
{
    ((journal *)ctx)->clock += 1000.0;
    return note(ctx, 'p', 0);
}

static ct_status now(void *ctx, double *seconds_p)
{
    *seconds_p = ((journal *)ctx)->clock;
    return CT_OK;
}

static void ended(void *ctx, int i)
{
    (void)note(ctx, 'e', i);
}

static void fill(ct_step *list)
{
    list[0] = (ct_step){ .kind = CT_STEP_WAIT, .layer = 0, .param = 4, .blob = -1 };
    list[1] = (ct_step){ .kind = CT_STEP_FORWARD, .layer = 0, .param = -1, .blob = -1 };
    list[2] = (ct_step){ .kind = CT_STEP_BACKWARD, .layer = 7, .param = -1, .blob = -1 };
    list[3] = (ct_step){ .kind = CT_STEP_BEGIN, .layer = 7, .param = 5, .blob = -1 };
}

static void test_order_and_times(void **state)
{
    const ct_step_hooks h = { run, begin, wait_for, poll, now, ended };
    journal j = { .n = 0 };
    ct_step list[4];

    (void)state;
    fill(list);
    assert_int_equal(ct_steps_run(list, 4, &h, &j), CT_OK);
    assert_string_equal(j.text, "w4 e0 f0 e1 p0 b7 e2 p0 r5 e3 ");
    assert_true(list[0].seconds == 100.0);
    assert_true(list[1].seconds == 2.0); /* without the poll */
    assert_true(list[2].seconds == 3.0);
    assert_true(list[3].seconds == 0.0);
}

static void test_only_run(void **state)
{
    const ct_step_hooks h = { .run = run };
    journal j = { .n = 0 };
    ct_step list[4];

    (void)state;
    fill(list);
    list[1].seconds = 8.0;
    assert_int_equal(ct_steps_run(list, 4, &h, &j), CT_OK);
    assert_string_equal(j.text, "f0 b7 ");
    assert_true(list[1].seconds == 8.0); /* of an earlier run, with times */
    assert_int_equal(ct_steps_run(list, 0, &h, &j), CT_OK);
}

static void test_errors_end_the_list(void **state)
{
    static const char *const until[] = { "w4 ", "w4 e0 f0 ", "w4 e0 f0 e1 p0 ",
                                         "w4 e0 f0 e1 p0 b7 e2 p0 r5 " };
    static const int at[] = { 1, 3, 5, 9 };
    const ct_step_hooks h = { run, begin, wait_for, poll, NULL, ended };
    ct_step list[4];

    (void)state;
    fill(list);
    for (int i = 0; i < 4; i++) {
        journal j = { .fails_at = at[i] };

        assert_int_equal(ct_steps_run(list, 4, &h, &j), CT_ERR_DEVICE);
        assert_string_equal(j.text, until[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_and_times),
        cmocka_unit_test(test_only_run),
        cmocka_unit_test(test_errors_end_the_list),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
