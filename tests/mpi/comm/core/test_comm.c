/* The communicator: topology as found and as pretended, small collectives, windows, signals. */
#include "comm/collective/blocking.h"
#include "tests/mpi/mpi_test.h"
#include "tests/log_capture.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "comm/collective/coll.h"
#include "comm/collective/persistent.h"
#include "comm/cost/cost.h"
#include "comm/core/node.h"
#include "framework/base/memory.h"
#include "framework/base/sanitizer.h"
#include "framework/base/clock.h"

static int small_collectives(ct_comm *c)
{
    /* sums that lose another part of their terms in every order */
    static const double term[4] = { 1, 1e16, -1e16, 0.5 };
    double v[3] = { 0.1 * (c->rank + 1), term[c->rank % 4], 1 };
    double expected[3] = { 0, 0, 0 };
    int64_t most[2] = { c->rank, -c->rank };
    char text[8] = "";
    int fault = 0;

    for (int r = 0; r < c->size; ++r) {
        expected[0] = (r == 0) ? 0.1 : expected[0] + 0.1 * (r + 1);
        expected[1] += term[r % 4];
        expected[2] += 1;
    }
    fault += MPI_FAULT_UNLESS(ct_comm_sum(c, v, 3) == CT_OK);
    fault += MPI_FAULT_UNLESS(memcmp(v, expected, sizeof(v)) == 0);
    fault += MPI_FAULT_UNLESS(ct_comm_max(c, most, 2) == CT_OK);
    fault += MPI_FAULT_UNLESS((most[0] == c->size - 1) && (most[1] == 0));
    if (c->rank == 0) strcpy(text, "cortado");
    fault += MPI_FAULT_UNLESS(ct_comm_broadcast(c, text, sizeof(text)) == CT_OK);
    fault += MPI_FAULT_UNLESS(strcmp(text, "cortado") == 0);
    fault += MPI_FAULT_UNLESS(ct_comm_barrier(c) == CT_OK);
    fault += MPI_FAULT_UNLESS(c->node_member[c->node_rank] == c->rank);
    fault += MPI_FAULT_UNLESS(c->topo->node_size[c->topo->node[c->rank]] == c->node_size);
    return fault;
}

static double processor_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* All wait for rank 0, which comes late by 0.15 s each time, and leave their core to
 * others meanwhile: a wait that polls takes all of it that it can get. */
static int long_waits(ct_comm *c)
{
    double v = 1, began = processor_s();
    int64_t most = c->rank, all[16];
    char text[2] = "a";
    int fault = 0;

    for (int i = 0; i < 5; ++i) {
        if (c->rank == 0) usleep(150000);
        if (i == 0) fault += MPI_FAULT_UNLESS(ct_comm_max(c, &most, 1) == CT_OK);
        if (i == 1) fault += MPI_FAULT_UNLESS(ct_comm_sum(c, &v, 1) == CT_OK);
        if (i == 2) fault += MPI_FAULT_UNLESS(ct_comm_broadcast(c, text, sizeof(text)) == CT_OK);
        if (i == 3) fault += MPI_FAULT_UNLESS(ct_comm_gather(c, &most, 1, all) == CT_OK);
        if (i == 4) fault += MPI_FAULT_UNLESS(ct_comm_barrier(c) == CT_OK);
    }
    fault += MPI_FAULT_UNLESS((most == c->size - 1) && (v == c->size) && (all[0] == most));
    fault += MPI_FAULT_UNLESS(processor_s() - began < 0.15);
    return fault;
}

/* So many numbers that they go up and down a tree: those of the pairs, of the pairs of pairs, …,
 * bit by bit; and many enough that ranks without a partner stand on every level. */
