/** @file process_room.h  Whether the system's limits leave a rank room to start.
 *
 * Where a limit is too small, MPI and OpenMP end a rank in words of their own, which name no limit,
 * or wait for good. A stack that is too small ends in a crash. So a rank looks first.
 */
#ifndef CT_PROCESS_ROOM_H
#define CT_PROCESS_ROOM_H

#include "framework/base/status.h"

/** Starts n threads that do nothing, and ends them. CT_ERR_CONFIG where not all can start: says how
 *  many can, and which limits there are. CT_ERR_NOMEM. */
ct_status ct_thread_room_check(int n);

/** Open files, the stack and the size of files, as `ulimit` has them, and OMP_STACKSIZE:
 *  CT_ERR_CONFIG, logged, where one is so small that a rank cannot start. The least ones were found
 *  by trying: Open MPI 4.1 alone needs 28 open files and files of 5 MiB, a step of a small net
 *  512 KiB of stack, a thread beside it 128 KiB. */
ct_status ct_process_room_check(void);

#endif
