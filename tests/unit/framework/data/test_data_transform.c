/* transform_param against Caffe's formula written out, with the crop and the mirroring found by
 * trying them all. */
#include "tests/test.h"

#include <stdlib.h>
#include <string.h>

#include "framework/data/transform.h"
#include "tests/data_files.h"
#include "tests/layer_harness.h"
#include "tests/log_capture.h"

enum { C = 3, H = 7, W = 9, CROP = 4 };

static uint8_t pixel[C * H * W];
static float pixel_f[C * H * W];

static int fill(void **state)
{
    (void)state;
    for (int i = 0; i < C * H * W; i++) {
        pixel[i] = (uint8_t)((i * 37 + i / 5) % 256);
        pixel_f[i] = (float)pixel[i] / 3.0f - 20.0f;
    }
    return 0;
}

typedef struct expected {
    float scale;
    const float *mean;       /* C * H * W, or NULL */
    const float *mean_value; /* C, or NULL         */
    int size_h, size_w, top, left;
    bool mirrored;
} expected;

static float want(const expected *e, bool bytes, int c, int y, int x)
{
    int from_x = e->mirrored ? e->size_w - 1 - x : x;
    int at = (c * H + e->top + y) * W + e->left + from_x;
    float v = bytes ? (float)pixel[at] : pixel_f[at];

    if (e->mean != NULL) return (v - e->mean[at]) * e->scale;
    if (e->mean_value != NULL) return (v - e->mean_value[c]) * e->scale;
    return v * e->scale;
}

static bool matches(const expected *e, bool bytes, const float *out)
{
    for (int c = 0; c < C; c++) {
        for (int y = 0; y < e->size_h; y++) {
            for (int x = 0; x < e->size_w; x++) {
                if (out[(c * e->size_h + y) * e->size_w + x] != want(e, bytes, c, y, x))
                    return false;
            }
        }
    }
    return true;
}

static ct_sample sample_of(bool bytes)
{
    return (ct_sample){ .u8 = bytes ? pixel : NULL,
                        .f32 = bytes ? NULL : pixel_f,
                        .shape = { 3, { C, H, W } } };
}

static ct_transform *make(const Ct__TransformationParameter *p, ct_phase phase, ct_shape *out)
{
    ct_transform *t;
    ct_why why;
    ct_shape in = { 3, { C, H, W } };

    assert_int_equal(ct_transform_create(p, phase, "test", &t), CT_OK);
    assert_int_equal(ct_transform_shape(t, &in, out, &why), CT_OK);
    return t;
}

static void check_plain(const Ct__TransformationParameter *p, const expected *e)
{
    for (int bytes = 0; bytes < 2; bytes++) {
        ct_sample s = sample_of(bytes);
        ct_shape shape;
        ct_transform *t = make(p, CT_TRAIN, &shape);
        float out[C * H * W];

        assert_true(ct_shape_equal(&shape, &s.shape));
        ct_transform_apply(t, &s, 1, 2, out);
        assert_true(matches(e, bytes, out));
        ct_transform_destroy(t);
    }
}

static void test_nothing(void **state)
{
    (void)state;
    check_plain(NULL, &(expected){ .scale = 1, .size_h = H, .size_w = W });
}

static void test_scale(void **state)
{
    Ct__TransformationParameter p = CT__TRANSFORMATION_PARAMETER__INIT;

    (void)state;
    p.scale = 0.00390625f;
    check_plain(&p, &(expected){ .scale = 0.00390625f, .size_h = H, .size_w = W });
}

static void test_mean_value(void **state)
{
    Ct__TransformationParameter p = CT__TRANSFORMATION_PARAMETER__INIT;
    float each[C] = { 104, 117, 123 }, one[C] = { 50, 50, 50 };

    (void)state;
    p.scale = 0.017f;
    p.n_mean_value = C;
    p.mean_value = each;
    check_plain(&p, &(expected){ .scale = 0.017f, .mean_value = each, .size_h = H, .size_w = W });
    p.n_mean_value = 1;
    p.mean_value = one;
    check_plain(&p, &(expected){ .scale = 0.017f, .mean_value = one, .size_h = H, .size_w = W });
}

/* Where in the sample the output was taken: asserts that one place alone explains it. */
static expected locate(const expected *like, bool bytes, const float *out)
{
    expected found = { 0 };
    int n = 0;

    for (int top = 0; top <= H - CROP; top++) {
        for (int left = 0; left <= W - CROP; left++) {
            for (int m = 0; m < 2; m++) {
                expected e = *like;

                e.top = top;
                e.left = left;
                e.mirrored = m;
                if (matches(&e, bytes, out)) {
                    found = e;
                    n++;
                }
            }
        }
    }
    assert_int_equal(n, 1);
    return found;
}