static int many_sums(ct_comm *c)
{
    enum { N = 20011, RANKS = 16 };
    double *v = malloc(N * sizeof(*v)), part[RANKS];
    int fault = 0;

    if (c->size > RANKS) return 1;
    for (int i = 0; i < N; ++i) v[i] = 0.1 * (c->rank + 1) + 1e-9 * i;
    fault += MPI_FAULT_UNLESS(ct_comm_sum(c, v, N) == CT_OK);
    for (int i = 0; i < N; ++i) {
        for (int r = 0; r < c->size; ++r) part[r] = 0.1 * (r + 1) + 1e-9 * i;
        for (int step = 1; step < c->size; step *= 2) {
            for (int r = 0; r + step < c->size; r += 2 * step) part[r] += part[r + step];
        }
        fault += (c->size > 1) && (v[i] != part[0]);
    }
    free(v);
    return fault;
}

static int tags(ct_comm *c)
{
    int a = ct_comm_take_tags(c, 100), b = ct_comm_take_tags(c, 100);
    int fault = MPI_FAULT_UNLESS(b >= a + 100) + MPI_FAULT_UNLESS(a >= CT_COLL_TAGS);

    c->next_tag = c->tag_limit - 50; /* near the end it starts again */
    fault += MPI_FAULT_UNLESS(ct_comm_take_tags(c, 100) == CT_COLL_TAGS);
    return fault;
}

static bool has_neighbours(const ct_comm *c)
{
    return ct_topo_max_node_size(c->topo) > 1;
}

/* Every rank writes its name into every neighbour's block, signals, and finds all names. */
static int windows(ct_comm *c)
{
    ct_node *node = c->node_memory;
    void *block = NULL, *plain = NULL;
    int fault = 0, slot = -1, window = -1;
    int64_t offset = -1;

    if (!has_neighbours(c))
        return MPI_FAULT_UNLESS(ct_node_acquire(node, 4096, "a test", &block) == CT_UNSUPPORTED);
    fault += MPI_FAULT_UNLESS(ct_node_acquire(node, 4096, "a test", &block) == CT_OK);
    fault += MPI_FAULT_UNLESS(ct_node_take_slot(node, &slot) == CT_OK);
    if (fault > 0) return fault;
    fault += MPI_FAULT_UNLESS((uintptr_t)block % CT_ALIGN == 0);
    fault += MPI_FAULT_UNLESS(!CT_SAN_ADDRESS || ct_is_guarded((char *)block + 4096));
    fault += MPI_FAULT_UNLESS(ct_node_find(node, (char *)block + 8, 4, &window, &offset));
    fault += MPI_FAULT_UNLESS(offset == 8);
    fault += MPI_FAULT_UNLESS(!ct_node_find(node, (char *)block + 4093, 4096, &window, &offset));
    fault += MPI_FAULT_UNLESS(!ct_node_find(node, &fault, 4, &window, &offset));
    fault += MPI_FAULT_UNLESS(ct_node_find(node, block, 4096, &window, &offset));
    for (int r = 0; r < c->node_size; ++r)
        ((int *)(void *)ct_node_block(node, window, r))[c->node_rank] = c->rank + 1;
    ct_node_signal(&ct_node_signals(node, slot, c->node_rank)->in, 1);
    for (int r = 0, idle = 0; r < c->node_size; ++r) {
        while (!ct_node_reached(&ct_node_signals(node, slot, r)->in, 1)) {
            idle += 1;
            ct_comm_relax(c, &idle);
        }
    }
    for (int r = 0; r < c->node_size; ++r)
        fault += MPI_FAULT_UNLESS(((int *)block)[r] == c->node_member[r] + 1);
    ct_node_give_slot(node, slot);
    ct_node_release(node, block);

    /* with no room left the arena still works, from plain memory */
    ct_node_set_limit(node, 0);
    fault += MPI_FAULT_UNLESS(ct_node_acquire(node, 64, "a test", &block) == CT_UNSUPPORTED);
    fault += MPI_FAULT_UNLESS(
        ct_comm_arena(c)->acquire(ct_comm_arena(c)->ctx, 64, "a test", &plain) == CT_OK);
    fault += MPI_FAULT_UNLESS(!ct_node_find(node, plain, 64, &window, &offset));
    ct_comm_arena(c)->release(ct_comm_arena(c)->ctx, plain);
    return fault;
}

