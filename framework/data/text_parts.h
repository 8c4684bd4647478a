/** @file text_parts.h  The texts that `cortado convert text` reads, and the files that it writes.
 */
#ifndef CT_TEXT_PARTS_H
#define CT_TEXT_PARTS_H

#include <stdbool.h>

#include "framework/base/status.h"
#include "framework/data/convert.h"

enum { CT_TEXT_TRAIN, CT_TEXT_VALID, CT_TEXT_TEST, CT_TEXT_N_PART };

typedef struct ct_text_parts {
    bool folder;                                     /* from and to are folders                */
    char *from[CT_TEXT_N_PART], *to[CT_TEXT_N_PART]; /* NULL: not there; one text is the first */
    char *list;                                      /* TO/list of folders, else NULL */
} ct_text_parts;

/** o->from: a folder with *train*.txt and, if there, *valid*.txt (or dev) and *test*.txt. o->to:
 *  one for files of their parts' names and `suffix`. Or both are a file. list: what else a folder
 *  gets, for instance "vocabulary.txt", or NULL. CT_ERR_CONFIG where a file is there and may not be
 *  replaced; CT_ERR_IO, CT_ERR_DATA. The parts are to be destroyed also then. */
ct_status ct_text_parts_find(const ct_convert_options *o, const char *suffix, const char *list,
                             ct_text_parts *parts);
void ct_text_parts_destroy(ct_text_parts *parts); /* zeroed ones allowed */

#endif
