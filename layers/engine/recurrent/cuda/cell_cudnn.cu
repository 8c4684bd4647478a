/* What cuDNN is told of a recurrent layer: made once, and where it cannot, known from then on. */
#include "layers/engine/cudnn.cuh"
#include "framework/base/memory.h"
#include "framework/tensor/cuda/launch.cuh"

#include "layers/engine/recurrent/recurrent.h"

/* cuDNN's description of a recurrent layer. */

enum { CT_CELL_GATES = 4, CT_CELL_MATRICES = 2 * CT_CELL_GATES };

typedef struct ct_cell_dnn {
    ct_cell_desc desc;
    cudnnRNNDescriptor_t rnn;
    cudnnRNNDataDescriptor_t x, y;
    cudnnTensorDescriptor_t state;
    size_t weights, work, reserve; /* bytes */
    bool gaps;                     /* parts of the weights' block belong to no weight */
    int64_t w[CT_CELL_MATRICES],
        b[CT_CELL_GATES]; /* its gates' places in the block: of W_x, of W_h  */
    bool there;
} ct_cell_dnn;

static inline int ct_cell_gates(const ct_cell_desc *d)
{
    return d->lstm ? CT_CELL_GATES : 1;
}

static inline bool ct_cell_is_narrow(const ct_cell_desc *d)
{
    return ct_operand_size(d->operand) == sizeof(uint16_t);
}

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

/* That of d, until the next call; NULL: no memory. */
static const ct_cell_dnn *ct_cell_dnn_find(const ct_cell_desc *d)
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

static bool ct_cell_dnn_supports(const ct_cell_desc *d)
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

/* ---- LSTM and h = tanh(sums) by cuDNN's recurrent layers: one layer, one direction, sequences of
 * equal length, which lie packed as ours do.
 *
 * It wants all weights in one block, each gate's rows by themselves, its gates in the order i, f,
 * g, o (ours: i, f, o, g), and gives gradients so: kernels of ours pack and unpack. It adds to the
 * block of gradients, which is zeroed before; ours are added to as the layer says. What `cont`
 * keeps of the states is taken before its first step, and of their gradients behind it.
 *
 * Only its standard algorithm: whether the persistent ones run is not known before they do. Lengths
 * come from the description of x; the array of them on the device is not read since 8.9.1. */

/* Our gate's number among its: o and g change places. */
static int its_gate(int gate)
{
    return (gate < 2) ? gate : 5 - gate;
}

/* ---- memory */

/* Parts of a block, one behind the other: as cudaMalloc() aligns them. */
enum { ALIGN = 256 };

typedef struct carver {
    uintptr_t at;
} carver;

static carver carve(void *block)
{
    return { ((uintptr_t)block + ALIGN - 1) / ALIGN * ALIGN };
}

static void *part(carver *c, size_t bytes)
{
    void *at = (void *)c->at;

    c->at += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    return at;
}

static size_t bytes_of(const ct_cell_desc *d, int64_t n)
{
    return (size_t)n * ct_operand_size(d->operand);
}

/* In its type. h and c come before the first step. */
typedef struct kept {
    void *reserve, *h, *c;
} kept;

static kept keep_at(const ct_cell_dnn *p, carver *c)
{
    size_t state = bytes_of(&p->desc, p->desc.columns * p->desc.hidden);
    kept k;

    k.reserve = part(c, p->reserve);
    k.h = part(c, state);
    k.c = p->desc.lstm ? part(c, state) : NULL;
    return k;
}

/* What a pass works in; NULL: not in this one, or it is the caller's. */
typedef struct rooms {
    void *weights, *work, *x, *y, *c; /* c: behind the last step              */
    void *dweights, *dx, *dy, *d_after[2], *d_before[2];
} rooms;

