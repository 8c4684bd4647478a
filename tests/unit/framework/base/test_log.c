/* What a line of the log has of a message: one line, whatever names and values are in it. */
#include "tests/test.h"

#include <stdlib.h>
#include <string.h>

#include "framework/base/log.h"
#include "framework/base/thread.h"
#include "tests/log_capture.h"

static log_capture said;

static void expect(const char *given, const char *wanted)
{
    log_capture_start(&said);
    ct_log_at(CT_LOG_ERROR, __FILE__, __LINE__, "%s: no such file", given);
    log_capture_stop();
    assert_int_equal(said.n_error, 1);
    assert_string_equal(said.error, wanted);
}

static void test_control_characters(void **state)
{
    char last[64];

    (void)state;
    expect("a\nb", "a\\nb: no such file");
    ct_log_last_error(last, sizeof(last));
    assert_string_equal(last, "a\\nb: no such file");
    expect("\x1b[31mred\r\x7f", "\\x1b[31mred\\x0d\\x7f: no such file");
    expect("\xc2\x9b"
           "31m",
           "\\xc2\\x9b31m: no such file");                   /* the same of 8 bits */
    expect("\xe2\x80\xa8", "\\xe2\\x80\\xa8: no such file"); /* a line separator   */
    expect("one\ttwo \\n %s", "one\ttwo \\n %s: no such file");
}

static void test_bytes_that_are_no_text(void **state)
{
    (void)state;
    expect("\xff\xfe", "\\xff\\xfe: no such file");
    expect("\xc3(", "\\xc3(: no such file");
    expect("größe €", "größe €: no such file");
}

/* Begin and end of it, cut between characters. */
static void check_long(size_t n, const char *filler, size_t each)
{
    static const char end[] = ": no such file", gap[] = " … ";
    char *name = calloc(n + 1, 1);
    const char *at;

    assert_non_null(name);
    for (size_t i = 0; i + each <= n; i += each) memcpy(name + i, filler, each);
    log_capture_start(&said);
    ct_log_at(CT_LOG_ERROR, __FILE__, __LINE__, "%s%s", name, end);
    log_capture_stop();
    free(name);
    assert_int_equal(said.n_error, 1);
    at = strstr(said.error, gap);
    assert_non_null(at);
    assert_true((at - said.error > 1000) && (strlen(at) > 1000));
    assert_string_equal(said.error + strlen(said.error) - strlen(end), end);
    assert_null(strchr(said.error, '\\'));
}

/* One of several threads is told; the others' words are theirs. */
static void test_held(void **state)
{
    long before = ct_log_n_error();
    char last[64];

    (void)state;
    log_capture_start(&said);
    ct_log_hold_errors(true);
    ct_log_at(CT_LOG_ERROR, __FILE__, __LINE__, "held\n");
    ct_log_hold_errors(false);
    assert_int_equal(said.n_error, 0);
    assert_int_equal(ct_log_n_error(), before);
    ct_log_last_error(last, sizeof(last));
    assert_string_equal(last, "held\\n");
    ct_log_at(CT_LOG_ERROR, __FILE__, __LINE__, "told");
    log_capture_stop();
    assert_int_equal(said.n_error, 1);
    assert_int_equal(ct_log_n_error(), before + 1);
}

static void test_long_names(void **state)
{
    (void)state;
    check_long(5000, "n", 1);
    check_long(8200, "€", 3);
    check_long(100000, "ä", 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_control_characters),
        cmocka_unit_test(test_bytes_that_are_no_text),
        cmocka_unit_test(test_held),
        cmocka_unit_test(test_long_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
