/* Splits: what each pattern makes of the same texts, and that a split may begin at any end of a
 * piece. The pieces were made by tiktoken and tokenizers; tests/cli/test_tokenizer.sh compares
 * more. */
#include "tests/test.h"

#include <string.h>

#include "framework/base/rng.h"
#include "framework/text/split.h"
#include "framework/text/unicode.h"

static void expect(ct_split split, const char *text, const char *pieces)
{
    const uint8_t *at = (const uint8_t *)text, *end = at + strlen(text);
    ct_text got = { 0 };

    while (at < end) {
        const uint8_t *next = ct_split_next(split, at, end);

        assert_true((next > at) && (next <= end));
        ct_text_add_bytes(&got, (const char *)at, (size_t)(next - at));
        ct_text_add(&got, "|");
        at = next;
    }
    assert_string_equal(got.text, pieces);
    ct_text_destroy(&got);
}

static void test_gpt2(void **state)
{
    (void)state;
    expect(CT_SPLIT_GPT2, "I'll don't WE'LL", "I|'ll| don|'t| WE|'|LL|");
    expect(CT_SPLIT_GPT2, "a  b   \n c", "a| | b|   \n| c|");
    expect(CT_SPLIT_GPT2, "x123456 7 ", "x|123456| 7| |");
    expect(CT_SPLIT_GPT2, "na\u00efve \u6c49\u5b57!? ...", "na\u00efve| \u6c49\u5b57|!?| ...|");
    expect(CT_SPLIT_GPT2, "e\u0301t", "e|\u0301|t|"); /* a mark is no letter */
    expect(CT_SPLIT_GPT2, "a\xff\xfe b", "a|\xff\xfe| b|");
    expect(CT_SPLIT_GPT2, "\u00a0\u00a0x", "\u00a0|\u00a0|x|"); /* joins words only as a blank */
}

static void test_cl100k(void **state)
{
    (void)state;
    expect(CT_SPLIT_LLAMA3, "WE'LL '\u017fo 'Re", "WE|'LL| '|\u017fo| '|Re|");
    expect(CT_SPLIT_LLAMA3, "x'\u017fo", "x|'\u017f|o|"); /* the long s is an s */
    expect(CT_SPLIT_LLAMA3, "12345 6", "123|45| |6|");
    expect(CT_SPLIT_QWEN2, "123", "1|2|3|");
    expect(CT_SPLIT_LLAMA3, "_a !\n\n b", "_a| !\n\n| b|");
    expect(CT_SPLIT_LLAMA3, "a \n  \n  b", "a| \n  \n| | b|");
    expect(CT_SPLIT_LLAMA3, "a\n  ", "a|\n|  |");
    expect(CT_SPLIT_CL100K, "a\n  ", "a|\n  |");
    expect(CT_SPLIT_CL100K, "a\n  b", "a|\n| | b|");
}

static void test_o200k(void **state)
{
    (void)state;
    expect(CT_SPLIT_O200K, "iPhone HELLOthere don't", "i|Phone| HELLOthere| don't|");
    expect(CT_SPLIT_O200K, "ABC DEF'S", "ABC| DEF'S|");
    expect(CT_SPLIT_O200K, "\u3072A", "\u3072|A|"); /* gives back what only the first part takes */
    expect(CT_SPLIT_O200K, "\u0301ABC", "\u0301|ABC|");
    expect(CT_SPLIT_O200K, "a//\n/b 1234", "a|//\n/|b| |123|4|");
}

static void test_others(void **state)
{
    (void)state;
    expect(CT_SPLIT_DIGITS, "ab12 \u2167c", "ab|1|2| |\u2167|c|");
    expect(CT_SPLIT_DIGIT_RUNS, "ab12 c", "ab|12| c|");
    expect(CT_SPLIT_DIGITS_BY_3, "1234", "123|4|");
    expect(CT_SPLIT_BERT, "a$b  c\u3002d", "a|$|b|  |c|\u3002|d|");
}

static void test_regex(void **state)
{
    ct_split split = CT_SPLIT_N;

    (void)state;
    assert_true(
        ct_split_of_regex("'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+"
                          "|\\s+(?!\\S)|\\s+",
                          &split));
    assert_int_equal(split, CT_SPLIT_GPT2);
    assert_true(ct_split_of_regex("\\p{N}", &split));
    assert_int_equal(split, CT_SPLIT_DIGITS);
    assert_false(ct_split_of_regex("\\p{N}{1,2}", &split));
}

/* A line feed in front of a letter ends a piece, from wherever the split began: chunks may begin
 * there. */
static void test_line_ends(void **state)
{
    static const char *const parts[] = { "\n",     "a", "B", " ",  "\r", "'",      "1",
                                         "\u0301", ".", "/", "\n", "s",  "\u3000", "\t" };

    (void)state;
    for (uint64_t i = 0; i < 20000; i++) {
        ct_text text = { 0 };
        const uint8_t *start, *end;

        for (uint64_t k = 0; k < 12; k++)
            ct_text_add(&text, "%s", parts[ct_rng_philox(5, i, k).v[0] % 14]);
        start = (const uint8_t *)text.text;
        end = start + text.length;
        for (int s = 0; s < CT_SPLIT_N; s++) {
            if (!ct_split_ends_lines((ct_split)s)) continue;
            for (const uint8_t *at = start; at < end;) {
                const uint8_t *next = ct_split_next((ct_split)s, at, end);
                int length;

                for (const uint8_t *p = at; p + 1 < next; p++)
                    if (p[0] == '\n')
                        assert_int_equal(
                            ct_unicode_bit(ct_utf8_read(p + 1, end, &length)) & CT_BITS_LETTER, 0);
                at = next;
            }
        }
        ct_text_destroy(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt2),  cmocka_unit_test(test_cl100k),
        cmocka_unit_test(test_o200k), cmocka_unit_test(test_others),
        cmocka_unit_test(test_regex), cmocka_unit_test(test_line_ends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
