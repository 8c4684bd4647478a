#include "tests/test.h"

#include <string.h>

#include "framework/base/hash.h"

static uint64_t hash_of(const void *data, size_t n)
{
    ct_hash h;

    ct_hash_init(&h);
    ct_hash_add(&h, data, n);
    return ct_hash_value(&h);
}

/* As xxhsum -H1 prints them. */
static void test_known(void **state)
{
    static const char fox[] = "The quick brown fox jumps over the lazy dog";

    (void)state;
    assert_true(hash_of("", 0) == 0xEF46DB3751D8E999u);
    assert_true(hash_of("a", 1) == 0xD24EC4F1A98C6E5Bu);
    assert_true(hash_of("abc", 3) == 0x44BC2CF5AD770999u);
    assert_true(hash_of(fox, sizeof(fox) - 1) == 0x0B242D361FDA71BCu);
}

static void test_pieces_and_flips(void **state)
{
    unsigned char data[257];

    (void)state;
    for (size_t i = 0; i < sizeof(data); i++) data[i] = (unsigned char)(i * 37 + 11);
    for (size_t n = 0; n <= sizeof(data); n += 7) {
        uint64_t whole = hash_of(data, n);

        for (size_t piece = 1; piece <= 65; piece += 8) {
            ct_hash h;

            ct_hash_init(&h);
            for (size_t at = 0; at < n; at += piece)
                ct_hash_add(&h, data + at, (n - at < piece) ? n - at : piece);
            assert_true(ct_hash_value(&h) == whole);
        }
        for (size_t i = 0; i < n; i += 13) {
            data[i] ^= 4;
            assert_true(hash_of(data, n) != whole);
            data[i] ^= 4;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known),
        cmocka_unit_test(test_pieces_and_flips),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
