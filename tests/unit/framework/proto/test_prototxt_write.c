/* The writer: what it writes reads back as an equal message, whatever the message. Two messages
 * are equal where their wire formats are. */
#include "tests/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/rng.h"
#include "framework/proto/cortado.pb-c.h"
#include "framework/proto/message.h"
#include "tests/parsed_net.h"

static ct_text wire_of(const ProtobufCMessage *m)
{
    ct_text wire = { 0 };
    size_t size = protobuf_c_message_get_packed_size(m);

    wire.text = malloc(size + 1);
    assert_non_null(wire.text);
    wire.length = protobuf_c_message_pack(m, (uint8_t *)wire.text);
    return wire;
}

static void assert_equal(const ProtobufCMessage *a, const ProtobufCMessage *b)
{
    ct_text wa = wire_of(a), wb = wire_of(b);

    assert_int_equal(wa.length, wb.length);
    assert_memory_equal(wa.text, wb.text, wa.length);
    ct_text_destroy(&wa);
    ct_text_destroy(&wb);
}

static ct_text written(const ProtobufCMessage *m)
{
    ct_text text = { 0 };

    assert_int_equal(ct_prototxt_write(m, &text), CT_OK);
    assert_int_equal(strlen(text.text), text.length);
    return text;
}

static void assert_round_trip(const ProtobufCMessage *m)
{
    ct_text text = written(m), again;
    ProtobufCMessage *back = test_parsed(m->descriptor, text.text);

    assert_equal(m, back);
    again = written(back);
    assert_string_equal(text.text, again.text);
    protobuf_c_message_free_unpacked(back, NULL);
    ct_text_destroy(&text);
    ct_text_destroy(&again);
}

static void form_of_text(void **state)
{
    ProtobufCMessage *net = test_parsed(
        &ct__net_parameter__descriptor,
        "layer < type: 'Data' name: \"q\\\"\\n\\001\\\\\\t\xC3\xA9\" data_param { backend: "
        "1 scale: "
        ".00390625 } transform_param { mean_value: [104, 117.5, 1e9] mirror: 1 } > "
        "input_shape { dim: [1, -1] } name: '' layer { relu_param { } }");
    ct_text text = written(net);

    (void)state;
    assert_string_equal(text.text, "name: \"\"\n"
                                   "input_shape {\n  dim: 1\n  dim: -1\n}\n"
                                   "layer {\n"
                                   "  name: \"q\\\"\\n\\001\\\\\\t\xC3\xA9\"\n"
                                   "  type: \"Data\"\n"
                                   "  transform_param {\n"
                                   "    mirror: true\n"
                                   "    mean_value: 104\n"
                                   "    mean_value: 117.5\n"
                                   "    mean_value: 1e+09\n"
                                   "  }\n"
                                   "  data_param {\n"
                                   "    scale: 0.00390625\n"
                                   "    backend: LMDB\n"
                                   "  }\n"
                                   "}\n"
                                   "layer {\n  relu_param {\n  }\n}\n");
    assert_round_trip(net);
    protobuf_c_message_free_unpacked(net, NULL);
    ct_text_destroy(&text);
}

static void set_to_the_default(void **state)
{
    ProtobufCMessage *s = test_parsed(&ct__solver_parameter__descriptor,
                                      "type: 'SGD' delta: 1e-08 regularization_type: 'L2'");
    ct_text text = written(s);

    (void)state;
    assert_string_equal(text.text, "regularization_type: \"L2\"\ndelta: 1e-08\ntype: \"SGD\"\n");
    assert_round_trip(s);
    protobuf_c_message_free_unpacked(s, NULL);
    ct_text_destroy(&text);
}

static const char *float_text(float v, ct_text *text)
{
    Ct__PowerParameter p = CT__POWER_PARAMETER__INIT;

    p.has_scale = true;
    p.scale = v;
    *text = written(&p.base);
    text->text[strlen(text->text) - 1] = '\0';
    return text->text + strlen("scale: ");
}

