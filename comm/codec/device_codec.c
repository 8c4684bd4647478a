/* Which devices have codecs, and what sizes those have. */
#include "comm/codec/device_codec.h"

#include <stddef.h>

const ct_device_codec *ct_device_codec_find(ct_device_kind kind)
{
#ifdef CT_HAVE_CUDA
    if (kind == CT_DEVICE_CUDA) return &ct_device_codec_cuda;
#endif
    (void)kind;
    return NULL;
}

ct_select_kind ct_coder_kind(const ct_coder_setup *s)
{
    enum { REDSYNC_BYTES = 4 << 20 };
    bool small = (s->n < REDSYNC_BYTES / (int64_t)sizeof(float));

    if (s->kind == CT_SELECT_REDSYNC_SIZES) return small ? CT_SELECT_EXACT : CT_SELECT_SAMPLED;
    if ((s->kind == CT_SELECT_SEARCH) || (s->kind == CT_SELECT_SAMPLED)) return s->kind;
    return CT_SELECT_EXACT;
}

int64_t ct_coder_limit(const ct_coder_setup *s)
{
    bool over = (ct_coder_kind(s) != CT_SELECT_EXACT);
    int64_t k = (s->k_most > s->k) ? s->k_most : s->k, most = over ? ct_select_most(k) : k;

    return (most < s->n) ? most : s->n;
}

size_t ct_coder_room(const ct_coder_setup *s)
{
    return ct_payload_bytes(s->form, s->n, ct_coder_limit(s));
}
