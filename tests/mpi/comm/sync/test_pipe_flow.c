/* Gradients that travel on into the next forward: waits in any order, delays, split gradients,
 * priorities, the progress thread, algorithms that change; and plans that differ. */
#include "comm/autotune/autotune.h"
#include "comm/collective/blocking.h"
#include "tests/mpi/mpi_test.h"
#include "tests/log_capture.h"
#include "tests/mpi/pipe_rig.h"

#include <math.h>
#include <stdlib.h>

#include "comm/codec/codec_types.h"
#include "comm/sync/grad_pipe.h"
#include "comm/sync/bucket_partition.h"
#include "framework/base/rng.h"

enum { N_RANGE = 10, N = 430000 };

/* Odd sizes, gaps, empty ones; the large one is several buckets where sizes are automatic. */
static const ct_grad_range range[N_RANGE] = {
    { .key = "fc8[0]", .offset = 0, .count = 4097 },
    { .key = "fc8[1]", .offset = 4112, .count = 3 },
    { .key = "fc7[0]", .offset = 4128, .count = 70001 },
    { .key = "none[0]", .offset = 74144, .count = 0 },
    { .key = "fc6[0]", .offset = 74144, .count = 270013 },
    { .key = "fc6[1]", .offset = 344160, .count = 1 },
    { .key = "conv2[0]", .offset = 344176, .count = 33000 },
    { .key = "none[1]", .offset = 377184, .count = 0 },
    { .key = "conv1[0]", .offset = 377184, .count = 49999 },
    { .key = "conv1[1]", .offset = 427184, .count = 17 },
};

/* Small integers: all sums are exact, in bf16 too, in whatever order. */
static int residue(int64_t step, int64_t k)
{
    return (int)((7 * k + k / 64 + 5 * step) % 17);
}

static float value(int rank, int64_t step, int64_t k)
{
    return (float)((residue(step, k) + 13 * rank) % 17 - 8);
}

/* of[residue]: the sum over the ranks. */
typedef struct totals {
    float of[17];
} totals;

static totals make_totals(const ct_comm *c)
{
    totals t = { .of = { 0 } };

    for (int m = 0; m < 17; ++m) {
        for (int r = 0; r < c->size; ++r) t.of[m] += (float)((m + 13 * r) % 17 - 8);
    }
    return t;
}

/* What ranks give, or their sums, 64 elements at a time: of[m] is what lies where a residue is m at
 * the beginning of 64. */
typedef struct rows_of {
    float of[17][64];
} rows_of;

static void make_rows(const float of_residue[17], rows_of *t)
{
    for (int m = 0; m < 17; ++m) {
        for (int j = 0; j < 64; ++j) t->of[m][j] = of_residue[(7 * j + m) % 17];
    }
}

static const float *row_at(const rows_of *t, int64_t step, int64_t k)
{
    return &t->of[residue(step, k / 64 * 64)][k % 64];
}

/* Elements from k to end, or to the end of 64. */
static int64_t row_n(int64_t k, int64_t end)
{
    int64_t n = 64 - k % 64;

    return (n < end - k) ? n : end - k;
}

/* of a rank */
static void make_given(int rank, rows_of *t)
{
    float of[17];

    for (int m = 0; m < 17; ++m) of[m] = (float)((m + 13 * rank) % 17 - 8);
    make_rows(of, t);
}

static void give(const rows_of *t, int64_t step, int64_t from, int64_t end, float *v)
{
    for (int64_t k = from, n; k < end; k += n) {
        n = row_n(k, end);
        memcpy(v + (k - from), row_at(t, step, k), (size_t)n * sizeof(*v));
    }
}

static int count_other(const rows_of *t, int64_t step, int64_t from, int64_t end, const float *v)
{
    int wrong = 0;

    for (int64_t k = from, n; k < end; k += n) {
        const float *row = row_at(t, step, k), *at = v + (k - from);

        n = row_n(k, end);
        for (int64_t j = 0; j < n; ++j) wrong += (at[j] != row[j]);
    }
    return wrong;
}

static void fill(const ct_comm *c, float *arena, int64_t step)
{
    memset(arena, 0, sizeof(*arena) * N);
    for (int i = 0; i < N_RANGE; ++i) {
        for (int64_t k = range[i].offset; k < range[i].offset + range[i].count; ++k)
            arena[k] = value(c->rank, step, k);
    }
}

/* What a net does with gradients that land: it looks at them, and then they are garbage. */
typedef struct reader {
    totals expected;
    float *arena;
    double *arrived; /* [N] sums of all steps, or NULL: they are compared */
    int64_t step;
    int times[N_RANGE], wrong;
    int64_t parts[N_RANGE]; /* elements that were heard of as parts */
    int order[N_RANGE], n;  /* of reports */
} reader;

