/* What local_clip costs before a gradient leaves: an MPI program, of one rank.
 *
 *   bench_clip [ELEMENTS] [ROUNDS] [THREADS]       25000000, 15, as many as there are
 *
 * One gradient goes through a pipe by none, bf16, topk and redsync (0.1 %), in turns without a
 * limit, with one that is over its norm, and with one that is a quarter of it; caches swept
 * before. Medians and least of the seconds from `ready` until the step is done, and a = b + s c of
 * as many elements. */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/codec/codec_types.h"
#include "comm/sync/grad_pipe.h"
#include "framework/base/clock.h"
#include "framework/base/memory.h"
#include "framework/base/rng.h"
#include "framework/base/sort.h"

enum { SIDES = 4, LIMITS = 3, MAX_ROUNDS = 101, WARM = 3 };

static const ct_codec_ops *const codec[SIDES] = { &ct_codec_none, &ct_codec_bf16, &ct_codec_topk,
                                                  &ct_codec_redsync };
static const char *const limit_name[LIMITS] = { "no limit", "not reached", "limited" };

typedef struct bench {
    ct_comm *comm;
    int64_t n;
    float *grad, *arena, *sweep;
    size_t sweep_bytes;
    ct_grad_pipe *gp[SIDES][LIMITS];
    double time[SIDES][LIMITS][MAX_ROUNDS], triad[MAX_ROUNDS];
} bench;

static ct_status open_pipes(bench *b, double norm)
{
    for (int s = 0; s < SIDES; ++s) {
        for (int l = 0; l < LIMITS; ++l) {
            bool sparse = ct_codec_is_sparse(codec[s]);
            ct_grad_pipe_config config = { .bucket_bytes = 4 * b->n,
                                           .allreduce = "auto",
                                           .overlap = true,
                                           .momentum = 0.9f,
                                           .progress = CT_PROGRESS_POLL,
                                           .codec = codec[s] };
            ct_grad_range one = { .key = "fc[0]",
                                  .count = b->n,
                                  .rows = 1000,
                                  .weight = b->grad, /* no decay */
                                  .rate_mult = 1 };

            config.codec_config =
                (ct_codec_config){ .density = sparse ? 0.001f : 1.0f,
                                   .momentum_correction = ct_codec_absorbs(codec[s]) };
            if (l > 0) config.codec_config.local_clip = (float)((l == 1) ? 2 * norm : norm / 4);
            CT_TRY(ct_grad_pipe_create(b->comm, &config, b->arena, &one, 1, &b->gp[s][l]));
        }
    }
    return CT_OK;
}

static void sweep(const bench *b)
{
    int64_t n = (int64_t)(b->sweep_bytes / sizeof(float));

#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; ++i) b->sweep[i] += 1;
}

static ct_status one_step(const bench *b, int s, int l, int round, double *time_p)
{
    double start;

    memcpy(b->arena, b->grad, sizeof(float) * (size_t)b->n);
    sweep(b);
    CT_TRY(ct_grad_pipe_begin(b->gp[s][l], round, 1, 0.01f));
    start = ct_clock_s();
    CT_TRY(ct_grad_pipe_ready(b->gp[s][l], 0));
    CT_TRY(ct_grad_pipe_finish(b->gp[s][l], NULL, NULL));
    *time_p = ct_clock_s() - start;
    return CT_OK;
}

static double triad(const bench *b)
{
    int64_t n = b->n / 2; /* there are two arrays: half of one is written */
    double start;

    sweep(b);
    start = ct_clock_s();
#pragma omp parallel for simd schedule(static)
    for (int64_t i = 0; i < n; ++i) b->arena[i] = b->grad[i] + 3.0f * b->grad[n + i];
    return 2 * (ct_clock_s() - start);
}

static ct_status rounds(bench *b, int n_round)
{
    for (int r = -WARM; r < n_round; ++r) {
        int at = (r < 0) ? 0 : r;

        b->triad[at] = triad(b);
        for (int s = 0; s < SIDES; ++s) {
            for (int l = 0; l < LIMITS; ++l)
                CT_TRY(one_step(b, s, l, r + WARM, &b->time[s][l][at]));
        }
    }
    return CT_OK;
}

static void print(bench *b, int n_round)
{
    printf("%lld elements, %d threads, %d rounds; ms: median, least\n", (long long)b->n,
           b->comm->n_thread, n_round);
    for (int s = 0; s < SIDES; ++s) {
        for (int l = 0; l < LIMITS; ++l) {
            double median = ct_median(b->time[s][l], n_round), least = INFINITY;

            for (int r = 0; r < n_round; ++r) least = fmin(least, b->time[s][l][r]);
            printf("%-8s %-12s %9.2f %9.2f\n", codec[s]->name, limit_name[l], 1e3 * median,
                   1e3 * least);
        }
    }
    printf("%-21s %9.2f\n", "a = b + s c", 1e3 * ct_median(b->triad, n_round));
}

static ct_status run(bench *b, int n_round)
{
    size_t bytes = sizeof(float) * (size_t)b->n;
    double square = 0;

    if ((b->n < 1000) || (n_round < 1) || (n_round > MAX_ROUNDS))
        return CT_FAIL(CT_ERR_CONFIG, "expected ELEMENTS >= 1000, ROUNDS of 1 to %d", MAX_ROUNDS);
    b->sweep_bytes = (size_t)128 << 20;
    b->grad = ct_mem_acquire(bytes);
    b->arena = ct_mem_acquire(bytes);
    b->sweep = ct_mem_acquire(b->sweep_bytes);
    if ((b->grad == NULL) || (b->arena == NULL) || (b->sweep == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %lld elements", (long long)b->n);
    for (int64_t i = 0; i < b->n; ++i) {
        b->grad[i] = ct_rng_normal_at(1, (uint64_t)i);
        square += (double)b->grad[i] * b->grad[i];
    }
    CT_TRY(open_pipes(b, sqrt(square)));
    CT_TRY(rounds(b, n_round));
    print(b, n_round);
    return CT_OK;
}

int main(int argc, char **argv)
{
    static bench b;
    int provided = 0;
    ct_status status = CT_OK;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
    ct_log_init(0, 1, "bench");
    status = ct_comm_create(MPI_COMM_SELF, "auto", &b.comm);
    b.n = (argc > 1) ? atoll(argv[1]) : 25000000;
    if ((status == CT_OK) && (argc > 3)) b.comm->n_thread = atoi(argv[3]);
    if (status == CT_OK) status = run(&b, (argc > 2) ? atoi(argv[2]) : 15);
    if (status != CT_OK) MPI_Abort(MPI_COMM_WORLD, 1);
    for (int i = 0; i < SIDES * LIMITS; ++i) ct_grad_pipe_destroy(b.gp[i / LIMITS][i % LIMITS]);
    ct_mem_release(b.grad);
    ct_mem_release(b.arena);
    ct_mem_release(b.sweep);
    ct_comm_destroy(b.comm);
    MPI_Finalize();
    return 0;
}
