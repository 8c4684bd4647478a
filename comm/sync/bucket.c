#include "comm/sync/bucket.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/codec/codec_types.h"
#include "comm/codec/select.h"
#include "framework/base/clock.h"
#include "framework/base/hash.h"
#include "framework/base/rng.h"

/* ---- making it */

/* The second half: how the others get what a rank updates. */
static ct_status prepare_gather(ct_bucket *b)
{
    bool narrow;

    CT_TRY(ct_narrow_gather_open(b->comm, &b->cut, b->range, &b->narrow));
    narrow = (b->narrow.units > 0);
    b->gather =
        (ct_persistent_coll){ .comm = b->comm,
                              .buf = b->config->weights + b->cut.offset + b->range->weight_shift,
                              .count = narrow ? b->narrow.units : b->cut.count,
                              .dtype = narrow ? CT_BF16 : CT_F32,
                              .tag = b->tag,
                              .kind = CT_COLL_ALLGATHER };
    return ct_persistent_coll_prepare(&b->gather, b->config->allreduce, b->config->deterministic);
}

static bool on_device(const ct_bucket *b)
{
    return b->cut.coded && (b->config->dev != NULL);
}

/* With shards a rank's part alone; sums that are reproducible stay whole. */
static ct_status prepare_dense(ct_bucket *b)
{
    if (b->config->reproducible)
        return ct_repro_create(b->comm, b->config->allreduce, b->grad, b->cut.count, b->tag,
                               &b->repro);
    b->dense =
        (ct_persistent_coll){ .comm = b->comm,
                              .buf = b->grad,
                              .count = b->cut.count,
                              .dtype = CT_F32,
                              .tag = b->tag,
                              .kind = b->shards ? CT_COLL_REDUCE_SCATTER : CT_COLL_ALLREDUCE };
    if (on_device(b)) { /* ranks start it in any order */
        const ct_coll_ops *ops = NULL;

        CT_TRY(ct_persistent_coll_choose_own(b->comm, b->cut.count, CT_F32, b->config->allreduce,
                                             b->ops->name, &ops));
        return ct_persistent_coll_prepare(&b->dense, ops->name, b->config->deterministic);
    }
    return ct_persistent_coll_prepare(&b->dense, b->config->allreduce, b->config->deterministic);
}

static ct_status prepare_coded(ct_bucket *b)
{
    const ct_grad_range *range = b->range;
    ct_codec_setup setup = { .comm = b->comm,
                             .n_thread = &b->n_thread,
                             .config = b->codec_config,
                             .key = b->key,
                             .seed = ct_rng_hash(b->key),
                             .n = b->cut.count,
                             .rows = (range->rows > 0) ? range->rows : 1,
                             .grad = on_device(b) ? range->on_device : b->grad,
                             .weight = range->weight,
                             .absorb = b->absorbed,
                             .output = range->output,
                             .momentum = b->config->momentum,
                             .decay = range->decay,
                             .nesterov = b->config->nesterov,
                             .tag = b->tag,
                             .allreduce = b->config->allreduce,
                             .deterministic = b->config->deterministic,
                             .iteration = b->iteration,
                             .dev = b->config->dev,
                             .part = b->shards,
                             .own_first = b->own_first,
                             .own_count = b->own_count,
                             .host = b->grad };

    if (on_device(b) && !b->ops->on_device)
        return CT_FAIL(CT_ERR_CONFIG, "compression %s of gradients on device %s is not there yet",
                       b->ops->name, b->config->dev->name);
    return ct_codec_create(b->ops, &setup, &b->coded);
}

ct_status ct_bucket_prepare(ct_bucket *b, int tag)
{
    const ct_codec_config *c = NULL;

    b->tag = tag;
    b->dense_alone = true;
    b->model_s = -1;
    atomic_store(&b->dense_now, !b->cut.coded);
    atomic_store(&b->idle.rank, -1);
    b->shards = (b->config->weights != NULL) && (b->comm->size > 1);
    if (b->shards)
        CT_TRY(ct_coll_part(b->comm, b->cut.count, b->comm->rank, &b->own_first, &b->own_count));
    if (b->cut.coded) {
        b->ops = ct_grad_range_codec(b->config, b->range, &c);
        b->codec_config = c;
        b->absorbed = ct_codec_corrects(b->ops, c);
        CT_TRY(prepare_coded(b));
    }
    if (b->comm->size == 1) return CT_OK;
    if (b->shards) CT_TRY(prepare_gather(b));
    if ((c != NULL) && (c->warmup_iterations == 0) && (c->resync_iterations == 0) &&
        (b->config->codec != &ct_codec_auto))
        return CT_OK;
    b->dense_alone = false;
    return prepare_dense(b);
}