/* More slots than one page of them holds; a slot given back comes again, and is zero. */
static int slots(ct_comm *c)
{
    enum { MANY = 300 };
    ct_node *node = c->node_memory;
    int slot[MANY], fault = 0, again = -1;

    if (!has_neighbours(c))
        return MPI_FAULT_UNLESS(ct_node_take_slot(node, &again) == CT_UNSUPPORTED);
    for (int i = 0; i < MANY; ++i) fault += (ct_node_take_slot(node, &slot[i]) != CT_OK);
    if (fault > 0) return fault;
    for (int i = 0; i < MANY; ++i) {
        ct_signals *s = ct_node_signals(node, slot[i], c->node_rank);

        fault += (atomic_load(&s->in) != 0);
        ct_node_signal(&s->in, 7);
    }
    ct_node_give_slot(node, slot[5]);
    fault += MPI_FAULT_UNLESS(ct_node_take_slot(node, &again) == CT_OK);
    fault += MPI_FAULT_UNLESS(again == slot[5]);
    for (int r = 0; r < c->node_size; ++r)
        fault += MPI_FAULT_UNLESS(atomic_load(&ct_node_signals(node, again, r)->in) == 0);
    return fault;
}

/* The limit of a single rank holds for all. */
static int limits(ct_comm *c)
{
    void *block = NULL;

    if (c->rank == c->size - 1) ct_node_set_limit(c->node_memory, 1000);
    return MPI_FAULT_UNLESS(ct_node_acquire(c->node_memory, 4096, "a test", &block) ==
                            CT_UNSUPPORTED);
}

static double weighed(const ct_comm *c, const ct_coll_ops *ops, int64_t bytes)
{
    return ct_coll_cost_s(ops, c, bytes, CT_F32) *
           ct_cost_weight(ops->cost, c->topo, c->node_shares);
}

static int choices(ct_comm *c)
{
    const ct_coll_ops *ops = NULL;
    int fault = 0;

    for (const ct_coll_ops *const *at = ct_coll_table; *at != NULL; ++at) {
        fault += MPI_FAULT_UNLESS(ct_coll_choose(c, 1000, CT_F32, (*at)->name, &ops) == CT_OK);
        fault += MPI_FAULT_UNLESS(ops == *at);
        fault += MPI_FAULT_UNLESS(ct_coll_cost_s(*at, c, 4000, CT_F32) <=
                                  ct_coll_cost_s(*at, c, 4000000, CT_F32));
    }
    fault += MPI_FAULT_UNLESS(ct_coll_choose(c, 1000, CT_F32, "auto", &ops) == CT_OK);
    for (const ct_coll_ops *const *at = ct_coll_table; *at != NULL; ++at)
        fault += MPI_FAULT_UNLESS(!ct_coll_is_automatic(*at, c->topo) ||
                                  (weighed(c, ops, 4000) <= weighed(c, *at, 4000)));
    return fault;
}

static int expect_choice(const ct_comm *c, ct_dtype dtype, const char *name)
{
    const ct_coll_ops *ops = NULL;

    if (ct_coll_choose(c, 1000, dtype, "auto", &ops) != CT_OK) return 1;
    if (strcmp(ops->name, name) == 0) return 0;
    fprintf(stderr, "rank %d: %s, not %s\n", c->rank, ops->name, name);
    return 1;
}

/* 4097 elements in pieces of 4096 bytes: five, the last of one element. */
static int sum_in_pieces(ct_comm *c, const ct_coll_ops *impi)
{
    enum { N = 4097 };
    ct_coll_req r = { .comm = c, .count = N, .dtype = CT_F32 };
    MPI_Request *piece[64];
    float *buf = malloc(N * sizeof(*buf));
    ct_status status = CT_INPROGRESS;
    int fault = 0;

    for (int i = 0; i < N; ++i) buf[i] = (float)(i + c->rank);
    r.buf = buf;
    fault += MPI_FAULT_UNLESS(impi->prepare(&r) == CT_OK);
    fault += MPI_FAULT_UNLESS(impi->start(&r) == CT_OK);
    fault += MPI_FAULT_UNLESS(impi->pending(&r, piece, 64) == ((c->size > 1) ? 5 : 1));
    while (status == CT_INPROGRESS) status = impi->progress(&r);
    fault += MPI_FAULT_UNLESS(status == CT_OK);
    for (int i = 0; i < N; ++i)
        fault += (buf[i] != (float)(c->size * i + c->size * (c->size - 1) / 2));
    impi->release(&r);
    free(buf);
    return fault;
}

