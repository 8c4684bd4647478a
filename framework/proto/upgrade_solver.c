/* Solvers: old forms, the nets and the prefix that they name by where they lie. */
#include "framework/proto/upgrade.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/proto/message.h"
#include "framework/proto/upgrade_impl.h"

static ct_status upgrade_solver_type(const ct_upgrade *u, Ct__SolverParameter *solver)
{
    static const char *const name[] = {
        "SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam"
    };
    const ProtobufCFieldDescriptor *f = ct_field_find(solver->base.descriptor, "type", 4);
    unsigned type = (unsigned)solver->solver_type;

    if (!solver->has_solver_type) return CT_OK;
    if (ct_field_count(&solver->base, f) > 0) {
        return ct_upgrade_fail(u, solver, "\"solver_type\" is the old form of \"type\"; give one");
    }
    if (type >= sizeof(name) / sizeof(name[0])) {
        return ct_upgrade_fail(u, solver, "solver_type %u stands for no solver", type);
    }
    solver->type = strdup(name[type]);
    solver->has_solver_type = false;
    if (solver->type == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a solver");
    return (u->map != NULL) ? ct_source_map_copy(u->map, &solver->type, &solver->solver_type)
                            : CT_OK;
}

static ct_status upgrade_inner_net(Ct__NetParameter *net, const char *file, ct_source_map *map)
{
    if (net == NULL) return CT_OK;
    CT_TRY(ct_net_upgrade(net, file, map));
    ct_net_warn_unused(net, file, map);
    return CT_OK;
}

static ct_status upgrade_inner_nets(Ct__SolverParameter *solver, const char *file,
                                    ct_source_map *map)
{
    CT_TRY(upgrade_inner_net(solver->net_param, file, map));
    CT_TRY(upgrade_inner_net(solver->train_net_param, file, map));
    for (size_t i = 0; i < solver->n_test_net_param; i++) {
        CT_TRY(upgrade_inner_net(solver->test_net_param[i], file, map));
    }
    return CT_OK;
}

ct_status ct_solver_upgrade(Ct__SolverParameter *solver, const char *file, ct_source_map *map)
{
    CT_TRY(upgrade_solver_type(&(ct_upgrade){ NULL, file, map }, solver));
    return upgrade_inner_nets(solver, file, map);
}

/* *net_p: the path as given where there is a file, else the one beside the solver. */
static ct_status find_net(const char *solver_path, char **net_p)
{
    const char *slash = strrchr(solver_path, '/');
    ct_text beside = { 0 };

    if ((access(*net_p, R_OK) == 0) || ((*net_p)[0] == '/') || (slash == NULL)) return CT_OK;
    ct_text_add(&beside, "%.*s/%s", (int)(slash - solver_path), solver_path, *net_p);
    if (beside.failed) {
        ct_text_destroy(&beside);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a path");
    }
    if (access(beside.text, R_OK) != 0) {
        ct_text_destroy(&beside);
        return CT_OK;
    }
    free(*net_p);
    *net_p = beside.text;
    return CT_OK;
}

ct_status ct_solver_find_nets(Ct__SolverParameter *solver, const char *path)
{
    for (size_t i = 0; i < solver->n_test_net + 2; i++) {
        char **net = (i == 0)   ? &solver->net
                     : (i == 1) ? &solver->train_net
                                : &solver->test_net[i - 2];

        if ((*net != NULL) && ((*net)[0] != '\0')) CT_TRY(find_net(path, net));
    }
    return CT_OK;
}

static bool is_directory(const char *path)
{
    struct stat st;

    return (stat(path, &st) == 0) && S_ISDIR(st.st_mode);
}

/* As Caffe: without a snapshot_prefix it is the solver's path less its ending; in a directory that
 * it names ("snapshots/", or one that is there), the solver's name. */
static ct_status find_prefix(Ct__SolverParameter *solver, const char *path)
{
    const char *given = (solver->snapshot_prefix != NULL) ? solver->snapshot_prefix : "";
    const char *base = strrchr(path, '/'), *ending = strrchr(path, '.');
    size_t n = strlen(given);
    bool slash = (n > 0) && (given[n - 1] == '/');
    bool in_directory = slash || ((n > 0) && is_directory(given));
    ct_text prefix = { 0 };

    if ((n > 0) && !in_directory) return CT_OK;
    base = (base != NULL) ? base + 1 : path;
    if ((ending == NULL) || (ending <= base)) ending = path + strlen(path);
    if (in_directory) {
        ct_text_add(&prefix, "%s%s%.*s", given, slash ? "" : "/", (int)(ending - base), base);
    } else {
        ct_text_add(&prefix, "%.*s", (int)(ending - path), path);
    }
    if (prefix.failed) {
        ct_text_destroy(&prefix);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for snapshot_prefix");
    }
    free(solver->snapshot_prefix);
    solver->snapshot_prefix = prefix.text;
    return CT_OK;
}

ct_status ct_solver_read(const char *path, ct_source_map *map, Ct__SolverParameter **solver_p)
{
    ProtobufCMessage *message;
    Ct__SolverParameter *solver;
    ct_status status;

    CT_TRY(ct_prototxt_read(&ct__solver_parameter__descriptor, path, map, &message));
    solver = (Ct__SolverParameter *)message;
    CT_TRY_GOTO(status, err_release, ct_solver_upgrade(solver, path, map));
    CT_TRY_GOTO(status, err_release, ct_solver_find_nets(solver, path));
    CT_TRY_GOTO(status, err_release, find_prefix(solver, path));
    *solver_p = solver;
    return CT_OK;

err_release:
    ct_source_map_forget(map, message);
    ct__solver_parameter__free_unpacked(solver, NULL);
    return status;
}
