/* Numbers of texts: what is one, and what the C library takes beside. */
#include "tests/test.h"

#include <string.h>

#include "framework/base/number.h"

static void test_reals(void **state)
{
    static const struct {
        const char *text;
        double v;
        const char *rest;
    } good[] = {
        { "0", 0, "" },   { "5", 5, "" },      { "-2.5", -2.5, "" },    { ".5", 0.5, "" },
        { "5.", 5, "" },  { "1e3", 1000, "" }, { "1e-400", 0, "" },     { "3,4", 3, ",4" },
        { "5x", 5, "x" }, { "1e", 1, "e" },    { "00.25 ", 0.25, " " }, { "1_0", 1, "_0" }
    };
    static const char *const bad[] = { "",    " 5",   "\t5",  "+5",   "x",       "nan",
                                       "inf", "-inf", "0x10", "-0x1", "1e400",   "-",
                                       ".",   "--5",  "e5",   "-.",   "infinity" };
    double v;
    char *end;

    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_true(ct_number_real(good[i].text, &end, &v));
        assert_true(v == good[i].v);
        assert_string_equal(end, good[i].rest);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(ct_number_real(bad[i], &end, &v));
}

static void test_integers(void **state)
{
    static const char *const bad[] = {
        "", " 5", "+5", "x", "-", "--5", "9223372036854775808", "-9223372036854775809", ".5"
    };
    int64_t v;
    char *end;

    (void)state;
    assert_true(ct_number_integer("9223372036854775807", &end, &v));
    assert_true((v == INT64_MAX) && (*end == '\0'));
    assert_true(ct_number_integer("-17x", &end, &v));
    assert_true((v == -17) && (*end == 'x'));
    assert_true(ct_number_integer("0x10", &end, &v));
    assert_true((v == 0) && (*end == 'x'));
    assert_true(ct_number_integer("3.5", &end, &v));
    assert_true((v == 3) && (*end == '.'));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(ct_number_integer(bad[i], &end, &v));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reals),
        cmocka_unit_test(test_integers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