static rooms forward_rooms(const ct_cell_dnn *p, carver *c)
{
    const ct_cell_desc *d = &p->desc;
    int64_t rows = d->steps * d->columns;
    rooms r = {};

    r.weights = part(c, p->weights);
    r.work = part(c, p->work);
    if (!ct_cell_is_narrow(d)) return r;
    r.x = part(c, bytes_of(d, rows * d->inputs));
    r.y = part(c, bytes_of(d, rows * d->hidden));
    if (d->lstm) r.c = part(c, bytes_of(d, d->columns * d->hidden));
    return r;
}

/* The gradients' in f32, too: where they are not wanted, or are not there. */
static rooms backward_rooms(const ct_cell_dnn *p, carver *c)
{
    const ct_cell_desc *d = &p->desc;
    int64_t rows = d->steps * d->columns;
    size_t state = bytes_of(d, d->columns * d->hidden);
    rooms r = forward_rooms(p, c);

    r.dweights = part(c, p->weights);
    r.dx = part(c, bytes_of(d, rows * d->inputs));
    r.dy = part(c, bytes_of(d, rows * d->hidden));
    for (int i = 0; i < (d->lstm ? 2 : 1); i++) {
        r.d_after[i] = part(c, state);
        r.d_before[i] = part(c, state);
    }
    return r;
}

static ct_cell_room room(const ct_cell_desc *d)
{
    const ct_cell_dnn *p = ct_cell_dnn_find(d);
    carver keep = { 0 }, work = { 0 };

    (void)keep_at(p, &keep);
    (void)(d->back ? backward_rooms(p, &work) : forward_rooms(p, &work));
    return { (size_t)keep.at + ALIGN, (size_t)work.at + ALIGN };
}

/* ---- kernels of ours */

/* Places of our gates in its block, in our order. */
struct gate_places {
    int64_t at[CT_CELL_GATES];
};

static gate_places places_of(const ct_cell_desc *d, const int64_t *its)
{
    gate_places g = {};

    for (int i = 0; i < ct_cell_gates(d); i++) g.at[i] = its[its_gate(i)];
    return g;
}

static ct_dtype dtype_of(const ct_cell_desc *d)
{
    return (d->operand == CT_OPERAND_BF16)  ? CT_BF16
           : (d->operand == CT_OPERAND_F16) ? CT_F16
                                            : CT_F32;
}

/* Numbers of a gate: `each`. */
static ct_status pack(const ct_cell_desc *d, ct_exec *ex, const int64_t *its, int64_t each,
                      const float *w, void *block)
{
    gate_places g = places_of(d, its);
    ct_numbers to = { block, dtype_of(d) };

    return ct_cuda_map(
        ex->stream, "recurrent weights", ct_cell_gates(d) * each,
        KERNEL(int64_t e) { to.put(g.at[e / each] + e % each, w[e]); });
}

static ct_status unpack(const ct_cell_desc *d, ct_exec *ex, const int64_t *its, int64_t each,
                        void *block, bool add, float *dw)
{
    gate_places g = places_of(d, its);
    ct_numbers from = { block, dtype_of(d) };

    if (dw == NULL) return CT_OK;
    return ct_cuda_map(
        ex->stream, "gradients of recurrent weights", ct_cell_gates(d) * each, KERNEL(int64_t e) {
            float v = from[g.at[e / each] + e % each];

            dw[e] = add ? dw[e] + v : v;
        });
}

static ct_status pack_weights(const ct_cell_dnn *p, ct_exec *ex, const ct_cell_args *a, void *block)
{
    const ct_cell_desc *d = &p->desc;

    if (p->gaps)
        CT_TRY(ct_cuda_check(cudaMemsetAsync(block, 0, p->weights, (cudaStream_t)ex->stream),
                             "recurrent weights"));
    CT_TRY(pack(d, ex, p->w, d->hidden * d->inputs, a->w_x, block));
    CT_TRY(pack(d, ex, p->b, d->hidden, a->b, block));
    return pack(d, ex, p->w + CT_CELL_GATES, d->hidden * d->hidden, a->w_h, block);
}

/* to = cont from; nothing of `from` where that is 0. Either may be of its type, and they the same.
 */
