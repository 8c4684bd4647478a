/* Records and images that are good, broken or mutilated at random: never a crash, always a message
 * that names the record. */
#include "tests/test.h"

#include <stdio.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <hdf5.h>

#include "framework/base/hdf5.h"
#include "framework/base/rng.h"
#include "framework/data/convert.h"
#include "framework/data/datum.h"
#include "framework/data/lmdb_file.h"
#include "framework/data/reader.h"
#include "framework/data/writer.h"
#include "framework/proto/cortado.pb-c.h"
#include "tests/data_files.h"
#include "tests/layer_harness.h"

static bool have_lmdb(void)
{
    return ct_writer_table[0].ops != NULL;
}

static bool have_images(void)
{
    return (ct_image_codec_table[0]->decode != NULL) && (ct_image_codec_table[1]->decode != NULL);
}

#define NEEDS(_what)                                                                               \
    do {                                                                                           \
        if (!(_what)) {                                                                            \
            print_message("not built in: skipped\n");                                              \
            skip();                                                                                \
        }                                                                                          \
    } while (0)

/* ---- Datum */

static size_t pack(const Ct__Datum *d, ct_sample_buffer *room)
{
    assert_int_equal(ct_sample_buffer_reserve(room, ct__datum__get_packed_size(d) + 1), CT_OK);
    return ct__datum__pack(d, room->data);
}

static Ct__Datum datum(int c, int h, int w, uint8_t *values, size_t n)
{
    Ct__Datum d = CT__DATUM__INIT;

    d.has_channels = d.has_height = d.has_width = d.has_label = d.has_data = true;
    d.channels = c;
    d.height = h;
    d.width = w;
    d.label = 3;
    d.data.data = values;
    d.data.len = n;
    return d;
}

static ct_status decode(const Ct__Datum *d, ct_datum_buffer *room, ct_sample *s, float *label,
                        ct_why *why)
{
    ct_sample_buffer packed = { 0 };
    size_t size = pack(d, &packed);
    ct_status status = ct_datum_decode(packed.data, size, CT_COLOR_NATIVE, room, s, label, why);

    ct_sample_buffer_release(&packed);
    return status;
}

static void test_datum_bytes_and_floats(void **state)
{
    uint8_t values[24];
    float floats[24], label;
    ct_datum_buffer room = { 0 };
    ct_sample s;
    ct_why why;
    Ct__Datum d = datum(2, 3, 4, values, 24);

    (void)state;
    for (int i = 0; i < 24; i++) {
        values[i] = (uint8_t)(i * 11);
        floats[i] = (float)i - 7.5f;
    }
    assert_int_equal(decode(&d, &room, &s, &label, &why), CT_OK);
    assert_true((s.u8 != NULL) && (s.f32 == NULL) && (label == 3));
    assert_true(ct_shape_equal(&s.shape, &TEST_SHAPE(2, 3, 4)));
    assert_memory_equal(s.u8, values, 24);
    d.has_data = false;
    d.n_float_data = 24;
    d.float_data = floats;
    d.label = -5;
    assert_int_equal(decode(&d, &room, &s, &label, &why), CT_OK);
    assert_true((s.u8 == NULL) && (s.f32 != NULL) && (label == -5));
    assert_memory_equal(s.f32, floats, sizeof(floats));
    ct_datum_room_release(&room);
}

static void expect_bad(const Ct__Datum *d, bool wants_label, const char *part)
{
    ct_datum_buffer room = { 0 };
    ct_sample s;
    ct_why why;
    float label;

    assert_int_equal(decode(d, &room, &s, wants_label ? &label : NULL, &why), CT_ERR_DATA);
    if (strstr(why.text, part) == NULL) fail_msg("\"%s\" is not in: %s", part, why.text);
    ct_datum_room_release(&room);
}

