#include "tests/test.h"

#include <stdlib.h>
#include <string.h>

#include "framework/base/option.h"

static const ct_option table[] = {
    { "solver", CT_OPTION_TEXT, "train check", "FILE", "the solver" },
    { "iterations", CT_OPTION_COUNT, "train test", "N", "how many" },
    { "count", CT_OPTION_SOME, "train", "N", "one at least" },
    { "seed", CT_OPTION_SEED, "train", "N", "of 64 bits" },
    { "set", CT_OPTION_LIST, "train", "FIELD=VALUE", "overrides" },
    { "deterministic", CT_OPTION_FLAG, "train", NULL, "bitwise" },
    { "sigint_effect", CT_OPTION_CHOICE, "train", "stop|snapshot|none", "on SIGINT" },
    { "log", CT_OPTION_TEXT, "*", "LEVEL", "how much" },
    { "json", CT_OPTION_MAYBE, "time", "FILE", "to a file or not" },
    { "files", CT_OPTION_REST, "show", "FILES", "what is no option" },
};

static char last[512];

static void keep(void *ctx, const char *text)
{
    (void)ctx;
    snprintf(last, sizeof(last), "%s", text);
}

static ct_status parse(ct_options **o_p, int argc, const char *const *argv)
{
    return ct_options_parse(table, (int)(sizeof(table) / sizeof(table[0])), argc,
                            (char *const *)(uintptr_t)argv, o_p);
}

#define PARSE(_o, ...)                                                                             \
    parse(_o, (int)(sizeof((const char *[]){ __VA_ARGS__ }) / sizeof(char *)),                     \
          (const char *[]){ __VA_ARGS__ })

static void test_forms(void **state)
{
    ct_options *o;
    ct_origin origin;

    (void)state;
    assert_int_equal(PARSE(&o, "train", "--solver=a.prototxt", "--iterations", "7", "--set",
                           "base_lr=0.1", "--set=comm.bucket_mb=2", "--deterministic"),
                     CT_OK);
    assert_string_equal(ct_options_text(o, "solver"), "a.prototxt");
    assert_int_equal(ct_options_count(o, "iterations", 1), 7);
    assert_true(ct_options_flag(o, "deterministic"));
    assert_int_equal(ct_options_n(o, "set"), 2);
    assert_string_equal(ct_options_entry(o, "set", 0, NULL), "base_lr=0.1");
    assert_string_equal(ct_options_entry(o, "set", 1, &origin), "comm.bucket_mb=2");
    assert_int_equal(origin, CT_ORIGIN_COMMAND);
    assert_null(ct_options_entry(o, "set", 2, NULL));
    assert_null(ct_options_text(o, "log"));
    assert_int_equal(ct_options_origin(o, "log"), CT_ORIGIN_DEFAULT);
    ct_options_destroy(o);

    assert_int_equal(PARSE(&o, "train", "--sigint-effect=none", "--deterministic=false"), CT_OK);
    assert_string_equal(ct_options_text(o, "sigint_effect"), "none");
    assert_false(ct_options_flag(o, "deterministic"));
    ct_options_destroy(o);
}

/* What does not fit would be another number where an int takes it. */
static void test_counts(void **state)
{
    static const char *const wrong[] = {
        "-1",  "5x", " 5",  "5 ",         "+5",         "0x10",
        "1e3", "",   "nan", "2147483648", "4294967298", "99999999999999999999"
    };
    char word[64];
    ct_options *o;

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        snprintf(word, sizeof(word), "--iterations=%s", wrong[i]);
        assert_int_equal(PARSE(&o, "train", word), CT_ERR_CONFIG);
        assert_non_null(strstr(last, ": expected a whole number, 0 to 2147483647\n"));
    }
    assert_int_equal(PARSE(&o, "train", "--count=0"), CT_ERR_CONFIG);
    assert_non_null(strstr(last, "--count=0: expected a whole number, 1 to 2147483647\n"));
    assert_int_equal(PARSE(&o, "train", "--seed=9223372036854775808"), CT_ERR_CONFIG);
    assert_non_null(strstr(last, ": expected a whole number, 0 to 9223372036854775807\n"));
    assert_int_equal(
        PARSE(&o, "train", "--iterations=0", "--count=2147483647", "--seed=9223372036854775807"),
        CT_OK);
    assert_int_equal(ct_options_count(o, "iterations", 1), 0);
    assert_int_equal(ct_options_count(o, "count", 1), 2147483647);
    assert_int_equal(ct_options_count(o, "seed", 1), INT64_MAX);
    ct_options_destroy(o);
}

static void test_value_or_none(void **state)
{
    ct_options *o;

    (void)state;
    assert_int_equal(PARSE(&o, "time"), CT_OK);
    assert_null(ct_options_text(o, "json"));
    ct_options_destroy(o);
    assert_int_equal(PARSE(&o, "time", "--json", "--log=info"), CT_OK);
    assert_string_equal(ct_options_text(o, "json"), "-");
    ct_options_destroy(o);
    assert_int_equal(PARSE(&o, "time", "--json=a.json"), CT_OK);
    assert_string_equal(ct_options_text(o, "json"), "a.json");
    ct_options_destroy(o);
    assert_int_equal(PARSE(&o, "time", "--json="), CT_ERR_CONFIG);
    assert_int_equal(PARSE(&o, "time", "--json", "a.json"), CT_ERR_CONFIG);
}