/* What is taken off, by the difference to the same without a mean: the middle, mirrored or not. */
static bool is_middle(const float *without, const float *with, const float *mean, int64_t side,
                      bool mirrored)
{
    for (int64_t c = 0; c < C; c++)
        for (int64_t y = 0; y < CROP; y++)
            for (int64_t x = 0; x < CROP; x++) {
                int64_t at = (c * CROP + y) * CROP + x, column = mirrored ? CROP - 1 - x : x;
                int64_t place = (c * side + y + 1) * side + column + 1;

                if (without[at] - with[at] != mean[place]) return false;
            }
    return true;
}

/* Where NVIDIA's fields draw sizes the middle of the mean is taken off each crop. */
static void test_mean_of_crop(void **state)
{
    enum { SIDE = CROP + 2 };
    Ct__TransformationParameter p = CT__TRANSFORMATION_PARAMETER__INIT;
    float mean[C * SIDE * SIDE], with[C * CROP * CROP], without[C * CROP * CROP];
    ct_sample s = sample_of(true);
    int mirrored = 0;
    ct_transform *plain, *t;
    ct_shape shape;
    test_folder f;
    log_capture said;

    (void)state;
    for (int i = 0; i < C * SIDE * SIDE; i++)
        mean[i] = (float)(i % 251); /* differences are exact */
    test_folder_make(&f);
    assert_int_equal(
        ct_mean_write(test_path(&f, "mean.binaryproto"), &(ct_shape){ 3, { C, SIDE, SIDE } }, mean),
        CT_OK);
    p.img_rand_resize_lower = p.img_rand_resize_upper = W;
    p.crop_size = CROP;
    p.mirror = true;
    plain = make(&p, CT_TRAIN, &shape);
    p.mean_file = (char *)(uintptr_t)test_path(&f, "mean.binaryproto");
    t = make(&p, CT_TRAIN, &shape);
    assert_true(ct_shape_equal(&shape, &(ct_shape){ 3, { C, CROP, CROP } }));
    assert_false(ct_transform_packs(t));
    for (int64_t position = 0; position < 40; position++) {
        ct_transform_apply(plain, &s, 9, position, without);
        ct_transform_apply(t, &s, 9, position, with);
        if (is_middle(without, with, mean, SIDE, true))
            mirrored++;
        else
            assert_true(is_middle(without, with, mean, SIDE, false));
    }
    assert_in_range(mirrored, 5, 35); /* 40 coins: beyond that once in 10^6 */
    ct_transform_destroy(t);
    ct_transform_destroy(plain);

    p.crop_size = SIDE + 1;
    log_capture_start(&said);
    assert_int_equal(ct_transform_create(&p, CT_TRAIN, "net:3", &t), CT_ERR_CONFIG);
    log_capture_stop();
    assert_non_null(strstr(said.error, "smaller than crop_size"));
    test_folder_remove(&f);
}

static void test_crop_mirror_mean_file(void **state)
{
    Ct__TransformationParameter p = CT__TRANSFORMATION_PARAMETER__INIT;
    float mean[C * H * W], out[C * CROP * CROP], again[C * CROP * CROP];
    expected like = { .scale = 0.5f, .mean = mean, .size_h = CROP, .size_w = CROP };
    int seen_top[H] = { 0 }, seen_left[W] = { 0 }, mirrored = 0, n = 400;
    ct_sample s = sample_of(true);
    ct_shape shape, mean_shape = { 3, { C, H, W } };
    test_folder f;
    ct_transform *t;

    (void)state;
    for (int i = 0; i < C * H * W; i++) mean[i] = (float)(i % 100) + 0.25f;
    test_folder_make(&f);
    assert_int_equal(ct_mean_write(test_path(&f, "mean.binaryproto"), &mean_shape, mean), CT_OK);
    p.scale = 0.5f;
    p.crop_size = CROP;
    p.mirror = true;
    p.mean_file = (char *)(uintptr_t)test_path(&f, "mean.binaryproto");

    t = make(&p, CT_TRAIN, &shape);
    assert_true(ct_shape_equal(&shape, &(ct_shape){ 3, { C, CROP, CROP } }));
    for (int64_t position = 0; position < n; position++) {
        expected e;

        ct_transform_apply(t, &s, 9, position, out);
        e = locate(&like, true, out);
        seen_top[e.top]++;
        seen_left[e.left]++;
        mirrored += e.mirrored;
        ct_transform_apply(t, &s, 9, position, again);
        assert_memory_equal(out, again, sizeof(out)); /* a function of (seed, position) */
    }
    /* each place is as likely; 5 standard deviations of a binomial */
    for (int i = 0; i <= H - CROP; i++) assert_in_range(seen_top[i], 100 - 44, 100 + 44);
    for (int i = 0; i <= W - CROP; i++) assert_in_range(seen_left[i], 67 - 38, 67 + 38);
    assert_in_range(mirrored, 200 - 50, 200 + 50);
    ct_transform_destroy(t);

    t = make(&p, CT_TEST, &shape); /* the middle; mirrored still, as in Caffe */
    for (int64_t position = 0; position < 20; position++) {
        expected e;

        ct_transform_apply(t, &s, 9, position, out);
        e = locate(&like, true, out);
        assert_int_equal(e.top, (H - CROP) / 2);
        assert_int_equal(e.left, (W - CROP) / 2);
    }
    ct_transform_destroy(t);
    test_folder_remove(&f);
}

