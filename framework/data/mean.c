/* Mean images: Caffe's BlobProto in a file (.binaryproto). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/base/memory.h"
#include "framework/base/text.h"
#include "framework/data/transform.h"

/* The last three dimensions; those in front of them must be 1. */
static bool shape_of(const Ct__BlobProto *b, ct_shape *shape_p)
{
    int64_t dim[4] = { b->num, b->channels, b->height, b->width };

    if (b->shape != NULL) {
        size_t n = b->shape->n_dim;

        if ((n < 1) || (n > 4)) return false;
        for (int i = 0; i < 4; i++) dim[i] = 1;
        for (size_t i = 0; i < n; i++) dim[4 - n + i] = b->shape->dim[i];
    }
    if (dim[0] != 1) return false;
    for (int i = 1; i < 4; i++) {
        if ((dim[i] < 1) || (dim[i] > (1 << 20))) return false;
    }
    *shape_p = (ct_shape){ 3, { dim[1], dim[2], dim[3] } };
    return true;
}

static ct_status take(const Ct__BlobProto *b, const char *path, const char *who, ct_shape *shape_p,
                      float **mean_p)
{
    size_t have = (b->n_double_data > 0) ? b->n_double_data : b->n_data;
    int64_t n;
    float *mean;

    if (!shape_of(b, shape_p)) {
        return CT_FAIL(CT_ERR_DATA, "%s: mean_file %s: not one image by its shape", who, path);
    }
    n = ct_shape_count(shape_p, 0, -1);
    if (have != (size_t)n) {
        return CT_FAIL(CT_ERR_DATA, "%s: mean_file %s: shape %s, but %zu values", who, path,
                       ct_shape_str(shape_p).text, have);
    }
    mean = ct_mem_acquire((size_t)n * sizeof(float));
    if (mean == NULL) return CT_FAIL(CT_ERR_NOMEM, "%s: no memory for %s", who, path);
    for (int64_t i = 0; i < n; i++) {
        mean[i] = (b->n_double_data > 0) ? (float)b->double_data[i] : b->data[i];
    }
    *mean_p = mean;
    return CT_OK;
}

ct_status ct_mean_read(const char *path, const char *who, ct_shape *shape_p, float **mean_p)
{
    char *data;
    size_t size;
    Ct__BlobProto *b;
    ct_status status;

    if (access(path, R_OK) != 0) {
        return CT_FAIL(CT_ERR_IO, "%s: mean_file %s: %s", who, path, strerror(errno));
    }
    CT_TRY(ct_file_read(path, &data, &size));
    b = ct__blob_proto__unpack(NULL, size, (const uint8_t *)data);
    free(data);
    if (b == NULL) {
        return CT_FAIL(CT_ERR_DATA, "%s: mean_file %s: not a BlobProto, or truncated", who, path);
    }
    status = take(b, path, who, shape_p, mean_p);
    ct__blob_proto__free_unpacked(b, NULL);
    return status;
}

ct_status ct_mean_write(const char *path, const ct_shape *shape, const float *mean)
{
    Ct__BlobProto b = CT__BLOB_PROTO__INIT;
    size_t size;
    uint8_t *data;
    ct_status status;

    b.has_num = b.has_channels = b.has_height = b.has_width = 1;
    b.num = 1;
    b.channels = (int32_t)shape->dim[0];
    b.height = (int32_t)shape->dim[1];
    b.width = (int32_t)shape->dim[2];
    b.n_data = (size_t)ct_shape_count(shape, 0, -1);
    b.data = (float *)(uintptr_t)mean; /* read only by pack */
    size = ct__blob_proto__get_packed_size(&b);
    data = malloc(size);
    if (data == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to write %s", path);
    ct__blob_proto__pack(&b, data);
    status = ct_file_write(path, data, size);
    free(data);
    return status;
}
