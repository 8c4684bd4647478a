/* The gradient pipe: buckets, codecs, overlap, residuals, against sums made by MPI itself. */
#include "comm/collective/blocking.h"
#include "tests/mpi/mpi_test.h"
#include "tests/log_capture.h"
#include "tests/mpi/pipe_rig.h"

#include <malloc.h>
#include <math.h>
#include <stdlib.h>

#include "comm/autotune/autotune.h"
#include "comm/codec/codec_types.h"
#include "comm/sync/grad_pipe.h"
#include "framework/base/sanitizer.h"
#include "framework/base/rng.h"

enum { N_RANGE = 9, N = 60000, STEPS = 3 };

/* Uneven, with padding between them, one empty, two large. */
static const ct_grad_range range[N_RANGE] = {
    { .key = "fc8[0]", .offset = 0, .count = 1000 },
    { .key = "fc8[1]", .offset = 1008, .count = 10 },
    { .key = "fc7[0]", .offset = 1024, .count = 20001 },
    { .key = "fc7[1]", .offset = 21040, .count = 100 },
    { .key = "none[0]", .offset = 21200, .count = 0 },
    { .key = "conv2[0]", .offset = 21200, .count = 2500 },
    { .key = "conv2[1]", .offset = 23712, .count = 33 },
    { .key = "fc6[0]", .offset = 23760, .count = 30000 },
    { .key = "conv1[0]", .offset = 53776, .count = 777 },
};

typedef struct landing {
    int times[N_RANGE];
    int calls;
} landing;

static ct_status note_landed(void *ctx, int first, int n)
{
    landing *l = ctx;

    for (int i = first; i < first + n; ++i) l->times[i] += 1;
    l->calls += 1;
    return CT_OK;
}

/* What every rank gives in every step, and the sums over the ranks: made once. */
static struct {
    bool made;
    float given[STEPS][N];
    double sum[STEPS][N], magnitude[STEPS][N];
} truth;

static void make_truth(const ct_comm *c)
{
    if (truth.made) return;
    for (int s = 0; s < STEPS; ++s) {
        for (int r = 0; r < c->size; ++r) {
            for (int i = 0; i < N_RANGE; ++i) {
                for (int64_t k = range[i].offset; k < range[i].offset + range[i].count; ++k) {
                    float v = mpi_number(r, s, k);

                    if (r == c->rank) truth.given[s][k] = v;
                    truth.sum[s][k] += v;
                    truth.magnitude[s][k] += fabs(v);
                }
            }
        }
    }
    truth.made = true;
}

static void fill(const ct_comm *c, float *arena, int64_t at)
{
    make_truth(c);
    memcpy(arena, truth.given[at], sizeof(truth.given[at]));
}

/* One step; `order` scrambles the order in which gradients get ready. */
static int step(ct_grad_pipe *gp, ct_comm *c, int64_t iteration, bool scrambled, landing *l)
{
    int fault = MPI_FAULT_UNLESS(ct_grad_pipe_begin(gp, iteration, 1, 1) == CT_OK);

    for (uint64_t t = 0; t < N_RANGE; ++t) {
        uint64_t i = scrambled ? ct_rng_permute((uint64_t)c->rank + 77, t, N_RANGE) : t;

        fault += MPI_FAULT_UNLESS(ct_grad_pipe_ready(gp, (int)i) == CT_OK);
        for (int k = 0; k < c->rank; ++k) fault += (ct_grad_pipe_poll(gp) != CT_OK);
    }
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_finish(gp, note_landed, l) == CT_OK);
    return fault;
}

static uint64_t checksum(const float *v, int64_t n)
{
    uint64_t h = 14695981039346656037u;

    for (size_t i = 0; i < sizeof(*v) * (size_t)n; ++i)
        h = (h ^ ((const unsigned char *)v)[i]) * 1099511628211u;
    return h;
}

