/* How blocks of signs are dealt, how many bytes they take, and what payloads say of that. */
#include "comm/codec/sign.h"

#include <string.h>

typedef struct head {
    uint64_t bytes;
    int64_t n;
} head;

static int64_t blocks_of(int64_t n)
{
    return (n + CT_SIGN_BLOCK - 1) / CT_SIGN_BLOCK;
}

static int64_t first_block(const ct_sign_cut *c, int j)
{
    return blocks_of(c->n) * j / c->parts;
}

void ct_sign_part(const ct_sign_cut *c, int j, int64_t *first_p, int64_t *n_p)
{
    int64_t first = first_block(c, j) * CT_SIGN_BLOCK, end = first_block(c, j + 1) * CT_SIGN_BLOCK;

    *first_p = (first < c->n) ? first : c->n;
    *n_p = ((end < c->n) ? end : c->n) - *first_p;
}

size_t ct_sign_bytes(int64_t n)
{
    return CT_SIGN_HEAD + CT_SIGN_BLOCK_BYTES * (size_t)blocks_of(n);
}

size_t ct_sign_at(const ct_sign_cut *c, int j)
{
    return CT_SIGN_HEAD * (size_t)j + CT_SIGN_BLOCK_BYTES * (size_t)first_block(c, j);
}

void ct_sign_head(void *payload, int64_t n)
{
    memcpy(payload, &(head){ .bytes = ct_sign_bytes(n), .n = n }, sizeof(head));
}

ct_status ct_sign_check(const void *payload, size_t bytes, int64_t n)
{
    head h = { 0 };

    if (bytes >= CT_SIGN_HEAD) memcpy(&h, payload, sizeof(h));
    if ((bytes != ct_sign_bytes(n)) || (h.bytes != bytes) || (h.n != n))
        return CT_FAIL(CT_ERR_COMM,
                       "signs of %lld elements in %zu bytes say of themselves: %lld in %llu",
                       (long long)n, bytes, (long long)h.n, (unsigned long long)h.bytes);
    return CT_OK;
}
