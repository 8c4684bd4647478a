#include "cli/bench/bench.h"

#include <stdlib.h>
#include <string.h>

#include "comm/collective/async_sum.h"
#include "comm/collective/schedule.h"
#include "framework/base/clock.h"
#include "framework/base/json_writer.h"
#include "framework/base/sort.h"
#include "framework/base/number.h"

enum { PERIOD = 31, BLOCK = 32 * PERIOD, MIN_REPEAT = 5, MAX_REPEAT = 200 };
static const int64_t max_bytes = (int64_t)1 << 36;

ct_status ct_bench_sizes(const char *list, ct_bench_plan *plan)
{
    const char *at = (list != NULL) ? list : "4K,16K,64K,256K,1M,4M,16M,64M,256M";

    plan->n_size = 0;
    for (;;) {
        static char none[] = "?";
        char *end = none;
        int64_t v = 0;
        bool is = ct_number_integer(at, &end, &v);
        int shift = (*end == 'K') ? 10 : (*end == 'M') ? 20 : (*end == 'G') ? 30 : 0;

        if (shift > 0) end += 1;
        if (!is || (v < 1) || (v > (max_bytes >> shift)) || ((*end != ',') && (*end != '\0')))
            return CT_FAIL(CT_ERR_CONFIG, "--sizes=%s: expected sizes up to 64G such as 4K,64K,1M",
                           list);
        if (((v << shift) % 4) != 0)
            return CT_FAIL(CT_ERR_CONFIG, "--sizes=%s: %lld bytes are no whole floats", list,
                           (long long)(v << shift));
        if (plan->n_size == CT_BENCH_MAX_SIZE)
            return CT_FAIL(CT_ERR_CONFIG, "--sizes: more than %d", CT_BENCH_MAX_SIZE);
        plan->bytes[plan->n_size++] = v << shift;
        if (*end == '\0') return CT_OK;
        at = end + 1;
    }
}

/* ---- "transfer": the sum of a layer that ranks share, as a net's steps begin and await it */

typedef struct layer_sum {
    ct_transfers *transfers;
    void *ticket;
} layer_sum;

