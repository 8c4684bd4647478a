/* Names of temporary files: nobody else's, on this host or on another one that sees the file. */
#include "tests/test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "framework/base/file.h"
#include "framework/base/text.h"
#include "tests/data_files.h"

static const char *host = "n01";

/* In place of the C library's. */
int gethostname(char *name, size_t size)
{
    (void)strncpy(name, host, size);
    return 0;
}

static ct_text own_of(const char *on)
{
    ct_text t = { 0 };

    host = on;
    ct_path_add_own(&t, "data/set", "tmp");
    assert_false(t.failed);
    return t;
}

/* Containers of two hosts may number their processes alike. */
static void test_hosts(void **state)
{
    ct_text a = own_of("n01"), again = own_of("n01"), b = own_of("n02"), none = own_of("");

    (void)state;
    assert_int_equal(strncmp(a.text, "data/set.tmp.", 13), 0);
    assert_null(strchr(a.text + 9, '/'));
    assert_string_equal(a.text, again.text);
    assert_string_not_equal(a.text, b.text);
    assert_string_not_equal(a.text, none.text);
    ct_text_destroy(&a);
    ct_text_destroy(&again);
    ct_text_destroy(&b);
    ct_text_destroy(&none);
}

static void test_processes(void **state)
{
    ct_text parent = own_of("n01");
    int status = 0;
    pid_t child;

    (void)state;
    child = fork();
    if (child == 0) {
        ct_text own = own_of("n01");

        _exit((strcmp(own.text, parent.text) != 0) ? 0 : 1);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    ct_text_destroy(&parent);
}

/* ---- what killed jobs left */

static bool is_there(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0;
}

/* The tests below name files in a folder of their own. */
static int enter(test_folder *f)
{
    int before = open(".", O_RDONLY | O_DIRECTORY);

    test_folder_make(f);
    assert_true(before >= 0);
    assert_int_equal(chdir(f->path), 0);
    return before;
}

static void leave(test_folder *f, int before)
{
    assert_int_equal(fchdir(before), 0);
    close(before);
    test_folder_remove(f);
}

static bool holds(const char *path, const char *text)
{
    size_t size = 0;
    char *data = NULL;
    bool same;

    assert_int_equal(ct_file_read(path, &data, &size), CT_OK);
    same = (strcmp(data, text) == 0);
    free(data);
    return same;
}

/* As own_of(), of a process that is gone already. */
static ct_text gone_of(const char *on, const char *path, const char *word)
{
    ct_text t = { 0 }, own = { 0 };
    int status = 0;
    pid_t child = fork();

    if (child == 0) _exit(0);
    assert_int_equal(waitpid(child, &status, 0), child);
    host = on;
    ct_path_add_own(&own, path, word);
    ct_text_add(&t, "%s.%s.%d%s", path, word, (int)child, strrchr(own.text, '-'));
    ct_text_destroy(&own);
    assert_false(t.failed);
    return t;
}

static void test_left(void **state)
{
    ct_text gone = gone_of("n01", "set", "tmp"), part = gone_of("n01", "set", "part");
    ct_text there = gone_of("n02", "set", "tmp"), other = gone_of("n01", "set2", "tmp");
    ct_text own = { 0 }, folder = gone_of("n01", "set", "tmp"), in = { 0 };

    test_folder f;
    int before = enter(&f);

    (void)state;
    host = "n01";
    ct_path_add_own(&own, "set", "tmp");
    ct_text_add(&in, "%s/data.mdb", folder.text);
    test_file_text(gone.text, "1");
    test_file_text(part.text, "2");
    test_file_text(there.text, "3");
    test_file_text(other.text, "4");
    test_file_text(own.text, "5");
    test_file_text("set.tmp.lock", "6");
    test_file_text("set.tmp.12", "7");
    test_file_text("set", "8");
    assert_int_equal(mkdir(folder.text, 0777), 0);
    test_file_text(in.text, "9");
    ct_path_remove_leftovers("set");
    assert_false(is_there(gone.text) || is_there(part.text) || is_there(folder.text));
    assert_true(is_there(there.text)); /* of another host */
    assert_true(is_there(other.text)); /* of another path */
    assert_true(is_there(own.text) && is_there("set.tmp.lock") && is_there("set.tmp.12"));
    assert_true(holds("set", "8"));
    ct_text_destroy(&gone);
    ct_text_destroy(&part);
    ct_text_destroy(&there);
    ct_text_destroy(&other);
    ct_text_destroy(&own);
    ct_text_destroy(&folder);
    ct_text_destroy(&in);
    leave(&f, before);
}

/* An old one, that was to be replaced, has its name again where there is no new one. */
static void test_old(void **state)
{
    ct_text old = gone_of("n01", "in/old", "old"), beside = gone_of("n01", "in/new", "old");

    test_folder f;
    int before = enter(&f);

    (void)state;
    assert_int_equal(mkdir("in", 0777), 0);
    test_file_text(old.text, "1");
    test_file_text(beside.text, "2");
    test_file_text("in/new", "3");
    ct_path_remove_leftovers("in/old");
    ct_path_remove_leftovers("in/new");
    ct_path_remove_leftovers("in/");
    ct_path_remove_leftovers("nowhere/x");
    assert_true(holds("in/old", "1"));
    assert_true(holds("in/new", "3"));
    assert_false(is_there(old.text) || is_there(beside.text));
    ct_text_destroy(&old);
    ct_text_destroy(&beside);
    leave(&f, before);
}

static void test_exchange(void **state)
{
    test_folder f;
    int before = enter(&f);

    (void)state;
    test_file_text("one", "1");
    test_file_text("two", "2");
    if (ct_path_exchange("one", "two") == 0) {
        assert_true(holds("one", "2") && holds("two", "1"));
    } else {
        assert_true((errno == EINVAL) || (errno == ENOSYS) || (errno == ENOTSUP));
        assert_true(holds("one", "1") && holds("two", "2"));
    }
    assert_int_equal(ct_path_exchange("one", "none"), -1);
    leave(&f, before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hosts), cmocka_unit_test(test_processes), cmocka_unit_test(test_left),
        cmocka_unit_test(test_old),   cmocka_unit_test(test_exchange),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
