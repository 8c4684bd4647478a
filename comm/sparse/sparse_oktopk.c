/* oktopk: regions and how they move, then the exchange itself. */
#include "comm/sparse/sparse_allreduce_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/clock.h"

ct_status ct_regions_create(int64_t n, int n_region, ct_regions *g)
{
    *g = (ct_regions){ .n = n, .n_region = n_region };
    g->bound = malloc(sizeof(*g->bound) * ((size_t)n_region + 1));
    g->before = malloc(sizeof(*g->before) * ((size_t)n_region + 1));
    if ((g->bound == NULL) || (g->before == NULL)) {
        ct_regions_destroy(g);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %d regions", n_region);
    }
    for (int j = 0; j <= n_region; ++j) g->bound[j] = (int64_t)((double)n * ((double)j / n_region));
    g->bound[n_region] = n;
    return CT_OK;
}

void ct_regions_destroy(ct_regions *g)
{
    free(g->bound);
    free(g->before);
    *g = (ct_regions){ .bound = NULL };
}

void ct_region_cuts(const int64_t *bin, int64_t length, ct_region_news *news)
{
    int64_t all = 0, seen = 0;
    int b = 0;

    for (int i = 0; i < CT_REGION_BINS; ++i) all += bin[i];
    for (int i = 0; i < CT_REGION_CUTS; ++i) {
        double target = (double)all * (i + 1) / (CT_REGION_CUTS + 1), at = 0;

        while ((b < CT_REGION_BINS - 1) && ((double)(seen + bin[b]) < target)) seen += bin[b++];
        at = (bin[b] > 0) ? (target - (double)seen) / (double)bin[b] : 0;
        at = ((double)b + at) / CT_REGION_BINS * (double)length;
        news->cut[i] = (uint32_t)((at < (double)length) ? at : (double)length);
    }
}

/* Before which element piece i of region j ends. A cut before an earlier one counts as that. */
static int64_t piece_end(const ct_regions *g, const ct_region_news *news, int j, int i,
                         int64_t least)
{
    int64_t at;

    if (i == CT_REGION_CUTS) return g->bound[j + 1];
    at = g->bound[j] + news->cut[i];
    if (at > g->bound[j + 1]) at = g->bound[j + 1];
    return (at > least) ? at : least;
}

/* New boundaries, of equally many entries each, if those of the pieces are spread evenly. */
static void move_bounds(ct_regions *g, const ct_region_news *const *news, int64_t all)
{
    int64_t seen = 0, last = 0;
    int next = 1;

    for (int j = 0; j < g->n_region; ++j) {
        int64_t begin = g->bound[j];

        for (int i = 0; i <= CT_REGION_CUTS; ++i) {
            int64_t end = piece_end(g, news[j], j, i, begin);
            /* in thirteenths of an entry */
            int64_t mass = news[j]->received;

            for (; next < g->n_region; ++next) {
                double target = (double)all * (CT_REGION_CUTS + 1) * next / g->n_region;
                double share = (mass > 0) ? (target - (double)seen) / (double)mass : 2;
                int64_t at = begin + (int64_t)((double)(end - begin) * ((share > 0) ? share : 0));

                if (share > 1) break;
                g->before[next] = (at > last) ? at : last;
                last = g->before[next];
            }
            seen += mass;
            begin = end;
        }
    }
    for (; next < g->n_region; ++next) g->before[next] = g->n;
    memcpy(g->bound + 1, g->before + 1, sizeof(*g->bound) * (size_t)(g->n_region - 1));
}

