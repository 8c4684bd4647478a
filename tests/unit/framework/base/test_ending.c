/* How a process ends: crashes, a watchdog whose wall clock is set back, a reader that does not
 * read. What ends a process is tried in a child. */
#include "tests/test.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "framework/base/sanitizer.h"
#include "framework/base/clock.h"
#include "framework/base/log.h"
#include "framework/base/thread.h"
#include "runtime/signals.h"
#include "runtime/job.h"

static long ahead_s; /* how far the program takes the wall clock to be ahead */

/* The library's own call: a wall clock that is ahead when a wait's end is computed, and is then set
 * back, is a wait that is too long by as much. */
int clock_gettime(clockid_t id, struct timespec *t)
{
    long rc = syscall(SYS_clock_gettime, id, t);

    if (id == CLOCK_REALTIME) t->tv_sec += ahead_s;
    return (int)rc;
}

/* Runs f in a child whose stderr is a pipe; its state as of waitpid(). text_p: what it wrote. */
static int in_child(void (*f)(void), char *text, size_t size)
{
    int end[2], state = 0;
    size_t n = 0;
    ssize_t got;
    pid_t pid;

    assert_int_equal(pipe(end), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        const struct rlimit none = { 0, 0 };

        (void)setrlimit(RLIMIT_CORE, &none);
        alarm(60);
        dup2(end[1], STDERR_FILENO);
        close(end[0]);
        close(end[1]);
        for (int i = 1; i < 32; i++) (void)signal(i, SIG_DFL); /* cmocka's */
        f();
        _exit(0);
    }
    close(end[1]);
    while ((n + 1 < size) && ((got = read(end[0], text + n, size - 1 - n)) > 0)) n += (size_t)got;
    text[n] = '\0';
    close(end[0]);
    assert_int_equal(waitpid(pid, &state, 0), pid);
    return state;
}

/* The pipe behind stderr, full, with a reader that does not read. */
static void fill_stderr(void)
{
    static char page[4096];
    int end[2];

    if (pipe(end) != 0) _exit(99);
    dup2(end[1], STDERR_FILENO);
    fcntl(end[1], F_SETFL, O_NONBLOCK);
    while (write(end[1], page, sizeof(page)) > 0) continue;
    while (write(end[1], page, 1) > 0) continue;
    fcntl(end[1], F_SETFL, 0);
}

/* ---- writing */

static void test_a_full_pipe_is_given_up(void **state)
{
    static char page[4096];
    int end[2], before;
    double start;

    (void)state;
    assert_int_equal(pipe(end), 0);
    before = fcntl(end[1], F_GETFL);
    assert_true(ct_write_bounded(end[1], "word\n", 5, 100));
    assert_int_equal(read(end[0], page, sizeof(page)), 5);
    assert_memory_equal(page, "word\n", 5);
    while (ct_write_bounded(end[1], page, sizeof(page), 0)) continue;
    start = ct_clock_s();
    assert_false(ct_write_bounded(end[1], page, sizeof(page), 50));
    assert_true(ct_clock_s() - start >= 0.05);
    assert_int_equal(fcntl(end[1], F_GETFL), before); /* others share them */
    close(end[0]);
    close(end[1]);
}

static void test_a_file_goes_on_where_it_was(void **state)
{
    char name[] = "/tmp/cortado-ending.XXXXXX", text[32] = "";
    int fd = mkstemp(name);

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "one ", 4), 4);
    assert_true(ct_write_bounded(fd, "two ", 4, 100));
    assert_int_equal(write(fd, "three", 5), 5);
    assert_int_equal(pread(fd, text, sizeof(text) - 1, 0), 13);
    assert_string_equal(text, "one two three");
    close(fd);
    unlink(name);
}

static void test_plain_text_ends_in_time(void **state)
{
    char text[12];
    ct_plain_text t = { text, sizeof(text), 0 };

    (void)state;
    ct_plain_number(&t, 0, 10);
    ct_plain_add(&t, " ");
    ct_plain_number(&t, 48879, 16);
    assert_string_equal(text, "0 beef");
    ct_plain_add(&t, " is too long");
    assert_string_equal(text, "0 beef is t");
}

/* ---- threads and waits */

static void *look_at_mask(void *arg)
{
    (void)pthread_sigmask(SIG_BLOCK, NULL, arg);
    return NULL;
}

static void test_threads_take_their_own_faults_alone(void **state)
{
    sigset_t inside, before, after;
    pthread_t thread;

    (void)state;
    (void)pthread_sigmask(SIG_BLOCK, NULL, &before);
    assert_int_equal(ct_thread_start(look_at_mask, &inside, &thread), 0);
    pthread_join(thread, NULL);
    (void)pthread_sigmask(SIG_BLOCK, NULL, &after);
    assert_int_equal(sigismember(&inside, SIGTERM), 1);
    assert_int_equal(sigismember(&inside, SIGUSR1), 1);
    assert_int_equal(sigismember(&inside, SIGPIPE), 1);
    assert_int_equal(sigismember(&inside, SIGSEGV), 0);
    assert_int_equal(sigismember(&inside, SIGABRT), 0);
    for (int i = 1; i < 32; i++) assert_int_equal(sigismember(&after, i), sigismember(&before, i));
}

