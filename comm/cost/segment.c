/* How many messages a step of a collective is cut into. */
#include "comm/cost/segment.h"

enum {
    MIN_SEGMENT = 64 << 10, /* elements of a message, unless the step has fewer … */
    MAX_SEGMENT = 1 << 20,  /* … and at most                                      */
    PER_STEP = 4,           /* messages a step is cut into, within these limits   */
    LINE = 16               /* elements of a cache line                           */
};

/* Few and large, since each costs a meeting of two ranks, but enough to add one while the next
 * comes. */
int64_t ct_segment_largest(int64_t n)
{
    int64_t each = (n + PER_STEP - 1) / PER_STEP;

    each = (each < MAX_SEGMENT) ? each : MAX_SEGMENT;
    each = (each > MIN_SEGMENT) ? each : MIN_SEGMENT;
    return (each + LINE - 1) / LINE * LINE;
}

/* All of a step alike: where links share fairly, the first of two unlike ones would come last. */
int64_t ct_segment_elements(int64_t n)
{
    int64_t most = ct_segment_largest(n), parts = (n + most - 1) / most;
    int64_t each = (parts > 1) ? (n + parts - 1) / parts : most;

    return (each + LINE - 1) / LINE * LINE;
}