static ct_status prepare_transfer(ct_coll_req *r)
{
    layer_sum *s = calloc(1, sizeof(*s));

    if (s == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a sum");
    r->state = s;
    return ct_transfers_create(r->comm, r->comm, &s->transfers);
}

static ct_status begin_transfer(ct_coll_req *r)
{
    layer_sum *s = r->state;
    const ct_transfer t = {
        .kind = CT_TRANSFER_SUM, .dtype = r->dtype, .from = r->buf, .to = r->buf, .n = r->count
    };

    return ct_transfers_ops.begin(s->transfers, &t, &s->ticket);
}

static ct_status await_transfer(ct_coll_req *r)
{
    layer_sum *s = r->state;

    return ct_transfers_ops.wait(s->transfers, s->ticket);
}

static void release_transfer(ct_coll_req *r)
{
    layer_sum *s = r->state;

    ct_transfers_destroy(s->transfers);
    free(s);
}

static const ct_coll_ops of_layers = { .name = "transfer",
                                       .kind = CT_COLL_ALLREDUCE,
                                       .prepare = prepare_transfer,
                                       .start = begin_transfer,
                                       .progress = await_transfer,
                                       .release = release_transfer };

static ct_status add_algorithm(const ct_comm *c, const char *name, ct_bench_plan *plan)
{
    const ct_coll_ops *ops = NULL;

    if (plan->n_algo == CT_BENCH_MAX_ALGO)
        return CT_FAIL(CT_ERR_CONFIG, "--algorithm: more than %d", CT_BENCH_MAX_ALGO);
    if (strcmp(name, "mpi") != 0) {
        if (strcmp(name, of_layers.name) == 0)
            ops = &of_layers;
        else
            CT_TRY(ct_coll_choose(c, 1, CT_F32, name, &ops));
        ops = ct_coll_of_kind(ops, plan->kind);
        if (ops == NULL)
            return CT_FAIL(CT_ERR_CONFIG, "--algorithm: %s has no %s", name,
                           ct_coll_kind_name[plan->kind]);
    }
    plan->algo[plan->n_algo++] = ops;
    return CT_OK;
}

ct_status ct_bench_algorithms(const ct_comm *c, const char *list, ct_bench_plan *plan)
{
    char *copy = NULL;
    ct_status status = CT_OK;

    plan->n_algo = 0;
    if ((list == NULL) || (strcmp(list, "all") == 0)) {
        plan->algo[plan->n_algo++] = NULL;
        for (const ct_coll_ops *const *at = ct_coll_table; *at != NULL; ++at) {
            if (ct_coll_of_kind(*at, plan->kind) == NULL) continue;
            CT_TRY(add_algorithm(c, (*at)->name, plan));
        }
        return (plan->kind == CT_COLL_ALLREDUCE) ? add_algorithm(c, of_layers.name, plan) : CT_OK;
    }
    copy = strdup(list);
    if (copy == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a list of algorithms");
    for (char *rest = copy, *name; (status == CT_OK) && ((name = strsep(&rest, ",")) != NULL);)
        status = (name[0] != '\0')
                     ? add_algorithm(c, name, plan)
                     : CT_FAIL(CT_ERR_CONFIG, "--algorithm=%s: expected names with commas between",
                               list);
    free(copy);
    return status;
}

static const char *name_of(const ct_coll_ops *ops)
{
    return (ops != NULL) ? ops->name : "mpi";
}

/* ---- one size */

/* Small whole numbers: their sums are exact, in any order. */
static int term(int rank, int64_t i)
{
    return (int)((i * 7 + (int64_t)rank * 13) % PERIOD);
}

/* Quick, so that between two sums little time goes by in which other programs empty the caches. */
static void fill(float *v, int64_t n, int rank)
{
    float pattern[BLOCK];

    for (int i = 0; i < BLOCK; ++i) pattern[i] = (float)term(rank, i);
    for (int64_t at = 0; at < n; at += BLOCK) {
        int m = (n - at < BLOCK) ? (int)(n - at) : BLOCK;

#pragma omp simd
        for (int i = 0; i < m; ++i) v[at + i] = pattern[i];
    }
}

/* What the sums are of BLOCK elements from `first` on. */
static void make_sums(float *pattern, int64_t first, int n_rank)
{
    for (int i = 0; i < BLOCK; ++i) {
        int sum = 0;

        for (int r = 0; r < n_rank; ++r) sum += term(r, first % PERIOD + i);
        pattern[i] = (float)sum;
    }
}

/* v holds elements [first, first + n). */
static int64_t count_wrong(const float *v, int64_t first, int64_t n, int n_rank)
{
    float pattern[BLOCK];
    int64_t wrong = 0;

    make_sums(pattern, first, n_rank);
    for (int64_t at = 0; at < n; at += BLOCK) {
        int m = (n - at < BLOCK) ? (int)(n - at) : BLOCK, off = 0;

#pragma omp simd reduction(+ : off)
        for (int i = 0; i < m; ++i) off += (v[at + i] != pattern[i]);
        wrong += off;
    }
    return wrong;
}

/* Before an allgather: this rank's part is there, the rest is not. */
static void fill_part(float *v, int64_t count, int64_t first, int64_t n, int n_rank)
{
    float pattern[BLOCK];

    make_sums(pattern, first, n_rank);
    for (int64_t i = 0; i < count; ++i) v[i] = -1;
    for (int64_t at = 0; at < n; at += BLOCK)
        memcpy(v + first + at, pattern,
               sizeof(float) * (size_t)((n - at < BLOCK) ? n - at : BLOCK));
}

/* What the algorithms of one size share. */
typedef struct workplace {
    ct_comm *c;
    ct_coll_kind kind;
    int64_t count;
    int64_t first, n;     /* this rank's part by ct_coll_part() */
    int *counts, *places; /* [size] parts as MPI has them: in the order of ranks */
    float *shared, *plain;
    ct_coll_req req[CT_BENCH_MAX_ALGO];
} workplace;

/* Parts of equal counts where that is so: MPIs know faster ways then. */
static ct_status run_mpi_half(workplace *w)
{
    MPI_Comm all = w->c->mpi;
    bool even = (w->count % w->c->size == 0);

    if ((w->kind == CT_COLL_REDUCE_SCATTER) && even)
        CT_TRY_MPI(MPI_Reduce_scatter_block(MPI_IN_PLACE, w->plain, w->counts[0], MPI_FLOAT,
                                            MPI_SUM, all));
    else if (w->kind == CT_COLL_REDUCE_SCATTER)
        CT_TRY_MPI(MPI_Reduce_scatter(MPI_IN_PLACE, w->plain, w->counts, MPI_FLOAT, MPI_SUM, all));
    else if (even)
        CT_TRY_MPI(MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, w->plain, w->counts[0],
                                 MPI_FLOAT, all));
    else
        CT_TRY_MPI(MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, w->plain, w->counts,
                                  w->places, MPI_FLOAT, all));
    return CT_OK;
}

