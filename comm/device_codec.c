/* Which devices have codecs, and what sizes those have. */
#include "comm/device_codec.h"

#include <stddef.h>

const ct_device_codec *ct_device_codec_find(ct_device_kind kind)
{
#ifdef CT_HAVE_CUDA
    if (kind == CT_DEVICE_CUDA) return &ct_device_codec_cuda;
#endif
    (void)kind;
    return NULL;
}

int64_t ct_coder_limit(const ct_coder_setup *s)
{
    bool over = (s->kind == CT_SELECT_SEARCH) || (s->kind == CT_SELECT_SAMPLED);
    int64_t most = over ? ct_select_most(s->k) : s->k;

    return (most < s->n) ? most : s->n;
}

size_t ct_coder_room(const ct_coder_setup *s)
{
    return ct_wire_bytes(s->form, s->n, ct_coder_limit(s));
}
