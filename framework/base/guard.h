/** @file guard.h  What AddressSanitizer (`make SAN=address`) cannot know of memory that does not
 * come from malloc: where a block ends. Nothing in other builds.
 */
#ifndef CT_GUARD_H
#define CT_GUARD_H

#include <stddef.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

/** Whoever in this process touches these bytes from now on is reported. p: a multiple of 8 bytes,
 * or right behind what may be touched. */
static inline void ct_guard(const void *p, size_t bytes)
{
#ifdef __SANITIZE_ADDRESS__
    __asan_poison_memory_region(p, bytes);
#else
    (void)p;
    (void)bytes;
#endif
}

/** Takes it back, as must be done before the memory is given back: the next user's may lie there.
 */
static inline void ct_unguard(const void *p, size_t bytes)
{
#ifdef __SANITIZE_ADDRESS__
    __asan_unpoison_memory_region(p, bytes);
#else
    (void)p;
    (void)bytes;
#endif
}

#endif
