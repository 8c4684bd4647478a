/** @file segment.h  How many messages a step of a collective is cut into: for the engine that sends
 *  them and for the model of their cost. */
#ifndef CT_SEGMENT_H
#define CT_SEGMENT_H

#include <stdint.h>

/** Elements of each message of a step that moves n: the same for its sender and its receiver. */
int64_t ct_segment_elements(int64_t n);
/** No message is larger of a step that moves n elements or fewer. */
int64_t ct_segment_largest(int64_t n);

#endif
