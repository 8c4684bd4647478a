/* snapshot_async: sets that threads write while training goes on have the bytes of those that
 * training waits for; where there is no room for copies it waits. */
#include "tests/test.h"
#include "tests/solver_harness.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/snapshot/state_copy.h"
#include "framework/solver/solver.h"
#include "tests/parsed_net.h"

enum { MOST = 3, SETS = 3 };

/* A layer that carries state, statistics, and a weight large enough for several chunks of copying.
 */
#define NET                                                                                        \
    "net_param { name: 'n' layer { name: 'd' type: 'DummyData' top: 'x' top: 'c' "                 \
    "dummy_data_param { shape { dim: 3 dim: 2 dim: 4 } shape { dim: 3 dim: 2 } data_filler { "     \
    "type: 'gaussian' std: 1 } data_filler { value: 1 } } } "                                      \
    "layer { name: 'l' type: 'LSTM' bottom: 'x' bottom: 'c' top: 'l' recurrent_param { "           \
    "num_output: 300 weight_filler { type: 'gaussian' std: 0.1 } } } "                             \
    "layer { name: 'f' type: 'InnerProduct' bottom: 'l' top: 'f' inner_product_param { "           \
    "num_output: 6 axis: 2 weight_filler { type: 'xavier' } } } "                                  \
    "layer { name: 'loss' type: 'Reduction' bottom: 'f' top: 'loss' loss_weight: 1e-3 "            \
    "reduction_param { operation: SUMSQ } } } "
#define SOLVER                                                                                     \
    "base_lr: 0.01 lr_policy: 'fixed' max_iter: 6 snapshot: 2 random_seed: 5 average_loss: 3 "

typedef struct task {
    const char *fields;
    bool later, no_room;
} task;

static ct_status run_rank(thread_rank *r)
{
    Ct__MemoryParameter memory = CT__MEMORY_PARAMETER__INIT;
    const task *k = r->out;
    char text[4096];
    test_solver t;
    ct_status status;

    snprintf(text, sizeof(text), "%s snapshot_async: %s snapshot_prefix: '%s/set/s' " SOLVER NET,
             k->fields, k->later ? "true" : "false", test_solver_dir());
    status = test_solver_create(text, r, NULL, NULL, &t);
    memory.limit_mb = 1; /* now: what is reserved for arenas is there, residuals find no room */
    if ((status == CT_OK) && k->no_room) t.param->memory = &memory;
    if (status == CT_OK) status = ct_solver_run(t.solver);
    if ((status == CT_OK) && k->no_room) t.param->memory = NULL;
    test_solver_destroy(&t);
    return status;
}

static void run(const char *fields, int n, bool residuals, bool later, bool no_room)
{
    thread_ranks job = { .n = n, .residuals = residuals, .run = run_rank };
    task k = { fields, later, no_room };
    char made[512], kept[512];
    thread_rank rank[MOST];

    for (int r = 0; r < n; r++) rank[r] = (thread_rank){ .out = &k };
    assert_int_equal(thread_ranks_run(&job, rank), CT_OK);
    /* made in one folder, whose name Caffe's states have */
    snprintf(made, sizeof(made), "%s/set", test_solver_dir());
    snprintf(kept, sizeof(kept), "%s/%s", test_solver_dir(), later ? "later" : "now");
    assert_int_equal(rename(made, kept), 0);
}

static char *whole_file(const char *folder, const char *name, size_t *size_p)
{
    char path[512], *data = NULL;
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s/%s", test_solver_dir(), folder, name);
    f = fopen(path, "rb");
    if (f == NULL) fail_msg("no file %s", path);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    *size_p = (size_t)ftell(f);
    rewind(f);
    data = malloc(*size_p + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, *size_p, f), *size_p);
    fclose(f);
    return data;
}

/* How many files there are; each is what the other folder has. */
static int compare(const char *folder, const char *other)
{
    char path[512];
    DIR *dir;
    int n = 0;

    snprintf(path, sizeof(path), "%s/%s", test_solver_dir(), folder);
    dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        size_t size[2];
        char *a, *b;

        if (e->d_name[0] == '.') continue;
        a = whole_file(folder, e->d_name, &size[0]);
        b = whole_file(other, e->d_name, &size[1]);
        if ((size[0] != size[1]) || (memcmp(a, b, size[0]) != 0)) fail_msg("%s differs", e->d_name);
        free(a);
        free(b);
        n++;
    }
    closedir(dir);
    return n;
}

static void drop_folders(void)
{
    char path[512];

    for (int k = 0; k < 2; k++) {
        snprintf(path, sizeof(path), "%s/%s", test_solver_dir(), (k == 0) ? "now" : "later");
        test_directory_remove(path);
    }
}

/* files: of a set. */
static void both(const char *fields, int n, bool residuals, int files)
{
    run(fields, n, residuals, false, false);
    run(fields, n, residuals, true, false);
    assert_int_equal(compare("later", "now"), SETS * files);
    assert_int_equal(compare("now", "later"), SETS * files);
    drop_folders();
}

