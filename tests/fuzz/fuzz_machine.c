/* Machine files, topology.conf and node lists: any bytes give a machine or CT_ERR_CONFIG, and a
 * machine can be placed, drawn and written so that it reads back, each node in its class. */
#include <stdlib.h>
#include <string.h>

#include "topology/discover.h"
#include "topology/topo.h"
#include "topology/names.h"
#include "tests/fuzz/fuzz.h"

static ct_status count(void *ctx, const char *name)
{
    return (++*(int *)ctx > 1000) ? CT_UNSUPPORTED : (name[0] != '\0') ? CT_OK : CT_ERR_ARG;
}

static void use(ct_machine *m)
{
    ct_machine *again = NULL;
    ct_text text = { 0 }, drawing = { 0 };

    if ((ct_machine_write(m, &text) != CT_OK) ||
        (ct_machine_parse("again", text.text, text.length, &again) != CT_OK))
        abort();
    if ((ct_machine_n_node(again) != ct_machine_n_node(m)) || (again->n_level != m->n_level))
        abort();
    if (again->n_node_class != m->n_node_class) abort();
    for (int i = 0; i < m->n_node_run; ++i) {
        int64_t node = m->node_run[i].first;

        if (ct_machine_node_class(again, node) != ct_machine_node_class(m, node)) abort();
    }
    ct_machine_draw_levels(m, &drawing);
    if (ct_machine_n_node(m) < 10000) ct_machine_draw(m, &drawing);
    ct_machine_destroy(again);
    ct_machine_destroy(m);
    ct_text_destroy(&text);
    ct_text_destroy(&drawing);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    ct_machine *m = NULL;
    int n = 0;

    if ((text == NULL) || (size > 4096)) {
        free(text);
        return 0;
    }
    memcpy(text, data, size);
    text[size] = '\0';
    ct_log_set_sink(fuzz_drop, NULL);
    if (ct_machine_parse("fuzz", text, size, &m) == CT_OK) use(m);
    if (ct_slurm_parse_conf("fuzz", text, size, &m) == CT_OK) ct_machine_destroy(m);
    if (ct_machine_from_spec(text, &m) == CT_OK) ct_machine_destroy(m);
    if (ct_hostlist_each(text, "fuzz", count, &n) == CT_ERR_ARG) abort();
    free(text);
    return 0;
}