static ct_status run_mpi(workplace *w)
{
    int64_t piece = (int64_t)1 << 29;

    if (w->kind != CT_COLL_ALLREDUCE) return run_mpi_half(w);
    for (int64_t at = 0; at < w->count; at += piece) {
        int n = (int)((w->count - at < piece) ? w->count - at : piece);

        CT_TRY_MPI(MPI_Allreduce(MPI_IN_PLACE, w->plain + at, n, MPI_FLOAT, MPI_SUM, w->c->mpi));
    }
    return CT_OK;
}

static ct_status run_ours(workplace *w, const ct_coll_ops *ops, ct_coll_req *r)
{
    ct_status status = ops->start(r);
    int idle = 0;

    if (status != CT_OK) return status;
    while ((status = ops->progress(r)) == CT_INPROGRESS) {
        idle += 1;
        ct_comm_relax(w->c, &idle);
    }
    return status;
}

static ct_status time_once(workplace *w, const ct_coll_ops *ops, ct_coll_req *r, double *seconds)
{
    float *v = (ops == NULL) ? w->plain : r->buf;
    int64_t wrong = 0, first = w->first, n = w->n;
    double start = 0;

    if ((ops == NULL) && (w->kind != CT_COLL_ALLREDUCE)) {
        first = w->places[w->c->rank];
        n = w->counts[w->c->rank];
    }
    if (w->kind == CT_COLL_ALLGATHER)
        fill_part(v, w->count, first, n, w->c->size);
    else
        fill(v, w->count, w->c->rank);
    CT_TRY_MPI(MPI_Barrier(w->c->mpi));
    start = ct_clock_s();
    CT_TRY((ops == NULL) ? run_mpi(w) : run_ours(w, ops, r));
    *seconds = ct_clock_s() - start;
    CT_TRY_MPI(MPI_Barrier(w->c->mpi));    /* the check takes no core from who is still at it */
    if (w->kind == CT_COLL_REDUCE_SCATTER) /* MPI's own in place leaves the part at the start */
        wrong = count_wrong((ops == NULL) ? v : v + first, first, n, w->c->size);
    else
        wrong = count_wrong(v, 0, w->count, w->c->size);
    if (wrong > 0)
        return CT_FAIL(CT_ERR_COMM, "%s %s of %lld elements: %lld are wrong",
                       ct_coll_kind_name[w->kind], name_of(ops), (long long)w->count,
                       (long long)wrong);
    return CT_OK;
}

/* The slowest rank's time of each repetition, then the median over them. */
static ct_status settle(ct_comm *c, double *seconds, int n, ct_bench_result *result)
{
    CT_TRY_MPI(MPI_Allreduce(MPI_IN_PLACE, seconds, n, MPI_DOUBLE, MPI_MAX, c->mpi));
    result->repeats = n;
    result->median_s = ct_median(seconds, n);
    result->least_s = seconds[0];
    return CT_OK;
}

/* The first round warms up; then the algorithms take turns, so that what disturbs the machine
 * meets them all. */
static ct_status time_all(workplace *w, const ct_bench_plan *plan, int repeat, double *seconds)
{
    for (int k = -1; k < repeat; ++k) {
        for (int a = 0; a < plan->n_algo; ++a) {
            double once = 0;

            CT_TRY(time_once(w, plan->algo[a], &w->req[a], &once));
            if (k >= 0) seconds[(size_t)a * (size_t)repeat + (size_t)k] = once;
        }
    }
    return CT_OK;
}

