/* A codec that is not in the table, from nothing but what codecs have to work with: what a new one
 * asks for is in its one object of operations. It sends every other element, by turns, as f32. */
#include "tests/mpi/codec_rig.h"

#include <math.h>
#include <stdlib.h>

#include "comm/codec/codec_side.h"

/* ---- the codec */

typedef struct toy {
    ct_codec_setup setup;
    ct_codec_side side;
    ct_persistent_coll ways;
    float *half; /* [n / 2 rounded up] */
    int64_t odd; /* of this step: the first element that is sent */
    ct_coll_where alone;
    ct_codec_stats stats;
} toy;

static int64_t count_of(const toy *x)
{
    return (x->setup.n + 1) / 2;
}

static void toy_destroy(void *obj)
{
    toy *x = obj;

    if (x == NULL) return;
    ct_persistent_coll_release(&x->ways);
    ct_mem_release(x->half);
    ct_side_close(&x->side);
    free(x);
}

static ct_status toy_prepare(void *obj, const ct_codec_setup *setup)
{
    toy *x = obj;
    const ct_coll_ops *ops = NULL;

    x->setup = *setup;
    atomic_store(&x->alone.rank, -1);
    CT_TRY(ct_side_open(&x->side, &x->setup, true));
    CT_TRY(ct_side_plain_coder(&x->side));
    x->half = ct_mem_acquire(sizeof(float) * (size_t)count_of(x));
    if (x->half == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to compress %s", setup->key);
    if (setup->comm->size == 1) return CT_OK;
    x->ways = (ct_persistent_coll){ .comm = setup->comm,
                                    .buf = x->half,
                                    .count = count_of(x),
                                    .dtype = CT_F32,
                                    .tag = setup->tag };
    CT_TRY(ct_persistent_coll_choose_own(setup->comm, count_of(x), CT_F32, setup->allreduce, "toy",
                                         &ops));
    return ct_persistent_coll_prepare(&x->ways, ops->name, setup->deterministic);
}

static ct_coll_where *toy_where(void *obj)
{
    toy *x = obj;

    return (x->setup.comm->size > 1) ? ct_persistent_coll_where(&x->ways) : &x->alone;
}

static ct_status toy_fold(void *obj, const ct_codec_step *step)
{
    toy *x = obj;

    return ct_side_fold(&x->side, step, &x->stats, toy_where(obj));
}

static ct_status toy_start(void *obj, const ct_codec_step *step)
{
    toy *x = obj;
    const ct_codec_setup *s = &x->setup;
    ct_codec_side *d = &x->side;
    ct_momentum_correction a = ct_error_feedback_accum(&d->keep, step, 0, s->n, s->comm->size);

    CT_TRY(d->kernels->update(d->coder, d->stream, &a));
    x->odd = (int64_t)(((uint64_t)step->iteration + s->seed) % 2);
    for (int64_t i = x->odd; i < s->n; i += 2) {
        x->half[i / 2] = d->keep.v[i];
        d->keep.v[i] = 0;
    }
    x->stats.n_step += 1;
    x->stats.bytes_dense += s->n * (int64_t)sizeof(float);
    x->stats.bytes_coded += count_of(x) * (int64_t)sizeof(float);
    return (s->comm->size > 1) ? ct_persistent_coll_start(&x->ways) : CT_OK;
}

static ct_status toy_progress(void *obj)
{
    toy *x = obj;

    if (x->setup.comm->size > 1) CT_TRY(ct_persistent_coll_progress(&x->ways));
    for (int64_t i = 0; i < x->setup.n; ++i)
        x->setup.grad[i] = (i % 2 == x->odd) ? x->half[i / 2] : 0;
    return CT_OK;
}

static const char *toy_exchange(const void *obj)
{
    (void)obj;
    return "every other element";
}

static bool toy_state(void *obj, int i, ct_codec_state *out)
{
    return ct_error_feedback_state(&((toy *)obj)->side.keep, i, out);
}

static void toy_stats(const void *obj, ct_codec_stats *out)
{
    *out = ((const toy *)obj)->stats;
}

static int64_t toy_bytes(const ct_codec_config *c, int64_t n, int64_t rows)
{
    (void)c;
    (void)rows;
    return (n + 1) / 2 * (int64_t)sizeof(float);
}

static const ct_codec_ops ct_codec_toy = {
    .name = "toy",
    .uses = CT_CODEC_USES_RESYNC | CT_CODEC_USES_MOMENTUM_CORRECTION,
    .chains = true,
    .size = sizeof(toy),
    .prepare = toy_prepare,
    .destroy = toy_destroy,
    .fold = toy_fold,
    .start = toy_start,
    .progress = toy_progress,
    .where = toy_where,
    .exchange = toy_exchange,
    .state = toy_state,
    .stats = toy_stats,
    .payload_bytes = toy_bytes,
};

/* ---- what the pipe makes of it */

enum { STEPS = 40 };

/* Whole numbers, so that sums are exact in any order. */
static float gradient(int r, int64_t s, int i)
{
    return (float)((i * 7 + s * 13 + r * 29) % 31 - 15);
}

static int keeps_all(ct_comm *c)
{
    static rig r;
    static float grad[RIG_N];
    static double sum[RIG_CODED], kept[RIG_CODED];
    ct_grad_pipe_config config = { .codec = &ct_codec_toy,
                                   .allreduce = "ring",
                                   .bucket_bytes = 1 << 20,
                                   .codec_config = { .density = 0.1f, .resync_iterations = 16 } };
    ct_codec_state state;
    int fault = rig_open(&r, c, &config, 0), wrong = 0;

    for (int64_t s = 0; (fault == 0) && (s < STEPS); ++s) {
        for (int i = 0; i < RIG_CODED; ++i) {
            grad[i] = gradient(c->rank, s, i);
            for (int k = 0; k < c->size; ++k) sum[i] += gradient(k, s, i);
        }
        fault += rig_step(&r, s, 1, 0.1f, grad);
        for (int i = 0; i < RIG_CODED; ++i) sum[i] -= r.arena[i];
    }
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_state(r.gp, 0, 0, &state));
    for (int i = 0; (fault == 0) && (i < RIG_CODED); ++i) kept[i] = state.data[i];
    MPI_Allreduce(MPI_IN_PLACE, kept, RIG_CODED, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < RIG_CODED; ++i) wrong += (fabs(kept[i] - sum[i]) > 1e-2);
    fault += MPI_FAULT_UNLESS(wrong == 0) + rig_same_on_all(r.hash);
    rig_close(&r);
    memset(sum, 0, sizeof(sum));
    return fault;
}

static void test_keeps_all(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(keeps_all)), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_keeps_all) };

    return mpi_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]), 60);
}
