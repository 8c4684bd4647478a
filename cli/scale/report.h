/** @file report.h  The points of a study, and the parts of its report. */
#ifndef CT_SCALE_REPORT_H
#define CT_SCALE_REPORT_H

#include "cli/scale/study.h"

/* Runs of a study's folder put together into points, groups and speed-ups.
 *
 * A run is one file. A point is all repetitions of one definition. A group is a workload on a
 * machine (net, machine, mode, batch): its points differ in ranks, in kind and in configuration,
 * and share a table and plots. A series is a line in a plot: a kind and a configuration of a group.
 */

typedef enum { CT_KIND_MEASURED, CT_KIND_EMULATED, CT_KIND_SIMULATED, CT_KIND_MODELLED } ct_kind;
enum { CT_N_KIND = 4 };

/** "measured", "emulated", "simulated", "modelled". */
const char *ct_kind_str(ct_kind kind);

typedef struct ct_point {
    const json_t *define; /* borrowed of the runs */
    int group;
    ct_kind kind;
    bool failed; /* no repetition went well                                  */
    char config[96];
    int nodes, ranks, threads;  /* threads a rank; 0: not known */
    int n_run, n_bad, n_sample; /* repetitions that went well, that did not; steps timed */
    double batch;               /* of all ranks                                        */
    double step_ms, p5_ms, p95_ms, least_ms, most_ms;
    double images_per_s, speedup, efficiency; /* against the series' base; NAN: no base */
    /* of a step, in ms; NAN where the program did not say */
    double compute_ms, exposed_ms, comm_ms, wait_ms, compress_ms, imbalance_ms;
    double bytes;   /* a rank sends in a step                          */
    double memory;  /* bytes of the largest rank                       */
    double bound;   /* of jitter: E[mean step] / E[slowest of the ranks]; NAN: no jitter */
    double read_ms; /* what reading a step's samples takes, waited for or not; modelled */
    double wall_s;  /* what the run itself took                        */
    char algorithm[96];
} ct_point;

typedef struct ct_point_group {
    char machine[64], net[64], net_hash[24], mode[12];
    char title[384], slug[200]; /* for headings, for file names */
    double batch;               /* weak: of a rank; strong: of all */
    double speed;               /* images/s of the pretended chip; 0: as profiled */
    bool jitter;
    const json_t *define;
} ct_point_group;

/** A measurement of the collectives. */
typedef struct ct_bench_point {
    ct_kind kind;
    char machine[64], algorithm[32];
    int nodes, ranks;
    double bytes, us, algbw, busbw; /* GB/s                                        */
    double predicted_us;            /* by the cost model; NAN: the program did not say */
} ct_bench_point;

typedef struct ct_points {
    json_t *runs, *broken;
    json_t *superseded; /* names of files whose place a newer definition took */
    int n, n_group, n_bench;
    ct_point *point; /* by group, configuration, kind, ranks */
    ct_point_group *group;
    ct_bench_point *bench;
} ct_points;

ct_status ct_points_read(const ct_study *study, ct_points *p);
void ct_points_destroy(ct_points *p);
/** The point that those of the series are compared with: its smallest that went well; -1: none. */
int ct_points_base(const ct_points *p, const ct_point *of);
/** The point of the same place and another kind that went well; -1: none. */
int ct_points_twin(const ct_points *p, const ct_point *of, ct_kind kind);

/* ---- the report */

/** points.csv and points.json. */
ct_status ct_report_points(const ct_study *study, const ct_points *p);
/** The plots, as SVG. */
ct_status ct_report_plots(const ct_study *study, const ct_points *p);
/** Which plots a group has: "throughput", "efficiency", "parts", "ablations"; NULL ends. A plot is
 *  plots/NAME-SLUG.svg. */
bool ct_report_has_plot(const ct_points *p, int group, const char *name);
/** Whether any configuration of the group is not the default. */
bool ct_report_has_ablations(const ct_points *p, int group);

/* ---- sections of report.md: report_tables.c */
void ct_report_group(const ct_points *p, int group, ct_text *t);
void ct_report_bench(const ct_points *p, ct_text *t);
void ct_report_model_error(const ct_points *p, ct_text *t);
void ct_report_failures(const ct_points *p, ct_text *t);
/** "12.3", or a dash where v is not finite. */
void ct_report_number(ct_text *t, const char *format, double v);
/** The mark of a kind in tables. Static. */
const char *ct_report_mark(ct_kind kind);

#endif
