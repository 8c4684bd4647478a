/** @file digit_font.h  Ten digits as pen strokes, each in several hands; private to framework/data.
 */
#ifndef CT_DIGIT_FONT_H
#define CT_DIGIT_FONT_H

#include <stdbool.h>

enum { CT_MAX_STROKE_POINT = 14, CT_MAX_STROKE = 3, CT_MAX_HAND = 3 };

/** Points on a grid of 0 to 100, x to the right, y down. smooth: a curve through the points;
 *  otherwise straight lines. */
typedef struct ct_stroke {
    bool smooth;
    int n;
    float xy[CT_MAX_STROKE_POINT][2];
} ct_stroke;

typedef struct ct_glyph {
    int n;
    ct_stroke stroke[CT_MAX_STROKE];
} ct_glyph;

typedef struct ct_digit {
    int n_hand;
    ct_glyph hand[CT_MAX_HAND];
} ct_digit;

extern const ct_digit ct_digit_font[10];

#endif
