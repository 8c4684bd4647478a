/* The reader: every form of the text format, and where things stand. Broken input is in
 * test_prototxt_broken.c. */
#include "tests/test.h"

#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/base/file.h"
#include "framework/base/rng.h"
#include "framework/proto/cortado.pb-c.h"
#include "framework/proto/prototxt.h"
#include "tests/log_capture.h"

static ct_status parse(const ProtobufCMessageDescriptor *type, const char *text, ct_source_map *map,
                       void *message_p)
{
    ProtobufCMessage *m = NULL;
    ct_status status = ct_prototxt_parse(type, "t", text, strlen(text), map, &m);

    if (status == CT_OK) memcpy(message_p, &m, sizeof(m));
    return status;
}

static Ct__NetParameter *net_of(const char *text)
{
    Ct__NetParameter *net = NULL;

    assert_int_equal(parse(&ct__net_parameter__descriptor, text, NULL, &net), CT_OK);
    return net;
}

static void free_net(Ct__NetParameter *net)
{
    ct__net_parameter__free_unpacked(net, NULL);
}

static void expect_error(const ProtobufCMessageDescriptor *type, const char *text,
                         const char *message)
{
    void *ignored;
    log_capture c;
    ct_status status;

    log_capture_start(&c);
    status = parse(type, text, NULL, &ignored);
    log_capture_stop();
    assert_int_equal(status, CT_ERR_CONFIG);
    assert_string_equal(c.error, message);
    assert_int_equal(c.n_error, 1);
}

static void forms_of_messages(void **state)
{
    static const char *const text[] = {
        "layer { name: \"a\" type: \"ReLU\" relu_param { negative_slope: 0.5 } }",
        "layer: { name: \"a\", type: \"ReLU\"; relu_param: { negative_slope: 0.5 }, };",
        "layer < name: \"a\" type: \"ReLU\" relu_param < negative_slope: 0.5 > >",
        "layer:<name:'a'type:'ReLU'relu_param:{negative_slope:.5}>",
        "\xEF\xBB\xBFlayer {\r\n  name: \"a\"\r\n  type: \"ReLU\"\r\n"
        "  relu_param { negative_slope: 0.5 }\r\n}\r\n",
        "# a net\n\tlayer { # it has one layer\n name: \"a\" # \"quoted\" { in a comment\n"
        "type: \"ReLU\"\n\n relu_param { negative_slope: 0.5 }#\n}# the end",
        "layer [ { name: \"a\" type: \"ReLU\" relu_param { negative_slope: 0.5 } } ]",
        "layer { relu_param { negative_slope: 0.5 } type: \"ReLU\" name: \"a\" }",
        "layer\r{\rname\r:\r\"a\"\rtype: \"ReLU\"\rrelu_param{negative_slope\r:\r0.5}\r}",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(text) / sizeof(text[0]); i++) {
        Ct__NetParameter *net = net_of(text[i]);

        assert_int_equal(net->n_layer, 1);
        assert_string_equal(net->layer[0]->name, "a");
        assert_string_equal(net->layer[0]->type, "ReLU");
        assert_true(net->layer[0]->relu_param->has_negative_slope);
        assert_true(net->layer[0]->relu_param->negative_slope == 0.5f);
        assert_false(net->layer[0]->relu_param->has_engine);
        free_net(net);
    }
}

static void empty_text(void **state)
{
    static const char *const text[] = { "", "# nothing", "\n\n", "\xEF\xBB\xBF" };

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        Ct__NetParameter *net = net_of(text[i]);

        assert_int_equal(net->n_layer, 0);
        assert_null(net->name);
        free_net(net);
    }
}

