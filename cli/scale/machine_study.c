/* A study on a described machine: points that the simulator can do, and those of the model. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/profile/profile.h"
#include "cli/scale/scale.h"
#include "cli/scale/step_model.h"
#include "comm/collective/coll.h"
#include "framework/base/clock.h"
#include "framework/base/file.h"
#include "framework/base/hash.h"
#include "framework/base/number.h"
#include "framework/proto/prototxt.h"
#include "runtime/config/config.h"
#include "runtime/config/exchange_config.h"
#include "runtime/config/features.h"
#include "topology/topo.h"

typedef struct machine_study {
    ct_scale *scale; /* borrowed */
    ct_machine *machine;
    ct_profile *profile; /* as the file has it */
    const char *machine_text, *profile_path, *placement;
    char machine_hash[20], profile_hash[20];
    bool simulated, modelled, weak;
    int64_t simulate_to; /* nodes */
    int64_t per_node, batch, global_batch, iterations, warmup, jitter_seed;
    double images_per_s; /* 0: the profile's */
    ct_read_model read;  /* --read */
} machine_study;

/* The read model of a configuration. CT_ERR_CONFIG. */
static ct_status machine_study_reading(const machine_study *m, const ct_scale_config *c,
                                       ct_read_model *out);
/* The run's placement: the configuration's or the study's. */
static const char *machine_study_placement(const machine_study *m, const ct_scale_config *c);
/* The simulator: SMPI runs it, with the files of the platform in the study's folder. */
static ct_status scale_simulated(const machine_study *m);
/* The model, in this process. */
static ct_status scale_modelled(const machine_study *m);

/* ---- reading what is asked */

static void hash_text(const char *text, size_t size, char out[20])
{
    ct_hash h;

    ct_hash_init(&h);
    ct_hash_add(&h, text, size);
    snprintf(out, 20, "%016" PRIx64, ct_hash_value(&h));
}

static ct_status read_machine(machine_study *m)
{
    ct_text text = { 0 };
    ct_status status;

    CT_TRY(ct_machine_read(m->machine_text, &m->machine));
    status = ct_machine_write(m->machine, &text);
    if (status == CT_OK) hash_text(text.text, text.length, m->machine_hash);
    ct_text_destroy(&text);
    return status;
}

static ct_status read_profile(machine_study *m)
{
    const ct_options *o = m->scale->options;
    const char *speed = ct_options_text(o, "images_per_s");
    char *data = NULL, *end = NULL;
    size_t size = 0;

    m->profile_path = ct_options_text(o, "profile");
    if (m->profile_path == NULL)
        return CT_FAIL(CT_ERR_CONFIG, "--machine needs --profile=FILE, as `cortado time "
                                      "--model=… --json=FILE` writes it");
    CT_TRY(ct_settings_read(m->profile_path, &data, &size));
    hash_text(data, size, m->profile_hash);
    free(data);
    CT_TRY(ct_profile_read(m->profile_path, &m->profile));
    CT_TRY(ct_profile_check_net(m->profile, m->profile_path,
                                ct_json_text(m->scale->net, "net_hash", "")));
    if (speed == NULL) return CT_OK;
    if (!ct_number_real(speed, &end, &m->images_per_s) || (*end != '\0') || (m->images_per_s <= 0))
        return CT_FAIL(CT_ERR_CONFIG, "--images_per_s=%s: expected a number above 0", speed);
    return CT_OK;
}

static ct_status read_kinds(machine_study *m)
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

static ct_status check_sizes(machine_study *m)
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
    if (most * m->per_node > CT_SCALE_MOST_RANKS)
        return CT_FAIL(CT_ERR_CONFIG, "--nodes=%s with --ranks_per_node=%lld: at most %d ranks",
                       nodes, (long long)m->per_node, CT_SCALE_MOST_RANKS);
    for (int i = 0; !m->weak && (i < s->n_node); i++) {
        if (m->global_batch % s->rank[i] != 0)
            return CT_FAIL(CT_ERR_CONFIG,
                           "a global batch of %lld does not divide among %lld ranks: "
                           "see --global_batch",
                           (long long)m->global_batch, (long long)s->rank[i]);
    }
    return CT_OK;
}

