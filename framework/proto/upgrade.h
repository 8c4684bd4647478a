/** @file upgrade.h  Reads solver and net files, and brings old forms of nets up to date.
 *
 * Old forms: `layers { type: CONVOLUTION }` (V1LayerParameter), `input` with `input_dim` or
 * `input_shape` (they become Input layers), transformation fields in data layers, solver_type.
 */
#ifndef CT_UPGRADE_H
#define CT_UPGRADE_H

#include "framework/proto/cortado.pb-c.h"
#include "framework/proto/prototxt.h"

/** Upgrades in place; file names the net in messages. */
ct_status ct_net_upgrade(Ct__NetParameter *net, const char *file, ct_source_map *map);
/** Reads and upgrades a net. Freed with ct__net_parameter__free_unpacked(). */
ct_status ct_net_read(const char *path, ct_source_map *map, Ct__NetParameter **net_p);
/** Reads a solver; a net named in it is looked up as given, then beside the solver file. The
 * solver's nets are not read yet. */
ct_status ct_solver_read(const char *path, ct_source_map *map, Ct__SolverParameter **solver_p);

#endif
