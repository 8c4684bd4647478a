/* Augmentation: operations on pixels against what Pillow made, draws, and the order and phases in
 * which transform_param has them act. */
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "framework/data/augment/augment.h"
#include "framework/data/augment/mix.h"
#include "framework/data/transform.h"
#include "tests/golden/augment_golden.h"
#include "tests/layer_harness.h"

/* The pattern of make_augment_golden.py, as planes. */
static ct_pixels pattern(int64_t h, int64_t w, int64_t channels, bool smooth)
{
    ct_pixels p = { .channels = channels, .height = h, .width = w };

    p.data = malloc((size_t)ct_pixels_bytes(&p));
    assert_non_null(p.data);
    for (int64_t i = 0; i < ct_pixels_bytes(&p); i++) {
        uint32_t noise = (uint32_t)i * 2654435761u >> 24;
        int64_t c = i % channels, x = i / channels % w, y = i / channels / w;
        int64_t slope = (x * (c + 2) + y * 3) % 160 + 20 + noise / 4;

        p.data[(c * h + y) * w + x] = (uint8_t)(smooth ? slope : noise);
    }
    return p;
}

static ct_pixels like(const ct_pixels *p, int64_t h, int64_t w)
{
    ct_pixels to = *p;

    to.height = h;
    to.width = w;
    to.data = calloc((size_t)ct_pixels_bytes(&to), 1);
    assert_non_null(to.data);
    return to;
}

static uint32_t crc_of(const ct_pixels *p)
{
    return (uint32_t)crc32(0, p->data, (uInt)ct_pixels_bytes(p));
}

static int wrong(const char *what, int64_t i, uint32_t have, uint32_t want)
{
    if (have == want) return 0;
    print_error("%s %lld: 0x%08x, expected 0x%08x\n", what, (long long)i, have, want);
    return 1;
}

/* ---- what Pillow made */

static void test_resize(void **state)
{
    ct_sample_buffer room = { 0 };
    int n_wrong = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(crop_golden) / sizeof(crop_golden[0]); i++) {
        ct_pixels from = pattern(crop_golden[i].h, crop_golden[i].w, crop_golden[i].c, false);
        ct_pixels to = like(&from, crop_golden[i].to_h, crop_golden[i].to_w);
        const int *b = crop_golden[i].box;
        ct_rect box = { b[0], b[1], b[2], b[3] };

        assert_int_equal(ct_pixels_resize(&from, &box, &room, &to), CT_OK);
        n_wrong += wrong("resize", (int64_t)i, crc_of(&to), crop_golden[i].crc);
        free(from.data);
        free(to.data);
    }
    ct_sample_buffer_release(&room);
    assert_int_equal(n_wrong, 0);
}

static void test_affine(void **state)
{
    int n_wrong = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(affine_golden) / sizeof(affine_golden[0]); i++) {
        ct_pixels from = pattern(31, 45, 3, true), to = like(&from, 31, 45);
        double m[6];

        ct_affine_matrix(&affine_golden[i].affine, 22.5, 15.5, m);
        ct_pixels_warp(&from, m, &to);
        n_wrong += wrong("affine", (int64_t)i, crc_of(&to), affine_golden[i].crc);
        free(from.data);
        free(to.data);
    }
    assert_int_equal(n_wrong, 0);
}

static void color_op(const char *op, double v, ct_pixels *p)
{
    ct_pixels from = *p;

    if (strcmp(op, "brightness") == 0) ct_pixels_brightness(p, (float)v);
    if (strcmp(op, "contrast") == 0) ct_pixels_contrast(p, (float)v);
    if (strcmp(op, "saturation") == 0) ct_pixels_saturation(p, (float)v);
    if (strcmp(op, "hue") == 0) ct_pixels_hue(p, (uint8_t)v);
    if (strcmp(op, "posterize") == 0) ct_pixels_posterize(p, (int)v);
    if (strcmp(op, "solarize") == 0) ct_pixels_solarize(p, v);
    if (strcmp(op, "autocontrast") == 0) ct_pixels_autocontrast(p);
    if (strcmp(op, "equalize") == 0) ct_pixels_equalize(p);
    if (strcmp(op, "sharpness") != 0) return;
    *p = like(&from, from.height, from.width);
    ct_pixels_sharpness(&from, (float)v, p);
    free(from.data);
}

/* The planes of red and blue change places. */
static void swap(ct_pixels *p)
{
    int64_t n = p->height * p->width;

    for (int64_t i = 0; i < n; i++) {
        uint8_t first = p->data[i];

        p->data[i] = p->data[2 * n + i];
        p->data[2 * n + i] = first;
    }
    p->red = 2 - p->red;
}

