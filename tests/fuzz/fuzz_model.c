/* Weights in a file: any bytes that are a .npz, a .caffemodel, a .safetensors or a GGUF, whole or
 * not, end in arrays as large as their shapes say, or in an error. (HDF5 files: fuzz_hdf5.c.) */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "framework/base/log.h"
#include "framework/snapshot/h5.h"
#include "framework/snapshot/model.h"
#include "tests/fuzz/fuzz.h"

static void use(ct_model *m)
{
    double sum = 0.0;

    for (int l = 0; l < m->n_layer; l++) {
        for (int i = 0; i < m->layer[l].n_array; i++) {
            const ct_model_array *a = &m->layer[l].array[i];
            int64_t n = a->present ? ct_shape_count(&a->shape, 0, -1) : 0;

            if (n < 0) abort();
            for (int64_t k = 0; k < n; k++) sum += (double)a->data[k];
        }
    }
    if (sum > 1e300) fprintf(stderr, "large\n"); /* the values were read */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    ct_model *m = NULL;
    char path[64];

    ct_log_set_sink(fuzz_drop, NULL);
    if (fd < 0) return 0;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if ((write(fd, data, size) == (ssize_t)size) && !ct_h5_is_hdf5(path) &&
        (ct_model_open(path, &m) == CT_OK) && (ct_model_load(m) == CT_OK))
        use(m);
    ct_model_close(m);
    close(fd);
    return 0;
}
