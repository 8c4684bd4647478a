#include "comm/bucket.h"

#include <stdio.h>
#include <string.h>

#include "framework/base/clock.h"

static ct_status choose(const ct_bucket *b, ct_dtype dtype, const ct_coll_ops **ops_p)
{
    CT_TRY(ct_coll_choose(b->comm, b->cut.count, dtype, b->config->allreduce, ops_p));
    if (b->config->deterministic && (*ops_p)->by_mpi)
        return CT_FAIL(CT_ERR_CONFIG,
                       "deterministic: true, but MPI does not promise that its own allreduce adds "
                       "in the same order in every run: allreduce \"%s\" needs "
                       "reproducible_sum: true, or take another",
                       (*ops_p)->name);
    return CT_OK;
}

static ct_status prepare_dense(ct_bucket *b, int tag)
{
    const ct_coll_ops *ops = NULL;

    if (b->config->reproducible)
        return ct_repro_create(b->comm, b->config->allreduce, b->grad, b->cut.count, tag,
                               &b->repro);
    b->req = (ct_coll_req){
        .comm = b->comm, .buf = b->grad, .count = b->cut.count, .dtype = CT_F32, .tag = tag
    };
    CT_TRY(choose(b, CT_F32, &ops));
    CT_TRY(ops->prepare(&b->req));
    b->ops = ops;
    return CT_OK;
}

static ct_status prepare_sum(ct_bucket *b, size_t bound, int tag)
{
    const ct_codec_ops *codec = b->config->codec;
    const ct_arena_ops *arena = ct_comm_arena(b->comm);
    const ct_coll_ops *ops = NULL;

    CT_TRY(arena->acquire(arena->ctx, bound, "compressed gradients", &b->payload));
    if (b->comm->size == 1) return CT_OK;
    b->coded = (ct_coll_req){
        .comm = b->comm, .buf = b->payload, .count = b->cut.count, .dtype = codec->dtype, .tag = tag
    };
    CT_TRY(choose(b, codec->dtype, &ops));
    CT_TRY(ops->prepare(&b->coded));
    b->coded_ops = ops;
    return CT_OK;
}

static ct_status prepare_coded(ct_bucket *b, int tag)
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
        return ct_gather_create(b->comm, bound, tag, &b->gather);
    return prepare_sum(b, bound, tag);
}

ct_status ct_bucket_prepare(ct_bucket *b, int tag)
{
    if (b->cut.coded) CT_TRY(prepare_coded(b, tag));
    if (b->comm->size == 1) return CT_OK;
    if (b->cut.coded && (b->config->codec_config.warmup_iterations == 0)) return CT_OK;
    return prepare_dense(b, tag);
}

void ct_bucket_release(ct_bucket *b)
{
    const ct_arena_ops *arena = ct_comm_arena(b->comm);

    if (b->ops != NULL) b->ops->release(&b->req);
    ct_repro_destroy(b->repro);
    if (b->coded_ops != NULL) b->coded_ops->release(&b->coded);
    if (b->payload != NULL) arena->release(arena->ctx, b->payload);
    ct_gather_destroy(b->gather);
    ct_mem_release(b->residual);
}

static ct_status encode(ct_bucket *b, void *payload, int64_t iteration)
{
    double start = ct_clock_s();
    ct_status status = b->config->codec->encode(&b->config->codec_config, b->grad, b->residual,
                                                b->cut.count, payload, &b->payload_bytes);

    b->encode_s += ct_clock_s() - start;
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
    b->encode_s += ct_clock_s() - start;
    return status;
}

/* Before the codec's warm-up is over. A residual, from a snapshot perhaps, goes along whole. */
static ct_status leave_dense(ct_bucket *b)
{
    if (b->residual != NULL) {
        for (int64_t k = 0; k < b->cut.count; ++k) {
            b->grad[k] += b->residual[k];
            b->residual[k] = 0;
        }
    }
    if (b->repro != NULL) return ct_repro_start(b->repro);
    return (b->ops != NULL) ? b->ops->start(&b->req) : CT_OK;
}

