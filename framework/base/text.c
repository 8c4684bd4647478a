#include "framework/base/text.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "framework/base/json.h"
#include "framework/base/utf8.h"

static bool reserve(ct_text *t, size_t more)
{
    size_t want = t->length + more + 1, capacity = (t->capacity > 0) ? t->capacity : 64;
    char *grown;

    if (want <= t->capacity) return true;
    while (capacity < want) capacity *= 2;
    grown = realloc(t->text, capacity);
    if (grown == NULL) {
        t->failed = true;
        return false;
    }
    t->text = grown;
    t->capacity = capacity;
    return true;
}

void ct_text_add_bytes(ct_text *t, const char *bytes, size_t n)
{
    if (!reserve(t, n)) return;
    if (n > 0) memcpy(t->text + t->length, bytes, n);
    t->length += n;
    t->text[t->length] = '\0';
}

void ct_text_add(ct_text *t, const char *fmt, ...)
{
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if ((n < 0) || !reserve(t, (size_t)n)) {
        t->failed = true;
        return;
    }
    va_start(ap, fmt);
    vsnprintf(t->text + t->length, (size_t)n + 1, fmt, ap);
    va_end(ap);
    t->length += (size_t)n;
}

/* Of ASCII, and stands as it is in a JSON string. */
static bool is_plain(uint8_t c)
{
    return (c >= 0x20) && (c < 0x80) && (c != '"') && (c != '\\');
}

/* Bytes that are no UTF-8 become U+FFFD: a reader of JSON refuses them. */
void ct_text_add_json_bytes(ct_text *t, const char *bytes, size_t n)
{
    const uint8_t *p = (const uint8_t *)((n > 0) ? bytes : ""), *end = p + n; /* else NULL */
    int length;

    ct_text_add_bytes(t, "\"", 1);
    for (const uint8_t *from; p < end; p += length) {
        for (from = p; (p < end) && is_plain(*p); p++) continue;
        ct_text_add_bytes(t, (const char *)from, (size_t)(p - from));
        length = 0;
        if (p == end) continue;
        if (ct_utf8_read(p, end, &length) == CT_NO_CHARACTER)
            ct_text_add_bytes(t, "\xef\xbf\xbd", 3);
        else if ((*p == '"') || (*p == '\\'))
            ct_text_add(t, "\\%c", *p);
        else if (*p < 0x20)
            ct_text_add(t, "\\u%04x", *p);
        else
            ct_text_add_bytes(t, (const char *)p, (size_t)length);
    }
    ct_text_add_bytes(t, "\"", 1);
}

void ct_text_add_json(ct_text *t, const char *s)
{
    ct_text_add_json_bytes(t, s, strlen(s));
}

void ct_text_add_number(ct_text *t, double v)
{
    if (isfinite(v)) {
        ct_text_add(t, "%.9g", v);
    } else {
        ct_text_add(t, "null");
    }
}

void ct_text_destroy(ct_text *t)
{
    free(t->text);
    memset(t, 0, sizeof(*t));
}

enum { MAX_WORD = 64 };

static int smaller(int a, int b)
{
    return (a < b) ? a : b;
}

/* Insertions, deletions, replacements and exchanges of neighbours that make a into b. */
static int edit_distance(const char *a, const char *b)
{
    int d[MAX_WORD + 1][MAX_WORD + 1], la = (int)strlen(a), lb = (int)strlen(b);

    if ((la > MAX_WORD) || (lb > MAX_WORD)) return MAX_WORD;
    for (int j = 0; j <= lb; j++) d[0][j] = j;
    for (int i = 1; i <= la; i++) {
        int x = tolower((unsigned char)a[i - 1]);

        d[i][0] = i;
        for (int j = 1; j <= lb; j++) {
            int y = tolower((unsigned char)b[j - 1]);

            d[i][j] = smaller(smaller(d[i - 1][j], d[i][j - 1]) + 1, d[i - 1][j - 1] + (x != y));
            if ((i > 1) && (j > 1) && (x == tolower((unsigned char)b[j - 2])) &&
                (y == tolower((unsigned char)a[i - 2])))
                d[i][j] = smaller(d[i][j], d[i - 2][j - 2] + 1);
        }
    }
    return d[la][lb];
}

const char *ct_text_nearest(const char *word, const char *const *candidate, int n)
{
    return ct_text_nearest_within(word, candidate, n, MAX_WORD - 1);
}

const char *ct_text_nearest_within(const char *word, const char *const *candidate, int n, int most)
{
    int limit = smaller((int)strlen(word) / 3, most), best = MAX_WORD;
    const char *nearest = NULL;

    if (limit < 1) limit = 1;
    for (int i = 0; i < n; i++) {
        int d = edit_distance(word, candidate[i]);

        if (d < best) {
            best = d;
            nearest = candidate[i];
        }
    }
    return (best <= limit) ? nearest : NULL;
}

bool ct_text_ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);

    return (n >= m) && (strcmp(text + n - m, end) == 0);
}
