/* WindowData: window files good and bad, what is drawn, and what becomes of a window, against an
 * independent statement of Caffe's layer (tests/golden/make_data_golden.py). */
#include "tests/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "framework/base/memory.h"
#include "framework/data/loader.h"
#include "framework/data/transform.h"
#include "framework/data/window_list.h"
#include "framework/net/net.h"
#include "tests/data_files.h"
#include "tests/layer_harness.h"
#include "tests/parsed_net.h"

#include "tests/golden/data_golden.h"

static bool have_png(void)
{
    return ct_image_codec_table[1]->decode != NULL;
}

/* A PNG whose pixels, blue first, are those of the golden script. */
static void make_pattern(const char *path, int h, int w)
{
    uint8_t *pixel = malloc((size_t)(h * w * 3));

    for (int i = 0; i < h * w * 3; i++) {
        int at = i - i % 3 + 2 - i % 3; /* files have red first */

        pixel[at] = (uint8_t)((uint32_t)i * 2654435761u >> 24);
    }
    test_png(path, h, w, 3, pixel);
    free(pixel);
}

/* ---- a net of one layer */

static const float *top(const parsed_net *f, const char *name)
{
    return ct_blob_data(f->net->pass->blob[ct_net_find_blob(f->net, name)]);
}

static void write_text(char *text, size_t size, test_folder *d, const char *transform,
                       const char *window)
{
    snprintf(text, size,
             "layer { name: 'w' type: 'WindowData' top: 'data' top: 'label' transform_param { %s } "
             "window_data_param { source: '%s/windows' root_folder: '%s/' %s } }",
             transform, d->path, d->path, window);
}

/* ---- one window against the golden figures */

static void make_mean(test_folder *d, int n)
{
    float *mean = malloc(sizeof(float) * (size_t)(3 * n * n));
    ct_shape shape = { 3, { 3, n, n } };

    for (int i = 0; i < 3 * n * n; i++) mean[i] = (float)(i * 7 % 97) + 0.25f;
    assert_int_equal(ct_mean_write(test_path(d, "mean"), &shape, mean), CT_OK);
    free(mean);
}

/* The only foreground window of a set, mirrored or not as the seed has it. */
static void test_windows_as_caffe(void **state)
{
    test_folder d;

    (void)state;
    if (!have_png()) skip();
    test_folder_make(&d);
    for (size_t i = 0; i < sizeof(window_golden) / sizeof(window_golden[0]); i++) {
        const int *b = window_golden[i].box;
        int crop = window_golden[i].crop, n = 3 * crop * crop;
        char text[1024], transform[256], window[128], mean[160] = "";
        bool found = false;

        make_pattern(test_path(&d, "a.png"), window_golden[i].h, window_golden[i].w);
        make_mean(&d, crop + 5);
        snprintf(text, sizeof(text), "# 0\na.png\n3 %d %d\n1\n7 1.0 %d %d %d %d\n",
                 window_golden[i].h, window_golden[i].w, b[0], b[1], b[2], b[3]);
        test_file_text(test_path(&d, "windows"), text);
        if (window_golden[i].mean == 1)
            snprintf(mean, sizeof(mean), "mean_value: 104 mean_value: 117.5 mean_value: 123");
        if (window_golden[i].mean == 2)
            snprintf(mean, sizeof(mean), "mean_file: '%s'", test_path(&d, "mean"));
        snprintf(transform, sizeof(transform), "crop_size: %d mirror: %s scale: %.9g %s", crop,
                 window_golden[i].mirrored ? "true" : "false", (double)window_golden[i].scale,
                 mean);
        snprintf(window, sizeof(window),
                 "batch_size: 1 fg_fraction: 1 context_pad: %d crop_mode: '%s' cache_images: %s",
                 window_golden[i].pad, window_golden[i].square ? "square" : "warp",
                 (i % 2 == 0) ? "true" : "false");
        write_text(text, sizeof(text), &d, transform, window);
        /* with mirror: some of the first draws are mirrored, and those must be the golden ones */
        for (uint64_t seed = 1; seed < 12; seed++) {
            ct_net_env env = { .n_rank = 1, .seed = seed };
            parsed_net f;

            assert_int_equal(parsed_net_open(text, CT_TRAIN, &env, &f), CT_OK);
            assert_int_equal(ct_pass_forward(f.net->pass, NULL), CT_OK);
            assert_true(top(&f, "label")[0] == 7);
            found = found || (crc32(0, (const Bytef *)top(&f, "data"),
                                    (uInt)((size_t)n * sizeof(float))) == window_golden[i].crc);
            if (!window_golden[i].mirrored) seed = 12;
            parsed_net_close(&f);
        }
        if (!found) fail_msg("window %zu is not what Caffe makes of it", i);
    }
    test_folder_remove(&d);
}

