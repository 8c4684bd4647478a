/* A data set out of nothing: rendered digits. */
#include "framework/base/rng.h"
#include "framework/data/convert_sink.h"
#include "framework/data/digit_draw.h"

enum { DEFAULT_COUNT = 10000, TEST_PART = 5, CLASSES = 10 };

typedef struct work {
    uint64_t seed;
    int64_t n[2];
} work;

static ct_status fill(void *ctx, int which, ct_sink *sink)
{
    const work *w = ctx;
    uint64_t key = ct_rng_key(w->seed, ct_rng_hash("digits"), (uint64_t)which);
    uint8_t pixels[CT_DIGIT_SIDE * CT_DIGIT_SIDE];

    for (int64_t i = 0; i < w->n[which]; i++) {
        ct_record r = { .values = pixels,
                        .n = sizeof(pixels),
                        .channels = 1,
                        .height = CT_DIGIT_SIDE,
                        .width = CT_DIGIT_SIDE };

        /* as many of each digit, in no order */
        r.label = (int)(ct_rng_permute(key, (uint64_t)i, (uint64_t)w->n[which]) % CLASSES);
        ct_digit_draw(r.label, ct_rng_key(key, (uint64_t)i, 1), pixels);
        CT_TRY(ct_sink_add(sink, &r, NULL, NULL));
    }
    return CT_OK;
}

ct_status ct_convert_digits(const ct_convert_options *o)
{
    int64_t count = (o->count > 0) ? o->count : DEFAULT_COUNT;
    work w = { .seed = o->seed, .n = { count, (count + TEST_PART - 1) / TEST_PART } };

    return ct_convert_pair(o, &(ct_pair){ { w.n[0], w.n[1] }, fill, &w });
}
