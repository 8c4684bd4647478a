/* Samples and rows by index: BatchReindex, Embed and Filter. */
#include "layers/cuda/layer_cuda.cuh"

/* Buffer 0 has the m indices, then their order by index (m, stable), then where each of them begins
 * in it for backward (n + 1): ct_index_ints(). */

/* per_sample 0: of BatchReindex. */
static ct_status index_fail(const ct_layer *l, const ct_exec *ex, float value, int64_t at,
                            int64_t per_sample, int64_t n)
{
    if (per_sample != 0) return ct_index_fail(l, ex, value, at, per_sample, n);
    return CT_LAYER_FAIL(l, CT_ERR_DATA,
                         "index %lld of batch %lld is %g, not a whole number in 0..%lld",
                         (long long)at, (long long)ex->micro_step, (double)value,
                         (long long)(n - 1));
}

/* Where element i stands in order of index: before it are all that are smaller, and equal ones that
 * come earlier. That compares each with each, which is nothing for the words of a batch. */
static ct_status sort_few(ct_exec *ex, int64_t m, int64_t n, int32_t *index)
{
    int32_t *order = index + m, *start = order + m;

    CT_TRY(ct_cuda_map(
        ex->stream, "order of indices", m, KERNEL(int64_t i) {
            int32_t mine = index[i], at = 0;

            for (int64_t k = 0; k < m; k++)
                at += (index[k] < mine) || ((index[k] == mine) && (k < i));
            order[at] = (int32_t)i;
        }));
    return ct_cuda_map(
        ex->stream, "starts of indices", n + 1, KERNEL(int64_t r) {
            int64_t low = 0, high = m;

            while (low < high) {
                int64_t mid = (low + high) / 2;

                if (index[order[mid]] < r)
                    low = mid + 1;
                else
                    high = mid;
            }
            start[r] = (int32_t)low;
        });
}

/* Many are sorted by the host, which waits for them. */
static ct_status sort_many(ct_exec *ex, int64_t m, int64_t n, int32_t *index)
{
    size_t ints = (size_t)(2 * m + n + 1);
    int32_t *host = (int32_t *)ct_cuda_stage(ints * sizeof(*host)), *order = host + m,
            *start = order + m;

    if (host == NULL) return CT_ERR_NOMEM;
    CT_TRY(ex->dev->to_host(ex->stream, host, index, (size_t)m * sizeof(*host)));
    memset(start, 0, (size_t)(n + 1) * sizeof(*start));
    for (int64_t i = 0; i < m; i++) start[host[i] + 1]++;
    for (int64_t k = 0; k < n; k++) start[k + 1] += start[k];
    for (int64_t i = 0; i < m; i++) order[start[host[i]]++] = (int32_t)i;
    for (int64_t k = n; k > 0; k--) start[k] = start[k - 1]; /* each had moved to the next one's */
    start[0] = 0;
    return ex->dev->from_host(ex->stream, index, host, ints * sizeof(*host));
}

/* Checks and sorts. What is no index is told of at the end of the pass, and is 0 until then. */
static ct_status read_index(const ct_layer *l, ct_instance *in, ct_exec *ex, const float *value,
                            int64_t per_sample, int64_t m, int64_t n, int32_t *index)
{
    const int64_t few = 1 << 14;
    fault_word fault;

    CT_TRY(check_begin(in, ex, &fault));
    CT_TRY(ct_cuda_map(
        ex->stream, "indices", m, KERNEL(int64_t i) {
            int32_t found;
            bool good = class_of(value[i], n, &found);

            index[i] = good ? found : 0;
            if (!good) fault.put(i, value[i]);
        }));
    CT_TRY(checked(l, in, ex, &fault, per_sample, n, index_fail));
    return (m <= few) ? sort_few(ex, m, n, index) : sort_many(ex, m, n, index);
}

/* to[r] (+)= the rows of `from` whose index is r, in their order. */
static ct_status add_rows(ct_exec *ex, int64_t n, int64_t m, int64_t row, const int32_t *index,
                          const float *from, bool add, float *to)
{
    const int32_t *order = index + m, *start = order + m;

    return ct_cuda_map(
        ex->stream, "rows by index", n * row, KERNEL(int64_t e) {
            int64_t r = e / row, c = e % row;
            float sum = add ? to[e] : 0.0f;

            for (int32_t k = start[r]; k < start[r + 1]; k++) sum += from[order[k] * row + c];
            to[e] = sum;
        });
}