static int same_on_all(const float *arena)
{
    uint64_t h = checksum(arena, N), least = 0, most = 0;

    MPI_Allreduce(&h, &least, 1, MPI_UINT64_T, MPI_MIN, MPI_COMM_WORLD);
    MPI_Allreduce(&h, &most, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
    return MPI_FAULT_UNLESS(least == most);
}

static bool in_bucket_of_its_own(const ct_grad_pipe_config *config, int i)
{
    return (config->codec != &ct_codec_none) && (range[i].count > 0) &&
           (range[i].count * 4 >= config->codec_config.min_bytes);
}

/* Dense and bf16: each element within the rounding of `terms` additions of unit u. */
static int check_sums(ct_comm *c, const ct_grad_pipe_config *config, const float *arena,
                      const double *sum, const double *magnitude)
{
    int fault = 0;

    for (int i = 0; i < N_RANGE; ++i) {
        bool coded = in_bucket_of_its_own(config, i) && (config->codec == &ct_codec_bf16);
        /* every term is rounded once when encoded, every partial sum at most once more */
        double u = coded ? 0x1p-8 : 0x1p-24, roundings = c->size + 1, wrong = 0;

        for (int64_t k = range[i].offset; k < range[i].offset + range[i].count; ++k)
            wrong += !(fabs(arena[k] - sum[k]) <= 1.1 * roundings * u * magnitude[k]);
        if (wrong > 0) fprintf(stderr, "rank %d: %s: %g wrong\n", c->rank, range[i].key, wrong);
        fault += (wrong > 0);
    }
    for (int64_t k = 1018; k < 1024; ++k) fault += (arena[k] != 0); /* padding */
    return fault;
}

/* topk: what has arrived and what the ranks kept add up to all gradients so far. Exact up to the
 * additions: one per step in each residual, one per rank in the sum. */
static int check_balance(ct_comm *c, ct_grad_pipe *gp, const double *arrived, const double *given,
                         const double *magnitude)
{
    double *kept = calloc(N, sizeof(*kept));
    int fault = 0, wrong = 0;

    for (int i = 0; i < N_RANGE; ++i) {
        const float *residual = pipe_residual(gp, i);

        for (int64_t k = 0; (residual != NULL) && (k < range[i].count); ++k)
            kept[range[i].offset + k] = residual[k];
    }
    MPI_Allreduce(MPI_IN_PLACE, kept, N, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int k = 0; k < N; ++k)
        wrong += !(fabs(arrived[k] + kept[k] - given[k]) <=
                   1.1 * (STEPS + c->size) * 0x1p-24 * magnitude[k]);
    fault += MPI_FAULT_UNLESS(wrong == 0);
    free(kept);
    return fault;
}

/* Several steps with one configuration; *h_p: what they ended with. */
static int run(ct_comm *c, const ct_grad_pipe_config *config, bool scrambled, uint64_t *h_p)
{
    const ct_arena_ops *mem = ct_comm_arena(c);
    ct_grad_pipe *gp = NULL;
    ct_sync_stats counters;
    void *block = NULL;
    float *arena = NULL;
    double *list = calloc(3 * N, sizeof(*list));
    double *arrived = list, *given = list + N, *moved = list + 2 * N;
    int fault = 0;

    fault += MPI_FAULT_UNLESS(mem->acquire(mem->ctx, sizeof(*arena) * N, "arena", &block) == CT_OK);
    arena = block;
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_create(c, config, arena, range, N_RANGE, &gp) == CT_OK);
    *h_p = 0;
    for (int64_t s = 0; (s < STEPS) && (fault == 0); ++s) {
        landing l = { .calls = 0 };

        fill(c, arena, s);
        fault += step(gp, c, s, scrambled, &l);
        for (int i = 0; i < N_RANGE; ++i) fault += MPI_FAULT_UNLESS(l.times[i] == 1);
        for (int i = 0; i < N; ++i) {
            arrived[i] += arena[i];
            given[i] += truth.sum[s][i];
            moved[i] += truth.magnitude[s][i];
        }
        if (!ct_codec_keeps(config->codec, &config->codec_config))
            fault += check_sums(c, config, arena, truth.sum[s], truth.magnitude[s]);
        fault += same_on_all(arena);
        *h_p = *h_p * 31 + checksum(arena, N);
    }
    if ((fault == 0) && ct_codec_keeps(config->codec, &config->codec_config))
        fault += check_balance(c, gp, arrived, given, moved);
    ct_grad_pipe_get_stats(gp, false, &counters);
    fault += MPI_FAULT_UNLESS((counters.exposed_s >= 0) && (counters.encode_s >= 0));
    fault += MPI_FAULT_UNLESS((c->size == 1) == (counters.bytes_sent == 0));
    ct_grad_pipe_destroy(gp);
    mem->release(mem->ctx, arena);
    free(list);
    return fault;
}

