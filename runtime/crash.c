#include "runtime/crash.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "framework/base/log.h"

enum { STACK_BYTES = 64 * 1024 };

static const struct {
    int number;
    const char *name, *cause;
} fatal[] = {
    { SIGSEGV, "SIGSEGV", "memory that is not there" },
    { SIGBUS, "SIGBUS", "memory whose file or device is gone" },
    { SIGFPE, "SIGFPE", "arithmetic without a result" },
    { SIGILL, "SIGILL", "an instruction that this processor lacks" },
    { SIGABRT, "SIGABRT", "a library or a check gave up" },
};
enum { N_FATAL = sizeof(fatal) / sizeof(fatal[0]) };

/* Handlers have no other way to know. */
static const char *volatile running;
static bool ours[N_FATAL];
static atomic_flag ending = ATOMIC_FLAG_INIT;

static void compose(int k, const siginfo_t *info, ct_plain_text *t)
{
    bool sent = (info->si_code <= 0) && (info->si_pid != getpid());

    ct_plain_add(t, "process ");
    ct_plain_number(t, (unsigned long)getpid(), 10);
    ct_plain_add(t, " ends by ");
    ct_plain_add(t, fatal[k].name);
    ct_plain_add(t, sent ? ", sent by process " : " (");
    if (sent) {
        ct_plain_number(t, (unsigned long)info->si_pid, 10);
    } else {
        ct_plain_add(t, fatal[k].cause);
        if (info->si_code > 0) {
            ct_plain_add(t, ", address 0x");
            ct_plain_number(t, (unsigned long)info->si_addr, 16);
        }
        ct_plain_add(t, ")");
    }
    if (running != NULL) {
        ct_plain_add(t, " in ");
        ct_plain_add(t, running);
    }
}

/* Ends by the signal itself; where that does nothing (process 1 of a container), by the exit code
 * that shells give it. */
static void end_by(int number)
{
    struct sigaction action;
    sigset_t set;

    memset(&action, 0, sizeof(action));
    action.sa_handler = SIG_DFL;
    (void)sigaction(number, &action, NULL);
    (void)sigemptyset(&set);
    (void)sigaddset(&set, number);
    (void)raise(number);
    (void)pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    _exit(128 + number);
}

static void on_crash(int number, siginfo_t *info, void *context)
{
    char text[400];
    ct_plain_text t = { text, sizeof(text), 0 };
    int k = 0;

    (void)context;
    /* the thread that was first ends the process */
    while (atomic_flag_test_and_set(&ending)) (void)pause();
    while ((k + 1 < N_FATAL) && (fatal[k].number != number)) k++;
    compose(k, info, &t);
    ct_ending_say(CT_LOG_ERROR, text);
    ct_ending_clean();
    end_by(number);
}

/* Did a handler stand there before ours? */
static bool is_taken(int number)
{
    struct sigaction old;

    if (sigaction(number, NULL, &old) != 0) return true;
    return (old.sa_flags & SA_SIGINFO) ||
           ((old.sa_handler != SIG_DFL) && (old.sa_handler != SIG_IGN));
}

void ct_crash_install(void)
{
    static char stack[STACK_BYTES];
    static bool again;
    stack_t alternate = { .ss_sp = stack, .ss_size = sizeof(stack) }, old;
    struct sigaction action;

    memset(&action, 0, sizeof(action));
    action.sa_sigaction = on_crash;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    (void)sigfillset(&action.sa_mask);
    if ((sigaltstack(NULL, &old) == 0) && (old.ss_flags & SS_DISABLE))
        (void)sigaltstack(&alternate, NULL);
    for (int k = 0; k < N_FATAL; k++) {
        if (!again) ours[k] = !is_taken(fatal[k].number);
        if (ours[k]) (void)sigaction(fatal[k].number, &action, NULL);
    }
    again = true;
}

void ct_crash_tell(const char *what)
{
    running = what;
}
