#include "framework/proto/reader.h"

#include <ctype.h>
#include <limits.h>
#include <string.h>

enum { MAX_SHOWN = 60 };

void ct_lexer_open(ct_lexer *lex, const char *text, size_t size)
{
    if ((size >= 3) && (memcmp(text, "\xEF\xBB\xBF", 3) == 0)) {
        text += 3;
        size -= 3;
    }
    lex->at = lex->line_start = text;
    lex->end = text + size;
    lex->line = 1;
}

static bool is_name_char(char c)
{
    return isalnum((unsigned char)c) || (c == '_');
}

static void new_line(ct_lexer *lex)
{
    if (lex->line < INT_MAX) lex->line++;
    lex->line_start = lex->at;
}

/* White space and comments. A line ends with LF, CR LF or CR. */
static void skip_blank(ct_lexer *lex)
{
    while (lex->at < lex->end) {
        char c = *lex->at;

        if (c == '#') {
            while ((lex->at < lex->end) && (*lex->at != '\n') && (*lex->at != '\r')) lex->at++;
        } else if (c == '\n') {
            lex->at++;
            new_line(lex);
        } else if (c == '\r') {
            lex->at++;
            if ((lex->at < lex->end) && (*lex->at == '\n')) lex->at++;
            new_line(lex);
        } else if ((c == ' ') || (c == '\t') || (c == '\f') || (c == '\v')) {
            lex->at++;
        } else {
            return;
        }
    }
}

static void scan_number(ct_lexer *lex)
{
    bool is_hex = (lex->end - lex->at >= 2) && (lex->at[0] == '0') &&
                  ((lex->at[1] == 'x') || (lex->at[1] == 'X'));

    while (lex->at < lex->end) {
        char c = *lex->at;
        bool is_sign =
            ((c == '+') || (c == '-')) && !is_hex && ((lex->at[-1] == 'e') || (lex->at[-1] == 'E'));

        if (!is_name_char(c) && (c != '.') && !is_sign) return;
        lex->at++;
    }
}

/* To behind the closing quote; what is wrong with it, or NULL. */
static const char *scan_string(ct_lexer *lex)
{
    char quote = *lex->at++;

    while (lex->at < lex->end) {
        char c = *lex->at;

        if ((c == '\n') || (c == '\r')) break;
        lex->at++;
        if (c == '\0') return "a string holds a NUL byte; write it as \\000 in a bytes field";
        if (c == quote) return NULL;
        if ((c == '\\') && (lex->at < lex->end) && (*lex->at != '\n') && (*lex->at != '\r')) {
            lex->at++;
        }
    }
    return "this string is not closed on its line";
}

static const char *stray(unsigned char c)
{
    switch (c) {
    case '/':
        return "unexpected \"/\"; comments start with \"#\"";
    case '=':
        return "unexpected \"=\"; a field and its value are parted by \":\"";
    case '(':
    case ')':
        return "unexpected bracket; messages stand in { }, lists in [ ]";
    case 0xFE:
    case 0xFF:
        return "this is no UTF-8 text (UTF-16, or a binary file?)";
    default:
        break;
    }
    if (c < 0x20) return "a control character: is this a binary file, such as a .caffemodel?";
    if (c >= 0x80) return "a character beyond ASCII outside of a string or a comment";
    return "unexpected character";
}

ct_token ct_lexer_next(ct_lexer *lex)
{
    ct_token t = { 0 };
    unsigned char c;

    skip_blank(lex);
    t.start = lex->at;
    t.line = lex->line;
    t.column =
        (lex->at - lex->line_start < INT_MAX) ? (int)(lex->at - lex->line_start) + 1 : INT_MAX;
    if (lex->at == lex->end) return t;

    c = (unsigned char)*lex->at;
    if (isalpha(c) || (c == '_')) {
        t.kind = CT_TOKEN_NAME;
        while ((lex->at < lex->end) && is_name_char(*lex->at)) lex->at++;
    } else if (isdigit(c) ||
               ((c == '.') && (lex->end - lex->at >= 2) && isdigit((unsigned char)lex->at[1]))) {
        t.kind = CT_TOKEN_NUMBER;
        scan_number(lex);
    } else if ((c == '"') || (c == '\'')) {
        t.problem = scan_string(lex);
        t.kind = (t.problem == NULL) ? CT_TOKEN_STRING : CT_TOKEN_BAD;
    } else if ((c != '\0') && (strchr("{}<>[]:,;-", c) != NULL)) {
        t.kind = CT_TOKEN_PUNCT;
        lex->at++;
    } else {
        t.kind = CT_TOKEN_BAD;
        t.problem = stray(c);
        lex->at++;
    }
    t.length = (size_t)(lex->at - t.start);
    return t;
}

