#include <string.h>

#include "comm/codec_types.h"
#include "framework/base/text.h"

const ct_codec_ops *const ct_codec_table[] = { &ct_codec_none, &ct_codec_bf16, &ct_codec_topk,
                                               NULL };

ct_status ct_codec_find(const char *name, const ct_codec_ops **ops_p)
{
    ct_text known = { .text = NULL };
    ct_status status = CT_OK;

    for (const ct_codec_ops *const *at = ct_codec_table; *at != NULL; ++at) {
        if (strcmp(name, (*at)->name) != 0) continue;
        *ops_p = *at;
        return CT_OK;
    }
    for (const ct_codec_ops *const *at = ct_codec_table; *at != NULL; ++at)
        ct_text_add(&known, "%s%s", (at == ct_codec_table) ? "" : ", ", (*at)->name);
    status = CT_FAIL(CT_ERR_CONFIG, "unknown compression \"%s\"; known are %s", name,
                     (known.text != NULL) ? known.text : "none");
    ct_text_destroy(&known);
    return status;
}
