/** @file auto_rig.h  A pipe of three gradients under a solver of its own, for tests of AUTO: on the
 * host, or on a device. What is sent, and what is not, is compared with what no compression would
 * do.
 */
#ifndef CT_TESTS_AUTO_RIG_H
#define CT_TESTS_AUTO_RIG_H

#include "tests/mpi/mpi_test.h"

#include <math.h>
#include <stdlib.h>

#include "comm/codec/codec_types.h"
#include "comm/autotune/autotune.h"
#include "comm/autotune/tuner.h"
#include "framework/base/rng.h"

enum { N_RANGE = 3, N = 3 * 8000, N_TABLE = 1 << 14 };

static const float momentum = 0.9f;
static float table[N_TABLE]; /* normal numbers */

/* Changes just as codecs do when they are changed by hand. */
static inline float rate_of(int64_t step)
{
    return ((step < 3) || (step >= 21)) ? 0.1f : 0.04f;
}

/* A solver of its own: weights, momentum, and what both would be without any compression. */
typedef struct rig {
    ct_comm *comm;
    ct_grad_pipe *gp;
    float *arena, *weight, *history, *zero;
    ct_storage momentum; /* the history, or there_h */
    double *sum, *want_h, *want_w;
    ct_grad_range range[N_RANGE];
    const ct_device *dev;   /* its gradients and momentum are there; NULL: the host's */
    float *there, *there_h; /* [N] those */
} rig;

static inline uint32_t alone(const ct_codec_ops *codec)
{
    uint32_t i = 0;

    while (ct_codec_table[i] != codec) i += 1;
    return (uint32_t)1 << i;
}

/* What casts round is lost: not here. */
static inline uint32_t redsync_alone(void)
{
    return alone(&ct_codec_redsync);
}

static inline ct_grad_pipe_config config_of(const ct_codec_ops *codec, float density)
{
    return (ct_grad_pipe_config){ .policy = &ct_autotune,
                                  .allreduce = "auto",
                                  .overlap = true,
                                  .codec = codec,
                                  .momentum = momentum,
                                  .codec_config = { .density = density,
                                                    .min_bytes = 4096,
                                                    .among = redsync_alone(),
                                                    .momentum_correction = true } };
}

static inline float *rig_there(const rig *r)
{
    void *data = NULL;

    return (r->dev->mem_acquire(sizeof(float) * N, &data) == CT_OK) ? data : NULL;
}

/* The arena is the host's side of a device's gradients. */
static inline int rig_open(rig *r, ct_comm *c, const ct_grad_pipe_config *config)
{
    static const char *const key[N_RANGE] = { "c[0]", "b[0]", "a[0]" };
    const ct_arena_ops *mem = ct_comm_arena(c);
    void *block = NULL;
    int fault = 0;

    for (int i = 0; i < N_TABLE; ++i) table[i] = ct_rng_normal_at(11, (uint64_t)i);
    memset(r, 0, sizeof(*r));
    r->comm = c;
    r->dev = config->dev;
    fault += MPI_FAULT_UNLESS(
        ((r->dev != NULL) ? r->dev->host_acquire(sizeof(float) * N, &block)
                          : mem->acquire(mem->ctx, sizeof(float) * N, "arena", &block)) == CT_OK);
    r->arena = block;
    if (r->dev != NULL) {
        memset(block, 0, sizeof(float) * N);
        r->there = rig_there(r);
        r->there_h = rig_there(r);
    }
    r->weight = calloc(N, sizeof(float));
    r->zero = calloc(N, sizeof(float));
    r->history = calloc(N, sizeof(float));
    r->sum = calloc(N, sizeof(double));
    r->want_h = calloc(N, sizeof(double));
    r->want_w = calloc(N, sizeof(double));
    for (int i = 0; i < N_RANGE; ++i)
        r->range[i] =
            (ct_grad_range){ .key = key[i],
                             .offset = i * (N / N_RANGE),
                             .count = (i == 2) ? 900 : N / N_RANGE - 7,
                             .rows = 1,
                             .on_device = (r->dev != NULL) ? r->there + i * (N / N_RANGE) : NULL,
                             .weight = (r->dev != NULL) ? NULL : r->zero,
                             .rate_mult = 1 };
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_create(c, config, r->arena, r->range, N_RANGE, &r->gp) ==
                              CT_OK);
    r->momentum = (r->dev != NULL) ? ct_storage_at(r->dev, r->there_h, N)
                                   : ct_storage_at(ct_device_cpu(), r->history, N);
    if (fault == 0) ct_grad_pipe_share(r->gp, &r->momentum);
    return fault;
}

