#include "framework/snapshot/parts.h"

#include <stdlib.h>
#include <string.h>

#include "framework/base/memory.h"
#include "framework/snapshot/snapshot_impl.h"

static ct_status no_memory(void)
{
    return CT_FAIL(CT_ERR_NOMEM, "no memory for the parts of a net");
}

/* ---- who has what */

/* What a rank says of a parameter. */
enum { HAS, REPEATS, VISITS, RANGES, AXIS, RANGE, SAID = RANGE + 2 * CT_MAX_RANGE };

ct_cut ct_parts_cut(const ct_parts *p, int i)
{
    ct_cut cut = *p->net->param[p->own[i]].cut;

    if (cut.n_range == 0) cut.whole = p->whole->param[i].blob.data.shape;
    return cut;
}

bool ct_parts_repeats(const ct_parts *p, int i)
{
    int l = ct_net_find_layer(p->net, p->net->param[p->own[i]].layer);
    const Ct__LayerPart *part = p->net->layer[l]->param->part;

    return (part != NULL) && (part->split == CT__PARALLEL_LAYER_PARAMETER__SPLIT__REPLICATE) &&
           (part->index > 0);
}

static void say(const ct_parts *p, int i, int64_t *said)
{
    ct_cut cut;

    memset(said, 0, SAID * sizeof(*said));
    if (p->own[i] < 0) return;
    cut = ct_parts_cut(p, i);
    said[HAS] = 1;
    said[REPEATS] = ct_parts_repeats(p, i) ? 1 : 0;
    said[VISITS] = ct_net_param_visits(p->net, &p->net->param[p->own[i]]) ? 1 : 0;
    said[RANGES] = cut.n_range;
    said[AXIS] = cut.axis;
    for (int r = 0; r < cut.n_range; r++) {
        said[RANGE + 2 * r] = cut.range[r].first;
        said[RANGE + 2 * r + 1] = cut.range[r].count;
    }
}

static ct_cut cut_of(const ct_parts *p, int i, const int64_t *said)
{
    ct_cut cut = { .n_range = (int)said[RANGES],
                   .axis = (int)said[AXIS],
                   .whole = p->whole->param[i].blob.data.shape };

    for (int r = 0; r < cut.n_range; r++)
        cut.range[r] = (ct_range){ said[RANGE + 2 * r], said[RANGE + 2 * r + 1] };
    return cut;
}

static bool holds(const ct_cut *c, int64_t x)
{
    for (int r = 0; r < c->n_range; r++)
        if ((x >= c->range[r].first) && (x < c->range[r].first + c->range[r].count)) return true;
    return c->n_range == 0;
}

/* Ranks with gradients of their own for place x of axis; -1: some are cut along another one. */
static int count_at(const ct_parts *p, int i, const int64_t *said, int axis, int64_t x)
{
    int n = 0;

    for (int k = 0; k < p->job->size; k++) {
        const int64_t *v = said + (int64_t)k * SAID;
        ct_cut cut = cut_of(p, i, v);

        if ((v[HAS] == 0) || (v[REPEATS] != 0)) continue;
        if ((cut.n_range > 0) && (cut.axis != axis)) return -1;
        n += holds(&cut, x);
    }
    return n;
}

/* The same for every place of this rank's part, or -1. Numbers change where ranges begin and end.
 */
static int count_within(const ct_parts *p, int i, const int64_t *said, const ct_cut *mine)
{
    int axis = mine->axis, n;

    for (int k = 0; (mine->n_range == 0) && (k < p->job->size); k++)
        if (said[(int64_t)k * SAID + RANGES] > 0) axis = (int)said[(int64_t)k * SAID + AXIS];
    n = count_at(p, i, said, axis, (mine->n_range > 0) ? mine->range[0].first : 0);
    for (int k = 0; k < p->job->size; k++) {
        ct_cut cut = cut_of(p, i, said + (int64_t)k * SAID);

        for (int r = 0; r < 2 * cut.n_range; r++) {
            int64_t x = cut.range[r / 2].first + ((r % 2 == 1) ? cut.range[r / 2].count : 0);

            if ((x < cut.whole.dim[axis]) && holds(mine, x) && (count_at(p, i, said, axis, x) != n))
                return -1;
        }
    }
    return n;
}