static void test_datum_refused(void **state)
{
    uint8_t values[24] = { 0 };
    float floats[3] = { 0 };
    Ct__Datum d = datum(2, 3, 4, values, 23);

    (void)state;
    expect_bad(&d, true, "needs 24 values, the record has 23 bytes");
    d = datum(2, 3, 4, values, 0);
    expect_bad(&d, true, "0 bytes and 0 floats");
    d.n_float_data = 3;
    d.float_data = floats;
    expect_bad(&d, true, "3 floats");
    d = datum(0, 3, 4, values, 24);
    expect_bad(&d, true, "impossible shape 0 x 3 x 4");
    d = datum(-2, -3, 4, values, 24);
    expect_bad(&d, true, "impossible shape");
    d = datum(65536, 65536, 1, values, 0); /* the product overflows 32 bits */
    expect_bad(&d, true, "impossible shape");
    d = datum(INT32_MAX, INT32_MAX, INT32_MAX, values, 24); /* and 64 */
    expect_bad(&d, true, "impossible shape");
    d = datum(2, 3, 4, values, 24);
    d.has_label = false;
    expect_bad(&d, true, "no label");
    d.has_encoded = d.encoded = true;
    expect_bad(&d, false, "no JPEG, PNG, WebP or TIFF");
}

/* Whatever happens to a record's bytes, decoding ends with a good sample or a reason. */
static void test_datum_mutations(void **state)
{
    uint8_t values[60];
    ct_sample_buffer good = { 0 };
    ct_datum_buffer room = { 0 };
    Ct__Datum d = datum(3, 4, 5, values, 60);
    size_t size;
    int n_good = 0, n_bad = 0;

    (void)state;
    for (int i = 0; i < 60; i++) values[i] = (uint8_t)i;
    size = pack(&d, &good);
    for (uint64_t round = 0; round < 20000; round++) {
        uint64_t key = ct_rng_key(1, round, 0), changes = 1 + ct_rng_key(key, 0, 0) % 4;
        size_t n = (ct_rng_key(key, 1, 0) % 4 == 0) ? ct_rng_key(key, 2, 0) % (size + 1) : size;
        uint8_t *bytes = malloc(n + 1); /* of its own, so that reading beyond it is seen */
        ct_sample s = { 0 };
        ct_why why = { "" };
        float label;
        ct_status status;

        assert_non_null(bytes);
        memcpy(bytes, good.data, n);
        for (uint64_t k = 0; (k < changes) && (n > 0); k++) {
            bytes[ct_rng_key(key, 3, k) % n] = (uint8_t)ct_rng_key(key, 4, k);
        }
        bytes = realloc(bytes, (n > 0) ? n : 1);
        status = ct_datum_decode(bytes, n, CT_COLOR_NATIVE, &room, &s, &label, &why);
        if (status == CT_OK) {
            assert_true((s.u8 != NULL) != (s.f32 != NULL));
            assert_true(ct_shape_count(&s.shape, 0, -1) > 0);
            n_good++;
        } else {
            assert_int_equal(status, CT_ERR_DATA);
            assert_true(why.text[0] != '\0');
            n_bad++;
        }
        free(bytes);
    }
    assert_true((n_good > 100) && (n_bad > 100));
    ct_sample_buffer_release(&good);
    ct_datum_room_release(&room);
}

/* ---- images */

static void test_png_is_exact(void **state)
{
    enum { H = 5, W = 7 };
    uint8_t rgba[H * W * 4], rgb[H * W * 3], gray[H * W];
    test_folder f;

    (void)state;
    NEEDS(have_images());
    test_folder_make(&f);
    for (int i = 0; i < H * W; i++) {
        gray[i] = (uint8_t)(i * 7);
        for (int c = 0; c < 3; c++) rgb[i * 3 + c] = rgba[i * 4 + c] = (uint8_t)(i * 3 + c * 60);
        rgba[i * 4 + 3] = (uint8_t)(i * 5); /* transparency is dropped, not applied */
    }
    for (int channels = 1; channels <= 4; channels += (channels == 1) ? 2 : 1) {
        const uint8_t *pixels = (channels == 1) ? gray : (channels == 3) ? rgb : rgba;
        const char *path = test_path(&f, "a.png");
        ct_sample_buffer room = { 0 };
        ct_image image;
        ct_why why;
        size_t size;
        uint8_t *file;

        test_png(path, H, W, channels, pixels);
        file = test_file_read(path, &size);
        for (ct_color color = CT_COLOR_NATIVE; color <= CT_COLOR_BGR; color++) {
            int want = (color == CT_COLOR_GRAY)                      ? 1
                       : ((color == CT_COLOR_BGR) || (channels > 1)) ? 3
                                                                     : 1;

            assert_int_equal(ct_image_decode(file, size, color, &room, &image, &why), CT_OK);
            assert_true((image.height == H) && (image.width == W));
            assert_int_equal(image.channels, want);
            for (int i = 0; i < H * W; i++) {
                const uint8_t *p = image.data + i * want, *q = pixels + i * channels;

                if (channels == 1) { /* gray in each channel */
                    for (int c = 0; c < want; c++) assert_int_equal(p[c], gray[i]);
                } else if (want == 3) { /* blue first */
                    for (int c = 0; c < 3; c++) assert_int_equal(p[c], q[2 - c]);
                } else {
                    double y = 0.299 * q[0] + 0.587 * q[1] + 0.114 * q[2];

                    assert_true((p[0] >= y - 1) && (p[0] <= y + 1));
                }
            }
        }
        for (size_t n = 0; n < size; n++) { /* cut anywhere */
            uint8_t *cut = malloc(n + 1);

            memcpy(cut, file, n);
            cut = realloc(cut, (n > 0) ? n : 1);
            assert_int_equal(ct_image_decode(cut, n, CT_COLOR_BGR, &room, &image, &why),
                             CT_ERR_DATA);
            free(cut);
        }
        free(file);
        ct_sample_buffer_release(&room);
    }
    test_folder_remove(&f);
}

