/* Built without hwloc: nothing is known of the inside of a node. */
#include "topology/discover.h"

void ct_rank_place_inside(int32_t *socket_p, int32_t *numa_p)
{
    *socket_p = *numa_p = -1;
}
