#include "serve/ranks/replicas.h"

#include <math.h>
#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/clock.h"
#include "framework/base/thread.h"
#include "serve/ranks/sequences.h"
#include "serve/ranks/work_bytes.h"

#define OPENED_NAP_S 20e-3 /* between two questions whether files are read */

static const size_t part = (size_t)1 << 30; /* of a message: counts of MPI are int */

/* ---- a message: its head, then its bytes in parts */

typedef enum {
    ORDER_RUN,
    ORDER_GROW,
    ORDER_OPEN,
    ORDER_OPENED,
    ORDER_TAKE,
    ORDER_DROP,
    ORDER_END
} order;

typedef struct head {
    int64_t order, status; /* status: of an answer */
    uint64_t size;
} head;

typedef struct stream {
    ct_comm *c;
    int rank, tag;
    bool out;
    head head;
    char *data; /* head.size bytes; of one that comes in: malloc()ed, with a 0 behind them */
    size_t at;
    bool begun;
    MPI_Request request; /* of the head or of a part */
} stream;

static void open_stream(stream *s, ct_comm *c, int rank, int tag, bool out)
{
    *s = (stream){ .c = c, .rank = rank, .tag = tag, .out = out, .request = MPI_REQUEST_NULL };
}

static ct_status start_piece(stream *s, void *data, size_t n)
{
    if (s->out)
        CT_TRY_MPI(MPI_Isend(data, (int)n, MPI_BYTE, s->rank, s->tag, s->c->mpi, &s->request));
    else
        CT_TRY_MPI(MPI_Irecv(data, (int)n, MPI_BYTE, s->rank, s->tag, s->c->mpi, &s->request));
    return CT_OK;
}

/* CT_INPROGRESS until all of it is there, or gone. With MPI to itself. */
static ct_status move_alone(stream *s)
{
    if (!s->begun) {
        s->begun = true;
        CT_TRY(start_piece(s, &s->head, sizeof(s->head)));
    }
    for (;;) {
        int done = 0;
        size_t n;

        CT_TRY_MPI(MPI_Test(&s->request, &done, MPI_STATUS_IGNORE));
        if (!done) return CT_INPROGRESS;
        if (!s->out && (s->data == NULL)) {
            s->data = calloc((size_t)s->head.size + 1, 1);
            if (s->data == NULL)
                return CT_FAIL(CT_ERR_NOMEM, "no memory for a message of %zu bytes",
                               (size_t)s->head.size);
        }
        n = (size_t)s->head.size - s->at;
        if (n == 0) return CT_OK;
        if (n > part) n = part;
        CT_TRY(start_piece(s, s->data + s->at, n));
        s->at += n;
    }
}

/* Another thread may run a pass with other ranks, or read weights with them. */
static ct_status move_stream(stream *s)
{
    ct_status status;

    ct_comm_lock(s->c);
    status = move_alone(s);
    ct_comm_unlock(s->c);
    return status;
}

/* ---- rank 0 */

typedef enum {
    FREE,
    POSTED,  /* waits for the thread that calls MPI */
    SENDING, /* goes                                */
    ASKED,   /* is gone, the answer not here        */
    ANSWERED /* waits for who asked                 */
} phase;

typedef struct replica {
    ct_replicas *r;
    int rank;                    /* of the communicator */
    int job_rank;                /* for messages        */
    ct_served_model model;       /* ctx: this */
    ct_far_sequences *sequences; /* NULL: it makes no texts */
    phase phase;
    head ask;
    ct_text body; /* that is asked */
    stream stream;
    double since_s; /* when it was posted */
    pthread_cond_t changed;
    bool made;
} replica;

struct ct_replicas {
    ct_comm *c;
    const ct_served_model *own;
    void (*wake)(void *ctx);
    void *ctx;
    int each, tag, n;
    replica *replica; /* of rank i + 1 */
    double moved_s;   /* when a phase last changed */
    pthread_mutex_t lock;
    bool made;
};

/* Waits until nothing else is asked, and leaves it; takes the bytes over. */
static void post(replica *p, order what, ct_text *body)
{
    ct_replicas *r = p->r;

    (void)pthread_mutex_lock(&r->lock);
    while (p->phase != FREE) (void)pthread_cond_wait(&p->changed, &r->lock);
    p->body = (body != NULL) ? *body : (ct_text){ 0 };
    p->ask = (head){ what, CT_OK, p->body.length };
    p->since_s = ct_clock_s();
    p->phase = POSTED;
    (void)pthread_mutex_unlock(&r->lock);
    r->wake(r->ctx);
}

