/* memory.c for a simulation: many ranks live in one process, so their large blocks are all mapped
 * onto the same few pages. What is written there is lost. */
#include "framework/base/memory.h"

#include <smpi/smpi.h>
#include <stdlib.h>
#include <string.h>

enum { FOLDED = 1 << 20 /* bytes from which on a block is folded */ };

void *ct_mem_acquire(size_t bytes)
{
    size_t padded = (bytes == 0) ? CT_ALIGN : ct_align_up(bytes);
    void *block = NULL;

    if (padded < bytes) return NULL;
    if (padded >= FOLDED) return SMPI_SHARED_MALLOC(padded);
    if (posix_memalign(&block, CT_ALIGN, padded) != 0) return NULL;
    memset(block, 0, padded);
    return block;
}

void ct_mem_release(void *block)
{
    SMPI_SHARED_FREE(block); /* of other blocks, too */
}
