/** @file run_data.h  What a run has left, read back: its metrics, where it came from, its scores.
 *
 * A run is the folder of `train --run`, or a file of `--metrics` or a log alone.
 */
#ifndef CT_RUN_DATA_H
#define CT_RUN_DATA_H

#include "cli/report/trace_data.h"
#include "framework/base/json.h"
#include "framework/report/chart.h"

/** A field of the train or test events over iterations. Where a run went on from an earlier
 *  snapshot, what it did again counts. */
typedef struct ct_run_curve {
    char *field; /* "loss", "images_per_s"; of a second test net "loss (net 1)" */
    bool of_test;
    ct_chart_point *point;
    int64_t n, capacity;
} ct_run_curve;

/** Folder parts of a run: DIR/NAME. */
#define CT_RUN_METRICS "metrics.jsonl"
#define CT_RUN_SCORES  "report.json"
#define CT_RUN_TIMES   "time.json"
#define CT_RUN_TRACE   "trace.json"

typedef struct ct_run_data {
    const char *path; /* as it was given; borrowed               */
    char *name;       /* for keys and headings                   */
    bool is_folder;
    json_t *about;       /* the run event; NULL: none               */
    json_t *compression; /* … the last of each; NULL: none          */
    json_t *done;
    json_t *scores;   /* CT_RUN_SCORES of the folder; NULL: none */
    json_t *times;    /* CT_RUN_TIMES, likewise                  */
    ct_traced traced; /* of CT_RUN_TRACE; n 0: there is none     */
    ct_run_curve *curve;
    int n_curve;
} ct_run_data;

/** CT_ERR_IO: no such file; CT_ERR_DATA: it is not what a run writes, with the line. Logged. */
ct_status ct_run_data_read(const char *path, ct_run_data *r);
void ct_run_data_destroy(ct_run_data *r);
/** Adds a point to the curve of that field, which is made where it is new. CT_ERR_NOMEM. */
ct_status ct_run_data_add(ct_run_data *r, const char *field, bool of_test, double x, double y);
/** The curves of a log for people, of `cortado train` or of Caffe. CT_ERR_IO; CT_ERR_DATA: there is
 *  no iteration in it. Logged. */
ct_status ct_run_log_read(ct_run_data *r, const char *file);
/** NULL: the run has no such curve. */
const ct_run_curve *ct_run_data_curve(const ct_run_data *r, const char *field, bool of_test);
double ct_run_curve_last(const ct_run_curve *c);   /* NAN: c is NULL */
double ct_run_curve_least(const ct_run_curve *c);  /* likewise       */
double ct_run_curve_most(const ct_run_curve *c);   /* likewise       */
double ct_run_curve_median(const ct_run_curve *c); /* likewise       */

#endif