static ct_status reindex_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    int64_t m = dim_of(in->top[0], 0), n = dim_of(in->bottom[0], 0);
    int64_t row = ct_shape_count(&in->top[0]->data.shape, 1, -1);
    int32_t *index = (int32_t *)in->buffer[0].data;
    const float *x = ct_blob_data(in->bottom[0]);
    float *y = ct_blob_data(in->top[0]);

    CT_TRY(read_index(l, in, ex, ct_blob_data(in->bottom[1]), 0, m, n, index));
    if (n == 0) return ct_device_zero(ex, m * row, y); /* no index is good: one is told of */
    return ct_cuda_map(
        ex->stream, "BatchReindex", m * row,
        KERNEL(int64_t e) { y[e] = x[index[e / row] * row + e % row]; });
}

static ct_status reindex_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    float *dx = ct_blob_diff(in->bottom[0]);

    (void)l;
    if (dx == NULL) return CT_OK;
    return add_rows(ex, dim_of(in->bottom[0], 0), dim_of(in->top[0], 0),
                    ct_shape_count(&in->top[0]->data.shape, 1, -1),
                    (const int32_t *)in->buffer[0].data, ct_blob_diff(in->top[0]), false, dx);
}

const ct_device_override ct_cuda_batch_reindex = { "BatchReindex", NULL, reindex_forward,
                                                   reindex_backward };

static ct_status embed_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    int64_t m = count_of(in->bottom[0]), k = l->weight[0].shape.dim[0];
    int64_t n = l->weight[0].shape.dim[1];
    int32_t *index = (int32_t *)in->buffer[0].data;
    const float *w = ct_blob_data(&in->weight[0]);
    const float *b = (l->n_weight > 1) ? ct_blob_data(&in->weight[1]) : NULL;
    float *y = ct_blob_data(in->top[0]);

    CT_TRY(read_index(l, in, ex, ct_blob_data(in->bottom[0]),
                      ct_index_per_sample(&in->bottom[0]->data.shape, ex), m, k, index));
    return ct_cuda_map(
        ex->stream, "Embed", m * n, KERNEL(int64_t e) {
            float v = w[index[e / n] * n + e % n];

            y[e] = (b != NULL) ? v + b[e % n] : v;
        });
}

static ct_status embed_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    int64_t m = count_of(in->bottom[0]), n = l->weight[0].shape.dim[1];
    const float *dy = ct_blob_diff(in->top[0]);
    float *dw = ct_blob_diff(&in->weight[0]);
    ct_view v = { m, n, 1, 0 };

    if (dw != NULL)
        CT_TRY(add_rows(ex, l->weight[0].shape.dim[0], m, n, (const int32_t *)in->buffer[0].data,
                        dy, ct_weight_beta(in, ex, 0) != 0.0f, dw));
    if ((l->n_weight < 2) || (ct_blob_diff(&in->weight[1]) == NULL)) return CT_OK;
    return ct_kernels(ex)->dot(ex, &v, dy, NULL, ct_weight_beta(in, ex, 1) != 0.0f,
                               ct_blob_diff(&in->weight[1]));
}

/* A part of the rows is the host's. */
static bool embed_can(const Ct__LayerParameter *p)
{
    return (p->part == NULL) || (p->part->split != CT__PARALLEL_LAYER_PARAMETER__SPLIT__INPUT);
}

const ct_device_override ct_cuda_embed = { "Embed", embed_can, embed_forward, embed_backward };

/* ---- Filter: the host counts who passes, for the shapes behind it; samples are moved where they
 * are. */

extern "C" {
#include "layers/types/drop.h"
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
        CT_TRY((bytes % 16 == 0) ? scatter<sixteen_bytes>(ex, most, bytes / 16, place, dy, dx->data)
               : (bytes % 4 == 0) ? scatter<uint32_t>(ex, most, bytes / 4, place, dy, dx->data)
                                  : scatter<uint16_t>(ex, most, bytes / 2, place, dy, dx->data));
    }
    return CT_OK;
}

const ct_device_override ct_cuda_filter = { "Filter", NULL, filter_forward, filter_backward };
