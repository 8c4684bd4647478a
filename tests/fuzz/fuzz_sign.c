/* Payloads of signs: any bytes end in a sum of finite numbers, the same for both readers, or in a
 * reason. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "comm/codec/sign.h"
#include "tests/fuzz/fuzz.h"

static void check(const void *payload, size_t bytes, int64_t n)
{
    float *one = calloc((size_t)n + 1, sizeof(*one)), *all = calloc((size_t)n + 1, sizeof(*all));
    ct_status added = CT_OK, summed = CT_OK;

    if ((one == NULL) || (all == NULL)) abort();
    added = ct_sign_add(payload, bytes, one, n, 1);
    summed = ct_sign_sum(&payload, &bytes, 1, all, n, 1);
    if (added != summed) abort();
    for (int64_t i = 0; (added == CT_OK) && (i < n); ++i) {
        if (!isfinite(all[i]) || (one[i] != all[i])) abort();
    }
    free(one);
    free(all);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t n = 0;
    uint64_t stated = size;
    char *payload = malloc(size + CT_SIGN_HEAD);

    if ((payload == NULL) || (size < CT_SIGN_HEAD)) {
        free(payload);
        return 0;
    }
    memcpy(payload, data, size);
    memcpy(&n, payload + 8, sizeof(n)); /* the vector's length, as the payload has it */
    n &= 0x3ffff;
    check(payload, size, n);
    /* past the first checks: as many elements as there are blocks for */
    n = (int64_t)((size - CT_SIGN_HEAD) / CT_SIGN_BLOCK_BYTES) * CT_SIGN_BLOCK;
    memcpy(payload, &stated, sizeof(stated));
    memcpy(payload + 8, &n, sizeof(n));
    check(payload, size, n);
    free(payload);
    return 0;
}
