/* Copies past the caches, by the widest stores there are: a store of 64 bytes takes one place in
 * the queue of stores, where those of 16 take four. */
#include "framework/base/stream.h"

enum { LINE = 64 };

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

__attribute__((target("avx512f"))) static void lines_avx512(int64_t n, const char *from, char *to)
{
    for (int64_t i = 0; i < n; i += LINE)
        _mm512_stream_si512((void *)(to + i), _mm512_loadu_si512(from + i));
}

__attribute__((target("avx2"))) static void lines_avx2(int64_t n, const char *from, char *to)
{
    for (int64_t i = 0; i < n; i += LINE / 2)
        _mm256_stream_si256((void *)(to + i), _mm256_loadu_si256((const void *)(from + i)));
}
#endif

static void lines(int64_t n, const char *from, char *to)
{
#if defined(__x86_64__) && defined(__GNUC__)
    if (__builtin_cpu_supports("avx512f")) {
        lines_avx512(n, from, to);
        return;
    }
    if (__builtin_cpu_supports("avx2")) {
        lines_avx2(n, from, to);
        return;
    }
#endif
    for (int64_t i = 0; i < n; i += LINE)
        ct_stream_put(LINE / 4, (const float *)(const void *)(from + i), (float *)(void *)(to + i));
}

void ct_stream_bytes(int64_t n, const uint8_t *from, uint8_t *to)
{
    int64_t head = (int64_t)(-(uintptr_t)to % LINE), whole;

    if (head > n) head = n;
    whole = (n - head) / LINE * LINE;
    memcpy(to, from, (size_t)head);
    lines(whole, (const char *)from + head, (char *)to + head);
    memcpy(to + head + whole, from + head + whole, (size_t)(n - head - whole));
}

void ct_stream_copy(int64_t n, const float *from, float *to)
{
    ct_stream_bytes(n * (int64_t)sizeof(float), (const uint8_t *)from, (uint8_t *)to);
}
