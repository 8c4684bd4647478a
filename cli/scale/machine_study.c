#include "cli/scale/machine_study.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/base/hash.h"
#include "runtime/config/features.h"

/* ---- reading what is asked */

static void hash_text(const char *text, size_t size, char out[20])
{
    ct_hash h;

    ct_hash_init(&h);
    ct_hash_add(&h, text, size);
    snprintf(out, 20, "%016" PRIx64, ct_hash_value(&h));
}

static ct_status read_machine(ct_machine_study *m)
{
    ct_text text = { 0 };
    ct_status status;

    CT_TRY(ct_machine_read(m->machine_text, &m->machine));
    status = ct_machine_write(m->machine, &text);
    if (status == CT_OK) hash_text(text.text, text.length, m->machine_hash);
    ct_text_destroy(&text);
    return status;
}

static ct_status read_profile(ct_machine_study *m)
{
    const ct_options *o = m->scale->options;
    const char *speed = ct_options_text(o, "images_per_s");
    char *data = NULL, *end = NULL;
    size_t size = 0;

    m->profile_path = ct_options_text(o, "profile");
    if (m->profile_path == NULL)
        return CT_FAIL(CT_ERR_CONFIG, "--machine needs --profile=FILE, as `cortado time "
                                      "--model=… --json=FILE` writes it");
    CT_TRY(ct_file_read(m->profile_path, &data, &size));
    hash_text(data, size, m->profile_hash);
    free(data);
    CT_TRY(ct_profile_read(m->profile_path, &m->profile));
    CT_TRY(ct_profile_check_net(m->profile, m->profile_path,
                                ct_json_text(m->scale->net, "net_hash", "")));
    if (speed == NULL) return CT_OK;
    m->images_per_s = strtod(speed, &end);
    if ((end == speed) || (*end != '\0') || !isfinite(m->images_per_s) || (m->images_per_s <= 0))
        return CT_FAIL(CT_ERR_CONFIG, "--images_per_s=%s: expected a number above 0", speed);
    return CT_OK;
}

static ct_status read_kinds(ct_machine_study *m)
{
    static const char *const kind[] = { "simulated", "modelled" };
    static const char *const mode[] = { "weak", "strong" };
    const char *text = ct_options_text(m->scale->options, "kind");
    const char *how = ct_options_text(m->scale->options, "mode");
    bool has[2];

    CT_TRY(ct_scale_words("kind", (text != NULL) ? text : "simulated,modelled", kind, 2, has));
    m->simulated = has[0];
    m->modelled = has[1];
    CT_TRY(ct_scale_words("mode", (how != NULL) ? how : "weak", mode, 2, has));
    m->weak = has[0];
    if (has[0] && has[1])
        return CT_FAIL(CT_ERR_CONFIG, "--mode=%s: on a described machine one at a time", how);
    return CT_OK;
}

static ct_status check_sizes(ct_machine_study *m)
{
    ct_scale *s = m->scale;
    const char *nodes = ct_options_text(s->options, "nodes");
    int64_t there = ct_machine_n_node(m->machine), most;

    if (ct_options_text(s->options, "ranks") != NULL)
        return CT_FAIL(CT_ERR_CONFIG, "--ranks belongs to a measured study; on a machine say "
                                      "--nodes and --ranks_per_node");
    if (nodes == NULL)
        return CT_FAIL(CT_ERR_CONFIG, "--machine=%s needs --nodes=1,2,...,1024", m->machine_text);
    CT_TRY(ct_scale_numbers("nodes", nodes, s->node, &s->n_node));
    s->n_rank = s->n_node;
    for (int i = 0; i < s->n_node; i++) s->rank[i] = s->node[i] * m->per_node;
    most = s->node[s->n_node - 1];
    if ((there > 0) && (most > there))
        return CT_FAIL(CT_ERR_CONFIG, "machine %s has %lld nodes, --nodes=%s wants %lld",
                       m->machine->name, (long long)there, nodes, (long long)most);
    for (int i = 0; !m->weak && (i < s->n_node); i++) {
        if (m->global_batch % s->rank[i] != 0)
            return CT_FAIL(CT_ERR_CONFIG,
                           "a global batch of %lld does not divide among %lld ranks: "
                           "see --global_batch",
                           (long long)m->global_batch, (long long)s->rank[i]);
    }
    return CT_OK;
}

