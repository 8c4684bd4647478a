/* The geometry of Caffe's WindowData layer, in its floats: its rounding decides about pixels. */
#include "framework/data/window_rule.h"

#include <math.h>

/* One axis of a window. */
typedef struct span {
    int64_t first, last;    /* of the image's pixels */
    int64_t size;           /* resized to            */
    int64_t before, behind; /* places of the crop that the image does not reach */
} span;

static float half_size(int32_t first, int32_t last)
{
    return (float)((int64_t)last - first + 1) / 2.0f;
}

/* `half` to both sides of the middle of [first, last], times the context. */
static span widen(const ct_window_rule *rule, int32_t first, int32_t last, float half, int64_t n)
{
    float middle = (float)first + half_size(first, last);
    float context = (float)rule->crop / (float)(rule->crop - 2 * rule->context_pad);
    float reach = half * context;
    span s = { .first = (int64_t)roundf(middle - reach), .last = (int64_t)roundf(middle + reach) };
    float scale = (float)rule->crop / (float)(s.last - s.first + 1);

    s.before = (s.first < 0) ? -s.first : 0;
    s.behind = (s.last > n - 1) ? s.last - n + 1 : 0;
    s.first += s.before;
    s.last -= s.behind;
    s.size = (int64_t)roundf((float)(s.last - s.first + 1) * scale);
    s.before = (int64_t)roundf((float)s.before * scale);
    s.behind = (int64_t)roundf((float)s.behind * scale);
    return s;
}

/* Roundings may add up to more than the crop. */
static int64_t fit(int64_t size, int64_t at, int64_t crop)
{
    if (size > crop - at) size = crop - at;
    return (size > 0) ? size : 0;
}

ct_status ct_window_warp(const ct_window_rule *rule, const ct_box *box, int64_t height,
                         int64_t width, bool mirrored, ct_warp *warp_p, ct_why *why)
{
    span x = { box->x1, box->x2, rule->crop, 0, 0 }, y = { box->y1, box->y2, rule->crop, 0, 0 };

    if ((rule->context_pad > 0) || rule->square) {
        float half_x = half_size(box->x1, box->x2), half_y = half_size(box->y1, box->y2);

        if (rule->square) half_x = half_y = (half_x > half_y) ? half_x : half_y;
        x = widen(rule, box->x1, box->x2, half_x, width);
        y = widen(rule, box->y1, box->y2, half_y, height);
    }
    if ((x.first < 0) || (y.first < 0) || (x.last >= width) || (y.last >= height) ||
        (x.first > x.last) || (y.first > y.last)) {
        return CT_WHY(why, CT_ERR_DATA,
                      "the window %d %d %d %d lies outside of the image, which is %lld wide and "
                      "%lld high",
                      (int)box->x1, (int)box->y1, (int)box->x2, (int)box->y2, (long long)width,
                      (long long)height);
    }
    warp_p->from = (ct_box){ (int32_t)x.first, (int32_t)y.first, (int32_t)x.last, (int32_t)y.last };
    warp_p->top = y.before;
    warp_p->left = mirrored ? x.behind : x.before;
    warp_p->height = fit(y.size, warp_p->top, rule->crop);
    warp_p->width = fit(x.size, warp_p->left, rule->crop);
    return CT_OK;
}