static void shortest_floats(void **state)
{
    static const struct {
        float v;
        const char *text;
    } test[] = { { 0.1f, "0.1" },         { 0.01f, "0.01" },        { 1.0f / 3, "0.33333334" },
                 { 100000, "100000" },    { 1e6f, "1000000" },      { 1e10f, "1e+10" },
                 { 1.5e-10f, "1.5e-10" }, { 16777216, "16777216" }, { -0.0f, "-0" },
                 { INFINITY, "inf" },     { -INFINITY, "-inf" },    { 5e-4f, "0.0005" },
                 { 1e-8f, "1e-08" } };

    (void)state;
    for (size_t i = 0; i < sizeof(test) / sizeof(test[0]); i++) {
        ct_text text;

        assert_string_equal(float_text(test[i].v, &text), test[i].text);
        ct_text_destroy(&text);
    }
}

/* Any bit pattern comes back; a NaN as a NaN of the same sign. */
static void any_float(void **state)
{
    Ct__BlobProto blob = CT__BLOB_PROTO__INIT;
    enum { N = 20000 };
    ProtobufCMessage *back;
    Ct__BlobProto *b;
    ct_text text;

    (void)state;
    blob.n_data = blob.n_double_data = N;
    blob.data = malloc(N * sizeof(float));
    blob.double_data = malloc(N * sizeof(double));
    for (uint64_t i = 0; i < N; i++) {
        ct_rng_block r = ct_rng_philox(3, 0, i);

        memcpy(&blob.data[i], &r.v[0], sizeof(float));
        memcpy(&blob.double_data[i], &r.v[1], sizeof(double));
    }
    text = written(&blob.base);
    back = test_parsed(&ct__blob_proto__descriptor, text.text);
    b = (Ct__BlobProto *)back;
    for (int i = 0; i < N; i++) {
        if (isnan(blob.data[i])) {
            assert_true(isnan(b->data[i]) && !signbit(b->data[i]) == !signbit(blob.data[i]));
        } else {
            assert_memory_equal(&b->data[i], &blob.data[i], sizeof(float));
        }
        if (!isnan(blob.double_data[i])) {
            assert_memory_equal(&b->double_data[i], &blob.double_data[i], sizeof(double));
        }
    }
    protobuf_c_message_free_unpacked(back, NULL);
    ct_text_destroy(&text);
    free(blob.data);
    free(blob.double_data);
}

static void any_byte(void **state)
{
    Ct__Datum datum = CT__DATUM__INIT;
    uint8_t byte[256];

    (void)state;
    for (int i = 0; i < 256; i++) byte[i] = (uint8_t)i;
    datum.has_data = true;
    datum.data = (ProtobufCBinaryData){ 256, byte };
    assert_round_trip(&datum.base);
}

static void hand_made_nets(void **state)
{
    static const char *const text[] = {
        "",
        "name: 'n' input: 'a' input: 'b' input_dim: [1, 3, 4, 4, 1, 1, 1, 1]",
        "layer { name: 'c' type: 'Convolution' bottom: 'a' top: 'c' param { lr_mult: 1 } "
        "param { lr_mult: 2 decay_mult: 0 name: 'shared' share_mode: PERMISSIVE } "
        "convolution_param { num_output: 20 pad: [1, 2] kernel_size: 3 kernel_size: 5 group: 2 "
        "weight_filler { type: 'xavier' variance_norm: AVERAGE } engine: CAFFE } "
        "include { phase: TEST not_stage: 'deploy' stage: ['a', 'b'] min_level: -2 } }",
        "layers { name: 'l' type: SOFTMAX_LOSS blobs_lr: [1, 2] weight_decay: .5 "
        "loss_param { ignore_label: -1 normalization: NONE } loss_weight: 0.3 param: ['x', 'y'] }",
        "layer { name: 'inception_3a/1x1' type: 'Clip' clip_param { min: -1 max: 6 } "
        "ct_kernel { forward: 'auto' } blobs { shape { dim: 2 } data: [0.1, -3e-7] } }",
        "state { phase: TRAIN level: 3 stage: 'x' } debug_info: true force_backward: false",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(text) / sizeof(text[0]); i++) {
        ProtobufCMessage *net = test_parsed(&ct__net_parameter__descriptor, text[i]);

        assert_round_trip(net);
        protobuf_c_message_free_unpacked(net, NULL);
    }
}

