/* What sparse exchanges send, against their theory: an MPI program.
 *
 *   bench_exchange [MACHINE] [K] [STRIDE] [STEPS] [EXCHANGE] [WIRE] [ALLREDUCE]
 *       auto, 256, 1000, 12, all of them, pairs, rhd
 *
 * Vectors of K * STRIDE elements. First each rank gives K entries evenly spread and none that
 * another has, for which theory holds to the byte; then in STEPS steps the K largest of a sum of
 * random numbers that differ in size from region to region: no rank should send more than 1.3 times
 * the mean (STEPS 0: not these), after four that do not count (3+12: after three). One line an
 * exchange. What sends as many bytes whatever the numbers are (none, bf16, fp16, powersgd, onebit;
 * only by name, or all of them as `dense`) goes through a gradient pipe, as a matrix of STRIDE
 * columns. tests/bench/exchange_volume.sh counts on links, too, and simulates. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/codec/codec_types.h"
#include "comm/sparse/sparse_allreduce_impl.h"
#include "comm/sync/grad_pipe.h"
#include "comm/codec/sign.h"

typedef struct vectors {
    int64_t n, k;
    float *sum, *v;
    ct_sparse own;
    ct_sparse_allreduce_req r;
} vectors;

static ct_status open_vectors(ct_comm *c, const ct_sparse_allreduce_ops *ops, int64_t n, int64_t k,
                              ct_payload_form form, vectors *x)
{
    *x = (vectors){ .n = n, .k = k };
    x->sum = calloc((size_t)n, sizeof(float));
    x->v = calloc((size_t)n, sizeof(float));
    if ((x->sum == NULL) || (x->v == NULL)) return CT_FAIL(CT_ERR_NOMEM, "no memory");
    x->r = (ct_sparse_allreduce_req){ .comm = c, .n = n, .k = k, .form = form, .sum = x->sum };
    return ops->prepare(&x->r);
}

static void close_vectors(const ct_sparse_allreduce_ops *ops, vectors *x)
{
    ops->release(&x->r);
    ct_sparse_destroy(&x->own);
    free(x->sum);
    free(x->v);
}

/* Every stride-th element, a rank's own ones. */
static float even(const vectors *x, int step, int64_t i)
{
    const ct_comm *c = x->r.comm;
    int64_t stride = x->n / x->k;

    (void)step;
    return (i % stride == c->rank * stride / c->size) ? 3 : 0;
}

/* Four times as many as are selected, in places of chance; the last eighth is four times as large.
 */
static float uneven(const vectors *x, int step, int64_t i)
{
    int64_t every = x->n / x->k / 4;
    uint64_t z = ((uint64_t)(x->r.comm->rank + 1) << 40) + ((uint64_t)(step + 1) << 34);
    float value = 0;

    z = (z + (uint64_t)i) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    z ^= z >> 31;
    if ((every > 1) && ((z & 0xffffff) % (uint64_t)every != 0)) return 0;
    value = (float)((z >> 24) % 2001) - 1000;
    return (i >= x->n - x->n / 8) ? 4 * value : value;
}

static ct_status one_step(const ct_sparse_allreduce_ops *ops, vectors *x, int step,
                          float (*grad)(const vectors *, int, int64_t))
{
    ct_sparse_allreduce_req *r = &x->r;
    float *v = x->v + r->first;
    int64_t some = 0;

    for (int64_t i = 0; i < x->n; ++i) x->sum[i] = grad(x, step, i);
    if (ops->node_start != NULL) {
        ct_status status = ops->node_start(r, x->sum);
        int idle = 0;

        while ((status == CT_OK) && ((status = ops->node_progress(r)) == CT_INPROGRESS)) {
            MPI_Request *req[CT_COMM_MAX_PENDING];
            int n = ops->pending(r, req, CT_COMM_MAX_PENDING);

            idle += 1;
            status = ct_comm_wait_any(r->comm, req, n, &idle);
        }
        CT_TRY(status);
    }
    for (int64_t i = 0; i < r->length; ++i) {
        v[i] += x->sum[r->first + i];
        some += (v[i] != 0);
    }
    CT_TRY(ct_sparse_reserve(&x->own,
                             some)); /* a thousand ranks in one process have no room for all */
    x->own.n = r->length;
    x->own.count = 0;
    for (int64_t i = 0; i < r->length; ++i) {
        if (v[i] == 0) continue;
        x->own.index[x->own.count] = (uint32_t)i;
        x->own.value[x->own.count++] = v[i];
        v[i] = 0;
    }
    ct_sparse_keep(&x->own, r->k_own, &(ct_residual_return){ .v = v });
    r->own = &x->own;
    r->residual.v = v;
    return ct_sparse_allreduce_run(ops, r);
}