/* A smooth picture, which JPEG keeps nearly. */
static void smooth_image(int h, int w, int channels, uint8_t *pixels)
{
    for (int i = 0; i < h * w; i++) {
        for (int c = 0; c < channels; c++) {
            pixels[i * channels + c] = (uint8_t)(40 + 60 * c + (i % w) * 40 / w + (i / w) * 40 / h);
        }
    }
}

static void test_jpeg(void **state)
{
    enum { H = 24, W = 40 };
    uint8_t pixels[H * W * 3];

    (void)state;
    NEEDS(have_images());
    for (int channels = 1; channels <= 3; channels += 2) {
        ct_image from = { pixels, H, W, channels }, to;
        ct_sample_buffer file = { 0 }, room = { 0 };
        ct_why why;
        size_t size;
        int refused = 0;

        smooth_image(H, W, channels, pixels);
        assert_int_equal(ct_image_encode_jpeg(&from, 95, &file, &size), CT_OK);
        assert_int_equal(ct_image_decode(file.data, size, CT_COLOR_NATIVE, &room, &to, &why),
                         CT_OK);
        assert_true((to.height == H) && (to.width == W) && (to.channels == channels));
        for (int i = 0; i < H * W * channels; i++) {
            assert_in_range(to.data[i] + 8 - pixels[i], 0, 16);
        }
        for (size_t n = 0; n < size - 2; n++) { /* without its end: a message, never a crash */
            uint8_t *cut = malloc(n + 1);

            memcpy(cut, file.data, n);
            cut = realloc(cut, (n > 0) ? n : 1);
            refused += ct_image_decode(cut, n, CT_COLOR_BGR, &room, &to, &why) == CT_ERR_DATA;
            free(cut);
        }
        assert_int_equal(refused, (int)size - 2);
        ct_sample_buffer_release(&file);
        ct_sample_buffer_release(&room);
    }
}

static void test_image_mutations(void **state)
{
    enum { H = 16, W = 16 };
    uint8_t pixels[H * W * 3];
    ct_image from = { pixels, H, W, 3 }, to;
    ct_sample_buffer file = { 0 }, room = { 0 };
    test_folder f;
    uint8_t *png;
    size_t size[2];

    (void)state;
    NEEDS(have_images());
    smooth_image(H, W, 3, pixels);
    test_folder_make(&f);
    test_png(test_path(&f, "a.png"), H, W, 3, pixels);
    png = test_file_read(test_path(&f, "a.png"), &size[1]);
    assert_int_equal(ct_image_encode_jpeg(&from, 90, &file, &size[0]), CT_OK);
    for (uint64_t round = 0; round < 4000; round++) {
        int kind = (int)(round % 2);
        uint64_t key = ct_rng_key(2, round, 0);
        uint8_t *bytes = malloc(size[kind]);
        ct_why why = { "" };
        ct_status status;

        assert_non_null(bytes);
        memcpy(bytes, (kind == 0) ? file.data : png, size[kind]);
        for (uint64_t k = 0; k < 3; k++) {
            uint64_t at = ct_rng_key(key, 1, k) % size[kind];

            /* a huge size is a good file too; but not what this is about */
            if ((kind == 1) && (at >= 16) && (at < 24)) continue;
            bytes[at] = (uint8_t)ct_rng_key(key, 2, k);
        }
        status = ct_image_decode(bytes, size[kind], CT_COLOR_BGR, &room, &to, &why);
        assert_true((status == CT_OK) || (why.text[0] != '\0'));
        free(bytes);
    }
    free(png);
    ct_sample_buffer_release(&file);
    ct_sample_buffer_release(&room);
    test_folder_remove(&f);
}

