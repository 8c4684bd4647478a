/* Made by make_data_golden.py. Resized: height, width, channels, new height, new width, CRC-32 of
 * the bytes. Windows: image height, width; x1 y1 x2 y2; crop, context_pad, square, mirrored, mean
 * (0: none, 1: values, 2: image), scale; CRC-32 of the floats. */
static const struct {
    int h, w, c, to_h, to_w;
    uint32_t crc;
} resize_golden[] = {
    { 7, 5, 3, 3, 11, 0x0ce621e2u },      { 1, 9, 1, 4, 4, 0xdf4b2b09u },
    { 37, 53, 3, 16, 17, 0xbee2d5f3u },   { 64, 64, 3, 32, 32, 0x6d4525e5u },
    { 33, 40, 3, 227, 227, 0x3c3c9e8cu }, { 100, 75, 1, 64, 64, 0x17e115d0u },
    { 5, 5, 3, 5, 9, 0xeea90c55u },       { 75, 100, 3, 50, 50, 0xc6f65320u },
    { 50, 40, 3, 17, 40, 0xdaec1a27u },   { 3, 2, 3, 1, 1, 0xdab3e11du },
};

static const struct {
    int h, w, box[4], crop, pad, square, mirrored, mean;
    float scale;
    uint32_t crc;
} window_golden[] = {
    { 40, 60, { 5, 6, 30, 25 }, 16, 0, 0, 0, 0, 1.0f, 0x9d53a30du },
    { 40, 60, { 5, 6, 30, 25 }, 16, 0, 0, 1, 1, 0.5f, 0xd136485fu },
    { 40, 60, { 5, 6, 30, 25 }, 16, 3, 0, 0, 1, 1.0f, 0xdab3711du },
    { 40, 60, { 0, 0, 20, 11 }, 16, 3, 0, 0, 2, 1.0f, 0xa0a05286u },
    { 40, 60, { 0, 0, 20, 11 }, 16, 3, 0, 1, 2, 0.017f, 0x4bef920eu },
    { 40, 60, { 38, 20, 59, 39 }, 17, 5, 0, 0, 1, 1.0f, 0xf5414323u },
    { 40, 60, { 38, 20, 59, 39 }, 17, 5, 0, 1, 1, 1.0f, 0xc65ddf64u },
    { 40, 60, { 10, 2, 50, 9 }, 16, 0, 1, 0, 2, 1.0f, 0x07c1a21eu },
    { 40, 60, { 10, 2, 50, 9 }, 16, 0, 1, 1, 2, 1.0f, 0xa9eb9286u },
    { 40, 60, { 3, 1, 8, 38 }, 21, 4, 1, 1, 1, 0.25f, 0x175f18ebu },
    { 40, 60, { 0, 0, 59, 39 }, 16, 7, 1, 0, 2, 1.0f, 0x65caf844u },
    { 13, 9, { 4, 4, 4, 4 }, 8, 1, 0, 0, 1, 1.0f, 0x44de9efau },
    { 13, 9, { 8, 12, 8, 12 }, 24, 11, 0, 1, 1, 1.0f, 0x8362d2eeu },
};