/* ---- a border around the image, for random crops of its own size */
enum { PAD = 3 };

/* The value at a place of the sample, 0 outside: what a border means, said anew. */
static float bordered(int c, int y, int x, float mean_value, float scale)
{
    bool inside = (y >= 0) && (y < H) && (x >= 0) && (x < W);

    return inside ? ((float)pixel[(c * H + y) * W + x] - mean_value) * scale : 0.0f;
}

static bool is_at(const float *out, int size, int top, int left, bool mirrored)
{
    for (int c = 0; c < C; c++) {
        for (int y = 0; y < size; y++) {
            for (int x = 0; x < size; x++) {
                int from = left + (mirrored ? size - 1 - x : x);

                if (*out++ != bordered(c, top + y, from, 7.5f, 0.5f)) return false;
            }
        }
    }
    return true;
}

static void test_pad(void **state)
{
    Ct__TransformationParameter p = CT__TRANSFORMATION_PARAMETER__INIT;
    enum { SIZE = (H < W) ? H : W };
    float mean_value = 7.5f, out[C * SIZE * SIZE];
    int seen_top[H + 2 * PAD] = { 0 }, seen_left[W + 2 * PAD] = { 0 };
    int tops = H + 2 * PAD - SIZE + 1, lefts = W + 2 * PAD - SIZE + 1;
    ct_sample s = sample_of(true);
    ct_shape shape;
    ct_transform *t;

    (void)state;
    p.scale = 0.5f;
    p.n_mean_value = 1;
    p.mean_value = &mean_value;
    p.crop_size = SIZE;
    p.pad = PAD;
    p.mirror = true;
    t = make(&p, CT_TRAIN, &shape);
    assert_true(ct_shape_equal(&shape, &(ct_shape){ 3, { C, SIZE, SIZE } }));
    for (int64_t position = 0; position < 100 * tops; position++) {
        int found = 0;

        ct_transform_apply(t, &s, 9, position, out);
        for (int place = 0; place < tops * lefts * 2; place++) {
            int top = place / 2 / lefts, left = place / 2 % lefts;

            if (!is_at(out, SIZE, top - PAD, left - PAD, place % 2)) continue;
            found++;
            seen_top[top]++;
            seen_left[left]++;
        }
        assert_int_equal(found, 1);
    }
    /* each place is as likely: 100 of each top, 5 standard deviations of a binomial */
    for (int i = 0; i < tops; i++) assert_in_range(seen_top[i], 100 - 50, 100 + 50);
    for (int i = 0; i < lefts; i++) assert_true(seen_left[i] > 0);
    ct_transform_destroy(t);

    t = make(&p, CT_TEST, &shape); /* no border in TEST: the middle */
    ct_transform_apply(t, &s, 9, 0, out);
    assert_true(is_at(out, SIZE, (H - SIZE) / 2, (W - SIZE) / 2, false) ||
                is_at(out, SIZE, (H - SIZE) / 2, (W - SIZE) / 2, true));
    ct_transform_destroy(t);
}

/* ---- packed, and made from that: the same bits */