/* A pretended machine whose network adds, a rank a node. */
static int in_network(ct_comm *c, const char *without)
{
    const ct_coll_ops *ops = NULL, *impi = NULL;
    bool several = (c->size > 1);
    int fault = MPI_FAULT_UNLESS(ct_coll_choose(c, 1, CT_F32, "impi", &impi) == CT_OK);

    fault += expect_choice(c, CT_F32, several ? "impi" : without);
    fault += expect_choice(c, CT_I64, several ? "impi" : without);
    fault += expect_choice(c, CT_BF16, without); /* sums that we defined are the ranks' */
    fault += MPI_FAULT_UNLESS(ct_coll_choose_own(c, 1000, CT_F32, "auto", &ops) == CT_OK);
    fault += MPI_FAULT_UNLESS(strcmp(ops->name, without) == 0);
    fault +=
        MPI_FAULT_UNLESS(ct_persistent_coll_choose(c, 1000, CT_F32, "auto", true, &ops) == CT_OK);
    fault += MPI_FAULT_UNLESS(strcmp(ops->name, without) == 0);
    if (several) { /* 1 us a piece and 1 TB/s */
        double s = ct_coll_cost_s(impi, c, 16388, CT_F32);

        fault += MPI_FAULT_UNLESS((s > 5.016e-6) && (s < 5.017e-6));
        fault += MPI_FAULT_UNLESS(ct_coll_cost_s(impi, c, 16388, CT_F16) > s);
    }
    return fault + sum_in_pieces(c, impi);
}

static void test_in_network(void **state)
{
    const ct_coll_ops *ops = NULL;
    ct_comm *c = NULL, *plain = NULL;
    char spec[32];
    int size = 0, fault = 0;

    (void)state;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    snprintf(spec, sizeof(spec), "%dx1", size);
    fault += MPI_FAULT_UNLESS(ct_comm_create(MPI_COMM_WORLD, spec, &plain) == CT_OK);
    fault += MPI_FAULT_UNLESS(ct_coll_choose(plain, 1000, CT_F32, "auto", &ops) == CT_OK);
    fault += MPI_FAULT_UNLESS(strcmp(ops->name, "impi") != 0);
    fault += MPI_FAULT_UNLESS(ct_comm_create(MPI_COMM_WORLD, spec, &c) == CT_OK);
    c->topo->machine.in_network =
        (ct_in_network){ .latency_s = 1e-6, .bandwidth = 1e12, .max_bytes = 4096 };
    fault += in_network(c, ops->name);
    ct_comm_destroy(c);
    ct_comm_destroy(plain);
    assert_int_equal(mpi_verdict(fault), 0);
}

static void test_long_waits(void **state)
{
    ct_comm *c = NULL;
    int fault = 0;

    (void)state;
    fault += MPI_FAULT_UNLESS(ct_comm_create(MPI_COMM_WORLD, "auto", &c) == CT_OK);
    fault += MPI_FAULT_UNLESS((c != NULL) && (c->size <= 16) && (long_waits(c) == 0));
    ct_comm_destroy(c);
    assert_int_equal(mpi_verdict(fault), 0);
}

static void test_small(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(small_collectives)), 0);
    assert_int_equal(mpi_verdict(mpi_on_machines(many_sums)), 0);
    assert_int_equal(mpi_verdict(mpi_on_machines(tags)), 0);
}

static void test_windows(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(windows)), 0);
    assert_int_equal(mpi_verdict(mpi_on_machines(slots)), 0);
    assert_int_equal(mpi_verdict(mpi_on_machines(limits)), 0);
}

