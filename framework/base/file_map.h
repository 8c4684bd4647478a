/** @file file_map.h  A whole file as memory, read only, and little-endian numbers in it.
 *
 * Pages are read when they are looked at and may be dropped again, so a file may be larger than
 * memory. Whoever cuts the file meanwhile ends the process with SIGBUS.
 */
#ifndef CT_FILE_MAP_H
#define CT_FILE_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "framework/base/status.h"

typedef struct ct_file_map {
    const uint8_t *data; /* never NULL while open, also of an empty file */
    int64_t size;        /* bytes                                        */
} ct_file_map;

/** Maps the file. CT_ERR_IO, logged with the reason. */
ct_status ct_file_map_open(const char *path, ct_file_map *map_p);
void ct_file_map_close(ct_file_map *map); /* zeroed ones allowed */

/** The little-endian number of 1 to 8 bytes at p. */
static inline uint64_t ct_little_endian(const uint8_t *p, int bytes)
{
    uint64_t v = 0;

    for (int i = bytes - 1; i >= 0; i--) v = v << 8 | p[i];
    return v;
}

/** Whether `count` items of `size` bytes lie in [at, end). No sum overflows. */
static inline bool ct_range_fits(uint64_t at, uint64_t count, uint64_t size, uint64_t end)
{
    return (at <= end) && ((size == 0) || (count <= (end - at) / size));
}

#endif
