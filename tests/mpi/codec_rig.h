/** @file codec_rig.h  A pipe of one coded parameter, for tests of codecs. */
#ifndef CT_TESTS_CODED_RIG_H
#define CT_TESTS_CODED_RIG_H

#include "tests/mpi/mpi_test.h"

#include "comm/codec/codec_types.h"
#include "comm/sync/grad_pipe.h"
#include "framework/base/rng.h"

enum { RIG_N = 3008, RIG_CODED = 3000, RIG_ROWS = 30, RIG_TABLE = 1 << 16 };

static const float rig_eps = 0x1p-24f;

static float rig_table[RIG_TABLE]; /* normal numbers */

static inline void rig_make_table(void)
{
    if (rig_table[0] != 0) return;
    for (int i = 0; i < RIG_TABLE; ++i) rig_table[i] = ct_rng_normal_at(11, (uint64_t)i);
}

/** What rank r has at element i in step s; the first hundred elements are always large. */
static inline float rig_noise(int r, int64_t s, int i)
{
    float v = rig_table[(i * 7 + s * 131 + r * 977 + i * s % 13) % RIG_TABLE];

    return (i < 100) ? 5 * v : v;
}

/** A rate that stays, drops, rises, and then falls in every step. */
static inline float rig_rate(int64_t s)
{
    if (s < 600) return (s < 300) ? 0.25f : 0.025f;
    return 0.1f / (1 + 1e-3f * (float)(s - 600));
}

/** How much of what is not sent after step s - 1 counts in step s. */
static inline double rig_carry(int64_t s)
{
    return (s > 0) ? (double)rig_rate(s) / rig_rate(s - 1) : 1;
}

static inline uint64_t rig_hash(uint64_t h, const float *v, size_t n)
{
    for (size_t i = 0; i < sizeof(*v) * n; ++i)
        h = (h ^ ((const unsigned char *)v)[i]) * 1099511628211u;
    return h;
}

static inline int rig_same_on_all(uint64_t h)
{
    uint64_t least = 0, most = 0;

    MPI_Allreduce(&h, &least, 1, MPI_UINT64_T, MPI_MIN, MPI_COMM_WORLD);
    MPI_Allreduce(&h, &most, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
    return MPI_FAULT_UNLESS(least == most);
}

typedef struct rig {
    ct_comm *comm;
    ct_grad_pipe *gp;
    float *arena;
    float weight[RIG_N];
    uint64_t hash; /* of all sums so far */
} rig;

static inline int rig_open(rig *r, ct_comm *c, const ct_grad_pipe_config *config, float decay)
{
    const ct_arena_ops *mem = ct_comm_arena(c);
    ct_grad_range one = { .key = "fc[0]",
                          .count = RIG_CODED,
                          .rows = RIG_ROWS,
                          .weight = r->weight,
                          .decay = decay,
                          .rate_mult = 0.5f };
    void *block = NULL;
    int fault = 0;

    r->comm = c;
    r->hash = 14695981039346656037u;
    for (int i = 0; i < RIG_N; ++i) r->weight[i] = 0.01f * (float)(i % 17 - 8);
    fault +=
        MPI_FAULT_UNLESS(mem->acquire(mem->ctx, sizeof(float) * RIG_N, "arena", &block) == CT_OK);
    r->arena = block;
    return fault +
           MPI_FAULT_UNLESS(ct_grad_pipe_create(c, config, r->arena, &one, 1, &r->gp) == CT_OK);
}

static inline void rig_close(rig *r)
{
    const ct_arena_ops *mem = ct_comm_arena(r->comm);

    ct_grad_pipe_destroy(r->gp);
    mem->release(mem->ctx, r->arena);
    r->gp = NULL;
}

static inline int rig_step(rig *r, int64_t s, float scale, float rate, const float *grad)
{
    int fault = 0;

    fault += MPI_FAULT_UNLESS(ct_grad_pipe_begin(r->gp, s, scale, rate) == CT_OK);
    memcpy(r->arena, grad, sizeof(float) * RIG_CODED);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_ready(r->gp, 0) == CT_OK);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_finish(r->gp, NULL, NULL) == CT_OK);
    for (int i = 0; i < RIG_CODED; ++i) r->weight[i] -= r->arena[i];
    r->hash = rig_hash(r->hash, r->weight, RIG_CODED);
    return fault;
}

/** What a snapshot keeps (U and V, and one number more) goes into a new pipe. */
static inline int rig_restart(rig *r, const ct_grad_pipe_config *config, float decay)
{
    static float saved[3][RIG_CODED], weight[RIG_N];
    ct_codec_state state;
    uint64_t hash = r->hash;
    int fault = 0;

    for (int k = 0; k < 3; ++k) {
        fault += MPI_FAULT_UNLESS(ct_grad_pipe_state(r->gp, 0, k, &state));
        fault += MPI_FAULT_UNLESS(state.count == ((k < 2) ? RIG_CODED : 1));
        memcpy(saved[k], state.data, sizeof(float) * (size_t)state.count);
    }
    fault += MPI_FAULT_UNLESS(!ct_grad_pipe_state(r->gp, 0, 3, &state));
    memcpy(weight, r->weight, sizeof(weight));
    rig_close(r);
    fault += rig_open(r, r->comm, config, decay);
    memcpy(r->weight, weight, sizeof(weight));
    r->hash = hash;
    for (int k = 0; k < 3; ++k) {
        fault += MPI_FAULT_UNLESS(ct_grad_pipe_state(r->gp, 0, k, &state));
        memcpy(state.data, saved[k], sizeof(float) * (size_t)state.count);
    }
    return fault + MPI_FAULT_UNLESS(ct_grad_pipe_restored(r->gp) == CT_OK);
}

/** 24 steps, with a restart before step `stop` (< 0: none): the hash of all sums. */
static inline int rig_run(ct_comm *c, const ct_grad_pipe_config *config, int64_t stop,
                          uint64_t *hash_p)
{
    static rig r;
    static float grad[RIG_CODED];
    const float decay = 0.001f;
    int fault = rig_open(&r, c, config, decay);

    for (int64_t s = 0; (s < 24) && (fault == 0); ++s) {
        if (s == stop) fault += rig_restart(&r, config, decay);
        for (int i = 0; i < RIG_CODED; ++i) grad[i] = rig_noise(c->rank, s, i);
        fault += rig_step(&r, s, 1, (s < 12) ? 0.1f : 0.03f, grad);
    }
    *hash_p = r.hash;
    fault += rig_same_on_all(r.hash);
    rig_close(&r);
    return fault;
}

/** Overlap, threads and a restart before step `stop` change no bit. */
static inline int rig_bits(ct_comm *c, ct_grad_pipe_config config, int64_t stop)
{
    uint64_t first = 0, other = 0;
    int fault = rig_run(c, &config, -1, &first);

    config.overlap = false;
    fault += rig_run(c, &config, -1, &other);
    fault += MPI_FAULT_UNLESS(first == other);
    config.overlap = true;
    config.progress = CT_PROGRESS_THREAD;
    fault += rig_run(c, &config, -1, &other);
    fault += MPI_FAULT_UNLESS(first == other);
    /* Ok-Topk's regions come from the steps before */
    if (strcmp(config.codec_config.exchange, "oktopk") == 0) return fault;
    fault += rig_run(c, &config, stop, &other);
    return fault + MPI_FAULT_UNLESS(first == other);
}

#endif
