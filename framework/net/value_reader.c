/* Layers at the end of a net that read values, so that the net keeps them. */
#include "framework/net/net.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/proto/prototxt.h"

void ct_value_reader_name(int i, char name[CT_VALUE_READER_NAME])
{
    snprintf(name, CT_VALUE_READER_NAME, "cortado_value_%d", i);
}

/* A Reshape that changes nothing: its top is an output of the net. */
static ct_status make_layer(int i, const char *blob, ProtobufCMessage **m_p)
{
    char name[CT_VALUE_READER_NAME];
    ct_text text = { 0 };
    ct_status status;

    ct_value_reader_name(i, name);
    ct_text_add(&text, "name: '%s' type: 'Reshape' top: '%s' bottom: ", name, name);
    ct_prototxt_quote(blob, &text);
    ct_text_add(&text, " reshape_param { axis: 0 num_axes: 0 shape { } }");
    status = text.failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for a layer")
                         : ct_prototxt_parse(&ct__layer_parameter__descriptor, name, text.text,
                                             text.length, NULL, m_p);
    ct_text_destroy(&text);
    return status;
}

ct_status ct_value_reader_add(Ct__NetParameter *net, int i, const char *blob)
{
    ProtobufCMessage *m;
    Ct__LayerParameter **grown;

    CT_TRY(make_layer(i, blob, &m));
    grown = realloc(net->layer, (net->n_layer + 1) * sizeof(grown[0]));
    if (grown == NULL) {
        protobuf_c_message_free_unpacked(m, NULL);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a layer");
    }
    net->layer = grown;
    grown[net->n_layer++] = (Ct__LayerParameter *)(void *)m;
    return CT_OK;
}

const ct_blob *ct_value_reader_blob(const ct_net *net, int i)
{
    char name[CT_VALUE_READER_NAME];

    ct_value_reader_name(i, name);
    return net->pass->blob[ct_net_find_blob(net, name)];
}