static void strings(void **state)
{
    static const struct {
        const char *text, *value;
    } test[] = {
        { "name: \"\"", "" },
        { "name: 'it is \"it\"'", "it is \"it\"" },
        { "name: \"it's\"", "it's" },
        { "name: \"a\\n\\r\\t\\\\\\\"\\'\\?b\"", "a\n\r\t\\\"'?b" },
        { "name: \"\\a\\b\\f\\v\"", "\a\b\f\v" },
        { "name: \"\\101\\1012\\7!\"", "AA2\a!" },
        { "name: \"\\x41\\X4a\\x414\\x9\"", "AJA4\t" },
        { "name: \"\\u00e9\\u20ac\\U0001F600\"", "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80" },
        { "name: \"\xC3\xA9t\xE9\"", "\xC3\xA9t\xE9" },
        { "name: \"one \" 'two' # between\n \" three\"", "one two three" },
        { "name: \"# no comment\"", "# no comment" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(test) / sizeof(test[0]); i++) {
        Ct__NetParameter *net = net_of(test[i].text);

        assert_string_equal(net->name, test[i].value);
        free_net(net);
    }
}

static void bytes_hold_nul(void **state)
{
    Ct__Datum *datum = NULL;

    (void)state;
    assert_int_equal(
        parse(&ct__datum__descriptor, "data: \"a\\000\\xff\" \"\\0b\" label: -3", NULL, &datum),
        CT_OK);
    assert_true(datum->has_data);
    assert_int_equal(datum->data.len, 5);
    assert_memory_equal(datum->data.data, "a\0\xff\0b", 5);
    assert_int_equal(datum->label, -3);
    ct__datum__free_unpacked(datum, NULL);
}

static void integers(void **state)
{
    static const struct {
        const char *text;
        int64_t value;
    } test[] = {
        { "random_seed: 0", 0 },
        { "random_seed: -0", 0 },
        { "random_seed: 17", 17 },
        { "random_seed: - 17", -17 },
        { "random_seed: 0x1F", 31 },
        { "random_seed: -0XfF", -255 },
        { "random_seed: 017", 15 },
        { "random_seed: 9223372036854775807", INT64_MAX },
        { "random_seed: -9223372036854775808", INT64_MIN },
        { "random_seed: 0x7fffffffffffffff", INT64_MAX },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(test) / sizeof(test[0]); i++) {
        Ct__SolverParameter *solver = NULL;

        assert_int_equal(parse(&ct__solver_parameter__descriptor, test[i].text, NULL, &solver),
                         CT_OK);
        assert_true(solver->random_seed == test[i].value);
        assert_true(solver->has_random_seed);
        ct__solver_parameter__free_unpacked(solver, NULL);
    }
}

static void ranges(void **state)
{
    const ProtobufCMessageDescriptor *solver = &ct__solver_parameter__descriptor;
    Ct__SolverParameter *s = NULL;
    Ct__ConvolutionParameter *c = NULL;

    (void)state;
    assert_int_equal(parse(solver, "max_iter: 2147483647 display: -2147483648", NULL, &s), CT_OK);
    assert_int_equal(s->max_iter, INT32_MAX);
    assert_int_equal(s->display, INT32_MIN);
    ct__solver_parameter__free_unpacked(s, NULL);
    assert_int_equal(
        parse(&ct__convolution_parameter__descriptor, "num_output: 4294967295", NULL, &c), CT_OK);
    assert_true(c->num_output == UINT32_MAX);
    ct__convolution_parameter__free_unpacked(c, NULL);

    expect_error(solver, "max_iter: 2147483648",
                 "t:1:11: max_iter: expected a whole number from -2147483648 to 2147483647, got "
                 "\"2147483648\"");
    expect_error(solver, "max_iter: 99999999999999999999999",
                 "t:1:11: max_iter: expected a whole number from -2147483648 to 2147483647, got "
                 "\"99999999999999999999999\"");
    expect_error(solver, "max_iter: 18446744073709551617", /* 1, where 64 bits wrap */
                 "t:1:11: max_iter: expected a whole number from -2147483648 to 2147483647, got "
                 "\"18446744073709551617\"");
    expect_error(&ct__net_parameter__descriptor, "input_shape: [ { dim: 1 } { dim: 2 } ]",
                 "t:1:27: input_shape: expected \",\" or \"]\", got \"{\"");
    expect_error(solver, "random_seed: 9223372036854775808",
                 "t:1:14: random_seed: expected a whole number from -9223372036854775808 to "
                 "9223372036854775807, got \"9223372036854775808\"");
    expect_error(solver, "random_seed: 0x",
                 "t:1:14: random_seed: expected a whole number from -9223372036854775808 to "
                 "9223372036854775807, got \"0x\"");
    expect_error(solver, "max_iter: --1",
                 "t:1:12: max_iter: expected a whole number from -2147483648 to 2147483647 behind "
                 "\"-\", got \"-\"");
}

static void check_float(const char *text, float value)
{
    char line[128];
    Ct__SolverParameter *s = NULL;

    snprintf(line, sizeof(line), "base_lr: %s", text);
    assert_int_equal(parse(&ct__solver_parameter__descriptor, line, NULL, &s), CT_OK);
    assert_memory_equal(&s->base_lr, &value, sizeof(value)); /* the sign of zero too */
    ct__solver_parameter__free_unpacked(s, NULL);
}

static void floats(void **state)
{
    Ct__SolverParameter *s = NULL;

    (void)state;
    check_float("0", 0);
    check_float("-0", -0.0f);
    check_float("1", 1);
    check_float("-17", -17);
    check_float("1e-3", 1e-3f);
    check_float("1E+3", 1e3f);
    check_float(".5", .5f);
    check_float("-.5e1", -5);
    check_float("1.", 1);
    check_float("1.f", 1);
    check_float("0.1F", 0.1f);
    check_float("3f", 3);
    check_float("16777217", 16777216);                                /* halfway: to even */
    check_float("1.00000005960464477539062500000001", 0x1.000002p0f); /* rounded twice: 1 */
    check_float("3.4028234e38", FLT_MAX);
    check_float("1e-45", 1.4e-45f);
    check_float("1e-60", 0);
    check_float("inf", INFINITY);
    check_float("-inf", -INFINITY);
    check_float("Infinity", INFINITY);
    assert_int_equal(parse(&ct__solver_parameter__descriptor, "base_lr: NaN", NULL, &s), CT_OK);
    assert_true(isnan(s->base_lr));
    ct__solver_parameter__free_unpacked(s, NULL);
}

/* Rounded once, as strtof does it, over all magnitudes. */
static void floats_match_strtof(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 20000; i++) {
        ct_rng_block b = ct_rng_philox(7, 0, i);
        char text[64];

        snprintf(text, sizeof(text), "%s%u.%ue%d", (b.v[2] & 1) ? "-" : "", b.v[0], b.v[1],
                 (int)(b.v[3] % 70) - 45);
        check_float(text, strtof(text, NULL));
    }
}

