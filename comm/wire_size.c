/* Forms by name, and how many bytes they take. */
#include "comm/wire_impl.h"

const char *ct_wire_name(ct_wire_form form)
{
    static const char *const name[] = { "pairs", "half", "mean" };

    return name[form];
}

size_t ct_wire_size(ct_wire_code code, int64_t n, int64_t count)
{
    size_t entries = (size_t)count, blocks = sizeof(uint32_t) * (size_t)ct_wire_blocks(n);

    switch (code) {
    case CT_CODE_PAIRS:
        return CT_WIRE_HEAD + 8 * entries;
    case CT_CODE_HALF:
        return CT_WIRE_HEAD + blocks + 4 * entries;
    case CT_CODE_MEAN32:
        return CT_WIRE_HEAD + 4 * entries;
    case CT_CODE_MEAN16:
        return CT_WIRE_HEAD + blocks + 2 * entries;
    case CT_CODE_DENSE32:
        return CT_WIRE_HEAD + 4 * (size_t)n;
    default:
        return CT_WIRE_HEAD + 2 * (size_t)n;
    }
}

ct_wire_code ct_wire_choose(ct_wire_form form, int64_t n, int64_t count)
{
    static const ct_wire_code code[][2] = { [CT_WIRE_PAIRS] = { CT_CODE_PAIRS, CT_CODE_DENSE32 },
                                            [CT_WIRE_HALF] = { CT_CODE_HALF, CT_CODE_DENSE16 },
                                            [CT_WIRE_MEAN] = { CT_CODE_MEAN32, CT_CODE_MEAN16 } };
    const ct_wire_code *two = code[form];

    return (ct_wire_size(two[1], n, count) < ct_wire_size(two[0], n, count)) ? two[1] : two[0];
}

size_t ct_wire_bytes(ct_wire_form form, int64_t n, int64_t count)
{
    return ct_wire_size(ct_wire_choose(form, n, count), n, count);
}