static void test_rest(void **state)
{
    ct_options *o;
    ct_origin origin;

    (void)state;
    assert_int_equal(PARSE(&o, "show", "a.png", "--log=info", "b c.png", "--files=d.png"), CT_OK);
    assert_int_equal(ct_options_n(o, "files"), 3);
    assert_string_equal(ct_options_entry(o, "files", 0, &origin), "a.png");
    assert_int_equal(origin, CT_ORIGIN_COMMAND);
    assert_string_equal(ct_options_entry(o, "files", 1, NULL), "b c.png");
    assert_string_equal(ct_options_entry(o, "files", 2, NULL), "d.png");
    ct_options_destroy(o);
    assert_int_equal(PARSE(&o, "show", "-a.png"), CT_ERR_CONFIG);
    assert_non_null(strstr(last, "\"-a.png\" is no option; they begin with --"));
    assert_int_equal(PARSE(&o, "show", ""), CT_ERR_CONFIG);
    assert_int_equal(PARSE(&o, "time", "a.png"), CT_ERR_CONFIG);
}

static void test_environment(void **state)
{
    ct_options *o;
    ct_origin origin;

    (void)state;
    setenv("CORTADO_ITERATIONS", "5", 1);
    setenv("CORTADO_SET", "base_lr=1;;max_iter=2", 1);
    assert_int_equal(PARSE(&o, "train", "--set=base_lr=3"), CT_OK);
    assert_int_equal(ct_options_count(o, "iterations", 1), 5);
    assert_int_equal(ct_options_origin(o, "iterations"), CT_ORIGIN_ENV);
    assert_int_equal(ct_options_n(o, "set"), 3);
    assert_string_equal(ct_options_entry(o, "set", 1, &origin), "max_iter=2");
    assert_int_equal(origin, CT_ORIGIN_ENV);
    assert_string_equal(ct_options_entry(o, "set", 2, &origin), "base_lr=3");
    assert_int_equal(origin, CT_ORIGIN_COMMAND);
    ct_options_destroy(o);

    assert_int_equal(PARSE(&o, "train", "--iterations=9"), CT_OK);
    assert_int_equal(ct_options_count(o, "iterations", 1), 9);
    assert_int_equal(ct_options_origin(o, "iterations"), CT_ORIGIN_COMMAND);
    ct_options_destroy(o);

    /* a verb without the option does not look at its twin */
    assert_int_equal(PARSE(&o, "check"), CT_OK);
    assert_int_equal(ct_options_n(o, "iterations"), 0);
    ct_options_destroy(o);

    setenv("CORTADO_ITERATIONS", "many", 1);
    assert_int_equal(PARSE(&o, "train"), CT_ERR_CONFIG);
    assert_non_null(strstr(last, "CORTADO_ITERATIONS=many"));
    unsetenv("CORTADO_ITERATIONS");
    unsetenv("CORTADO_SET");
}

static void test_errors(void **state)
{
    ct_options *o = NULL;

    (void)state;
    assert_int_equal(PARSE(&o, "train", "--solvr=x"), CT_ERR_CONFIG);
    assert_non_null(strstr(last, "did you mean --solver?"));
    assert_int_equal(PARSE(&o, "test", "--solver=x"), CT_ERR_CONFIG);
    assert_non_null(strstr(last, "belongs to: train check"));
    assert_int_equal(PARSE(&o, "train", "--iterations=-3"), CT_ERR_CONFIG);
    assert_int_equal(PARSE(&o, "train", "--iterations=3x"), CT_ERR_CONFIG);
    assert_int_equal(PARSE(&o, "train", "--iterations=99999999999999999999"), CT_ERR_CONFIG);
    assert_int_equal(PARSE(&o, "train", "--iterations"), CT_ERR_CONFIG);
    assert_non_null(strstr(last, "needs a value"));
    assert_int_equal(PARSE(&o, "train", "solver.prototxt"), CT_ERR_CONFIG);
    assert_int_equal(PARSE(&o, "train", "--solver="), CT_ERR_CONFIG);
    assert_int_equal(PARSE(&o, "train", "--sigint_effect=stop|none"), CT_ERR_CONFIG);
    assert_int_equal(PARSE(&o, "train", "--sigint_effect=sto"), CT_ERR_CONFIG);
    assert_int_equal(PARSE(&o, "train", "--deterministic=maybe"), CT_ERR_CONFIG);
    assert_int_equal(PARSE(&o, "train", "--"), CT_ERR_CONFIG);
    assert_null(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),         cmocka_unit_test(test_counts),
        cmocka_unit_test(test_value_or_none), cmocka_unit_test(test_rest),
        cmocka_unit_test(test_environment),   cmocka_unit_test(test_errors),
    };

    ct_log_set_sink(keep, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