/* A part, while others of its gradient may still be under way. */
static ct_status on_part(void *ctx, int i, int64_t from, int64_t count)
{
    reader *r = ctx;

    r->wrong += (r->times[i] > 0) || (from != r->parts[i]) || (count <= 0);
    r->parts[i] += count;
    for (int64_t k = range[i].offset + from; k < range[i].offset + from + count; ++k)
        r->wrong += (r->arrived == NULL) && (r->arena[k] != r->expected.of[residue(r->step, k)]);
    return CT_OK;
}

static ct_status on_landed(void *ctx, int first, int n)
{
    reader *r = ctx;

    for (int i = first; i < first + n; ++i) {
        r->times[i] += 1;
        r->wrong += (r->parts[i] != 0) && (r->parts[i] != range[i].count);
        r->order[r->n++ % N_RANGE] = i;
        for (int64_t k = range[i].offset; k < range[i].offset + range[i].count; ++k) {
            if (r->arrived != NULL)
                r->arrived[k] += r->arena[k];
            else
                r->wrong += (r->arena[k] != r->expected.of[residue(r->step, k)]);
            r->arena[k] = NAN;
        }
    }
    return CT_OK;
}

static void delay(uint64_t key, uint64_t at)
{
    uint64_t dice = ct_rng_permute(key, at % 64, 64);

    if (dice < 16) usleep((useconds_t)(20 * dice));
}

/* A gradient whose first elements are there some time before the others. */
static int come(ct_grad_pipe *gp, const reader *r, int rank, int i)
{
    float *g = r->arena + range[i].offset;
    int64_t n = range[i].count;
    int fault = 0;

    for (int64_t part = 0; (part < 3) && (n > 1000) && (rank % 2 == 0); ++part) {
        int64_t end = n * part / 3 + rank;

        for (int64_t k = end; k < n; ++k) g[k] = NAN;
        fault += MPI_FAULT_UNLESS(ct_grad_pipe_ready_to(gp, i, end) == CT_OK);
        fault += MPI_FAULT_UNLESS(ct_grad_pipe_poll(gp) == CT_OK);
        for (int64_t k = end; k < n; ++k) g[k] = value(rank, r->step, range[i].offset + k);
    }
    return fault + MPI_FAULT_UNLESS(ct_grad_pipe_ready(gp, i) == CT_OK);
}

/* Backward and the next forward: every rank has its own order of gradients, waits and delays. */
static int step(ct_grad_pipe *gp, ct_comm *c, reader *r, bool leave_some)
{
    uint64_t key = ct_rng_key(21, (uint64_t)c->rank, (uint64_t)r->step);
    int fault = MPI_FAULT_UNLESS(ct_grad_pipe_begin(gp, r->step, 1, 1) == CT_OK);
    double ranks = 1;

    memset(r->times, 0, sizeof(r->times));
    memset(r->parts, 0, sizeof(r->parts));
    ct_grad_pipe_hear_parts(gp, on_part, r);
    r->n = 0;
    for (uint64_t t = 0; t < N_RANGE; ++t) {
        delay(key, t);
        fault += come(gp, r, c->rank, (int)ct_rng_permute(key, t, N_RANGE));
        fault += MPI_FAULT_UNLESS(ct_grad_pipe_poll(gp) == CT_OK);
    }
    fault += MPI_FAULT_UNLESS((ct_comm_sum(c, &ranks, 1) == CT_OK) && (ranks == c->size));
    for (uint64_t t = 0; t < (leave_some ? N_RANGE / 2 : N_RANGE); ++t) {
        int i = (int)ct_rng_permute(key + 1, t, N_RANGE);

        delay(key, t + 7);
        fault += MPI_FAULT_UNLESS(ct_grad_pipe_wait(gp, i, 1, on_landed, r) == CT_OK);
        fault += MPI_FAULT_UNLESS(r->times[i] == 1);
        if (t == 3) fault += MPI_FAULT_UNLESS(ct_comm_barrier(c) == CT_OK);
    }
    if (leave_some) fault += MPI_FAULT_UNLESS(ct_grad_pipe_finish(gp, on_landed, r) == CT_OK);
    for (int i = 0; i < N_RANGE; ++i) fault += MPI_FAULT_UNLESS(r->times[i] == 1);
    fault += MPI_FAULT_UNLESS(r->wrong == 0);
    return fault;
}

