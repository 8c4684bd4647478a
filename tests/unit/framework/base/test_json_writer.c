#include "tests/test.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "framework/base/json.h"
#include "framework/base/json_writer.h"
#include "framework/base/log.h"

/* What is written must be these bytes, and what a strict reader takes. */
static void expect(ct_text *t, const char *bytes)
{
    json_t *o;

    assert_false(t->failed);
    assert_string_equal(t->text, bytes);
    o = json_loads(t->text, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    assert_non_null(o);
    json_decref(o);
    ct_text_destroy(t);
}

static void test_nesting(void **state)
{
    ct_text t = { 0 };
    ct_json_writer w = ct_json_into(&t);

    (void)state;
    ct_json_begin_object(&w, NULL);
    ct_json_begin_list(&w, "none");
    ct_json_end(&w);
    ct_json_begin_object(&w, "empty");
    ct_json_end(&w);
    ct_json_begin_list(&w, "list");
    ct_json_add_integer(&w, NULL, INT64_MIN);
    ct_json_add_integer(&w, NULL, INT64_MAX);
    ct_json_add_unsigned(&w, NULL, 7);
    ct_json_begin_object(&w, NULL);
    ct_json_add_bool(&w, "a", true);
    ct_json_end(&w);
    ct_json_begin_list(&w, NULL);
    ct_json_add_null(&w, NULL);
    ct_json_add_bool(&w, NULL, false);
    ct_json_end(&w);
    ct_json_end(&w);
    ct_json_add_text(&w, "text", "a\"b\n");
    ct_json_add_text(&w, "no text", NULL);
    ct_json_add_bytes(&w, "a \"key\"", "a\0b", 3);
    ct_json_add_hash(&w, "hash", 0xabc);
    ct_json_add_base64(&w, "base64", "foob", 4);
    ct_json_end(&w);
    expect(
        &t,
        "{\"none\":[],\"empty\":{},\"list\":[-9223372036854775808,9223372036854775807,7,{"
        "\"a\":true},"
        "[null,false]],\"text\":\"a\\\"b\\u000a\",\"no text\":null,"
        "\"a \\\"key\\\"\":\"a\\u0000b\",\"hash\":\"0000000000000abc\",\"base64\":\"Zm9vYg==\"}");
}

/* Plain runs, and what breaks them at either end. */
static void test_strings(void **state)
{
    ct_text t = { 0 };
    ct_json_writer w = ct_json_into(&t);

    (void)state;
    ct_json_begin_list(&w, NULL);
    ct_json_add_text(&w, NULL, "");
    ct_json_add_text(&w, NULL, "plain");
    ct_json_add_text(&w, NULL, "\\in the\"middle\x1f");
    ct_json_add_text(&w, NULL, "gr\xc3\xbcn\xff");
    ct_json_end(&w);
    expect(&t, "[\"\",\"plain\",\"\\\\in the\\\"middle\\u001f\",\"gr\xc3\xbcn\xef\xbf\xbd\"]");
}

static void test_whole_value(void **state)
{
    ct_text t = { 0 };
    ct_json_writer w = ct_json_into(&t);

    (void)state;
    ct_json_add_text(&w, NULL, "alone");
    expect(&t, "\"alone\"");
}

static void test_numbers(void **state)
{
    ct_text t = { 0 };
    ct_json_writer w = ct_json_into(&t);

    (void)state;
    ct_json_begin_list(&w, NULL);
    ct_json_add_number(&w, NULL, 1.0 / 3);
    ct_json_add_digits(&w, NULL, 0.1, 17);
    ct_json_add_digits(&w, NULL, 1234.5678, 3);
    ct_json_add_decimals(&w, NULL, 2.0 / 3, 3);
    ct_json_add_decimals(&w, NULL, 1e15, 0);
    ct_json_add_number(&w, NULL, NAN);
    ct_json_add_digits(&w, NULL, INFINITY, 17);
    ct_json_add_decimals(&w, NULL, -INFINITY, 3);
    ct_json_add_number(&w, NULL, DBL_MAX);
    ct_json_end(&w);
    expect(&t, "[0.333333333,0.10000000000000001,1.23e+03,0.667,1000000000000000,null,null,null,"
               "1.79769313e+308]");
}

static void test_members(void **state)
{
    ct_text t = { 0 }, some = { 0 };
    ct_json_writer w = ct_json_members_into(&some);

    (void)state;
    ct_json_add_integer(&w, "a", 1);
    ct_json_begin_list(&w, "b");
    ct_json_end(&w);
    assert_string_equal(some.text, "\"a\":1,\"b\":[]");
    w = ct_json_into(&t);
    ct_json_begin_object(&w, NULL);
    ct_json_add_members(&w, NULL);
    ct_json_add_members(&w, "");
    ct_json_add_members(&w, some.text);
    ct_json_begin_object(&w, "again");
    ct_json_add_integer(&w, "z", 0);
    ct_json_add_members(&w, some.text);
    ct_json_end(&w);
    ct_json_add_made(&w, "made", "{\"x\":2}");
    ct_json_end(&w);
    ct_text_destroy(&some);
    expect(&t, "{\"a\":1,\"b\":[],\"again\":{\"z\":0,\"a\":1,\"b\":[]},\"made\":{\"x\":2}}");
}

static void test_breaks(void **state)
{
    ct_text t = { 0 };
    ct_json_writer w = ct_json_into(&t);

    (void)state;
    ct_json_begin_object(&w, NULL);
    ct_json_add_integer(&w, "a", 1);
    ct_json_break(&w);
    ct_json_begin_list(&w, "b");
    for (int i = 0; i < 2; i++) {
        ct_json_break(&w);
        ct_json_add_integer(&w, NULL, i);
    }
    ct_json_break(&w);
    ct_json_end(&w);
    ct_json_end(&w);
    expect(&t, "{\"a\":1,\n\"b\":[\n0,\n1\n]}");
}

/* ---- misuse */

typedef void (*misuse_fn)(ct_json_writer *w);

static void no_key(ct_json_writer *w)
{
    ct_json_begin_object(w, NULL);
    ct_json_add_integer(w, NULL, 1);
}

static void key_in_list(ct_json_writer *w)
{
    ct_json_begin_list(w, NULL);
    ct_json_add_text(w, "key", "x");
}

static void key_at_top(ct_json_writer *w)
{
    ct_json_begin_object(w, "key");
}

static void second_value(ct_json_writer *w)
{
    ct_json_add_null(w, NULL);
    ct_json_begin_list(w, NULL);
}

static void end_of_nothing(ct_json_writer *w)
{
    ct_json_begin_list(w, NULL);
    ct_json_end(w);
    ct_json_end(w);
}

static void end_of_members(ct_json_writer *w)
{
    *w = ct_json_members_into(w->to);
    ct_json_add_null(w, "a");
    ct_json_end(w);
}

static void members_in_list(ct_json_writer *w)
{
    ct_json_begin_list(w, NULL);
    ct_json_add_members(w, "\"a\":1");
}

static void too_deep(ct_json_writer *w)
{
    for (int i = 0; i <= CT_JSON_MOST_DEPTH; i++) ct_json_begin_list(w, NULL);
}

static void count_lines(void *ctx, const char *text)
{
    if (strstr(text, "JSON writer: ") != NULL) *(int *)ctx += 1;
}

static void test_misuse(void **state)
{
    static const misuse_fn misuse[] = { no_key,          key_in_list,    key_at_top,
                                        second_value,    end_of_nothing, end_of_members,
                                        members_in_list, too_deep };

    (void)state;
    for (size_t i = 0; i < sizeof(misuse) / sizeof(misuse[0]); i++) {
        ct_text t = { 0 };
        ct_json_writer w = ct_json_into(&t);
        int n_line = 0;

        ct_log_set_sink(count_lines, &n_line);
        misuse[i](&w);
        ct_log_set_sink(NULL, NULL);
        assert_true(t.failed);
        assert_int_equal(n_line, 1);
        ct_text_destroy(&t);
    }
}

/* The deepest that is allowed ends well. */
static void test_depth(void **state)
{
    ct_text t = { 0 };
    ct_json_writer w = ct_json_into(&t);

    (void)state;
    for (int i = 0; i < CT_JSON_MOST_DEPTH; i++) ct_json_begin_list(&w, NULL);
    for (int i = 0; i < CT_JSON_MOST_DEPTH; i++) ct_json_end(&w);
    assert_false(t.failed);
    assert_int_equal(t.length, 2 * CT_JSON_MOST_DEPTH);
    ct_text_destroy(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nesting),     cmocka_unit_test(test_strings),
        cmocka_unit_test(test_whole_value), cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_members),     cmocka_unit_test(test_breaks),
        cmocka_unit_test(test_misuse),      cmocka_unit_test(test_depth),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
