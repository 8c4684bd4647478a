#include "tests/test.h"

#include <math.h>
#include <string.h>

#include "framework/data/image.h"

/* Pictures of 1 x 2: a grey one, and one of colours. */
static const float grey[4] = { 0, 255, 51, 102 };
static const float colour[6] = { 10, 20, 30, 40, 50, 60 }; /* blue, green, red */

static void decode(const ct_tiles *t, ct_sample_buffer *room, ct_image *image_p)
{
    ct_text png = { 0 };
    ct_why why = { "" };
    ct_status status;

    assert_int_equal(ct_tiles_png(t, &png), CT_OK);
    assert_false(png.failed);
    status = ct_image_decode(png.text, png.length, CT_COLOR_BGR, room, image_p, &why);
    ct_text_destroy(&png);
    if (status == CT_ERR_CONFIG) skip(); /* built without libpng */
    assert_int_equal(status, CT_OK);
}

static const uint8_t *pixel(const ct_image *image, int y, int x)
{
    return image->data + 3 * (y * image->width + x);
}

static void test_values_are_pixels(void **state)
{
    static const uint8_t white[3] = { 255, 255, 255 };
    ct_tiles t = {
        .n = 2, .height = 1, .width = 2, .channels = 1, .value = grey, .high = 255, .columns = 1
    };
    ct_sample_buffer room = { 0 };
    ct_image image;

    (void)state;
    decode(&t, &room, &image);
    assert_int_equal(image.width, 2 + 2 + 2);
    assert_int_equal(image.height, 2 + 1 + 2 + 1 + 2);
    assert_memory_equal(pixel(&image, 0, 0), white, 3);
    assert_int_equal(*pixel(&image, 2, 2), 0);
    assert_int_equal(*pixel(&image, 2, 3), 255);
    assert_int_equal(*pixel(&image, 5, 2), 51);
    assert_int_equal(*pixel(&image, 5, 3), 102);
    ct_sample_buffer_release(&room);
}

static void test_planes_are_blue_green_red(void **state)
{
    static const uint8_t first[3] = { 10, 30, 50 }, second[3] = { 20, 40, 60 };
    ct_tiles t = {
        .n = 1, .height = 1, .width = 2, .channels = 3, .value = colour, .high = 255, .zoom = 3
    };
    ct_sample_buffer room = { 0 };
    ct_image image;

    (void)state;
    decode(&t, &room, &image);
    assert_int_equal(image.width, 2 + 6 + 2);
    assert_int_equal(image.height, 2 + 3 + 2);
    for (int y = 2; y < 5; y++) {
        for (int x = 2; x < 8; x++)
            assert_memory_equal(pixel(&image, y, x), (x < 5) ? first : second, 3);
    }
    ct_sample_buffer_release(&room);
}

static void test_range_of_a_tile(void **state)
{
    static const float odd[6] = { -3, 1, NAN, 7, 7, 7 };
    ct_tiles t = { .n = 2, .height = 1, .width = 3, .channels = 1, .value = odd, .columns = 2 };
    ct_sample_buffer room = { 0 };
    ct_image image;

    (void)state;
    decode(&t, &room, &image);
    assert_int_equal(*pixel(&image, 2, 2), 0);
    assert_int_equal(*pixel(&image, 2, 3), 255);
    assert_int_equal(*pixel(&image, 2, 4), 0);
    for (int x = 7; x < 10; x++) assert_int_equal(*pixel(&image, 2, x), 0); /* all the same */
    ct_sample_buffer_release(&room);
}

/* A label ends where its tile does, whatever it holds. */
static void test_labels(void **state)
{
    static const char *const label[2] = { "I", "a very long \xc3\xa9 name" };
    static const float two[2 * 144] = { 0 };
    ct_tiles t = {
        .n = 2, .height = 12, .width = 12, .channels = 1, .value = two, .columns = 1, .label = label
    };
    ct_sample_buffer room = { 0 };
    ct_image image;
    int n = 0;

    (void)state;
    decode(&t, &room, &image);
    assert_int_equal(image.width, 2 + 12 + 2);
    assert_int_equal(image.height, 2 + 2 * (12 + 2 + 14));
    for (int y = 16; y < 26; y++)
        for (int x = 0; x < 16; x++) n += (*pixel(&image, y, x) == 0x22);
    assert_int_equal(n, 4 * (3 + 1 + 1 + 1 + 3)); /* the dots of an I, 2 x 2 pixels each */
    for (int y = 0; y < image.height; y++) {
        assert_int_equal(*pixel(&image, y, 14), 255);
        assert_int_equal(*pixel(&image, y, 15), 255);
    }
    ct_sample_buffer_release(&room);
}

