#include "comm/collective/coll_spec.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static ct_status fail(const char *spec, const char *at, const char *what)
{
    return CT_FAIL(CT_ERR_CONFIG,
                   "allreduce \"%s\": %s, at \"%.20s\"; expected NAME, or NAME<SIZE,…,NAME with "
                   "rising sizes, such as tree<64K,rhd<4M,hier",
                   spec, what, at);
}

/* A whole number from 1 to 2^40; false where there is none. */
static bool read_number(const char **at, int64_t *n_p)
{
    const int64_t most = (int64_t)1 << 40;
    int64_t n = 0;

    if (!isdigit((unsigned char)**at)) return false;
    for (; isdigit((unsigned char)**at); ++*at) {
        n = 10 * n + (**at - '0');
        if (n > most) return false;
    }
    *n_p = n;
    return n >= 1;
}

static ct_status read_name(const char *spec, const char **at, ct_coll_term *term)
{
    size_t n = 0;

    while (isalnum((unsigned char)(*at)[n]) || ((*at)[n] == '_')) n += 1;
    if (n == 0) return fail(spec, *at, "no name");
    if (n >= sizeof(term->name)) return fail(spec, *at, "no known name is so long");
    memcpy(term->name, *at, n);
    term->name[n] = '\0';
    *at += n;
    return CT_OK;
}

static ct_status read_dims(const char *spec, const char **at, ct_coll_term *term)
{
    if (**at != ':') return CT_OK;
    if (strcmp(term->name, "torus") != 0) return fail(spec, *at, "only a torus has dimensions");
    for (int k = 0; k < 3; ++k) term->dim[k] = 1;
    for (int k = 0; k < 3; ++k) {
        int64_t n = 0;

        *at += 1;
        if (!read_number(at, &n) || (n > INT32_MAX))
            return fail(spec, *at, "not the dimension of a torus");
        term->dim[k] = (int)n;
        if (**at != 'x') return CT_OK;
    }
    return fail(spec, *at, "more than three dimensions");
}

static ct_status read_limit(const char *spec, const char **at, ct_coll_term *term)
{
    static const char unit[] = "KMG";
    const char *found = NULL;

    term->below = INT64_MAX;
    if (**at != '<') return CT_OK;
    *at += 1;
    if (!read_number(at, &term->below)) return fail(spec, *at, "not a size");
    found = (**at != '\0') ? strchr(unit, toupper((unsigned char)**at)) : NULL;
    if (found != NULL) {
        term->below <<= 10 * (found - unit + 1);
        *at += 1;
    }
    return CT_OK;
}

ct_status ct_coll_spec_read(const char *spec, ct_coll_term *term, int *n_p)
{
    const char *at = spec;
    int64_t before = 0;

    for (int n = 0; n < CT_COLL_TERMS; ++n) {
        const char *start = at;

        term[n] = (ct_coll_term){ .below = 0 };
        CT_TRY(read_name(spec, &at, &term[n]));
        CT_TRY(read_dims(spec, &at, &term[n]));
        CT_TRY(read_limit(spec, &at, &term[n]));
        if (term[n].below <= before) return fail(spec, start, "a size that does not rise");
        before = term[n].below;
        if (*at == '\0') {
            if (before != INT64_MAX)
                return fail(spec, start,
                            "larger buffers have no algorithm, since the last has a "
                            "limit");
            *n_p = n + 1;
            return CT_OK;
        }
        if (*at != ',') return fail(spec, at, "unexpected");
        if (before == INT64_MAX) return fail(spec, start, "a name without a limit before others");
        at += 1;
    }
    return fail(spec, at, "too many ranges");
}
