/** @file step.h  One step of a net's flat list: what the interpreter, the memory plan, profiles and
 *  the simulation work on. Knows no layers.
 */
#ifndef CT_STEP_H
#define CT_STEP_H

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    CT_STEP_FORWARD,
    CT_STEP_BACKWARD,
    CT_STEP_READY,     /* a parameter's gradient is final                       */
    CT_STEP_ZERO_DIFF, /* no reader of the blob sends a gradient                */
    CT_STEP_LOSS_DIFF, /* the blob's diff becomes its loss weight               */
    CT_STEP_WAIT       /* forward is about to read a learned parameter for the first time: its
                        * update of the step before must be done                */
} ct_step_kind;

typedef struct ct_step {
    ct_step_kind kind;
    int layer;      /* index into layer[]; READY: the last user; WAIT: the first reader;
                     * …_DIFF: who makes the blob                                      */
    int param;      /* READY, WAIT                                                 */
    int blob;       /* ZERO_DIFF, LOSS_DIFF                                        */
    float value;    /* LOSS_DIFF: the loss weight                                  */
    double seconds; /* of the last run, where timing is on                         */
    int polls;      /* in the last run, from inside the step, where timing is on   */
} ct_step;

#ifdef __cplusplus
}
#endif

#endif
