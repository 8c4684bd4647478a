/* report.md: what was asked, where, how, what came out, what went wrong. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "framework/base/file.h"
#include "runtime/config/features.h"
#include "cli/scale/report.h"
#include "cli/scale/scale.h"

/* ---- what was asked, and where */

static void add_question(const json_t *notes, const ct_points *p, ct_text *t)
{
    const char *asked = NULL;

    for (size_t i = 0; i < json_array_size(notes); i++) {
        const char *q = ct_json_text(json_array_get(notes, i), "question", NULL);

        if (q != NULL) asked = q;
    }
    if (asked != NULL) {
        ct_text_add(t, "**Question**: %s\n", asked);
        return;
    }
    ct_text_add(t, "**Question**: how fast do more ranks train");
    for (int i = 0; i < p->n_group; i++) {
        bool before = false;

        for (int k = 0; k < i; k++)
            before |= (strcmp(p->group[k].net, p->group[i].net) == 0) &&
                      (strcmp(p->group[k].machine, p->group[i].machine) == 0);
        if (before) continue;
        ct_text_add(t, "%s %s on %s", (i == 0) ? "" : ",", p->group[i].net, p->group[i].machine);
    }
    ct_text_add(t, "?\n");
}

/* One line a series: what its largest point says. */
static void add_answer(const ct_points *p, ct_text *t)
{
    ct_text_add(t, "\n**Answer**, the largest point of each default series:\n\n");
    for (int i = 0; i < p->n; i++) {
        const ct_point *q = &p->point[i], *next = (i + 1 < p->n) ? q + 1 : NULL;
        const ct_point_group *g = &p->group[q->group];
        int base = ct_points_base(p, q);

        if (q->failed || (strcmp(q->config, "default") != 0) || (base < 0)) continue;
        if ((next != NULL) && !next->failed && (ct_points_base(p, next) == base)) continue;
        if (base == i) continue;
        ct_text_add(t,
                    "* %s: %.4g images/s on %d ranks, %.1f times %d rank%s (%.4g images/s), "
                    "efficiency %.1f %% (**%s**)\n",
                    g->title, q->images_per_s, q->ranks, q->speedup, p->point[base].ranks,
                    (p->point[base].ranks == 1) ? "" : "s", p->point[base].images_per_s,
                    100 * q->efficiency, ct_kind_str(q->kind));
    }
}

static bool said_before(const json_t *notes, size_t i, const char *name)
{
    const char *mine = ct_json_text(json_array_get(notes, i), name, "");

    for (size_t k = 0; k < i; k++) {
        if (strcmp(ct_json_text(json_array_get(notes, k), name, ""), mine) == 0) return true;
    }
    return false;
}

/* "; nodes 0-2 (p3): speed 1, 1.25 GB/s into the network". */
static void add_classes(const json_t *classes, ct_text *t)
{
    static const struct {
        const char *key, *before, *behind;
    } known[] = { { "memory_gib", ", ", " GiB" },
                  { "inside_gbs", ", inside ", " GB/s" },
                  { "inject_gbs", ", into the network ", " GB/s" } };
    const json_t *c;
    size_t k;

    json_array_foreach(classes, k, c)
    {
        ct_text_add(t, "; nodes %s (%s): speed %.4g", ct_json_text(c, "nodes", "?"),
                    ct_json_text(c, "name", "?"), ct_json_number(c, "speed", 1));
        for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
            double v = ct_json_number(c, known[i].key, 0);

            if (v > 0) ct_text_add(t, "%s%.4g%s", known[i].before, v, known[i].behind);
        }
    }
}