static float *acquire_arena(ct_comm *c)
{
    const ct_arena_ops *mem = ct_comm_arena(c);
    void *block = NULL;

    return (mem->acquire(mem->ctx, sizeof(float) * N, "arena", &block) == CT_OK) ? block : NULL;
}

static void release_arena(ct_comm *c, float *arena)
{
    const ct_arena_ops *mem = ct_comm_arena(c);

    mem->release(mem->ctx, arena);
}

/* topk: what arrived and what the ranks kept is what they gave, to the last bit. */
static int check_balance(ct_grad_pipe *gp, const double *arrived, int64_t steps, const ct_comm *c)
{
    double *kept = calloc(N, sizeof(*kept));
    totals t = make_totals(c);
    int wrong = 0, n_residual = 0;

    for (int i = 0; i < N_RANGE; ++i) {
        const float *residual = pipe_residual(gp, i);

        n_residual += (residual != NULL);
        for (int64_t k = 0; (residual != NULL) && (k < range[i].count); ++k)
            kept[range[i].offset + k] = residual[k];
    }
    MPI_Allreduce(MPI_IN_PLACE, kept, N, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < N_RANGE; ++i) {
        for (int64_t k = range[i].offset; k < range[i].offset + range[i].count; ++k) {
            double given = 0;

            for (int64_t s = 0; s < steps; ++s) given += t.of[residue(s, k)];
            wrong += (arrived[k] + kept[k] != given);
        }
    }
    free(kept);
    return MPI_FAULT_UNLESS(wrong == 0) + MPI_FAULT_UNLESS(n_residual == 3);
}

static int flow(ct_comm *c, const ct_grad_pipe_config *config, int64_t steps)
{
    ct_grad_pipe *gp = NULL;
    reader r = { .expected = make_totals(c), .arena = acquire_arena(c) };
    ct_sync_stats before, after;
    int fault = 0;

    if (ct_codec_keeps(config->codec, &config->codec_config))
        r.arrived = calloc(N, sizeof(*r.arrived));
    fault +=
        MPI_FAULT_UNLESS(ct_grad_pipe_create(c, config, r.arena, range, N_RANGE, &gp) == CT_OK);
    fault = mpi_verdict(fault);
    for (r.step = 0; (r.step < steps) && (fault == 0); ++r.step) {
        ct_grad_pipe_get_stats(gp, false, &before);
        fill(c, r.arena, r.step);
        fault += step(gp, c, &r, r.step % 3 == 2);
        ct_grad_pipe_get_stats(gp, false, &after);
        fault += MPI_FAULT_UNLESS(after.exposed_s >= before.exposed_s);
        fault += MPI_FAULT_UNLESS((c->size == 1) || (after.bytes_sent > before.bytes_sent));
        fault = mpi_verdict(fault); /* all go on, or none */
    }
    if ((fault == 0) && (r.arrived != NULL)) fault += check_balance(gp, r.arrived, steps, c);
    ct_grad_pipe_destroy(gp);
    release_arena(c, r.arena);
    free(r.arrived);
    return fault;
}

/* Which machine it is of those that are pretended, from 0. The first two, where nodes share memory
 * and where nothing does, have all codecs with all settings; each of the others has all settings,
 * and the codecs in turn. Named algorithms and bf16 while
 * progress is tried out: on the first two. */
static int n_machine;

static int all_flows(ct_comm *c)
{
    static const ct_progress_kind kind[2] = { CT_PROGRESS_POLL, CT_PROGRESS_THREAD };
    int machine = n_machine++, fault = 0, n_codec = 0;

    while (ct_codec_table[n_codec] != NULL) n_codec += 1;
    for (int i = 0; i < 4 * n_codec; ++i) {
        int v = i % 4, codec = i / 4;
        ct_grad_pipe_config config = {
            .bucket_bytes = (v < 2) ? 0 : 30000,
            .allreduce = (v == 3) ? "ring" : "auto",
            .overlap = (v != 2),
            .codec = ct_codec_table[codec],
            .codec_config = { .density = 0.03f, .min_bytes = 150000 },
            .progress = kind[v % 2],
        };

        if (pipe_skips(ct_codec_table[codec])) continue;
        if ((machine < 2) || (codec == (v + machine) % n_codec)) fault += flow(c, &config, 3);
    }
    return fault;
}

/* ---- a gradient that gets ready bit by bit, and leaves in parts */

enum { WHOLE = 8 << 20, SMALL_ONE = 4099, ALL = WHOLE + 4112 };

typedef struct parts_seen {
    rows_of given, expected;
    float *arena;
    int64_t heard, step; /* elements that parts had */
    int n_part;
    int wrong, whole;
} parts_seen;