static void test_colors(void **state)
{
    int n_wrong = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(color_golden) / sizeof(color_golden[0]); i++) {
        for (int order = 0; order < ((color_golden[i].c == 3) ? 2 : 1); order++) {
            ct_pixels p = pattern(23, 29, color_golden[i].c, color_golden[i].smooth);

            if (order == 1) swap(&p);
            color_op(color_golden[i].op, color_golden[i].value, &p);
            if (order == 1) swap(&p);
            n_wrong += wrong(color_golden[i].op, (int64_t)i, crc_of(&p), color_golden[i].crc);
            free(p.data);
        }
    }
    assert_int_equal(n_wrong, 0);
}

/* ---- draws */

/* Means within 5 of their standard deviations. */
static void test_draws(void **state)
{
    enum { N = 20000 };
    double sum[5] = { 0 };

    (void)state;
    for (int64_t i = 0; i < N; i++) {
        ct_draw d = ct_draw_begin(3, "test", i), again = ct_draw_begin(3, "test", i);
        double u = ct_draw_uniform(&d), z, beta;

        assert_true((u >= 0) && (u < 1) && (u == ct_draw_uniform(&again)));
        sum[0] += u;
        z = ct_draw_normal(&d);
        sum[1] += z;
        sum[2] += z * z;
        beta = ct_draw_beta(&d, 0.2);
        assert_true((beta >= 0) && (beta <= 1));
        sum[3] += (beta - 0.5) * (beta - 0.5);
        beta = ct_draw_beta(&d, 3);
        sum[4] += (beta - 0.5) * (beta - 0.5);
    }
    assert_true(fabs(sum[0] / N - 0.5) < 5 * sqrt(1.0 / 12 / N));
    assert_true(fabs(sum[1] / N) < 5 * sqrt(1.0 / N));
    assert_true(fabs(sum[2] / N - 1) < 5 * sqrt(2.0 / N));
    /* the variance of Beta(a, a) is 1 / (4 (2 a + 1)); squares spread by at most 1/8, 1/28 each */
    assert_true(fabs(sum[3] / N - 1 / 5.6) < 5 * 0.125 / sqrt(N));
    assert_true(fabs(sum[4] / N - 1.0 / 28) < 5 * (1.0 / 28) * sqrt(2.0 / N));
}

static void test_rects(void **state)
{
    const ct_rect_rule rule = { 0.1, 0.4, 0.5, 2 }, never = { 1, 1, 3, 3 };
    double area = 0;
    ct_rect r;

    (void)state;
    for (int64_t i = 0; i < 3000; i++) {
        ct_draw d = ct_draw_begin(3, "rect", i);

        assert_true(ct_draw_rect(&d, &rule, 200, 300, &r));
        assert_true((r.top >= 0) && (r.left >= 0));
        assert_true((r.top + r.height <= 200) && (r.left + r.width <= 300));
        /* sides are rounded */
        assert_true((r.width + 0.5) / (r.height - 0.5) > 0.5);
        assert_true((r.width - 0.5) / (r.height + 0.5) < 2);
        area += (double)(r.height * r.width) / 60000;
    }
    /* uniform in 0.1 to 0.4, but for boxes that do not fit */
    assert_true(fabs(area / 3000 - 0.25) < 0.01);
    for (int64_t i = 0; i < 100; i++) {
        ct_draw d = ct_draw_begin(3, "rect", i);

        assert_false(ct_draw_rect(&d, &never, 200, 300, &r));
    }
}

/* ---- transform_param */

static Ct__RandomResizedCropParameter crop_of(uint32_t size)
{
    Ct__RandomResizedCropParameter c = CT__RANDOM_RESIZED_CROP_PARAMETER__INIT;

    c.size = size;
    return c;
}

static ct_sample sample_of(const ct_pixels *p, ct_why *why)
{
    return (ct_sample){ .u8 = p->data,
                        .shape = { 3, { p->channels, p->height, p->width } },
                        .why = why };
}

