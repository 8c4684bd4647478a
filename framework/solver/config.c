/* What a solver parameter must say, checked before nets are built. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/base/text.h"
#include "framework/solver/solver_private.h"

static ct_status check_counts(const Ct__SolverParameter *p)
{
    if (!p->has_max_iter) return CT_FAIL(CT_ERR_CONFIG, "solver: max_iter is not set");
    if (p->max_iter < 0)
        return CT_FAIL(CT_ERR_CONFIG, "solver: max_iter is %d, needs at least 0", p->max_iter);
    if (p->iter_size < 1)
        return CT_FAIL(CT_ERR_CONFIG, "solver: iter_size is %d, needs at least 1", p->iter_size);
    if ((p->average_loss < 1) || (p->average_loss > CT_MAX_AVERAGE_LOSS))
        return CT_FAIL(CT_ERR_CONFIG, "solver: average_loss is %d, needs 1 to %d", p->average_loss,
                       CT_MAX_AVERAGE_LOSS);
    if ((p->display < 0) || (p->snapshot < 0) || (p->test_interval < 0) ||
        (p->checksum_interval < 0) || (p->snapshot_keep < 0))
        return CT_FAIL(CT_ERR_CONFIG,
                       "solver: display %d, snapshot %d, test_interval %d, checksum_interval %d, "
                       "snapshot_keep %d: none may be negative",
                       p->display, p->snapshot, p->test_interval, p->checksum_interval,
                       p->snapshot_keep);
    for (size_t i = 0; i < p->n_test_iter; i++) {
        if (p->test_iter[i] < 1)
            return CT_FAIL(CT_ERR_CONFIG, "solver: test_iter is %d, needs at least 1",
                           p->test_iter[i]);
    }
    return CT_OK;
}

static ct_status check_rates(const Ct__SolverParameter *p)
{
    const ct_update_rule *rule;
    double rate;

    CT_TRY(ct_update_rule_find(p->type, &rule));
    CT_TRY(ct_update_rule_check(rule, p));
    CT_TRY(ct_learning_rate(p, 0, &rate));
    if (!isfinite(rate)) return CT_FAIL(CT_ERR_CONFIG, "solver: the learning rate is %g", rate);
    if (!isfinite(p->momentum) || (p->momentum < 0.0f) || !isfinite(p->weight_decay))
        return CT_FAIL(CT_ERR_CONFIG, "solver: momentum is %g, weight_decay is %g",
                       (double)p->momentum, (double)p->weight_decay);
    if ((p->regularization_type != NULL) && (strcmp(p->regularization_type, "L2") != 0) &&
        (strcmp(p->regularization_type, "L1") != 0))
        return CT_FAIL(CT_ERR_CONFIG,
                       "solver: regularization_type \"%s\" is unknown; known: L2, L1",
                       p->regularization_type);
    return CT_OK;
}

static ct_status check_average(const Ct__WeightAverageParameter *a)
{
    if ((a == NULL) || (a->type == CT__WEIGHT_AVERAGE_PARAMETER__TYPE__NONE)) return CT_OK;
    if (a->start_iter < 0)
        return CT_FAIL(CT_ERR_CONFIG, "solver: average.start_iter is %d, needs at least 0",
                       a->start_iter);
    if ((a->type == CT__WEIGHT_AVERAGE_PARAMETER__TYPE__EMA) &&
        !((a->decay >= 0.0f) && (a->decay < 1.0f)))
        return CT_FAIL(CT_ERR_CONFIG, "solver: average.decay is %g, EMA needs 0 to below 1",
                       (double)a->decay);
    if ((a->type == CT__WEIGHT_AVERAGE_PARAMETER__TYPE__SWA) && (a->interval < 1))
        return CT_FAIL(CT_ERR_CONFIG, "solver: average.interval is %d, SWA needs at least 1",
                       a->interval);
    return CT_OK;
}

ct_status ct_solver_check(const Ct__SolverParameter *p)
{
    CT_TRY(check_counts(p));
    CT_TRY(check_rates(p));
    CT_TRY(check_average(p->average));
    if ((p->snapshot_prefix == NULL) && (p->snapshot > 0))
        return CT_FAIL(CT_ERR_CONFIG, "solver: snapshot is %d, but snapshot_prefix is not set",
                       p->snapshot);
    return CT_OK;
}

/* Makes the directories in front of the last '/'. */
static ct_status make_directories(const char *prefix)
{
    char *path = strdup(prefix);
    ct_status status = CT_OK;

    if (path == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a file name");
    for (char *p = strchr(path + 1, '/'); (p != NULL) && (status == CT_OK);
         p = strchr(p + 1, '/')) {
        *p = '\0';
        if ((mkdir(path, 0777) != 0) && (errno != EEXIST))
            status = CT_FAIL(CT_ERR_IO, "cannot make the directory %s of snapshot_prefix: %s", path,
                             strerror(errno));
        *p = '/';
    }
    free(path);
    return status;
}

/* What is not done as asked for, but does not harm. */
static void warn(const Ct__SolverParameter *p)
{
    if ((p->snapshot_prefix == NULL) && p->snapshot_after_train)
        CT_WARN("solver: snapshot_prefix is not set, the trained weights will not be saved");
    if (p->snapshot_diff)
        CT_WARN("solver: snapshot_diff is not supported, gradients are not saved");
    if (p->debug_info) CT_WARN("solver: debug_info is not supported, nothing more is printed");
}

ct_status ct_solver_check_prefix(const Ct__SolverParameter *p)
{
    ct_text probe = { 0 };
    ct_status status = CT_OK;
    int fd;

    warn(p);
    if ((p->snapshot_prefix == NULL) || (p->snapshot_prefix[0] == '\0')) return CT_OK;
    CT_TRY(make_directories(p->snapshot_prefix));
    ct_text_add(&probe, "%s.probe.%d", p->snapshot_prefix, (int)getpid());
    if (probe.failed) return CT_FAIL(CT_ERR_NOMEM, "no memory for a file name");
    fd = open(probe.text, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) {
        status = CT_FAIL(CT_ERR_IO, "cannot write snapshots to snapshot_prefix \"%s\": %s",
                         p->snapshot_prefix, strerror(errno));
    } else {
        close(fd);
        unlink(probe.text);
    }
    ct_text_destroy(&probe);
    return status;
}
