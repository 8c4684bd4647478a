#include "cli/scale/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "framework/base/clock.h"

enum { WAITING, RUNNING, ENDED };
#define GRACE_S 5.0 /* between TERM and KILL, unless a child says more */

/* ---- words */

void ct_argv_add(ct_argv *w, const char *fmt, ...)
{
    char **list = realloc(w->word, ((size_t)w->n + 2) * sizeof(*list)), *text = NULL;
    va_list args;
    int rc;

    if (list == NULL) {
        w->failed = true;
        return;
    }
    w->word = list;
    va_start(args, fmt);
    rc = vasprintf(&text, fmt, args);
    va_end(args);
    if (rc < 0) {
        w->failed = true;
        text = NULL;
    }
    list[w->n] = text;
    if (text != NULL) w->n += 1;
    list[w->n] = NULL;
}

void ct_argv_destroy(ct_argv *w)
{
    for (int i = 0; i < w->n; i++) free(w->word[i]);
    free(w->word);
    memset(w, 0, sizeof(*w));
}

void ct_argv_print(const ct_argv *w, ct_text *out)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "-_=./:,+@%";

    for (int i = 0; i < w->n; i++) {
        const char *s = w->word[i];

        if (i > 0) ct_text_add(out, " ");
        if ((s[0] != '\0') && (s[strspn(s, plain)] == '\0')) {
            ct_text_add(out, "%s", s);
            continue;
        }
        ct_text_add(out, "'");
        for (; *s != '\0'; s++) {
            if (*s == '\'')
                ct_text_add(out, "'\\''");
            else
                ct_text_add_bytes(out, s, 1);
        }
        ct_text_add(out, "'");
    }
}

void ct_child_destroy(ct_child *c)
{
    ct_argv_destroy(&c->command);
    ct_argv_destroy(&c->env);
    free(c->log);
    c->log = NULL;
}

/* ---- processes */

#define NAP_NS (50 * 1000 * 1000L)

static void stop_signals(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
}

void ct_stop_signals_hold(sigset_t *before)
{
    sigset_t wanted;

    stop_signals(&wanted);
    sigprocmask(SIG_BLOCK, &wanted, before);
}

void ct_stop_signals_release(const sigset_t *before)
{
    sigprocmask(SIG_SETMASK, before, NULL);
}

ct_status ct_stop_signals_nap(void)
{
    const struct timespec nap = { 0, NAP_NS };
    sigset_t wanted;

    stop_signals(&wanted);
    return (sigtimedwait(&wanted, NULL, &nap) > 0) ? CT_STOPPED : CT_OK;
}

static void become(const ct_child *c, pid_t parent, const sigset_t *before)
{
    int in = open("/dev/null", O_RDONLY);
    int out = (c->log != NULL) ? open(c->log, O_WRONLY | O_CREAT | O_TRUNC, 0644)
                               : open("/dev/null", O_WRONLY);
    sigset_t mask;

    setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);        /* a study that is killed leaves none behind */
    if (getppid() != parent) _exit(128 + SIGTERM); /* it was killed before that */
    if (c->kept > 0) (void)fcntl(c->kept, F_SETFD, 0);
    if ((in >= 0) && (out >= 0)) {
        dup2(in, 0);
        dup2(out, 1);
        dup2(out, 2);
    }
    for (int i = 0; i < c->env.n; i++) putenv(c->env.word[i]);
    stop_signals(&mask);
    sigprocmask(SIG_SETMASK, before, NULL);
    sigprocmask(SIG_UNBLOCK, &mask, NULL); /* the study itself may hold them */
    execvp(c->command.word[0], c->command.word);
    dprintf(2, "%s: %s\n", c->command.word[0], strerror(errno));
    _exit(127);
}

static ct_status start(ct_child *c, const sigset_t *mask)
{
    pid_t parent = getpid();

    if (c->command.failed || c->env.failed || (c->command.n == 0))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a command");
    fflush(NULL);
    c->start_s = ct_clock_s();
    c->pid = fork();
    if (c->pid < 0) return CT_FAIL(CT_ERR_IO, "fork: %s", strerror(errno));
    if (c->pid == 0) become(c, parent, mask);
    setpgid(c->pid, c->pid); /* both sides, whoever is first */
    c->state = RUNNING;
    return CT_OK;
}