static void any_locale(void **state)
{
    static const char *const comma[] = { "de_DE.UTF-8", "fr_FR.UTF-8", "de_DE.utf8", "fr_FR" };
    bool found = false;

    (void)state;
    for (size_t i = 0; (i < 4) && !found; i++) found = setlocale(LC_NUMERIC, comma[i]) != NULL;
    if (!found) {
        print_message("no locale with a decimal comma here\n");
        skip();
    }
    check_float("0.5", 0.5f);
    assert_int_equal(localeconv()->decimal_point[0], ',');
    setlocale(LC_NUMERIC, "C");
}

static void names_of_values(void **state)
{
    Ct__SolverParameter *s = NULL;
    Ct__PoolingParameter *p = NULL;

    (void)state;
    assert_int_equal(parse(&ct__solver_parameter__descriptor,
                           "solver_mode: CPU solver_type: 5 snapshot_format: 0x1 debug_info: 1 "
                           "test_initialization: false snapshot_diff: t deterministic: True "
                           "snapshot_after_train: 0 stop_on_nan: f",
                           NULL, &s),
                     CT_OK);
    assert_int_equal(s->solver_mode, CT__SOLVER_PARAMETER__SOLVER_MODE__CPU);
    assert_int_equal(s->solver_type, CT__SOLVER_PARAMETER__SOLVER_TYPE__ADAM);
    assert_int_equal(s->snapshot_format, CT__SOLVER_PARAMETER__SNAPSHOT_FORMAT__BINARYPROTO);
    assert_true(s->debug_info && s->snapshot_diff && s->deterministic);
    assert_false(s->test_initialization || s->snapshot_after_train || s->stop_on_nan);
    assert_true(s->has_test_initialization && s->has_stop_on_nan);
    ct__solver_parameter__free_unpacked(s, NULL);

    assert_int_equal(parse(&ct__pooling_parameter__descriptor, "pool: 1", NULL, &p), CT_OK);
    assert_int_equal(p->pool, CT__POOLING_PARAMETER__POOL_METHOD__AVE);
    ct__pooling_parameter__free_unpacked(p, NULL);
    expect_error(&ct__pooling_parameter__descriptor, "pool: -1",
                 "t:1:7: pool: unknown value \"-1\"; expected one of MAX, AVE, STOCHASTIC");
    expect_error(&ct__solver_parameter__descriptor, "debug_info: 2",
                 "t:1:13: debug_info: expected true or false, got \"2\"");
}