static void test_resize(void **state)
{
    uint8_t pixels[2 * 2] = { 0, 100, 200, 44 };
    /* to 4 x 4 the places are -1/4, 1/4, 3/4, 5/4: weights 0, 1/4, 3/4, 1 of the second */
    const double weight[4] = { 0, 0.25, 0.75, 1 };
    ct_image from = { pixels, 2, 2, 1 }, to;
    ct_sample_buffer room = { 0 };

    (void)state;
    assert_int_equal(ct_image_resize(&from, 4, 4, &room, &to), CT_OK);
    for (int y = 0; y < 4; y++) {
        for (int x = 0; x < 4; x++) {
            double top = pixels[0] + weight[x] * (pixels[1] - pixels[0]);
            double bottom = pixels[2] + weight[x] * (pixels[3] - pixels[2]);
            double want = top + weight[y] * (bottom - top);

            /* two parts are cut off to quarters, then their sum is rounded */
            assert_true(to.data[y * 4 + x] >= want - 1);
            assert_true(to.data[y * 4 + x] <= want + 0.5);
        }
    }
    assert_int_equal(ct_image_resize(&from, 1, 1, &room, &to), CT_OK); /* the middle of all four */
    assert_int_equal(to.data[0], 86);
    assert_int_equal(ct_image_resize(&from, 2, 2, &room, &to), CT_OK);
    assert_memory_equal(to.data, pixels, 4);
    ct_sample_buffer_release(&room);
}

/* Any size to any size, against the mean of four pixels in double. */
static void test_resize_odd(void **state)
{
    static const int size[][4] = { { 7, 5, 3, 11 }, { 1, 9, 4, 4 }, { 37, 53, 16, 17 } };
    uint8_t pixels[37 * 53 * 3];
    ct_sample_buffer room = { 0 };

    (void)state;
    for (size_t i = 0; i < sizeof(pixels); i++) pixels[i] = (uint8_t)(i * 2654435761u >> 24);
    for (size_t s = 0; s < sizeof(size) / sizeof(size[0]); s++) {
        int h = size[s][0], w = size[s][1], oh = size[s][2], ow = size[s][3];
        ct_image from = { pixels, h, w, 3 }, to;

        assert_int_equal(ct_image_resize(&from, oh, ow, &room, &to), CT_OK);
        for (int i = 0; i < oh * ow * 3; i++) {
            double y = fmin(fmax((i / 3 / ow + 0.5) * h / oh - 0.5, 0), h - 1);
            double x = fmin(fmax((i / 3 % ow + 0.5) * w / ow - 0.5, 0), w - 1);
            int y0 = (int)y, x0 = (int)x, y1 = (y0 < h - 1) ? y0 + 1 : y0;
            int x1 = (x0 < w - 1) ? x0 + 1 : x0, k = i % 3;
            double top = (1 - x + x0) * pixels[(y0 * w + x0) * 3 + k] +
                         (x - x0) * pixels[(y0 * w + x1) * 3 + k];
            double bottom = (1 - x + x0) * pixels[(y1 * w + x0) * 3 + k] +
                            (x - x0) * pixels[(y1 * w + x1) * 3 + k];

            double error = to.data[i] - (top + (y - y0) * (bottom - top));

            /* two parts are cut off to quarters and their sum is rounded; four weights rounded to
             * 2^-12 of at most 255; and 4 bits cut off in between, of 15 */
            assert_true((error <= 0.5 + 4 * 255.0 / 4096) &&
                        (error >= -1 - 4 * 255.0 / 4096 - 16 * 255.0 / 32640));
        }
    }
    ct_sample_buffer_release(&room);
}

/* ---- LMDB */

static ct_status try_open(const char *backend, const char *source, const char **said)
{
    static const char *const name[2] = { "data", "label" };
    ct_reader_options o = {
        .who = "net:7: layer \"d\"", .source = source, .n_field = 2, .field_name = name
    };
    ct_reader *r = NULL;
    ct_status status;

    test_log_start();
    status = ct_reader_open(backend, &o, &r);
    *said = test_log_stop();
    ct_reader_close(r);
    return status;
}