/* The whole image, where area and aspect leave nothing else. */
static void test_crop_of_all(void **state)
{
    Ct__TransformationParameter p = CT__TRANSFORMATION_PARAMETER__INIT;
    Ct__RandomResizedCropParameter c = crop_of(17);
    ct_pixels from = pattern(40, 40, 3, false), want = like(&from, 17, 17);
    ct_rect whole = { 0, 0, 40, 40 };
    ct_augment_room room = { 0 };
    ct_augment *a;
    ct_sample s, out;
    ct_why why = { "" };

    (void)state;
    c.area_min = c.aspect_min = c.aspect_max = 1;
    p.random_resized_crop = &c;
    assert_int_equal(ct_augment_create(&p, CT_TRAIN, "test", &a), CT_OK);
    assert_int_equal(ct_pixels_resize(&from, &whole, &room.work, &want), CT_OK);
    s = sample_of(&from, &why);
    assert_int_equal(ct_augment_apply(a, &s, 1, 5, &room, &out), CT_OK);
    assert_true(ct_shape_equal(&out.shape, &(ct_shape){ 3, { 3, 17, 17 } }));
    assert_memory_equal(out.u8, want.data, (size_t)ct_pixels_bytes(&want));
    ct_augment_destroy(a);

    /* in TEST the shorter side becomes test_resize: no reduction of 40 x 40, and its middle */
    c.test_resize = 40;
    assert_int_equal(ct_augment_create(&p, CT_TEST, "test", &a), CT_OK);
    assert_int_equal(ct_augment_apply(a, &s, 1, 5, &room, &out), CT_OK);
    for (int64_t i = 0; i < 3 * 17 * 17; i++) {
        int64_t ch = i / 289, y = i / 17 % 17, x = i % 17;

        /* (40 - 17) / 2 is 11.5, which goes to the even 12 */
        assert_int_equal(out.u8[i], from.data[(ch * 40 + 12 + y) * 40 + 12 + x]);
    }
    ct_augment_destroy(a);
    ct_augment_room_release(&room);
    free(from.data);
    free(want.data);
}

/* ---- sizes that forks draw: the same pixels as ct_pixels_resize() makes of the whole */

/* What position 5 and some more come out as; each has a side between low and high. */
static void check_sizes(const Ct__TransformationParameter *p, int64_t h, int64_t w, int64_t low,
                        int64_t high, ct_shape *first_p)
{
    ct_pixels from = pattern(h, w, 3, true), want;
    ct_rect whole = { 0, 0, h, w };
    ct_augment_room room = { 0 };
    ct_augment *a;
    ct_why why = { "" };
    ct_sample s = sample_of(&from, &why), out;
    bool seen[64] = { false };

    assert_true((low > 0) && (high < 64));
    assert_int_equal(ct_augment_create(p, CT_TEST, "test", &a), CT_OK);
    for (int64_t position = 0; position < 200; position++) {
        int64_t oh, ow;

        assert_int_equal(ct_augment_apply(a, &s, 1, position, &room, &out), CT_OK);
        oh = out.shape.dim[1];
        ow = out.shape.dim[2];
        assert_in_range((oh < ow) ? oh : ow, low, high);
        seen[(oh < ow) ? oh : ow] = true;
        want = like(&from, oh, ow);
        assert_int_equal(ct_pixels_resize(&from, &whole, &room.work, &want), CT_OK);
        assert_memory_equal(out.u8, want.data, (size_t)ct_pixels_bytes(&want));
        free(want.data);
        if (position == 0) *first_p = out.shape;
    }
    for (int64_t k = low; k <= high; k++) assert_true(seen[k]);
    ct_augment_destroy(a);
    ct_augment_room_release(&room);
    free(from.data);
}

static void test_sizes(void **state)
{
    Ct__TransformationParameter p = CT__TRANSFORMATION_PARAMETER__INIT, n = p;
    Ct__RandomResizeParameter r = CT__RANDOM_RESIZE_PARAMETER__INIT;
    ct_shape first;

    (void)state;
    p.random_resize_param = &r;
    p.crop_size = n.crop_size = 16;
    r.min_size = r.max_size = 21; /* Intel's: 30 * 21 / 20 is 31.5, cut off; it may grow */
    check_sizes(&p, 20, 30, 21, 21, &first);
    assert_true(ct_shape_equal(&first, &(ct_shape){ 3, { 3, 21, 31 } }));
    r.max_size = 25;
    check_sizes(&p, 30, 20, 21, 25, &first);
    r.min_size = r.max_size = 0; /* from the shorter to the longer side */
    check_sizes(&p, 20, 23, 20, 23, &first);

    n.img_rand_resize_lower = 17; /* NVIDIA's: 30 * 17 / 20 is 25.5, rounded; it does not grow */
    n.img_rand_resize_upper = 17;
    check_sizes(&n, 20, 30, 17, 17, &first);
    assert_true(ct_shape_equal(&first, &(ct_shape){ 3, { 3, 17, 26 } }));
    n.img_rand_resize_upper = 22;
    check_sizes(&n, 20, 30, 17, 20, &first);
    n.allow_upscale = true;
    check_sizes(&n, 20, 30, 17, 22, &first);
    n.img_rand_resize_lower = n.img_rand_resize_upper = 0;
    n.has_vertical_stretch_lower = true;
    n.vertical_stretch_lower = n.vertical_stretch_upper = 0.5f;
    n.horizontal_stretch_lower = n.horizontal_stretch_upper = 0.5f;
    check_sizes(&n, 40, 20, 16, 16, &first); /* 20 x 10, and crop_size is 16 */
    assert_true(ct_shape_equal(&first, &(ct_shape){ 3, { 3, 20, 16 } }));
    n.vertical_stretch_lower = n.vertical_stretch_upper = 1;
    n.horizontal_stretch_lower = n.horizontal_stretch_upper = 1;
    n.rand_resize_ratio_lower = 1.25f;
    n.rand_resize_ratio_upper = 1.25f;
    check_sizes(&n, 20, 30, 20, 20, &first);
    assert_true(ct_shape_equal(&first, &(ct_shape){ 3, { 3, 20, 25 } }));
}