/* Frames on tiles, of a colour by their number, also where a corner lies outside; a name in its
 * corner on that colour. */
static void test_boxes(void **state)
{
    static const float two[2 * 32 * 64] = { 0 };
    static const uint8_t first[3] = { 0x4b, 0x19, 0xe6 }, second[3] = { 0x4b, 0xb4, 0x3c };
    static const uint8_t white[3] = { 255, 255, 255 }, black[3] = { 0 };
    const ct_tile_box box[4] = {
        { .tile = 1, .corner = { 0.25f, 0.5f, 0.75f, 1 }, .colour = 8 },
        { .tile = 0, .corner = { -1, 0, 0.5f, 2 }, .colour = 1, .label = "I" },
        { .tile = 0, .corner = { 0.6f, 0.5f, 0.6f, 1 } }, /* no area */
        { .tile = 0, .corner = { NAN, 0.1f, 0.2f, 0.3f }, .colour = 1 },
    };
    ct_tiles t = { .n = 2,
                   .height = 32,
                   .width = 64,
                   .channels = 1,
                   .value = two,
                   .columns = 1,
                   .high = 1,
                   .box = box,
                   .n_box = 3 };
    ct_sample_buffer room = { 0 };
    ct_image image;
    int n = 0;

    (void)state;
    decode(&t, &room, &image);
    for (int y = 0; y < 32; y++) { /* the second tile begins at 36, 2 */
        for (int x = 0; x < 64; x++) {
            bool frame = (x >= 16) && (x < 48) && (y >= 16) &&
                         ((x < 18) || (x >= 46) || (y < 18) || (y >= 30));

            assert_memory_equal(pixel(&image, 36 + y, 2 + x), frame ? first : black, 3);
        }
    }
    for (int x = 0; x < 32; x++) assert_memory_equal(pixel(&image, 2 + 31, 2 + x), second, 3);
    for (int y = 0; y < 32; y++) assert_memory_equal(pixel(&image, 2 + y, 2 + 31), second, 3);
    assert_memory_equal(pixel(&image, 2 + 1, 2 + 9), second, 3); /* its name's ground: 14 x 10 */
    assert_memory_equal(pixel(&image, 2 + 14, 2 + 9), black, 3);
    for (int y = 2; y < 16; y++)
        for (int x = 2; x < 12; x++) n += (memcmp(pixel(&image, y, x), white, 3) == 0);
    assert_int_equal(n, 4 * (3 + 1 + 1 + 1 + 3)); /* the dots of an I, 2 x 2 pixels each */
    for (int x = 33; x < 64; x++) assert_memory_equal(pixel(&image, 2 + 20, 2 + x), black, 3);
    ct_sample_buffer_release(&room);
    t.n_box = 4; /* a corner that is no number is the edge */
    decode(&t, &room, &image);
    ct_sample_buffer_release(&room);
}

static void test_refused(void **state)
{
    ct_tiles none = { .n = 0, .height = 1, .width = 2, .channels = 1, .value = grey };
    ct_tiles two = { .n = 1, .height = 1, .width = 2, .channels = 2, .value = grey };
    ct_tiles large = { .n = 1, .height = 60000, .width = 60000, .channels = 1, .value = grey };
    ct_text png = { 0 };

    (void)state;
    assert_int_equal(ct_tiles_png(&none, &png), CT_ERR_ARG);
    assert_int_equal(ct_tiles_png(&two, &png), CT_ERR_ARG);
    assert_int_equal(ct_tiles_png(&large, &png), CT_ERR_ARG);
    assert_int_equal(png.length, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_are_pixels),
        cmocka_unit_test(test_planes_are_blue_green_red),
        cmocka_unit_test(test_range_of_a_tile),
        cmocka_unit_test(test_labels),
        cmocka_unit_test(test_boxes),
        cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