ct_status ct_bucket_count(const ct_grad_pipe_load *load, const ct_bucket_cut *cut, int64_t *bytes_p)
{
    const ct_grad_pipe_config *config = load->config;
    ct_persistent_coll sum = { .comm = load->comm, .count = cut->count, .dtype = CT_F32 };
    ct_persistent_coll gather = sum;
    ct_coll_size size = { .shared = load->shared }, weights = { .shared = false };

    if (load->shards) {
        sum.kind = CT_COLL_REDUCE_SCATTER;
        gather.kind = CT_COLL_ALLGATHER;
        CT_TRY(
            ct_persistent_coll_count(&gather, config->allreduce, config->deterministic, &weights));
        *bytes_p += weights.bytes + weights.room;
    }
    if (config->reproducible)
        return ct_repro_count(load->comm, config->allreduce, cut->count, bytes_p);
    CT_TRY(ct_persistent_coll_count(&sum, config->allreduce, config->deterministic, &size));
    *bytes_p += size.bytes + size.room;
    return CT_OK;
}

void ct_bucket_release(ct_bucket *b)
{
    ct_persistent_coll_release(&b->dense);
    ct_persistent_coll_release(&b->gather);
    ct_narrow_gather_close(&b->narrow);
    ct_repro_destroy(b->repro);
    if (b->coded != NULL) b->ops->destroy(b->coded);
    b->coded = NULL;
    free(b->name);
}

ct_persistent_coll *ct_bucket_main_ways(ct_bucket *b, bool second)
{
    if (second) return b->shards ? &b->gather : NULL;
    if (b->cut.coded) return (b->ops->ways != NULL) ? b->ops->ways(b->coded) : NULL;
    return (b->dense_alone || (b->repro != NULL)) ? NULL : &b->dense;
}

/* ---- what it shows of itself in a trace */

static int64_t payload_bytes(const ct_bucket *b)
{
    if (b->silent) return 0;
    if (b->repro != NULL) return b->cut.count * (int64_t)sizeof(int64_t);
    return atomic_load(&b->dense_now) ? b->cut.count * (int64_t)sizeof(*b->grad) : b->coded_bytes;
}

static void trace_coding(const ct_bucket *b, ct_trace_kind kind, const double *times)
{
    ct_trace_add(b->trace, &(ct_trace_span){ .kind = kind,
                                             .number = b->number,
                                             .iteration = b->iteration,
                                             .start_s = times[0],
                                             .end_s = times[1] });
}

/* Records the use that has just landed: the bucket, and what was computed for it. */
static void trace(const ct_bucket *b)
{
    bool dense = atomic_load(&b->dense_now);

    ct_trace_add(b->trace, &(ct_trace_span){ .kind = CT_TRACE_BUCKET,
                                             .number = b->number,
                                             .name = b->name,
                                             .detail = ct_bucket_algorithm(b, dense),
                                             .bytes = payload_bytes(b),
                                             .iteration = b->iteration,
                                             .start_s = b->traced_at,
                                             .end_s = ct_clock_s() });
    if (b->repro != NULL) {
        for (int i = 0; i < CT_REPRO_WORKS; ++i)
            trace_coding(b, (i < CT_REPRO_DECODE) ? CT_TRACE_ENCODE : CT_TRACE_DECODE,
                         ct_repro_times(b->repro, (ct_repro_work)i));
    } else if (!dense) {
        ct_codec_stats s;

        b->ops->stats(b->coded, &s);
        trace_coding(b, CT_TRACE_ENCODE, s.encoded_at);
        trace_coding(b, CT_TRACE_DECODE, s.decoded_at);
    }
}

/* ---- checksums of what the codec keeps from step to step */

