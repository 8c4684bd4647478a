/* What a job and its user say of the machine: SLURM's addresses and node list, `topology:` and
 * `allreduce:` texts. Any bytes end in a topology that is whole, or in CT_ERR_CONFIG.
 * An input is lines: a topology text, an allreduce text, a node list, then an address for each
 * rank, and behind blanks its pattern, its socket and NUMA node. Behind a line "--" stands the file
 * that the topology text names. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/collective/coll_types.h"
#include "topology/discover.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/tokens.h"

enum { MOST_RANKS = 12 };

/* What plans ask of it. */
static void price(const ct_topo *t)
{
    int slowest = ct_topo_slowest_node(t), smallest = ct_topo_smallest_node(t);

    if ((slowest < 0) || (slowest >= t->n_node) || (smallest >= t->n_node)) abort();
    for (int k = 0; k < t->n_node; ++k)
        if (!(ct_topo_speed(t, k) >= ct_topo_speed(t, slowest))) abort();
    for (int l = 0; l < t->machine.n_level; ++l) {
        for (int v = 0; v < t->n_vertex[l]; ++v)
            if (!(ct_topo_bandwidth(t, l, v) >= 0) || !(ct_topo_bus(t, l, v) >= 0)) abort();
        if (!(ct_topo_uplink(t, l, 0) >= 0)) abort();
    }
    if (!(ct_topo_least_inside(t) > 0) || !(ct_topo_least_inject(t) >= 0)) abort();
    if (!(ct_topo_codec_speed(t).update_s >= 0)) abort();
}

static void check(const ct_topo *t, int n_rank)
{
    int at = 0;

    if ((t->n_rank != n_rank) || (t->n_node < 1) || (t->n_node > n_rank)) abort();
    for (int r = 0; r < n_rank; ++r) {
        if ((t->node[r] < 0) || (t->node[r] >= t->n_node)) abort();
        if ((t->order[r] < 0) || (t->order[r] >= n_rank)) abort();
        at += t->order[r];
        for (int o = 0; o < n_rank; ++o) {
            int level = ct_topo_meet(t, r, o);

            if ((level == -1) != (r == o) || (level >= t->machine.n_level)) abort();
        }
    }
    if (at != n_rank * (n_rank - 1) / 2) abort();
    price(t);
}

/* "PATTERN 10": bound within socket 1 and NUMA node 0. */
static void read_binding(char *pattern, ct_rank_place *place)
{
    char *blank = strchr(pattern, ' ');

    place->socket = place->numa = -1;
    if (blank == NULL) return;
    *blank++ = '\0';
    if ((*blank >= '0') && (*blank <= '9')) place->socket = *blank++ - '0';
    if ((*blank >= '0') && (*blank <= '9')) place->numa = *blank - '0';
}

/* One rank a line, two to a node where the lines are even. */
static int read_ranks(char *text, ct_rank_place *place, ct_rank_name *name)
{
    int n = 0;

    for (char *line = strtok(text, "\n"); (line != NULL) && (n < MOST_RANKS);
         line = strtok(NULL, "\n")) {
        char *blank = strchr(line, ' '), *dot = NULL;

        place[n].socket = place[n].numa = -1;
        if (blank != NULL) {
            *blank = '\0';
            read_binding(blank + 1, &place[n]);
        }
        snprintf(name[n].address, sizeof(name[n].address), "%.255s", line);
        snprintf(name[n].pattern, sizeof(name[n].pattern), "%.127s",
                 (blank != NULL) ? blank + 1 : "switch.node");
        dot = strrchr(line, '.');
        snprintf(name[n].node, sizeof(name[n].node), "%.63s", (dot != NULL) ? dot + 1 : line);
        place[n].host = (uint64_t)n;
        for (int i = 0; i < n; ++i) {
            if (strcmp(name[i].node, name[n].node) == 0) place[n].host = place[i].host;
        }
        n += 1;
    }
    return n;
}

/* file: NULL: there is none. */
static void discover(const char *topology, const char *file, const ct_job_facts *facts)
{
    ct_machine *m = NULL;
    ct_topo_text text;
    ct_text drawing = { 0 };
    ct_topo *t = NULL;
    ct_status status = ct_topo_text_parse(topology, &text);

    if ((status != CT_OK) || ((ct_topo_text_file(&text) != NULL) != (file != NULL))) return;
    status = ct_topo_text_machine(&text, file, (file != NULL) ? strlen(file) : 0, &m);
    if (status == CT_OK) status = ct_topo_discover(&text, m, facts, &t);
    if (status == CT_OK) check(t, facts->n_rank);
    ct_topo_destroy(t);
    if ((status == CT_OK) && (text.kind == CT_TOPO_SPEC) && (ct_topo_text_spec(&text, &m) == CT_OK))
        ct_machine_draw_levels(m, &drawing);
    ct_text_destroy(&drawing);
    ct_machine_destroy(m);
}

FUZZ_TOKENS(0, &ct__machine_parameter__descriptor);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ct_rank_place place[MOST_RANKS];
    ct_rank_name name[MOST_RANKS];
    ct_job_facts facts = { .place = place, .name = name, .speaks = true };
    ct_coll_term term[CT_COLL_TERMS];
    char text[4097], *line[4] = { text }, *file;
    int n_term = 0;

    if (size > sizeof(text) - 1) return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    for (int i = 1; i < 4; ++i) {
        line[i] = strchr(line[i - 1], '\n');
        if (line[i] == NULL) return 0;
        *line[i]++ = '\0';
    }
    ct_log_set_sink(fuzz_drop, NULL);
    if (ct_coll_spec_read(line[1], term, &n_term) == CT_OK) {
        if ((n_term < 1) || (n_term > CT_COLL_TERMS) || (term[n_term - 1].below != INT64_MAX))
            abort();
    }
    facts.node_list = line[2];
    file = strstr(line[3], "\n--\n");
    if (file != NULL) {
        *file = '\0';
        file += 4;
    }
    facts.n_rank = read_ranks(line[3], place, name);
    if (facts.n_rank > 0) {
        discover(line[0], file, &facts);
        discover("auto", NULL, &facts);
        discover("slurm", NULL, &facts);
    }
    return 0;
}