static inline void rig_close(rig *r)
{
    const ct_arena_ops *mem = ct_comm_arena(r->comm);

    ct_grad_pipe_destroy(r->gp);
    if (r->dev != NULL) {
        r->dev->host_release(r->arena);
        r->dev->mem_release(r->there);
        r->dev->mem_release(r->there_h);
    } else {
        mem->release(mem->ctx, r->arena);
    }
    free(r->weight);
    free(r->zero);
    free(r->history);
    free(r->sum);
    free(r->want_h);
    free(r->want_w);
}

static inline float gradient(int rank, int64_t step, int i)
{
    return table[(i * 7 + step * 131 + rank * 977 + i * step % 13) % N_TABLE];
}

/* Gradients that do not hang on weights, so that what is sent late is sent all the same. What is
 * only tried is as if it had not been. */
static inline void fill(rig *r, int64_t step)
{
    for (int i = 0; i < N_RANGE; ++i) {
        bool tries = ct_grad_pipe_tries(r->gp, i);

        for (int64_t k = r->range[i].offset; k < r->range[i].offset + r->range[i].count; ++k) {
            r->arena[k] = gradient(r->comm->rank, step, (int)k);
            if (tries) continue;
            r->want_h[k] *= (double)momentum;
            for (int p = 0; p < r->comm->size; ++p)
                r->want_h[k] += (double)rate_of(step) * (double)gradient(p, step, (int)k);
            r->want_w[k] -= r->want_h[k];
        }
    }
}

/* What lies on the device goes there, or comes from there: gradients that travel coded, and the
 * momentum. */
static inline int copy_gradients(rig *r, bool up)
{
    int fault = 0;

    for (int i = 0; (r->dev != NULL) && (i < N_RANGE); ++i) {
        int64_t at = r->range[i].offset;
        size_t bytes = sizeof(float) * (size_t)r->range[i].count;

        if (!ct_grad_pipe_on_device(r->gp, i)) continue;
        fault += MPI_FAULT_UNLESS(
            (up ? r->dev->from_host(NULL, r->there + at, r->arena + at, bytes)
                : r->dev->to_host(NULL, r->arena + at, r->there + at, bytes)) == CT_OK);
    }
    return fault;
}

static inline int copy_momentum(rig *r, bool up)
{
    if (r->dev == NULL) return 0;
    return MPI_FAULT_UNLESS(
        (up ? r->dev->from_host(NULL, r->there_h, r->history, sizeof(float) * N)
            : r->dev->to_host(NULL, r->history, r->there_h, sizeof(float) * N)) == CT_OK);
}

static inline void update(rig *r, int64_t step)
{
    for (int i = 0; i < N_RANGE; ++i) {
        bool absorbed = ct_grad_pipe_absorbs(r->gp, i);

        if (ct_grad_pipe_tries(r->gp, i)) continue;
        for (int64_t k = r->range[i].offset; k < r->range[i].offset + r->range[i].count; ++k) {
            if (!absorbed) r->history[k] = momentum * r->history[k] + rate_of(step) * r->arena[k];
            r->weight[k] -= absorbed ? r->arena[k] : r->history[k];
        }
    }
}

