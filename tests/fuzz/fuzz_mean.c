/* Means, BlobProtos of .binaryproto files: any bytes end in one image's values, which are written
 * and read again, or in an error. */
#include <stdlib.h>
#include <string.h>

#include "framework/base/memory.h"
#include "framework/data/transform.h"
#include "tests/fuzz/folder.h"
#include "tests/fuzz/fuzz.h"

static void read_again(const char *folder, const ct_shape *shape, const float *mean)
{
    size_t bytes = (size_t)ct_shape_count(shape, 0, -1) * sizeof(float);
    char path[128];
    ct_shape back;
    float *same = NULL;

    snprintf(path, sizeof(path), "%s/again", folder);
    if ((ct_mean_write(path, shape, mean) != CT_OK) ||
        (ct_mean_read(path, "fuzz", &back, &same) != CT_OK))
        abort();
    if (!ct_shape_equal(shape, &back) || (memcmp(mean, same, bytes) != 0)) abort();
    ct_mem_release(same);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *folder = fuzz_folder_path();
    char path[128];
    ct_shape shape;
    float *mean = NULL;
    ct_status status;

    ct_log_set_sink(fuzz_drop, NULL);
    snprintf(path, sizeof(path), "%s/mean", folder);
    fuzz_write(path, data, size);
    status = ct_mean_read(path, "fuzz", &shape, &mean);
    if ((status != CT_OK) && (status != CT_ERR_DATA)) abort();
    if (status != CT_OK) return 0;
    read_again(folder, &shape, mean);
    ct_mem_release(mean);
    return 0;
}