static ct_status see_part(void *ctx, int i, int64_t from, int64_t count)
{
    parts_seen *p = ctx;

    p->wrong += (i != 1);
    p->wrong += count_other(&p->expected, p->step, from, from + count, p->arena + 4112 + from);
    p->heard += count;
    p->n_part++;
    return CT_OK;
}

static ct_status see_whole(void *ctx, int first, int n)
{
    parts_seen *p = ctx;

    p->whole += n;
    if (first + n == 2) p->wrong += (p->heard != 0) && (p->heard != WHOLE);
    return CT_OK;
}

/* In eight pieces, of which the last are not numbers until they are there. */
static int one_by_one(ct_grad_pipe *gp, parts_seen *p)
{
    float *g = p->arena + 4112;
    int fault = MPI_FAULT_UNLESS(ct_grad_pipe_begin(gp, p->step, 1, 1) == CT_OK);

    p->heard = p->whole = 0;
    for (int64_t k = 0; k < ALL; ++k) p->arena[k] = NAN;
    for (int64_t k = 0; k < SMALL_ONE; ++k) p->arena[k] = 1;
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_ready(gp, 0) == CT_OK);
    for (int64_t piece = 0; piece < 8; ++piece) {
        int64_t from = piece * (WHOLE / 8), end = from + WHOLE / 8;

        give(&p->given, p->step, from, end, g + from);
        fault += MPI_FAULT_UNLESS(ct_grad_pipe_ready_to(gp, 1, end) == CT_OK);
        fault += MPI_FAULT_UNLESS(ct_grad_pipe_poll(gp) == CT_OK);
    }
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_ready(gp, 1) == CT_OK);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_ready_to(gp, 1, WHOLE) == CT_ERR_ARG);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_finish(gp, see_whole, p) == CT_OK);
    p->wrong += count_other(&p->expected, p->step, 0, WHOLE, g);
    return fault + MPI_FAULT_UNLESS(p->wrong == 0) + MPI_FAULT_UNLESS(p->whole == 2);
}

static int n_in_parts;

static int in_parts(ct_comm *c)
{
    static const ct_grad_range two[2] = { { .key = "b[0]", .offset = 0, .count = SMALL_ONE },
                                          { .key = "fc6[0]", .offset = 4112, .count = WHOLE } };
    static const ct_progress_kind kind[2] = { CT_PROGRESS_POLL, CT_PROGRESS_THREAD };
    float *arena = calloc(ALL, sizeof(*arena));
    int fault = MPI_FAULT_UNLESS(arena != NULL);

    for (int v = 0; (v < 4) && (fault == 0); ++v) {
        parts_seen p = { .arena = arena };
        ct_grad_pipe_config config = { .allreduce = "ring",
                                       .overlap = (v < 3),
                                       .codec = &ct_codec_none,
                                       .progress = kind[v % 2] };
        ct_grad_pipe *gp = NULL;

        make_given(c->rank, &p.given);
        make_rows(make_totals(c).of, &p.expected);
        fault += MPI_FAULT_UNLESS(ct_grad_pipe_create(c, &config, arena, two, 2, &gp) == CT_OK);
        ct_grad_pipe_hear_parts(gp, (v != 2) ? see_part : NULL, &p);
        for (p.step = 0; (p.step < 2) && (fault == 0); ++p.step) fault += one_by_one(gp, &p);
        fault += MPI_FAULT_UNLESS((v != 2) || (p.n_part == 0));
        n_in_parts += (p.n_part > 2);
        ct_grad_pipe_destroy(gp);
        fault = mpi_verdict(fault);
    }
    free(arena);
    return fault;
}

static void test_parts(void **state)
{
    int size = 0;

    (void)state;
    n_in_parts = 0;
    assert_int_equal(mpi_verdict(mpi_on_machines(in_parts)), 0);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    assert_true((size == 1) || (n_in_parts > 0));
}

/* ---- algorithms and progress that change in the first steps */

static struct {
    int n_choice, n_progress;
} said;

static void count_lines(void *ctx, const char *text)
{
    (void)ctx;
    said.n_choice += (strstr(text, "; tried: ") != NULL);
    said.n_progress += (strstr(text, "with a thread") != NULL);
}