static ct_status keep_states(const ct_cell_desc *d, ct_exec *ex, const float *cont, ct_numbers from,
                             ct_numbers to)
{
    int64_t hidden = d->hidden;

    return ct_cuda_map(
        ex->stream, "continuation", d->columns * hidden, KERNEL(int64_t e) {
            float k = cont[e / hidden];

            to.put(e, (k == 0.0f) ? 0.0f : k * from[e]);
        });
}

static ct_status widen(const ct_cell_desc *d, ct_exec *ex, int64_t n, const void *from, float *to)
{
    ct_numbers x = { (void *)from, dtype_of(d) };

    return ct_cuda_map(
        ex->stream, "widening", n, KERNEL(int64_t i) { to[i] = x[i]; });
}

/* What it reads: `from`, or of 16 bits that rounded into `room`. */
static ct_status lend(const ct_cell_desc *d, ct_exec *ex, int64_t n, const float *from, void *room,
                      const void **lent_p)
{
    *lent_p = from;
    if (!ct_cell_is_narrow(d)) return CT_OK;
    *lent_p = room;
    return ct_cuda_narrow(ex->stream, d->operand, n, from, room);
}

/* ---- forward */

static ct_status run_forward(const ct_cell_dnn *p, const ct_cell_args *a, const kept *k,
                             const rooms *r, const void *x)
{
    bool narrow = ct_cell_is_narrow(&p->desc), lstm = p->desc.lstm;
    void *c = narrow ? r->c : a->after[1];

    return ct_cudnn_check(ct_dnn.p_cudnnRNNForward(
                              ct_dnn.handle, p->rnn,
                              p->desc.back ? CUDNN_FWD_MODE_TRAINING : CUDNN_FWD_MODE_INFERENCE,
                              NULL, p->x, x, p->y, narrow ? r->y : a->y, p->state, k->h, NULL,
                              lstm ? p->state : NULL, k->c, lstm ? c : NULL, p->weights, r->weights,
                              p->work, r->work, p->reserve, (p->reserve > 0) ? k->reserve : NULL),
                          "recurrent layer");
}

static ct_status forward(const ct_cell_desc *d, ct_exec *ex, const ct_cell_args *a)
{
    const ct_cell_dnn *p = ct_cell_dnn_find(d);
    int64_t rows = d->steps * d->columns, block = d->columns * d->hidden;
    carver keep = carve(a->keep), work = carve(a->work);
    kept k = keep_at(p, &keep);
    rooms r = forward_rooms(p, &work);
    void *state[2] = { k.h, k.c };
    const void *x;

    CT_TRY(pack_weights(p, ex, a, r.weights));
    for (int i = 0; i < (d->lstm ? 2 : 1); i++)
        CT_TRY(keep_states(d, ex, a->cont, ct_numbers_at(a->before[i], CT_F32),
                           { state[i], dtype_of(d) }));
    CT_TRY(lend(d, ex, rows * d->inputs, a->x, r.x, &x));
    CT_TRY(ct_cudnn_follow(ex));
    CT_TRY(run_forward(p, a, &k, &r, x));
    if (ct_cell_is_narrow(d)) CT_TRY(widen(d, ex, rows * d->hidden, r.y, a->y));
    if (ct_cell_is_narrow(d) && d->lstm) CT_TRY(widen(d, ex, block, r.c, a->after[1]));
    return ex->dev->copy(ex->stream, a->after[0], a->y + (rows - d->columns) * d->hidden,
                         (size_t)block * sizeof(float));
}

/* ---- backward */

/* The gradients that it starts from; dy is always read. */
static ct_status lend_gradients(const ct_cell_desc *d, ct_exec *ex, const ct_cell_args *a,
                                const rooms *r, const void **dy_p, const void *d_after[2])
{
    int64_t n = d->steps * d->columns * d->hidden;

    d_after[0] = d_after[1] = NULL;
    for (int i = 0; i < (d->lstm ? 2 : 1); i++) {
        if (a->d_after[i] != NULL)
            CT_TRY(lend(d, ex, d->columns * d->hidden, a->d_after[i], r->d_after[i], &d_after[i]));
    }
    if (a->dy != NULL) return lend(d, ex, n, a->dy, r->dy, dy_p);
    *dy_p = r->dy;
    return ct_cuda_check(cudaMemsetAsync(r->dy, 0, bytes_of(d, n), (cudaStream_t)ex->stream),
                         "recurrent layer");
}

