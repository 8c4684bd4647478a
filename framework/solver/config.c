/* What a solver parameter must say, checked before nets are built. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/base/file.h"
#include "framework/base/text.h"
#include "framework/snapshot/owner.h"
#include "framework/snapshot/set_files.h"
#include "framework/solver/average_precision.h"
#include "framework/solver/solver_private.h"

static ct_status at_least(const ct_solver_text *t, const int32_t *field, const char *name,
                          int32_t least)
{
    if (*field >= least) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG, "%s: %s is %d, needs at least %d",
                   ct_source_map_where(t->map, t->p, field, "solver").text, name, *field, least);
}

/* How many batches make a step is said once. */
static ct_status check_tokens(const ct_solver_text *t)
{
    const Ct__SolverParameter *p = t->p;

    if (p->batch_tokens < 0)
        return CT_FAIL(CT_ERR_CONFIG, "%s: batch_tokens is %" PRId64 ", needs at least 0",
                       CT_SOLVER_AT(t, batch_tokens), p->batch_tokens);
    if ((p->batch_tokens > 0) && p->has_iter_size)
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: batch_tokens is %" PRId64 " and iter_size %d: both say how many "
                       "batches make a step; give one",
                       CT_SOLVER_AT(t, batch_tokens), p->batch_tokens, p->iter_size);
    return CT_OK;
}

static ct_status check_counts(const ct_solver_text *t)
{
    const Ct__SolverParameter *p = t->p;

    if (!p->has_max_iter && !(p->max_epoch > 0.0f))
        return CT_FAIL(CT_ERR_CONFIG, "%s: max_iter is not set", CT_SOLVER_AT(t, max_iter));
    CT_TRY(at_least(t, &p->max_iter, "max_iter", 0));
    CT_TRY(at_least(t, &p->stop_iter, "stop_iter", 0));
    CT_TRY(at_least(t, &p->iter_size, "iter_size", 1));
    CT_TRY(check_tokens(t));
    if ((p->average_loss < 1) || (p->average_loss > CT_MAX_AVERAGE_LOSS))
        return CT_FAIL(CT_ERR_CONFIG, "%s: average_loss is %d, needs 1 to %d",
                       CT_SOLVER_AT(t, average_loss), p->average_loss, CT_MAX_AVERAGE_LOSS);
    CT_TRY(at_least(t, &p->display, "display", 0));
    CT_TRY(at_least(t, &p->snapshot, "snapshot", 0));
    CT_TRY(at_least(t, &p->test_interval, "test_interval", 0));
    CT_TRY(at_least(t, &p->checksum_interval, "checksum_interval", 0));
    CT_TRY(at_least(t, &p->snapshot_keep, "snapshot_keep", 0));
    for (size_t i = 0; i < p->n_test_iter; i++) {
        if (p->test_iter[i] < 1)
            return CT_FAIL(CT_ERR_CONFIG, "%s: test_iter is %d, needs at least 1",
                           CT_SOLVER_AT(t, test_iter), p->test_iter[i]);
    }
    return CT_OK;
}

/* How long a run is, and how often it is kept. */
static ct_status check_spans(const ct_solver_text *t)
{
    const Ct__SolverParameter *p = t->p;

    if (!isfinite(p->max_epoch) || (p->max_epoch < 0.0f))
        return CT_FAIL(CT_ERR_CONFIG, "%s: max_epoch is %g, needs at least 0",
                       CT_SOLVER_AT(t, max_epoch), (double)p->max_epoch);
    if (!isfinite(p->snapshot_minutes) || (p->snapshot_minutes < 0.0f))
        return CT_FAIL(CT_ERR_CONFIG, "%s: snapshot_minutes is %g, needs at least 0",
                       CT_SOLVER_AT(t, snapshot_minutes), (double)p->snapshot_minutes);
    if ((p->snapshot_minutes > 0.0f) && (p->snapshot_prefix == NULL))
        return CT_FAIL(CT_ERR_CONFIG, "%s: snapshot_minutes is %g, but snapshot_prefix is not set",
                       CT_SOLVER_AT(t, snapshot_minutes), (double)p->snapshot_minutes);
    return CT_OK;
}

