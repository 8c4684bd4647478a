#include "serve/ranks/tensor_group.h"

#include <inttypes.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/clock.h"
#include "framework/base/text.h"
#include "framework/base/thread.h"
#include "serve/ranks/bytes.h"
#include "serve/ranks/work_bytes.h"

/* ---- a message: the calls since the last one, as bytes.h has them */

typedef enum {
    CALL_OPEN,
    CALL_PLACE,
    CALL_CLOSE,
    CALL_GROW,
    CALL_WORK,
    CALL_MAKE, /* another net, which is loaded then, */
    CALL_TAKE, /* taken,                             */
    CALL_DROP, /* or not                             */
    CALL_END
} call;

enum { NO_ROOM = -1 }; /* in place of a number: a sequence that nobody has */

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

/* Sends what waits, and this call behind it, with what it says; who talks. */
static ct_status hand_on(ct_group_leader *l, call what, const ct_text *body)
{
    ct_status status;
    ct_text calls;

    (void)pthread_mutex_lock(&l->lock);
    ct_bytes_add_count(&l->calls, what);
    if (body != NULL) ct_text_add_bytes(&l->calls, body->text, body->length);
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
    ct_text asked = { 0 }, body = { 0 };
    ct_status status;

    ct_work_bytes_ask(own, kind, each, n, &asked);
    ct_bytes_add_block(&body, &asked);
    ct_text_destroy(&asked);
    if (body.failed) {
        ct_text_destroy(&body);
        return CT_FAIL(CT_ERR_NOMEM, "no memory to hand on %d requests", n);
    }
    (void)pthread_mutex_lock(&l->talk);
    status = hand_on(l, CALL_WORK, &body);
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
    if (status == CT_OK) {
        ct_bytes_add_count(&l->calls, CALL_OPEN);
        ct_bytes_add_count(&l->calls, (s->own != NULL) ? s->number : NO_ROOM);
        ct_bytes_add_count(&l->calls, capacity);
        ct_bytes_add_count(&l->calls, *kept_p);
        ct_bytes_add_ids(&l->calls, id, n);
    }
    *s_p = (s->own != NULL) ? s : NULL;
    if (*s_p == NULL) drop_slot(l, s);
    return status;
}

