/* gtopk: the ranks are halved again and again; from the smallest groups upwards each half, whose
 * ranks have one list, sends it to the other, and all merge the two and keep the k largest.
 *
 * Where a half has one rank more than the other, one rank of the smaller half sends twice, and one
 * of the larger does not send: those that have sent least and most so far. So for any number of
 * ranks there are log2 p rounds, rounded up, and nobody sends much more than the others.
 *
 * What a merge drops is kept by the half whose list it was in, and there by the rank that looks
 * after that element; so with two ranks by whom it came from. */
#include <stdlib.h>
#include <string.h>

#include "comm/sparse/sparse_allreduce_impl.h"
#include "framework/base/clock.h"

enum { MAX_ROUND = 32 };

/* One merge, from this rank's side; members are counted as in r->member. */
typedef struct merge {
    int from, n_to, to[2];
    bool low;          /* its half is the first one                           */
    int half_at, half; /* its half: the first member, how many            */
    int all_at, all;   /* both halves                                       */
} merge;

typedef struct gtopk {
    merge round[MAX_ROUND];
    int n_round, now;
    bool posted, delivered;
    ct_sparse list[2], other; /* list[now % 2] is this rank's */
    void *payload[2], *landing;
    size_t bound;
    ct_sized_message in, out[2][2]; /* out: of the even rounds, of the odd ones */
} gtopk;

/* ---- who sends to whom */

static int extreme(const int *load, int at, int n, bool most)
{
    int best = at;

    for (int i = at + 1; i < at + n; ++i) {
        if (most ? (load[i] >= load[best]) : (load[i] < load[best])) best = i;
    }
    return best;
}

/* Counts one message; notes it where it is ours. */
static void note(gtopk *g, int me, int from, int to, const merge *m)
{
    merge *mine = &g->round[g->n_round];

    if ((from != me) && (to != me)) return;
    if (mine->all == 0) *mine = *m;
    if (to == me) mine->from = from;
    if (from == me) mine->to[mine->n_to++] = to;
}

static void pair_up(gtopk *g, int me, int at, int n, int *load)
{
    int low = (n + 1) / 2, high = n / 2, spare = -1, twice = -1;
    bool in_low = (me < at + low);
    merge m = { .from = -1, .low = in_low, .all_at = at, .all = n };

    m.half_at = in_low ? at : at + low;
    m.half = in_low ? low : high;
    if (low > high) {
        spare = extreme(load, at, low, true);
        twice = extreme(load, at + low, high, false);
        note(g, me, twice, spare, &m);
        load[twice] += 1;
    }
    for (int i = 0, a = at; i < high; ++i, ++a) {
        if (a == spare) a += 1;
        note(g, me, a, at + low + i, &m);
        note(g, me, at + low + i, a, &m);
        load[a] += 1;
        load[at + low + i] += 1;
    }
    if ((me >= at) && (me < at + n)) g->n_round += 1;
}

static void make_rounds(gtopk *g, int me, int at, int n, int *load)
{
    if (n == 1) return;
    make_rounds(g, me, at, (n + 1) / 2, load);
    make_rounds(g, me, at + (n + 1) / 2, n / 2, load);
    pair_up(g, me, at, n, load);
}

/* ---- the request */

static void gtopk_release(ct_sparse_allreduce_req *r)
{
    gtopk *g = r->state;

    if (g == NULL) return;
    ct_mem_release(g->payload[0]);
    ct_mem_release(g->payload[1]);
    ct_mem_release(g->landing);
    ct_sparse_destroy(&g->list[0]);
    ct_sparse_destroy(&g->list[1]);
    ct_sparse_destroy(&g->other);
    free(g);
    r->state = NULL;
}