/* With change 1 a box is a square of a quarter of the area: some place of the image. Where none
 * fits, the shorter side becomes crop_size. */
static void test_aspects(void **state)
{
    Ct__TransformationParameter p = CT__TRANSFORMATION_PARAMETER__INIT;
    Ct__RandomAspectRatioParameter r = CT__RANDOM_ASPECT_RATIO_PARAMETER__INIT;
    ct_pixels from = pattern(20, 45, 3, true);
    ct_augment_room room = { 0 };
    ct_augment *a;
    ct_why why = { "" };
    ct_sample s = sample_of(&from, &why), out;
    int places = 0;

    (void)state;
    p.random_aspect_ratio_param = &r;
    p.crop_size = 15; /* 15 x 15 of 20 x 45 is a quarter: nothing is resized */
    r.min_area_ratio = r.max_area_ratio = 0.25f;
    assert_int_equal(ct_augment_create(&p, CT_TRAIN, "test", &a), CT_OK);
    assert_int_equal(ct_augment_apply(a, &s, 1, 3, &room, &out), CT_OK);
    assert_true(ct_shape_equal(&out.shape, &(ct_shape){ 3, { 3, 15, 15 } }));
    for (int64_t at = 0; at < 6 * 31; at++) {
        bool same = true;

        for (int64_t i = 0; i < 3 * 225; i++) {
            int64_t c = i / 225, y = i / 15 % 15 + at / 31, x = i % 15 + at % 31;

            same = same && (out.u8[i] == from.data[(c * 20 + y) * 45 + x]);
        }
        places += same;
    }
    assert_int_equal(places, 1);
    ct_augment_destroy(a);
    r.min_area_ratio = r.max_area_ratio = 1; /* a square of 30 x 30 fits nowhere */
    assert_int_equal(ct_augment_create(&p, CT_TRAIN, "test", &a), CT_OK);
    assert_int_equal(ct_augment_apply(a, &s, 1, 3, &room, &out), CT_OK);
    assert_true(ct_shape_equal(&out.shape, &(ct_shape){ 3, { 3, 15, 33 } }));
    ct_augment_destroy(a);
    ct_augment_room_release(&room);
    free(from.data);
}

/* Each operation changes images in TRAIN, in another way at another position, and is idle in TEST;
 * what is drawn for one does not depend on the others. */
static void changes(const Ct__TransformationParameter *p)
{
    ct_pixels from = pattern(24, 24, 3, true), once = like(&from, 24, 24);
    ct_augment_room room = { 0 };
    ct_augment *a, *idle;
    ct_sample s, out;
    ct_why why = { "" };
    int same = 0;

    assert_int_equal(ct_augment_create(p, CT_TEST, "test", &idle), CT_OK);
    assert_null(idle);
    assert_int_equal(ct_augment_create(p, CT_TRAIN, "test", &a), CT_OK);
    s = sample_of(&from, &why);
    assert_int_equal(ct_augment_apply(a, &s, 1, 5, &room, &out), CT_OK);
    memcpy(once.data, out.u8, (size_t)ct_pixels_bytes(&once));
    assert_true(memcmp(once.data, from.data, (size_t)ct_pixels_bytes(&once)) != 0);
    assert_int_equal(ct_augment_apply(a, &s, 1, 5, &room, &out), CT_OK);
    assert_memory_equal(once.data, out.u8, (size_t)ct_pixels_bytes(&once));
    for (int64_t position = 6; position < 16; position++) {
        assert_int_equal(ct_augment_apply(a, &s, 1, position, &room, &out), CT_OK);
        same += memcmp(once.data, out.u8, (size_t)ct_pixels_bytes(&once)) == 0;
    }
    assert_int_equal(same, 0);
    ct_augment_destroy(a);
    ct_augment_room_release(&room);
    free(from.data);
    free(once.data);
}

