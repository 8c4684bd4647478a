/* Who owns a snapshot prefix: one training at a time, and none that is gone. */
#include "tests/test.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "framework/base/clock.h"
#include "framework/base/log.h"
#include "framework/snapshot/owner.h"
#include "tests/log_capture.h"

static char folder[] = "/tmp/cortado-owner.XXXXXX", prefix[64], path[96];

static int set_up(void **state)
{
    (void)state;
    strcpy(folder + strlen(folder) - 6, "XXXXXX");
    if (mkdtemp(folder) == NULL) return -1;
    (void)snprintf(prefix, sizeof(prefix), "%s/s", folder);
    (void)snprintf(path, sizeof(path), "%s.owner", prefix);
    return 0;
}

/* Nothing but the owner's file is ever left; it is removed here. */
static int tear_down(void **state)
{
    (void)state;
    (void)unlink(path);
    return rmdir(folder);
}

static ct_status take_as(const ct_owner_id *id, double touch_s, double limit_s, ct_owner **o_p)
{
    ct_owner_options options = { .id = id, .touch_s = touch_s, .limit_s = limit_s };

    return ct_owner_take(prefix, &options, o_p);
}

static bool is_there(void)
{
    return access(path, F_OK) == 0;
}

/* The file of an owner that nothing gives back. */
static void leave(const ct_owner_id *id)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    (void)fprintf(f, "host %s\nspace %s\nprocess %ld\nstart %llu\njob %s\nrestart %d\nsince %s\n",
                  id->host, id->space, id->process, id->start, id->job, id->restart, id->since);
    (void)fclose(f);
}

static void make_old(long seconds)
{
    struct timespec when[2] = { { 0, UTIME_OMIT }, { 0, 0 } };

    when[1].tv_sec = time(NULL) - seconds;
    assert_int_equal(utimensat(AT_FDCWD, path, when, 0), 0);
}

static void test_one_at_a_time(void **state)
{
    ct_owner *o = NULL, *second = NULL;
    log_capture log;
    ct_owner_id id;
    char text[64];

    (void)state;
    setenv("SLURM_JOB_ID", "4711", 1);
    assert_int_equal(take_as(NULL, 0, 0, &o), CT_OK);
    unsetenv("SLURM_JOB_ID");
    assert_true(is_there());
    ct_owner_self(&id);
    log_capture_start(&log);
    assert_int_equal(take_as(NULL, 0, 0, &second), CT_ERR_CONFIG);
    log_capture_stop();
    assert_null(second);
    assert_int_equal(log.n_error, 1);
    assert_non_null(strstr(log.error, id.host));
    (void)snprintf(text, sizeof(text), "process %ld, SLURM job 4711", (long)getpid());
    assert_non_null(strstr(log.error, text));
    assert_true(is_there()); /* who is refused takes nothing away */
    ct_owner_release(o);
    assert_false(is_there());
    assert_int_equal(take_as(NULL, 0, 0, &second), CT_OK);
    ct_owner_release(second);
    ct_owner_release(NULL);
    assert_false(is_there());
}

/* On this host a process that is gone is seen at once, also where its number came again. */
static void test_a_process_that_is_gone(void **state)
{
    ct_owner *o = NULL;
    ct_owner_id id, again;
    double start = ct_clock_s();
    pid_t pid = fork();

    (void)state;
    if (pid == 0) {
        ct_owner *mine = NULL;

        _exit((take_as(NULL, 0, 0, &mine) == CT_OK) ? 0 : 1); /* gives nothing back */
    }
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_true(is_there());
    assert_int_equal(take_as(NULL, 0, 0, &o), CT_OK);
    ct_owner_release(o);
    ct_owner_self(&id);
    again = id;
    again.start++; /* our number, of another process */
    leave(&again);
    assert_int_equal(take_as(NULL, 0, 0, &o), CT_OK);
    ct_owner_release(o);
    again = id;
    (void)snprintf(again.space, sizeof(again.space), "another-boot/pid:[1]");
    leave(&again);
    assert_int_equal(take_as(NULL, 0, 0, &o), CT_OK);
    ct_owner_release(o);
    assert_true(ct_clock_s() - start < 50); /* without the wait for a sign */
}

static void test_a_requeued_job(void **state)
{
    ct_owner_id then, now;
    ct_owner *o = NULL;
    log_capture log;

    (void)state;
    ct_owner_self(&now);
    (void)snprintf(now.job, sizeof(now.job), "12");
    now.restart = 1;
    then = now;
    then.restart = 0;
    (void)snprintf(then.host, sizeof(then.host), "elsewhere");
    leave(&then);
    assert_int_equal(take_as(&now, 0, 1000, &o), CT_OK);
    ct_owner_release(o);
    /* a step beside this one, of the same start of the job, is no earlier one */
    then = now;
    leave(&then);
    log_capture_start(&log);
    assert_int_equal(take_as(&now, 0, 1000, &o), CT_ERR_CONFIG);
    log_capture_stop();
    assert_non_null(strstr(log.error, "SLURM job 12"));
}

