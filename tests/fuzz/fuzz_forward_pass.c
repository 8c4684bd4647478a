/* Lists of forward passes: any bytes give a list whose pairs begin before they are awaited, and
 * which is written and read again, or CT_ERR_DATA. */
#include <stdlib.h>

#include "planner/forward_pass.h"
#include "framework/base/log.h"
#include "tests/fuzz/folder.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/tokens.h"

static void read_again(const ct_forward_pass *f)
{
    ct_text text = { 0 };
    ct_json_writer w = ct_json_into(&text);
    ct_forward_pass again;
    char path[128];

    ct_json_begin_object(&w, NULL);
    ct_forward_pass_json("fuzz", f, &w);
    ct_json_end(&w);
    if (text.failed) abort();
    snprintf(path, sizeof(path), "%s/pass.json", fuzz_folder_path());
    fuzz_write(path, text.text, text.length);
    if (ct_forward_pass_read(path, &again) != CT_OK) abort();
    if ((again.n_step != f->n_step) || (again.n_pair != f->n_pair)) abort();
    ct_forward_pass_destroy(&again);
    ct_text_destroy(&text);
}

FUZZ_TOKENS(0, NULL);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const ct_job_link link = { .byte_s = 1e-9, .latency_s = 1e-6 };
    ct_forward_pass f;
    ct_forward_times t;

    ct_log_set_sink(fuzz_drop, NULL);
    if (ct_forward_pass_parse("fuzz", (const char *)data, size, &f) != CT_OK) return 0;
    for (int i = 0; i < f.n_step; i++)
        if ((f.step[i].pair < 0) || ((f.n_pair > 0) && (f.step[i].pair >= f.n_pair))) abort();
    if (ct_forward_pass_time(&f, link, true, &t) != CT_OK) abort();
    if (!(t.all_s >= t.compute_s)) abort();
    read_again(&f);
    ct_forward_pass_destroy(&f);
    return 0;
}