static void test_operations(void **state)
{
    Ct__TransformationParameter p = CT__TRANSFORMATION_PARAMETER__INIT;
    Ct__ColorJitterParameter jitter = CT__COLOR_JITTER_PARAMETER__INIT;
    Ct__RotateParameter rotate = CT__ROTATE_PARAMETER__INIT;
    Ct__AffineParameter affine = CT__AFFINE_PARAMETER__INIT;
    Ct__RandAugmentParameter rand = CT__RAND_AUGMENT_PARAMETER__INIT;

    (void)state;
    p.color_jitter = &jitter;
    jitter.brightness = 0.4f;
    changes(&p);
    jitter.contrast = jitter.saturation = 0.4f;
    jitter.hue = 0.2f;
    changes(&p);
    p.color_jitter = NULL;
    p.rotate = &rotate;
    rotate.degrees = 30;
    changes(&p);
    p.rotate = NULL;
    p.affine = &affine;
    affine.translate = 0.3f;
    affine.scale_min = 0.5f;
    affine.scale_max = 2;
    changes(&p);
    p.affine = NULL;
    p.rand_augment = &rand;
    rand.ops = 5; /* so many that an image does not come through unchanged by chance here */
    changes(&p);
}

/* Shares of an image of ones that lighting and erasing change. */
static void test_lighting_erase(void **state)
{
    enum { H = 20, W = 30, N = 500 };
    Ct__TransformationParameter p = CT__TRANSFORMATION_PARAMETER__INIT;
    Ct__LightingParameter light = CT__LIGHTING_PARAMETER__INIT;
    Ct__EraseParameter erase = CT__ERASE_PARAMETER__INIT;
    ct_sample s = { .shape = { 3, { 3, H, W } } };
    uint8_t ones[3 * H * W];
    float out[3 * H * W];
    double square = 0;
    int erased = 0;
    ct_transform *t;

    (void)state;
    memset(ones, 1, sizeof(ones));
    s.u8 = ones;
    p.lighting = &light;
    assert_int_equal(ct_transform_create(&p, CT_TRAIN, "test", &t), CT_OK);
    assert_false(ct_transform_packs(t));
    for (int64_t i = 0; i < N; i++) {
        ct_transform_apply(t, &s, 2, i, out);
        assert_true(out[0] == out[H * W - 1]); /* one colour for all pixels */
        square += (double)(out[2 * H * W] - 1) * (double)(out[2 * H * W] - 1);
    }
    /* red, the last channel: the variance of the sum over the three axes */
    assert_true(fabs(square / N / (25.5 * 25.5) - 0.015421) < 5 * 0.015421 * sqrt(2.0 / N));
    ct_transform_destroy(t);

    p.lighting = NULL;
    p.erase = &erase;
    erase.probability = 0.25f;
    assert_int_equal(ct_transform_create(&p, CT_TRAIN, "test", &t), CT_OK);
    for (int64_t i = 0; i < N; i++) {
        int zeros = 0;

        ct_transform_apply(t, &s, 2, i, out);
        for (int k = 0; k < H * W; k++) {
            zeros += out[k] == 0;
            assert_true((out[k] == out[k + H * W]) && (out[k] == out[k + 2 * H * W]));
        }
        erased += zeros > 0;
        assert_true(zeros <= 0.3334 * H * W + W); /* sides are rounded */
    }
    assert_true(abs(erased - N / 4) < 5 * sqrt(N * 0.25 * 0.75));
    ct_transform_destroy(t);
    assert_int_equal(ct_transform_create(&p, CT_TEST, "test", &t), CT_OK);
    assert_true(ct_transform_packs(t));
    ct_transform_destroy(t);
}

/* ---- mixing: a of 1 … n, b of -1 … -n */

enum { MIX_C = 2, MIX_H = 12, MIX_W = 9, MIX_N = MIX_C * MIX_H * MIX_W, MIX_PAIRS = 400 };

static double mix_one(const ct_mixing *m, int64_t first, float *a, float *b)
{
    const ct_shape shape = { 3, { MIX_C, MIX_H, MIX_W } };

    for (int i = 0; i < MIX_N; i++) {
        a[i] = (float)(i + 1);
        b[i] = -a[i];
    }
    return ct_mixing_pair(m, &shape, 7, first, a, b);
}