static int count_sharers(const ct_parts *p, int i, const int64_t *said)
{
    int n = 0, others = 0;
    ct_cut mine;

    if (p->own[i] < 0) return 0;
    mine = ct_parts_cut(p, i);
    for (int k = 0; k < p->job->size; k++) {
        const int64_t *v = said + (int64_t)k * SAID;
        ct_cut theirs = cut_of(p, i, v);

        if ((v[HAS] == 0) || (v[REPEATS] != 0)) continue;
        if (ct_cut_equal(&mine, &theirs))
            n++;
        else
            others++;
    }
    return (others == 0) ? n : count_within(p, i, said, &mine);
}

static ct_status add_part(ct_parts *p, int i, int rank, const int64_t *said)
{
    if (p->n_part == p->capacity) {
        int capacity = 2 * p->capacity + p->whole->n_param + 1;
        ct_part *grown = realloc(p->part, (size_t)capacity * sizeof(*grown));

        if (grown == NULL) return no_memory();
        p->part = grown;
        p->capacity = capacity;
    }
    p->part[p->n_part++] = (ct_part){ .rank = rank, .cut = cut_of(p, i, said) };
    return CT_OK;
}

/* Of the ranks whose ranges along axis hold element `at`, the one that goes on farthest. */
static int reach(const int64_t *said, int n, int64_t axis, int64_t at, int64_t *end_p)
{
    int best = -1;

    *end_p = at;
    for (int k = 0; k < n; k++) {
        const int64_t *v = said + (int64_t)k * SAID;

        for (int r = 0; (v[HAS] != 0) && (v[AXIS] == axis) && (r < v[RANGES]); r++) {
            int64_t first = v[RANGE + 2 * r], end = first + v[RANGE + 2 * r + 1];

            if ((first > at) || (end <= *end_p)) continue;
            best = k;
            *end_p = end;
        }
    }
    return best;
}

static bool has_rank(const ct_parts *p, int i, int rank)
{
    for (int k = p->first[i]; k < p->n_part; k++)
        if (p->part[k].rank == rank) return true;
    return false;
}

/* Parts that together are parameter i; said: by all ranks. The same on all of them. */
static ct_status cover(ct_parts *p, int i, const int64_t *said)
{
    const ct_param *whole = &p->whole->param[i];
    int n = p->job->size, lowest = -1;
    int64_t axis = 0;

    for (int k = n - 1; k >= 0; k--) {
        if (said[(int64_t)k * SAID + HAS] == 0) continue;
        if ((lowest < 0) || (said[(int64_t)lowest * SAID + RANGES] != 0) ||
            (said[(int64_t)k * SAID + RANGES] == 0))
            lowest = k; /* of those that have it whole where there are such */
    }
    if (lowest < 0)
        return CT_FAIL(CT_ERR_CONFIG, "no rank has parameter %s of the net", whole->key);
    if (said[(int64_t)lowest * SAID + RANGES] == 0)
        return add_part(p, i, lowest, said + (int64_t)lowest * SAID);
    axis = said[(int64_t)lowest * SAID + AXIS];
    for (int64_t at = 0, end = 0; at < whole->blob.data.shape.dim[axis]; at = end) {
        int rank = reach(said, n, axis, at, &end);

        if (rank < 0)
            return CT_FAIL(CT_ERR_CONFIG, "no rank has element %lld of axis %lld of parameter %s",
                           (long long)at, (long long)axis, whole->key);
        if (!has_rank(p, i, rank)) CT_TRY(add_part(p, i, rank, said + (int64_t)rank * SAID));
    }
    return CT_OK;
}

