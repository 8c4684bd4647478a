/* Weights in a file: any bytes that are a .npz, a .caffemodel, a .safetensors or a GGUF, whole or
 * not, end in arrays as large as their shapes say, or in an error. What is read is written in a
 * form that the size of the input chooses, and has the same arrays when it is read again. (HDF5
 * files: fuzz_hdf5.c.) */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/base/log.h"
#include "framework/snapshot/hf_config.h"
#include "framework/snapshot/h5.h"
#include "framework/snapshot/model.h"
#include "tests/fuzz/folder.h"
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

/* Another layer's arrays are written with that one alone. */
static bool is_written(const ct_model_array *a)
{
    return a->present && !a->shared;
}

static void compare(const ct_model *a, const ct_model *b)
{
    for (int l = 0; l < a->n_layer; l++) {
        int other = ct_model_find(b, a->layer[l].name);

        for (int i = 0; i < a->layer[l].n_array; i++) {
            const ct_model_array *x = &a->layer[l].array[i], *y;
            int64_t n;

            if (!is_written(x)) continue;
            if (other < 0) abort();
            y = &b->layer[other].array[i];
            n = ct_shape_count(&x->shape, 0, -1);
            if (!y->present || !ct_shape_equal(&x->shape, &y->shape)) abort();
            if ((n > 0) && (memcmp(x->data, y->data, (size_t)n * sizeof(float)) != 0)) abort();
        }
    }
}

static bool has_arrays(const ct_model *m)
{
    for (int l = 0; l < m->n_layer; l++)
        for (int i = 0; i < m->layer[l].n_array; i++)
            if (is_written(&m->layer[l].array[i])) return true;
    return false;
}

static void write_as(ct_model *m, const char *name, bool compares)
{
    ct_model *back = NULL;
    char path[128];

    snprintf(path, sizeof(path), "%s/%s", fuzz_folder_path(), name);
    if (ct_model_save(m, path) == CT_OK) {
        if ((ct_model_open(path, &back) == CT_OK) && (ct_model_load(back) == CT_OK)) {
            if (compares) compare(m, back);
        } else if (has_arrays(m)) {
            abort();
        }
    }
    if (m->written_as != 0) (void)ct_hf_config_write(m, NULL, path);
    ct_model_close(back);
    fuzz_empty(fuzz_folder_path());
    (void)mkdir(fuzz_folder_path(), 0700);
}

static void write_again(ct_model *m, size_t size)
{
    static const char *const name[] = { "w.caffemodel", "w.caffemodel.h5", "w.npz",
                                        "w.safetensors" };
    const size_t k = size % (sizeof(name) / sizeof(name[0]));

    write_as(m, name[k], k > 0);
    if (ct_model_write_as_hf(m)) write_as(m, "model.safetensors", false);
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
        (ct_model_open(path, &m) == CT_OK) && (ct_model_load(m) == CT_OK)) {
        use(m);
        write_again(m, size);
    }
    ct_model_close(m);
    close(fd);
    return 0;
}
