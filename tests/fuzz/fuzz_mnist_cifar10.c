/* What `cortado convert mnist` and `convert cifar10` read: idx files and CIFAR-10's batches, plain
 * or by gzip. Any bytes end in data sets or in an error. The first byte says which file of a folder
 * the rest is; the other files are good ones. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "framework/data/convert.h"
#include "tests/fuzz/folder.h"
#include "tests/fuzz/fuzz.h"

static const struct {
    const char *set, *name;
} file[] = { { "mnist", "train-images-idx3-ubyte" },   { "mnist", "train-labels-idx1-ubyte" },
             { "mnist", "t10k-images-idx3-ubyte.gz" }, { "mnist", "t10k-labels-idx1-ubyte.gz" },
             { "cifar10", "data_batch_1.bin" },        { "cifar10", "test_batch.bin.gz" } };

enum { N_FILE = 6, RECORD = 3073 };

static void write_good(const char *folder, int k)
{
    static const uint8_t image[16 + 2 * 6] = { 0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 3, 9 };
    static const uint8_t label[8 + 2] = { 0, 0, 8, 1, 0, 0, 0, 2, 5, 7 };
    static const uint8_t record[RECORD] = { 4 };
    char path[192];

    snprintf(path, sizeof(path), "%s/%s", folder, file[k].set);
    (void)mkdir(path, 0700);
    snprintf(path, sizeof(path), "%s/%s/%s", folder, file[k].set, file[k].name);
    if (k >= 4)
        fuzz_write(path, record, sizeof(record));
    else if (k % 2 == 0)
        fuzz_write(path, image, sizeof(image));
    else
        fuzz_write(path, label, sizeof(label));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ct_convert_options o = { .backend = "hdf5", .force = true };
    const char *folder = fuzz_folder_path();
    char from[128], to[128], path[192];
    ct_status status;
    int k;

    if ((size == 0) || (size > 1 << 16)) return 0;
    ct_log_set_sink(fuzz_drop, NULL);
    k = data[0] % N_FILE;
    for (int i = 0; i < N_FILE; i++) write_good(folder, i);
    snprintf(from, sizeof(from), "%s/%s", folder, file[k].set);
    snprintf(path, sizeof(path), "%s/%s", from, file[k].name);
    fuzz_write(path, data + 1, size - 1);
    snprintf(to, sizeof(to), "%s/made", folder);
    o.from = from;
    o.to = to;
    status = (k < 4) ? ct_convert_mnist(&o) : ct_convert_cifar10(&o);
    if ((status != CT_OK) && (status != CT_ERR_DATA) && (status != CT_ERR_IO)) abort();
    fuzz_empty(to);
    return 0;
}
