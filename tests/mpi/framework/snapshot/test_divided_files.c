/* A net that the ranks of a job have parts of writes the bytes that one rank writes, and each
 * division of it reads what another wrote. */
#include "tests/mpi/mpi_test.h"
#include "tests/parts_rig.h"
#include "tests/solver_harness.h"

#include <stdlib.h>

#include "framework/base/file.h"
#include "runtime/job.h"

static char directory[64]; /* rank 0's */

static const char *at(const char *name)
{
    static char path[160];

    snprintf(path, sizeof(path), "%s/%s", directory, name);
    return path;
}

/* The first ranks of c do it, as many as the division has. */
static int works(ct_comm *c, rig_plan plan, rig_work work, const char *path)
{
    rig_task t = { .plan = plan, .work = work, .path = at(path), .large = c->size > 2 };
    bool mine = (c->rank < rig_ranks(plan));
    ct_comm *part = NULL;
    ct_group_mpi over = { .reproducible = false };
    ct_group g;
    int fault = 0;

    fault += MPI_FAULT_UNLESS(ct_comm_split(c, mine ? 0 : 1, c->rank, &part) == CT_OK);
    over.comm = part;
    ct_group_mpi_open(&over, &g);
    if (mine && (rig_run(&g, &t) != CT_OK)) {
        fprintf(stderr, "rank %d: division %d, work %d: it fails\n", c->rank, (int)plan, (int)work);
        fault++;
    }
    ct_comm_destroy(part);
    MPI_Barrier(c->mpi);
    return fault;
}

/* Whether the file is as it was; with `first` it is looked at for the first time. */
static int same_bytes(const char *file, bool first)
{
    static char *before;
    static size_t size_before;
    char *data = NULL;
    size_t size = 0;
    int fault = MPI_FAULT_UNLESS(ct_file_read(at(file), &data, &size) == CT_OK);

    if (!first)
        fault += MPI_FAULT_UNLESS((size == size_before) && (memcmp(data, before, size) == 0));
    free(before);
    before = data;
    size_before = size;
    return fault;
}

static int divisions(ct_comm *c)
{
    static const char weights[] = "s_iter_7.caffemodel.h5";
    int fault = works(c, RIG_WHOLE, RIG_WRITE, "s");

    if (c->rank == 0) fault += same_bytes(weights, true);
    for (int from = 0; from < N_RIG; from++) {
        if ((rig_ranks((rig_plan)from) != c->size) && (from != RIG_WHOLE)) continue;
        fault += works(c, (rig_plan)from, RIG_WRITE, "s");
        if (c->rank == 0) fault += same_bytes(weights, false);
        for (int to = 0; to < N_RIG; to++) {
            if (rig_ranks((rig_plan)to) > c->size) continue;
            fault += works(c, (rig_plan)to, RIG_READ, "s_iter_7.solverstate.h5");
            fault += works(c, (rig_plan)to, RIG_LOAD, weights);
        }
    }
    return fault;
}

static void test_divisions(void **state)
{
    ct_comm *c = NULL;
    int fault = 0, rank = 0;

    (void)state;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) test_directory_make(directory, sizeof(directory));
    MPI_Bcast(directory, sizeof(directory), MPI_CHAR, 0, MPI_COMM_WORLD);
    fault += MPI_FAULT_UNLESS(ct_comm_create(MPI_COMM_WORLD, "auto", &c) == CT_OK);
    fault += divisions(c);
    ct_comm_destroy(c);
    if (rank == 0) test_directory_remove(directory);
    assert_int_equal(mpi_verdict(fault), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_divisions),
};

MPI_MAIN(tests, 120)
