#include "cli/scale/simulator.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/text.h"
#include "cli/simulate/sim_platform.h"

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
