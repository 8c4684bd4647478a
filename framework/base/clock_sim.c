/* clock.c for a simulation. (SMPI's own clock_gettime() asks the system for the time, twice.) */
#include "framework/base/clock.h"

#include <simgrid/engine.h>

double ct_clock_s(void)
{
    return simgrid_get_clock();
}