/* Bytes of all ranks, and of the one that sent most. */
static void add_up(int64_t mine, double *mean_p, double *most_p, int size)
{
    int64_t sum = 0, most = 0;

    MPI_Allreduce(&mine, &sum, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(&mine, &most, 1, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
    *mean_p = (double)sum / size;
    *most_p = (double)most;
}

static ct_status bench(ct_comm *c, const ct_sparse_allreduce_ops *ops, int64_t k, int64_t stride,
                       int settle, int steps, ct_payload_form form)
{
    double theory = (double)ops->bytes_theory(c, k * stride, k, form);
    double exact = 0, exact_most = 0, mean = 0, most = 0;
    vectors x;
    int64_t before = 0;

    CT_TRY(open_vectors(c, ops, k * stride, k, form, &x));
    CT_TRY(one_step(ops, &x, 0, even));
    add_up(x.r.bytes_sent, &exact, &exact_most, c->size);
    close_vectors(ops, &x);
    if (steps == 0) {
        if (c->rank == 0)
            printf("%-10s %-6s %5d %9lld %12.0f %12.1f %8.4f %12s %8s %8.3f\n", ops->name,
                   ct_payload_name(form), c->size, (long long)k, theory, exact,
                   (theory > 0) ? exact / theory : 1, "", "", (exact > 0) ? exact_most / exact : 1);
        return CT_OK;
    }
    CT_TRY(open_vectors(c, ops, k * stride, k, form, &x));
    for (int i = 0; i < settle + steps; ++i) {
        if (i == settle) before = x.r.bytes_sent;
        CT_TRY(one_step(ops, &x, i, uneven));
    }
    add_up(x.r.bytes_sent - before, &mean, &most, c->size);
    close_vectors(ops, &x);
    if (c->rank == 0)
        printf("%-10s %-6s %5d %9lld %12.0f %12.1f %8.4f %12.1f %8.4f %8.3f\n", ops->name,
               ct_payload_name(form), c->size, (long long)k, theory, exact,
               (theory > 0) ? exact / theory : 1, mean / steps,
               (theory > 0) ? mean / steps / theory : 1, (mean > 0) ? most / mean : 1);
    fflush(stdout);
    return CT_OK;
}

/* ---- codecs of all elements */

enum { COLUMNS = 2 }; /* of powersgd */

/* What a rank sends, of n elements in k rows: a sum that halves and doubles, or goes round a ring,
 * sends 2 (p - 1) / p of its buffer. */
static double theory_of(const char *name, const ct_comm *c, int64_t k, int64_t n)
{
    double p = c->size, sum = 2 * (p - 1) / p;
    double all = 0;
    ct_sign_cut cut = { .n = n, .parts = c->size };

    if (strcmp(name, "none") == 0) return sum * 4 * (double)n;
    if (strcmp(name, "powersgd") == 0) return sum * 4 * COLUMNS * (double)(k + n / k);
    if (strcmp(name, "onebit") != 0) return sum * 2 * (double)n;
    /* each part to its owner, where it has one, and its owner's signs of the sum to everyone */
    for (int j = 0; j < c->size; ++j) {
        double bytes = (double)(ct_sign_at(&cut, j + 1) - ct_sign_at(&cut, j));
        int64_t first = 0, of_part = 0;

        ct_sign_part(&cut, j, &first, &of_part);
        all += (of_part > 0) ? 2 * bytes : bytes;
    }
    return (p - 1) / p * all;
}

static ct_status coded_steps(ct_grad_pipe *gp, float *arena, int64_t n, int rank, int steps)
{
    for (int s = 0; s < steps; ++s) {
        CT_TRY(ct_grad_pipe_begin(gp, s, 1, 0.01f));
        for (int64_t i = 0; i < n; ++i)
            arena[i] = (float)((i * 37 + rank * 101 + s * 11) % 1009 - 504);
        CT_TRY(ct_grad_pipe_ready(gp, 0));
        CT_TRY(ct_grad_pipe_finish(gp, NULL, NULL));
    }
    return CT_OK;
}

static ct_status bench_coded(ct_comm *c, const char *name, const char *allreduce, int64_t k,
                             int64_t n, int steps)
{
    const ct_arena_ops *mem = ct_comm_arena(c);
    ct_codec_config codec = { .density = 0.001f,
                              .exchange = (strcmp(name, "onebit") == 0) ? "split" : "auto",
                              .selection = "auto",
                              .wire = "auto",
                              .rank = COLUMNS };
    ct_grad_pipe_config config = { .allreduce = allreduce,
                                   .overlap = true,
                                   .momentum = 0.9f,
                                   .progress = CT_PROGRESS_POLL,
                                   .bucket_bytes = 4 * n };
    ct_grad_range one = { .key = "fc[0]", .count = n, .rows = k, .rate_mult = 1 };
    ct_grad_pipe *gp = NULL;
    ct_sync_stats sent;
    double mean = 0, most = 0, theory = theory_of(name, c, k, n);
    void *arena = NULL;

    CT_TRY(ct_codec_find(name, &config.codec));
    codec.momentum_correction = ct_codec_absorbs(config.codec);
    config.codec_config = codec;
    CT_TRY(mem->acquire(mem->ctx, sizeof(float) * (size_t)n, "gradients", &arena));
    one.weight = arena; /* no decay */
    CT_TRY(ct_grad_pipe_create(c, &config, arena, &one, 1, &gp));
    CT_TRY(coded_steps(gp, arena, n, c->rank, steps));
    ct_grad_pipe_get_stats(gp, false, &sent);
    add_up(sent.bytes_sent, &mean, &most, c->size);
    if (c->rank == 0)
        printf("%-10s %-6s %5d %9lld %12.0f %12.1f %8.4f %12.1f %8.4f %8.3f\n", name,
               ct_grad_pipe_bucket(gp, 0, &n), c->size, (long long)k, theory, mean / steps,
               mean / steps / theory, mean / steps, mean / steps / theory, most / mean);
    fflush(stdout);
    ct_grad_pipe_destroy(gp);
    mem->release(mem->ctx, arena);
    return CT_OK;
}

static ct_status all_coded(ct_comm *c, const char *name, const char *allreduce, int64_t k,
                           int64_t n, int steps)
{
    static const char *const known[] = { "none", "bf16", "fp16", "powersgd", "onebit" };

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); ++i) {
        if ((strcmp(name, "dense") != 0) && (strcmp(name, known[i]) != 0)) continue;
        CT_TRY(bench_coded(c, known[i], allreduce, k, n, steps));
    }
    return CT_OK;
}