static bool is_mixup(const float *a, const float *b, double share)
{
    bool good = true;

    for (int i = 0; i < MIX_N; i++) {
        double want = (2 * share - 1) * (i + 1);

        /* two products and a sum, each rounded */
        good = good && (fabs((double)a[i] - want) <= 3 * 0x1p-24 * (i + 1)) && (b[i] == -a[i]);
    }
    return good;
}

/* Values exchanged in a box of all channels, whose area is 1 - share. */
static bool is_cut(const float *a, const float *b, double share)
{
    int n = 0, top = MIX_H, left = MIX_W, bottom = -1, right = -1;

    for (int i = 0; i < MIX_N; i++) {
        int y = i / MIX_W % MIX_H, x = i % MIX_W;

        if ((fabsf(a[i]) != (float)(i + 1)) || (b[i] != -a[i])) return false;
        if (a[i] > 0) continue;
        n++;
        top = (y < top) ? y : top;
        left = (x < left) ? x : left;
        bottom = (y > bottom) ? y : bottom;
        right = (x > right) ? x : right;
    }
    if ((n > 0) && (n != MIX_C * (bottom - top + 1) * (right - left + 1))) return false;
    return fabs(1 - share - (double)n / MIX_N) < 1e-9;
}

static void test_mixing(void **state)
{
    ct_mixing m = { .mixup = 0.4, .classes = 4 };
    float a[MIX_N], b[MIX_N], of_a[4] = { 2 }, of_b[4] = { 1 };
    double share, square = 0;
    int cuts = 0, ups = 0;

    (void)state;
    for (int64_t i = 0; i < MIX_PAIRS; i++) {
        share = mix_one(&m, 2 * i, a, b);
        assert_true((share >= 0) && (share <= 1) && is_mixup(a, b, share));
        square += (share - 0.5) * (share - 0.5);
    }
    /* the variance of Beta(a, a) is 1 / (4 (2 a + 1)), squares are at most 1/4 */
    assert_true(fabs(square / MIX_PAIRS - 1 / 7.2) < 5 * 0.125 / sqrt(MIX_PAIRS));
    m.cutmix = 1;
    for (int64_t i = 0; i < MIX_PAIRS; i++) {
        share = mix_one(&m, 2 * i, a, b);
        cuts += is_cut(a, b, share);
        ups += is_mixup(a, b, share);
    }
    assert_true(cuts + ups >= MIX_PAIRS); /* a share of 1 looks like both */
    assert_in_range(cuts, MIX_PAIRS / 2 - 50, MIX_PAIRS / 2 + 50 + MIX_PAIRS / 20);
    ct_mixing_labels(&m, 0.75, of_a, of_b);
    assert_memory_equal(of_a, ((float[]){ 0, 0.25f, 0.75f, 0 }), sizeof(of_a));
    assert_memory_equal(of_b, ((float[]){ 0, 0.75f, 0.25f, 0 }), sizeof(of_b));
    of_a[0] = of_b[0] = 3;
    ct_mixing_labels(&m, 0.75, of_a, of_b);
    assert_memory_equal(of_a, ((float[]){ 0, 0, 0, 1 }), sizeof(of_a));
    assert_memory_equal(of_b, ((float[]){ 0, 0, 0, 1 }), sizeof(of_b));
}

static void test_refused_mixing(void **state)
{
    Ct__TransformationParameter p = CT__TRANSFORMATION_PARAMETER__INIT;
    Ct__MixParameter x = CT__MIX_PARAMETER__INIT;
    ct_mixing m;

    (void)state;
    assert_int_equal(ct_mixing_read(NULL, CT_TRAIN, "net:3", &m), CT_OK);
    assert_false(ct_mixing_acts(&m));
    p.cutmix = &x;
    test_log_start();
    assert_int_equal(ct_mixing_read(&p, CT_TRAIN, "net:3", &m), CT_ERR_CONFIG);
    assert_non_null(strstr(test_log_stop(), "net:3: transform_param.classes is 0: mixup and"));
    p.classes = 10;
    x.alpha = 0;
    test_log_start();
    assert_int_equal(ct_mixing_read(&p, CT_TRAIN, "net:3", &m), CT_ERR_CONFIG);
    assert_non_null(strstr(test_log_stop(), "transform_param.cutmix.alpha is 0, must be above 0"));
    x.alpha = 1;
    assert_int_equal(ct_mixing_read(&p, CT_TEST, "net:3", &m), CT_OK);
    assert_false(ct_mixing_acts(&m));
    assert_int_equal(ct_mixing_read(&p, CT_TRAIN, "net:3", &m), CT_OK);
    assert_true(ct_mixing_acts(&m));
}

