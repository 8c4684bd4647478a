/* What is done to a text before it is split: Unicode's normal forms, and BERT's cleaning. */
#include <stdlib.h>
#include <string.h>

#include "framework/text/tokenizer_private.h"
#include "framework/text/unicode.h"

/* BERT's, and so not all of Unicode's:
 * https://github.com/google-research/bert/blob/master/tokenization.py and normalizers/bert.rs of
 * Hugging Face's tokenizers, whose gap at U+2B820 is kept. */
static bool is_ideograph(uint32_t c)
{
    return ((c >= 0x4e00) && (c <= 0x9fff)) || ((c >= 0x3400) && (c <= 0x4dbf)) ||
           ((c >= 0x20000) && (c <= 0x2a6df)) || ((c >= 0x2a700) && (c <= 0x2b73f)) ||
           ((c >= 0x2b740) && (c <= 0x2b81f)) || ((c >= 0x2b920) && (c <= 0x2ceaf)) ||
           ((c >= 0xf900) && (c <= 0xfaff)) || ((c >= 0x2f800) && (c <= 0x2fa1f));
}

static void clean(uint32_t c, ct_text *to)
{
    if ((c == 0) || (c == 0xfffd) || (c == CT_NO_CHARACTER)) return;
    if ((c == '\t') || (c == '\n') || (c == '\r')) c = ' ';
    if ((ct_unicode_bit_8(c) & CT_BITS_OTHER) != 0) return;
    ct_utf8_add(to, ct_unicode_is_space(c) ? ' ' : c);
}

static void lower(uint32_t c, ct_text *to)
{
    ct_utf8_add(to, ct_unicode_lower(c));
    if (c == 0x130) ct_utf8_add(to, 0x307); /* the one letter that becomes two */
}

/* A form that looks at one character at a time. */
static void add_character(ct_normal_step form, uint32_t c, ct_text *to)
{
    switch (form) {
    case CT_NORMAL_LOWER:
        lower(c, to);
        break;
    case CT_NORMAL_STRIP_MARKS:
        if ((ct_unicode_bit(c) & CT_BITS_MARK) == 0) ct_utf8_add(to, c);
        break;
    case CT_NORMAL_BERT_ACCENTS:
        if ((ct_unicode_bit_8(c) & CT_BIT(CT_MN)) == 0) ct_utf8_add(to, c);
        break;
    case CT_NORMAL_BERT_CLEAN:
        clean(c, to);
        break;
    default:
        if (is_ideograph(c)) ct_text_add_bytes(to, " ", 1);
        ct_utf8_add(to, c);
        if (is_ideograph(c)) ct_text_add_bytes(to, " ", 1);
    }
}

static void apply(ct_normal_step form, const uint8_t *text, size_t n, ct_text *to)
{
    const uint8_t *p = text, *end = text + n;

    if ((form == CT_NORMAL_NFC) || (form == CT_NORMAL_NFD)) {
        ct_unicode_normalise(text, n, form == CT_NORMAL_NFC, to);
        return;
    }
    while (p < end) {
        int length;
        uint32_t c = ct_utf8_read(p, end, &length);

        if ((c == CT_NO_CHARACTER) && (form != CT_NORMAL_BERT_CLEAN))
            ct_text_add_bytes(to, (const char *)p, 1);
        else
            add_character(form, c, to);
        p += length;
    }
}

void ct_tokenizer_normalise(const ct_tokenizer *t, const uint8_t *text, size_t n, ct_text *to)
{
    ct_text now = { 0 };

    ct_text_add_bytes(&now, (const char *)text, n);
    for (int i = 0; i < t->n_form; i++) {
        ct_text next = { 0 };

        apply(t->form[i], (const uint8_t *)now.text, now.length, &next);
        next.failed = next.failed || now.failed;
        ct_text_destroy(&now);
        now = next;
    }
    ct_text_add_bytes(to, (now.text != NULL) ? now.text : "", now.length);
    to->failed = to->failed || now.failed;
    ct_text_destroy(&now);
}
