/* Made by make_augment_golden.py: what Pillow and torchvision make of images, as CRC-32 of planes.
 */
static const struct {
    int h, w, c, box[4], to_h, to_w;
    uint32_t crc;
} crop_golden[] = {
    { 37, 53, 3, { 0, 0, 37, 53 }, 16, 17, 0x6eee541fu },
    { 37, 53, 3, { 3, 5, 30, 40 }, 7, 61, 0xd17e4235u },
    { 90, 70, 3, { 11, 0, 79, 70 }, 32, 32, 0x8586f1efu },
    { 40, 33, 1, { 1, 1, 38, 31 }, 64, 64, 0x6d3482ecu },
    { 5, 5, 3, { 2, 2, 1, 1 }, 4, 4, 0xe93aeeb1u },
    { 300, 260, 3, { 7, 9, 280, 240 }, 24, 24, 0x7c0c68f5u },
    { 50, 41, 3, { 0, 0, 50, 41 }, 50, 41, 0xc5ea1bfcu },
    { 9, 200, 3, { 0, 0, 9, 200 }, 3, 1, 0x390d0df1u },
};

/* Of 31 x 45 slopes. */
static const struct {
    ct_affine affine;
    uint32_t crc;
} affine_golden[] = {
    { { 0, 0, 0, 1, 0, 0 }, 0xe0b2d024u },         { { 30, 0, 0, 1, 0, 0 }, 0x18762832u },
    { { -117.5, 3, -4, 0.8, 0, 0 }, 0x68f0d5bbu }, { { 10, -7, 2, 1.25, 20, 0 }, 0x3f5a29f2u },
    { { 0, 0, 0, 1, -15, 9 }, 0xb4a87486u },
};