/* What is this rank's of parameter i can be one's of the whole net. */
static ct_status check_own(const ct_parts *p, int i)
{
    const ct_param *whole = &p->whole->param[i], *own = &p->net->param[p->own[i]];
    ct_cut cut = ct_parts_cut(p, i);
    int64_t end = 0, count;
    ct_shape shape = ct_cut_shape(&cut);

    count = ct_shape_count(&shape, 0, -1);
    if (!ct_shape_equal(&cut.whole, &whole->blob.data.shape) || (own->count != count))
        return CT_FAIL(CT_ERR_CONFIG, "parameter %s is no part of one of shape %s", own->key,
                       ct_shape_str(&whole->blob.data.shape).text);
    for (int r = 0; r < cut.n_range; r++) {
        if (cut.range[r].first < end)
            return CT_FAIL(CT_ERR_CONFIG, "the ranges of parameter %s do not ascend", own->key);
        end = cut.range[r].first + cut.range[r].count;
    }
    if (ct_param_has_history(p->whole, whole) && !ct_param_has_history(p->net, own))
        return CT_FAIL(CT_ERR_CONFIG, "parameter %s learns, but not on this rank", own->key);
    return CT_OK;
}

static ct_status find_own(ct_parts *p)
{
    for (int i = 0; i < p->whole->n_param; i++) {
        p->own[i] = ct_net_find_param(p->net, p->whole->param[i].key);
        if (p->own[i] >= 0) CT_TRY(check_own(p, i));
    }
    for (int k = 0; k < p->net->n_param; k++)
        if (ct_net_find_param(p->whole, p->net->param[k].key) < 0)
            return CT_FAIL(CT_ERR_CONFIG, "the whole net has no parameter %s",
                           p->net->param[k].key);
    return CT_OK;
}

static ct_status agree_parts(ct_parts *p, int64_t *said)
{
    int64_t mine[SAID];
    ct_status status = CT_OK;

    for (int i = 0; i < p->whole->n_param; i++) {
        p->first[i] = p->n_part;
        say(p, i, mine);
        CT_TRY(ct_group_gather(p->job, mine, SAID, said));
        p->n_sharer[i] = count_sharers(p, i, said);
        for (int k = 0; k < p->job->size; k++)
            p->visits[i] = p->visits[i] || (said[(int64_t)k * SAID + VISITS] != 0);
        if (status == CT_OK) status = cover(p, i, said);
    }
    p->first[p->whole->n_param] = p->n_part;
    return ct_group_agree(p->job, status);
}

ct_status ct_parts_create(const ct_net *whole, const ct_net *net, const ct_group *job,
                          ct_parts **parts_p)
{
    size_t n = (size_t)whole->n_param + 1;
    ct_parts *p = calloc(1, sizeof(*p));
    int64_t *said = calloc((size_t)job->size * SAID, sizeof(*said));
    ct_status status = ((p != NULL) && (said != NULL)) ? CT_OK : no_memory();

    if (p != NULL) {
        *p = (ct_parts){ .whole = whole, .net = net, .job = job };
        p->own = calloc(n, sizeof(*p->own));
        p->first = calloc(n, sizeof(*p->first));
        p->n_sharer = calloc(n, sizeof(*p->n_sharer));
        p->visits = calloc(n, sizeof(*p->visits));
        if ((p->own == NULL) || (p->first == NULL) || (p->n_sharer == NULL) || (p->visits == NULL))
            status = no_memory();
    }
    if (status == CT_OK) status = find_own(p);
    status = ct_group_agree(job, status);
    if (status == CT_OK) status = agree_parts(p, said);
    free(said);
    if (status != CT_OK) {
        ct_parts_destroy(p);
        return status;
    }
    *parts_p = p;
    return CT_OK;
}

void ct_parts_destroy(ct_parts *p)
{
    if (p == NULL) return;
    free(p->own);
    free(p->first);
    free(p->n_sharer);
    free(p->visits);
    free(p->part);
    free(p->first_piece);
    free(p->piece);
    free(p);
}

bool ct_parts_stands(const ct_parts *p, int i)
{
    for (int k = p->first[i]; k < p->first[i + 1]; k++)
        if (p->part[k].rank == p->job->rank) return true;
    return false;
}

