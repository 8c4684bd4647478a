/* Files of old forms become what Caffe's own tools make of them: tests/golden/old has what
 * upgrade_net_proto_text and upgrade_solver_proto_text wrote (make_golden_old.sh). */
#include "tests/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/proto/upgrade.h"
#include "tests/log_capture.h"
#include "tests/parsed_net.h"

#define FOLDER "tests/golden/old/"

static ProtobufCMessage *from_file(const ProtobufCMessageDescriptor *type, const char *name,
                                   const char *ending)
{
    ProtobufCMessage *m = NULL;
    char path[128];

    snprintf(path, sizeof(path), FOLDER "%s%s", name, ending);
    assert_int_equal(ct_prototxt_read(type, path, NULL, &m), CT_OK);
    return m;
}

/* Both are freed. */
static void assert_same(ProtobufCMessage *a, ProtobufCMessage *b)
{
    ct_text s = { 0 }, t = { 0 };

    assert_int_equal(ct_prototxt_write(a, &s), CT_OK);
    assert_int_equal(ct_prototxt_write(b, &t), CT_OK);
    assert_string_equal(s.text, t.text);
    ct_text_destroy(&s);
    ct_text_destroy(&t);
    protobuf_c_message_free_unpacked(a, NULL);
    protobuf_c_message_free_unpacked(b, NULL);
}

static ProtobufCMessage *upgraded(ProtobufCMessage *m)
{
    log_capture c;

    log_capture_start(&c);
    assert_int_equal(ct_net_upgrade((Ct__NetParameter *)(void *)m, "t", NULL), CT_OK);
    log_capture_stop();
    return m;
}

static void as_caffe_does(void **state)
{
    static const char *const name[] = { "lenet_v0", "alexnet_v0", "types_v0", "net_v1",
                                        "input_shape" };
    const ProtobufCMessageDescriptor *net = &ct__net_parameter__descriptor;
    const ProtobufCMessageDescriptor *solver = &ct__solver_parameter__descriptor;
    ProtobufCMessage *old = from_file(solver, "solver_old", ".prototxt");

    (void)state;
    assert_int_equal(ct_solver_upgrade((Ct__SolverParameter *)(void *)old, "t", NULL), CT_OK);
    assert_same(old, from_file(solver, "solver_old", ".caffe.prototxt"));
    for (size_t i = 0; i < sizeof(name) / sizeof(name[0]); i++) {
        assert_same(upgraded(from_file(net, name[i], ".prototxt")),
                    from_file(net, name[i], ".caffe.prototxt"));
    }
}

/* The binary form of an old net goes the same way. */
static void from_binary(void **state)
{
    const ProtobufCMessageDescriptor *net = &ct__net_parameter__descriptor;
    ProtobufCMessage *text = from_file(net, "alexnet_v0", ".prototxt"), *again;
    size_t size = protobuf_c_message_get_packed_size(text);
    uint8_t *data = malloc(size);

    (void)state;
    assert_non_null(data);
    protobuf_c_message_pack(text, data);
    again = protobuf_c_message_unpack(net, NULL, size, data);
    assert_non_null(again);
    free(data);
    protobuf_c_message_free_unpacked(text, NULL);
    assert_same(upgraded(again), from_file(net, "alexnet_v0", ".caffe.prototxt"));
}

/* As in Caffe a field that the type does not have is said and left out. */
static void left_out(void **state)
{
    ProtobufCMessage *m = test_parsed(&ct__net_parameter__descriptor,
                                      "layers { layer { name: 'r' type: 'relu' num_output: 3 } }");
    log_capture c;

    (void)state;
    log_capture_start(&c);
    assert_int_equal(ct_net_upgrade((Ct__NetParameter *)(void *)m, "old.txt", NULL), CT_OK);
    log_capture_stop();
    assert_string_equal(c.warning,
                        "old.txt: in layer \"r\": \"num_output\" means nothing to a layer "
                        "of type \"relu\"; left out");
    assert_same(m, test_parsed(&ct__net_parameter__descriptor, "layer { name: 'r' type: 'ReLU' }"));
}

/* Unlike Caffe's, what stands beside `layer { }` is kept, and nets may mix forms. */
static void rest_is_kept(void **state)
{
    const ProtobufCMessageDescriptor *net = &ct__net_parameter__descriptor;

    (void)state;
    assert_same(
        upgraded(test_parsed(net, "layers { layer { type: 'relu' } name: 'r' include { phase: "
                                  "TEST } } layers { type: TANH name: 't' }")),
        test_parsed(net, "layer { type: 'ReLU' name: 'r' include { phase: TEST } } layer { "
                         "type: 'TanH' name: 't' }"));
}

static void assert_refused(const char *text, const char *message)
{
    ProtobufCMessage *m = test_parsed(&ct__net_parameter__descriptor, text);
    log_capture c;

    log_capture_start(&c);
    assert_int_equal(ct_net_upgrade((Ct__NetParameter *)(void *)m, "t", NULL), CT_ERR_CONFIG);
    log_capture_stop();
    assert_string_equal(c.error, message);
    protobuf_c_message_free_unpacked(m, NULL);
}

static void refused(void **state)
{
    (void)state;
    assert_refused("layers { layer { name: 'x' type: 'convolution' } }",
                   "t: in layer \"x\": \"convolution\" is no layer type of the oldest format");
    assert_refused("layers { layer { name: 'p' type: 'padding' } bottom: 'a' bottom: 'b' top: 'p' }"
                   "layers { layer { name: 'c' type: 'conv' } bottom: 'p' top: 'c' }",
                   "t: in layer \"p\": a padding layer has one bottom and one top, and its reader "
                   "\"c\" has no other bottom");
    assert_refused("layers { layer { name: 'p' type: 'padding' } bottom: 'a' top: 'p' }"
                   "layers { type: RELU name: 'r' bottom: 'p' top: 'c' }",
                   "t: in layer \"r\": it reads the padding layer \"p\"; only conv and pool layers "
                   "may");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_caffe_does), cmocka_unit_test(from_binary), cmocka_unit_test(left_out),
        cmocka_unit_test(rest_is_kept),  cmocka_unit_test(refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
