/* Forms by name, and how many bytes they take. */
#include "comm/sparse/payload_impl.h"

const char *ct_wire_name(ct_wire_form form)
{
    static const char *const name[] = { "pairs", "half", "mean" };

    return name[form];
}

size_t ct_wire_bytes(ct_wire_form form, int64_t n, int64_t count)
{
    return ct_wire_size(ct_wire_choose(form, n, count), n, count);
}
