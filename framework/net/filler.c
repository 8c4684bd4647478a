/* Initial values of weights, by Caffe's filler rules. Element i depends on (key, i) only, so the
 * result is the same for any number of threads and ranks, and a part of a weight has the values of
 * the whole without the rest being made. */
#include "framework/base/memory.h"
#include "framework/base/rng.h"
#include "framework/base/text.h"
#include "framework/net/net.h"

#include <math.h>
#include <string.h>

typedef struct fill_job {
    const Ct__FillerParameter *p;
    uint64_t key;
    const ct_shape *shape; /* of the whole, on which every rule works */
    int64_t n;
    const ct_cut *cut; /* what of it is made */
    const char *who;   /* in front of messages */
    double low, size;  /* of the rule: its least value and its range, or mean and deviation */
} fill_job;

/* Elements first to first + n - 1 of the whole. */
typedef void (*fill_fn)(const fill_job *j, int64_t first, int64_t n, float *data);

typedef struct filler {
    const char *type;
    int min_dim; /* dimensions the rule needs */
    /* data NULL: only the checks */
    ct_status (*fill)(fill_job *j, float *data);
} filler;

enum { CHUNK = 4096 };

/* By a team: each run of the part in chunks. */
static void fill_runs(const fill_job *j, fill_fn fill, float *data)
{
    int64_t n_run = ct_cut_runs(j->cut), most = 0, n_chunk;

    for (int64_t i = 0; (i < n_run) && (i < CT_MAX_RANGE); i++) {
        int64_t count = ct_cut_run_at(j->cut, i).count; /* the ranges', which come again */

        most = (count > most) ? count : most;
    }
    n_chunk = (most + CHUNK - 1) / CHUNK;
#pragma omp parallel for schedule(static) collapse(2)
    for (int64_t i = 0; i < n_run; i++) {
        for (int64_t c = 0; c < n_chunk; c++) {
            ct_cut_run r = ct_cut_run_at(j->cut, i);
            int64_t at = c * CHUNK, n = (r.count - at < CHUNK) ? r.count - at : CHUNK;

            if (n > 0) fill(j, r.whole + at, n, data + r.part + at);
        }
    }
}

static void put_uniform(const fill_job *j, int64_t first, int64_t n, float *data)
{
    for (int64_t b = first / 4; 4 * b < first + n; b++) {
        ct_rng_block r = ct_rng_philox(j->key, 0, (uint64_t)b);

        for (int64_t i = 4 * b; i < 4 * b + 4; i++) {
            if ((i >= first) && (i < first + n))
                data[i - first] = (float)(j->low + j->size * (double)ct_rng_uniform(r.v[i % 4]));
        }
    }
}

static void uniform(fill_job *j, double low, double high, float *data)
{
    j->low = low;
    j->size = high - low;
    fill_runs(j, put_uniform, data);
}

/* The normals of ct_rng_normal_at(), a pair for one logarithm and one root. */
static void put_gaussian(const fill_job *j, int64_t first, int64_t n, float *data)
{
    for (int64_t p = first / 2; 2 * p < first + n; p++) {
        ct_rng_block r = ct_rng_philox(j->key, 0, (uint64_t)(p / 2));
        int at = (int)(p % 2) * 2;
        double u1 = ((double)r.v[at] + 1.0) * 0x1p-32, u2 = (double)r.v[at + 1] * 0x1p-32;
        double radius = sqrt(-2.0 * log(u1)), angle = 6.283185307179586 * u2;

        if (2 * p >= first) data[2 * p - first] = (float)(j->low + j->size * radius * cos(angle));
        if (2 * p + 1 < first + n)
            data[2 * p + 1 - first] = (float)(j->low + j->size * radius * sin(angle));
    }
}

static void gaussian(fill_job *j, double mean, double std, float *data)
{
    j->low = mean;
    j->size = std;
    fill_runs(j, put_gaussian, data);
}

static void put_constant(const fill_job *j, int64_t first, int64_t n, float *data)
{
    (void)first;
    for (int64_t i = 0; i < n; i++) data[i] = j->p->value;
}

static ct_status fill_constant(fill_job *j, float *data)
{
    if (data != NULL) fill_runs(j, put_constant, data);
    return CT_OK;
}

