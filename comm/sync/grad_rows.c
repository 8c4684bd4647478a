/* Rows of a pipe's ranges that travel as a list. Their states change from NONE to FULL by the main
 * thread, then with the lock to LANDED, then by the main thread again. */
#include <stdlib.h>
#include <string.h>

#include "comm/sync/grad_pipe_impl.h"
#include "framework/base/clock.h"

ct_grad_rows *ct_grad_pipe_rows_of(const ct_grad_pipe *gp, int i)
{
    for (int k = 0; k < gp->n_rows; ++k) {
        if (gp->rows[k].range == i) return &gp->rows[k];
    }
    return NULL;
}

/* Where a coded range has rows, its codec sends it. */
static bool has_rows(const ct_grad_pipe *gp, int i)
{
    return (gp->range[i].row_most > 0) && !gp->bucket[gp->bucket_of[i]].cut.coded;
}

static ct_status make_one(ct_grad_pipe *gp, int i)
{
    const ct_grad_range *g = &gp->range[i];
    ct_grad_rows *r = &gp->rows[gp->n_rows++];
    int64_t rows = (g->rows > 0) ? g->rows : 1;
    ct_text name = { .text = NULL };

    r->range = i;
    CT_TRY(ct_row_sum_create(gp->comm, rows, g->count / rows, g->row_most,
                             ct_comm_take_tags(gp->comm, 1), &r->sum));
    ct_text_add(&name, "rows of %s", g->key);
    if (name.failed) return CT_FAIL(CT_ERR_NOMEM, "no memory for rows of %s", g->key);
    r->name = name.text;
    CT_INFO("gradient of %s: up to %lld of its %lld rows a rank travel as a list%s", g->key,
            (long long)g->row_most, (long long)rows,
            g->row_beside ? ", beside the dense sum of the rest" : "");
    return CT_OK;
}

ct_status ct_grad_pipe_make_rows(ct_grad_pipe *gp)
{
    int n = 0;

    for (int i = 0; i < gp->n_range; ++i) n += has_rows(gp, i);
    gp->rows = calloc((size_t)n + 1, sizeof(*gp->rows));
    if (gp->rows == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for rows of gradients");
    for (int i = 0; i < gp->n_range; ++i) {
        if (has_rows(gp, i)) CT_TRY(make_one(gp, i));
    }
    return CT_OK;
}

void ct_grad_pipe_release_rows(ct_grad_pipe *gp)
{
    for (int k = 0; k < gp->n_rows; ++k) {
        ct_row_sum_destroy(gp->rows[k].sum);
        free(gp->rows[k].name);
    }
    free(gp->rows);
    gp->rows = NULL;
    gp->n_rows = 0;
}

void ct_grad_pipe_begin_rows(ct_grad_pipe *gp)
{
    for (int k = 0; k < gp->n_rows; ++k) {
        ct_grad_rows *r = &gp->rows[k];

        ct_row_sum_begin(r->sum);
        atomic_store(&r->state, CT_ROWS_NONE);
        if (gp->range[r->range].row_beside) gp->parts_left[r->range] += 1;
    }
}

bool ct_grad_pipe_fill_rows(ct_grad_pipe *gp, int i)
{
    ct_grad_rows *r = ct_grad_pipe_rows_of(gp, i);

    if ((r == NULL) || (atomic_load(&r->state) != CT_ROWS_NOTED)) return false;
    ct_row_sum_take(r->sum, gp->arena + gp->range[i].offset + gp->range[i].shift);
    atomic_store(&r->state, CT_ROWS_FULL);
    return true;
}

bool ct_grad_pipe_rows_done(const ct_grad_pipe *gp)
{
    for (int k = 0; k < gp->n_rows; ++k) {
        int state = atomic_load(&gp->rows[k].state);

        if ((state != CT_ROWS_NONE) && (state != CT_ROWS_ADDED)) return false;
    }
    return true;
}

static void trace(const ct_grad_pipe *gp, const ct_grad_rows *r)
{
    if (r->left_at <= 0) return;
    ct_trace_add(gp->trace, &(ct_trace_span){ .kind = CT_TRACE_BUCKET,
                                              .number = gp->n_bucket + (int)(r - gp->rows),
                                              .name = r->name,
                                              .detail = "rows",
                                              .bytes = ct_row_sum_payload_bytes(r->sum),
                                              .iteration = gp->step.iteration,
                                              .start_s = r->left_at,
                                              .end_s = ct_clock_s() });
}

/* One range's. */
static ct_status move_one(ct_grad_pipe *gp, ct_grad_rows *r, bool leave, bool *moved_p)
{
    ct_coll_where *where = ct_row_sum_where(r->sum);
    unsigned before = atomic_load(&where->n_moved);
    ct_status status;

    if (leave && (atomic_load(&r->state) == CT_ROWS_FULL)) {
        r->left_at = ct_trace_start(gp->trace);
        CT_TRY(ct_row_sum_start(r->sum));
        atomic_store(&r->state, CT_ROWS_RUNNING);
        *moved_p = true;
    }
    if (atomic_load(&r->state) != CT_ROWS_RUNNING) return CT_OK;
    status = ct_row_sum_progress(r->sum);
    *moved_p = *moved_p || (atomic_load(&where->n_moved) != before);
    if (status != CT_OK) return (status == CT_INPROGRESS) ? CT_OK : status;
    trace(gp, r);
    atomic_store(&r->state, CT_ROWS_LANDED);
    *moved_p = true;
    return CT_OK;
}

/* They are few, and the next forward reads them first: they never give way. */
ct_status ct_grad_pipe_move_rows(ct_grad_pipe *gp, bool leave, bool *moved_p)
{
    for (int k = 0; k < gp->n_rows; ++k) CT_TRY(move_one(gp, &gp->rows[k], leave, moved_p));
    return CT_OK;
}

ct_status ct_grad_pipe_report_rows(ct_grad_pipe *gp, ct_pipe_landed_fn landed, void *ctx)
{
    for (int k = 0; k < gp->n_rows; ++k) {
        ct_grad_rows *r = &gp->rows[k];
        int i = r->range;

        bool shards = ct_grad_pipe_has_shards(gp);

        if ((atomic_load(&r->state) != CT_ROWS_LANDED) ||
            (shards ? (gp->sums_left[i] > 0) : (gp->parts_left[i] > 1)))
            continue;
        ct_row_sum_deliver(r->sum, gp->arena + gp->range[i].offset + gp->range[i].shift);
        gp->parts_left[i] -= 1;
        atomic_store(&r->state, CT_ROWS_ADDED);
        if (shards) {
            CT_TRY(ct_grad_pipe_own_range(gp, i));
            continue; /* its weights are to come */
        }
        if ((gp->n_reported == gp->n_bucket) && ct_grad_pipe_rows_done(gp)) gp->open = false;
        if (landed != NULL) CT_TRY(landed(ctx, i, 1));
    }
    return CT_OK;
}
