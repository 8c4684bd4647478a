/* What cuDNN is told of a recurrent layer: made once, and where it cannot, known from then on. */
#include "layers/engine/cudnn_plans.cuh"
#include "layers/engine/recurrent/cuda/cell_cudnn.cuh"

static ct_cudnn_plans<ct_cell_dnn> plans;

static bool is_same(const ct_cell_desc *a, const ct_cell_desc *b)
{
    return (a->lstm == b->lstm) && (a->steps == b->steps) && (a->columns == b->columns) &&
           (a->inputs == b->inputs) && (a->hidden == b->hidden) && (a->back == b->back) &&
           (a->operand == b->operand);
}

static cudnnDataType_t type_of(const ct_cell_desc *d)
{
    return (d->operand == CT_OPERAND_BF16)  ? CUDNN_DATA_BFLOAT16
           : (d->operand == CT_OPERAND_F16) ? CUDNN_DATA_HALF
                                            : CUDNN_DATA_FLOAT;
}

/* Without FMA_MATH it takes TF32 for f32. */
static cudnnMathType_t math_of(const ct_cell_desc *d)
{
    return ct_cell_is_narrow(d)              ? CUDNN_TENSOR_OP_MATH
           : (d->operand == CT_OPERAND_TF32) ? CUDNN_DEFAULT_MATH
                                             : CUDNN_FMA_MATH;
}

/* ---- descriptions */

static bool good(cudnnStatus_t st)
{
    return st == CUDNN_STATUS_SUCCESS;
}

/* Without a recurrent projection its size is that of the states; without dropout it needs none. */
static bool describe_layer(ct_cell_dnn *p)
{
    const ct_cell_desc *d = &p->desc;

    return good(ct_dnn.p_cudnnCreateRNNDescriptor(&p->rnn)) &&
           good(ct_dnn.p_cudnnSetRNNDescriptor_v8(
               p->rnn, CUDNN_RNN_ALGO_STANDARD, d->lstm ? CUDNN_LSTM : CUDNN_RNN_TANH,
               CUDNN_RNN_SINGLE_INP_BIAS, CUDNN_UNIDIRECTIONAL, CUDNN_LINEAR_INPUT, type_of(d),
               CUDNN_DATA_FLOAT, math_of(d), (int)d->inputs, (int)d->hidden, (int)d->hidden, 1,
               NULL, CUDNN_RNN_PADDED_IO_DISABLED));
}

static bool describe_data(cudnnRNNDataDescriptor_t *data, const ct_cell_desc *d, int64_t size)
{
    int *length = (int *)malloc((size_t)d->columns * sizeof(*length));
    bool ok = (length != NULL) && good(ct_dnn.p_cudnnCreateRNNDataDescriptor(data));

    for (int64_t i = 0; ok && (i < d->columns); i++) length[i] = (int)d->steps;
    ok = ok && good(ct_dnn.p_cudnnSetRNNDataDescriptor(
                   *data, type_of(d), CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED, (int)d->steps,
                   (int)d->columns, (int)size, length, NULL));
    free(length);
    return ok;
}

static bool describe_state(ct_cell_dnn *p)
{
    const ct_cell_desc *d = &p->desc;
    int dim[3] = { 1, (int)d->columns, (int)d->hidden };
    int step[3] = { dim[1] * dim[2], dim[2], 1 };

    return good(ct_dnn.p_cudnnCreateTensorDescriptor(&p->state)) &&
           good(ct_dnn.p_cudnnSetTensorNdDescriptor(p->state, type_of(d), 3, dim, step));
}

static bool measure(ct_cell_dnn *p)
{
    bool back = p->desc.back;

    return good(ct_dnn.p_cudnnGetRNNWeightSpaceSize(ct_dnn.handle, p->rnn, &p->weights)) &&
           good(ct_dnn.p_cudnnGetRNNTempSpaceSizes(
               ct_dnn.handle, p->rnn, back ? CUDNN_FWD_MODE_TRAINING : CUDNN_FWD_MODE_INFERENCE,
               p->x, &p->work, back ? &p->reserve : NULL));
}

/* Rows of so many numbers, one behind the other. */
static bool is_matrix(cudnnTensorDescriptor_t of, cudnnDataType_t type, int64_t rows,
                      int64_t columns)
{
    cudnnDataType_t has;
    int n, dim[3], step[3];

    return good(ct_dnn.p_cudnnGetTensorNdDescriptor(of, 3, &has, &n, dim, step)) && (n == 3) &&
           (has == type) && (dim[0] == 1) && (dim[1] == rows) && (dim[2] == columns) &&
           ((rows == 1) || (step[1] == columns)) && ((columns == 1) || (step[2] == 1));
}