ct_status ct_parts_add_up(const ct_parts *p, int i, float *v)
{
    int64_t count = p->whole->param[i].count;
    float *all = ct_mem_acquire((size_t)count * sizeof(float));
    ct_status status = (all != NULL) ? CT_OK : no_memory();
    ct_cut cut;

    status = ct_group_agree(p->job, status);
    if (p->own[i] >= 0) cut = ct_parts_cut(p, i);
    if ((status == CT_OK) && (v != NULL) && !ct_parts_repeats(p, i)) ct_cut_put(&cut, v, all);
    if (status == CT_OK) status = ct_group_average(p->job, all, count, 1.0);
    if ((status == CT_OK) && (v != NULL)) ct_cut_take(&cut, all, v);
    ct_mem_release(all);
    return status;
}

/* ---- pieces of parts */

/* What a rank says of a piece: of which part, and whose. */
enum { PART, FROM, COUNT, RANK, TOLD };

/* This rank's part of parameter i among those that stand for it; -1: it is none of them. */
static int part_of(const ct_parts *p, int i)
{
    ct_cut cut = ct_parts_cut(p, i);

    for (int k = p->first[i]; k < p->first[i + 1]; k++)
        if (ct_cut_equal(&p->part[k].cut, &cut)) return k;
    return -1;
}

/* What a piece of the arena has of a parameter: elements of that. */
static bool meets(const ct_shard_piece *s, const ct_param *p, int64_t *from_p, int64_t *count_p)
{
    int64_t from = (s->from > p->offset) ? s->from : p->offset;
    int64_t end =
        (s->from + s->count < p->offset + p->count) ? s->from + s->count : p->offset + p->count;

    *from_p = from - p->offset;
    *count_p = end - from;
    return end > from;
}

/* into NULL: they are only counted. */
static int64_t tell_pieces(const ct_parts *p, int64_t *into)
{
    int64_t n = 0, from, count;

    for (int i = 0; i < p->whole->n_param; i++) {
        int k = (p->own[i] >= 0) ? part_of(p, i) : -1;

        for (int s = 0; (k >= 0) && (s < p->shard->n); s++) {
            int64_t *told;

            if (!meets(&p->shard->piece[s], &p->net->param[p->own[i]], &from, &count)) continue;
            n++;
            if (into == NULL) continue;
            told = into + TOLD * (n - 1);
            told[PART] = k;
            told[FROM] = from;
            told[COUNT] = count;
            told[RANK] = p->job->rank;
        }
    }
    return n;
}

static int by_place(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;

    for (int i = PART; i <= RANK; i++)
        if (x[i] != y[i]) return (x[i] > y[i]) ? 1 : -1;
    return 0;
}

/* Pieces told[*at_p ...) of part k, so that none overlap: ranks of several groups may have it. */
static ct_status cover_part(ct_parts *p, int i, int k, const int64_t *told, int64_t n,
                            int64_t *at_p, int *n_piece_p)
{
    ct_shape shape = ct_cut_shape(&p->part[k].cut);
    int64_t count = ct_shape_count(&shape, 0, -1), end = 0;
    bool has = ct_param_has_history(p->whole, &p->whole->param[i]);

    for (; (*at_p < n) && (told[TOLD * *at_p + PART] == k); ++*at_p) {
        const int64_t *t = told + TOLD * *at_p;
        int64_t next = t[FROM] + t[COUNT];

        if (next <= end) continue;
        if (t[FROM] > end) break;
        p->piece[(*n_piece_p)++] = (ct_part_piece){ (int)t[RANK], end, next - end };
        end = next;
    }
    if (has && (end < count))
        return CT_FAIL(CT_ERR_CONFIG, "no rank keeps element %lld of a part of %s", (long long)end,
                       p->whole->param[i].key);
    while ((*at_p < n) && (told[TOLD * *at_p + PART] == k)) ++*at_p;
    return CT_OK;
}

