/* The arena that is nothing but ct_mem_acquire(). */
#include "framework/base/memory.h"

static ct_status plain_acquire(void *ctx, size_t bytes, const char *what, void **block_p)
{
    void *block = ct_mem_acquire(bytes);

    (void)ctx;
    if (block == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %zu bytes of %s", bytes, what);
    *block_p = block;
    return CT_OK;
}

static void plain_release(void *ctx, void *block)
{
    (void)ctx;
    ct_mem_release(block);
}

const ct_arena_ops *ct_arena_plain(void)
{
    static const ct_arena_ops plain = { CT_ARENA_PLAIN, NULL, plain_acquire, plain_release };

    return &plain;
}
