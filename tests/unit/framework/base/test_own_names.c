/* Names of temporary files: nobody else's, on this host or on another one that sees the file. */
#include "tests/test.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "framework/base/file.h"
#include "framework/base/text.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_processes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
