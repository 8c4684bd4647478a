/** @file recurrent.h  Recurrent layers: engines of a whole layer, and the loops over gates;
 * private to layers/. */
#ifndef CT_ENGINE_RECURRENT_RECURRENT_H
#define CT_ENGINE_RECURRENT_RECURRENT_H

#include <stdint.h>

#include "layers/engine/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- A recurrent layer's whole pass by a device's library: all steps of an LSTM,
 * or of h_t = tanh(sums), at a time. The maths and the order of weights are those of
 * layers/types/recurrent.h.
 *
 * Sequences may begin anew in the first step only: what `cont` says there. The table may be empty:
 * the layers' own steps run everywhere.
 */

typedef struct ct_cell_desc {
    ct_device_kind device;
    bool lstm; /* else h = tanh(sums) */
    int64_t steps, columns, inputs, hidden;
    bool back;          /* a backward follows each forward                           */
    ct_operand operand; /* what is multiplied; of 16 bits: so are states and results */
    bool repeatable;    /* the same bits in each run                                 */
} ct_cell_desc;

/** Bytes that a pass works in, and of those kept from forward to its backward. */
typedef struct ct_cell_room {
    size_t keep, work;
} ct_cell_room;

/** All f32 on the device. States are columns x hidden: h, and c of an LSTM. */
typedef struct ct_cell_args {
    const float *x;    /* steps x columns x inputs                     */
    const float *cont; /* columns: what the first step keeps of states */
    const float *w_x, *b, *w_h;
    float *y;               /* steps x columns x hidden: all h; backward reads it */
    const float *before[2]; /* forward: before the first step; free afterwards     */
    float *after[2];        /* behind the last; may be `before`                    */
    void *keep, *work;
    /* Backward. */
    const float *dy, *d_after[2]; /* NULL: zeros          */
    float *dx, *d_before[2];      /* NULL: not wanted     */
    float *dw_x, *db, *dw_h;      /* NULL: not wanted     */
    bool add_w_x, add_b, add_w_h; /* to what is there     */
} ct_cell_args;

typedef struct ct_cell_impl {
    const char *name;
    bool (*supports)(const ct_cell_desc *d);
    ct_cell_room (*room)(const ct_cell_desc *d);
    ct_status (*forward)(const ct_cell_desc *d, ct_exec *ex, const ct_cell_args *a);
    /** Once, behind a forward on the same `keep`, x and y. */
    ct_status (*backward)(const ct_cell_desc *d, ct_exec *ex, const ct_cell_args *a);
} ct_cell_impl;

extern const ct_cell_impl ct_cell_cudnn;
extern const ct_cell_impl *const ct_cell_table[]; /* NULL-terminated */

/** That called `name`, of those that are built; NULL: there is none. */
const ct_cell_impl *ct_cell_named(const char *name);

#ifdef __cplusplus
}
#endif

/* ---- The element by element parts of a recurrent step, for all columns of a batch.
 *
 * Blocks of one time step: gates n x 4H, in each row i, f, o, g; cells and outputs n x H; cont n
 * numbers. All on the host. The results do not depend on the number of threads.
 */

/** A step of the LSTM. The gates come as sums and go as activations:
 *  i, f, o = sigmoid, g = tanh;  c = cont f c_before + i g;  h = o tanh(c).
 *  Where cont is 0 nothing of c_before is used, be it NaN. */
void ct_lstm_step(int64_t n, int64_t hidden, const float *cont, const float *c_before, float *gates,
                  float *c, float *h);
/** Its gradient. gates, c: as the step left them; dh: top + more, what comes from above and from
 *  the step behind; dc: in: of c, out: of c_before. d_gates: of the sums. */
void ct_lstm_step_backward(int64_t n, int64_t hidden, const float *cont, const float *c_before,
                           const float *gates, const float *c, const float *top, const float *more,
                           float *dc, float *d_gates);
/** y[r] = cont[r] x[r], row by row; exactly 0 where cont is 0. y may be x. */
void ct_rows_cont(int64_t n, int64_t hidden, const float *cont, const float *x, float *y);
/** y = tanh(x); y may be x. */
void ct_tanh_forward(int64_t n, const float *x, float *y);
/** dx = dy (1 - y^2); dx may be dy. */
void ct_tanh_backward(int64_t n, const float *y, const float *dy, float *dx);

#endif
