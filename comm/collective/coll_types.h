/** @file coll_types.h  One line an algorithm; private to comm/. */
#ifndef CT_COLL_TYPES_H
#define CT_COLL_TYPES_H

#include "comm/collective/coll.h"

extern const ct_coll_ops ct_coll_hier;
extern const ct_coll_ops ct_coll_ring;
extern const ct_coll_ops ct_coll_rhd;
extern const ct_coll_ops ct_coll_torus;
extern const ct_coll_ops ct_coll_tree;
extern const ct_coll_ops ct_coll_impi;

#endif
