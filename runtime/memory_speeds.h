/** @file memory_speeds.h  How fast this rank computes and its files move, measured in a moment and
 *  in little memory, for those who choose where memory is short.
 */
#ifndef CT_MEMORY_SPEEDS_H
#define CT_MEMORY_SPEEDS_H

#include "planner/memory_price.h"

/** Multiply-adds of all threads, and 32 MiB written to a file in the folder and read again. Bytes
 *  of memory are not measured, since that takes much of it: a tenth of the operations are assumed.
 *  Where the folder takes no files its speeds stay as assumed. CT_ERR_NOMEM. */
ct_status ct_memory_speeds_measure(const char *folder, ct_memory_speeds *v);

#endif
