/* A pipe, from its creation to its end, and one step of it. */
#include "comm/sync/grad_pipe_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/codec/codec_types.h"
#include "framework/base/clock.h"

enum { MAX_LANES = 256 /* buckets that have tags of their own */ };

/* ---- creation */

/* Where the density falls: from and to what, and how long it is dense before. */
static void log_warmup(const ct_grad_pipe *gp)
{
    const ct_codec_config *c = NULL;
    int64_t least = INT64_MAX, most = 0;
    int n = 0;

    for (int i = 0; i < gp->n_bucket; ++i) {
        const ct_bucket *b = &gp->bucket[i];
        int64_t until = 0;

        if (!b->cut.coded || !ct_codec_is_sparse(b->ops) || !(b->codec_config->warmup_density > 0))
            continue;
        until = ct_bucket_dense_until(b);
        c = b->codec_config;
        n += 1;
        least = (until < least) ? until : least;
        most = (until > most) ? until : most;
    }
    if (n == 0) return;
    CT_INFO("warm-up: the density of %d parameter%s falls from %g to %g in %lld iterations", n,
            (n == 1) ? "" : "s", (double)c->warmup_density, (double)c->density,
            (long long)c->warmup_iterations);
    if (most > 0)
        CT_INFO("warm-up: dense before iteration %lld to %lld, where dense sums send less",
                (long long)least, (long long)most);
}

static void log_plan(const ct_grad_pipe *gp)
{
    ct_text used = { .text = NULL };
    char name_of[192];
    int64_t total = 0, least = 0, most = 0;
    int n_coded = 0;

    for (int i = 0; i < gp->n_bucket; ++i) {
        const ct_bucket *b = &gp->bucket[i];
        const char *name = ct_bucket_algorithm(b, !b->cut.coded);
        int64_t bytes = b->cut.count * (int64_t)sizeof(float);
        int same = 0;

        total += bytes;
        least = ((i == 0) || (bytes < least)) ? bytes : least;
        most = (bytes > most) ? bytes : most;
        n_coded += b->cut.coded;
        for (int j = 0; j < gp->n_bucket; ++j) {
            if (strcmp(ct_bucket_algorithm(&gp->bucket[j], !gp->bucket[j].cut.coded), name) != 0)
                continue;
            if (j < i) break;
            same += 1;
        }
        if (same > 0) ct_text_add(&used, "%s%s x %d", (used.length > 0) ? ", " : "", name, same);
        ct_bucket_name(&b->cut, gp->range, name_of, sizeof(name_of));
        CT_DEBUG("bucket %d: %s, %s, predicted %.3f ms", i, name_of, name,
                 1e3 * ct_bucket_predicted_s(b));
    }
    CT_INFO("gradients: %.3f MB in %d buckets of %.3f to %.3f MB (%s), %d through codec %s, "
            "overlap %s",
            1e-6 * (double)total, gp->n_bucket, 1e-6 * (double)least, 1e-6 * (double)most,
            (used.text != NULL) ? used.text : "none", n_coded, gp->config.codec->name,
            gp->config.overlap ? "on" : "off");
    if (gp->config.reproducible && (gp->comm->size > 1))
        CT_INFO("reproducible sums: gradients travel as 64-bit integers, %.3f MB and %.3f MB of "
                "exponents a step in place of %.3f MB; memory for as much on every rank",
                2e-6 * (double)total, 1e-6 * (double)total / 32, 1e-6 * (double)total);
    if (gp->generation == 0) log_warmup(gp);
    ct_text_destroy(&used);
}