/* Towards k entries in all: the number over a threshold falls about as its square. */
static void move_threshold(ct_regions *g, const ct_region_news *const *news, int64_t k)
{
    double wanted = 0, least = 0, step = 0;
    int n = 0;

    for (int j = 0; j < g->n_region; ++j) {
        wanted += news[j]->wanted;
        if ((news[j]->kept == 0) || !isfinite(news[j]->least)) continue;
        least += (double)news[j]->least;
        n += 1;
    }
    if ((g->threshold <= 0) && (n > 0)) g->threshold = (float)(least / n);
    if ((g->threshold <= 0) || (k <= 0)) return;
    step = sqrt(wanted / (double)k);
    g->threshold *= (float)((step < 0.8) ? 0.8 : (step > 1.25) ? 1.25 : step);
    if (!isfinite(g->threshold)) g->threshold = 0;
}

void ct_regions_learn(ct_regions *g, const ct_region_news *const *news, int64_t k)
{
    int64_t all = 0, most = 0;

    for (int j = 0; j < g->n_region; ++j) {
        all += news[j]->received;
        if (news[j]->received > most) most = news[j]->received;
    }
    /* a tenth from even is not worth moving */
    if ((double)most * g->n_region > 1.1 * (double)all) move_bounds(g, news, all);
    move_threshold(g, news, k);
}

/* ---- oktopk: every rank has a region of the elements.
 *
 *   1. to each other rank go the entries of its region, nearest ranks first, each starting at
 *      another one, a few at a time; what comes is added in that order
 *   2. of the sums, a region keeps those over the threshold, and a quarter more than its share of
 *      the k at most; the rest goes to this rank's residual
 *   3. what all regions keep goes round a ring
 *
 * ct_regions_learn() moves boundaries and threshold for the next step. The threshold of the first
 * step is each region's own. */

enum { WINDOW = 8 /* messages of part 1 under way, each direction */ };

typedef enum { SPLIT, GATHER, DONE } stage;

typedef struct oktopk {
    ct_regions regions;
    stage stage;
    int sent, send_done, received, recv_done; /* steps of part 1; the first is 1 */
    ct_sized_message out[WINDOW], in[WINDOW];
    char *payload; /* parts, one after the other */
    size_t payload_room, payload_at;
    char *landing[WINDOW];
    size_t bound;      /* of a landing */
    int64_t *part;     /* [n_member + 1] where the regions' entries begin in own */
    uint64_t *touched; /* [n / 64 + 1] elements of this region that have had an entry */
    int64_t bin[CT_REGION_BINS], n_received;
    int64_t most; /* that a region keeps */
    ct_sparse other, result;
    ct_allgatherv *gather;
    const ct_region_news **news; /* [n_member] */
} oktopk;

static void oktopk_release(ct_sparse_allreduce_req *r)
{
    oktopk *o = r->state;

    if (o == NULL) return;
    ct_regions_destroy(&o->regions);
    ct_allgatherv_destroy(o->gather);
    ct_mem_release(o->payload);
    ct_mem_release(o->landing[0]);
    ct_sparse_destroy(&o->other);
    ct_sparse_destroy(&o->result);
    free(o->part);
    free(o->touched);
    free(o->news);
    free(o);
    r->state = NULL;
}

/* A quarter more than its share, and room for a few. */
static int64_t most_kept(const ct_sparse_allreduce_req *r, int64_t k)
{
    int64_t share = ct_sparse_allreduce_share(k, r->n_member);

    if (r->n_member == 1) return r->room; /* nothing is dropped */
    return (share + share / 4 + 8 < r->n) ? share + share / 4 + 8 : r->n;
}

