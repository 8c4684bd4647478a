/** @file report.h  The parts of a study's report; private to the report's files. */
#ifndef CT_SCALE_REPORT_H
#define CT_SCALE_REPORT_H

#include "cli/scale/points.h"

/** points.csv and points.json. */
ct_status ct_report_points(const ct_study *study, const ct_points *p);
/** The plots, through gnuplot; *drawn_p false where there is none (the scripts are written). */
ct_status ct_report_plots(const ct_study *study, const ct_points *p, bool *drawn_p);
/** Which plots a group has: "throughput", "efficiency", "parts", "ablations"; NULL ends. A plot is
 *  plots/NAME-SLUG.svg and .png. */
bool ct_report_has_plot(const ct_points *p, int group, const char *name);
/** Whether any configuration of the group is not the default. */
bool ct_report_has_ablations(const ct_points *p, int group);

/* ---- sections of report.md: report_tables.c */
void ct_report_group(const ct_points *p, int group, bool drawn, ct_text *t);
void ct_report_bench(const ct_points *p, bool drawn, ct_text *t);
void ct_report_model_error(const ct_points *p, ct_text *t);
void ct_report_failures(const ct_points *p, ct_text *t);
/** "12.3", or a dash where v is not finite. */
void ct_report_number(ct_text *t, const char *format, double v);
/** The mark of a kind in tables. Static. */
const char *ct_report_mark(ct_kind kind);

#endif
