/* Operands of sums on blocked layouts in words of rounded numbers. */
#include "layers/engine/conv/blocked.h"

/* Of channel c, or c and c + 1: `taps` rows of lanes each, from tap `first` on. */
static void put_taps(const ct_blk_sum *s, const int64_t *map, int64_t c, int64_t first,
                     int64_t taps, int64_t lanes, const float *a, const float *b, float *to)
{
    int64_t w = s->set.words;

    for (int64_t t = 0; t < taps; t++) {
        int64_t at = map[first + t], row = t * s->set.b;

        if (at < 0) continue;
        s->set.narrow->across(1, s->set.b, a + row, (b != NULL) ? b + row : NULL, 0,
                              to + (at * w + c / s->set.pair) * lanes, 0);
    }
}

void ct_blk_pack_words(const ct_blk_sum *s, const int64_t *map, int64_t real, int64_t n,
                       int64_t lanes, const float *from, float *to)
{
    enum { COLUMNS = 64 }; /* (channel, tap) that are turned at a time */
    float turned[COLUMNS * CT_BLK_MAX] = { 0.0f };
    int64_t b = s->set.b, taps = blk_smaller(s->w_taps, COLUMNS / 2);
    int64_t channels = blk_smaller(COLUMNS / taps / 2 * 2, b);
    bool at_once = (s->w_in == s->w_taps) && (taps == s->w_taps);

    for (int64_t c = 0; c < n; c += channels) {
        int64_t here = blk_smaller(channels, n - c);

        for (int64_t t = 0; t < s->w_taps; t += taps) {
            int64_t some = blk_smaller(taps, s->w_taps - t), rows = some * b;
            const float *at = from + c * s->w_in + t;

            if (at_once) ct_blk_turn(real, here * some, at, s->w_out, turned, b);
            for (int64_t k = 0; !at_once && (k < here); k++)
                ct_blk_turn(real, some, at + k * s->w_in, s->w_out, turned + k * rows, b);
            for (int64_t k = 0; k < here; k += s->set.pair)
                put_taps(s, map, c + k, t, some, lanes, turned + k * rows,
                         (k + 1 < here) ? turned + (k + 1) * rows : NULL, to);
        }
    }
}

void ct_blk_narrow_patch(const ct_blk_sum *s, const ct_blk_patch *at, float *to)
{
    int64_t b = s->set.b, row = s->w * b, step = at->cols * s->set.words;
    int64_t in_block = blk_count(s->in, b);

    for (int64_t n = at->n; n < at->n + at->images; n++) {
        for (int64_t k = at->block; k < at->block + at->n_block; k++, to += at->rows * step) {
            int64_t plane = (n * s->group + at->g) * in_block + k;
            const float *x =
                ct_num_at(s->x, s->x_bf16, (plane * s->h + at->top) * row + at->left * b);

            if (s->x_bf16) { /* words of one value: pairs are read where they stand */
                for (int64_t r = 0; r < at->rows; r++)
                    ct_bf16_widen(at->cols * b, ct_num_at(x, true, r * row), to + r * step);
                continue;
            }
            if (at->cols == s->w) /* rows lie together */
                s->set.narrow->along(1, at->rows * row, x, 0, to, 0);
            else
                s->set.narrow->along(at->rows, at->cols * b, x, row, to, step);
        }
    }
}
