/* `repeat` in nets: what it is expanded to, where copies stand, and what is refused. */
#include "tests/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/proto/cortado.pb-c.h"
#include "framework/proto/upgrade.h"
#include "tests/log_capture.h"

typedef struct parsed {
    Ct__NetParameter *net;
    ct_source_map *map;
    log_capture log;
    ct_status status;
} parsed;

static parsed *parse(const char *text)
{
    parsed *p = calloc(1, sizeof(*p));
    ProtobufCMessage *m = NULL;

    assert_non_null(p);
    assert_int_equal(ct_source_map_create(&p->map), CT_OK);
    log_capture_start(&p->log);
    p->status = ct_prototxt_parse(&ct__net_parameter__descriptor, "net.prototxt", text,
                                  strlen(text), p->map, &m);
    log_capture_stop();
    p->net = (Ct__NetParameter *)(void *)m;
    return p;
}

static void end(parsed *p)
{
    if (p->net != NULL) ct__net_parameter__free_unpacked(p->net, NULL);
    ct_source_map_destroy(p->map);
    free(p);
}

/* "name(bottoms)tops name(bottoms)tops". */
static void expect(const char *text, const char *layers)
{
    parsed *p = parse(text);
    ct_text t = { 0 };

    if (p->status != CT_OK) print_error("%s\n", p->log.error);
    assert_int_equal(p->status, CT_OK);
    for (size_t i = 0; i < p->net->n_layer; i++) {
        const Ct__LayerParameter *l = p->net->layer[i];

        ct_text_add(&t, "%s%s(", (i > 0) ? " " : "", (l->name != NULL) ? l->name : "-");
        for (size_t b = 0; b < l->n_bottom; b++)
            ct_text_add(&t, "%s%s", (b > 0) ? "," : "", l->bottom[b]);
        ct_text_add(&t, ")");
        for (size_t k = 0; k < l->n_top; k++)
            ct_text_add(&t, "%s%s", (k > 0) ? "," : "", l->top[k]);
    }
    assert_string_equal(t.text, layers);
    assert_int_equal(p->net->n_repeat, 0);
    ct_text_destroy(&t);
    end(p);
}

static void expect_error(const char *text, const char *message)
{
    parsed *p = parse(text);

    assert_int_equal(p->status, CT_ERR_CONFIG);
    assert_string_equal(p->log.error, message);
    assert_int_equal(p->log.n_error, 1);
    end(p);
}

#define BLOCK(_head)                                                                               \
    "repeat { " _head " layer { name: \"fc\" bottom: \"x\" top: \"y\" } "                          \
    "layer { name: \"sum\" bottom: \"x\" bottom: \"y\" top: \"x\" } }"
#define X_TO_X "bottom: \"x\" top: \"x\" "

static void copies_in_a_row(void **state)
{
    (void)state;
    /* the blob behind the last has its own name, if none has it before */
    expect("layer { name: \"in\" top: \"a\" } repeat { count: 2 prefix: \"h%d_\" bottom: \"a\" "
           "top: \"b\" layer { name: \"fc\" bottom: \"a\" top: \"b\" } } "
           "layer { name: \"out\" bottom: \"b\" top: \"c\" }",
           "in()a h0_fc(a)h0_b h1_fc(h0_b)b out(b)c");
    /* otherwise the layers behind read it under its full name, in place too */
    expect(
        "layer { name: \"in\" top: \"x\" } " BLOCK(
            "count: 3 prefix: \"h%d_\" " X_TO_X) "layer { name: \"relu\" bottom: \"x\" top: \"x\" "
                                                 "} "
                                                 "layer { name: \"out\" bottom: \"x\" top: \"z\" }",
        "in()x h0_fc(x)h0_y h0_sum(x,h0_y)h0_x h1_fc(h0_x)h1_y h1_sum(h0_x,h1_y)h1_x "
        "h2_fc(h1_x)h2_y h2_sum(h1_x,h2_y)h2_x relu(h2_x)h2_x out(h2_x)z");
    /* one after the other, and the net's old form of inputs */
    expect("input: \"x\" input_dim: [1, 1, 1, 1] " BLOCK("count: 1 prefix: \"a%d_\" " X_TO_X)
               BLOCK("count: 2 prefix: \"b%d_\" " X_TO_X) "layer { name: \"out\" bottom: \"x\" }",
           "a0_fc(x)a0_y a0_sum(x,a0_y)a0_x b0_fc(a0_x)b0_y b0_sum(a0_x,b0_y)b0_x "
           "b1_fc(b0_x)b1_y b1_sum(b0_x,b1_y)b1_x out(b1_x)");
    /* without a number in the prefix, and without a prefix */
    expect("repeat { count: 1 prefix: \"one/\" bottom: \"i\" top: \"o\" "
           "layer { name: \"f\" bottom: \"i\" top: \"o\" } }",
           "one/f(i)o");
    expect("repeat { count: 1 bottom: \"i\" top: \"o\" layer { bottom: \"i\" top: \"t\" } "
           "layer { name: \"g\" bottom: \"t\" top: \"o\" } }",
           "-(i)t g(t)o");
}