static ct_status allocate(ct_sparse_allreduce_req *r, oktopk *o)
{
    size_t p = (size_t)r->n_member;
    char *landing = NULL;

    o->bound = ct_align_up(ct_payload_bytes(r->form, r->n, r->room));
    /* heads and alignment of all parts, and a block more for each than in one piece */
    o->payload_room = o->bound + p * (CT_PAYLOAD_HEAD + 16);
    o->payload = ct_mem_acquire(o->payload_room);
    o->landing[0] = landing = ct_mem_acquire(WINDOW * o->bound);
    o->part = malloc(sizeof(*o->part) * (p + 1));
    o->touched = calloc((size_t)r->n / 64 + 1, sizeof(*o->touched));
    o->news = malloc(sizeof(*o->news) * p);
    if ((o->payload == NULL) || (landing == NULL) || (o->part == NULL) || (o->touched == NULL) ||
        (o->news == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %d payloads of %zu bytes", WINDOW, o->bound);
    for (int i = 1; i < WINDOW; ++i) o->landing[i] = landing + (size_t)i * o->bound;
    CT_TRY(ct_sparse_reserve(&o->other, r->room));
    return ct_sparse_reserve(&o->result, 2 * r->room);
}

static ct_status oktopk_prepare(ct_sparse_allreduce_req *r)
{
    oktopk *o = NULL;
    ct_payload_form form = ct_sparse_allreduce_merged_form(r->form);

    CT_TRY(ct_sparse_allreduce_defaults(r));
    r->state = o = calloc(1, sizeof(*o));
    if (o == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a sparse exchange");
    CT_TRY(ct_regions_create(r->n, r->n_member, &o->regions));
    CT_TRY(allocate(r, o));
    o->most = most_kept(r, r->k_most);
    r->most = (o->most * r->n_member < r->n) ? o->most * r->n_member : r->n;
    r->most_lost = 2 * r->room + 2 * r->room * r->n_member;
    if (r->most_lost > 2 * r->n) r->most_lost = 2 * r->n;
    r->most_lost += o->most;
    o->stage = DONE;
    return ct_allgatherv_create(r->comm, r->member, r->n_member, r->me,
                                sizeof(ct_region_news) + ct_payload_bytes(form, r->n, o->most),
                                r->tag + 1, &o->gather);
}

static int64_t region_first(const oktopk *o, int j)
{
    return o->regions.bound[j];
}

static int64_t region_n(const oktopk *o, int j)
{
    return o->regions.bound[j + 1] - o->regions.bound[j];
}

static ct_status oktopk_start(ct_sparse_allreduce_req *r)
{
    oktopk *o = r->state;
    double at = ct_clock_s();

    CT_TRY(ct_sparse_allreduce_take_own(r));
    ct_sparse_allreduce_begin_list(r);
    o->most = most_kept(r, r->k);
    if (r->list == NULL) ct_sparse_allreduce_clear(r->sum, r->n, r->comm->n_thread);
    ct_sparse_allreduce_cut(r->own, o->regions.bound, r->n_member, o->part);
    memset(o->bin, 0, sizeof(o->bin));
    o->n_received = 0;
    o->payload_at = 0;
    o->sent = o->send_done = o->received = o->recv_done = 1;
    o->stage = SPLIT;
    ct_sparse_allreduce_add_region(r->own, o->part[r->me], o->part[r->me + 1],
                                   region_first(o, r->me), region_n(o, r->me),
                                   r->sum + region_first(o, r->me), o->touched, o->bin);
    o->n_received = o->part[r->me + 1] - o->part[r->me];
    r->decode_s += ct_clock_s() - at;
    return CT_OK;
}

/* ---- part 1 */

static ct_status post_split(ct_sparse_allreduce_req *r, bool *moved)
{
    oktopk *o = r->state;
    int p = r->n_member;

    while ((o->received < p) && (o->received < o->recv_done + WINDOW)) {
        int from = (r->me - o->received + p) % p, slot = o->received % WINDOW;
        int64_t n = region_n(o, r->me);

        CT_TRY(
            ct_sized_message_recv(r->comm, &o->in[slot], o->landing[slot], o->bound,
                                  ct_payload_bytes(r->form, n, ct_sparse_allreduce_share(r->k, p)),
                                  r->member[from], r->tag));
        o->received += 1;
        *moved = true;
    }
    while ((o->sent < p) && (o->sent < o->send_done + WINDOW)) {
        int to = (r->me + o->sent) % p;
        void *payload = o->payload + o->payload_at;
        size_t bytes = ct_payload_pack_part(r->form, r->own, o->part[to], o->part[to + 1],
                                            region_first(o, to), region_n(o, to), payload);

        CT_TRY(ct_sized_message_send(r->comm, &o->out[o->sent % WINDOW], payload, bytes,
                                     r->member[to], r->tag));
        o->payload_at += (bytes + 7) / 8 * 8;
        r->bytes_sent += (int64_t)bytes;
        o->sent += 1;
        *moved = true;
    }
    return CT_OK;
}

static ct_status take_split(ct_sparse_allreduce_req *r, bool *moved)
{
    oktopk *o = r->state;
    bool done = true;

    while (o->recv_done < o->received) {
        int slot = o->recv_done % WINDOW;
        double at = 0;

        CT_TRY(ct_sized_message_progress(r->comm, &o->in[slot], &done));
        if (!done) break;
        at = ct_clock_s();
        o->other.count = ct_sparse_allreduce_share(r->k, r->n_member);
        CT_TRY(
            ct_payload_unpack(o->landing[slot], o->in[slot].bytes, region_n(o, r->me), &o->other));
        ct_sparse_allreduce_add_region(&o->other, 0, o->other.count, 0, region_n(o, r->me),
                                       r->sum + region_first(o, r->me), o->touched, o->bin);
        o->n_received += o->other.count;
        o->recv_done += 1;
        *moved = true;
        r->decode_s += ct_clock_s() - at;
    }
    while (o->send_done < o->sent) {
        CT_TRY(ct_sized_message_progress(r->comm, &o->out[o->send_done % WINDOW], &done));
        if (!done) break;
        o->send_done += 1;
        *moved = true;
    }
    return CT_OK;
}

/* ---- parts 2 and 3 */

static ct_status start_gather(ct_sparse_allreduce_req *r)
{
    oktopk *o = r->state;
    ct_payload_form form = ct_sparse_allreduce_merged_form(r->form);
    int64_t first = region_first(o, r->me), n = region_n(o, r->me);
    char *to = ct_allgatherv_payload(o->gather, r->me);
    ct_region_news *news = (ct_region_news *)(void *)to;
    double at = ct_clock_s();
    ct_sparse_allreduce_filter f = { .threshold = o->regions.threshold,
                                     .most = o->most,
                                     .share = ct_sparse_allreduce_share(r->k, r->n_member),
                                     .lost = ct_residual_return_from(&r->residual, first) };
    size_t bytes = 0;

    if (r->n_member == 1) f = (ct_sparse_allreduce_filter){ .share = r->n, .lost = r->residual };
    CT_TRY(ct_sparse_allreduce_take_region(r->sum + first, n, o->touched, &f, &o->result));
    ct_payload_round(form, &o->result, &f.lost);
    *news = (ct_region_news){ .least = f.least,
                              .kept = (uint32_t)o->result.count,
                              .wanted = (uint32_t)f.wanted,
                              .received = (uint32_t)o->n_received };
    ct_region_cuts(o->bin, n, news);
    bytes = sizeof(*news) + ct_payload_pack(form, &o->result, to + sizeof(*news));
    o->stage = GATHER;
    r->decode_s += ct_clock_s() - at;
    return ct_allgatherv_start(o->gather, bytes);
}

static ct_status deliver(ct_sparse_allreduce_req *r)
{
    oktopk *o = r->state;
    double at = ct_clock_s();

    r->filled = 0;
    for (int j = 0; j < r->n_member; ++j) {
        const char *from = ct_allgatherv_payload(o->gather, j);
        size_t bytes = ct_allgatherv_bytes(o->gather, j);

        if (bytes < sizeof(ct_region_news))
            return CT_FAIL(CT_ERR_COMM, "rank %d tells of its region in %zu bytes", r->member[j],
                           bytes);
        o->news[j] = (const ct_region_news *)(const void *)from;
        bytes -= sizeof(ct_region_news);
        o->other.count = ct_sparse_allreduce_share(r->k, r->n_member);
        CT_TRY(ct_payload_unpack(from + sizeof(ct_region_news), bytes, region_n(o, j), &o->other));
        if (r->list != NULL)
            CT_TRY(ct_sparse_allreduce_append(&o->other, region_first(o, j), r->list, &r->filled));
        else
            ct_sparse_allreduce_put(&o->other, r->sum + region_first(o, j), &r->filled);
    }
    ct_sparse_allreduce_learn(&o->regions, o->news, r->k);
    o->stage = DONE;
    r->decode_s += ct_clock_s() - at;
    return CT_OK;
}

static void note_place(ct_sparse_allreduce_req *r, bool moved)
{
    const oktopk *o = r->state;
    int p = r->n_member, from = -1;

    if (o->recv_done < p)
        from = r->member[(r->me - o->recv_done + p) % p];
    else if (o->send_done < p)
        from = r->member[(r->me + o->send_done) % p];
    if (moved) (void)atomic_fetch_add_explicit(&r->where.n_moved, 1, memory_order_relaxed);
    atomic_store_explicit(&r->where.n_step, 2 * (p - 1), memory_order_relaxed);
    atomic_store_explicit(&r->where.step, o->recv_done - 1, memory_order_relaxed);
    atomic_store_explicit(&r->where.rank, from, memory_order_relaxed);
    atomic_store_explicit(&r->where.sending, o->sent - o->send_done, memory_order_relaxed);
}

static ct_status oktopk_progress(ct_sparse_allreduce_req *r)
{
    oktopk *o = r->state;
    bool moved = true, any = false;

    while ((o->stage == SPLIT) && moved) {
        moved = false;
        CT_TRY(post_split(r, &moved));
        CT_TRY(take_split(r, &moved));
        any = any || moved;
        if ((o->recv_done == r->n_member) && (o->send_done == r->n_member)) CT_TRY(start_gather(r));
        if (r->where.brief) break;
    }
    if (o->stage == SPLIT) {
        note_place(r, any);
        return CT_INPROGRESS;
    }
    if (o->stage == GATHER) {
        ct_status status = ct_allgatherv_progress(o->gather, &r->bytes_sent, &r->where);

        return (status == CT_OK) ? deliver(r) : status;
    }
    return CT_OK;
}

static int oktopk_pending(ct_sparse_allreduce_req *r, MPI_Request **out, int max)
{
    oktopk *o = r->state;
    int n = 0;

    if (o->stage == GATHER) return ct_allgatherv_pending(o->gather, out, max);
    if (o->stage == DONE) return 0;
    if ((o->recv_done < o->received) && (n < max))
        out[n++] = &o->in[o->recv_done % WINDOW].message.request;
    if ((o->send_done < o->sent) && (n < max))
        out[n++] = &o->out[o->send_done % WINDOW].message.request;
    return n;
}

static int64_t oktopk_bytes(const ct_comm *c, int64_t n, int64_t k, ct_payload_form form)
{
    return ct_sparse_allreduce_bytes(CT_SPARSE_ALLREDUCE_OKTOPK, c->size, n, k, form);
}

static double oktopk_cost_s(const ct_comm *c, int64_t n, int64_t k, ct_payload_form form)
{
    return ct_sparse_allreduce_cost_s(c, CT_SPARSE_ALLREDUCE_OKTOPK, n, k, form);
}

const ct_sparse_allreduce_ops ct_sparse_allreduce_oktopk = {
    .name = "oktopk",
    .lists = true,
    .prepare = oktopk_prepare,
    .start = oktopk_start,
    .progress = oktopk_progress,
    .pending = oktopk_pending,
    .release = oktopk_release,
    .cost_s = oktopk_cost_s,
    .bytes_theory = oktopk_bytes,
};
