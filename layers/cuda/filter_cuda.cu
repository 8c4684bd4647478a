/* Filter: the host counts who passes, for the shapes behind it; samples are moved where they are. */
#include "layers/cuda/layer_cuda.cuh"

extern "C" {
#include "layers/types/filter.h"
}

/* What a thread moves. */
struct alignas(16) sixteen_bytes {
    uint32_t w[4];
};

/* Which samples pass, to the device, and how many. The host waits for the selector. */
static ct_status choose(const ct_layer *l, const ct_instance *in, ct_exec *ex, int64_t *n_p)
{
    const ct_blob *selector = in->bottom[l->n_top];
    int64_t most = dim_of(selector, 0), n = 0;
    size_t bytes = 2 * (size_t)most * sizeof(int32_t);
    const float *chosen;
    void *more;
    int32_t *row;

    *n_p = 0;
    if (most == 0) return CT_OK;
    CT_TRY(read_values(ex, ct_blob_data(selector), most, bytes, &chosen, &more));
    row = (int32_t *)more;
    memset(row, 0, bytes);
    for (int64_t i = 0; i < most; i++) {
        bool passes = (chosen[i] != 0.0f);

        row[most + i] = passes ? (int32_t)n : -1;
        if (passes) row[n++] = (int32_t)i;
    }
    *n_p = n;
    return ex->dev->upload(ex->stream, in->buffer[CT_FILTER_ROWS].data, row, bytes);
}

/* y[k] = x[row[k]], samples of `units` T. */
template <class T>
static ct_status gather(ct_exec *ex, int64_t n, int64_t units, const int32_t *row, const void *x,
                        void *y)
{
    const T *from = (const T *)x;
    T *to = (T *)y;

    return ct_cuda_map(
        ex->stream, "Filter", n * units,
        KERNEL(int64_t i) { to[i] = from[row[i / units] * units + i % units]; });
}

/* dx[i] = dy[place[i]], 0 where there is none; dy NULL: zeros. */
template <class T>
static ct_status scatter(ct_exec *ex, int64_t most, int64_t units, const int32_t *place,
                         const void *dy, void *dx)
{
    const T *from = (const T *)dy;
    T *to = (T *)dx;

    return ct_cuda_map(
        ex->stream, "Filter backward", most * units, KERNEL(int64_t i) {
            int32_t k = place[i / units];
            T none = {};

            to[i] = ((k >= 0) && (from != NULL)) ? from[k * units + i % units] : none;
        });
}

static ct_status filter_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const int32_t *row = (const int32_t *)in->buffer[CT_FILTER_ROWS].data;
    int64_t n;

    CT_TRY(choose(l, in, ex, &n));
    for (int t = 0; t < l->n_top; t++) {
        const ct_tensor *x = &in->bottom[t]->data;
        int64_t bytes = (int64_t)ct_filter_bytes(x);
        ct_shape shape = x->shape;
        void *y = in->top[t]->data.data;

        shape.dim[0] = n;
        ct_blob_set_like(in->top[t], &shape, x);
        CT_TRY((bytes % 16 == 0)  ? gather<sixteen_bytes>(ex, n, bytes / 16, row, x->data, y)
               : (bytes % 4 == 0) ? gather<uint32_t>(ex, n, bytes / 4, row, x->data, y)
                                  : gather<uint16_t>(ex, n, bytes / 2, row, x->data, y));
    }
    return CT_OK;
}

static ct_status filter_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    for (int t = 0; t < l->n_top; t++) {
        const ct_tensor *dx = &in->bottom[t]->diff;
        int64_t most = dim_of(in->bottom[t], 0), bytes = (int64_t)ct_filter_bytes(dx);
        const int32_t *place = (const int32_t *)in->buffer[CT_FILTER_ROWS].data + most;
        const void *dy = in->top[t]->diff.data;

        if (dx->data == NULL) continue;
        CT_TRY((bytes % 16 == 0)  ? scatter<sixteen_bytes>(ex, most, bytes / 16, place, dy, dx->data)
               : (bytes % 4 == 0) ? scatter<uint32_t>(ex, most, bytes / 4, place, dy, dx->data)
                                  : scatter<uint16_t>(ex, most, bytes / 2, place, dy, dx->data));
    }
    return CT_OK;
}

const ct_device_override ct_cuda_filter = { "Filter", NULL, filter_forward, filter_backward };