static void what_a_copy_reads(void **state)
{
    (void)state;
    /* blobs from outside keep their names; in place the bottom becomes one of the copy's own */
    expect("layer { name: \"in\" top: \"x\" top: \"seg\" } "
           "repeat { count: 2 prefix: \"h%d_\" bottom: \"x\" top: \"x\" "
           "layer { name: \"norm\" bottom: \"x\" top: \"x\" } "
           "layer { name: \"att\" bottom: \"x\" bottom: \"seg\" top: \"t\" } "
           "layer { name: \"out\" bottom: \"t\" top: \"seg\" } "
           "layer { name: \"end\" bottom: \"seg\" top: \"x\" } }",
           "in()x,seg h0_norm(x)h0_x h0_att(h0_x,seg)h0_t h0_out(h0_t)h0_seg h0_end(h0_seg)h0_x "
           "h1_norm(h0_x)h1_x h1_att(h1_x,seg)h1_t h1_out(h1_t)h1_seg h1_end(h1_seg)h1_x");
    /* what a repeat made is outside for the next one */
    expect("layer { name: \"in\" top: \"x\" } " BLOCK(
               "count: 1 prefix: \"e%d_\" " X_TO_X) "layer { name: \"start\" top: \"d\" } "
                                                    "repeat { count: 2 prefix: \"d%d_\" bottom: "
                                                    "\"d\" top: \"o\" "
                                                    "layer { name: \"att\" bottom: \"d\" bottom: "
                                                    "\"x\" top: \"o\" } }",
           "in()x e0_fc(x)e0_y e0_sum(x,e0_y)e0_x start()d d0_att(d,e0_x)d0_o "
           "d1_att(d0_o,e0_x)o");
}

