/* cuDNN's recurrent layers as loops, sums in double: one layer, one direction, sequences of equal
 * length, packed. Weights lie in an order of its own, with gaps. What forward leaves for backward
 * is checked there: that it was run in training, for the same shape, and that nobody wrote into it;
 * the gradient by data comes first, and once. What h rounds to its type is what the next step
 * reads. */
#include "emulated_recurrent.cuh"

#include <cmath>
#include <cstdlib>
#include <vector>

enum { VERSION = 91900 };

/* ---- descriptions */

size_t cudnnGetVersion(void)
{
    const char *version = getenv("CORTADO_EMULATED_CUDNN");
    long v = (version != NULL) ? atol(version) : 0;

    return (v > 1) ? (size_t)v : (size_t)VERSION;
}

cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t t, cudnnDataType_t type, int n,
                                         const int dim[], const int step[])
{
    if ((n != 3) || (dim[0] < 1) || (dim[1] < 1) || (dim[2] < 1)) return CUDNN_STATUS_BAD_PARAM;
    if ((step[2] != 1) || (step[1] != dim[2]) || (step[0] != dim[1] * dim[2]))
        return CUDNN_STATUS_NOT_SUPPORTED;
    *t = { CUDNN_TENSOR_NCHW, type, dim[0], dim[1], dim[2], 1 };
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetTensorNdDescriptor(cudnnTensorDescriptor_t t, int most, cudnnDataType_t *type,
                                         int *n, int dim[], int step[])
{
    if (most < 3) return CUDNN_STATUS_BAD_PARAM;
    *type = t->type;
    *n = 3;
    dim[0] = (int)t->n, dim[1] = (int)t->c, dim[2] = (int)t->h;
    step[0] = dim[1] * dim[2], step[1] = dim[2], step[2] = 1;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateRNNDescriptor(cudnnRNNDescriptor_t *r)
{
    *r = new ct_emulated_rnn();
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroyRNNDescriptor(cudnnRNNDescriptor_t r)
{
    delete r;
    return CUDNN_STATUS_SUCCESS;
}

/* Sums of any type here are in f32; without a projection its size is that of the states. */
cudnnStatus_t cudnnSetRNNDescriptor_v8(cudnnRNNDescriptor_t r, cudnnRNNAlgo_t how,
                                       cudnnRNNMode_t cell, cudnnRNNBiasMode_t bias,
                                       cudnnDirectionMode_t direction, cudnnRNNInputMode_t input,
                                       cudnnDataType_t type, cudnnDataType_t sums,
                                       cudnnMathType_t math, int32_t inputs, int32_t hidden,
                                       int32_t projection, int32_t layers, cudnnDropoutDescriptor_t,
                                       uint32_t flags)
{
    bool late = (type == CUDNN_DATA_BFLOAT16) && (cudnnGetVersion() < 91300);

    if ((inputs < 1) || (hidden < 1) || (projection < 1) || (layers < 1))
        return CUDNN_STATUS_BAD_PARAM;
    if ((how != CUDNN_RNN_ALGO_STANDARD) || ((cell != CUDNN_LSTM) && (cell != CUDNN_RNN_TANH)) ||
        (bias != CUDNN_RNN_SINGLE_INP_BIAS) || (direction != CUDNN_UNIDIRECTIONAL) ||
        (input != CUDNN_LINEAR_INPUT) || (sums != CUDNN_DATA_FLOAT) || (projection != hidden) ||
        (layers != 1) || (flags != CUDNN_RNN_PADDED_IO_DISABLED) || late)
        return CUDNN_STATUS_NOT_SUPPORTED;
    r->lstm = (cell == CUDNN_LSTM);
    r->tf32 = (type == CUDNN_DATA_FLOAT) && (math != CUDNN_FMA_MATH);
    r->type = type;
    r->inputs = inputs;
    r->hidden = hidden;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateRNNDataDescriptor(cudnnRNNDataDescriptor_t *d)
{
    *d = new ct_emulated_sequences();
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroyRNNDataDescriptor(cudnnRNNDataDescriptor_t d)
{
    delete d;
    return CUDNN_STATUS_SUCCESS;
}

/* Packed ones come in the order of their lengths; those of unequal length are not made here. */
cudnnStatus_t cudnnSetRNNDataDescriptor(cudnnRNNDataDescriptor_t d, cudnnDataType_t type,
                                        cudnnRNNDataLayout_t layout, int longest, int batch,
                                        int size, const int length[], void *)
{
    if ((longest < 1) || (batch < 1) || (size < 1)) return CUDNN_STATUS_BAD_PARAM;
    if (layout != CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED) return CUDNN_STATUS_NOT_SUPPORTED;
    for (int i = 0; i < batch; i++) {
        if ((length[i] < 1) || (length[i] > longest) || ((i > 0) && (length[i] > length[i - 1])))
            return CUDNN_STATUS_BAD_PARAM;
        if (length[i] != longest) return CUDNN_STATUS_NOT_SUPPORTED;
    }
    *d = { type, longest, batch, size };
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t handle, cudnnRNNDescriptor_t r,
                                         size_t *bytes)
{
    if (handle == NULL) return CUDNN_STATUS_BAD_PARAM;
    *bytes = (size_t)r->numbers() * r->size();
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetRNNWeightParams(cudnnHandle_t handle, cudnnRNNDescriptor_t r, int32_t layer,
                                      size_t bytes, const void *weights, int32_t id,
                                      cudnnTensorDescriptor_t matrix, void **matrix_at,
                                      cudnnTensorDescriptor_t bias, void **bias_at)
{
    char *block = (char *)weights;

    if ((handle == NULL) || (layer != 0) || (weights == NULL) || (id < 0) ||
        (id >= 2 * r->gates()) || (bytes < (size_t)r->numbers() * r->size()))
        return CUDNN_STATUS_BAD_PARAM;
    *matrix = { CUDNN_TENSOR_NCHW, r->type, 1, r->hidden, r->columns(id), 1 };
    *matrix_at = block + (size_t)r->matrix(id) * r->size();
    *bias_at = NULL;
    if (id >= r->gates()) return CUDNN_STATUS_SUCCESS;
    *bias = { CUDNN_TENSOR_NCHW, r->type, 1, r->hidden, 1, 1 };
    *bias_at = block + (size_t)r->bias(id) * r->size();
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t handle, cudnnRNNDescriptor_t r,
                                        cudnnForwardMode_t mode, cudnnRNNDataDescriptor_t x,
                                        size_t *work, size_t *reserve)
{
    if ((handle == NULL) || (work == NULL) || (x->type != r->type) || (x->size != r->inputs))
        return CUDNN_STATUS_BAD_PARAM;
    *work = 320;
    if (reserve != NULL)
        *reserve =
            (mode == CUDNN_FWD_MODE_TRAINING) ? ct_emulated_pass_of(r, x).reserve_bytes() : 0;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- forward */

static double squashed(double v)
{
    return 1.0 / (1.0 + exp(-v));
}

/* sums[rows] of column n: W x + b + R h; h NULL: zeros. */
static void add_up(const ct_emulated_pass &p, const void *x, int64_t x_at, const void *h,
                   int64_t h_at, double *sums)
{
    const ct_emulated_rnn &r = p.r;

    for (int64_t row = 0; row < r.rows(); row++) {
        int64_t gate = row / r.hidden, k = row % r.hidden;
        int64_t w = r.matrix(gate) + k * r.inputs, u = r.matrix(gate + r.gates()) + k * r.hidden;
        double sum = p.of.get(p.weights, r.bias(gate) + k);

        for (int64_t i = 0; i < r.inputs; i++)
            sum += p.operand(p.weights, w + i) * p.operand(x, x_at + i);
        for (int64_t i = 0; (h != NULL) && (i < r.hidden); i++)
            sum += p.operand(p.weights, u + i) * p.operand(h, h_at + i);
        sums[row] = sum;
    }
}

/* From sums to activations, of a column: the new h. c: H before, and H behind. */
static void step(const ct_emulated_pass &p, double *a, const double *before, double *c, void *y,
                 int64_t at)
{
    int64_t hidden = p.r.hidden;

    for (int64_t k = 0; k < hidden; k++) {
        double *i = a + k, *f = i + hidden, *g = f + hidden, *o = g + hidden;

        if (!p.r.lstm) {
            *i = tanh(*i);
            p.of.put(y, at + k, *i);
            continue;
        }
        *i = squashed(*i);
        *f = squashed(*f);
        *g = tanh(*g);
        *o = squashed(*o);
        c[k] = *f * before[k] + *i * *g;
        p.of.put(y, at + k, *o * tanh(c[k]));
    }
}

static void run_forward(const ct_emulated_pass &p, const void *x, void *y, const void *hx, void *hy,
                        const void *cx, void *cy)
{
    int64_t hidden = p.r.hidden, block = p.batch * hidden, last = (p.steps - 1) * block;

    for (int64_t i = 0; i < block; i++) p.cell[i] = (cx != NULL) ? p.of.get(cx, i) : 0.0;
    for (int64_t row = 0; row < p.steps * p.batch; row++) {
        bool early = (row < p.batch);
        double *c = p.cell + row * hidden;

        add_up(p, x, row * p.r.inputs, early ? hx : y, (early ? row : row - p.batch) * hidden,
               p.act + row * p.r.rows());
        step(p, p.act + row * p.r.rows(), c, c + block, y, row * hidden);
    }
    for (int64_t i = 0; (hy != NULL) && (i < block); i++) p.of.put(hy, i, p.of.get(y, last + i));
    for (int64_t i = 0; (cy != NULL) && (i < block); i++)
        p.of.put(cy, i, p.cell[p.steps * block + i]);
}

cudnnStatus_t cudnnRNNForward(cudnnHandle_t, cudnnRNNDescriptor_t r, cudnnForwardMode_t mode,
                              const int32_t *, cudnnRNNDataDescriptor_t x_of, const void *x,
                              cudnnRNNDataDescriptor_t y_of, void *y, cudnnTensorDescriptor_t h,
                              const void *hx, void *hy, cudnnTensorDescriptor_t c, const void *cx,
                              void *cy, size_t weight_bytes, const void *weights, size_t work_bytes,
                              void *work, size_t reserve_bytes, void *reserve)
{
    ct_emulated_pass p = ct_emulated_pass_of(r, x_of);
    bool training = (mode == CUDNN_FWD_MODE_TRAINING);

    if (!ct_emulated_is_data(x_of, p, r->inputs) || !ct_emulated_is_data(y_of, p, r->hidden) ||
        !ct_emulated_is_state(h, p) || (r->lstm && !ct_emulated_is_state(c, p)) || (x == NULL) ||
        (y == NULL) || (x == y) ||
        !ct_emulated_has_rooms(p, weight_bytes, weights, work_bytes, work, training, reserve_bytes,
                               reserve))
        return CUDNN_STATUS_BAD_PARAM;
    p.weights = weights;
    ct_emulated_give(ct_emulated_cudnn_stream, [=]() {
        std::vector<char> own(training ? 0 : p.reserve_bytes());
        ct_emulated_pass here = p;

        ct_emulated_open();
        memset(work, 0xff, 320);
        here.place(training ? reserve : own.data());
        run_forward(here, x, y, hx, hy, cx, cy);
        if (training)
            *here.first = { CT_EMULATED_MARK, here.checked(), p.steps, p.batch,
                            CT_EMULATED_BY_DATA };
        ct_emulated_close();
    });
    return CUDNN_STATUS_SUCCESS;
}