/* ---- what is drawn */

enum { IMAGES = 3, PER_IMAGE = 6 };

/* Grey images whose pixels are 10 (image + 1); windows of classes 1 to 3, of none, and in between.
 */
static void make_set(test_folder *d)
{
    char text[2048] = "", name[16];
    uint8_t pixel[100];

    test_folder_make(d);
    for (int i = 0; i < IMAGES; i++) {
        memset(pixel, 10 * (i + 1), sizeof(pixel));
        snprintf(name, sizeof(name), "%d.png", i);
        test_png(test_path(d, name), 10, 10, 1, pixel);
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "# %d\n%s 1 10 10 %d\n", i, name,
                 PER_IMAGE);
        for (int k = 0; k < PER_IMAGE; k++) {
            snprintf(text + strlen(text), sizeof(text) - strlen(text), "%d %g %d 0 %d 9\n", i + 1,
                     0.2 * k, k, k + 1); /* overlaps 0, 0.2, 0.4, 0.6, 0.8, 1 */
        }
    }
    test_file_text(test_path(d, "windows"), text);
}

/* Of each global batch int(G f) are foreground; all ranks together draw what one does. */
static void test_draws(void **state)
{
    enum { G = 10, STEPS = 40 };
    static float whole[STEPS][G], label[STEPS][G];
    char text[1024];
    test_folder d;
    int n_fore = 0, of_image[IMAGES] = { 0 };

    (void)state;
    if (!have_png()) skip();
    make_set(&d);
    write_text(text, sizeof(text), &d, "crop_size: 2 mirror: true",
               "batch_size: 10 fg_fraction: 0.35 fg_threshold: 0.6 bg_threshold: 0.4 threads: 2");
    for (int p = 1; p <= 4; p++) {
        for (int rank = 0; rank < p; rank++) {
            ct_net_env env = { .n_rank = p, .rank = rank, .seed = 4, .global_batch_size = G };
            parsed_net f;
            int fore = 0;

            assert_int_equal(parsed_net_open(text, CT_TRAIN, &env, &f), CT_OK);
            assert_int_equal(f.net->n_sample, IMAGES * 5); /* 0.4 is neither */
            for (int s = 0; s < STEPS; s++) {
                f.net->pass->exec.micro_step = s;
                assert_int_equal(ct_pass_forward(f.net->pass, NULL), CT_OK);
                for (int64_t i = 0; i < f.net->batch_local; i++) {
                    float v = top(&f, "data")[4 * i], c = top(&f, "label")[i];
                    int64_t at = f.net->batch_first + i;

                    if (p == 1) {
                        whole[s][at] = v;
                        label[s][at] = c;
                        assert_true((c == 0) || (c == v / 10)); /* the class is the image's */
                        n_fore += c > 0;
                        of_image[(int)v / 10 - 1]++;
                    }
                    assert_true((v == whole[s][at]) && (c == label[s][at]));
                    fore += c > 0;
                }
            }
            /* a rank's part of them, give or take one a batch */
            assert_true(abs(fore * G - STEPS * 3 * (int)f.net->batch_local) <= STEPS * G);
            parsed_net_close(&f);
        }
    }
    assert_int_equal(n_fore, STEPS * 3); /* int(10 * 0.35) */
    /* 400 draws of three images: 133 +- 9.4; five times that */
    for (int i = 0; i < IMAGES; i++) assert_in_range(of_image[i], 133 - 47, 133 + 47);
    test_folder_remove(&d);
}

/* ---- broken images */

