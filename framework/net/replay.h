/** @file replay.h  What becomes of calls that gave a device work while it was recorded
 * (step_graph.h). */
#ifndef CT_REPLAY_H
#define CT_REPLAY_H

typedef enum {
    CT_REPLAY_GIVEN,  /* the device was given again what an earlier pass recorded, without calls */
    CT_REPLAY_DROPPED /* it would not record: nothing of this pass has run, the calls come again */
} ct_replay;

#endif
