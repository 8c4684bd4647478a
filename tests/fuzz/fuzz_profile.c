/* Profiles: any bytes give a profile whose steps and parameters are whole, or CT_ERR_DATA. */
#include <stdlib.h>

#include "framework/base/log.h"
#include "cli/profile/profile.h"
#include "tests/fuzz/folder.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/tokens.h"

/* 1 for each step of the kind whose parameter, or sum, is not one. */
static int strays(const ct_profile *p, const ct_step *step, int n, ct_step_kind kind, int *n_p)
{
    int bad = 0;

    for (int i = 0; i < n; ++i) {
        if (step[i].kind != kind) continue;
        if (step[i].of == CT_PAIR_SUM) {
            bad += (step[i].pair < p->n_param) || (step[i].pair >= p->n_param + p->n_sum) ||
                   (step[i].count < 1);
            continue;
        }
        *n_p += 1;
        bad += (step[i].param < 0) || (step[i].param >= p->n_param);
    }
    return bad;
}

static void use(ct_profile *p)
{
    int n_ready = 0, n_wait = 0;

    if (strays(p, p->backward, p->n_backward, CT_STEP_BEGIN, &n_ready) > 0) abort();
    if (strays(p, p->forward, p->n_forward, CT_STEP_WAIT, &n_wait) > 0) abort();
    if (n_ready != p->n_param) abort();
    for (int i = 0; i < p->n_param; ++i) {
        if ((p->param[i].offset < 0) || (p->param[i].count < 0)) abort();
        if ((i > 0) && (p->param[i].offset < p->param[i - 1].offset)) abort();
    }
    for (int k = 0; k < 3; k++) {
        ct_profile_timeline l;

        if (ct_profile_make_line(p, (ct_step_timeline_overlap)k, 1, &l) != CT_OK) abort();
        if ((l.line.n_range != p->n_param) || (l.line.n_backward < p->n_param)) abort();
        ct_profile_line_release(&l);
    }
    if (!(ct_profile_norm_s(p) >= 0)) abort();
    if (ct_profile_check_net(p, "fuzz", p->net_hash) != CT_OK) abort();
    if (ct_profile_check_net(p, "fuzz", "another") == CT_OK) abort();
    ct_profile_scale(p, 100, 8);
    if (!(ct_profile_compute_s(p) >= 0)) abort();
    for (int i = 0; i < 3; ++i) {
        if (!(ct_profile_jitter(p, i) >= 0)) abort();
    }
}

FUZZ_TOKENS(0, NULL);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ct_profile *p = NULL;

    ct_log_set_sink(fuzz_drop, NULL);
    if (ct_profile_parse("fuzz", (const char *)data, size, &p) == CT_OK) {
        char path[128];

        use(p);
        ct_profile_destroy(p);
        snprintf(path, sizeof(path), "%s/profile.json", fuzz_folder_path());
        fuzz_write(path, data, size);
        if (ct_profile_read(path, &p) != CT_OK) abort();
    }
    ct_profile_destroy(p);
    return 0;
}
