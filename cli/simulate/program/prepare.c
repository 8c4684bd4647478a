#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/config/config.h"
#include "cli/simulate/program/sim.h"

static ct_status read_positive(const ct_sim *sim, const char *name, double *value_p)
{
    const char *text = ct_options_text(sim->options, name);
    char *end = NULL;

    *value_p = 0;
    if (text == NULL) return CT_OK;
    *value_p = strtod(text, &end);
    if ((end == text) || (*end != '\0') || !isfinite(*value_p) || (*value_p <= 0))
        return CT_FAIL(CT_ERR_CONFIG, "--%s=%s: expected a number above 0", name, text);
    return CT_OK;
}

static ct_status read_solver(ct_sim *sim)
{
    const ct_options *o = sim->options;
    const char *spec = ct_options_text(o, "compression");

    sim->solver = malloc(sizeof(*sim->solver));
    if (sim->solver == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a solver");
    ct__solver_parameter__init(sim->solver);
    for (int i = 0; i < ct_options_n(o, "set"); ++i) {
        ct_origin origin;
        const char *entry = ct_options_entry(o, "set", i, &origin), *value = strchr(entry, '=');
        char path[96];

        if ((value == NULL) || ((size_t)(value - entry) >= sizeof(path)))
            return CT_FAIL(CT_ERR_CONFIG, "--set=%s: expected FIELD=VALUE", entry);
        snprintf(path, sizeof(path), "%.*s", (int)(value - entry), entry);
        CT_TRY(ct_prototxt_set(&sim->solver->base, path, value + 1, "--set"));
    }
    if (spec != NULL) CT_TRY(ct_config_compression(sim->solver, spec, "--compression"));
    return CT_OK;
}

static ct_sim_overlap read_overlap(const char *word)
{
    if (word == NULL) return CT_SIM_BOTH;
    if (strcmp(word, "off") == 0) return CT_SIM_OFF;
    return (strcmp(word, "backward") == 0) ? CT_SIM_BACKWARD : CT_SIM_BOTH;
}

ct_status ct_sim_prepare(ct_sim *sim)
{
    const ct_options *o = sim->options;
    const char *file = ct_options_text(o, "profile");
    const char *progress = ct_options_text(o, "progress");
    double images_per_s = 0;

    if (ct_options_text(o, "bench") != NULL) return CT_OK;
    if (file == NULL) return CT_FAIL(CT_ERR_CONFIG, "--profile or --bench is missing");
    CT_TRY(read_positive(sim, "images_per_s", &images_per_s));
    sim->thread = (progress == NULL) || (strcmp(progress, "thread") == 0);
    sim->n_step = (int)ct_options_count(o, "iterations", 2);
    sim->n_warmup = (int)ct_options_count(o, "warmup", 1);
    sim->overlap = read_overlap(ct_options_text(o, "overlap"));
    if (sim->n_step < 1) return CT_FAIL(CT_ERR_CONFIG, "--iterations: at least 1");
    CT_TRY(read_solver(sim));
    CT_TRY(ct_profile_read(file, &sim->profile));
    ct_profile_scale(sim->profile, images_per_s, ct_options_count(o, "batch", 0));
    if ((ct_options_text(o, "jitter_seed") != NULL) && (sim->profile->n_sample == 0))
        return CT_FAIL(CT_ERR_CONFIG, "%s has no step_ms_samples to draw jitter from", file);
    return CT_OK;
}

void ct_sim_release(ct_sim *sim)
{
    if (sim->solver != NULL) ct__solver_parameter__free_unpacked(sim->solver, NULL);
    ct_profile_destroy(sim->profile);
}
