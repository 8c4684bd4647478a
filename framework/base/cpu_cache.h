/** @file cpu_cache.h  How much the last level of caches holds: what measures memory goes beyond it.
 */
#ifndef CT_CPU_CACHE_H
#define CT_CPU_CACHE_H

#include <stddef.h>

/** Bytes of the last caches that this process's processors reach, each cache counted once. Read
 * from the folder of the kernel's processors (/sys/devices/system/cpu on Linux); from the C library
 *  where that says nothing, and 0 where that does not know either. The library counts a cache of
 *  several, or those of a whole socket that a guest has a part of. Not collective. */
size_t ct_cpu_cache_bytes(void);
/** The same of another folder, for tests: `cpus` has
 * cpuN/cache/indexM/{level,size,shared_cpu_list}. */
size_t ct_cpu_cache_bytes_in(const char *cpus);

#endif
