/** @file digit_draw.h  Draws one distorted digit; private to framework/data. */
#ifndef CT_DIGIT_DRAW_H
#define CT_DIGIT_DRAW_H

#include <stdint.h>

enum { CT_DIGIT_SIDE = 28 };

/** Draws digit 0 to 9 into pixels[28 * 28], light on dark; every choice is drawn from key. */
void ct_digit_draw(int digit, uint64_t key, uint8_t *pixels);

#endif