/* One that cannot be placed here is none, and the others hear nothing of it. */
static ct_status place_slot(ct_group_leader *l, const ct_sequence_place *at, slot **s_p)
{
    const ct_served_model *own = l->o.own;
    slot *s = take_slot(l);
    ct_status status;

    if (s == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a sequence");
    s->own = NULL;
    status = own->place(own->ctx, at, &s->own);
    if (status != CT_OK) {
        drop_slot(l, s);
        return status;
    }
    ct_bytes_add_count(&l->calls, CALL_PLACE);
    ct_bytes_add_count(&l->calls, s->number);
    ct_bytes_add_count(&l->calls, at->capacity);
    ct_bytes_add_ids(&l->calls, at->page, at->n_page);
    ct_bytes_add_ids(&l->calls, at->id, at->kept);
    *s_p = s;
    return CT_OK;
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

static ct_status place_sequence(void *ctx, const ct_sequence_place *at, void **sequence_p)
{
    ct_group_leader *l = ctx;
    slot *s = NULL;
    ct_status status;

    (void)pthread_mutex_lock(&l->lock);
    status = place_slot(l, at, &s);
    (void)pthread_mutex_unlock(&l->lock);
    if (status == CT_OK) *sequence_p = s;
    return status;
}

static void close_sequence(void *ctx, void *sequence)
{
    ct_group_leader *l = ctx;
    slot *s = sequence;

    (void)pthread_mutex_lock(&l->lock);
    l->o.own->close(l->o.own->ctx, s->own);
    ct_bytes_add_count(&l->calls, CALL_CLOSE);
    ct_bytes_add_count(&l->calls, s->number);
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
    ct_bytes_add_count(to, n);
    for (int i = 0; i < n; i++) {
        ct_bytes_add_count(to, ((const slot *)all[i].sequence)->number);
        ct_bytes_add_count(to, all[i].wants);
        ct_bytes_add_ids(to, all[i].id, all[i].n);
    }
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
    status = hand_on(l, CALL_GROW, &body);
    if (status == CT_OK) status = must(l, own->grow(own->ctx, all, n));
    (void)pthread_mutex_unlock(&l->talk);
    ct_text_destroy(&body);
    return status;
}

/* What meets the other ranks at once, so no other thread calls MPI meanwhile. */
static ct_status make_weights(void *ctx)
{
    ct_group_leader *l = ctx;
    const ct_replica_weights *w = &l->o.weights;
    ct_status status;

    (void)pthread_mutex_lock(&l->talk);
    status = hand_on(l, CALL_MAKE, NULL);
    ct_comm_lock(l->o.c);
    if (status == CT_OK) status = w->make(w->ctx);
    ct_comm_unlock(l->o.c);
    (void)pthread_mutex_unlock(&l->talk);
    return status;
}

/* The others do it by themselves. */
static ct_status load_weights(void *ctx, uint64_t *checksum_p)
{
    const ct_replica_weights *w = &((const ct_group_leader *)ctx)->o.weights;

    return w->load(w->ctx, checksum_p);
}

static void take_weights(void *ctx, bool use)
{
    ct_group_leader *l = ctx;
    const ct_replica_weights *w = &l->o.weights;
    ct_status status;

    (void)pthread_mutex_lock(&l->talk);
    status = hand_on(l, use ? CALL_TAKE : CALL_DROP, NULL);
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
    l->model.place = place_sequence;
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
    return (ct_replica_weights){ l, make_weights, load_weights, take_weights };
}

ct_status ct_group_leader_end(ct_group_leader *l)
{
    ct_status status;

    (void)pthread_mutex_lock(&l->talk);
    status = hand_on(l, CALL_END, NULL);
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
    /* loads weights beside passes */
    pthread_t loader;
    bool loads;
    int n_omp; /* threads that it may take */
    bool ends;
} follower;

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

/* By the leader's number; closed where it cannot be kept. */
static ct_status keep_sequence(follower *f, int64_t number, void *sequence)
{
    void *table = f->sequence;
    ct_status status = make_room(&table, &f->n_sequence, number + 1, sizeof(*f->sequence));

    f->sequence = table;
    if (status == CT_OK)
        f->sequence[number] = sequence;
    else
        f->own->close(f->own->ctx, sequence);
    return status;
}

/* Whether the leader has one that is like it. */
static ct_status compare_open(const void *sequence, int64_t number, int64_t own_kept, int64_t kept)
{
    if ((sequence != NULL) != (number >= 0)) return not_alike("room for sequences");
    return (own_kept == kept) ? CT_OK : not_alike("tokens that are kept");
}

static ct_status follow_open(follower *f, ct_bytes *b)
{
    int64_t number = NO_ROOM, capacity = 0, kept = 0, own_kept = 0, n;
    void *sequence = NULL;
    const int32_t *id;
    ct_status status;

    ct_bytes_take(b, &number, sizeof(number));
    ct_bytes_take(b, &capacity, sizeof(capacity));
    ct_bytes_take(b, &kept, sizeof(kept));
    n = ct_bytes_take_count(b, sizeof(*id));
    id = ct_bytes_take_list(b, n, sizeof(*id));
    if (b->bad) return ct_bytes_check_end(b);
    CT_TRY(f->own->open(f->own->ctx, id, n, capacity, &sequence, &own_kept));
    status = compare_open(sequence, number, own_kept, kept);
    if (sequence == NULL) return status;
    if (status == CT_OK) return keep_sequence(f, number, sequence);
    f->own->close(f->own->ctx, sequence);
    return status;
}

static ct_status follow_place(follower *f, ct_bytes *b)
{
    int64_t number = NO_ROOM;
    ct_sequence_place at = { .n_page = 0 };
    void *sequence = NULL;

    ct_bytes_take(b, &number, sizeof(number));
    ct_bytes_take(b, &at.capacity, sizeof(at.capacity));
    at.n_page = ct_bytes_take_count(b, sizeof(*at.page));
    at.page = ct_bytes_take_list(b, at.n_page, sizeof(*at.page));
    at.kept = ct_bytes_take_count(b, sizeof(*at.id));
    at.id = ct_bytes_take_list(b, at.kept, sizeof(*at.id));
    if (number < 0) b->bad = true;
    if (b->bad) return ct_bytes_check_end(b);
    CT_TRY(f->own->place(f->own->ctx, &at, &sequence));
    return keep_sequence(f, number, sequence);
}

static ct_status sequence_of(const follower *f, int64_t number, void **sequence_p)
{
    if ((number < 0) || (number >= f->n_sequence) || (f->sequence[number] == NULL))
        return not_alike("which sequences there are");
    *sequence_p = f->sequence[number];
    return CT_OK;
}

static ct_status follow_close(follower *f, ct_bytes *b)
{
    int64_t number = NO_ROOM;
    void *sequence = NULL;

    ct_bytes_take(b, &number, sizeof(number));
    CT_TRY(sequence_of(f, number, &sequence));
    f->own->close(f->own->ctx, sequence);
    f->sequence[number] = NULL;
    return CT_OK;
}

static ct_status follow_grow(follower *f, ct_bytes *b)
{
    int64_t n = ct_bytes_take_count(b, 3 * sizeof(int64_t));
    void *table = f->piece;

    CT_TRY(make_room(&table, &f->most_piece, n, sizeof(*f->piece)));
    f->piece = table;
    for (int64_t i = 0; i < n; i++) {
        ct_work_piece *p = &f->piece[i];
        int64_t number = NO_ROOM, wants = 0;

        ct_bytes_take(b, &number, sizeof(number));
        ct_bytes_take(b, &wants, sizeof(wants));
        *p = (ct_work_piece){ .wants = (wants != 0) };
        p->n = ct_bytes_take_count(b, sizeof(*p->id));
        p->id = ct_bytes_take_list(b, p->n, sizeof(*p->id));
        CT_TRY(sequence_of(f, number, &p->sequence));
    }
    if (b->bad) return ct_bytes_check_end(b);
    return f->own->grow(f->own->ctx, f->piece, (int)n);
}

static ct_status follow_work(const follower *f, ct_bytes *b)
{
    const ct_served_model *m = f->own;
    int64_t size = ct_bytes_take_count(b, 1);
    const char *data = ct_bytes_take_list(b, size, 1);
    ct_works w;
    ct_status status;

    if (b->bad) return ct_bytes_check_end(b);
    status = ct_works_read(m, data, (size_t)size, &w);
    if ((status == CT_OK) && (w.kind == CT_WORK_EMBED)) status = m->embed(m->ctx, w.each, w.n);
    if ((status == CT_OK) && (w.kind == CT_WORK_INFER)) status = m->infer(m->ctx, w.each, w.n);
    ct_works_free(&w);
    return status;
}

/* Where it fails all ranks know it, and drop what they have. */
static void *load(void *arg)
{
    const follower *f = arg;
    uint64_t sum;

    omp_set_num_threads(f->n_omp);
    (void)f->weights->load(f->weights->ctx, &sum);
    return NULL;
}

/* Without a thread for it passes wait: the others load, too. */
static void follow_make(follower *f)
{
    if (f->weights->make(f->weights->ctx) != CT_OK) return; /* on all ranks */
    f->n_omp = omp_get_max_threads();
    f->loads = (ct_thread_start(load, f, &f->loader) == 0);
    if (!f->loads) (void)load(f);
}

static void end_loading(follower *f)
{
    if (f->loads) (void)pthread_join(f->loader, NULL);
    f->loads = false;
}

static void follow_take(follower *f, bool use)
{
    end_loading(f);
    f->weights->take(f->weights->ctx, use);
}

static ct_status follow_call(follower *f, int64_t what, ct_bytes *b)
{
    switch ((call)what) {
    case CALL_OPEN:
        return follow_open(f, b);
    case CALL_PLACE:
        return follow_place(f, b);
    case CALL_CLOSE:
        return follow_close(f, b);
    case CALL_GROW:
        return follow_grow(f, b);
    case CALL_WORK:
        return follow_work(f, b);
    case CALL_MAKE:
        follow_make(f);
        return CT_OK;
    case CALL_TAKE:
        follow_take(f, true);
        return CT_OK;
    case CALL_DROP:
        follow_take(f, false);
        return CT_OK;
    case CALL_END:
        f->ends = true;
        return CT_OK;
    }
    return not_alike("what it is told");
}

static ct_status follow_calls(follower *f, const char *data, size_t size)
{
    ct_bytes b = { data, size, false };

    while ((b.left > 0) && !b.bad) {
        int64_t what = -1;

        ct_bytes_take(&b, &what, sizeof(what));
        if (!b.bad) CT_TRY(follow_call(f, what, &b));
    }
    return ct_bytes_check_end(&b);
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
    if (status == CT_OK) end_loading(&f); /* else others may not come, and the job ends */
    for (int64_t i = 0; i < f.n_sequence; i++)
        if (f.sequence[i] != NULL) own->close(own->ctx, f.sequence[i]);
    free(f.sequence);
    free(f.piece);
    return status;
}
