/* What the costs of each algorithm take to evaluate, and what they say, on TaihuLight's 40 960
 * nodes and on 1024 of them; or on all of the machine that is named, with a rank a node. */
#include <stdio.h>
#include <stdlib.h>

#include "comm/collective/coll.h"
#include "framework/base/clock.h"

static ct_status show(const ct_machine *m, int n, const char *placement)
{
    ct_topo *t = NULL;
    double start = ct_clock_s();

    CT_TRY(ct_topo_place(m, n, 1, placement, &t));
    printf("%d nodes, %s: built in %.3f s\n", n, placement, ct_clock_s() - start);
    for (const ct_coll_ops *const *at = ct_coll_table; *at != NULL; ++at) {
        ct_cost *c = NULL;

        start = ct_clock_s();
        if (ct_cost_create((*at)->cost, t, NULL, true, &c) != CT_OK) break;
        printf(
            "  %-6s evaluated in %.3f s: 4 KB in %9.3f ms, 1 MB in %9.3f ms, 100 MB in %9.3f ms\n",
            (*at)->name, ct_clock_s() - start, 1e3 * ct_cost_s(c, 4096), 1e3 * ct_cost_s(c, 1e6),
            1e3 * ct_cost_s(c, 100e6));
        ct_cost_destroy(c);
    }
    ct_topo_destroy(t);
    return CT_OK;
}

int main(int argc, char **argv)
{
    ct_machine *m = NULL;
    ct_status status = ct_machine_read((argc > 1) ? argv[1] : "taihulight", &m);

    if ((status == CT_OK) && (argc > 1)) {
        status = show(m, (int)ct_machine_n_node(m), "block");
        ct_machine_destroy(m);
        return (status == CT_OK) ? 0 : 1;
    }
    if (status == CT_OK) status = show(m, 1024, "block");
    if (status == CT_OK) status = show(m, 1024, "cyclic");
    if (status == CT_OK) status = show(m, 1000, "scatter:1");
    if (status == CT_OK) status = show(m, 40960, "block");
    if (status == CT_OK) status = show(m, 40960, "random:1");
    ct_machine_destroy(m);
    return (status == CT_OK) ? 0 : 1;
}
