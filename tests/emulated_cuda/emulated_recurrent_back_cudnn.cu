/* The gradients of cuDNN's recurrent layers as loops, sums in double. */
#include "emulated_recurrent.cuh"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

static void must(bool holds, const char *what)
{
    if (holds) return;
    fprintf(stderr, "emulated cuDNN: recurrent layer: %s\n", what);
    abort();
}

static void must_be_next(const ct_emulated_pass &p, int next)
{
    must((p.first->mark == CT_EMULATED_MARK) && (p.first->steps == p.steps) &&
             (p.first->batch == p.batch),
         "no forward in training came before this");
    must(p.first->next == next, "gradients out of order");
    must(p.first->check == p.checked(), "what forward left was written over");
    p.first->next = next + 1;
}

/* Gradients of the sums of a column's step; dc: of c behind it, then of c before. */
static void step_back(const ct_emulated_pass &p, int64_t row, const double *dh, double *dc)
{
    int64_t hidden = p.r.hidden, block = p.batch * hidden;
    const double *a = p.act + row * p.r.rows(), *c = p.cell + row * hidden;
    double *d = p.d_sums + row * p.r.rows();

    for (int64_t k = 0; k < hidden; k++) {
        double i = a[k], f, g, o, t, cell;

        if (!p.r.lstm) {
            d[k] = dh[k] * (1.0 - i * i);
            continue;
        }
        f = a[hidden + k], g = a[2 * hidden + k], o = a[3 * hidden + k];
        t = tanh(c[block + k]);
        cell = dc[k] + dh[k] * o * (1.0 - t * t);
        d[k] = cell * g * i * (1.0 - i);
        d[hidden + k] = cell * c[k] * f * (1.0 - f);
        d[2 * hidden + k] = cell * i * (1.0 - g * g);
        d[3 * hidden + k] = dh[k] * t * o * (1.0 - o);
        dc[k] = cell * f;
    }
}

/* out[n] = sums over the rows of matrix `first` and its gates' others, of d. */
static void through(const ct_emulated_pass &p, int64_t first, int64_t n, const double *d,
                    double *out)
{
    for (int64_t i = 0; i < n; i++) {
        out[i] = 0.0;
        for (int64_t row = 0; row < p.r.rows(); row++) {
            int64_t w = p.r.matrix(first + row / p.r.hidden) + row % p.r.hidden * n;

            out[i] += p.operand(p.weights, w + i) * d[row];
        }
    }
}

static void run_back(const ct_emulated_pass &p, const void *dy, void *dx, const void *dhy,
                     void *dhx, const void *dcy, void *dcx)
{
    int64_t hidden = p.r.hidden, block = p.batch * hidden;
    std::vector<double> dh((size_t)block), dc((size_t)block), din((size_t)p.r.inputs);

    for (int64_t i = 0; i < block; i++) {
        dh[(size_t)i] = (dhy != NULL) ? p.of.get(dhy, i) : 0.0;
        dc[(size_t)i] = (dcy != NULL) ? p.of.get(dcy, i) : 0.0;
    }
    for (int64_t row = p.steps * p.batch - 1; row >= 0; row--) {
        double *of = dh.data() + row % p.batch * hidden;

        for (int64_t k = 0; k < hidden; k++) of[k] += p.of.get(dy, row * hidden + k);
        step_back(p, row, of, dc.data() + row % p.batch * hidden);
        through(p, p.r.gates(), hidden, p.d_sums + row * p.r.rows(), of);
        through(p, 0, p.r.inputs, p.d_sums + row * p.r.rows(), din.data());
        for (int64_t i = 0; i < p.r.inputs; i++) p.of.put(dx, row * p.r.inputs + i, din[(size_t)i]);
    }
    for (int64_t i = 0; i < block; i++) {
        if (dhx != NULL) p.of.put(dhx, i, dh[(size_t)i]);
        if (dcx != NULL) p.of.put(dcx, i, dc[(size_t)i]);
    }
}

