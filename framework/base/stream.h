/** @file stream.h  Stores that pass the caches by.
 *
 * A store into a line that no cache holds reads the line first. It pays to write whole lines past
 * the caches where an array is larger than these and nothing of it is read again soon. That saves
 * the reading: a third of the traffic of a map from one array to another. Elsewhere these are plain
 * stores.
 */
#ifndef CT_STREAM_H
#define CT_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#include <emmintrin.h>
#define CT_STREAM_QUAD(_to, _from) _mm_stream_ps((_to), _mm_loadu_ps(_from))
#define CT_STREAM_FENCE()          _mm_sfence()
enum { CT_STREAM_BYPASSES = 1 };
#else
#define CT_STREAM_QUAD(_to, _from) memcpy((_to), (_from), 4 * sizeof(float))
#define CT_STREAM_FENCE()          ((void)0)
enum { CT_STREAM_BYPASSES = 0 }; /* here these are plain stores */
#endif

/** Bytes of an array from which on it leaves the caches before it is read again. */
enum { CT_STREAM_MIN = 32 << 20 };

/** Whether `bytes` at `to`, written once from the front to the back, had better pass the caches. */
static inline bool ct_stream_pays(const void *to, size_t bytes)
{
    return (bytes >= CT_STREAM_MIN) && ((uintptr_t)to % 64 == 0);
}

/** n floats, a multiple of 4, to an address that is a multiple of 16; best whole lines of 64 bytes,
 *  one after the other. */
__attribute__((always_inline)) static inline void ct_stream_put(int n, const float *from, float *to)
{
    for (int i = 0; i < n; i += 4) CT_STREAM_QUAD(to + i, from + i);
}

/** n floats, any number to any address, in the processor's widest stores; what is not a whole line
 *  of 64 bytes at both ends is stored as usual. */
void ct_stream_copy(int64_t n, const float *from, float *to);
/** The same of bytes. */
void ct_stream_bytes(int64_t n, const uint8_t *from, uint8_t *to);

/** Before other threads read what this one has put. */
static inline void ct_stream_end(void)
{
    CT_STREAM_FENCE();
}

#endif
