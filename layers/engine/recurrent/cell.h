/** @file cell.h  A recurrent layer's whole pass by a device's library: all steps of an LSTM, or of
 * h_t = tanh(sums), at a time. The maths and the order of weights are those of
 * layers/types/recurrent.h.
 *
 * Sequences may begin anew in the first step only: what `cont` says there. The table may be empty:
 * the layers' own steps run everywhere.
 */
#ifndef CT_CELL_H
#define CT_CELL_H

#include "layers/engine/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

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

#endif
