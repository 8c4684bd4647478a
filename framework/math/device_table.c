/* The kinds of device there are, and which were built in. */
#include <math.h>
#include <string.h>

#include "framework/base/memory.h"
#include "framework/math/math.h"
#include "framework/math/step_there.h"
#include "framework/tensor/device.h"

static ct_status cpu_open(int local_rank, const ct_device **dev_p)
{
    (void)local_rank;
    *dev_p = ct_device_cpu();
    return CT_OK;
}

typedef struct device_row {
    const char *mode;
    ct_status (*open)(int local_rank, const ct_device **dev_p); /* NULL: not built in */
    int (*count)(void);                                         /* NULL: no device but the host */
    ct_status (*look)(int i, ct_device_place *place_p);
    ct_status (*measure)(double *copy_p, double *product_p, double *narrow_p);
    const char *how; /* to have it built  */
} device_row;

static const device_row device_table[] = {
    { "cpu", cpu_open, NULL, NULL, NULL, "" },
#ifdef CT_HAVE_CUDA
    { "cuda", ct_device_cuda_open, ct_device_cuda_count, ct_device_cuda_look,
      ct_device_cuda_measure, "" },
#else
    { "cuda", NULL, NULL, NULL, NULL, "build with make CUDA=1" },
#endif
};

static const device_row *find(const char *mode)
{
    for (size_t i = 0; i < sizeof(device_table) / sizeof(device_table[0]); i++) {
        if (strcmp(device_table[i].mode, mode) == 0) return &device_table[i];
    }
    return NULL;
}

static ct_status find_built(const char *mode, const device_row **row_p)
{
    *row_p = find(mode);
    if (*row_p == NULL)
        return CT_FAIL(CT_ERR_CONFIG, "unknown device \"%s\"; there are cpu and cuda", mode);
    if ((*row_p)->open == NULL)
        return CT_FAIL(CT_ERR_CONFIG, "this cortado was built without device \"%s\": %s", mode,
                       (*row_p)->how);
    return CT_OK;
}

ct_status ct_device_open(const char *mode, int local_rank, const ct_device **dev_p)
{
    const device_row *row;

    CT_TRY(find_built(mode, &row));
    return row->open(local_rank, dev_p);
}

int ct_device_count(const char *mode)
{
    const device_row *row = find(mode);

    return ((row != NULL) && (row->count != NULL)) ? row->count() : 0;
}

ct_status ct_device_look(const char *mode, int i, ct_device_place *place_p)
{
    const device_row *row;

    CT_TRY(find_built(mode, &row));
    if (row->look == NULL) return CT_FAIL(CT_ERR_CONFIG, "device \"%s\" has no place", mode);
    return row->look(i, place_p);
}

ct_status ct_device_measure(const char *mode, double *copy_p, double *product_p, double *narrow_p)
{
    const device_row *row;

    CT_TRY(find_built(mode, &row));
    if (row->measure == NULL)
        return CT_FAIL(CT_ERR_CONFIG, "device \"%s\" is measured elsewhere", mode);
    return row->measure(copy_p, product_p, narrow_p);
}

const ct_device_sum_ops *ct_device_sum_of(const ct_device *dev)
{
#ifdef CT_HAVE_NCCL
    if (dev->kind == CT_DEVICE_CUDA) return &ct_device_sum_nccl;
#endif
    (void)dev;
    return NULL;
}

const ct_step_there_ops *ct_step_there_of(const ct_device *dev)
{
#ifdef CT_HAVE_CUDA
    if ((dev->kind == CT_DEVICE_CUDA) && (dev->math->update_all != NULL))
        return &ct_step_there_cuda;
#endif
    (void)dev;
    return NULL;
}

/* ---- the host as a device */

static ct_status cpu_mem_acquire(size_t bytes, void **data_p)
{
    void *data = ct_mem_acquire(bytes);

    if (data == NULL)
        return CT_FAIL(CT_ERR_NOMEM,
                       "no memory for %zu bytes: %.1f GiB of %.1f are free; a smaller batch takes "
                       "less, and cortado check says what a net takes",
                       bytes, ldexp(ct_memory_free(), -30), ldexp(ct_memory_limit(), -30));
    *data_p = data;
    return CT_OK;
}

static ct_status cpu_copy(ct_stream st, void *to, const void *from, size_t bytes)
{
    (void)st;
    if (bytes > 0) memcpy(to, from, bytes);
    return CT_OK;
}

static ct_status cpu_zero(ct_stream st, void *data, size_t bytes)
{
    (void)st;
    if (bytes > 0) memset(data, 0, bytes);
    return CT_OK;
}

static ct_status cpu_sync(ct_stream st)
{
    (void)st;
    return CT_OK;
}

static const ct_device device_cpu = {
    .name = "cpu",
    .kind = CT_DEVICE_CPU,
    .mem_acquire = cpu_mem_acquire,
    .mem_release = ct_mem_release,
    .to_host = cpu_copy,
    .from_host = cpu_copy,
    .copy = cpu_copy,
    .zero = cpu_zero,
    .sync = cpu_sync,
    .math = &ct_math_cpu,
};

const ct_device *ct_device_cpu(void)
{
    return &device_cpu;
}
