#include "comm/bucket.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/clock.h"

static ct_status choose(const ct_bucket *b, ct_dtype dtype, const ct_coll_ops **ops_p)
{
    CT_TRY(ct_coll_choose(b->comm, b->cut.count, dtype, b->config->allreduce, ops_p));
    if (!b->config->deterministic || !(*ops_p)->by_mpi) return CT_OK;
    if (strcmp(b->config->allreduce, "auto") != 0)
        return CT_FAIL(CT_ERR_CONFIG,
                       "deterministic: true, but MPI does not promise that its own allreduce adds "
                       "in the same order in every run: allreduce \"%s\" needs "
                       "reproducible_sum: true, or take another",
                       b->config->allreduce);
    return ct_coll_choose(b->comm, b->cut.count, dtype, "ring", ops_p);
}

/* Prepares a sum of `count` elements at buf. */
static ct_status open_way(const ct_bucket *b, const ct_coll_ops *ops, void *buf, ct_dtype dtype,
                          ct_bucket_way **way_p)
{
    ct_bucket_way *way = calloc(1, sizeof(*way));
    ct_status status = CT_OK;

    if (way == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a collective");
    way->ops = ops;
    way->req.comm = b->comm;
    way->req.buf = buf;
    way->req.count = b->cut.count;
    way->req.dtype = dtype;
    way->req.tag = b->tag;
    status = ops->prepare(&way->req);
    if (status != CT_OK) {
        free(way);
        return status;
    }
    *way_p = way;
    return CT_OK;
}

static ct_status prepare_dense(ct_bucket *b)
{
    const ct_coll_ops *ops = NULL;
    ct_bucket_way *way = NULL;

    if (b->config->reproducible)
        return ct_repro_create(b->comm, b->config->allreduce, b->grad, b->cut.count, b->tag,
                               &b->repro);
    CT_TRY(choose(b, CT_F32, &ops));
    CT_TRY(open_way(b, ops, b->grad, CT_F32, &way));
    atomic_store(&b->dense, way);
    return CT_OK;
}

static ct_status prepare_sum(ct_bucket *b, size_t bound)
{
    const ct_codec_ops *codec = b->config->codec;
    const ct_arena_ops *arena = ct_comm_arena(b->comm);
    const ct_coll_ops *ops = NULL;
    ct_bucket_way *way = NULL;

    CT_TRY(arena->acquire(arena->ctx, bound, "compressed gradients", &b->payload));
    if (b->comm->size == 1) return CT_OK;
    CT_TRY(choose(b, codec->dtype, &ops));
    CT_TRY(open_way(b, ops, b->payload, codec->dtype, &way));
    atomic_store(&b->coded, way);
    return CT_OK;
}

static ct_status prepare_coded(ct_bucket *b)
{
    const ct_codec_ops *codec = b->config->codec;
    size_t bound = codec->payload_bound(&b->config->codec_config, b->cut.count);

    if (codec->has_residual) {
        b->residual = ct_mem_acquire(sizeof(float) * (size_t)b->cut.count);
        if (b->residual == NULL)
            return CT_FAIL(CT_ERR_NOMEM, "no memory for a residual of %lld elements",
                           (long long)b->cut.count);
    }
    if (codec->combine == CT_COMBINE_GATHER)
        return ct_gather_create(b->comm, bound, b->tag, &b->gather);
    return prepare_sum(b, bound);
}

ct_status ct_bucket_prepare(ct_bucket *b, int tag)
{
    b->tag = tag;
    if (b->cut.coded) CT_TRY(prepare_coded(b));
    if (b->comm->size == 1) return CT_OK;
    if (b->cut.coded && (b->config->codec_config.warmup_iterations == 0)) return CT_OK;
    return prepare_dense(b);
}

void ct_bucket_release(ct_bucket *b)
{
    const ct_arena_ops *arena = ct_comm_arena(b->comm);

    ct_bucket_close_way(b, atomic_exchange(&b->dense, NULL));
    ct_bucket_close_way(b, atomic_exchange(&b->coded, NULL));
    ct_repro_destroy(b->repro);
    while (b->past != NULL) {
        ct_bucket_way *way = b->past;

        b->past = way->next;
        free(way);
    }
    if (b->payload != NULL) arena->release(arena->ctx, b->payload);
    ct_gather_destroy(b->gather);
    ct_mem_release(b->residual);
    free(b->name);
}

ct_bucket_way *ct_bucket_main_way(const ct_bucket *b)
{
    return b->cut.coded ? atomic_load(&b->coded) : atomic_load(&b->dense);
}

ct_status ct_bucket_open_way(ct_bucket *b, const ct_coll_ops *ops, ct_bucket_way **way_p)
{
    const ct_bucket_way *now = ct_bucket_main_way(b);

    return open_way(b, ops, now->req.buf, now->req.dtype, way_p);
}

void ct_bucket_go(ct_bucket *b, ct_bucket_way *way, ct_bucket_way **old_p)
{
    ct_bucket_way *old = atomic_exchange(b->cut.coded ? &b->coded : &b->dense, way);

    b->sent_elsewhere += old->req.bytes_sent - way->req.bytes_sent;
    *old_p = old;
}

void ct_bucket_close_way(ct_bucket *b, ct_bucket_way *way)
{
    if (way == NULL) return;
    way->ops->release(&way->req);
    way->next = b->past;
    b->past = way;
}

static void note_coding(ct_bucket *b, int which, double start)
{
    b->coding[which][0] = start;
    b->coding[which][1] = ct_clock_s();
    b->encode_s += b->coding[which][1] - start;
}

static ct_status encode(ct_bucket *b, void *payload, int64_t iteration)
{
    double start = ct_clock_s();
    ct_status status = b->config->codec->encode(&b->config->codec_config, b->grad, b->residual,
                                                b->cut.count, payload, &b->payload_bytes);

    note_coding(b, 0, start);
    if (status != CT_OK) /* the codec knows what, only we know where */
        return CT_FAIL(status, "gradient of %s, iteration %lld: compression %s failed", b->key,
                       (long long)iteration, b->config->codec->name);
    return CT_OK;
}

/* Everyone's payload is here (SUM: their sum): turns it into the gradient. */
static ct_status decode(ct_bucket *b)
{
    const ct_codec_ops *codec = b->config->codec;
    const ct_codec_config *c = &b->config->codec_config;
    double start = ct_clock_s();
    ct_status status = CT_OK;

    if (b->gather == NULL) {
        status = codec->decode(c, b->payload, b->payload_bytes, b->grad, b->cut.count);
    } else {
        memset(b->grad, 0, sizeof(*b->grad) * (size_t)b->cut.count);
        for (int r = 0; (r < b->comm->size) && (status == CT_OK); ++r)
            status = codec->decode(c, ct_gather_payload(b->gather, r),
                                   ct_gather_bytes(b->gather, r), b->grad, b->cut.count);
    }
    note_coding(b, 1, start);
    return status;
}

/* Before the codec's warm-up is over. A residual, from a snapshot perhaps, goes along whole. */
static ct_status leave_dense(ct_bucket *b)
{
    ct_bucket_way *way = atomic_load(&b->dense);

    if (b->residual != NULL) {
        for (int64_t k = 0; k < b->cut.count; ++k) {
            b->grad[k] += b->residual[k];
            b->residual[k] = 0;
        }
    }
    if (b->repro != NULL) return ct_repro_start(b->repro);
    return (way != NULL) ? way->ops->start(&way->req) : CT_OK;
}

ct_status ct_bucket_leave(ct_bucket *b, int64_t iteration)
{
    bool dense = !b->cut.coded || (iteration < b->config->codec_config.warmup_iterations);
    ct_bucket_way *way = atomic_load(&b->coded);

    b->left_at = ct_clock_s();
    b->traced_at = ct_trace_start(b->trace);
    b->iteration = iteration;
    atomic_store(&b->dense_now, dense);
    atomic_store(&b->state, CT_BUCKET_RUNNING);
    if (dense) return leave_dense(b);
    if (b->gather != NULL) {
        CT_TRY(encode(b, ct_gather_payload(b->gather, b->comm->rank), iteration));
        return ct_gather_start(b->gather, b->payload_bytes);
    }
    CT_TRY(encode(b, b->payload, iteration));
    return (way != NULL) ? way->ops->start(&way->req) : CT_OK;
}

/* The way that it goes in this step; NULL: it gathers, or nothing travels. */
static ct_bucket_way *way_now(const ct_bucket *b)
{
    return atomic_load(&b->dense_now) ? atomic_load(&b->dense) : atomic_load(&b->coded);
}

static bool gathers_now(const ct_bucket *b)
{
    return !atomic_load(&b->dense_now) && (b->gather != NULL);
}

static ct_coll_where *where_now(ct_bucket *b)
{
    ct_bucket_way *way = way_now(b);

    if (b->repro != NULL) return ct_repro_where(b->repro);
    return (gathers_now(b) || (way == NULL)) ? &b->gather_where : &way->req.where;
}

static ct_status move_messages(ct_bucket *b, bool in_turn)
{
    ct_bucket_way *way = way_now(b);

    if (b->repro != NULL) {
        ct_status status = ct_repro_progress(b->repro, in_turn);

        b->encode_s = ct_repro_code_s(b->repro);
        return status;
    }
    if (gathers_now(b)) return ct_gather_progress(b->gather, &b->gather_sent, &b->gather_where);
    return (way != NULL) ? way->ops->progress(&way->req) : CT_OK;
}

ct_status ct_bucket_progress(ct_bucket *b, bool in_turn, bool brief)
{
    ct_status status = CT_OK;

    where_now(b)->brief = brief;
    status = move_messages(b, in_turn);

    if (status != CT_OK) return status;
    if (!atomic_load(&b->dense_now)) CT_TRY(decode(b));
    b->last_s = ct_clock_s() - b->left_at;
    b->under_way_s += b->last_s;
    b->n_run += 1;
    if (b->traced_at > 0) ct_bucket_trace(b);
    atomic_store(&b->state, CT_BUCKET_SUMMED);
    return CT_OK;
}

bool ct_bucket_is_started(const ct_bucket *b)
{
    return (b->repro == NULL) || ct_repro_adds(b->repro);
}

bool ct_bucket_moved(ct_bucket *b)
{
    unsigned n = atomic_load_explicit(&where_now(b)->n_moved, memory_order_relaxed);
    bool moved = (n != b->moved_before);

    b->moved_before = n;
    return moved;
}

int ct_bucket_pending(ct_bucket *b, MPI_Request **out, int max)
{
    ct_bucket_way *way = way_now(b);

    if (b->repro != NULL) return ct_repro_pending(b->repro, out, max);
    if (gathers_now(b)) return ct_gather_pending(b->gather, out, max);
    if ((way == NULL) || (way->ops->pending == NULL)) return 0;
    return way->ops->pending(&way->req, out, max);
}

const char *ct_bucket_algorithm(const ct_bucket *b, bool dense)
{
    const ct_bucket_way *way = dense ? atomic_load(&b->dense) : atomic_load(&b->coded);

    if (b->comm->size == 1) return "one rank";
    if (b->repro != NULL) return ct_repro_algorithm(b->repro);
    if (!dense && (b->gather != NULL)) return "allgather";
    return (way != NULL) ? way->ops->name : "?";
}

void ct_bucket_name(const ct_bucket_cut *cut, const ct_grad_range *range, char *text, size_t size)
{
    const char *first = range[cut->first].key;
    long long count = (long long)cut->count;

    if (cut->n_part > 1)
        snprintf(text, size, "part %d of %d of %s, %lld elements", cut->part + 1, cut->n_part,
                 first, count);
    else if (cut->n > 1)
        snprintf(text, size, "%s to %s, %lld elements", first, range[cut->first + cut->n - 1].key,
                 count);
    else
        snprintf(text, size, "%s, %lld elements", first, count);
}

double ct_bucket_predicted_s(const ct_bucket *b)
{
    const ct_bucket_way *way = ct_bucket_main_way(b);

    if (b->repro != NULL) return ct_repro_predicted_s(b->repro);
    if (way == NULL) return 0;
    return way->ops->cost_s(b->comm, b->cut.count * (int64_t)ct_dtype_size(way->req.dtype));
}

int64_t ct_bucket_bytes_sent(const ct_bucket *b)
{
    const ct_bucket_way *dense = atomic_load(&b->dense), *coded = atomic_load(&b->coded);
    int64_t sum = b->gather_sent + b->sent_elsewhere;

    if (b->repro != NULL) sum += ct_repro_bytes_sent(b->repro);
    if (dense != NULL) sum += dense->req.bytes_sent;
    if (coded != NULL) sum += coded->req.bytes_sent;
    return sum;
}

void ct_bucket_describe(ct_bucket *b, int index, int n_bucket, char *text, size_t size)
{
    bool dense = atomic_load(&b->dense_now);
    ct_coll_where *where = where_now(b);
    char whom[24] = "other ranks";
    int rank = 0;

    if (atomic_load(&b->state) == CT_BUCKET_FILLING) {
        snprintf(text, size, "bucket %d of %d (%s) has not left: %d of its %d gradients miss",
                 index, n_bucket, b->key, atomic_load(&b->missing), b->cut.n);
        return;
    }
    rank = atomic_load(&where->rank);
    if (rank >= 0) snprintf(whom, sizeof(whom), "rank %d", rank);
    snprintf(text, size, "bucket %d of %d (%s, %s, step %d of %d) waits for %s", index, n_bucket,
             b->key, ct_bucket_algorithm(b, dense), atomic_load(&where->step),
             atomic_load(&where->n_step), whom);
}
