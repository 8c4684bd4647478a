/** @file multipart.h  Parts of a body of type multipart/form-data (RFC 7578, RFC 2046), one after
 * the other, where they lie.
 */
#ifndef CT_MULTIPART_H
#define CT_MULTIPART_H

#include <stdbool.h>
#include <stddef.h>

enum { CT_MULTIPART_NAME = 128 };

typedef struct ct_multipart {
    char limit[80]; /* "--" and the boundary */
    const char *at, *end;
    bool over;
} ct_multipart;

typedef struct ct_multipart_part {
    char file[CT_MULTIPART_NAME]; /* its filename, perhaps cut; "": it is no file */
    bool is_file;
    const char *data;
    size_t size;
} ct_multipart_part;

/** type: Content-Type. NULL, or what is wrong. */
const char *ct_multipart_begin(ct_multipart *m, const char *type, const char *body, size_t size);
/** The next part; m->over: there is none. NULL, or what is wrong with the body. */
const char *ct_multipart_next(ct_multipart *m, ct_multipart_part *part);

#endif
