#include "serve/ranks/tensor_group.h"

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/clock.h"
#include "framework/base/text.h"
#include "framework/base/thread.h"
#include "serve/ranks/work_bytes.h"

/* ---- a message: the calls since the last one, each a head and its bytes */

typedef enum {
    CALL_OPEN,  /* bytes: the ids                                */
    CALL_CLOSE, /* none                                          */
    CALL_GROW,  /* a `piece` each, then the ids of all           */
    CALL_WORK,  /* as ct_work_bytes_ask() has them               */
    CALL_READ,  /* none, as all that follow: weights are opened, */
    CALL_TAKE,  /* taken,                                        */
    CALL_DROP,  /* or not                                        */
    CALL_END
} call;

typedef struct head {
    int64_t call;
    int64_t slot; /* of OPEN: -1: there was no room; of CLOSE */
    int64_t n;    /* ids of OPEN, pieces of GROW              */
    int64_t capacity, kept;
    uint64_t size; /* of the bytes */
} head;

typedef struct piece {
    int64_t slot, n, wants;
} piece;

/* The next token of a few texts has room in it. */
enum { FIRST = 2048 };

typedef struct first {
    uint64_t size; /* of all */
    char bytes[FIRST];
} first;

/* A text's next token is asked for so soon behind the last one that a nap would cost it more. */
#define NO_NAP_S 200e-6

static ct_status test(ct_comm *c, MPI_Request *request, int *done_p)
{
    int rc;

    ct_comm_lock(c);
    rc = MPI_Test(request, done_p, MPI_STATUS_IGNORE);
    ct_comm_unlock(c);
    CT_TRY_MPI(rc);
    return CT_OK;
}

/* Sleeps between looks. */
static ct_status share_part(ct_comm *c, void *data, size_t n)
{
    double start = ct_clock_s(), quiet;
    MPI_Request request;
    int done = 0, rc;

    ct_comm_lock(c);
    rc = MPI_Ibcast(data, (int)n, MPI_BYTE, 0, c->mpi, &request);
    ct_comm_unlock(c);
    CT_TRY_MPI(rc);
    for (;;) {
        CT_TRY(test(c, &request, &done));
        if (done) return CT_OK;
        quiet = ct_clock_s() - start;
        if (quiet < NO_NAP_S)
            (void)sched_yield();
        else
            ct_nap(ct_nap_after(quiet));
    }
}

static ct_status share_bytes(ct_comm *c, char *data, size_t size)
{
    static const size_t part = (size_t)1 << 30; /* counts of MPI are int */

    for (size_t at = 0, n; at < size; at += n) {
        n = (size - at < part) ? size - at : part;
        CT_TRY(share_part(c, data + at, n));
    }
    return CT_OK;
}

static ct_status send_calls(ct_comm *c, const ct_text *calls)
{
    first f = { .size = calls->length };
    size_t n = (calls->length < FIRST) ? calls->length : FIRST;

    memcpy(f.bytes, calls->text, n);
    CT_TRY(share_bytes(c, (char *)&f, sizeof(f)));
    return share_bytes(c, calls->text + n, calls->length - n);
}

/* *calls: malloc()ed, in case of errors too. */
static ct_status receive_calls(ct_comm *c, char **calls, size_t *size_p)
{
    first f = { .size = 0 };
    size_t n;

    CT_TRY(share_bytes(c, (char *)&f, sizeof(f)));
    *size_p = (size_t)f.size;
    n = (*size_p < FIRST) ? *size_p : FIRST;
    *calls = malloc(*size_p + 1);
    if (*calls == NULL)
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a message of %zu bytes", *size_p);
    memcpy(*calls, f.bytes, n);
    return share_bytes(c, *calls + n, *size_p - n);
}

/* ---- rank 0 */

typedef struct slot {
    int64_t number;
    void *own; /* the model's sequence */
    struct slot *made, *unused;
} slot;

