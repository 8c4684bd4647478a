#include "framework/solver/grad_norm.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "framework/math/math.h"

enum { AT_ONCE = 1 << 20 /* elements between two polls: some hundred microseconds */ };

/* Takes the elements [from, from + count) of the arena from v, block by block. */
static void take_away(const ct_grad_norm *n, int64_t from, int64_t count, int64_t *v)
{
    for (int64_t at = from; at < from + count;) {
        int64_t b = at / n->length, end = (b + 1) * n->length;

        if (end > from + count) end = from + count;
        v[b] -= end - at;
        at = end;
    }
}

/* ---- sums over ranks that have parts of a net */

ct_status ct_part_sums_open(const ct_parts *parts, int each, ct_part_sums *s)
{
    *s = (ct_part_sums){ .parts = parts, .n = parts->whole->n_param * each, .each = each };
    s->v = calloc((size_t)s->n + 1, sizeof(*s->v));
    s->of = calloc((size_t)parts->net->n_param + 1, sizeof(*s->of));
    if ((s->v == NULL) || (s->of == NULL)) {
        ct_part_sums_close(s);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for sums of %d parameters", parts->whole->n_param);
    }
    for (int k = 0; k < parts->whole->n_param; k++)
        if (parts->own[k] >= 0) s->of[parts->own[k]] = k;
    return CT_OK;
}

void ct_part_sums_close(ct_part_sums *s)
{
    free(s->v);
    free(s->of);
    *s = (ct_part_sums){ .parts = NULL };
}

void ct_part_sums_begin(ct_part_sums *s)
{
    memset(s->v, 0, (size_t)s->n * sizeof(*s->v));
}

void ct_part_sums_put(ct_part_sums *s, int i, int k, double v)
{
    if (ct_parts_stands(s->parts, s->of[i])) s->v[s->of[i] * s->each + k] = v;
}

ct_status ct_part_sums_end(ct_part_sums *s)
{
    return ct_group_sum(s->parts->job, s->v, s->n);
}

double ct_part_sums_of(const ct_part_sums *s, int i, int k)
{
    return s->v[s->of[i] * s->each + k];
}

/* ---- the norm of all gradients */

static int count_learned(const ct_net *net)
{
    int n = 0;

    for (int i = 0; i < net->n_param; i++) n += net->param[i].learns ? 1 : 0;
    return n;
}

ct_status ct_grad_norm_open(const ct_net *net, const ct_parts *parts, ct_grad_norm *n)
{
    int64_t length = ct_sumsq_length(net->grad_count);

    if (parts != NULL) {
        *n = (ct_grad_norm){ .length = 0 };
        return ct_part_sums_open(parts, 1, &n->over);
    }
    *n = (ct_grad_norm){ .length = length,
                         .n_block = (int)((net->grad_count + length - 1) / length) };
    n->all = calloc(2 * (size_t)n->n_block + 1, sizeof(*n->all));
    n->sum = calloc((size_t)n->n_block + 1, sizeof(*n->sum));
    n->in_parts = calloc((size_t)net->n_param + 1, sizeof(*n->in_parts));
    if ((n->all == NULL) || (n->sum == NULL) || (n->in_parts == NULL)) {
        ct_grad_norm_close(n);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for the norm of %d gradients", net->n_param);
    }
    n->missing = n->all + n->n_block;
    for (int i = 0; i < net->n_param; i++)
        if (net->param[i].learns) take_away(n, net->param[i].offset, net->param[i].count, n->all);
    for (int b = 0; b < n->n_block; b++) n->all[b] = -n->all[b];
    return CT_OK;
}

void ct_grad_norm_close(ct_grad_norm *n)
{
    free(n->all);
    free(n->sum);
    free(n->in_parts);
    ct_part_sums_close(&n->over);
    *n = (ct_grad_norm){ .length = 0 };
}

void ct_grad_norm_begin(const ct_net *net, ct_grad_norm *n)
{
    if (n->over.parts != NULL) {
        ct_part_sums_begin(&n->over);
        n->n_missing = count_learned(net);
        return;
    }
    memcpy(n->missing, n->all, (size_t)n->n_block * sizeof(*n->missing));
    memset(n->in_parts, 0, (size_t)net->n_param * sizeof(*n->in_parts));
}

