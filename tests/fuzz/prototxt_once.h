/** @file prototxt_once.h  What must hold for any bytes given to the reader; for the fuzzer and for
 *  the mutation test that always runs.
 */
#ifndef CT_PROTOTXT_ONCE_H
#define CT_PROTOTXT_ONCE_H

#include <stdlib.h>
#include <string.h>

#include "framework/proto/upgrade.h"

static bool same_wire(const ProtobufCMessage *a, const ProtobufCMessage *b)
{
    size_t na = protobuf_c_message_get_packed_size(a), nb = protobuf_c_message_get_packed_size(b);
    uint8_t *wa = malloc(na + 1), *wb = malloc(nb + 1);
    bool same = false;

    if ((wa != NULL) && (wb != NULL) && (na == nb)) {
        protobuf_c_message_pack(a, wa);
        protobuf_c_message_pack(b, wb);
        same = memcmp(wa, wb, na) == 0;
    }
    free(wa);
    free(wb);
    return same;
}

/* Where layers of repeats come from stands in no text, so it is not there when they are read again:
 * what came before is left without, too. */
static void forget_copies(Ct__NetParameter *net)
{
    for (size_t i = 0; (net != NULL) && (i < net->n_layer); i++) {
        Ct__LayerParameter *l = net->layer[i];

        if (l->repeat_copy != NULL) ct__repeat_copy__free_unpacked(l->repeat_copy, NULL);
        l->repeat_copy = NULL;
    }
}

static void forget_copies_of(ProtobufCMessage *m, bool is_solver)
{
    Ct__SolverParameter *s = (Ct__SolverParameter *)(void *)m;

    if (!is_solver) {
        forget_copies((Ct__NetParameter *)(void *)m);
        return;
    }
    forget_copies(s->net_param);
    forget_copies(s->train_net_param);
    for (size_t i = 0; i < s->n_test_net_param; i++) forget_copies(s->test_net_param[i]);
}

/* What was read is written and read again. NULL, or what went wrong. */
static const char *check_round_trip(const ProtobufCMessage *m)
{
    ProtobufCMessage *back;
    ct_text text = { 0 };
    const char *wrong = NULL;

    if (ct_prototxt_write(m, &text) != CT_OK) return "cannot be written";
    if (ct_prototxt_parse(m->descriptor, "written", text.text, text.length, NULL, &back) == CT_OK) {
        if (!same_wire(m, back)) wrong = "reads back differently";
        protobuf_c_message_free_unpacked(back, NULL);
    } else {
        wrong = "was written so that it does not read";
    }
    ct_text_destroy(&text);
    return wrong;
}

/** Reads the bytes as a net or a solver; what reads must round-trip, before and after an upgrade;
 *  what does not must give one error and CT_ERR_CONFIG. NULL, or what went wrong. *is_good_p:
 *  whether it read. */
static const char *prototxt_once(const char *text, size_t size, bool is_solver, bool *is_good_p)
{
    const ProtobufCMessageDescriptor *type =
        is_solver ? &ct__solver_parameter__descriptor : &ct__net_parameter__descriptor;
    long n_error = ct_log_n_error();
    ct_source_map *map = NULL;
    ProtobufCMessage *m = NULL;
    const char *wrong = NULL;
    ct_status status;

    *is_good_p = false;
    if (ct_source_map_create(&map) != CT_OK) return "no map";
    status = ct_prototxt_parse(type, "fuzz", text, size, map, &m);
    if (status == CT_OK) {
        *is_good_p = true;
        forget_copies_of(m, is_solver);
        wrong = check_round_trip(m);
        if ((wrong == NULL) && !is_solver) {
            status = ct_net_upgrade((Ct__NetParameter *)m, "fuzz", map);
            wrong = check_round_trip(m); /* even when the upgrade stopped in the middle */
        }
        protobuf_c_message_free_unpacked(m, NULL);
    }
    if ((wrong == NULL) && (status != CT_OK) && (status != CT_ERR_CONFIG)) wrong = "wrong status";
    if ((wrong == NULL) && (ct_log_n_error() - n_error != (status != CT_OK))) {
        wrong = "not one error logged";
    }
    ct_source_map_destroy(map);
    return wrong;
}

#endif
