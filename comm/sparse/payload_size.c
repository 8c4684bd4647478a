/* Forms by name, and how many bytes they take. */
#include "comm/sparse/payload_impl.h"

const char *ct_payload_name(ct_payload_form form)
{
    static const char *const name[] = { "pairs", "half", "mean" };

    return name[form];
}

size_t ct_payload_bytes(ct_payload_form form, int64_t n, int64_t count)
{
    return ct_payload_size(ct_payload_choose(form, n, count), n, count);
}
