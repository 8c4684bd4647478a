/* The names of a folder: all of them, or why not. */
#include "tests/test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/base/file.h"
#include "tests/data_files.h"
#include "tests/layer_harness.h"

static void make(test_folder *f, const char *name)
{
    int fd = open(test_path(f, name), O_WRONLY | O_CREAT, 0600);

    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
}

static void test_all_names(void **state)
{
    int n = 0, hidden = 0, reason = -1;
    test_folder f;
    DIR *d;

    (void)state;
    test_folder_make(&f);
    make(&f, "b");
    make(&f, ".h");
    make(&f, "..c");
    d = opendir(f.path);
    assert_non_null(d);
    for (const char *name; (name = ct_folder_next(d, &reason)) != NULL; n++) {
        assert_int_equal(reason, 0);
        hidden += (strcmp(name, ".h") == 0);
        assert_true((strcmp(name, ".h") == 0) || (strcmp(name, "..c") == 0) ||
                    (strcmp(name, "b") == 0));
    }
    assert_int_equal(n, 3);
    assert_int_equal(hidden, 1);
    assert_int_equal(reason, 0);
    closedir(d);
    test_folder_remove(&f);
}

/* Nobody waits for who would write to a pipe, and what is no file is told. */
static void test_no_file(void **state)
{
    char *data = NULL;
    size_t size = 0;
    test_folder f;
    const char *pipe, *file;
    FILE *stream;

    (void)state;
    test_folder_make(&f);
    pipe = test_path(&f, "pipe");
    file = test_path(&f, "file");
    assert_int_equal(mkfifo(pipe, 0600), 0);
    test_file_text(file, "text");
    assert_int_equal(ct_file_open(pipe), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(ct_file_open(f.path), -1);
    assert_int_equal(errno, EISDIR);
    assert_null(ct_file_open_stream(test_path(&f, "none")));
    assert_int_equal(errno, ENOENT);
    stream = ct_file_open_stream(file);
    assert_non_null(stream);
    assert_int_equal(getc(stream), 't');
    fclose(stream);
    test_log_start();
    assert_int_equal(ct_file_read(pipe, &data, &size), CT_ERR_IO);
    assert_non_null(strstr(test_log_stop(), "pipe: not a regular file"));
    test_log_start();
    assert_int_equal(ct_file_read(f.path, &data, &size), CT_ERR_IO);
    assert_non_null(strstr(test_log_stop(), "a folder; expected a file"));
    test_folder_remove(&f);
}

static void test_no_folder(void **state)
{
    int reason = ENOENT;

    (void)state;
    assert_null(ct_folder_next(NULL, &reason));
    assert_int_equal(reason, ENOENT);
    assert_null(ct_folder_next(NULL, NULL));
}

/* The file system gives no names any more. */
/* What is nearly the same is named, and which folder of a path is the first that is not there. */
static void test_why(void **state)
{
    char want[1024];
    test_folder f;

    (void)state;
    test_folder_make(&f);
    make(&f, "solver.prototxt");
    make(&f, "train_val.prototxt");
    snprintf(want, sizeof(want), "No such file or directory; did you mean %s/solver.prototxt?",
             f.path);
    assert_string_equal(ct_path_why(test_path(&f, "slover.prototx"), ENOENT).text, want);
    assert_string_equal(ct_path_why(test_path(&f, "deploy.prototxt"), ENOENT).text,
                        "No such file or directory");
    assert_int_equal(mkdir(test_path(&f, "data"), 0700), 0);
    snprintf(want, sizeof(want),
             "No such file or directory; there is no folder %s/dta; did you mean %s/data?", f.path,
             f.path);
    assert_string_equal(ct_path_why(test_path(&f, "dta//a/b"), ENOENT).text, want);
    assert_string_equal(ct_path_why("qzx/such", ENOENT).text,
                        "No such file or directory; there is no folder qzx");
    assert_string_equal(ct_path_why("no/", ENOENT).text, "No such file or directory");
    assert_string_equal(ct_path_why("", ENOENT).text, "No such file or directory");
    assert_string_equal(ct_path_why("/", ENOENT).text, "No such file or directory");
    assert_string_equal(ct_path_why(test_path(&f, "dta"), EACCES).text, "Permission denied");
    assert_string_equal(ct_path_why(f.path, EISDIR).text, "a folder; expected a file");
    assert_int_equal(rmdir(test_path(&f, "data")), 0);
    test_folder_remove(&f);
}

/* A file is written where one can stand, and in no device's or pipe's place. */
static void test_where_a_file_can_be(void **state)
{
    char name[400];
    struct stat st;
    test_folder f;

    (void)state;
    test_folder_make(&f);
    assert_int_equal(ct_file_check_writable(test_path(&f, "new")), CT_OK);
    make(&f, "old");
    assert_int_equal(ct_file_check_writable(test_path(&f, "old")), CT_OK);
    assert_int_equal(ct_file_write(test_path(&f, "old"), "x", 1), CT_OK);
    assert_int_equal(symlink("nothing", test_path(&f, "link")), 0);
    assert_int_equal(ct_file_check_writable(test_path(&f, "link")), CT_OK);
    assert_int_equal(symlink("loop", test_path(&f, "loop")), 0);
    assert_int_equal(ct_file_check_writable(test_path(&f, "loop")), CT_ERR_IO);
    assert_int_equal(mkfifo(test_path(&f, "pipe"), 0600), 0);
    assert_int_equal(ct_file_check_writable(test_path(&f, "pipe")), CT_ERR_IO);
    assert_int_equal(ct_file_write(test_path(&f, "pipe"), "x", 1), CT_ERR_IO);
    assert_int_equal(stat(test_path(&f, "pipe"), &st), 0);
    assert_true(S_ISFIFO(st.st_mode));
    assert_int_equal(ct_file_check_writable(f.path), CT_ERR_IO);
    assert_int_equal(ct_file_write(f.path, "x", 1), CT_ERR_IO);
    assert_int_equal(ct_file_check_writable(test_path(&f, "old/new")), CT_ERR_IO);
    snprintf(name, sizeof(name), "%s/%0200d", f.path, 0);
    assert_int_equal(ct_file_check_writable(name), CT_OK);
    snprintf(name, sizeof(name), "%s/%0250d", f.path, 0); /* the temporary name is longer */
    assert_int_equal(ct_file_check_writable(name), CT_ERR_IO);
    assert_int_equal(ct_file_write(name, "x", 1), CT_ERR_IO);
    test_folder_remove(&f);
}

static void test_failure(void **state)
{
    int reason = 0, fd = open("/dev/null", O_RDONLY);
    test_folder f;
    DIR *d;

    (void)state;
    test_folder_make(&f);
    make(&f, "b");
    d = opendir(f.path);
    assert_non_null(d);
    assert_int_equal(dup2(fd, dirfd(d)), dirfd(d));
    assert_null(ct_folder_next(d, &reason));
    assert_int_equal(reason, ENOTDIR);
    assert_null(ct_folder_next(d, NULL));
    closedir(d);
    close(fd);
    test_folder_remove(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_names),           cmocka_unit_test(test_no_file),
        cmocka_unit_test(test_no_folder),           cmocka_unit_test(test_why),
        cmocka_unit_test(test_where_a_file_can_be), cmocka_unit_test(test_failure),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
