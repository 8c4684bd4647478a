/** @file reference.h  The reference of all configuration fields, made from the schema. */
#ifndef CT_REFERENCE_H
#define CT_REFERENCE_H

#include "framework/base/text.h"

/** Appends a Markdown page: for each message that a solver or a net can hold a table of its
 *  fields with type, default and meaning. CT_ERR_NOMEM. */
ct_status ct_config_reference(ct_text *out);

/** What a field means in one line, for "Message" and "field"; NULL where nothing is said of itself
 *  (of a layer's messages of parameters the page says which types read them). */
const char *ct_config_meaning(const char *message, const char *field);

/* The table behind it, in reference_table.c; ends with NULL. Private to framework/proto. */
typedef struct ct_meaning {
    const char *field; /* "Message.field"; "Message.*": all of them */
    const char *text;
} ct_meaning;
extern const ct_meaning ct_meaning_table[];

#endif
