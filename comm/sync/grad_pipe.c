/* A pipe: its creation, its end, and looks at it. */
#include "comm/sync/grad_pipe_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/codec/codec_types.h"
#include "comm/collective/blocking.h"
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
    gp->sums_left = calloc((size_t)gp->n_range + 1, sizeof(*gp->sums_left));
    if ((gp->range == NULL) || (gp->ready == NULL) || (gp->bucket_of == NULL) ||
        (gp->parts_left == NULL) || (gp->parts_full == NULL) || (gp->sums_left == NULL))
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
        b->grad = gp->arena + cut[i].offset + b->range->shift;
        b->cut = cut[i];
        b->iteration = gp->step.iteration;
        atomic_store(&b->state, CT_BUCKET_LANDED); /* no step has begun */
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
    free(gp->order);
    free(gp->summed);
    gp->summed = calloc((size_t)n_cut + 1, sizeof(*gp->summed));
    gp->order = calloc((size_t)n_cut + 1, sizeof(*gp->order));
    gp->bucket = calloc((size_t)n_cut + 1, sizeof(*gp->bucket));
    gp->landed = calloc((size_t)n_cut + 1, sizeof(*gp->landed));
    return ((gp->bucket != NULL) && (gp->landed != NULL) && (gp->order != NULL) &&
            (gp->summed != NULL))
               ? CT_OK
               : CT_FAIL(CT_ERR_NOMEM, "no memory for a gradient pipe");
}

/* The arena has the order of backward, so forward reads what lies last first; but before that a
 * table that is ready early since its rows travel apart. */
static void order_buckets(ct_grad_pipe *gp)
{
    int n = 0;

    for (int beside = 0; beside < 2; ++beside) {
        for (int i = 0; i < gp->n_bucket; ++i) {
            if (gp->bucket[i].range->row_beside == (beside == 1)) gp->order[n++] = i;
        }
    }
}

/* The gradients of a bucket lie as in the arena. */
static ct_status check_places(const ct_grad_pipe *gp, const ct_bucket_cut *cut, int n_cut)
{
    for (int i = 0; i < n_cut; ++i) {
        const ct_grad_range *first = &gp->range[cut[i].first];

        for (int k = 1; k < cut[i].n; ++k) {
            if (first[k].shift != first->shift)
                return CT_FAIL(CT_ERR_ARG, "gradients %s and %s of one bucket lie apart",
                               first->key, first[k].key);
        }
    }
    return CT_OK;
}

ct_status ct_grad_pipe_make_buckets(ct_grad_pipe *gp)
{
    ct_bucket_cut *cut = NULL;
    ct_bucket_sizes sizes;
    int n_cut = 0;
    ct_status status = CT_OK;

    CT_TRY(ct_bucket_sizes_find(gp->comm, &gp->config, gp->range, gp->n_range, &sizes));
    CT_TRY(ct_bucket_partition_cut(&gp->config, &sizes, gp->range, gp->n_range, &cut, &n_cut));
    status = check_places(gp, cut, n_cut);
    if (status == CT_OK)
        status = ct_bucket_partition_compare(gp->comm, &gp->config, gp->range, cut, n_cut);
    if (status == CT_OK) status = acquire_buckets(gp, n_cut);
    if (status == CT_OK) status = create_buckets(gp, cut, n_cut);
    free(cut);
    if (status == CT_OK) order_buckets(gp);
    if (status == CT_OK) log_plan(gp);
    return status;
}

ct_status ct_grad_pipe_cut(ct_comm *comm, const ct_grad_pipe_config *config,
                           const ct_grad_range *range, int n_range, bool *begins)
{
    ct_bucket_cut *cut = NULL;
    ct_bucket_sizes sizes;
    int n_cut = 0;

    CT_TRY(ct_bucket_sizes_find(comm, config, range, n_range, &sizes));
    CT_TRY(ct_bucket_partition_cut(config, &sizes, range, n_range, &cut, &n_cut));
    for (int i = 0; i < n_range; ++i) begins[i] = false;
    for (int i = 0; i < n_cut; ++i) begins[cut[i].first] = true;
    free(cut);
    return CT_OK;
}

