/* A forward pass that ranks share: its time against one worked out by hand, and its file. */
#include "tests/test.h"

#include <string.h>

#include "planner/forward_pass.h"
#include "tests/log_capture.h"

/* 2 ranks, a byte a second, no latency: a sum of 8 bytes takes 2 * 1/2 * 8 = 8 s, a gather of 8
 * bytes 4 s. */
static const ct_job_link link = { .byte_s = 1 };
#define COMPUTE(s) "{\"step\":\"compute\",\"layer\":\"l\",\"ms\":" #s "000}"
#define BEGIN(k, t, n)                                                                             \
    "{\"step\":\"begin\",\"layer\":\"l\",\"pair\":" #k ",\"transfer\":\"" t "\",\"bytes\":" #n "}"
#define WAIT(k) "{\"step\":\"wait\",\"layer\":\"l\",\"pair\":" #k "}"
#define HEAD    "{\"forward_pass\":1,\"net\":\"n\",\"ranks\":2,\"steps\":["

static void parse(const char *text, ct_forward_pass *f)
{
    assert_int_equal(ct_forward_pass_parse("f.json", text, strlen(text), f), CT_OK);
}

static void test_hidden_and_exposed(void **state)
{
    ct_forward_pass f;
    ct_forward_times t;

    (void)state;
    /* 3 | sum until 11 | 5: 8 | gather behind the sum, until 15 | waits until 11 | 2: 13 | until 15
     * | 1: 16 */
    parse(HEAD COMPUTE(3) "," BEGIN(0, "sum", 8) "," COMPUTE(5) "," BEGIN(1, "gather", 8) "," WAIT(
              0) "," COMPUTE(2) "," WAIT(1) "," COMPUTE(1) "]}",
          &f);
    assert_int_equal(f.n_step, 8);
    assert_int_equal(f.n_pair, 2);
    assert_int_equal(ct_forward_pass_time(&f, link, true, &t), CT_OK);
    assert_true((t.all_s == 16) && (t.compute_s == 11) && (t.sums_s == 12) && (t.exposed_s == 5));
    assert_int_equal(ct_forward_pass_time(&f, link, false, &t), CT_OK);
    assert_true((t.all_s == 23) && (t.exposed_s == 12));
    ct_forward_pass_destroy(&f);
}

static void test_latencies(void **state)
{
    const ct_forward_step sum = { .transfer = CT_TRANSFER_SUM, .bytes = 300 };
    const ct_forward_step scatter = { .transfer = CT_TRANSFER_SCATTER, .bytes = 300 };
    const ct_job_link slow = { .byte_s = 0.5, .latency_s = 7 };

    (void)state;
    assert_true(ct_forward_transfer_s(&sum, 3, slow) == 2 * (200 * 0.5 + 7));
    assert_true(ct_forward_transfer_s(&scatter, 3, slow) == 200 * 0.5 + 7);
    assert_true(ct_forward_transfer_s(&sum, 1, slow) == 0);
}

static void test_file_and_back(void **state)
{
    ct_forward_pass f, again;
    ct_text text = { 0 };
    ct_json_writer w;

    (void)state;
    parse(HEAD COMPUTE(3) "," BEGIN(1, "scatter", 8) "," BEGIN(0, "sum",
                                                               4) "," WAIT(0) "," WAIT(1) "]}",
          &f);
    w = ct_json_into(&text);
    ct_json_begin_object(&w, NULL);
    ct_forward_pass_json("n", &f, &w);
    ct_json_end(&w);
    parse(text.text, &again);
    assert_int_equal(again.n_rank, f.n_rank);
    assert_int_equal(again.n_step, f.n_step);
    for (int i = 0; i < f.n_step; i++) {
        assert_int_equal(again.step[i].kind, f.step[i].kind);
        assert_string_equal(again.step[i].layer, f.step[i].layer);
        assert_true(again.step[i].seconds == f.step[i].seconds);
        assert_int_equal(again.step[i].pair, f.step[i].pair);
        assert_int_equal(again.step[i].transfer, f.step[i].transfer);
        assert_int_equal(again.step[i].bytes, f.step[i].bytes);
    }
    ct_text_destroy(&text);
    ct_forward_pass_destroy(&f);
    ct_forward_pass_destroy(&again);
}

static void test_refuses(void **state)
{
    static const struct {
        const char *text, *message;
    } bad[] = {
        { "{", "f.json:1:" },
        { "{}", "is no forward pass" },
        { "{\"forward_pass\":1,\"ranks\":0}", "ranks: expected a whole number" },
        { "{\"forward_pass\":1,\"ranks\":2,\"steps\":[]}", "steps: expected a list" },
        { HEAD "{}]}", "steps[0].layer: expected a text" },
        { HEAD "{\"layer\":\"l\",\"step\":\"send\"}]}",
          "steps[0].step: expected compute, begin or wait" },
        { HEAD "{\"layer\":\"l\",\"step\":\"compute\",\"ms\":-1}]}",
          "steps[0].ms: expected a number" },
        { HEAD COMPUTE(1) "," BEGIN(2, "sum", 4) "]}", "steps[1].pair: expected a whole number" },
        { HEAD BEGIN(0, "mean", 4) "]}", "steps[0].transfer: expected sum, gather or scatter" },
        { HEAD BEGIN(0, "sum", -4) "]}", "steps[0].bytes: expected" },
        { HEAD BEGIN(0, "sum", 4) "," BEGIN(0, "sum", 4) "]}", "has not begun before" },
        { HEAD WAIT(0) "]}", "one that has begun" },
        { HEAD BEGIN(0, "sum", 4) "," WAIT(0) "," WAIT(0) "]}", "was not waited for" },
        { HEAD BEGIN(0, "sum", 4) "]}", "pair 0 begins, and nothing waits for it" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ct_forward_pass f;
        log_capture said;
        ct_status status;

        log_capture_start(&said);
        status = ct_forward_pass_parse("f.json", bad[i].text, strlen(bad[i].text), &f);
        log_capture_stop();
        assert_int_equal(status, CT_ERR_DATA);
        if (strstr(said.error, bad[i].message) == NULL)
            fail_msg("%s: \"%s\" lacks \"%s\"", bad[i].text, said.error, bad[i].message);
        assert_null(f.step);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hidden_and_exposed),
        cmocka_unit_test(test_latencies),
        cmocka_unit_test(test_file_and_back),
        cmocka_unit_test(test_refuses),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