/* r->sum = V, summed over the ranks; how many elements this rank has not sent. */
static inline int sum_kept(rig *r)
{
    int n_left = 0;

    memset(r->sum, 0, sizeof(double) * N);
    for (int i = 0; i < N_RANGE; ++i) {
        ct_codec_state s;

        if (!ct_grad_pipe_state(r->gp, i, 0, &s)) continue;
        for (int64_t k = 0; k < s.count; ++k) {
            r->sum[r->range[i].offset + k] = (double)s.data[k];
            n_left += (s.data[k] != 0);
        }
    }
    MPI_Allreduce(MPI_IN_PLACE, r->sum, N, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return n_left;
}

/* What was not sent yet counts in the new rate from now on. */
static inline void change_rate(rig *r, int64_t step)
{
    double carry = (step > 0) ? (double)rate_of(step) / (double)rate_of(step - 1) : 1;

    if (carry == 1) return;
    (void)sum_kept(r);
    for (int k = 0; k < N; ++k) r->want_w[k] += (1 - carry) * r->sum[k];
}

/* weights - sum over ranks of V: what they would be without compression. */
static inline int nothing_is_lost(rig *r, int64_t step)
{
    double worst = 0, scale = 1;
    int n_left = sum_kept(r);

    for (int k = 0; k < N; ++k) {
        double is = (double)r->weight[k] - r->sum[k];

        worst = fmax(worst, fabs(is - r->want_w[k]));
        scale = fmax(scale, fabs(r->want_w[k]));
    }
    /* each step rounds sums, momentum and weight; momentum carries tenfold */
    if (worst > (double)(10 * (step + 1) * (r->comm->size + 4)) * 0x1p-24 * scale) {
        fprintf(stderr, "step %lld: off by %g of %g, %d elements not sent\n", (long long)step,
                worst, scale, n_left);
        return 1;
    }
    return 0;
}

static inline int same_on_all(const rig *r)
{
    uint64_t h = 14695981039346656037u, least = 0, most = 0;

    for (size_t i = 0; i < sizeof(float) * N; ++i)
        h = (h ^ ((const unsigned char *)r->weight)[i]) * 1099511628211u;
    MPI_Allreduce(&h, &least, 1, MPI_UINT64_T, MPI_MIN, MPI_COMM_WORLD);
    MPI_Allreduce(&h, &most, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
    return MPI_FAULT_UNLESS(least == most);
}

static inline int rig_step(rig *r, int64_t s)
{
    int fault = 0;

    change_rate(r, s);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_begin(r->gp, s, 1, rate_of(s)) == CT_OK);
    fill(r, s);
    fault += copy_gradients(r, true) + copy_momentum(r, false);
    for (int i = 0; i < N_RANGE; ++i)
        fault += MPI_FAULT_UNLESS(ct_grad_pipe_ready(r->gp, i) == CT_OK);
    for (int i = N_RANGE - 1; i >= 0; --i) ct_grad_pipe_reads(r->gp, i);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_finish(r->gp, NULL, NULL) == CT_OK);
    fault += copy_gradients(r, false);
    update(r, s);
    fault += copy_momentum(r, true);
    return fault + nothing_is_lost(r, s) + same_on_all(r);
}

/* ---- AUTO tries, on a machine whose figures promise much */

static inline void promise(ct_comm *c, double slower)
{
    ct_machine *m = &c->topo->machine;

    for (int l = 0; l < m->n_level; ++l) {
        m->level[l].bandwidth /= slower;
        m->level[l].uplink /= slower;
        m->level[l].bus /= slower;
    }
    m->coding = (ct_codec_speed){ .memory = 1e12, .measured = true };
}

/* The way that is to win was faster in all steps so far. */
static inline void turn_out(ct_codec_tuner *a, bool coded)
{
    for (int k = 0; k < a->n_plan; ++k) {
        int64_t *ns = a->trial.decided ? NULL : ct_trial_row(&a->trial, k);

        for (int j = 0; (ns != NULL) && (j < CT_TRIAL_ROUNDS); ++j) {
            if (ns[j] > 0) ns[j] = ((k < a->n_plan - 1) == coded) ? 1000 : 1000000000;
        }
    }
}