static void packs_as_it_applies(const Ct__TransformationParameter *p, ct_phase phase)
{
    enum { MOST = C * (H + 2 * PAD) * (W + 2 * PAD) };
    int64_t count[2];
    ct_shape shape;
    ct_transform *t = make(p, phase, &shape);
    ct_pack_rule rule = ct_transform_rule(t);

    count[0] = ct_shape_count(&shape, 0, -1);
    count[1] = 2;
    for (int k = 0; k < 3; k++) { /* bytes; bytes in a batch of floats; floats */
        ct_sample s = sample_of(k < 2);
        ct_pack pack;
        char block[2 * CT_ALIGN + MOST * sizeof(float)] __attribute__((aligned(CT_ALIGN)));

        pack = ct_pack_lay(1, &shape, k > 0, 2, count);
        assert_true(pack.bytes <= sizeof(block));
        assert_int_equal(pack.rest_at[1], CT_ALIGN);
        assert_int_equal(pack.values_at, 2 * CT_ALIGN);
        for (int64_t position = 0; position < 60; position++) {
            float out[MOST];

            memset(block, 0xa5, sizeof(block));
            ct_transform_apply(t, &s, 9, position, out);
            assert_true(ct_transform_pack(t, &s, 9, position, k > 0, (ct_pack_place *)(void *)block,
                                          block + pack.values_at));
            for (int64_t i = 0; i < count[0]; i++) {
                float v = ct_pack_value(&pack, &rule, block, i);

                assert_memory_equal(&v, &out[i], sizeof(v));
            }
        }
    }
    ct_transform_destroy(t);
}

static void test_pack(void **state)
{
    Ct__TransformationParameter p = CT__TRANSFORMATION_PARAMETER__INIT;
    float each[C] = { 104.3f, 117.1f, 123.7f }, mean[C * H * W];
    ct_shape mean_shape = { 3, { C, H, W } };
    ct_pack_place place;
    test_folder f;

    (void)state;
    for (int i = 0; i < C * H * W; i++) mean[i] = (float)(i % 100) / 3.0f;
    test_folder_make(&f);
    assert_int_equal(ct_mean_write(test_path(&f, "mean"), &mean_shape, mean), CT_OK);
    for (int k = 0; k < 32; k++) {
        p.mirror = k & 1;
        p.scale = (k & 2) ? 0.0173f : 1.0f;
        p.crop_size = (k & 4) ? CROP : 0;
        p.pad = ((k & 12) == 12) ? PAD : 0;
        p.n_mean_value = (k & 16) ? ((k & 8) ? C : 1) : 0;
        p.mean_value = each;
        for (int phase = CT_TRAIN; phase <= CT_TEST; phase++) {
            packs_as_it_applies(&p, (ct_phase)phase);
            if (p.n_mean_value > 0) continue;
            p.mean_file = (char *)(uintptr_t)test_path(&f, "mean");
            packs_as_it_applies(&p, (ct_phase)phase);
            p.mean_file = NULL;
        }
    }
    packs_as_it_applies(NULL, CT_TRAIN);
    { /* floats are no bytes */
        ct_sample s = sample_of(false);
        ct_shape shape;
        ct_transform *t = make(NULL, CT_TRAIN, &shape);
        char out[C * H * W];

        assert_false(ct_transform_pack(t, &s, 1, 2, false, &place, out));
        ct_transform_destroy(t);
    }
    test_folder_remove(&f);
}

/* ---- refusals */

static void refuse(const Ct__TransformationParameter *p, ct_status status, const char *part)
{
    ct_transform *t = NULL;

    test_log_start();
    assert_int_equal(ct_transform_create(p, CT_TRAIN, "net:3", &t), status);
    assert_non_null(strstr(test_log_stop(), part));
}

static void refuse_shape(const Ct__TransformationParameter *p, const ct_shape *in, ct_status status,
                         const char *part)
{
    ct_transform *t;
    ct_shape out;
    ct_why why;

    assert_int_equal(ct_transform_create(p, CT_TRAIN, "net:3", &t), CT_OK);
    assert_int_equal(ct_transform_shape(t, in, &out, &why), status);
    assert_non_null(strstr(why.text, part));
    ct_transform_destroy(t);
}