static void test_another_host_without_a_sign(void **state)
{
    ct_owner_id there;
    ct_owner *o = NULL;
    double start;

    (void)state;
    ct_owner_self(&there);
    (void)snprintf(there.host, sizeof(there.host), "elsewhere");
    leave(&there);
    make_old(100);
    assert_int_equal(take_as(NULL, 0, 60, &o), CT_OK); /* long silent */
    ct_owner_release(o);
    leave(&there);
    start = ct_clock_s();
    assert_int_equal(take_as(NULL, 0, 1, &o), CT_OK); /* silent from now on */
    assert_true(ct_clock_s() - start > 0.5);
    ct_owner_release(o);
    leave(&there);
    assert_int_equal(truncate(path, 0), 0); /* says nothing */
    assert_int_equal(take_as(NULL, 0, 0.5, &o), CT_OK);
    ct_owner_release(o);
    assert_false(is_there());
}

static void test_another_host_with_signs(void **state)
{
    ct_owner_id there;
    ct_owner *o = NULL, *second = NULL;
    log_capture log;

    (void)state;
    ct_owner_self(&there);
    (void)snprintf(there.host, sizeof(there.host), "elsewhere");
    assert_int_equal(take_as(&there, 0.1, 60, &o), CT_OK);
    make_old(10000); /* its next touch comes */
    log_capture_start(&log);
    assert_int_equal(take_as(NULL, 0, 20000, &second), CT_ERR_CONFIG);
    log_capture_stop();
    assert_non_null(strstr(log.error, "host elsewhere, process"));
    assert_true(is_there());
    ct_owner_release(o);
}

/* Many newcomers find an owner that is gone: one takes its place. */
static void test_newcomers_race(void **state)
{
    enum { N = 8 };
    ct_owner_id gone;

    (void)state;
    ct_owner_self(&gone);
    gone.start++;
    for (int round = 0; round < 5; round++) {
        int go[2], tried[2], n_owner = 0, end;

        leave(&gone);
        assert_int_equal(pipe(go), 0);
        assert_int_equal(pipe(tried), 0);
        for (int i = 0; i < N; i++) {
            if (fork() == 0) {
                ct_owner *o = NULL;
                char c;

                close(go[1]);
                (void)!read(go[0], &c, 1); /* until all are there */
                log_capture_start(NULL);
                if (take_as(NULL, 0, 0, &o) != CT_OK) _exit(1);
                close(tried[1]);
                (void)!read(tried[0], &c, 1); /* until all have tried and gone: then gone, too */
                _exit(0);
            }
        }
        close(go[0]);
        close(go[1]);
        close(tried[0]);
        close(tried[1]);
        while (wait(&end) > 0) n_owner += WIFEXITED(end) && (WEXITSTATUS(end) == 0);
        assert_int_equal(n_owner, 1);
    }
}

static void test_not_what_is_no_longer_ours(void **state)
{
    ct_owner *o = NULL;
    ct_owner_id other;

    (void)state;
    assert_int_equal(take_as(NULL, 0, 0, &o), CT_OK);
    assert_int_equal(unlink(path), 0);
    ct_owner_self(&other);
    leave(&other);
    ct_owner_release(o);
    assert_true(is_there());
    assert_int_equal(unlink(path), 0);
    /* an end in a handler */
    assert_int_equal(take_as(NULL, 0, 0, &o), CT_OK);
    ct_owner_clean();
    assert_false(is_there());
    ct_owner_release(o);
}

/* Makes a file like those of ct_owner_temporary(), of another process. here: of this host. */
static void put_left(const char *what, bool here, long process, unsigned long long start,
                     const char *end, char *name)
{
    ct_text own = { 0 };
    FILE *f;

    ct_owner_temporary(&own, prefix, what);
    assert_false(own.failed);
    for (int i = 0; i < 2; i++) *strrchr(own.text, '.') = '\0';
    (void)snprintf(name, 256, "%s%s.%ld.%llu%s", own.text, here ? "" : "0", process, start, end);
    ct_text_destroy(&own);
    f = fopen(name, "w");
    assert_non_null(f);
    assert_int_equal(fclose(f), 0);
}

/* Who takes a prefix removes the files of killed processes of its host, and no others. */
static void test_what_killed_processes_left(void **state)
{
    char gone[3][256], stays[5][256];
    ct_owner_id self;
    ct_owner *o = NULL;
    pid_t child = fork();

    (void)state;
    if (child == 0) _exit(0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    ct_owner_self(&self);
    assert_true(self.start > 0);
    put_left("owner", true, child, self.start, "", gone[0]);
    put_left("probe", true, child, self.start, "", gone[1]);
    put_left("owner", true, self.process, self.start - 1, "", gone[2]); /* its number came again */
    put_left("probe", true, self.process, self.start, "", stays[0]);
    put_left("owner", false, child, self.start, "", stays[1]);
    put_left("owner", true, child, self.start, "x", stays[2]);
    put_left("other", true, child, self.start, "", stays[3]);
    put_left("owner", true, child, 0, "", stays[4]); /* of a process that could not see its own */
    assert_int_equal(take_as(NULL, 0, 0, &o), CT_OK);
    for (int i = 0; i < 3; i++) assert_int_equal(access(gone[i], F_OK), -1);
    for (int i = 0; i < 5; i++) assert_int_equal(unlink(stays[i]), 0);
    ct_owner_release(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_one_at_a_time, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_process_that_is_gone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_requeued_job, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_another_host_without_a_sign, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_another_host_with_signs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_newcomers_race, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_killed_processes_left, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_not_what_is_no_longer_ours, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