/* ---- messages made at random from the schema: every field of every message is met */

static uint32_t draw(uint64_t *counter)
{
    return ct_rng_philox(11, 0, ++*counter).v[0];
}

static void fill(ProtobufCMessage *m, uint64_t *counter, int depth);

static void put_random(ProtobufCMessage *m, const ProtobufCFieldDescriptor *f, uint64_t *counter,
                       int depth)
{
    union {
        uint64_t bits;
        float f32;
        double f64;
        int i;
        protobuf_c_boolean boolean;
        void *pointer;
        ProtobufCBinaryData bytes;
    } v = { 0 };
    const ProtobufCEnumDescriptor *e = f->descriptor;
    uint32_t r = draw(counter);

    v.bits = ((uint64_t)draw(counter) << 32) | r;
    switch (f->type) {
    case PROTOBUF_C_TYPE_FLOAT:
        if (isnan(v.f32)) v.f32 = 0;
        break;
    case PROTOBUF_C_TYPE_DOUBLE:
        if (isnan(v.f64)) v.f64 = 0;
        break;
    case PROTOBUF_C_TYPE_BOOL:
        v.boolean = r & 1;
        break;
    case PROTOBUF_C_TYPE_ENUM:
        v.i = e->values[r % e->n_values].value;
        break;
    case PROTOBUF_C_TYPE_STRING:
        v.pointer = calloc(1, r % 9 + 1);
        for (uint32_t i = 0; i < r % 9; i++)
            ((char *)v.pointer)[i] = (char)(draw(counter) % 255 + 1);
        break;
    case PROTOBUF_C_TYPE_BYTES:
        v.bytes = (ProtobufCBinaryData){ r % 9, calloc(1, r % 9 + 1) };
        for (uint32_t i = 0; i < r % 9; i++) v.bytes.data[i] = (uint8_t)draw(counter);
        break;
    case PROTOBUF_C_TYPE_MESSAGE:
        v.pointer = ct_message_create(f->descriptor);
        fill(v.pointer, counter, depth + 1);
        break;
    default:
        break;
    }
    assert_int_equal(ct_field_put(m, f, &v, true), CT_OK);
}

static void fill(ProtobufCMessage *m, uint64_t *counter, int depth)
{
    for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
        uint32_t n = (f->label == PROTOBUF_C_LABEL_REPEATED) ? draw(counter) % 4 : 1;

        /* what no text holds, and what no text holds any more once it is read */
        if (ct_field_is_private(f) || (f->descriptor == &ct__repeat_parameter__descriptor))
            continue;
        if ((f->label != PROTOBUF_C_LABEL_REQUIRED) && (draw(counter) % (1u << (depth + 1)) != 0)) {
            continue;
        }
        for (uint32_t k = 0; k < n; k++) put_random(m, f, counter, depth);
    }
}

static void random_messages(void **state)
{
    const ProtobufCMessageDescriptor *type[] = { &ct__solver_parameter__descriptor,
                                                 &ct__net_parameter__descriptor,
                                                 &ct__layer_parameter__descriptor,
                                                 &ct__v1_layer_parameter__descriptor,
                                                 &ct__datum__descriptor };
    uint64_t counter = 0;

    (void)state;
    for (int i = 0; i < 500; i++) {
        ProtobufCMessage *m = ct_message_create(type[i % 5]);

        fill(m, &counter, 0);
        assert_round_trip(m);
        protobuf_c_message_free_unpacked(m, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest test[] = {
        cmocka_unit_test(form_of_text),    cmocka_unit_test(set_to_the_default),
        cmocka_unit_test(shortest_floats), cmocka_unit_test(any_float),
        cmocka_unit_test(any_byte),        cmocka_unit_test(hand_made_nets),
        cmocka_unit_test(random_messages),
    };

    return cmocka_run_group_tests(test, NULL, NULL);
}