/* The described machines of the study, and the profiles that stand for their chips. */
static void add_pretended(const json_t *notes, ct_text *t)
{
    for (size_t i = 0; i < json_array_size(notes); i++) {
        const json_t *o = json_object_get(json_array_get(notes, i), "pretended");
        const json_t *p = json_object_get(o, "profile"), *l;
        bool before = false;
        size_t k;

        for (k = 0; k < i; k++)
            before |= json_equal(json_object_get(json_array_get(notes, k), "pretended"), o) != 0;
        if (before || !json_is_object(o)) continue;
        ct_text_add(t, "* described machine **%s** (%s):", ct_json_text(o, "machine", "?"),
                    ct_json_text(o, "source", "no source"));
        json_array_foreach(json_object_get(o, "levels"), k, l) ct_text_add(
            t, "%s %s %.4g GB/s, %.3g us, a member's link %.4g GB/s", (k > 0) ? ";" : "",
            ct_json_text(l, "name", "?"), ct_json_number(l, "bandwidth_gbs", 0),
            ct_json_number(l, "latency_us", 0), ct_json_number(l, "uplink_gbs", 0));
        l = json_object_get(o, "in_network");
        if (json_is_object(l))
            ct_text_add(t, "; MPI's sums in the network %.4g GB/s, %.3g us",
                        ct_json_number(l, "bandwidth_gbs", 0), ct_json_number(l, "latency_us", 0));
        add_classes(json_object_get(o, "node_classes"), t);
        if (ct_json_number(o, "sum_gbs", 0) > 0)
            ct_text_add(t, "; additions %.4g GB/s\n", ct_json_number(o, "sum_gbs", 0));
        else
            ct_text_add(t, "; additions free\n");
        ct_text_add(t,
                    "* its chips: profile `%s`, %.4g images/s with batch %.0f and %.0f threads "
                    "on `%s`, %s",
                    ct_json_text(p, "file", "?"), ct_json_number(p, "images_per_s", NAN),
                    ct_json_number(p, "batch", NAN), ct_json_number(p, "threads", NAN),
                    ct_json_text(p, "host", "?"), ct_json_text(p, "started", "?"));
        if (ct_json_number(p, "scaled_to", 0) > 0)
            ct_text_add(t,
                        "; **all its times scaled to %.4g images/s**: the parts of a step keep "
                        "the proportions of that host",
                        ct_json_number(p, "scaled_to", 0));
        ct_text_add(t, "\n");
        if (json_is_string(json_object_get(o, "read")))
            ct_text_add(t,
                        "* reading of samples is **modelled** in the modelled points: `--read=%s`; "
                        "the largest of D / node, D ceil(nodes / files) / file and D nodes / total "
                        "for D bytes a node and step, beside the step\n",
                        ct_json_text(o, "read", "?"));
    }
}

static void add_place(const json_t *notes, ct_text *t)
{
    bool noted = false;

    ct_text_add(t, "\n## Machine, software, commands\n\n");
    for (size_t i = 0; i < json_array_size(notes); i++) {
        const json_t *o = json_array_get(notes, i), *list = json_object_get(o, "notes");

        if (!said_before(notes, i, "host") || !said_before(notes, i, "version"))
            ct_text_add(t, "* `%s`: %s, %.0f cores, %.1f GiB; cortado %s, %s, %s%s%s\n",
                        ct_json_text(o, "host", "?"), ct_json_text(o, "cpu", "cpu unknown"),
                        ct_json_number(o, "cores", 0),
                        ct_json_number(o, "memory_bytes", 0) / ldexp(1, 30),
                        ct_json_text(o, "version", "?"), ct_json_text(o, "compiler", "?"),
                        ct_json_text(o, "mpi", "?"),
                        (ct_json_text(o, "slurm_nodes", NULL) != NULL) ? "; SLURM nodes " : "",
                        ct_json_text(o, "slurm_nodes", ""));
        for (size_t k = 0; k < json_array_size(list); k++) {
            ct_text_add(t, "* %s\n", json_string_value(json_array_get(list, k)));
            noted = true;
        }
    }
    add_pretended(notes, t);
    if (!noted)
        ct_text_add(t, "* Network, file system, dedicated or shared: not stated (`--note=TEXT`)\n");
    ct_text_add(t,
                "\nCalls of this study, in order; every run's own command stands in its file under "
                "`runs/`:\n\n");
    for (size_t i = 0; i < json_array_size(notes); i++) {
        const json_t *o = json_array_get(notes, i);

        ct_text_add(t, "    %s  %s\n", ct_json_text(o, "started", "?"),
                    ct_json_text(o, "command", "?"));
    }
}

/* ---- what was run */

static void add_workload(const json_t *notes, ct_text *t)
{
    ct_text_add(
        t, "\n## Workload\n\n| net | hash | parameters | gradient MB | GFLOP an image, forward + "
           "backward | batch a rank, as given |\n|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < json_array_size(notes); i++) {
        const json_t *n = json_object_get(json_array_get(notes, i), "net");
        double batch = ct_json_number(n, "batch", NAN);
        bool before = false;

        for (size_t k = 0; k < i; k++)
            before |= json_equal(json_object_get(json_array_get(notes, k), "net"), n) != 0;
        if (before || !json_is_object(n)) continue;
        ct_text_add(t, "| %s | `%s` |", ct_json_text(n, "net", "?"),
                    ct_json_text(n, "net_hash", "?"));
        ct_report_number(t, "%.0f", ct_json_number(n, "parameters", NAN));
        ct_report_number(t, "%.1f", 4e-6 * ct_json_number(n, "learned", NAN));
        ct_report_number(
            t, "%.4g",
            (ct_json_number(n, "forward_gflop", NAN) + ct_json_number(n, "backward_gflop", NAN)) /
                batch);
        ct_report_number(t, "%.0f", batch);
        ct_text_add(t, "\n");
    }
    ct_text_add(
        t,
        "\nWeights and gradients in f32; the data is synthetic, made in memory, so reading is not "
        "part of the step.\n");
}

