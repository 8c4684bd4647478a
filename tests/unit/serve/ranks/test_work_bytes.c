/* Works as bytes and back, as they go to a replica: what the other end computes is what the fake
 * would say here, and bytes that are none of a batch are told. */
#include "tests/test.h"

#include <stdlib.h>
#include <string.h>

#include "serve/ranks/work_bytes.h"
#include "tests/log_capture.h"
#include "tests/served_fake.h"

static served_fake fake;

/* The other end: reads what is asked, runs it, and says what came out. */
static ct_status answer(const ct_text *asked, ct_text *to)
{
    const ct_served_model *m = &fake.model;
    ct_works w;
    ct_status status = ct_works_read(m, asked->text, asked->length, &w);

    if ((status == CT_OK) && (w.kind == CT_WORK_EMBED)) status = m->embed(m->ctx, w.each, w.n);
    if ((status == CT_OK) && (w.kind == CT_WORK_INFER)) status = m->infer(m->ctx, w.each, w.n);
    if (status == CT_OK) ct_work_bytes_answer(m, w.kind, w.each, w.n, to);
    ct_works_free(&w);
    return status;
}

static void test_embed(void **state)
{
    int32_t ids[] = { 3, 0, 255, 7, 8 };
    float row[3][FAKE_SIZE] = { { 0 } };
    ct_work work[3] = { { .kind = CT_WORK_EMBED, .padding = 4, .row = row[0] },
                        { .kind = CT_WORK_EMBED, .row = row[1] },
                        { .kind = CT_WORK_EMBED, .row = row[2] } };
    ct_work *each[] = { &work[0], &work[1], &work[2] };
    ct_text asked = { 0 }, said = { 0 };
    ct_works w;

    (void)state;
    work[0].ids = (ct_ids){ .id = ids, .n = 5 };
    work[1].ids = (ct_ids){ .id = ids, .n = 1 };
    work[2].ids = (ct_ids){ .id = ids + 1, .n = 2 };
    ct_work_bytes_ask(&fake.model, CT_WORK_EMBED, each, 3, &asked);
    assert_int_equal(ct_works_read(&fake.model, asked.text, asked.length, &w), CT_OK);
    assert_int_equal(w.work[0].padding, 4);
    assert_int_equal(w.work[1].padding, 0);
    ct_works_free(&w);
    assert_int_equal(answer(&asked, &said), CT_OK);
    assert_int_equal(
        ct_work_bytes_take_answer(&fake.model, CT_WORK_EMBED, each, 3, said.text, said.length),
        CT_OK);
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < FAKE_SIZE; k++)
            assert_true(row[i][k] == ((k == work[i].ids.n % FAKE_SIZE) ? 1 : 0));
    ct_text_destroy(&asked);
    ct_text_destroy(&said);
}

static void test_infer(void **state)
{
    float x[] = { 1, 2, 3, 4, 5, 6 }, ids[] = { 10, 20, 30, 40 };
    ct_served_values input[2] = { { 2, { 2, 3 }, x }, { 2, { 2, 2 }, ids } }, output[2] = { 0 };
    ct_work work = { .kind = CT_WORK_INFER, .input = input, .output = output }, *each = &work;
    ct_text asked = { 0 }, said = { 0 };

    (void)state;
    ct_work_bytes_ask(&fake.model, CT_WORK_INFER, &each, 1, &asked);
    assert_int_equal(answer(&asked, &said), CT_OK);
    assert_int_equal(
        ct_work_bytes_take_answer(&fake.model, CT_WORK_INFER, &each, 1, said.text, said.length),
        CT_OK);
    assert_int_equal(output[0].n_dim, 1);
    assert_int_equal(output[0].dim[0], 2);
    assert_true((output[0].data[0] == 36) && (output[0].data[1] == 85));
    assert_int_equal(output[1].n_dim, 2);
    assert_int_equal(output[1].dim[1], 3);
    for (int k = 0; k < 6; k++) assert_true(output[1].data[k] == 2 * x[k]);
    free(output[0].data);
    free(output[1].data);
    ct_text_destroy(&asked);
    ct_text_destroy(&said);
}

static void expect_bad(const char *data, size_t size, const char *why)
{
    log_capture log;
    ct_works w;

    log_capture_start(&log);
    assert_int_equal(ct_works_read(&fake.model, data, size, &w), CT_ERR_COMM);
    log_capture_stop();
    assert_non_null(strstr(log.error, why));
    ct_works_free(&w);
}

/* Each beginning of a message is told; and what goes on beyond its end; and what cannot be. */
static void test_bad(void **state)
{
    float x[] = { 1, 2, 3 }, ids[] = { 10 };
    ct_served_values input[2] = { { 2, { 1, 3 }, x }, { 2, { 1, 1 }, ids } };
    ct_work work = { .kind = CT_WORK_INFER, .input = input }, *each = &work;
    float row[FAKE_SIZE];
    ct_work text = { .kind = CT_WORK_EMBED, .row = row }, *one = &text;
    ct_text asked = { 0 };
    int64_t wrong;
    log_capture log;

    (void)state;
    ct_work_bytes_ask(&fake.model, CT_WORK_INFER, &each, 1, &asked);
    for (size_t n = 0; n < asked.length; n++) expect_bad(asked.text, n, "it ends too soon");
    ct_text_add_bytes(&asked, "x", 1);
    expect_bad(asked.text, asked.length, "it goes on beyond its end");
    wrong = 9; /* no such kind */
    memcpy(asked.text, &wrong, sizeof(wrong));
    expect_bad(asked.text, asked.length, "it ends too soon");
    wrong = CT_WORK_INFER;
    memcpy(asked.text, &wrong, sizeof(wrong));
    wrong = -1; /* of the first work: its padding; then of its first input: a dimension */
    memcpy(asked.text + 2 * sizeof(wrong), &wrong, sizeof(wrong));
    expect_bad(asked.text, asked.length, "it ends too soon");
    wrong = 0;
    memcpy(asked.text + 2 * sizeof(wrong), &wrong, sizeof(wrong));
    wrong = -1;
    memcpy(asked.text + 4 * sizeof(wrong), &wrong, sizeof(wrong));
    expect_bad(asked.text, asked.length, "it ends too soon");
    ct_text_destroy(&asked);
    log_capture_start(&log);
    assert_int_equal(ct_work_bytes_take_answer(&fake.model, CT_WORK_EMBED, &one, 1, "abc", 3),
                     CT_ERR_COMM);
    log_capture_stop();
    assert_non_null(strstr(log.error, "a message between ranks: it ends too soon"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embed),
        cmocka_unit_test(test_infer),
        cmocka_unit_test(test_bad),
    };
    int failed;

    served_fake_open(&fake);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    served_fake_close(&fake);
    return failed;
}