static int tuning(ct_comm *c)
{
    ct_grad_pipe_config config = { .policy = &ct_autotune,
                                   .allreduce = "auto",
                                   .overlap = true,
                                   .codec = &ct_codec_none,
                                   .tune_iterations = 4,
                                   .progress = CT_PROGRESS_AUTO };
    ct_grad_pipe *gp = NULL;
    float *arena = acquire_arena(c);
    int fault = 0, n_trial = 0, machine = n_machine++;

    fault += MPI_FAULT_UNLESS(ct_grad_pipe_create(c, &config, arena, range, N_RANGE, &gp) == CT_OK);
    n_trial = ct_grad_pipe_n_trial(gp);
    ct_grad_pipe_destroy(gp);
    release_arena(c, arena);
    fault += MPI_FAULT_UNLESS(n_trial == ((c->size > 1) ? 1 + 4 + 8 + 8 : 0));
    said.n_choice = said.n_progress = 0;
    ct_log_set_sink(count_lines, NULL);
    fault += flow(c, &config, n_trial + 3);
    log_capture_stop();
    if ((c->size > 1) && (c->rank == 0)) {
        fault += MPI_FAULT_UNLESS((said.n_choice >= 1) && (said.n_progress == 1));
    }
    if (machine >= 2) return fault;
    config.allreduce = "ring"; /* named: nothing to try but progress */
    said.n_choice = 0;
    ct_log_set_sink(count_lines, NULL);
    fault += flow(c, &config, 7);
    log_capture_stop();
    fault += MPI_FAULT_UNLESS(said.n_choice == 0);
    config.codec = &ct_codec_bf16;
    config.codec_config.min_bytes = 10000;
    config.allreduce = "auto";
    return fault + flow(c, &config, 11);
}

/* What is under way has the model's cost of a step; nothing costs nothing. The first rank begins
 * alone, so that none of its buckets can land. */
static int tells_its_steps(ct_comm *c)
{
    ct_grad_pipe_config config = {
        .bucket_bytes = 100000, .allreduce = "ring", .overlap = true, .codec = &ct_codec_none
    };
    ct_grad_pipe *gp = NULL;
    reader r = { .expected = make_totals(c), .arena = acquire_arena(c) };
    const double *step_s;
    int fault = 0;

    fault +=
        MPI_FAULT_UNLESS(ct_grad_pipe_create(c, &config, r.arena, range, N_RANGE, &gp) == CT_OK);
    if (mpi_verdict(fault) > 0) return fault;
    step_s = ct_grad_pipe_step_s(gp);
    fill(c, r.arena, 0);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_begin(gp, 0, 1, 1) == CT_OK);
    fault += MPI_FAULT_UNLESS(*step_s == 0);
    if (c->rank > 0) (void)MPI_Barrier(c->mpi);
    for (int i = 0; i < N_RANGE; ++i) fault += MPI_FAULT_UNLESS(ct_grad_pipe_ready(gp, i) == CT_OK);
    if (c->rank == 0) {
        fault += MPI_FAULT_UNLESS((*step_s > 0) == (c->size > 1));
        fault += MPI_FAULT_UNLESS(*step_s < 1); /* some hundred kilobytes */
        (void)MPI_Barrier(c->mpi);
    }
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_finish(gp, on_landed, &r) == CT_OK);
    fault += MPI_FAULT_UNLESS(*step_s == 0);
    fault += MPI_FAULT_UNLESS(r.wrong == 0);
    ct_grad_pipe_destroy(gp);
    release_arena(c, r.arena);
    return fault;
}

/* ---- the thread */

/* Nobody polls: what is ready lands all the same. */
static int thread_alone(ct_comm *c)
{
    ct_grad_pipe_config config = { .bucket_bytes = 100000,
                                   .allreduce = "auto",
                                   .overlap = true,
                                   .codec = &ct_codec_none,
                                   .progress = CT_PROGRESS_THREAD };
    ct_grad_pipe *gp = NULL;
    reader r = { .expected = make_totals(c), .arena = acquire_arena(c) };
    char text[256] = "";
    int fault = 0;

    fault +=
        MPI_FAULT_UNLESS(ct_grad_pipe_create(c, &config, r.arena, range, N_RANGE, &gp) == CT_OK);
    if (mpi_verdict(fault) > 0) return fault;
    for (; r.step < 3; ++r.step) {
        ct_sync_stats counters;

        fill(c, r.arena, r.step);
        memset(r.times, 0, sizeof(r.times));
        fault += MPI_FAULT_UNLESS(ct_grad_pipe_begin(gp, r.step, 1, 1) == CT_OK);
        for (int i = 0; i < N_RANGE; ++i)
            fault += MPI_FAULT_UNLESS(ct_grad_pipe_ready(gp, i) == CT_OK);
        do { /* the alarm ends this where the thread does nothing */
            if (c->size == 1) break;
            usleep(200);
            ct_grad_pipe_describe(gp, text, sizeof(text));
        } while (strstr(text, "no gradients under way") == NULL);
        fault += MPI_FAULT_UNLESS(ct_grad_pipe_finish(gp, on_landed, &r) == CT_OK);
        for (int i = 0; i < N_RANGE; ++i) fault += MPI_FAULT_UNLESS(r.times[i] == 1);
        ct_grad_pipe_get_stats(gp, false, &counters);
        if (c->size > 1) fault += MPI_FAULT_UNLESS(counters.moving_s == 0);
    }
    fault += MPI_FAULT_UNLESS(r.wrong == 0);
    ct_grad_pipe_destroy(gp);
    release_arena(c, r.arena);
    return fault;
}

