#include "framework/text/unicode.h"

#include <stdlib.h>

enum {
    /* Hangul syllables: The Unicode Standard, section 3.12 */
    S_BASE = 0xac00,
    L_BASE = 0x1100,
    V_BASE = 0x1161,
    T_BASE = 0x11a7,
    L_COUNT = 19,
    V_COUNT = 21,
    T_COUNT = 28,
    S_COUNT = L_COUNT * V_COUNT * T_COUNT
};

/* ---- properties of a character */

uint32_t ct_unicode_bit(uint32_t c)
{
    size_t block;

    if (c > 0x10ffff) return 0;
    block = ct_unicode_block[c / CT_UNICODE_BLOCK];
    return CT_BIT(ct_unicode_category_of[block * CT_UNICODE_BLOCK + c % CT_UNICODE_BLOCK] - 'a');
}

bool ct_unicode_is_space(uint32_t c)
{
    if (c < 0x80) return (c == ' ') || ((c >= '\t') && (c <= '\r'));
    return (c == 0x85) ||
           ((ct_unicode_bit(c) & (CT_BIT(CT_ZS) | CT_BIT(CT_ZL) | CT_BIT(CT_ZP))) != 0);
}

static int by_first(const void *key, const void *row)
{
    uint32_t a = *(const uint32_t *)key, b = *(const uint32_t *)row;

    return (a > b) - (a < b);
}

uint32_t ct_unicode_lower(uint32_t c)
{
    const uint32_t *row;

    if (c < 0x80) return ((c >= 'A') && (c <= 'Z')) ? c + 'a' - 'A' : c;
    row = bsearch(&c, ct_unicode_lower_pairs, (size_t)ct_unicode_n_lower_pair,
                  sizeof(ct_unicode_lower_pairs[0]), by_first);
    return (row != NULL) ? row[1] : c;
}

static int by_range(const void *key, const void *row)
{
    uint32_t c = *(const uint32_t *)key;
    const uint32_t *range = row;

    return (c < range[0]) ? -1 : (c > range[1]);
}

uint32_t ct_unicode_bit_8(uint32_t c)
{
    static const uint32_t moved[][2] = { /* to another category since: those of then */
                                         { 0x166d, CT_PO }, { 0x1734, CT_MN }, { 0x1885, CT_LO },
                                         { 0x1886, CT_LO }, { 0xa9bd, CT_MC }, { 0x111c9, CT_PO },
                                         { 0x1171e, CT_MN }
    };
    uint32_t bit = ct_unicode_bit(c);

    if ((c < 0x300) || (bit == 0) || (bit == CT_BIT(CT_CN))) return bit;
    for (size_t i = 0; i < sizeof(moved) / sizeof(moved[0]); i++)
        if (moved[i][0] == c) return CT_BIT(moved[i][1]);
    if (bsearch(&c, ct_unicode_newer, (size_t)ct_unicode_n_newer, sizeof(ct_unicode_newer[0]),
                by_range) != NULL)
        return CT_BIT(CT_CN);
    return bit;
}

static int combining_class(uint32_t c)
{
    const uint32_t *row;

    if (c < 0x300) return 0;
    row = bsearch(&c, ct_unicode_combining, (size_t)ct_unicode_n_combining,
                  sizeof(ct_unicode_combining[0]), by_range);
    return (row != NULL) ? (int)row[2] : 0;
}

/* ---- normal forms: Unicode Standard Annex 15 */

/* Characters whose order may still change, or that may be put together: from one that combines with
 * nothing in front of it to the next such one. */
typedef struct run {
    uint32_t *c;
    uint8_t *class;
    size_t n, room;
    bool failed;
} run;

static bool make_room(run *r)
{
    size_t room = (r->room == 0) ? 64 : 2 * r->room;
    uint32_t *c;
    uint8_t *class;

    if (r->n < r->room) return true;
    c = realloc(r->c, room * sizeof(*c));
    if (c != NULL) r->c = c;
    class = realloc(r->class, room);
    if (class != NULL) r->class = class;
    if ((c == NULL) || (class == NULL)) {
        r->failed = true;
        return false;
    }
    r->room = room;
    return true;
}

/* Appended; ct_sort_marks() puts runs of marks into order. */
static void put(run *r, uint32_t c)
{
    if (!make_room(r)) return;
    r->c[r->n] = c;
    r->class[r->n++] = (uint8_t)combining_class(c);
}

static void put_decomposed(run *r, uint32_t c)
{
    uint32_t s = c - S_BASE;
    const ct_unicode_decomposition *d;

    if (s < S_COUNT) {
        put(r, L_BASE + s / (V_COUNT * T_COUNT));
        put(r, V_BASE + s % (V_COUNT * T_COUNT) / T_COUNT);
        if (s % T_COUNT != 0) put(r, T_BASE + s % T_COUNT);
        return;
    }
    d = (c < 0xc0) ? NULL
                   : bsearch(&c, ct_unicode_decompositions, (size_t)ct_unicode_n_decomposition,
                             sizeof(ct_unicode_decompositions[0]), by_first);
    if (d == NULL) put(r, c);
    for (int i = 0; (d != NULL) && (i < d->n); i++) put(r, d->to[i]);
}

