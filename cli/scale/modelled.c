/* Modelled points: the step model, in this process, saved as runs like all others. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "framework/base/clock.h"
#include "framework/proto/prototxt.h"
#include "runtime/config/config.h"
#include "runtime/config/exchange_config.h"
#include "cli/scale/machine_study.h"
#include "cli/scale/step_model.h"

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
static void add_reading(const ct_machine_study *m, int64_t nodes, const ct_scale_config *c,
                        double step_s, json_t *o)
{
    ct_read_model model;
    ct_read_times t;
    double wait_s;

    if ((ct_machine_study_reading(m, c, &model) != CT_OK) || (model.sample_bytes <= 0)) return;
    t = ct_read_model_run(&model, nodes, (double)(m->per_node * ct_machine_study_batch(m, nodes)));
    wait_s = (t.read_s > step_s) ? t.read_s - step_s : 0;
    json_object_set_new(o, "step_ms", json_real(1e3 * (step_s + wait_s)));
    json_object_set_new(o, "wait_data_ms", json_real(1e3 * wait_s));
    json_object_set_new(o, "read_ms", json_real(1e3 * t.read_s));
    json_object_set_new(o, "read_bound", json_string(t.bound));
    json_object_set_new(o, "read_readers", json_integer(t.readers));
}

static json_t *result_of(const ct_machine_study *m, int64_t nodes, const ct_scale_config *c,
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

static ct_status model(const ct_machine_study *m, int64_t nodes, const ct_scale_config *c,
                       const settings *s, ct_step_model *out)
{
    int64_t ranks = nodes * m->per_node;
    double factor = (m->jitter_seed > 0) ? ct_step_model_slowest(m->profile, ranks) : 1;
    ct_profile *p = NULL;
    ct_topo *t = NULL;
    ct_status status;

    CT_TRY(ct_profile_read(m->profile_path, &p));
    ct_profile_scale(p, m->images_per_s, ct_machine_study_batch(m, nodes));
    status = ct_topo_place(m->machine, (int)ranks, (int)m->per_node,
                           ct_machine_study_placement(m, c), &t);
    for (int r = 0; (status == CT_OK) && s->rank_order && (r < t->n_rank); r++) t->order[r] = r;
    if (status == CT_OK)
        status = ct_step_model_run(p, t, &s->exchange, NULL, s->overlap, factor, out);
    ct_topo_destroy(t);
    ct_profile_destroy(p);
    return status;
}

static json_t *facts(double wall_s)
{
    json_t *extra = json_object();
    time_t now = time(NULL);
    char when[32] = "";
    struct tm tm;

    if (gmtime_r(&now, &tm) != NULL) strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", &tm);
    json_object_set_new(extra, "command", json_string("(in the process of the study)"));
    json_object_set_new(extra, "ended", json_string(when));
    json_object_set_new(extra, "wall_s", json_real(wall_s));
    return extra;
}

static ct_status add_point(const ct_machine_study *m, int64_t nodes, const ct_scale_config *c)
{
    json_t *d = ct_machine_study_define(m, "modelled", nodes, c), *run, *result, *extra;
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

ct_status ct_scale_modelled(const ct_machine_study *m)
{
    const ct_scale *s = m->scale;

    for (int c = 0; c < s->n_config; c++) {
        for (int i = 0; i < s->n_node; i++) CT_TRY(add_point(m, s->node[i], &s->config[c]));
    }
    return CT_OK;
}
