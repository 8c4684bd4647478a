/** @file autotune.h  The policy of gradient pipes that refines what the cost model chose.
 *
 * What gradients travel by takes turns in real steps, and a rule decides from what these took on
 * the slowest rank (tuner.h). First plans of codecs, where compression is AUTO; then the algorithms
 * of classes of buckets; then the thread that moves messages. With AUTO the last two wait until the
 * codecs are decided on, and are tried again when these change.
 */
#ifndef CT_AUTOTUNE_H
#define CT_AUTOTUNE_H

#include "comm/sync/grad_pipe.h"

struct ct_codec_tuner;

extern const ct_grad_policy ct_autotune;

/** What chooses codecs in a pipe that has this policy; borrowed. NULL: nothing does. For tests. */
struct ct_codec_tuner *ct_autotune_codecs(const ct_grad_pipe *gp);

#endif