static void test_choose(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(choices)), 0);
}

static log_capture said;

static void test_errors(void **state)
{
    ct_comm *c = NULL, *none = NULL;
    const ct_coll_ops *ops = NULL;
    int fault = 0;

    (void)state;
    log_capture_start(&said);
    fault += MPI_FAULT_UNLESS(ct_comm_create(MPI_COMM_WORLD, "7x9", &none) == CT_ERR_CONFIG);
    fault += MPI_FAULT_UNLESS(none == NULL);
    fault += MPI_FAULT_UNLESS(ct_comm_create(MPI_COMM_WORLD, "auto", &c) == CT_OK);
    fault += MPI_FAULT_UNLESS(ct_coll_choose(c, 1, CT_F32, "rinq", &ops) == CT_ERR_CONFIG);
    fault += MPI_FAULT_UNLESS(strstr(said.error, "rhd") != NULL);
    fault += MPI_FAULT_UNLESS(ct_coll_choose(c, 1, CT_I32, "ring", &ops) == CT_ERR_CONFIG);
    ct_comm_destroy(c);
    log_capture_stop();
    assert_int_equal(mpi_verdict(fault), 0);
}

/* The order in which launchers are believed. */
static void test_launch(void **state)
{
    static const char *const variable[] = { "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
                                            "SLURM_STEP_NUM_TASKS" };
    char *saved[3] = { NULL };

    (void)state;
    for (int i = 0; i < 3; ++i) {
        const char *now = getenv(variable[i]);

        saved[i] = (now != NULL) ? strdup(now) : NULL;
        unsetenv(variable[i]);
    }
    log_capture_start(&said);
    assert_int_equal(ct_comm_check_launch(1), CT_OK);
    setenv("SLURM_STEP_NUM_TASKS", "4", 1);
    assert_int_equal(ct_comm_check_launch(4), CT_OK);
    assert_int_equal(ct_comm_check_launch(1), CT_ERR_LAUNCH);
    assert_non_null(strstr(said.error, "4 ranks"));
    assert_non_null(strstr(said.error, "sees 1"));
    assert_non_null(strstr(said.error, "--mpi="));
    setenv("PMI_SIZE", "1", 1);
    assert_int_equal(ct_comm_check_launch(1), CT_OK);
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    assert_int_equal(ct_comm_check_launch(1), CT_ERR_LAUNCH);
    setenv("OMPI_COMM_WORLD_SIZE", "two", 1);
    assert_int_equal(ct_comm_check_launch(2), CT_ERR_LAUNCH);
    log_capture_stop();
    for (int i = 0; i < 3; ++i) {
        if (saved[i] != NULL)
            setenv(variable[i], saved[i], 1);
        else
            unsetenv(variable[i]);
        free(saved[i]);
    }
}

/* An Open MPI that srun told nothing: known before MPI_Init. Run in each rank alone. */
static void test_untold(void **state)
{
    static const char *const variable[] = {
        "OMPI_COMM_WORLD_SIZE", "PMIX_RANK",   "PMI_RANK", "PMI_FD",
        "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"
    };
    char *saved[6] = { NULL };

    (void)state;
    for (int i = 0; i < 6; ++i) {
        const char *now = getenv(variable[i]);

        saved[i] = (now != NULL) ? strdup(now) : NULL;
        unsetenv(variable[i]);
    }
    log_capture_start(&said);
    assert_int_equal(ct_comm_check_launcher(), CT_OK);
    setenv("SLURM_STEP_NUM_TASKS", "1", 1);
    assert_int_equal(ct_comm_check_launcher(), CT_OK);
    setenv("SLURM_STEP_NUM_TASKS", "3", 1);
#ifdef OPEN_MPI
    assert_int_equal(ct_comm_check_launcher(), CT_ERR_LAUNCH);
    assert_non_null(strstr(said.error, "3 ranks"));
#endif
    setenv("PMIX_RANK", "0", 1);
    assert_int_equal(ct_comm_check_launcher(), CT_OK);
    log_capture_stop();
    for (int i = 0; i < 6; ++i) {
        if (saved[i] != NULL)
            setenv(variable[i], saved[i], 1);
        else
            unsetenv(variable[i]);
        free(saved[i]);
    }
}

