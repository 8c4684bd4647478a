/* The update rules: an OpenMP loop over blocks, and per rule one block function that the compiler
 * vectorises (with CFLAGS_update_cpu, which make sqrtf an instruction). What they do to an element
 * is in update_math.h. And what callers of all devices see. */
#include "framework/math/update_math.h"

#include <omp.h>

enum {
    BLOCK = 4096,    /* elements: four operands fit into a first-level cache */
    TEAM_MIN = 65536 /* below this a team costs more than it brings          */
};

/* The block [from, from + n) of an update. */
static ct_update block_of(const ct_update *u, int64_t from)
{
    ct_update b = *u;

    b.count = (u->count - from < BLOCK) ? u->count - from : BLOCK;
    b.grad += from;
    b.weight += from;
    for (int i = 0; i < 2; i++)
        if (b.state[i] != NULL) b.state[i] += from;
    return b;
}

static ct_status run(const ct_update *u, void (*block)(ct_update b))
{
#pragma omp parallel for schedule(static) if ((u->count >= TEAM_MIN) && !omp_in_parallel())
    for (int64_t i = 0; i < u->count; i += BLOCK) block(block_of(u, i));
    return CT_OK;
}

#define BLOCK_OF(_name, _kind, ...)                                                                \
    CT_SIMD_CLONES static void _name##_block(ct_update u)                                          \
    {                                                                                              \
        _Pragma("omp simd") for (int64_t i = 0; i < u.count; i++) ct_update_##_name##_at(&u, i);   \
    }
CT_UPDATE_LIST(BLOCK_OF)

#define ROW_OF(_name, _kind, ...) [CT_UPDATE_##_kind] = _name##_block,
ct_status ct_update_cpu(ct_stream st, int kind, const ct_update *u)
{
    static void (*const block[])(ct_update b) = { CT_UPDATE_LIST(ROW_OF) };

    (void)st;
    return run(u, block[kind]);
}

void ct_update_floor_squares(int64_t n, float *square)
{
    enum { SIGN_BLOCK = 1024 /* that of the codec's magnitudes */ };

    for (int64_t first = 0; first < n; first += SIGN_BLOCK) {
        int64_t end = (n - first < SIGN_BLOCK) ? n : first + SIGN_BLOCK;
        float least = 0.0f;

        for (int64_t i = first; i < end; i++) least = (square[i] > least) ? square[i] : least;
        least *= 1e-4f;
        for (int64_t i = first; i < end; i++) square[i] = (square[i] > least) ? square[i] : least;
    }
}

ct_status ct_update_sgd(const ct_update *u)
{
    return u->dev->math->sgd(NULL, u->count, u->scale, u->rate, u->momentum, u->decay_l2,
                             u->decay_l1, u->grad, u->state[0], u->weight);
}

CT_SIMD_CLONES static void moments_block(ct_update u, float *step)
{
#pragma omp simd
    for (int64_t i = 0; i < u.count; i++) step[i] = ct_update_moments_at(&u, i);
}

/* What norms are of. */
typedef struct norms_of {
    const ct_update *u;
    int64_t from; /* of the parameter: where u's range begins */
    ct_update_ratio ratio;
} norms_of;

static void squared(const void *ctx, int64_t from, int64_t n, float room[][CT_SQUARE_UNIT],
                    const float *x[])
{
    const norms_of *o = ctx;
    ct_update b = block_of(o->u, from - o->from);

    b.count = n;
    x[0] = b.weight;
    x[1] = (o->ratio == CT_UPDATE_RATIO_STEP) ? room[1] : b.grad;
    if (o->ratio == CT_UPDATE_RATIO_STEP) moments_block(b, room[1]);
}

ct_status ct_update_add_norms(ct_update_ratio ratio, const ct_update *u, int64_t from, int list,
                              ct_square_sums *s)
{
    const norms_of of = { u, from, ratio };

    return ct_square_sums_make(s, list, 2, from, u->count, squared, &of);
}

ct_status ct_update_norms(ct_update_ratio ratio, const ct_update *u, int list, ct_square_sums *s,
                          double *weight_p, double *step_p)
{
    double step = 0.0;

    CT_TRY(ct_square_sums_of(s, list, weight_p));
    CT_TRY(ct_square_sums_of(s, list + 1, &step));
    if (ratio == CT_UPDATE_RATIO_GRADIENT) step *= (double)u->scale * (double)u->scale;
    *step_p = step;
    return CT_OK;
}