/* What it says: its bytes, to be freed, or why it failed, which is logged if that is to be told. */
static ct_status await(replica *p, bool tell, char **data_p, size_t *size_p)
{
    ct_replicas *r = p->r;
    ct_status status;
    stream *s = &p->stream;

    (void)pthread_mutex_lock(&r->lock);
    while (p->phase != ANSWERED) (void)pthread_cond_wait(&p->changed, &r->lock);
    *data_p = s->data;
    *size_p = (size_t)s->head.size;
    status = (ct_status)s->head.status;
    p->phase = FREE;
    (void)pthread_cond_broadcast(&p->changed);
    (void)pthread_mutex_unlock(&r->lock);
    if (status == CT_OK) return CT_OK;
    if (tell && (status != CT_INPROGRESS))
        status = CT_FAIL(status, "rank %d says: %s", p->job_rank, *data_p);
    free(*data_p);
    *data_p = NULL;
    return status;
}

static ct_status run_there(replica *p, ct_work_kind kind, ct_work *const *work, int n)
{
    const ct_served_model *m = p->r->own;
    ct_text body = { 0 };
    ct_status status;
    size_t size = 0;
    char *data = NULL;

    ct_work_bytes_ask(m, kind, work, n, &body);
    if (body.failed) {
        ct_text_destroy(&body);
        return CT_FAIL(CT_ERR_NOMEM, "no memory to send %d requests to rank %d", n, p->job_rank);
    }
    post(p, ORDER_RUN, &body);
    CT_TRY(await(p, true, &data, &size));
    status = ct_work_bytes_take_answer(m, kind, work, n, data, size);
    free(data);
    return status;
}

static ct_status embed_there(void *ctx, ct_work *const *work, int n)
{
    return run_there(ctx, CT_WORK_EMBED, work, n);
}

static ct_status infer_there(void *ctx, ct_work *const *work, int n)
{
    return run_there(ctx, CT_WORK_INFER, work, n);
}

static ct_status open_there(void *ctx, const int32_t *id, int64_t n, int64_t capacity,
                            void **sequence_p, int64_t *kept_p)
{
    return ct_far_sequence_open(((replica *)ctx)->sequences, id, n, capacity, sequence_p, kept_p);
}

static void close_there(void *ctx, void *sequence)
{
    ct_far_sequence_close(((replica *)ctx)->sequences, sequence);
}

static int64_t peek_there(void *ctx, const int32_t *id, int64_t n)
{
    return ct_far_sequences_peek(((replica *)ctx)->sequences, id, n);
}

static ct_status grow_there(void *ctx, ct_work_piece *piece, int n)
{
    replica *p = ctx;
    ct_text body = { 0 };
    size_t size = 0;
    char *data = NULL;

    ct_far_sequences_ask(p->sequences, piece, n, &body);
    if (body.failed) {
        ct_text_destroy(&body);
        return CT_FAIL(CT_ERR_NOMEM, "no memory to send %d texts to rank %d", n, p->job_rank);
    }
    ct_far_sequences_told(p->sequences);
    post(p, ORDER_GROW, &body);
    CT_TRY(await(p, true, &data, &size));
    return ct_far_sequences_take_answer(p->sequences, piece, n, data, size);
}

static ct_status make_sequences(replica *p)
{
    if (p->model.most_context == 0) return CT_OK;
    p->model.open = open_there;
    p->model.close = close_there;
    p->model.peek = peek_there;
    p->model.grow = grow_there;
    return ct_far_sequences_create(&p->model, &p->sequences);
}