static ct_status fill_uniform(fill_job *j, float *data)
{
    if (!(j->p->min <= j->p->max))
        return CT_FAIL(CT_ERR_CONFIG, "%sfiller \"uniform\": min %g is not below max %g", j->who,
                       (double)j->p->min, (double)j->p->max);
    if (data != NULL) uniform(j, (double)j->p->min, (double)j->p->max, data);
    return CT_OK;
}

/* sparse: each weight stays with probability sparse / outputs, so that an output (dimension 0)
 * has on the average that many non-zero inputs where the matrix is square. */
static void thin_out(const fill_job *j, int64_t first, int64_t n, float *data)
{
    uint64_t key = ct_rng_key(j->key, ct_rng_hash("sparse"), 0);
    double keep = (double)j->p->sparse / (double)j->shape->dim[0];

    for (int64_t i = 0; i < n; i++) {
        if ((double)ct_rng_uniform_at(key, (uint64_t)(first + i)) >= keep) data[i] = 0.0f;
    }
}

static ct_status fill_gaussian(fill_job *j, float *data)
{
    if (!(j->p->std > 0.0f))
        return CT_FAIL(CT_ERR_CONFIG, "%sfiller \"gaussian\": std %g is not positive", j->who,
                       (double)j->p->std);
    if ((j->p->sparse < -1) ||
        ((j->p->sparse >= 0) && ((j->shape->ndim < 1) || (j->p->sparse > j->shape->dim[0]))))
        return CT_FAIL(
            CT_ERR_CONFIG,
            "%sfiller \"gaussian\": sparse %d does not fit a weight of shape %s (-1 to %lld)",
            j->who, j->p->sparse, ct_shape_str(j->shape).text,
            (long long)ct_shape_legacy(j->shape, 0));
    if (data == NULL) return CT_OK;
    gaussian(j, (double)j->p->mean, (double)j->p->std, data);
    if (j->p->sparse >= 0) fill_runs(j, thin_out, data);
    return CT_OK;
}

/* n of the variance rules: a unit's inputs are count / dim[0], its outputs count / dim[1]. */
static double fan(const fill_job *j)
{
    int64_t n_in = j->n / j->shape->dim[0];
    int64_t n_out = (j->shape->ndim > 1) ? j->n / j->shape->dim[1] : j->n;
    double in = (double)n_in, out = (double)n_out;

    switch (j->p->variance_norm) {
    case CT__FILLER_PARAMETER__VARIANCE_NORM__AVERAGE:
        return (in + out) / 2;
    case CT__FILLER_PARAMETER__VARIANCE_NORM__FAN_OUT:
        return out;
    default:
        return in;
    }
}

static ct_status fill_xavier(fill_job *j, float *data)
{
    double a = sqrt(3.0 / fan(j));

    if (data != NULL) uniform(j, -a, a, data);
    return CT_OK;
}

static ct_status fill_msra(fill_job *j, float *data)
{
    if (data != NULL) gaussian(j, 0.0, sqrt(2.0 / fan(j)), data);
    return CT_OK;
}

/* Each unit's weights are positive and sum to 1. */
static void unitball(fill_job *j, float *data)
{
    int64_t dim = j->n / j->shape->dim[0];

    uniform(j, 0.0, 1.0, data);
    for (int64_t i = 0; i < j->shape->dim[0]; i++) {
        double sum = 0;

        for (int64_t k = 0; k < dim; k++) sum += (double)data[i * dim + k];
        if (sum == 0) { /* every number drawn was 0: share equally instead of dividing by it */
            for (int64_t k = 0; k < dim; k++) data[i * dim + k] = 1.0f;
            sum = (double)dim;
        }
        for (int64_t k = 0; k < dim; k++)
            data[i * dim + k] = (float)((double)data[i * dim + k] / sum);
    }
}

/* A part of a unit needs the sum of all: the whole is made, and cut. */
static ct_status fill_positive_unitball(fill_job *j, float *data)
{
    const ct_cut *cut = j->cut;
    ct_cut all = { .whole = *j->shape };
    float *whole;

    if (data == NULL) return CT_OK;
    if (cut->n_range == 0) {
        unitball(j, data);
        return CT_OK;
    }
    whole = ct_mem_acquire((size_t)j->n * sizeof(float));
    if (whole == NULL)
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a weight of shape %s",
                       ct_shape_str(j->shape).text);
    j->cut = &all;
    unitball(j, whole);
    j->cut = cut;
    ct_cut_take(cut, whole, data);
    ct_mem_release(whole);
    return CT_OK;
}