static int all_codecs(ct_comm *c)
{
    static const char *const how[] = { "hier", "ring", "impi" };
    int fault = 0;

    for (const ct_codec_ops *const *codec = ct_codec_table; *codec != NULL; ++codec) {
        for (int v = 0; !pipe_skips(*codec) && (v < 6); ++v) {
            ct_grad_pipe_config config = {
                .bucket_bytes = (v < 3) ? 16384 : 1000000,
                .allreduce = how[v % 3],
                .overlap = (v % 2 == 0),
                .codec = *codec,
                .codec_config = { .density = 0.05f, .min_bytes = 40000 },
            };
            uint64_t first = 0, again = 0;

            fault += run(c, &config, v >= 3, &first);
            fault += run(c, &config, v < 3, &again); /* the order of ready must not show */
            if (strcmp(how[v % 3], "impi") != 0) fault += MPI_FAULT_UNLESS(first == again);
        }
    }
    return fault;
}

/* Dense until the warm-up is over, and a residual that is there goes along. */
static int warm_up(ct_comm *c)
{
    ct_grad_pipe_config config = { .bucket_bytes = 16384, .allreduce = "auto", .overlap = true };
    ct_grad_pipe *gp = NULL;
    float *arena = calloc(N, sizeof(*arena)), *residual = NULL;
    double *sum = malloc(sizeof(*sum) * N), *magnitude = malloc(sizeof(*magnitude) * N);
    landing l = { .calls = 0 };
    int fault = 0, zeros = 0;

    config.codec = &ct_codec_topk;
    config.codec_config =
        (ct_codec_config){ .density = 0.01f, .min_bytes = 40000, .warmup_iterations = 2 };
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_create(c, &config, arena, range, N_RANGE, &gp) == CT_OK);
    residual = pipe_residual(gp, 7);
    fault += MPI_FAULT_UNLESS((residual != NULL) && (pipe_residual(gp, 0) == NULL));
    fault +=
        MPI_FAULT_UNLESS((pipe_residual(gp, -1) == NULL) && (pipe_residual(gp, N_RANGE) == NULL));
    if (fault > 0) return fault;
    for (int64_t s = 0; s < 2; ++s) {
        fill(c, arena, s);
        residual[5] = 0.25f; /* far below the update's norm, so that it all goes */
        fault += step(gp, c, s, false, &l);
        memcpy(sum, truth.sum[s], sizeof(*sum) * N);
        memcpy(magnitude, truth.magnitude[s], sizeof(*magnitude) * N);
        sum[range[7].offset + 5] += 0.25 * c->size;
        magnitude[range[7].offset + 5] += 0.25 * c->size;
        fault += check_sums(c, &config, arena, sum, magnitude);
        fault += MPI_FAULT_UNLESS(residual[5] == 0);
    }
    fill(c, arena, 2);
    fault += step(gp, c, 2, false, &l);
    for (int64_t k = 0; k < range[7].count; ++k) zeros += (arena[range[7].offset + k] == 0);
    fault += MPI_FAULT_UNLESS(zeros >= range[7].count - 300 * c->size);
    ct_grad_pipe_destroy(gp);
    free(arena);
    free(sum);
    free(magnitude);
    return fault;
}

static log_capture said;