static log_capture last;

/* What the thread meets, the main thread says. */
static int thread_fails(ct_comm *c)
{
    const ct_grad_range one = { .key = "fc6[0]", .offset = 0, .count = 4096 };
    ct_grad_pipe_config config = { .allreduce = "auto",
                                   .overlap = true,
                                   .codec = &ct_codec_topk,
                                   .codec_config = { .density = 0.1f, .exchange = "allgather" },
                                   .progress = CT_PROGRESS_THREAD };
    static float arena[4096];
    ct_grad_pipe *gp = NULL;
    int fault = 0;
    ct_status status = CT_OK;

    for (int k = 0; k < 4096; ++k) arena[k] = NAN;
    log_capture_start(&last);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_create(c, &config, arena, &one, 1, &gp) == CT_OK);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_begin(gp, 3, 1, 1) == CT_OK);
    status = ct_grad_pipe_ready(gp, 0);
    for (int k = 0; (status == CT_OK) && (k < 20000); ++k) {
        usleep(200);
        status = ct_grad_pipe_poll(gp);
    }
    fault += MPI_FAULT_UNLESS(status == CT_ERR_DIVERGED);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_wait(gp, 0, 1, NULL, NULL) == CT_ERR_DIVERGED);
    ct_grad_pipe_destroy(gp);
    log_capture_stop();
    return fault + MPI_FAULT_UNLESS(strstr(last.error, "fc6[0], iteration 3") != NULL);
}

/* ---- what goes first */

enum { LARGE = 4 << 20, SMALL = 3000 };

static ct_status note_first(void *ctx, int first, int n)
{
    int *order = ctx;

    (void)n;
    order[++order[0]] = first;
    return CT_OK;
}

/* A large gradient leaves first, a small one that forward reads first follows at once: it
 * overtakes. */
static int priorities(ct_comm *c)
{
    const ct_grad_range two[2] = { { .key = "fc6[0]", .offset = 0, .count = LARGE },
                                   { .key = "conv1[0]", .offset = LARGE, .count = SMALL } };
    ct_grad_pipe_config config = {
        .bucket_bytes = 4 * SMALL, .allreduce = "ring", .overlap = false, .codec = &ct_codec_none
    };
    ct_grad_pipe *gp = NULL;
    float *arena = calloc(LARGE + SMALL, sizeof(*arena));
    int fault = 0, overtook = 0;

    fault += MPI_FAULT_UNLESS(ct_grad_pipe_create(c, &config, arena, two, 2, &gp) == CT_OK);
    for (int s = 0; s < 10; ++s) {
        int order[3] = { 0, -1, -1 };

        fault += MPI_FAULT_UNLESS(ct_grad_pipe_begin(gp, s, 1, 1) == CT_OK);
        fault += MPI_FAULT_UNLESS(ct_grad_pipe_ready(gp, 0) == CT_OK);
        fault += MPI_FAULT_UNLESS(ct_grad_pipe_ready(gp, 1) == CT_OK);
        fault += MPI_FAULT_UNLESS(ct_grad_pipe_wait(gp, 1, 1, note_first, order) == CT_OK);
        fault += MPI_FAULT_UNLESS(ct_grad_pipe_finish(gp, note_first, order) == CT_OK);
        fault += MPI_FAULT_UNLESS((order[0] == 2) && (order[1] + order[2] == 1));
        overtook += (order[1] == 1);
    }
    if (c->size > 1) fault += MPI_FAULT_UNLESS(overtook == 10);
    ct_grad_pipe_destroy(gp);
    free(arena);
    return fault;
}

/* ---- how the arena is cut */