/* Marks [from, to) by class, stable, in linear time: texts may have a million of them. */
static void sort_marks(run *r, size_t from, size_t to)
{
    size_t start[257] = { 0 }, n = to - from;
    uint32_t *c = malloc(n * sizeof(*c));
    uint8_t *class = malloc(n);

    if ((c == NULL) || (class == NULL)) {
        r->failed = true;
    } else {
        for (size_t i = from; i < to; i++) start[r->class[i] + 1]++;
        for (int k = 0; k < 256; k++) start[k + 1] += start[k];
        for (size_t i = from; i < to; i++) {
            size_t at = start[r->class[i]]++;

            c[at] = r->c[i];
            class[at] = r->class[i];
        }
        for (size_t i = 0; i < n; i++) {
            r->c[from + i] = c[i];
            r->class[from + i] = class[i];
        }
    }
    free(c);
    free(class);
}

static void sort_all_marks(run *r)
{
    for (size_t i = 0; i < r->n;) {
        size_t end = i;
        bool sorted = true;

        while ((end < r->n) && (r->class[end] != 0)) {
            sorted = sorted && ((end == i) || (r->class[end - 1] <= r->class[end]));
            end++;
        }
        if (!sorted) sort_marks(r, i, end);
        i = end + 1;
    }
}

static int by_pair(const void *key, const void *row)
{
    const uint32_t *a = key, *b = row;

    if (a[0] != b[0]) return (a[0] > b[0]) ? 1 : -1;
    return (a[1] > b[1]) - (a[1] < b[1]);
}

/* 0: none */
static uint32_t compose_pair(uint32_t a, uint32_t b)
{
    const uint32_t key[2] = { a, b }, *row;

    if ((a - L_BASE < L_COUNT) && (b - V_BASE < V_COUNT))
        return S_BASE + ((a - L_BASE) * V_COUNT + (b - V_BASE)) * T_COUNT;
    if ((a - S_BASE < S_COUNT) && ((a - S_BASE) % T_COUNT == 0) && (b - T_BASE - 1 < T_COUNT - 1))
        return a + (b - T_BASE);
    if (b < 0x300) return 0;
    row = bsearch(key, ct_unicode_pairs, (size_t)ct_unicode_n_pair, sizeof(ct_unicode_pairs[0]),
                  by_pair);
    return (row != NULL) ? row[2] : 0;
}

static void compose(run *r)
{
    size_t n = 0, starter = SIZE_MAX;
    int last = 0; /* the class of what was kept last behind the starter, -1: nothing */

    for (size_t i = 0; i < r->n; i++) {
        int class = r->class[i];
        uint32_t both = 0;

        if ((starter != SIZE_MAX) && (last < class)) both = compose_pair(r->c[starter], r->c[i]);
        if (both != 0) {
            r->c[starter] = both;
            continue;
        }
        if (class == 0) starter = n;
        last = (class == 0) ? -1 : class;
        r->c[n] = r->c[i];
        r->class[n++] = (uint8_t) class;
    }
    r->n = n;
}

static void flush(run *r, bool composed, ct_text *to)
{
    sort_all_marks(r);
    if (composed) compose(r);
    for (size_t i = 0; i < r->n; i++) ct_utf8_add(to, r->c[i]);
    r->n = 0;
}

void ct_unicode_normalise(const uint8_t *text, size_t n, bool composed, ct_text *to)
{
    const uint8_t *p = text, *end = text + n;
    run r = { 0 };

    while ((p < end) && !r.failed) {
        int length;
        uint32_t c = ct_utf8_read(p, end, &length);

        /* nothing joins across a character of ASCII that stands in front of another one */
        if ((c < 0x80) || (c == CT_NO_CHARACTER)) flush(&r, composed, to);
        if (c == CT_NO_CHARACTER)
            ct_text_add_bytes(to, (const char *)p, 1);
        else
            put_decomposed(&r, c);
        p += length;
    }
    flush(&r, composed, to);
    to->failed = to->failed || r.failed;
    free(r.c);
    free(r.class);
}

/* Below U+0300 all is composed, and what stands there is not joined with what is in front of it. */
bool ct_unicode_is_nfc(const uint8_t *text, size_t n)
{
    const uint8_t *p = text, *end = text + n;

    while (p < end) {
        int length;
        uint32_t c = ct_utf8_read(p, end, &length);

        if ((c >= 0x300) && (c != CT_NO_CHARACTER) && !((c >= 0x4e00) && (c < 0xa000)) &&
            !((c >= S_BASE) && (c < S_BASE + S_COUNT)))
            return false;
        p += length;
    }
    return true;
}
