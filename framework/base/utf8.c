/* The Unicode Standard, table 3-7. */
#include "framework/base/utf8.h"

#include <stdbool.h>
#include <stddef.h>

static bool is_next(const uint8_t *p, int i)
{
    return (p[i] & 0xc0) == 0x80;
}

uint32_t ct_utf8_read(const uint8_t *p, const uint8_t *end, int *length_p)
{
    ptrdiff_t left = end - p;
    uint32_t c;

    *length_p = 1;
    if (p[0] < 0x80) return p[0];
    if ((p[0] >= 0xc2) && (p[0] < 0xe0) && (left >= 2) && is_next(p, 1)) {
        *length_p = 2;
        return (p[0] & 0x1fu) << 6 | (p[1] & 0x3fu);
    }
    if (((p[0] & 0xf0) == 0xe0) && (left >= 3) && is_next(p, 1) && is_next(p, 2)) {
        c = (p[0] & 0x0fu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu);
        if ((c < 0x800) || ((c >= 0xd800) && (c < 0xe000))) return CT_NO_CHARACTER;
        *length_p = 3;
        return c;
    }
    if (((p[0] & 0xf8) == 0xf0) && (left >= 4) && is_next(p, 1) && is_next(p, 2) && is_next(p, 3)) {
        c = (p[0] & 0x07u) << 18 | (p[1] & 0x3fu) << 12 | (p[2] & 0x3fu) << 6 | (p[3] & 0x3fu);
        if ((c < 0x10000) || (c > 0x10ffff)) return CT_NO_CHARACTER;
        *length_p = 4;
        return c;
    }
    return CT_NO_CHARACTER;
}

size_t ct_utf8_whole(const char *text, size_t n)
{
    for (size_t back = 1; (back <= 3) && (back <= n); back++) {
        unsigned char c =
            (unsigned char)text[n - back]; /* the first byte says how many there are */
        size_t needs = (c >= 0xf8) ? 1 : (c >= 0xf0) ? 4 : (c >= 0xe0) ? 3 : (c >= 0xc0) ? 2 : 1;

        if ((c & 0xc0) == 0x80) continue;
        return (needs > back) ? n - back : n;
    }
    return n;
}

int ct_utf8_write(uint32_t c, uint8_t to[4])
{
    if (c < 0x80) {
        to[0] = (uint8_t)c;
        return 1;
    }
    if (c < 0x800) {
        to[0] = (uint8_t)(0xc0 | c >> 6);
        to[1] = (uint8_t)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        to[0] = (uint8_t)(0xe0 | c >> 12);
        to[1] = (uint8_t)(0x80 | (c >> 6 & 0x3f));
        to[2] = (uint8_t)(0x80 | (c & 0x3f));
        return 3;
    }
    to[0] = (uint8_t)(0xf0 | c >> 18);
    to[1] = (uint8_t)(0x80 | (c >> 12 & 0x3f));
    to[2] = (uint8_t)(0x80 | (c >> 6 & 0x3f));
    to[3] = (uint8_t)(0x80 | (c & 0x3f));
    return 4;
}

void ct_utf8_add(ct_text *t, uint32_t c)
{
    uint8_t bytes[4];
    int n = ct_utf8_write(c, bytes);

    ct_text_add_bytes(t, (const char *)bytes, (size_t)n);
}