static int repeats_for(const ct_bench_plan *plan, int64_t bytes)
{
    int64_t n = ((int64_t)1 << 30) / bytes;

    if (plan->repeat > 0) return plan->repeat;
    return (int)((n < MIN_REPEAT) ? MIN_REPEAT : (n > MAX_REPEAT) ? MAX_REPEAT : n);
}

static ct_status prepare(workplace *w, const ct_bench_plan *plan)
{
    for (int a = 0; a < plan->n_algo; ++a) {
        if (plan->algo[a] == NULL) continue;
        w->req[a] =
            (ct_coll_req){ .comm = w->c,
                           .buf = (plan->plain || !plan->algo[a]->shares_memory) ? w->plain
                                                                                 : w->shared,
                           .count = w->count,
                           .dtype = CT_F32,
                           .tag = ct_comm_take_tags(w->c, CT_COLL_TAGS) };
        CT_TRY(plan->algo[a]->prepare(&w->req[a]));
    }
    return CT_OK;
}

/* Where parts lie: ours by the topology, MPI's by the rank. */
static ct_status make_parts(workplace *w)
{
    int size = w->c->size;

    if (w->kind == CT_COLL_ALLREDUCE) return CT_OK;
    if (w->count > INT32_MAX)
        return CT_FAIL(CT_ERR_CONFIG, "--kind=%s: MPI's own takes less than 8 GiB",
                       ct_coll_kind_name[w->kind]);
    CT_TRY(ct_coll_part(w->c, w->count, w->c->rank, &w->first, &w->n));
    w->counts = calloc(2 * (size_t)size, sizeof(*w->counts));
    if (w->counts == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the parts");
    w->places = w->counts + size;
    for (int r = 0; r < size; ++r) {
        w->places[r] = (int)ct_part(w->count, size, r);
        w->counts[r] = (int)ct_part(w->count, size, r + 1) - w->places[r];
    }
    return CT_OK;
}

static ct_status bench_size(ct_comm *c, const ct_bench_plan *plan, int64_t bytes,
                            ct_bench_result *result)
{
    const ct_arena_ops *arena = ct_comm_arena(c);
    workplace w = { .c = c, .kind = plan->kind, .count = bytes / 4 };
    int repeat = repeats_for(plan, bytes);
    double *seconds = malloc(sizeof(*seconds) * (size_t)repeat * (size_t)plan->n_algo);
    void *block = NULL;
    ct_status status = CT_OK;

    w.plain = ct_mem_acquire((size_t)bytes);
    if ((seconds == NULL) || (w.plain == NULL)) {
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for %lld bytes", (long long)bytes);
        goto done;
    }
    CT_TRY_GOTO(status, done, make_parts(&w));
    CT_TRY_GOTO(status, done, arena->acquire(arena->ctx, (size_t)bytes, "the benchmark", &block));
    w.shared = block;
    CT_TRY_GOTO(status, done, prepare(&w, plan));
    CT_TRY_GOTO(status, done, time_all(&w, plan, repeat, seconds));
    for (int a = 0; a < plan->n_algo; ++a) {
        result[a] = (ct_bench_result){ .bytes = bytes, .algo = name_of(plan->algo[a]) };
        CT_TRY_GOTO(status, done,
                    settle(c, seconds + (size_t)a * (size_t)repeat, repeat, &result[a]));
    }
    for (int a = 0; a < plan->n_algo; ++a) {
        for (int m = 0; m < plan->n_algo; ++m) {
            if (plan->algo[m] == NULL) result[a].to_mpi = result[m].median_s / result[a].median_s;
        }
    }

done:
    for (int a = 0; a < plan->n_algo; ++a) {
        if (w.req[a].state != NULL) plan->algo[a]->release(&w.req[a]);
    }
    if (block != NULL) arena->release(arena->ctx, block);
    ct_mem_release(w.plain);
    free(w.counts);
    free(seconds);
    return status;
}

ct_status ct_bench_comm(ct_comm *c, const ct_bench_plan *plan, ct_bench_result *result)
{
    for (int s = 0; s < plan->n_size; ++s)
        CT_TRY(bench_size(c, plan, plan->bytes[s], result + (size_t)s * (size_t)plan->n_algo));
    return CT_OK;
}

/* ---- what came out */

static void print_size(int64_t bytes)
{
    static const char unit[] = " KMG";
    int u = 0;

    while ((bytes % 1024 == 0) && (u < 3)) {
        bytes /= 1024;
        u += 1;
    }
    printf("%6lld %c", (long long)bytes, unit[u]);
}

void ct_bench_print(const ct_comm *c, const ct_bench_plan *plan, const ct_bench_result *result)
{
    static const char *const mpi[] = { "MPI_Allreduce", "MPI_Reduce_scatter", "MPI_Allgather" };

    if (c->rank != 0) return;
    printf("%s of floats, %d ranks on %d nodes (%s); ms, median over repetitions of the "
           "slowest rank;\nin brackets: how many times as fast as mpi (blocking %s, in "
           "place)\n\n    size",
           ct_coll_kind_name[plan->kind], c->size, c->topo->n_node, c->topo->source,
           mpi[plan->kind]);
    for (int a = 0; a < plan->n_algo; ++a) printf("  %16s", name_of(plan->algo[a]));
    printf("\n");
    for (int s = 0; s < plan->n_size; ++s) {
        print_size(plan->bytes[s]);
        for (int a = 0; a < plan->n_algo; ++a) {
            const ct_bench_result *r = &result[s * plan->n_algo + a];

            if ((r->to_mpi > 0) && (plan->algo[a] != NULL))
                printf("  %9.3f (%4.2f)", 1e3 * r->median_s, r->to_mpi);
            else
                printf("  %9.3f       ", 1e3 * r->median_s);
        }
        printf("\n");
    }
    fflush(stdout);
}

static void add_point(const ct_comm *c, const ct_bench_plan *plan, const ct_bench_result *r,
                      const ct_coll_ops *ops, ct_text *out)
{
    ct_json_writer w = ct_json_into(out);
    double algbw = 1e-9 * (double)r->bytes / r->median_s;
    int ways = (plan->kind == CT_COLL_ALLREDUCE) ? 2 : 1;
    bool window = (ops != NULL) && ops->shares_memory && !plan->plain;

    ct_json_begin_object(&w, NULL);
    ct_json_add_text(&w, "algorithm", r->algo);
    ct_json_add_integer(&w, "bytes", r->bytes);
    ct_json_add_number(&w, "us", 1e6 * r->median_s);
    ct_json_add_number(&w, "algbw_gbs", algbw);
    ct_json_add_number(&w, "busbw_gbs", algbw * ways * (c->size - 1) / c->size);
    ct_json_add_number(&w, "least_us", 1e6 * r->least_s);
    if (r->to_mpi > 0) {
        ct_json_add_number(&w, "times_mpi", r->to_mpi);
    }
    if ((ops != NULL) && (ops->cost != NULL)) {
        ct_json_add_number(&w, "predicted_us", 1e6 * ct_coll_cost_s(ops, c, r->bytes, CT_F32));
    }
    ct_json_add_text(&w, "kind", ct_coll_kind_name[plan->kind]);
    ct_json_add_integer(&w, "repeats", r->repeats);
    ct_json_add_bool(&w, "correct", true);
    ct_json_add_integer(&w, "ranks", c->size);
    ct_json_add_integer(&w, "nodes", c->topo->n_node);
    ct_json_add_text(&w, "topology", c->topo->source);
    ct_json_add_integer(&w, "threads", c->n_thread);
    ct_json_add_bool(&w, "shares_cores", c->oversubscribed);
    ct_json_add_text(&w, "memory", window ? "arena" : "plain");
    ct_json_end(&w);
    ct_text_add(out, "\n");
}

void ct_bench_json(const ct_comm *c, const ct_bench_plan *plan, const ct_bench_result *result,
                   ct_text *out)
{
    for (int i = 0; i < plan->n_size * plan->n_algo; ++i)
        add_point(c, plan, &result[i], plan->algo[i % plan->n_algo], out);
}
