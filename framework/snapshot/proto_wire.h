/** @file proto_wire.h  The wire format of protocol buffers, for messages whose arrays are written
 * straight from where they lie; private to framework/snapshot.
 */
#ifndef CT_SNAPSHOT_PROTO_WIRE_H
#define CT_SNAPSHOT_PROTO_WIRE_H

#include "framework/snapshot/disk_file.h"
#include "framework/tensor/tensor.h"

/** Bytes that a number takes. */
int ct_proto_size(uint64_t v);
void ct_proto_number(ct_disk_file *d, uint64_t v);
/** Tag and length of a field of `bytes` bytes. */
void ct_proto_field(ct_disk_file *d, unsigned field, uint64_t bytes);
/** Bytes of such a field, tag and length counted. */
int64_t ct_proto_field_size(unsigned field, int64_t bytes);
/** A BlobProto { data shape }, and its bytes. */
int64_t ct_proto_blob_size(const ct_shape *shape);
void ct_proto_blob(ct_disk_file *d, const ct_shape *shape, const float *data);
/** Where in a packed message the fields above `field` begin: fields stand in order. */
size_t ct_proto_split(const uint8_t *message, size_t size, unsigned field);

#endif