bool ct_token_is(const ct_token *token, char punct)
{
    return (token->kind == CT_TOKEN_PUNCT) && (*token->start == punct);
}

bool ct_token_is_name(const ct_token *token, const char *word)
{
    return (token->kind == CT_TOKEN_NAME) && (token->length == strlen(word)) &&
           (memcmp(token->start, word, token->length) == 0);
}

static int digit(char c)
{
    if ((c >= '0') && (c <= '9')) return c - '0';
    if ((c >= 'a') && (c <= 'f')) return c - 'a' + 10;
    if ((c >= 'A') && (c <= 'F')) return c - 'A' + 10;
    return 99;
}

/* Up to max_digits digits of a base from *at_p on; the number of digits. */
static int scan_digits(const char **at_p, const char *end, unsigned base, int max_digits,
                       unsigned long *value_p)
{
    int n = 0;

    *value_p = 0;
    while ((n < max_digits) && (*at_p < end) && (digit(**at_p) < (int)base)) {
        *value_p = *value_p * base + (unsigned long)digit(**at_p);
        ++*at_p;
        n++;
    }
    return n;
}

static void add_utf8(ct_text *out, unsigned long u)
{
    char b[4];
    size_t n = (u < 0x80) ? 1 : (u < 0x800) ? 2 : (u < 0x10000) ? 3 : 4;
    static const unsigned char lead[] = { 0, 0, 0xC0, 0xE0, 0xF0 };

    for (size_t i = n; i-- > 1; u >>= 6) b[i] = (char)(0x80 | (u & 0x3F));
    b[0] = (char)(lead[n] | u);
    ct_text_add_bytes(out, b, n);
}

/* One escape; *at_p stands behind its backslash. NULL or what is wrong with it. */
static const char *add_escape(const char **at_p, const char *end, ct_text *out)
{
    static const char letter[] = "abfnrtv\\'\"?", meaning[] = "\a\b\f\n\r\t\v\\'\"?";
    unsigned long value;
    char c = **at_p, byte;
    const char *simple = strchr(letter, c);

    if ((c >= '0') && (c <= '7')) {
        scan_digits(at_p, end, 8, 3, &value);
        if (value > 0xFF) return "an octal escape beyond \\377";
    } else {
        ++*at_p;
        if ((c == 'x') || (c == 'X')) {
            if (scan_digits(at_p, end, 16, 2, &value) == 0) return "\\x without hex digits";
        } else if ((c == 'u') || (c == 'U')) {
            int want = (c == 'u') ? 4 : 8;

            if (scan_digits(at_p, end, 16, want, &value) != want) {
                return "\\u needs 4 hex digits, \\U needs 8";
            }
            if ((value > 0x10FFFF) || ((value >= 0xD800) && (value < 0xE000))) {
                return "no such Unicode character";
            }
            add_utf8(out, value);
            return NULL;
        } else if (simple != NULL) {
            value = (unsigned char)meaning[simple - letter];
        } else {
            return "unknown escape; a backslash itself is written \\\\";
        }
    }
    byte = (char)value;
    ct_text_add_bytes(out, &byte, 1);
    return NULL;
}

const char *ct_token_unescape(const ct_token *token, ct_text *out, size_t *offset_p)
{
    const char *at = token->start + 1, *end = token->start + token->length - 1;

    ct_text_add_bytes(out, "", 0); /* so that an empty string is one */
    while (at < end) {
        const char *run = at, *problem;

        while ((at < end) && (*at != '\\')) at++;
        ct_text_add_bytes(out, run, (size_t)(at - run));
        if (at == end) break;
        *offset_p = (size_t)(at - token->start);
        at++;
        problem = add_escape(&at, end, out);
        if (problem != NULL) return problem;
    }
    return NULL;
}

void ct_text_add_quoted(ct_text *out, const char *bytes, size_t length)
{
    size_t shown = (length > MAX_SHOWN) ? MAX_SHOWN : length;

    ct_text_add_bytes(out, "\"", 1);
    for (size_t i = 0; i < shown; i++) {
        char c = ((unsigned char)bytes[i] < 0x20) ? '?' : bytes[i];

        ct_text_add_bytes(out, &c, 1);
    }
    ct_text_add(out, "%s\"", (shown < length) ? "..." : "");
}

void ct_token_show(const ct_token *token, ct_text *out)
{
    switch (token->kind) {
    case CT_TOKEN_END:
        ct_text_add(out, "the end of the text");
        break;
    case CT_TOKEN_STRING:
        ct_text_add(out, "the string ");
        ct_text_add_quoted(out, token->start + 1, token->length - 2);
        break;
    default:
        ct_text_add_quoted(out, token->start, token->length);
        break;
    }
}
