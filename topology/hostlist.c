#include "topology/hostlist.h"

#include <ctype.h>
#include <string.h>

enum { MAX_NAME = 255, MAX_BRACKETS = 4, MAX_DIGITS = 9, MAX_NAMES = 1 << 20 };

typedef struct expansion {
    const char *list, *what;
    ct_status (*each)(void *ctx, const char *name);
    void *ctx;
    char name[MAX_NAME + 1];
    int64_t n_name;
} expansion;

static ct_status fail(const expansion *e, const char *why, const char *at)
{
    return CT_FAIL(CT_ERR_CONFIG, "%s: node list \"%.200s\": %s at \"%.40s\"", e->what, e->list,
                   why, at);
}

/* The end of an element: its next comma outside of brackets, or the end of the list. */
static const char *element_end(const char *p)
{
    int depth = 0;

    for (; (*p != '\0') && ((*p != ',') || (depth > 0)); ++p) {
        if (*p == '[') depth += 1;
        if ((*p == ']') && (depth > 0)) depth -= 1;
    }
    return p;
}

static ct_status read_number(const expansion *e, const char **p, long *value_p, int *width_p)
{
    const char *start = *p;
    long v = 0;

    for (; isdigit((unsigned char)**p); ++*p) {
        if (*p - start >= MAX_DIGITS) return fail(e, "a number of too many digits", start);
        v = 10 * v + (**p - '0');
    }
    if (*p == start) return fail(e, "a number is missing", start);
    *value_p = v;
    *width_p = (int)(*p - start);
    return CT_OK;
}

static ct_status append(expansion *e, size_t *length, const char *text, size_t n)
{
    if (*length + n > MAX_NAME) return fail(e, "a name that is too long", text);
    memcpy(e->name + *length, text, n);
    *length += n;
    e->name[*length] = '\0';
    return CT_OK;
}

static ct_status expand(expansion *e, const char *p, const char *end, size_t length, int n_bracket);

/* One number, or a range of them, and what stands behind the brackets. */
static ct_status expand_range(expansion *e, const char **p, const char *behind, const char *end,
                              size_t length, int n_bracket)
{
    const char *start = *p;
    long first = 0, last = 0;
    int width = 0, last_width = 0;

    CT_TRY(read_number(e, p, &first, &width));
    last = first;
    if (**p == '-') {
        *p += 1;
        CT_TRY(read_number(e, p, &last, &last_width));
    }
    if (last < first) return fail(e, "a range that runs backwards", start);
    if (last - first >= MAX_NAMES) return fail(e, "too many names", start);
    for (long v = first; v <= last; ++v) {
        char number[24];
        size_t n = (size_t)snprintf(number, sizeof(number), "%0*ld", width, v), at = length;

        CT_TRY(append(e, &at, number, n));
        CT_TRY(expand(e, behind, end, at, n_bracket + 1));
    }
    return CT_OK;
}

/* Names that start with e->name[0..length) and go on with p[0..end). */
static ct_status expand(expansion *e, const char *p, const char *end, size_t length, int n_bracket)
{
    size_t plain = strcspn(p, "[]");
    const char *close = NULL;

    if (plain > (size_t)(end - p)) plain = (size_t)(end - p);
    CT_TRY(append(e, &length, p, plain));
    p += plain;
    if (p == end) {
        e->name[length] = '\0';
        if (++e->n_name > MAX_NAMES) return fail(e, "too many names", p);
        return e->each(e->ctx, e->name);
    }
    close = strchr(p, ']');
    if ((*p == ']') || (close == NULL) || (close > end)) return fail(e, "a lonely bracket", p);
    if (n_bracket == MAX_BRACKETS) return fail(e, "too many brackets", p);
    for (p += 1;; p += 1) {
        CT_TRY(expand_range(e, &p, close + 1, end, length, n_bracket));
        if (*p == ']') return CT_OK;
        if (*p != ',') return fail(e, "no number", p);
    }
}

ct_status ct_hostlist_each(const char *list, const char *what,
                           ct_status (*each)(void *ctx, const char *name), void *ctx)
{
    expansion e = { .list = list, .what = what, .each = each, .ctx = ctx };

    for (const char *p = list; *p != '\0';) {
        const char *end = element_end(p);

        if (end == p) return fail(&e, "an empty name", p);
        for (const char *c = p; c < end; ++c) {
            if (!isgraph((unsigned char)*c)) return fail(&e, "a character that no name has", c);
        }
        CT_TRY(expand(&e, p, end, 0, 0));
        p = end;
        if (*p == ',') {
            p += 1;
            if (*p == '\0') return fail(&e, "an empty name", ",");
        }
    }
    return CT_OK;
}

/* ---- the other way */

/* Where the number at the end of a name starts; at its end where there is none that fits. */
static size_t number_at(const char *name)
{
    size_t n = strlen(name), at = n;

    while ((at > 0) && (n - at < MAX_DIGITS) && isdigit((unsigned char)name[at - 1])) at -= 1;
    return at;
}

static long number_of(const char *digits)
{
    long v = 0;

    for (; *digits != '\0'; ++digits) v = 10 * v + (*digits - '0');
    return v;
}

/* True where b's number, of the same width behind the same word, is one more. */
static bool follows(const char *a, const char *b)
{
    size_t at = number_at(a);

    return (a[at] != '\0') && (strlen(a) == strlen(b)) && (strncmp(a, b, at) == 0) &&
           (number_at(b) == at) && (number_of(b + at) == number_of(a + at) + 1);
}

static bool same_word(const char *a, const char *b)
{
    size_t at = number_at(a);

    return (a[at] != '\0') && (number_at(b) == at) && (b[at] != '\0') && (strncmp(a, b, at) == 0);
}

void ct_hostlist_add(ct_text *out, char *const *name, int n)
{
    for (int i = 0; i < n;) {
        int group = i + 1;
        size_t at = number_at(name[i]);

        while ((group < n) && same_word(name[i], name[group])) group += 1;
        if (i > 0) ct_text_add(out, ",");
        if (group == i + 1) {
            ct_text_add(out, "%s", name[i]);
            i = group;
            continue;
        }
        ct_text_add(out, "%.*s[", (int)at, name[i]);
        for (int first = i; i < group; first = i) {
            for (i += 1; (i < group) && follows(name[i - 1], name[i]);) i += 1;
            ct_text_add(out, "%s%s", name[first] + at, (i - first > 1) ? "-" : "");
            if (i - first > 1) ct_text_add(out, "%s", name[i - 1] + at);
            if (i < group) ct_text_add(out, ",");
        }
        ct_text_add(out, "]");
    }
}
