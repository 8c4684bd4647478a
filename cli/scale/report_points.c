#include <math.h>
#include <string.h>

#include "cli/scale/report.h"

static const char header[] =
    "net,machine,mode,config,kind,nodes,ranks,threads,global_batch,step_ms,p5_ms,p95_ms,least_ms,"
    "most_ms,samples,runs,failed_runs,images_per_s,speedup,efficiency,compute_ms,comm_ms,"
    "exposed_ms,exposed_share,wait_data_ms,compress_ms,imbalance_ms,bytes_sent,memory_bytes,"
    "jitter_bound,algorithm,jitter_seed,images_per_s_alone,wall_s,read_ms\n";

static void text_cell(ct_text *t, const char *s)
{
    ct_text_add(t, "\"");
    for (; *s != '\0'; s++) {
        if (*s == '"') ct_text_add(t, "\"");
        ct_text_add_bytes(t, s, 1);
    }
    ct_text_add(t, "\",");
}

static void number_cell(ct_text *t, double v)
{
    if (isfinite(v)) ct_text_add(t, "%.9g", v);
    ct_text_add(t, ",");
}

static void csv_row(const ct_points *p, const ct_point *q, ct_text *t)
{
    const ct_point_group *g = &p->group[q->group];
    const double v[] = { q->step_ms,  q->p5_ms,       q->p95_ms,
                         q->least_ms, q->most_ms,     q->n_sample,
                         q->n_run,    q->n_bad,       q->images_per_s,
                         q->speedup,  q->efficiency,  q->compute_ms,
                         q->comm_ms,  q->exposed_ms,  q->exposed_ms / q->step_ms,
                         q->wait_ms,  q->compress_ms, q->imbalance_ms,
                         q->bytes,    q->memory,      q->bound };

    text_cell(t, g->net);
    text_cell(t, g->machine);
    text_cell(t, g->mode);
    text_cell(t, q->config);
    text_cell(t, ct_kind_str(q->kind));
    ct_text_add(t, "%d,%d,%d,%.0f,", q->nodes, q->ranks, q->threads, q->batch);
    for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++)
        number_cell(t, (q->failed && ((i < 5) || (i > 7))) ? NAN : v[i]);
    text_cell(t, q->algorithm);
    number_cell(t, ct_json_number(q->define, "jitter_seed", NAN));
    number_cell(t, (g->speed > 0) ? g->speed : NAN);
    if (isfinite(q->wall_s)) ct_text_add(t, "%.3f", q->wall_s);
    ct_text_add(t, ",");
    if (isfinite(q->read_ms)) ct_text_add(t, "%.9g", q->read_ms);
    ct_text_add(t, "\n");
}

/* The points as JSON: the definition, and the figures under the names of the CSV. */
static void set(json_t *o, const char *name, double v)
{
    json_object_set_new(o, name, isfinite(v) ? json_real(v) : json_null());
}

static json_t *json_point(const ct_point *q)
{
    json_t *o = json_object();

    json_object_set(o, "define", (json_t *)(uintptr_t)q->define);
    json_object_set_new(o, "kind", json_string(ct_kind_str(q->kind)));
    json_object_set_new(o, "failed", json_boolean(q->failed));
    json_object_set_new(o, "runs", json_integer(q->n_run));
    json_object_set_new(o, "failed_runs", json_integer(q->n_bad));
    if (q->failed) return o;
    json_object_set_new(o, "samples", json_integer(q->n_sample));
    set(o, "global_batch", q->batch);
    set(o, "step_ms", q->step_ms);
    set(o, "p5_ms", q->p5_ms);
    set(o, "p95_ms", q->p95_ms);
    set(o, "images_per_s", q->images_per_s);
    set(o, "speedup", q->speedup);
    set(o, "efficiency", q->efficiency);
    set(o, "compute_ms", q->compute_ms);
    set(o, "comm_ms", q->comm_ms);
    set(o, "exposed_ms", q->exposed_ms);
    set(o, "wait_data_ms", q->wait_ms);
    set(o, "read_ms", q->read_ms);
    set(o, "compress_ms", q->compress_ms);
    set(o, "imbalance_ms", q->imbalance_ms);
    set(o, "bytes_sent", q->bytes);
    set(o, "memory_bytes", q->memory);
    set(o, "jitter_bound", q->bound);
    json_object_set_new(o, "algorithm", json_string(q->algorithm));
    return o;
}

static json_t *json_bench(const ct_bench_point *b)
{
    json_t *o = json_object();

    json_object_set_new(o, "kind", json_string(ct_kind_str(b->kind)));
    json_object_set_new(o, "machine", json_string(b->machine));
    json_object_set_new(o, "algorithm", json_string(b->algorithm));
    json_object_set_new(o, "nodes", json_integer(b->nodes));
    json_object_set_new(o, "ranks", json_integer(b->ranks));
    set(o, "bytes", b->bytes);
    set(o, "us", b->us);
    set(o, "algbw_gbs", b->algbw);
    set(o, "busbw_gbs", b->busbw);
    return o;
}

ct_status ct_report_points(const ct_study *study, const ct_points *p)
{
    json_t *all = json_object(), *points = json_array(), *bench = json_array();
    ct_text csv = { 0 };
    char path[800];
    ct_status status;

    ct_text_add(&csv, "%s", header);
    for (int i = 0; i < p->n; i++) {
        csv_row(p, &p->point[i], &csv);
        json_array_append_new(points, json_point(&p->point[i]));
    }
    for (int i = 0; i < p->n_bench; i++) json_array_append_new(bench, json_bench(&p->bench[i]));
    json_object_set_new(all, "points", points);
    json_object_set_new(all, "collectives", bench);
    ct_study_path(study, path, sizeof(path), "points.json");
    status = ct_json_write(path, all);
    json_decref(all);
    ct_study_path(study, path, sizeof(path), "points.csv");
    if (status == CT_OK)
        status = csv.failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for %s", path)
                            : ct_file_write(path, csv.text, csv.length);
    ct_text_destroy(&csv);
    return status;
}