static void add_protocol(ct_text *t)
{
    ct_text_add(
        t,
        "\n## Protocol\n\n"
        "* **measured**: `cortado time` on the ranks named: 3 steps to warm up are dropped, then "
        "every "
        "step is timed between barriers on rank 0; the repetitions of a point are spread over the "
        "whole "
        "study. The table has the median over the steps of all repetitions and [5 %%, 95 %%].\n"
        "* **emulated**: the same with more ranks than cores, or on pretended nodes: it shows that "
        "the "
        "program runs and what it sends, not how fast a real machine would be.\n"
        "* **simulated**: the program's own bucket schedule, collectives and messages, run against "
        "SimGrid's SMPI on a description of the machine; compute is replaced by the times of a "
        "profile. A step lies between the beginnings of two exchanges; times and bytes are the "
        "means of the steps and the ranks, so that compute and exposed add up to the step.\n"
        "* **modelled**: the step's timeline from the profile over the cost model of the "
        "collectives; "
        "nothing runs.\n"
        "* images/s = global batch / median step. speed-up = images/s / images/s of the series' "
        "base. "
        "efficiency = speed-up x ranks of the base / ranks, for weak scaling T(base)/T(P), for "
        "strong "
        "T(base) x base / (T(P) x P).\n"
        "* exposed = communication that a rank waits for. A dash: the program does not say.\n"
        "* Accuracy is not part of this study: all configurations but compression compute the same "
        "numbers; a compressed run that is faster must still show that it reaches the target.\n");
}

static ct_status write_report(const ct_study *study, const ct_points *p)
{
    json_t *notes = NULL;
    ct_text t = { 0 };
    char path[800], when[32] = "";
    time_t now = time(NULL);
    struct tm tm;
    ct_status status;

    CT_TRY(ct_study_notes(study, &notes));
    if (gmtime_r(&now, &tm) != NULL) strftime(when, sizeof(when), "%Y-%m-%d %H:%M UTC", &tm);
    ct_text_add(&t, "# Scaling study\n\n");
    add_question(notes, p, &t);
    add_answer(p, &t);
    ct_text_add(
        &t,
        "\nMarks, in every table and plot: %s (ranks on cores of their own), %s (ranks that "
        "share cores), %s, %s. Only measured points say how fast a machine is.\n",
        ct_report_mark(CT_KIND_MEASURED), ct_report_mark(CT_KIND_EMULATED),
        ct_report_mark(CT_KIND_SIMULATED), ct_report_mark(CT_KIND_MODELLED));
    add_place(notes, &t);
    add_workload(notes, &t);
    add_protocol(&t);
    ct_text_add(&t, "\n## Results\n");
    for (int g = 0; g < p->n_group; g++) ct_report_group(p, g, &t);
    ct_report_bench(p, &t);
    ct_report_model_error(p, &t);
    ct_report_failures(p, &t);
    ct_text_add(
        &t,
        "\n## Raw data\n\n`points.csv` and `points.json` have every figure above, `runs/` one file "
        "a "
        "run, `logs/` what it printed. This report, %s, was made from `runs/` and `study.json` "
        "by cortado %s; again by\n\n    cortado scale --report=%s\n",
        when, ct_build_version(), study->dir);
    json_decref(notes);
    ct_study_path(study, path, sizeof(path), "report.md");
    status = t.failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for %s", path)
                      : ct_file_write(path, t.text, t.length);
    ct_text_destroy(&t);
    if (status == CT_OK) CT_INFO("%d points, report: %s", p->n, path);
    return status;
}

ct_status ct_scale_report(const ct_study *study)
{
    ct_points p;
    ct_study writable = *study;
    ct_status status = ct_points_read(study, &p);

    if ((status == CT_OK) && (p.n == 0) && (p.n_bench == 0))
        status = CT_FAIL(CT_ERR_DATA, "%s: no runs in it", study->dir);
    if (status == CT_OK) status = ct_study_open(study->dir, &writable);
    if (status == CT_OK) status = ct_report_points(study, &p);
    if (status == CT_OK) status = ct_report_plots(study, &p);
    if (status == CT_OK) status = write_report(study, &p);
    ct_points_destroy(&p);
    return status;
}