/* By data first: it makes what the gradients by weights are made of. */
static ct_status run_backward(const ct_cell_dnn *p, ct_exec *ex, const kept *k, const rooms *r,
                              const void *x, const void *y, const void *dy,
                              const void *const d_after[2], void *dx)
{
    CT_TRY(ct_cudnn_check(ct_dnn.p_cudnnRNNBackwardData_v8(
                              ct_dnn.handle, p->rnn, NULL, p->y, y, dy, p->x, dx, p->state, k->h,
                              d_after[0], r->d_before[0], (k->c != NULL) ? p->state : NULL, k->c,
                              d_after[1], r->d_before[1], p->weights, r->weights, p->work, r->work,
                              p->reserve, k->reserve),
                          "recurrent layer backward"));
    CT_TRY(ct_cuda_check(cudaMemsetAsync(r->dweights, 0, p->weights, (cudaStream_t)ex->stream),
                         "recurrent layer"));
    return ct_cudnn_check(
        ct_dnn.p_cudnnRNNBackwardWeights_v8(ct_dnn.handle, p->rnn, CUDNN_WGRAD_MODE_ADD, NULL, p->x,
                                            x, p->state, k->h, p->y, y, p->weights, r->dweights,
                                            p->work, r->work, p->reserve, k->reserve),
        "recurrent layer backward");
}

static ct_status put_gradients(const ct_cell_dnn *p, ct_exec *ex, const ct_cell_args *a,
                               const rooms *r)
{
    const ct_cell_desc *d = &p->desc;

    for (int i = 0; i < (d->lstm ? 2 : 1); i++) {
        if (a->d_before[i] != NULL)
            CT_TRY(keep_states(d, ex, a->cont, { r->d_before[i], dtype_of(d) },
                               ct_numbers_at(a->d_before[i], CT_F32)));
    }
    if ((a->dx != NULL) && ct_cell_is_narrow(d))
        CT_TRY(widen(d, ex, d->steps * d->columns * d->inputs, r->dx, a->dx));
    CT_TRY(unpack(d, ex, p->w, d->hidden * d->inputs, r->dweights, a->add_w_x, a->dw_x));
    CT_TRY(unpack(d, ex, p->b, d->hidden, r->dweights, a->add_b, a->db));
    return unpack(d, ex, p->w + CT_CELL_GATES, d->hidden * d->hidden, r->dweights, a->add_w_h,
                  a->dw_h);
}

static ct_status backward(const ct_cell_desc *d, ct_exec *ex, const ct_cell_args *a)
{
    const ct_cell_dnn *p = ct_cell_dnn_find(d);
    int64_t rows = d->steps * d->columns;
    carver keep = carve(a->keep), work = carve(a->work);
    kept k = keep_at(p, &keep);
    rooms r = backward_rooms(p, &work);
    const void *x, *y, *dy, *d_after[2];

    CT_TRY(pack_weights(p, ex, a, r.weights));
    CT_TRY(lend(d, ex, rows * d->inputs, a->x, r.x, &x));
    CT_TRY(lend(d, ex, rows * d->hidden, a->y, r.y, &y));
    CT_TRY(lend_gradients(d, ex, a, &r, &dy, d_after));
    CT_TRY(ct_cudnn_follow(ex));
    CT_TRY(run_backward(p, ex, &k, &r, x, y, dy, d_after,
                        (ct_cell_is_narrow(d) || (a->dx == NULL)) ? r.dx : (void *)a->dx));
    return put_gradients(p, ex, a, &r);
}

const ct_cell_impl ct_cell_cudnn = { "cudnn", ct_cell_dnn_supports, room, forward, backward };
