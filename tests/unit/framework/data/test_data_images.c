/* Images of every awkward kind against what OpenCV reads of them, resizing against its rule
 * (tests/golden/make_image_golden.py, make_data_golden.py), and broken ones: stop, or skip and
 * count.
 */
#include "tests/test.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "framework/data/image.h"
#include "framework/data/loader.h"
#include "tests/data_files.h"
#include "tests/layer_harness.h"

#include "tests/golden/data_golden.h"

#define IMAGES "tests/golden/images/"

static bool have_images(void)
{
    return (ct_image_codec_table[0]->decode != NULL) && (ct_image_codec_table[1]->decode != NULL);
}

/* ---- decoding */

/* A binary PGM or PPM; *pixels_p: interleaved, blue first. */
static void read_pnm(const char *path, ct_image *image_p, uint8_t **file_p)
{
    int kind, width, height, length = 0;
    size_t size;

    *file_p = test_file_read(path, &size);
    assert_int_equal(sscanf((char *)*file_p, "P%d %d %d 255%n", &kind, &width, &height, &length),
                     3);
    *image_p = (ct_image){ *file_p + length + 1, height, width, (kind == 6) ? 3 : 1 };
    assert_int_equal(size, length + 1 + height * width * image_p->channels);
    for (int64_t i = 0; (kind == 6) && (i < width * height); i++) {
        uint8_t *p = image_p->data + 3 * i, red = p[0];

        p[0] = p[2];
        p[2] = red;
    }
}

static void check_image(const char *name)
{
    char path[512], pnm[600];
    uint8_t *file;
    size_t size;

    snprintf(path, sizeof(path), IMAGES "%s", name);
    file = test_file_read(path, &size);
    for (ct_color color = CT_COLOR_GRAY; color <= CT_COLOR_BGR; color++) {
        ct_sample_buffer room = { 0 };
        ct_image got, want;
        uint8_t *expected;
        ct_why why = { "" };

        snprintf(pnm, sizeof(pnm), "%s.%s", path, (color == CT_COLOR_BGR) ? "ppm" : "pgm");
        read_pnm(pnm, &want, &expected);
        if (ct_image_decode(file, size, color, &room, &got, &why) != CT_OK)
            fail_msg("%s: %s", name, why.text);
        assert_int_equal(got.height, want.height);
        assert_int_equal(got.width, want.width);
        assert_int_equal(got.channels, want.channels);
        for (int64_t i = 0; i < got.height * got.width * got.channels; i++) {
            if (got.data[i] != want.data[i])
                fail_msg("%s: value %lld is %d, OpenCV's %d", pnm, (long long)i, got.data[i],
                         want.data[i]);
        }
        free(expected);
        ct_sample_buffer_release(&room);
    }
    free(file);
}

static void test_images_as_opencv(void **state)
{
    struct dirent *e;
    int n = 0;
    DIR *dir;

    (void)state;
    if (!have_images()) skip();
    dir = opendir(IMAGES);
    assert_non_null(dir);
    for (e = readdir(dir); e != NULL; e = readdir(dir)) {
        const char *dot = strrchr(e->d_name, '.');

        if ((dot == NULL) || ((strcmp(dot, ".jpg") != 0) && (strcmp(dot, ".png") != 0))) continue;
        check_image(e->d_name);
        n++;
    }
    closedir(dir);
    assert_int_equal(n, 20);
}

