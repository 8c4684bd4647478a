/** @file division.h  A net that the ranks of a job run together, each a part of it: what of it this
 * rank has. Made by planner/ from a parallel file; framework/solver runs it.
 *
 * A rank's nets are ordinary ones, whose layers are narrowed and whose communication is layers. A
 * parameter of theirs has the key that it has in the whole net, and ct_param.cut says what of the
 * whole weight it is.
 */
#ifndef CT_DIVISION_H
#define CT_DIVISION_H

#include "framework/net/net.h"

/** A step of a schedule: one micro-batch goes forward or backward through the rank's net. */
typedef struct ct_schedule_item {
    bool forward;
    int micro; /* 0 .. n_micro - 1, in this order in both directions */
} ct_schedule_item;

typedef struct ct_micro_schedule {
    int n_micro;
    int in_flight; /* micro-batches of which values are kept at a time, at most */
    int n_item;    /* 2 n_micro                                                 */
    const ct_schedule_item *item;
} ct_micro_schedule;

typedef struct ct_division {
    /** Each net as one rank would run it, TRAIN's with one micro-batch: its layers, outputs,
     *  parameters, shapes. It has no memory and no data. In the solver's order. */
    const ct_net *whole;
    const ct_net *const *whole_test;
    /** This rank's part of each, as a message. */
    const Ct__NetParameter *train;
    const Ct__NetParameter *const *test;
    int n_test;
    /** What carries values between ranks while the nets run; outlives them. */
    const ct_transfer_ops *transfers;
    void *transfers_ctx;
    ct_micro_schedule schedule; /* of a step with iter_size 1; more are one such after the other */
    int stage, n_stage;         /* this rank's, from 0 on */
} ct_division;

#endif