/* Of 23 x 29 pixels: channels, slopes or noise. */
static const struct {
    const char *op;
    double value;
    int c, smooth;
    uint32_t crc;
} color_golden[] = {
    { "brightness", 0.0, 3, 0, 0xa3b1a3f0u }, { "brightness", 0.0, 3, 1, 0xa3b1a3f0u },
    { "brightness", 0.0, 1, 1, 0xc3060599u }, { "brightness", 0.4, 3, 0, 0xfe6d0515u },
    { "brightness", 0.4, 3, 1, 0x8dce8e5du }, { "brightness", 0.4, 1, 1, 0x762d291au },
    { "brightness", 1.0, 3, 0, 0xf60c0437u }, { "brightness", 1.0, 3, 1, 0xe511e64fu },
    { "brightness", 1.0, 1, 1, 0x0a5d5edbu }, { "brightness", 1.9, 3, 0, 0xa5169a22u },
    { "brightness", 1.9, 3, 1, 0x7aa21249u }, { "brightness", 1.9, 1, 1, 0x9c15d1edu },
    { "contrast", 0.0, 3, 0, 0x90ff2c38u },   { "contrast", 0.0, 3, 1, 0xb9b77a85u },
    { "contrast", 0.0, 1, 1, 0xf578d974u },   { "contrast", 0.4, 3, 0, 0x83945954u },
    { "contrast", 0.4, 3, 1, 0xc36bc2a4u },   { "contrast", 0.4, 1, 1, 0x64c3c136u },
    { "contrast", 1.0, 3, 0, 0xf60c0437u },   { "contrast", 1.0, 3, 1, 0xe511e64fu },
    { "contrast", 1.0, 1, 1, 0x0a5d5edbu },   { "contrast", 1.9, 3, 0, 0x3e3d36afu },
    { "contrast", 1.9, 3, 1, 0x98146873u },   { "contrast", 1.9, 1, 1, 0xf1f6785bu },
    { "saturation", 0.0, 3, 0, 0xb84b32b1u }, { "saturation", 0.0, 3, 1, 0x46aae268u },
    { "saturation", 0.0, 1, 1, 0x0a5d5edbu }, { "saturation", 0.4, 3, 0, 0x9b82f241u },
    { "saturation", 0.4, 3, 1, 0xb070955eu }, { "saturation", 0.4, 1, 1, 0x0a5d5edbu },
    { "saturation", 1.0, 3, 0, 0xf60c0437u }, { "saturation", 1.0, 3, 1, 0xe511e64fu },
    { "saturation", 1.0, 1, 1, 0x0a5d5edbu }, { "saturation", 1.9, 3, 0, 0x18138ad8u },
    { "saturation", 1.9, 3, 1, 0x4ae84646u }, { "saturation", 1.9, 1, 1, 0x0a5d5edbu },
    { "sharpness", 0.0, 3, 0, 0xdeb0366cu },  { "sharpness", 0.0, 3, 1, 0x02072fddu },
    { "sharpness", 0.0, 1, 1, 0x2eed0c48u },  { "sharpness", 0.4, 3, 0, 0xab66efdau },
    { "sharpness", 0.4, 3, 1, 0xece1d5d0u },  { "sharpness", 0.4, 1, 1, 0xb632c057u },
    { "sharpness", 1.0, 3, 0, 0xf60c0437u },  { "sharpness", 1.0, 3, 1, 0xe511e64fu },
    { "sharpness", 1.0, 1, 1, 0x0a5d5edbu },  { "sharpness", 1.9, 3, 0, 0x758242e9u },
    { "sharpness", 1.9, 3, 1, 0x0a0a992fu },  { "sharpness", 1.9, 1, 1, 0xf91223c3u },
    { "hue", 0, 3, 0, 0x334da57bu },          { "hue", 0, 3, 1, 0x91544472u },
    { "hue", 0, 1, 1, 0x0a5d5edbu },          { "hue", 25, 3, 0, 0xa42115fau },
    { "hue", 25, 3, 1, 0x358d77bbu },         { "hue", 25, 1, 1, 0x0a5d5edbu },
    { "hue", 127, 3, 0, 0xfe1ddc20u },        { "hue", 127, 3, 1, 0xa8083b25u },
    { "hue", 127, 1, 1, 0x0a5d5edbu },        { "hue", 200, 3, 0, 0x147d0938u },
    { "hue", 200, 3, 1, 0xf0599757u },        { "hue", 200, 1, 1, 0x0a5d5edbu },
    { "posterize", 1, 3, 0, 0xa30593f7u },    { "posterize", 1, 3, 1, 0x9ebe1c2bu },
    { "posterize", 1, 1, 1, 0x025c0b1au },    { "posterize", 4, 3, 0, 0xe7b6a0b7u },
    { "posterize", 4, 3, 1, 0x863bcdb3u },    { "posterize", 4, 1, 1, 0x82a3f9deu },
    { "posterize", 8, 3, 0, 0xf60c0437u },    { "posterize", 8, 3, 1, 0xe511e64fu },
    { "posterize", 8, 1, 1, 0x0a5d5edbu },    { "solarize", 0, 3, 0, 0xec1f4f98u },
    { "solarize", 0, 3, 1, 0xff02ade0u },     { "solarize", 0, 1, 1, 0x8b97bfe5u },
    { "solarize", 100.5, 3, 0, 0xb8a62590u }, { "solarize", 100.5, 3, 1, 0xf8fe9ec7u },
    { "solarize", 100.5, 1, 1, 0x08a8e0ceu }, { "solarize", 128, 3, 0, 0xabbce710u },
    { "solarize", 128, 3, 1, 0xd2cccb9fu },   { "solarize", 128, 1, 1, 0x654158feu },
    { "solarize", 256, 3, 0, 0xf60c0437u },   { "solarize", 256, 3, 1, 0xe511e64fu },
    { "solarize", 256, 1, 1, 0x0a5d5edbu },   { "autocontrast", 0, 3, 0, 0xf60c0437u },
    { "autocontrast", 0, 3, 1, 0x244be16cu }, { "autocontrast", 0, 1, 1, 0x7a5a2e85u },
    { "equalize", 0, 3, 0, 0x69d0b86cu },     { "equalize", 0, 3, 1, 0xbd18c0edu },
    { "equalize", 0, 1, 1, 0x1b976ed5u },
};