static void expect_open(const char *backend, const char *source, ct_status want, const char *part)
{
    const char *said;
    ct_status status = try_open(backend, source, &said);

    if ((status != want) || (strstr(said, part) == NULL)) {
        fail_msg("status %s; \"%s\" in: %s", ct_status_str(status), part, said);
    }
    if (want != CT_OK) assert_non_null(strstr(said, "net:7: layer \"d\": "));
}

static void make_lmdb(test_folder *f, int n)
{
    ct_convert_options o = { .count = n, .force = true };

    o.to = f->path;
    test_log_start();
    assert_int_equal(ct_convert_digits(&o), CT_OK);
    test_log_stop();
}

static void test_lmdb_opens_how_it_lies(void **state)
{
    test_folder f;
    uint8_t *data;

    (void)state;
    NEEDS(have_lmdb());
    test_folder_make(&f);
    make_lmdb(&f, 50);
    expect_open("lmdb", test_path(&f, "train_lmdb"), CT_OK, "");
    expect_open("lmdb", test_path(&f, "train_lmdb/data.mdb"), CT_OK, ""); /* the file itself */
    assert_int_equal(test_folder_count(test_path(&f, "train_lmdb")), 2);  /* the index, no lock */
    expect_open("lmdb", test_path(&f, "nothing"), CT_ERR_IO, "No such file");
    expect_open("lmdb", f.path, CT_ERR_IO, "it has no data.mdb; did you mean ");
    expect_open("lmdb", "/", CT_ERR_IO, "no LMDB in the folder /: it has no data.mdb");
    test_file_text(test_path(&f, "empty"), "");
    expect_open("lmdb", test_path(&f, "empty"), CT_ERR_IO, "truncated inside its meta pages");
    data = calloc(1, 20000);
    test_file_write(test_path(&f, "zeros"), data, 20000);
    free(data);
    expect_open("lmdb", test_path(&f, "zeros"), CT_ERR_IO, "not an LMDB data file");
    expect_open("leveldb", test_path(&f, "train_lmdb"), CT_ERR_CONFIG, "LevelDB");
    expect_open("levelbd", test_path(&f, "train_lmdb"), CT_ERR_CONFIG, "unknown backend");
    test_folder_remove(&f);
}

static void test_lmdb_truncated_anywhere(void **state)
{
    test_folder f;
    const char *path;
    uint8_t *good;
    size_t size;

    (void)state;
    NEEDS(have_lmdb());
    test_folder_make(&f);
    make_lmdb(&f, 100);
    path = test_path(&f, "train_lmdb/data.mdb");
    good = test_file_read(path, &size);
    for (size_t n = 0; n < size; n += 1 + size / 37) {
        test_file_write(path, good, n);
        expect_open("lmdb", test_path(&f, "train_lmdb"), CT_ERR_IO, "truncated");
        path = test_path(&f, "train_lmdb/data.mdb");
    }
    test_file_write(path, good, size - 1);
    expect_open("lmdb", test_path(&f, "train_lmdb"), CT_ERR_IO, "truncated: ");
    free(good);
    test_folder_remove(&f);
}

static void test_lmdb_bad_record_is_named(void **state)
{
    test_folder f;
    ct_writer *w;
    uint8_t pixels[6] = { 0 };
    ct_reader_options o = { .who = "net:7", .n_field = 2 };
    ct_reader *r;
    float label;
    ct_sample s = { .rest = &label };
    void *local;

    (void)state;
    NEEDS(have_lmdb());
    test_folder_make(&f);
    assert_int_equal(ct_writer_open("lmdb", test_path(&f, "db"), 3, false, &w), CT_OK);
    for (int i = 0; i < 3; i++) {
        char key[16];
        ct_record rec = { .key = key,
                          .values = pixels,
                          .n = (i == 1) ? 5 : 6,
                          .channels = 1,
                          .height = 2,
                          .width = 3,
                          .label = i };

        snprintf(key, sizeof(key), "img%d", i);
        assert_int_equal(ct_writer_put(w, &rec), CT_OK);
    }
    assert_int_equal(ct_writer_commit(w), CT_OK);
    o.source = test_path(&f, "db");
    assert_int_equal(ct_reader_open("lmdb", &o, &r), CT_OK);
    assert_int_equal(ct_reader_local(r, &local), CT_OK);
    assert_int_equal(r->ops->read(r, local, 2, &s), CT_OK);
    assert_true(label == 2);
    test_log_start();
    assert_int_equal(r->ops->read(r, local, 1, &s), CT_ERR_DATA);
    assert_non_null(strstr(test_log_stop(), "net:7: record 1 (key \"img1\") of "));
    ct_reader_local_release(r, local);
    ct_reader_close(r);
    test_folder_remove(&f);
}