static void hit(ct_child *c, int sig)
{
    kill(-c->pid, sig);
    if (c->killed_s == 0) c->killed_s = ct_clock_s();
}

static double grace_of(const ct_child *c)
{
    return (c->grace_s > 0) ? c->grace_s : GRACE_S;
}

/* True when it has ended. */
static bool look(ct_child *c)
{
    struct rusage use;
    int status = 0;
    double now = ct_clock_s();

    if (wait4(c->pid, &status, WNOHANG, &use) == c->pid) {
        c->state = ENDED;
        c->wall_s = now - c->start_s;
        c->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        c->peak_rss = 1024.0 * (double)use.ru_maxrss;
        kill(-c->pid, SIGKILL); /* what a launcher left behind */
        return true;
    }
    if ((c->killed_s > 0) && (now - c->killed_s > grace_of(c))) hit(c, SIGKILL);
    if ((c->limit_s > 0) && (now - c->start_s > c->limit_s) && (c->killed_s == 0)) {
        c->timed_out = true;
        hit(c, SIGTERM);
    }
    return false;
}

typedef struct pool {
    ct_child *const *child;
    int n, n_job;
    double memory;
    int next, running; /* the next to start; how many run */
    sigset_t mask;     /* as it was before                */
    ct_status status;  /* what ends the study early       */
} pool;

static double memory_of_running(const pool *p)
{
    double sum = 0;

    for (int i = 0; i < p->next; i++)
        sum += (p->child[i]->state == RUNNING) ? p->child[i]->memory : 0;
    return sum;
}

static void start_some(pool *p, ct_child_fn started, void *ctx)
{
    while ((p->status == CT_OK) && (p->next < p->n) && (p->running < p->n_job)) {
        ct_child *c = p->child[p->next];

        if ((p->running > 0) && (memory_of_running(p) + c->memory > p->memory)) return;
        if (started != NULL) p->status = started(ctx, p->next);
        if (p->status == CT_OK) p->status = start(c, &p->mask);
        if (p->status != CT_OK) return;
        p->next += 1;
        p->running += 1;
    }
}

static void stop_all(pool *p)
{
    for (int i = 0; i < p->next; i++) {
        if ((p->child[i]->state == RUNNING) && (p->child[i]->killed_s == 0))
            hit(p->child[i], SIGTERM);
    }
}

/* Ended children are handed over also while the study stops: what is finished is kept. */
static void collect(pool *p, ct_child_fn ended, void *ctx)
{
    for (int i = 0; i < p->next; i++) {
        ct_child *c = p->child[i];
        ct_status status;

        if ((c->state != RUNNING) || !look(c)) continue;
        p->running -= 1;
        if ((c->killed_s > 0) && !c->timed_out) continue; /* ended by us: not a result */
        status = ended(ctx, i);
        if (p->status == CT_OK) p->status = status;
    }
}

ct_status ct_children_run(ct_child *const *child, int n, int n_job, double memory,
                          ct_child_fn started, ct_child_fn ended, void *ctx)
{
    const struct timespec nap = { 0, NAP_NS };
    pool p = { .child = child, .n = n, .n_job = (n_job > 0) ? n_job : 1, .memory = memory };
    sigset_t wanted;

    stop_signals(&wanted);
    sigaddset(&wanted, SIGCHLD);
    sigprocmask(SIG_BLOCK, &wanted, &p.mask);
    for (;;) {
        int sig;

        start_some(&p, started, ctx);
        if (p.status != CT_OK) stop_all(&p);
        if (p.running == 0) break;
        sig = sigtimedwait(&wanted, NULL, &nap);
        if (((sig == SIGINT) || (sig == SIGTERM)) && (p.status == CT_OK)) p.status = CT_STOPPED;
        collect(&p, ended, ctx);
    }
    sigprocmask(SIG_SETMASK, &p.mask, NULL);
    return p.status;
}
