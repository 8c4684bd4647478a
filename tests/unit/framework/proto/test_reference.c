/* The configuration reference covers the schema. */
#include "tests/test.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/proto/cortado.pb-c.h"
#include "framework/proto/message.h"
#include "framework/proto/prototxt.h"
#include "framework/solver/update_rule.h"

static const ProtobufCMessageDescriptor *const own[] = {
    &ct__comm_parameter__descriptor,           &ct__compression_parameter__descriptor,
    &ct__kernel_parameter__descriptor,         &ct__machine_parameter__descriptor,
    &ct__machine_level_parameter__descriptor,  &ct__machine_switch_parameter__descriptor,
    &ct__parallel_parameter__descriptor,       &ct__parallel_stage_parameter__descriptor,
    &ct__parallel_layer_parameter__descriptor, &ct__parallel_again_parameter__descriptor,
    &ct__warmup_parameter__descriptor,
};

static int make(void **state)
{
    ct_text *text = calloc(1, sizeof(*text));

    if ((text == NULL) || (ct_config_reference(text) != CT_OK)) return -1;
    ct_update_rule_reference(text);
    *state = text;
    return 0;
}

static int drop(void **state)
{
    ct_text_destroy(*state);
    free(*state);
    return 0;
}

static void assert_has(void **state, const char *line)
{
    const ct_text *text = *state;

    if (strstr(text->text, line) == NULL) fail_msg("the reference lacks: %s", line);
}

static void lines(void **state)
{
    assert_has(state, "\n## SolverParameter\n\n| field | type | default | meaning |\n");
    assert_has(state, "\n| `base_lr` | float |  | Learning rate that the policy starts from. |\n");
    assert_has(state, "\n| `type` | string | `\"SGD\"` | ");
    assert_has(state, "\n| `type` | NONE, BF16, TOPK, REDSYNC, FP16, POWERSGD, ONEBIT, AUTO, INT8, "
                      "INT4 | `NONE` | ");
    assert_has(state, "\n| `delta` | float | `1e-08` | ");
    assert_has(state, "\n| `bucket_mb` | float | `0` | ");
    assert_has(state, "\n| `overlap` | bool | `true` | ");
    assert_has(state, "\n| `layer` | list of [LayerParameter](#layerparameter) |  | ");
    assert_has(state, "\n| `min` | float | must be given | Smallest value that passes. |\n");
    assert_has(state, "\n| `pool` | MAX, AVE, STOCHASTIC | `MAX` | ");
    assert_has(state,
               "\n| `pooling_param` | [PoolingParameter](#poolingparameter) |  | Parameters of "
               "layers of type `Pooling`. |\n");
    assert_has(state, "| Parameters of layers of type `Convolution`, `Deconvolution`, ");
    assert_has(state, "\n| `convert_to_lab` | bool | `false` | Refused: SSD reads ");
}

/* Whether a link to `anchor` leads to the heading at `at`: small letters, hyphens for spaces. */
static bool leads_to(const char *anchor, const char *at)
{
    for (; (*at != '\n') && (*anchor != ')'); at++, anchor++) {
        if (*anchor != ((*at == ' ') ? '-' : tolower((unsigned char)*at))) return false;
    }
    return (*at == '\n') && (*anchor == ')');
}

/* Each link leads to one heading. */
static void links(void **state)
{
    const ct_text *text = *state;

    for (const char *at = text->text; (at = strstr(at, "](#")) != NULL; at++) {
        int n = 0;

        for (const char *h = text->text; (h = strstr(h, "\n## ")) != NULL; h++)
            n += leads_to(at + strlen("](#"), h + strlen("\n## "));
        if (n != 1) fail_msg("%d headings for the link %.40s", n, at);
    }
}

