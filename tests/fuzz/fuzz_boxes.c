/* `cortado convert annotated` on a folder of PASCAL VOC's form, or on a list: any bytes for one of
 * its files, the others good ones, end in a set of images with boxes, or in an error. The first
 * byte says which file the rest is, the next bits of it how the folder is read. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "framework/data/convert.h"
#include "framework/data/image.h"
#include "tests/fuzz/folder.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/tokens.h"

enum { PICTURE, ANNOTATION, TRAIN, TEST, NAMES, ITEMS, LIST, N_KIND, HEIGHT = 20, WIDTH = 30 };

/* Of the first byte, divided by N_KIND. */
enum { BY_LIST = 1, NO_SETS = 2, MAPPED = 4, HDF5 = 8 };

static const char *const name[N_KIND] = { "JPEGImages/a.jpg",
                                          "Annotations/a.xml",
                                          "ImageSets/Main/trainval.txt",
                                          "ImageSets/Main/test.txt",
                                          "names.txt",
                                          "items.prototxt",
                                          "list.txt" };

static const char *const good[N_KIND] = {
    [ANNOTATION] = "<annotation><filename>a.jpg</filename><object><name>cat</name><bndbox>"
                   "<xmin>3</xmin><ymin>2</ymin><xmax>9</xmax><ymax>8</ymax></bndbox>"
                   "</object></annotation>",
    [TRAIN] = "a\nb\n",
    [TEST] = "a\n",
    [NAMES] = "background\ncat\ndog\n",
    [ITEMS] = "item { name: 'none' label: 0 } item { name: 'cat' label: 1 }",
    [LIST] = "JPEGImages/a.jpg Annotations/a.xml\nJPEGImages/b.jpg Annotations/b.xml\n",
};

/* A picture without a thing in it. */
static const uint8_t *picture(size_t *size_p)
{
    static ct_sample_buffer jpeg; /* as long as the program */
    static size_t size;
    uint8_t pixel[HEIGHT * WIDTH * 3] = { 0 };
    const ct_image image = { .data = pixel, .height = HEIGHT, .width = WIDTH, .channels = 3 };

    if ((size == 0) && (ct_image_encode_jpeg(&image, 80, &jpeg, &size) != CT_OK)) abort();
    *size_p = size;
    return jpeg.data;
}

static void put(const char *folder, const char *file, const void *data, size_t size)
{
    char path[192];

    snprintf(path, sizeof(path), "%s/%s", folder, file);
    fuzz_write(path, data, size);
}

static void make_folder(const char *folder, bool sets)
{
    static const char *const inner[] = { "", "/JPEGImages", "/Annotations", "/ImageSets",
                                         "/ImageSets/Main" };
    const uint8_t *jpeg;
    size_t size;

    for (size_t i = 0; i < sizeof(inner) / sizeof(inner[0]); i++) {
        char path[192];

        snprintf(path, sizeof(path), "%s%s", folder, inner[i]);
        (void)mkdir(path, 0700);
    }
    jpeg = picture(&size);
    put(folder, name[PICTURE], jpeg, size);
    put(folder, "JPEGImages/b.jpg", jpeg, size);
    put(folder, "Annotations/b.xml", good[ANNOTATION], strlen(good[ANNOTATION]));
    for (int k = ANNOTATION; k < N_KIND; k++)
        if (sets || ((k != TRAIN) && (k != TEST))) put(folder, name[k], good[k], strlen(good[k]));
}

static void convert(const char *folder, int kind, int how)
{
    ct_convert_options o = { .force = true };
    char to[192], list[192], map[192], root[192];
    ct_status status;

    snprintf(to, sizeof(to), "%s.made", folder);
    snprintf(list, sizeof(list), "%s/%s", folder, name[LIST]);
    snprintf(root, sizeof(root), "%s/", folder);
    snprintf(map, sizeof(map), "%s/%s", folder, name[(kind == ITEMS) ? ITEMS : NAMES]);
    o.to = to;
    o.shuffle = (how & NO_SETS) != 0;
    if ((how & HDF5) != 0) o.backend = "hdf5"; /* it keeps no boxes */
    if (((how & MAPPED) != 0) || (kind == ITEMS) || (kind == NAMES)) o.labelmap = map;
    if (((how & BY_LIST) != 0) || (kind == LIST)) {
        o.list = list;
        o.root = root;
    } else {
        o.from = folder;
    }
    status = ct_convert_annotated(&o);
    if ((status != CT_OK) && (status != CT_ERR_DATA) && (status != CT_ERR_IO) &&
        (status != CT_ERR_CONFIG))
        abort();
    fuzz_empty(to);
}

FUZZ_TOKENS(1, &ct__label_map__descriptor);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char folder[128];
    int kind, how;

    if ((size == 0) || (size > 1 << 14)) return 0;
    ct_log_set_sink(fuzz_drop, NULL);
    kind = data[0] % N_KIND;
    how = data[0] / N_KIND;
    snprintf(folder, sizeof(folder), "%s/voc", fuzz_folder_path());
    make_folder(folder, (how & NO_SETS) == 0);
    put(folder, name[kind], data + 1, size - 1);
    convert(folder, kind, how);
    fuzz_empty(folder);
    return 0;
}