static ct_status check_regularization(const ct_solver_text *t)
{
    static const char *const known[] = { "L2", "L1" };
    const char *type = t->p->regularization_type, *near;

    if ((type == NULL) || (strcmp(type, known[0]) == 0) || (strcmp(type, known[1]) == 0))
        return CT_OK;
    near = ct_text_nearest(type, known, 2);
    return CT_FAIL(CT_ERR_CONFIG, "%s: regularization_type \"%s\" is unknown%s%s%s; known: L2, L1",
                   CT_SOLVER_AT(t, regularization_type), type,
                   (near != NULL) ? "; did you mean \"" : "", (near != NULL) ? near : "",
                   (near != NULL) ? "\"?" : "");
}

/* Caffe-SSD's: what a test reports of detections follows from the net, and eval_type may say so. */
static ct_status check_evaluation(const ct_solver_text *t)
{
    const Ct__SolverParameter *p = t->p;
    ct_ap_version version;

    if ((p->eval_type != NULL) && (strcmp(p->eval_type, "classification") != 0) &&
        (strcmp(p->eval_type, "detection") != 0))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: eval_type \"%s\": expected \"classification\" or \"detection\"",
                       CT_SOLVER_AT(t, eval_type), p->eval_type);
    if (ct_ap_version_is(p->ap_version, &version)) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG,
                   "%s: ap_version \"%s\": expected \"11point\", \"MaxIntegral\" or \"Integral\"",
                   CT_SOLVER_AT(t, ap_version), p->ap_version);
}

static ct_status check_rates(const ct_solver_text *t)
{
    const Ct__SolverParameter *p = t->p;
    double rate;

    CT_TRY(ct_update_rule_check(t));
    CT_TRY(ct_learning_rate_check(t));
    CT_TRY(ct_learning_rate(p, 0, &rate));
    if (!isfinite(rate))
        return CT_FAIL(CT_ERR_CONFIG, "%s: the learning rate is %g", CT_SOLVER_AT(t, base_lr),
                       rate);
    if (!isfinite(p->momentum) || (p->momentum < 0.0f))
        return CT_FAIL(CT_ERR_CONFIG, "%s: momentum is %g, needs at least 0",
                       CT_SOLVER_AT(t, momentum), (double)p->momentum);
    if (!isfinite(p->weight_decay))
        return CT_FAIL(CT_ERR_CONFIG, "%s: weight_decay is %g", CT_SOLVER_AT(t, weight_decay),
                       (double)p->weight_decay);
    CT_TRY(check_evaluation(t));
    return check_regularization(t);
}

/* Powers of two divide without rounding, so that scaling itself changes no bit. */
static ct_status check_loss_scale(const ct_solver_text *t)
{
    const Ct__SolverParameter *p = t->p;
    int exponent;

    if (!(p->loss_scale > 0.0f) || (frexpf(p->loss_scale, &exponent) != 0.5f))
        return CT_FAIL(CT_ERR_CONFIG, "%s: loss_scale is %g, needs a power of two",
                       CT_SOLVER_AT(t, loss_scale), (double)p->loss_scale);
    CT_TRY(at_least(t, &p->loss_scale_window, "loss_scale_window", 0));
    /* what codecs leave behind would keep the infinities of a step that changes nothing */
    if ((p->precision == CT__SOLVER_PARAMETER__PRECISION__FP16) && (p->compression != NULL) &&
        (p->compression->type != CT__COMPRESSION_PARAMETER__TYPE__NONE))
        return CT_FAIL(CT_ERR_CONFIG, "%s: precision FP16 and compression do not go together",
                       CT_SOLVER_AT(t, precision));
    return CT_OK;
}

static ct_status check_average(const ct_solver_text *t)
{
    const Ct__WeightAverageParameter *a = t->p->average;

    if ((a == NULL) || (a->type == CT__WEIGHT_AVERAGE_PARAMETER__TYPE__NONE)) return CT_OK;
    CT_TRY(at_least(t, &a->start_iter, "average.start_iter", 0));
    if ((a->type == CT__WEIGHT_AVERAGE_PARAMETER__TYPE__EMA) &&
        !((a->decay >= 0.0f) && (a->decay < 1.0f)))
        return CT_FAIL(CT_ERR_CONFIG, "%s: average.decay is %g, EMA needs 0 to below 1",
                       CT_SOLVER_AT(t, average->decay), (double)a->decay);
    if ((a->type == CT__WEIGHT_AVERAGE_PARAMETER__TYPE__SWA) && (a->interval < 1))
        return CT_FAIL(CT_ERR_CONFIG, "%s: average.interval is %d, SWA needs at least 1",
                       CT_SOLVER_AT(t, average->interval), a->interval);
    return CT_OK;
}

