#include "comm/grad_pipe.h"

#include <stdlib.h>
#include <string.h>

#include "comm/bucket.h"
#include "framework/base/clock.h"
#include "framework/base/text.h"

enum { MAX_LANES = 256 /* buckets that have tags of their own */ };

struct ct_grad_pipe {
    ct_comm *comm;
    ct_grad_pipe_config config;
    float *arena;
    int n_range, n_bucket, n_lane;
    ct_grad_range *range;
    bool *ready;    /* [n_range] in this step */
    int *bucket_of; /* [n_range] */
    ct_bucket *bucket;
    int *landed; /* [n_bucket] buckets in the order of landing */
    int n_landed, n_reported, n_left;
    bool begun; /* at least once                                     */
    bool open;  /* between begin and the report of the last bucket   */
    bool finishing;
    int64_t iteration;
    ct_grad_pipe_counters counters;
};

/* ---- creation */

static ct_status check_same_plan(ct_comm *comm, uint64_t hash)
{
    int64_t most[2] = { (int64_t)(hash >> 1), -(int64_t)(hash >> 1) };

    CT_TRY(ct_comm_max(comm, most, 2));
    if (most[0] != -most[1])
        return CT_FAIL(CT_ERR_CONFIG, "the ranks cut the gradients into different buckets: they do "
                                      "not run the same net or options");
    return CT_OK;
}

static void log_plan(const ct_grad_pipe *gp)
{
    ct_text used = { .text = NULL };
    int64_t total = 0;
    int n_coded = 0;

    for (int i = 0; i < gp->n_bucket; ++i) {
        const ct_bucket *b = &gp->bucket[i];
        const char *name = ct_bucket_algorithm(b, !b->cut.coded);
        int same = 0;

        total += b->cut.count * (int64_t)sizeof(float);
        n_coded += b->cut.coded;
        for (int j = 0; j < gp->n_bucket; ++j) {
            if (strcmp(ct_bucket_algorithm(&gp->bucket[j], !gp->bucket[j].cut.coded), name) != 0)
                continue;
            if (j < i) break;
            same += 1;
        }
        if (same > 0) ct_text_add(&used, "%s%s x %d", (used.length > 0) ? ", " : "", name, same);
        CT_DEBUG("bucket %d: %s to %s, %lld elements, %s, predicted %.3f ms", i,
                 gp->range[b->cut.first].key, gp->range[b->cut.first + b->cut.n - 1].key,
                 (long long)b->cut.count, name, 1e3 * ct_bucket_predicted_s(b));
    }
    CT_INFO("gradients: %.3f MB in %d buckets (%s), %d through codec %s, overlap %s",
            1e-6 * (double)total, gp->n_bucket, (used.text != NULL) ? used.text : "none", n_coded,
            gp->config.codec->name, gp->config.overlap ? "on" : "off");
    if (gp->config.reproducible && (gp->comm->size > 1))
        CT_INFO("reproducible sums: gradients travel as 64-bit integers, %.3f MB and %.3f MB of "
                "exponents a step in place of %.3f MB; memory for as much on every rank",
                2e-6 * (double)total, 1e-6 * (double)total / 32, 1e-6 * (double)total);
    ct_text_destroy(&used);
}