static ct_status run(int argc, char **argv, ct_comm *c)
{
    int64_t k = (argc > 2) ? atoll(argv[2]) : 256, stride = (argc > 3) ? atoll(argv[3]) : 1000;
    const char *plus = (argc > 4) ? strchr(argv[4], '+') : NULL;
    int steps = (argc > 4) ? atoi((plus != NULL) ? plus + 1 : argv[4]) : 12;
    int settle = (plus != NULL) ? atoi(argv[4]) : 4;
    const char *name = (argc > 5) ? argv[5] : "all";
    ct_payload_form form =
        ((argc > 6) && (strcmp(argv[6], "half") == 0)) ? CT_PAYLOAD_HALF : CT_PAYLOAD_PAIRS;

    if ((k < 1) || (steps < 0) || (settle < 0) || (stride < c->size))
        return CT_FAIL(CT_ERR_CONFIG, "expected K of at least 1, STEPS of 0, STRIDE of the ranks");
    if (c->rank == 0)
        printf("%-10s %-6s %5s %9s %12s %12s %8s %12s %8s %8s\n", "exchange", "wire", "ranks", "k",
               "theory", "even", "/theory", "uneven", "/theory", "most");
    for (const ct_sparse_allreduce_ops *const *at = ct_sparse_allreduce_table; *at != NULL; ++at) {
        if ((strcmp(name, "all") != 0) && (strcmp(name, (*at)->name) != 0)) continue;
        /* with a rank a node it is the exchange within */
        if (((*at)->node_start != NULL) && (ct_topo_max_node_size(c->topo) == 1)) continue;
        CT_TRY(bench(c, *at, k, stride, settle, steps, form));
    }
    if (steps == 0) steps = 1; /* of all elements: none is uneven */
    return all_coded(c, name, (argc > 7) ? argv[7] : "rhd", k, k * stride, steps);
}

int main(int argc, char **argv)
{
    ct_comm *c = NULL;
    int rank = 0, size = 0, provided = 0;
    ct_status status = CT_OK;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    ct_log_init(rank, size, "bench");
    status = ct_comm_create(MPI_COMM_WORLD, (argc > 1) ? argv[1] : "auto", &c);
    if (status == CT_OK) status = run(argc, argv, c);
    if (status != CT_OK) MPI_Abort(MPI_COMM_WORLD, 1);
    ct_comm_destroy(c);
    MPI_Finalize();
    return 0;
}