static void lists(void **state)
{
    Ct__NetParameter *net =
        net_of("input: ['a', \"b\" \"c\"] input_dim: [1,2 , -3] input_dim: 4 input_dim: []\n"
               "input_shape: [{dim: [1, 2]}, <dim: 3>] input_shape { dim: 4 dim: [5, 6] dim: 7 }"
               "layer { propagate_down: [true, 0, f] loss_weight: [1, .5f, -inf] }");
    const int64_t shape[] = { 4, 5, 6, 7 };
    const int32_t dim[] = { 1, 2, -3, 4 };

    (void)state;
    assert_int_equal(net->n_input, 2);
    assert_string_equal(net->input[1], "bc");
    assert_int_equal(net->n_input_dim, 4);
    assert_memory_equal(net->input_dim, dim, sizeof(dim));
    assert_int_equal(net->n_input_shape, 3);
    assert_int_equal(net->input_shape[0]->n_dim, 2);
    assert_true(net->input_shape[1]->dim[0] == 3);
    assert_int_equal(net->input_shape[2]->n_dim, 4);
    assert_memory_equal(net->input_shape[2]->dim, shape, sizeof(shape));
    assert_int_equal(net->layer[0]->n_propagate_down, 3);
    assert_true(net->layer[0]->propagate_down[0] && !net->layer[0]->propagate_down[2]);
    assert_true(net->layer[0]->loss_weight[2] == -INFINITY);
    free_net(net);
}

static void defaults_stay(void **state)
{
    Ct__NetParameter *net = net_of("layer { convolution_param { } param { } }");
    const Ct__ConvolutionParameter *c = net->layer[0]->convolution_param;

    (void)state;
    assert_true(c->bias_term && !c->has_bias_term);
    assert_int_equal(c->group, 1);
    assert_true(net->layer[0]->param[0]->lr_mult == 1);
    assert_false(net->layer[0]->param[0]->has_lr_mult);
    free_net(net);
}

static void assert_place(const ct_source_map *map, const void *m, const char *file, int line,
                         int column)
{
    ct_place p = ct_source_map_find(map, m);

    assert_string_equal(p.file, file);
    assert_int_equal(p.line, line);
    assert_int_equal(p.column, column);
}

static void places(void **state)
{
    const char *text = "name: 'x'\r\n# comment\r\nlayer {\r\n  name: 'a'\r\n"
                       "  include { phase: TEST }\tinclude: { }\r\n}\r\n"
                       "input_shape: [ { dim: 1 },\r\n { dim: 2 } ]";
    ct_source_map *map;
    Ct__NetParameter *net = NULL, *other = NULL;

    (void)state;
    assert_int_equal(ct_source_map_create(&map), CT_OK);
    assert_int_equal(parse(&ct__net_parameter__descriptor, text, map, &net), CT_OK);
    assert_int_equal(ct_prototxt_parse(&ct__net_parameter__descriptor, "other", "\nlayer { }", 10,
                                       map, (ProtobufCMessage **)(void *)&other),
                     CT_OK);
    assert_place(map, net, "t", 1, 1);
    assert_place(map, net->layer[0], "t", 3, 1);
    assert_place(map, net->layer[0]->include[0], "t", 5, 3);
    assert_place(map, net->layer[0]->include[1], "t", 5, 27);
    assert_place(map, net->input_shape[0], "t", 7, 16);
    assert_place(map, net->input_shape[1], "t", 8, 2);
    assert_place(map, other->layer[0], "other", 2, 1);

    assert_place(map, text, "", 0, 0);
    assert_place(NULL, net, "", 0, 0);
    assert_int_equal(ct_source_map_copy(map, text, net->layer[0]), CT_OK);
    assert_place(map, text, "t", 3, 1);
    free_net(net);
    free_net(other);
    ct_source_map_destroy(map);
    ct_source_map_destroy(NULL);
}

