/* Files of tokens: raw ids of 16 and 32 bits, llm.c's heads, what is refused. */
#include "tests/test.h"

#include <stdio.h>
#include <string.h>

#include "framework/base/file.h"
#include "framework/data/token_file.h"
#include "tests/data_files.h"
#include "tests/log_capture.h"

static test_folder folder;
static char path[256];

static int setup(void **state)
{
    (void)state;
    test_folder_make(&folder);
    snprintf(path, sizeof(path), "%s/tokens.bin", folder.path);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    test_folder_remove(&folder);
    return 0;
}

static void put(const void *bytes, size_t n)
{
    assert_int_equal(ct_file_write(path, bytes, n), CT_OK);
}

static void test_width(void **state)
{
    (void)state;
    assert_int_equal(ct_token_width(256), 2);
    assert_int_equal(ct_token_width(65536), 2);
    assert_int_equal(ct_token_width(65537), 4);
}

static void expect(int width_asked, int width, bool has_head, const int32_t *id, int64_t n)
{
    ct_token_file f = { 0 };
    int32_t got[16];

    assert_int_equal(ct_token_file_open(path, width_asked, &f), CT_OK);
    assert_int_equal(f.width, width);
    assert_int_equal(f.has_head, has_head);
    assert_int_equal(f.count, n);
    assert_int_equal(ct_token_file_get(&f, 0, n, got), CT_OK);
    if (n > 0) assert_memory_equal(got, id, (size_t)n * sizeof(*id));
    for (int64_t i = 0; i < n; i++) { /* any one */
        assert_int_equal(ct_token_file_get(&f, i, 1, got), CT_OK);
        assert_int_equal(got[0], id[i]);
    }
    assert_int_equal(ct_token_file_get(&f, n, 0, got), CT_OK);
    ct_token_file_close(&f);
}

static void test_raw(void **state)
{
    static const int32_t small[] = { 0, 65535, 258, 50256 }, large[] = { 100257, 3, 65536, 199999 };
    static const uint8_t bytes[] = { 0, 0, 255, 255, 2, 1, 0x50, 0xc4 };

    (void)state;
    assert_int_equal(ct_token_file_write(path, small, 4, 2), CT_OK);
    expect(2, 2, false, small, 4);
    expect(0, 2, false, small, 4);
    put(bytes, sizeof(bytes)); /* what was written, byte by byte */
    expect(2, 2, false, small, 4);
    assert_int_equal(ct_token_file_write(path, large, 4, 4), CT_OK);
    expect(4, 4, false, large, 4);
    expect(0, 4, false, large, 4);
    put("", 0);
    expect(0, 2, false, NULL, 0);
}

/* Without a vocabulary the ids tell the width: few letters in 16 bits stay 16 bits. */
static void test_guess(void **state)
{
    static const int32_t letters[] = { 1, 2, 26, 0, 13, 9 }, chars[] = { 10, 200, 46, 90 };

    (void)state;
    assert_int_equal(ct_token_file_write(path, letters, 6, 2), CT_OK);
    expect(0, 2, false, letters, 6);
    assert_int_equal(ct_token_file_write(path, chars, 4, 2), CT_OK);
    expect(0, 2, false, chars, 4);
}

static size_t make_head(uint8_t *to, uint32_t magic, uint32_t version, uint32_t n)
{
    const uint32_t number[] = { magic, version, n };

    memset(to, 0, 1024);
    for (int i = 0; i < 12; i++) to[i] = (uint8_t)(number[i / 4] >> 8 * (i % 4));
    return 1024;
}

static void test_llm_c(void **state)
{
    static const int32_t small[] = { 50256, 1, 2 }, large[] = { 128000, 70000 };
    static const uint8_t two[] = { 0x50, 0xc4, 1, 0, 2, 0 };
    static const uint8_t four[] = { 0x00, 0xf4, 1, 0, 0x70, 0x11, 1, 0 };
    uint8_t file[2048];
    size_t n;

    (void)state;
    n = make_head(file, 20240520, 1, 3);
    memcpy(file + n, two, sizeof(two));
    put(file, n + sizeof(two));
    expect(0, 2, true, small, 3);
    expect(4, 2, true, small, 3); /* the head knows better */
    n = make_head(file, 20240801, 7, 2);
    memcpy(file + n, four, sizeof(four));
    put(file, n + sizeof(four));
    expect(2, 4, true, large, 2);
}

static void refuse(int width, const char *why)
{
    ct_token_file f = { 0 };
    log_capture log;

    log_capture_start(&log);
    assert_int_equal(ct_status_exit_code(ct_token_file_open(path, width, &f)), 3);
    log_capture_stop();
    assert_int_equal(log.n_error, 1);
    if ((strstr(log.error, why) == NULL) || (strstr(log.error, "tokens.bin") == NULL))
        fail_msg("\"%s\" has no \"%s\"", log.error, why);
}

static void test_refused(void **state)
{
    uint8_t file[2048] = { 0 };
    ct_token_file f = { 0 };
    log_capture log;
    int32_t got[4];

    (void)state;
    put("abc", 3);
    refuse(2, "3 bytes: no whole number of tokens of 2 bytes");
    put("abcdef", 6);
    refuse(4, "no whole number of tokens of 4 bytes");
    put(file, make_head(file, 20240520, 2, 0));
    refuse(0, "version 2, expected 1");
    put(file, make_head(file, 20240520, 1, 0xffffffff) + 100);
    refuse(0, "promises 4294967295 tokens of 2 bytes, 50 follow");
    put(file, make_head(file, 20240520, 1, 49) + 100);
    refuse(0, "promises 49 tokens of 2 bytes, 50 follow");
    snprintf(path, sizeof(path), "%s/missing/tokens.bin", folder.path);
    refuse(0, "No such file");

    snprintf(path, sizeof(path), "%s/tokens.bin", folder.path);
    put("\1\0\0\0\0\0\0\x80", 8);
    assert_int_equal(ct_token_file_open(path, 4, &f), CT_OK);
    assert_int_equal(ct_token_file_find_large(&f, 2), 1);
    assert_int_equal(ct_token_file_find_large(&f, 1), 0);
    log_capture_start(&log);
    assert_int_equal(ct_token_file_get(&f, 0, 2, got), CT_ERR_DATA);
    assert_non_null(strstr(log.error, "token 1 is 2147483648"));
    assert_int_equal(ct_token_file_get(&f, 1, 2, got), CT_ERR_ARG);
    assert_int_equal(ct_token_file_get(&f, -1, 1, got), CT_ERR_ARG);
    assert_int_equal(ct_token_file_get(&f, 1, INT64_MAX, got), CT_ERR_ARG);
    log_capture_stop();
    ct_token_file_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_width), cmocka_unit_test(test_raw),     cmocka_unit_test(test_guess),
        cmocka_unit_test(test_llm_c), cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