struct ct_group_leader {
    ct_group_leader_options o;
    ct_served_model model; /* ctx: this */
    pthread_mutex_t talk;  /* who has it sends a message, and then does what it says */
    pthread_mutex_t lock;  /* of what follows                                        */
    bool made_talk, made_lock;
    ct_text calls; /* that wait */
    int64_t n_slot;
    slot *made, *unused; /* lists; numbers are used again, so tables of the others stay small */
};

/* The others could not do what this rank does: they, or it, end the job. */
static ct_status must(ct_group_leader *l, ct_status status)
{
    if (status != CT_OK) l->o.fail(l->o.ctx, status);
    return status;
}

/* With the lock held. */
static void add_call(ct_group_leader *l, const head *h, const void *data)
{
    ct_text_add_bytes(&l->calls, (const char *)h, sizeof(*h));
    if (h->size > 0) ct_text_add_bytes(&l->calls, data, (size_t)h->size);
}

/* Sends what waits, and this call behind it; who talks. */
static ct_status hand_on(ct_group_leader *l, const head *h, const void *data)
{
    ct_status status;
    ct_text calls;

    (void)pthread_mutex_lock(&l->lock);
    add_call(l, h, data);
    calls = l->calls;
    l->calls = (ct_text){ 0 };
    (void)pthread_mutex_unlock(&l->lock);
    status = calls.failed ? CT_FAIL(CT_ERR_NOMEM, "no memory to hand calls on")
                          : send_calls(l->o.c, &calls);
    ct_text_destroy(&calls);
    return must(l, status);
}

static ct_status work(ct_group_leader *l, ct_work_kind kind, ct_work *const *each, int n)
{
    const ct_served_model *own = l->o.own;
    ct_text body = { 0 };
    ct_status status;

    ct_work_bytes_ask(own, kind, each, n, &body);
    if (body.failed) {
        ct_text_destroy(&body);
        return CT_FAIL(CT_ERR_NOMEM, "no memory to hand on %d requests", n);
    }
    (void)pthread_mutex_lock(&l->talk);
    status = hand_on(l, &(head){ .call = CALL_WORK, .size = body.length }, body.text);
    if (status == CT_OK)
        status = must(l, ((kind == CT_WORK_EMBED) ? own->embed : own->infer)(own->ctx, each, n));
    (void)pthread_mutex_unlock(&l->talk);
    ct_text_destroy(&body);
    return status;
}

static ct_status encode(void *ctx, const char *text, size_t n, ct_ids *ids)
{
    const ct_served_model *own = ((const ct_group_leader *)ctx)->o.own;

    return own->encode(own->ctx, text, n, ids);
}

static ct_status embed(void *ctx, ct_work *const *each, int n)
{
    return work(ctx, CT_WORK_EMBED, each, n);
}

static ct_status infer(void *ctx, ct_work *const *each, int n)
{
    return work(ctx, CT_WORK_INFER, each, n);
}

/* With the lock held. NULL: no memory. */
static slot *take_slot(ct_group_leader *l)
{
    slot *s = l->unused;

    if (s != NULL) {
        l->unused = s->unused;
        return s;
    }
    s = calloc(1, sizeof(*s));
    if (s == NULL) return NULL;
    s->number = l->n_slot++;
    s->made = l->made;
    l->made = s;
    return s;
}

static void drop_slot(ct_group_leader *l, slot *s)
{
    s->unused = l->unused;
    l->unused = s;
}