/* Where matrix `id` of the block begins, and its bias where it has one. */
static bool place(ct_cell_dnn *p, char *block, int id, cudnnTensorDescriptor_t m,
                  cudnnTensorDescriptor_t v)
{
    const ct_cell_desc *d = &p->desc;
    int gates = ct_cell_gates(d);
    int64_t size = (int64_t)ct_operand_size(d->operand);
    void *matrix = NULL, *bias = NULL;

    if (!good(ct_dnn.p_cudnnGetRNNWeightParams(ct_dnn.handle, p->rnn, 0, p->weights, block, id, m,
                                               &matrix, v, &bias)) ||
        (matrix == NULL) ||
        !is_matrix(m, type_of(d), d->hidden, (id < gates) ? d->inputs : d->hidden))
        return false;
    p->w[(id < gates) ? id : CT_CELL_GATES + id - gates] = ((char *)matrix - block) / size;
    if (id >= gates) return bias == NULL;
    if ((bias == NULL) || !is_matrix(v, type_of(d), d->hidden, 1)) return false;
    p->b[id] = ((char *)bias - block) / size;
    return true;
}

/* Asked of a block that is there, for a moment: addresses of none are nobody's promise. */
static bool find_weights(ct_cell_dnn *p)
{
    const ct_cell_desc *d = &p->desc;
    int64_t numbers = ct_cell_gates(d) * d->hidden * (d->inputs + d->hidden + 1);
    cudnnTensorDescriptor_t m = NULL, v = NULL;
    void *block = NULL;
    bool ok = good(ct_dnn.p_cudnnCreateTensorDescriptor(&m)) &&
              good(ct_dnn.p_cudnnCreateTensorDescriptor(&v)) &&
              (cudaMalloc(&block, p->weights) == cudaSuccess);

    for (int id = 0; ok && (id < 2 * ct_cell_gates(d)); id++)
        ok = place(p, (char *)block, id, m, v);
    p->gaps = p->weights > (size_t)numbers * ct_operand_size(d->operand);
    if (block != NULL) (void)cudaFree(block);
    if (m != NULL) (void)ct_dnn.p_cudnnDestroyTensorDescriptor(m);
    if (v != NULL) (void)ct_dnn.p_cudnnDestroyTensorDescriptor(v);
    (void)cudaGetLastError(); /* of a block that there was no memory for */
    return ok;
}

static void drop(ct_cell_dnn *p)
{
    if (p->rnn != NULL) (void)ct_dnn.p_cudnnDestroyRNNDescriptor(p->rnn);
    if (p->x != NULL) (void)ct_dnn.p_cudnnDestroyRNNDataDescriptor(p->x);
    if (p->y != NULL) (void)ct_dnn.p_cudnnDestroyRNNDataDescriptor(p->y);
    if (p->state != NULL) (void)ct_dnn.p_cudnnDestroyTensorDescriptor(p->state);
    p->rnn = NULL;
    p->x = p->y = NULL;
    p->state = NULL;
}

static void make(ct_cell_dnn *p)
{
    const ct_cell_desc *d = &p->desc;

    p->there = describe_layer(p) && describe_data(&p->x, d, d->inputs) &&
               describe_data(&p->y, d, d->hidden) && describe_state(p) && measure(p) &&
               find_weights(p);
    if (!p->there) drop(p);
}

const ct_cell_dnn *ct_cell_dnn_find(const ct_cell_desc *d)
{
    return plans.find(d, is_same, make);
}

/* ---- which ones */

/* Its products run on several streams, and are repeatable where cuBLAS is held to workspaces of one
 * size: ":SIZE:COUNT", once. */
static bool repeats(void)
{
    const char *config = getenv("CUBLAS_WORKSPACE_CONFIG");
    int colons = 0;

    for (const char *c = config; (c != NULL) && (*c != '\0'); c++) colons += (*c == ':');
    return (colons == 2) && (config[0] == ':');
}

/* Recurrent layers in bf16: from 9.13 on. */
static bool knows(ct_operand operand)
{
    return (operand != CT_OPERAND_BF16) || (ct_dnn.p_cudnnGetVersion() >= 91300);
}

bool ct_cell_dnn_supports(const ct_cell_desc *d)
{
    int64_t size = (d->inputs > d->hidden) ? d->inputs : d->hidden;
    const ct_cell_dnn *p;

    if ((d->device != CT_DEVICE_CUDA) || (d->steps < 1) || (d->columns < 1) || (d->inputs < 1) ||
        (d->steps * d->columns * size > INT_MAX) || (CT_CELL_GATES * d->hidden * size > INT_MAX) ||
        (d->repeatable && !repeats()) || !ct_cudnn_is_there() || !knows(d->operand))
        return false;
    p = ct_cell_dnn_find(d);
    return (p != NULL) && p->there;
}