/* The last words are said when the caller's may be gone. */
static ct_status copy_keys(ct_grad_pipe *gp)
{
    size_t room = 1, used = 0;

    for (int i = 0; i < gp->n_range; ++i) room += strlen(gp->range[i].key) + 1;
    gp->keys = malloc(room);
    if (gp->keys == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a gradient pipe");
    for (int i = 0; i < gp->n_range; ++i) {
        size_t length = strlen(gp->range[i].key) + 1;

        memcpy(gp->keys + used, gp->range[i].key, length);
        gp->range[i].key = gp->keys + used;
        used += length;
    }
    return CT_OK;
}

static ct_status acquire_ranges(ct_grad_pipe *gp, const ct_grad_range *range)
{
    gp->range = malloc(sizeof(*gp->range) * (size_t)(gp->n_range + 1));
    gp->ready = calloc((size_t)gp->n_range + 1, sizeof(*gp->ready));
    gp->bucket_of = calloc((size_t)gp->n_range + 1, sizeof(*gp->bucket_of));
    gp->parts_left = calloc((size_t)gp->n_range + 1, sizeof(*gp->parts_left));
    gp->parts_full = calloc((size_t)gp->n_range + 1, sizeof(*gp->parts_full));
    if ((gp->range == NULL) || (gp->ready == NULL) || (gp->bucket_of == NULL) ||
        (gp->parts_left == NULL) || (gp->parts_full == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a gradient pipe");
    if (gp->n_range > 0) memcpy(gp->range, range, sizeof(*range) * (size_t)gp->n_range);
    return copy_keys(gp);
}

static ct_status create_buckets(ct_grad_pipe *gp, const ct_bucket_cut *cut, int n_cut)
{
    int tag = 0;

    gp->n_lane = (n_cut < MAX_LANES) ? n_cut : MAX_LANES;
    tag = ct_comm_take_tags(gp->comm, gp->n_lane * CT_COLL_TAGS);
    for (int i = 0; i < n_cut; ++i) {
        ct_bucket *b = &gp->bucket[gp->n_bucket++];

        b->comm = gp->comm;
        b->config = &gp->config;
        b->range = &gp->range[cut[i].first];
        b->key = b->range->key;
        b->grad = gp->arena + cut[i].offset;
        b->cut = cut[i];
        b->iteration = gp->step.iteration;
        atomic_store(&b->state, CT_BUCKET_SUMMED); /* no step has begun */
        for (int k = 0; (cut[i].part == 0) && (k < cut[i].n); ++k)
            gp->bucket_of[cut[i].first + k] = i;
        CT_TRY(ct_bucket_prepare(b, tag + i % gp->n_lane * CT_COLL_TAGS));
    }
    return CT_OK;
}

static ct_status acquire_buckets(ct_grad_pipe *gp, int n_cut)
{
    free(gp->bucket);
    free(gp->landed);
    gp->bucket = calloc((size_t)n_cut + 1, sizeof(*gp->bucket));
    gp->landed = calloc((size_t)n_cut + 1, sizeof(*gp->landed));
    return ((gp->bucket != NULL) && (gp->landed != NULL))
               ? CT_OK
               : CT_FAIL(CT_ERR_NOMEM, "no memory for a gradient pipe");
}

ct_status ct_grad_pipe_make_buckets(ct_grad_pipe *gp)
{
    ct_bucket_cut *cut = NULL;
    ct_bucket_sizes sizes;
    int n_cut = 0;
    ct_status status = CT_OK;

    CT_TRY(ct_bucket_sizes_find(gp->comm, &gp->config, gp->range, gp->n_range, &sizes));
    CT_TRY(ct_bucket_partition_cut(&gp->config, &sizes, gp->range, gp->n_range, &cut, &n_cut));
    status = ct_bucket_partition_compare(gp->comm, &gp->config, gp->range, cut, n_cut);
    if (status == CT_OK) status = acquire_buckets(gp, n_cut);
    if (status == CT_OK) status = create_buckets(gp, cut, n_cut);
    free(cut);
    if (status == CT_OK) log_plan(gp);
    return status;
}

static ct_status make(ct_grad_pipe *gp, const ct_grad_range *range)
{
    const ct_grad_policy *policy = gp->config.policy;

    if ((policy == NULL) && (gp->config.codec == &ct_codec_auto))
        return CT_FAIL(CT_ERR_ARG, "codec auto without a policy that chooses");
    CT_TRY(acquire_ranges(gp, range));
    if (policy != NULL) CT_TRY(policy->create(gp, &gp->policy));
    gp->config.line = NULL; /* the caller's may go */
    CT_TRY(ct_grad_pipe_make_buckets(gp));
    CT_TRY(ct_grad_pipe_open_thread(gp));
    return (gp->policy != NULL) ? policy->open(gp->policy) : CT_OK;
}

ct_status ct_grad_pipe_create(ct_comm *comm, const ct_grad_pipe_config *config, float *arena,
                              const ct_grad_range *range, int n_range, ct_grad_pipe **gp_p)
{
    ct_grad_pipe *gp = NULL;
    const ct_coll_ops *known = NULL;
    ct_status status = CT_OK;

    CT_TRY(ct_bucket_partition_check(config, range, n_range));
    /* a wrong name is wrong on one rank too, where nothing else asks for it */
    CT_TRY(ct_coll_choose(comm, 1, CT_F32, config->allreduce, &known));
    gp = calloc(1, sizeof(*gp));
    if (gp == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a gradient pipe");
    gp->comm = comm;
    gp->config = *config;
    gp->arena = arena;
    gp->n_range = n_range;
    status = make(gp, range);
    if (status != CT_OK) {
        ct_grad_pipe_destroy(gp);
        return status;
    }
    comm->mover = (ct_comm_mover){ .move = ct_grad_pipe_move_any,
                                   .pending = ct_grad_pipe_pending,
                                   .ctx = gp };
    *gp_p = gp;
    return CT_OK;
}

ct_status ct_grad_pipe_trace(ct_grad_pipe *gp, ct_trace *t)
{
    gp->trace = t;
    for (int i = 0; i < gp->n_bucket; ++i) {
        ct_bucket *b = &gp->bucket[i];
        char name[192];

        ct_bucket_name(&b->cut, gp->range, name, sizeof(name));
        if (b->name == NULL) b->name = strdup(name);
        if (b->name == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a trace");
        b->number = i;
        b->trace = t;
    }
    return CT_OK;
}

static void log_measured(const ct_grad_pipe *gp)
{
    for (int i = 0; i < gp->n_bucket; ++i) {
        const ct_bucket *b = &gp->bucket[i];

        if (b->n_run == 0) continue;
        CT_DEBUG("bucket %d: %.3f ms from leaving to landing, mean of %lld (predicted %.3f)", i,
                 1e3 * b->under_way_s / (double)b->n_run, (long long)b->n_run,
                 1e3 * ct_bucket_predicted_s(b));
    }
}

void ct_grad_pipe_destroy(ct_grad_pipe *gp)
{
    if (gp == NULL) return;
    ct_pipe_thread_destroy(gp->thread);
    if (gp->comm->mover.ctx == gp) gp->comm->mover = (ct_comm_mover){ .ctx = NULL };
    log_measured(gp);
    ct_grad_pipe_log_coding(gp);
    if (gp->policy != NULL) gp->config.policy->destroy(gp->policy);
    ct_grad_pipe_forget_aside(gp);
    for (int i = 0; i < gp->n_bucket; ++i) ct_bucket_release(&gp->bucket[i]);
    free(gp->range);
    free(gp->keys);
    free(gp->ready);
    free(gp->bucket_of);
    free(gp->parts_left);
    free(gp->parts_full);
    free(gp->bucket);
    free(gp->landed);
    free(gp);
}

/* ---- looking at it */

double ct_grad_pipe_encode_s(const ct_grad_pipe *gp)
{
    double sum = gp->past_encode_s;

    for (int i = 0; i < gp->n_bucket; ++i) sum += gp->bucket[i].encode_s;
    return sum;
}

void ct_grad_pipe_get_counters(const ct_grad_pipe *gp, ct_grad_pipe_counters *out)
{
    ct_comm_lock(gp->comm);
    *out = gp->counters;
    out->encode_s = ct_grad_pipe_encode_s(gp);
    out->bytes_sent = gp->past_bytes_sent;
    for (int i = 0; i < gp->n_bucket; ++i) out->bytes_sent += ct_bucket_bytes_sent(&gp->bucket[i]);
    ct_comm_unlock(gp->comm);
}

int ct_grad_pipe_n_trial(const ct_grad_pipe *gp)
{
    return (gp->policy != NULL) ? gp->config.policy->n_trial(gp->policy) : 0;
}

/* What is only tried is nobody's business; of what waits aside the momentum need not be there. */
static bool aside_state(ct_grad_pipe *gp, int i, int k, ct_codec_state *out)
{
    ct_grad_kept *c = &gp->aside[i];
    ct_codec_state all[] = {
        { .name = CT_CODEC_RESIDUAL, .data = c->v, .count = gp->range[i].count },
        { .name = CT_CODEC_RATE, .data = &c->rate, .count = 1, .replicated = true },
        { .name = CT_CODEC_MOMENTUM, .data = c->u, .count = gp->range[i].count },
    };
    int n = (c->v == NULL) ? 0 : !c->absorbed ? 1 : (c->u == NULL) ? 2 : 3;

    if ((k < 0) || (k >= n)) return false;
    *out = all[k];
    return true;
}

bool ct_grad_pipe_state(ct_grad_pipe *gp, int i, int k, ct_codec_state *out)
{
    const ct_bucket *b = NULL;

    if ((i < 0) || (i >= gp->n_range)) return false;
    if (gp->aside != NULL) return aside_state(gp, i, k, out);
    b = &gp->bucket[gp->bucket_of[i]]; /* a coded one has one range */
    return (b->coded != NULL) && (b->ops->state != NULL) && b->ops->state(b->coded, k, out);
}

ct_status ct_grad_pipe_restored(ct_grad_pipe *gp)
{
    for (int i = 0; i < gp->n_bucket; ++i) {
        const ct_bucket *b = &gp->bucket[i];

        if ((b->coded != NULL) && (b->ops->restored != NULL)) CT_TRY(b->ops->restored(b->coded));
    }
    return CT_OK;
}

bool ct_grad_pipe_absorbs(const ct_grad_pipe *gp, int i)
{
    return (i >= 0) && (i < gp->n_range) && gp->bucket[gp->bucket_of[i]].absorbed;
}

bool ct_grad_pipe_on_device(const ct_grad_pipe *gp, int i)
{
    return (gp->config.dev != NULL) && (i >= 0) && (i < gp->n_range) &&
           gp->bucket[gp->bucket_of[i]].cut.coded;
}

bool ct_grad_pipe_tries(const ct_grad_pipe *gp, int i)
{
    return (gp->aside != NULL) && ct_grad_pipe_absorbs(gp, i);
}

void ct_grad_pipe_share(ct_grad_pipe *gp, float *history)
{
    gp->history = history;
}

int ct_grad_pipe_generation(const ct_grad_pipe *gp)
{
    return gp->generation;
}

int ct_grad_pipe_n_bucket(const ct_grad_pipe *gp)
{
    return gp->n_bucket;
}

const char *ct_grad_pipe_bucket(const ct_grad_pipe *gp, int i, int64_t *bytes_p)
{
    const ct_bucket *b = &gp->bucket[i];

    *bytes_p = b->cut.count * (int64_t)sizeof(float);
    return ct_bucket_algorithm(b, !b->cut.coded);
}

void ct_grad_pipe_describe(const ct_grad_pipe *gp, char *text, size_t size)
{
    if (atomic_load(&gp->remaking)) {
        snprintf(text, size, "gradients go over to other codecs");
        return;
    }
    for (int i = 0; i < gp->n_bucket; ++i) {
        if (atomic_load(&gp->bucket[i].state) == CT_BUCKET_SUMMED) continue;
        ct_bucket_describe(&gp->bucket[i], i, gp->n_bucket, text, size);
        return;
    }
    snprintf(text, size, "no gradients under way (%d buckets)", gp->n_bucket);
}

/* ---- one step: gradients get ready, buckets are waited for and reported */

/* What failed stays failed, and what the thread met is the main thread's to say. */
static ct_status fate(ct_grad_pipe *gp)
{
    return (ct_status)atomic_load(&gp->fate);
}

static void observe(ct_grad_pipe *gp, ct_grad_event event, int range)
{
    if (gp->policy != NULL) gp->config.policy->observe(gp->policy, event, range);
}

ct_status ct_grad_pipe_begin(ct_grad_pipe *gp, int64_t iteration, float scale, float rate)
{
    bool begins = false;
    float least = 0;
    ct_status status = CT_OK;

    if (gp->open) return CT_FAIL(CT_ERR_ARG, "a gradient exchange begins inside another");
    CT_TRY(fate(gp));
    ct_comm_lock(gp->comm); /* nothing is under way: the thread, if it looks, finds that */
    observe(gp, CT_GRAD_ENTER, -1);
    if (gp->policy != NULL)
        status = gp->config.policy->begin_step(gp->policy, iteration, &begins, &least);
    if (status != CT_OK) {
        ct_comm_unlock(gp->comm);
        return status;
    }
    gp->step = (ct_codec_step){ .iteration = iteration,
                                .scale = scale,
                                .clip = 1,
                                .rate = rate,
                                .begins = begins,
                                .least = least };
    gp->n_landed = gp->n_reported = gp->n_left = 0;
    memset(gp->ready, 0, sizeof(*gp->ready) * (size_t)gp->n_range);
    memset(gp->parts_left, 0, sizeof(*gp->parts_left) * (size_t)gp->n_range);
    memset(gp->parts_full, 0, sizeof(*gp->parts_full) * (size_t)gp->n_range);
    for (int i = 0; i < gp->n_bucket; ++i) {
        const ct_bucket_cut *cut = &gp->bucket[i].cut;

        for (int k = cut->first; k < cut->first + cut->n; ++k) gp->parts_left[k] += 1;
        atomic_store(&gp->bucket[i].state, CT_BUCKET_FILLING);
        atomic_store(&gp->bucket[i].missing, cut->n);
    }
    gp->begun = true;
    gp->open = (gp->n_bucket > 0);
    atomic_store(&gp->finishing, false);
    observe(gp, CT_GRAD_LEAVE, -1);
    ct_comm_unlock(gp->comm);
    return CT_OK;
}

bool ct_grad_pipe_is_dense(const ct_grad_pipe *gp)
{
    bool dense = true;

    for (int i = 0; i < gp->n_bucket; ++i) dense = dense && !gp->bucket[i].cut.coded;
    return dense;
}

void ct_grad_pipe_skip(ct_grad_pipe *gp)
{
    ct_comm_lock(gp->comm);
    for (int i = 0; i < gp->n_bucket; ++i) atomic_store(&gp->bucket[i].state, CT_BUCKET_SUMMED);
    gp->open = false;
    ct_comm_unlock(gp->comm);
}

/* Moves what can move, and adds the time less that of the codecs to *seconds. */
static ct_status move_timed(ct_grad_pipe *gp, double *seconds)
{
    double start = ct_clock_s(), coded = 0;
    bool moved = false;
    ct_status status = CT_OK;

    ct_comm_lock(gp->comm);
    coded = ct_grad_pipe_encode_s(gp);
    status = ct_grad_pipe_move(gp, &moved);
    if (status != CT_OK) atomic_store(&gp->fate, (int)status);
    coded = ct_grad_pipe_encode_s(gp) - coded;
    ct_comm_unlock(gp->comm);
    *seconds += ct_clock_s() - start - coded;
    return status;
}

static ct_status poll(ct_grad_pipe *gp)
{
    CT_TRY(fate(gp));
    if (!gp->open || atomic_load(&gp->threaded)) return CT_OK;
    if (!gp->config.overlap || (gp->n_left == gp->n_landed)) return CT_OK;
    return move_timed(gp, &gp->counters.moving_s);
}

ct_status ct_grad_pipe_poll(ct_grad_pipe *gp)
{
    ct_status status = CT_OK;

    observe(gp, CT_GRAD_ENTER, -1);
    status = poll(gp);
    observe(gp, CT_GRAD_LEAVE, -1);
    return status;
}

/* The first n_part parts of range i are there. Returns whether a bucket is complete. */
static bool fill_parts(ct_grad_pipe *gp, int i, int n_part)
{
    ct_bucket *b = &gp->bucket[gp->bucket_of[i]];
    bool complete = false;

    for (; gp->parts_full[i] < n_part; gp->parts_full[i]++)
        complete = (atomic_fetch_sub(&b[gp->parts_full[i]].missing, 1) == 1) || complete;
    return complete;
}

/* Something is ready; complete: a bucket. */
static ct_status let_leave(ct_grad_pipe *gp, bool complete)
{
    if (!gp->config.overlap) return CT_OK;
    if (!atomic_load(&gp->threaded)) return move_timed(gp, &gp->counters.moving_s);
    if (complete) ct_pipe_thread_wake(gp->thread);
    return CT_OK;
}

static ct_status take_ready(ct_grad_pipe *gp, int i)
{
    if (!gp->open || (i < 0) || (i >= gp->n_range) || gp->ready[i])
        return CT_FAIL(CT_ERR_ARG, "gradient %d of %d is ready %s", i, gp->n_range,
                       gp->open ? "twice, or does not exist" : "outside of a step");
    CT_TRY(fate(gp));
    gp->ready[i] = true;
    if (ct_grad_pipe_on_device(gp, i))
        CT_TRY(ct_bucket_ready(&gp->bucket[gp->bucket_of[i]], &gp->step));
    return let_leave(gp, fill_parts(gp, i, gp->bucket[gp->bucket_of[i]].cut.n_part));
}

ct_status ct_grad_pipe_ready(ct_grad_pipe *gp, int i)
{
    ct_status status = CT_OK;

    observe(gp, CT_GRAD_ENTER, -1);
    observe(gp, CT_GRAD_READY, i);
    status = take_ready(gp, i);
    observe(gp, CT_GRAD_LEAVE, -1);
    return status;
}

static ct_status take_ready_to(ct_grad_pipe *gp, int i, int64_t count)
{
    const ct_bucket *b;
    int64_t end;
    int n = 0;

    if (!gp->open || (i < 0) || (i >= gp->n_range) || gp->ready[i] || (count < 0) ||
        (count > gp->range[i].count) || ct_grad_pipe_on_device(gp, i))
        return CT_FAIL(CT_ERR_ARG, "%lld elements of gradient %d of %d are ready", (long long)count,
                       i, gp->n_range);
    CT_TRY(fate(gp));
    b = &gp->bucket[gp->bucket_of[i]];
    end = gp->range[i].offset + count;
    if (b->cut.n_part == 1) return CT_OK; /* it leaves as a whole */
    while ((n < b->cut.n_part) && (b[n].cut.offset + b[n].cut.count <= end)) n++;
    return (n > gp->parts_full[i]) ? let_leave(gp, fill_parts(gp, i, n)) : CT_OK;
}

ct_status ct_grad_pipe_ready_to(ct_grad_pipe *gp, int i, int64_t count)
{
    ct_status status = CT_OK;

    observe(gp, CT_GRAD_ENTER, -1);
    status = take_ready_to(gp, i, count);
    observe(gp, CT_GRAD_LEAVE, -1);
    return status;
}

void ct_grad_pipe_hear_parts(ct_grad_pipe *gp, ct_pipe_part_fn part, void *ctx)
{
    gp->part = part;
    gp->part_ctx = ctx;
}

void ct_grad_pipe_reads(ct_grad_pipe *gp, int i)
{
    observe(gp, CT_GRAD_ENTER, -1);
    observe(gp, CT_GRAD_READ, i);
    observe(gp, CT_GRAD_LEAVE, -1);
}

/* The next bucket that landed; NULL: none. */
static const ct_bucket *take_landed(ct_grad_pipe *gp)
{
    const ct_bucket *b = NULL;

    ct_comm_lock(gp->comm);
    if (gp->n_reported < gp->n_landed) b = &gp->bucket[gp->landed[gp->n_reported]];
    ct_comm_unlock(gp->comm);
    if (b == NULL) return NULL;
    gp->n_reported += 1;
    if (gp->n_reported == gp->n_bucket) gp->open = false;
    return b;
}

/* Without the lock: who hears of a gradient works on it, while the others move. */
static ct_status report(ct_grad_pipe *gp, ct_pipe_landed_fn landed, void *ctx)
{
    const ct_bucket *b = NULL;

    while ((b = take_landed(gp)) != NULL) {
        for (int i = b->cut.first; i < b->cut.first + b->cut.n; ++i) gp->parts_left[i] -= 1;
        if ((b->cut.n_part > 1) && (gp->part != NULL))
            CT_TRY(gp->part(gp->part_ctx, b->cut.first,
                            b->cut.offset - gp->range[b->cut.first].offset, b->cut.count));
        if ((landed != NULL) && (gp->parts_left[b->cut.first] == 0))
            CT_TRY(landed(ctx, b->cut.first, b->cut.n));
    }
    return CT_OK;
}

static bool all_reported(const ct_grad_pipe *gp, int first, int n)
{
    for (int i = first; i < first + n; ++i) {
        if (gp->parts_left[i] > 0) return false;
    }
    return true;
}

static ct_status check_all_ready(const ct_grad_pipe *gp)
{
    for (int i = 0; i < gp->n_range; ++i) {
        if (!gp->ready[i])
            return CT_FAIL(CT_ERR_ARG, "the gradient of %s did not get ready", gp->range[i].key);
    }
    return CT_OK;
}

/* Nothing to do but wait. */
static ct_status idle_on(ct_grad_pipe *gp, int *idle)
{
    MPI_Request *request[CT_COMM_MAX_PENDING];
    double start = ct_clock_s();
    int n = 0;
    ct_status status = CT_OK;

    ct_comm_lock(gp->comm);
    n = ct_grad_pipe_pending(gp, request, CT_COMM_MAX_PENDING);
    ct_comm_unlock(gp->comm);
    *idle += 1;
    status = ct_comm_wait_any(gp->comm, request, n, idle);
    gp->counters.exposed_s += ct_clock_s() - start;
    return status;
}

/* Reports until [first, first + n) is, waiting where it must. The main thread moves by itself.
 * While somebody works on what was reported messages come, so we look again before we wait. */
static ct_status wait_for(ct_grad_pipe *gp, int first, int n, ct_pipe_landed_fn landed, void *ctx)
{
    int idle = 0;

    for (;;) {
        int reported = gp->n_reported;

        CT_TRY(move_timed(gp, &gp->counters.exposed_s));
        CT_TRY(report(gp, landed, ctx));
        if (all_reported(gp, first, n)) return CT_OK;
        if (gp->n_reported > reported)
            idle = 0;
        else
            CT_TRY(idle_on(gp, &idle));
    }
}

static ct_status take_wait(ct_grad_pipe *gp, int first, int n, ct_pipe_landed_fn landed, void *ctx)
{
    ct_status status = CT_OK;

    if (!gp->begun || (first < 0) || (n < 0) || (first + n > gp->n_range))
        return CT_FAIL(CT_ERR_ARG, "wait for gradients %d to %d of %d%s", first, first + n - 1,
                       gp->n_range, gp->begun ? "" : ", before a step");
    if (!gp->open) return CT_OK;
    CT_TRY(check_all_ready(gp));
    CT_TRY(fate(gp));
    atomic_store(&gp->finishing, true);
    CT_TRY(report(gp, landed, ctx));
    if (all_reported(gp, first, n)) return poll(gp);
    if (atomic_load(&gp->threaded)) ct_pipe_thread_hold(gp->thread, true);
    status = wait_for(gp, first, n, landed, ctx);
    if (atomic_load(&gp->threaded)) ct_pipe_thread_hold(gp->thread, false);
    return (status == CT_OK) ? fate(gp) : status;
}

ct_status ct_grad_pipe_wait(ct_grad_pipe *gp, int first, int n, ct_pipe_landed_fn landed, void *ctx)
{
    ct_status status = CT_OK;

    observe(gp, CT_GRAD_ENTER, -1);
    status = take_wait(gp, first, n, landed, ctx);
    observe(gp, CT_GRAD_LEAVE, -1);
    return status;
}

ct_status ct_grad_pipe_finish(ct_grad_pipe *gp, ct_pipe_landed_fn landed, void *ctx)
{
    if (!gp->begun) return CT_FAIL(CT_ERR_ARG, "a gradient exchange ends that did not begin");
    return ct_grad_pipe_wait(gp, 0, gp->n_range, landed, ctx);
}
