#include "tests/test.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/base/json.h"

/* ---- strings: what a strict reader gets back */

static void test_strings(void **state)
{
    static const char *const pair[][2] = {
        { "plain", "plain" },
        { "\"\\\x01\n\x7f", "\"\\\x01\n\x7f" },
        { "gr\xc3\xb6\xc3\x9f \xf0\x9f\x98\x80", "gr\xc3\xb6\xc3\x9f \xf0\x9f\x98\x80" },
        { "\xffz", "\xef\xbf\xbdz" },                               /* no first byte */
        { "a\xc3", "a\xef\xbf\xbd" },                               /* cut          */
        { "\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd" },                 /* overlong     */
        { "\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" }, /* a surrogate  */
    };

    (void)state;
    for (size_t i = 0; i < sizeof(pair) / sizeof(pair[0]); i++) {
        ct_text t = { 0 };
        json_t *o;

        ct_text_add_json(&t, pair[i][0]);
        o = json_loads(t.text, JSON_DECODE_ANY, NULL);
        assert_non_null(o);
        assert_string_equal(json_string_value(o), pair[i][1]);
        json_decref(o);
        ct_text_destroy(&t);
    }
}

static void test_no_bytes(void **state)
{
    ct_text t = { 0 };

    (void)state;
    ct_text_add_json_bytes(&t, NULL, 0);
    assert_string_equal(t.text, "\"\"");
    ct_text_destroy(&t);
}

/* ---- base64: the vectors of RFC 4648, section 10, and bytes over 127 */

static void test_base64(void **state)
{
    static const char *const pair[][2] = { { "", "" },
                                           { "f", "Zg==" },
                                           { "fo", "Zm8=" },
                                           { "foo", "Zm9v" },
                                           { "foob", "Zm9vYg==" },
                                           { "fooba", "Zm9vYmE=" },
                                           { "foobar", "Zm9vYmFy" },
                                           { "\xfb\xff\xfe", "+//+" } };

    (void)state;
    for (size_t i = 0; i < sizeof(pair) / sizeof(pair[0]); i++) {
        ct_text t = { 0 };

        ct_text_add_base64(&t, pair[i][0], strlen(pair[i][0]));
        assert_string_equal((t.text != NULL) ? t.text : "", pair[i][1]);
        ct_text_destroy(&t);
    }
}

/* ---- members */

static void test_members(void **state)
{
    json_t *o = json_loads("{\"a\":{\"b\":2.5,\"c\":\"x\"},\"n\":7,\"z\":null}", 0, NULL);

    (void)state;
    assert_non_null(o);
    assert_true(ct_json_number(o, "a.b", 0) == 2.5);
    assert_true(ct_json_number(o, "n", 0) == 7);
    assert_true(ct_json_number(o, "a.c", 3) == 3); /* a text */
    assert_true(ct_json_number(o, "z", 3) == 3);   /* null */
    assert_true(ct_json_number(o, "n.b", 3) == 3); /* of a number */
    assert_true(ct_json_number(NULL, "n", 3) == 3);
    assert_string_equal(ct_json_text(o, "a.c", "y"), "x");
    assert_string_equal(ct_json_text(o, "a.d", "y"), "y");
    assert_string_equal(ct_json_text(NULL, "a", "y"), "y");
    json_decref(o);
}

/* ---- lines */

typedef struct taken {
    double sum;
    int last;
} taken;

static ct_status take(void *ctx, const char *path, int line, json_t *o)
{
    taken *t = ctx;

    (void)path;
    t->sum += ct_json_number(o, "v", 0);
    t->last = line;
    return (ct_json_number(o, "stop", 0) > 0) ? CT_STOPPED : CT_OK;
}

static ct_status read_text(const char *text, taken *t)
{
    char path[] = "/tmp/cortado-json-XXXXXX";
    int fd = mkstemp(path);
    ct_status status;

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    *t = (taken){ 0 };
    status = ct_json_lines(path, take, t);
    unlink(path);
    return status;
}

/* Files may say what no int holds. */
static void test_ints(void **state)
{
    static const struct {
        const char *text;
        int want;
    } of[] = { { "{\"n\": 5}", 5 },
               { "{\"n\": -2.9}", -2 },
               { "{\"n\": 2147483647}", 2147483647 },
               { "{\"n\": 2147483648}", 7 },
               { "{\"n\": -2147483648}", -2147483647 - 1 },
               { "{\"n\": -2147483649}", 7 },
               { "{\"n\": 1e300}", 7 },
               { "{\"n\": \"5\"}", 7 },
               { "{}", 7 } };

    (void)state;
    for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
        json_t *o = json_loads(of[i].text, 0, NULL);

        assert_non_null(o);
        assert_int_equal(ct_json_int(o, "n", 7), of[i].want);
        json_decref(o);
    }
}

static void test_lines(void **state)
{
    taken t;

    (void)state;
    assert_int_equal(read_text("", &t), CT_OK);
    assert_int_equal(t.last, 0);
    assert_int_equal(read_text("{\"v\":1}\n{\"v\":2}\n", &t), CT_OK);
    assert_true((t.sum == 3) && (t.last == 2));
    /* a last line that is not whole, or has no end yet */
    assert_int_equal(read_text("{\"v\":1}\n{\"v\":2", &t), CT_OK);
    assert_true((t.sum == 1) && (t.last == 1));
    assert_int_equal(read_text("{\"v\":1}\n{\"v\":2}", &t), CT_OK);
    assert_true(t.last == 1);
    assert_int_equal(read_text("{\"v\":1}\nno\n{\"v\":2}\n", &t), CT_ERR_DATA);
    assert_true(t.last == 1);
    assert_int_equal(read_text("{\"v\":1}\n\n", &t), CT_ERR_DATA);
    assert_int_equal(read_text("[1]\n", &t), CT_ERR_DATA);
    assert_int_equal(read_text("{\"v\":1,\"stop\":1}\n{\"v\":2}\n", &t), CT_STOPPED);
    assert_true(t.last == 1);
    assert_int_equal(ct_json_lines("/nonexistent/lines", take, &t), CT_ERR_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strings), cmocka_unit_test(test_no_bytes),
        cmocka_unit_test(test_base64),  cmocka_unit_test(test_members),
        cmocka_unit_test(test_lines),   cmocka_unit_test(test_ints),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