ct_status ct_solver_check(const Ct__SolverParameter *p, const struct ct_source_map *map)
{
    const ct_solver_text text = { p, map }, *t = &text;

    CT_TRY(check_counts(t));
    CT_TRY(check_spans(t));
    CT_TRY(check_rates(t));
    CT_TRY(check_average(t));
    CT_TRY(ct_best_check(t));
    CT_TRY(check_loss_scale(t));
    CT_TRY(ct_memory_check(t));
    CT_TRY(ct_outer_check(t));
    CT_TRY(ct_optex_check(t));
    if ((p->snapshot_prefix == NULL) && (p->snapshot > 0))
        return CT_FAIL(CT_ERR_CONFIG, "%s: snapshot is %d, but snapshot_prefix is not set",
                       CT_SOLVER_AT(t, snapshot), p->snapshot);
    return CT_OK;
}

ct_status ct_solver_micro_batches(const Ct__SolverParameter *p, const struct ct_source_map *map,
                                  const ct_net *net, int *n_p)
{
    const ct_solver_text text = { p, map }, *t = &text;
    int64_t tokens = ct_net_tokens(net), n;

    *n_p = p->iter_size;
    if (p->batch_tokens == 0) return CT_OK;
    if (tokens == 0)
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: batch_tokens counts the tokens of sequences, but no layer of net "
                       "\"%s\" reads any (Embed does); take iter_size",
                       CT_SOLVER_AT(t, batch_tokens), net->name);
    n = p->batch_tokens / tokens;
    if ((p->batch_tokens % tokens != 0) || (n > INT_MAX))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: batch_tokens is %" PRId64 ", but a batch of %" PRId64
                       " samples on all ranks has %" PRId64
                       " tokens: take a multiple of that, such as %" PRId64,
                       CT_SOLVER_AT(t, batch_tokens), p->batch_tokens, net->batch_global, tokens,
                       (((n > 0) && (n < INT_MAX)) ? n : 1) * tokens);
    *n_p = (int)n;
    return CT_OK;
}

/* Passes over the set, as iterations. */
ct_status ct_solver_end_by_epochs(const ct_solver_text *t, int64_t batch, int64_t n_sample,
                                  int32_t *max_iter_p)
{
    const Ct__SolverParameter *p = t->p;
    double n;

    if (n_sample <= 0)
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: max_epoch is %g, but no layer of the net reads a data set whose size "
                       "is known; take max_iter",
                       CT_SOLVER_AT(t, max_epoch), (double)p->max_epoch);
    n = ceil((double)p->max_epoch * (double)n_sample / (double)batch);
    if (n > (double)INT32_MAX)
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: max_epoch is %g, which is %.3g iterations of %" PRId64
                       " samples; at most %d",
                       CT_SOLVER_AT(t, max_epoch), (double)p->max_epoch, n, batch, INT32_MAX);
    *max_iter_p = (p->has_max_iter && (p->max_iter < (int32_t)n)) ? p->max_iter : (int32_t)n;
    CT_INFO("max_epoch %g: %" PRId64 " samples, %" PRId64 " a step, so max_iter is %d",
            (double)p->max_epoch, n_sample, batch, *max_iter_p);
    return CT_OK;
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
    CT_TRY(ct_set_directories(p->snapshot_prefix));
    ct_owner_temporary(&probe, p->snapshot_prefix, "probe");
    if (probe.failed) return CT_FAIL(CT_ERR_NOMEM, "no memory for a file name");
    ct_ending_file(probe.text);
    fd = ct_file_create(probe.text);
    if (fd < 0) {
        status = CT_FAIL(CT_ERR_IO, "cannot write snapshots to snapshot_prefix \"%s\": %s",
                         p->snapshot_prefix, strerror(errno));
    } else {
        close(fd);
        unlink(probe.text);
    }
    ct_ending_file(NULL);
    ct_text_destroy(&probe);
    return status;
}
