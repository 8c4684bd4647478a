#include "planner/schedule.h"

#include <stdlib.h>

static const char *direction_name(ct_pipeline_direction direction)
{
    return (direction == CT_PIPELINE_FORWARD) ? "forward" : "backward";
}

ct_status ct_pipeline_list_1f1b(int stage, int n_stage, int n_micro, ct_pipeline_list *list_p)
{
    int ahead = n_stage - 1 - stage;
    int forward = 0, backward = 0, n = 0;
    ct_pipeline_item *item;

    if ((stage < 0) || (stage >= n_stage) || (n_micro < 1))
        return CT_FAIL(CT_ERR_ARG, "schedule: stage %d of %d, %d micro-batches", stage, n_stage,
                       n_micro);
    item = malloc(2 * (size_t)n_micro * sizeof(*item));
    if (item == NULL) return CT_FAIL(CT_ERR_NOMEM, "schedule of %d micro-batches", n_micro);
    while (backward < n_micro) {
        if ((forward < n_micro) && (forward - backward <= ahead))
            item[n++] = (ct_pipeline_item){ CT_PIPELINE_FORWARD, forward++ };
        else
            item[n++] = (ct_pipeline_item){ CT_PIPELINE_BACKWARD, backward++ };
    }
    *list_p = (ct_pipeline_list){ n, item };
    return CT_OK;
}

void ct_pipeline_list_destroy(ct_pipeline_list *list)
{
    free(list->item);
    *list = (ct_pipeline_list){ 0 };
}

ct_status ct_pipeline_lists_1f1b(int n_stage, int n_micro, ct_pipeline_list **list_p)
{
    ct_pipeline_list *list = calloc((n_stage > 0) ? (size_t)n_stage : 1, sizeof(*list));
    ct_status status = CT_OK;

    if (list == NULL) return CT_FAIL(CT_ERR_NOMEM, "schedules of %d stages", n_stage);
    for (int s = 0; (s < n_stage) && (status == CT_OK); ++s)
        status = ct_pipeline_list_1f1b(s, n_stage, n_micro, &list[s]);
    if (status == CT_OK)
        *list_p = list;
    else
        ct_pipeline_lists_destroy(list, n_stage);
    return status;
}

void ct_pipeline_lists_destroy(ct_pipeline_list *list, int n_stage)
{
    if (list == NULL) return;
    for (int s = 0; s < n_stage; ++s) ct_pipeline_list_destroy(&list[s]);
    free(list);
}

int ct_pipeline_list_in_flight(const ct_pipeline_list *list)
{
    int alive = 0, most = 0;

    for (int i = 0; i < list->n; ++i) {
        alive += (list->item[i].direction == CT_PIPELINE_FORWARD) ? 1 : -1;
        if (alive > most) most = alive;
    }
    return most;
}

/* done: [2][n_micro], zero; each micro-batch once forward, then once backward. */
static ct_status check_once(const ct_pipeline_list *list, int stage, int n_micro, char *done)
{
    if (list->n != 2 * n_micro)
        return CT_FAIL(CT_ERR_CONFIG, "schedule of stage %d: %d items for %d micro-batches", stage,
                       list->n, n_micro);
    for (int i = 0; i < list->n; ++i) {
        ct_pipeline_item item = list->item[i];
        const char *what = direction_name(item.direction);

        if ((item.micro < 0) || (item.micro >= n_micro))
            return CT_FAIL(CT_ERR_CONFIG, "schedule of stage %d: %s of micro-batch %d of %d", stage,
                           what, item.micro, n_micro);
        if (done[item.direction * n_micro + item.micro])
            return CT_FAIL(CT_ERR_CONFIG, "schedule of stage %d: %s of micro-batch %d twice", stage,
                           what, item.micro);
        if ((item.direction == CT_PIPELINE_BACKWARD) && !done[item.micro])
            return CT_FAIL(CT_ERR_CONFIG,
                           "schedule of stage %d: backward of micro-batch %d before its forward",
                           stage, item.micro);
        done[item.direction * n_micro + item.micro] = 1;
    }
    return CT_OK;
}

/* Whether what the stage's item receives has been sent. done: [n_stage][2][n_micro]. */
static bool may_run(ct_pipeline_item item, int stage, int n_stage, int n_micro, const char *done)
{
    int from = (item.direction == CT_PIPELINE_FORWARD) ? stage - 1 : stage + 1;

    if ((from < 0) || (from >= n_stage)) return true;
    return done[((size_t)from * 2 + item.direction) * (size_t)n_micro + item.micro] != 0;
}

/* Runs every item that may run, until none may: in a graph without a circle that is all of them. */
static ct_status run_all(const ct_pipeline_list *list, int n_stage, int n_micro, int *next,
                         char *done)
{
    bool moved = true;

    while (moved) {
        moved = false;
        for (int s = 0; s < n_stage; ++s) {
            while ((next[s] < list[s].n) &&
                   may_run(list[s].item[next[s]], s, n_stage, n_micro, done)) {
                ct_pipeline_item item = list[s].item[next[s]++];

                done[((size_t)s * 2 + item.direction) * (size_t)n_micro + item.micro] = 1;
                moved = true;
            }
        }
    }
    for (int s = 0; s < n_stage; ++s) {
        if (next[s] < list[s].n)
            return CT_FAIL(CT_ERR_CONFIG,
                           "schedules of %d stages deadlock: stage %d waits for %s of "
                           "micro-batch %d for ever",
                           n_stage, s, direction_name(list[s].item[next[s]].direction),
                           list[s].item[next[s]].micro);
    }
    return CT_OK;
}

ct_status ct_pipeline_lists_check(const ct_pipeline_list *list, int n_stage, int n_micro)
{
    size_t per_stage = 2 * (size_t)((n_micro > 0) ? n_micro : 0);
    size_t n_done = (size_t)((n_stage > 0) ? n_stage : 0) * per_stage;
    int *next = calloc((n_stage > 0) ? (size_t)n_stage : 1, sizeof(*next));
    char *done = calloc(n_done + 1, 1), *once = calloc(per_stage + 1, 1);
    ct_status status = CT_OK;

    if ((next == NULL) || (done == NULL) || (once == NULL))
        status = CT_FAIL(CT_ERR_NOMEM, "schedules of %d stages", n_stage);
    for (int s = 0; (s < n_stage) && (status == CT_OK); ++s) {
        for (size_t i = 0; i < per_stage; ++i) once[i] = 0;
        status = check_once(&list[s], s, n_micro, once);
    }
    if (status == CT_OK) status = run_all(list, n_stage, n_micro, next, done);
    free(next);
    free(done);
    free(once);
    return status;
}
