/* cortado simulate: writes the platform, lets smpirun run the simulator on it. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/scale/scale.h"
#include "cli/simulate/sim_setup.h"
#include "framework/base/file.h"
#include "framework/base/text.h"

ct_status ct_simulator_find(const char *self, char *out)
{
    static const char *const place[] = { "cortado-sim", "../smpicc/cortado-sim",
                                         "../libexec/cortado/cortado-sim" };
    const char *named = getenv("CORTADO_SIM");
    const char *slash = strrchr(self, '/');
    int n = (slash != NULL) ? (int)(slash - self) : 0;
    char path[PATH_MAX];

    if (named != NULL) {
        if (realpath(named, out) != NULL) return CT_OK;
        return CT_FAIL(CT_ERR_IO, "CORTADO_SIM=%s: %s", named, strerror(errno));
    }
    for (size_t i = 0; i < sizeof(place) / sizeof(place[0]); i++) {
        snprintf(path, sizeof(path), "%.*s/%s", n, self, place[i]);
        if (realpath(path, out) != NULL) return CT_OK;
    }
    return CT_FAIL(CT_ERR_CONFIG, "the simulator is not built: `make SIMGRID=1` makes cortado-sim "
                                  "(needs SimGrid's smpicc); --kind=modelled does without");
}

ct_status ct_simulator_platform(const ct_topo *t, const char *xml_path, const char *hosts_path)
{
    ct_text xml = { 0 }, hosts = { 0 };
    ct_status status = ct_sim_platform_write(t, &xml, &hosts);

    if (status == CT_OK) status = ct_file_write(xml_path, xml.text, xml.length);
    if (status == CT_OK) status = ct_file_write(hosts_path, hosts.text, hosts.length);
    ct_text_destroy(&xml);
    ct_text_destroy(&hosts);
    return status;
}

void ct_simulator_start(const ct_machine *machine, int n_rank, const char *xml_path,
                        const char *hosts_path, const char *program, ct_argv *command)
{
    ct_text text = { 0 };

    ct_argv_add(command, "smpirun");
    ct_argv_add(command, "-np");
    ct_argv_add(command, "%d", n_rank);
    ct_argv_add(command, "-platform");
    ct_argv_add(command, "%s", xml_path);
    ct_argv_add(command, "-hostfile");
    ct_argv_add(command, "%s", hosts_path);
    /* no copy of the program for each rank, which no cache would hold: it has no mutable globals */
    ct_argv_add(command, "-no-privatize");
    ct_sim_settings(machine, &text);
    for (char *rest = text.text, *line; (line = strsep(&rest, "\n")) != NULL;) {
        if (line[0] != '\0') ct_argv_add(command, "%s", line);
    }
    ct_text_destroy(&text);
    ct_argv_add(command, "%s", program);
}

typedef struct run {
    ct_call *call;
    const ct_options *options;
    ct_topo *topo;
    char dir[PATH_MAX / 2], xml[PATH_MAX], hosts[PATH_MAX];
    ct_argv command;
} run;

static ct_status write_files(run *r)
{
    const char *tmp = getenv("TMPDIR");

    snprintf(r->dir, sizeof(r->dir), "%s/cortado-simulate.XXXXXX", (tmp != NULL) ? tmp : "/tmp");
    if (mkdtemp(r->dir) == NULL) {
        ct_status status = CT_FAIL(CT_ERR_IO, "%s: %s", r->dir, strerror(errno));

        r->dir[0] = '\0';
        return status;
    }
    snprintf(r->xml, sizeof(r->xml), "%s/platform.xml", r->dir);
    snprintf(r->hosts, sizeof(r->hosts), "%s/hosts", r->dir);
    return ct_simulator_platform(r->topo, r->xml, r->hosts);
}