static ct_status cover_all(ct_parts *p, int64_t *told, int64_t n)
{
    int64_t at = 0, used = 0;
    int n_piece = 0;

    for (int64_t i = 0; i < n; i++) /* equally many came from all ranks */
        if (told[TOLD * i + COUNT] > 0)
            memmove(told + TOLD * used++, told + TOLD * i, TOLD * sizeof(*told));
    qsort(told, (size_t)used, TOLD * sizeof(*told), by_place);
    p->first_piece = calloc((size_t)p->n_part + 1, sizeof(*p->first_piece));
    p->piece = calloc((size_t)used + 1, sizeof(*p->piece));
    if ((p->first_piece == NULL) || (p->piece == NULL)) return no_memory();
    for (int i = 0; i < p->whole->n_param; i++) {
        for (int k = p->first[i]; k < p->first[i + 1]; k++) {
            CT_TRY(cover_part(p, i, k, told, used, &at, &n_piece));
            p->first_piece[k + 1] = n_piece;
        }
    }
    return CT_OK;
}

ct_status ct_parts_share_out(ct_parts *p, const ct_shard *own, ct_storage *learned)
{
    int64_t most, *mine = NULL, *all = NULL;
    ct_status status = CT_OK;

    p->learned = learned;
    if (own == NULL) return CT_OK;
    p->shard = own;
    most = tell_pieces(p, NULL);
    CT_TRY(ct_group_max(p->job, &most, 1));
    mine = calloc((size_t)(TOLD * most + 1), sizeof(*mine));
    all = calloc((size_t)(TOLD * most * p->job->size + 1), sizeof(*all));
    if ((mine == NULL) || (all == NULL)) status = no_memory();
    status = ct_group_agree(p->job, status);
    if (status == CT_OK) {
        (void)tell_pieces(p, mine);
        status = ct_group_gather(p->job, mine, (int)(TOLD * most), all);
    }
    if (status == CT_OK) status = ct_group_agree(p->job, cover_all(p, all, most * p->job->size));
    free(mine);
    free(all);
    return status;
}

/* ---- ranges of a whole array in parts */

/* Run i of a cut, as far as it lies within elements [from, from + count) of the whole. */
static bool clip(const ct_cut *c, int64_t i, int64_t from, int64_t count, ct_cut_run *r)
{
    int64_t skip, end;

    *r = ct_cut_run_at(c, i);
    skip = (from > r->whole) ? from - r->whole : 0;
    end = (r->whole + r->count < from + count) ? r->whole + r->count : from + count;
    r->whole += skip;
    r->part += skip;
    r->count = end - r->whole;
    return r->count > 0;
}

/* The runs that elements [from, from + count) of the whole may be in. */
static void runs_near(const ct_cut *c, int64_t from, int64_t count, int64_t *first_p,
                      int64_t *end_p)
{
    int64_t slab;

    *first_p = 0;
    *end_p = ((c->n_range == 0) && (count > 0)) ? 1 : 0;
    if ((c->n_range == 0) || (count <= 0)) return;
    slab = ct_shape_count(&c->whole, c->axis, -1);
    *first_p = from / slab * c->n_range;
    *end_p = ((from + count - 1) / slab + 1) * c->n_range;
}

/* What the part has of elements [from, from + count): they lie together there, since ranges
 * ascend. */
static ct_range span(const ct_cut *c, int64_t from, int64_t count)
{
    ct_range found = { 0, 0 };
    int64_t first, end;
    ct_cut_run r;

    runs_near(c, from, count, &first, &end);
    for (int64_t i = first; i < end; i++) {
        if (!clip(c, i, from, count, &r)) continue;
        if (found.count == 0) found.first = r.part;
        found.count += r.count;
    }
    return found;
}

/* Between elements [from, from + count) of the whole and what the part has of them, which begins at
 * its element `at`. take also in place. */
static void take_range(const ct_cut *c, int64_t from, int64_t count, const float *whole, int64_t at,
                       float *part)
{
    int64_t first, end;
    ct_cut_run r;

    runs_near(c, from, count, &first, &end);
    for (int64_t i = first; i < end; i++)
        if (clip(c, i, from, count, &r))
            memmove(part + (r.part - at), whole + (r.whole - from),
                    (size_t)r.count * sizeof(float));
}