static ct_status acquire_lists(ct_grad_pipe *gp, const ct_grad_range *range, int n_cut)
{
    gp->range = malloc(sizeof(*gp->range) * (size_t)(gp->n_range + 1));
    gp->ready = calloc((size_t)gp->n_range + 1, sizeof(*gp->ready));
    gp->bucket_of = calloc((size_t)gp->n_range + 1, sizeof(*gp->bucket_of));
    gp->bucket = calloc((size_t)n_cut + 1, sizeof(*gp->bucket));
    gp->landed = calloc((size_t)n_cut + 1, sizeof(*gp->landed));
    if ((gp->range == NULL) || (gp->ready == NULL) || (gp->bucket_of == NULL) ||
        (gp->bucket == NULL) || (gp->landed == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a gradient pipe");
    if (gp->n_range > 0) memcpy(gp->range, range, sizeof(*range) * (size_t)gp->n_range);
    return CT_OK;
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
        b->key = gp->range[cut[i].first].key;
        b->grad = gp->arena + cut[i].offset;
        b->cut = cut[i];
        atomic_store(&b->state, CT_BUCKET_SUMMED); /* no step has begun */
        for (int k = 0; k < cut[i].n; ++k) gp->bucket_of[cut[i].first + k] = i;
        CT_TRY(ct_bucket_prepare(b, tag + i % gp->n_lane * CT_COLL_TAGS));
    }
    return CT_OK;
}

ct_status ct_grad_pipe_create(ct_comm *comm, const ct_grad_pipe_config *config, float *arena,
                              const ct_grad_range *range, int n_range, ct_grad_pipe **gp_p)
{
    ct_grad_pipe *gp = NULL;
    ct_bucket_cut *cut = NULL;
    const ct_coll_ops *known = NULL;
    int n_cut = 0;
    ct_status status = CT_OK;

    /* a wrong name is wrong on one rank too, where nothing else asks for it */
    CT_TRY(ct_coll_choose(comm, 1, CT_F32, config->allreduce, &known));
    CT_TRY(ct_grad_plan_cut(config, range, n_range, &cut, &n_cut));
    gp = calloc(1, sizeof(*gp));
    if (gp == NULL) {
        free(cut);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a gradient pipe");
    }
    gp->comm = comm;
    gp->config = *config;
    gp->arena = arena;
    gp->n_range = n_range;
    CT_TRY_GOTO(status, err_destroy,
                check_same_plan(comm, ct_grad_plan_hash(config, range, n_range, cut, n_cut)));
    CT_TRY_GOTO(status, err_destroy, acquire_lists(gp, range, n_cut));
    CT_TRY_GOTO(status, err_destroy, create_buckets(gp, cut, n_cut));
    log_plan(gp);
    free(cut);
    *gp_p = gp;
    return CT_OK;

err_destroy:
    free(cut);
    ct_grad_pipe_destroy(gp);
    return status;
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
    log_measured(gp);
    for (int i = 0; i < gp->n_bucket; ++i) ct_bucket_release(&gp->bucket[i]);
    free(gp->range);
    free(gp->ready);
    free(gp->bucket_of);
    free(gp->bucket);
    free(gp->landed);
    free(gp);
}

/* ---- a step */

ct_status ct_grad_pipe_begin(ct_grad_pipe *gp, int64_t iteration)
{
    if (gp->open) return CT_FAIL(CT_ERR_ARG, "a gradient exchange begins inside another");
    gp->iteration = iteration;
    gp->n_landed = gp->n_reported = gp->n_left = 0;
    memset(gp->ready, 0, sizeof(*gp->ready) * (size_t)gp->n_range);
    for (int i = 0; i < gp->n_bucket; ++i) {
        atomic_store(&gp->bucket[i].state, CT_BUCKET_FILLING);
        atomic_store(&gp->bucket[i].missing, gp->bucket[i].cut.n);
    }
    gp->begun = gp->open = true;
    gp->finishing = false;
    return CT_OK;
}

/* Buckets leave in one order on all ranks, whatever the order in which gradients get ready. */
static ct_status leave_what_may(ct_grad_pipe *gp)
{
    while (gp->n_left < gp->n_bucket) {
        int i = gp->n_left;

        if (atomic_load(&gp->bucket[i].missing) > 0) return CT_OK;
        /* its tags are still in use */
        if ((i >= gp->n_lane) &&
            (atomic_load(&gp->bucket[i - gp->n_lane].state) != CT_BUCKET_SUMMED))
            return CT_OK;
        gp->n_left += 1;
        CT_TRY(ct_bucket_leave(&gp->bucket[i], gp->iteration));
    }
    return CT_OK;
}

static ct_status move_all(ct_grad_pipe *gp)
{
    bool in_turn = true; /* in the order in which they left */

    if (gp->finishing || gp->config.overlap) CT_TRY(leave_what_may(gp));
    for (int i = 0; i < gp->n_left; ++i) {
        ct_status status = CT_OK;

        if (atomic_load(&gp->bucket[i].state) != CT_BUCKET_RUNNING) continue;
        status = ct_bucket_progress(&gp->bucket[i], in_turn);
        in_turn = in_turn && ct_bucket_is_started(&gp->bucket[i]);
        if (status == CT_INPROGRESS) continue;
        CT_TRY(status);
        gp->landed[gp->n_landed++] = i;
    }
    return CT_OK;
}

static double encode_s(const ct_grad_pipe *gp)
{
    double sum = 0;

    for (int i = 0; i < gp->n_bucket; ++i) sum += gp->bucket[i].encode_s;
    return sum;
}

/* Moves what can move, and adds the time less that of the codecs to *seconds. */
static ct_status move_timed(ct_grad_pipe *gp, double *seconds)
{
    double start = ct_clock_s() - encode_s(gp);

    CT_TRY(move_all(gp));
    *seconds += ct_clock_s() - encode_s(gp) - start;
    return CT_OK;
}

ct_status ct_grad_pipe_poll(ct_grad_pipe *gp)
{
    if (!gp->open || !gp->config.overlap || (gp->n_left == gp->n_landed)) return CT_OK;
    return move_timed(gp, &gp->counters.moving_s);
}

ct_status ct_grad_pipe_ready(ct_grad_pipe *gp, int i)
{
    if (!gp->open || (i < 0) || (i >= gp->n_range) || gp->ready[i])
        return CT_FAIL(CT_ERR_ARG, "gradient %d of %d is ready %s", i, gp->n_range,
                       gp->open ? "twice, or does not exist" : "outside of a step");
    gp->ready[i] = true;
    (void)atomic_fetch_sub(&gp->bucket[gp->bucket_of[i]].missing, 1);
    return gp->config.overlap ? move_timed(gp, &gp->counters.moving_s) : CT_OK;
}

static ct_status report(ct_grad_pipe *gp, ct_pipe_landed_fn landed, void *ctx)
{
    while (gp->n_reported < gp->n_landed) {
        const ct_bucket *b = &gp->bucket[gp->landed[gp->n_reported++]];

        if (landed != NULL) CT_TRY(landed(ctx, b->cut.first, b->cut.n));
    }
    return CT_OK;
}

/* Are the buckets of ranges [first, first + n) here? */
static bool are_summed(const ct_grad_pipe *gp, int first, int n)
{
    for (int i = first; i < first + n; ++i) {
        if (atomic_load(&gp->bucket[gp->bucket_of[i]].state) != CT_BUCKET_SUMMED) return false;
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

ct_status ct_grad_pipe_wait(ct_grad_pipe *gp, int first, int n, ct_pipe_landed_fn landed, void *ctx)
{
    int idle = 0;

    if (!gp->begun || (first < 0) || (n < 0) || (first + n > gp->n_range))
        return CT_FAIL(CT_ERR_ARG, "wait for gradients %d to %d of %d%s", first, first + n - 1,
                       gp->n_range, gp->begun ? "" : ", before a step");
    if (!gp->open) return CT_OK;
    CT_TRY(check_all_ready(gp));
    gp->finishing = true;
    for (;;) {
        double start = 0;

        CT_TRY(move_timed(gp, &gp->counters.exposed_s));
        CT_TRY(report(gp, landed, ctx));
        if (gp->n_reported == gp->n_bucket) gp->open = false;
        if (are_summed(gp, first, n)) break;
        idle += 1;
        start = ct_clock_s();
        ct_comm_relax(gp->comm, &idle);
        gp->counters.exposed_s += ct_clock_s() - start;
    }
    return CT_OK;
}

ct_status ct_grad_pipe_finish(ct_grad_pipe *gp, ct_pipe_landed_fn landed, void *ctx)
{
    if (!gp->begun) return CT_FAIL(CT_ERR_ARG, "a gradient exchange ends that did not begin");
    return ct_grad_pipe_wait(gp, 0, gp->n_range, landed, ctx);
}

/* ---- looking at it */

void ct_grad_pipe_get_counters(const ct_grad_pipe *gp, ct_grad_pipe_counters *out)
{
    *out = gp->counters;
    out->encode_s = encode_s(gp);
    out->bytes_sent = 0;
    for (int i = 0; i < gp->n_bucket; ++i) out->bytes_sent += ct_bucket_bytes_sent(&gp->bucket[i]);
}

float *ct_grad_pipe_residual(ct_grad_pipe *gp, int i)
{
    if ((i < 0) || (i >= gp->n_range)) return NULL;
    return gp->bucket[gp->bucket_of[i]].residual; /* such a bucket has one range */
}

void ct_grad_pipe_describe(const ct_grad_pipe *gp, char *text, size_t size)
{
    for (int i = 0; i < gp->n_bucket; ++i) {
        if (atomic_load(&gp->bucket[i].state) == CT_BUCKET_SUMMED) continue;
        ct_bucket_describe(&gp->bucket[i], i, gp->n_bucket, text, size);
        return;
    }
    snprintf(text, size, "no gradients under way (%d buckets)", gp->n_bucket);
}
