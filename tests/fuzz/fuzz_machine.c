/* Machine files, topology.conf and node lists: any bytes give a machine or CT_ERR_CONFIG, and a
 * machine can be placed, drawn and written so that it reads back, each node in its class. */
#include <stdlib.h>
#include <string.h>

#include "topology/discover.h"
#include "topology/topo.h"
#include "topology/names.h"
#include "tests/fuzz/folder.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/tokens.h"

static ct_status count(void *ctx, const char *name)
{
    return (++*(int *)ctx > 1000) ? CT_UNSUPPORTED : (name[0] != '\0') ? CT_OK : CT_ERR_ARG;
}

/* Nothing takes less than no time. */
static void price(const ct_machine *m)
{
    static const double bytes[] = { 1, 100, 5000, 1e6, 1e12 };

    for (size_t k = 0; k < sizeof(bytes) / sizeof(bytes[0]); k++) {
        for (int l = 0; l < m->n_level; ++l)
            for (int p = 0; p < CT_PATTERN_N; ++p)
                if (!(ct_level_message_s(&m->level[l], (ct_pattern)p, bytes[k]) >= 0)) abort();
        if ((m->shared.bandwidth > 0) && !(ct_shared_memory_s(&m->shared, bytes[k]) >= 0)) abort();
        if ((ct_in_network_pieces(&m->in_network, bytes[k]) > 0) &&
            !(ct_in_network_s(&m->in_network, bytes[k]) >= 0))
            abort();
    }
    if (!(ct_codec_speed_at(ct_machine_codec_speed(m), 2).update_s >= 0)) abort();
}

/* Classes by measured speeds take the place of those of the file. */
static void class_speeds(ct_machine *m)
{
    double speed[64];
    int64_t n = ct_machine_n_node(m);

    if ((n < 1) || (n > 64)) return;
    for (int64_t i = 0; i < n; ++i) speed[i] = 1 + (double)(i * i % 5) / 3;
    if (ct_machine_class_speeds(m, speed, n) != CT_OK) abort();
    for (int64_t i = 0; i < n; ++i)
        if (ct_machine_node_class(m, i) >= m->n_node_class) abort();
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
    price(m);
    class_speeds(m);
    ct_machine_destroy(again);
    ct_machine_destroy(m);
    ct_text_destroy(&text);
    ct_text_destroy(&drawing);
}

FUZZ_TOKENS(0, &ct__machine_parameter__descriptor);

static void read_file(const char *text, size_t size)
{
    ct_machine *m = NULL;
    char path[128];

    snprintf(path, sizeof(path), "%s/m.prototxt", fuzz_folder_path());
    fuzz_write(path, text, size);
    if (ct_machine_read(path, &m) != CT_OK) abort();
    ct_machine_destroy(m);
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
    if (ct_machine_parse("fuzz", text, size, &m) == CT_OK) {
        use(m);
        read_file(text, size);
    } else if ((strchr(text, '/') == NULL) && (ct_machine_read(text, &m) == CT_OK)) {
        ct_machine_destroy(m);
    }
    if (ct_slurm_parse_conf("fuzz", text, size, &m) == CT_OK) ct_machine_destroy(m);
    if (ct_machine_from_spec(text, &m) == CT_OK) ct_machine_destroy(m);
    if (ct_hostlist_each(text, "fuzz", count, &n) == CT_ERR_ARG) abort();
    free(text);
    return 0;
}
