#include "framework/base/memory.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HUGE_PAGE = 2 << 20, LARGE = 4 * HUGE_PAGE };

/* Blocks end with a cache line, so that threads that write two of them share none. Nothing may be
 * kept in the rest of it: under AddressSanitizer a block ends where it was asked to. */
#if CT_SAN_ADDRESS
static size_t with_padding(size_t bytes)
{
    return bytes;
}
#else
static size_t with_padding(size_t bytes)
{
    return ct_align_up(bytes);
}
#endif

/* A page lies in the memory next to the core that first writes it: a team's threads each take the
 * share that a static loop over the block gives them, as updates and many layers do. */
static void clear_large(char *block, size_t bytes)
{
#pragma omp parallel for schedule(static) if (!omp_in_parallel())
    for (size_t at = 0; at < bytes; at += HUGE_PAGE)
        memset(block + at, 0, (bytes - at < HUGE_PAGE) ? bytes - at : HUGE_PAGE);
}

static void wish_huge(void *block, size_t bytes)
{
#ifdef MADV_HUGEPAGE
    (void)madvise(block, bytes, MADV_HUGEPAGE); /* only a wish */
#else
    (void)block;
    (void)bytes;
#endif
}

/* Only the beginning stands on a huge page's border: what the block does not need of the last one
 * stays without memory. */
static void *acquire_large(size_t bytes)
{
    void *block = NULL;

    if (posix_memalign(&block, HUGE_PAGE, bytes) != 0) return NULL;
    wish_huge(block, bytes);
    clear_large(block, bytes);
    return block;
}

void *ct_mem_acquire(size_t bytes)
{
    size_t length = (bytes > 0) ? bytes : 1;
    void *block = NULL;

    if (ct_align_up(length) < bytes) return NULL;
    length = with_padding(length);
    if (length >= LARGE) return acquire_large(length);
    if (posix_memalign(&block, CT_ALIGN, length) != 0) return NULL;
    memset(block, 0, length);
    return block;
}

void *ct_mem_reserve(size_t bytes)
{
    size_t length = with_padding((bytes > 0) ? bytes : 1), done;
    void *block = NULL;

    if ((length < LARGE) || (ct_align_up(bytes) < bytes)) return ct_mem_acquire(bytes);
    if (posix_memalign(&block, HUGE_PAGE, length) != 0) return NULL;
    wish_huge(block, length);
    done = ct_mem_discard(block, length); /* of whole pages from its beginning on */
    memset((char *)block + done, 0, length - done);
    return block;
}

void ct_mem_release(void *block)
{
    free(block);
}

size_t ct_mem_discard(void *from, size_t bytes)
{
#ifdef MADV_DONTNEED
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)from;
    uintptr_t first = (at + page - 1) / page * page, end = (at + bytes) / page * page;
    char *begin = (char *)from + (first - at);

    if ((first < end) && (madvise(begin, end - first, MADV_DONTNEED) == 0)) return end - first;
#else
    (void)from;
    (void)bytes;
#endif
    return 0;
}
