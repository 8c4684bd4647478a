#include "framework/text/split.h"

#include <stddef.h>
#include <string.h>

#include "framework/text/unicode.h"

#define BITS_UPPER (CT_BIT(CT_LU) | CT_BIT(CT_LT) | CT_BIT(CT_LM) | CT_BIT(CT_LO) | CT_BITS_MARK)
#define BITS_LOWER (CT_BIT(CT_LL) | CT_BIT(CT_LM) | CT_BIT(CT_LO) | CT_BITS_MARK)

/* A character, with what the patterns ask of it. At the end of the text: 0 bytes. */
typedef struct character {
    uint32_t c, bit;
    int length;
} character;

static inline character look(const uint8_t *at, const uint8_t *end)
{
    character x = { .c = CT_NO_CHARACTER };

    if (at < end) {
        x.c = ct_utf8_read(at, end, &x.length);
        x.bit = ct_unicode_bit(x.c);
    }
    return x;
}

static inline bool is_letter(character x)
{
    return (x.bit & CT_BITS_LETTER) != 0;
}

static inline bool is_number(character x)
{
    return (x.bit & CT_BITS_NUMBER) != 0;
}

static inline bool is_space(character x)
{
    return (x.length > 0) && ct_unicode_is_space(x.c);
}

static inline bool is_line_end(character x)
{
    return (x.c == '\r') || (x.c == '\n');
}

/* [^\s\p{L}\p{N}] */
static inline bool is_other(character x)
{
    return (x.length > 0) && !is_letter(x) && !is_number(x) && !is_space(x);
}

/* Behind the characters of one of these categories; `most` of them. */
static const uint8_t *skip(const uint8_t *at, const uint8_t *end, uint32_t bits, int64_t most)
{
    for (int64_t i = 0; i < most; i++) {
        character x = look(at, end);

        if ((x.bit & bits) == 0) break;
        at += x.length;
    }
    return at;
}

static const uint8_t *skip_others(const uint8_t *at, const uint8_t *end)
{
    for (;;) {
        character x = look(at, end);

        if (!is_other(x)) return at;
        at += x.length;
    }
}

/* 's 't 're 've 'm 'll 'd; at: behind the apostrophe. The bytes of what follows it, 0: none.
 * Without regard to case the long s is an s. */
static int contraction(const uint8_t *at, const uint8_t *end, bool any_case)
{
    static const char two[][3] = { "re", "ve", "ll" };
    uint8_t low[2] = { 0 };

    for (int i = 0; (i < 2) && (at + i < end); i++)
        low[i] =
            (any_case && (at[i] >= 'A') && (at[i] <= 'Z')) ? (uint8_t)(at[i] + 'a' - 'A') : at[i];
    if (any_case && (low[0] == 0xc5) && (low[1] == 0xbf)) return 2;
    if ((low[0] != 0) && (strchr("stmd", low[0]) != NULL)) return 1;
    for (int i = 0; i < 3; i++)
        if (memcmp(low, two[i], 2) == 0) return 2;
    return 0;
}

/* \s*[\r\n]+|\s+(?!\S)|\s+ with `lines`, else without its first part. The last blank in front of
 * something else stays for that. at: a blank. */
static const uint8_t *skip_blanks(const uint8_t *at, const uint8_t *end, bool lines)
{
    const uint8_t *p = at, *last = at, *line = NULL;
    character x;

    for (x = look(p, end); is_space(x); x = look(p, end)) {
        last = p;
        p += x.length;
        if (is_line_end(x)) line = p;
    }
    if (lines && (line != NULL)) return line;
    return ((p == end) || (last == at)) ? p : last;
}