cudnnStatus_t cudnnRNNBackwardData_v8(cudnnHandle_t, cudnnRNNDescriptor_t r, const int32_t *,
                                      cudnnRNNDataDescriptor_t y_of, const void *y, const void *dy,
                                      cudnnRNNDataDescriptor_t x_of, void *dx,
                                      cudnnTensorDescriptor_t h, const void *, const void *dhy,
                                      void *dhx, cudnnTensorDescriptor_t c, const void *,
                                      const void *dcy, void *dcx, size_t weight_bytes,
                                      const void *weights, size_t work_bytes, void *work,
                                      size_t reserve_bytes, void *reserve)
{
    ct_emulated_pass p = ct_emulated_pass_of(r, x_of);

    if (!ct_emulated_is_data(x_of, p, r->inputs) || !ct_emulated_is_data(y_of, p, r->hidden) ||
        !ct_emulated_is_state(h, p) || (r->lstm && !ct_emulated_is_state(c, p)) || (y == NULL) ||
        (dy == NULL) || (dx == NULL) || (dx == dy) ||
        !ct_emulated_has_rooms(p, weight_bytes, weights, work_bytes, work, true, reserve_bytes,
                               reserve))
        return CUDNN_STATUS_BAD_PARAM;
    p.weights = weights;
    ct_emulated_give(ct_emulated_cudnn_stream, [=]() {
        ct_emulated_pass here = p;

        ct_emulated_open();
        memset(work, 0xff, 320);
        here.place(reserve);
        must_be_next(here, CT_EMULATED_BY_DATA);
        run_back(here, dy, dx, dhy, dhx, dcy, dcx);
        ct_emulated_close();
    });
    return CUDNN_STATUS_SUCCESS;
}

/* Adds to dw what d_sums and the operand of columns `n`, numbers `from` of each row, make. */
template <class F>
static void add_products(const ct_emulated_pass &p, int64_t first, int64_t n, void *dw, F from)
{
    for (int64_t row = 0; row < p.r.rows(); row++) {
        int64_t at = p.r.matrix(first + row / p.r.hidden) + row % p.r.hidden * n;

        for (int64_t i = 0; i < n; i++) {
            double sum = 0.0;

            for (int64_t k = 0; k < p.steps * p.batch; k++)
                sum += p.d_sums[k * p.r.rows() + row] * from(k, i);
            p.of.put(dw, at + i, p.of.get(dw, at + i) + sum);
        }
    }
}

static void run_weights(const ct_emulated_pass &p, const void *x, const void *hx, const void *y,
                        void *dw)
{
    int64_t hidden = p.r.hidden;

    add_products(p, 0, p.r.inputs, dw,
                 [&](int64_t k, int64_t i) { return p.operand(x, k * p.r.inputs + i); });
    add_products(p, p.r.gates(), hidden, dw, [&](int64_t k, int64_t i) {
        if (k >= p.batch) return p.operand(y, (k - p.batch) * hidden + i);
        return (hx != NULL) ? p.operand(hx, k * hidden + i) : 0.0;
    });
    for (int64_t row = 0; row < p.r.rows(); row++) {
        int64_t at = p.r.bias(row / hidden) + row % hidden;
        double sum = 0.0;

        for (int64_t k = 0; k < p.steps * p.batch; k++) sum += p.d_sums[k * p.r.rows() + row];
        p.of.put(dw, at, p.of.get(dw, at) + sum);
    }
}

/* It only adds. */
cudnnStatus_t cudnnRNNBackwardWeights_v8(cudnnHandle_t, cudnnRNNDescriptor_t r,
                                         cudnnWgradMode_t mode, const int32_t *,
                                         cudnnRNNDataDescriptor_t x_of, const void *x,
                                         cudnnTensorDescriptor_t h, const void *hx,
                                         cudnnRNNDataDescriptor_t y_of, const void *y,
                                         size_t weight_bytes, void *dweights, size_t work_bytes,
                                         void *work, size_t reserve_bytes, void *reserve)
{
    ct_emulated_pass p = ct_emulated_pass_of(r, x_of);

    if (mode != CUDNN_WGRAD_MODE_ADD) return CUDNN_STATUS_NOT_SUPPORTED;
    if (!ct_emulated_is_data(x_of, p, r->inputs) || !ct_emulated_is_data(y_of, p, r->hidden) ||
        !ct_emulated_is_state(h, p) || (x == NULL) || (y == NULL) ||
        !ct_emulated_has_rooms(p, weight_bytes, dweights, work_bytes, work, true, reserve_bytes,
                               reserve))
        return CUDNN_STATUS_BAD_PARAM;
    ct_emulated_give(ct_emulated_cudnn_stream, [=]() {
        ct_emulated_pass here = p;

        ct_emulated_open();
        memset(work, 0xff, 320);
        here.place(reserve);
        must_be_next(here, CT_EMULATED_BY_WEIGHTS);
        run_weights(here, x, hx, y, dweights);
        ct_emulated_close();
    });
    return CUDNN_STATUS_SUCCESS;
}
