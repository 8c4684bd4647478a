/** @file where.h  Where a field of the solver stands, for messages about its value. */
#ifndef CT_SOLVER_WHERE_H
#define CT_SOLVER_WHERE_H

#include "framework/proto/cortado.pb-c.h"
#include "framework/proto/prototxt.h"

/** A solver's parameters, and where they came from; map may be NULL. */
typedef struct ct_solver_text {
    const Ct__SolverParameter *p;
    const ct_source_map *map;
} ct_solver_text;

/** "solver.prototxt:4:1", or "--set"; "solver" where that is not known. */
#define CT_SOLVER_AT(_t, _field)                                                                   \
    ct_source_map_where((_t)->map, (_t)->p, &(_t)->p->_field, "solver").text

#endif
