#include "framework/base/number.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

bool ct_number_real(const char *text, char **end_p, double *v_p)
{
    const char *at = text + (text[0] == '-');

    if (!isdigit((unsigned char)at[0]) && ((at[0] != '.') || !isdigit((unsigned char)at[1])))
        return false;
    if ((at[0] == '0') && ((at[1] == 'x') || (at[1] == 'X'))) return false;
    *v_p = strtod(text, end_p);
    return isfinite(*v_p);
}

bool ct_number_integer(const char *text, char **end_p, int64_t *v_p)
{
    if (!isdigit((unsigned char)text[text[0] == '-'])) return false;
    errno = 0;
    *v_p = strtoll(text, end_p, 10);
    return errno == 0;
}
