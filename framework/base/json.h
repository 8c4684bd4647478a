/** @file json.h  JSON files that are read, or written, whole.
 *
 *      json_t *o;
 *
 *      CT_TRY(ct_json_read("profile.json", &o));
 *      batch = ct_json_number(o, "batch", NAN);
 *      peak = ct_json_number(o, "limit.flop", NAN);
 *      name = ct_json_text(o, "net", "no name");
 *      json_decref(o);
 *
 * What is not there, or of another kind, is `otherwise`: files of earlier versions lack members.
 * JSON that is written bit by bit, as metrics are, goes through json_writer.h.
 */
#ifndef CT_JSON_H
#define CT_JSON_H

#include <jansson.h>

#include "framework/base/text.h"

/** Reads a JSON file; *json_p is a new reference. CT_ERR_IO where the file cannot be read,
 *  CT_ERR_DATA where it is not JSON, logged with line and column. */
ct_status ct_json_read(const char *path, json_t **json_p);
/** Writes a file whole or not at all, members in their order, reals with nine digits. CT_ERR_IO,
 *  CT_ERR_NOMEM. */
ct_status ct_json_write(const char *path, const json_t *json);

/** Takes the object of line `line`, from 1 on, which is the caller's no longer than the call. */
typedef ct_status (*ct_json_line_fn)(void *ctx, const char *path, int line, json_t *o);
/** Reads a file of one object a line, as metrics are. A last line without its end, of a program
 *  that still writes or was killed, is left out. CT_ERR_IO; CT_ERR_DATA: a line is no object, with
 *  its number; or the first status of `take` that is not CT_OK. */
ct_status ct_json_lines(const char *path, ct_json_line_fn take, void *ctx);

/** The number at member `name`, or `otherwise`; "a.b" is member b of the object at member a. o may
 *  be NULL. */
double ct_json_number(const json_t *o, const char *name, double otherwise);
/** The same without its fraction; also `otherwise` where no int holds it. */
int ct_json_int(const json_t *o, const char *name, int otherwise);
/** The text at a member, likewise. It belongs to o. */
const char *ct_json_text(const json_t *o, const char *name, const char *otherwise);
/** Appends bytes as base64 (RFC 4648, section 4), as JSON and HTML hold them. */
void ct_text_add_base64(ct_text *t, const void *bytes, size_t n);

#endif