static ct_status make(ct_replicas *r)
{
    r->replica = calloc((size_t)r->n + 1, sizeof(*r->replica));
    if (r->replica == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d replicas", r->n);
    r->made = (pthread_mutex_init(&r->lock, NULL) == 0);
    for (int i = 0; r->made && (i < r->n); i++) {
        replica *p = &r->replica[i];

        p->r = r;
        p->rank = i + 1;
        p->job_rank = p->rank * r->each;
        p->model = *r->own;
        p->model.ctx = p;
        p->model.encode = NULL; /* rank 0 does that */
        p->model.embed = embed_there;
        p->model.infer = infer_there;
        p->made = (ct_cond_init(&p->changed) == 0);
        if (!p->made) return CT_FAIL(CT_ERR_NOMEM, "no lock for a replica");
        CT_TRY(make_sequences(p));
    }
    return r->made ? CT_OK : CT_FAIL(CT_ERR_NOMEM, "no lock for the replicas");
}

ct_status ct_replicas_create(ct_comm *c, int each, const ct_served_model *model,
                             void (*wake)(void *ctx), void *ctx, ct_replicas **r_p)
{
    ct_replicas *r = calloc(1, sizeof(*r));
    ct_status status;

    if (r == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for replicas");
    *r = (ct_replicas){
        .c = c, .each = each, .own = model, .wake = wake, .ctx = ctx, .n = c->size - 1
    };
    r->tag = ct_comm_take_tags(c, 1);
    status = make(r);
    if (status != CT_OK) {
        ct_replicas_destroy(r);
        return status;
    }
    *r_p = r;
    return CT_OK;
}

void ct_replicas_destroy(ct_replicas *r)
{
    if (r == NULL) return;
    for (int i = 0; (r->replica != NULL) && (i < r->n); i++) {
        ct_far_sequences_destroy(r->replica[i].sequences);
        if (r->replica[i].made) (void)pthread_cond_destroy(&r->replica[i].changed);
    }
    if (r->made) (void)pthread_mutex_destroy(&r->lock);
    free(r->replica);
    free(r);
}

const ct_served_model *ct_replicas_model(const ct_replicas *r, int rank)
{
    return &r->replica[rank - 1].model;
}

/* ---- its messages */

/* One phase on; CT_INPROGRESS: not yet. With the lock held. */
static ct_status advance(replica *p)
{
    ct_replicas *r = p->r;
    ct_status status;

    if ((p->phase == FREE) || (p->phase == ANSWERED)) return CT_INPROGRESS;
    if (p->phase == POSTED) {
        open_stream(&p->stream, r->c, p->rank, r->tag, true);
        p->stream.head = p->ask;
        p->stream.data = p->body.text;
        p->phase = SENDING;
        return CT_OK;
    }
    status = move_stream(&p->stream);
    if (status != CT_OK) return status;
    if (p->phase == SENDING) {
        ct_text_destroy(&p->body);
        open_stream(&p->stream, r->c, p->rank, r->tag, false);
        p->phase = ASKED;
        return CT_OK;
    }
    p->phase = ANSWERED;
    (void)pthread_cond_broadcast(&p->changed);
    return CT_OK;
}

/* With the lock held. */
static ct_status move(ct_replicas *r, double *nap_p)
{
    bool under_way = false;
    double now;

    for (int i = 0; i < r->n; i++) {
        replica *p = &r->replica[i];
        ct_status status;

        while ((status = advance(p)) == CT_OK) r->moved_s = ct_clock_s();
        if (status != CT_INPROGRESS) return status;
        under_way = under_way || ((p->phase != FREE) && (p->phase != ANSWERED));
    }
    now = ct_clock_s();
    *nap_p = under_way ? ct_nap_after(now - r->moved_s) : (double)INFINITY;
    return CT_OK;
}

ct_status ct_replicas_move(ct_replicas *r, double *nap_p)
{
    ct_status status;

    (void)pthread_mutex_lock(&r->lock);
    status = move(r, nap_p);
    (void)pthread_mutex_unlock(&r->lock);
    return status;
}

ct_status ct_replicas_check(ct_replicas *r, double limit_s)
{
    const char *what = "";
    double now = ct_clock_s();
    int late = -1;

    if (limit_s == 0) return CT_OK;
    (void)pthread_mutex_lock(&r->lock);
    for (int i = 0; (late < 0) && (i < r->n); i++) {
        const replica *p = &r->replica[i];

        if ((p->phase == FREE) || (p->phase == ANSWERED) || (now - p->since_s <= limit_s)) continue;
        late = p->job_rank;
        what = ((p->ask.order == ORDER_RUN) || (p->ask.order == ORDER_GROW)) ? "a batch"
                                                                             : "a word of rank 0";
    }
    (void)pthread_mutex_unlock(&r->lock);
    if (late < 0) return CT_OK;
    return CT_FAIL(CT_ERR_WATCHDOG, "rank %d has not answered %s for %.0f s", late, what, limit_s);
}

/* ---- to all of them */

static ct_status await_none(replica *p)
{
    char *data = NULL;
    size_t size;

    CT_TRY(await(p, true, &data, &size));
    free(data);
    return CT_OK;
}

void ct_replicas_open(ct_replicas *r)
{
    for (int i = 0; i < r->n; i++) post(&r->replica[i], ORDER_OPEN, NULL);
    for (int i = 0; i < r->n; i++) (void)await_none(&r->replica[i]); /* ORDER_OPENED says it */
}

/* Asks again and again: batches run there meanwhile. */
static ct_status await_sum(replica *p, uint64_t checksum, bool tell)
{
    uint64_t sum = 0;
    size_t size = 0;
    char *data = NULL;
    ct_status status;

    for (;;) {
        post(p, ORDER_OPENED, NULL);
        status = await(p, tell, &data, &size);
        if (status != CT_INPROGRESS) break;
        ct_nap(OPENED_NAP_S);
    }
    CT_TRY(status);
    if (size == sizeof(sum)) memcpy(&sum, data, sizeof(sum));
    free(data);
    if (!tell || (sum == checksum)) return CT_OK;
    return CT_FAIL(CT_ERR_DATA, "rank %d has read other weights than rank 0", p->job_rank);
}

ct_status ct_replicas_opened(ct_replicas *r, uint64_t checksum, bool tell)
{
    ct_status all = CT_OK;

    for (int i = 0; i < r->n; i++) {
        ct_status status = await_sum(&r->replica[i], checksum, tell && (all == CT_OK));

        if (all == CT_OK) all = status;
    }
    return all;
}

/* With new weights sequences grow there again, and those are to be known first. */
static void post_take(replica *p)
{
    ct_text body = { 0 };

    if (p->sequences != NULL) {
        ct_far_sequences_tell(p->sequences, &body);
        if (body.failed)
            ct_text_destroy(&body);
        else
            ct_far_sequences_told(p->sequences);
        ct_far_sequences_renew(p->sequences);
    }
    post(p, ORDER_TAKE, &body);
}

ct_status ct_replicas_take(ct_replicas *r, bool use)
{
    ct_status all = CT_OK;

    for (int i = 0; i < r->n; i++) {
        if (use)
            post_take(&r->replica[i]);
        else
            post(&r->replica[i], ORDER_DROP, NULL);
    }
    for (int i = 0; i < r->n; i++) {
        ct_status status = await_none(&r->replica[i]);

        if (all == CT_OK) all = status;
    }
    return all;
}

ct_status ct_replicas_end(ct_replicas *r, double limit_s)
{
    double wait_s = 0;

    for (int i = 0; i < r->n; i++) post(&r->replica[i], ORDER_END, NULL);
    for (;;) {
        CT_TRY(ct_replicas_move(r, &wait_s));
        if (isinf(wait_s)) break;
        CT_TRY(ct_replicas_check(r, limit_s));
        ct_nap(wait_s);
    }
    for (int i = 0; i < r->n; i++) CT_TRY(await_none(&r->replica[i]));
    return CT_OK;
}

/* ---- the other ranks */

static ct_status wait_stream(stream *s)
{
    double start = ct_clock_s();
    ct_status status;

    while ((status = move_stream(s)) == CT_INPROGRESS) ct_nap(ct_nap_after(ct_clock_s() - start));
    return status;
}

static ct_status run_here(const ct_served_model *m, const char *data, size_t size, ct_text *answer)
{
    ct_works w;
    ct_status status = ct_works_read(m, data, size, &w);

    if ((status == CT_OK) && (w.kind == CT_WORK_EMBED)) status = m->embed(m->ctx, w.each, w.n);
    if ((status == CT_OK) && (w.kind == CT_WORK_INFER)) status = m->infer(m->ctx, w.each, w.n);
    if (status == CT_OK) ct_work_bytes_answer(m, w.kind, w.each, w.n, answer);
    ct_works_free(&w);
    if (answer->failed) return CT_FAIL(CT_ERR_NOMEM, "no memory for the answer of a batch");
    return status;
}

/* Other weights that a thread reads, while batches run. */
typedef struct opening {
    const ct_replica_weights *weights;
    pthread_t thread;
    int n_omp; /* threads that it may take */
    bool running;
    atomic_bool over;
    ct_status status;
    uint64_t sum;
    char why[600]; /* of a failure: what a thread logs is its own */
} opening;

static void *open_files(void *arg)
{
    opening *o = arg;

    omp_set_num_threads(o->n_omp);
    o->status = o->weights->make(o->weights->ctx);
    if (o->status == CT_OK) o->status = o->weights->load(o->weights->ctx, &o->sum);
    if (o->status != CT_OK) ct_log_last_error(o->why, sizeof(o->why));
    atomic_store(&o->over, true);
    return NULL;
}

static void begin_opening(opening *o, const ct_replica_weights *w)
{
    *o = (opening){ .weights = w, .n_omp = omp_get_max_threads() };
    atomic_init(&o->over, false);
    o->running = (ct_thread_start(open_files, o, &o->thread) == 0);
    if (o->running) return;
    o->status = CT_ERR_NOMEM;
    (void)snprintf(o->why, sizeof(o->why), "no thread that reads weights");
    atomic_store(&o->over, true);
}

/* CT_INPROGRESS: they are not read yet. */
static ct_status end_opening(opening *o, ct_text *answer)
{
    if (!atomic_load(&o->over)) return CT_INPROGRESS;
    if (o->running) (void)pthread_join(o->thread, NULL);
    o->running = false;
    if (o->status == CT_OK) ct_text_add_bytes(answer, (const char *)&o->sum, sizeof(o->sum));
    return o->status;
}

/* What one of the other ranks has. */
typedef struct follower {
    const ct_served_model *model;
    const ct_replica_weights *weights;
    ct_near_sequences sequences;
    opening opening;
} follower;

/* Sequences of which it could not hear fail when they are to grow. */
static void take_here(follower *f, const char *data, size_t size)
{
    if (size > 0) (void)ct_near_sequences_hear(&f->sequences, data, size);
    f->weights->take(f->weights->ctx, true);
}

static ct_status do_order(follower *f, const stream *s, ct_text *answer)
{
    size_t size = (size_t)s->head.size;

    switch ((order)s->head.order) {
    case ORDER_RUN:
        return run_here(f->model, s->data, size, answer);
    case ORDER_GROW:
        return ct_near_sequences_grow(&f->sequences, s->data, size, answer);
    case ORDER_OPEN:
        begin_opening(&f->opening, f->weights);
        return CT_OK;
    case ORDER_OPENED:
        return end_opening(&f->opening, answer);
    case ORDER_TAKE:
        take_here(f, s->data, size);
        return CT_OK;
    case ORDER_DROP:
        f->weights->take(f->weights->ctx, false);
        return CT_OK;
    case ORDER_END:
        break;
    }
    return CT_OK;
}

/* Why it failed goes instead of the answer: what this thread said last, or `why`. */
static ct_status send_answer(ct_comm *c, int tag, ct_status status, ct_text *answer, char *why)
{
    char own[600] = "";
    stream s;

    if ((status != CT_OK) && (why == NULL)) ct_log_last_error(own, sizeof(own));
    if (why == NULL) why = own;
    open_stream(&s, c, 0, tag, true);
    s.head = (head){ 0, status, (status == CT_OK) ? answer->length : strlen(why) };
    s.data = (status == CT_OK) ? answer->text : why;
    return wait_stream(&s);
}

/* One order and its answer. */
static ct_status obey(ct_comm *c, int tag, follower *f, bool *ends_p)
{
    ct_text answer = { 0 };
    ct_status status;
    stream s;

    open_stream(&s, c, 0, tag, false);
    status = wait_stream(&s);
    if (status == CT_OK) {
        *ends_p = (s.head.order == ORDER_END);
        status = send_answer(c, tag, do_order(f, &s, &answer), &answer,
                             (s.head.order == ORDER_OPENED) ? f->opening.why : NULL);
    }
    free(s.data);
    ct_text_destroy(&answer);
    return status;
}

ct_status ct_replicas_obey(ct_comm *c, const ct_served_model *model, const ct_replica_weights *w)
{
    follower f = { .model = model, .weights = w, .sequences = { .model = model } };
    int tag = ct_comm_take_tags(c, 1);
    ct_status status = CT_OK;
    bool ends = false;

    while (!ends && (status == CT_OK)) status = obey(c, tag, &f, &ends);
    if (f.opening.running) (void)pthread_join(f.opening.thread, NULL);
    ct_near_sequences_end(&f.sequences);
    return status;
}