static void same_bytes(void **state)
{
    (void)state;
    for (int n = 1; n <= MOST; n++) {
        both("momentum: 0.9", n, false, 2);
        both("momentum: 0.9", n, true, 2 + n); /* each rank has residuals */
        both("type: 'AdamW' momentum: 0.9 momentum2: 0.99 average { type: EMA decay: 0.5 }", n,
             false, 3);
        both("momentum: 0.9 snapshot_format: BINARYPROTO", n, false, 3);
    }
    test_log_holds("is being written, training waited");
    test_log_holds("MB for a copy of this rank's part");
}

static void waits_without_room(void **state)
{
    (void)state;
    run("momentum: 0.9", 2, true, false, false);
    run("momentum: 0.9", 2, true, true, true);
    assert_int_equal(compare("later", "now"), SETS * 4);
    test_log_holds("training waits until snapshots are written");
    assert_null(strstr(test_log_all(), "is being written"));
    drop_folders();
}

static ct_status cannot(ct_storage *s, ct_stream st, ct_storage_range *r)
{
    (void)s;
    (void)st;
    (void)r;
    return CT_ERR_IO;
}

/* A state that cannot be copied: no set is begun, and a later one can be. */
static void copies_or_fails(void **state)
{
    static const ct_storage_ops broken = { .name = "broken", .want = cannot };
    const char *name = "momentum";
    ct_snapshot_state what = { .n_rank = 1,
                               .global_batch = 3,
                               .n_history = 1,
                               .history_name = &name,
                               .least_loss = CT_NO_LEAST_LOSS };
    ct_snapshot_later *later = NULL;
    ct_storage storage, whole;
    char prefix[512];
    ct_exchange x;
    test_solver t;
    bool begun;
    ct_net *net;

    (void)state;
    assert_int_equal(
        test_solver_create("snapshot_prefix: 'not/asked/for' " SOLVER NET, NULL, NULL, NULL, &t),
        CT_OK);
    net = ct_solver_net(t.solver);
    ct_exchange_single(net->n_param, &x);
    assert_int_equal(ct_storage_open_fixed(NULL, ct_device_cpu(), net->grad_count, &whole), CT_OK);
    what.history = &storage;
    snprintf(prefix, sizeof(prefix), "%s/s", test_solver_dir());
    assert_int_equal(ct_snapshot_later_create(false, &later), CT_OK);
    assert_int_equal(ct_snapshot_later_reserve(later, net, &what, &x.data, 0), CT_OK);
    storage = (ct_storage){ .ops = &broken, .dev = ct_device_cpu(), .count = net->grad_count };
    assert_int_equal(ct_snapshot_later_begin(later, prefix, net, &what, &x, 0, 0, &begun),
                     CT_ERR_IO);
    assert_false(begun);
    assert_false(ct_snapshot_later_is_open(later));
    storage = whole;
    assert_int_equal(ct_snapshot_later_begin(later, prefix, net, &what, &x, 0, 0, &begun), CT_OK);
    assert_true(begun);
    assert_int_equal(ct_snapshot_later_finish(later, NULL), CT_OK);
    ct_snapshot_later_destroy(later);
    assert_int_equal(ct_storage_close(&whole), CT_OK);
    test_solver_destroy(&t);
}

/* Together ranks copy everything once, and each an equal part: but for rounding to lines of 16, and
 * what does not learn. */
static void shares_out_copies(void **state)
{
    const ct_net_env env = { .rank = 0, .n_rank = 1 };
    parsed_net f;

    (void)state;
    assert_int_equal(
        parsed_net_open("layer { name: 'd' type: 'Input' top: 'x' input_param { shape { dim: 2 "
                        "dim: 7 } } } layer { name: 'b' type: 'BatchNorm' bottom: 'x' top: 'b' } "
                        "layer { name: 'f' type: 'InnerProduct' bottom: 'b' top: 'f' "
                        "inner_product_param { num_output: 31 } } layer { name: 'loss' type: "
                        "'Reduction' bottom: 'f' top: 'loss' loss_weight: 1 }",
                        CT_TRAIN, &env, &f),
        CT_OK);
    for (int n = 1; n <= 7; n++) {
        int64_t sum = 0, rest = f.net->weight_count - f.net->grad_count;

        for (int r = 0; r < n; r++) {
            int64_t floats = 0, own = (r == 0) ? rest : 0;

            assert_int_equal(ct_state_copy_size(f.net, NULL, r, n, 2, &floats), CT_OK);
            assert_true(floats - own <= 3 * (f.net->grad_count / n + 16) + 16);
            sum += floats;
        }
        assert_true(sum >= 3 * f.net->grad_count + rest);
        assert_true(sum <= 3 * f.net->grad_count + rest + 16);
    }
    parsed_net_close(&f);
}

#define TEST(_f) cmocka_unit_test_setup_teardown(_f, test_solver_setup, test_solver_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = { TEST(same_bytes), TEST(waits_without_room),
                                        TEST(copies_or_fails), TEST(shares_out_copies) };

    alarm(240); /* with a thread sanitizer */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
