#include "framework/base/name_map.h"

#include <stdlib.h>

enum { FIRST_CAPACITY = 64 };

void ct_name_map_destroy(ct_name_map *map)
{
    free(map->name);
    free(map->number);
    *map = (ct_name_map){ .n = 0 };
}

static ct_status grow(ct_name_map *map)
{
    ct_name_map more = { .n = map->n,
                         .capacity = (map->capacity > 0) ? 2 * map->capacity : FIRST_CAPACITY };

    more.name = calloc((size_t)more.capacity, sizeof(more.name[0]));
    more.number = calloc((size_t)more.capacity, sizeof(more.number[0]));
    if ((more.name == NULL) || (more.number == NULL)) {
        ct_name_map_destroy(&more);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %d names", map->n);
    }
    for (int i = 0; i < map->capacity; i++) {
        const char *name = map->name[i];
        int to = (name != NULL) ? ct_name_map_place(&more, name, strlen(name)) : -1;

        if (to < 0) continue;
        more.name[to] = name;
        more.number[to] = map->number[i];
    }
    free(map->name);
    free(map->number);
    map->name = more.name;
    map->number = more.number;
    map->capacity = more.capacity;
    return CT_OK;
}

ct_status ct_name_map_put(ct_name_map *map, const char *name, int number)
{
    int i;

    if (2 * (map->n + 1) > map->capacity) CT_TRY(grow(map));
    i = ct_name_map_place(map, name, strlen(name));
    if (map->name[i] == NULL) {
        map->name[i] = name;
        map->n++;
    }
    map->number[i] = number;
    return CT_OK;
}