static void test_main_blocks_and_unblocks(void **state)
{
    sigset_t set;

    (void)state;
    ct_signals_block();
    (void)pthread_sigmask(SIG_BLOCK, NULL, &set);
    assert_int_equal(sigismember(&set, SIGTERM), 1);
    assert_int_equal(sigismember(&set, SIGUSR1), 1);
    assert_int_equal(sigismember(&set, SIGINT), 1);
    assert_int_equal(sigismember(&set, SIGHUP), 1);
    assert_int_equal(sigismember(&set, SIGSEGV), 0);
    ct_signals_unblock();
    (void)pthread_sigmask(SIG_BLOCK, NULL, &set);
    assert_int_equal(sigismember(&set, SIGTERM), 0);
    assert_int_equal(sigismember(&set, SIGUSR1), 0);
    assert_int_equal(sigismember(&set, SIGINT), 0);
    assert_int_equal(sigismember(&set, SIGHUP), 0);
}

static void test_waits_go_by_the_monotonic_clock(void **state)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t cond;
    double start = ct_clock_s();

    (void)state;
    ahead_s = 3600;
    alarm(30);
    assert_int_equal(ct_cond_init(&cond), 0);
    pthread_mutex_lock(&lock);
    while (ct_cond_wait_for(&cond, &lock, 0.02)) continue;
    pthread_mutex_unlock(&lock);
    alarm(0);
    ahead_s = 0;
    assert_true(ct_clock_s() - start >= 0.02);
    pthread_cond_destroy(&cond);
}

/* ---- the watchdog */

static void watch_a_silent_rank(void)
{
    ct_watchdog *w = NULL;

    if (ct_watchdog_start(0.5, &w) != CT_OK) _exit(99);
    ct_watchdog_beat(w, "a test");
    (void)poll(NULL, 0, 20000);
}

static void watch_with_clock_set_back(void)
{
    ahead_s = 3600;
    watch_a_silent_rank();
}

static void watch_with_stderr_full(void)
{
    fill_stderr();
    watch_a_silent_rank();
}

static void watch_with_stderr_locked(void)
{
    flockfile(stderr); /* as a thread that waits in fputs() for the reader */
    watch_a_silent_rank();
}

static void watch_another_limit(void)
{
    ct_watchdog *w = NULL;

    if (ct_watchdog_start(0.5, &w) != CT_OK) _exit(99);
    ct_watchdog_limit(w, 0.0);
    (void)poll(NULL, 0, 1500);
    ct_watchdog_limit(w, 0.5);
    (void)poll(NULL, 0, 20000);
}

static void test_the_watchdog_ends_the_process(void **state)
{
    void (*const kind[])(void) = { watch_a_silent_rank, watch_with_clock_set_back,
                                   watch_with_stderr_locked, watch_another_limit };
    char text[4096];
    int end;

    (void)state;
    for (int i = 0; i < 4; i++) {
        if (CT_SAN_THREAD && (i == 2)) continue; /* ThreadSanitizer's _exit() takes that lock */
        end = in_child(kind[i], text, sizeof(text));
        assert_true(WIFEXITED(end));
        assert_int_equal(WEXITSTATUS(end), 6);
        assert_non_null(strstr(text, "no progress for"));
        if (i < 3) assert_non_null(strstr(text, "in a test"));
    }
    end = in_child(watch_with_stderr_full, text, sizeof(text));
    assert_true(WIFEXITED(end));
    assert_int_equal(WEXITSTATUS(end), 6);
}

/* ---- crashes */

/* A page that is not to be read: a sanitizer leaves that to the processor. */
static void read_nothing(void)
{
    volatile char *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (page == MAP_FAILED) _exit(99);
    (void)*page;
}

static void crash_here(void)
{
    ct_crash_install();
    ct_crash_tell("a test");
    read_nothing();
}

static void *fault(void *arg)
{
    read_nothing();
    return arg;
}

static void crash_in_thread(void)
{
    pthread_t thread;

    ct_crash_install();
    ct_crash_tell("a test");
    if (ct_thread_start(fault, NULL, &thread) != 0) _exit(99);
    pthread_join(thread, NULL);
}

static int dive(volatile char *above)
{
    volatile char here[4096];

    here[0] = above[0];
    return (here[0] == 0) ? 0 : dive(here) + here[0];
}