static bool has_sums(const ct_bucket *b)
{
    return b->config->verify && b->cut.coded && (b->ops->state != NULL) && !on_device(b);
}

static uint64_t sum_of(const ct_codec_state *s)
{
    ct_hash h;

    ct_hash_init(&h);
    ct_hash_add(&h, s->data, (size_t)s->count * sizeof(*s->data));
    return ct_hash_value(&h);
}

static void note_sums(ct_bucket *b)
{
    ct_codec_state s;

    b->sums_hold = has_sums(b);
    for (int k = 0; b->sums_hold && (k < CT_CODEC_STATES) && b->ops->state(b->coded, k, &s); ++k)
        b->codec_sum[k] = sum_of(&s);
}

static ct_status check_sums(ct_bucket *b)
{
    bool hold = b->sums_hold;
    ct_codec_state s;

    b->sums_hold = false;
    for (int k = 0; hold && (k < CT_CODEC_STATES) && b->ops->state(b->coded, k, &s); ++k)
        if (sum_of(&s) != b->codec_sum[k])
            return CT_FAIL(CT_ERR_DIVERGED,
                           "verify_memory: this rank's %s of %s, compression %s, is not what "
                           "iteration %lld left: its memory has changed by itself",
                           s.name, b->key, b->ops->name, (long long)b->iteration);
    return CT_OK;
}

void ct_bucket_forget_sums(ct_bucket *b)
{
    b->sums_hold = false;
}

/* ---- a step */

/* What is over the limit of the norm, a rank's share of it, counts less. Who accumulates it in a
 * pass of his own is told how much less; else it is scaled down where it lies. */
static void clip(ct_bucket *b, float *grad, int64_t n, double limit)
{
    float factor = ct_momentum_correction_limit(grad, n, limit, b->n_thread);

    if (factor == 1) return;
    if (b->cut.coded && ct_codec_keeps(b->ops, b->codec_config))
        b->step.clip = factor;
    else
        ct_momentum_correction_scale(grad, n, factor, b->n_thread);
}

/* Its own, also where it is too small for its codec and travels dense. */
static double norm_limit(const ct_bucket *b, const ct_grad_range *range)
{
    const ct_codec_config *c = NULL;

    ct_grad_range_codec(b->config, range, &c);
    return (c->local_clip > 0) ? (double)c->local_clip / sqrt((double)b->comm->size) : 0;
}

/* Each of its gradients by itself, so that none waits for another; a part of one, too. */
static void clip_locally(ct_bucket *b)
{
    bool alone = (b->cut.n_part > 1) || (b->cut.n == 1);

    for (int i = 0; !on_device(b) && (i < b->cut.n); ++i) {
        const ct_grad_range *r = &b->range[i];
        double limit = norm_limit(b, r);
        float *grad = alone ? b->grad : b->grad + (r->offset - b->cut.offset);

        if (limit > 0) clip(b, grad, alone ? b->cut.count : r->count, limit);
    }
}

static void note_coding(ct_bucket *b)
{
    ct_codec_stats s;

    b->ops->stats(b->coded, &s);
    b->encode_s = s.accumulate_s + s.select_s + s.pack_s + s.unpack_s;
    b->coded_bytes = s.bytes_coded - b->coded_before;
}

static ct_status start_dense(ct_bucket *b)
{
    if (b->silent) return CT_OK;
    if (b->repro != NULL) return ct_repro_start(b->repro);
    return b->dense_alone ? CT_OK : ct_persistent_coll_start(&b->dense);
}

/* Before the codec's warm-up is over, or to bring everyone up to date. On a device it takes a while
 * until what is to be summed is here. */
static ct_status fold(ct_bucket *b)
{
    ct_status status = CT_OK;

    if (b->cut.coded && (b->ops->fold != NULL)) {
        status = b->ops->fold(b->coded, &b->step);
        note_coding(b);
    }
    b->folded = (status == CT_OK);
    return b->folded ? start_dense(b) : status;
}

static ct_status leave_dense(ct_bucket *b)
{
    ct_status status = fold(b);

    return (status == CT_INPROGRESS) ? CT_OK : status;
}

