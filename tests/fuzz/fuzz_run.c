/* What runs leave and `cortado report` reads back: metrics, logs, traces, scores, times; and what
 * `cortado scale` finds in its folder. Any bytes end in curves whose iterations rise, or in an
 * error. The first byte says which file of a run's folder the rest is; an even one takes it for
 * metrics or a log alone, one above 127 for a file of a study. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/report/run_data.h"
#include "cli/scale/study.h"
#include "tests/fuzz/folder.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/tokens.h"

static const char *const name[] = { CT_RUN_METRICS, CT_RUN_SCORES, CT_RUN_TIMES, CT_RUN_TRACE };

static void check(const char *path)
{
    ct_run_data r;
    ct_status status = ct_run_data_read(path, &r);

    if ((status != CT_OK) && (status != CT_ERR_DATA)) abort();
    for (int i = 0; (status == CT_OK) && (i < r.n_curve); i++) {
        const ct_run_curve *c = &r.curve[i];

        if (ct_run_data_curve(&r, c->field, c->of_test) != c) abort();
        for (int64_t k = 1; k < c->n; k++)
            if (c->point[k].x <= c->point[k - 1].x) abort();
        (void)ct_run_curve_median(c);
        (void)ct_run_curve_least(c);
        (void)ct_run_curve_most(c);
    }
    for (int i = 0; (status == CT_OK) && (i < r.traced.n); i++)
        if ((r.traced.rank[i].rank < 0) || (r.traced.rank[i].steps < 1)) abort();
    ct_run_data_destroy(&r);
}

/* Once saved, a run is found by what it says of itself, unless its numbers were rounded. */
static void look_for(const ct_study *study, const json_t *all)
{
    json_t *run = json_array_get(all, 0), *define = json_object_get(run, "define");
    json_t *result = json_object_get(run, "result"), *found, *extra;

    if (run == NULL) return;
    for (int k = 0; k < 2; k++) /* ours are whole numbers */
        if (!(fabs(ct_json_number(define, (k == 0) ? "nodes" : "ranks", 0)) < 1e9)) return;
    json_decref(ct_run_find(study, define));
    extra = json_pack("{s:f}", "wall_s", 1.5);
    if (ct_run_save(study, define, result, NULL, extra) != CT_OK) abort();
    json_decref(extra);
    found = ct_run_find(study, define);
    if ((found != NULL) && !json_is_object(result)) abort();
    json_decref(found);
}

static void read_study(const char *folder, bool is_run, const uint8_t *data, size_t size)
{
    char dir[128], path[192];
    json_t *all = NULL, *broken = NULL, *note = NULL;
    ct_study study;

    snprintf(dir, sizeof(dir), "%s/study", folder);
    if (ct_study_open(dir, &study) != CT_OK) abort();
    snprintf(path, sizeof(path), is_run ? "%s/runs/a.json" : "%s/study.json", dir);
    fuzz_write(path, data, size);
    if ((ct_run_all(&study, &all, &broken) == CT_OK) &&
        (json_array_size(all) + json_array_size(broken) != (is_run ? 1 : 0)))
        abort();
    if ((ct_study_notes(&study, &note) == CT_OK) && !json_is_array(note)) abort();
    if (is_run) look_for(&study, all);
    if (ct_study_note(&study, json_pack("{s:s}", "command", "again")) == CT_OK) {
        json_t *more = NULL;

        if (ct_study_notes(&study, &more) != CT_OK) abort();
        if (json_array_size(more) != json_array_size(note) + 1) abort();
        json_decref(more);
    }
    json_decref(all);
    json_decref(broken);
    json_decref(note);
    ct_study_discard(&study); /* what has files stays */
    fuzz_empty(dir);
    if (ct_study_open(dir, &study) != CT_OK) abort();
    ct_study_discard(&study);
    if (access(dir, F_OK) == 0) abort();
}

FUZZ_TOKENS(1, NULL);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *folder = fuzz_folder_path();
    char run[128], path[192];
    int k;

    if ((size == 0) || (size > 1 << 16)) return 0;
    ct_log_set_sink(fuzz_drop, NULL);
    if (data[0] > 127) {
        read_study(folder, (data[0] & 1) != 0, data + 1, size - 1);
        return 0;
    }
    k = (data[0] & 1) * (data[0] >> 1 & 3);
    snprintf(run, sizeof(run), "%s/run", folder);
    fuzz_empty(run);
    (void)mkdir(run, 0700);
    snprintf(path, sizeof(path), "%s/%s", run, name[0]);
    fuzz_write(path, "{\"event\": \"train\", \"iter\": 1, \"loss\": 2}\n", 42);
    snprintf(path, sizeof(path), "%s/%s", run, name[k]);
    fuzz_write(path, data + 1, size - 1);
    check(((data[0] & 1) != 0) ? run : path);
    return 0;
}
