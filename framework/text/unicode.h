/** @file unicode.h  Code points of UTF-8: their categories, small letters, and normal forms.
 *
 * Texts may hold any bytes. A byte that begins no well-formed sequence is a character of its own,
 * without category and without other forms, and stays as it is.
 */
#ifndef CT_UNICODE_H
#define CT_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "framework/base/text.h"
#include "framework/base/utf8.h"

/** General categories, in the order of the table. */
enum {
    CT_CN, /* not assigned */
    CT_LU,
    CT_LL,
    CT_LT,
    CT_LM,
    CT_LO,
    CT_MN,
    CT_MC,
    CT_ME,
    CT_ND,
    CT_NL,
    CT_NO,
    CT_PC,
    CT_PD,
    CT_PS,
    CT_PE,
    CT_PI,
    CT_PF,
    CT_PO,
    CT_SM,
    CT_SC,
    CT_SK,
    CT_SO,
    CT_ZS,
    CT_ZL,
    CT_ZP,
    CT_CC,
    CT_CF,
    CT_CS,
    CT_CO
};

#define CT_BIT(_category) (1u << (_category))
#define CT_BITS_LETTER                                                                             \
    (CT_BIT(CT_LU) | CT_BIT(CT_LL) | CT_BIT(CT_LT) | CT_BIT(CT_LM) | CT_BIT(CT_LO))
#define CT_BITS_MARK   (CT_BIT(CT_MN) | CT_BIT(CT_MC) | CT_BIT(CT_ME))
#define CT_BITS_NUMBER (CT_BIT(CT_ND) | CT_BIT(CT_NL) | CT_BIT(CT_NO))
#define CT_BITS_PUNCTUATION                                                                        \
    (CT_BIT(CT_PC) | CT_BIT(CT_PD) | CT_BIT(CT_PS) | CT_BIT(CT_PE) | CT_BIT(CT_PI) |               \
     CT_BIT(CT_PF) | CT_BIT(CT_PO))
#define CT_BITS_OTHER (CT_BIT(CT_CC) | CT_BIT(CT_CF) | CT_BIT(CT_CO))

/** The bit of the category (CT_BIT()); 0 of CT_NO_CHARACTER. */
uint32_t ct_unicode_bit(uint32_t c);
/** The same as of Unicode 8, by which BERT's tokens are made: characters that came later were not
 *  assigned. */
uint32_t ct_unicode_bit_8(uint32_t c);
/** The property White_Space. */
bool ct_unicode_is_space(uint32_t c);
/** The simple small letter, or c. */
uint32_t ct_unicode_lower(uint32_t c);

/** Whether the text is in the form NFC, by a quick look: false also where only putting it into that
 *  form can tell. */
bool ct_unicode_is_nfc(const uint8_t *text, size_t n);
/** Appends the normal form: NFC where `composed`, else NFD. */
void ct_unicode_normalise(const uint8_t *text, size_t n, bool composed, ct_text *to);

/* ---- the tables, which scripts/make_unicode_table.py writes */

enum { CT_UNICODE_BLOCK = 128 };

typedef struct ct_unicode_decomposition {
    uint32_t from;
    int n;
    uint32_t to[4];
} ct_unicode_decomposition;

extern const uint16_t ct_unicode_block[0x110000 / CT_UNICODE_BLOCK];
extern const char ct_unicode_category_of[]; /* 'a' + category, blocks one behind the other */
extern const ct_unicode_decomposition ct_unicode_decompositions[];
extern const int ct_unicode_n_decomposition;
extern const uint32_t ct_unicode_pairs[][3]; /* first, second, both in one */
extern const int ct_unicode_n_pair;
extern const uint32_t ct_unicode_combining[][3]; /* from, to, combining class */
extern const uint32_t ct_unicode_newer[][2];     /* from, to: not in Unicode 8 */
extern const int ct_unicode_n_newer;
extern const int ct_unicode_n_combining;
extern const uint32_t ct_unicode_lower_pairs[][2]; /* capital, small */
extern const int ct_unicode_n_lower_pair;

#endif