/* The codec knows what went wrong, only we know where. */
static ct_status fail_coded(const ct_bucket *b, ct_status status)
{
    return CT_FAIL(status, "gradient of %s, iteration %lld: compression %s failed", b->key,
                   (long long)b->iteration, b->ops->name);
}

static void want_code(ct_bucket *b)
{
    if (b->apart && b->ops->codes(b->coded)) atomic_store(&b->coding, CT_CODING_WANTED);
}

static ct_status start_coded(ct_bucket *b)
{
    ct_codec_stats s;
    ct_status status = CT_OK;

    b->starts = false;
    b->ops->stats(b->coded, &s);
    b->coded_before = s.bytes_coded;
    status = b->ops->start(b->coded, &b->step);
    note_coding(b);
    if (status == CT_OK) want_code(b);
    return (status == CT_OK) ? CT_OK : fail_coded(b, status);
}

int64_t ct_bucket_dense_until(const ct_bucket *b)
{
    return (b->ops->dense_until != NULL) ? b->ops->dense_until(b->coded)
                                         : b->codec_config->warmup_iterations;
}

static bool is_dense_step(const ct_bucket *b, const ct_codec_step *step)
{
    int64_t iteration = step->iteration;
    const ct_codec_config *c = b->codec_config;

    if (!b->cut.coded || b->leaves || (iteration < ct_bucket_dense_until(b))) return true;
    return (c->resync_iterations > 0) && ((iteration + 1) % c->resync_iterations == 0);
}

/* The step, as this bucket has it. */
static bool take_step(ct_bucket *b, const ct_codec_step *step)
{
    bool dense = is_dense_step(b, step);
    ct_codec_step own = *step;

    own.rate *= b->range->rate_mult;
    /* those that `resync` brings stand alone */
    if (dense && !b->leaves)
        own = (ct_codec_step){ .iteration = own.iteration,
                               .scale = own.scale,
                               .clip = own.clip,
                               .rate = own.rate,
                               .begins = true };
    if (!dense && (b->mean != NULL)) {
        double m = (double)b->config->momentum;

        own.mean = b->mean;
        own.mean_factor = (float)(m / ((1 - m) * (double)own.scale));
    }
    b->step = own;
    b->iteration = step->iteration;
    b->n_thread = b->comm->n_thread;
    return dense;
}

ct_status ct_bucket_ready(ct_bucket *b, const ct_codec_step *step)
{
    bool dense = take_step(b, step);
    ct_status status = b->ops->ready(b->coded, &b->step, dense, norm_limit(b, b->range));

    return (status == CT_OK) ? CT_OK : fail_coded(b, status);
}

bool ct_bucket_codes_apart(const ct_bucket *b, const ct_codec_step *step)
{
    return step->apart && b->cut.coded && (b->ops->codes != NULL) && !on_device(b) &&
           !is_dense_step(b, step);
}

static bool clips(const ct_bucket *b)
{
    for (int i = 0; i < b->cut.n; ++i)
        if (norm_limit(b, &b->range[i]) > 0) return true;
    return false;
}

ct_status ct_bucket_leave(ct_bucket *b, const ct_codec_step *step)
{
    ct_status status = check_sums(b);
    bool dense;

    if (status != CT_OK) return status;
    dense = take_step(b, step);

    b->left_at = ct_clock_s();
    b->traced_at = ct_trace_start(b->trace);
    b->step.apart = b->apart = b->unsent = ct_bucket_codes_apart(b, step);
    b->starts = b->apart && clips(b);
    atomic_store(&b->dense_now, dense);
    atomic_store(&b->state, CT_BUCKET_RUNNING);
    if (b->starts) {
        atomic_store(&b->coding, CT_CODING_WANTED);
        return CT_OK;
    }
    if (!b->apart) clip_locally(b);
    return dense ? leave_dense(b) : start_coded(b);
}

ct_status ct_bucket_code(ct_bucket *b)
{
    ct_status status = CT_OK;

    if (b->starts)
        clip_locally(b);
    else
        status = b->ops->code(b->coded);
    return (status == CT_OK) ? CT_OK : fail_coded(b, status);
}

