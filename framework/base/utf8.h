/** @file utf8.h  Characters of UTF-8, one by one. */
#ifndef CT_UTF8_H
#define CT_UTF8_H

#include <stddef.h>
#include <stdint.h>

#include "framework/base/text.h"

#define CT_NO_CHARACTER 0xffffffffu /* a byte that is no UTF-8 */

/** The character at p < end, and its bytes, at least 1. CT_NO_CHARACTER: one byte that is no part
 * of a well-formed sequence (no surrogates, no overlong forms, at most U+10FFFF). */
uint32_t ct_utf8_read(const uint8_t *p, const uint8_t *end, int *length_p);
/** How many bytes of text[n] are whole characters: what a last one lacks may still come. */
size_t ct_utf8_whole(const char *text, size_t n);
/** Writes c, at most U+10FFFF, and returns its bytes. */
int ct_utf8_write(uint32_t c, uint8_t to[4]);
/** Appends c to a text. */
void ct_utf8_add(ct_text *t, uint32_t c);

#endif