static void test_broken_image(void **state)
{
    char text[1024];
    const char *said;
    test_folder d;
    ct_net_env env = { .n_rank = 1, .seed = 4 };
    parsed_net f;
    ct_status status = CT_OK;

    (void)state;
    if (!have_png()) skip();
    make_set(&d);
    test_file_text(test_path(&d, "1.png"), "no image");
    for (int cache = 0; cache < 2; cache++) {
        const char *window = (cache == 0) ? "batch_size: 8" : "batch_size: 8 cache_images: true";

        write_text(text, sizeof(text), &d, "crop_size: 2", window);
        assert_int_equal(parsed_net_open(text, CT_TRAIN, &env, &f), CT_OK);
        test_log_start();
        for (int s = 0; (s < 5) && (status == CT_OK); s++) {
            f.net->pass->exec.micro_step = s;
            status = ct_pass_forward(f.net->pass, NULL);
        }
        said = test_log_stop();
        assert_int_equal(status, CT_ERR_DATA);
        assert_non_null(strstr(said, "1.png (window of line "));
        assert_non_null(strstr(said, "no JPEG, PNG, WebP or TIFF"));
        parsed_net_close(&f);
        write_text(text, sizeof(text), &d, "crop_size: 2 skip_broken: 30", window);
        assert_int_equal(parsed_net_open(text, CT_TRAIN, &env, &f), CT_OK);
        test_log_start();
        for (int s = 0; s < 5; s++) { /* only good images, of the kind that was drawn */
            int n_fore = 0;

            f.net->pass->exec.micro_step = s;
            assert_int_equal(ct_pass_forward(f.net->pass, NULL), CT_OK);
            for (int i = 0; i < 8; i++) {
                float v = top(&f, "data")[4 * i];

                assert_true((v == 10) || (v == 30));
                n_fore += top(&f, "label")[i] > 0;
            }
            assert_int_equal(n_fore, 2);
        }
        assert_true(f.net->pass->exec.broken_samples > 0);
        test_log_stop();
        parsed_net_close(&f);
        status = CT_OK;
    }
    write_text(text, sizeof(text), &d, "crop_size: 2 skip_broken: 1", "batch_size: 8");
    assert_int_equal(parsed_net_open(text, CT_TRAIN, &env, &f), CT_OK);
    test_log_start();
    for (int s = 0; (s < 5) && (status == CT_OK); s++) {
        f.net->pass->exec.micro_step = s;
        status = ct_pass_forward(f.net->pass, NULL);
    }
    assert_int_equal(status, CT_ERR_DATA);
    assert_non_null(strstr(test_log_stop(), "more broken samples in an epoch than skip_broken, 1"));
    parsed_net_close(&f);
    test_folder_remove(&d);
}

/* ---- refusals */

static void expect_file(const char *text, const char *part)
{
    ct_window_rule rule = { .fg_threshold = 0.5f, .bg_threshold = 0.5f };
    ct_window_list list;
    const char *said;
    ct_status status;

    test_log_start();
    status = ct_window_list_parse(&list, strdup(text), strlen(text), "file", "", &rule, "net:3");
    said = test_log_stop();
    if ((status != CT_ERR_DATA) || (strstr(said, part) == NULL) ||
        (strstr(said, "net:3: file") == NULL))
        fail_msg("%s; \"%s\" in: %s", ct_status_str(status), part, said);
}

static void test_window_files_refused(void **state)
{
    (void)state;
    expect_file("", "lists no image");
    expect_file("\n 0\n", "file:2: expected \"#\" and the number of an image, found \"0\"");
    expect_file("#\n", "file:2: the file ends where the number of an image should stand");
    expect_file("# 1 a 3 2 2 0", "image 1: images are numbered from 0 in their order, this is 0");
    expect_file("# 0", "the file ends where a path should stand");
    expect_file("# 0 a 2 2 2 0", "an image of 2 channels: 3 or 1");
    expect_file("# 0 a 3 2 2 0\n# 1 b 1 2 2 0", "file:2: an image of 1 channels, the first has 3");
    expect_file("# 0\na\n3 0 2 0",
                "file:3: expected the height of an image, a whole number from 1");
    expect_file("# 0\na\n3 2 2\n1\n", "file:5: the file ends where the class of a window should");
    expect_file("# 0\na\n3 2 2\n1\n1 x 0 0 1 1", "file:5: expected an overlap, a number, found");
    expect_file("# 0\na\n3 2 2\n1\n1 nan 0 0 1 1", "expected an overlap");
    expect_file("# 0\na\n3 2 2\n1\n1 1 0 0.5 1 1", "expected y1, a whole number");
    expect_file("# 0\na\n3 2 2\n2\n1 1 0 0 1 1\n1 1 1 0 0 1", "file:6: a window from 1 0 to 0 1");
    expect_file("# 0\na\n3 2 2\n1\n0 0.9 0 0 1 1", "class 0 of a foreground window (overlap 0.9)");
    expect_file("# 0\na\n3 2 2\n1\n1 1 0 0 99999999999999999999 1", "expected x2, a whole number");
}

static void expect_net(test_folder *d, const char *transform, const char *window, ct_status want,
                       const char *part)
{
    ct_net_env env = { .n_rank = 1, .seed = 4 };
    char text[1024];
    const char *said;
    parsed_net f;
    ct_status status;

    write_text(text, sizeof(text), d, transform, window);
    test_log_start();
    status = parsed_net_open(text, CT_TRAIN, &env, &f);
    said = test_log_stop();
    if ((status != want) || (strstr(said, part) == NULL))
        fail_msg("%s; \"%s\" in: %s", ct_status_str(status), part, said);
    if (status == CT_OK)
        parsed_net_close(&f);
    else
        ct__net_parameter__free_unpacked(f.param, NULL);
}