static json_t *describe_classes(const ct_machine *machine)
{
    json_t *list = json_array();

    for (int i = 0; i < machine->n_node_class; i++) {
        const ct_node_class *c = &machine->node_class[i];
        json_t *o = json_pack("{s:s,s:f}", "name", c->name, "speed", c->speed);
        ct_text nodes = { 0 };

        ct_machine_list_nodes(machine, i, &nodes);
        json_object_set_new(o, "nodes", json_string((nodes.text != NULL) ? nodes.text : ""));
        ct_text_destroy(&nodes);
        if (c->memory > 0) json_object_set_new(o, "memory_gib", json_real(ldexp(c->memory, -30)));
        if (c->inside > 0) json_object_set_new(o, "inside_gbs", json_real(1e-9 * c->inside));
        if (c->inject > 0) json_object_set_new(o, "inject_gbs", json_real(1e-9 * c->inject));
        json_array_append_new(list, o);
    }
    return list;
}

/* For the report: what machine, and where the times of its chips come from. */
static json_t *describe(const machine_study *m)
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
    if (m->machine->n_node_class > 0)
        json_object_set_new(o, "node_classes", describe_classes(m->machine));
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

static ct_status read_reading(machine_study *m)
{
    const char *text = ct_options_text(m->scale->options, "read");
    ct_read_model unused;

    if (text != NULL) CT_TRY(ct_read_model_parse("read", text, &m->read));
    for (int c = 0; c < m->scale->n_config; c++)
        CT_TRY(machine_study_reading(m, &m->scale->config[c], &unused));
    return CT_OK;
}

/* Reads and checks all of it: an unknown machine, one too small, a profile of another net, counts
 *  that do not fit end here. Needs ct_scale.net. */
static ct_status machine_study_read(ct_scale *s, machine_study *m)
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
                             machine_study_placement(m, &s->config[c]), &probe));
        ct_topo_destroy(probe);
    }
    s->pretended = describe(m);
    return CT_OK;
}

static void machine_study_destroy(machine_study *m)
{
    ct_machine_destroy(m->machine);
    ct_profile_destroy(m->profile);
}

/* ---- a point */

/* Samples of one rank with so many nodes. */
static int64_t machine_study_batch(const machine_study *m, int64_t nodes)
{
    return m->weak ? m->batch : m->global_batch / (nodes * m->per_node);
}

static const char *machine_study_placement(const machine_study *m, const ct_scale_config *c)
{
    return (c->placement[0] != '\0') ? c->placement : m->placement;
}

static ct_status machine_study_reading(const machine_study *m, const ct_scale_config *c,
                                       ct_read_model *out)
{
    *out = m->read;
    return (c->read[0] != '\0') ? ct_read_model_parse("ablate=read", c->read, out) : CT_OK;
}

/* Every figure of it decides the result. */
static void define_reading(const machine_study *m, const ct_scale_config *c, json_t *d)
{
    ct_read_model r;

    if ((machine_study_reading(m, c, &r) != CT_OK) || (r.sample_bytes <= 0)) return;
    json_object_set_new(d, "read",
                        json_pack("{s:f,s:f,s:f,s:f,s:I}", "bytes", r.sample_bytes, "node_gbs",
                                  1e-9 * r.node, "file_gbs", 1e-9 * r.file, "total_gbs",
                                  1e-9 * r.total, "files", (json_int_t)r.files));
}

/* Steps of a point: with jitter more on few nodes, so that all points average over as many draws.
 */
static int64_t machine_study_iterations(const machine_study *m, int64_t nodes)
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

/* The definition of a point, but for what only its kind knows. */
static json_t *machine_study_define(const machine_study *m, const char *kind, int64_t nodes,
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
    json_object_set_new(d, "placement", json_string(machine_study_placement(m, c)));
    json_object_set_new(d, "version", json_string(ct_build_version()));
    if (m->images_per_s > 0) json_object_set_new(d, "images_per_s", json_real(m->images_per_s));
    if (m->jitter_seed > 0) json_object_set_new(d, "jitter_seed", json_integer(m->jitter_seed));
    if (strcmp(kind, "modelled") == 0) define_reading(m, c, d);
    return d;
}

