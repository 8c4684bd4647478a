/** @file pipe_rig.h  What tests of the gradient pipe share. */
#ifndef CT_TESTS_PIPE_RIG_H
#define CT_TESTS_PIPE_RIG_H

#include "comm/codec/codec_types.h"
#include "comm/sync/grad_pipe.h"

/** What a rank has not sent of range i; NULL: it keeps nothing. */
static inline float *pipe_residual(ct_grad_pipe *gp, int i)
{
    ct_codec_state s;

    return ct_grad_pipe_state(gp, i, 0, &s) ? s.data : NULL;
}

/** Codecs whose sums have bounds of their own: test_codecs.c, test_auto.c. */
static inline bool pipe_skips(const ct_codec_ops *codec)
{
    return (codec == &ct_codec_auto) || (codec == &ct_codec_fp16) || (codec == &ct_codec_onebit) ||
           (codec == &ct_codec_powersgd) || (codec == &ct_codec_int8) || (codec == &ct_codec_int4);
}

#endif
