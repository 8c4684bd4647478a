/** @file name_map.h  Names, and a number for each.
 *
 * Files from outside may have as many names as they like: who looks each one up in a list takes
 * minutes where this takes moments.
 */
#ifndef CT_NAME_MAP_H
#define CT_NAME_MAP_H

#include <stdint.h>
#include <string.h>

#include "framework/base/status.h"

/** Zeroed: empty. Open addressing, at most half full. */
typedef struct ct_name_map {
    const char **name; /* [capacity], borrowed; NULL: a free place */
    int *number;
    int n, capacity; /* a power of two, or 0 */
} ct_name_map;

/** Where the name of n bytes is, or would be, in a map that has places. */
static inline int ct_name_map_place(const ct_name_map *map, const char *name, size_t n)
{
    uint64_t h = UINT64_C(14695981039346656037); /* FNV-1a */
    int i;

    for (size_t k = 0; k < n; k++) h = (h ^ (unsigned char)name[k]) * UINT64_C(1099511628211);
    i = (int)((h ^ (h >> 32)) & (uint64_t)(map->capacity - 1));
    while ((map->name[i] != NULL) &&
           ((strlen(map->name[i]) != n) || (memcmp(map->name[i], name, n) != 0)))
        i = (i + 1) & (map->capacity - 1);
    return i;
}

/** The number of the name of n bytes; -1: it is not there. */
static inline int ct_name_map_find(const ct_name_map *map, const char *name, size_t n)
{
    int i = (map->capacity > 0) ? ct_name_map_place(map, name, n) : -1;

    return ((i >= 0) && (map->name[i] != NULL)) ? map->number[i] : -1;
}

/** The name, which must stay, has this number from now on. number >= 0. CT_ERR_NOMEM. */
ct_status ct_name_map_put(ct_name_map *map, const char *name, int number);
void ct_name_map_destroy(ct_name_map *map);

#endif
