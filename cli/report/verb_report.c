/* cortado report: one page of one or several runs. */
#include <stdlib.h>
#include <string.h>

#include "cli/report/page.h"
#include "cli/verb.h"
#include "framework/base/file.h"

static ct_status write_page(const ct_run_data *run, int n_run, const char *file)
{
    ct_text t = { 0 };
    ct_status status;

    ct_page_begin(run, n_run, &t);
    ct_page_comparison(run, n_run, &t);
    status = ct_page_curves(run, n_run, &t);
    if (status == CT_OK) status = ct_page_scores(run, n_run, &t);
    if (status == CT_OK) status = ct_page_pictures(run, n_run, &t);
    if (status == CT_OK) status = ct_page_sets(run, n_run, &t);
    if (status == CT_OK) {
        ct_page_time(run, n_run, &t);
        ct_page_compression(run, n_run, &t);
        ct_page_end(&t);
    }
    if ((status == CT_OK) && t.failed) status = CT_FAIL(CT_ERR_NOMEM, "no memory for %s", file);
    if (status == CT_OK) status = ct_file_write(file, t.text, t.length);
    if (status == CT_OK) CT_INFO("a page of %d run%s: %s", n_run, (n_run > 1) ? "s" : "", file);
    ct_text_destroy(&t);
    return status;
}

/* Runs of one name in several folders are told apart by their paths. */
static ct_status tell_apart(ct_run_data *run, int n)
{
    for (int i = 0; i < n; i++) {
        bool twin = false;

        for (int k = 0; k < n; k++)
            twin |= (k != i) && (strcmp(ct_path_base(run[i].path), ct_path_base(run[k].path)) == 0);
        if (!twin) continue;
        free(run[i].name);
        run[i].name = strdup(run[i].path);
        if (run[i].name == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %s", run[i].path);
    }
    return CT_OK;
}

ct_status ct_verb_report(ct_call *call)
{
    const ct_options *o = call->options;
    const char *file = ct_options_text(o, "to");
    int n = ct_options_n(o, "runs");
    ct_run_data *run;
    ct_status status = CT_OK;

    if (n == 0)
        return CT_FAIL(CT_ERR_CONFIG, "cortado report: give folders of train --run, or files of "
                                      "--metrics, or logs, behind the options");
    if (file == NULL) return CT_FAIL(CT_ERR_CONFIG, "cortado report needs --to=FILE.html");
    CT_TRY(ct_file_check_writable(file));
    run = calloc((size_t)n, sizeof(*run));
    if (run == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d runs", n);
    for (int i = 0; (i < n) && (status == CT_OK); i++)
        status = ct_run_data_read(ct_options_entry(o, "runs", i, NULL), &run[i]);
    if (status == CT_OK) status = tell_apart(run, n);
    if (status == CT_OK) status = write_page(run, n, file);
    for (int i = 0; i < n; i++) ct_run_data_destroy(&run[i]);
    free(run);
    return status;
}