static void repeats_within_repeats(void **state)
{
    parsed *p;

    (void)state;
    expect(
        "layer { name: \"in\" top: \"x\" } "
        "repeat { count: 2 prefix: \"s%d_\" bottom: \"x\" top: \"x\" "
        "layer { name: \"down\" bottom: \"x\" top: \"x\" } "
        "repeat { count: 2 prefix: \"h%d_\" bottom: \"x\" top: \"x\" "
        "layer { name: \"fc\" bottom: \"x\" bottom: \"seg\" top: \"x\" } } "
        "layer { name: \"up\" bottom: \"x\" top: \"z\" } "
        "layer { name: \"more\" bottom: \"z\" top: \"z\" } } "
        "layer { name: \"out\" bottom: \"x\" }",
        /* within a copy of the outer one "x" is taken, so "up" reads h1_x, the top it hands on */
        "in()x s0_down(x)s0_x s0_h0_fc(s0_x,seg)s0_h0_x s0_h1_fc(s0_h0_x,seg)s0_h1_x "
        "s0_up(s0_h1_x)s0_z s0_more(s0_z)s0_z "
        "s1_down(s0_h1_x)s1_x s1_h0_fc(s1_x,seg)s1_h0_x s1_h1_fc(s1_h0_x,seg)s1_h1_x "
        "s1_up(s1_h1_x)s1_z s1_more(s1_z)s1_z out(s1_h1_x)");
    /* what the last copy hands on is called as the repeat says, where no layer before has the name,
     * whatever it is called inside */
    expect("layer { name: \"in\" top: \"a\" } "
           "repeat { count: 2 prefix: \"s%d_\" bottom: \"a\" top: \"b\" "
           "layer { name: \"down\" bottom: \"a\" top: \"b\" } "
           "repeat { count: 2 prefix: \"h%d_\" bottom: \"b\" top: \"b\" "
           "layer { name: \"fc\" bottom: \"b\" top: \"b\" } } } "
           "layer { name: \"out\" bottom: \"b\" }",
           "in()a s0_down(a)s0_b s0_h0_fc(s0_b)s0_h0_b s0_h1_fc(s0_h0_b)s0_h1_b "
           "s1_down(s0_h1_b)s1_b s1_h0_fc(s1_b)s1_h0_b s1_h1_fc(s1_h0_b)b out(b)");
    p = parse("repeat { count: 3 prefix: \"s%d_\" bottom: \"x\" top: \"y\" repeat { count: 2 "
              "prefix: \"h%d_\" bottom: \"x\" top: \"y\" layer { bottom: \"x\" top: \"y\" } } }");
    assert_int_equal(p->status, CT_OK);
    assert_int_equal(p->net->n_layer, 6);
    assert_string_equal(p->net->layer[5]->top[0], "y");
    for (int i = 0; i < 6; i++) { /* the outermost repeat counts */
        const Ct__RepeatCopy *c = p->net->layer[i]->repeat_copy;

        assert_int_equal(c->copy, i / 2);
        assert_int_equal(c->of, 3);
        assert_int_equal(c->column, 1);
    }
    end(p);
}

static void copies_keep_their_fields(void **state)
{
    parsed *p = parse("layer { name: \"a\" top: \"x\" }\n"
                      "repeat {\n count: 2 prefix: \"h%d_\"\n layer {\n  name: \"fc\"\n"
                      "  type: \"InnerProduct\" include { phase: TRAIN stage: \"s\" }\n"
                      "  bottom: \"x\" top: \"x\"\n  param { name: \"shared\" lr_mult: 2 }\n"
                      "  inner_product_param {\n   num_output: 7\n  } }\n"
                      " top: \"x\" bottom: \"x\" }\n");
    ct_text t = { 0 };

    (void)state;
    assert_int_equal(p->status, CT_OK);
    assert_int_equal(p->net->n_layer, 3);
    assert_null(p->net->layer[0]->repeat_copy);
    for (int i = 0; i < 2; i++) {
        Ct__LayerParameter *l = p->net->layer[1 + i];
        ct_place place = ct_source_map_find(p->map, l);

        assert_string_equal(l->param[0]->name, "shared");
        assert_int_equal(l->include[0]->phase, CT__PHASE__TRAIN);
        assert_string_equal(l->include[0]->stage[0], "s");
        assert_int_equal(l->inner_product_param->num_output, 7);
        assert_int_equal(place.line, 4);
        assert_string_equal(place.file, "net.prototxt");
        assert_int_equal(ct_source_map_find(p->map, &l->inner_product_param->num_output).line, 10);
        assert_int_equal(l->repeat_copy->copy, i);
        assert_int_equal(l->repeat_copy->line, 2);
    }
    /* options set fields of one copy, and know the nearest name */
    assert_int_equal(ct_prototxt_set_noted(&p->net->base,
                                           "layer[h1_fc].inner_product_param.num_output", "9",
                                           "--set", p->map),
                     CT_OK);
    assert_int_equal(p->net->layer[1]->inner_product_param->num_output, 7);
    assert_int_equal(p->net->layer[2]->inner_product_param->num_output, 9);
    assert_string_equal(
        ct_source_map_find(p->map, &p->net->layer[2]->inner_product_param->num_output).file,
        "--set");
    /* what is written has the copies, and nothing of where they come from */
    assert_int_equal(ct_prototxt_write(&p->net->base, &t), CT_OK);
    assert_null(strstr(t.text, "repeat"));
    assert_non_null(strstr(t.text, "name: \"h1_fc\""));
    ct_text_destroy(&t);
    end(p);
}

