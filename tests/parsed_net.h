/** @file parsed_net.h  Messages from text, and nets that read data, for tests. */
#ifndef CT_TEST_PARSED_NET_H
#define CT_TEST_PARSED_NET_H

#include "framework/net/net.h"
#include "framework/proto/prototxt.h"

/** The test fails where the text does not read. */
ProtobufCMessage *test_parsed(const ProtobufCMessageDescriptor *type, const char *text);

/** A net on the CPU and the message it was made of. */
typedef struct parsed_net {
    Ct__NetParameter *param;
    ct_net *net;
} parsed_net;

/** ct_net_create()'s status; the message is there, and the caller's, in any case. */
ct_status parsed_net_open(const char *text, ct_phase phase, const ct_net_env *env, parsed_net *f);
void parsed_net_close(parsed_net *f);

#endif