/* Without forced channels, pixels stay as they are stored, as with OpenCV's IMREAD_UNCHANGED. */
static void test_native_is_not_turned(void **state)
{
    ct_sample_buffer room = { 0 };
    ct_image image;
    ct_why why;
    uint8_t *file;
    size_t size;

    (void)state;
    if (!have_images()) skip();
    file = test_file_read(IMAGES "exif6.jpg", &size);
    assert_int_equal(ct_image_decode(file, size, CT_COLOR_NATIVE, &room, &image, &why), CT_OK);
    assert_true((image.height == 11) && (image.width == 14) && (image.channels == 3));
    assert_int_equal(ct_image_decode(file, size, CT_COLOR_BGR, &room, &image, &why), CT_OK);
    assert_true((image.height == 14) && (image.width == 11));
    free(file);
    file = test_file_read(IMAGES "gray_alpha.png", &size);
    assert_int_equal(ct_image_decode(file, size, CT_COLOR_NATIVE, &room, &image, &why), CT_OK);
    assert_int_equal(image.channels, 1);
    free(file);
    ct_sample_buffer_release(&room);
}

/* The last scan of a progressive JPEG, over and over: each would cost the whole image. */
static void test_many_scans(void **state)
{
    static const uint8_t end[] = { 0xFF, 0xD9 };
    ct_sample_buffer room = { 0 };
    size_t size, last, scan, at;
    uint8_t *file, *many;
    ct_image image;
    ct_why why;

    (void)state;
    if (!have_images()) skip();
    file = test_file_read(IMAGES "progressive.jpg", &size);
    for (last = size - 2; (file[last] != 0xFF) || (file[last + 1] != 0xDA);) last--;
    scan = size - sizeof(end) - last;
    at = last;
    many = malloc(size + 70 * scan);
    assert_non_null(many);
    memcpy(many, file, last);
    for (int i = 0; i < 70; i++, at += scan) memcpy(many + at, file + last, scan);
    memcpy(many + at, end, sizeof(end));
    assert_int_equal(ct_image_decode(many, at + sizeof(end), CT_COLOR_BGR, &room, &image, &why),
                     CT_ERR_DATA);
    assert_non_null(strstr(why.text, "scans: at most 64 are expected"));
    free(many);
    free(file);
    ct_sample_buffer_release(&room);
}

/* Whatever EXIF data say, an orientation comes out, and nothing beyond the file is read. */
static void test_exif_mutations(void **state)
{
    static const char *const name[2] = { IMAGES "exif6.jpg", IMAGES "exif6.png" };

    (void)state;
    for (int k = 0; k < 2; k++) {
        size_t size;
        uint8_t *file = test_file_read(name[k], &size);

        assert_int_equal(ct_exif_orientation(file, size), 6);
        for (size_t n = 0; n < 120; n++) {
            uint8_t *cut = malloc(n + 1);

            memcpy(cut, file, n);
            cut = realloc(cut, (n > 0) ? n : 1);
            assert_in_range(ct_exif_orientation(cut, n), 1, 8);
            free(cut);
        }
        for (size_t at = 0; at < 120; at++) {
            for (int v = 0; v < 256; v += 51) {
                uint8_t old = file[at];

                file[at] = (uint8_t)v;
                assert_in_range(ct_exif_orientation(file, size), 1, 8);
                file[at] = old;
            }
        }
        free(file);
    }
}

/* ---- resizing */

static void pattern(uint8_t *pixel, int n)
{
    for (int i = 0; i < n; i++) pixel[i] = (uint8_t)((uint32_t)i * 2654435761u >> 24);
}

static void test_resize_as_opencv(void **state)
{
    static uint8_t pixel[100 * 100 * 3];
    ct_sample_buffer room = { 0 };

    (void)state;
    for (size_t i = 0; i < sizeof(resize_golden) / sizeof(resize_golden[0]); i++) {
        int h = resize_golden[i].h, w = resize_golden[i].w, c = resize_golden[i].c;
        int th = resize_golden[i].to_h, tw = resize_golden[i].to_w;
        ct_image from = { pixel, h, w, c }, to;

        pattern(pixel, h * w * c);
        assert_int_equal(ct_image_resize(&from, th, tw, &room, &to), CT_OK);
        if (crc32(0, to.data, (uInt)(th * tw * c)) != resize_golden[i].crc)
            fail_msg("%d x %d x %d to %d x %d is not what OpenCV makes of it", h, w, c, th, tw);
    }
    ct_sample_buffer_release(&room);
}