/* Limits for TCP: all of ours, or all as they are. MPI runs already and reads them no more. */
static void test_limits(void **state)
{
    static const char *const variable[] = { "OMPI_MCA_btl_tcp_eager_limit",
                                            "OMPI_MCA_btl_tcp_rndv_eager_limit",
                                            "OMPI_MCA_btl_tcp_max_send_size" };

    (void)state;
    for (int own = -1; own < 3; ++own) {
        for (int i = 0; i < 3; ++i) unsetenv(variable[i]);
        if (own >= 0) setenv(variable[own], "70000", 1);
        ct_comm_prepare_launch();
        for (int i = 0; i < 3; ++i) {
            const char *now = getenv(variable[i]);

            if (own < 0)
                assert_true((now != NULL) && (atol(now) > 1 << 20));
            else
                assert_true((i == own) ? (strcmp(now, "70000") == 0) : (now == NULL));
        }
    }
    for (int i = 0; i < 3; ++i) unsetenv(variable[i]);
}

/* The same clock on one machine: offsets are within what is said of them. */
static int clocks(ct_comm *c)
{
    ct_clock_offset o = { .error_s = -1 };
    int fault = MPI_FAULT_UNLESS(ct_clock_sync(c, &o) == CT_OK);

    fault += MPI_FAULT_UNLESS((o.offset_s <= o.error_s) && (-o.offset_s <= o.error_s));
    fault += MPI_FAULT_UNLESS((o.error_s < 1) && ((o.error_s > 0) == (c->rank > 0)));
    fault += MPI_FAULT_UNLESS((o.at_s > 0) && (o.at_s <= ct_clock_s()));
    return fault;
}

static void test_clocks(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(clocks)), 0);
}

/* What two threads count under the lock, each by a communicator of its own. */
enum { COUNTS = 400000 };

typedef struct counter {
    ct_comm *comm;
    volatile int *n;
} counter;

static void *count_up(void *arg)
{
    const counter *c = arg;

    for (int i = 0; i < COUNTS; ++i) {
        ct_comm_lock(c->comm);
        ct_comm_lock(c->comm); /* who holds it may take it again */
        *c->n += 1;
        ct_comm_unlock(c->comm);
        ct_comm_unlock(c->comm);
    }
    return NULL;
}

/* MPI takes calls from one thread at a time, whatever the communicator: so there is one lock. */
static void test_lock(void **state)
{
    volatile int n = 0;
    counter mine = { .n = &n }, other = { .n = &n };
    pthread_t thread;
    int fault = 0;

    (void)state;
    fault += MPI_FAULT_UNLESS(ct_comm_create(MPI_COMM_WORLD, "auto", &mine.comm) == CT_OK);
    fault += MPI_FAULT_UNLESS(ct_comm_create(MPI_COMM_WORLD, "auto", &other.comm) == CT_OK);
    fault += MPI_FAULT_UNLESS(pthread_create(&thread, NULL, count_up, &other) == 0);
    (void)count_up(&mine);
    (void)pthread_join(thread, NULL);
    fault += MPI_FAULT_UNLESS(n == 2 * COUNTS);
    ct_comm_destroy(other.comm);
    ct_comm_destroy(mine.comm);
    assert_int_equal(mpi_verdict(fault), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_lock),       cmocka_unit_test(test_clocks),
    cmocka_unit_test(test_small),      cmocka_unit_test(test_long_waits),
    cmocka_unit_test(test_windows),    cmocka_unit_test(test_choose),
    cmocka_unit_test(test_in_network), cmocka_unit_test(test_errors),
    cmocka_unit_test(test_launch),     cmocka_unit_test(test_untold),
    cmocka_unit_test(test_limits),
};

MPI_MAIN(tests, 60)