/* A file of 2 MB: a million values in both forms, and many layers, each with its place. */
static void large_text(void **state)
{
    enum { N = 500000, N_LAYER = 20000 };
    ct_text text = { 0 };
    Ct__BlobProto *blob = NULL;
    Ct__NetParameter *net = NULL;
    ct_source_map *map;

    (void)state;
    ct_text_add(&text, "data: [0");
    for (int i = 1; i < N; i++) ct_text_add(&text, ",%d", i % 10);
    ct_text_add(&text, "]");
    for (int i = 0; i < N; i++) ct_text_add(&text, " diff: %d", i % 7);
    assert_int_equal(parse(&ct__blob_proto__descriptor, text.text, NULL, &blob), CT_OK);
    assert_int_equal(blob->n_data, N);
    assert_int_equal(blob->n_diff, N);
    assert_true((blob->data[N - 1] == 9) && (blob->diff[N - 1] == (N - 1) % 7));
    ct__blob_proto__free_unpacked(blob, NULL);
    ct_text_destroy(&text);

    for (int i = 0; i < N_LAYER; i++) ct_text_add(&text, "layer { name: 'l%d' }\n", i);
    assert_int_equal(ct_source_map_create(&map), CT_OK);
    assert_int_equal(parse(&ct__net_parameter__descriptor, text.text, map, &net), CT_OK);
    assert_int_equal(net->n_layer, N_LAYER);
    for (int i = 0; i < N_LAYER; i++) assert_place(map, net->layer[i], "t", i + 1, 1);
    free_net(net);
    ct_source_map_destroy(map);
    ct_text_destroy(&text);
}

/* ---- a message that holds itself, which the schema has none of */

typedef struct nest {
    ProtobufCMessage base;
    struct nest *inner;
} nest;

static const ProtobufCMessageDescriptor nest_type;

static void nest_init(ProtobufCMessage *m)
{
    *(nest *)(void *)m = (nest){ .base = PROTOBUF_C_MESSAGE_INIT(&nest_type) };
}

static const ProtobufCFieldDescriptor nest_field[] = {
    { .name = "inner",
      .id = 1,
      .label = PROTOBUF_C_LABEL_OPTIONAL,
      .type = PROTOBUF_C_TYPE_MESSAGE,
      .offset = offsetof(nest, inner),
      .descriptor = &nest_type },
};
static const unsigned nest_by_name[] = { 0 };
static const ProtobufCIntRange nest_range[] = { { 1, 0 }, { 0, 1 } };
static const ProtobufCMessageDescriptor nest_type = {
    .magic = PROTOBUF_C__MESSAGE_DESCRIPTOR_MAGIC,
    .name = "nest",
    .short_name = "nest",
    .c_name = "nest",
    .package_name = "",
    .sizeof_message = sizeof(nest),
    .n_fields = 1,
    .fields = nest_field,
    .fields_sorted_by_name = nest_by_name,
    .n_field_ranges = 1,
    .field_ranges = nest_range,
    .message_init = nest_init,
};

static ct_status parse_nested(int depth)
{
    ct_text text = { 0 };
    ProtobufCMessage *m;
    ct_status status;

    for (int i = 0; i < depth; i++) ct_text_add(&text, "inner{");
    for (int i = 0; i < depth; i++) ct_text_add(&text, "}");
    status = ct_prototxt_parse(&nest_type, "t", text.text, text.length, NULL, &m);
    if (status == CT_OK) protobuf_c_message_free_unpacked(m, NULL);
    ct_text_destroy(&text);
    return status;
}

static void deep_nesting(void **state)
{
    log_capture c;

    (void)state;
    assert_int_equal(parse_nested(100), CT_OK);
    log_capture_start(&c);
    assert_int_equal(parse_nested(101), CT_ERR_CONFIG);
    assert_string_equal(c.error, "t:1:606: messages are nested more than 100 deep");
    assert_int_equal(parse_nested(1000000), CT_ERR_CONFIG);
    log_capture_stop();
}

static void not_terminated(void **state)
{
    static const char text[] = "name: 'a' input_dim: 123";
    Ct__NetParameter *net = NULL;

    (void)state; /* the reader stops at size, not at a NUL */
    for (size_t size = 0; size < sizeof(text); size++) {
        char *exact = malloc(size + 1);
        log_capture c;
        ct_status status;

        assert_non_null(exact);
        memcpy(exact, text, size);
        exact = realloc(exact, (size > 0) ? size : 1);
        log_capture_start(&c);
        status = ct_prototxt_parse(&ct__net_parameter__descriptor, "t", exact, size, NULL,
                                   (ProtobufCMessage **)(void *)&net);
        log_capture_stop();
        if (size == 23) assert_int_equal(net->input_dim[0], 12);
        if (status == CT_OK) free_net(net);
        free(exact);
    }
}

