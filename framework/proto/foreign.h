/** @file foreign.h  Layer types of Caffe and its forks that are known and not there. */
#ifndef CT_FOREIGN_H
#define CT_FOREIGN_H

/** A type, and after "not supported: " what to use instead, or why it cannot be there. */
typedef struct ct_foreign_type {
    const char *type, *why;
} ct_foreign_type;

/** In alphabetical order; ends with NULL. */
extern const ct_foreign_type ct_foreign_table[];

/** Why the type is not there; NULL: it is not known. */
const char *ct_foreign_why(const char *type);

#endif
