/* The names of a folder: all of them, or why not. */
#include "tests/test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/base/file.h"

static char folder[] = "/tmp/test_folder.XXXXXX";

static void make(const char *name)
{
    char path[64];
    int fd;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
}

static void take_away(const char *name)
{
    char path[64];

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    assert_int_equal(unlink(path), 0);
}

static void test_all_names(void **state)
{
    DIR *d = opendir(folder);
    int n = 0, hidden = 0, reason = -1;

    (void)state;
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
static void test_failure(void **state)
{
    DIR *d = opendir(folder);
    int reason = 0, fd = open("/dev/null", O_RDONLY);

    (void)state;
    assert_non_null(d);
    assert_int_equal(dup2(fd, dirfd(d)), dirfd(d));
    assert_null(ct_folder_next(d, &reason));
    assert_int_equal(reason, ENOTDIR);
    assert_null(ct_folder_next(d, NULL));
    closedir(d);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_names),
        cmocka_unit_test(test_no_folder),
        cmocka_unit_test(test_failure),
    };
    int wrong;

    if (mkdtemp(folder) == NULL) return 1;
    make("b");
    make(".h");
    make("..c");
    wrong = cmocka_run_group_tests(tests, NULL, NULL);
    take_away("b");
    take_away(".h");
    take_away("..c");
    rmdir(folder);
    return wrong;
}