/* The map grows with the data: more than its first 64 MiB. */
static void test_lmdb_grows(void **state)
{
    enum { N = 90, BYTES = 1 << 20 };
    test_folder f;
    ct_writer *w;
    ct_reader_options o = { .n_field = 2 };
    ct_reader *r;
    void *local;
    uint8_t *pixels = malloc(BYTES);

    (void)state;
    NEEDS(have_lmdb());
    test_folder_make(&f);
    assert_int_equal(ct_writer_open("lmdb", test_path(&f, "db"), N, false, &w), CT_OK);
    for (int i = 0; i < N; i++) {
        char key[16];
        ct_record rec = { .key = key,
                          .values = pixels,
                          .n = BYTES,
                          .channels = 1,
                          .height = 1024,
                          .width = 1024,
                          .label = i };

        memset(pixels, i, BYTES);
        snprintf(key, sizeof(key), "%08d", i);
        assert_int_equal(ct_writer_put(w, &rec), CT_OK);
    }
    assert_int_equal(ct_writer_commit(w), CT_OK);
    o.source = test_path(&f, "db");
    assert_int_equal(ct_reader_open("lmdb", &o, &r), CT_OK);
    assert_int_equal(r->count, N);
    assert_int_equal(ct_reader_local(r, &local), CT_OK);
    for (int i = 0; i < N; i++) {
        float label;
        ct_sample s = { .rest = &label };

        assert_int_equal(r->ops->read(r, local, i, &s), CT_OK);
        assert_true((label == (float)i) && (s.u8[0] == i) && (s.u8[BYTES - 1] == i));
    }
    ct_reader_local_release(r, local);
    ct_reader_close(r);
    free(pixels);
    test_folder_remove(&f);
}

/* A set that another rank of the node has open, and that has other records by now: no read of it
 * succeeds, the second neither. */
static void test_far_set_that_changed(void **state)
{
    test_folder f;
    ct_reader_options o = { .who = "net:7", .n_field = 2 };
    ct_reader_facts facts;
    ct_reader *r;
    void *local;
    float label;
    ct_sample s = { .rest = &label };
    char set[400];

    (void)state;
    NEEDS(have_lmdb());
    test_folder_make(&f);
    make_lmdb(&f, 20);
    snprintf(set, sizeof(set), "%s", test_path(&f, "train_lmdb"));
    o.source = set;
    assert_int_equal(ct_reader_open("lmdb", &o, &r), CT_OK);
    ct_reader_tell(r, &facts);
    ct_reader_close(r);
    facts.count -= 1;
    assert_int_equal(ct_reader_open_far("lmdb", &o, &facts, &r), CT_OK);
    assert_int_equal(ct_reader_local(r, &local), CT_OK);
    for (int i = 0; i < 2; i++) {
        test_log_start();
        assert_int_equal(r->ops->read(r, local, 3, &s), CT_ERR_IO);
        assert_non_null(strstr(test_log_stop(), "changed while it was read"));
    }
    ct_reader_local_release(r, local);
    ct_reader_close(r);
    test_folder_remove(&f);
}

/* ---- HDF5 */

