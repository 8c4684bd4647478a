#include "tests/test.h"
#include "tests/parsed_net.h"

#include <string.h>

ProtobufCMessage *test_parsed(const ProtobufCMessageDescriptor *type, const char *text)
{
    ProtobufCMessage *m = NULL;

    assert_int_equal(ct_prototxt_parse(type, "t", text, strlen(text), NULL, &m), CT_OK);
    return m;
}

ct_status parsed_net_open(const char *text, ct_phase phase, const ct_net_env *env, parsed_net *f)
{
    ct_net_options o = { .phase = phase, .env = *env };

    memset(f, 0, sizeof(*f));
    f->param = (Ct__NetParameter *)test_parsed(&ct__net_parameter__descriptor, text);
    CT_TRY(ct_net_create(f->param, &o, &f->net));
    f->net->pass->exec.seed = env->seed;
    return CT_OK;
}

void parsed_net_close(parsed_net *f)
{
    ct_net_destroy(f->net);
    ct__net_parameter__free_unpacked(f->param, NULL);
}
