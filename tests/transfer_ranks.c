#include "tests/transfer_ranks.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "framework/base/bf16.h"

enum { PATIENCE_S = 20 };

typedef struct ticket {
    ct_transfer t;
    int k; /* of the group, or of the box */
} ticket;

static size_t bytes_of(const ct_transfer *t, int64_t n)
{
    return (size_t)n * ct_dtype_size(t->dtype);
}

static int64_t from_count(const ct_transfer *t, int rank)
{
    return (t->kind == CT_TRANSFER_GATHER) ? t->piece[rank] * t->unit : t->n;
}

static int64_t to_count(const ct_transfer *t, int rank)
{
    return (t->kind == CT_TRANSFER_SCATTER) ? t->piece[rank] * t->unit : t->n;
}

static void *copy_of(const ct_transfer *t, int rank)
{
    size_t bytes = bytes_of(t, from_count(t, rank));
    void *kept = malloc(bytes + 1);

    memcpy(kept, t->from, bytes);
    return kept;
}

static transfer_box *box_of(transfer_rank *r, const ct_transfer *t)
{
    return (t->kind == CT_TRANSFER_SEND) ? &r->all->box[r->rank][t->peer][t->tag]
                                         : &r->all->box[t->peer][r->rank][t->tag];
}

static bool is_of_group(const ct_transfer *t)
{
    return (t->kind != CT_TRANSFER_SEND) && (t->kind != CT_TRANSFER_RECEIVE);
}

static ct_status begin(void *ctx, const ct_transfer *t, void **ticket_p)
{
    transfer_rank *r = ctx;
    ticket *mine = calloc(1, sizeof(*mine));
    transfer_slot *slot = NULL;
    ct_status status = CT_OK;

    mine->t = *t;
    pthread_mutex_lock(&r->all->lock);
    if (is_of_group(t)) {
        mine->k = r->all->n_begun[r->rank];
        if (mine->k < TRANSFER_MOST) slot = &r->all->slot[mine->k][r->rank];
    } else if (t->kind == CT_TRANSFER_SEND) {
        mine->k = box_of(r, t)->n_sent;
        if (mine->k < TRANSFER_MOST) slot = &box_of(r, t)->sent[mine->k];
    } else {
        mine->k = box_of(r, t)->n_posted++;
    }
    if (slot != NULL) *slot = (transfer_slot){ copy_of(t, r->rank), *t };
    if ((slot != NULL) && is_of_group(t)) r->all->n_begun[r->rank]++;
    if ((slot != NULL) && !is_of_group(t)) box_of(r, t)->n_sent++;
    if ((slot == NULL) && (t->kind != CT_TRANSFER_RECEIVE)) status = CT_ERR_ARG;
    pthread_cond_broadcast(&r->all->turn);
    pthread_mutex_unlock(&r->all->lock);
    if ((t->to != NULL) && (status == CT_OK))
        memset(t->to, 0xff, bytes_of(t, to_count(t, r->rank)));
    if (++r->n_begun - r->n_ended > r->most) r->most = r->n_begun - r->n_ended;
    *ticket_p = mine;
    return status;
}

static bool is_there(transfer_rank *r, const ticket *mine)
{
    if (mine->t.kind == CT_TRANSFER_SEND) return box_of(r, &mine->t)->n_posted > mine->k;
    if (mine->t.kind == CT_TRANSFER_RECEIVE) return box_of(r, &mine->t)->n_sent > mine->k;
    for (int k = 0; k < r->all->n; k++) {
        if (r->all->n_begun[k] <= mine->k) return false;
    }
    return true;
}

/* Elements [at, at + n) of the sum, to t->to. */
static void add_up(const transfer_slot *slot, int n_rank, const ct_transfer *t, int64_t at,
                   int64_t n)
{
    bool bf16 = (t->dtype == CT_BF16);

    for (int64_t i = 0; i < n; i++) {
        float sum = 0;

        for (int k = 0; k < n_rank; k++) sum += ct_num_get(slot[k].kept, bf16, at + i);
        ct_num_put(t->to, bf16, i, sum);
    }
}

/* All ranks meant the same. */
static bool agree(const transfer_slot *slot, int n_rank)
{
    for (int k = 1; k < n_rank; k++) {
        if ((slot[k].t.kind != slot[0].t.kind) || (slot[k].t.n != slot[0].t.n) ||
            (slot[k].t.dtype != slot[0].t.dtype) || (slot[k].t.unit != slot[0].t.unit))
            return false;
    }
    return true;
}

