#include "runtime/config/config.h"

#include <stdlib.h>
#include <string.h>

/* ---- files */

static void add_test_net(Ct__SolverParameter *s, Ct__NetParameter *net)
{
    Ct__NetParameter **list =
        realloc(s->test_net_param, (s->n_test_net_param + 1) * sizeof(Ct__NetParameter *));

    if (list == NULL) return;
    list[s->n_test_net_param++] = net;
    s->test_net_param = list;
}

/* Reads the nets that the solver names, into the messages for nets written inline. */
static ct_status read_nets(ct_config *c)
{
    Ct__SolverParameter *s = c->solver;

    if (s->net != NULL) {
        CT_TRY(ct_net_read(s->net, c->map, &s->net_param));
        free(s->net);
        s->net = NULL;
    }
    if (s->train_net != NULL) {
        CT_TRY(ct_net_read(s->train_net, c->map, &s->train_net_param));
        free(s->train_net);
        s->train_net = NULL;
    }
    for (size_t i = 0; i < s->n_test_net; i++) {
        Ct__NetParameter *net;

        CT_TRY(ct_net_read(s->test_net[i], c->map, &net));
        add_test_net(s, net);
    }
    for (size_t i = 0; i < s->n_test_net; i++) free(s->test_net[i]);
    free(s->test_net);
    s->test_net = NULL;
    s->n_test_net = 0;
    return CT_OK;
}

static ct_status check_nets(const ct_config *c)
{
    const Ct__SolverParameter *s = c->solver;
    int n = (s->net != NULL) + (s->net_param != NULL) + (s->train_net != NULL) +
            (s->train_net_param != NULL);

    if (n == 1) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG,
                   "%s: %s; a solver needs exactly one of net, net_param, train_net, "
                   "train_net_param",
                   c->file, (n == 0) ? "no net to train" : "more than one net to train");
}

/* A solver for a net that came without: what `time` updates with. */
static ct_status default_solver(ct_config *c, const char *model)
{
    static const char text[] = "base_lr: 0.01 lr_policy: \"fixed\" momentum: 0.9 "
                               "weight_decay: 0.0005 max_iter: 1";
    ProtobufCMessage *m;

    CT_TRY(ct_prototxt_parse(&ct__solver_parameter__descriptor, "default", text, sizeof(text) - 1,
                             NULL, &m));
    c->solver = (Ct__SolverParameter *)(void *)m;
    return ct_net_read(model, c->map, &c->solver->net_param);
}

static ct_status read_files(const ct_options *o, ct_config *c)
{
    const char *solver = ct_options_text(o, "solver"), *model = ct_options_text(o, "model");

    if ((solver == NULL) == (model == NULL)) {
        return CT_FAIL(CT_ERR_CONFIG, "give %s; see --help",
                       (solver != NULL) ? "either --solver or --model, not both"
                                        : "--solver=FILE or --model=FILE, as the verb takes it");
    }
    CT_TRY(ct_source_map_create(&c->map));
    c->is_model = (model != NULL);
    snprintf(c->file, sizeof(c->file), "%s", c->is_model ? model : solver);
    if (c->is_model) {
        CT_TRY(default_solver(c, model));
    } else {
        CT_TRY(ct_solver_read(solver, c->map, &c->solver));
        CT_TRY(ct_config_apply_nets(o, c));
        CT_TRY(ct_solver_find_nets(c->solver, solver));
        CT_TRY(check_nets(c));
        CT_TRY(read_nets(c));
    }
    c->net = (c->solver->net_param != NULL) ? c->solver->net_param : c->solver->train_net_param;
    return CT_OK;
}

ct_status ct_config_read(const ct_options *o, ct_phase phase, ct_config *c)
{
    ct_status status;

    memset(c, 0, sizeof(*c));
    c->phase = phase;
    CT_TRY_GOTO(status, err_destroy, read_files(o, c));
    CT_TRY_GOTO(status, err_destroy, ct_config_apply(o, c));
    return CT_OK;

err_destroy:
    ct_config_destroy(c);
    return status;
}

void ct_config_destroy(ct_config *c)
{
    if (c->solver != NULL) ct__solver_parameter__free_unpacked(c->solver, NULL);
    ct_source_map_destroy(c->map);
    memset(c, 0, sizeof(*c));
}

/* ---- to the other ranks: the whole struct's plain part, then the solver message */

ct_status ct_config_pack(const ct_config *c, void **data_p, size_t *size_p)
{
    size_t size = ct__solver_parameter__get_packed_size(c->solver);
    char *data = malloc(sizeof(*c) + size);

    if (data == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a packed solver");
    memcpy(data, c, sizeof(*c));
    ct__solver_parameter__pack(c->solver, (uint8_t *)data + sizeof(*c));
    *data_p = data;
    *size_p = sizeof(*c) + size;
    return CT_OK;
}

ct_status ct_config_unpack(ct_config *c, const void *data, size_t size)
{
    const uint8_t *at = data;

    memcpy(c, data, sizeof(*c));
    c->map = NULL;
    c->solver = ct__solver_parameter__unpack(NULL, size - sizeof(*c), at + sizeof(*c));
    if (c->solver == NULL) return CT_FAIL(CT_ERR_COMM, "the solver did not arrive whole");
    c->net = (c->solver->net_param != NULL) ? c->solver->net_param : c->solver->train_net_param;
    return CT_OK;
}