static ct_status tell_part(ct_comm *comm, const ct_bucket_cut *b, const ct_grad_range *range, int i,
                           ct_grad_part_fn part, void *ctx)
{
    int64_t first = 0, n = 0, from = 0, count;

    if ((i < b->first) || (i >= b->first + b->n)) return CT_OK;
    CT_TRY(ct_coll_part(comm, b->count, comm->rank, &first, &n));
    count = ct_bucket_own_piece(b, first, n, &range[i], &from);
    return (count > 0) ? part(ctx, i, from, count) : CT_OK;
}

ct_status ct_grad_pipe_parts(ct_comm *comm, const ct_grad_pipe_config *config,
                             const ct_grad_range *range, int n_range, ct_grad_part_fn part,
                             void *ctx)
{
    ct_bucket_cut *cut = NULL;
    ct_bucket_sizes sizes;
    ct_status status = CT_OK;
    int n_cut = 0;

    CT_TRY(ct_bucket_sizes_find(comm, config, range, n_range, &sizes));
    CT_TRY(ct_bucket_partition_cut(config, &sizes, range, n_range, &cut, &n_cut));
    for (int i = 0; i < n_range; ++i) {
        for (int k = 0; (status == CT_OK) && (k < n_cut); ++k)
            status = tell_part(comm, &cut[k], range, i, part, ctx);
    }
    free(cut);
    return status;
}

/* Those of one size take as much, and are dense alike. */
static ct_status count_buckets(const ct_grad_pipe_load *load, const ct_bucket_cut *cut, int n_cut,
                               int64_t *dense, int64_t *each, int64_t *bytes_p)
{
    const ct_grad_policy *policy = load->config->policy;
    int n = 0;

    for (int i = 0; i < n_cut; ++i) {
        int k = 0;

        if (cut[i].coded) continue;
        while ((k < n) && (dense[k] != cut[i].count)) k += 1;
        dense[n] = cut[i].count;
        each[n] = 0;
        if (k < n)
            each[n] = each[k];
        else
            CT_TRY(ct_bucket_count(load, &cut[i], &each[n]));
        *bytes_p += each[n++];
    }
    if ((policy == NULL) || (policy->count == NULL)) return CT_OK;
    return policy->count(load, dense, n, bytes_p);
}

ct_status ct_grad_pipe_count(const ct_grad_pipe_load *load, const ct_grad_range *range, int n_range,
                             int64_t *bytes_p)
{
    const ct_grad_pipe_config *config = load->config;
    int64_t *number = NULL, bytes = 0;
    ct_bucket_cut *cut = NULL;
    ct_bucket_sizes sizes;
    ct_status status = CT_OK;
    int n_cut = 0;

    if (load->comm->size == 1) return CT_OK;
    CT_TRY(ct_bucket_sizes_find(load->comm, config, range, n_range, &sizes));
    CT_TRY(ct_bucket_partition_cut(config, &sizes, range, n_range, &cut, &n_cut));
    number = calloc(2 * (size_t)n_cut + 1, sizeof(*number));
    if (number == NULL)
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for sizes of %d buckets", n_cut);
    else
        status = count_buckets(load, cut, n_cut, number, number + n_cut, &bytes);
    for (int i = 0; (status == CT_OK) && (i < n_cut); ++i) {
        const ct_grad_range *r = &range[cut[i].first];
        int64_t rows = (r->rows > 0) ? r->rows : 1;

        if ((r->row_most > 0) && !cut[i].coded && (cut[i].part == 0))
            bytes += ct_row_sum_size(load->comm, rows, r->count / rows, r->row_most);
    }
    free(number);
    free(cut);
    if (status == CT_OK) *bytes_p += bytes;
    return status;
}

