/** @file recurrent.h  What LSTM and RNN share; private to layers/.
 *
 * Bottoms: x T x N x …, cont T x N, then N x … that every step sees (static) if it is there. With
 * expose_hidden the state before the first step follows, each 1 x N x H. Tops: T x N x H, then with
 * expose_hidden the state after the last step. T steps of N columns; in memory a step's columns
 * stand together. Without expose_hidden the state is carried from batch to batch.
 *
 * With s the sums of a step (G = 4 H of an LSTM, H of an RNN):
 *   s_t = W_x x_t + b + W_static x_static + W_h (cont_t h_t-1)
 * The first three are one product over all steps each, the last one product a step; in backward
 * everything but W_h's way back is over all steps at once.
 */
#ifndef CT_TYPES_RECURRENT_H
#define CT_TYPES_RECURRENT_H

#include "framework/net/layer.h"
#include "layers/engine/recurrent/recurrent.h"
#include "layers/types/product.h"

typedef struct ct_recurrent_state {
    int n_hidden; /* h; c of an LSTM   */
    int64_t hidden, sums;
    int64_t n_in, n_static;
    bool has_static, expose;
    int w_static, w_h; /* weights: W_x 0, b 1, then these */
} ct_recurrent_state;

/** Of an instance; set by ct_recurrent_reshape() and ct_recurrent_reserve(). */
typedef struct ct_recurrent_plan {
    int64_t steps, columns;
    bool packs;                     /* W_h is packed once a pass, for the products of all steps */
    int slot;                       /* buffer for it                                            */
    ct_gemm_desc forward, backward; /* product of a step, and of its way back                   */
    const char *name[CT_N_RUN];     /* what computes the products over all steps                */
    /* On devices: of W_x and b over all steps, of W_h by step but for its gradient, and of an RNN's
     * outputs over all. */
    ct_product inputs[CT_N_RUN], hidden[CT_N_RUN], outputs[CT_N_RUN];
    /* What runs all steps of h (and c) at once, in their place; NULL: they run one by one. */
    const ct_cell_impl *cell;
    ct_cell_desc cell_desc;
    int cell_keep, cell_work; /* buffers for it           */
    int carried[2];           /* buffers: h, c of an LSTM */
    size_t outputs_work;      /* bytes that an RNN's outputs work in */
} ct_recurrent_plan;

/** What a type has in either case; of its reshape, once shapes are known. */
typedef struct ct_recurrent_ways {
    /** Buffers and products of its own steps. */
    ct_status (*steps)(const ct_layer *l, ct_instance *in, ct_recurrent_plan *plan);
    /** Buffers where plan->cell runs them, which wants `room`. */
    void (*cell)(const ct_layer *l, ct_instance *in, ct_recurrent_plan *plan, ct_cell_room room);
    int cell_keep, cell_work, carried[2];
} ct_recurrent_ways;

/** setup: reads recurrent_param, counts bottoms and tops, adds the weights up to W_h in the order
 * of Caffe's unrolled net. */
ct_status ct_recurrent_setup(ct_layer *l, const ct_shape *bottom, int n_hidden, int64_t gates);
/** reshape: checks the bottoms against one another and the weights, sets the tops. */
ct_status ct_recurrent_reshape(const ct_layer *l, ct_instance *in, ct_recurrent_plan *plan);
/** Behind it: declares buffer `slot`, in which products keep what they need, at least `bytes`. */
ct_status ct_recurrent_reserve(const ct_layer *l, ct_instance *in, ct_recurrent_plan *plan,
                               int slot, size_t bytes);
/** Before the first ct_recurrent_step() of a pass, and the first ct_recurrent_step_backward(). */
void ct_recurrent_begin(ct_instance *in, const ct_recurrent_plan *p);
void ct_recurrent_begin_backward(ct_instance *in, const ct_recurrent_plan *p);
/** In ops.release: an instance's state is its plan, or begins with it. */
void ct_recurrent_release(const ct_layer *l, ct_instance *in);
/** Bottom and top index of exposed state i. */
int ct_recurrent_bottom(const ct_recurrent_state *s, int i);

/** Whether a backward follows forward: a gradient comes to some top. */
bool ct_recurrent_wants_back(const ct_layer *l, const ct_instance *in);
/** reshape: by its own steps, or by an engine that ct_kernel names, or that a plan finds faster,
 *  which asks all ranks. */
ct_status ct_recurrent_choose(const ct_layer *l, ct_instance *in, ct_recurrent_plan *plan,
                              const ct_recurrent_ways *ways);