ct_status ct_bucket_leave(ct_bucket *b, int64_t iteration)
{
    bool dense = !b->cut.coded || (iteration < b->config->codec_config.warmup_iterations);

    b->left_at = ct_clock_s();
    atomic_store(&b->dense_now, dense);
    atomic_store(&b->state, CT_BUCKET_RUNNING);
    if (dense) return leave_dense(b);
    if (b->gather != NULL) {
        CT_TRY(encode(b, ct_gather_payload(b->gather, b->comm->rank), iteration));
        return ct_gather_start(b->gather, b->payload_bytes);
    }
    CT_TRY(encode(b, b->payload, iteration));
    return (b->coded_ops != NULL) ? b->coded_ops->start(&b->coded) : CT_OK;
}

static ct_status move_messages(ct_bucket *b, bool in_turn)
{
    if (b->repro != NULL) {
        ct_status status = ct_repro_progress(b->repro, in_turn);

        b->encode_s = ct_repro_code_s(b->repro);
        return status;
    }
    if (atomic_load(&b->dense_now)) return (b->ops != NULL) ? b->ops->progress(&b->req) : CT_OK;
    if (b->gather != NULL) return ct_gather_progress(b->gather, &b->gather_sent, &b->gather_where);
    return (b->coded_ops != NULL) ? b->coded_ops->progress(&b->coded) : CT_OK;
}

ct_status ct_bucket_progress(ct_bucket *b, bool in_turn)
{
    ct_status status = move_messages(b, in_turn);

    if (status != CT_OK) return status;
    if (!atomic_load(&b->dense_now)) CT_TRY(decode(b));
    b->under_way_s += ct_clock_s() - b->left_at;
    b->n_run += 1;
    atomic_store(&b->state, CT_BUCKET_SUMMED);
    return CT_OK;
}

bool ct_bucket_is_started(const ct_bucket *b)
{
    return (b->repro == NULL) || ct_repro_adds(b->repro);
}

const char *ct_bucket_algorithm(const ct_bucket *b, bool dense)
{
    if (b->comm->size == 1) return "one rank";
    if (b->repro != NULL) return ct_repro_algorithm(b->repro);
    if (!dense && (b->gather != NULL)) return "allgather";
    return dense ? b->ops->name : b->coded_ops->name;
}

double ct_bucket_predicted_s(const ct_bucket *b)
{
    const ct_coll_ops *ops = b->cut.coded ? b->coded_ops : b->ops;
    ct_dtype dtype = b->cut.coded ? b->config->codec->dtype : CT_F32;

    if (b->repro != NULL) return ct_repro_predicted_s(b->repro);
    return (ops != NULL) ? ops->cost_s(b->comm, b->cut.count * (int64_t)ct_dtype_size(dtype)) : 0;
}

int64_t ct_bucket_bytes_sent(const ct_bucket *b)
{
    int64_t repro = (b->repro != NULL) ? ct_repro_bytes_sent(b->repro) : 0;

    return b->req.bytes_sent + b->coded.bytes_sent + b->gather_sent + repro;
}

void ct_bucket_describe(ct_bucket *b, int index, int n_bucket, char *text, size_t size)
{
    bool dense = atomic_load(&b->dense_now);
    ct_coll_where *where = dense ? &b->req.where : &b->coded.where;
    char whom[24] = "other ranks";
    int rank = 0;

    if (atomic_load(&b->state) == CT_BUCKET_FILLING) {
        snprintf(text, size, "bucket %d of %d (%s) has not left: %d of its %d gradients miss",
                 index, n_bucket, b->key, atomic_load(&b->missing), b->cut.n);
        return;
    }
    if (!dense && (b->gather != NULL)) where = &b->gather_where;
    if (b->repro != NULL) where = ct_repro_where(b->repro);
    rank = atomic_load(&where->rank);
    if (rank >= 0) snprintf(whom, sizeof(whom), "rank %d", rank);
    snprintf(text, size, "bucket %d of %d (%s, %s, step %d of %d) waits for %s", index, n_bucket,
             b->key, ct_bucket_algorithm(b, dense), atomic_load(&where->step),
             atomic_load(&where->n_step), whom);
}