/* ---- broken images among good ones */

enum { N = 12 };

/* N grey images of 2 x 3 whose pixels and label are their number; 3, 4 and 9 are broken: no image,
 * cut off, another size. */
static void make_images(test_folder *d)
{
    char list[512] = "", name[32];
    uint8_t pixel[12], *file;
    size_t size;

    test_folder_make(d);
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof(name), "%d.png", i);
        memset(pixel, i, sizeof(pixel));
        test_png(test_path(d, name), (i == 9) ? 4 : 2, 3, 1, pixel);
        snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s %d\n", name, i);
    }
    test_file_text(test_path(d, "3.png"), "no image");
    file = test_file_read(test_path(d, "4.png"), &size);
    test_file_write(test_path(d, "4.png"), file, size / 2);
    free(file);
    test_file_text(test_path(d, "list"), list);
}

static ct_reader *open_images(test_folder *d, int64_t skip)
{
    char root[128];
    ct_reader_options o = { .who = "test",
                            .source = test_path(d, "list"),
                            .root_folder = root,
                            .color = CT_COLOR_GRAY,
                            .skip_broken = skip,
                            .n_field = 2 };
    ct_reader *r;

    snprintf(root, sizeof(root), "%s/", d->path);
    assert_int_equal(ct_reader_open("images", &o, &r), CT_OK);
    return r;
}

/* What a position gives: broken ones are replaced by the next good one. */
static int good_one(int64_t id)
{
    return ((id == 3) || (id == 4)) ? 5 : (id == 9) ? 10 : (int)id;
}

static void check_batch(const ct_batch *b, const ct_share *share, int64_t step, int64_t *broken)
{
    int64_t begin = step * share->global;

    assert_int_equal(b->epoch, begin / N);
    for (int64_t i = 0; i < share->local; i++) {
        int64_t position = begin + share->first + i, id = ct_sample_at(5, true, position, N);

        assert_true(b->field[1][i] == (float)good_one(id));
        for (int k = 0; k < 6; k++) assert_true(b->field[0][i * 6 + k] == (float)good_one(id));
        if (good_one(id) != id) broken[position / N]++;
    }
}

/* At every number of ranks, whatever the threads do, the same samples and the same counts. */
static void test_broken_are_replaced(void **state)
{
    enum { G = 8, STEPS = 9 };
    test_folder d;
    ct_transform *t;

    (void)state;
    if (!have_images()) skip();
    make_images(&d);
    assert_int_equal(ct_transform_create(NULL, CT_TRAIN, "test", &t), CT_OK);
    for (int p = 1; p <= 3; p++) {
        int64_t want[STEPS * G / N + 1] = { 0 }, counted[STEPS * G / N + 2] = { 0 };

        for (int rank = 0; rank < p; rank++) {
            ct_reader *r = open_images(&d, 3);
            ct_loader_options o = { .reader = r,
                                    .transform = t,
                                    .shape = r->field[0],
                                    .stripes = true,
                                    .skip_broken = 3,
                                    .depth = 3,
                                    .threads = 1 + rank };
            ct_loader *l;
            const char *said;

            assert_int_equal(ct_share_of(G, rank, p, &o.share), CT_OK);
            assert_int_equal(ct_loader_create(&o, &l), CT_OK);
            test_log_start();
            for (int64_t s = 0; s < STEPS; s++) {
                ct_batch b;
                double wait = 0;

                assert_int_equal(ct_loader_take(l, 5, s, &b, &wait), CT_OK);
                check_batch(&b, &o.share, s, want);
                counted[b.epoch] += b.broken[0];
                counted[b.last] += b.broken[1];
                ct_loader_give_back(l);
            }
            ct_loader_destroy(l);
            said = test_log_stop();
            if (p == 1) { /* each is told of once */
                const char *first = strstr(said, "3.png (line 4 of");

                assert_non_null(first);
                assert_null(strstr(first + 1, "3.png (line 4 of"));
                assert_non_null(strstr(said, "no JPEG, PNG, WebP or TIFF"));
                assert_non_null(strstr(said, "5.png (line 6 of"));
                assert_non_null(strstr(said, "its shape is 1 4 3"));
            }
            ct_reader_close(r);
        }
        for (int e = 0; e < STEPS * G / N; e++) {
            assert_int_equal(want[e], 3); /* whole epochs */
            assert_int_equal(counted[e], 3);
        }
    }
    ct_transform_destroy(t);
    test_folder_remove(&d);
}

