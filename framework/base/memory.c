#include "framework/base/memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20 };

void *ct_mem_acquire(size_t bytes)
{
    size_t align = (bytes >= 4 * (size_t)HUGE_PAGE) ? HUGE_PAGE : CT_ALIGN;
    size_t padded = (bytes + align - 1) / align * align;
    void *block = NULL;

    if (padded < bytes) return NULL;
    if (padded == 0) padded = align;
    if (posix_memalign(&block, align, padded) != 0) return NULL;
#ifdef MADV_HUGEPAGE
    if (align == HUGE_PAGE) (void)madvise(block, padded, MADV_HUGEPAGE); /* only a wish */
#endif
    memset(block, 0, padded);
    return block;
}

void ct_mem_release(void *block)
{
    free(block);
}

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