static int check_cut(const ct_bucket_sizes *sizes, const ct_bucket_cut *cut, int n_cut)
{
    int next = 0, part = 0, fault = 0;
    int64_t at = 0;

    for (int b = 0; b < n_cut; ++b) {
        const ct_bucket_cut *k = &cut[b];
        int64_t end = range[k->first].offset + range[k->first].count;

        fault += MPI_FAULT_UNLESS((k->first == next) && (k->n >= 1) && (k->part == part));
        if (k->n_part == 1) {
            end = range[k->first + k->n - 1].offset + range[k->first + k->n - 1].count;
            fault += MPI_FAULT_UNLESS((k->offset == range[k->first].offset) &&
                                      (k->offset + k->count == end));
            fault += MPI_FAULT_UNLESS((k->n == 1) || (4 * k->count <= sizes->usual));
            fault += MPI_FAULT_UNLESS(k->coded || (4 * k->count <= sizes->most));
            next += k->n;
        } else {
            if (part == 0) at = range[k->first].offset;
            fault += MPI_FAULT_UNLESS((k->offset == at) && (k->n == 1) && !k->coded);
            fault += MPI_FAULT_UNLESS((k->count > 0) && (4 * k->count <= sizes->most + 4096));
            at += k->count;
            part = (part + 1 == k->n_part) ? 0 : part + 1;
            fault += MPI_FAULT_UNLESS((part != 0) || (at == end));
            next += (part == 0);
        }
    }
    return fault + MPI_FAULT_UNLESS((next == N_RANGE) && (part == 0));
}

static int plan(ct_comm *c)
{
    ct_grad_pipe_config config = { .allreduce = "auto", .codec = &ct_codec_none };
    const ct_bucket_sizes list[3] = { { 65536, 16384, 524288 },
                                      { 1 << 20, 1 << 18, 8 << 20 },
                                      { 300000, 300000, INT64_MAX } };
    ct_bucket_sizes found = { 0 };
    int fault = 0;

    for (int v = 0; v < 6; ++v) {
        ct_bucket_cut *cut = NULL;
        int n_cut = 0, n_part = 0, n_coded = 0;

        config.codec = (v < 3) ? &ct_codec_none : &ct_codec_topk;
        config.codec_config.min_bytes = 250000;
        fault += MPI_FAULT_UNLESS(
            ct_bucket_partition_cut(&config, &list[v % 3], range, N_RANGE, &cut, &n_cut) == CT_OK);
        fault += check_cut(&list[v % 3], cut, n_cut);
        for (int b = 0; b < n_cut; ++b) {
            n_part += (cut[b].n_part > 1);
            n_coded += cut[b].coded;
        }
        fault += MPI_FAULT_UNLESS(n_part == ((v == 0) ? 3 : 0)); /* 1.08 MB in parts of 512 KB */
        fault += MPI_FAULT_UNLESS(n_coded == ((v < 3) ? 0 : 2));
        /* small at both ends, where sizes differ */
        if (v % 3 == 0) fault += MPI_FAULT_UNLESS(4 * cut[n_cut - 1].count <= 65536 + 200000);
        free(cut);
    }
    config.codec = &ct_codec_none;
    fault += MPI_FAULT_UNLESS(ct_bucket_sizes_find(c, &config, range, N_RANGE, &found) == CT_OK);
    if (c->size > 1) {
        const ct_coll_ops *ops = NULL;

        fault += MPI_FAULT_UNLESS((found.usual == 4 * found.ends) && (found.most > found.usual));
        fault +=
            MPI_FAULT_UNLESS(ct_coll_choose(c, found.usual / 4, CT_F32, "auto", &ops) == CT_OK);
        fault += MPI_FAULT_UNLESS(20 * ct_coll_cost_s(ops, c, 0, CT_F32) <=
                                  ct_coll_cost_s(ops, c, found.usual, CT_F32));
    }
    config.bucket_bytes = 12345;
    fault += MPI_FAULT_UNLESS(ct_bucket_sizes_find(c, &config, range, N_RANGE, &found) == CT_OK);
    fault += MPI_FAULT_UNLESS((found.usual == 12345) && (found.most == INT64_MAX));
    fault += MPI_FAULT_UNLESS(ct_bucket_sizes_find(c, &config, range, 0, &found) == CT_OK);
    return fault;
}