static int errors(ct_comm *c)
{
    ct_grad_range bad[2] = { { .key = "a[0]", .offset = 0, .count = 100 },
                             { .key = "b[0]", .offset = 50, .count = 100 } };
    ct_grad_pipe_config config = { .bucket_bytes = 1000, .allreduce = "auto", .overlap = true };
    ct_grad_pipe *gp = NULL;
    float arena[256] = { 0 };
    landing l = { .calls = 0 };
    char text[256] = "";
    int fault = 0;

    config.codec = &ct_codec_none;
    log_capture_start(&said);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_create(c, &config, arena, bad, 2, &gp) == CT_ERR_ARG);
    bad[1].offset = 100;
    config.bucket_bytes = -1;
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_create(c, &config, arena, bad, 2, &gp) == CT_ERR_CONFIG);
    config.bucket_bytes = 1000;
    config.codec = &ct_codec_topk;
    for (int i = 0; i < 3; ++i) {
        config.codec_config.density = (i == 0) ? 0 : (i == 1) ? 1.01f : NAN;
        fault +=
            MPI_FAULT_UNLESS(ct_grad_pipe_create(c, &config, arena, bad, 2, &gp) == CT_ERR_CONFIG);
    }
    config.codec = &ct_codec_none;
    config.allreduce = "trie";
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_create(c, &config, arena, bad, 2, &gp) == CT_ERR_CONFIG);
    config.allreduce = "auto";
    if (c->size > 1) { /* ranks that do not agree are told so, and none hangs */
        bad[1].count = (c->rank == 0) ? 100 : 99;
        fault +=
            MPI_FAULT_UNLESS(ct_grad_pipe_create(c, &config, arena, bad, 2, &gp) == CT_ERR_CONFIG);
        bad[1].count = 100;
    }
    fault += MPI_FAULT_UNLESS(gp == NULL);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_create(c, &config, arena, bad, 2, &gp) == CT_OK);
    ct_grad_pipe_describe(gp, text, sizeof(text));
    fault += MPI_FAULT_UNLESS(strstr(text, "no gradients under way") != NULL);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_ready(gp, 0) == CT_ERR_ARG);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_finish(gp, NULL, NULL) == CT_ERR_ARG);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_begin(gp, 0, 1, 1) == CT_OK);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_begin(gp, 0, 1, 1) == CT_ERR_ARG);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_ready(gp, 2) == CT_ERR_ARG);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_ready(gp, 1) == CT_OK);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_ready(gp, 1) == CT_ERR_ARG);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_finish(gp, note_landed, &l) == CT_ERR_ARG);
    fault += MPI_FAULT_UNLESS(strstr(said.error, "a[0]") != NULL);
    ct_grad_pipe_describe(gp, text, sizeof(text));
    fault += MPI_FAULT_UNLESS(strstr(text, "(a[0]) has not left: 1 of its 2 gradients") != NULL);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_ready(gp, 0) == CT_OK);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_finish(gp, note_landed, &l) == CT_OK);
    fault += MPI_FAULT_UNLESS((l.times[0] == 1) && (l.times[1] == 1));
    ct_grad_pipe_destroy(gp);
    ct_grad_pipe_destroy(NULL);
    log_capture_stop();
    return fault;
}

/* Does range i hold the dense sum of step s? */
static bool is_summed(const ct_comm *c, const float *arena, int64_t s, int i)
{
    bool good = true;

    for (int64_t k = range[i].offset; k < range[i].offset + range[i].count; ++k)
        good &= fabs(arena[k] - truth.sum[s][k]) <=
                1.1 * (c->size + 1) * 0x1p-24 * truth.magnitude[s][k];
    return good;
}

/* Waits in another order than buckets leave; each range is reported once, none is forgotten. */
static int waits(ct_comm *c)
{
    static float arena[N];

    int fault = 0;

    for (int overlap = 0; overlap < 2; ++overlap) {
        ct_grad_pipe_config config = { .bucket_bytes = 9000, .allreduce = "auto" };
        ct_grad_pipe *gp = NULL;

        config.overlap = (overlap != 0);
        config.codec = &ct_codec_none;
        fault +=
            MPI_FAULT_UNLESS(ct_grad_pipe_create(c, &config, arena, range, N_RANGE, &gp) == CT_OK);
        fault += MPI_FAULT_UNLESS(ct_grad_pipe_wait(gp, 0, 1, NULL, NULL) == CT_ERR_ARG);
        for (int64_t s = 0; s < STEPS; ++s) {
            landing l = { .calls = 0 };
            uint64_t key = ct_rng_key(3, (uint64_t)s, 0);

            fill(c, arena, s);
            fault += MPI_FAULT_UNLESS(ct_grad_pipe_begin(gp, s, 1, 1) == CT_OK);
            fault += MPI_FAULT_UNLESS(ct_grad_pipe_wait(gp, 0, 1, NULL, NULL) == CT_ERR_ARG);
            for (int i = 0; i < N_RANGE; ++i)
                fault += MPI_FAULT_UNLESS(ct_grad_pipe_ready(gp, i) == CT_OK);
            for (uint64_t k = 0; k < N_RANGE - 2; ++k) {
                int i = (int)ct_rng_permute(key, k, N_RANGE);

                fault += MPI_FAULT_UNLESS(ct_grad_pipe_wait(gp, i, 1, note_landed, &l) == CT_OK);
                fault += MPI_FAULT_UNLESS(l.times[i] == 1);
                fault += MPI_FAULT_UNLESS(is_summed(c, arena, s, i));
            }
            fault += MPI_FAULT_UNLESS(ct_grad_pipe_finish(gp, note_landed, &l) == CT_OK);
            fault += MPI_FAULT_UNLESS(ct_grad_pipe_finish(gp, note_landed, &l) == CT_OK);
            fault += MPI_FAULT_UNLESS(ct_grad_pipe_wait(gp, 3, 2, note_landed, &l) == CT_OK);
            for (int i = 0; i < N_RANGE; ++i) fault += MPI_FAULT_UNLESS(l.times[i] == 1);
        }
        fault += MPI_FAULT_UNLESS(ct_grad_pipe_wait(gp, 8, 2, NULL, NULL) == CT_ERR_ARG);
        ct_grad_pipe_destroy(gp);
    }
    return fault;
}

