/** @file write.h  Single values as text. Private to framework/proto. */
#ifndef CT_PROTO_WRITE_H
#define CT_PROTO_WRITE_H

#include "framework/proto/prototxt.h"

/** Appends a value of a field that is no message, as the text format writes it. The caller sees
 *  to the C locale. */
void ct_text_add_scalar(ct_text *out, const ProtobufCFieldDescriptor *f, const void *value);
/** Appends a field's default; it must have one (default_value is not NULL). */
void ct_text_add_default(ct_text *out, const ProtobufCFieldDescriptor *f);

#endif