static void test_refused(void **state)
{
    test_folder d;

    (void)state;
    if (!have_png()) skip();
    make_set(&d);
    expect_net(&d, "", "batch_size: 2", CT_ERR_CONFIG, "no crop_size");
    expect_net(&d, "crop_size: 8", "batch_size: 2 context_pad: 4", CT_ERR_CONFIG,
               "context_pad 4 on both sides of crop_size 8");
    expect_net(&d, "crop_size: 8", "batch_size: 2 crop_mode: 'squash'", CT_ERR_CONFIG,
               "crop_mode \"squash\"");
    expect_net(&d, "crop_size: 8", "batch_size: 2 fg_fraction: 1.5", CT_ERR_CONFIG,
               "fg_fraction is 1.5");
    expect_net(&d, "crop_size: 8", "batch_size: 0", CT_ERR_CONFIG, "batch_size is 0");
    expect_net(&d, "crop_size: 8 mean_value: 1 mean_value: 2", "batch_size: 2", CT_ERR_CONFIG,
               "2 mean_value for 1 channels");
    expect_net(&d, "crop_size: 8", "batch_size: 2 fg_threshold: 1.5", CT_ERR_DATA,
               "no foreground window (fg_threshold 1.5)");
    expect_net(&d, "crop_size: 8", "batch_size: 2 bg_threshold: -1", CT_ERR_DATA,
               "no background window (bg_threshold -1)");
    expect_net(&d, "crop_size: 8", "batch_size: 2 bg_threshold: -1 fg_fraction: 1", CT_OK, "");
    /* windows beyond the image: an error, but what context reaches is cut off, as in Caffe */
    test_file_text(test_path(&d, "windows"), "# 0\n0.png 1 10 10 1\n1 1 5 5 10 10\n");
    expect_net(&d, "crop_size: 8", "batch_size: 2 fg_fraction: 1 context_pad: 1", CT_OK, "");
    test_folder_remove(&d);
}

static void test_outside(void **state)
{
    ct_window_rule rule = { .crop = 8, .scale = 1 };
    ct_box box = { 5, 5, 10, 10 };
    ct_warp w;
    ct_why why;

    (void)state;
    assert_int_equal(ct_window_warp(&rule, &box, 10, 10, false, &w, &why), CT_ERR_DATA);
    assert_non_null(strstr(why.text, "the window 5 5 10 10 lies outside of the image"));
    assert_int_equal(ct_window_warp(&rule, &box, 11, 11, false, &w, &why), CT_OK);
    rule.context_pad = 1;
    assert_int_equal(ct_window_warp(&rule, &box, 10, 10, false, &w, &why), CT_OK);
    box = (ct_box){ 50, 50, 60, 60 };
    assert_int_equal(ct_window_warp(&rule, &box, 10, 10, false, &w, &why), CT_ERR_DATA);
    box = (ct_box){ -30, -30, -20, -20 };
    assert_int_equal(ct_window_warp(&rule, &box, 10, 10, false, &w, &why), CT_ERR_DATA);
    /* whatever the window, what comes out fits into the crop */
    for (int i = 0; i < 3000; i++) {
        int h = 1 + i % 13, v = 1 + i / 13 % 17;

        rule.crop = 3 + i % 29;
        rule.context_pad = (i / 7) % ((rule.crop - 1) / 2 + 1);
        rule.square = i % 2 != 0;
        box = (ct_box){ i % 5 - 2, i % 7 - 3, i % 5 - 2 + i % 11, i % 7 - 3 + i % 23 };
        if (ct_window_warp(&rule, &box, h, v, i % 3 == 0, &w, &why) != CT_OK) continue;
        assert_true((w.from.x1 >= 0) && (w.from.y1 >= 0) && (w.from.x2 < v) && (w.from.y2 < h));
        assert_true((w.from.x1 <= w.from.x2) && (w.from.y1 <= w.from.y2));
        assert_true((w.top >= 0) && (w.left >= 0) && (w.height >= 0) && (w.width >= 0));
        if (w.height > 0) assert_true(w.top + w.height <= rule.crop);
        if (w.width > 0) assert_true(w.left + w.width <= rule.crop);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_windows_as_caffe), cmocka_unit_test(test_draws),
        cmocka_unit_test(test_broken_image),     cmocka_unit_test(test_window_files_refused),
        cmocka_unit_test(test_refused),          cmocka_unit_test(test_outside),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
