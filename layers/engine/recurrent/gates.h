/** @file gates.h  The element by element parts of a recurrent step, for all columns of a batch.
 *
 * Blocks of one time step: gates n x 4H, in each row i, f, o, g; cells and outputs n x H; cont n
 * numbers. All on the host. The results do not depend on the number of threads.
 */
#ifndef CT_GATES_H
#define CT_GATES_H

#include <stdint.h>

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
