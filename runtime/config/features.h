/** @file features.h  What this build has in it: the one table of optional parts in tools/. */
#ifndef CT_FEATURES_H
#define CT_FEATURES_H

#include <stdbool.h>

typedef struct ct_feature {
    const char *name, *use;
    bool built_in;
} ct_feature;

extern const ct_feature ct_feature_table[]; /* ends with a NULL name */

bool ct_feature_has(const char *name);
/** "0.1.0-gabcdef", the compiler, its flags. Static. */
const char *ct_build_version(void);
const char *ct_build_compiler(void);
const char *ct_build_flags(void);

#endif
