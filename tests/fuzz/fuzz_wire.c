/* Payloads of sparse exchanges: any bytes end in entries or in a reason, the same for both readers.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "comm/sparse/payload_impl.h"
#include "tests/fuzz/fuzz.h"

static void check(const void *payload, size_t bytes, int64_t n)
{
    ct_sparse out = { 0 };
    float *one = calloc((size_t)n + 1, sizeof(*one)), *all = calloc((size_t)n + 1, sizeof(*all));
    const void *list[1] = { payload };
    ct_status unpacked = ct_payload_unpack(payload, bytes, n, &out);
    ct_status added = ct_payload_sum_all(list, &bytes, 1, all, n, 1, NULL);

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

/* A head that fits the bytes, of any code, so that it is the entries that are looked at. */
static void check_entries(char *payload, size_t size, int64_t n)
{
    ct_payload_head head;
    ct_payload_view v;
    uint32_t others = 0;
    int64_t least = 0;

    memcpy(&head, payload, sizeof(head));
    head.code %= CT_CODE_N;
    if (head.code == CT_CODE_DENSE32) n = (int64_t)((size - CT_PAYLOAD_HEAD) / 4);
    if (head.code == CT_CODE_DENSE16) n = (int64_t)((size - CT_PAYLOAD_HEAD) / 2);
    least = (int64_t)ct_payload_size((ct_payload_code)head.code, n, 0);
    if (least > (int64_t)size) return;
    head.n = n;
    for (head.count = n; head.count > 0; head.count /= 2) {
        if (ct_payload_size((ct_payload_code)head.code, n, head.count) <= size) break;
    }
    head.bytes = ct_payload_size((ct_payload_code)head.code, n, head.count);
    memcpy(payload, &head, sizeof(head));
    ct_payload_lay_out(payload, (ct_payload_code)head.code, n, head.count, &v);
    if ((v.per_block != NULL) && (n > 0)) { /* blocks' counts that add up */
        for (int64_t b = 1; b < ct_payload_blocks(n); ++b) others += v.per_block[b];
        *(uint32_t *)(uintptr_t)v.per_block = (uint32_t)head.count - others;
    }
    check(payload, head.bytes, n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t n = 0;
    uint64_t stated = size;
    char *payload = malloc(size + 8);

    if ((payload == NULL) || (size < CT_PAYLOAD_HEAD)) {
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
    check_entries(payload, size, n & 0x1ff); /* few elements: entries that are in order */
    check_entries(payload, size, n);
    free(payload);
    return 0;
}