static void put_range(const ct_cut *c, int64_t from, int64_t count, float *whole, int64_t at,
                      const float *part)
{
    int64_t first, end;
    ct_cut_run r;

    runs_near(c, from, count, &first, &end);
    for (int64_t i = first; i < end; i++)
        if (clip(c, i, from, count, &r))
            memcpy(whole + (r.whole - from), part + (r.part - at), (size_t)r.count * sizeof(float));
}

/* ---- rank 0 asks, all answer */

typedef struct session {
    const ct_parts *p;
    ct_storage *const *own;
} session;

/* The elements of parameter i among those that are asked for, as [from, from + count) of its own.
 */
static bool within(const ct_param *p, const ct_whole_ask *a, int64_t *from_p, int64_t *count_p)
{
    int64_t from = (a->from > p->offset) ? a->from : p->offset;
    int64_t end = p->offset + p->count;

    if (end > a->from + a->count) end = a->from + a->count;
    *from_p = from - p->offset;
    *count_p = end - from;
    return end > from;
}

/* These weights come and go. */
static bool visits(const session *s, const ct_whole_ask *a, int i)
{
    return (a->k == 0) && s->p->visits[i];
}

/* Where a->k is of parameter i. */
static ct_storage *storage_of(const session *s, const ct_whole_ask *a, int i)
{
    return visits(s, a, i) ? s->p->learned : s->own[a->k];
}

static bool in_pieces(const session *s, const ct_whole_ask *a, int i)
{
    return (s->p->first_piece != NULL) && ((a->k > 0) || visits(s, a, i));
}

/* Elements of a rank's part to where rank 0 has room for them. */
static ct_status fetch_piece(const session *s, const ct_whole_ask *a, int i, ct_part_piece piece,
                             float *room)
{
    const ct_parts *p = s->p;

    if (piece.rank == p->job->rank)
        ct_whole_note(a, ct_storage_get(storage_of(s, a, i),
                                        p->net->param[p->own[i]].offset + piece.from, piece.count,
                                        room));
    return ct_group_send(p->job, room, (size_t)piece.count * sizeof(float), piece.rank, 0);
}

/* Elements r of part k of parameter i, to a->room. */
static ct_status fetch_part(const session *s, const ct_whole_ask *a, int i, int k, ct_range r)
{
    const ct_parts *p = s->p;

    if (!in_pieces(s, a, i))
        return fetch_piece(s, a, i, (ct_part_piece){ p->part[k].rank, r.first, r.count }, a->room);
    for (int q = p->first_piece[k]; q < p->first_piece[k + 1]; q++) {
        ct_part_piece piece = p->piece[q];
        int64_t end = piece.from + piece.count;

        if (piece.from < r.first) piece.from = r.first;
        if (end > r.first + r.count) end = r.first + r.count;
        piece.count = end - piece.from;
        if (piece.count > 0) CT_TRY(fetch_piece(s, a, i, piece, a->room + (piece.from - r.first)));
    }
    return CT_OK;
}

/* Elements of a parameter from the ranks that have them; data: theirs, on rank 0. */
static ct_status fetch_param(const session *s, const ct_whole_ask *a, int i, float *data)
{
    const ct_parts *p = s->p;
    int64_t from, count;

    if (!within(&p->whole->param[i], a, &from, &count)) return CT_OK;
    for (int k = p->first[i]; k < p->first[i + 1]; k++) {
        const ct_part *part = &p->part[k];
        ct_range r = span(&part->cut, from, count);

        if (r.count == 0) continue;
        CT_TRY(fetch_part(s, a, i, k, r));
        if (p->job->rank == 0)
            put_range(&part->cut, from, count, data + (p->whole->param[i].offset + from - a->from),
                      r.first, a->room);
    }
    return CT_OK;
}

/* Elements r of this rank's part of parameter i, as far as they are its own. */
static ct_status take_own(const session *s, const ct_whole_ask *a, int i, ct_range r,
                          const float *v)
{
    const ct_param *own = &s->p->net->param[s->p->own[i]];
    const ct_param part = { .offset = own->offset + r.first, .count = r.count };
    ct_storage *to = storage_of(s, a, i);
    int64_t from, count;

    if (!in_pieces(s, a, i)) return ct_storage_put(to, part.offset, part.count, v);
    for (int k = 0; k < s->p->shard->n; k++)
        if (meets(&s->p->shard->piece[k], &part, &from, &count))
            CT_TRY(ct_storage_put(to, part.offset + from, count, v + from));
    return CT_OK;
}