/* A net within a solver; aliases of one net mean nothing in another. */
static void nets_in_a_solver(void **state)
{
    static const char text[] =
        "train_net_param { layer { name: \"in\" top: \"x\" } "
        "repeat { count: 1 prefix: \"h%d_\" bottom: \"x\" top: \"x\" "
        "layer { name: \"fc\" bottom: \"x\" top: \"x\" } } } "
        "test_net_param { layer { name: \"out\" bottom: \"x\" top: \"z\" } }";
    ProtobufCMessage *m;
    Ct__SolverParameter *s;

    (void)state;
    assert_int_equal(
        ct_prototxt_parse(&ct__solver_parameter__descriptor, "s", text, strlen(text), NULL, &m),
        CT_OK);
    s = (Ct__SolverParameter *)(void *)m;
    assert_string_equal(s->train_net_param->layer[1]->name, "h0_fc");
    assert_string_equal(s->train_net_param->layer[1]->top[0], "h0_x");
    assert_string_equal(s->test_net_param[0]->layer[0]->bottom[0], "x");
    ct__solver_parameter__free_unpacked(s, NULL);
}

static void refuses_what_is_no_repeat(void **state)
{
    (void)state;
    expect_error("repeat { count: 0 " X_TO_X "layer { bottom: \"x\" top: \"x\" } }",
                 "net.prototxt:1:10: repeat: count is 0, and must be at least 1");
    expect_error("\n repeat {\n" X_TO_X "layer { bottom: \"x\" top: \"x\" } }",
                 "net.prototxt:2:2: repeat: missing field \"count\"");
    expect_error("repeat { count: 2 top: \"x\" layer { bottom: \"x\" top: \"x\" } }",
                 "net.prototxt:1:1: repeat: missing field \"bottom\"");
    expect_error("repeat { count: 2 prefix: \"h%d\" " X_TO_X "}",
                 "net.prototxt:1:1: repeat: there is no layer in it");
    expect_error(BLOCK("count: 2\nprefix: \"h\" " X_TO_X),
                 "net.prototxt:2:1: repeat: prefix \"h\": 2 copies need \"%d\" in it, for their "
                 "number");
    expect_error(BLOCK("count: 2 " X_TO_X),
                 "net.prototxt:1:1: repeat: prefix \"\": 2 copies need \"%d\" in it, for their "
                 "number");
    expect_error(BLOCK("count: 2 prefix: \"h%s_\" " X_TO_X),
                 "net.prototxt:1:19: repeat: prefix \"h%s_\": \"%\" stands there once, as \"%d\", "
                 "for the number of the copy");
    expect_error(BLOCK("count: 1 prefix: \"%d%n\" " X_TO_X),
                 "net.prototxt:1:19: repeat: prefix \"%d%n\": \"%\" stands there once, as \"%d\", "
                 "for the number of the copy");
    expect_error(BLOCK("count: 1 prefix: \"%\" " X_TO_X),
                 "net.prototxt:1:19: repeat: prefix \"%\": \"%\" stands there once, as \"%d\", "
                 "for the number of the copy");
    expect_error(BLOCK("count: 2 prefix: \"%d\" bottom: \"x\" top: \"yy\""),
                 "net.prototxt:1:44: repeat: no layer in it makes \"yy\"; did you mean \"y\"?");
    expect_error(BLOCK("count: 2 prefix: \"%d\" bottom: \"hidden\" top: \"x\""),
                 "net.prototxt:1:32: repeat: no layer in it reads \"hidden\"");
    expect_error("repeat { count: 2 layre { } }",
                 "net.prototxt:1:19: unknown field \"layre\"; did you mean \"layer\"?");
    expect_error("layer { repeat_copy { copy: 1 } }",
                 "net.prototxt:1:9: unknown field \"repeat_copy\" in LayerParameter");
}

