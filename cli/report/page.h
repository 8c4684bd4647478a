/** @file page.h  The page of `cortado report`: one HTML file that needs no network and no program.
 *
 * The sections come from what runs have left (run_data.h). One that has nothing to show says which
 * command makes what it shows, or is left out.
 */
#ifndef CT_REPORT_PAGE_H
#define CT_REPORT_PAGE_H

#include "cli/report/run_data.h"

void ct_page_begin(const ct_run_data *run, int n_run, ct_text *t);
void ct_page_end(ct_text *t);

/* ---- sections */

/** Where each run was made, how it ended, the last, least and most of its curves; settings that
 *  are not the same in all runs. */
void ct_page_comparison(const ct_run_data *run, int n_run, ct_text *t);
/** Losses, outputs of tests, rates: a chart each, a colour for each run. CT_ERR_NOMEM. */
ct_status ct_page_curves(const ct_run_data *run, int n_run, ct_text *t);
/** Medians of a step's parts, and what a rank sends; of each run that has CT_RUN_TRACE where steps
 *  go on each rank, that has CT_RUN_TIMES its layers. */
void ct_page_time(const ct_run_data *run, int n_run, ct_text *t);
/** Confusion, precision and recall, calibration, mistakes of each run that has CT_RUN_SCORES.
 *  CT_ERR_NOMEM; CT_ERR_DATA, logged: a file that is not as `test --report` writes it. */
ct_status ct_page_scores(const ct_run_data *run, int n_run, ct_text *t);
/** Of one run: whether its scores are of boxes; and their part of that section. */
bool ct_page_is_of_boxes(const ct_run_data *run);
ct_status ct_page_boxes(const ct_run_data *run, ct_text *t);
/** Samples of the set of tests with what each run's net says of them; filters and activations. Runs
 *  without a net of pictures, or whose set is not here, say so. Errors: what is there is broken. */
ct_status ct_page_pictures(const ct_run_data *run, int n_run, ct_text *t);
/** Samples, values and classes of the sets that the runs' nets read. */
ct_status ct_page_sets(const ct_run_data *run, int n_run, ct_text *t);
/** Of each run with compression the buckets and their sum; nothing where no run has it. */
void ct_page_compression(const ct_run_data *run, int n_run, ct_text *t);

/* ---- what sections are made of */

void ct_page_heading(int level, const char *text, ct_text *t);
/** A cell of a table's head, or of its body; text is anybody's. */
void ct_page_head(const char *text, ct_text *t);
void ct_page_cell(const char *text, ct_text *t);
/** A number with so many significant digits; a dash where v is not finite. */
void ct_page_number(double v, int digits, ct_text *t);
/** The first row of a table: `first`, then the names of the runs. */
void ct_page_head_of_runs(const char *first, const ct_run_data *run, int n_run, ct_text *t);

#endif