/* This rank's of the elements of a parameter; data: what was asked, which is spoilt. */
static void spread_param(const session *s, const ct_whole_ask *a, int i, float *data)
{
    const ct_parts *p = s->p;
    ct_cut cut = ct_parts_cut(p, i);
    int64_t from, count;
    float *v;
    ct_range r;

    if (!within(&p->whole->param[i], a, &from, &count)) return;
    v = data + (p->whole->param[i].offset + from - a->from);
    r = span(&cut, from, count);
    if (r.count == 0) return;
    take_range(&cut, from, count, v, r.first, v);
    ct_whole_note(a, take_own(s, a, i, r, v));
}

/* Parameters that do not learn have no states. */
static ct_status answer(const void *who, ct_storage *const *own, const ct_whole_ask *a, float *data)
{
    const ct_parts *p = who;
    const session now = { .p = p, .own = own }, *s = &now;

    if (!a->fetch) CT_TRY(ct_group_broadcast(p->job, data, (size_t)a->count * sizeof(float)));
    for (int i = 0; i < p->whole->n_param; i++) {
        if ((a->k > 0) && !ct_param_has_history(p->whole, &p->whole->param[i])) continue;
        if (a->fetch) CT_TRY(fetch_param(s, a, i, data));
        if (!a->fetch && (p->own[i] >= 0)) spread_param(s, a, i, data);
    }
    return CT_OK;
}

ct_whole_source ct_parts_source(const ct_parts *p)
{
    return (ct_whole_source){
        .g = p->job, .count = p->whole->weight_count, .answer = answer, .who = p
    };
}

ct_status ct_parts_run(const ct_parts *p, ct_storage *const *own, int n, ct_whole_work work,
                       void *ctx)
{
    ct_whole_source source = ct_parts_source(p);

    return ct_whole_run(&source, own, n, work, ctx);
}

/* ---- this rank's weights */

/* Behind a window lies what does not learn. What comes and goes is wanted of another storage. */
static ct_status weights_want(ct_storage *s, ct_stream st, ct_storage_range *r)
{
    const ct_net *net = s->own;
    int64_t shift = (r->from < net->grad_count) ? 0 : net->weight_memory - net->weight_count;

    (void)st;
    r->data = net->weight_arena + r->from + shift;
    return CT_OK;
}

static ct_status weights_done(ct_storage *s, ct_stream st, const ct_storage_range *r)
{
    (void)s;
    (void)st;
    (void)r;
    return CT_OK;
}

static int64_t weights_together(const ct_storage *s, int64_t from)
{
    const ct_net *net = s->own;

    return ((from < net->grad_count) ? net->grad_count : s->count) - from;
}

ct_storage ct_parts_weights(const ct_parts *p)
{
    static const ct_storage_ops ops = { .name = "a net's weights",
                                        .fixed = true,
                                        .want = weights_want,
                                        .done = weights_done,
                                        .together = weights_together };

    return (ct_storage){ .ops = &ops,
                         .dev = ct_net_device(p->net),
                         .count = p->net->weight_count,
                         .own = (void *)(uintptr_t)p->net };
}

/* ---- a checksum */

typedef struct hashing {
    const ct_net *whole;
    uint64_t sum;
} hashing;

static ct_status hash_all(void *ctx, ct_storage *whole)
{
    hashing *h = ctx;

    return ct_weights_checksum(&(ct_weights){ .net = h->whole, .storage = whole }, &h->sum);
}

ct_status ct_parts_checksum(const ct_parts *p, uint64_t *sum_p)
{
    ct_storage weights = ct_parts_weights(p);
    hashing h = { .whole = p->whole };

    CT_TRY(ct_parts_run(p, &(ct_storage *){ &weights }, 1, hash_all, &h));
    *sum_p = h.sum;
    return ct_group_broadcast(p->job, sum_p, sizeof(*sum_p));
}