static void make_h5(const char *path, int rows, int width, hid_t type, int first)
{
    hsize_t dim[2] = { (hsize_t)rows, (hsize_t)width };
    float *v = malloc(sizeof(float) * (size_t)(rows * width));
    hid_t file, space, set;

    for (int i = 0; i < rows * width; i++) v[i] = (float)((first * width + i) % 200);
    ct_hdf5_lock();
    file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    space = H5Screate_simple(2, dim, NULL);
    set = H5Dcreate2(file, "data", type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Dwrite(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, v) >= 0);
    H5Dclose(set);
    H5Sclose(space);
    space = H5Screate_simple(1, dim, NULL);
    set = H5Dcreate2(file, "label", H5T_STD_I64BE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    for (int i = 0; i < rows; i++) v[i] = (float)(first + i);
    assert_true(H5Dwrite(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, v) >= 0);
    H5Dclose(set);
    H5Sclose(space);
    assert_true(H5Fclose(file) >= 0);
    ct_hdf5_unlock();
    free(v);
}

static void test_hdf5_list_of_files(void **state)
{
    static const char *const name[2] = { "data", "label" };
    static const int rows[4] = { 4, 1, 0, 6 };
    test_folder f;

    (void)state;
    test_folder_make(&f);
    for (int kind = 0; kind < 3; kind++) { /* bytes, doubles, and some of each */
        int first = 0;

        for (int k = 0; k < 4; k++) {
            char file[16];
            bool bytes = (kind == 0) || ((kind == 2) && (k == 1));

            snprintf(file, sizeof(file), "%d.h5", k);
            make_h5(test_path(&f, file), rows[k], 3, bytes ? H5T_STD_U8LE : H5T_IEEE_F64BE, first);
            first += rows[k];
        }
        test_file_text(test_path(&f, "list.txt"), "0.h5\r\n1.h5 2.h5\n\n3.h5"); /* beside it */
        for (int64_t limit = 1; limit <= 1 << 20; limit <<= 20) { /* row by row; all in memory */
            ct_reader_options o = { .source = test_path(&f, "list.txt"),
                                    .n_field = 2,
                                    .field_name = name,
                                    .ram_limit = limit };
            ct_reader *r;
            void *local;

            assert_int_equal(ct_reader_open("hdf5", &o, &r), CT_OK);
            assert_int_equal(r->count, 11);
            assert_true(ct_shape_equal(&r->field[0], &TEST_SHAPE(3)));
            assert_int_equal(ct_reader_local(r, &local), CT_OK);
            for (int step = 0; step < 22; step++) {
                int i = step * 7 % 11;
                float label;
                ct_sample s = { .rest = &label };

                assert_int_equal(r->ops->read(r, local, i, &s), CT_OK);
                assert_true(label == (float)i);
                assert_int_equal(s.u8 != NULL, kind == 0);
                for (int k = 0; k < 3; k++) {
                    float v = (s.u8 != NULL) ? (float)s.u8[k] : s.f32[k];

                    assert_true(v == (float)((i * 3 + k) % 200));
                }
            }
            ct_reader_local_release(r, local);
            ct_reader_close(r);
        }
    }
    test_folder_remove(&f);
}

static void test_hdf5_refused(void **state)
{
    test_folder f;
    uint8_t *data;
    size_t size;
    hid_t file;

    (void)state;
    test_folder_make(&f);
    make_h5(test_path(&f, "a.h5"), 4, 3, H5T_STD_U8LE, 0);
    make_h5(test_path(&f, "b.h5"), 4, 5, H5T_STD_U8LE, 0);
    data = test_file_read(test_path(&f, "a.h5"), &size);
    for (size_t n = 0; n < size; n += 1 + size / 23) {
        test_file_write(test_path(&f, "cut.h5"), data, n);
        expect_open("hdf5", test_path(&f, "cut.h5"), CT_ERR_IO, "not an HDF5 file, or truncated");
    }
    free(data);
    expect_open("hdf5", test_path(&f, "none.h5"), CT_ERR_IO, "No such file");
    test_file_text(test_path(&f, "list"), "a.h5\nb.h5\n");
    expect_open("hdf5", test_path(&f, "list"), CT_ERR_DATA, "rows of \"data\" are 5");
    test_file_text(test_path(&f, "list"), "a.h5\nc.h5\n");
    expect_open("hdf5", test_path(&f, "list"), CT_ERR_IO, "c.h5: No such file");
    test_file_text(test_path(&f, "list"), " \n");
    expect_open("hdf5", test_path(&f, "list"), CT_ERR_DATA, "lists no HDF5 file");
    ct_hdf5_lock();
    file = H5Fopen(test_path(&f, "a.h5"), H5F_ACC_RDWR, H5P_DEFAULT);
    assert_true(H5Ldelete(file, "label", H5P_DEFAULT) >= 0);
    H5Fclose(file);
    ct_hdf5_unlock();
    expect_open("hdf5", test_path(&f, "a.h5"), CT_ERR_DATA,
                "a.h5 has no data set \"label\" (it has: data); tops");
    ct_hdf5_lock();
    file = H5Fopen(test_path(&f, "a.h5"), H5F_ACC_RDWR, H5P_DEFAULT);
    H5Gclose(H5Gcreate2(file, "labels", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    H5Fclose(file);
    ct_hdf5_unlock();
    expect_open("hdf5", test_path(&f, "a.h5"), CT_ERR_DATA,
                "(it has: data, labels); did you mean \"labels\"?");
    test_folder_remove(&f);
}

/* A file may claim any size: sets that were never written take no space. */
static void test_hdf5_impossible_sizes(void **state)
{
    static const hsize_t dim[5][3] = { { 4, (hsize_t)1 << 31, (hsize_t)1 << 31 },
                                       { (hsize_t)1 << 45, 1, 1 },
                                       { 4, 0, (hsize_t)1 << 62 },
                                       { 4, 1 << 15, 1 << 15 },
                                       { (hsize_t)1 << 39, 1 << 6, 1 << 6 } };
    static const char *const reason[5] = { "impossible size", "impossible size", "impossible size",
                                           "more than the file can hold", NULL };
    test_folder f;

    (void)state;
    test_folder_make(&f);
    for (int i = 0; i < 5; i++) {
        const hsize_t chunk[3] = { 1, 1, 1 };
        const char *path = test_path(&f, "huge.h5"), *said;
        hid_t file, space, list;
        ct_status status;

        ct_hdf5_lock();
        file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
        list = H5Pcreate(H5P_DATASET_CREATE);
        H5Pset_chunk(list, 3, chunk);
        for (int k = 0; k < 2; k++) {
            space = H5Screate_simple((k == 0) ? 3 : 1, dim[i], NULL);
            if (k == 1) H5Pset_chunk(list, 1, chunk);
            H5Dclose(H5Dcreate2(file, (k == 0) ? "data" : "label", H5T_IEEE_F32LE, space,
                                H5P_DEFAULT, list, H5P_DEFAULT));
            H5Sclose(space);
        }
        H5Pclose(list);
        assert_true(H5Fclose(file) >= 0);
        ct_hdf5_unlock();
        status = try_open("hdf5", path, &said);
        if (reason[i] != NULL) {
            assert_int_equal(status, CT_ERR_DATA);
            assert_non_null(strstr(said, "huge.h5: data set \"data\""));
            assert_non_null(strstr(said, reason[i]));
        } else { /* possible, and read row by row */
            assert_int_equal(status, CT_OK);
        }
    }
    test_folder_remove(&f);
}

/* ---- lists of images */

static void test_image_list_refused(void **state)
{
    test_folder f;

    (void)state;
    test_folder_make(&f);
    test_file_text(test_path(&f, "l"), "a.png 1\nb.png\n");
    expect_open("images", test_path(&f, "l"), CT_ERR_DATA, "l:2: expected \"path label\"");
    test_file_text(test_path(&f, "l"), "a.png cat\n");
    expect_open("images", test_path(&f, "l"), CT_ERR_DATA, "l:1: expected \"path label\"");
    test_file_text(test_path(&f, "l"), "a.png 3000000000\n");
    expect_open("images", test_path(&f, "l"), CT_ERR_DATA, "expected \"path label\"");
    test_file_text(test_path(&f, "l"), "\n\n");
    expect_open("images", test_path(&f, "l"), CT_ERR_DATA, "lists no image");
    test_file_text(test_path(&f, "l"), "\nnowhere at all.png 3\n");
    expect_open("images", test_path(&f, "l"), CT_ERR_IO, "nowhere at all.png (line 2 of");
    test_folder_remove(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_datum_bytes_and_floats),
        cmocka_unit_test(test_datum_refused),
        cmocka_unit_test(test_datum_mutations),
        cmocka_unit_test(test_png_is_exact),
        cmocka_unit_test(test_jpeg),
        cmocka_unit_test(test_image_mutations),
        cmocka_unit_test(test_resize),
        cmocka_unit_test(test_resize_odd),
        cmocka_unit_test(test_lmdb_opens_how_it_lies),
        cmocka_unit_test(test_lmdb_truncated_anywhere),
        cmocka_unit_test(test_lmdb_bad_record_is_named),
        cmocka_unit_test(test_lmdb_grows),
        cmocka_unit_test(test_far_set_that_changed),
        cmocka_unit_test(test_hdf5_list_of_files),
        cmocka_unit_test(test_hdf5_refused),
        cmocka_unit_test(test_hdf5_impossible_sizes),
        cmocka_unit_test(test_image_list_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