static void crash_without_stack(void)
{
    const struct rlimit small = { 1 << 20, 1 << 20 };
    volatile char top[1] = { 1 };

    (void)setrlimit(RLIMIT_STACK, &small);
    ct_crash_install();
    ct_crash_tell("a test");
    _exit(dive(top) & 1);
}

static void other_handler(int number)
{
    (void)number;
    _exit(98);
}

static void crash_beside_a_library(void)
{
    ct_crash_install();
    (void)signal(SIGSEGV, other_handler); /* one that does not look */
    ct_crash_install();
    ct_crash_tell("a test");
    read_nothing();
}

static void crash_with_stderr_full(void)
{
    fill_stderr();
    crash_here();
}

static void crash_under_a_sanitizer(void)
{
    (void)signal(SIGSEGV, other_handler);
    ct_crash_install();
    read_nothing();
}

static void test_a_fault_is_told(void **state)
{
    void (*const kind[])(void) = { crash_here, crash_in_thread, crash_beside_a_library,
                                   crash_without_stack };
    char text[4096];
    int end;

    (void)state;
    for (int i = 0; i < 4; i++) {
        end = in_child(kind[i], text, sizeof(text));
        assert_true(WIFSIGNALED(end));
        assert_int_equal(WTERMSIG(end), SIGSEGV);
        assert_non_null(strstr(text, " ends by SIGSEGV (memory that is not there, address 0x"));
        assert_non_null(strstr(text, " in a test\n"));
        assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1); /* one line */
    }
    end = in_child(crash_with_stderr_full, text, sizeof(text));
    assert_true(WIFSIGNALED(end));
    assert_int_equal(WTERMSIG(end), SIGSEGV);
    end = in_child(crash_under_a_sanitizer, text, sizeof(text));
    assert_true(WIFEXITED(end));
    assert_int_equal(WEXITSTATUS(end), 98);
}

/* What hung: malloc finds its heap damaged and calls abort() with its locks held. */
static void corrupt_heap(void)
{
    void *volatile once = malloc(2000); /* more than the caches of threads keep without a look */
    void *volatile again = once;

    ct_crash_install();
    free(once);
    free(again);
}

static void test_a_damaged_heap_is_told(void **state)
{
    char text[4096];
    int end;

    (void)state;
#if CT_SAN_ADDRESS || CT_SAN_THREAD
    skip(); /* their malloc says it in their own way */
#endif
    end = in_child(corrupt_heap, text, sizeof(text));
    assert_true(WIFSIGNALED(end));
    assert_int_equal(WTERMSIG(end), SIGABRT);
    assert_non_null(strstr(text, " ends by SIGABRT (a library or a check gave up)\n"));
}

/* ---- signals from outside */

static void stop_before_the_first_step(void)
{
    (void)ct_signals_install(CT_SIGNAL_STOP, CT_SIGNAL_SNAPSHOT);
    (void)raise(SIGHUP); /* asks for a snapshot alone */
    if (*ct_signals_request() != CT_SIGNAL_SNAPSHOT) _exit(97);
    (void)raise(SIGUSR1);
}

static void stop_after_it(void)
{
    ct_signals_block();
    (void)raise(SIGTERM);
    (void)ct_signals_install(CT_SIGNAL_STOP, CT_SIGNAL_SNAPSHOT);
    ct_signals_begin();
    ct_signals_unblock();
    _exit((*ct_signals_request() == CT_SIGNAL_STOP) ? 3 : 4);
}

static void test_a_stop_before_the_first_step(void **state)
{
    char text[4096], name[] = "/tmp/cortado-ending.XXXXXX";
    int fd = mkstemp(name), end;

    (void)state;
    assert_true(fd >= 0);
    close(fd);
    ct_ending_file(name);
    end = in_child(stop_after_it, text, sizeof(text));
    assert_true(WIFEXITED(end));
    assert_int_equal(WEXITSTATUS(end), 3);
    assert_int_equal(access(name, F_OK), 0);
    end = in_child(stop_before_the_first_step, text, sizeof(text));
    assert_true(WIFEXITED(end));
    assert_int_equal(WEXITSTATUS(end), 76);
    assert_non_null(strstr(text, "SIGUSR1 before the first step"));
    assert_int_equal(access(name, F_OK), -1); /* what an end removes */
    ct_ending_file(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_full_pipe_is_given_up),
        cmocka_unit_test(test_a_file_goes_on_where_it_was),
        cmocka_unit_test(test_plain_text_ends_in_time),
        cmocka_unit_test(test_threads_take_their_own_faults_alone),
        cmocka_unit_test(test_main_blocks_and_unblocks),
        cmocka_unit_test(test_waits_go_by_the_monotonic_clock),
        cmocka_unit_test(test_the_watchdog_ends_the_process),
        cmocka_unit_test(test_a_fault_is_told),
        cmocka_unit_test(test_a_damaged_heap_is_told),
        cmocka_unit_test(test_a_stop_before_the_first_step),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