static ct_status take(transfer_rank *r, const ticket *mine)
{
    const ct_transfer *t = &mine->t;
    const transfer_slot *slot = is_of_group(t) ? r->all->slot[mine->k] : NULL;
    char *to = t->to;
    int64_t at = 0;

    if (t->kind == CT_TRANSFER_SEND) return CT_OK;
    if (t->kind == CT_TRANSFER_RECEIVE) {
        slot = &box_of(r, t)->sent[mine->k];
        if ((slot->t.n != t->n) || (slot->t.dtype != t->dtype)) return CT_ERR_COMM;
        memcpy(to, slot->kept, bytes_of(t, t->n));
        return CT_OK;
    }
    if (!agree(slot, r->all->n)) return CT_ERR_COMM;
    if (t->kind == CT_TRANSFER_SUM) add_up(slot, r->all->n, t, 0, t->n);
    for (int k = 0; (t->kind == CT_TRANSFER_GATHER) && (k < r->all->n); k++) {
        size_t bytes = bytes_of(t, t->piece[k] * t->unit);

        memcpy(to, slot[k].kept, bytes);
        to += bytes;
    }
    for (int k = 0; (t->kind == CT_TRANSFER_SCATTER) && (k < r->rank); k++)
        at += t->piece[k] * t->unit;
    if (t->kind == CT_TRANSFER_SCATTER) add_up(slot, r->all->n, t, at, to_count(t, r->rank));
    return CT_OK;
}

/* What is under way is nobody's to change. */
static bool is_whole(const transfer_rank *r, const ticket *mine)
{
    const ct_transfer *t = &mine->t;

    if (!is_of_group(t) || (t->from == t->to)) return true;
    return memcmp(r->all->slot[mine->k][r->rank].kept, t->from,
                  bytes_of(t, from_count(t, r->rank))) == 0;
}

static ct_status wait(void *ctx, void *what)
{
    transfer_rank *r = ctx;
    ticket *mine = what;
    struct timespec until;
    ct_status status = CT_OK;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    pthread_mutex_lock(&r->all->lock);
    while (!is_there(r, mine) && (status == CT_OK)) {
        if (pthread_cond_timedwait(&r->all->turn, &r->all->lock, &until) != 0) status = CT_ERR_COMM;
    }
    if ((status == CT_OK) && !is_whole(r, mine)) status = CT_ERR_COMM;
    if (status == CT_OK) status = take(r, mine);
    pthread_mutex_unlock(&r->all->lock);
    r->n_ended++;
    free(mine);
    return status;
}

static ct_status poll(void *ctx)
{
    ((transfer_rank *)ctx)->n_polls++;
    return CT_OK;
}

static void drop(void *ctx, void *what)
{
    ((transfer_rank *)ctx)->n_dropped++;
    ((transfer_rank *)ctx)->n_ended++;
    free(what);
}

const ct_transfer_ops transfer_rank_ops = { begin, wait, poll, drop };

void transfer_ranks_open(transfer_ranks *all, int n, transfer_rank *rank)
{
    memset(all, 0, sizeof(*all));
    all->n = n;
    pthread_mutex_init(&all->lock, NULL);
    pthread_cond_init(&all->turn, NULL);
    for (int r = 0; r < n; r++) rank[r] = (transfer_rank){ .all = all, .rank = r };
}

void transfer_ranks_close(transfer_ranks *all)
{
    for (int k = 0; k < TRANSFER_MOST; k++) {
        for (int r = 0; r < TRANSFER_RANKS; r++) free(all->slot[k][r].kept);
    }
    for (int i = 0; i < TRANSFER_RANKS * TRANSFER_RANKS * TRANSFER_TAGS; i++) {
        transfer_box *box = &all->box[i / (TRANSFER_RANKS * TRANSFER_TAGS)]
                                     [i / TRANSFER_TAGS % TRANSFER_RANKS][i % TRANSFER_TAGS];

        for (int k = 0; k < box->n_sent; k++) free(box->sent[k].kept);
    }
    pthread_cond_destroy(&all->turn);
    pthread_mutex_destroy(&all->lock);
}

void transfer_ranks_run(const transfer_ranks *all, void *(*run)(void *), void *ctx, size_t size)
{
    pthread_t thread[TRANSFER_RANKS];

    for (int r = 0; r < all->n; r++)
        pthread_create(&thread[r], NULL, run, (char *)ctx + (size_t)r * size);
    for (int r = 0; r < all->n; r++) pthread_join(thread[r], NULL);
}
