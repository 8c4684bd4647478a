#include "serve/ranks/bytes.h"

#include <string.h>

void ct_bytes_add_count(ct_text *to, int64_t v)
{
    ct_text_add_bytes(to, (const char *)&v, sizeof(v));
}

void ct_bytes_add_ids(ct_text *to, const int32_t *id, int64_t n)
{
    ct_bytes_add_count(to, n);
    if (n > 0) ct_text_add_bytes(to, (const char *)id, (size_t)n * sizeof(*id));
}

void ct_bytes_add_block(ct_text *to, const ct_text *block)
{
    ct_bytes_add_count(to, (int64_t)block->length);
    if (block->length > 0) ct_text_add_bytes(to, block->text, block->length);
    to->failed = to->failed || block->failed;
}

void ct_bytes_take(ct_bytes *b, void *to, size_t n)
{
    if (b->bad || (n > b->left)) {
        b->bad = true;
        return;
    }
    if (n > 0) memcpy(to, b->at, n);
    b->at += n;
    b->left -= n;
}

int64_t ct_bytes_take_count(ct_bytes *b, size_t each)
{
    int64_t v = 0;

    ct_bytes_take(b, &v, sizeof(v));
    if (!b->bad && (v >= 0) && ((uint64_t)v <= b->left / each)) return v;
    b->bad = true;
    return 0;
}

const void *ct_bytes_take_list(ct_bytes *b, int64_t n, size_t each)
{
    const char *at = b->at;

    if (b->bad || ((uint64_t)n > b->left / each)) {
        b->bad = true;
        return NULL;
    }
    b->at += (size_t)n * each;
    b->left -= (size_t)n * each;
    return at;
}

ct_status ct_bytes_check_end(const ct_bytes *b)
{
    if (!b->bad && (b->left == 0)) return CT_OK;
    return CT_FAIL(CT_ERR_COMM, "a message between ranks: %s",
                   b->bad ? "it ends too soon" : "it goes on beyond its end");
}
