/** @file number.h  Numbers that users type.
 *
 * Decimal ones: a minus or not, digits, for a real number a point and an exponent. What the C
 * library takes beside that is none: spaces, a plus, hexadecimal forms, words.
 */
#ifndef CT_NUMBER_H
#define CT_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

/** The number that a text begins with; *end_p: what is behind it. False: there is none, or it is
 *  not finite. */
bool ct_number_real(const char *text, char **end_p, double *v_p);
/** The same of a whole number; false, too, where it does not fit. */
bool ct_number_integer(const char *text, char **end_p, int64_t *v_p);

#endif