/* Weights that some rank does not round travel as they are. */
static ct_status agree_rounded(ct_grad_pipe *gp)
{
    int64_t *wide;
    ct_status status;

    if (!ct_grad_pipe_has_shards(gp)) return CT_OK;
    wide = calloc((size_t)gp->n_range + 1, sizeof(*wide));
    if (wide == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a gradient pipe");
    for (int i = 0; i < gp->n_range; ++i) wide[i] = !(gp->config.visits && gp->range[i].rounded);
    status = ct_comm_max(gp->comm, wide, gp->n_range);
    for (int i = 0; i < gp->n_range; ++i) gp->range[i].rounded = (wide[i] == 0);
    free(wide);
    return status;
}

static ct_status make(ct_grad_pipe *gp, const ct_grad_range *range)
{
    const ct_grad_policy *policy = gp->config.policy;

    if ((policy == NULL) && (gp->config.codec == &ct_codec_auto))
        return CT_FAIL(CT_ERR_ARG, "codec auto without a policy that chooses");
    CT_TRY(acquire_ranges(gp, range));
    CT_TRY(agree_rounded(gp));
    if (policy != NULL) CT_TRY(policy->create(gp, &gp->policy));
    gp->config.line = NULL; /* the caller's may go */
    CT_TRY(ct_grad_pipe_make_buckets(gp));
    CT_TRY(ct_grad_pipe_make_rows(gp));
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
    gp->mover = (ct_comm_mover){ .move = ct_grad_pipe_move_any,
                                 .pending = ct_grad_pipe_pending,
                                 .ctx = gp };
    ct_comm_plug(comm, &gp->mover);
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

static void stop_threads(ct_grad_pipe *gp)
{
    ct_pipe_thread_destroy(gp->coder); /* which wakes the other */
    ct_pipe_thread_destroy(gp->thread);
    gp->coder = gp->thread = NULL;
}

void ct_grad_pipe_abandon(ct_grad_pipe *gp)
{
    stop_threads(gp);
}

void ct_grad_pipe_destroy(ct_grad_pipe *gp)
{
    if (gp == NULL) return;
    stop_threads(gp);
    ct_comm_unplug(gp->comm, &gp->mover);
    log_measured(gp);
    ct_grad_pipe_log_coding(gp);
    if (gp->policy != NULL) gp->config.policy->destroy(gp->policy);
    ct_grad_pipe_forget_aside(gp);
    for (int i = 0; i < gp->n_bucket; ++i) ct_bucket_release(&gp->bucket[i]);
    ct_grad_pipe_release_rows(gp);
    free(gp->order);
    free(gp->range);
    free(gp->keys);
    free(gp->ready);
    free(gp->bucket_of);
    free(gp->parts_left);
    free(gp->parts_full);
    free(gp->sums_left);
    free(gp->summed);
    free(gp->bucket);
    free(gp->landed);
    free(gp);
}

/* ---- looking at it */

double ct_grad_pipe_encode_s(const ct_grad_pipe *gp)
{
    double sum = gp->stats.encode_s;

    for (int i = 0; i < gp->n_bucket; ++i) sum += gp->bucket[i].encode_s;
    return sum;
}

void ct_grad_pipe_get_stats(const ct_grad_pipe *gp, bool codec, ct_sync_stats *out)
{
    ct_comm_lock(gp->comm);
    *out = gp->stats;
    out->encode_s = ct_grad_pipe_encode_s(gp);
    for (int i = 0; i < gp->n_bucket; ++i) out->bytes_sent += ct_bucket_bytes_sent(&gp->bucket[i]);
    for (int k = 0; k < gp->n_rows; ++k) out->bytes_sent += ct_row_sum_bytes_sent(gp->rows[k].sum);
    if (codec) {
        ct_grad_pipe_rest(gp);
        ct_grad_pipe_add_codec(gp, &out->codec);
    } else {
        out->codec = (ct_codec_totals){ .n_coded = 0 };
    }
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
        ct_bucket *b = &gp->bucket[i];

        ct_bucket_forget_sums(b);
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

void ct_grad_pipe_share(ct_grad_pipe *gp, ct_storage *history)
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
        if (atomic_load(&gp->bucket[i].state) == CT_BUCKET_LANDED) continue;
        ct_bucket_describe(&gp->bucket[i], i, gp->n_bucket, text, size);
        return;
    }
    for (int k = 0; k < gp->n_rows; ++k) {
        const ct_grad_rows *r = &gp->rows[k];

        if (atomic_load(&r->state) != CT_ROWS_RUNNING) continue;
        snprintf(text, size, "rows of %s wait for rank %d", gp->range[r->range].key,
                 atomic_load(&ct_row_sum_where(r->sum)->rank));
        return;
    }
    snprintf(text, size, "no gradients under way (%d buckets)", gp->n_bucket);
}