/* Ranks that do not agree all fail, and say which bucket. */
static int mismatch(ct_comm *c)
{
    ct_grad_range list[3] = { { .key = "a[0]", .offset = 0, .count = 500 },
                              { .key = "b[0]", .offset = 512, .count = 100 },
                              { .key = "c[0]", .offset = 640, .count = 300 } };
    ct_grad_pipe_config config = {
        .bucket_bytes = 1000, .allreduce = "auto", .overlap = true, .codec = &ct_codec_none
    };
    static float arena[1024];
    bool odd = (c->rank == c->size - 1);
    char other[32];
    ct_grad_pipe *gp = NULL;
    int fault = 0;

    if (c->size == 1) return 0;
    snprintf(other, sizeof(other), "another on rank %d", c->size - 1);
    log_capture_start(&last);
    if (odd) list[1].count = 99;
    fault +=
        MPI_FAULT_UNLESS(ct_grad_pipe_create(c, &config, arena, list, 3, &gp) == CT_ERR_CONFIG);
    fault += MPI_FAULT_UNLESS(strstr(last.error, "bucket 1 ") != NULL);
    fault += MPI_FAULT_UNLESS(
        strstr(last.error, odd ? "b[0], 99 elements here, and b[0], 100" : other) != NULL);
    if (odd) list[1].count = 100;
    if (odd) list[1].key = "B[0]";
    fault +=
        MPI_FAULT_UNLESS(ct_grad_pipe_create(c, &config, arena, list, 3, &gp) == CT_ERR_CONFIG);
    fault += MPI_FAULT_UNLESS(strstr(last.error, odd ? "B[0]" : "b[0]") != NULL);
    list[1].key = "b[0]";
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_create(c, &config, arena, list, odd ? 2 : 3, &gp) ==
                              CT_ERR_CONFIG);
    fault += MPI_FAULT_UNLESS(strstr(last.error, odd ? "no such bucket here" : "c[0]") != NULL);
    if (odd) list[2].offset = 700; /* the same but for where it lies */
    fault +=
        MPI_FAULT_UNLESS(ct_grad_pipe_create(c, &config, arena, list, 3, &gp) == CT_ERR_CONFIG);
    fault += MPI_FAULT_UNLESS(strstr(last.error, "bucket 2 (c[0]") != NULL);
    list[2].offset = 640;
    config.overlap = odd;
    fault +=
        MPI_FAULT_UNLESS(ct_grad_pipe_create(c, &config, arena, list, 3, &gp) == CT_ERR_CONFIG);
    fault += MPI_FAULT_UNLESS(strstr(last.error, "same options") != NULL);
    config.overlap = true;
    fault += MPI_FAULT_UNLESS(gp == NULL);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_create(c, &config, arena, list, 3, &gp) == CT_OK);
    ct_grad_pipe_destroy(gp);
    log_capture_stop();
    return fault;
}

/* No gradients at all, and only empty ones. */
static int nothing(ct_comm *c)
{
    const ct_grad_range empty[2] = { { .key = "a[0]", .offset = 0, .count = 0 },
                                     { .key = "b[0]", .offset = 0, .count = 0 } };
    ct_grad_pipe_config config = { .policy = &ct_autotune,
                                   .allreduce = "auto",
                                   .overlap = true,
                                   .codec = &ct_codec_none,
                                   .tune_iterations = 2 };
    static float arena[1];
    int fault = 0;

    for (int n = 0; n <= 2; ++n) {
        ct_grad_pipe *gp = NULL;

        fault += MPI_FAULT_UNLESS(ct_grad_pipe_create(c, &config, arena, empty, n, &gp) == CT_OK);
        for (int s = 0; s < 7; ++s) {
            fault += MPI_FAULT_UNLESS(ct_grad_pipe_begin(gp, s, 1, 1) == CT_OK);
            for (int i = 0; i < n; ++i)
                fault += MPI_FAULT_UNLESS(ct_grad_pipe_ready(gp, i) == CT_OK);
            fault += MPI_FAULT_UNLESS(ct_grad_pipe_wait(gp, 0, n, NULL, NULL) == CT_OK);
            if (s % 2 == 0) fault += MPI_FAULT_UNLESS(ct_grad_pipe_finish(gp, NULL, NULL) == CT_OK);
        }
        ct_grad_pipe_destroy(gp);
    }
    return fault;
}

static void test_flows(void **state)
{
    (void)state;
    n_machine = 0;
    assert_int_equal(mpi_verdict(mpi_on_machines(all_flows)), 0);
}

static void test_tuning(void **state)
{
    (void)state;
    n_machine = 0;
    assert_int_equal(mpi_verdict(mpi_on_machines(tuning)), 0);
}

static void test_steps_told(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(tells_its_steps)), 0);
}

static void test_thread(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(thread_alone)), 0);
    assert_int_equal(mpi_verdict(mpi_on_machines(thread_fails)), 0);
}

static void test_priorities(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(priorities)), 0);
}

static void test_plan(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(plan)), 0);
    assert_int_equal(mpi_verdict(mpi_on_machines(mismatch)), 0);
    assert_int_equal(mpi_verdict(mpi_on_machines(nothing)), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_flows),      cmocka_unit_test(test_parts),
    cmocka_unit_test(test_tuning),     cmocka_unit_test(test_thread),
    cmocka_unit_test(test_steps_told), cmocka_unit_test(test_priorities),
    cmocka_unit_test(test_plan),
};

MPI_MAIN(tests, 300)
