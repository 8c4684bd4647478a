/* A machine as the text of its file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/proto/cortado.pb-c.h"
#include "framework/proto/prototxt.h"
#include "topology/hostlist.h"
#include "topology/names.h"

/* 12 digits are more than anybody measures, and survive the way from one unit to the other. */
static double tidy(double v)
{
    char text[40];

    snprintf(text, sizeof(text), "%.12g", v);
    return strtod(text, NULL);
}

typedef struct times {
    Ct__MessageTimeParameter time[CT_MAX_TIME], *pointer[CT_MAX_TIME];
} times;

static void fill_time(double bytes, double seconds, times *t, int i)
{
    ct__message_time_parameter__init(&t->time[i]);
    t->time[i].has_bytes = t->time[i].has_us = 1;
    t->time[i].bytes = (int64_t)bytes;
    t->time[i].us = tidy(seconds * 1e6);
    t->pointer[i] = &t->time[i];
}

static void fill_times(const ct_level *l, times *t)
{
    for (int i = 0; i < l->n_time; ++i) {
        Ct__MessageTimeParameter *p = &t->time[i];
        double swap = l->time_s[CT_PATTERN_SWAP][i];
        double shift = l->time_s[CT_PATTERN_SHIFT][i], way = l->time_s[CT_PATTERN_ONE_WAY][i];

        fill_time(l->time_bytes[i], swap, t, i);
        p->has_shift_us = (shift != swap);
        p->shift_us = p->has_shift_us ? tidy(shift * 1e6) : 0;
        p->has_one_way_us = (way != swap);
        p->one_way_us = p->has_one_way_us ? tidy(way * 1e6) : 0;
    }
}

static void fill_level(const ct_level *l, Ct__MachineLevelParameter *p, times *t)
{
    ct__machine_level_parameter__init(p);
    fill_times(l, t);
    p->n_time = (size_t)l->n_time;
    p->time = t->pointer;
    p->name = (char *)(uintptr_t)l->name; /* only read */
    p->has_size = (l->size != 0);
    p->size = l->size;
    p->has_latency_us = p->has_bandwidth_gbs = 1;
    p->latency_us = tidy(l->latency_s * 1e6);
    p->bandwidth_gbs = tidy(l->bandwidth / 1e9);
    p->has_uplink_gbs = (l->uplink > 0);
    p->uplink_gbs = p->has_uplink_gbs ? tidy(l->uplink / 1e9) : 0;
    p->has_oversubscription = (l->uplink < 0);
    p->oversubscription = p->has_oversubscription ? tidy(-l->uplink) : 0;
    p->has_pairwise = p->pairwise = l->pairwise;
    p->has_bus_gbs = (l->bus > 0);
    p->bus_gbs = tidy(l->bus / 1e9);
    p->has_burst_mb = (l->burst > 0);
    p->burst_mb = tidy(l->burst / 1e6);
    p->has_residual = (l->residual > 0);
    p->residual = tidy(l->residual);
}

static void fill_shared(const ct_shared_memory *s, Ct__SharedMemoryParameter *p, times *t)
{
    ct__shared_memory_parameter__init(p);
    for (int i = 0; i < s->n_time; ++i) fill_time(s->time_bytes[i], s->time_s[i], t, i);
    p->n_time = (size_t)s->n_time;
    p->time = t->pointer;
    p->has_latency_us = p->has_cached_gbs = p->has_cached_mb = p->has_gbs = p->has_residual = 1;
    p->latency_us = tidy(s->latency_s * 1e6);
    p->cached_gbs = tidy(s->cached_bandwidth / 1e9);
    p->cached_mb = tidy(s->cached / 1e6);
    p->gbs = tidy(s->bandwidth / 1e9);
    p->residual = tidy(s->residual);
}