static void test_refusals(void **state)
{
    Ct__TransformationParameter p = CT__TRANSFORMATION_PARAMETER__INIT;
    float two[2] = { 1, 2 };
    ct_shape in = { 3, { C, H, W } }, flat = { 1, { 100 } };

    (void)state;
    p.mean_file = (char *)(uintptr_t) "/nowhere/mean.binaryproto";
    refuse(&p, CT_ERR_IO, "net:3: mean_file /nowhere/mean.binaryproto: No such file");
    p.n_mean_value = 2;
    p.mean_value = two;
    refuse(&p, CT_ERR_CONFIG, "both mean_file and mean_value");
    p.mean_file = NULL;
    refuse_shape(&p, &in, CT_ERR_CONFIG, "2 mean_value for 3 channels");
    p.n_mean_value = 0;
    p.crop_size = 8;
    refuse_shape(&p, &in, CT_ERR_DATA, "crop_size 8");
    refuse_shape(&p, &flat, CT_ERR_CONFIG, "channels x height x width");
    p.crop_size = 16;
    p.pad = 4; /* 15 x 17 with its border */
    refuse_shape(&p, &in, CT_ERR_DATA,
                 "the sample is 7 x 9, pad 4, crop_size 16: too small for the crop");
    p.crop_size = 0;
    p.has_crop_h = p.has_crop_w = true;
    p.crop_h = 16;
    p.crop_w = 15;
    refuse_shape(&p, &in, CT_ERR_DATA, "the sample is 7 x 9, pad 4, crop_h 16, crop_w 15");
    p.has_crop_h = p.has_crop_w = false;
    p.crop_h = p.crop_w = 0;
    refuse(&p, CT_ERR_CONFIG, "net:3: transform_param.pad 4 without crop_size");
    p.pad = 0;
    p.force_color = p.force_gray = true;
    refuse(&p, CT_ERR_CONFIG, "force_gray");
}

static void test_broken_mean_files(void **state)
{
    Ct__TransformationParameter p = CT__TRANSFORMATION_PARAMETER__INIT;
    ct_shape shape = { 3, { 1, 5, 5 } }, in = { 3, { C, H, W } };
    float mean[25] = { 0 };
    test_folder f;
    const char *path;
    size_t size;

    (void)state;
    test_folder_make(&f);
    path = test_path(&f, "mean");
    p.mean_file = (char *)(uintptr_t)path;
    assert_int_equal(ct_mean_write(path, &shape, mean), CT_OK);
    refuse_shape(&p, &in, CT_ERR_DATA, "that of the mean_file 1 5 5");
    free(test_file_read(path, &size));
    test_file_truncate(path, size - 3);
    refuse(&p, CT_ERR_DATA, "not a BlobProto: truncated");
    test_file_write(path, "\x08\x01\x10\x01\x18\x02\x20\x02", 8); /* 1 x 1 x 2 x 2, no values */
    refuse(&p, CT_ERR_DATA, "but 0 values");
    test_file_write(path, "", 0);
    refuse(&p, CT_ERR_DATA, "not one image");
    test_folder_remove(&f);
}

/* Places and mirroring of ten crops, in the order of pycaffe's oversample; of five and two those
 * that they have in common. */
static void test_crops(void **state)
{
    const int order[5][2] = { { 0, 0 },
                              { 0, W - CROP },
                              { H - CROP, 0 },
                              { H - CROP, W - CROP },
                              { (H - CROP) / 2, (W - CROP) / 2 } };
    const int numbers[] = { 1, 2, 5, 10 };
    Ct__TransformationParameter p = CT__TRANSFORMATION_PARAMETER__INIT;
    ct_sample s = sample_of(true);
    float out[C * CROP * CROP];
    ct_transform *t;
    ct_shape shape;

    (void)state;
    p.crop_size = CROP;
    p.mirror = true; /* by chance, which crops do not go by */
    t = make(&p, CT_TEST, &shape);
    for (int k = 0; k < 4; k++) {
        for (int i = 0; i < numbers[k]; i++) {
            int n = numbers[k], five = (n < 5) ? 4 : i % 5;
            bool mirrored = (n == 2) ? (i == 1) : (i >= 5);

            s.crop = (ct_crop){ .i = i, .n = n };
            ct_transform_apply(t, &s, 9, i, out);
            for (int at = 0; at < C * CROP * CROP; at++) {
                int c = at / (CROP * CROP), y = at / CROP % CROP, x = at % CROP;
                int column = order[five][1] + (mirrored ? CROP - 1 - x : x);

                assert_float_equal(out[at], (float)pixel[(c * H + order[five][0] + y) * W + column],
                                   0);
            }
        }
    }
    ct_transform_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing),      cmocka_unit_test(test_scale),
        cmocka_unit_test(test_mean_value),   cmocka_unit_test(test_crop_mirror_mean_file),
        cmocka_unit_test(test_refusals),     cmocka_unit_test(test_broken_mean_files),
        cmocka_unit_test(test_pad),          cmocka_unit_test(test_pack),
        cmocka_unit_test(test_mean_of_crop), cmocka_unit_test(test_crops),
    };

    return cmocka_run_group_tests(tests, fill, NULL);
}