/* Rank 0 starts a bucket that the others hold back: it knows what it waits for. */
static int description(ct_comm *c)
{
    const ct_grad_range one = { .key = "fc6[0]", .offset = 0, .count = 4096 };
    ct_grad_pipe_config config = { .bucket_bytes = 1000, .allreduce = "ring", .overlap = true };
    ct_grad_pipe *gp = NULL;
    static float arena[4096];
    char text[256] = "";
    int fault = 0;

    config.codec = &ct_codec_none;
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_create(c, &config, arena, &one, 1, &gp) == CT_OK);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_begin(gp, 0, 1, 1) == CT_OK);
    if (c->rank == 0) {
        fault += MPI_FAULT_UNLESS(ct_grad_pipe_ready(gp, 0) == CT_OK);
        ct_grad_pipe_describe(gp, text, sizeof(text));
        if (c->size > 1) {
            char expected[128];

            snprintf(expected, sizeof(expected),
                     "bucket 0 of 1 (fc6[0], ring, step 0 of %d) waits for rank %d",
                     2 * (c->size - 1), c->topo->order[c->size - 1]);
            fault += MPI_FAULT_UNLESS(strcmp(text, expected) == 0);
            ct_grad_pipe_describe(gp, text, 12); /* short buffers end in a NUL */
            fault += MPI_FAULT_UNLESS(strlen(text) == 11);
        }
    }
    ct_comm_barrier(c);
    if (c->rank != 0) fault += MPI_FAULT_UNLESS(ct_grad_pipe_ready(gp, 0) == CT_OK);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_finish(gp, NULL, NULL) == CT_OK);
    ct_grad_pipe_destroy(gp);
    return fault;
}

/* A NaN on one rank ends the step there, with the gradient's name. */
static int diverged(ct_comm *c)
{
    const ct_grad_range one = { .key = "fc6[0]", .offset = 0, .count = 4096 };
    ct_grad_pipe_config config = { .bucket_bytes = 1000, .allreduce = "auto", .overlap = true };
    ct_grad_pipe *gp = NULL;
    static float arena[4096];
    int fault = 0;

    config.codec = &ct_codec_topk;
    config.codec_config.density = 0.1f;
    config.codec_config.exchange = "allgather"; /* selects at once: hier adds the node up first */
    arena[17] = NAN;
    log_capture_start(&said);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_create(c, &config, arena, &one, 1, &gp) == CT_OK);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_begin(gp, 4, 1, 1) == CT_OK);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_ready(gp, 0) == CT_ERR_DIVERGED);
    fault += MPI_FAULT_UNLESS(strstr(said.error, "fc6[0], iteration 4") != NULL);
    log_capture_stop();
    ct_grad_pipe_destroy(gp);
    return fault;
}

/* More buckets than there are lanes of tags. */
static int many_buckets(ct_comm *c)
{
    enum { MANY = 600, EACH = 5 };
    ct_grad_range *list = malloc(sizeof(*list) * MANY);
    ct_grad_pipe_config config = { .bucket_bytes = 4, .allreduce = "ring", .overlap = true };
    ct_grad_pipe *gp = NULL;
    float *arena = malloc(sizeof(*arena) * MANY * EACH);
    int fault = 0, wrong = 0;

    config.codec = &ct_codec_none;
    for (int i = 0; i < MANY; ++i)
        list[i] = (ct_grad_range){ .key = "p", .offset = (int64_t)i * EACH, .count = EACH };
    for (int i = 0; i < MANY * EACH; ++i) arena[i] = (float)(i % 100 + c->rank);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_create(c, &config, arena, list, MANY, &gp) == CT_OK);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_begin(gp, 0, 1, 1) == CT_OK);
    for (int i = 0; i < MANY; ++i) fault += (ct_grad_pipe_ready(gp, i) != CT_OK);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_finish(gp, NULL, NULL) == CT_OK);
    for (int i = 0; i < MANY * EACH; ++i)
        wrong += (arena[i] != (float)(c->size * (i % 100) + c->size * (c->size - 1) / 2));
    fault += MPI_FAULT_UNLESS(wrong == 0);
    ct_grad_pipe_destroy(gp);
    free(list);
    free(arena);
    return fault;
}

