#include "framework/data/augment/canvas.h"

#include <string.h>

#include "framework/data/image.h"

ct_status ct_canvas_check(const ct_canvas *c, int64_t height, int64_t width)
{
    if ((height >= 1) && (width >= 1) && (height <= CT_MAX_IMAGE_BYTES / width / c->now.channels))
        return CT_OK;
    return CT_WHY(c->why, CT_ERR_DATA, "%lld x %lld pixels would become %lld x %lld",
                  (long long)c->now.height, (long long)c->now.width, (long long)height,
                  (long long)width);
}

ct_status ct_canvas_other(ct_canvas *c, int64_t height, int64_t width, ct_pixels *to_p)
{
    ct_sample_buffer *b = &c->room->pixels[c->at == 0];

    *to_p = c->now;
    to_p->height = height;
    to_p->width = width;
    CT_TRY(ct_sample_buffer_reserve(b, (size_t)ct_pixels_bytes(to_p)));
    to_p->data = b->data;
    return CT_OK;
}

void ct_canvas_move(ct_canvas *c, const ct_pixels *to)
{
    c->at = (c->at == 0);
    c->now = *to;
}

ct_status ct_canvas_own(ct_canvas *c)
{
    ct_pixels to;

    if (c->at >= 0) return CT_OK;
    CT_TRY(ct_canvas_other(c, c->now.height, c->now.width, &to));
    memcpy(to.data, c->now.data, (size_t)ct_pixels_bytes(&to));
    ct_canvas_move(c, &to);
    return CT_OK;
}

int64_t ct_reflect(int64_t i, int64_t n)
{
    while ((n > 1) && ((i < 0) || (i >= n))) i = (i < 0) ? -i : 2 * (n - 1) - i;
    return (n > 1) ? i : 0;
}