/* ---- fields out of their ranges, samples that do not fit */

static void refuse(const Ct__TransformationParameter *p, const char *part)
{
    ct_augment *a = NULL;
    ct_transform *t = NULL;
    const char *said;
    ct_status status;

    test_log_start();
    status = ct_augment_create(p, CT_TRAIN, "net:3", &a);
    if (status == CT_OK) status = ct_transform_create(p, CT_TRAIN, "net:3", &t);
    said = test_log_stop();
    assert_int_equal(status, CT_ERR_CONFIG);
    assert_non_null(strstr(said, part));
    ct_augment_destroy(a);
}

static void test_refused_sizes(void **state)
{
    Ct__TransformationParameter p = CT__TRANSFORMATION_PARAMETER__INIT;
    Ct__RandomResizeParameter r = CT__RANDOM_RESIZE_PARAMETER__INIT;
    Ct__RandomAspectRatioParameter aspect = CT__RANDOM_ASPECT_RATIO_PARAMETER__INIT;
    Ct__RandomResizedCropParameter c = crop_of(17);
    char mean[] = "mean.binaryproto";

    (void)state;
    p.random_resize_param = &r;
    refuse(&p, "net:3: transform_param.random_resize_param makes images of many sizes: give "
               "crop_size, which cuts them to one");
    p.crop_size = 20000;
    refuse(&p, "crop_size 20000 is beside random_resize_param, at most 16384");
    p.crop_size = 20;
    p.mean_file = mean;
    refuse(&p, "random_resize_param makes images of many sizes, and mean_file fits one: give "
               "mean_value");
    p.mean_file = NULL;
    p.random_resized_crop = &c;
    refuse(&p, "has both random_resize_param and random_resized_crop");
    p.random_resized_crop = NULL;
    r.min_size = 9;
    r.max_size = 8;
    refuse(&p, "sizes from 9 to 8: the first at most the second");
    r.max_size = 10;
    p.random_aspect_ratio_param = &aspect;
    refuse(&p, "has both random_aspect_ratio_param and sizes by chance");
    p.random_resize_param = NULL;
    aspect.max_area_ratio = 1.5f;
    refuse(&p, "min_area_ratio 0.5, max_area_ratio 1.5, aspect_ratio_change 1: each above 0");
    p.random_aspect_ratio_param = NULL;
    p.has_vertical_stretch_lower = true;
    p.vertical_stretch_lower = 2;
    refuse(&p, "vertical_stretch_lower is 2 and vertical_stretch_upper 1: the first at most");
}

static void test_refused_crops(void **state)
{
    Ct__TransformationParameter p = CT__TRANSFORMATION_PARAMETER__INIT;
    Ct__RandomResizedCropParameter c = CT__RANDOM_RESIZED_CROP_PARAMETER__INIT;

    (void)state;
    p.random_resized_crop = &c;
    refuse(&p, "net:3: transform_param.random_resized_crop.size is 0, must be 1 to 16384");
    c.size = 20;
    c.test_resize = 19;
    refuse(&p, "random_resized_crop.test_resize is 19, must be at least size, 20");
    c.test_resize = 0;
    c.area_max = 1.5f;
    refuse(&p, "random_resized_crop.area_min is 0.08 and area_max 1.5: above 0, at most 1");
    c.area_max = 0.05f;
    refuse(&p, "the first at most the second");
    c.area_max = 1;
    c.aspect_min = 0;
    refuse(&p, "random_resized_crop.aspect_min is 0");
    c.aspect_min = NAN;
    refuse(&p, "random_resized_crop.aspect_min is nan");
    c.aspect_min = 1;
    p.crop_size = 20;
    refuse(&p, "both crop_size and random_resized_crop: give one");
}