ct_status ct_scale_simulate(ct_scale *s)
{
    machine_study m;
    ct_status status = ct_scale_check_net(s, 0);

    if (status == CT_OK)
        status = machine_study_read(s, &m);
    else
        return status;
    if ((status == CT_OK) && m.simulated) status = scale_simulated(&m);
    if ((status == CT_OK) && m.modelled) status = scale_modelled(&m);
    machine_study_destroy(&m);
    return status;
}

/* ---- modelled points: the step model, in this process, saved as runs like all others */

/* The options of a point as the program would read them. */
typedef struct settings {
    Ct__SolverParameter *solver;
    ct_grad_pipe_config exchange;
    ct_step_timeline_overlap overlap;
    bool rank_order;
} settings;

static ct_status set_field(Ct__SolverParameter *solver, const char *entry)
{
    const char *value = strchr(entry, '=');
    char path[96];

    if ((value == NULL) || ((size_t)(value - entry) >= sizeof(path)))
        return CT_FAIL(CT_ERR_CONFIG, "--set=%s: expected FIELD=VALUE", entry);
    snprintf(path, sizeof(path), "%.*s", (int)(value - entry), entry);
    return ct_prototxt_set(&solver->base, path, value + 1, "--set");
}

static ct_status read_settings(const json_t *options, settings *s)
{
    memset(s, 0, sizeof(*s));
    s->overlap = CT_STEP_TIMELINE_BOTH;
    s->solver = malloc(sizeof(*s->solver));
    if (s->solver == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a solver");
    ct__solver_parameter__init(s->solver);
    for (size_t i = 0; i < json_array_size(options); i++) {
        const char *o = json_string_value(json_array_get(options, i));

        if (strncmp(o, "--set=", 6) == 0) CT_TRY(set_field(s->solver, o + 6));
        if (strncmp(o, "--compression=", 14) == 0)
            CT_TRY(ct_config_compression(s->solver, o + 14, "--compression"));
        if (strcmp(o, "--overlap=off") == 0) s->overlap = CT_STEP_TIMELINE_OFF;
        if (strcmp(o, "--overlap=backward") == 0) s->overlap = CT_STEP_TIMELINE_BACKWARD;
        s->rank_order |= (strcmp(o, "--order=rank") == 0);
    }
    CT_TRY(ct_exchange_read_config(s->solver, &s->exchange));
    if (!s->exchange.overlap) s->overlap = CT_STEP_TIMELINE_OFF;
    return CT_OK;
}

/* first, n: of the profile's parameters. What coding takes is part of ms. */
static json_t *bucket_of(const ct_step_model_bucket *b)
{
    return json_pack("{s:I,s:s,s:f,s:i,s:i,s:I,s:s,s:f,s:f,s:f}", "bytes", (json_int_t)b->bytes,
                     "algorithm", b->algorithm, "ms", 1e3 * b->seconds, "first", b->first, "n",
                     b->n, "count", (json_int_t)b->count, "codec", b->codec, "encode_ms",
                     1e3 * b->encode_s, "wire_ms", 1e3 * b->wire_s, "decode_ms", 1e3 * b->decode_s);
}

/* The step with its wait for data. Reading goes on beside it, one batch or more ahead. */
static void add_reading(const machine_study *m, int64_t nodes, const ct_scale_config *c,
                        double step_s, json_t *o)
{
    ct_read_model model;
    ct_read_times t;
    double wait_s;

    if ((machine_study_reading(m, c, &model) != CT_OK) || (model.sample_bytes <= 0)) return;
    t = ct_read_model_run(&model, nodes, (double)(m->per_node * machine_study_batch(m, nodes)));
    wait_s = (t.read_s > step_s) ? t.read_s - step_s : 0;
    json_object_set_new(o, "step_ms", json_real(1e3 * (step_s + wait_s)));
    json_object_set_new(o, "wait_data_ms", json_real(1e3 * wait_s));
    json_object_set_new(o, "read_ms", json_real(1e3 * t.read_s));
    json_object_set_new(o, "read_bound", json_string(t.bound));
    json_object_set_new(o, "read_readers", json_integer(t.readers));
}

static json_t *result_of(const machine_study *m, int64_t nodes, const ct_scale_config *c,
                         const ct_step_model *r)
{
    json_t *o = json_object(), *buckets = json_array();
    int64_t ranks = nodes * m->per_node;

    json_object_set_new(o, "kind", json_string("modelled"));
    json_object_set_new(o, "ranks", json_integer(ranks));
    json_object_set_new(o, "nodes", json_integer(nodes));
    json_object_set_new(o, "step_ms", json_real(1e3 * r->step_s));
    json_object_set_new(o, "compute_ms", json_real(1e3 * r->compute_s));
    json_object_set_new(o, "exposed_ms", json_real(1e3 * r->exposed_s));
    json_object_set_new(o, "bytes_sent", json_real(r->bytes_sent));
    for (int i = 0; i < r->n_bucket; i++) json_array_append_new(buckets, bucket_of(&r->bucket[i]));
    json_object_set_new(o, "buckets", buckets);
    add_reading(m, nodes, c, r->step_s, o);
    if (m->jitter_seed > 0)
        json_object_set_new(
            o, "jitter_bound",
            json_real(ct_step_model_mean(m->profile) / ct_step_model_slowest(m->profile, ranks)));
    return o;
}

static ct_status model(const machine_study *m, int64_t nodes, const ct_scale_config *c,
                       const settings *s, ct_step_model *out)
{
    int64_t ranks = nodes * m->per_node;
    double factor = (m->jitter_seed > 0) ? ct_step_model_slowest(m->profile, ranks) : 1;
    double speed = 1; /* of the slowest node: all compute batches of one size */
    ct_grad_pipe_config exchange = s->exchange;
    ct_profile_zero zero = ct_profile_read_zero(s->solver);
    ct_profile *p = NULL;
    ct_topo *t = NULL;
    ct_status status;

    CT_TRY(ct_profile_read(m->profile_path, &p));
    ct_profile_scale(p, m->images_per_s, machine_study_batch(m, nodes));
    status =
        ct_topo_place(m->machine, (int)ranks, (int)m->per_node, machine_study_placement(m, c), &t);
    for (int r = 0; (status == CT_OK) && s->rank_order && (r < t->n_rank); r++) t->order[r] = r;
    if (status == CT_OK) speed = ct_topo_speed(t, ct_topo_slowest_node(t));
    exchange.after_all = ct_profile_after_all(p, s->solver);
    /* as the simulator goes, which has no second thread */
    if (exchange.progress == CT_PROGRESS_AUTO) exchange.progress = CT_PROGRESS_POLL;
    if (status == CT_OK)
        status = ct_step_model_run(p, t, &exchange, NULL, &zero, s->overlap, factor / speed, out);
    ct_topo_destroy(t);
    ct_profile_destroy(p);
    return status;
}

static json_t *facts(double wall_s)
{
    json_t *extra = json_object();

    json_object_set_new(extra, "command", json_string("(in the process of the study)"));
    json_object_set_new(extra, "wall_s", json_real(wall_s));
    return extra;
}

static ct_status add_point(const machine_study *m, int64_t nodes, const ct_scale_config *c)
{
    json_t *d = machine_study_define(m, "modelled", nodes, c), *run, *result, *extra;
    ct_step_model r = { 0 };
    double start = ct_clock_s();
    settings s;
    ct_status status;

    run = ct_run_find(&m->scale->study, d);
    m->scale->n_run += 1;
    if (run != NULL) {
        json_decref(run);
        json_decref(d);
        return CT_OK;
    }
    status = read_settings(json_object_get(d, "options"), &s);
    if (status == CT_OK) status = model(m, nodes, c, &s, &r);
    if (status == CT_OK) {
        result = result_of(m, nodes, c, &r);
        extra = facts(ct_clock_s() - start);
        status = ct_run_save(&m->scale->study, d, result, NULL, extra);
        json_decref(result);
        json_decref(extra);
    }
    if (s.solver != NULL) ct__solver_parameter__free_unpacked(s.solver, NULL);
    ct_step_model_release(&r);
    json_decref(d);
    return status;
}

static ct_status scale_modelled(const machine_study *m)
{
    const ct_scale *s = m->scale;

    for (int c = 0; c < s->n_config; c++) {
        for (int i = 0; i < s->n_node; i++) CT_TRY(add_point(m, s->node[i], &s->config[c]));
    }
    return CT_OK;
}

/* ---- simulated points: the machine becomes a platform of SimGrid, smpirun runs cortado-sim */

typedef struct simulation {
    const machine_study *m;
    char program[PATH_MAX], hash[20]; /* of the simulator */
    ct_scale_jobs jobs;
} simulation;

static ct_status hash_file(const char *path, char out[20])
{
    char *data = NULL;
    size_t size = 0;
    ct_hash h;

    CT_TRY(ct_settings_read(path, &data, &size));
    ct_hash_init(&h);
    ct_hash_add(&h, data, size);
    free(data);
    snprintf(out, 20, "%016llx", (unsigned long long)ct_hash_value(&h));
    return CT_OK;
}

/* ---- platforms: one for each number of nodes and placement */

static ct_status write_platform(const simulation *w, int64_t nodes, const char *placement,
                                const char *xml, const char *hosts)
{
    const machine_study *m = w->m;
    ct_topo *t = NULL;
    ct_status status;

    CT_TRY(ct_topo_place(m->machine, (int)(nodes * m->per_node), (int)m->per_node, placement, &t));
    status = ct_simulator_platform(t, xml, hosts);
    ct_topo_destroy(t);
    return status;
}

/* smpirun, its platform, the settings, the simulator and what it needs to know of the machine. */
static ct_status add_start(simulation *w, ct_scale_job *job, int64_t nodes, const char *placement)
{
    const machine_study *m = w->m;
    ct_argv *c = &job->child.command;
    char name[100], xml[800], hosts[800];

    snprintf(name, sizeof(name), "%.40s-n%lld-r%lld-%.20s", m->machine_hash, (long long)nodes,
             (long long)m->per_node, placement);
    for (char *k = name; *k != '\0'; k++) *k = (*k == ':') ? '-' : *k;
    ct_study_path(&m->scale->study, xml, sizeof(xml), "work/%s.xml", name);
    ct_study_path(&m->scale->study, hosts, sizeof(hosts), "work/%s.hosts", name);
    CT_TRY(write_platform(w, nodes, placement, xml, hosts));
    ct_simulator_start(m->machine, (int)(nodes * m->per_node), xml, hosts, w->program, c);
    ct_argv_add(c, "--machine=%s", m->machine_text);
    ct_argv_add(c, "--ranks_per_node=%lld", (long long)m->per_node);
    ct_argv_add(c, "--json=%s", job->out);
    return CT_OK;
}

/* Private memory and page tables of ranks whose large buffers are folded into one block. */
static double memory_for(const machine_study *m, int64_t nodes)
{
    const ct_profile_param *last = &m->profile->param[m->profile->n_param - 1];
    double gradients = 4.0 * (double)(last->offset + last->count);

    return 6.4e7 + (double)(nodes * m->per_node) * (1.5e6 + gradients / 128);
}

/* ---- runs */

static ct_status add_training(simulation *w, int64_t nodes, const ct_scale_config *c)
{
    const machine_study *m = w->m;
    json_t *d = machine_study_define(m, "simulated", nodes, c), *options;
    int64_t iterations = machine_study_iterations(m, nodes);
    ct_scale_job *job = NULL;
    ct_argv *words;

    json_object_set_new(d, "iterations", json_integer(iterations));
    json_object_set_new(d, "warmup", json_integer(m->warmup));
    json_object_set_new(d, "simulator", json_string(w->hash));
    CT_TRY(ct_scale_jobs_add(m->scale, &w->jobs, d, &job));
    if (job == NULL) return CT_OK;
    CT_TRY(add_start(w, job, nodes, machine_study_placement(m, c)));
    words = &job->child.command;
    ct_argv_add(words, "--profile=%s", m->profile_path);
    ct_argv_add(words, "--batch=%lld", (long long)machine_study_batch(m, nodes));
    if (m->images_per_s > 0) ct_argv_add(words, "--images_per_s=%.9g", m->images_per_s);
    if (m->jitter_seed > 0) ct_argv_add(words, "--jitter_seed=%lld", (long long)m->jitter_seed);
    ct_argv_add(words, "--iterations=%lld", (long long)iterations);
    ct_argv_add(words, "--warmup=%lld", (long long)m->warmup);
    if (c->placement[0] == '\0') ct_argv_add(words, "--placement=%s", m->placement);
    options = json_object_get(d, "options");
    for (size_t i = 0; i < json_array_size(options); i++)
        ct_argv_add(words, "%s", json_string_value(json_array_get(options, i)));
    job->child.memory = memory_for(m, nodes);
    return CT_OK;
}

/* The collectives alone at the largest simulated point; those of as many rounds as ranks
 * are millions of messages, so they stay out above 256. */
static ct_status add_bench(simulation *w, int64_t nodes)
{
    const machine_study *m = w->m;
    const char *sizes = ct_options_text(m->scale->options, "sizes");

    for (const ct_coll_ops *const *ops = ct_coll_table; *ops != NULL; ops++) {
        json_t *d = json_object();
        ct_scale_job *job = NULL;

        if (!(*ops)->automatic || ((*ops)->fits != NULL)) continue;
        if ((*ops)->by_mpi) continue; /* MPI's own is SMPI's there */
        if ((nodes * m->per_node > 256) && (*ops)->many_rounds) continue;
        if (sizes == NULL) sizes = "4096,65536,1048576,16777216,104857600";
        json_object_set_new(d, "kind", json_string("bench-simulated"));
        json_object_set_new(d, "machine", json_string(m->machine->name));
        json_object_set_new(d, "machine_hash", json_string(m->machine_hash));
        json_object_set_new(d, "net", json_string("allreduce"));
        json_object_set_new(d, "nodes", json_integer(nodes));
        json_object_set_new(d, "ranks", json_integer(nodes * m->per_node));
        json_object_set_new(d, "placement", json_string(m->placement));
        json_object_set_new(d, "mode", json_string((*ops)->name));
        json_object_set_new(d, "config", json_string(sizes));
        json_object_set_new(d, "simulator", json_string(w->hash));
        CT_TRY(ct_scale_jobs_add(m->scale, &w->jobs, d, &job));
        if (job == NULL) continue;
        CT_TRY(add_start(w, job, nodes, m->placement));
        ct_argv_add(&job->child.command, "--placement=%s", m->placement);
        ct_argv_add(&job->child.command, "--bench=%s", sizes);
        ct_argv_add(&job->child.command, "--algorithm=%s", (*ops)->name);
        job->child.memory = memory_for(m, nodes);
    }
    return CT_OK;
}

static double memory_here(void)
{
    FILE *f = fopen("/proc/meminfo", "r");
    char line[200];
    double kb = 0;

    while ((f != NULL) && (fgets(line, sizeof(line), f) != NULL)) {
        if (sscanf(line, "MemAvailable: %lf kB", &kb) == 1) break;
    }
    if (f != NULL) fclose(f);
    return 1024 * kb;
}

static ct_status list_runs(simulation *w)
{
    const ct_scale *s = w->m->scale;
    int64_t largest = 0;

    for (int i = 0; i < s->n_node; i++) {
        if (s->node[i] > w->m->simulate_to) break;
        largest = s->node[i];
        for (int c = 0; c < s->n_config; c++) {
            if (s->config[c].read[0] == '\0') /* reading is modelled only */
                CT_TRY(add_training(w, s->node[i], &s->config[c]));
        }
    }
    if ((largest > 1) && !ct_options_flag(s->options, "no_bench")) CT_TRY(add_bench(w, largest));
    return CT_OK;
}

static ct_status scale_simulated(const machine_study *m)
{
    simulation *w = calloc(1, sizeof(*w));
    int64_t gib = ct_options_count(m->scale->options, "memory_gib", 0);
    int64_t n_job = ct_options_count(m->scale->options, "jobs", m->scale->n_core);
    double memory = (gib > 0) ? ldexp((double)gib, 30) : 0.7 * memory_here();
    ct_status status;

    if (w == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a list of runs");
    w->m = m;
    CT_TRY_GOTO(status, out, ct_simulator_find(m->scale->self, w->program));
    CT_TRY_GOTO(status, out, hash_file(w->program, w->hash));
    CT_TRY_GOTO(status, out, list_runs(w));
    status = ct_scale_jobs_run(m->scale, &w->jobs, (int)n_job, memory);
out:
    ct_scale_jobs_destroy(&w->jobs);
    free(w);
    return status;
}
