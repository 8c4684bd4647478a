#include "framework/solver/grad_norm.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "framework/math/math.h"

enum { AT_ONCE = 1 << 20 /* elements between two polls: some hundred microseconds */ };

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

/* ---- squares of which each rank has some */

/* The nodes of the ranks before this one, and of all. */
static ct_status count_open(const ct_group *g, int64_t mine, int64_t *before_p, int64_t *all_p)
{
    int64_t *of = calloc((size_t)g->size, sizeof(*of));
    ct_status status;

    if (of == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d ranks", g->size);
    status = ct_group_gather(g, &mine, 1, of);
    *before_p = *all_p = 0;
    for (int r = 0; r < g->size; r++) {
        if (r < g->rank) *before_p += of[r];
        *all_p += of[r];
    }
    free(of);
    return status;
}

ct_status ct_square_sums_share(const ct_group *g, ct_square_sums *s, int list, int n)
{
    int64_t before, n_open, length, here;
    ct_status status = CT_OK;
    double *v;

    if ((g->size == 1) || (n == 0)) return CT_OK;
    CT_TRY(count_open(g, ct_square_sums_nodes(s, list, n), &before, &n_open));
    length = ct_square_sums_length(s, list, n, n_open);
    v = calloc((size_t)length, sizeof(*v));
    if (v == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for sums of squares");
    ct_square_sums_put(s, list, n, before, v);
    for (int64_t at = 0; (status == CT_OK) && (at < length); at += here) {
        here = (length - at < INT_MAX) ? length - at : INT_MAX;
        status = ct_group_sum(g, v + at, (int)here);
    }
    if (status == CT_OK) status = ct_square_sums_take(s, list, n, n_open, v);
    free(v);
    return status;
}

/* ---- the norm of all gradients */

static int64_t lines(int64_t count)
{
    return (count + CT_SQUARE_LINE - 1) / CT_SQUARE_LINE;
}

/* Over parts each parameter has a list. */
static int list_of(const ct_grad_norm *n, int param)
{
    return (n->over.parts != NULL) ? param : 0;
}

static int64_t place_of(const ct_net *net, const ct_grad_norm *n, int param)
{
    return (n->over.parts != NULL) ? 0 : net->param[param].offset;
}

static ct_status open_lists(const ct_net *net, ct_grad_norm *n)
{
    int64_t *count;
    ct_status status;

    if (n->over.parts == NULL) return ct_square_sums_open(&net->grad_count, 1, &n->sums);
    count = calloc((size_t)net->n_param + 1, sizeof(*count));
    if (count == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d norms", net->n_param);
    for (int i = 0; i < net->n_param; i++)
        if (net->param[i].learns) count[i] = net->param[i].count;
    status = ct_square_sums_open(count, net->n_param, &n->sums);
    free(count);
    return status;
}

ct_status ct_grad_norm_open(const ct_net *net, const ct_parts *parts, ct_grad_norm *n)
{
    ct_status status = CT_OK;

    *n = (ct_grad_norm){ .n_line = 0 };
    if (parts != NULL) status = ct_part_sums_open(parts, 1, &n->over);
    if (status == CT_OK) status = open_lists(net, n);
    n->in_parts = calloc((size_t)net->n_param + 1, sizeof(*n->in_parts));
    if ((status == CT_OK) && (n->in_parts == NULL))
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for the norm of %d gradients", net->n_param);
    if (status != CT_OK) {
        ct_grad_norm_close(n);
        return status;
    }
    for (int i = 0; i < net->n_param; i++)
        if (net->param[i].learns) n->n_line += lines(net->param[i].count);
    return CT_OK;
}

void ct_grad_norm_close(ct_grad_norm *n)
{
    free(n->in_parts);
    ct_square_sums_close(&n->sums);
    ct_part_sums_close(&n->over);
    *n = (ct_grad_norm){ .n_line = 0 };
}

void ct_grad_norm_begin(const ct_net *net, ct_grad_norm *n)
{
    if (n->over.parts != NULL) ct_part_sums_begin(&n->over);
    ct_square_sums_begin(&n->sums, 0, n->sums.n);
    memset(n->in_parts, 0, (size_t)net->n_param * sizeof(*n->in_parts));
}

/* Elements [from, from + count) of a list, which lie at v. */
static ct_status add(ct_grad_norm *n, ct_exec *ex, int list, int64_t from, int64_t count,
                     const float *v)
{
    int64_t here;

    for (int64_t at = 0; at < count; at += here) {
        here = ((ex->poll == NULL) || (count - at < AT_ONCE)) ? count - at : AT_ONCE;
        CT_TRY(ct_square_sums_add(&n->sums, list, from + at, here, v + at));
        CT_TRY(ct_exec_poll(ex));
    }
    return CT_OK;
}

static bool lands_whole(const ct_net *net, const ct_grad_norm *n, int i)
{
    return net->param[i].learns && !n->in_parts[i] && (net->param[i].count > 0);
}

/* Parameter i and those before `end` that lie behind it, in one arena, with zeros between. */
static int run_from(const ct_net *net, const ct_grad_norm *n, int i, int end)
{
    int k = i + 1;

    while ((net->options.window == NULL) && (n->over.parts == NULL) && (k < end) &&
           lands_whole(net, n, k) &&
           (net->param[k].offset ==
            net->param[k - 1].offset + lines(net->param[k - 1].count) * CT_SQUARE_LINE))
        k++;
    return k;
}

ct_status ct_grad_norm_landed(const ct_net *net, ct_grad_norm *n, ct_exec *ex, int first,
                              int n_param)
{
    int end = first + n_param, next;

    for (int i = first; i < end; i = next) {
        const ct_param *p = &net->param[i], *last;

        next = i + 1;
        if (!lands_whole(net, n, i)) continue;
        next = run_from(net, n, i, end);
        last = &net->param[next - 1];
        CT_TRY(add(n, ex, list_of(n, i), place_of(net, n, i),
                   last->offset + last->count - p->offset, ct_blob_diff(&p->blob)));
    }
    return CT_OK;
}

ct_status ct_grad_norm_part(const ct_net *net, ct_grad_norm *n, ct_exec *ex, int param,
                            int64_t from, int64_t count, const float *data)
{
    n->in_parts[param] = true;
    return add(n, ex, list_of(n, param), place_of(net, n, param) + from, count, data);
}

static ct_status square_over_parts(ct_grad_norm *n, double *square_p)
{
    const ct_net *net = n->over.parts->net;
    double sum = 0.0;

    for (int i = 0; i < net->n_param; i++) {
        double square = 0.0;

        if (!net->param[i].learns) continue;
        CT_TRY(ct_square_sums_of(&n->sums, i, &square));
        ct_part_sums_put(&n->over, i, 0, square);
    }
    CT_TRY(ct_part_sums_end(&n->over));
    for (int k = 0; k < n->over.n; k++) sum += n->over.v[k];
    *square_p = sum;
    return CT_OK;
}

ct_status ct_grad_norm_share(const ct_group *g, int first, int n_param, ct_grad_norm *n)
{
    bool parts = (n->over.parts != NULL);

    return ct_square_sums_share(g, &n->sums, parts ? first : 0, parts ? n_param : 1);
}

ct_status ct_grad_norm_square(ct_grad_norm *n, double *square_p)
{
    int64_t missing = n->n_line;

    CT_TRY(ct_square_sums_join(&n->sums, 0, n->sums.n));
    for (int k = 0; k < n->sums.n; k++) missing -= n->sums.landed[k];
    if (missing != 0)
        return CT_FAIL(CT_ERR_ARG, "the norm of the gradients lacks %lld lines of %d numbers",
                       (long long)missing, CT_SQUARE_LINE);
    if (n->over.parts != NULL) return square_over_parts(n, square_p);
    return ct_square_sums_of(&n->sums, 0, square_p);
}