/* Bytes that this process has from malloc(); 0: unknown. */
static int64_t taken(void)
{
#if defined(__GLIBC__) && !CT_SAN_ADDRESS
#if __GLIBC_PREREQ(2, 33)
    struct mallinfo2 m = mallinfo2();

    return (int64_t)m.uordblks + (int64_t)m.hblkhd;
#endif
#endif
    return 0;
}

/* What a pipe takes is what was counted before: windows of nodes aside, which are MPI's, and
 * buffers of MPI's own sums, which come with a sum: at most those of one bucket, where one tries.
 */
static int count_one(ct_comm *c, const char *way, bool shards, float *arena, float *weights)
{
    enum { EACH = 512 << 10, SMALL = 256 << 10 };
    const ct_grad_range two[2] = { { .key = "b", .count = EACH },
                                   { .key = "a", .offset = EACH, .count = EACH } };
    bool tries = (strcmp(way, "auto") == 0);
    ct_grad_pipe_config config = { .policy = &ct_autotune,
                                   .bucket_bytes = EACH * 4,
                                   .allreduce = way,
                                   .overlap = true,
                                   .codec = &ct_codec_none,
                                   .tune_iterations = tries ? 8 : 0,
                                   .progress = CT_PROGRESS_POLL };
    ct_grad_pipe_load load = { .comm = c, .config = &config, .shards = shards, .shared = true };
    ct_grad_pipe *gp = NULL;
    int64_t bytes = 0, before, grown;
    int fault = MPI_FAULT_UNLESS(ct_grad_pipe_count(&load, two, 2, &bytes) == CT_OK);

    config.weights = shards ? weights : NULL;
    before = taken();
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_create(c, &config, arena, two, 2, &gp) == CT_OK);
    grown = taken() - before;
    ct_grad_pipe_destroy(gp);
    if ((c->size == 1) || (taken() == 0))
        return fault + MPI_FAULT_UNLESS((c->size > 1) || (bytes == 0));
    if ((grown > bytes + SMALL) || (bytes > grown + SMALL + (tries ? EACH * 4 : 0))) {
        fprintf(stderr, "rank %d: %s: %lld bytes, %lld counted\n", c->rank, way, (long long)grown,
                (long long)bytes);
        fault += 1;
    }
    return fault;
}

static int counts(ct_comm *c)
{
    static const char *const way[] = { "ring", "tree", "hier", "auto" };
    enum { ALL = 1 << 20 };
    const ct_arena_ops *memory = ct_comm_arena(c);
    float *weights = calloc(ALL, sizeof(*weights));
    void *arena = NULL;
    int fault = 0;

    fault += MPI_FAULT_UNLESS(memory->acquire(memory->ctx, ALL * sizeof(float), "a test", &arena) ==
                              CT_OK);
    for (size_t i = 0; i < sizeof(way) / sizeof(way[0]); ++i)
        fault += count_one(c, way[i], false, arena, weights);
    fault += count_one(c, "rhd", true, arena, weights);
    fault += count_one(c, "auto", true, arena, weights); /* both halves are tried */
    memory->release(memory->ctx, arena);
    free(weights);
    return fault;
}

static void test_counts(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(counts)), 0);
}

static void test_codecs(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(all_codecs)), 0);
}

static void test_warm_up(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(warm_up)), 0);
}

static void test_errors(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(errors)), 0);
    assert_int_equal(mpi_verdict(mpi_on_machines(diverged)), 0);
}

static void test_description(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(description)), 0);
}

static void test_waits(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(waits)), 0);
}

static void test_many_buckets(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(many_buckets)), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_codecs),       cmocka_unit_test(test_warm_up),
    cmocka_unit_test(test_errors),       cmocka_unit_test(test_description),
    cmocka_unit_test(test_many_buckets), cmocka_unit_test(test_waits),
    cmocka_unit_test(test_counts),
};

MPI_MAIN(tests, 120)