static ct_status make_command(run *r)
{
    char self[512], program[PATH_MAX];

    CT_TRY(ct_scale_self(self, sizeof(self)));
    CT_TRY(ct_simulator_find(self, program));
    ct_simulator_start(&r->topo->machine, r->topo->n_rank, r->xml, r->hosts, program, &r->command);
    for (int i = 1; i < r->call->argc; i++) {
        if (strpbrk(r->call->argv[i], " \t\n*?[") != NULL)
            return CT_FAIL(CT_ERR_CONFIG,
                           "%s: smpirun splits and expands arguments: no spaces, *, "
                           "? or [",
                           r->call->argv[i]);
        ct_argv_add(&r->command, "%s", r->call->argv[i]);
    }
    return r->command.failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for a command") : CT_OK;
}

/* What ends with these codes has said why, in a line of its own. */
static ct_status wait_for(pid_t child, bool *told_p)
{
    static const ct_status told[] = { CT_ERR_CONFIG, CT_ERR_IO };
    int state = 0;

    while (waitpid(child, &state, 0) < 0) {
        if (errno != EINTR) return CT_FAIL(CT_ERR_IO, "smpirun: %s", strerror(errno));
    }
    if (WIFEXITED(state) && (WEXITSTATUS(state) == 0)) return CT_OK;
    for (int i = 0; WIFEXITED(state) && (i < 2); i++) {
        *told_p = (WEXITSTATUS(state) == ct_status_exit_code(told[i]));
        if (*told_p) return told[i];
    }
    if (WIFEXITED(state) && (WEXITSTATUS(state) == 127))
        return CT_FAIL(CT_ERR_CONFIG, "smpirun did not start: is SimGrid installed?");
    return CT_FAIL(CT_ERR_COMM, "the simulation failed: %s %d",
                   WIFEXITED(state) ? "exit code" : "signal",
                   WIFEXITED(state) ? WEXITSTATUS(state) : WTERMSIG(state));
}

static ct_status start(run *r)
{
    pid_t child = fork();

    if (child < 0) return CT_FAIL(CT_ERR_IO, "smpirun: %s", strerror(errno));
    if (child == 0) {
        execvp(r->command.word[0], r->command.word);
        _exit(127);
    }
    return wait_for(child, &r->call->told);
}

static ct_status simulate(run *r)
{
    int n = 0;

    for (int i = 0; i < 3; i++) {
        static const char *const work[] = { "bench", "profile", "pass" };

        n += (ct_options_text(r->options, work[i]) != NULL);
    }
    if (n > 1)
        return CT_FAIL(CT_ERR_CONFIG, "--bench, --profile and --pass are three kinds of work: give "
                                      "one of them");
    if ((ct_options_text(r->options, "bench") == NULL) &&
        (ct_options_text(r->options, "profile") == NULL) &&
        (ct_options_text(r->options, "pass") == NULL))
        return CT_FAIL(CT_ERR_CONFIG,
                       "give --bench=BYTES for collectives alone, --profile=FILE (cortado time "
                       "--json=FILE) for training steps, or --pass=FILE (cortado check "
                       "--parallel --phase=TEST --json=FILE) for a forward pass");
    CT_TRY(ct_sim_place(r->options, 0, &r->topo));
    CT_TRY(write_files(r));
    CT_TRY(make_command(r));
    return start(r);
}

bool ct_simulate_form(int i, ct_verb_form *form_p)
{
    *form_p = (ct_verb_form){ "simulate", "collectives or steps on a described machine",
                              ct_sim_option_table, ct_sim_option_table_n };
    return i == 0;
}

ct_status ct_verb_simulate(ct_call *call)
{
    run r = { .call = call };
    ct_options *options = NULL;
    ct_status status = CT_OK;

    status = ct_options_parse(ct_sim_option_table, ct_sim_option_table_n, call->argc, call->argv,
                              &options);
    r.options = options;
    if (status == CT_OK) status = simulate(&r);
    if (r.dir[0] != '\0') {
        (void)unlink(r.xml);
        (void)unlink(r.hosts);
        (void)rmdir(r.dir);
    }
    ct_argv_destroy(&r.command);
    ct_topo_destroy(r.topo);
    ct_options_destroy(options);
    return status;
}