/* For the report: what machine, and where the times of its chips come from. */
static json_t *describe(const ct_machine_study *m)
{
    static const char *const from[] = { "host",  "started",      "threads",
                                        "batch", "images_per_s", "version" };
    json_t *o = json_object(), *levels = json_array(), *p = json_object(), *file = NULL;

    for (int i = 0; i < m->machine->n_level; i++) {
        const ct_level *l = &m->machine->level[i];

        json_array_append_new(
            levels, json_pack("{s:s,s:I,s:f,s:f,s:f}", "name", l->name, "size", (json_int_t)l->size,
                              "latency_us", 1e6 * l->latency_s, "bandwidth_gbs",
                              1e-9 * l->bandwidth, "uplink_gbs", 1e-9 * l->uplink));
    }
    json_object_set_new(o, "machine", json_string(m->machine->name));
    json_object_set_new(o, "source", json_string(m->machine->source));
    json_object_set_new(o, "levels", levels);
    json_object_set_new(o, "sum_gbs", json_real(1e-9 * m->machine->sum_bandwidth));
    if (m->machine->in_network.bandwidth > 0) {
        const ct_in_network *n = &m->machine->in_network;

        json_object_set_new(o, "in_network",
                            json_pack("{s:f,s:f,s:I}", "bandwidth_gbs", 1e-9 * n->bandwidth,
                                      "latency_us", 1e6 * n->latency_s, "max_bytes",
                                      (json_int_t)n->max_bytes));
    }
    json_object_set_new(p, "file", json_string(m->profile_path));
    if (ct_json_read(m->profile_path, &file) == CT_OK) {
        for (size_t i = 0; i < sizeof(from) / sizeof(from[0]); i++)
            json_object_set(p, from[i], json_object_get(file, from[i]));
        json_decref(file);
    }
    if (m->images_per_s > 0) json_object_set_new(p, "scaled_to", json_real(m->images_per_s));
    json_object_set_new(p, "samples", json_integer(m->profile->n_sample));
    json_object_set_new(o, "profile", p);
    if (m->read.sample_bytes > 0)
        json_object_set_new(o, "read", json_string(ct_options_text(m->scale->options, "read")));
    return o;
}

static ct_status read_reading(ct_machine_study *m)
{
    const char *text = ct_options_text(m->scale->options, "read");
    ct_read_model unused;

    if (text != NULL) CT_TRY(ct_read_model_parse("read", text, &m->read));
    for (int c = 0; c < m->scale->n_config; c++)
        CT_TRY(ct_machine_study_reading(m, &m->scale->config[c], &unused));
    return CT_OK;
}

ct_status ct_machine_study_read(ct_scale *s, ct_machine_study *m)
{
    const ct_options *o = s->options;
    ct_topo *probe = NULL;

    memset(m, 0, sizeof(*m));
    m->scale = s;
    m->machine_text = ct_options_text(o, "machine");
    m->placement = ct_options_text(o, "placement");
    if (m->placement == NULL) m->placement = "block";
    m->per_node = ct_options_count(o, "ranks_per_node", 1);
    m->iterations = ct_options_count(o, "iterations", 3);
    m->warmup = ct_options_count(o, "warmup", 1);
    m->jitter_seed = ct_options_count(o, "jitter_seed", 0);
    m->simulate_to = ct_options_count(o, "simulate_to", 1024);
    CT_TRY(read_kinds(m));
    CT_TRY(read_machine(m));
    if (m->simulated && (m->machine->in_network.bandwidth > 0))
        return CT_FAIL(CT_ERR_CONFIG,
                       "machine %s has in_network, and the simulator knows no sums in the network: "
                       "--kind=modelled, or take in_network out of the file",
                       m->machine->name);
    CT_TRY(read_profile(m));
    m->batch = ct_options_count(o, "batch", m->profile->batch);
    m->global_batch = ct_options_count(o, "global_batch", 0);
    if ((m->per_node < 1) || (m->iterations < 1) || (m->warmup < 1) || (m->batch < 1))
        return CT_FAIL(CT_ERR_CONFIG,
                       "--ranks_per_node, --iterations, --warmup, --batch: at least 1");
    if (!m->weak && (m->global_batch < 1))
        return CT_FAIL(CT_ERR_CONFIG, "--mode=strong on a machine needs --global_batch=N");
    if ((m->jitter_seed > 0) && (m->profile->n_sample == 0))
        return CT_FAIL(CT_ERR_CONFIG, "%s has no step_ms_samples to draw jitter from",
                       m->profile_path);
    CT_TRY(check_sizes(m));
    CT_TRY(read_reading(m));
    /* placements are checked on the smallest point, before anything runs */
    for (int c = 0; c < s->n_config; c++) {
        CT_TRY(ct_topo_place(m->machine, (int)s->rank[0], (int)m->per_node,
                             ct_machine_study_placement(m, &s->config[c]), &probe));
        ct_topo_destroy(probe);
    }
    s->pretended = describe(m);
    return CT_OK;
}

