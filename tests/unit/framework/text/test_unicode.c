/* UTF-8, categories, small letters, and normal forms: cases of the standard, and laws that hold for
 * every character. */
#include "tests/test.h"

#include <string.h>

#include "framework/base/rng.h"
#include "framework/text/unicode.h"

static void test_utf8(void **state)
{
    static const struct {
        const char *bytes;
        uint32_t c;
        int length;
    } cases[] = {
        { "A", 'A', 1 },
        { "\xc3\xa9", 0xe9, 2 },
        { "\xe6\xb1\x89", 0x6c49, 3 },
        { "\xf0\x9f\x98\x80", 0x1f600, 4 },
        { "\xf4\x8f\xbf\xbf", 0x10ffff, 4 },
        { "\xc0\x80", CT_NO_CHARACTER, 1 }, /* an overlong 0     */
        { "\xc1\xbf", CT_NO_CHARACTER, 1 },
        { "\xe0\x9f\xbf", CT_NO_CHARACTER, 1 },     /* overlong          */
        { "\xed\xa0\x80", CT_NO_CHARACTER, 1 },     /* a surrogate       */
        { "\xf4\x90\x80\x80", CT_NO_CHARACTER, 1 }, /* beyond U+10FFFF   */
        { "\xf0\x8f\xbf\xbf", CT_NO_CHARACTER, 1 }, /* overlong          */
        { "\xff", CT_NO_CHARACTER, 1 },
        { "\x80", CT_NO_CHARACTER, 1 },
        { "\xe6\xb1", CT_NO_CHARACTER, 1 }, /* cut               */
        { "\xe6\x41\x89", CT_NO_CHARACTER, 1 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const uint8_t *p = (const uint8_t *)cases[i].bytes;
        int length = 0;

        assert_int_equal(ct_utf8_read(p, p + strlen(cases[i].bytes), &length), cases[i].c);
        assert_int_equal(length, cases[i].length);
    }
    for (uint32_t c = 0; c <= 0x10ffff; c++) { /* what is written is read */
        uint8_t bytes[4];
        int n = ct_utf8_write(c, bytes), length = 0;

        if ((c >= 0xd800) && (c < 0xe000)) continue;
        assert_int_equal(ct_utf8_read(bytes, bytes + n, &length), c);
        assert_int_equal(length, n);
    }
}

/* A letter, a mark and a sign that are older than Unicode 9, such that came later, and those that
 * went to another category since. */
static void test_categories_of_8(void **state)
{
    static const struct {
        uint32_t c, bit;
    } cases[] = {
        { 'a', CT_BIT(CT_LL) },     { 0x301, CT_BIT(CT_MN) },   { 0x1abd, CT_BIT(CT_MN) },
        { 0x1abf, CT_BIT(CT_CN) },  { 0x2e42, CT_BIT(CT_PS) },  { 0x2e43, CT_BIT(CT_CN) },
        { 0x890, CT_BIT(CT_CN) },   { 0x4e00, CT_BIT(CT_LO) },  { 0xe000, CT_BIT(CT_CO) },
        { 0x1e000, CT_BIT(CT_CN) }, { 0x166d, CT_BIT(CT_PO) },  { 0x1885, CT_BIT(CT_LO) },
        { 0x1734, CT_BIT(CT_MN) },  { 0x111c9, CT_BIT(CT_PO) }, { 0x10ffff, CT_BIT(CT_CN) },
        { CT_NO_CHARACTER, 0 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(ct_unicode_bit_8(cases[i].c), cases[i].bit);
}

static void test_categories(void **state)
{
    static const struct {
        uint32_t c, bit;
    } cases[] = {
        { 'a', CT_BIT(CT_LL) },    { 'Z', CT_BIT(CT_LU) },     { '7', CT_BIT(CT_ND) },
        { 0x1c5, CT_BIT(CT_LT) },  { 0x2b0, CT_BIT(CT_LM) },   { 0x5d0, CT_BIT(CT_LO) },
        { 0x301, CT_BIT(CT_MN) },  { 0x903, CT_BIT(CT_MC) },   { 0x20dd, CT_BIT(CT_ME) },
        { 0x2167, CT_BIT(CT_NL) }, { 0xb2, CT_BIT(CT_NO) },    { '_', CT_BIT(CT_PC) },
        { '$', CT_BIT(CT_SC) },    { 0x200d, CT_BIT(CT_CF) },  { 0xe000, CT_BIT(CT_CO) },
        { 0x378, CT_BIT(CT_CN) },  { 0x10d50, CT_BIT(CT_LU) }, /* of Unicode 16 */
        { CT_NO_CHARACTER, 0 },
    };
    static const uint32_t spaces[] = { ' ',    '\t',   '\n',   '\v',   '\f',   '\r',
                                       0x85,   0xa0,   0x1680, 0x2000, 0x200a, 0x2028,
                                       0x2029, 0x202f, 0x205f, 0x3000 };
    int n = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(ct_unicode_bit(cases[i].c), cases[i].bit);
    for (size_t i = 0; i < sizeof(spaces) / sizeof(spaces[0]); i++)
        assert_true(ct_unicode_is_space(spaces[i]));
    for (uint32_t c = 0; c <= 0x10ffff; c++) n += ct_unicode_is_space(c);
    assert_int_equal(n, 25); /* White_Space has so many */
    assert_false(ct_unicode_is_space(CT_NO_CHARACTER));
    assert_int_equal(ct_unicode_lower('Q'), 'q');
    assert_int_equal(ct_unicode_lower(0x3a3), 0x3c3);
    assert_int_equal(ct_unicode_lower(0x1e9e), 0xdf);
    assert_int_equal(ct_unicode_lower(0x10d50), 0x10d70);
    assert_int_equal(ct_unicode_lower('['), '[');
}

static void expect(const char *text, bool composed, const char *want)
{
    ct_text got = { 0 };

    ct_unicode_normalise((const uint8_t *)text, strlen(text), composed, &got);
    assert_string_equal((got.text != NULL) ? got.text : "", want);
    ct_text_destroy(&got);
}

static void test_forms(void **state)
{
    (void)state;
    expect("e\u0301", true, "\u00e9");
    expect("\u00e9", false, "e\u0301");
    expect("\u1e69", false, "s\u0323\u0307");
    expect("s\u0307\u0323", true, "\u1e69"); /* marks in the other order           */
    expect("\u1e9b\u0323", true, "\u1e9b\u0323");
    expect("\u212b", true, "\u00c5");             /* the sign of Angstrom               */
    expect("\ud7a4\u11a8", true, "\ud7a4\u11a8"); /* behind the last syllable */
    expect("\ud55c", false, "\u1112\u1161\u11ab");
    expect("\u1112\u1161\u11ab", true, "\ud55c");
    expect("\u1112\u1161", true, "\ud558");
    expect("\u0958", true, "\u0915\u093c");         /* is never put together              */
    expect("a\u0305\u0301", true, "a\u0305\u0301"); /* the first mark blocks the second */
    expect("a\u0323\u0301", true, "\u1ea1\u0301");
    expect("\u0301a", true, "\u0301a");
    expect("e\xff\u0301\xc3", true, "e\xff\u0301\xc3"); /* what is no UTF-8 stays, and parts */
    expect("\uff21", true, "\uff21");                   /* compatible is not canonical        */
    expect("", true, "");
}

static bool same(const ct_text *a, const ct_text *b)
{
    return (a->length == b->length) && (memcmp(a->text, b->text, a->length) == 0);
}

/* Forms are stable, NFD of NFC is NFD, NFC of NFD is NFC; and the quick look is never wrong. */
static void test_laws(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 60000; i++) {
        ct_text text = { 0 }, d = { 0 }, c = { 0 }, again = { 0 };

        for (uint64_t k = 0; k < 4; k++) {
            static const uint32_t from[] = {
                0x20, 0x300, 0x1100, 0x1e00, 0xac00, 0x900, 0x1d150, 0
            };
            uint32_t word = ct_rng_philox(3, i, k).v[0], base = from[word % 8];
            uint32_t value = base + (word >> 8) % ((base == 0) ? 0x110000 : 0x90);

            if ((value >= 0xd800) && (value < 0xe000)) value = 'x';
            ct_utf8_add(&text, value);
        }
        ct_unicode_normalise((uint8_t *)text.text, text.length, false, &d);
        ct_unicode_normalise((uint8_t *)text.text, text.length, true, &c);
        ct_unicode_normalise((uint8_t *)c.text, c.length, false, &again);
        assert_true(same(&d, &again));
        again.length = 0;
        ct_unicode_normalise((uint8_t *)d.text, d.length, true, &again);
        assert_true(same(&c, &again));
        again.length = 0;
        ct_unicode_normalise((uint8_t *)c.text, c.length, true, &again);
        assert_true(same(&c, &again));
        if (ct_unicode_is_nfc((uint8_t *)text.text, text.length)) assert_true(same(&text, &c));
        ct_text_destroy(&text);
        ct_text_destroy(&d);
        ct_text_destroy(&c);
        ct_text_destroy(&again);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_utf8),
        cmocka_unit_test(test_categories),
        cmocka_unit_test(test_categories_of_8),
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_laws),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