static ct_coll_where *where_now(ct_bucket *b)
{
    if (atomic_load(&b->state) == CT_BUCKET_GATHERING) return ct_persistent_coll_where(&b->gather);
    if (b->silent) return &b->idle;
    if (b->repro != NULL) return ct_repro_where(b->repro);
    if (!atomic_load(&b->dense_now)) return b->ops->where(b->coded);
    return b->dense_alone ? &b->idle : ct_persistent_coll_where(&b->dense);
}

static ct_status move_messages(ct_bucket *b, bool in_turn)
{
    ct_status status = CT_OK;

    if (b->silent) return CT_OK;
    if (b->repro != NULL) {
        status = ct_repro_progress(b->repro, in_turn);
        b->encode_s = ct_repro_code_s(b->repro);
        return status;
    }
    if (atomic_load(&b->dense_now)) {
        if (!b->folded) CT_TRY(fold(b));
        if (!b->dense_alone) status = ct_persistent_coll_progress(&b->dense);
        return ((status == CT_OK) && on_device(b)) ? b->ops->summed(b->coded) : status;
    }
    status = b->ops->progress(b->coded);
    note_coding(b);
    if (status == CT_INPROGRESS) want_code(b);
    return ((status == CT_OK) || (status == CT_INPROGRESS)) ? status : fail_coded(b, status);
}

/* Whether there is a message to think of. What was computed first may leave in its turn. */
static ct_status take_code(ct_bucket *b, bool in_turn)
{
    b->n_thread = b->comm->n_thread;
    if (b->starts) CT_TRY(start_coded(b));
    if ((atomic_load(&b->coding) != CT_CODING_NONE) || (b->unsent && !in_turn))
        return CT_INPROGRESS;
    if (b->unsent) atomic_fetch_add_explicit(&where_now(b)->n_moved, 1, memory_order_relaxed);
    b->unsent = false;
    return CT_OK;
}

ct_status ct_bucket_progress(ct_bucket *b, bool in_turn, bool brief)
{
    ct_status status = CT_OK;

    if (atomic_load(&b->coding) != CT_CODING_NONE) return CT_INPROGRESS;
    CT_TRY(take_code(b, in_turn));
    where_now(b)->brief = brief;
    status = move_messages(b, in_turn);
    if (status != CT_OK) return status;
    b->last_s = ct_clock_s() - b->left_at;
    b->under_way_s += b->last_s;
    b->n_run += 1;
    if (atomic_load(&b->dense_now) && !b->silent) {
        b->dense_s += b->last_s;
        b->n_dense += 1;
    }
    if ((b->traced_at > 0) && !b->silent) trace(b);
    note_sums(b);
    atomic_store(&b->state, b->shards ? CT_BUCKET_OWNED : CT_BUCKET_LANDED);
    return CT_OK;
}

ct_status ct_bucket_gather(ct_bucket *b)
{
    b->left_at = b->gather_at = ct_clock_s();
    b->traced_at = ct_trace_start(b->trace);
    CT_TRY(ct_persistent_coll_start(&b->gather));
    atomic_store(&b->state, CT_BUCKET_GATHERING);
    return CT_OK;
}

ct_status ct_bucket_gather_progress(ct_bucket *b, bool brief)
{
    ct_status status;
    double s;

    ct_persistent_coll_where(&b->gather)->brief = brief;
    status = ct_persistent_coll_progress(&b->gather);
    if (status != CT_OK) return status;
    s = b->gather_s = ct_clock_s() - b->left_at;
    b->under_way_s += s;
    if (atomic_load(&b->dense_now) && !b->silent) b->dense_s += s;
    if (b->traced_at > 0)
        ct_trace_add(b->trace, &(ct_trace_span){ .kind = CT_TRACE_BUCKET,
                                                 .number = b->number,
                                                 .name = b->name,
                                                 .detail = "weights",
                                                 .bytes = b->cut.count * (int64_t)sizeof(float),
                                                 .iteration = b->iteration,
                                                 .start_s = b->traced_at,
                                                 .end_s = ct_clock_s() });
    atomic_store(&b->state, CT_BUCKET_LANDED);
    return CT_OK;
}