void ct_machine_study_destroy(ct_machine_study *m)
{
    ct_machine_destroy(m->machine);
    ct_profile_destroy(m->profile);
}

/* ---- a point */

int64_t ct_machine_study_batch(const ct_machine_study *m, int64_t nodes)
{
    return m->weak ? m->batch : m->global_batch / (nodes * m->per_node);
}

const char *ct_machine_study_placement(const ct_machine_study *m, const ct_scale_config *c)
{
    return (c->placement[0] != '\0') ? c->placement : m->placement;
}

ct_status ct_machine_study_reading(const ct_machine_study *m, const ct_scale_config *c,
                                   ct_read_model *out)
{
    *out = m->read;
    return (c->read[0] != '\0') ? ct_read_model_parse("ablate=read", c->read, out) : CT_OK;
}

/* Every figure of it decides the result. */
static void define_reading(const ct_machine_study *m, const ct_scale_config *c, json_t *d)
{
    ct_read_model r;

    if ((ct_machine_study_reading(m, c, &r) != CT_OK) || (r.sample_bytes <= 0)) return;
    json_object_set_new(d, "read",
                        json_pack("{s:f,s:f,s:f,s:f,s:I}", "bytes", r.sample_bytes, "node_gbs",
                                  1e-9 * r.node, "file_gbs", 1e-9 * r.file, "total_gbs",
                                  1e-9 * r.total, "files", (json_int_t)r.files));
}

int64_t ct_machine_study_iterations(const ct_machine_study *m, int64_t nodes)
{
    const int64_t draws = 1024;

    if ((m->jitter_seed == 0) || (m->iterations * nodes >= draws)) return m->iterations;
    return draws / nodes;
}

static json_t *words_json(const ct_scale *s, const ct_argv *w)
{
    json_t *list = json_array();

    for (int k = 0; k < ct_options_n(s->options, "set"); k++)
        json_array_append_new(
            list, json_sprintf("--set=%s", ct_options_entry(s->options, "set", k, NULL)));
    if (ct_options_text(s->options, "compression") != NULL)
        json_array_append_new(
            list, json_sprintf("--compression=%s", ct_options_text(s->options, "compression")));
    for (int k = 0; k < w->n; k++) json_array_append_new(list, json_string(w->word[k]));
    return list;
}

json_t *ct_machine_study_define(const ct_machine_study *m, const char *kind, int64_t nodes,
                                const ct_scale_config *c)
{
    const ct_scale *s = m->scale;
    json_t *d = json_object();

    json_object_set_new(d, "kind", json_string(kind));
    json_object_set_new(d, "machine", json_string(m->machine->name));
    json_object_set_new(d, "machine_hash", json_string(m->machine_hash));
    json_object_set_new(d, "net", json_string(ct_json_text(s->net, "net", m->profile->net)));
    json_object_set_new(d, "net_hash", json_string(m->profile->net_hash));
    json_object_set_new(d, "profile_hash", json_string(m->profile_hash));
    json_object_set_new(d, "mode", json_string(m->weak ? "weak" : "strong"));
    json_object_set_new(d, "nodes", json_integer(nodes));
    json_object_set_new(d, "ranks", json_integer(nodes * m->per_node));
    json_object_set_new(d, "batch", json_integer(m->weak ? m->batch : m->global_batch));
    json_object_set_new(d, "config", json_string(c->name));
    json_object_set_new(d, "options", words_json(s, &c->simulated));
    json_object_set_new(d, "placement", json_string(ct_machine_study_placement(m, c)));
    json_object_set_new(d, "version", json_string(ct_build_version()));
    if (m->images_per_s > 0) json_object_set_new(d, "images_per_s", json_real(m->images_per_s));
    if (m->jitter_seed > 0) json_object_set_new(d, "jitter_seed", json_integer(m->jitter_seed));
    if (strcmp(kind, "modelled") == 0) define_reading(m, c, d);
    return d;
}

ct_status ct_scale_simulate(ct_scale *s)
{
    ct_machine_study m;
    ct_status status = ct_scale_check_net(s, 0);

    if (status == CT_OK)
        status = ct_machine_study_read(s, &m);
    else
        return status;
    if ((status == CT_OK) && m.simulated) status = ct_scale_simulated(&m);
    if ((status == CT_OK) && m.modelled) status = ct_scale_modelled(&m);
    ct_machine_study_destroy(&m);
    return status;
}
