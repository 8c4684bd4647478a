#include "runtime/signals.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "framework/base/log.h"
#include "framework/snapshot/owner.h"

static const int handled[] = { SIGTERM, SIGUSR1, SIGINT, SIGHUP, SIGUSR2 };
enum { N_HANDLED = sizeof(handled) / sizeof(handled[0]) };

static volatile int request; /* ct_signal_effect; a stop is never lowered */
static volatile sig_atomic_t dump, begun;
static volatile sig_atomic_t effect_of[65];

/* Before the first step. Any thread. */
static void end_at_once(int number)
{
    static const char *const name[] = { "SIGTERM", "SIGUSR1", "SIGINT", "SIGHUP" };
    char text[120];
    ct_plain_text t = { text, sizeof(text), 0 };

    for (int i = 0; i < 4; i++)
        if (handled[i] == number) ct_plain_add(&t, name[i]);
    ct_plain_add(&t, " before the first step: stopped, nothing to save, exit code ");
    ct_plain_number(&t, CT_EXIT_NOT_BEGUN, 10);
    ct_ending_say(CT_LOG_INFO, text);
    ct_ending_clean();
    ct_owner_clean();
    _exit(CT_EXIT_NOT_BEGUN);
}

static void on_signal(int number)
{
    if (number == SIGUSR2) {
        dump = 1;
        return;
    }
    if (!begun && (effect_of[number] == CT_SIGNAL_STOP)) end_at_once(number);
    if (request != CT_SIGNAL_STOP) request = effect_of[number];
}

static void handled_set(sigset_t *set_p)
{
    (void)sigemptyset(set_p);
    for (int i = 0; i < N_HANDLED; i++) (void)sigaddset(set_p, handled[i]);
}

void ct_signals_block(void)
{
    sigset_t set;

    handled_set(&set);
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
}

void ct_signals_unblock(void)
{
    sigset_t set;

    handled_set(&set);
    (void)pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

void ct_signals_begin(void)
{
    begun = 1;
}

ct_status ct_signals_effect(const char *effect, ct_signal_effect *effect_p)
{
    static const char *const name[] = { "none", "stop", "snapshot" };

    for (int i = 0; i < 3; i++) {
        if (strcmp(effect, name[i]) != 0) continue;
        *effect_p = (ct_signal_effect)i;
        return CT_OK;
    }
    return CT_FAIL(CT_ERR_CONFIG, "signal effect \"%s\": expected stop, snapshot or none", effect);
}

ct_status ct_signals_install(ct_signal_effect on_int, ct_signal_effect on_hup)
{
    const ct_signal_effect effect[] = { CT_SIGNAL_STOP, CT_SIGNAL_STOP, on_int, on_hup,
                                        CT_SIGNAL_NONE };
    struct sigaction action;

    memset(&action, 0, sizeof(action));
    action.sa_flags = SA_RESTART;
    (void)sigfillset(&action.sa_mask);
    for (int i = 0; i < N_HANDLED; i++) {
        /* "none" is to ignore the signal, as in Caffe */
        bool ignore = (effect[i] == CT_SIGNAL_NONE) && (handled[i] != SIGUSR2);

        effect_of[handled[i]] = effect[i];
        action.sa_handler = ignore ? SIG_IGN : on_signal;
        if (sigaction(handled[i], &action, NULL) != 0) {
            return CT_FAIL(CT_ERR_ARG, "no handler for signal %d", handled[i]);
        }
    }
    return CT_OK;
}

volatile int *ct_signals_request(void)
{
    return &request;
}

bool ct_signals_take_dump(void)
{
    bool was = (dump != 0);

    dump = 0;
    return was;
}

/* ---- one line and an end, where the process crashes */

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
static bool ours[N_FATAL], by_code;
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

/* MPICH's mpiexec makes the signal's number the job's exit code, so 6 of SIGABRT, which is the
 * watchdog's. A code of 128 and more it passes on. Cores need the signal. */
static bool wants_code(void)
{
    struct rlimit core;

    return (getenv("HYDI_CONTROL_FD") != NULL) && (getrlimit(RLIMIT_CORE, &core) == 0) &&
           (core.rlim_cur == 0);
}

/* Ends by the signal itself; where that does nothing (process 1 of a container), or by_code, by the
 * exit code that shells give it. */
static void end_by(int number)
{
    struct sigaction action;
    sigset_t set;

    if (by_code) _exit(128 + number);
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
    ct_owner_clean();
    end_by(number);
}

/* UCX, where MPI is linked with it, has handlers before main(), which print a stack in many lines
 * and nothing of ranks. */
static bool is_of_ucx(const struct sigaction *a)
{
    void *address;
    Dl_info from;

    memcpy(&address, &a->sa_sigaction, sizeof(address)); /* C has no cast for it */
    return (dladdr(address, &from) != 0) && (from.dli_fname != NULL) &&
           (strstr(from.dli_fname, "libucs") != NULL);
}

/* Did a handler stand there before ours, of a sanitizer, say, or of who calls the library? */
static bool is_taken(int number)
{
    struct sigaction old;

    if (sigaction(number, NULL, &old) != 0) return true;
    if ((old.sa_flags & SA_SIGINFO) == 0)
        return (old.sa_handler != SIG_DFL) && (old.sa_handler != SIG_IGN);
    return !is_of_ucx(&old);
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
    by_code = wants_code();
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
