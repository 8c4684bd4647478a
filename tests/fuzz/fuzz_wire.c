/* Payloads of sparse exchanges: any bytes end in entries or in a reason, the same for both readers.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "comm/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const void *payload, size_t bytes, int64_t n)
{
    ct_sparse out = { 0 };
    float *one = calloc((size_t)n + 1, sizeof(*one)), *all = calloc((size_t)n + 1, sizeof(*all));
    const void *list[1] = { payload };
    ct_status unpacked = ct_wire_unpack(payload, bytes, n, &out);
    ct_status added = ct_wire_sum_all(list, &bytes, 1, all, n, 1, NULL);

    if (unpacked == CT_OK) {
        ct_sparse_add_to(&out, one);
        for (int64_t i = 0; i < n; ++i) {
            if ((one[i] != all[i]) && (one[i] == one[i])) abort();
        }
        if (added != CT_OK) abort();
    }
    ct_sparse_destroy(&out);
    free(one);
    free(all);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t n = 0;
    uint64_t stated = size;
    char *payload = malloc(size + 8);

    if ((payload == NULL) || (size < CT_WIRE_HEAD)) {
        free(payload);
        return 0;
    }
    memcpy(payload, data, size);
    memcpy(&n, payload + 16, sizeof(n)); /* the vector's length, as the payload has it */
    n &= 0x3ffff;
    check(payload, size, n);
    memcpy(payload, &stated, sizeof(stated)); /* past the first checks */
    memcpy(payload + 16, &n, sizeof(n));
    check(payload, size, n);
    free(payload);
    return 0;
}
