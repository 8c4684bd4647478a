/** @file class_names.h  Names of classes: a file with one a line, class 0 first. Conversion of
 * folders of images writes it beside the data sets; nets and servers name their classes by it.
 */
#ifndef CT_CLASS_NAMES_H
#define CT_CLASS_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "framework/base/status.h"

/** Its name in a folder of data sets. */
#define CT_CLASS_FILE "classes.txt"

/** Zero-initialise. */
typedef struct ct_class_names {
    char *text; /* what the names lie in */
    const char **name;
    int64_t n;
} ct_class_names;

/** n: how many there must be; 0: as many as there are. place: what messages call the file. Names
 *  are UTF-8, none is empty. CT_ERR_IO, CT_ERR_CONFIG with the line, logged. */
ct_status ct_class_names_read(const char *path, const char *place, int64_t n, ct_class_names *l);
/** Copies n names. CT_ERR_NOMEM, logged. */
ct_status ct_class_names_copy(char *const *name, int64_t n, ct_class_names *l);
/** CT_ERR_IO, logged. */
ct_status ct_class_names_write(const char *path, const ct_class_names *l);
/** Whether a text can be such a name: UTF-8 without control characters, not empty. */
bool ct_is_class_name(const char *text);
void ct_class_names_release(ct_class_names *l);

#endif
