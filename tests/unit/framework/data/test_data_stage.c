/* Node-local copies: whole, used again, replaced when old, never half. */
#include "tests/test.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "framework/data/convert.h"
#include "framework/data/reader.h"
#include "framework/data/group.h"
#include "framework/data/writer.h"
#include "tests/data_files.h"
#include "tests/layer_harness.h"

/* A folder that looks like a set: staging does not read records. */
static void make_set(test_folder *f)
{
    static uint8_t bytes[3000];

    test_folder_make(f);
    assert_int_equal(mkdir(test_path(f, "set"), 0777), 0);
    assert_int_equal(mkdir(test_path(f, "disk"), 0777), 0);
    for (size_t i = 0; i < sizeof(bytes); i++) bytes[i] = (uint8_t)(i * 7);
    test_file_write(test_path(f, "set/data.mdb"), bytes, sizeof(bytes));
    test_file_write(test_path(f, "set/lock.mdb"), bytes, 10);
    test_file_write(test_path(f, "set/data.mdb.index"), bytes, 20);
    test_file_write(test_path(f, "set/more"), bytes, 1);
}

static ct_status stage(test_folder *f, const char *set, const char **said_p)
{
    ct_status status;

    test_log_start();
    status = ct_stage_make(test_path(f, "disk"), test_path(f, set), "net:7");
    *said_p = test_log_stop();
    return status;
}

static void same_file(const char *a, const char *b)
{
    size_t n, m;
    uint8_t *x = test_file_read(a, &n), *y = test_file_read(b, &m);

    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
    free(x);
    free(y);
}

static void test_copied_once(void **state)
{
    test_folder f;
    const char *said;
    char *copy, file[400];

    (void)state;
    make_set(&f);
    assert_int_equal(stage(&f, "set", &said), CT_OK);
    assert_non_null(strstr(said, "copying "));
    copy = ct_stage_path(test_path(&f, "disk"), test_path(&f, "set"));
    assert_int_equal(test_folder_count(copy), 3); /* stage.txt; no lock, no index */
    snprintf(file, sizeof(file), "%s/data.mdb", copy);
    same_file(file, test_path(&f, "set/data.mdb"));
    assert_int_equal(stage(&f, "set", &said), CT_OK);
    assert_non_null(strstr(said, "staged already"));
    /* an index beside the source or the copy does not make it old */
    test_file_text(test_path(&f, "set/data.mdb.index"), "x");
    assert_int_equal(stage(&f, "set", &said), CT_OK);
    assert_non_null(strstr(said, "staged already"));
    /* the source changed; a file of the copy is cut; stage.txt is gone */
    for (int i = 0; i < 3; i++) {
        if (i == 0) test_file_text(test_path(&f, "set/data.mdb"), "another");
        if (i == 1) test_file_truncate(file, 2);
        if (i == 2) {
            char list[400];

            snprintf(list, sizeof(list), "%s/stage.txt", copy);
            assert_int_equal(unlink(list), 0);
        }
        assert_int_equal(stage(&f, "set", &said), CT_OK);
        assert_non_null(strstr(said, "copying "));
        same_file(file, test_path(&f, "set/data.mdb"));
        assert_int_equal(test_folder_count(test_path(&f, "disk")), 1); /* nothing left beside it */
    }
    free(copy);
    test_folder_remove(&f);
}

static void test_single_file(void **state)
{
    test_folder f;
    const char *said;
    char *copy;

    (void)state;
    make_set(&f);
    assert_int_equal(stage(&f, "set/data.mdb", &said), CT_OK);
    copy = ct_stage_path(test_path(&f, "disk"), test_path(&f, "set/data.mdb"));
    same_file(copy, test_path(&f, "set/data.mdb"));
    free(copy);
    assert_true(ct_stage_can("lmdb", test_path(&f, "set")));
    assert_false(ct_stage_can("hdf5", test_path(&f, "set/data.mdb")));
    assert_false(ct_stage_can("images", test_path(&f, "set/data.mdb")));
    assert_null(ct_stage_path(test_path(&f, "disk"), test_path(&f, "nothing")));
    test_folder_remove(&f);
}

/* Said with numbers before anything is written. */
static void test_no_space(void **state)
{
    test_folder f;
    const char *said, *file;
    int fd;

    (void)state;
    make_set(&f);
    file = test_path(&f, "set/huge"); /* takes no space where it lies */
    fd = open(file, O_WRONLY | O_CREAT, 0666);
    assert_true(fd >= 0);
    if (ftruncate(fd, (off_t)1 << 42) != 0) skip();
    close(fd);
    assert_int_equal(stage(&f, "set", &said), CT_ERR_IO);
    assert_non_null(strstr(said, "takes 4194304 MiB, "));
    assert_non_null(strstr(said, "MiB are free there"));
    assert_int_equal(test_folder_count(test_path(&f, "disk")), 0);
    test_folder_remove(&f);
}

/* A write that fails half way, in a process that may write no more than 1000 bytes to a file. */
static void test_fails_half_way(void **state)
{
    test_folder f;
    const char *said;
    pid_t child;
    int how = -1;

    (void)state;
    make_set(&f);
    fflush(NULL);
    child = fork();
    if (child == 0) {
        struct rlimit limit = { 1000, 1000 };

        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &limit);
        _exit((stage(&f, "set", &said) == CT_ERR_IO) &&
                      (strstr(said, "cannot copy data.mdb of ") != NULL)
                  ? 0
                  : 1);
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_int_equal(how, 0);
    assert_int_equal(test_folder_count(test_path(&f, "disk")), 0);
    assert_int_equal(stage(&f, "nothing", &said), CT_ERR_IO);
    assert_non_null(strstr(said, "No such file"));
    test_file_text(test_path(&f, "plain"), "");
    test_log_start();
    assert_int_equal(ct_stage_make(test_path(&f, "plain"), test_path(&f, "set"), "net:7"),
                     CT_ERR_IO);
    assert_non_null(strstr(test_log_stop(), "cannot make "));
    test_folder_remove(&f);
}

/* Several jobs on one node at once: one copies, all end well, and one whole copy is there. */
static void test_several_at_once(void **state)
{
    test_folder f;
    pid_t child[4];
    const char *said;
    char *copy, file[400];
    int copied = 0;

    (void)state;
    make_set(&f);
    fflush(NULL);
    for (int i = 0; i < 4; i++) {
        child[i] = fork();
        if (child[i] == 0) {
            if (stage(&f, "set", &said) != CT_OK) _exit(2);
            _exit((strstr(said, "copying ") != NULL) ? 1 : 0);
        }
    }
    for (int i = 0; i < 4; i++) {
        int how = -1;

        assert_int_equal(waitpid(child[i], &how, 0), child[i]);
        assert_true(WIFEXITED(how) && (WEXITSTATUS(how) < 2));
        copied += WEXITSTATUS(how);
    }
    assert_int_equal(copied, 1);
    copy = ct_stage_path(test_path(&f, "disk"), test_path(&f, "set"));
    snprintf(file, sizeof(file), "%s/data.mdb", copy);
    same_file(file, test_path(&f, "set/data.mdb"));
    assert_int_equal(test_folder_count(test_path(&f, "disk")), 1);
    free(copy);
    test_folder_remove(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copied_once),     cmocka_unit_test(test_single_file),
        cmocka_unit_test(test_no_space),        cmocka_unit_test(test_fails_half_way),
        cmocka_unit_test(test_several_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