static void test_refused_operations(void **state)
{
    Ct__TransformationParameter p = CT__TRANSFORMATION_PARAMETER__INIT;
    Ct__ColorJitterParameter j = CT__COLOR_JITTER_PARAMETER__INIT;
    Ct__RotateParameter r = CT__ROTATE_PARAMETER__INIT;
    Ct__AffineParameter a = CT__AFFINE_PARAMETER__INIT;
    Ct__LightingParameter l = CT__LIGHTING_PARAMETER__INIT;
    Ct__EraseParameter e = CT__ERASE_PARAMETER__INIT;
    Ct__RandAugmentParameter ra = CT__RAND_AUGMENT_PARAMETER__INIT;

    (void)state;
    p.rand_augment = &ra;
    ra.ops = 33;
    refuse(&p, "transform_param.rand_augment.ops is 33, must be 1 to 32");
    ra.ops = 1;
    ra.magnitude = 31;
    refuse(&p, "transform_param.rand_augment.magnitude is 31, must be 0 to 30");
    p.rand_augment = NULL;
    p.color_jitter = &j;
    j.hue = 0.6f;
    refuse(&p, "transform_param.color_jitter.hue is 0.6, must be 0 to 0.5");
    j.contrast = -1;
    refuse(&p, "transform_param.color_jitter.contrast is -1, must be 0 to 100");
    p.color_jitter = NULL;
    p.rotate = &r;
    r.degrees = 361;
    refuse(&p, "transform_param.rotate.degrees is 361, must be 0 to 360");
    p.rotate = NULL;
    p.affine = &a;
    a.shear = 85;
    refuse(&p, "transform_param.affine.shear is 85, must be 0 to 80");
    a.shear = 0;
    a.scale_min = 3;
    refuse(&p, "transform_param.affine.scale_min is 3 and scale_max 1");
    p.affine = NULL;
    p.lighting = &l;
    l.std = 11;
    refuse(&p, "transform_param.lighting.std is 11, must be 0 to 10");
    l.std = 1;
    p.mean_file = (char *)(uintptr_t) "mean";
    refuse(&p, "lighting and mean_file: give mean_value");
    p.mean_file = NULL;
    p.lighting = NULL;
    p.erase = &e;
    e.probability = 2;
    refuse(&p, "transform_param.erase.probability is 2, must be 0 to 1");
    e.probability = 1;
    e.area_min = 0.5f;
    refuse(&p, "transform_param.erase.area_min is 0.5 and area_max 0.33");
    e.area_min = 0.1f;
    e.aspect_max = 2000;
    refuse(&p, "transform_param.erase.aspect_min is 0.3 and aspect_max 2000");
}

static void test_refused_samples(void **state)
{
    Ct__TransformationParameter p = CT__TRANSFORMATION_PARAMETER__INIT;
    Ct__RandomResizedCropParameter c = crop_of(200);
    Ct__LightingParameter l = CT__LIGHTING_PARAMETER__INIT;
    ct_pixels from = pattern(1, 65535, 3, false);
    ct_augment_room room = { 0 };
    float value[3] = { 0 };
    ct_why why = { "" };
    ct_sample s = { .f32 = value, .shape = { 3, { 3, 1, 1 } }, .why = &why }, out;
    ct_shape shape;
    ct_augment *a;
    ct_transform *t;

    (void)state;
    p.random_resized_crop = &c;
    assert_int_equal(ct_augment_create(&p, CT_TEST, "test", &a), CT_OK);
    assert_int_equal(ct_augment_apply(a, &s, 1, 1, &room, &out), CT_ERR_CONFIG);
    assert_string_equal(why.text, "transform_param.random_resized_crop needs samples of 8 bits, "
                                  "this one has floats");
    s.shape.dim[0] = 2;
    assert_int_equal(ct_augment_apply(a, &s, 1, 1, &room, &out), CT_ERR_CONFIG);
    assert_non_null(strstr(why.text, "needs images of 1 or 3 channels, samples are 2 1 1"));
    s = sample_of(&from, &why);
    assert_int_equal(ct_augment_apply(a, &s, 1, 1, &room, &out), CT_ERR_DATA);
    assert_non_null(strstr(why.text, "1 x 65535 pixels: too narrow"));
    ct_augment_destroy(a);

    p.random_resized_crop = NULL;
    p.lighting = &l;
    assert_int_equal(ct_transform_create(&p, CT_TRAIN, "test", &t), CT_OK);
    s.shape.dim[0] = 1;
    assert_int_equal(ct_transform_shape(t, &s.shape, &shape, &why), CT_ERR_CONFIG);
    assert_non_null(strstr(why.text, "lighting needs images of 3 channels, samples are 1 1 65535"));
    ct_transform_destroy(t);
    ct_augment_room_release(&room);
    free(from.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resize),          cmocka_unit_test(test_affine),
        cmocka_unit_test(test_colors),          cmocka_unit_test(test_draws),
        cmocka_unit_test(test_rects),           cmocka_unit_test(test_crop_of_all),
        cmocka_unit_test(test_mixing),          cmocka_unit_test(test_refused_mixing),
        cmocka_unit_test(test_refused_crops),   cmocka_unit_test(test_refused_operations),
        cmocka_unit_test(test_refused_samples), cmocka_unit_test(test_operations),
        cmocka_unit_test(test_sizes),           cmocka_unit_test(test_aspects),
        cmocka_unit_test(test_refused_sizes),   cmocka_unit_test(test_lighting_erase),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