static void files(void **state)
{
    char folder[] = "/tmp/cortado_XXXXXX", path[64], message[128];
    ProtobufCMessage *m;
    log_capture c;

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/net.prototxt", folder);
    log_capture_start(&c);
    assert_int_equal(ct_prototxt_read(&ct__net_parameter__descriptor, path, NULL, &m), CT_ERR_IO);
    assert_int_equal(ct_prototxt_read(&ct__net_parameter__descriptor, folder, NULL, &m), CT_ERR_IO);
    assert_int_equal(ct_file_write(path, "name: 'a'\nlayr { }\n", 19), CT_OK);
    assert_int_equal(ct_prototxt_read(&ct__net_parameter__descriptor, path, NULL, &m),
                     CT_ERR_CONFIG);
    log_capture_stop();
    snprintf(message, sizeof(message), "%s:2:1: unknown field \"layr\"; did you mean \"layer\"?",
             path);
    assert_string_equal(c.error, message);
    assert_int_equal(c.n_error, 3);
    unlink(path);
    rmdir(folder);
}

/* `recompute` was a bool once: its words and numbers mean the same, in texts and on the wire. */
static void recompute_was_a_bool(void **state)
{
    static const struct {
        const char *text;
        int value;
    } given[] = {
        { "true", CT__RECOMPUTE__CHEAP },  { "false", CT__RECOMPUTE__NEVER },
        { "True", CT__RECOMPUTE__CHEAP },  { "f", CT__RECOMPUTE__NEVER },
        { "1", CT__RECOMPUTE__CHEAP },     { "0", CT__RECOMPUTE__NEVER },
        { "NEVER", CT__RECOMPUTE__NEVER }, { "CHEAP", CT__RECOMPUTE__CHEAP },
        { "2", CT__RECOMPUTE__BLOCKS },    { "BLOCKS", CT__RECOMPUTE__BLOCKS },
        { "AUTO", CT__RECOMPUTE__AUTO },
    };
    static const uint8_t is_true[] = { 0x88, 0xe2, 0x09, 0x01 }; /* field 20001, a varint */
    Ct__NetParameter *net;

    (void)state;
    for (size_t i = 0; i < sizeof(given) / sizeof(given[0]); i++) {
        char text[60];

        snprintf(text, sizeof(text), "recompute: %s", given[i].text);
        net = net_of(text);
        assert_int_equal(net->recompute, given[i].value);
        assert_true(net->has_recompute);
        free_net(net);
    }
    net = ct__net_parameter__unpack(NULL, sizeof(is_true), is_true);
    assert_non_null(net);
    assert_int_equal(net->recompute, CT__RECOMPUTE__CHEAP);
    free_net(net);
    expect_error(&ct__net_parameter__descriptor, "recompute: BLOCK",
                 "t:1:12: recompute: unknown value \"BLOCK\"; did you mean \"BLOCKS\"?");
    expect_error(&ct__net_parameter__descriptor, "recompute: yes",
                 "t:1:12: recompute: unknown value \"yes\"; expected one of NEVER, CHEAP, BLOCKS, "
                 "AUTO");
    expect_error(&ct__solver_parameter__descriptor, "lr_policy: \"fixed\" solver_mode: true",
                 "t:1:33: solver_mode: unknown value \"true\"; expected one of CPU, GPU");
}

int main(void)
{
    const struct CMUnitTest test[] = {
        cmocka_unit_test(forms_of_messages),
        cmocka_unit_test(empty_text),
        cmocka_unit_test(strings),
        cmocka_unit_test(bytes_hold_nul),
        cmocka_unit_test(integers),
        cmocka_unit_test(ranges),
        cmocka_unit_test(floats),
        cmocka_unit_test(floats_match_strtof),
        cmocka_unit_test(any_locale),
        cmocka_unit_test(names_of_values),
        cmocka_unit_test(lists),
        cmocka_unit_test(defaults_stay),
        cmocka_unit_test(places),
        cmocka_unit_test(large_text),
        cmocka_unit_test(deep_nesting),
        cmocka_unit_test(not_terminated),
        cmocka_unit_test(files),
        cmocka_unit_test(recompute_was_a_bool),
    };

    return cmocka_run_group_tests(test, NULL, NULL);
}