static inline int auto_step(rig *r, int64_t s)
{
    int64_t least = ct_grad_pipe_generation(r->gp), most = least;
    int fault = rig_step(r, s);

    MPI_Allreduce(MPI_IN_PLACE, &least, 1, MPI_INT64_T, MPI_MIN, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, &most, 1, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
    return fault + MPI_FAULT_UNLESS(least == most);
}

/* While plans are tried no weight moves that a codec has absorbed, and none of them is kept. */
static inline int try_all(rig *r, int64_t *s, bool coded)
{
    ct_codec_tuner *a = ct_autotune_codecs(r->gp);
    int fault = 0, n = 0;
    int64_t before = 0;

    for (; (n < 80) && ((a->phase == CT_AUTO_WATCH) || (a->phase == CT_AUTO_TRY)); ++n) {
        ct_sync_stats now;

        fault += auto_step(r, (*s)++);
        turn_out(a, coded);
        ct_grad_pipe_get_stats(r->gp, false, &now); /* never less than it was */
        fault += MPI_FAULT_UNLESS(now.bytes_sent >= before);
        before = now.bytes_sent;
    }
    return fault + MPI_FAULT_UNLESS((n > 4) && (n < 80));
}

/* Codecs win, and take part for a while. */
static inline int settle_on_codecs(rig *r, int64_t *s)
{
    int fault = try_all(r, s, true), n_kept = 0;

    fault += MPI_FAULT_UNLESS(ct_autotune_codecs(r->gp)->phase == CT_AUTO_FIXED);
    fault += MPI_FAULT_UNLESS(!ct_grad_pipe_tries(r->gp, 0));
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_absorbs(r->gp, 0));
    for (int k = 0; k < 40; ++k) fault += auto_step(r, (*s)++);
    n_kept = sum_kept(r);
    return fault + MPI_FAULT_UNLESS(n_kept > 0);
}

/* In the next step all is tried once more. */
static inline void get_longer(ct_codec_tuner *a)
{
    a->drift.rest = 0;
    a->drift.skip = 0;
    a->drift.longer = CT_TRIAL_WINDOWS - 1;
    a->drift.reference_s = 1e-12;
    a->drift.n = CT_TRIAL_WINDOW - 1;
    for (int k = 0; k < CT_TRIAL_WINDOW; ++k) a->drift.step_s[k] = 1;
}

/* Steps get longer, all is tried once more, and dense wins: what was left behind leaves before. */
static inline int turn_to_dense(rig *r, int64_t *s)
{
    ct_codec_tuner *a = ct_autotune_codecs(r->gp);
    int fault = 0, n = 0, kept = sum_kept(r);

    get_longer(a);
    fault += auto_step(r, (*s)++);
    fault += MPI_FAULT_UNLESS(a->phase == CT_AUTO_TRY);
    fault += MPI_FAULT_UNLESS(sum_kept(r) == kept); /* aside */
    fault += try_all(r, s, false);
    fault += MPI_FAULT_UNLESS(a->phase == CT_AUTO_LEAVE);
    for (; (n < CT_AUTO_MOST_LEAVING) && (a->phase == CT_AUTO_LEAVE); ++n)
        fault += auto_step(r, (*s)++);
    fault += MPI_FAULT_UNLESS((n > 3) && (n < CT_AUTO_MOST_LEAVING));
    fault += MPI_FAULT_UNLESS(a->phase == CT_AUTO_FIXED);
    fault += MPI_FAULT_UNLESS(!ct_grad_pipe_absorbs(r->gp, 0));
    for (int k = 0; k < 5; ++k) fault += auto_step(r, (*s)++);
    return fault;
}

#endif
