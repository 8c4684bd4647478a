/* Locks of files between processes: who has one is named, an end of any kind gives it back, and who
 * waits gets it. */
#include "tests/test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "framework/base/clock.h"
#include "framework/base/file_lock.h"
#include "tests/data_files.h"
#include "tests/layer_harness.h"

static bool elsewhere; /* other processes are those of another host */

/* In place of the C library's: what the kernel says of locks, but for who has one. */
int fcntl(int fd, int command, ...)
{
    va_list rest;
    void *argument;
    int result;

    va_start(rest, command);
    argument = va_arg(rest, void *);
    va_end(rest);
    result = (int)syscall(SYS_fcntl, fd, command, argument);
    if (elsewhere && (result == 0) && (command == F_GETLK))
        ((struct flock *)argument)->l_pid = -((struct flock *)argument)->l_pid;
    return result;
}

/* A child that has locked the file, or the lock file of the path, and says so; it ends when it is
 * killed, or after some seconds by itself. */
static pid_t holder(const char *path, bool lock_file, double seconds)
{
    int ready[2];
    char byte = 0;
    pid_t child;

    assert_int_equal(pipe(ready), 0);
    child = fork();
    if (child == 0) {
        ct_lock_file l = { .fd = -1 };
        bool good = lock_file ? (ct_lock_file_take(path, false, &l) == CT_OK)
                              : (ct_file_lock(open(path, O_RDWR | O_CREAT, 0666), path) == CT_OK);

        (void)!write(ready[1], good ? "y" : "n", 1);
        (void)usleep((useconds_t)(seconds * 1e6));
        if (lock_file) ct_lock_file_release(&l);
        _exit(0);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(byte, 'y');
    close(ready[0]);
    close(ready[1]);
    return child;
}

static void end(pid_t child, int by)
{
    int how;

    if (by != 0) assert_int_equal(kill(child, by), 0);
    assert_int_equal(waitpid(child, &how, 0), child);
}

static void assert_names(const char *said, const char *path, pid_t child)
{
    char want[400], host[64] = "";

    (void)gethostname(host, sizeof(host) - 1);
    snprintf(want, sizeof(want), "%s belongs to another job that runs: host %s, process %ld\n",
             path, host, (long)child);
    assert_non_null(strstr(said, want));
}

static void test_open_file(void **state)
{
    test_folder f;
    const char *path;
    pid_t child;
    int fd;

    (void)state;
    test_folder_make(&f);
    path = test_path(&f, "m.jsonl");
    assert_int_equal(ct_file_lock_ask(path), CT_OK); /* it is not there */
    child = holder(path, false, 60.0);
    fd = open(path, O_RDWR);
    test_log_start();
    assert_int_equal(ct_file_lock(fd, path), CT_ERR_CONFIG);
    assert_names(test_log_stop(), path, child);
    test_log_start();
    assert_int_equal(ct_file_lock_ask(path), CT_ERR_CONFIG);
    assert_names(test_log_stop(), path, child);
    elsewhere = true; /* a file of any kind says nothing of who has it */
    test_log_start();
    assert_int_equal(ct_file_lock(fd, path), CT_ERR_CONFIG);
    assert_non_null(strstr(test_log_stop(), "belongs to another job that runs, on another host"));
    elsewhere = false;
    end(child, SIGKILL);
    assert_int_equal(ct_file_lock(fd, path), CT_OK);
    close(fd);
    fd = open("/dev/null", O_WRONLY);
    assert_int_equal(ct_file_lock(fd, "/dev/null"), CT_OK);
    close(fd);
    test_folder_remove(&f);
}

static void test_lock_file(void **state)
{
    test_folder f;
    const char *path;
    ct_lock_file l;
    double start;
    pid_t child;

    (void)state;
    test_folder_make(&f);
    path = test_path(&f, "set");
    child = holder(path, true, 60.0);
    test_log_start();
    assert_int_equal(ct_lock_file_take(path, false, &l), CT_ERR_CONFIG);
    assert_names(test_log_stop(), path, child);
    assert_int_equal(l.fd, -1);
    elsewhere = true;
    test_log_start();
    assert_int_equal(ct_lock_file_take(path, false, &l), CT_ERR_CONFIG);
    assert_names(test_log_stop(), path, child);
    elsewhere = false;
    end(child, SIGKILL);
    assert_int_equal(test_folder_count(f.path), 1); /* its file stays, and blocks nobody */
    assert_int_equal(ct_lock_file_take(path, false, &l), CT_OK);
    ct_lock_file_release(&l);
    assert_int_equal(test_folder_count(f.path), 0);
    /* who waits gets a file of its own: that of the first was removed */
    child = holder(path, true, 0.4);
    start = ct_clock_s();
    assert_int_equal(ct_lock_file_take(path, true, &l), CT_OK);
    assert_true(ct_clock_s() - start >= 0.2);
    assert_int_equal(access(l.path, F_OK), 0);
    ct_lock_file_release(&l);
    end(child, 0);
    assert_int_equal(test_folder_count(f.path), 0);
    /* what a killed one left goes; what somebody has stays */
    child = holder(path, true, 60.0);
    ct_lock_file_clear(path);
    assert_int_equal(test_folder_count(f.path), 1);
    end(child, SIGKILL);
    ct_lock_file_clear(path);
    assert_int_equal(test_folder_count(f.path), 0);
    ct_lock_file_clear(path);
    assert_int_equal(test_folder_count(f.path), 0);
    /* where nothing can be written there is no lock, and the writer says so */
    assert_int_equal(ct_lock_file_take(test_path(&f, "nothing/set"), false, &l), CT_OK);
    assert_int_equal(l.fd, -1);
    ct_lock_file_release(&l);
    test_folder_remove(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open_file),
        cmocka_unit_test(test_lock_file),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
