/* Which socket and NUMA node a thread is bound to, by hwloc. */
#include <hwloc.h>
#include <hwloc/glibc-sched.h>
#include <sched.h>
#include <unistd.h>

#include "topology/discover.h"

/* The one object of a type that holds the whole set; -1 where there is none, or only one at all. */
static int32_t holder(hwloc_topology_t machine, hwloc_obj_type_t type, hwloc_const_cpuset_t set)
{
    hwloc_obj_t at = NULL;

    if (hwloc_get_nbobjs_by_type(machine, type) < 2) return -1;
    while ((at = hwloc_get_next_obj_by_type(machine, type, at)) != NULL) {
        if ((at->cpuset != NULL) && hwloc_bitmap_isincluded(set, at->cpuset))
            return (int32_t)at->logical_index;
    }
    return -1;
}

void ct_rank_place_inside(int32_t *socket_p, int32_t *numa_p)
{
    hwloc_cpuset_t set = NULL;
    hwloc_topology_t machine;
    cpu_set_t mine;

    *socket_p = *numa_p = -1;
    CPU_ZERO(&mine);
    if (sched_getaffinity(0, sizeof(mine), &mine) != 0) return;
    if (CPU_COUNT(&mine) >= sysconf(_SC_NPROCESSORS_ONLN)) return; /* bound to nothing */
    if (hwloc_topology_init(&machine) != 0) return;
    set = hwloc_bitmap_alloc();
    if ((set != NULL) && (hwloc_topology_load(machine) == 0) &&
        (hwloc_cpuset_from_glibc_sched_affinity(machine, set, &mine, sizeof(mine)) == 0)) {
        *socket_p = holder(machine, HWLOC_OBJ_PACKAGE, set);
        *numa_p = holder(machine, HWLOC_OBJ_NUMANODE, set);
    }
    hwloc_bitmap_free(set);
    hwloc_topology_destroy(machine);
}