/* The squares of blocks [first, end), of which nothing is missing. */
static ct_status add_run(const ct_net *net, ct_grad_norm *n, ct_exec *ex, int64_t first,
                         int64_t end)
{
    int64_t most = AT_ONCE / n->length, team = omp_get_max_threads();

    if (most < team) most = team;
    while (first < end) {
        int64_t here = ((ex->poll != NULL) && (end - first > most)) ? most : end - first;

        ct_sumsq_blocks(net->grad_count, net->grad_arena, first, first + here, n->sum);
        first += here;
        CT_TRY(ct_exec_poll(ex));
    }
    return CT_OK;
}

/* Of the elements [from, to) of the arena some have just landed: the blocks that are whole now. */
static ct_status add_whole(const ct_net *net, ct_grad_norm *n, ct_exec *ex, int64_t from,
                           int64_t to)
{
    int64_t end = (to + n->length - 1) / n->length, run = from / n->length;

    for (int64_t b = run; b <= end; b++) {
        if ((b < end) && (n->missing[b] == 0)) continue;
        if (b > run) CT_TRY(add_run(net, n, ex, run, b));
        run = b + 1;
    }
    return CT_OK;
}

/* Parameter i of a rank that has parts. In pieces of one length, whatever else moves. */
static ct_status add_param(const ct_net *net, ct_grad_norm *n, ct_exec *ex, int i)
{
    const ct_param *p = &net->param[i];
    double sum = 0.0;

    n->n_missing--;
    for (int64_t at = 0; at < p->count; at += AT_ONCE) {
        int64_t count = (p->count - at < AT_ONCE) ? p->count - at : AT_ONCE;
        double square = 0.0;

        CT_TRY(
            net->options.dev->math->sumsq(ex->stream, count, ct_blob_diff(&p->blob) + at, &square));
        sum += square;
        CT_TRY(ct_exec_poll(ex));
    }
    ct_part_sums_put(&n->over, i, 0, sum);
    return CT_OK;
}

ct_status ct_grad_norm_landed(const ct_net *net, ct_grad_norm *n, ct_exec *ex, int first,
                              int n_param)
{
    int64_t from = -1, to = 0;

    for (int i = first; i < first + n_param; i++) {
        const ct_param *p = &net->param[i];

        if (p->learns && (n->over.parts != NULL)) CT_TRY(add_param(net, n, ex, i));
        if (n->over.parts != NULL) continue;
        if (!p->learns || n->in_parts[i] || (p->count == 0)) continue;
        take_away(n, p->offset, p->count, n->missing);
        if (from < 0) from = p->offset;
        to = p->offset + p->count;
    }
    return (from < 0) ? CT_OK : add_whole(net, n, ex, from, to);
}

ct_status ct_grad_norm_part(const ct_net *net, ct_grad_norm *n, ct_exec *ex, int param,
                            int64_t from, int64_t count)
{
    int64_t at = net->param[param].offset + from;

    n->in_parts[param] = true;
    if (count == 0) return CT_OK;
    take_away(n, at, count, n->missing);
    return add_whole(net, n, ex, at, at + count);
}

static ct_status square_over_parts(ct_grad_norm *n, double *square_p)
{
    double sum = 0.0;

    if (n->n_missing != 0)
        return CT_FAIL(CT_ERR_ARG, "the norm of the gradients lacks %d parameters", n->n_missing);
    CT_TRY(ct_part_sums_end(&n->over));
    for (int k = 0; k < n->over.n; k++) sum += n->over.v[k];
    *square_p = sum;
    return CT_OK;
}

ct_status ct_grad_norm_square(ct_grad_norm *n, double *square_p)
{
    double sum = 0.0;

    if (n->over.parts != NULL) return square_over_parts(n, square_p);
    for (int b = 0; b < n->n_block; b++) {
        if (n->missing[b] != 0)
            return CT_FAIL(CT_ERR_ARG, "the norm of the gradients lacks %lld numbers",
                           (long long)n->missing[b]);
        sum += n->sum[b];
    }
    *square_p = sum;
    return CT_OK;
}