/* The kernel of linear interpolation: with f = ceil(w / 2) and c = (w - 1) / 2f, element (y, x) of
 * each plane is (1 - |x/f - c|) (1 - |y/f - c|). */
static void put_bilinear(const fill_job *j, int64_t first, int64_t n, float *data)
{
    int64_t w = ct_shape_legacy(j->shape, 3), h = ct_shape_legacy(j->shape, 2);
    double f = ceil((double)w / 2.0), c = (double)(w - 1) / (2.0 * f);

    for (int64_t i = first; i < first + n; i++) {
        double x = (double)(i % w), y = (double)(i / w % h);

        data[i - first] = (float)((1 - fabs(x / f - c)) * (1 - fabs(y / f - c)));
    }
}

static ct_status fill_bilinear(fill_job *j, float *data)
{
    if ((j->shape->ndim != 4) || (j->shape->dim[2] != j->shape->dim[3]))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%sfiller \"bilinear\" needs 4 dimensions and square kernels, not %s",
                       j->who, ct_shape_str(j->shape).text);
    if (data != NULL) fill_runs(j, put_bilinear, data);
    return CT_OK;
}

static const filler filler_table[] = {
    { "constant", 0, fill_constant }, { "uniform", 0, fill_uniform },
    { "gaussian", 0, fill_gaussian }, { "xavier", 1, fill_xavier },
    { "msra", 1, fill_msra },         { "positive_unitball", 1, fill_positive_unitball },
    { "bilinear", 4, fill_bilinear },
};
enum { N_FILLER = sizeof(filler_table) / sizeof(filler_table[0]) };

static ct_status find_filler(const fill_job *j, const filler **f_p)
{
    const char *type = (j->p->type != NULL) ? j->p->type : "constant";
    const char *name[N_FILLER], *near;

    for (int i = 0; i < N_FILLER; i++) {
        if (strcmp(filler_table[i].type, type) == 0) return *f_p = &filler_table[i], CT_OK;
        name[i] = filler_table[i].type;
    }
    if (strcmp(type, "gabor") == 0)
        return CT_FAIL(CT_ERR_CONFIG,
                       "%sfiller \"gabor\" of Intel's fork, a table of edge filters, is not there; "
                       "start from \"gaussian\", or from weights",
                       j->who);
    near = ct_text_nearest(type, name, N_FILLER);
    return CT_FAIL(CT_ERR_CONFIG, "%sunknown filler type \"%s\"%s%s%s", j->who, type,
                   (near != NULL) ? "; did you mean \"" : "", (near != NULL) ? near : "",
                   (near != NULL) ? "\"?" : "");
}

static ct_status run(fill_job *j, float *data)
{
    const filler *f;

    CT_TRY(find_filler(j, &f));
    if (j->n == 0)
        return CT_FAIL(CT_ERR_CONFIG, "%sfiller \"%s\": a weight of shape %s is empty", j->who,
                       f->type, ct_shape_str(j->shape).text);
    if (j->shape->ndim < f->min_dim)
        return CT_FAIL(CT_ERR_CONFIG, "%sfiller \"%s\" needs %d dimensions, the weight has %d",
                       j->who, f->type, f->min_dim, j->shape->ndim);
    if ((j->p->sparse != -1) && (f->fill != fill_gaussian))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%sfiller \"%s\" does not know `sparse`, only \"gaussian\" does", j->who,
                       f->type);
    return f->fill(j, data);
}

ct_status ct_fill_cut(const Ct__FillerParameter *param, uint64_t key, const ct_cut *cut,
                      float *data)
{
    fill_job j = { .p = param,
                   .key = key,
                   .shape = &cut->whole,
                   .n = ct_shape_count(&cut->whole, 0, -1),
                   .cut = cut,
                   .who = "" };

    return run(&j, data);
}

ct_status ct_fill(const Ct__FillerParameter *param, uint64_t key, const ct_shape *shape,
                  float *data)
{
    return ct_fill_cut(param, key, &(ct_cut){ .whole = *shape }, data);
}

ct_status ct_fill_check(const Ct__FillerParameter *param, const ct_shape *shape, const char *who)
{
    fill_job j = { .p = param,
                   .shape = shape,
                   .n = ct_shape_count(shape, 0, -1),
                   .cut = &(ct_cut){ .whole = *shape },
                   .who = who };

    return run(&j, NULL);
}