/* '(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
static const uint8_t *next_gpt2(const uint8_t *at, const uint8_t *end)
{
    character x = look(at, end);
    const uint8_t *p = at;

    if (x.c == '\'') {
        int n = contraction(at + 1, end, false);

        if (n > 0) return at + 1 + n;
    }
    if (x.c == ' ') {
        character y = look(at + 1, end);

        if ((y.length > 0) && !is_space(y)) {
            p = at + 1;
            x = y;
        }
    }
    if (is_letter(x)) return skip(p, end, CT_BITS_LETTER, INT64_MAX);
    if (is_number(x)) return skip(p, end, CT_BITS_NUMBER, INT64_MAX);
    return is_other(x) ? skip_others(p, end) : skip_blanks(at, end, false);
}

/* ` ?[^\s\p{L}\p{N}]+[\r\n]*` and, with `slash`, [\r\n/]*; NULL: not here. x: what stands at `at`.
 */
static const uint8_t *next_others(const uint8_t *at, const uint8_t *end, character x, bool slash)
{
    const uint8_t *p = at;

    if (x.c == ' ') {
        p++;
        x = look(p, end);
    }
    if (!is_other(x)) return NULL;
    p = skip_others(p, end);
    while ((p < end) && ((*p == '\r') || (*p == '\n') || (slash && (*p == '/')))) p++;
    return p;
}

/* '(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*
 * |\s*[\r\n]+|\s+(?!\S)|\s+; tiktoken's cl100k has |\s+$ in front of the blanks. */
static const uint8_t *next_cl100k(const uint8_t *at, const uint8_t *end, int digits, bool blank_end)
{
    character x = look(at, end);
    const uint8_t *others;

    if (x.c == '\'') {
        int n = contraction(at + 1, end, true);

        if (n > 0) return at + 1 + n;
    }
    if (is_letter(x)) return skip(at, end, CT_BITS_LETTER, INT64_MAX);
    if (is_number(x)) return skip(at, end, CT_BITS_NUMBER, digits);
    if (!is_line_end(x) && is_letter(look(at + x.length, end)))
        return skip(at + x.length, end, CT_BITS_LETTER, INT64_MAX);
    others = next_others(at, end, x, false);
    if (others != NULL) return others;
    if (blank_end && (skip_blanks(at, end, false) == end)) return end;
    return skip_blanks(at, end, true);
}

/* [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+; NULL: not here. Where no small letter
 * follows the first run, it gives back what the second could have had. */
static const uint8_t *small_word(const uint8_t *at, const uint8_t *end)
{
    const uint8_t *p = at, *both = NULL;
    character x;

    for (x = look(p, end); (x.bit & BITS_UPPER) != 0; x = look(p, end)) {
        p += x.length;
        if ((x.bit & BITS_LOWER) != 0) both = p;
    }
    return ((x.bit & BITS_LOWER) != 0) ? skip(p, end, BITS_LOWER, INT64_MAX) : both;
}

/* [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+, behind which no small letter stands; NULL: not here. */
static const uint8_t *large_word(const uint8_t *at, const uint8_t *end)
{
    const uint8_t *p = skip(at, end, BITS_UPPER, INT64_MAX);

    return (p > at) ? p : NULL;
}

/* One character that is no letter may stand in front of a word, and 's behind it. */
static const uint8_t *next_word(const uint8_t *at, const uint8_t *end, character x)
{
    bool front = !is_line_end(x) && !is_letter(x) && !is_number(x);
    const uint8_t *word = front ? small_word(at + x.length, end) : NULL;

    if (word == NULL) word = small_word(at, end);
    if ((word == NULL) && front) word = large_word(at + x.length, end);
    if (word == NULL) word = large_word(at, end);
    if ((word != NULL) && (word < end) && (*word == '\'')) {
        int n = contraction(word + 1, end, true);

        if (n > 0) return word + 1 + n;
    }
    return word;
}

static const uint8_t *next_o200k(const uint8_t *at, const uint8_t *end)
{
    character x = look(at, end);
    const uint8_t *p = next_word(at, end, x);

    if (p != NULL) return p;
    if (is_number(x)) return skip(at, end, CT_BITS_NUMBER, 3);
    p = next_others(at, end, x, true);
    return (p != NULL) ? p : skip_blanks(at, end, true);
}

static const uint8_t *next_digits(const uint8_t *at, const uint8_t *end, int64_t most)
{
    if (is_number(look(at, end))) return skip(at, end, CT_BITS_NUMBER, most);
    for (;;) {
        character x = look(at, end);

        if ((x.length == 0) || is_number(x)) return at;
        at += x.length;
    }
}