/** All h to y, T x N x H, and the last states to where they go, by plan->cell. */
ct_status ct_recurrent_cell_forward(ct_instance *in, ct_exec *ex, float *y);
/** Gradients of W_x, b, W_h, x and the first states, from those of y (NULL: zeros) and of the last
 *  states. y: as forward left it. */
ct_status ct_recurrent_cell_backward(ct_instance *in, ct_exec *ex, float *y, const float *dy);

/** sums[T x N x G] = W_x x + b + W_static x_static, and nothing of W_h yet. */
ct_status ct_recurrent_inputs(const ct_layer *l, ct_instance *in, ct_exec *ex,
                              const ct_recurrent_plan *p, float *sums);
/** The gradients of W_x, b, W_static, W_h and of x and x_static, from those of the sums. conted:
 * all cont_t h_t-1, T x N x H; scratch: N x G. */
ct_status ct_recurrent_inputs_backward(const ct_layer *l, ct_instance *in, ct_exec *ex,
                                       const ct_recurrent_plan *p, const float *d_sums,
                                       const float *conted, float *scratch);
/** sums += W_h conted, of step t. */
ct_status ct_recurrent_step(const ct_layer *l, ct_instance *in, ct_exec *ex,
                            const ct_recurrent_plan *p, int64_t t, const float *conted,
                            float *sums);
/** dh = cont (W_h^T d_sums): of the output of the step before t. */
ct_status ct_recurrent_step_backward(const ct_layer *l, ct_instance *in, ct_exec *ex,
                                     const ct_recurrent_plan *p, int64_t t, const float *cont,
                                     const float *d_sums, float *dh);
/** What computes them, for an estimate. */
void ct_recurrent_engines(const ct_recurrent_plan *p, ct_estimate *e);
/** Operations of the products above, forward; backward is twice that. */
double ct_recurrent_flop(const ct_recurrent_state *s, const ct_recurrent_plan *p);

/** A weight n x k, and its products over all steps: y = x w^T + b, dx = dy w, dw = dy^T x with the
 * sums of dy. by_step: the first two come a step at a time. */
typedef struct ct_recurrent_shape {
    int64_t steps, columns, n, k;
    bool bias, by_step;
} ct_recurrent_shape;

/** On devices makes those that are wanted, by ct_kernel or a plan, which asks all ranks; *most_p
 *  rises to the bytes that they work in. */
ct_status ct_recurrent_make(const ct_layer *l, const ct_recurrent_shape *s,
                            const bool wanted[CT_N_RUN], ct_product of[CT_N_RUN], size_t *most_p);
/** Those of W_x and b. */
ct_status ct_recurrent_make_inputs(const ct_layer *l, ct_instance *in, ct_recurrent_plan *plan,
                                   size_t *most_p);
static inline bool ct_recurrent_is_made(const ct_product *p)
{
    return p->math != NULL;
}
/** *most_p rises to the bytes that the products of m rows with a weight n x k work in, where they
 * are not made before. */
ct_status ct_recurrent_reserve_products(const ct_layer *l, int64_t m, int64_t n, int64_t k,
                                        size_t *most_p);
/** What products work in. */
void *ct_recurrent_work(const ct_instance *in);

/* Below, made: of the shape's, as they may be; NULL: never. */
/** y[m x n] = x[m x k] w^T + b, with the weight n x k. */
ct_status ct_recurrent_affine(ct_instance *in, ct_exec *ex, const ct_product *made, int w, int b,
                              int64_t m, int64_t n, int64_t k, const float *x, float *y);
/** y[m x n] = x[m x k] w^T + beta y, with the weight n x k. */
ct_status ct_recurrent_product(ct_instance *in, ct_exec *ex, const ct_product *made, int w,
                               int64_t m, int64_t n, int64_t k, const float *x, float beta,
                               float *y);
/** dx[m x k] = dy[m x n] w. */
ct_status ct_recurrent_product_back(ct_instance *in, ct_exec *ex, const ct_product *made, int w,
                                    int64_t m, int64_t n, int64_t k, const float *dy, float *dx);
/** dw[rows x n] (+)= dy^T x over m rows of dy[m x rows], x[m x n]; where b is not below 0, db (+)=
 *  the sums over dy's rows. Either may not be wanted. */
ct_status ct_recurrent_weight_diff(ct_instance *in, ct_exec *ex, const ct_product *made, int w,
                                   int b, int64_t m, int64_t rows, int64_t n, const float *dy,
                                   const float *x);

#endif