bool ct_bucket_is_started(const ct_bucket *b)
{
    return b->silent || (!b->unsent && ((b->repro == NULL) || ct_repro_adds(b->repro)));
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
    if (atomic_load(&b->state) == CT_BUCKET_GATHERING)
        return ct_persistent_coll_pending(&b->gather, out, max);
    if (b->silent || b->unsent || (atomic_load(&b->coding) != CT_CODING_NONE)) return 0;
    if (b->repro != NULL) return ct_repro_pending(b->repro, out, max);
    if (atomic_load(&b->dense_now))
        return (b->dense_alone || !b->folded) ? 0 : ct_persistent_coll_pending(&b->dense, out, max);
    return (b->ops->pending != NULL) ? b->ops->pending(b->coded, out, max) : 0;
}

/* ---- looks */

const char *ct_bucket_algorithm(const ct_bucket *b, bool dense)
{
    const ct_coll_candidate *way = atomic_load(&b->dense.now);

    if (b->comm->size == 1) return "one rank";
    if (b->repro != NULL) return ct_repro_algorithm(b->repro);
    if (!dense) return b->ops->exchange(b->coded);
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

/* A coded one is under way until its own part is summed; its weights come when they are asked for.
 */
static bool comes_later(const ct_bucket *b)
{
    return b->shards && b->cut.coded && b->config->visits;
}

double ct_bucket_predicted_s(const ct_bucket *b)
{
    if (b->comm->size == 1) return 0;
    if (b->repro != NULL) return ct_repro_predicted_s(b->repro);
    if (b->shards && !b->cut.coded) return ct_bucket_dense_s(b); /* both halves */
    if (!b->cut.coded) return ct_persistent_coll_predicted_s(&b->dense);
    return ct_codec_predict_s(b->comm, b->config->allreduce, b->config->deterministic, b->shards,
                              b->ops, b->codec_config, b->cut.count,
                              (b->range->rows > 0) ? b->range->rows : 1) +
           (comes_later(b) ? 0 : ct_persistent_coll_predicted_s(&b->gather));
}

double ct_bucket_step_s(ct_bucket *b)
{
    int n = atomic_load(&where_now(b)->n_step);

    if (b->model_s < 0) b->model_s = ct_bucket_predicted_s(b);
    return b->model_s / ((n > 0) ? n : 1);
}

bool ct_bucket_dense_measured(const ct_bucket *b)
{
    enum { OFTEN = 3 };

    return b->n_dense >= OFTEN;
}

double ct_bucket_dense_s(const ct_bucket *b)
{
    const ct_coll_ops *ops = NULL;

    if (b->comm->size == 1) return 0;
    if (ct_bucket_dense_measured(b)) return b->dense_s / (double)b->n_dense;
    if (ct_persistent_coll_choose(b->comm, b->cut.count, CT_F32, b->config->allreduce,
                                  b->config->deterministic, &ops) != CT_OK)
        return 0;
    if (comes_later(b)) ops = ct_coll_of_kind(ops, CT_COLL_REDUCE_SCATTER);
    if (ops == NULL) return 0;
    return ct_coll_cost_s(ops, b->comm, b->cut.count * (int64_t)sizeof(float), CT_F32);
}

int64_t ct_bucket_bytes_sent(const ct_bucket *b)
{
    int64_t sum =
        ct_persistent_coll_bytes_sent(&b->dense) + ct_persistent_coll_bytes_sent(&b->gather);
    ct_codec_stats s;

    if (b->repro != NULL) sum += ct_repro_bytes_sent(b->repro);
    if (b->coded == NULL) return sum;
    b->ops->stats(b->coded, &s);
    return sum + s.bytes_sent;
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
    if (atomic_load(&b->coding) != CT_CODING_NONE) {
        snprintf(text, size, "bucket %d of %d (%s, %s) waits for its encoding or decoding", index,
                 n_bucket, b->key, ct_bucket_algorithm(b, dense));
        return;
    }
    rank = atomic_load(&where->rank);
    if (rank >= 0) snprintf(whom, sizeof(whom), "rank %d", rank);
    snprintf(text, size, "bucket %d of %d (%s, %s, step %d of %d) waits for %s", index, n_bucket,
             b->key, ct_bucket_algorithm(b, dense), atomic_load(&where->step),
             atomic_load(&where->n_step), whom);
}