/* Punctuation of ASCII has symbols such as $ and ^ as well. */
static bool is_punctuation(character x)
{
    if (x.c < 0x80) return (x.c > ' ') && (x.c < 0x7f) && !is_letter(x) && !is_number(x);
    return (ct_unicode_bit_8(x.c) & CT_BITS_PUNCTUATION) != 0;
}

static const uint8_t *next_bert(const uint8_t *at, const uint8_t *end)
{
    character x = look(at, end);
    bool blank = is_space(x);

    if (is_punctuation(x)) return at + x.length;
    do {
        at += x.length;
        x = look(at, end);
    } while ((x.length > 0) && (is_space(x) == blank) && !is_punctuation(x));
    return at;
}

const uint8_t *ct_split_next(ct_split split, const uint8_t *at, const uint8_t *end)
{
    switch (split) {
    case CT_SPLIT_GPT2:
        return next_gpt2(at, end);
    case CT_SPLIT_CL100K:
        return next_cl100k(at, end, 3, true);
    case CT_SPLIT_LLAMA3:
        return next_cl100k(at, end, 3, false);
    case CT_SPLIT_QWEN2:
        return next_cl100k(at, end, 1, false);
    case CT_SPLIT_O200K:
        return next_o200k(at, end);
    case CT_SPLIT_DIGITS:
        return next_digits(at, end, 1);
    case CT_SPLIT_DIGIT_RUNS:
        return next_digits(at, end, INT64_MAX);
    case CT_SPLIT_DIGITS_BY_3:
        return next_digits(at, end, 3);
    case CT_SPLIT_BERT:
        return next_bert(at, end);
    default:
        return end;
    }
}

bool ct_split_ends_lines(ct_split split)
{
    return (split <= CT_SPLIT_O200K) || (split == CT_SPLIT_BERT);
}

/* As they stand in files. Some write the same set in another way. tiktoken's own cl100k is not
 * among them: in Hugging Face's program its \p{N}{1,3}+ takes any number of digits. */
#define BLANKS  "|\\s+(?!\\S)|\\s+"
#define UPPER   "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER   "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define SHORT   "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define FRONT   "[^\\r\\n\\p{L}\\p{N}]?"
#define OTHERS  "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
#define LINES   "|\\s*[\\r\\n]+" BLANKS
#define OTHERS2 "| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]" BLANKS

static const struct {
    const char *regex;
    ct_split split;
} known[] = {
    { "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+" BLANKS, CT_SPLIT_GPT2 },
    { "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+" BLANKS, CT_SPLIT_GPT2 },
    { "'(?:[sdmt]|ll|ve|re)| ?\\p{L}++| ?\\p{N}++| ?[^\\s\\p{L}\\p{N}]++|\\s++$|\\s+(?!\\S)|\\s",
      CT_SPLIT_GPT2 },
    { SHORT "|" FRONT "\\p{L}+|\\p{N}{1,3}" OTHERS LINES, CT_SPLIT_LLAMA3 },
    { "'(?i:[sdmt]|ll|ve|re)|" FRONT "+\\p{L}+|\\p{N}{1,3}" OTHERS2, CT_SPLIT_LLAMA3 },
    { SHORT "|" FRONT "\\p{L}+|\\p{N}" OTHERS LINES, CT_SPLIT_QWEN2 },
    { FRONT UPPER "*" LOWER "+" SHORT "?|" FRONT UPPER "+" LOWER "*" SHORT
                  "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" LINES,
      CT_SPLIT_O200K },
    { "\\p{N}", CT_SPLIT_DIGITS },
    { "\\p{N}+", CT_SPLIT_DIGIT_RUNS },
    { "\\p{N}{1,3}", CT_SPLIT_DIGITS_BY_3 },
};

bool ct_split_of_regex(const char *regex, ct_split *split_p)
{
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(regex, known[i].regex) == 0) {
            *split_p = known[i].split;
            return true;
        }
    }
    return false;
}
