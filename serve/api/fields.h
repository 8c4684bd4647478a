/** @file fields.h  Fields that several of OpenAI's requests have. Each call: false, and the reply
 * is an error that names the field. A field that is null is one that is missing. */
#ifndef CT_API_FIELDS_H
#define CT_API_FIELDS_H

#include "serve/api/transaction.h"

/** A field of one text, or of several. */
typedef struct ct_text_field {
    const char *name;
    int64_t most;   /* tokens of a text */
    char shown[48]; /* of the text that is read, such as "input[3]" */
    bool one;
} ct_text_field;

/** A member of the request; NULL: missing, or null. */
const json_t *ct_fields_get(const ct_transaction *x, const char *name);
/** "model" is the server's. */
bool ct_fields_model(ct_transaction *x);
/** "user", OpenAI's word for who asks, which nothing looks at, is a text. */
bool ct_fields_user(ct_transaction *x);
/** How many texts the field has: a text, a list of texts, a list of ids, or a list of lists of ids.
 */
bool ct_fields_texts(ct_transaction *x, ct_text_field *field, size_t *n_p);
/** Text i of them. */
const json_t *ct_fields_text(const ct_transaction *x, ct_text_field *field, size_t i);
/** The ids of a text, or of a list of them. */
bool ct_fields_tokens(ct_transaction *x, const json_t *j, const ct_text_field *field, ct_ids *ids);
/** A number of [least, most]; missing: *v_p stays what it is. */
bool ct_fields_number(ct_transaction *x, const char *name, double least, double most, double *v_p);
bool ct_fields_whole(ct_transaction *x, const char *name, int64_t least, int64_t most,
                     int64_t *v_p);
bool ct_fields_flag(ct_transaction *x, const char *name, bool *v_p);

#endif