static ct_status take_epoch(test_folder *d, int64_t skip, const char **said_p)
{
    ct_reader *r = open_images(d, skip);
    ct_transform *t;
    ct_loader *l;
    ct_loader_options o = { .reader = r, .skip_broken = skip, .depth = 2, .threads = 1 };
    ct_batch b;
    double wait = 0;
    ct_status status;

    assert_int_equal(ct_transform_create(NULL, CT_TRAIN, "test", &t), CT_OK);
    o.transform = t;
    o.shape = r->field[0];
    assert_int_equal(ct_share_of(N, 0, 1, &o.share), CT_OK);
    assert_int_equal(ct_loader_create(&o, &l), CT_OK);
    test_log_start();
    status = ct_loader_take(l, 1, 0, &b, &wait);
    ct_loader_destroy(l);
    *said_p = test_log_stop();
    ct_transform_destroy(t);
    ct_reader_close(r);
    return status;
}

static void test_broken_stop_or_too_many(void **state)
{
    test_folder d;
    const char *said;

    (void)state;
    if (!have_images()) skip();
    make_images(&d);
    assert_int_equal(take_epoch(&d, 0, &said), CT_ERR_DATA); /* the default: the first one stops */
    assert_non_null(strstr(said, "test: 3.png (line 4 of"));
    assert_int_equal(take_epoch(&d, 1, &said), CT_ERR_DATA); /* 3 and 4 in a row */
    assert_non_null(strstr(said, "more broken samples in a row than skip_broken, 1, allows"));
    assert_int_equal(take_epoch(&d, 2, &said), CT_OK); /* the layer counts the epoch */
    test_folder_remove(&d);
}

/* The first samples may be broken too: the first good one gives the shape. */
static void test_broken_first(void **state)
{
    char root[128];
    test_folder d;
    ct_reader_options o = { .who = "test", .root_folder = root, .n_field = 2, .skip_broken = 2 };
    ct_reader *r = NULL;

    (void)state;
    if (!have_images()) skip();
    make_images(&d);
    snprintf(root, sizeof(root), "%s/", d.path);
    test_file_text(test_path(&d, "list"), "3.png 0\nnowhere.png 1\n7.png 2\n");
    o.source = test_path(&d, "list");
    assert_int_equal(ct_reader_open("images", &o, &r), CT_OK);
    assert_true(ct_shape_equal(&r->field[0], &TEST_SHAPE(1, 2, 3)));
    ct_reader_close(r);
    for (o.skip_broken = 0; o.skip_broken < 2; o.skip_broken++) {
        const char *said;

        test_log_start();
        assert_int_equal(ct_reader_open("images", &o, &r),
                         (o.skip_broken == 0) ? CT_ERR_DATA : CT_ERR_IO);
        said = test_log_stop();
        assert_non_null(strstr(said, (o.skip_broken == 0) ? "3.png (line 1" : "nowhere.png"));
    }
    test_folder_remove(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_images_as_opencv),    cmocka_unit_test(test_native_is_not_turned),
        cmocka_unit_test(test_exif_mutations),      cmocka_unit_test(test_resize_as_opencv),
        cmocka_unit_test(test_broken_are_replaced), cmocka_unit_test(test_broken_stop_or_too_many),
        cmocka_unit_test(test_broken_first),        cmocka_unit_test(test_many_scans),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
