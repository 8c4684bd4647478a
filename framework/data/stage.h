/** @file stage.h  Copies of data sets on a disk of the node: --stage=DIR.
 *
 * A copy is a folder DIR/NAME-HASH (of the source's full path) with the set's files and stage.txt,
 * which says what was copied: names, sizes, times of change. It is made under another name and
 * renamed when it is whole, and used again as long as the source is as it was.
 */
#ifndef CT_STAGE_H
#define CT_STAGE_H

#include <stdbool.h>

#include "framework/base/status.h"

/** Whether sets of this backend are staged: LMDB, in shards too, and HDF5 files; lists stay. */
bool ct_stage_can(const char *backend, const char *source);
/** Where the copy of source is, or would be; freed by the caller. NULL: no such source, no memory.
 */
char *ct_stage_path(const char *stage, const char *source);
/** Copies source, unless an up-to-date copy is there. CT_ERR_IO: source not readable, no space, DIR
 *  not writable; logged, and nothing half-made is left. One process of a host calls it. */
ct_status ct_stage_make(const char *stage, const char *source, const char *who);

#endif