static ct_status gtopk_prepare(ct_sparse_allreduce_req *r)
{
    gtopk *g = NULL;
    size_t merged = 0;
    int *load = NULL;

    CT_TRY(ct_sparse_allreduce_defaults(r));
    r->state = g = calloc(1, sizeof(*g));
    load = calloc((size_t)r->n_member, sizeof(*load));
    if ((g == NULL) || (load == NULL)) {
        free(load);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a sparse exchange");
    }
    make_rounds(g, r->me, 0, r->n_member, load);
    free(load);
    g->bound = ct_payload_bytes(r->form, r->n, r->room);
    merged = ct_payload_bytes(ct_sparse_allreduce_merged_form(r->form), r->n, r->k_most);
    if (merged > g->bound) g->bound = merged;
    for (int i = 0; i < 2; ++i) g->payload[i] = ct_mem_acquire(g->bound);
    g->landing = ct_mem_acquire(g->bound);
    if ((g->payload[0] == NULL) || (g->payload[1] == NULL) || (g->landing == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for payloads of %zu bytes", g->bound);
    r->most = r->room;
    r->most_lost = 2 * r->room + g->n_round * (r->room + 2 * r->k_most);
    CT_TRY(ct_sparse_reserve(&g->list[0], 2 * r->room));
    CT_TRY(ct_sparse_reserve(&g->list[1], 2 * r->room));
    return ct_sparse_reserve(&g->other, r->room);
}

static ct_status gtopk_start(ct_sparse_allreduce_req *r)
{
    gtopk *g = r->state;

    CT_TRY(ct_sparse_allreduce_take_own(r));
    ct_sparse_allreduce_begin_list(r);
    g->now = 0;
    g->posted = g->delivered = false;
    return CT_OK;
}

/* This rank's list before round k: at first its own. */
static ct_sparse *list_of(ct_sparse_allreduce_req *r, int k)
{
    return (k == 0) ? r->own : &((gtopk *)r->state)->list[k % 2];
}

/* Entries of a list that m ranks have merged; asked for where lists have no content. */
static int64_t expected(const ct_sparse_allreduce_req *r, int m)
{
    int64_t all = ct_sparse_allreduce_union(r->n, (r->k < r->n) ? r->k : r->n, m);

    return ((m > 1) && (all > r->k)) ? r->k : all;
}

static ct_status post_round(ct_sparse_allreduce_req *r)
{
    gtopk *g = r->state;
    const merge *m = &g->round[g->now];
    const ct_sparse *list = list_of(r, g->now);
    ct_payload_form form = (g->now == 0) ? r->form : ct_sparse_allreduce_merged_form(r->form);
    int other = m->all - m->half;
    ct_payload_form form_in = (other == 1) ? r->form : ct_sparse_allreduce_merged_form(r->form);
    void *payload = g->payload[g->now % 2];
    size_t bytes = 0;

    CT_TRY(ct_sized_message_recv(r->comm, &g->in, g->landing, g->bound,
                                 ct_payload_bytes(form_in, r->n, expected(r, other)),
                                 r->member[m->from], r->tag));
    if (m->n_to > 0) bytes = ct_payload_pack(form, list, payload);
    for (int i = 0; i < m->n_to; ++i) {
        CT_TRY(ct_sized_message_send(r->comm, &g->out[g->now % 2][i], payload, bytes,
                                     r->member[m->to[i]], r->tag));
        r->bytes_sent += (int64_t)bytes;
    }
    g->posted = true;
    return CT_OK;
}

/* True once the messages of the last round of this parity have left. */
static ct_status have_left(ct_sparse_allreduce_req *r, int parity, bool *left_p)
{
    gtopk *g = r->state;

    *left_p = true;
    for (int i = 0; i < 2; ++i) {
        bool done = false;

        CT_TRY(ct_sized_message_progress(r->comm, &g->out[parity][i], &done));
        *left_p = *left_p && done;
    }
    return CT_OK;
}

static ct_status merge_lists(ct_sparse_allreduce_req *r)
{
    gtopk *g = r->state;
    const merge *m = &g->round[g->now];
    ct_sparse *mine = list_of(r, g->now), *out = &g->list[(g->now + 1) % 2];
    double at = ct_clock_s();

    g->other.count = expected(r, m->all - m->half);
    CT_TRY(ct_payload_unpack(g->landing, g->in.bytes, r->n, &g->other));
    CT_TRY(
        ct_sparse_allreduce_merge(m->low ? mine : &g->other, m->low ? &g->other : mine, r->k, out));
    ct_sparse_allreduce_keep_lost(mine, out, m->half, r->me - m->half_at, &r->residual);
    if (m->all < r->n_member)
        ct_sparse_allreduce_round_shared(r->form, out, m->all, r->me - m->all_at, &r->residual);
    g->now += 1;
    g->posted = false;
    r->decode_s += ct_clock_s() - at;
    return CT_OK;
}

static void note_place(ct_sparse_allreduce_req *r, bool moved)
{
    const gtopk *g = r->state;
    int sending = 0;

    for (int i = 0; i < 4; ++i) sending += g->out[i / 2][i % 2].busy;
    if (moved) (void)atomic_fetch_add_explicit(&r->where.n_moved, 1, memory_order_relaxed);
    atomic_store_explicit(&r->where.n_step, g->n_round, memory_order_relaxed);
    atomic_store_explicit(&r->where.step, g->now, memory_order_relaxed);
    atomic_store_explicit(&r->where.rank,
                          (g->now < g->n_round) ? r->member[g->round[g->now].from] : -1,
                          memory_order_relaxed);
    atomic_store_explicit(&r->where.sending, sending, memory_order_relaxed);
}

static ct_status gtopk_progress(ct_sparse_allreduce_req *r)
{
    gtopk *g = r->state;
    bool moved = false, left[2] = { false, false }, here = false;

    if (g->delivered) return CT_OK;
    for (;;) {
        CT_TRY(have_left(r, 0, &left[0]));
        CT_TRY(have_left(r, 1, &left[1]));
        if (g->now == g->n_round) break;
        if (!g->posted) {
            if (!left[g->now % 2]) break;
            CT_TRY(post_round(r));
            moved = true;
        }
        CT_TRY(ct_sized_message_progress(r->comm, &g->in, &here));
        if (!here) break;
        CT_TRY(merge_lists(r));
        moved = true;
        if (r->where.brief) break;
    }
    note_place(r, moved);
    if ((g->now < g->n_round) || !left[0] || !left[1]) return CT_INPROGRESS;
    g->delivered = true;
    if (r->list != NULL)
        return ct_sparse_allreduce_append(list_of(r, g->now), 0, r->list, &r->filled);
    ct_sparse_allreduce_deliver(list_of(r, g->now), r->sum, r->n, r->comm->n_thread, &r->filled);
    return CT_OK;
}

static int gtopk_pending(ct_sparse_allreduce_req *r, MPI_Request **out, int max)
{
    gtopk *g = r->state;
    int n = 0;

    if (g->delivered) return 0;
    if (g->posted && g->in.busy && (n < max)) out[n++] = &g->in.message.request;
    for (int i = 0; i < 4; ++i) {
        ct_sized_message *p = &g->out[i / 2][i % 2];

        if (p->busy && (n < max)) out[n++] = &p->message.request;
    }
    return n;
}

static int64_t gtopk_bytes(const ct_comm *c, int64_t n, int64_t k, ct_payload_form form)
{
    return ct_sparse_allreduce_bytes(CT_SPARSE_ALLREDUCE_GTOPK, c->size, n, k, form);
}

static double gtopk_cost_s(const ct_comm *c, int64_t n, int64_t k, ct_payload_form form)
{
    return ct_sparse_allreduce_cost_s(c, CT_SPARSE_ALLREDUCE_GTOPK, n, k, form);
}

const ct_sparse_allreduce_ops ct_sparse_allreduce_gtopk = {
    .name = "gtopk",
    .lists = true,
    .prepare = gtopk_prepare,
    .start = gtopk_start,
    .progress = gtopk_progress,
    .pending = gtopk_pending,
    .release = gtopk_release,
    .cost_s = gtopk_cost_s,
    .bytes_theory = gtopk_bytes,
};