static ct_status open_slot(ct_group_leader *l, const int32_t *id, int64_t n, int64_t capacity,
                           slot **s_p, int64_t *kept_p)
{
    const ct_served_model *own = l->o.own;
    slot *s = take_slot(l);
    ct_status status;

    if (s == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a sequence");
    s->own = NULL;
    *kept_p = 0;
    status = own->open(own->ctx, id, n, capacity, &s->own, kept_p);
    if (status == CT_OK)
        add_call(l,
                 &(head){ .call = CALL_OPEN,
                          .slot = (s->own != NULL) ? s->number : -1,
                          .n = n,
                          .capacity = capacity,
                          .kept = *kept_p,
                          .size = (uint64_t)n * sizeof(*id) },
                 id);
    *s_p = (s->own != NULL) ? s : NULL;
    if (*s_p == NULL) drop_slot(l, s);
    return status;
}

static ct_status open_sequence(void *ctx, const int32_t *id, int64_t n, int64_t capacity,
                               void **sequence_p, int64_t *kept_p)
{
    ct_group_leader *l = ctx;
    slot *s = NULL;
    ct_status status;

    (void)pthread_mutex_lock(&l->lock);
    status = open_slot(l, id, n, capacity, &s, kept_p);
    (void)pthread_mutex_unlock(&l->lock);
    *sequence_p = s;
    return status;
}

static void close_sequence(void *ctx, void *sequence)
{
    ct_group_leader *l = ctx;
    slot *s = sequence;

    (void)pthread_mutex_lock(&l->lock);
    l->o.own->close(l->o.own->ctx, s->own);
    add_call(l, &(head){ .call = CALL_CLOSE, .slot = s->number }, NULL);
    drop_slot(l, s);
    (void)pthread_mutex_unlock(&l->lock);
}

/* Changes nothing, so the others need not know. */
static int64_t peek(void *ctx, const int32_t *id, int64_t n)
{
    const ct_served_model *own = ((const ct_group_leader *)ctx)->o.own;

    return own->peek(own->ctx, id, n);
}

static void add_pieces(const ct_work_piece *all, int n, ct_text *to)
{
    for (int i = 0; i < n; i++) {
        piece p = { ((const slot *)all[i].sequence)->number, all[i].n, all[i].wants };

        ct_text_add_bytes(to, (const char *)&p, sizeof(p));
    }
    for (int i = 0; i < n; i++)
        ct_text_add_bytes(to, (const char *)all[i].id, (size_t)all[i].n * sizeof(*all[i].id));
}

static ct_status grow(void *ctx, ct_work_piece *all, int n)
{
    ct_group_leader *l = ctx;
    const ct_served_model *own = l->o.own;
    ct_text body = { 0 };
    ct_status status;

    add_pieces(all, n, &body);
    if (body.failed) {
        ct_text_destroy(&body);
        return CT_FAIL(CT_ERR_NOMEM, "no memory to hand on %d texts", n);
    }
    for (int i = 0; i < n; i++) all[i].sequence = ((slot *)all[i].sequence)->own;
    (void)pthread_mutex_lock(&l->talk);
    status = hand_on(l, &(head){ .call = CALL_GROW, .n = n, .size = body.length }, body.text);
    if (status == CT_OK) status = must(l, own->grow(own->ctx, all, n));
    (void)pthread_mutex_unlock(&l->talk);
    ct_text_destroy(&body);
    return status;
}

/* What meets the other ranks at length, so no other thread calls MPI meanwhile. */
static ct_status read_weights(void *ctx, uint64_t *checksum_p)
{
    ct_group_leader *l = ctx;
    const ct_replica_weights *w = &l->o.weights;
    ct_status status;

    (void)pthread_mutex_lock(&l->talk);
    status = hand_on(l, &(head){ .call = CALL_READ }, NULL);
    ct_comm_lock(l->o.c);
    if (status == CT_OK) status = w->open(w->ctx, checksum_p);
    ct_comm_unlock(l->o.c);
    (void)pthread_mutex_unlock(&l->talk);
    return status;
}

static void take_weights(void *ctx, bool use)
{
    ct_group_leader *l = ctx;
    const ct_replica_weights *w = &l->o.weights;
    ct_status status;

    (void)pthread_mutex_lock(&l->talk);
    status = hand_on(l, &(head){ .call = use ? CALL_TAKE : CALL_DROP }, NULL);
    ct_comm_lock(l->o.c);
    if (status == CT_OK) w->take(w->ctx, use);
    ct_comm_unlock(l->o.c);
    (void)pthread_mutex_unlock(&l->talk);
}

static void describe(ct_group_leader *l)
{
    l->model = *l->o.own;
    l->model.ctx = l;
    if (l->o.own->encode != NULL) l->model.encode = encode;
    l->model.embed = embed;
    l->model.infer = infer;
    if (l->o.own->open == NULL) return;
    l->model.open = open_sequence;
    l->model.close = close_sequence;
    l->model.grow = grow;
    l->model.peek = peek;
    l->model.place = NULL; /* this rank gives its own pages */
}

ct_status ct_group_leader_create(const ct_group_leader_options *o, ct_group_leader **l_p)
{
    ct_group_leader *l = calloc(1, sizeof(*l));

    if (l == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a group of ranks");
    l->o = *o;
    l->made_talk = (pthread_mutex_init(&l->talk, NULL) == 0);
    l->made_lock = (pthread_mutex_init(&l->lock, NULL) == 0);
    if (!l->made_talk || !l->made_lock) {
        ct_group_leader_destroy(l);
        return CT_FAIL(CT_ERR_NOMEM, "no lock for a group of ranks");
    }
    describe(l);
    (void)pthread_mutex_lock(&l->talk);
    *l_p = l;
    return CT_OK;
}

void ct_group_leader_destroy(ct_group_leader *l)
{
    if (l == NULL) return;
    for (slot *s = l->made, *next; s != NULL; s = next) {
        next = s->made;
        free(s);
    }
    ct_text_destroy(&l->calls);
    if (l->made_talk) (void)pthread_mutex_destroy(&l->talk);
    if (l->made_lock) (void)pthread_mutex_destroy(&l->lock);
    free(l);
}

const ct_served_model *ct_group_leader_model(const ct_group_leader *l)
{
    return &l->model;
}

void ct_group_leader_begin(ct_group_leader *l)
{
    (void)pthread_mutex_unlock(&l->talk);
}

ct_replica_weights ct_group_leader_weights(ct_group_leader *l)
{
    return (ct_replica_weights){ l, read_weights, take_weights };
}

ct_status ct_group_leader_end(ct_group_leader *l)
{
    ct_status status;

    (void)pthread_mutex_lock(&l->talk);
    status = hand_on(l, &(head){ .call = CALL_END }, NULL);
    (void)pthread_mutex_unlock(&l->talk);
    return status;
}

/* ---- the other ranks */

typedef struct follower {
    const ct_served_model *own;
    const ct_replica_weights *weights;
    void **sequence; /* by the leader's numbers */
    int64_t n_sequence;
    ct_work_piece *piece;
    int64_t most_piece;
    bool ends;
} follower;

/* A call of a message: its head, and its bytes. */
typedef struct order {
    head head;
    const char *data;
} order;

static ct_status not_alike(const char *what)
{
    return CT_FAIL(CT_ERR_COMM, "this rank is no longer like rank 0 of its group: %s", what);
}

/* At least n of them, the new ones zeroed. */
static ct_status make_room(void **all, int64_t *have, int64_t n, size_t each)
{
    char *more;

    if (n <= *have) return CT_OK;
    more = realloc(*all, (size_t)n * each);
    if (more == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %" PRId64 " sequences", n);
    memset(more + (size_t)*have * each, 0, (size_t)(n - *have) * each);
    *all = more;
    *have = n;
    return CT_OK;
}

/* By the leader's number, where the leader has one that is like it. */
static ct_status keep_sequence(follower *f, const head *h, void *sequence, int64_t kept)
{
    void *table = f->sequence;

    if (h->slot < 0) return not_alike("room for sequences");
    if (kept != h->kept) return not_alike("tokens that are kept");
    CT_TRY(make_room(&table, &f->n_sequence, h->slot + 1, sizeof(*f->sequence)));
    f->sequence = table;
    f->sequence[h->slot] = sequence;
    return CT_OK;
}

static ct_status follow_open(follower *f, const order *o)
{
    const head *h = &o->head;
    int64_t kept = 0;
    void *sequence = NULL;
    ct_status status;

    CT_TRY(f->own->open(f->own->ctx, (const int32_t *)(const void *)o->data, h->n, h->capacity,
                        &sequence, &kept));
    if (sequence == NULL) return (h->slot < 0) ? CT_OK : not_alike("room for sequences");
    status = keep_sequence(f, h, sequence, kept);
    if (status != CT_OK) f->own->close(f->own->ctx, sequence);
    return status;
}

static ct_status sequence_of(const follower *f, int64_t number, void **sequence_p)
{
    if ((number < 0) || (number >= f->n_sequence) || (f->sequence[number] == NULL))
        return not_alike("which sequences there are");
    *sequence_p = f->sequence[number];
    return CT_OK;
}

static ct_status follow_close(follower *f, int64_t number)
{
    void *sequence = NULL;

    CT_TRY(sequence_of(f, number, &sequence));
    f->own->close(f->own->ctx, sequence);
    f->sequence[number] = NULL;
    return CT_OK;
}

static ct_status follow_grow(follower *f, const order *o)
{
    int64_t n = o->head.n;
    const int32_t *id = (const int32_t *)(const void *)(o->data + (size_t)n * sizeof(piece));
    void *table = f->piece;

    CT_TRY(make_room(&table, &f->most_piece, n, sizeof(*f->piece)));
    f->piece = table;
    for (int64_t i = 0; i < n; i++) {
        piece p;

        memcpy(&p, o->data + (size_t)i * sizeof(p), sizeof(p));
        f->piece[i] = (ct_work_piece){ .id = id, .n = p.n, .wants = (p.wants != 0) };
        CT_TRY(sequence_of(f, p.slot, &f->piece[i].sequence));
        id += p.n;
    }
    return f->own->grow(f->own->ctx, f->piece, (int)n);
}

static ct_status follow_work(const follower *f, const order *o)
{
    const ct_served_model *m = f->own;
    ct_works w;
    ct_status status = ct_works_read(m, o->data, (size_t)o->head.size, &w);

    if ((status == CT_OK) && (w.kind == CT_WORK_EMBED)) status = m->embed(m->ctx, w.each, w.n);
    if ((status == CT_OK) && (w.kind == CT_WORK_INFER)) status = m->infer(m->ctx, w.each, w.n);
    ct_works_free(&w);
    return status;
}

static ct_status follow_call(follower *f, const order *o)
{
    const ct_replica_weights *w = f->weights;
    uint64_t sum;

    switch ((call)o->head.call) {
    case CALL_OPEN:
        return follow_open(f, o);
    case CALL_CLOSE:
        return follow_close(f, o->head.slot);
    case CALL_GROW:
        return follow_grow(f, o);
    case CALL_WORK:
        return follow_work(f, o);
    case CALL_READ:
        (void)w->open(w->ctx, &sum); /* where it fails all ranks know it, and drop it */
        return CT_OK;
    case CALL_TAKE:
        w->take(w->ctx, true);
        return CT_OK;
    case CALL_DROP:
        w->take(w->ctx, false);
        return CT_OK;
    case CALL_END:
        f->ends = true;
        return CT_OK;
    }
    return not_alike("what it is told");
}

static ct_status follow_calls(follower *f, const char *data, size_t size)
{
    while (size > 0) {
        order o;

        if (size < sizeof(o.head)) return not_alike("a message that ends too soon");
        memcpy(&o.head, data, sizeof(o.head));
        o.data = data + sizeof(o.head);
        size -= sizeof(o.head);
        if (o.head.size > size) return not_alike("a message that ends too soon");
        CT_TRY(follow_call(f, &o));
        data = o.data + o.head.size;
        size -= (size_t)o.head.size;
    }
    return CT_OK;
}

ct_status ct_group_follow(ct_comm *c, const ct_served_model *own, const ct_replica_weights *w)
{
    follower f = { .own = own, .weights = w };
    ct_status status = CT_OK;

    while ((status == CT_OK) && !f.ends) {
        char *calls = NULL;
        size_t size = 0;

        status = receive_calls(c, &calls, &size);
        if (status == CT_OK) status = follow_calls(&f, calls, size);
        free(calls);
    }
    for (int64_t i = 0; i < f.n_sequence; i++)
        if (f.sequence[i] != NULL) own->close(own->ctx, f.sequence[i]);
    free(f.sequence);
    free(f.piece);
    return status;
}