static void fill_coding(const ct_codec_speed *s, Ct__CodingParameter *p)
{
    ct__coding_parameter__init(p);
    p->has_memory_gbs = p->has_update_ns = p->has_select_ns = 1;
    p->has_pack_ns = p->has_add_ns = p->has_merge_ns = 1;
    p->memory_gbs = tidy(s->memory / 1e9);
    p->update_ns = tidy(s->update_s * 1e9);
    p->select_ns = tidy(s->select_s * 1e9);
    p->pack_ns = tidy(s->pack_s * 1e9);
    p->add_ns = tidy(s->add_s * 1e9);
    p->merge_ns = tidy(s->merge_s * 1e9);
    p->has_sign_ns = p->has_unsign_ns = p->has_factor_ns = p->has_column_ns = 1;
    p->sign_ns = tidy(s->sign_s * 1e9);
    p->unsign_ns = tidy(s->unsign_s * 1e9);
    p->factor_ns = tidy(s->factor_s * 1e9);
    p->column_ns = tidy(s->column_s * 1e9);
}

static void fill_in_network(const ct_in_network *n, Ct__InNetworkParameter *p)
{
    ct__in_network_parameter__init(p);
    p->has_bandwidth_gbs = p->has_latency_us = 1;
    p->bandwidth_gbs = tidy(n->bandwidth / 1e9);
    p->latency_us = tidy(n->latency_s * 1e6);
    p->has_max_bytes = (n->max_bytes > 0);
    p->max_bytes = n->max_bytes;
}

static void indent(ct_text *out, int depth)
{
    ct_text_add(out, "%*s", 2 * depth, "");
}

/* Nodes right below `at` stand together, as the reader put them. */
static void add_nodes(const ct_machine_names *n, int at, int depth, ct_text *out)
{
    int first = 0, last = 0;

    while ((first < n->n_node) && (n->node_switch[first] != at)) first += 1;
    for (last = first; (last < n->n_node) && (n->node_switch[last] == at);) last += 1;
    if (first == last) return;
    indent(out, depth);
    ct_text_add(out, "nodes: \"");
    ct_hostlist_add(out, n->node + first, last - first);
    ct_text_add(out, "\"\n");
}

static void add_switches(const ct_machine_names *n, int parent, int depth, ct_text *out)
{
    for (int i = 0; i < n->n_switch; ++i) {
        if (n->sw[i].parent != parent) continue;
        indent(out, depth);
        ct_text_add(out, "switch {\n");
        indent(out, depth + 1);
        ct_text_add(out, "name: \"%s\"\n", n->sw[i].name);
        add_nodes(n, i, depth + 1, out);
        add_switches(n, i, depth + 1, out);
        indent(out, depth);
        ct_text_add(out, "}\n");
    }
}

ct_status ct_machine_write(const ct_machine *m, ct_text *out)
{
    Ct__MachineLevelParameter level[CT_MAX_LEVEL], *pointer[CT_MAX_LEVEL];
    times time[CT_MAX_LEVEL], sums;
    Ct__MachineParameter p = CT__MACHINE_PARAMETER__INIT;
    Ct__SharedMemoryParameter shared;
    Ct__InNetworkParameter in_network;
    Ct__CodingParameter coding;

    p.name = (char *)(uintptr_t)m->name;
    if (m->source[0] != '\0') p.source = (char *)(uintptr_t)m->source;
    p.has_sum_gbs = (m->sum_bandwidth > 0);
    p.sum_gbs = tidy(m->sum_bandwidth / 1e9);
    p.n_level = (size_t)m->n_level;
    p.level = pointer;
    for (int l = 0; l < m->n_level; ++l) {
        fill_level(&m->level[l], &level[l], &time[l]);
        pointer[l] = &level[l];
    }
    fill_shared(&m->shared, &shared, &sums);
    if (m->shared.bandwidth > 0) p.shared = &shared;
    fill_in_network(&m->in_network, &in_network);
    if (m->in_network.bandwidth > 0) p.in_network = &in_network;
    fill_coding(&m->coding, &coding);
    if (m->coding.measured) p.coding = &coding;
    CT_TRY(ct_prototxt_write(&p.base, out));
    if (m->names != NULL) {
        add_nodes(m->names, -1, 0, out);
        add_switches(m->names, -1, 0, out);
    }
    return out->failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for a machine's text") : CT_OK;
}