static void refuses_too_many(void **state)
{
    (void)state;
    expect_error(BLOCK("count: 2000000000 prefix: \"%d\" " X_TO_X),
                 "net.prototxt:1:10: repeat: 2000000000 copies of 2 layers are too many: the "
                 "repeats of a file make at most 65536");
    /* of all repeats together, those within others counted each time */
    expect_error("repeat { count: 300 prefix: \"a%d\" " X_TO_X
                 "repeat { count: 300 prefix: \"b%d\" " X_TO_X
                 "layer { bottom: \"x\" top: \"x\" } } }",
                 "net.prototxt:1:10: repeat: 300 copies of 300 layers are too many: the repeats of "
                 "a file make at most 65536");
}

static void refuses_names_that_clash(void **state)
{
    (void)state;
    expect_error("layer { name: \"in\" top: \"x\" }\nrepeat { count: 12 prefix: \"h%d\" " X_TO_X
                 "\nlayer { name: \"1\" bottom: \"x\" top: \"y\" }\n"
                 "layer { name: \"\" bottom: \"y\" top: \"x\" } }",
                 "net.prototxt:4:1: two layers are called \"h11\": copy 1 of the repeat of line 2 "
                 "(line 3) and copy 11 of the repeat of line 2 (line 4); change a name or the "
                 "prefix");
    expect_error("layer { name: \"in\" top: \"x\" }\n" BLOCK(
                     "count: 2 prefix: \"h%d_\" " X_TO_X) "\nlayer { name: \"h1_fc\" bottom: \"x\" "
                                                          "top: \"z\" }",
                 "net.prototxt:3:1: two layers are called \"h1_fc\": copy 1 of the repeat of line "
                 "2 (line 2) and a layer outside of repeats (line 3); change a name or the prefix");
    /* in one copy two layers may have one name, as outside: of other phases */
    expect("repeat { count: 1 prefix: \"h%d_\" bottom: \"x\" top: \"y\" "
           "layer { name: \"a\" bottom: \"x\" top: \"y\" include { phase: TRAIN } } "
           "layer { name: \"a\" bottom: \"x\" top: \"y\" include { phase: TEST } } }",
           "h0_a(x)y h0_a(x)y");
}

static void is_set_by_no_option(void **state)
{
    parsed *p = parse(BLOCK("count: 2 prefix: \"h%d_\" " X_TO_X));
    log_capture c;

    (void)state;
    assert_int_equal(p->status, CT_OK);
    log_capture_start(&c);
    assert_int_equal(ct_prototxt_set(&p->net->base, "repeat[0].count", "3", "--set"),
                     CT_ERR_CONFIG);
    log_capture_stop();
    assert_string_equal(c.error,
                        "--set: repeat[0].count: a repeat cannot be set, it is expanded while its "
                        "file is read; its copies' layers can be, such as layer[h0_NAME]");
    end(p);
}

/* A net from elsewhere that was packed with the message in it. */
static void is_refused_in_binary_nets(void **state)
{
    Ct__RepeatParameter repeat = CT__REPEAT_PARAMETER__INIT, *list[1] = { &repeat };
    Ct__NetParameter net = CT__NET_PARAMETER__INIT;
    log_capture c;

    (void)state;
    net.n_repeat = 1;
    net.repeat = list;
    log_capture_start(&c);
    assert_int_equal(ct_net_upgrade(&net, "net.bin", NULL), CT_ERR_CONFIG);
    log_capture_stop();
    assert_string_equal(c.error,
                        "net.bin: a binary net with \"repeat\", which only texts may have");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_in_a_row),        cmocka_unit_test(what_a_copy_reads),
        cmocka_unit_test(repeats_within_repeats), cmocka_unit_test(copies_keep_their_fields),
        cmocka_unit_test(nets_in_a_solver),       cmocka_unit_test(refuses_what_is_no_repeat),
        cmocka_unit_test(refuses_too_many),       cmocka_unit_test(refuses_names_that_clash),
        cmocka_unit_test(is_set_by_no_option),    cmocka_unit_test(is_refused_in_binary_nets),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