/* A meaning of a field that the schema does not have (any more) would be lost in silence. */
static void meanings_have_fields(void **state)
{
    const ct_text *text = *state;

    for (const ct_meaning *m = ct_meaning_table; m->field != NULL; m++) {
        const char *dot = strchr(m->field, '.'), *section, *end, *row;
        char heading[96], field[96];

        assert_non_null(dot);
        snprintf(heading, sizeof(heading), "\n## %.*s\n", (int)(dot - m->field), m->field);
        snprintf(field, sizeof(field), "\n| `%s` | ", dot + 1);
        section = strstr(text->text, heading);
        if (section == NULL) fail_msg("no message of %s", m->field);
        end = strstr(section + 1, "\n## ");
        row = strstr(section, field);
        if ((strcmp(dot, ".*") != 0) && ((row == NULL) || ((end != NULL) && (row > end))))
            fail_msg("no field %s", m->field);
        assert_null(strchr(m->text, '|'));
        if (m[1].field != NULL) assert_true(strcmp(m->field, m[1].field) < 0);
    }
}

static void assert_meaning(const ProtobufCMessageDescriptor *type, const char *field)
{
    if (ct_config_meaning(type->short_name, field) == NULL) {
        fail_msg("%s.%s has no meaning", type->short_name, field);
    }
}

static void own_fields_are_explained(void **state)
{
    const ProtobufCMessageDescriptor *extended[] = {
        &ct__solver_parameter__descriptor,    &ct__layer_parameter__descriptor,
        &ct__data_parameter__descriptor,      &ct__image_data_parameter__descriptor,
        &ct__hdf5_data_parameter__descriptor,
    };
    int n = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
        for (unsigned k = 0; k < own[i]->n_fields; k++)
            assert_meaning(own[i], own[i]->fields[k].name);
    }
    for (size_t i = 0; i < sizeof(extended) / sizeof(extended[0]); i++) {
        for (unsigned k = 0; k < extended[i]->n_fields; k++) {
            if ((extended[i]->fields[k].id < 20000) || ct_field_is_private(&extended[i]->fields[k]))
                continue;
            assert_meaning(extended[i], extended[i]->fields[k].name);
            n++;
        }
    }
    assert_true(n >= 14);
    assert_null(ct_config_meaning("SolverParameter", "nothing"));
    assert_null(ct_config_meaning("Solver", "base_lr"));
}

/* Every row of the page ends in a meaning. */
static void every_field_is_explained(void **state)
{
    const ct_text *text = *state;
    char message[96] = "";
    int n = 0, bare = 0;

    for (const char *at = text->text; at != NULL; at = strchr(at, '\n')) {
        size_t length;

        at += (*at == '\n');
        length = strcspn(at, "\n");
        if (strncmp(at, "## ", 3) == 0)
            snprintf(message, sizeof(message), "%.*s", (int)(length - 3), at + 3);
        if (strncmp(at, "| `", 3) != 0) continue;
        n++;
        if ((length >= 5) && (strncmp(at + length - 5, " |  |", 5) != 0)) continue;
        print_error("%s: no meaning: %.*s\n", message, (int)length, at);
        bare++;
    }
    assert_true(n > 600);
    assert_int_equal(bare, 0);
}

/* One row each, with its states, in the order of the list. */
static void every_rule_has_its_row(void **state)
{
    const ct_text *text = *state;
    const char *at = strstr(text->text, "\n## Update rules\n");
    const ct_update_rule *rule;

    assert_non_null(at);
    for (int i = 0; (rule = ct_update_rule_at(i)) != NULL; i++) {
        char row[96];

        snprintf(row, sizeof(row), "\n| `%s` | %s%s", rule->type, (rule->n_state > 0) ? "`" : "",
                 (rule->n_state > 0) ? rule->state_name[0] : "");
        at = strstr(at, row);
        if (at == NULL) fail_msg("no row of %s", rule->type);
    }
}

int main(void)
{
    const struct CMUnitTest test[] = {
        cmocka_unit_test_setup_teardown(lines, make, drop),
        cmocka_unit_test_setup_teardown(links, make, drop),
        cmocka_unit_test_setup_teardown(every_rule_has_its_row, make, drop),
        cmocka_unit_test_setup_teardown(meanings_have_fields, make, drop),
        cmocka_unit_test(own_fields_are_explained),
        cmocka_unit_test_setup_teardown(every_field_is_explained, make, drop),
    };

    return cmocka_run_group_tests(test, NULL, NULL);
}
